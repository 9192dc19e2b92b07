//! Finding names, and what `stat` shows of what they lead to.
//!
//! A name is answered from the store while its lease lasts, by a complete listing when it is not in it, and
//! otherwise by the remote. A name of a file whose lease has ended is not checked here when its attributes are
//! exact: the kernel gets it with times of zero, and the use that follows (stat, open) does the one check that is
//! needed. A directory's name is checked when the directory is listed, not when it is passed through.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use weft_remote::{Answer, BadName, Call, Caller, Entry, FileKind, Name, clock};
use weft_store::{BindingId, DentryTarget, ListingRecord, NodeId};

use crate::content::Check;
use crate::figures::count;
use crate::freshness::Freshness;
use crate::handle::HandleId;
use crate::inode::Inode;
use crate::learn::Told;
use crate::retry::{Kept, Purpose};
use crate::unasked::Knowledge;
use crate::vfs::{Vfs, is_gone};
use crate::{Result, Stat, VfsError};

/// What a lookup found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looked {
    /// The name is there.
    Entry {
        /// What it leads to.
        stat: Stat,
        /// How long the kernel may take the name to lead there.
        ttl: Duration,
    },
    /// There is no such name.
    Absent {
        /// How long the kernel may take it to be absent.
        ttl: Duration,
    },
}

impl Vfs {
    /// Finds a name in a directory; by `.` what is asked itself, which may be any file, and by `..` the directory that it is in.
    ///
    /// # Errors
    /// `NotADirectory`, `NameTooLong`, `Stale`, `Denied`; whatever keeps the remote from answering.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing that was learnt.
    pub async fn lookup(self: Arc<Self>, call: Call, parent: NodeId, name: Vec<u8>) -> Result<Looked> {
        match name.as_slice() {
            b"." => return self.lookup_itself(call, parent).await,
            b".." => return self.lookup_above(call, parent).await,
            _ => {}
        }
        if self.namespace.is_own(parent) {
            return self.lookup_own(parent, &name);
        }
        let name = match Name::new(&name) {
            Ok(name) => name,
            Err(BadName::TooLong) => return Err(VfsError::NameTooLong),
            Err(_) => return Err(VfsError::NotFound),
        };
        let dir = self.inode(parent)?;
        if dir.kind() != FileKind::Directory {
            return Err(VfsError::NotADirectory);
        }
        self.let_former_place_go(&call, &dir, &name).await;
        let mut looked = match self.follows_again(&call, dir.id, name.as_bytes()) {
            Some(purpose) => Box::pin(self.lookup_again(&call, &dir, &name, purpose)).await,
            None => {
                self.retries.let_beside_go(&call, dir.id, name.as_bytes());
                self.lookup_in(&call, &dir, &name).await
            }
        }?;
        if let Looked::Entry { ttl, .. } = &mut looked
            && self.retries.hold_at(dir.id, name.as_bytes())
        {
            *ttl = Duration::ZERO;
        }
        self.note_told_place(&call, &dir, &name, &looked);
        Ok(looked)
    }

    /// Which inode a name led to when that was noted last; never waits, and asks nobody.
    pub fn known_at(&self, dir: NodeId, name: &[u8]) -> Option<NodeId> {
        let (dir, name) = (self.inode(dir).ok()?, Name::new(name).ok()?);
        self.store.dentry(dir.id, &name).ok()??.node()
    }

    /// Finds a good name in what is a directory.
    pub(crate) async fn lookup_in(self: &Arc<Self>, call: &Call, dir: &Arc<Inode>, name: &Name) -> Result<Looked> {
        self.admit(call, dir).await?;
        self.await_listing(call, dir).await;
        match self.knowledge(dir, name, &call.caller)? {
            Knowledge::Node(id, ttl) => {
                count(&self.figures.lookups_local);
                let (id, ttl) = match self.leads_by_now(call, dir, name, (id, ttl)).await? {
                    Some(DentryTarget::Node(now)) => (now, if now == id { ttl } else { Duration::ZERO }),
                    Some(DentryTarget::Absent) => return Ok(Looked::Absent { ttl: Duration::ZERO }),
                    None => return self.lookup_asking(call, dir, name).await,
                };
                match self.entry(call, id, ttl).await {
                    // What it led to is gone, and it may lead to another by now.
                    Ok(Looked::Absent { .. }) | Err(VfsError::Stale) if self.has_identities(dir)? => {
                        self.lookup_asking(call, dir, name).await
                    }
                    outcome => outcome,
                }
            }
            Knowledge::Absent(ttl) => {
                count(&self.figures.lookups_local);
                Ok(Looked::Absent { ttl: cap(ttl) })
            }
            Knowledge::Nothing => self.lookup_asking(call, dir, name).await,
        }
    }

    /// Asks the source for a name, whatever is known of it.
    pub(crate) async fn lookup_asking(self: &Arc<Self>, call: &Call, dir: &Arc<Inode>, name: &Name) -> Result<Looked> {
        count(&self.figures.lookups_remote);
        match Box::pin(self.lookup_remote(call, dir, name)).await {
            Err(error) => Box::pin(self.stale_entry(call, dir, name, error)).await,
            outcome => outcome,
        }
    }

    /// The source does not answer: what is known of a name serves although its lease has ended.
    async fn stale_entry(self: &Arc<Self>, call: &Call, dir: &Inode, name: &Name, error: VfsError) -> Result<Looked> {
        let dentry = self.store.dentry(dir.id, name)?;
        let listing = self.store.listing(dir.id)?;
        match dentry.map(|dentry| dentry.target) {
            Some(DentryTarget::Node(id))
                if self.inode(id)?.is_settled()
                    && dentry.is_some_and(|known| self.names_serve_after(dir, &known.lease, known.learnt, &error)) =>
            {
                count(&self.figures.served_stale);
                self.entry(call, id, Duration::ZERO).await
            }
            // That a name is absent is taken from an old listing only when the user chose to live with what is held.
            Some(DentryTarget::Absent) if matches!(error, VfsError::Offline) => {
                Ok(Looked::Absent { ttl: Duration::ZERO })
            }
            None if matches!(error, VfsError::Offline)
                && listing.is_some_and(|listing| {
                    listing.completeness.denies(name) && self.shows_listing(dir, &listing, &call.caller)
                }) =>
            {
                Ok(Looked::Absent { ttl: Duration::ZERO })
            }
            _ => Err(error),
        }
    }

    /// What `stat` shows of a node; of an open file when its handle is given.
    ///
    /// # Errors
    /// `Stale`, `NotFound` when the source no longer has it; whatever keeps the remote from answering.
    pub async fn stat(self: Arc<Self>, call: Call, node: NodeId, handle: Option<HandleId>) -> Result<Stat> {
        if let Some(handle) = handle
            && let Some(stat) = self.stat_open(node, handle)?
        {
            return Ok(stat);
        }
        let stat = self.stat_node(&call, node).await;
        // What was written here may have given way by that, and then it is a version of its own.
        if let Some(handle) = handle
            && let Some(stat) = self.stat_open(node, handle)?
        {
            return Ok(stat);
        }
        let was = |kept| if let Kept::Stat(stat) = kept { Some(stat) } else { None };
        let stat = match self.namespace.is_own(node) {
            true => stat?,
            false => {
                let inode = self.inode(node)?;
                let open = handle.and_then(|handle| self.handles.get(handle)).filter(|open| open.inode.id == inode.id);
                match (stat, open) {
                    // Whoever has it open goes on in it, whatever has its name by now.
                    (Err(error), Some(_)) if is_gone(&error) || matches!(error, VfsError::Stale) => {
                        self.show(&inode, Duration::ZERO, &call.caller)
                    }
                    (stat, Some(_)) => stat?,
                    // The kernel does not say by which open file it asks, nor whether by one: to whom has it open the file is
                    // there, and who comes by its name comes from before that was told to lead elsewhere, or nowhere.
                    (Err(VfsError::Stale), None) if self.is_held_open(&inode)? => {
                        self.show(&inode, Duration::ZERO, &call.caller)
                    }
                    (Err(error), None)
                        if is_gone(&error) && self.is_of_open(&inode)?
                            || self.is_being_removed(&inode, &error).await? =>
                    {
                        self.show(&inode, Duration::ZERO, &call.caller)
                    }
                    (stat, None) => {
                        if matches!(stat, Err(VfsError::Stale)) {
                            // What is told after that is of after the path was followed again.
                            self.hear_all(&inode).await;
                        }
                        self.followed(&call, &inode, Purpose::Stat, stat, was)?
                    }
                }
            }
        };
        self.former_pages_dropped(&stat).await?;
        self.by_face(node, stat)
    }

    pub(crate) async fn stat_node(self: &Arc<Self>, call: &Call, node: NodeId) -> Result<Stat> {
        if self.namespace.is_own(node) {
            return Ok(self.own_stat(node));
        }
        let inode = self.inode(node)?;
        if inode.is_gone() {
            return Ok(self.show(&inode, Duration::ZERO, &call.caller));
        }
        self.admit_to_attributes(call, &inode).await?;
        self.outdate_sent(call, &inode).await?;
        self.let_ended_go(&inode).await;
        let is_told_all = self.is_told_all(&inode);
        let remaining = self.attributes_remaining(&inode)?;
        if is_told_all && inode.is_settled() && !remaining.is_zero() {
            return Ok(self.show(&inode, remaining, &call.caller));
        }
        if inode.is_settled() && self.was_told_just_now(call, &inode)? {
            return Ok(self.show(&inode, Duration::ZERO, &call.caller));
        }
        if self.is_left_open(&inode)? {
            self.settle_left_open(&inode)?;
            return Ok(self.show(&inode, Duration::ZERO, &call.caller));
        }
        match Box::pin(self.refresh(call, inode.clone())).await {
            // The name leads to something else now, of another kind perhaps: the kernel looks it up again.
            Ok(found) if found.id != inode.id => Err(VfsError::Stale),
            Ok(_) => {
                self.let_ended_go(&inode).await;
                let remaining = self.attributes_remaining(&inode)?;
                Ok(self.show(&inode, remaining, &call.caller))
            }
            Err(error) if inode.is_settled() && self.attributes_serve_after(&inode, &error) => {
                count(&self.figures.served_stale);
                Ok(self.show(&inode, STALE_TTL, &call.caller))
            }
            Err(error) => Err(error),
        }
    }

    /// Whether somebody has a file open whose name, which is all that it is, was found to lead elsewhere, or nowhere: it stays
    /// what it was to them, and nobody comes to it by its name.
    fn is_left_open(&self, inode: &Inode) -> Result<bool> {
        if self.has_identities(inode)? {
            return Ok(false);
        }
        let (dir, name) = {
            let record = inode.record.read();
            (record.parent, record.name.clone())
        };
        let leads = self.store.dentry(dir, &name)?;
        let is_left = leads.is_some_and(|leads| leads.target != DentryTarget::Node(inode.id));
        Ok(is_left && !self.handles.of(inode).is_empty())
    }

    /// Has a file without a name be as long as what is open of it, where a list has told about how long it is: that was another,
    /// which had its name since.
    fn settle_left_open(&self, inode: &Inode) -> Result<()> {
        let open = self.handles.of(inode);
        match open.iter().find(|open| !open.is_over()).and_then(|open| open.length()) {
            Some(length) if !inode.is_settled() => self.learn_length(inode.id, length),
            _ => Ok(()),
        }
    }

    /// Whether somebody has a file open that is itself whatever its names are.
    pub(crate) fn is_held_open(&self, inode: &Inode) -> Result<bool> {
        Ok(self.has_identities(inode)? && !self.handles.of(inode).is_empty())
    }

    /// Whether a directory, which the source has no more, is one that is removed from here, perhaps just now: whoever has it open, or
    /// is in it, may see what it was. Of directories the kernel does not say by which open one it asks, and by a path it comes to
    /// none that it has had removed.
    async fn is_being_removed(&self, dir: &Inode, error: &VfsError) -> Result<bool> {
        let has_gone = is_gone(error) || matches!(error, VfsError::Stale);
        if !has_gone || dir.kind() != FileKind::Directory || !self.has_identities(dir)? {
            return Ok(false);
        }
        let above = dir.record.read().parent;
        if let Some(above) = self.inodes.peek(above) {
            // Whoever removes it holds that until it is noted.
            drop(above.gate.lock().await);
        }
        Ok(dir.is_gone())
    }

    fn attributes_serve_after(&self, inode: &Inode, error: &VfsError) -> bool {
        let (lease, learnt) = {
            let record = inode.record.read();
            (record.lease, record.learnt)
        };
        self.names_serve_after(inode, &lease, learnt, error)
    }

    fn lookup_own(&self, dir: NodeId, name: &[u8]) -> Result<Looked> {
        let Some(node) = self.namespace.own_child(dir, name) else {
            return Ok(Looked::Absent { ttl: KERNEL_TTL_MAX });
        };
        if self.namespace.is_own(node) {
            return Ok(Looked::Entry { stat: self.own_stat(node), ttl: KERNEL_TTL_MAX });
        }
        let inode = self.inode(node)?;
        let ttl = if self.is_breakable(inode.record.read().binding) {
            self.attributes_remaining(&inode)?
        } else {
            KERNEL_TTL_MAX
        };
        Ok(Looked::Entry { stat: self.show(&inode, ttl, &Caller::DAEMON), ttl: KERNEL_TTL_MAX })
    }

    fn own_stat(&self, node: NodeId) -> Stat {
        self.namespace.own_stat(node, self.options.uid, self.options.gid)
    }

    /// Answers with a node that a name leads to; makes what `stat` shows exact first.
    async fn entry(self: &Arc<Self>, call: &Call, id: NodeId, ttl: Duration) -> Result<Looked> {
        let inode = self.inode(id)?;
        // Before anything is learnt on this caller's word: what the source hides from one is not gone for others.
        let shown = match self.admit_to_attributes(call, &inode).await {
            Ok(()) if inode.is_settled() => Ok(inode),
            Ok(()) => match self.settle(call, inode).await {
                Ok(inode) => self.admit_to_attributes(call, &inode).await.map(|()| inode),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        let inode = match shown {
            Ok(inode) => inode,
            // For this caller there is nothing, whatever there is for others.
            Err(error) if is_gone(&error) => return Ok(Looked::Absent { ttl: Duration::ZERO }),
            Err(error) => return Err(error),
        };
        self.used(call, &inode);
        self.outdate_sent(call, &inode).await?;
        let remaining = self.attributes_remaining(&inode)?;
        Ok(Looked::Entry { stat: self.show(&inode, remaining, &call.caller), ttl: self.name_ttl(&inode, ttl) })
    }

    /// How long the kernel may take a name to lead to an inode, of which that is so for `ttl`.
    pub(crate) fn name_ttl(&self, inode: &Inode, ttl: Duration) -> Duration {
        let (kind, binding, audience) = {
            let record = inode.record.read();
            (record.attributes.kind, record.binding, record.audience)
        };
        if self.is_private(audience) {
            Duration::ZERO
        } else if kind == FileKind::Directory && !self.is_breakable(binding) {
            cap(ttl.max(PASSED_TTL))
        } else {
            cap(ttl)
        }
    }

    async fn lookup_remote(self: &Arc<Self>, call: &Call, dir: &Arc<Inode>, name: &Name) -> Result<Looked> {
        let record = dir.record();
        let remote = self.remote_of(dir)?.clone();
        let asked = self.ask_of(call, dir, || remote.lookup(call, &record.file, name)).await;
        let answer = match asked {
            Ok(answer) => answer,
            Err(error) => {
                dir.note_name_error(name, &error);
                return Err(Box::pin(self.gone_directory(call, dir, error)).await);
            }
        };
        let told = match &answer.value {
            Some(found) => self.told_of_name(record.binding, &answer, &found.entry)?,
            None => Told::by(&answer),
        };
        let learnt = self.learnt(record.binding, &told);
        let Some(found) = answer.value else {
            if self.is_private(told.audience) {
                // A name has one record, for everyone: that it is absent for this caller tells others nothing.
                return Ok(Looked::Absent { ttl: Duration::ZERO });
            }
            if !self.learn_absence(dir.id, record.binding, name, &told, learnt)? {
                // It has been made meanwhile.
                return Ok(Looked::Absent { ttl: Duration::ZERO });
            }
            let left = || match self.name_has_ended(dir, name, learnt) {
                true => Duration::ZERO,
                false => self.lease_left(dir, dir.id, &told.lease, learnt, clock::now()),
            };
            return Ok(Looked::Absent { ttl: cap(self.absent_for(dir, name, (left(), true), left)) });
        };
        let mut entry = found.entry.clone();
        entry.name = name.clone();
        let (id, is_newest) = self.learn_entry(dir.id, record.binding, &entry, &told)?;
        self.take_along(call, id, record.binding, found, &told)?;
        let inode = self.inode(id)?;
        match self.has_version(&inode, &told.version) {
            true => inode.confirmed_for(call),
            false => inode.came_for(call),
        }
        let left = match is_newest {
            true => self.lease_left(dir, id, &told.lease, learnt, clock::now()),
            false => Duration::ZERO,
        };
        let mut found = self.entry(call, id, left).await?;
        if let Looked::Entry { ttl, .. } = &mut found {
            // What ends it from now on is told again.
            inode.note_named();
            if self.name_has_ended(dir, name, learnt) || self.is_broken(record.binding, id, learnt) {
                *ttl = Duration::ZERO;
            }
        }
        Ok(found)
    }

    /// What the answer about a name tells, beside what is known of what that leads to.
    fn told_of_name<T>(&self, binding: BindingId, answer: &Answer<T>, entry: &Entry) -> Result<Told> {
        let told = Told::by(answer);
        let known = self.store.node(self.identify(binding, &entry.id)?)?;
        Ok(match known {
            Some(known) => told.beside(&known, &answer.version, Some(&entry.attributes)),
            None => told,
        })
    }

    /// Waits a little for a listing of this directory that is on its way: it may answer what would otherwise be
    /// asked name by name.
    async fn await_listing(&self, call: &Call, dir: &Inode) {
        if let Some(arrival) = dir.arrival(|_| true) {
            let soon = Call { deadline: call.deadline.min(Instant::now() + LISTING_PATIENCE), ..*call };
            // Whatever comes of it, the lookup goes on with what is known then.
            let _ = Box::pin(arrival.end(&soon)).await;
        }
    }

    /// Asks again about an inode whose attributes are no longer trusted: the listing that describes it, which
    /// serves all its neighbours as well, or else the file.
    pub(crate) async fn refresh(self: &Arc<Self>, call: &Call, inode: Arc<Inode>) -> Result<Arc<Inode>> {
        // What others are asking for at this moment was asked before this look.
        let asks_anew = inode.freshness == Freshness::Always && inode.kind() == FileKind::File;
        if !inode.is_settled() && !asks_anew {
            return self.settle(call, inode).await;
        }
        let record = inode.record();
        let described = if record.learnt == SystemTime::UNIX_EPOCH { None } else { self.described(&record, inode.id)? };
        if described.is_some_and(|listing| would_vouch(&inode, &listing)) {
            let parent = self.inode(record.parent)?;
            self.list(call, &parent).await?;
            if !self.attributes_remaining(&inode)?.is_zero() {
                return Ok(inode);
            }
        }
        let gate = inode.gate.lock().await;
        let outcome = self.check(call, &inode).await;
        drop(gate);
        match outcome {
            Ok(Check::Elsewhere(id)) => self.inode(id),
            Ok(Check::Unchanged | Check::Changed) => self.settle(call, inode).await,
            Err(error) if is_gone(&error) => Err(self.learn_gone(call, &inode).await?),
            Err(error) => {
                inode.note_error(&error);
                Err(error)
            }
        }
    }
}

/// Whether a list like this one, asked for now, would be trusted: where it is good for who asks for it alone, the file itself is
/// asked about, and the list would be asked for besides.
fn would_vouch(inode: &Inode, listing: &ListingRecord) -> bool {
    let learnt = listing.learnt;
    learnt == SystemTime::UNIX_EPOCH || inode.freshness.holds(&listing.lease, learnt, learnt)
}

/// What the kernel is told at most: longer trust is renewed by asking us, which costs no network.
pub(crate) fn cap(ttl: Duration) -> Duration {
    ttl.min(KERNEL_TTL_MAX)
}

/// Longest time that the kernel is told to trust anything. Explicit invalidation ends it earlier.
const KERNEL_TTL_MAX: Duration = Duration::from_secs(3600);
/// How long a directory's name and attributes are passed on without a look at their lease.
pub(crate) const PASSED_TTL: Duration = Duration::from_secs(60);
/// How long the kernel keeps attributes that are served although their source does not answer.
const STALE_TTL: Duration = Duration::from_secs(1);
/// How long a lookup waits for a listing that is on its way.
const LISTING_PATIENCE: Duration = Duration::from_secs(2);
