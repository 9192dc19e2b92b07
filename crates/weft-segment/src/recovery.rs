//! Opening a volume: the newest checkpoint and the log after it, or else all that the segments themselves tell.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use crate::affinity::Groups;
use crate::buffer::Buffer;
use crate::checkpoint::{self, CheckpointHead, Loaded};
use crate::core::{Core, Counters, Queue, Scan, Shared, Wanted};
use crate::cost::{Costs, UseRecord};
use crate::device::{Aligned, BLOCK_BYTES, Device};
use crate::group::{Group, Waiting, short};
use crate::index::{Index, Place};
use crate::log::{Position, Ring, Tail};
use crate::marks::Marks;
use crate::options::{Options, Packer};
use crate::packer::AT_ONCE;
use crate::reading::{WHOLE_AT_ONCE, Whole};
use crate::record::{self, Record};
use crate::segment::{SegmentHead, decode_whole};
use crate::superblock::Superblock;
use crate::table::{Sequences, Standing, Table};
use crate::{Result, SegmentError};

/// What a start has found out.
struct Found {
    index: Index,
    sequences: Sequences,
    records: Vec<(UseRecord, Marks)>,
    group: Group,
    tail: Tail,
    checkpoint: u64,
    /// The checkpoint that it began from.
    used: Option<u64>,
    log_has_gap: bool,
    scan: Option<Scan>,
}

/// Opens the volume on a device.
pub(crate) fn open(device: Arc<dyn Device>, options: Options) -> Result<Shared> {
    let name = device.name();
    let (mut block, lies_at) = Superblock::read(&*device)?;
    if let Some(expected) = options.uuid.filter(|expected| *expected != block.uuid) {
        return Err(SegmentError::OtherVolume { volume: name, found: block.uuid, expected });
    }
    let named = |source| SegmentError::Io { volume: name.clone(), source };
    // What is read below may be in a cache of the system alone.
    device.sync().map_err(named)?;
    block.epoch += 1;
    block.write(&*device, lies_at).map_err(named)?;
    let found = find(&*device, &block).map_err(named)?;
    let core = core_of(&block, &found);
    let scratch = Aligned::zeroed(usize::try_from(block.segment_bytes).expect("short") * AT_ONCE);
    let shared = Shared {
        name: name.clone(),
        options,
        index: found.index,
        sequences: found.sequences,
        core: Mutex::new(Core { group: found.group, scan: found.scan, ..core }),
        tail: Mutex::new(found.tail),
        packing: Mutex::new(scratch),
        groups: Mutex::new(Groups::default()),
        buffer: Mutex::new(Buffer::new(options.buffer_bytes)),
        costs: Mutex::new(Costs::new(block.segment_bytes)),
        spare: Mutex::default(),
        work: Condvar::new(),
        done: Condvar::new(),
        committed: Condvar::new(),
        counters: Counters::default(),
        device,
        block,
    };
    shared.measure().map_err(named)?;
    Ok(shared)
}

/// The table follows from the index: nothing that could disagree with it is stored.
fn core_of(block: &Superblock, found: &Found) -> Core {
    let standing = if found.scan.is_some() { Standing::Unknown } else { Standing::Free };
    let mut table = Table::new(block.segments, standing);
    for (segment, (record, marks)) in (0..block.segments).zip(&found.records) {
        table.set_record(segment, *record);
        table.set_marks(segment, *marks);
    }
    for shard in 0..found.index.shard_count() {
        for (_, place) in found.index.shard_slots(shard) {
            table.enter(place);
            if table.standing(place.segment()) == Standing::Free {
                table.set(place.segment(), Standing::Live);
            }
        }
    }
    Core {
        group: Group::default(),
        table,
        queue: Queue::default(),
        durable: 0,
        is_committing: false,
        sequence: block.epoch << 32,
        checkpoint: found.checkpoint,
        latest_checkpoint: found.used,
        log_used: found.tail.used(),
        log_stays_long: false,
        log_has_gap: found.log_has_gap,
        // With a gap behind it the log had better be replaced by a checkpoint soon.
        wanted: Wanted { checkpoint: found.log_has_gap.into(), ..Wanted::default() },
        served: Wanted::default(),
        stuck: None,
        nothing_may_go: false,
        failed: None,
        stop: false,
        scan: None,
        hand: 0,
        credit: 0,
    }
}

fn find(device: &dyn Device, block: &Superblock) -> io::Result<Found> {
    let heads = checkpoint::heads(device, block)?;
    let newest = heads.first().map_or(0, |head| head.number);
    let is_newest_known = heads.len() == 2 || !has_void_head(device, block, &heads)?;
    for (number, head) in heads.into_iter().enumerate() {
        let used = head.number;
        // One that the device does not read is as good as void.
        let Some(loaded) = checkpoint::load(device, block, head).unwrap_or(None) else { continue };
        let mut found = replay(device, block, loaded)?;
        let later = Ring::of(block).newest_chain(device, found.tail.position().number)?;
        let is_newest = number == 0 && is_newest_known;
        if is_newest && let Some((chain, end)) = later {
            // No crash leaves that: no two batches are ever unsynced. One between is damaged, and what it told is lost.
            found.go_on(device, block, &chain, end)?;
            return Ok(Found { checkpoint: newest, used: Some(used), ..found });
        }
        // Behind an older checkpoint the log may have been used again.
        if later.is_none() {
            // The next one goes to the other slot.
            let checkpoint = if (newest + 1) % 2 == used % 2 { newest + 1 } else { newest };
            return Ok(Found { checkpoint, used: Some(used), ..found });
        }
    }
    scan_later(device, block, newest)
}

/// Whether a slot holds anything that is not a sound head: it may have been the newest.
fn has_void_head(device: &dyn Device, block: &Superblock, sound: &[CheckpointHead]) -> io::Result<bool> {
    for slot in (0..2u8).filter(|slot| sound.iter().all(|head| head.number % 2 != u64::from(*slot))) {
        let mut bytes = Aligned::zeroed(BLOCK_BYTES);
        device.read_at(&mut bytes, block.checkpoint_start(slot))?;
        if bytes.iter().any(|byte| *byte != 0) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Applies the log to a checkpoint.
fn replay(device: &dyn Device, block: &Superblock, loaded: Loaded) -> io::Result<Found> {
    let ring = Ring::of(block);
    let begin = loaded.head.begin;
    let sequences = Sequences::new(block.segments);
    for (segment, row) in (0..block.segments).zip(&loaded.rows) {
        sequences.set(segment, row.sequence);
    }
    let records = loaded.rows.iter().map(|row| (UseRecord(row.record), row.marks)).collect();
    let tail = Tail::new(ring, begin, begin);
    let mut found = Found {
        index: loaded.index,
        sequences,
        records,
        group: Group::default(),
        tail,
        checkpoint: 0,
        used: None,
        log_has_gap: false,
        scan: None,
    };
    let mut at = begin;
    let mut bytes = Aligned::zeroed(usize::try_from(block.segment_bytes).expect("short"));
    while let Some((batch, after)) = ring.next(device, at)? {
        // One that was checked and still makes no sense ends the log as well.
        let Some(records) = record::decode_all(&batch) else { break };
        let batch = Bytes::from(batch);
        for record in records {
            found.apply(device, block, &batch, record, &mut bytes)?;
        }
        at = after;
    }
    found.tail = Tail::new(ring, begin, at);
    Ok(found)
}

impl Found {
    /// Applies what the log holds behind a gap.
    fn go_on(&mut self, device: &dyn Device, block: &Superblock, chain: &[u64], end: Position) -> io::Result<()> {
        let ring = Ring::of(block);
        let mut bytes = Aligned::zeroed(usize::try_from(block.segment_bytes).expect("short"));
        for offset in chain {
            let Some(batch) = ring.records_at(device, *offset)? else { continue };
            let records = record::decode_all(&batch).unwrap_or_default();
            let batch = Bytes::from(batch);
            for record in records {
                self.apply(device, block, &batch, record, &mut bytes)?;
            }
        }
        self.tail = Tail::new(ring, self.tail.begin(), end);
        self.log_has_gap = true;
        Ok(())
    }

    fn apply(
        &mut self,
        device: &dyn Device,
        block: &Superblock,
        batch: &Bytes,
        record: Record,
        bytes: &mut Aligned,
    ) -> io::Result<()> {
        match record {
            Record::Put { .. } => self.group.insert(waiting(block, batch, record)),
            Record::Removed { hashes, .. } => {
                for hash in hashes {
                    self.group.remove(hash);
                    self.index.remove(hash);
                }
            }
            Record::Pinned { pinned, hashes } => {
                for hash in hashes {
                    if let Some(object) = self.group.get_mut(hash) {
                        object.pinned = pinned;
                    }
                    self.index.change(hash, |place| place.with_pin(pinned));
                }
            }
            Record::Written { segment, .. } if segment >= block.segments => {}
            Record::Written { segment, sequence, friends, dead } => {
                let is_readable = device.read_at(bytes, block.segment_start(segment)).is_ok();
                let whole = decode_whole(bytes, block.segment_bytes, block.seed).filter(|_| is_readable);
                // One that is torn, or was used again since, holds nothing: its objects are where they were before,
                // or were dealt with by later records.
                let whole = whole.filter(|(head, _)| (head.number, head.sequence) == (segment, sequence));
                let Some((_, rows)) = whole else { return Ok(()) };
                self.sequences.set(segment, sequence);
                let marks = Marks::of(&rows, block.segment_bytes);
                self.records[usize::try_from(segment).expect("below the count")] = (UseRecord::new(friends), marks);
                for (row, _) in rows.iter().zip(0u16..).filter(|(_, number)| !dead.contains(number)) {
                    let pinned = self.group.remove(short(row.hash)).is_some_and(|object| object.pinned);
                    let place = Place::new(segment, row.extent()).with_pin(pinned);
                    self.index.insert(short(row.hash), place);
                }
            }
        }
        Ok(())
    }
}

/// The object of a put record.
fn waiting(block: &Superblock, batch: &Bytes, record: Record) -> Waiting {
    let Record::Put { sequence, pinned, key, attributes, content } = record else {
        unreachable!("called with put records alone")
    };
    let (key, attributes, content) = (batch.slice(key), batch.slice(attributes), batch.slice(content));
    let hash = xxhash_rust::xxh3::xxh3_128_with_seed(&key, block.seed);
    Waiting {
        hash,
        key,
        attributes,
        content,
        directory: 0,
        name: short(hash),
        pinned,
        ticket: Some(0),
        former_ticket: None,
        sequence,
        since: Duration::ZERO,
        arrival: 0,
    }
}

/// Without a checkpoint: what the log tells now, and the segments in the background.
fn scan_later(device: &dyn Device, block: &Superblock, newest: u64) -> io::Result<Found> {
    let ring = Ring::of(block);
    let (chain, at) = ring.newest_chain(device, 0)?.unwrap_or_default();
    let (mut group, mut scan) = (Group::default(), Scan::default());
    for offset in chain {
        let Some(batch) = ring.records_at(device, offset)? else { continue };
        let Some(records) = record::decode_all(&batch) else { continue };
        let batch = Bytes::from(batch);
        for record in records {
            match record {
                Record::Put { sequence, .. } => {
                    // Not in the log as far as a later start is concerned: it is written anew.
                    let object = Waiting { ticket: None, ..waiting(block, &batch, record) };
                    scan.dead.insert(short(object.hash), sequence);
                    group.insert(object);
                }
                Record::Removed { sequence, hashes } => {
                    for hash in hashes {
                        group.remove(hash);
                        scan.dead.insert(hash, sequence);
                    }
                }
                Record::Pinned { .. } | Record::Written { .. } => {}
            }
        }
    }
    Ok(Found {
        index: Index::new(),
        sequences: Sequences::new(block.segments),
        records: vec![(UseRecord::new(false), Marks::default()); usize::try_from(block.segments).expect("32 bits fit")],
        group,
        tail: Tail::new(ring, at, at),
        checkpoint: newest.max(block.epoch << 32),
        used: None,
        log_has_gap: false,
        scan: Some(scan),
    })
}

impl Shared {
    /// Looks at some segments that nobody has looked at since both checkpoints were lost.
    pub(crate) fn scan_some(&self) {
        let (segments, gives_up) = self.next_to_scan();
        if gives_up {
            let mut core = self.core.lock();
            segments.for_each(|segment| core.table.set(segment, Standing::Free));
            return;
        }
        let segments: Vec<u32> = segments.collect();
        let seem_live = self.seem_live(&segments);
        let mut live = Vec::with_capacity(segments.len());
        for (segment, seems_live) in segments.into_iter().zip(seem_live) {
            if seems_live { live.push(segment) } else { self.found_in(segment, None) }
        }
        let mut memory: Vec<Aligned> = Vec::new();
        for some in live.chunks(WHOLE_AT_ONCE) {
            for (segment, whole) in some.iter().zip(self.whole_segments(some, &mut memory)) {
                self.found_in(*segment, whole.unwrap_or(None));
            }
        }
        memory.into_iter().for_each(|bytes| self.return_memory(bytes));
    }

    /// Takes the next segments of the scan on, and ends it behind the last; whether it has given up.
    fn next_to_scan(&self) -> (std::ops::Range<u32>, bool) {
        let mut core = self.core.lock();
        let core = &mut *core;
        let Some(scan) = &mut core.scan else { return (0..0, false) };
        let (from, gives_up) = (scan.next, scan.gives_up);
        let to = self.block.segments.min(from.saturating_add(SCAN_AT_ONCE));
        scan.next = to;
        if from == to {
            core.scan = None;
            core.wanted.checkpoint += 1;
        }
        (from..to, gives_up)
    }

    /// Of each segment whether its first block says that it holds something.
    fn seem_live(&self, segments: &[u32]) -> Vec<bool> {
        let mut firsts: Vec<Aligned> = segments.iter().map(|_| Aligned::zeroed(BLOCK_BYTES)).collect();
        let outcomes = self.read_beginnings(segments, &mut firsts);
        let heads = firsts.iter().map(|first| SegmentHead::peek(first, self.block.segment_bytes));
        outcomes.into_iter().zip(heads).map(|(outcome, head)| outcome.is_ok() && head.is_some()).collect()
    }

    /// Enters what a segment holds: nothing, if it is void.
    fn found_in(&self, segment: u32, whole: Option<Whole>) {
        let mut core = self.core.lock();
        let core = &mut *core;
        let Some((head, rows)) = whole else {
            core.table.set(segment, Standing::Free);
            return;
        };
        self.sequences.set(segment, head.sequence);
        core.table.set_marks(segment, Marks::of(&rows, self.block.segment_bytes));
        let ticket = core.next_ticket();
        for row in rows {
            let hash = short(row.hash);
            let Some(scan) = &core.scan else { break };
            let is_dead = scan.removed.contains(&hash)
                || scan.dead.get(&hash).is_some_and(|sequence| *sequence >= head.sequence)
                || core.group.get(hash).is_some_and(|object| object.sequence >= head.sequence);
            let other = self.index.get(hash).map(|place| self.sequences.get(place.segment()));
            if is_dead || other.is_some_and(|other| other > head.sequence) {
                continue;
            }
            core.group.remove(hash);
            let place = Place::new(segment, row.extent());
            core.table.enter(place);
            if let Some(former) = self.index.insert(hash, place) {
                core.table.leave(former, ticket);
            }
        }
        core.table.written(segment, ticket);
    }

    /// See [`crate::Volume::wait_for_scan`].
    pub(crate) fn wait_for_scan(&self) {
        let mut core = self.core.lock();
        while core.scan.is_some() && core.failed.is_none() && !core.stop {
            match self.options.packer {
                Packer::Thread => {
                    self.work.notify_one();
                    self.done.wait(&mut core);
                }
                Packer::Caller => {
                    drop(core);
                    // An error is in the core as well.
                    let _ = self.step();
                    core = self.core.lock();
                }
            }
        }
    }

    /// Measures what reads cost here, on a few segments far from each other.
    fn measure(&self) -> io::Result<()> {
        let all = self.block.segment_bytes;
        let (mut object, mut segment) = (Duration::MAX, Duration::MAX);
        for number in 0..MEASURED {
            let place = |part: u64| {
                let step = u64::from(self.block.segments) * (2 * number + part) / (2 * MEASURED);
                self.block.segment_start(u32::try_from(step).expect("below the count"))
            };
            for (part, length, best) in [(0, OBJECT_BYTES, &mut object), (1, all, &mut segment)] {
                let mut bytes = self.borrow_memory(length);
                let before = self.device.clock();
                self.device.read_at(&mut bytes, place(part))?;
                *best = (*best).min(self.device.clock().saturating_sub(before));
                self.return_memory(bytes);
            }
        }
        let (object_bytes, all) = (OBJECT_BYTES.try_into(), all.try_into());
        let (object_bytes, all) = (object_bytes.expect("short"), all.expect("short"));
        self.costs.lock().begin((object_bytes, object), (all, segment.max(object)));
        Ok(())
    }
}

/// Segments that are looked at before the packer sees to other things.
const SCAN_AT_ONCE: u32 = 64;
/// Reads of each length by which a start measures the device.
const MEASURED: u64 = 4;
const OBJECT_BYTES: u32 = 16 << 10;
