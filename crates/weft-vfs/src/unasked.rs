//! What is answered of names and attributes without asking: as far as the store knows it, and as long as that is trusted.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use weft_remote::{Audience, Caller, FileKind, Name, Version, clock};
use weft_store::{DentryRecord, DentrySource, DentryTarget, ListingRecord, NodeId, NodeRecord};

use crate::directory::DirectoryName;
use crate::inode::Inode;
use crate::lookup::{PASSED_TTL, cap};
use crate::vfs::Vfs;
use crate::{Result, Stat};

/// What the store says of a name.
pub(crate) enum Knowledge {
    /// It leads to this node, trusted this long; zero when the trust has ended.
    Node(NodeId, Duration),
    /// It is absent, trusted this long.
    Absent(Duration),
    /// The store does not know, or does not trust what it knows.
    Nothing,
}

/// What is known of the names of an earlier snapshot of a directory ([`Vfs::entries_known`]).
pub struct EntriesKnown<'a> {
    vfs: &'a Vfs,
    /// `None` for a directory of weft's own.
    dir: Option<Arc<Inode>>,
    listing: Option<ListingRecord>,
    now: SystemTime,
}

impl EntriesKnown<'_> {
    /// What a name leads to, and for how long it is trusted to, as far as the store knows; `None` when it must be asked, and when
    /// it leads elsewhere by now: who opened the directory before a change reads it after that.
    ///
    /// # Errors
    /// What the store says.
    pub fn get(&self, row: &DirectoryName<'_>) -> Result<Option<(Stat, Duration)>> {
        let EntriesKnown { vfs, dir, listing, now } = self;
        let Some(dir) = dir else { return Ok(vfs.stat_known(row.node)?.map(|stat| (stat, stat.ttl))) };
        let Ok(name) = Name::new(row.name) else { return Ok(None) };
        let id = vfs.namespace.real(row.node);
        let known = vfs.store.dentry(dir.id, &name)?;
        let Some(dentry) = known.filter(|known| known.target == DentryTarget::Node(id)) else { return Ok(None) };
        let inode = vfs.inode_passing(id)?;
        let Some(inode) = inode.filter(|inode| !inode.is_gone()) else { return Ok(None) };
        let listing = listing.as_ref().filter(|_| dentry.is_by_list());
        let listing = vfs.vouching(listing, || Ok(Some(inode.record.read().audience)))?;
        let ttl = vfs.name_ttl(&inode, vfs.dentry_left(dir, &name, &dentry, listing, *now));
        if ttl.is_zero() {
            return Ok(None);
        }
        Ok(vfs.known(&inode, *now)?.map(|stat| (stat, ttl)))
    }
}

impl Vfs {
    /// What is known of the names of a directory. To be had anew for each question about some of them: what vouches for them all
    /// is looked at once.
    ///
    /// # Errors
    /// `Stale` when the store does not know the directory, and what the store says.
    pub fn entries_known(&self, dir: NodeId) -> Result<EntriesKnown<'_>> {
        let now = clock::now();
        if self.namespace.is_own(dir) {
            return Ok(EntriesKnown { vfs: self, dir: None, listing: None, now });
        }
        let dir = self.inode(dir)?;
        let listing = self.store.listing(dir.id)?;
        Ok(EntriesKnown { vfs: self, dir: Some(dir), listing, now })
    }

    /// What `stat` shows of a node, as far as the store knows; `None` when it must be asked.
    pub fn stat_known(&self, node: NodeId) -> Result<Option<Stat>> {
        let inode = self.inode_passing(self.namespace.real(node))?;
        inode.map_or(Ok(None), |inode| self.known(&inode, clock::now()))
    }

    /// An inode that is looked at and not kept; `None` when the store does not know it.
    fn inode_passing(&self, id: NodeId) -> Result<Option<Arc<Inode>>> {
        if let Some(inode) = self.inodes.get(id) {
            return Ok(Some(inode));
        }
        let Some(record) = self.store.node(id)? else { return Ok(None) };
        if self.options.policies.depend_on_path() {
            return self.inode(id).map(Some);
        }
        Ok(Some(Arc::new(Inode::new(id, self.options.policies.for_path(&[]), record))))
    }

    fn known(&self, inode: &Inode, now: SystemTime) -> Result<Option<Stat>> {
        if let Some(draft) = inode.draft().filter(|draft| !draft.dirty.is_unsent())
            && !self.is_sent_trusted(inode, &draft)?
        {
            return Ok(None);
        }
        let remaining = self.attributes_left(inode, now)?;
        let usable = inode.is_settled() && !remaining.is_zero() && !self.is_private(inode.record.read().audience);
        Ok(usable.then(|| self.show(inode, remaining, &Caller::DAEMON)))
    }

    pub(crate) fn knowledge(&self, dir: &Inode, name: &Name, caller: &Caller) -> Result<Knowledge> {
        if !self.is_told_all(dir) {
            return Ok(Knowledge::Nothing);
        }
        let now = clock::now();
        if let Some(dentry) = self.store.dentry(dir.id, name)? {
            dentry.node().and_then(|id| self.inodes.peek(id)).inspect(|inode| inode.note_named());
            let remaining = self.dentry_remaining(dir, name, &dentry, now)?;
            return Ok(match dentry.target {
                DentryTarget::Node(id) if remaining.is_zero() => {
                    // What the source has ended it is asked about at once; that costs it little, or it would not tell.
                    let worth = !self.is_breakable(dir.record.read().binding)
                        && self.inode(id).is_ok_and(|inode| inode.is_settled());
                    if worth { Knowledge::Node(id, Duration::ZERO) } else { Knowledge::Nothing }
                }
                DentryTarget::Node(id) => Knowledge::Node(id, remaining),
                DentryTarget::Absent if remaining.is_zero() => Knowledge::Nothing,
                DentryTarget::Absent => {
                    let left = || self.dentry_remaining(dir, name, &dentry, clock::now()).unwrap_or_default();
                    Knowledge::Absent(self.absent_for(dir, name, (remaining, true), left))
                }
            });
        }
        if let Some(listing) = self.store.listing(dir.id)?
            && listing.completeness.denies(name)
            && self.shows_listing(dir, &listing, caller)
        {
            let remaining = self.trusted_for(dir, &listing.lease, listing.learnt, now);
            if !remaining.is_zero() {
                if self.is_private(listing.audience) {
                    return Ok(Knowledge::Absent(Duration::ZERO));
                }
                let left = || self.trusted_for(dir, &listing.lease, listing.learnt, clock::now());
                return Ok(Knowledge::Absent(self.absent_for(dir, name, (remaining, false), left)));
            }
        }
        Ok(Knowledge::Nothing)
    }

    /// How much longer a name is trusted: what a listing says, as long as the listing; else by its own lease.
    fn dentry_remaining(&self, dir: &Inode, name: &Name, dentry: &DentryRecord, now: SystemTime) -> Result<Duration> {
        let is_listed = dentry.is_by_list();
        let listing = if is_listed { self.store.listing(dir.id)? } else { None };
        let listing = self.vouching(listing.as_ref(), || {
            let record = dentry.node().map(|id| self.store.node(id)).transpose()?.flatten();
            Ok(record.map(|record| record.audience))
        })?;
        Ok(self.dentry_left(dir, name, dentry, listing, now))
    }

    /// The same, by the listing that vouches for it, if one does.
    fn dentry_left(
        &self,
        dir: &Inode,
        name: &Name,
        dentry: &DentryRecord,
        listing: Option<&ListingRecord>,
        now: SystemTime,
    ) -> Duration {
        // A listing that was confirmed vouches for its names from then on.
        let vouched = listing.map_or(dentry.learnt, |listing| listing.learnt.max(dentry.learnt));
        if self.name_has_ended(dir, name, vouched) || dentry.learnt == SystemTime::UNIX_EPOCH {
            return Duration::ZERO;
        }
        let own = match dentry.target {
            // Their leases are ended one by one, and those of names that are not there with their directory's.
            DentryTarget::Node(id) => self.trusted_about(dir, id, &dentry.lease, dentry.learnt, now),
            DentryTarget::Absent => self.trusted_for(dir, &dentry.lease, dentry.learnt, now),
        };
        let id = dentry.node().unwrap_or(dir.id);
        listing.map_or(own, |listing| own.max(self.listed_for(dir, id, listing, now)))
    }

    /// How much longer an inode's attributes are trusted: by their own lease, or by that of a listing that
    /// describes it.
    pub(crate) fn attributes_remaining(&self, inode: &Inode) -> Result<Duration> {
        self.attributes_left(inode, clock::now())
    }

    fn attributes_left(&self, inode: &Inode, now: SystemTime) -> Result<Duration> {
        let (kind, lease, learnt) = {
            let record = inode.record.read();
            (record.attributes.kind, record.lease, record.learnt)
        };
        let is_breakable = self.is_breakable(inode.record.read().binding);
        if kind == FileKind::Directory && !is_breakable {
            return Ok(PASSED_TTL);
        }
        let own = self.trusted_for(inode, &lease, learnt, now);
        if !own.is_zero() || learnt == SystemTime::UNIX_EPOCH {
            return Ok(cap(own));
        }
        let record = inode.record();
        let described = self.described(&record, inode.id)?;
        let Some(listing) = described else { return Ok(Duration::ZERO) };
        Ok(cap(self.listed_for(inode, inode.id, &listing, now)))
    }

    /// How much longer what a listing says of a node is trusted.
    fn listed_for(&self, of: &Inode, id: NodeId, listing: &ListingRecord, now: SystemTime) -> Duration {
        self.lease_left(of, id, &listing.lease, listing.learnt, now)
    }

    /// The listing that describes a node, if one does.
    pub(crate) fn described(&self, record: &NodeRecord, id: NodeId) -> Result<Option<ListingRecord>> {
        let Some(dentry) = self.store.dentry(record.parent, &record.name)? else { return Ok(None) };
        if dentry.source != DentrySource::Described || dentry.target != DentryTarget::Node(id) {
            return Ok(None);
        }
        if self.may_change_unlisted(record) {
            return Ok(None);
        }
        let listing = self.store.listing(record.parent)?;
        Ok(self.vouching(listing.as_ref(), || Ok(Some(record.audience)))?.cloned())
    }

    /// Whether a list may say the same of a file although it has changed since it was learnt of: it was learnt of when it had
    /// just changed, and lists tell times to the minute, or none. A source that tells of changes needs no list for that.
    fn may_change_unlisted(&self, record: &NodeRecord) -> bool {
        if record.version == Version::None || self.is_breakable(record.binding) {
            return false;
        }
        let listed_apart = record.attributes.modified.known().and_then(|modified| modified.checked_add(LISTED_LATE));
        listed_apart.is_none_or(|from| clock::by_wall(record.learnt) < from)
    }

    /// A listing, if it vouches for a node in it with this audience. One that is for one user alone does for what is for that
    /// user alone: of what others were told, whether they may see it has to be asked as them, since who may list a directory
    /// tells who may see what is in it.
    fn vouching<'a>(
        &self,
        listing: Option<&'a ListingRecord>,
        audience: impl FnOnce() -> Result<Option<Audience>>,
    ) -> Result<Option<&'a ListingRecord>> {
        let Some(listing) = listing else { return Ok(None) };
        if !self.is_private(listing.audience) {
            return Ok(Some(listing));
        }
        Ok((audience()? == Some(listing.audience)).then_some(listing))
    }
}

/// After so long a further change has another time in a list: a minute, and one more for clocks that differ.
const LISTED_LATE: Duration = Duration::from_secs(120);
