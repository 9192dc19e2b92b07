//! Objects in memory that also are on the disk, in the order of S3-FIFO.
//!
//! What comes new, or came along as the neighbour of something that was wanted, enters a small queue. What was touched
//! there moves on to the main one, the rest leaves, remembered for a while by its hash: when it comes again it goes
//! to the main queue at once. So what is wanted once does not push out what is wanted often.
//!
//! To come along is not to be wanted: the first use of a neighbour counts as its coming, and one that leaves unused is
//! not remembered. Else all that lies in a segment that is read again and again would be taken for often wanted.

use std::collections::{HashMap, HashSet, VecDeque};

use bytes::Bytes;

/// An object in memory.
#[derive(Clone, Debug)]
pub(crate) struct Cached {
    pub(crate) key: Bytes,
    pub(crate) attributes: Bytes,
    pub(crate) content: Bytes,
}

/// The queues.
#[derive(Debug)]
pub(crate) struct Buffer {
    entries: HashMap<u64, Entry>,
    small: VecDeque<(u64, u64)>,
    main: VecDeque<(u64, u64)>,
    ghosts: VecDeque<u64>,
    ghost_set: HashSet<u64>,
    bytes: usize,
    small_bytes: usize,
    bytes_max: usize,
    stamp: u64,
}

#[derive(Debug)]
struct Entry {
    object: Cached,
    uses: u8,
    is_main: bool,
    /// Tells an entry from a former one of the same hash, of which a queue may still know.
    stamp: u64,
    /// The segment that it came along from, until it is used.
    neighbour_of: Option<u32>,
}

impl Buffer {
    /// For at most so many bytes.
    pub(crate) fn new(bytes_max: usize) -> Buffer {
        Buffer {
            entries: HashMap::new(),
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: VecDeque::new(),
            ghost_set: HashSet::new(),
            bytes: 0,
            small_bytes: 0,
            bytes_max,
            stamp: 0,
        }
    }

    /// An object that is here; and, the first time, the segment that it came along from.
    pub(crate) fn get(&mut self, hash: u64, key: &[u8]) -> Option<(Cached, Option<u32>)> {
        let entry = self.entries.get_mut(&hash).filter(|entry| entry.object.key == key)?;
        let came_along_from = entry.neighbour_of.take();
        if came_along_from.is_none() {
            entry.uses = (entry.uses + 1).min(USES_MAX);
        }
        Some((entry.object.clone(), came_along_from))
    }

    pub(crate) fn contains(&self, hash: u64) -> bool {
        self.entries.contains_key(&hash)
    }

    /// Adds an object in place of a former state of it.
    pub(crate) fn insert(&mut self, hash: u64, object: Cached, neighbour_of: Option<u32>) {
        self.remove(hash);
        let cost = cost(&object);
        if cost > self.bytes_max {
            return;
        }
        let is_main = neighbour_of.is_none() && self.ghost_set.remove(&hash);
        self.stamp += 1;
        let stamp = self.stamp;
        if is_main {
            self.main.push_back((hash, stamp));
        } else {
            self.small.push_back((hash, stamp));
            self.small_bytes += cost;
        }
        self.bytes += cost;
        self.entries.insert(hash, Entry { object, uses: 0, is_main, stamp, neighbour_of });
        while self.bytes > self.bytes_max {
            self.evict();
        }
    }

    /// Takes an object out.
    pub(crate) fn remove(&mut self, hash: u64) {
        if let Some(entry) = self.entries.remove(&hash) {
            let cost = cost(&entry.object);
            self.bytes -= cost;
            if !entry.is_main {
                self.small_bytes -= cost;
            }
            // Its place in the queue is passed over later; not so many that the queue grows by them.
            if self.small.len() + self.main.len() > 2 * self.entries.len() + QUEUE_SLACK {
                let entries = &self.entries;
                let is_current = |(hash, stamp): &(u64, u64)| entries.get(hash).is_some_and(|e| e.stamp == *stamp);
                self.small.retain(is_current);
                self.main.retain(is_current);
            }
        }
    }

    /// Bytes of all, with what each costs besides its content.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn evict(&mut self) {
        let from_small = self.small_bytes > self.bytes_max / SMALL_PART || self.main.is_empty();
        let queue = if from_small { &mut self.small } else { &mut self.main };
        let Some((hash, stamp)) = queue.pop_front() else { return };
        let Some(entry) = self.entries.get_mut(&hash).filter(|entry| entry.stamp == stamp) else { return };
        if entry.uses > 0 {
            // From the small queue it moves on; in the main one it has another round for each use.
            entry.uses = if from_small { 0 } else { entry.uses - 1 };
            if from_small {
                entry.is_main = true;
                self.small_bytes -= cost(&entry.object);
            }
            self.main.push_back((hash, stamp));
            return;
        }
        let was_wanted = entry.neighbour_of.is_none();
        self.remove(hash);
        if from_small && was_wanted && self.ghost_set.insert(hash) {
            self.ghosts.push_back(hash);
        }
        while self.ghosts.len() > GHOSTS_MAX {
            if let Some(ghost) = self.ghosts.pop_front() {
                self.ghost_set.remove(&ghost);
            }
        }
    }
}

fn cost(object: &Cached) -> usize {
    object.key.len() + object.attributes.len() + object.content.len() + ENTRY_BYTES
}

const USES_MAX: u8 = 3;
/// The small queue has a quarter: the neighbours of some reads have to wait there for their turn.
const SMALL_PART: usize = 4;
/// Hashes that are remembered of what has left.
const GHOSTS_MAX: usize = 1 << 16;
/// What an entry costs besides its bytes: tables, queues, counts of references.
const ENTRY_BYTES: usize = 256;
const QUEUE_SLACK: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn object(key: u64) -> Cached {
        let key = Bytes::copy_from_slice(&key.to_le_bytes());
        Cached { key, attributes: Bytes::new(), content: Bytes::from(vec![0; 1000 - 8 - ENTRY_BYTES]) }
    }

    fn touch(buffer: &mut Buffer, key: u64) -> bool {
        buffer.get(key, &key.to_le_bytes()).is_some()
    }

    #[test]
    fn what_is_wanted_once_does_not_push_out_what_is_wanted_often() {
        let mut buffer = Buffer::new(100_000);
        for key in 0..50 {
            buffer.insert(key, object(key), None);
            assert!(touch(&mut buffer, key));
        }
        for key in 1000..3000 {
            buffer.insert(key, object(key), None);
            assert!(buffer.bytes() <= 100_000);
        }
        assert!((0..50).all(|key| touch(&mut buffer, key)));
    }

    #[test]
    fn what_comes_again_soon_after_it_left_stays() {
        let mut buffer = Buffer::new(100_000);
        for key in 0..200 {
            buffer.insert(key, object(key), None);
        }
        assert!(!touch(&mut buffer, 5), "it has left");
        buffer.insert(5, object(5), None);
        for key in 1000..1500 {
            buffer.insert(key, object(key), None);
        }
        assert!(touch(&mut buffer, 5));
    }

    #[test]
    fn a_neighbour_is_told_once_and_another_key_is_a_miss() {
        let mut buffer = Buffer::new(100_000);
        buffer.insert(1, object(1), Some(7));
        assert!(buffer.get(1, b"other").is_none());
        let mut told = || buffer.get(1, &1u64.to_le_bytes()).unwrap().1;
        assert_eq!((told(), told()), (Some(7), None));
    }

    #[test]
    fn neighbours_that_nobody_wants_do_not_push_out_what_is_wanted_often() {
        let mut buffer = Buffer::new(100_000);
        for key in 0..50 {
            buffer.insert(key, object(key), None);
            assert!(touch(&mut buffer, key));
        }
        // The same segments come again and again, more of them than the small queue holds.
        for key in (1000..1200).cycle().take(2000) {
            buffer.insert(key, object(key), Some(7));
        }
        assert!((0..50).all(|key| touch(&mut buffer, key)));
    }

    #[test]
    fn a_neighbour_that_was_used_once_is_as_one_that_was_wanted_once() {
        let mut buffer = Buffer::new(100_000);
        for key in [5, 6] {
            buffer.insert(key, object(key), Some(7));
            assert!(touch(&mut buffer, key));
        }
        assert!(touch(&mut buffer, 6));
        for key in 1000..1200 {
            buffer.insert(key, object(key), None);
        }
        assert!(!touch(&mut buffer, 5) && touch(&mut buffer, 6));
        // It is remembered, as what was wanted is.
        buffer.insert(5, object(5), None);
        for key in 2000..2500 {
            buffer.insert(key, object(key), None);
        }
        assert!(touch(&mut buffer, 5));
    }

    #[test]
    fn replacing_and_removing_leaves_nothing_behind() {
        let mut buffer = Buffer::new(100_000);
        for round in 0..100_000u64 {
            buffer.insert(round % 7, object(round % 7), None);
            buffer.remove(round % 3);
        }
        assert!(buffer.small.len() + buffer.main.len() < 2 * QUEUE_SLACK);
        (0..7).for_each(|key| buffer.remove(key));
        assert_eq!((buffer.bytes(), buffer.small_bytes, buffer.entries.len()), (0, 0, 0));
    }
}
