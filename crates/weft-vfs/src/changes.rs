//! Changes found by validation, for whoever watches.
//!
//! Told where knowledge changes (learn.rs, listing.rs, read.rs), each at the place where the new word replaces the old
//! one. While nobody watches, telling is one look at a counter. Watchers share one bounded channel: one that is slower
//! than the changes is told how many it has missed, and holds nothing back.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use parking_lot::Mutex;
use tokio::sync::broadcast;
use weft_remote::{Attributes, Audience, Caller, FileKind, Name, Sameness, Version};
use weft_store::{DentryRecord, DentryTarget, NodeId, NodeRecord};

use crate::agree::contradicts;
use crate::vfs::{DEPTH_MAX, Vfs};

/// Something that has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// When it was found.
    pub at: SystemTime,
    /// What it is about: a path below the mount.
    pub path: Vec<Name>,
    /// What has happened.
    pub what: ChangeKind,
    /// The version before.
    pub from: Version,
    /// The version now.
    pub to: Version,
    /// Length in bytes now, as well as it is known.
    pub size: Option<u64>,
    /// Who may know of it: all of these.
    audiences: Vec<Audience>,
}

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// A file has other content.
    Changed,
    /// A name is no more.
    Gone,
    /// A name is there that was not.
    New,
    /// What was a file is a directory.
    MovedToDirectory,
    /// A directory was listed for the first time, or its listing is another.
    Listed,
    /// What was stored was found damaged; it is fetched again.
    Damaged,
}

/// What a watcher is told.
#[derive(Clone, Debug)]
pub enum Watched {
    /// A change.
    Change(Arc<Change>),
    /// So many changes, of the whole mount, came faster than they were taken.
    Lost(u64),
}

/// One who watches a subtree.
pub struct Watching {
    receiver: broadcast::Receiver<Arc<Change>>,
    watchers: Arc<AtomicUsize>,
    path: Vec<Name>,
    caller: Caller,
}

/// Where changes are told.
pub(crate) struct Changes {
    sender: broadcast::Sender<Arc<Change>>,
    watchers: Arc<AtomicUsize>,
    /// Names that were told to be gone and not to be back, which a page may link to all the same. Nothing else is locked
    /// or waited for while this is.
    gone: Mutex<HashSet<(NodeId, Name)>>,
}

impl Default for Changes {
    fn default() -> Changes {
        Changes { sender: broadcast::Sender::new(CHANGES_MAX), watchers: Arc::default(), gone: Mutex::default() }
    }
}

impl Changes {
    /// Whether anybody watches.
    pub(crate) fn watched(&self) -> bool {
        self.watchers.load(Ordering::Relaxed) > 0
    }

    /// Whether a name was told to be gone, and not to be back since.
    pub(crate) fn is_told_gone(&self, record: &NodeRecord) -> bool {
        self.gone.lock().contains(&(record.parent, record.name.clone()))
    }

    /// Notes that a name is gone; says whether that is news.
    fn note_gone(&self, record: &NodeRecord) -> bool {
        let mut gone = self.gone.lock();
        if gone.len() >= GONE_MAX {
            gone.clear();
        }
        gone.insert((record.parent, record.name.clone()))
    }

    /// Notes that a name is there; says whether that is news.
    fn note_back(&self, record: &NodeRecord) -> bool {
        self.gone.lock().remove(&(record.parent, record.name.clone()))
    }
}

impl Watching {
    /// The next change at or below the path that the caller may know of. `None` when the file system has ended.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Watched> {
        loop {
            match self.receiver.recv().await {
                Ok(change) => {
                    let for_caller = change.audiences.iter().all(|audience| audience.includes(&self.caller));
                    if for_caller && change.path.starts_with(&self.path) {
                        return Some(Watched::Change(change));
                    }
                }
                Err(broadcast::error::RecvError::Lagged(lost)) => return Some(Watched::Lost(lost)),
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.watchers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Vfs {
    /// The changes found at and below a path from now on, as far as the caller may know of them. The path need not be
    /// known.
    pub fn watch(&self, path: Vec<Name>, caller: Caller) -> Watching {
        let receiver = self.changes.sender.subscribe();
        self.changes.watchers.fetch_add(1, Ordering::Relaxed);
        Watching { receiver, watchers: self.changes.watchers.clone(), path, caller }
    }

    /// Tells a change of the file or directory that `record` is about; `from` is its version before.
    pub(crate) fn tell_change(&self, what: ChangeKind, record: &NodeRecord, from: Version, to: Version) {
        if !self.changes.watched() {
            return;
        }
        if what == ChangeKind::New {
            self.changes.note_back(record);
        }
        let Some((path, audiences)) = self.whereabouts(record) else { return };
        let size = match what {
            ChangeKind::Gone | ChangeKind::Listed | ChangeKind::MovedToDirectory => None,
            ChangeKind::Changed | ChangeKind::New | ChangeKind::Damaged => record.attributes.size.known(),
        };
        let change = Change { at: SystemTime::now(), path, what, from, to, size, audiences };
        // Nobody to tell is no error: the last watcher may just have gone.
        let _ = self.changes.sender.send(Arc::new(change));
    }

    /// Tells what an answer about a name means: `known` is what the name led to and `old` what was known of the node
    /// that `record` is about now.
    pub(crate) fn tell_entry(
        &self,
        known: Option<&DentryRecord>,
        id: NodeId,
        old: Option<&NodeRecord>,
        record: &NodeRecord,
    ) {
        if !self.changes.watched() {
            return;
        }
        let to = record.version.clone();
        match known.map(|known| known.target) {
            None => {}
            Some(DentryTarget::Absent) => self.tell_change(ChangeKind::New, record, Version::None, to),
            Some(DentryTarget::Node(was)) if was == id => {
                if let Some(old) = old {
                    self.tell_difference(&old.version, &old.attributes, record);
                }
            }
            Some(DentryTarget::Node(was)) => {
                // What was only guessed from a link is not a change when it is found out.
                let Ok(Some(was)) = self.store.node(was) else { return };
                if was.attributes.kind != FileKind::File || was.attributes.size.known().is_none() {
                    return;
                }
                let moved = record.attributes.kind == FileKind::Directory;
                let what = if moved { ChangeKind::MovedToDirectory } else { ChangeKind::Changed };
                self.tell_change(what, record, was.version, to);
            }
        }
    }

    /// Tells that a name is there again, by the source's own word on it, if it was told to be gone; says whether it was.
    pub(crate) fn tell_back(&self, record: &NodeRecord) -> bool {
        let is_news = self.changes.watched() && self.changes.note_back(record);
        if is_news {
            self.tell_change(ChangeKind::New, record, Version::None, record.version.clone());
        }
        is_news
    }

    /// Tells that a file is other content, if it is.
    pub(crate) fn tell_difference(&self, old_version: &Version, old: &Attributes, record: &NodeRecord) {
        if !self.changes.watched() || record.attributes.kind == FileKind::Directory || self.tell_back(record) {
            return;
        }
        let other = old_version.compare(&record.version) == Sameness::Different;
        if other || contradicts(old, &record.attributes) {
            self.tell_change(ChangeKind::Changed, record, old_version.clone(), record.version.clone());
        }
    }

    /// Tells that a name is no more, if it led somewhere; once, although a page may link to it on and on.
    pub(crate) fn tell_gone(&self, dentry: Option<&DentryRecord>) {
        if !self.changes.watched() {
            return;
        }
        let Some(DentryTarget::Node(was)) = dentry.map(|dentry| dentry.target) else { return };
        if let Ok(Some(was)) = self.store.node(was) {
            // Where files have identities, one may have several names, and lists tell what is there.
            let has_identities = self.namespace.remote(was.binding).is_some_and(|r| r.capabilities().stable_ids);
            if !has_identities && !self.changes.note_gone(&was) {
                return;
            }
            let from = was.version.clone();
            self.tell_change(ChangeKind::Gone, &was, from, Version::None);
        }
    }

    /// Tells something of a node whose record is in the store.
    pub(crate) fn tell_of_node(&self, what: ChangeKind, id: NodeId, from: Version, to: Version) {
        if self.changes.watched()
            && let Ok(Some(record)) = self.store.node(id)
        {
            self.tell_change(what, &record, from, to);
        }
    }

    /// The path of what a record is about, and who may see all of the way to it.
    fn whereabouts(&self, record: &NodeRecord) -> Option<(Vec<Name>, Vec<Audience>)> {
        let (mut path, mut audiences) = (Vec::new(), Vec::new());
        let mut record = record.clone();
        for _ in 0..DEPTH_MAX {
            if record.audience != Audience::Everyone && !audiences.contains(&record.audience) {
                audiences.push(record.audience);
            }
            let bound = self.namespace.bound(record.binding)?;
            if bound.remote.root() == record.file {
                path.extend(bound.at.iter().rev().cloned());
                path.reverse();
                return Some((path, audiences));
            }
            path.push(record.name);
            record = self.store.node(record.parent).ok()??;
        }
        None
    }
}

/// Names that are remembered to have been told gone; then they may be told once more.
const GONE_MAX: usize = 65_536;
/// Changes that a watcher may be behind.
const CHANGES_MAX: usize = 4096;
