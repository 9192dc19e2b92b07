//! How what a source says of a file itself becomes what the store knows: it replaces what was known before.

use std::sync::atomic::Ordering;
use std::time::SystemTime;

use weft_remote::{Answer, Attributes, Audience, Entry, Figure, Lease, Name, Origin, Sameness, Version, clock};
use weft_store::{
    BindingId, DentryRecord, DentrySource, DentryTarget, ListingRecord, NodeId, NodeRecord, Object, Record,
};

use crate::Result;
use crate::agree::{contradicts, with_time_known};
use crate::breaks::Breaks;
use crate::inode::Inode;
use crate::notice::Notice;
use crate::retry::RETRY_TIME;
use crate::vfs::Vfs;

/// What an answer says about its own worth.
#[derive(Clone)]
pub(crate) struct Told {
    pub(crate) lease: Lease,
    pub(crate) audience: Audience,
    pub(crate) origin: Option<Origin>,
    pub(crate) version: Version,
    pub(crate) asked: SystemTime,
    /// It is what came of a change that was made from here.
    of_change: bool,
    /// What is known differs, and was learnt after this was asked for: which of the two is the newer, nobody knows.
    crossed: bool,
}

impl Told {
    pub(crate) fn by<T>(answer: &Answer<T>) -> Told {
        Told {
            lease: answer.lease,
            audience: answer.audience,
            origin: answer.origin.clone(),
            version: answer.version.clone(),
            asked: answer.asked,
            of_change: false,
            crossed: false,
        }
    }

    /// The same of what came with an answer to a question of then.
    pub(crate) fn asked_at<T>(answer: &Answer<T>, asked: SystemTime) -> Told {
        Told { asked, ..Told::by(answer) }
    }

    /// The same of what came of a change that was made from here.
    pub(crate) fn of_change<T>(answer: &Answer<T>) -> Told {
        Told { of_change: true, ..Told::by(answer) }
    }

    /// The same, beside what is known: that a file has this version, and these attributes where they are told. Two answers may
    /// cross on their way, and the one that comes last is not the newer one for that: it is asked again at the next use.
    pub(crate) fn beside(self, known: &NodeRecord, version: &Version, attributes: Option<&Attributes>) -> Told {
        let differs = known.version.compare(version) == Sameness::Different
            || attributes.is_some_and(|attributes| contradicts(&known.attributes, attributes));
        let crossed = differs && is_asked_before(&self, known);
        Told { crossed, ..self }
    }

    /// The same, trusted that long.
    pub(crate) fn under(&self, lease: Lease) -> Told {
        Told { lease, ..self.clone() }
    }

    /// The record of what a name in a directory leads to, by what was told of it.
    pub(crate) fn node(&self, binding: BindingId, parent: NodeId, entry: &Entry, learnt: SystemTime) -> NodeRecord {
        NodeRecord {
            binding,
            file: entry.id.clone(),
            parent,
            name: entry.name.clone(),
            attributes: entry.attributes,
            version: self.version.clone(),
            lease: self.lease,
            audience: self.audience,
            learnt,
            origin: self.origin.clone(),
        }
    }
}

impl Vfs {
    /// From when on what an answer tells counts as known: from its end, but from its beginning where the source tells of
    /// changes, which may come in between; at no time where it is not known to be the newest word.
    pub(crate) fn learnt(&self, binding: BindingId, told: &Told) -> SystemTime {
        match told.crossed {
            true => SystemTime::UNIX_EPOCH,
            false if self.is_breakable(binding) => told.asked,
            false => clock::now(),
        }
    }

    /// Learns what a name in a directory leads to; returns the node, and whether that was not overtaken.
    pub(crate) fn learn_entry(
        &self,
        dir: NodeId,
        binding: BindingId,
        entry: &Entry,
        told: &Told,
    ) -> Result<(NodeId, bool)> {
        let id = self.identify(binding, &entry.id)?;
        let learnt = self.learnt(binding, told);
        let old = self.store.node(id)?;
        let mut record = told.node(binding, dir, entry, learnt);
        if let Some(old) = &old {
            record.attributes =
                with_time_known(record.attributes, &old.attributes, old.version.compare(&record.version));
        }
        let target = DentryTarget::Node(id);
        let dentry = DentryRecord { target, lease: told.lease, source: DentrySource::LookedUp, learnt };
        let mut changes = Vec::with_capacity(2);
        let names = self.renames.lock();
        let known = self.store.dentry(dir, &entry.name)?;
        let leads_elsewhere = known.is_some_and(|known| known.target != target) && is_newer(known.as_ref(), learnt);
        let is_denied = known.is_none() && self.denied_since(dir, &entry.name, told.asked)?;
        let is_old_word = self.is_old_word(binding, dir, &entry.name, told) || leads_elsewhere || is_denied;
        if is_old_word || self.overtaken.is(id, told.asked) {
            if old.is_none() {
                let record = NodeRecord { learnt: SystemTime::UNIX_EPOCH, ..record };
                self.store.apply(vec![Record::Node(id, Some(record))])?;
            }
            return Ok((id, false));
        }
        if known.is_none_or(|known| known.target == DentryTarget::Absent) {
            changes.extend(self.doubted_listing(dir, |listing| listing.completeness.denies(&entry.name))?);
        }
        let is_known = known.is_some_and(|known| known.target == target);
        let is_confirmed = is_known && old.as_ref().is_some_and(|old| record.confirms(old));
        self.tell_entry(known.as_ref(), id, old.as_ref(), &record);
        self.put_dentry(&mut changes, dir, &entry.name, dentry, known);
        self.put_node(&mut changes, (id, told.of_change), old.as_ref(), record)?;
        self.put(changes, is_confirmed)?;
        drop(names);
        self.distrust_left(binding, known, Some(id))?;
        if let Some(old) = &old
            && !self.tree_has_identities(binding)?
        {
            let has_come = self.has_come(known.as_ref(), id)?;
            self.leave_what_was(id, entry.attributes.kind, old.version.compare(&told.version), has_come)?;
        }
        Ok((id, true))
    }

    /// Learns that a directory has no such name, and returns whether that is the newest word on it.
    pub(crate) fn learn_absence(
        &self,
        dir: NodeId,
        binding: BindingId,
        name: &Name,
        told: &Told,
        learnt: SystemTime,
    ) -> Result<bool> {
        let names = self.renames.lock();
        let known = self.store.dentry(dir, name)?;
        let is_old_word = self.is_old_word(binding, dir, name, told) || is_newer(known.as_ref(), learnt);
        let is_newest = !is_old_word && !self.is_listed_since(dir, known.as_ref(), told.asked);
        if is_newest {
            self.put_absence(dir, name, known, (told.lease, learnt))?;
            drop(names);
            self.distrust_left(binding, known, None)?;
        }
        Ok(is_newest)
    }

    /// Whether what was told of a name is of before a change: by us, or of which its source has told.
    fn is_old_word(&self, binding: BindingId, dir: NodeId, name: &Name, told: &Told) -> bool {
        let has_ended = |breaks: &Breaks| breaks.name_ended(dir, name, told.asked);
        self.overtaken.is_name(dir, name, told.asked) || self.namespace.breaks(binding).is_some_and(has_ended)
    }

    /// Puts that a name is absent. The names are locked.
    pub(crate) fn put_absence(
        &self,
        dir: NodeId,
        name: &Name,
        known: Option<DentryRecord>,
        (lease, learnt): (Lease, SystemTime),
    ) -> Result<()> {
        self.absent_names.note(dir, name);
        let dentry = DentryRecord { target: DentryTarget::Absent, lease, source: DentrySource::LookedUp, learnt };
        let mut changes = Vec::with_capacity(2);
        if let Some(known) = known.filter(|known| known.target != DentryTarget::Absent) {
            // That a link is dead is no news of a list that lacks its name.
            let is_dead =
                |listing: &ListingRecord| known.source == DentrySource::Linked && listing.completeness.denies(name);
            changes.extend(self.doubted_listing(dir, |listing| !is_dead(listing))?);
        }
        self.tell_gone(known.as_ref());
        self.put_dentry(&mut changes, dir, name, dentry, known);
        Ok(self.store.apply(changes)?)
    }

    /// The listing of a directory of which something else has told otherwise, as it is from now on: no source can confirm it,
    /// and so the next one comes whole.
    pub(crate) fn doubted_listing(
        &self,
        dir: NodeId,
        is_doubted: impl Fn(&ListingRecord) -> bool,
    ) -> Result<Option<Record>> {
        let listing = self.store.listing(dir)?.filter(is_doubted);
        Ok(listing.map(|listing| Record::Listing(dir, Some(ListingRecord { version: Version::None, ..listing }))))
    }

    /// Learns what an inode is now. Its names stay as they are.
    pub(crate) fn learn_attributes(&self, inode: &Inode, attributes: Attributes, told: &Told) -> Result<()> {
        let _names = self.renames.lock();
        if !told.of_change && self.overtaken.is(inode.id, told.asked) {
            return Ok(());
        }
        let old = inode.record();
        // A source that is silent about the length of a version has told it before.
        let silent = attributes.size == Figure::Unknown && old.version.still_holds(&told.version);
        let attributes = with_time_known(attributes, &old.attributes, old.version.compare(&told.version));
        let record = NodeRecord {
            attributes: if silent { Attributes { size: old.attributes.size, ..attributes } } else { attributes },
            version: told.version.clone(),
            lease: told.lease,
            audience: told.audience,
            learnt: self.learnt(old.binding, told),
            origin: told.origin.clone().or(old.origin.clone()),
            binding: old.binding,
            file: old.file.clone(),
            parent: old.parent,
            name: old.name.clone(),
        };
        self.tell_difference(&old.version, &old.attributes, &record);
        if sizes_or_times_differ(&old.attributes, &record.attributes) {
            if inode.draft().is_none_or(|draft| draft.may_be_shown_as_before()) {
                self.tell_attributes(inode.id, &record);
            }
        } else if old.attributes != record.attributes {
            // A time became exact: nobody reads wrongly by the coarser one, so the kernel is not bothered before the
            // reader is done.
            inode.content.lock().untold = true;
        }
        if !old.version.still_holds(&record.version) {
            inode.content.lock().seen = Some(first_seen(record.learnt));
            self.forget_pages_unopened(inode.id);
        }
        self.replace_record(inode, &record, told.of_change)?;
        let (mut changes, is_confirmed) = (Vec::with_capacity(2), record.confirms(&old));
        changes.extend(self.name_as_told(inode, &record, told)?);
        changes.push(Record::Node(inode.id, Some(record)));
        self.put(changes, is_confirmed)
    }

    /// Tells the kernel that the attributes of an inode are no longer what it knows. Where somebody follows the path to it
    /// again, and is about to be told what they are, that is done afterwards: it would have the kernel leave that aside.
    fn tell_attributes(&self, id: NodeId, record: &NodeRecord) {
        let notice = Notice::Attributes { node: self.namespace.shown(id) };
        match self.is_followed_to(record) {
            true => self.notices.send_after(RETRY_TIME, vec![notice], &self.runtime),
            false => self.notices.send(notice),
        }
    }

    /// What is known of the name of an inode after it was told what that is, where this is another than before. The caller holds
    /// `renames`.
    fn name_as_told(&self, inode: &Inode, record: &NodeRecord, told: &Told) -> Result<Option<Record>> {
        let known = self.store.dentry(record.parent, &record.name)?;
        let leads_here = |known: &DentryRecord| {
            known.source == DentrySource::LookedUp && known.target == DentryTarget::Node(inode.id)
        };
        let Some(mut dentry) = known.filter(leads_here) else { return Ok(None) };
        if self.has_identities(inode)? {
            // What a file is says nothing of its name, which may lead elsewhere by now.
            let now = clock::now();
            if told.lease.remaining_at(now) >= dentry.lease.remaining_at(now) {
                return Ok(None);
            }
        } else {
            dentry.learnt = record.learnt;
        }
        dentry.lease = told.lease;
        Ok(Some(Record::Dentry(record.parent, record.name.clone(), Some(dentry))))
    }

    /// Puts changes; whether they only confirm what was known.
    fn put(&self, changes: Vec<Record>, is_confirmed: bool) -> Result<()> {
        let put = if is_confirmed { self.store.apply_confirmed(changes) } else { self.store.apply(changes) };
        Ok(put?)
    }

    /// Learns that the source confirmed what is known of an inode.
    pub(crate) fn learn_unchanged(&self, inode: &Inode, told: &Told) -> Result<()> {
        if self.overtaken.is(inode.id, told.asked) {
            return Ok(());
        }
        let told = self.learn_confirmed(inode, told)?;
        self.confirm_content(inode, &told)
    }

    /// The same, where that says nothing of what is held of the content. Returns what is known by that.
    pub(crate) fn learn_confirmed(&self, inode: &Inode, told: &Told) -> Result<Told> {
        let now = clock::now();
        let (attributes, version, lease) = {
            let record = inode.record.read();
            (record.attributes, record.version.clone(), record.lease.confirmed(told.lease, now))
        };
        let told = Told { version, lease, ..told.clone() };
        self.learn_attributes(inode, attributes, &told)?;
        Ok(told)
    }

    /// Learns that the source has the content that is held.
    pub(crate) fn confirm_content(&self, inode: &Inode, told: &Told) -> Result<()> {
        let checked = self.learnt(inode.record.read().binding, told);
        self.store.renew(inode.id, told.lease, checked)?;
        if let Some(current) = &mut inode.content.lock().current {
            current.lease = told.lease;
            current.checked = checked;
        }
        Ok(())
    }

    /// Learns the exact length that a body turned out to have, unless the file is another version by now, or, where that cannot
    /// be told, another body has come since.
    pub(crate) fn learn_length_of(&self, node: NodeId, object: &Object, length: u64) -> Result<()> {
        let is_newest = self.inodes.get(node).is_none_or(|inode| {
            let content = inode.content.lock();
            content.current.as_ref().is_none_or(|current| current.object.generation() == object.generation())
        });
        self.learn_length_if(node, length, |record| match record.version.compare(object.version()) {
            Sameness::Same | Sameness::Equivalent => true,
            Sameness::CannotTell => is_newest,
            Sameness::Different => false,
        })
    }

    /// Learns the length of a body where the last answer about the file told none.
    pub(crate) fn learn_missing_length(&self, node: NodeId, version: &Version, length: u64) -> Result<()> {
        self.learn_length_if(node, length, |record| {
            record.attributes.size.exact().is_none() && record.version.compare(version) != Sameness::Different
        })
    }

    /// Learns the exact length of what is served.
    pub(crate) fn learn_length(&self, node: NodeId, length: u64) -> Result<()> {
        self.learn_length_if(node, length, |_| true)
    }

    fn learn_length_if(&self, node: NodeId, length: u64, applies: impl Fn(&NodeRecord) -> bool) -> Result<()> {
        let _names = self.renames.lock();
        let inode = self.inodes.get(node);
        let known = match &inode {
            Some(inode) => Some(inode.record()),
            None => self.store.node(node)?,
        };
        let known = known.filter(applies);
        let Some(mut record) = known else { return Ok(()) };
        if record.attributes.size == Figure::Exact(length) {
            return Ok(());
        }
        record.attributes.size = Figure::Exact(length);
        if let Some(inode) = &inode {
            self.replace_record(inode, &record, false)?;
        }
        self.notices.send(Notice::Attributes { node: self.namespace.shown(node) });
        self.store.apply(vec![Record::Node(node, Some(record))])?;
        Ok(())
    }

    /// Has the next open of a file check its content, whatever the lease says.
    pub(crate) fn distrust_content(&self, node: NodeId) -> Result<()> {
        // What the lease says of failing sources still counts.
        let lease = self.store.object_record(node)?.map_or(Lease::Spent, |object| object.lease);
        self.store.renew(node, lease, SystemTime::UNIX_EPOCH)?;
        if let Some(inode) = self.inodes.get(node)
            && let Some(current) = &mut inode.content.lock().current
        {
            current.checked = SystemTime::UNIX_EPOCH;
        }
        Ok(())
    }

    /// Puts a name, and tells the kernel when it leads elsewhere than before.
    pub(crate) fn put_dentry(
        &self,
        changes: &mut Vec<Record>,
        dir: NodeId,
        name: &Name,
        dentry: DentryRecord,
        known: Option<DentryRecord>,
    ) {
        if known.is_none_or(|known| known.target == DentryTarget::Absent) && dentry.target != DentryTarget::Absent {
            self.take_back_absence(dir, name);
        }
        if known.is_some_and(|known| known.target != dentry.target) {
            self.notices.send(Notice::Entry { parent: self.namespace.shown(dir), name: name.clone() });
        }
        changes.push(Record::Dentry(dir, name.clone(), Some(dentry)));
    }

    /// Puts a node's record, in memory as well if the node is in use, and tells the kernel what changed.
    pub(crate) fn put_node(
        &self,
        changes: &mut Vec<Record>,
        (id, changed_here): (NodeId, bool),
        old: Option<&NodeRecord>,
        record: NodeRecord,
    ) -> Result<()> {
        let inode = self.inodes.get(id);
        if let Some(old) = old.filter(|old| (old.parent, &old.name) != (record.parent, &record.name)) {
            self.note_former_place(id, old, changed_here);
        }
        if let Some(inode) = &inode {
            self.replace_record(inode, &record, changed_here)?;
        }
        if let Some(old) = old.filter(|old| old.attributes != record.attributes) {
            // Who looks the name up is about to be told what it is: see `tell_attributes`. The kernel has been told already that
            // what it knew is not so any more, and trusts nothing of it.
            let is_distrusted = old.learnt == SystemTime::UNIX_EPOCH && self.is_breakable(record.binding);
            match is_distrusted && old.attributes.size == record.attributes.size {
                true => self.notices.send_soon(self.namespace.shown(id), &self.runtime),
                false => self.tell_attributes(id, &record),
            }
        }
        let is_other = old.is_some_and(|old| !old.version.still_holds(&record.version));
        if is_other {
            self.forget_pages_unopened(id);
        }
        if let Some(inode) = inode {
            if is_other {
                inode.content.lock().seen = Some(first_seen(record.learnt));
            }
            inode.gone.store(false, Ordering::Release);
        }
        changes.push(Record::Node(id, Some(record)));
        Ok(())
    }
}

/// Whether something was asked for before that was learnt of a node. A time that is still to come is of before the clock was set
/// back, and says nothing.
pub(crate) fn is_asked_before(told: &Told, known: &NodeRecord) -> bool {
    told.asked < known.learnt && known.learnt <= clock::now()
}

/// When a version was first seen that was learnt then, or, at no time, is not known to be the newest.
fn first_seen(learnt: SystemTime) -> SystemTime {
    if learnt == SystemTime::UNIX_EPOCH { clock::now() } else { learnt }
}

/// Whether what is known of a name was asked for later than what is learnt. A time that is still to come is of before the
/// clock was set back, and says nothing.
pub(crate) fn is_newer(known: Option<&DentryRecord>, learnt: SystemTime) -> bool {
    known.is_some_and(|known| known.learnt > learnt && known.learnt <= clock::now())
}

/// Whether new attributes are about other content, or of another length, than the old ones showed.
fn sizes_or_times_differ(old: &Attributes, new: &Attributes) -> bool {
    old.kind != new.kind || old.size != new.size || contradicts(old, new)
}
