//! Listing directories.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use weft_remote::{Call, Caller, Completeness, FileKind, Listing, Name, Version, clock};
use weft_store::{DentryRecord, DentrySource, DentryTarget, ListingRecord, NodeId};

use crate::arrival::State;
use crate::figures::count;
use crate::inode::Inode;
use crate::learn::Told;
use crate::vfs::{Vfs, is_gone};
use crate::{Result, VfsError};

/// What the names of a directory are as of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AsOf {
    /// While it is the same, the names are, where they are for everybody ([`Snapshot::is_for_everybody`]).
    pub mark: u64,
    /// How long they, and what is told along with them, are trusted; zero where that is not known.
    pub trusted: Duration,
}

/// The names of a directory at one moment, packed: an open directory keeps one for as long as it is open.
#[derive(Debug, Default)]
pub struct Snapshot {
    names: Vec<u8>,
    items: Vec<Item>,
    /// Whether another caller might get others.
    for_one: bool,
}

#[derive(Clone, Copy, Debug)]
struct Item {
    name_start: u32,
    name_length: u8,
    kind: FileKind,
    node: NodeId,
}

/// A name in a [`Snapshot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryName<'a> {
    /// The name's bytes.
    pub name: &'a [u8],
    /// What it leads to.
    pub node: NodeId,
    /// What sort of thing that is; `Unknown` where the source has not said.
    pub kind: FileKind,
}

impl Snapshot {
    /// Number of names.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are no names.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether everybody who may read the directory gets these names.
    pub fn is_for_everybody(&self) -> bool {
        !self.for_one
    }

    /// The name at `index`.
    pub fn get(&self, index: usize) -> Option<DirectoryName<'_>> {
        let item = self.items.get(index)?;
        let start = item.name_start as usize;
        let name = &self.names[start..start + usize::from(item.name_length)];
        Some(DirectoryName { name, node: item.node, kind: item.kind })
    }

    fn push(&mut self, name: &Name, node: NodeId, kind: FileKind) {
        let Ok(name_start) = u32::try_from(self.names.len()) else { return };
        // A name has at most 255 bytes by construction.
        let name_length = u8::try_from(name.as_bytes().len()).unwrap_or(u8::MAX);
        self.names.extend_from_slice(name.as_bytes());
        self.items.push(Item { name_start, name_length, kind, node });
    }
}

impl Vfs {
    /// Sees to it that the names of a directory are known and trusted, asking its remote where they are not.
    ///
    /// # Errors
    /// `NotADirectory`, `Stale`, `Denied`; whatever keeps the remote from answering.
    pub async fn open_directory(self: Arc<Self>, call: Call, node: NodeId) -> Result<AsOf> {
        if self.namespace.is_own(node) {
            return Ok(AsOf::default());
        }
        let dir = self.inode(node)?;
        if dir.kind() != FileKind::Directory {
            return Err(VfsError::NotADirectory);
        }
        if dir.is_gone() {
            // Nothing is in it any more, and there is nobody to ask.
            return if self.admits(&dir, &call) { Ok(AsOf::default()) } else { Err(VfsError::Denied) };
        }
        self.admit(&call, &dir).await?;
        let listed = self.list(&call, &dir).await;
        if let Err(VfsError::Stale) = listed {
            // The kernel follows the path again, once in a call: what it opens then may be no directory.
            self.begins_again(&call, &dir);
        }
        listed?;
        self.notices.settled().await;
        let mark = self.store.names_mark(dir.id);
        let listing = self.store.listing(dir.id)?;
        let now = clock::now();
        let trusted = |listing: ListingRecord| self.trusted_for(&dir, &listing.lease, listing.learnt, now);
        Ok(AsOf { mark, trusted: listing.map_or(Duration::ZERO, trusted) })
    }

    /// While this is the same, so are the names of a directory.
    pub fn names_mark(&self, node: NodeId) -> u64 {
        self.store.names_mark(self.namespace.real(node))
    }

    /// The names of a directory, from what the store has of it. Asks no remote.
    ///
    /// # Errors
    /// `Stale` when the store does not know the node, and what the store says.
    pub fn directory_names(&self, node: NodeId, caller: &Caller) -> Result<Snapshot> {
        if self.namespace.is_own(node) {
            return Ok(self.own_names(node));
        }
        self.snapshot(&*self.inode(node)?, caller)
    }

    /// Sees to it that a directory's listing is known and trusted.
    pub(crate) async fn list(self: &Arc<Self>, call: &Call, dir: &Arc<Inode>) -> Result<()> {
        if self.listing_holds(dir, &call.caller)? {
            count(&self.figures.listings_local);
            self.listed_in_turn(call, dir, None);
            return Ok(());
        }
        let took = Box::pin(self.list_asking(call, dir)).await?;
        if took.is_some() {
            dir.came_for(call);
        }
        self.listed_in_turn(call, dir, took);
        Ok(())
    }

    /// The same where it is not; returns how long the source took, if it was asked for this and answered.
    async fn list_asking(self: &Arc<Self>, call: &Call, dir: &Arc<Inode>) -> Result<Option<Duration>> {
        let _gate = dir.gate.lock().await;
        for _ in 0..ASKED_MAX {
            if let Some(arrival) = dir.arrival(|_| true)
                && let State::Failed(error) = arrival.end(call).await?
            {
                return self.stale_listing(dir, &call.caller, error).map(|()| None);
            }
            if self.listing_holds(dir, &call.caller)? {
                count(&self.figures.listings_local);
                return Ok(None);
            }
            count(&self.figures.listings_remote);
            let since = Instant::now();
            match self.list_remote(call, dir).await {
                Ok(true) => return Ok(Some(since.elapsed())),
                // One that was asked for later is coming.
                Ok(false) => {}
                Err(error) => {
                    dir.note_error(&error);
                    return self.without_list(call, dir, error).await.map(|()| None);
                }
            }
        }
        Ok(None)
    }

    /// The listing could not be had just now, which leaves the names that are known otherwise: none where the directory is not
    /// there any more.
    pub(crate) async fn without_list(self: &Arc<Self>, call: &Call, dir: &Arc<Inode>, error: VfsError) -> Result<()> {
        if is_gone(&error) && self.is_gone_by_list(call, dir).await? {
            return Err(error);
        }
        match self.stale_listing(dir, &call.caller, error) {
            Err(error) if is_gone(&error) => {
                self.ask_if_looked_up(call, dir).await?;
                Err(error)
            }
            outcome => outcome,
        }
    }

    /// Asks for a directory's listing whatever is known of it; what is known stays when there is no answer.
    pub(crate) async fn relist(self: &Arc<Self>, call: &Call, dir: &Arc<Inode>) -> Result<()> {
        let _gate = dir.gate.lock().await;
        for _ in 0..ASKED_MAX {
            // A listing that is on its way may be of before what its user wants to see.
            if let Some(arrival) = dir.arrival(|_| true) {
                arrival.end(call).await?;
            }
            count(&self.figures.listings_remote);
            if self.list_remote(call, dir).await? {
                break;
            }
        }
        Ok(())
    }

    pub(crate) fn listing_holds(&self, dir: &Inode, caller: &Caller) -> Result<bool> {
        if !self.is_told_all(dir) {
            return Ok(false);
        }
        let listing = self.store.listing(dir.id)?;
        let now = clock::now();
        let holds = |listing: &ListingRecord| !self.trusted_for(dir, &listing.lease, listing.learnt, now).is_zero();
        Ok(listing.is_some_and(|listing| holds(&listing) && self.shows_listing(dir, &listing, caller)))
    }

    /// Asks for a directory's listing; returns whether what came is the newest word on it.
    pub(crate) async fn list_remote(self: &Arc<Self>, call: &Call, dir: &Arc<Inode>) -> Result<bool> {
        let record = dir.record();
        let remote = self.remote_of(dir)?.clone();
        let known = self.store.listing(dir.id)?.map_or(Version::None, |listing| listing.version);
        let mut cursor = None;
        let mut merge = None;
        loop {
            let asked = self.ask_of(call, dir, || remote.entries(call, &record.file, &known, cursor.as_ref())).await;
            let answer = match asked {
                Ok(answer) => answer,
                Err(error) => {
                    let error = Box::pin(self.gone_directory(call, dir, error)).await;
                    return Err(Box::pin(self.of_another_kind(call, dir, error)).await);
                }
            };
            let told = Told::by(&answer);
            let (page, along, standing) = match answer.value {
                Listing::Unchanged => return self.renew_listing(dir, &told),
                Listing::Page(page, along) => (page, along, Vec::new()),
                Listing::Changes(page, standing) => (page, None, standing),
            };
            let along = along.and_then(|along| {
                let entry = page.entries.iter().find(|entry| entry.id == along.body.file)?.clone();
                Some(weft_remote::Found { entry, along: Some(along) })
            });
            let merging = merge.get_or_insert_with(|| self.begin_listing(dir.id, record.binding, told.clone()));
            cursor = page.next.clone();
            self.learn_page(merging, page)?;
            self.learn_standing(merging, &standing)?;
            if let Some(found) = along {
                self.take_along(call, dir.id, record.binding, found, &told)?;
            }
            if cursor.is_none() {
                break;
            }
        }
        match merge {
            Some(merge) => self.finish_listing(merge),
            None => Ok(true),
        }
    }

    /// The listing could not be had: names known from elsewhere still count, as does a listing whose lease has
    /// ended when the source does not answer. That a listing is refused, or gone, which this caller was shown before, is the
    /// source's word on that list, and where a source ends leases by its word on all names.
    pub(crate) fn stale_listing(&self, dir: &Inode, caller: &Caller, error: VfsError) -> Result<()> {
        let listing = self.store.listing(dir.id)?;
        let serves_after =
            |listing: &ListingRecord| self.names_serve_after(dir, &listing.lease, listing.learnt, &error);
        let is_denied = matches!(&error, VfsError::Remote(weft_remote::RemoteError::Denied { .. }));
        let serves = if listing.as_ref().is_some_and(serves_after) {
            true
        } else if matches!(error, VfsError::Offline) {
            self.knows_names(dir, caller, |_| true)?
        } else if (is_gone(&error) || is_denied) && !self.is_breakable(dir.record.read().binding) {
            if listing.is_some_and(|listing| self.shows_listing(dir, &listing, caller)) {
                self.end_listing(dir, is_gone(&error))?;
            }
            self.knows_names(dir, caller, |dentry| !dentry.is_by_list() && dentry.learnt > SystemTime::UNIX_EPOCH)?
        } else {
            false
        };
        if serves {
            count(&self.figures.served_stale);
            return Ok(());
        }
        Err(error)
    }

    /// Whether a directory has a name of this sort that a caller may see.
    fn knows_names(&self, dir: &Inode, caller: &Caller, counts: impl Fn(&DentryRecord) -> bool) -> Result<bool> {
        let mut after: Option<Name> = None;
        loop {
            let names = self.store.dentries(dir.id, after.as_ref(), NAMES_AT_ONCE)?;
            let Some((last, _)) = names.last() else { return Ok(false) };
            after = Some(last.clone());
            for (_, dentry) in names.iter().filter(|(_, dentry)| counts(dentry)) {
                if let DentryTarget::Node(node) = dentry.target
                    && self.store.node(node)?.is_none_or(|record| record.audience.includes(caller))
                {
                    return Ok(true);
                }
            }
        }
    }

    pub(crate) fn own_names(&self, dir: NodeId) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for (name, node) in self.namespace.own_names(dir) {
            snapshot.push(&name, node, FileKind::Directory);
        }
        snapshot
    }

    /// The names in a directory that a caller may see: those of a listing, if that may be shown, and those of files
    /// that may be.
    pub(crate) fn snapshot(&self, dir: &Inode, caller: &Caller) -> Result<Snapshot> {
        let listing = self.store.listing(dir.id)?;
        // Another reading of a name that has a row of its own.
        let reads = listing.as_ref().is_some_and(|listing| listing.completeness == Completeness::CompleteButAtSys);
        let is_reading = |name: &Name| reads && !Completeness::CompleteButAtSys.denies(name);
        let for_one = listing.as_ref().is_some_and(|listing| self.is_private(listing.audience));
        // A name that was found by a look, and that a complete list would have denied, is in the list: else that would be in
        // doubt since the look, and have no version.
        let sure =
            listing.as_ref().filter(|listing| listing.version != Version::None).map(|listing| listing.completeness);
        let is_for_the_list = |name: &Name| sure.is_some_and(|completeness| completeness.denies(name));
        let mut snapshot = Snapshot { for_one, ..Snapshot::default() };
        let listed = listing.is_some_and(|listing| self.shows_listing(dir, &listing, caller));
        let mut after: Option<Name> = None;
        loop {
            let names = self.store.dentries(dir.id, after.as_ref(), NAMES_AT_ONCE)?;
            let Some((last, _)) = names.last() else { return Ok(snapshot) };
            after = Some(last.clone());
            for (name, dentry) in &names {
                if let DentryTarget::Node(node) = dentry.target {
                    let glance = self.store.glance(node)?;
                    let by_list = dentry.is_by_list();
                    let is_for_the_list = is_for_the_list(name);
                    // A page links to what the list lacks: it is for whoever uses that name.
                    let is_unlisted = is_for_the_list && dentry.source == DentrySource::Linked;
                    if is_unlisted || (!by_list && is_reading(name)) {
                        continue;
                    }
                    let by_list = by_list || is_for_the_list;
                    snapshot.for_one |= !by_list && glance.is_some_and(|(_, audience)| self.is_private(audience));
                    if (listed && by_list) || glance.is_none_or(|(_, audience)| audience.includes(caller)) {
                        let kind = glance.map_or(FileKind::Unknown, |(kind, _)| kind);
                        snapshot.push(name, node, kind);
                    }
                }
            }
        }
    }
}

/// How often a list is asked for while newer ones keep coming from elsewhere.
const ASKED_MAX: usize = 3;
/// Names read from the store at once.
const NAMES_AT_ONCE: usize = 1000;
