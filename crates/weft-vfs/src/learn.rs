//! How what a remote says becomes what the store knows.
//!
//! Two sorts of knowledge meet. *First-hand*: the source spoke of the file itself (a lookup, a check, a fetch); it
//! replaces what was known. *By listing*: a row of a directory's listing, often coarser; it fills what was unknown,
//! confirms what agrees with it, and where it contradicts, it wins and the content must be checked before its next
//! use.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use weft_remote::{
    Answer, Attributes, Audience, Completeness, Entry, Figure, FileId, FileKind, Lease, Name, Origin, Page, Version,
};
use weft_store::{BindingId, DentryRecord, DentrySource, DentryTarget, ListingRecord, NodeId, NodeRecord, Record};

use crate::Result;
use crate::inode::Inode;
use crate::notice::Notice;
use crate::vfs::Vfs;

/// What an answer says about its own worth.
#[derive(Clone)]
pub(crate) struct Told {
    pub(crate) lease: Lease,
    pub(crate) audience: Audience,
    pub(crate) origin: Option<Origin>,
    pub(crate) version: Version,
}

impl Told {
    pub(crate) fn by<T>(answer: &Answer<T>) -> Told {
        Told {
            lease: answer.lease,
            audience: answer.audience,
            origin: answer.origin.clone(),
            version: answer.version.clone(),
        }
    }
}

/// A listing on its way into the store, page by page.
pub(crate) struct ListingMerge {
    dir: NodeId,
    binding: BindingId,
    told: Told,
    completeness: Completeness,
    names: HashSet<u64>,
}

impl Vfs {
    /// Learns first-hand what a name in a directory leads to, and returns the node.
    pub(crate) fn learn_entry(&self, dir: NodeId, binding: BindingId, entry: &Entry, told: &Told) -> Result<NodeId> {
        let id = self.store.identify(binding, &entry.id)?;
        let now = SystemTime::now();
        let old = self.store.node(id)?;
        let record = NodeRecord {
            binding,
            file: entry.id.clone(),
            parent: dir,
            name: entry.name.clone(),
            attributes: entry.attributes,
            version: told.version.clone(),
            lease: told.lease,
            audience: told.audience,
            learnt: now,
            origin: told.origin.clone(),
        };
        let dentry = DentryRecord {
            target: DentryTarget::Node(id),
            lease: told.lease,
            source: DentrySource::LookedUp,
            learnt: now,
        };
        let mut changes = Vec::with_capacity(2);
        self.put_dentry(&mut changes, dir, &entry.name, dentry)?;
        self.put_node(&mut changes, id, old, record);
        self.store.apply(changes)?;
        Ok(id)
    }

    /// Learns that a directory has no such name.
    pub(crate) fn learn_absence(&self, dir: NodeId, name: &Name, lease: Lease) -> Result<()> {
        let dentry = DentryRecord {
            target: DentryTarget::Absent,
            lease,
            source: DentrySource::LookedUp,
            learnt: SystemTime::now(),
        };
        let mut changes = Vec::with_capacity(1);
        self.put_dentry(&mut changes, dir, name, dentry)?;
        self.store.apply(changes)?;
        Ok(())
    }

    /// Learns first-hand what an inode is now; its names stay as they are.
    pub(crate) fn learn_attributes(&self, inode: &Inode, attributes: Attributes, told: &Told) -> Result<bool> {
        let record = {
            let old = inode.record.read();
            NodeRecord {
                attributes: keep_size_when_silent(&old.attributes, attributes, old.version.still_holds(&told.version)),
                version: told.version.clone(),
                lease: told.lease,
                audience: told.audience,
                learnt: SystemTime::now(),
                origin: told.origin.clone().or_else(|| old.origin.clone()),
                ..old.clone()
            }
        };
        let changed = inode.record.read().attributes != record.attributes;
        *inode.record.write() = record.clone();
        let mut changes = vec![Record::Node(inode.id, Some(record.clone()))];
        if let Some(mut dentry) = self.store.dentry(record.parent, &record.name)?
            && dentry.source == DentrySource::LookedUp
        {
            dentry.lease = told.lease;
            dentry.learnt = record.learnt;
            changes.push(Record::Dentry(record.parent, record.name.clone(), Some(dentry)));
        }
        self.store.apply(changes)?;
        Ok(changed)
    }

    /// Learns that the source confirmed what is known of an inode.
    pub(crate) fn learn_unchanged(&self, inode: &Inode, told: &Told) -> Result<()> {
        let attributes = inode.record.read().attributes;
        let version = inode.record.read().version.clone();
        let told = Told { version, ..told.clone() };
        self.learn_attributes(inode, attributes, &told)?;
        let now = SystemTime::now();
        self.store.renew(inode.id, told.lease, now)?;
        if let Some(current) = &mut inode.content.lock().current {
            current.lease = told.lease;
            current.checked = now;
        }
        Ok(())
    }

    /// Learns the exact length that a body turned out to have.
    pub(crate) fn learn_length(&self, node: NodeId, length: u64) -> Result<()> {
        let change = |record: &mut NodeRecord| record.attributes.size = Figure::Exact(length);
        self.change_node(node, change)
    }

    /// Forgets a name whose file is gone at the source.
    pub(crate) fn learn_gone(&self, inode: &Inode) -> Result<()> {
        let record = inode.record();
        self.learn_absence(record.parent, &record.name, Lease::lasting(GONE_LEASE))?;
        self.store.remove_object(inode.id)?;
        inode.content.lock().current = None;
        Ok(())
    }

    /// Changes a node's record in memory and in the store.
    pub(crate) fn change_node(&self, node: NodeId, change: impl FnOnce(&mut NodeRecord)) -> Result<()> {
        let record = match self.inodes.get(node) {
            Some(inode) => {
                let mut record = inode.record.write();
                change(&mut record);
                record.clone()
            }
            None => match self.store.node(node)? {
                Some(mut record) => {
                    change(&mut record);
                    record
                }
                None => return Ok(()),
            },
        };
        self.store.apply(vec![Record::Node(node, Some(record))])?;
        Ok(())
    }

    /// Starts to learn a directory's listing.
    pub(crate) fn begin_listing(&self, dir: NodeId, binding: BindingId, told: Told) -> ListingMerge {
        ListingMerge { dir, binding, told, completeness: Completeness::Partial, names: HashSet::new() }
    }

    /// Learns a page of a directory's listing.
    pub(crate) fn learn_page(&self, merge: &mut ListingMerge, page: &Page) -> Result<()> {
        merge.completeness = page.completeness;
        for rows in page.entries.chunks(ROWS_AT_ONCE) {
            let mut changes = Vec::with_capacity(rows.len() * 2);
            for entry in rows {
                merge.names.insert(name_key(&entry.name));
                self.learn_row(&mut changes, merge.dir, merge.binding, entry, &merge.told, true)?;
            }
            self.store.apply(changes)?;
        }
        Ok(())
    }

    /// Ends a listing: names that it had before and has no more are dropped, and the listing counts from now on.
    pub(crate) fn finish_listing(&self, merge: ListingMerge) -> Result<()> {
        let ListingMerge { dir, told, completeness, names, .. } = merge;
        if self.store.listing(dir)?.is_some() || completeness != Completeness::Partial {
            self.drop_vanished(dir, completeness, &names)?;
        }
        let record = ListingRecord {
            version: told.version,
            lease: told.lease,
            completeness,
            audience: told.audience,
            learnt: SystemTime::now(),
            origin: told.origin,
        };
        self.store.apply(vec![Record::Listing(dir, Some(record))])?;
        Ok(())
    }

    /// Learns that a directory's listing was confirmed.
    pub(crate) fn renew_listing(&self, dir: NodeId, lease: Lease) -> Result<()> {
        if let Some(mut listing) = self.store.listing(dir)? {
            listing.lease = lease;
            listing.learnt = SystemTime::now();
            self.store.apply(vec![Record::Listing(dir, Some(listing))])?;
        }
        Ok(())
    }

    /// Learns names of a directory that something else named.
    pub(crate) fn learn_linked(&self, binding: BindingId, dir: &FileId, page: &Answer<Page>) -> Result<()> {
        let dir = self.store.identify(binding, dir)?;
        if self.store.node(dir)?.is_none() {
            return Ok(());
        }
        let told = Told::by(page);
        let mut changes = Vec::with_capacity(page.value.entries.len() * 2);
        for entry in &page.value.entries {
            self.learn_row(&mut changes, dir, binding, entry, &told, false)?;
        }
        self.store.apply(changes)?;
        Ok(())
    }

    fn learn_row(
        &self,
        changes: &mut Vec<Record>,
        dir: NodeId,
        binding: BindingId,
        entry: &Entry,
        told: &Told,
        own_listing: bool,
    ) -> Result<()> {
        let now = SystemTime::now();
        let tells = tells_attributes(&entry.attributes);
        let source = match (own_listing, tells) {
            (true, true) => DentrySource::Described,
            (true, false) => DentrySource::Listed,
            (false, _) => DentrySource::Linked,
        };
        let known = self.store.dentry(dir, &entry.name)?;
        if let Some(known) = &known
            && !tells
            && self.row_knows_less(known, entry)?
        {
            return Ok(());
        }
        let id = self.store.identify(binding, &entry.id)?;
        let dentry = DentryRecord { target: DentryTarget::Node(id), lease: told.lease, source, learnt: now };
        let keeps_source = known.is_some_and(|k| k.target == dentry.target && source == DentrySource::Linked);
        if !keeps_source {
            self.put_dentry_over(changes, dir, &entry.name, dentry, known);
        }
        let old = self.store.node(id)?;
        let record = self.merge_row(id, dir, binding, entry, told, old.as_ref(), now)?;
        if let Some(record) = record {
            self.put_node(changes, id, old, record);
        }
        Ok(())
    }

    /// Whether a row without attributes would overwrite what a lookup found out: that the name leads to a directory
    /// or is a file that was fetched.
    fn row_knows_less(&self, known: &DentryRecord, entry: &Entry) -> Result<bool> {
        let DentryTarget::Node(id) = known.target else { return Ok(false) };
        if known.source != DentrySource::LookedUp || entry.attributes.kind == FileKind::Directory {
            return Ok(false);
        }
        Ok(self.store.node(id)?.is_some_and(|node| node.attributes.kind != FileKind::Unknown))
    }

    /// The record of a node after a row of a listing; `None` when the row adds nothing.
    fn merge_row(
        &self,
        id: NodeId,
        dir: NodeId,
        binding: BindingId,
        entry: &Entry,
        told: &Told,
        old: Option<&NodeRecord>,
        now: SystemTime,
    ) -> Result<Option<NodeRecord>> {
        let Some(old) = old else {
            return Ok(Some(NodeRecord {
                binding,
                file: entry.id.clone(),
                parent: dir,
                name: entry.name.clone(),
                attributes: entry.attributes,
                version: entry.version.clone(),
                lease: told.lease,
                audience: told.audience,
                learnt: now,
                origin: None,
            }));
        };
        let moved = old.parent != dir || old.name != entry.name;
        if contradicts(&old.attributes, &entry.attributes) {
            // The listing is newer than what is known: the content is checked before its next use.
            self.store.renew(id, Lease::Spent, SystemTime::UNIX_EPOCH)?;
            if let Some(inode) = self.inodes.get(id)
                && let Some(current) = &mut inode.content.lock().current
            {
                current.checked = SystemTime::UNIX_EPOCH;
            }
            return Ok(Some(NodeRecord {
                attributes: entry.attributes,
                version: entry.version.clone(),
                lease: told.lease,
                learnt: now,
                ..old.clone()
            }));
        }
        let finer = finer(&old.attributes, &entry.attributes);
        if finer == old.attributes && !moved {
            return Ok(None);
        }
        let (parent, name) = if moved { (dir, entry.name.clone()) } else { (old.parent, old.name.clone()) };
        Ok(Some(NodeRecord { attributes: finer, parent, name, ..old.clone() }))
    }

    fn put_dentry(&self, changes: &mut Vec<Record>, dir: NodeId, name: &Name, dentry: DentryRecord) -> Result<()> {
        let known = self.store.dentry(dir, name)?;
        self.put_dentry_over(changes, dir, name, dentry, known);
        Ok(())
    }

    fn put_dentry_over(
        &self,
        changes: &mut Vec<Record>,
        dir: NodeId,
        name: &Name,
        dentry: DentryRecord,
        known: Option<DentryRecord>,
    ) {
        if known.is_some_and(|known| known.target != dentry.target) {
            self.notices.send(Notice::Entry { parent: self.namespace.shown(dir), name: name.clone() });
        }
        changes.push(Record::Dentry(dir, name.clone(), Some(dentry)));
    }

    /// Puts a node's record, in memory as well if the node is in use, and tells the kernel what changed.
    fn put_node(&self, changes: &mut Vec<Record>, id: NodeId, old: Option<NodeRecord>, record: NodeRecord) {
        if old.is_some_and(|old| old.attributes != record.attributes) {
            self.notices.send(Notice::Attributes { node: self.namespace.shown(id), done: None });
        }
        if let Some(inode) = self.inodes.get(id) {
            *inode.record.write() = record.clone();
        }
        changes.push(Record::Node(id, Some(record)));
    }

    fn drop_vanished(&self, dir: NodeId, completeness: Completeness, names: &HashSet<u64>) -> Result<()> {
        let mut after: Option<Name> = None;
        loop {
            let known = self.store.dentries(dir, after.as_ref(), ROWS_AT_ONCE)?;
            let Some((last, _)) = known.last() else { return Ok(()) };
            after = Some(last.clone());
            let mut changes = Vec::new();
            for (name, dentry) in known {
                let listed = matches!(dentry.source, DentrySource::Listed | DentrySource::Described);
                let falls = listed || completeness.denies(&name);
                if falls && dentry.target != DentryTarget::Absent && !names.contains(&name_key(&name)) {
                    self.notices.send(Notice::Entry { parent: self.namespace.shown(dir), name: name.clone() });
                    changes.push(Record::Dentry(dir, name, None));
                }
            }
            self.store.apply(changes)?;
        }
    }

    /// Tells the kernel that content changed, except where a handle keeps it from mixing.
    pub(crate) fn tell_content_changed(&self, inode: &Arc<Inode>) {
        self.notices.send(Notice::Attributes { node: self.namespace.shown(inode.id), done: None });
    }
}

fn name_key(name: &Name) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// Whether a listing's row says more than the name and the kind.
fn tells_attributes(attributes: &Attributes) -> bool {
    attributes.kind == FileKind::Directory
        || attributes.size != Figure::Unknown
        || attributes.modified != Figure::Unknown
}

fn keep_size_when_silent(old: &Attributes, new: Attributes, same_version: bool) -> Attributes {
    let size = if same_version && new.size == Figure::Unknown { old.size } else { new.size };
    Attributes { size, ..new }
}

/// Whether a listing's row cannot be about the same content as what is known.
fn contradicts(known: &Attributes, row: &Attributes) -> bool {
    let sizes = match (known.size, row.size) {
        (Figure::Exact(known), Figure::Exact(row)) => known != row,
        (Figure::Exact(known), Figure::Rounded(row)) | (Figure::Rounded(known), Figure::Exact(row)) => {
            known.abs_diff(row) > known.max(row) / 10 + 1024
        }
        (Figure::Rounded(known), Figure::Rounded(row)) => known != row,
        (Figure::Unknown, _) | (_, Figure::Unknown) => false,
    };
    let times = match (known.modified.known(), row.modified.known()) {
        (Some(known), Some(row_time)) => {
            let apart = known.duration_since(row_time).unwrap_or_else(|earlier| earlier.duration());
            let exact = known_exactly(known, row_time, row);
            apart > if exact { Duration::ZERO } else { LISTING_TIME_SLACK }
        }
        _ => false,
    };
    sizes || times
}

/// Whether two times can be compared to the second: only when the row gives its time exactly.
fn known_exactly(_known: SystemTime, _row_time: SystemTime, row: &Attributes) -> bool {
    row.modified.exact().is_some()
}

/// The finer figures of two that agree.
fn finer(known: &Attributes, row: &Attributes) -> Attributes {
    fn pick<T: Copy>(known: Figure<T>, row: Figure<T>) -> Figure<T> {
        match (known, row) {
            (Figure::Exact(_), _) | (Figure::Rounded(_), Figure::Rounded(_) | Figure::Unknown) => known,
            (_, row) => row,
        }
    }
    Attributes {
        kind: if known.kind == FileKind::Unknown { row.kind } else { known.kind },
        size: pick(known.size, row.size),
        modified: pick(known.modified, row.modified),
        mode: known.mode.or(row.mode),
        owner: known.owner.or(row.owner),
    }
}

/// Rows of a listing that go into the store together.
const ROWS_AT_ONCE: usize = 1000;
/// How long a file that the source says is gone is taken to be gone.
const GONE_LEASE: Duration = Duration::from_secs(5);
/// How far a time in a listing may lie from the exact one and still be about the same content: index pages give
/// minutes, some of them in a time zone of their own with daylight saving, which is never off by less than half an hour.
const LISTING_TIME_SLACK: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn row(size: Figure<u64>, modified: Figure<SystemTime>) -> Attributes {
        Attributes { size, modified, ..Attributes::of_kind(FileKind::File) }
    }

    #[test]
    fn a_coarser_row_that_agrees_confirms_and_one_that_differs_contradicts() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let known = row(Figure::Exact(1234), Figure::Exact(at(1_000_047)));
        let agrees = row(Figure::Rounded(1229), Figure::Rounded(at(1_000_020)));
        assert!(!contradicts(&known, &agrees));
        assert_eq!(finer(&known, &agrees), known);
        assert!(contradicts(&known, &row(Figure::Exact(1235), Figure::Unknown)));
        assert!(contradicts(&known, &row(Figure::Exact(1234), Figure::Rounded(at(1_000_200)))));
        assert!(contradicts(&known, &row(Figure::Exact(1234), Figure::Exact(at(1_000_048)))));
        assert!(!contradicts(&row(Figure::Unknown, Figure::Unknown), &known));
        assert_eq!(finer(&agrees, &known), known);
    }
}
