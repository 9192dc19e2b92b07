//! Names that are made, moved and taken away. Each is one change, made at its source before it is answered.
//!
//! Whoever changes names of a directory holds its gate from before the change until what came of it is learnt, so that a
//! listing is of before or after it. A file's gate is taken before its directory's, of two directories that of the lower
//! number first.

use std::sync::Arc;
use std::time::SystemTime;

use weft_remote::{
    Answer, BadName, Call, Change, Changed, Entry, FileKind, Lease, Name, NamesNow, NewMode, Outcome, RemoteError,
    RenameTarget, Version,
};
use weft_store::{DentryRecord, DentrySource, DentryTarget, ListingRecord, NodeId, NodeRecord, Record};

use crate::absences::ON_ITS_WAY_MAX;
use crate::ask::{NewNode, OpenFor, Removal};
use crate::inode::Inode;
use crate::learn::Told;
use crate::lookup::Looked;
use crate::notice::Notice;
use crate::open::Opened;
use crate::vfs::Vfs;
use crate::{Result, VfsError};

impl Vfs {
    /// Makes a file, a directory or a special file.
    ///
    /// # Errors
    /// `ReadOnly` where the tree takes no changes; what the remote says.
    pub async fn create(self: Arc<Self>, call: Call, dir: NodeId, name: Vec<u8>, new: NewNode) -> Result<Looked> {
        let (dir, name) = self.spot(&call, dir, &name).await?;
        let NewNode { kind, mode, device } = new;
        let change = Change::Create { dir: dir.record().file, name: name.clone(), kind, mode, device };
        self.make(&call, &dir, &name, change).await
    }

    /// Makes a file and opens it for reading and writing.
    ///
    /// # Errors
    /// As of [`Vfs::create`].
    pub async fn create_open(
        self: Arc<Self>,
        call: Call,
        dir: NodeId,
        name: Vec<u8>,
        mode: NewMode,
    ) -> Result<(Looked, Opened)> {
        let new = NewNode { kind: FileKind::File, mode, device: 0 };
        let made = self.clone().create(call, dir, name, new).await?;
        let Looked::Entry { stat, .. } = made else { return Err(VfsError::NotFound) };
        let inode = self.inode(stat.node)?;
        let opened = match stat.size {
            0 => self.open_made(&inode)?,
            // Somebody else has put something into it already.
            _ => self.clone().open_here(call, stat.node, OpenFor { writing: true, ..OpenFor::default() }).await?,
        };
        Ok((made, opened))
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// As of [`Vfs::create`].
    pub async fn symlink(self: Arc<Self>, call: Call, dir: NodeId, name: Vec<u8>, target: Vec<u8>) -> Result<Looked> {
        let (dir, name) = self.spot(&call, dir, &name).await?;
        let change = Change::Symlink { dir: dir.record().file, name: name.clone(), target };
        self.make(&call, &dir, &name, change).await
    }

    /// Gives a file one more name.
    ///
    /// # Errors
    /// As of [`Vfs::create`]; `OtherTree` when the directory is not of the file's tree.
    pub async fn link(self: Arc<Self>, call: Call, node: NodeId, dir: NodeId, name: Vec<u8>) -> Result<Looked> {
        let (dir, name) = self.spot(&call, dir, &name).await?;
        let file = self.inode(node)?;
        self.same_tree(&file, &dir)?;
        self.refuse_moved(&call, &file).await?;
        if file.is_gone() {
            return Box::pin(self.name_nameless(&call, &file, (&dir, &name))).await;
        }
        let change = Change::Link { file: file.record().file, dir: dir.record().file, name: name.clone() };
        // The kind learns the file's place again as well, if it has forgotten it.
        let _gate = file.gate.lock().await;
        let _listing = dir.gate.lock().await;
        let call = call.renewed(self.options.deadline);
        let applied = self.apply_to_both(&call, (&dir, &file), change).await;
        self.retries.forget(&call);
        let answer = self.there_already(&dir, &name, applied)?;
        let unheard = self.unheard(&[(&dir, &name)]);
        let version = answer.version.clone();
        let looked = self.made(&call, &dir, &name, answer)?;
        self.rest_on(&call, &file, &version).await?;
        self.outdate_answers(&call, &[&dir]).await;
        unheard.heard();
        Ok(looked)
    }

    /// Takes a name away.
    ///
    /// # Errors
    /// As of [`Vfs::create`]; `IsADirectory` or `NotADirectory` when it is not what the removal is for.
    pub async fn remove_name(self: Arc<Self>, call: Call, dir: NodeId, name: Vec<u8>, of: Removal) -> Result<()> {
        let (dir, name) = self.spot(&call, dir, &name).await?;
        let victim = Box::pin(self.victim_counted(&call, &dir, &name)).await?;
        if let Some((_, record)) = &victim {
            match (of, record.attributes.kind == FileKind::Directory) {
                (Removal::File, true) => return Err(VfsError::IsADirectory),
                (Removal::Directory, false) => return Err(VfsError::NotADirectory),
                _ => {}
            }
        }
        Box::pin(self.keep_open(&call, victim.as_ref())).await;
        let _listing = dir.gate.lock().await;
        let change = Change::Remove { dir: dir.record().file, name: name.clone() };
        let applied = self.apply(&call, &dir, change, SystemTime::now(), &Version::None).await;
        let answer = match applied {
            Ok(answer) => answer,
            Err(error) => return Err(Box::pin(self.gone_in_change(&call, &[&dir], error)).await),
        };
        let unheard = self.unheard(&[(&dir, &name)]);
        let told = Told::of_change(&answer);
        self.name_is_gone(&dir, &name, &told.under(self.lease_in(&dir, &answer.value.dirs, &told)))?;
        self.names_changed(&[&dir], &answer.value.dirs, &told)?;
        self.lost_a_name(victim, (&dir, &name))?;
        self.outdate_answers(&call, &[&dir]).await;
        unheard.heard();
        Ok(())
    }

    /// Moves a name.
    ///
    /// # Errors
    /// As of [`Vfs::create`]; `OtherTree` when the two directories are not of one tree.
    pub async fn rename(
        self: Arc<Self>,
        call: Call,
        (from, name): (NodeId, Vec<u8>),
        (to, new_name): (NodeId, Vec<u8>),
        target: RenameTarget,
    ) -> Result<()> {
        let (from, name) = self.spot(&call, from, &name).await?;
        let (to, new_name) = self.spot(&call, to, &new_name).await?;
        self.same_tree(&from, &to)?;
        let moved = self.moving(&call, &from, &name).await?;
        let victim = Box::pin(self.victim_counted(&call, &to, &new_name)).await?;
        let same = matches!((&moved, &victim), (Some((moved, _)), Some((victim, _))) if moved == victim);
        if target == RenameTarget::Replaced && !same {
            Box::pin(self.keep_open(&call, victim.as_ref())).await;
        }
        let change = Change::Rename {
            from: from.record().file,
            name: name.clone(),
            to: to.record().file,
            new_name: new_name.clone(),
            target,
        };
        let listings = gates(&from, &to).await;
        let applied = self.apply_to_both(&call, (&from, &to), change).await;
        let answer = self.there_already(&to, &new_name, applied)?;
        let unheard = self.unheard(&[(&from, &name), (&to, &new_name)]);
        let is_told = answer.value.entry.is_some();
        if same && is_told {
            // Two names of one file: nothing has changed, as rename(2) has it.
            unheard.heard();
            return Ok(());
        }
        let other = victim.as_ref().map(|(id, _)| *id).filter(|_| target == RenameTarget::Exchanged);
        let id = moved.map(|(id, _)| id);
        let came = self.moved((&from, &name), (&to, new_name.clone()), (id, other), answer)?;
        if target == RenameTarget::Replaced && is_told {
            self.lost_a_name(victim, (&to, &new_name))?;
        }
        self.outdate_answers(&call, &[&from, &to]).await;
        unheard.heard();
        drop(listings);
        let moved = came.and_then(|(id, version)| Some((self.inodes.peek(id)?, version)));
        // Whoever has the gate sends it, or asks about it; the next use asks in any case.
        if let Some((inode, version)) = moved
            && let Ok(_gate) = inode.gate.try_lock()
        {
            self.rest_on(&call, &inode, &version).await?;
        }
        Ok(())
    }

    /// Learns what came of the move of what was taken to be this; of an exchange, with this other file. Returns what was moved,
    /// and its version, as far as that is told.
    fn moved(
        &self,
        (from, name): (&Inode, &Name),
        (to, new_name): (&Inode, Name),
        (moved, other): (Option<NodeId>, Option<NodeId>),
        answer: Answer<Outcome>,
    ) -> Result<Option<(NodeId, Version)>> {
        let told = Told::of_change(&answer);
        let Some(entry) = answer.value.entry else { return self.distrust_names(&[from, to]).map(|()| None) };
        let left = told.under(self.lease_in(from, &answer.value.dirs, &told));
        match other {
            Some(other) => self.moved_to(other, from, name, &left)?,
            None => self.name_is_gone(from, name, &left)?,
        }
        let id = self.learn_made(to, Entry { name: new_name.clone(), ..entry }, &told)?;
        if moved != Some(id) {
            // The kernel takes the new name to lead to what it knew by the old one, as soon as it has the answer.
            let (parent, name) = (self.namespace.shown(to.id), new_name);
            self.notices.send_after(ON_ITS_WAY_MAX, vec![Notice::Expired { parent, name }], &self.runtime);
        }
        self.names_changed(&[from, to], &answer.value.dirs, &told)?;
        Ok(Some((id, told.version)))
    }

    /// The directory and the name that a change is about.
    pub(crate) async fn spot(self: &Arc<Self>, call: &Call, dir: NodeId, name: &[u8]) -> Result<(Arc<Inode>, Name)> {
        if self.namespace.is_own(dir) {
            return Err(VfsError::ReadOnly);
        }
        let name = Name::new(name).map_err(|error| match error {
            BadName::TooLong => VfsError::NameTooLong,
            _ => VfsError::NotFound,
        })?;
        let dir = self.inode(dir)?;
        self.refuse_read_only(&dir)?;
        if dir.kind() != FileKind::Directory {
            return Err(VfsError::NotADirectory);
        }
        if dir.is_gone() {
            return Err(VfsError::NotFound);
        }
        self.admit(call, &dir).await?;
        Ok((dir, name))
    }

    fn same_tree(&self, one: &Inode, other: &Inode) -> Result<()> {
        // One after the other, for both may be the same inode.
        let binding = one.record.read().binding;
        if binding == other.record.read().binding { Ok(()) } else { Err(VfsError::OtherTree) }
    }

    async fn make(self: &Arc<Self>, call: &Call, dir: &Arc<Inode>, name: &Name, change: Change) -> Result<Looked> {
        let _listing = dir.gate.lock().await;
        let applied = self.apply(call, dir, change, SystemTime::now(), &Version::None).await;
        let answer = match self.there_already(dir, name, applied) {
            Ok(answer) => answer,
            Err(error) => return Err(Box::pin(self.gone_in_change(call, &[dir], error)).await),
        };
        let unheard = self.unheard(&[(dir, name)]);
        let made = self.made(call, dir, name, answer)?;
        self.outdate_answers(call, &[dir]).await;
        unheard.heard();
        Ok(made)
    }

    /// What came of a change that gives a name: where its source has that already, that it is absent is not so, and whoever looks
    /// now finds it.
    fn there_already(&self, dir: &Inode, name: &Name, applied: Result<Answer<Outcome>>) -> Result<Answer<Outcome>> {
        if let Err(VfsError::Remote(RemoteError::Exists { .. })) = &applied {
            if self.store.dentry(dir.id, name)?.is_some_and(|known| known.target == DentryTarget::Absent) {
                self.store.apply(vec![Record::Dentry(dir.id, name.clone(), None)])?;
            }
            self.distrust_names(&[dir])?;
        }
        applied
    }

    /// A change about two inodes, whose kind may have forgotten the place of either.
    async fn apply_to_both(
        self: &Arc<Self>,
        call: &Call,
        (one, other): (&Arc<Inode>, &Arc<Inode>),
        change: Change,
    ) -> Result<Answer<Outcome>> {
        let now = SystemTime::now();
        let applied = match self.apply(call, one, change.clone(), now, &Version::None).await {
            Err(VfsError::Remote(RemoteError::Unplaced { .. })) => {
                self.apply(call, other, change, now, &Version::None).await
            }
            outcome => outcome,
        };
        match applied {
            Err(error) => Err(Box::pin(self.gone_in_change(call, &[one, other], error)).await),
            applied => applied,
        }
    }

    fn made(self: &Arc<Self>, call: &Call, dir: &Inode, name: &Name, answer: Answer<Outcome>) -> Result<Looked> {
        let told = Told::of_change(&answer);
        let Some(entry) = answer.value.entry else {
            self.distrust_names(&[dir])?;
            return Err(VfsError::NotFound);
        };
        let id = self.learn_made(dir, Entry { name: name.clone(), ..entry }, &told)?;
        self.names_changed(&[dir], &answer.value.dirs, &told)?;
        self.learn_empty(id, &answer.value.dirs, &told)?;
        let inode = self.inode(id)?;
        let left = self.attributes_remaining(&inode)?;
        Ok(Looked::Entry { stat: self.show(&inode, left, &call.caller), ttl: self.name_ttl(&inode, left) })
    }

    /// Learns what a name leads to that was made or moved here: the kernel knows, and is not told.
    fn learn_made(&self, dir: &Inode, entry: Entry, told: &Told) -> Result<NodeId> {
        let binding = dir.record.read().binding;
        let id = self.identify(binding, &entry.id)?;
        let learnt = self.learnt(binding, told);
        let old = self.store.node(id)?;
        let record = told.node(binding, dir.id, &entry, learnt);
        self.overtaken.note(id);
        self.absences.end(dir.id, &entry.name);
        let _names = self.renames.lock();
        let known = self.store.dentry(dir.id, &entry.name)?;
        self.tell_entry(known.as_ref(), id, old.as_ref(), &record);
        let target = DentryTarget::Node(id);
        let dentry = DentryRecord { target, lease: told.lease, source: DentrySource::LookedUp, learnt };
        let mut changes = vec![Record::Dentry(dir.id, entry.name, Some(dentry))];
        self.put_node(&mut changes, (id, true), old.as_ref(), record)?;
        self.store.apply(changes)?;
        Ok(id)
    }

    /// A node has another name now: of its own accord nobody has told what it is under it.
    fn moved_to(&self, id: NodeId, dir: &Inode, name: &Name, told: &Told) -> Result<()> {
        let known = self.store.node(id)?;
        let Some(mut record) = known else { return self.name_is_gone(dir, name, told) };
        self.overtaken.note(id);
        let _names = self.renames.lock();
        (record.parent, record.name, record.learnt) = (dir.id, name.clone(), SystemTime::UNIX_EPOCH);
        let learnt = self.learnt(record.binding, told);
        let target = DentryTarget::Node(id);
        let dentry = DentryRecord { target, lease: told.lease, source: DentrySource::LookedUp, learnt };
        if let Some(inode) = self.inodes.peek(id) {
            *inode.record.write() = record.clone();
        }
        let changes = vec![Record::Dentry(dir.id, name.clone(), Some(dentry)), Record::Node(id, Some(record))];
        Ok(self.store.apply(changes)?)
    }

    /// How long a name is trusted that a change has left behind, of which its source has told nothing by itself: as long as
    /// what it has told of the directory. Where it tells of changes, what it promised to tell of another name says nothing
    /// of this one.
    fn lease_in(&self, dir: &Inode, now: &[Changed], told: &Told) -> Lease {
        let record = dir.record.read();
        match now.iter().find(|changed| changed.entry.id == record.file) {
            Some(changed) => changed.lease,
            None if self.is_breakable(record.binding) => Lease::Spent,
            None => told.lease,
        }
    }

    /// Learns that a name is gone by what was done here.
    fn name_is_gone(&self, dir: &Inode, name: &Name, told: &Told) -> Result<()> {
        let learnt = self.learnt(dir.record.read().binding, told);
        let dentry =
            DentryRecord { target: DentryTarget::Absent, lease: told.lease, source: DentrySource::LookedUp, learnt };
        let _names = self.renames.lock();
        self.tell_gone(self.store.dentry(dir.id, name)?.as_ref());
        self.absent_names.note(dir.id, name);
        Ok(self.store.apply(vec![Record::Dentry(dir.id, name.clone(), Some(dentry))])?)
    }

    /// Directories whose names were changed here: what their listings and times are now is asked when it is wanted.
    pub(crate) fn distrust_names(&self, dirs: &[&Inode]) -> Result<()> {
        for dir in dirs {
            let listing = self.store.listing(dir.id)?;
            self.distrust_with(dir, listing.map(|listing| Record::Listing(dir.id, Some(outdated(listing)))))?;
        }
        Ok(())
    }

    /// Directories whose names were changed here: what the source has told of them with that need not be asked, and the rest is
    /// when it is wanted. The kernel has seen for itself that they changed. Their gates are held.
    fn names_changed(&self, dirs: &[&Inode], now: &[Changed], told: &Told) -> Result<()> {
        for dir in dirs {
            let file = dir.record.read().file.clone();
            let changed = now.iter().find(|changed| changed.entry.id == file);
            let _names = self.renames.lock();
            let listing = self.store.listing(dir.id)?.map(|listing| match changed.map(|changed| changed.names) {
                // No version that the source has told is that of the names now.
                Some(NamesNow::Followed) => ListingRecord { version: Version::None, ..listing },
                _ => outdated(listing),
            });
            let record = {
                let mut record = dir.record.write();
                record.learnt = SystemTime::UNIX_EPOCH;
                if let Some(Changed { entry, lease, audience, .. }) = changed {
                    record.learnt = self.learnt(record.binding, told);
                    record.attributes = entry.attributes;
                    (record.version, record.lease, record.audience) = (entry.version.clone(), *lease, *audience);
                }
                record.clone()
            };
            let listing = listing.map(|listing| Record::Listing(dir.id, Some(listing)));
            self.store.apply([Record::Node(dir.id, Some(record))].into_iter().chain(listing).collect())?;
        }
        Ok(())
    }

    /// Learns the listing of a directory that was just made here, if the source has told that it has no names.
    fn learn_empty(&self, dir: NodeId, now: &[Changed], told: &Told) -> Result<()> {
        let Some(record) = self.store.node(dir)? else { return Ok(()) };
        let Some(Changed { lease, audience, names: NamesNow::Empty(completeness), .. }) =
            now.iter().find(|changed| changed.entry.id == record.file)
        else {
            return Ok(());
        };
        let listing = ListingRecord {
            version: Version::None,
            lease: *lease,
            completeness: *completeness,
            audience: *audience,
            learnt: self.learnt(record.binding, told),
            origin: None,
        };
        self.forget_names(dir)?;
        Ok(self.store.apply(vec![Record::Listing(dir, Some(listing))])?)
    }

    /// What an inode is now is asked when it is wanted; the kernel has seen for itself that it changed.
    pub(crate) fn distrust_quietly(&self, inode: &Inode) -> Result<()> {
        self.distrust_with(inode, None)
    }

    fn distrust_with(&self, inode: &Inode, also: Option<Record>) -> Result<()> {
        let _names = self.renames.lock();
        let record = {
            let mut record = inode.record.write();
            record.learnt = SystemTime::UNIX_EPOCH;
            record.clone()
        };
        Ok(self.store.apply([Record::Node(inode.id, Some(record))].into_iter().chain(also).collect())?)
    }

    /// What is moved by a name.
    ///
    /// # Errors
    /// `Stale` where that is another file than was known: the kernel moves what it knows, and follows the path again.
    async fn moving(self: &Arc<Self>, call: &Call, dir: &Inode, name: &Name) -> Result<Option<(NodeId, NodeRecord)>> {
        let known = self.store.dentry(dir.id, name)?.and_then(|dentry| dentry.node());
        let moved = self.victim(call, dir, name).await?;
        // What is absent may have been moved by a former daemon, for this very request.
        let is_other = moved.as_ref().is_some_and(|(id, _)| known.is_some_and(|known| known != *id));
        if is_other && self.begins_again_at(call, dir.id, name) {
            return Err(VfsError::Stale);
        }
        self.retries.forget(call);
        Ok(moved)
    }
}

/// A listing whose names were changed since: it is asked for again. No version that its source has told is that of the names that
/// are known now, also if there are the same again as when it was told.
fn outdated(listing: ListingRecord) -> ListingRecord {
    ListingRecord { version: Version::None, learnt: SystemTime::UNIX_EPOCH, lease: Lease::Spent, ..listing }
}

/// The gates of two directories.
async fn gates<'a>(
    one: &'a Inode,
    other: &'a Inode,
) -> (tokio::sync::MutexGuard<'a, ()>, Option<tokio::sync::MutexGuard<'a, ()>>) {
    match one.id.cmp(&other.id) {
        std::cmp::Ordering::Less => (one.gate.lock().await, Some(other.gate.lock().await)),
        std::cmp::Ordering::Equal => (one.gate.lock().await, None),
        std::cmp::Ordering::Greater => (other.gate.lock().await, Some(one.gate.lock().await)),
    }
}
