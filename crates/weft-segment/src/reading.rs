//! Reading objects: from memory, or from the disk with every byte checked.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;

use crate::Result;
use crate::buffer::Cached;
use crate::core::Shared;
use crate::cost::Take;
use crate::device::{Aligned, BLOCK_BYTES, ReadAt};
use crate::frame::{self, ALIGN_BYTES, Frame};
use crate::group::short;
use crate::index::Place;
use crate::record;
use crate::segment::{Extent, SegmentHead};
use crate::volume::Held;

/// The head of a sound segment, and what its table says.
pub(crate) type Whole = (SegmentHead, Vec<crate::segment::Row>);

/// The hash of a key, the key, and who keeps what is found.
type Asked<'k> = (u64, &'k [u8], Keep);

/// Who keeps in memory what is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// The buffer.
    Here,
    /// The caller, or whoever it is for.
    Elsewhere,
}

/// What came of one read from the disk.
enum Outcome {
    Found(Cached),
    /// Another key with the same hash.
    Collision,
    /// Not what the index says.
    Wrong,
}

impl Shared {
    /// See [`crate::Volume::get`] and [`crate::Volume::take`].
    pub(crate) fn get(&self, key: &[u8], keep: Keep) -> Result<Option<Held>> {
        let hash = short(self.hash(key));
        let found = match self.read_memory(hash, key, keep) {
            Some(found) => {
                self.counters.memory_reads.add(1);
                Some(found)
            }
            None => self.read_disk(hash, key, keep)?,
        };
        if found.is_none() {
            self.counters.misses.add(1);
        }
        Ok(found.map(|object| Held { attributes: object.attributes, content: object.content }))
    }

    /// See [`crate::Volume::knows`].
    pub(crate) fn knows(&self, key: &[u8]) -> bool {
        let hash = short(self.hash(key));
        let waits = self.core.lock().group.get(hash).is_some_and(|object| object.key == key);
        waits || self.index.get(hash).is_some()
    }

    fn read_memory(&self, hash: u64, key: &[u8], keep: Keep) -> Option<Cached> {
        let core = self.core.lock();
        // What waits is newer than whatever else there is.
        if let Some(object) = core.group.get(hash) {
            return (object.key == key).then(|| Cached {
                key: object.key.clone(),
                attributes: object.attributes.clone(),
                content: object.content.clone(),
            });
        }
        drop(core);
        let (object, neighbour_of) = {
            let mut buffer = self.buffer.lock();
            let found = buffer.get(hash, key)?;
            if keep == Keep::Elsewhere {
                buffer.remove(hash);
            }
            found
        };
        self.index.used(hash);
        if let Some(segment) = neighbour_of {
            self.counters.neighbours_used.add(1);
            let mut core = self.core.lock();
            let record = core.table.record(segment);
            core.table.set_record(segment, record.after_use());
            self.costs.lock().neighbour_used(record);
        }
        Some(object)
    }

    fn read_disk(&self, hash: u64, key: &[u8], keep: Keep) -> Result<Option<Cached>> {
        for _ in 0..TRIES {
            let Some(place) = self.index.used(hash) else {
                // It may have been written, or put anew, since memory was looked at.
                return Ok(self.read_memory(hash, key, keep));
            };
            let sequence = self.sequences.get(place.segment());
            match self.read_place((hash, key, keep), place, sequence)? {
                Outcome::Found(object) => return Ok(Some(object)),
                Outcome::Collision => return Ok(None),
                Outcome::Wrong => {}
            }
            if self.give_up(hash, (place, sequence)) {
                return Ok(None);
            }
            // The segment was written anew meanwhile: the object is elsewhere, or gone.
        }
        Ok(None)
    }

    fn read_place(&self, asked: Asked<'_>, place: Place, sequence: u64) -> Result<Outcome> {
        let extent = place.extent();
        let length = usize::try_from(extent.length).expect("short");
        let (record, marks) = {
            let core = self.core.lock();
            (core.table.record(place.segment()), core.table.marks(place.segment()))
        };
        let all = marks.around(extent, self.block.segment_bytes);
        // Neighbours are of no use where there is no memory to keep them in.
        let keeps = self.options.buffer_bytes >= usize::try_from(self.block.segment_bytes).expect("short");
        let take = if keeps { self.costs.lock().choose(record, length, all.len()) } else { Take::Object };
        match take {
            Take::Object => self.read_object(asked, place, sequence),
            Take::Neighbours => self.read_neighbours(asked, (place, all), sequence),
        }
    }

    fn read_object(&self, (hash, key, keep): Asked<'_>, place: Place, sequence: u64) -> Result<Outcome> {
        let (bytes, from, took) = self.read_blocks(place)?;
        self.costs.lock().note(Take::Object, bytes.len(), took);
        self.counters.object_reads.add(1);
        let outcome = self.judge(&bytes[from..], key, place.extent(), sequence);
        self.return_memory(bytes);
        if let Outcome::Found(object) = &outcome
            && keep == Keep::Here
        {
            self.remember(hash, (place, sequence), object, None);
        }
        Ok(outcome)
    }

    /// Reads the blocks that a place lies in, for whoever gives the memory back; where it begins in them, and how long the read
    /// took.
    pub(crate) fn read_blocks(&self, place: Place) -> Result<(Aligned, usize, Duration)> {
        let extent = place.extent();
        let block = u32::try_from(BLOCK_BYTES).expect("small");
        let start = extent.offset / block * block;
        let end = (extent.offset + extent.length).next_multiple_of(block);
        let mut bytes = self.borrow_memory(end - start);
        let took = self.timed_read(&mut bytes, self.block.segment_start(place.segment()) + u64::from(start))?;
        Ok((bytes, usize::try_from(extent.offset - start).expect("short"), took))
    }

    /// Reads all of this part of a segment; the other objects there go into memory as well.
    fn read_neighbours(
        &self,
        (hash, key, keep): Asked<'_>,
        (place, part): (Place, Range<u32>),
        sequence: u64,
    ) -> Result<Outcome> {
        let segment = place.segment();
        let mut bytes = self.borrow_memory(part.end - part.start);
        let took = self.timed_read(&mut bytes, self.block.segment_start(segment) + u64::from(part.start))?;
        self.counters.neighbour_reads.add(1);
        {
            let mut core = self.core.lock();
            let record = core.table.record(segment);
            let mut costs = self.costs.lock();
            core.table.set_record(segment, record.after_read(costs.expected(record)));
            costs.note(Take::Neighbours, bytes.len(), took);
            costs.read(record);
        }
        let extent = place.extent();
        let from = usize::try_from(extent.offset - part.start).expect("short");
        let outcome = self.judge(&bytes[from..], key, extent, sequence);
        if let Outcome::Found(object) = &outcome {
            if keep == Keep::Here {
                self.remember(hash, (place, sequence), object, None);
            }
            self.remember_neighbours((&bytes, part.start), extent, (segment, sequence));
        }
        self.return_memory(bytes);
        Ok(outcome)
    }

    /// Puts the objects into memory whose frames are found in `bytes`, which begin at `offset` of a segment, perhaps
    /// within a frame. The nearest to the one that was wanted come last: where there is little room, they stay.
    fn remember_neighbours(&self, (bytes, offset): (&[u8], u32), wanted: Extent, (segment, sequence): (u32, u64)) {
        let mut found = Vec::new();
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            // Anything may look like a frame; whether it is one, the index and the checksum know.
            let Some((key, length)) = frame::peek(rest, sequence) else {
                at += ALIGN_BYTES;
                continue;
            };
            let small = |value: usize| u32::try_from(value).expect("a segment is short");
            let (hash, extent) = (short(self.hash(key)), Extent { offset: offset + small(at), length: small(length) });
            let lies_here = |now: &Place| now.segment() == segment && now.extent() == extent && extent != wanted;
            found.extend(self.index.get(hash).filter(lies_here).map(|place| (hash, place)));
            at += length;
        }
        found.sort_by_key(|(_, place)| std::cmp::Reverse(place.extent().offset.abs_diff(wanted.offset)));
        for (hash, place) in found {
            if self.buffer.lock().contains(hash) {
                continue;
            }
            let extent = place.extent();
            let frame = &bytes[usize::try_from(extent.offset - offset).expect("short")..];
            // One that is damaged is found when it is asked for.
            if let Some(object) = self.cut(frame, extent, sequence) {
                self.remember(hash, (place, sequence), &object, Some(segment));
            }
        }
    }

    /// Puts an object into the buffer that was read from a place, unless there is a newer state of it.
    fn remember(&self, hash: u64, read: (Place, u64), object: &Cached, neighbour_of: Option<u32>) {
        let core = self.core.lock();
        if self.is_still(hash, read) && core.group.get(hash).is_none() {
            self.buffer.lock().insert(hash, object.clone(), neighbour_of);
        }
    }

    /// Whether an object lies at a place of a segment that was not written again meanwhile. The place alone would not
    /// tell: the object may have come to the same one anew.
    pub(crate) fn is_still(&self, hash: u64, (place, sequence): (Place, u64)) -> bool {
        self.index.get(hash).is_some_and(|now| now.is_same_place(place))
            && self.sequences.get(place.segment()) == sequence
    }

    /// Drops an object that turned out to be damaged, unless another state of it came meanwhile; whether it was.
    pub(crate) fn give_up(&self, hash: u64, read: (Place, u64)) -> bool {
        let mut core = self.core.lock();
        let is_damaged = self.is_still(hash, read);
        if is_damaged {
            self.take_out(&mut core, hash);
            let sequence = core.sequence;
            core.log(|log| record::removed(log, sequence, &[hash]));
            self.counters.damaged.add(1);
        }
        is_damaged
    }

    /// Checks the frame that `bytes` begin with.
    fn judge(&self, bytes: &[u8], key: &[u8], extent: Extent, sequence: u64) -> Outcome {
        match self.cut(bytes, extent, sequence) {
            Some(object) if object.key == key => Outcome::Found(object),
            Some(_) => Outcome::Collision,
            None => Outcome::Wrong,
        }
    }

    /// A copy of the object whose frame `bytes` begin with, if it is undamaged and of this sequence.
    pub(crate) fn cut(&self, bytes: &[u8], extent: Extent, sequence: u64) -> Option<Cached> {
        let bytes = bytes.get(..usize::try_from(extent.length).ok()?)?;
        let frame = Frame::decode(bytes, sequence, self.block.seed)?;
        // One piece of memory for all three.
        let all = Bytes::copy_from_slice(&bytes[frame.key.start..frame.content.end]);
        let part = |range: Range<usize>| all.slice(range.start - frame.key.start..range.end - frame.key.start);
        Some(Cached {
            key: part(frame.key.clone()),
            attributes: part(frame.attributes.clone()),
            content: part(frame.content.clone()),
        })
    }

    /// Reads whole segments at the same time, into `memory`, of which there is then one piece for each; `None` for one that
    /// is void or not the one that is expected there. Whoever gave `memory` gives it back.
    pub(crate) fn whole_segments(&self, segments: &[u32], memory: &mut Vec<Aligned>) -> Vec<Result<Option<Whole>>> {
        let all = self.block.segment_bytes;
        memory.resize_with(memory.len().max(segments.len()), || self.borrow_memory(all));
        let outcomes = self.read_beginnings(segments, memory);
        let looked_at = outcomes.into_iter().zip(segments).zip(memory.iter());
        let judged = looked_at.map(|((outcome, segment), bytes)| {
            outcome.map_err(|error| self.io(error))?;
            Ok(self.sound(*segment, bytes))
        });
        judged.collect()
    }

    /// Fills a piece of memory for each segment with what that begins with, at the same time.
    pub(crate) fn read_beginnings(&self, segments: &[u32], memory: &mut [Aligned]) -> Vec<std::io::Result<()>> {
        let reads = segments.iter().zip(memory);
        let mut reads: Vec<ReadAt<'_>> =
            reads.map(|(segment, buffer)| ReadAt { buffer, offset: self.block.segment_start(*segment) }).collect();
        self.device.read_each(&mut reads)
    }

    /// Reads a whole segment; `None` when it is void or not the one that is expected there.
    pub(crate) fn whole_segment(&self, segment: u32, bytes: &mut [u8]) -> Result<Option<Whole>> {
        self.device.read_at(bytes, self.block.segment_start(segment)).map_err(|error| self.io(error))?;
        Ok(self.sound(segment, bytes))
    }

    /// What the bytes of a segment say; `None` when it is void or not the one that is expected there.
    fn sound(&self, segment: u32, bytes: &[u8]) -> Option<Whole> {
        let decoded = crate::segment::decode_whole(bytes, self.block.segment_bytes, self.block.seed);
        decoded.filter(|(head, _)| head.number == segment)
    }

    fn timed_read(&self, bytes: &mut [u8], offset: u64) -> Result<Duration> {
        let before = self.device.clock();
        self.device.read_at(bytes, offset).map_err(|error| self.io(error))?;
        Ok(self.device.clock().saturating_sub(before))
    }

    /// Memory for a read of at most a segment.
    pub(crate) fn borrow_memory(&self, length: u32) -> Aligned {
        let spare = self.spare.lock().pop();
        let all = usize::try_from(self.block.segment_bytes).expect("short");
        let mut bytes = spare.unwrap_or_else(|| Aligned::zeroed(all));
        bytes.set_length(usize::try_from(length).expect("short"));
        bytes
    }

    pub(crate) fn return_memory(&self, bytes: Aligned) {
        let mut spare = self.spare.lock();
        if spare.len() < SPARE_MAX {
            spare.push(bytes);
        }
    }
}

/// Whole segments that are read at once where many are looked at: a disk with several channels is busy then, and the
/// memory is that of a few.
pub(crate) const WHOLE_AT_ONCE: usize = 8;
/// How often an object is looked for that moves at the same time.
const TRIES: usize = 4;
/// Pieces of memory that are kept for reads: as many as read at once.
const SPARE_MAX: usize = 16;
