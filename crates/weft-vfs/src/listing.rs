//! How a directory's listing comes into the store.
//!
//! A row is often coarser than what a file's own answer told: it fills what was unknown and confirms what agrees with
//! it. Where it contradicts, or tells another version, it is the newer word: it wins, and the content is checked before its
//! next use. Where the file was learnt of only after the listing was asked for, neither is known to be the newer: the file is
//! asked about at its next use.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::SystemTime;

use weft_remote::{Audience, Completeness, Entry, FileId, FileKind, Name, Page, Sameness, Version, clock};
use weft_store::{BindingId, DentryRecord, DentrySource, DentryTarget, ListingRecord, NodeId, NodeRecord, Record};

use crate::Result;
use crate::agree::{contradicts, finer, newer, tells_attributes, tells_exactly};
use crate::breaks::hash_of;
use crate::changes::ChangeKind;
use crate::inode::Inode;
use crate::learn::{Told, is_asked_before, is_newer};
use crate::notice::Notice;
use crate::vfs::Vfs;

/// A listing on its way into the store, page by page.
pub(crate) struct ListingMerge {
    rows: Rows,
    completeness: Completeness,
    /// Hashes of the names that the listing had so far.
    names: HashSet<u64>,
    /// The directory's mark ([`weft_store::Store::names_mark`]) from when on no name of it is known that is not of the listing,
    /// nor one twice; while it is the same, that is so.
    new_since: Option<u64>,
}

/// What all rows of one answer have in common.
struct Rows {
    dir: NodeId,
    /// The directory, if anybody uses it.
    inode: Option<Arc<Inode>>,
    binding: BindingId,
    told: Told,
    /// The directory's own listing, not a page elsewhere that links into it.
    own_listing: bool,
    /// It was listed before: a name that is not known is a new one.
    listed_before: Option<Version>,
    learnt: SystemTime,
}

/// What a row has changed of a name.
#[derive(Default)]
struct Row {
    /// What it led to, where that is another from now on.
    left: Option<DentryRecord>,
    /// The directory that has come there.
    come: Option<NodeId>,
}

impl Vfs {
    /// Starts to learn a directory's listing. Nothing is learnt of one that is not the newest, nor of the rest of one while
    /// a newer one comes.
    pub(crate) fn begin_listing(&self, dir: NodeId, binding: BindingId, told: Told) -> ListingMerge {
        let mark = self.store.names_mark(dir);
        let is_new = self.store.dentries(dir, None, 1).is_ok_and(|names| names.is_empty());
        // Only for those who watch; a store that cannot be read is found out by what follows.
        let before = self.store.listing(dir).ok().flatten().map(|listing| listing.version);
        let learnt = self.learnt(binding, &told);
        let inode = self.inodes.get(dir);
        if let Some(inode) = &inode {
            inode.listed.take(told.asked);
        }
        let rows = Rows { dir, inode, binding, told, own_listing: true, listed_before: before, learnt };
        let new_since = is_new.then_some(mark);
        ListingMerge { rows, completeness: Completeness::Partial, names: HashSet::new(), new_since }
    }

    /// Learns a page of a directory's listing.
    pub(crate) fn learn_page(&self, merge: &mut ListingMerge, page: Page) -> Result<()> {
        merge.completeness = page.completeness;
        merge.note(page.entries.iter().map(|entry| &entry.name));
        self.learn_rows(&merge.rows, page.entries, &mut merge.new_since)
    }

    /// Learns which rows of a directory's listing stand as they were told.
    pub(crate) fn learn_standing(&self, merge: &mut ListingMerge, standing: &[Arc<Entry>]) -> Result<()> {
        merge.note(standing.iter().map(|entry| &entry.name));
        let forgotten = self.forgotten_of(&merge.rows, standing)?;
        self.learn_rows(&merge.rows, forgotten, &mut merge.new_since)
    }

    /// Those of rows that were told before of which something else is known now, or nothing. What is known of the others is as new.
    fn forgotten_of(&self, rows: &Rows, standing: &[Arc<Entry>]) -> Result<Vec<Entry>> {
        let mut forgotten = Vec::new();
        for entry in standing {
            let known = self.store.dentry(rows.dir, &entry.name)?.and_then(|known| known.node());
            let leads_there = match known {
                Some(node) => self.store.is_of(node, rows.binding, &entry.id)?,
                None => false,
            };
            if !leads_there {
                forgotten.push(Entry::clone(entry));
            }
        }
        Ok(forgotten)
    }

    /// Ends a listing: names that it had before and has no more are dropped, and the listing counts from now on. Returns
    /// whether it does: not if one was asked for later that came, or is coming, nor if names were changed from here since it
    /// was asked for, which nobody waited for: their rows were left out.
    pub(crate) fn finish_listing(&self, merge: ListingMerge) -> Result<bool> {
        if self.overtaken.is(merge.rows.dir, merge.rows.told.asked) {
            return Ok(false);
        }
        if self.store.listing(merge.rows.dir)?.is_some() || merge.completeness != Completeness::Partial {
            self.drop_vanished(&merge)?;
        }
        let _names = self.renames.lock();
        if merge.rows.are_overtaken() || self.overtaken.is(merge.rows.dir, merge.rows.told.asked) {
            return Ok(false);
        }
        let ListingMerge { rows: Rows { dir, told, learnt, listed_before, .. }, completeness, .. } = merge;
        let other = listed_before.as_ref().is_none_or(|before| before.compare(&told.version) == Sameness::Different);
        // Who has it open may read a list of before from the kernel, again and again.
        let may_be_kept = listed_before.as_ref().is_some_and(|before| before.compare(&told.version) != Sameness::Same);
        if other {
            let from = listed_before.unwrap_or(Version::None);
            self.tell_of_node(ChangeKind::Listed, dir, from, told.version.clone());
        }
        let record = ListingRecord {
            version: told.version,
            lease: told.lease,
            completeness,
            audience: told.audience,
            learnt,
            origin: told.origin,
        };
        self.store.apply(vec![Record::Listing(dir, Some(record))])?;
        if may_be_kept {
            self.notices.send(Notice::Attributes { node: self.namespace.shown(dir) });
        }
        Ok(true)
    }

    /// Learns that a directory's listing was confirmed; returns whether that is the newest word on it.
    pub(crate) fn renew_listing(&self, dir: &Inode, told: &Told) -> Result<bool> {
        let _names = self.renames.lock();
        if !dir.listed.take(told.asked) {
            return Ok(false);
        }
        let Some(mut listing) = self.store.listing(dir.id)? else { return Ok(true) };
        let now = clock::now();
        let trusted = dir.freshness.holds(&listing.lease, listing.learnt, now);
        if trusted && told.audience != listing.audience && told.audience != Audience::Everyone {
            // It stays the other user's, to whom it is still good, and this one may see it as well.
            dir.grant(listing.version, told);
            return Ok(true);
        }
        listing.lease = listing.lease.confirmed(told.lease, now);
        listing.audience = told.audience;
        listing.learnt = self.learnt(dir.record.read().binding, told);
        self.store.apply(vec![Record::Listing(dir.id, Some(listing))])?;
        Ok(true)
    }

    /// Ends a listing that its source does not show any more. Of a directory that is gone, names that were in the list are known
    /// no longer, and those that were met otherwise, and its own, are asked about at their next use.
    pub(crate) fn end_listing(&self, dir: &Inode, is_gone: bool) -> Result<()> {
        self.store.apply(vec![Record::Listing(dir.id, None)])?;
        if !is_gone {
            return Ok(());
        }
        let (parent, name) = {
            let record = dir.record.read();
            (record.parent, record.name.clone())
        };
        self.doubt_name(parent, &name)?;
        let mut after: Option<Name> = None;
        loop {
            let names_locked = self.renames.lock();
            let mut known = self.store.dentries(dir.id, after.as_ref(), ROWS_AT_ONCE)?;
            let Some((last, _)) = known.last() else { return Ok(()) };
            after = Some(last.clone());
            known.retain(|(_, dentry)| dentry.target != DentryTarget::Absent);
            let (mut changes, mut doubted) = (Vec::new(), Vec::new());
            for (name, dentry) in known {
                if dentry.is_by_list() {
                    self.tell_gone(Some(&dentry));
                    self.notices.send(Notice::Entry { parent: self.namespace.shown(dir.id), name: name.clone() });
                    changes.push(Record::Dentry(dir.id, name, None));
                } else {
                    let in_doubt = DentryRecord { learnt: SystemTime::UNIX_EPOCH, ..dentry };
                    changes.push(Record::Dentry(dir.id, name.clone(), Some(in_doubt)));
                    doubted.push((name, dentry.node()));
                }
            }
            self.store.apply(changes)?;
            drop(names_locked);
            self.expire(dir.id, doubted);
        }
    }

    /// Forgets the names of a directory that was made just now, and has none. Its source may have had a directory of the same
    /// identity before.
    pub(crate) fn forget_names(&self, dir: NodeId) -> Result<()> {
        loop {
            let _names = self.renames.lock();
            let known = self.store.dentries(dir, None, ROWS_AT_ONCE)?;
            if known.is_empty() {
                return Ok(());
            }
            let parent = self.namespace.shown(dir);
            for (name, dentry) in &known {
                self.tell_gone(Some(dentry));
                self.notices.send(Notice::Entry { parent, name: name.clone() });
            }
            self.store.apply(known.into_iter().map(|(name, _)| Record::Dentry(dir, name, None)).collect())?;
        }
    }

    /// Learns names of a directory that something else named.
    pub(crate) fn learn_linked(&self, binding: BindingId, dir: &FileId, page: Page, told: Told) -> Result<()> {
        let dir = self.identify(binding, dir)?;
        if self.store.node(dir)?.is_none() {
            return Ok(());
        }
        let learnt = self.learnt(binding, &told);
        let rows = Rows { dir, inode: None, binding, told, own_listing: false, listed_before: None, learnt };
        self.learn_rows(&rows, page.entries, &mut None)
    }

    /// Takes the rows, so that the memory of a long listing is given back while the store takes it up: from the end of what
    /// is left, which can be made shorter where it lies. Where no name of the directory was known at the mark `new_since`, and it
    /// has that still, none is looked for.
    fn learn_rows(&self, rows: &Rows, mut entries: Vec<Entry>, new_since: &mut Option<u64>) -> Result<()> {
        entries.reverse();
        while !entries.is_empty() {
            let next = entries.split_off(entries.len().saturating_sub(ROWS_AT_ONCE));
            entries.shrink_to_fit();
            let mut changes = Vec::with_capacity(next.len() * 2);
            let (mut left, mut come) = (Vec::new(), Vec::new());
            let names = self.renames.lock();
            if rows.are_overtaken() {
                return Ok(());
            }
            if rows.own_listing {
                // Until all rows are here, the names are of no list: none may be confirmed that they are not of.
                changes.extend(self.doubted_listing(rows.dir, |listing| listing.version != Version::None)?);
            }
            *new_since = new_since.filter(|mark| *mark == self.store.names_mark(rows.dir));
            for entry in next.into_iter().rev() {
                let known = if new_since.is_some() { None } else { self.store.dentry(rows.dir, &entry.name)? };
                let row = self.learn_row(&mut changes, rows, &entry, known)?;
                left.extend(row.left.map(|was| (entry.name, was)));
                come.extend(row.come);
            }
            self.store.apply(changes)?;
            *new_since = new_since.map(|_| self.store.names_mark(rows.dir));
            drop(names);
            self.distrust_vanished(rows, left)?;
            come.into_iter().try_for_each(|dir| self.forget_below(dir))?;
        }
        Ok(())
    }

    /// What names of a listed directory led to and no longer do, unless it was met elsewhere since. The names are not locked.
    fn distrust_vanished(&self, rows: &Rows, left: Vec<(Name, DentryRecord)>) -> Result<()> {
        if !self.is_breakable(rows.binding) {
            return Ok(());
        }
        for (name, was) in left {
            let Some(id) = was.node() else { continue };
            if self.store.node(id)?.is_some_and(|node| node.parent == rows.dir && node.name == name) {
                self.distrust_left(rows.binding, Some(was), None)?;
            }
        }
        Ok(())
    }

    fn learn_row(
        &self,
        changes: &mut Vec<Record>,
        rows: &Rows,
        entry: &Entry,
        known: Option<DentryRecord>,
    ) -> Result<Row> {
        let source = match (rows.own_listing, tells_attributes(&entry.attributes)) {
            (true, true) => DentrySource::Described,
            (true, false) => DentrySource::Listed,
            (false, _) => DentrySource::Linked,
        };
        if let Some(known) = &known
            && self.row_knows_less(known, entry)?
        {
            return Ok(Row::default());
        }
        if self.overtaken.is_name(rows.dir, &entry.name, rows.told.asked) {
            return Ok(Row::default());
        }
        let (id, old) = self.identify_known(rows.binding, &entry.id)?;
        let target = DentryTarget::Node(id);
        if let Some(known) = known.filter(|known| known.target != target)
            && (is_newer(Some(&known), rows.learnt)
                || (!rows.own_listing && self.is_listed(rows.dir, entry, &known)?))
        {
            return Ok(Row::default());
        }
        if !rows.own_listing && known.is_none() && self.denied_since(rows.dir, &entry.name, rows.told.asked)? {
            return Ok(Row::default());
        }
        let mut merged = self.merge_row(id, rows, entry, old.as_ref())?;
        let has_come =
            old.is_some() && !self.tree_has_identities(rows.binding)? && self.has_come(known.as_ref(), id)?;
        let is_directory = entry.attributes.kind == FileKind::Directory;
        if let Some(old) = old.as_ref().filter(|_| has_come && !is_directory && !tells_exactly(&entry.attributes)) {
            // What is held, and known, of it is of before.
            self.distrust_content(id)?;
            let record = merged.unwrap_or_else(|| old.clone());
            merged = Some(NodeRecord { learnt: SystemTime::UNIX_EPOCH, ..record });
        }
        self.tell_row(rows, source, known.as_ref(), id, old.as_ref(), merged.as_ref());
        let stays_anothers = self.is_private(rows.told.audience)
            && merged.is_none()
            && old.as_ref().is_some_and(|old| old.audience != rows.told.audience);
        // A link elsewhere says nothing new about a name that already leads there, nor does what one user is told to others.
        if (source != DentrySource::Linked && !stays_anothers) || known.is_none_or(|known| known.target != target) {
            // What a source that tells of changes tells nobody in a list, and told somebody before, it may refuse by now.
            let is_untold = self.is_breakable(rows.binding)
                && !tells_attributes(&entry.attributes)
                && old.as_ref().is_some_and(|old| tells_attributes(&old.attributes));
            let learnt = if stays_anothers || is_untold { SystemTime::UNIX_EPOCH } else { rows.learnt };
            let dentry = DentryRecord { target, lease: rows.told.lease, source, learnt };
            self.put_dentry(changes, rows.dir, &entry.name, dentry, known);
        }
        if let Some(record) = merged {
            self.put_node(changes, (id, false), old.as_ref(), record)?;
        }
        Ok(Row { left: known.filter(|known| known.target != target), come: (has_come && is_directory).then_some(id) })
    }

    /// Whether what a name leads to is told by the directory's own list, which describes it or is all there is: a link elsewhere
    /// does not know better, it may be a wrong one.
    fn is_listed(&self, dir: NodeId, entry: &Entry, known: &DentryRecord) -> Result<bool> {
        Ok(match known.source {
            DentrySource::Described => true,
            DentrySource::Listed => {
                self.store.listing(dir)?.is_some_and(|listing| listing.completeness.denies(&entry.name))
            }
            DentrySource::Linked | DentrySource::LookedUp => false,
        })
    }

    /// Tells those who watch what a row means. A link says nothing of whether its end is there.
    fn tell_row(
        &self,
        rows: &Rows,
        source: DentrySource,
        known: Option<&DentryRecord>,
        id: NodeId,
        old: Option<&NodeRecord>,
        merged: Option<&NodeRecord>,
    ) {
        if !self.changes.watched() || source == DentrySource::Linked {
            return;
        }
        let absent = known.is_some_and(|known| known.target == DentryTarget::Absent);
        let Some(record) = merged.or(old) else { return };
        if source == DentrySource::Listed && self.changes.is_told_gone(record) {
            // A page that links to it on and on says nothing new.
            return;
        }
        if known.is_none() && rows.listed_before.is_some() {
            self.tell_change(ChangeKind::New, record, Version::None, record.version.clone());
        } else if source == DentrySource::Described || !absent {
            self.tell_entry(known, id, old, record);
        }
    }

    /// Whether a row without attributes would overwrite what a lookup found out: that the name leads to a directory
    /// or is a file that was fetched.
    fn row_knows_less(&self, known: &DentryRecord, entry: &Entry) -> Result<bool> {
        let DentryTarget::Node(id) = known.target else { return Ok(false) };
        if known.source != DentrySource::LookedUp || tells_attributes(&entry.attributes) {
            return Ok(false);
        }
        Ok(self.store.node(id)?.is_some_and(|node| node.attributes.kind != FileKind::Unknown))
    }

    /// The record of a node after a row of a listing; `None` when the row adds nothing.
    fn merge_row(
        &self,
        id: NodeId,
        rows: &Rows,
        entry: &Entry,
        old: Option<&NodeRecord>,
    ) -> Result<Option<NodeRecord>> {
        let Some(old) = old else { return Ok(Some(rows.new_node(entry))) };
        if self.overtaken.is(id, rows.told.asked) {
            return Ok(None);
        }
        // Of the same length and time, where that is told in seconds, it may be another all the same: two strong versions say so.
        let are_strong = matches!((&old.version, &entry.version), (Version::Strong(_), Version::Strong(_)));
        let is_another = are_strong
            && rows.told.audience == old.audience
            && rows.learnt >= old.learnt
            && old.version.compare(&entry.version) == Sameness::Different;
        if is_another || contradicts(&old.attributes, &entry.attributes) {
            self.distrust_content(id)?;
            if is_asked_before(&rows.told, old) {
                return Ok(Some(NodeRecord { learnt: SystemTime::UNIX_EPOCH, ..old.clone() }));
            }
            let keep = rows.new_node(entry);
            return Ok(Some(NodeRecord { origin: old.origin.clone(), ..keep }));
        }
        if self.is_private(rows.told.audience) && rows.told.audience != old.audience {
            // What a list told one user alone is not to be shown with what others may see.
            return Ok(None);
        }
        let merge = if rows.learnt < old.learnt { finer } else { newer };
        let attributes = merge(&old.attributes, &entry.attributes);
        let moved = old.parent != rows.dir || old.name != entry.name;
        if attributes == old.attributes && !moved {
            return Ok(None);
        }
        Ok(Some(NodeRecord { attributes, parent: rows.dir, name: entry.name.clone(), ..old.clone() }))
    }

    fn drop_vanished(&self, merge: &ListingMerge) -> Result<()> {
        let ListingMerge { rows, completeness, names, new_since } = merge;
        let dir = rows.dir;
        let mut after: Option<Name> = None;
        loop {
            let names_locked = self.renames.lock();
            if rows.are_overtaken() || *new_since == Some(self.store.names_mark(dir)) {
                return Ok(());
            }
            let known = self.store.dentries(dir, after.as_ref(), ROWS_AT_ONCE)?;
            let Some((last, _)) = known.last() else { return Ok(()) };
            after = Some(last.clone());
            let (mut changes, mut left) = (Vec::new(), Vec::new());
            for (name, dentry) in known {
                let falls = dentry.is_by_list() || completeness.denies(&name);
                if falls && dentry.target != DentryTarget::Absent && !names.contains(&hash_of(&name)) {
                    self.tell_gone(Some(&dentry));
                    self.notices.send(Notice::Entry { parent: self.namespace.shown(dir), name: name.clone() });
                    changes.push(Record::Dentry(dir, name.clone(), None));
                    left.push((name, dentry));
                }
            }
            self.store.apply(changes)?;
            drop(names_locked);
            self.distrust_vanished(rows, left)?;
        }
    }
}

impl ListingMerge {
    /// The listing has these names as well.
    fn note<'a>(&mut self, names: impl ExactSizeIterator<Item = &'a Name>) {
        let all = self.names.len() + names.len();
        self.names.extend(names.map(hash_of));
        if self.names.len() < all {
            self.new_since = None;
        }
    }
}

impl Rows {
    /// Whether a list that was asked for later came, or is coming. The names are locked.
    fn are_overtaken(&self) -> bool {
        self.inode.as_ref().is_some_and(|dir| dir.listed.is_after(self.told.asked))
    }

    fn new_node(&self, entry: &Entry) -> NodeRecord {
        NodeRecord {
            binding: self.binding,
            file: entry.id.clone(),
            parent: self.dir,
            name: entry.name.clone(),
            attributes: entry.attributes,
            version: entry.version.clone(),
            lease: self.told.lease,
            audience: self.told.audience,
            learnt: self.learnt,
            origin: None,
        }
    }
}

/// Rows of a listing that go into the store together.
const ROWS_AT_ONCE: usize = 250;
