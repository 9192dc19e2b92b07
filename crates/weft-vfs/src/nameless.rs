//! Files without a name (`O_TMPFILE`): they are here alone until somebody gives them one. Of those that have lost their last one
//! the extended attributes are here as well.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use weft_remote::{
    Attributes, Audience, Call, Caller, Change, Entry, Figure, FileId, FileKind, Lease, Name, NewAttributes, NewMode,
    Owner, RemoteError, Version, clock,
};
use weft_store::{DentryRecord, DentrySource, DentryTarget, NodeId, NodeRecord, Record, Store};

use crate::inode::Inode;
use crate::learn::Told;
use crate::lookup::Looked;
use crate::open::{EMPTY, Opened};
use crate::vfs::Vfs;
use crate::{Result, VfsError};

impl Vfs {
    /// Makes a file without a name in the tree of a directory, and opens it for reading and writing. Nobody is asked: what
    /// is written stays here until the file is closed, or is given a name by [`Vfs::link`].
    ///
    /// # Errors
    /// `ReadOnly` where the tree takes no changes, `NotADirectory`.
    pub async fn create_nameless(self: Arc<Self>, call: Call, dir: NodeId, mode: NewMode) -> Result<(Looked, Opened)> {
        let Ok(name) = Name::new("nameless") else { return Err(VfsError::NotFound) };
        let (dir, name) = self.spot(&call, dir, name.as_bytes()).await?;
        let (now, learnt) = (SystemTime::now(), clock::now());
        let above = dir.record.read().attributes;
        // As what has a name, it gets the group of a directory with that bit.
        let inherited = above.owner.filter(|_| above.mode.is_some_and(|mode| mode & SET_GROUP_ID != 0));
        let gid = inherited.map_or(call.caller.gid, |owner| owner.gid);
        let attributes = Attributes {
            size: Figure::Exact(0),
            modified: Figure::Exact(now),
            changed: Figure::Exact(now),
            accessed: Figure::Exact(now),
            mode: Some(mode.masked()),
            owner: Some(Owner { uid: call.caller.uid, gid }),
            links: Some(0),
            ..Attributes::of_kind(FileKind::File)
        };
        let record = NodeRecord {
            binding: dir.record.read().binding,
            file: FileId::new([NAMELESS, &random().to_le_bytes(), &random().to_le_bytes()].concat()),
            parent: dir.id,
            name,
            attributes,
            version: Version::None,
            lease: Lease::Spent,
            audience: Audience::Everyone,
            learnt,
            origin: None,
        };
        let id = self.identify(record.binding, &record.file)?;
        self.store.apply(vec![Record::Node(id, Some(record))])?;
        let inode = self.inode(id)?;
        inode.content.lock().asked_mode = Some(mode);
        let stat = self.show(&inode, Duration::ZERO, &Caller::DAEMON);
        Ok((Looked::Entry { stat, ttl: Duration::ZERO }, self.open_empty(inode, true)))
    }

    /// Gives a file without a name one: it is made at the source, and all of it sent.
    pub(crate) async fn name_nameless(
        self: &Arc<Self>,
        call: &Call,
        file: &Arc<Inode>,
        (dir, name): (&Arc<Inode>, &Name),
    ) -> Result<Looked> {
        let _gate = file.gate.lock().await;
        let here = file.record();
        if !file.is_nameless() {
            return Err(VfsError::NotFound);
        }
        let mode = here.attributes.mode.unwrap_or(0);
        // Whether the umask counts is the source's to say, where nobody has set the mode since.
        let asked = file.content.lock().asked_mode.filter(|asked| asked.masked() == mode);
        let change = Change::Create {
            dir: dir.record().file,
            name: name.clone(),
            kind: FileKind::File,
            mode: asked.unwrap_or(mode.into()),
            device: 0,
        };
        let _listing = dir.gate.lock().await;
        self.begin_draft_of_nameless(file)?;
        let answer = self.apply(call, dir, change, SystemTime::now(), &Version::None).await?;
        let unheard = self.unheard(&[(dir, name)]);
        let told = Told::of_change(&answer);
        let entry = answer.value.entry.ok_or(VfsError::NotFound)?;
        self.make_known(file, dir, Entry { name: name.clone(), ..entry }, &told)?;
        if let Some(draft) = file.draft() {
            draft.turn_to(|dirty| dirty.rest_on(told.version))?;
        }
        self.send_held(call.caller, file).await?;
        for (name, value) in self.notes_of_nameless(file.id)? {
            self.set_extended_at_source(call, file, (name, Some(value)), None).await?;
        }
        self.forget_nameless(file.id);
        let made = file.record().attributes;
        let owner = here.attributes.owner.filter(|owner| made.owner != Some(*owner));
        let (uid, gid) = (owner.map(|owner| owner.uid), owner.map(|owner| owner.gid));
        // Writing takes set-id bits away, as another owner does. What a default access list does not allow stays so.
        let is_without = |made: &u16| (made ^ mode) & 0o7000 != 0 || (owner.is_some() && mode & SET_IDS != 0);
        let restored = made.mode.filter(is_without).map(|made| made & 0o777 | mode & 0o7000);
        let wanted = NewAttributes { mode: restored, uid, gid, ..Default::default() };
        if wanted != NewAttributes::default() {
            self.set_attributes(call, file, wanted).await?;
        }
        self.distrust_names(&[dir])?;
        self.outdate_answers(call, &[dir]).await;
        unheard.heard();
        let left = self.attributes_remaining(file)?;
        Ok(Looked::Entry { stat: self.show(file, left, &call.caller), ttl: left })
    }

    /// Begins the draft of a file without a name of which nothing was written, if somebody has it open: with a name it is one
    /// version, and who has it open goes on in the same as who opens it by that.
    fn begin_draft_of_nameless(&self, inode: &Arc<Inode>) -> Result<()> {
        let mut slot = inode.draft.write();
        if slot.is_none() && !inode.content.lock().is_closed() {
            let version = inode.record.read().version.clone();
            self.begin_draft(inode, &mut slot, (version, 0), (EMPTY, None))?;
        }
        Ok(())
    }

    /// An inode is the file that its source has now, by another number than the source's identity gives. Whoever looks it up
    /// later may get that one for it, when this one has been forgotten.
    fn make_known(&self, inode: &Inode, dir: &Inode, entry: Entry, told: &Told) -> Result<()> {
        let _names = self.renames.lock();
        let record = {
            let mut record = inode.record.write();
            let learnt = self.learnt(record.binding, told);
            *record = told.node(record.binding, dir.id, &entry, learnt);
            record.clone()
        };
        inode.gone.store(false, Ordering::Release);
        let target = DentryTarget::Node(inode.id);
        let dentry = DentryRecord { target, lease: told.lease, source: DentrySource::LookedUp, learnt: record.learnt };
        let dentry = Record::Dentry(dir.id, entry.name, Some(dentry));
        self.store.apply(vec![Record::Node(inode.id, Some(record.clone())), dentry])?;
        self.note_alias(inode.id, &record)
    }

    /// Notes the extended attributes of a file that is about to lose its last name: whoever has it open asks for them after.
    ///
    /// # Errors
    /// What the remote says.
    pub(crate) async fn note_extended(&self, call: &Call, inode: &Inode) -> Result<()> {
        let (remote, file) = (self.remote_of(inode)?, inode.record().file);
        if inode.is_gone() || !remote.capabilities().extended {
            return Ok(());
        }
        self.forget_nameless(inode.id);
        let names = self.ask_for(call, remote.extended_names(call, &file)).await?;
        for name in names.iter().filter(|name| name.starts_with(USER_ATTRIBUTES)) {
            if let Some(value) = self.ask_for(call, remote.extended(call, &file, name)).await? {
                self.note_of_nameless(inode.id, name, Some(&value))?;
            }
        }
        Ok(())
    }

    /// An extended attribute of a file without a name.
    pub(crate) fn extended_of_nameless(&self, inode: &Inode, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.store.notes(NOTES).get(&key(inode.id, name)).map_err(VfsError::notes)
    }

    /// The names of its extended attributes.
    pub(crate) fn extended_names_of_nameless(&self, inode: &Inode) -> Result<Vec<Vec<u8>>> {
        Ok(self.notes_of_nameless(inode.id)?.into_iter().map(|(name, _)| name).collect())
    }

    /// Sets an extended attribute of a file without a name, or takes it away: its source is told when it has one. The caller
    /// holds the inode's gate.
    ///
    /// # Errors
    /// `NoAttribute`; of [`RemoteError`] `Exists`, `NoSpace`, and `Unsupported` for others than the user's.
    pub(crate) fn set_extended_of_nameless(
        &self,
        inode: &Inode,
        name: &[u8],
        value: Option<&[u8]>,
        must_exist: Option<bool>,
    ) -> Result<()> {
        let detail = || format!("the attribute {} of a file without a name", name.escape_ascii());
        let takes_any = self.remote_of(inode)?.capabilities().extended;
        if !takes_any || !name.starts_with(USER_ATTRIBUTES) {
            return Err(RemoteError::Unsupported { detail: detail() }.into());
        }
        let known = self.notes_of_nameless(inode.id)?;
        let is_there = known.iter().any(|(there, _)| there == name);
        match must_exist {
            Some(true) if !is_there => return Err(VfsError::NoAttribute),
            Some(false) if is_there => return Err(RemoteError::Exists { detail: detail() }.into()),
            _ => {}
        }
        let others = known.iter().filter(|(there, _)| there != name).map(|(there, value)| there.len() + value.len());
        let length = value.map_or(0, |value| name.len() + value.len());
        if others.sum::<usize>() + length > EXTENDED_BYTES_MAX {
            return Err(RemoteError::NoSpace { detail: detail() }.into());
        }
        self.note_of_nameless(inode.id, name, value)
    }

    fn note_of_nameless(&self, id: NodeId, name: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.has_nameless_notes.store(true, Ordering::Release);
        self.store.notes(NOTES).put(&key(id, name), value).map_err(VfsError::notes)
    }

    /// Whether a former daemon has left notes.
    pub(crate) fn finds_nameless_notes(store: &Arc<Store>) -> Result<bool> {
        Ok(!store.notes(NOTES).list(b"").map_err(VfsError::notes)?.is_empty())
    }

    /// Nothing need be known of a file without a name any more: it has one, or is nobody's.
    pub(crate) fn forget_nameless(&self, id: NodeId) {
        // Most are removed where there never was any.
        if !self.has_nameless_notes.load(Ordering::Acquire) {
            return;
        }
        let notes = self.store.notes(NOTES);
        let forget = |(name, _): (Vec<u8>, _)| notes.put(&key(id, &name), None).map_err(VfsError::notes);
        let forgotten = self.notes_of_nameless(id).and_then(|known| known.into_iter().try_for_each(forget));
        if let Err(error) = forgotten {
            tracing::warn!(%error, node = id.0, "attributes of what was without a name are not forgotten");
        }
    }

    /// The extended attributes of a file without a name.
    fn notes_of_nameless(&self, id: NodeId) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let notes = self.store.notes(NOTES).list(&key(id, b"")).map_err(VfsError::notes)?;
        Ok(notes.into_iter().map(|(key, value)| (key[NODE_BYTES..].to_vec(), value)).collect())
    }
}

impl Inode {
    /// Whether it never had a name: its source does not know of it.
    pub(crate) fn is_nameless(&self) -> bool {
        self.is_gone() && is_nameless(&self.record.read().file)
    }
}

/// Whether a file was made without a name, by its identity.
pub(crate) fn is_nameless(file: &FileId) -> bool {
    file.as_bytes().starts_with(NAMELESS)
}

/// What is made in a directory with this bit gets its group.
const SET_GROUP_ID: u16 = 0o2000;
/// The bits of a mode that another owner takes away.
const SET_IDS: u16 = 0o6000;
/// Where an extended attribute of a node is noted.
fn key(id: NodeId, name: &[u8]) -> Vec<u8> {
    [&id.0.to_be_bytes(), name].concat()
}

fn random() -> u64 {
    RandomState::new().hash_one(())
}

/// What identities of files without a name begin with: no source gives such ones.
const NAMELESS: &[u8] = b"\0nameless\0";
/// Whose notes their extended attributes are, by node and name.
const NOTES: &str = "nameless";
/// How long the node is there.
const NODE_BYTES: usize = 8;
/// What names of extended attributes begin with that are the user's: those alone every kind that has any takes.
pub(crate) const USER_ATTRIBUTES: &[u8] = b"user.";
/// Most bytes of names and values of the extended attributes of one file.
const EXTENDED_BYTES_MAX: usize = 1 << 20;
