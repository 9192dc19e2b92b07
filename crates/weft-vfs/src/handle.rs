//! Open files.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use weft_remote::Version;
use weft_store::{NodeId, Object};

use crate::inode::{Content, Inode};
use crate::lanes::Lanes;
use crate::reopen::Lost;
use crate::through::Through;
use crate::timed_out::TimedOut;

/// Names an open file towards the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HandleId(pub u64);

/// One open file: one version of one inode's content, for as long as it is open, unless its tree shows the newest
/// ([`crate::catch_up`]).
pub(crate) struct Handle {
    pub(crate) inode: Arc<Inode>,
    pub(crate) content: Mutex<Held>,
    pub(crate) pace: Mutex<Pace>,
    pub(crate) lanes: Mutex<Lanes>,
    pub(crate) timed_out: TimedOut,
    /// Whether the kernel was offered to read the content itself.
    pub(crate) offered: bool,
    /// See [`Handle::counted`]. Changed under the lock of the inode's content.
    pub(crate) generation: AtomicU64,
    /// Whether the kernel was told to keep no pages by it.
    pub(crate) bypass_pages: AtomicBool,
    /// Whether something was read by it.
    pub(crate) was_read: AtomicBool,
    /// Whether a read by it was answered with bytes.
    pub(crate) was_answered: AtomicBool,
    /// Whether it may be written.
    pub(crate) writing: bool,
    /// Whether a program is run from it.
    pub(crate) running: AtomicBool,
    /// Its version is neither the newest nor the one before, and cannot be read any more.
    pub(crate) over: AtomicBool,
    /// Somebody has a lock by it that its source may not have any more.
    pub(crate) relies: AtomicBool,
    /// The file is shown by another face than it was opened by.
    pub(crate) by_former: AtomicBool,
    /// Which number the kernel opened it by; 0 until that is noted.
    pub(crate) face: AtomicU64,
}

impl Handle {
    /// A handle for reading.
    pub(crate) fn new(inode: Arc<Inode>, held: Held, counted: u64) -> Handle {
        let (pace, lanes, timed_out, face) = Default::default();
        let (was_read, was_answered, over, relies, by_former) = Default::default();
        let (offered, writing, bypass_pages) = Default::default();
        let generation = AtomicU64::new(counted);
        let running = AtomicBool::new(false);
        Handle {
            inode,
            content: Mutex::new(held),
            pace,
            lanes,
            timed_out,
            offered,
            generation,
            bypass_pages,
            was_read,
            was_answered,
            writing,
            running,
            over,
            relies,
            by_former,
            face,
        }
    }

    /// The generation that it is counted under ([`crate::inode::Content::opened`]); 0 of a file without a name that is empty,
    /// and where it reads past the store.
    pub(crate) fn counted(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The kernel reads by it, so it has the answer to its open.
    pub(crate) fn note_read(&self) {
        let is_first = !self.was_read.load(Ordering::Relaxed) && !self.was_read.swap(true, Ordering::Relaxed);
        if is_first && !self.bypass_pages.load(Ordering::Relaxed) && !self.by_former.load(Ordering::Acquire) {
            self.inode.content.lock().pages_settled(self.counted());
        }
    }

    /// The same when it is given back, unless the kernel may have read the content itself.
    pub(crate) fn note_released(&self) {
        if !self.offered {
            self.note_read();
        }
    }

    /// A read by it is answered with bytes.
    pub(crate) fn note_answered(&self) {
        let is_first = !self.was_answered.load(Ordering::Relaxed) && !self.was_answered.swap(true, Ordering::Relaxed);
        if is_first {
            self.inode.content.lock().was_used = true;
        }
    }

    /// Has it show another object from now on, and be counted under that. The caller has the lock of the inode's content.
    pub(crate) fn turn_to(&self, content: &mut Content, object: &Arc<Object>) {
        self.turn(content, Held::Object(object.clone()), object.generation());
    }

    /// The same of what is there of a content, counted under this generation.
    pub(crate) fn turn(&self, content: &mut Content, held: Held, generation: u64) {
        let by_former = self.by_former.load(Ordering::Acquire);
        // Before it is counted out, so that the file is not closed in between.
        if by_former {
            content.opened_by_former(generation);
        } else {
            content.opened(generation);
        }
        self.count_out(content);
        self.generation.store(generation, Ordering::Release);
        *self.content.lock() = held;
    }

    /// Has it read past the store from now on.
    pub(crate) fn turn_past_store(&self, content: &mut Content, through: Arc<Through>) {
        self.count_out(content);
        content.open_past_store += 1;
        self.generation.store(0, Ordering::Release);
        *self.content.lock() = Held::Through(through);
    }

    /// Counts it no more. The caller has the lock of the inode's content.
    pub(crate) fn count_out(&self, content: &mut Content) {
        match *self.content.lock() {
            Held::Through(_) => content.open_past_store -= 1,
            Held::Object(_) | Held::Empty(_) | Held::Lost(_) => {
                content.closed(self.counted(), self.by_former.load(Ordering::Acquire));
            }
        }
    }
}

/// Where a handle's bytes come from.
#[derive(Clone)]
pub(crate) enum Held {
    /// From the store, as far as they are there.
    Object(Arc<Object>),
    /// Straight from the remote, for the store has no room.
    Through(Arc<Through>),
    /// There were none: the file was made, or emptied, by this open, in this version.
    Empty(Version),
    /// Nowhere yet: they were not kept when a former daemon ended.
    Lost(Lost),
}

/// How a handle has been read: decides how far ahead of a reader a range fetch goes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    pub(crate) next_offset: u64,
    pub(crate) sequential_bytes: u64,
}

impl Pace {
    /// Notes a read and returns how many bytes are worth fetching at its place.
    pub(crate) fn note(&mut self, offset: u64, length: u64) -> u64 {
        let near = offset.abs_diff(self.next_offset) <= SEQUENTIAL_SLACK_BYTES;
        self.sequential_bytes = if near { self.sequential_bytes.saturating_add(length) } else { length };
        self.next_offset = offset + length;
        self.sequential_bytes.saturating_mul(2).clamp(weft_store::PIECE_BYTES, RANGE_BYTES_MAX)
    }
}

/// The open files of a mount. The lock guards the maps alone and is held for one operation on them.
#[derive(Default)]
pub(crate) struct Handles {
    open: Mutex<Open>,
    last: AtomicU64,
}

#[derive(Default)]
struct Open {
    by_id: HashMap<u64, Arc<Handle>>,
    /// Of each file that is open: some programs have thousands open, and every change of a file asks for its own.
    by_node: HashMap<NodeId, Vec<u64>>,
}

impl Open {
    fn add(&mut self, id: u64, handle: Handle) {
        self.by_node.entry(handle.inode.id).or_default().push(id);
        self.by_id.insert(id, Arc::new(handle));
    }

    fn of(&self, inode: &Inode) -> impl Iterator<Item = (u64, &Arc<Handle>)> {
        let ids = self.by_node.get(&inode.id).into_iter().flatten();
        ids.filter_map(|id| Some((*id, self.by_id.get(id)?)))
    }
}

impl Handles {
    pub(crate) fn add(&self, handle: Handle) -> HandleId {
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.open.lock().add(id, handle);
        HandleId(id)
    }

    /// Adds a handle under the number that it has already.
    pub(crate) fn add_at(&self, id: HandleId, handle: Handle) {
        self.last.fetch_max(id.0, Ordering::Relaxed);
        self.open.lock().add(id.0, handle);
    }

    pub(crate) fn get(&self, id: HandleId) -> Option<Arc<Handle>> {
        self.open.lock().by_id.get(&id.0).cloned()
    }

    pub(crate) fn remove(&self, id: HandleId) -> Option<Arc<Handle>> {
        let mut open = self.open.lock();
        let handle = open.by_id.remove(&id.0)?;
        if let Entry::Occupied(mut of_node) = open.by_node.entry(handle.inode.id) {
            of_node.get_mut().retain(|open| *open != id.0);
            if of_node.get().is_empty() {
                of_node.remove();
            }
        }
        Some(handle)
    }

    /// Those of an inode.
    pub(crate) fn of(&self, inode: &Inode) -> Vec<Arc<Handle>> {
        self.open.lock().of(inode).map(|(_, handle)| handle.clone()).collect()
    }

    /// Does something with those of an inode, which stay open meanwhile.
    pub(crate) fn each_of(&self, inode: &Inode, mut act: impl FnMut(HandleId, &Handle)) {
        self.open.lock().of(inode).for_each(|(id, handle)| act(HandleId(id), handle));
    }

    pub(crate) fn count(&self) -> usize {
        self.open.lock().by_id.len()
    }
}

/// Reads this near to where the last one ended count as going on from there (the kernel reads ahead out of order).
const SEQUENTIAL_SLACK_BYTES: u64 = 1 << 20;
/// Longest range that one fetch asks for.
const RANGE_BYTES_MAX: u64 = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_reads_fetch_one_piece_and_sequential_ones_more_and_more() {
        let mut pace = Pace::default();
        assert_eq!(pace.note(500 << 20, 4096), weft_store::PIECE_BYTES);
        assert_eq!(pace.note(100 << 20, 4096), weft_store::PIECE_BYTES);
        let mut offset = 100 << 20;
        let mut last = 0;
        for _ in 0..100 {
            last = pace.note(offset, 128 << 10);
            offset += 128 << 10;
        }
        assert_eq!(last, RANGE_BYTES_MAX);
    }
}
