//! Packing in the background: what waits becomes segments, the log is kept short.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::MutexGuard;

use crate::buffer::Cached;
use crate::checkpoint::{self, SegmentRow};
use crate::core::{Core, Shared};
use crate::cost::UseRecord;
use crate::device::Aligned;
use crate::group::{Waiting, short};
use crate::index::Place;
use crate::marks::Marks;
use crate::options::Packer;
use crate::packing::{self, Plan};
use crate::segment::{self, Entry};
use crate::table::Standing;
use crate::{Result, SegmentError, record};

/// Starts the thread of a volume.
pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    std::thread::Builder::new().name("segment-packer".to_owned()).spawn(move || {
        let mut had_work = true;
        loop {
            let mut core = shared.core.lock();
            let goes_on = core.stop || (had_work && shared.is_due(&core));
            if !goes_on {
                let pause = (shared.options.age / 2).clamp(PAUSE_MIN, PAUSE_MAX);
                shared.work.wait_for(&mut core, pause);
            }
            if core.stop {
                shared.done.notify_all();
                return;
            }
            had_work = shared.is_due(&core);
            drop(core);
            // What went wrong is told to those whom it concerns.
            let before = shared.progress();
            let _ = shared.step();
            had_work &= shared.progress() != before;
        }
    })
}

/// A segment that is being written.
pub(crate) struct Outgoing {
    segment: u32,
    sequence: u64,
    friends: bool,
    pub(crate) objects: Vec<Waiting>,
    /// Of each object whether it is not to be read with the one before it.
    begins: Vec<bool>,
    /// How many of the objects lie there as popular ones: the first ones.
    popular: usize,
    /// Where the objects lie, once it is put together.
    places: Vec<Place>,
}

/// Segments that lie one after another, put together.
pub(crate) struct Encoded<'m> {
    run: Vec<Outgoing>,
    /// The first segment.
    first: u32,
    memory: &'m mut [u8],
    /// So many bytes are written.
    end: usize,
}

impl Shared {
    /// Whether the packer has something to do.
    pub(crate) fn is_due(&self, core: &Core) -> bool {
        core.failed.is_none() && (core.group.cost() >= self.pack_at() || self.has_else_to_do(core))
    }

    /// Does what is due. What cannot be done for want of room is noted for the writers.
    pub(crate) fn step(&self) -> Result<()> {
        if !self.is_due(&self.core.lock()) {
            return Ok(());
        }
        self.step_with(self.packing.lock())
    }

    fn step_with(&self, mut scratch: MutexGuard<'_, Aligned>) -> Result<()> {
        let outcome = self.work_through(&mut scratch);
        drop(scratch);
        let mut core = self.core.lock();
        core.stuck = match outcome {
            Ok(()) => None,
            Err(SegmentError::Full { what, .. }) => Some(what),
            Err(error) => {
                self.done.notify_all();
                return Err(error);
            }
        };
        self.done.notify_all();
        Ok(())
    }

    fn work_through(&self, scratch: &mut Aligned) -> Result<()> {
        let (wanted, packs, settles) = {
            let core = self.core.lock();
            let settles = core.wanted.flush != core.served.flush || self.is_aged(&core);
            (core.wanted, core.group.cost() >= self.pack_at(), settles)
        };
        if self.core.lock().scan.is_some() {
            self.scan_some();
        }
        if self.needs_room(&self.core.lock()) {
            self.make_room();
        }
        let mut outcome = Ok(());
        if packs {
            self.lift_risen();
            let full = packing::full_at(segment::room(self.block.segment_bytes));
            outcome = self.pack(scratch, full);
        }
        if settles {
            outcome = self.settle(scratch);
            // Whoever waits is told whether it succeeded.
            if !matches!(outcome, Err(SegmentError::Io { .. })) {
                self.core.lock().served.flush = wanted.flush;
            }
        }
        let (is_scanning, is_asked) = {
            let core = self.core.lock();
            (core.scan.is_some(), wanted.checkpoint != core.served.checkpoint)
        };
        // Without all of the index there is nothing to write down.
        if !is_scanning && (is_asked || self.log_is_long()?) {
            let written = self.checkpoint_with(scratch);
            self.core.lock().served.checkpoint = wanted.checkpoint;
            outcome = outcome.and(written);
        }
        outcome
    }

    /// See [`crate::Volume::flush`].
    pub(crate) fn flush(&self) -> Result<()> {
        self.ask(|wanted| &mut wanted.flush)
    }

    /// See [`crate::Volume::checkpoint`].
    pub(crate) fn checkpoint(&self) -> Result<()> {
        self.ask(|wanted| &mut wanted.checkpoint)
    }

    /// The last checkpoint, by whoever closes the volume; what waits is at least in the log.
    pub(crate) fn write_checkpoint(&self) -> Result<()> {
        let mut scratch = self.packing.lock();
        if self.core.lock().scan.is_some() {
            return self.settle(&mut scratch);
        }
        self.checkpoint_with(&mut scratch)
    }

    /// Has the packer do something and waits for it.
    fn ask(&self, which: impl Fn(&mut crate::core::Wanted) -> &mut u64) -> Result<()> {
        let mut core = self.core.lock();
        *which(&mut core.wanted) += 1;
        let mine = *which(&mut core.wanted);
        while *which(&mut core.served) < mine {
            self.check_failed(&core)?;
            // While nobody packs the caller may as well do it: that saves waking another thread.
            match self.packing.try_lock() {
                Some(scratch) => {
                    drop(core);
                    self.step_with(scratch)?;
                    core = self.core.lock();
                }
                None if self.options.packer == Packer::Thread => {
                    self.work.notify_one();
                    self.done.wait(&mut core);
                }
                None => {
                    drop(core);
                    self.step()?;
                    core = self.core.lock();
                }
            }
        }
        self.check_failed(&core)?;
        core.stuck.map_or(Ok(()), |what| Err(self.full(what)))
    }

    /// Makes durable all that waits: what fills segments well goes there, the rest into the log, where it can wait
    /// for others to be packed with.
    fn settle(&self, scratch: &mut Aligned) -> Result<()> {
        let room = segment::room(self.block.segment_bytes);
        let packed = self.pack(scratch, room / 2);
        let mut core = self.core.lock();
        let loose = core.group.iter().filter(|object| object.ticket.is_none());
        let bytes: usize = loose.map(Waiting::cost).sum();
        if !self.log_has_room(&core, bytes) {
            drop(core);
            packed.and_then(|()| self.pack(scratch, 0))?;
            core = self.core.lock();
        }
        let loose: Vec<u128> =
            core.group.iter().filter(|object| object.ticket.is_none()).map(|object| object.hash).collect();
        for hash in loose {
            let core = &mut *core;
            let Some(object) = core.group.get(short(hash)).cloned() else { continue };
            let Waiting { sequence, pinned, key, attributes, content, .. } = &object;
            let ticket = core.log(|log| record::put(log, *sequence, *pinned, key, attributes, content));
            if let Some(object) = core.group.get_mut(short(hash)) {
                object.ticket = Some(ticket);
            }
        }
        drop(core);
        self.commit_all(&mut self.tail.lock())
    }

    /// Writes segments of what waits, but none that would be filled with less than `least`.
    fn pack(&self, scratch: &mut Aligned, least: usize) -> Result<()> {
        let items = self.core.lock().group.items(&HashSet::new());
        let room = segment::room(self.block.segment_bytes);
        let plans = packing::plan(&items, &self.groups.lock(), room, least);
        if self.options.packer == Packer::Thread
            && plans.len() > AT_ONCE
            && let Some(outcome) = self.write_side_by_side(scratch, &plans)
        {
            return outcome;
        }
        plans.chunks(AT_ONCE).try_for_each(|plans| self.write_segments(scratch, plans))
    }

    /// Writes a few segments; those that lie one after another with one write.
    fn write_segments(&self, scratch: &mut Aligned, plans: &[Plan]) -> Result<()> {
        let (runs, outcome) = self.prepare_runs(plans);
        for run in runs {
            let (run, _) = self.write_encoded(self.encode(run, scratch))?;
            run.into_iter().for_each(|outgoing| self.enter(outgoing));
        }
        outcome
    }

    /// Finds places for segments, and which of them lie one after another.
    pub(crate) fn prepare_runs(&self, plans: &[Plan]) -> (Vec<Vec<Outgoing>>, Result<()>) {
        let mut runs: Vec<Vec<Outgoing>> = Vec::new();
        for plan in plans {
            match self.prepare(plan) {
                Ok(Some(next)) => match runs.last_mut() {
                    Some(run) if run.last().is_some_and(|last| last.segment + 1 == next.segment) => run.push(next),
                    _ => runs.push(vec![next]),
                },
                Ok(None) => {}
                Err(error) => return (runs, Err(error)),
            }
        }
        (runs, Ok(()))
    }

    /// Finds a place for a segment; `None` when all of its objects have gone since it was planned.
    fn prepare(&self, plan: &Plan) -> Result<Option<Outgoing>> {
        let objects = self.core.lock().group.fitting(&plan.hashes, segment::room(self.block.segment_bytes));
        if objects.is_empty() {
            return Ok(None);
        }
        let segment = self.free_segment()?;
        let mut core = self.core.lock();
        core.sequence += 1;
        let (sequence, friends) = (core.sequence, plan.is_of_friends());
        let begins = plan.begins_of(objects.iter().map(|object| short(object.hash)));
        let popular = plan.popular_of(objects.iter().map(|object| short(object.hash)));
        Ok(Some(Outgoing { segment, sequence, friends, objects, begins, popular, places: Vec::new() }))
    }

    /// Puts segments together that lie one after another.
    pub(crate) fn encode<'m>(&self, mut run: Vec<Outgoing>, memory: &'m mut [u8]) -> Encoded<'m> {
        let first = run.first().map_or(0, |outgoing| outgoing.segment);
        let segment_bytes = self.segment_bytes();
        let mut end = 0;
        for (outgoing, place) in run.iter_mut().zip(memory.chunks_exact_mut(segment_bytes)) {
            let objects = outgoing.objects.iter().zip(&outgoing.begins);
            let entries: Vec<Entry<'_>> = objects.map(|(object, begins)| object.entry(*begins)).collect();
            let Outgoing { segment, sequence, .. } = *outgoing;
            let (head, extents) = segment::encode(segment, sequence, self.block.seed, &entries, place);
            outgoing.places = extents.into_iter().map(|extent| Place::new(segment, extent)).collect();
            let length = usize::try_from(head.length).expect("short");
            place[length..].fill(0);
            end = segment_bytes * usize::try_from(segment - first).expect("few") + length;
        }
        Encoded { run, first, memory, end }
    }

    /// Writes segments that lie one after another, and gives back the memory that they were put together in.
    pub(crate) fn write_encoded<'m>(&self, encoded: Encoded<'m>) -> Result<(Vec<Outgoing>, &'m mut [u8])> {
        let Encoded { run, first, memory, end } = encoded;
        if let Err(error) = self.device.write_at(&memory[..end], self.block.segment_start(first)) {
            let mut core = self.core.lock();
            run.iter().for_each(|outgoing| core.table.set(outgoing.segment, Standing::Bad));
            return Err(self.fail(&mut core, &error));
        }
        self.counters.segments_written.add(run.len() as u64);
        self.counters.bytes_written.add(end as u64);
        Ok((run, memory))
    }

    pub(crate) fn segment_bytes(&self) -> usize {
        usize::try_from(self.block.segment_bytes).expect("short")
    }

    /// A segment was written: its objects are found there from now on, but for those that changed meanwhile.
    pub(crate) fn enter(&self, outgoing: Outgoing) {
        let Outgoing { segment, sequence, friends, objects, begins, popular, places } = outgoing;
        let begin = places.iter().zip(begins).filter(|(_, begins)| *begins).map(|(place, _)| place.extent().offset);
        let marks = Marks::at(begin, self.block.segment_bytes);
        let mut core = self.core.lock();
        let core = &mut *core;
        let ticket = core.next_ticket();
        self.sequences.set(segment, sequence);
        core.table.set_record(segment, UseRecord::new(friends));
        core.table.set_marks(segment, marks);
        let (mut dead, mut pinned) = (Vec::new(), Vec::new());
        {
            let mut groups = self.groups.lock();
            objects.iter().skip(popular).for_each(|object| groups.packed(object.name, short(object.hash)));
        }
        for ((object, place), row) in objects.into_iter().zip(places).zip(0u16..) {
            let hash = short(object.hash);
            let Some(now) = core.group.get(hash).filter(|now| now.arrival == object.arrival) else {
                dead.push(row);
                continue;
            };
            let place = place.with_pin(now.pinned);
            if now.pinned {
                pinned.push(hash);
            }
            core.group.remove(hash);
            core.table.enter(place);
            if let Some(former) = self.index.insert(hash, place) {
                core.table.leave(former, ticket);
            }
            let Waiting { key, attributes, content, .. } = object;
            self.buffer.lock().insert(hash, Cached { key, attributes, content }, None);
        }
        core.table.written(segment, ticket);
        core.log(|log| record::written(log, segment, sequence, friends, &dead));
        // A replay may not have met the object when it met the pin.
        if !pinned.is_empty() {
            core.log(|log| record::pinned(log, true, &pinned));
        }
        core.log_stays_long = false;
    }

    /// A segment to write. Those whose end is not durable yet are made free by a sync.
    fn free_segment(&self) -> Result<u32> {
        if let Some(segment) = self.core.lock().table.take_free() {
            return Ok(segment);
        }
        {
            let mut core = self.core.lock();
            let sequence = core.sequence;
            if core.table.dying() > 0 {
                core.log(|log| record::removed(log, sequence, &[]));
            }
        }
        self.commit_all(&mut self.tail.lock())?;
        self.core.lock().table.take_free().ok_or_else(|| self.full("no free segment is left"))
    }

    fn checkpoint_with(&self, scratch: &mut Aligned) -> Result<()> {
        // What cannot be packed stays in the log, and the checkpoint says from where on.
        let packed = self.pack(scratch, 0);
        let (number, begin) = {
            let mut tail = self.tail.lock();
            self.commit_all(&mut tail)?;
            let mut core = self.core.lock();
            core.checkpoint += 1;
            let oldest = core.group.oldest_ticket();
            (core.checkpoint, oldest.map_or(tail.position(), |ticket| tail.position_before(ticket)))
        };
        let row = |segment| {
            let (record, marks) = {
                let core = self.core.lock();
                (core.table.record(segment).0, core.table.marks(segment))
            };
            SegmentRow { sequence: self.sequences.get(segment), record, marks }
        };
        checkpoint::write(&*self.device, &self.block, number, begin, &self.index, row)
            .map_err(|error| self.fail(&mut self.core.lock(), &error))?;
        self.counters.checkpoints.add(1);
        let mut tail = self.tail.lock();
        let is_shorter = tail.trim(begin);
        let mut core = self.core.lock();
        core.log_used = tail.used() + core.queue.charge();
        core.latest_checkpoint = Some(number);
        // Objects that cannot be packed hold the log where it is: another checkpoint would change nothing. Those that
        // changed while they were being packed hold it no longer than to the next.
        core.log_stays_long = !is_shorter && packed.is_err();
        drop(core);
        packed
    }

    pub(crate) fn is_log_long(&self, core: &Core) -> bool {
        !core.log_stays_long && core.log_used > self.block.log_bytes / 2
    }

    /// Whether the log is long even when many small records have been written as one.
    fn log_is_long(&self) -> Result<bool> {
        if !self.is_log_long(&self.core.lock()) {
            return Ok(false);
        }
        self.commit_all(&mut self.tail.lock())?;
        Ok(self.is_log_long(&self.core.lock()))
    }

    pub(crate) fn is_aged(&self, core: &Core) -> bool {
        let now = self.now();
        let oldest = core.group.iter().find(|object| object.ticket.is_none());
        oldest.is_some_and(|object| now.saturating_sub(object.since) >= self.options.age)
    }

    /// Tells whether a step has changed anything.
    fn progress(&self) -> (u64, u64, usize, u64, [u32; 2]) {
        let core = self.core.lock();
        let (free, scanned) = (core.table.free(), core.scan.as_ref().map_or(u32::MAX, |scan| scan.next));
        (core.sequence, core.checkpoint, core.group.len(), core.served.flush + core.queue.last, [free, scanned])
    }
}

/// Segments that are put together in memory at once.
pub(crate) const AT_ONCE: usize = 8;
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Device, MemoryDevice};
    use crate::options::Options;
    use crate::superblock::Shape;
    use crate::volume::Volume;

    /// The thread pauses after a step that has changed nothing: one that found nothing but free segments has.
    #[test]
    fn a_step_of_a_scan_changes_something() {
        let device = Arc::new(MemoryDevice::new(128 << 20));
        let shape = Shape { segment_bytes: 64 << 10, ..Shape::default() };
        Volume::format(&*device, &shape).unwrap();
        let image = device.image();
        let heads = (0..image.len()).step_by(4096).filter(|at| image[*at..].starts_with(b"weftchk\n"));
        heads.for_each(|at| device.flip((at + 24) as u64 * 8));
        let options = Options { packer: Packer::Caller, ..Options::default() };
        let shared = crate::recovery::open(device as Arc<dyn Device>, options).unwrap();
        let mut steps = 0;
        while shared.core.lock().scan.is_some() {
            let before = shared.progress();
            shared.step().unwrap();
            assert_ne!(shared.progress(), before, "step {steps}");
            steps += 1;
        }
        assert!(steps > 10, "all segments in {steps} steps");
    }
}
