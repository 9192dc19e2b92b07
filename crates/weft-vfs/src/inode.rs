//! Inodes in memory: what is in use of what the store knows.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Mutex, RwLock};
use weft_remote::{FileKind, Lease, Name, NewMode, Version, clock};
use weft_store::{NodeId, NodeRecord, Object};

use crate::VfsError;
use crate::admit::Grants;
use crate::agree::lacks_times;
use crate::arrival::Arrival;
use crate::draft::Draft;
use crate::ended::Ended;
use crate::faces::Former;
use crate::freshness::Freshness;
use crate::listed::Listed;
use crate::policies::{OpenFiles, Policy};
use crate::prefetch::Want;
use crate::same_use::SameUse;
use crate::told_length::ToldLength;
use crate::told_to::ToldTo;
use crate::walk::Walk;

/// A file or directory in use.
pub(crate) struct Inode {
    pub(crate) id: NodeId,
    /// The policy of the tree it lies in.
    pub(crate) freshness: Freshness,
    /// The same, of what is shown of it while it is open.
    pub(crate) open_files: OpenFiles,
    /// What is known of it; the same as in the store. Held for one copy or one change.
    pub(crate) record: RwLock<NodeRecord>,
    /// Its content. Held for one look or one change, never over I/O on a remote.
    pub(crate) content: Mutex<Content>,
    /// Whoever asks the remote about this inode holds the gate meanwhile; others wait and find the answer.
    pub(crate) gate: tokio::sync::Mutex<()>,
    /// What was written to it. Held for one look, or while a draft begins or ends.
    pub(crate) draft: RwLock<Option<Arc<Draft>>>,
    /// How many drafts of it have ended. Changed under the lock of `draft`.
    pub(crate) drafts_ended: AtomicU64,
    /// Its length, as the kernel was told last.
    pub(crate) told_length: ToldLength,
    /// It has no name any more: it is what it is here until it is closed, and nobody is asked about it.
    pub(crate) gone: AtomicBool,
    /// Of a directory: when its newest list was asked for.
    pub(crate) listed: Listed,
    /// How a directory is being walked. Held for one look into the store.
    pub(crate) walk: Mutex<Walk>,
    /// Of a directory: it was listed ahead of a walk, and not used since.
    pub(crate) listed_ahead: AtomicBool,
}

/// The content of an inode, as far as it is here or on its way.
#[derive(Default)]
pub(crate) struct Content {
    /// The version that opens get.
    pub(crate) current: Option<Current>,
    /// Bodies on their way into objects of this inode, or (for a directory) the page that lists it.
    pub(crate) arrivals: Vec<Arc<Arrival>>,
    /// Which object's bytes the kernel's page cache may hold, by generation.
    pub(crate) pages_of: Option<u64>,
    /// Whether it has done away with those of another object: it does that when it has the answer to the open that says so.
    pub(crate) pages_are_sure: bool,
    /// The length of that object, where it is known.
    pub(crate) pages_length: Option<u64>,
    /// What was shown by the face that the file had before.
    pub(crate) former: Option<Former>,
    /// The use of its face for which the kernel has dropped the pages of those before.
    pub(crate) pages_dropped_for: u64,
    /// Who has an older version open that has ended.
    pub(crate) ended: Option<Ended>,
    /// Programs here take locks of it ([`crate::by_locks`]).
    pub(crate) goes_by_locks: bool,
    /// Something may have been read, or was written, by what is open.
    pub(crate) was_used: bool,
    /// Handles open on each object, by generation.
    pub(crate) open: Vec<(u64, u32)>,
    /// Those by a face that the file had before.
    pub(crate) open_by_former: Vec<(u64, u32)>,
    /// Handles open that read past the store.
    pub(crate) open_past_store: u32,
    /// The generation of an object whose body was not what it announced, and how: what is missing of it stays
    /// missing.
    pub(crate) spoilt: Option<(u64, VfsError)>,
    /// Objects of earlier generations are of before what opens got, or could get, last.
    pub(crate) outdated_before: u64,
    /// Whether the attributes became finer than what the kernel was told.
    pub(crate) untold: bool,
    /// Whether ranges came that the object's record does not have yet.
    pub(crate) unrecorded: bool,
    /// How long the source took to begin its last answer.
    pub(crate) latency: Duration,
    /// What was fetched of it ahead of a walk, if it has not been used since.
    pub(crate) ahead: Option<Want>,
    /// Who else may have what is held.
    pub(crate) grants: Grants,
    /// When this version was first seen: what `stat` shows as the time of a file whose source tells none, so that a
    /// mere confirmation does not look like a change.
    pub(crate) seen: Option<SystemTime>,
    /// Of a directory: who was told lately what it is.
    pub(crate) told_to: ToldTo,
    /// When the kernel was last about to be told that a name leads here.
    pub(crate) named: Option<Instant>,
    /// Versions in whose place came what was sent from here, the newest last.
    pub(crate) replaced_here: VecDeque<Version>,
    /// Of a file that was made without a name: the mode that was asked for, and the umask.
    pub(crate) asked_mode: Option<NewMode>,
    /// The name of it that was taken away last from here: of that the kernel knows.
    pub(crate) unnamed_here: Option<(NodeId, Name)>,
    /// When it turned out that it had more than one name until then.
    pub(crate) had_several_names: Option<Instant>,
    /// For whom content without a validator came last.
    pub(crate) same_use: Option<SameUse>,
    /// The last thing that went wrong.
    pub(crate) last_error: Option<(SystemTime, VfsError)>,
    /// Of a directory: the names whose look-up failed last, oldest first.
    pub(crate) failed_names: VecDeque<(Name, SystemTime, String)>,
}

/// The version of a file's content that opens get.
#[derive(Clone)]
pub(crate) struct Current {
    pub(crate) object: Arc<Object>,
    pub(crate) lease: Lease,
    /// When the source last confirmed it; the epoch when it must be checked whatever the lease says.
    pub(crate) checked: SystemTime,
}

impl Inode {
    pub(crate) fn new(id: NodeId, policy: Policy, record: NodeRecord) -> Inode {
        Inode {
            id,
            freshness: policy.freshness,
            open_files: policy.open_files,
            content: Mutex::new(Content { seen: Some(record.learnt), ..Content::default() }),
            gate: tokio::sync::Mutex::default(),
            draft: RwLock::default(),
            drafts_ended: AtomicU64::new(0),
            told_length: ToldLength::default(),
            gone: AtomicBool::new(record.attributes.links == Some(0)),
            listed: Listed::default(),
            walk: Mutex::default(),
            listed_ahead: AtomicBool::new(false),
            record: RwLock::new(record),
        }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    pub(crate) fn kind(&self) -> FileKind {
        self.record.read().attributes.kind
    }

    /// Takes a copy of the record.
    pub(crate) fn record(&self) -> NodeRecord {
        self.record.read().clone()
    }

    /// Whether everything that `stat` shows is exact enough to be shown.
    pub(crate) fn is_settled(&self) -> bool {
        let attributes = self.record.read().attributes;
        match attributes.kind {
            FileKind::File => attributes.size.exact().is_some(),
            FileKind::Unknown => false,
            FileKind::Directory => !lacks_times(&attributes),
            _ => true,
        }
    }

    /// How long this version of it is trusted, and since when: by what is known, if that is of this version.
    pub(crate) fn known_of(&self, version: &Version) -> (Lease, SystemTime) {
        let record = self.record.read();
        match version.still_holds(&record.version) {
            true => (record.lease, record.learnt),
            false => (Lease::Spent, SystemTime::UNIX_EPOCH),
        }
    }

    /// Notes that the kernel is about to be told that a name leads here, if that turns out to be so still.
    pub(crate) fn note_named(&self) {
        self.content.lock().named = Some(Instant::now());
    }

    /// The running arrival that satisfies `wanted`, if any.
    pub(crate) fn arrival(&self, wanted: impl Fn(&Arrival) -> bool) -> Option<Arc<Arrival>> {
        let mut content = self.content.lock();
        content.arrivals.retain(|arrival| arrival.is_running());
        content.arrivals.iter().find(|arrival| wanted(arrival)).cloned()
    }

    /// Where the next running arrival begins that brings bytes of an object behind `offset`.
    pub(crate) fn next_arrival(&self, object: &Arc<Object>, offset: u64) -> Option<u64> {
        let mut content = self.content.lock();
        content.arrivals.retain(|arrival| arrival.is_running());
        let of_object = content.arrivals.iter().filter(|arrival| Arc::ptr_eq(&arrival.object, object));
        of_object.map(|arrival| arrival.start).filter(|start| *start > offset).min()
    }

    /// The running arrival that satisfies `wanted` and began last, if any.
    pub(crate) fn newest_arrival(&self, wanted: impl Fn(&Arrival) -> bool) -> Option<Arc<Arrival>> {
        let mut content = self.content.lock();
        content.arrivals.retain(|arrival| arrival.is_running());
        content.arrivals.iter().rfind(|arrival| wanted(arrival)).cloned()
    }

    /// Remembers what went wrong, for `weft why`.
    pub(crate) fn note_error(&self, error: &VfsError) {
        self.content.lock().last_error = Some((clock::now(), error.clone()));
    }
}

impl Inode {
    /// Remembers why a name in this directory could not be looked up, for `weft why`.
    pub(crate) fn note_name_error(&self, name: &Name, error: &VfsError) {
        self.note_error(error);
        let failed = &mut self.content.lock().failed_names;
        failed.retain(|(known, ..)| known != name);
        if failed.len() >= FAILED_NAMES_MAX {
            failed.pop_front();
        }
        failed.push_back((name.clone(), clock::now(), error.to_string()));
    }
}

/// Names of a directory of which is remembered why they could not be looked up.
const FAILED_NAMES_MAX: usize = 16;
/// Versions of which is remembered that they were replaced from here: bodies of older ones have ended.
const REPLACED_MAX: usize = 8;

impl Content {
    /// What was sent from here has come in the place of this version.
    pub(crate) fn note_replaced(&mut self, version: Version) {
        if self.replaced_here.len() >= REPLACED_MAX {
            self.replaced_here.pop_front();
        }
        self.replaced_here.push_back(version);
    }

    /// Whether that is known of a version.
    pub(crate) fn was_replaced_here(&self, version: &Version) -> bool {
        self.replaced_here.iter().any(|replaced| replaced.still_holds(version))
    }

    /// Whether opens get this object.
    pub(crate) fn is_current(&self, object: &Arc<Object>) -> bool {
        self.current.as_ref().is_some_and(|current| Arc::ptr_eq(&current.object, object))
    }

    /// Whether a handle is open, be it past the store.
    pub(crate) fn is_read(&self) -> bool {
        !self.is_closed() || self.open_past_store > 0
    }

    /// Whether no handle is open on what the store has.
    pub(crate) fn is_closed(&self) -> bool {
        self.open.is_empty() && self.open_by_former.is_empty()
    }

    /// Whether a handle is open on an object.
    pub(crate) fn is_open(&self, generation: u64) -> bool {
        self.open.iter().chain(&self.open_by_former).any(|(open, _)| *open == generation)
    }

    /// Handles that are open.
    pub(crate) fn handles(&self) -> u32 {
        self.open.iter().chain(&self.open_by_former).map(|(_, count)| count).sum()
    }

    /// The file has another face from now on, by which nobody has it open and of which no page is right.
    pub(crate) fn turn(&mut self) {
        for (generation, count) in std::mem::take(&mut self.open) {
            count_in(&mut self.open_by_former, generation, count);
        }
        self.pages_of = None;
    }

    /// Whether a handle is open on another version than opens get.
    pub(crate) fn is_open_otherwise(&self) -> bool {
        let current = self.current.as_ref().map(|current| current.object.generation());
        self.open.iter().any(|(generation, _)| Some(*generation) != current)
    }

    /// Whether a handle is open on another object than this one, by the face that is shown.
    pub(crate) fn is_open_beside(&self, generation: u64) -> bool {
        self.open.iter().any(|(open, _)| *open != generation)
    }

    /// Opens do not get this object any more.
    pub(crate) fn forget(&mut self, object: &Arc<Object>) {
        self.current.take_if(|current| Arc::ptr_eq(&current.object, object));
    }

    /// Counts one more handle on an object and tells whether handles on other versions are open.
    pub(crate) fn opened(&mut self, generation: u64) -> bool {
        count_in(&mut self.open, generation, 1);
        self.open.len() > 1
    }

    /// Counts one more handle on an object by a former face.
    pub(crate) fn opened_by_former(&mut self, generation: u64) {
        count_in(&mut self.open_by_former, generation, 1);
    }

    /// Counts one more handle on an object of this length, and tells whether the kernel's pages are surely of it, and whether
    /// it must not keep pages of this handle.
    pub(crate) fn pages_for(&mut self, generation: u64, length: Option<u64>) -> (bool, bool) {
        let bypass = self.opened(generation);
        let are_of_it = self.pages_of == Some(generation);
        if !bypass && !are_of_it {
            self.pages_of = Some(generation);
            self.pages_are_sure = false;
        }
        if !bypass {
            self.pages_length = length;
        }
        // Of pages that it has the kernel reads without a word.
        self.was_used |= are_of_it && self.pages_are_sure;
        (are_of_it && self.pages_are_sure, bypass && !are_of_it)
    }

    /// The kernel is about to be told of this length: pages of what is longer are cut off by that.
    pub(crate) fn pages_told(&mut self, length: u64) {
        if self.pages_length.is_some_and(|of_pages| of_pages != length) {
            self.pages_of = None;
        }
    }

    /// The kernel has the answer to an open of an object whose pages it keeps.
    pub(crate) fn pages_settled(&mut self, generation: u64) {
        self.pages_are_sure |= self.pages_of == Some(generation);
    }

    /// Counts one handle less on an object, by a former face or not.
    pub(crate) fn closed(&mut self, generation: u64, by_former: bool) {
        let (first, then) = match by_former {
            true => (&mut self.open_by_former, &mut self.open),
            false => (&mut self.open, &mut self.open_by_former),
        };
        let counted = first.iter_mut().chain(then).find(|(open, _)| *open == generation);
        counted.into_iter().for_each(|(_, count)| *count -= 1);
        self.open.retain(|(_, count)| *count > 0);
        self.open_by_former.retain(|(_, count)| *count > 0);
        if self.is_closed() {
            self.ended = None;
            self.goes_by_locks = false;
            self.was_used = false;
        }
    }
}

/// Counts so many handles more on an object.
fn count_in(open: &mut Vec<(u64, u32)>, generation: u64, more: u32) {
    match open.iter_mut().find(|(counted, _)| *counted == generation) {
        Some((_, count)) => *count += more,
        None => open.push((generation, more)),
    }
}
