//! Files without a name (`O_TMPFILE`): they are here alone until somebody gives them one.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use weft_remote::{
    Attributes, Audience, Call, Caller, Change, Entry, Figure, FileId, FileKind, Lease, Name, NewAttributes, Owner,
    Version,
};
use weft_store::{DentryRecord, DentrySource, DentryTarget, NodeId, NodeRecord, Record};

use crate::inode::Inode;
use crate::learn::Told;
use crate::lookup::Looked;
use crate::open::Opened;
use crate::vfs::Vfs;
use crate::{Result, VfsError};

impl Vfs {
    /// Makes a file without a name in the tree of a directory, and opens it for reading and writing. Nobody is asked: what
    /// is written stays here until the file is closed, or is given a name by [`Vfs::link`].
    ///
    /// # Errors
    /// `ReadOnly` where the tree takes no changes, `NotADirectory`.
    pub async fn create_nameless(self: Arc<Self>, call: Call, dir: NodeId, mode: u16) -> Result<(Looked, Opened)> {
        let Ok(name) = Name::new("nameless") else { return Err(VfsError::NotFound) };
        let (dir, name) = self.spot(&call, dir, name.as_bytes()).await?;
        let now = SystemTime::now();
        let attributes = Attributes {
            size: Figure::Exact(0),
            modified: Figure::Exact(now),
            changed: Figure::Exact(now),
            accessed: Figure::Exact(now),
            mode: Some(mode),
            owner: Some(Owner { uid: call.caller.uid, gid: call.caller.gid }),
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
            learnt: now,
            origin: None,
        };
        let id = self.identify(record.binding, &record.file)?;
        self.store.apply(vec![Record::Node(id, Some(record))])?;
        let inode = self.inode(id)?;
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
        if !file.is_gone() || !here.file.as_bytes().starts_with(NAMELESS) {
            return Err(VfsError::NotFound);
        }
        let mode = here.attributes.mode.unwrap_or(0);
        let change = Change::Create {
            dir: dir.record().file,
            name: name.clone(),
            kind: FileKind::File,
            mode: mode.into(),
            device: 0,
        };
        let _listing = dir.gate.lock().await;
        let answer = self.apply(call, dir, change, SystemTime::now(), &Version::None).await?;
        let unheard = self.unheard(&[(dir, name)]);
        let told = Told::of_change(&answer);
        let entry = answer.value.entry.ok_or(VfsError::NotFound)?;
        self.make_known(file, dir, Entry { name: name.clone(), ..entry }, &told)?;
        if let Some(draft) = file.draft() {
            draft.turn_to(|dirty| dirty.rest_on(told.version))?;
        }
        self.send_held(call.caller, file).await?;
        let made = file.record().attributes;
        let owner = here.attributes.owner.filter(|owner| made.owner != Some(*owner));
        let (uid, gid) = (owner.map(|owner| owner.uid), owner.map(|owner| owner.gid));
        // Writing takes set-id bits away. What a default access list does not allow stays so.
        let is_without = |made: &u16| (made ^ mode) & 0o7000 != 0;
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
}

fn random() -> u64 {
    RandomState::new().hash_one(())
}

/// What identities of files without a name begin with: no source gives such ones.
const NAMELESS: &[u8] = b"\0nameless\0";
