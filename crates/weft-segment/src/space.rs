//! Making room: whole segments go, the oldest first; what is worth keeping of them is packed anew.

use crate::core::{Core, Shared};
use crate::device::Aligned;
use crate::group::short;
use crate::index::Place;
use crate::options::Policy;
use crate::segment::Row;
use crate::table::Standing;
use crate::{record, segment};

/// An object of a segment that goes.
struct Candidate {
    hash: u64,
    place: Place,
    row: Row,
}

impl Shared {
    /// Whether segments have to go now.
    pub(crate) fn needs_room(&self, core: &Core) -> bool {
        let evicts = self.options.policy != Policy::Keep && core.scan.is_none();
        evicts && !core.nothing_may_go && self.is_short(core)
    }

    /// Lets segments go until there is room again, or nothing is left that may go.
    pub(crate) fn make_room(&self) {
        let mut bytes = self.borrow_memory(self.block.segment_bytes);
        // A hand passes over each segment at most twice: the second time nothing counts as used any more.
        for _ in 0..2 {
            for segment in self.oldest() {
                if !self.is_short(&self.core.lock()) {
                    return;
                }
                self.let_go(segment, &mut bytes);
            }
            self.core.lock().hand = 0;
        }
        self.core.lock().nothing_may_go = true;
    }

    /// Live segments from the hand on, in the order in which they were written.
    fn oldest(&self) -> Vec<u32> {
        let core = self.core.lock();
        let live = (0..self.block.segments).filter(|segment| core.table.standing(*segment) == Standing::Live);
        let mut segments: Vec<(u64, u32)> = live.map(|segment| (self.sequences.get(segment), segment)).collect();
        if self.options.policy == Policy::Sieve {
            segments.retain(|(sequence, _)| *sequence > core.hand);
        }
        segments.sort_unstable();
        segments.into_iter().map(|(_, segment)| segment).collect()
    }

    fn is_short(&self, core: &Core) -> bool {
        let room = segment::room(self.block.segment_bytes);
        // Twice what the group buffer may hold, for segments are half full at worst.
        let for_group = u32::try_from(2 * self.group_max() / room + 4).unwrap_or(u32::MAX);
        let low = (self.block.segments / LOW_PART).max(for_group).min(self.block.segments / 2);
        let free = core.table.free() + u32::try_from(core.table.dying()).unwrap_or(u32::MAX);
        free < low || self.is_full_of_objects(core)
    }

    fn let_go(&self, segment: u32, bytes: &mut Aligned) {
        let sequence = self.sequences.get(segment);
        // One that cannot be read holds nothing any more.
        let whole = self.whole_segment(segment, bytes).unwrap_or(None);
        let whole = whole.filter(|(head, _)| head.sequence == sequence);
        let Some((_, rows)) = whole else {
            self.void(segment);
            return;
        };
        let mut core = self.core.lock();
        core.hand = sequence;
        let candidates = self.candidates(segment, rows);
        let size = |candidate: &Candidate| candidate.row.frame_bytes();
        let sum = |of: &dyn Fn(&Candidate) -> bool| -> usize { candidates.iter().filter(|c| of(c)).map(size).sum() };
        let (all, pinned) = (sum(&|_| true), sum(&|candidate| candidate.place.is_pinned()));
        let used = sum(&|candidate| candidate.place.uses() > 0);
        // Moving what is pinned over and over again would gain nothing.
        if pinned * 2 > all {
            return;
        }
        if self.options.policy == Policy::Sieve && used * 2 > all {
            for candidate in &candidates {
                self.index.change(candidate.hash, |place| place.with_uses(0));
            }
            return;
        }
        let mut gone = Vec::new();
        let (mut moved, credit) = (0, core.credit + all / MOVED_PART);
        for candidate in &candidates {
            // What waits is newer; the segment is free when that is written.
            if core.group.get(candidate.hash).is_some() {
                continue;
            }
            let is_hot = self.options.policy != Policy::Fifo && candidate.place.uses() > 0;
            let is_hot = is_hot && moved + size(candidate) <= credit;
            let keeps = candidate.place.is_pinned() || is_hot;
            let frame = &bytes[usize::try_from(candidate.row.offset).expect("short")..];
            let object = self.cut(frame, candidate.place.extent(), sequence).filter(|_| keeps);
            let Some(object) = object else {
                gone.push(candidate.hash);
                continue;
            };
            moved += size(candidate);
            self.index.change(candidate.hash, |place| place.with_uses(0));
            self.wait_again(&mut core, object, candidate.place.is_pinned());
        }
        core.credit = credit.saturating_sub(moved).min(CREDIT_SEGMENTS_MAX * segment::room(self.block.segment_bytes));
        self.drop_objects(&mut core, &gone);
    }

    /// Objects of a segment that the index still finds there.
    fn candidates(&self, segment: u32, rows: Vec<Row>) -> Vec<Candidate> {
        let candidate = |row: Row| {
            let hash = short(row.hash);
            let place = self.index.get(hash)?;
            let is_live = place.is_same_place(Place::new(segment, row.extent()));
            is_live.then_some(Candidate { hash, place, row })
        };
        rows.into_iter().filter_map(candidate).collect()
    }

    fn drop_objects(&self, core: &mut Core, hashes: &[u64]) {
        for part in hashes.chunks(HASHES_PER_RECORD) {
            for hash in part {
                if self.take_out(core, *hash).is_some() {
                    self.counters.evicted.add(1);
                }
                self.buffer.lock().remove(*hash);
            }
            let sequence = core.sequence;
            core.log(|log| record::removed(log, sequence, part));
        }
    }

    /// Drops all objects that the index finds in a segment, for it cannot be read.
    fn void(&self, segment: u32) {
        let mut lost = Vec::new();
        for shard in 0..self.index.shard_count() {
            let slots = self.index.shard_slots(shard);
            lost.extend(slots.into_iter().filter(|(_, place)| place.segment() == segment).map(|(hash, _)| hash));
        }
        let mut core = self.core.lock();
        lost.retain(|hash| self.index.get(*hash).is_some_and(|place| place.segment() == segment));
        for part in lost.chunks(HASHES_PER_RECORD) {
            for hash in part {
                self.take_out(&mut core, *hash);
            }
            let sequence = core.sequence;
            core.log(|log| record::removed(log, sequence, part));
        }
        self.counters.damaged.add(lost.len() as u64);
    }
}

/// Segments that are kept free: a twentieth.
const LOW_PART: u32 = 20;
/// Of segments that go at most a quarter is written again, counted over as many as this.
const CREDIT_SEGMENTS_MAX: usize = 16;
const MOVED_PART: usize = 4;
const HASHES_PER_RECORD: usize = 256;
