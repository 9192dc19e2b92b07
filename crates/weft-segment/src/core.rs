//! What changes about a volume, under one lock; and the parts of it that need none.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::affinity::Groups;
use crate::buffer::Buffer;
use crate::cost::Costs;
use crate::device::{Aligned, Device};
use crate::group::{Group, short};
use crate::index::{Index, Place};
use crate::log::{Tail, batch_bytes};
use crate::options::{Options, Stats};
use crate::superblock::Superblock;
use crate::table::{Sequences, Table};
use crate::{Result, SegmentError};

/// All of an open volume.
///
/// Locks, in the order in which they are taken: `packing`, `tail`, `core`, then one of `groups`, `buffer`, `costs` or
/// a shard of the index. Only `packing` and `tail` are held over I/O, and no read of an object takes either.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) name: String,
    pub(crate) block: Superblock,
    pub(crate) options: Options,
    pub(crate) index: Index,
    pub(crate) sequences: Sequences,
    /// Guards what has to change together; held for one change.
    pub(crate) core: Mutex<Core>,
    /// Guards the end of the log; whoever has it writes and syncs for all that wait for it.
    pub(crate) tail: Mutex<Tail>,
    /// Guards the memory that segments are put together in: one is packed at a time.
    pub(crate) packing: Mutex<Aligned>,
    pub(crate) groups: Mutex<Groups>,
    pub(crate) buffer: Mutex<Buffer>,
    pub(crate) costs: Mutex<Costs>,
    /// Memory for reads, to be used again.
    pub(crate) spare: Mutex<Vec<Aligned>>,
    /// Something for the packer to do.
    pub(crate) work: Condvar,
    /// The packer has done something that callers wait for.
    pub(crate) done: Condvar,
    /// Records have become durable, or somebody else may make them so.
    pub(crate) committed: Condvar,
    pub(crate) counters: Counters,
}

/// What has to change together.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) group: Group,
    pub(crate) table: Table,
    pub(crate) queue: Queue,
    /// Records up to this one are durable.
    pub(crate) durable: u64,
    /// Somebody makes records durable for all who wait.
    pub(crate) is_committing: bool,
    /// The latest that was given out.
    pub(crate) sequence: u64,
    /// The number that was last given to a checkpoint.
    pub(crate) checkpoint: u64,
    /// The checkpoint that a start would begin from.
    pub(crate) latest_checkpoint: Option<u64>,
    /// Bytes of the log in use, with what is still in the queue.
    pub(crate) log_used: u64,
    /// A checkpoint has not made the log shorter; until something is packed.
    pub(crate) log_stays_long: bool,
    /// The start found a part of the log damaged.
    pub(crate) log_has_gap: bool,
    /// Calls of flush and checkpoint so far, and up to which they are done.
    pub(crate) wanted: Wanted,
    pub(crate) served: Wanted,
    /// Why the last attempt to write what waits did not succeed.
    pub(crate) stuck: Option<&'static str>,
    /// Eviction has looked at everything in vain; until something is removed or let go.
    pub(crate) nothing_may_go: bool,
    /// What the device said when it failed for good.
    pub(crate) failed: Option<String>,
    pub(crate) stop: bool,
    pub(crate) scan: Option<Scan>,
    /// Where eviction goes on.
    pub(crate) hand: u64,
    /// Bytes that eviction may write again.
    pub(crate) credit: usize,
}

/// Calls that the packer serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) flush: u64,
    pub(crate) checkpoint: u64,
}

/// Records that are not in the log yet.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) bytes: Vec<u8>,
    /// Where each record ends.
    pub(crate) ends: Vec<usize>,
    /// Number of the last record.
    pub(crate) last: u64,
}

/// How far the search through all segments has come, after both checkpoints were lost.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(crate) next: u32,
    /// Removed while it went on.
    pub(crate) removed: HashSet<u64>,
    /// Up to which sequence the log calls dead what segments hold of an object.
    pub(crate) dead: HashMap<u64, u64>,
    /// Set when too much was removed to remember: the segments that are left are given up.
    pub(crate) gives_up: bool,
}

impl Queue {
    /// Adds a record, and tells its number.
    pub(crate) fn add(&mut self, record: impl FnOnce(&mut Vec<u8>)) -> u64 {
        record(&mut self.bytes);
        self.ends.push(self.bytes.len());
        self.last += 1;
        self.last
    }

    /// The most that the records can take of the log.
    pub(crate) fn charge(&self) -> u64 {
        let starts = std::iter::once(&0).chain(&self.ends);
        self.ends.iter().zip(starts).map(|(end, start)| batch_bytes(end - start)).sum()
    }

    /// Takes all records; the number of the first comes along.
    pub(crate) fn take(&mut self) -> (u64, Vec<u8>, Vec<usize>) {
        let first = self.last + 1 - self.ends.len() as u64;
        (first, std::mem::take(&mut self.bytes), std::mem::take(&mut self.ends))
    }
}

impl Core {
    /// Adds a record to the log, and tells its number.
    pub(crate) fn log(&mut self, record: impl FnOnce(&mut Vec<u8>)) -> u64 {
        let before = self.queue.bytes.len();
        let ticket = self.queue.add(record);
        self.log_used += batch_bytes(self.queue.bytes.len() - before);
        ticket
    }

    /// The number that the next record will have.
    pub(crate) fn next_ticket(&self) -> u64 {
        self.queue.last + 1
    }
}

impl Shared {
    /// Hash of a key.
    pub(crate) fn hash(&self, key: &[u8]) -> u128 {
        xxh3_128_with_seed(key, self.block.seed)
    }

    /// What groups call the object of a key.
    pub(crate) fn name_of(&self, key: &[u8]) -> u64 {
        short(self.hash((self.options.group_part)(key)))
    }

    /// Makes every record up to `ticket` durable. Those who call at the same time share one sync.
    pub(crate) fn commit(&self, ticket: u64) -> Result<()> {
        let mut core = self.core.lock();
        while core.durable < ticket {
            if let Some(cause) = &core.failed {
                return Err(SegmentError::Failed { volume: self.name.clone(), cause: cause.clone() });
            }
            // One writes and syncs for all whose records have come meanwhile; the others wait for it.
            if core.is_committing {
                self.committed.wait(&mut core);
                continue;
            }
            core.is_committing = true;
            drop(core);
            let outcome = self.commit_all(&mut self.tail.lock());
            core = self.core.lock();
            core.is_committing = false;
            self.committed.notify_all();
            outcome?;
        }
        Ok(())
    }

    /// Makes every record so far durable.
    pub(crate) fn commit_all(&self, tail: &mut Tail) -> Result<()> {
        let (first, bytes, ends) = {
            let mut core = self.core.lock();
            if let Some(cause) = &core.failed {
                return Err(SegmentError::Failed { volume: self.name.clone(), cause: cause.clone() });
            }
            core.queue.take()
        };
        if ends.is_empty() {
            return Ok(());
        }
        let last = first + ends.len() as u64 - 1;
        let written = self.write_batches(tail, first, &bytes, &ends);
        let mut core = self.core.lock();
        match written {
            Ok(()) => {
                core.durable = last;
                self.committed.notify_all();
                core.table.settle(last);
                core.log_used = tail.used() + core.queue.charge();
                Ok(())
            }
            // The records are lost, and what a failed sync has left behind nobody knows.
            Err(error) => Err(self.fail(&mut core, &error)),
        }
    }

    fn write_batches(&self, tail: &mut Tail, first: u64, bytes: &[u8], ends: &[usize]) -> io::Result<()> {
        let most = crate::log::Ring::of(&self.block).batch_records_max();
        let (mut from, mut start) = (0, 0);
        while from < ends.len() {
            let fitting = ends[from..].iter().take_while(|end| **end - start <= most).count().max(1);
            let to = from + fitting;
            let records = &bytes[start..ends[to - 1]];
            tail.append(&*self.device, self.block.epoch, (first + from as u64, first + to as u64 - 1), records)?;
            // No two batches are unsynced at once: the second could be there without the first.
            self.device.sync()?;
            self.counters.syncs.add(1);
            self.counters.bytes_written.add(batch_bytes(records.len()));
            (from, start) = (to, ends[to - 1]);
        }
        Ok(())
    }

    /// The device failed for good: nothing is written any more.
    pub(crate) fn fail(&self, core: &mut Core, error: &io::Error) -> SegmentError {
        let cause = core.failed.get_or_insert_with(|| error.to_string()).clone();
        self.done.notify_all();
        self.committed.notify_all();
        SegmentError::Failed { volume: self.name.clone(), cause }
    }

    pub(crate) fn io(&self, source: io::Error) -> SegmentError {
        SegmentError::Io { volume: self.name.clone(), source }
    }

    pub(crate) fn full(&self, what: &'static str) -> SegmentError {
        SegmentError::Full { volume: self.name.clone(), what }
    }

    /// Takes an object out of index and table because of the next record of the log.
    pub(crate) fn take_out(&self, core: &mut Core, hash: u64) -> Option<Place> {
        let place = self.index.remove(hash)?;
        core.table.leave(place, core.next_ticket());
        core.nothing_may_go = false;
        Some(place)
    }

    pub(crate) fn now(&self) -> Duration {
        self.device.clock()
    }
}

/// A figure that grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What was done since the volume was opened.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) memory_reads: Counter,
    pub(crate) object_reads: Counter,
    pub(crate) neighbour_reads: Counter,
    pub(crate) neighbours_used: Counter,
    pub(crate) misses: Counter,
    pub(crate) damaged: Counter,
    pub(crate) segments_written: Counter,
    pub(crate) bytes_written: Counter,
    pub(crate) syncs: Counter,
    pub(crate) checkpoints: Counter,
    pub(crate) evicted: Counter,
}

impl Shared {
    /// What it holds and has done.
    pub(crate) fn stats(&self) -> Stats {
        let buffer_bytes = self.buffer.lock().bytes() as u64;
        let core = self.core.lock();
        let counters = &self.counters;
        Stats {
            objects: self.index.len(),
            waiting: core.group.len() as u64,
            objects_max: self.block.objects_max,
            live_bytes: core.table.live_bytes(),
            segments: self.block.segments,
            free_segments: core.table.free() + u32::try_from(core.table.dying()).expect("no more than there are"),
            segment_bytes: self.block.segment_bytes,
            index_bytes: self.index.memory_bytes() + u64::from(self.block.segments) * 16,
            buffer_bytes,
            memory_reads: counters.memory_reads.get(),
            object_reads: counters.object_reads.get(),
            neighbour_reads: counters.neighbour_reads.get(),
            neighbours_used: counters.neighbours_used.get(),
            misses: counters.misses.get(),
            damaged: counters.damaged.get(),
            segments_written: counters.segments_written.get(),
            bytes_written: counters.bytes_written.get(),
            syncs: counters.syncs.get(),
            checkpoints: counters.checkpoints.get(),
            evicted: counters.evicted.get(),
            scanning: core.scan.is_some(),
            log_had_gap: core.log_has_gap,
        }
    }
}
