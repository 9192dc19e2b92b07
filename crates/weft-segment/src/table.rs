//! What is known of each segment: 16 bytes, half of them readable without a lock.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cost::UseRecord;
use crate::frame::ALIGN_BYTES;
use crate::index::Place;
use crate::marks::Marks;

/// The sequences, by segment: what a read compares a frame with.
#[derive(Debug)]
pub(crate) struct Sequences(Box<[AtomicU64]>);

impl Sequences {
    pub(crate) fn new(segments: u32) -> Sequences {
        Sequences((0..segments).map(|_| AtomicU64::new(0)).collect())
    }

    pub(crate) fn get(&self, segment: u32) -> u64 {
        self.0.get(at(segment)).map_or(0, |sequence| sequence.load(Ordering::Acquire))
    }

    pub(crate) fn set(&self, segment: u32, sequence: u64) {
        self.0[at(segment)].store(sequence, Ordering::Release);
    }
}

/// How a segment stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// May be written.
    Free,
    /// Is being written.
    Writing,
    /// Holds objects.
    Live,
    /// Holds none any more, but a crash now would need what it holds.
    Dying,
    /// Could not be written.
    Bad,
    /// Not looked at yet, after both checkpoints were lost.
    Unknown,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    /// Bytes of frames that are in the index, in units of 64.
    live: u16,
    objects: u16,
    standing: Standing,
    record: UseRecord,
    marks: Marks,
}

/// The rest of it, under the lock of the volume.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Row>,
    free: u32,
    /// Where the search for a free one goes on, so that they are written in turn.
    cursor: u32,
    /// With the record of the log that has to be durable before they are free; in order.
    dying: VecDeque<(u64, u32)>,
    live_bytes: u64,
}

impl Table {
    /// So many segments, all of them free or all unknown.
    pub(crate) fn new(segments: u32, standing: Standing) -> Table {
        let row = Row { live: 0, objects: 0, standing, record: UseRecord::new(false), marks: Marks::default() };
        let free = if standing == Standing::Free { segments } else { 0 };
        Table { rows: vec![row; at(segments)], free, cursor: 0, dying: VecDeque::new(), live_bytes: 0 }
    }

    pub(crate) fn standing(&self, segment: u32) -> Standing {
        self.rows[at(segment)].standing
    }

    pub(crate) fn record(&self, segment: u32) -> UseRecord {
        self.rows[at(segment)].record
    }

    pub(crate) fn set_record(&mut self, segment: u32, record: UseRecord) {
        self.rows[at(segment)].record = record;
    }

    pub(crate) fn marks(&self, segment: u32) -> Marks {
        self.rows[at(segment)].marks
    }

    pub(crate) fn set_marks(&mut self, segment: u32, marks: Marks) {
        self.rows[at(segment)].marks = marks;
    }

    /// Objects of a segment that are in the index, and what they take of it in bytes.
    #[cfg(test)]
    pub(crate) fn held(&self, segment: u32) -> (u32, usize) {
        let row = &self.rows[at(segment)];
        (row.objects.into(), usize::from(row.live) * ALIGN_BYTES)
    }

    /// Segments that may be written now.
    pub(crate) fn free(&self) -> u32 {
        self.free
    }

    /// Segments that may be written after the next sync of the log.
    pub(crate) fn dying(&self) -> usize {
        self.dying.len()
    }

    /// Bytes of frames that are in the index.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// The next free segment in turn, to be written.
    pub(crate) fn take_free(&mut self) -> Option<u32> {
        if self.free == 0 {
            return None;
        }
        let count = u32::try_from(self.rows.len()).expect("made from 32 bits");
        let turn = (0..count).map(|step| (self.cursor + step) % count);
        let found = { turn }.find(|segment| self.standing(*segment) == Standing::Free)?;
        self.cursor = (found + 1) % count;
        self.set(found, Standing::Writing);
        Some(found)
    }

    /// Changes how a segment stands.
    pub(crate) fn set(&mut self, segment: u32, standing: Standing) {
        let row = &mut self.rows[at(segment)];
        self.free -= u32::from(row.standing == Standing::Free);
        self.free += u32::from(standing == Standing::Free);
        row.standing = standing;
    }

    /// An object of a segment came into the index.
    pub(crate) fn enter(&mut self, place: Place) {
        let units = units(place);
        let row = &mut self.rows[at(place.segment())];
        row.live = row.live.saturating_add(units);
        row.objects = row.objects.saturating_add(1);
        self.live_bytes += u64::from(units) * ALIGN_BYTES as u64;
    }

    /// An object of a segment left the index, by the log's record `ticket` or one before it. A segment that holds no
    /// other becomes free when that is durable.
    pub(crate) fn leave(&mut self, place: Place, ticket: u64) {
        let (segment, units) = (place.segment(), units(place));
        let row = &mut self.rows[at(segment)];
        row.live = row.live.saturating_sub(units);
        row.objects = row.objects.saturating_sub(1);
        self.live_bytes = self.live_bytes.saturating_sub(u64::from(units) * ALIGN_BYTES as u64);
        if row.objects == 0 && row.standing == Standing::Live {
            self.retire(segment, ticket);
        }
    }

    /// A segment was written: it is live, or dead at once.
    pub(crate) fn written(&mut self, segment: u32, ticket: u64) {
        self.set(segment, Standing::Live);
        if self.rows[at(segment)].objects == 0 {
            self.retire(segment, ticket);
        }
    }

    /// The log is durable up to that record.
    pub(crate) fn settle(&mut self, durable: u64) {
        while let Some((_, segment)) = self.dying.pop_front_if(|(ticket, _)| *ticket <= durable) {
            self.set(segment, Standing::Free);
        }
    }

    fn retire(&mut self, segment: u32, ticket: u64) {
        self.set(segment, Standing::Dying);
        self.dying.push_back((ticket, segment));
    }
}

fn units(place: Place) -> u16 {
    u16::try_from(place.extent().length / ALIGN_BYTES as u32).expect("12 bits")
}

fn at(segment: u32) -> usize {
    usize::try_from(segment).expect("32 bits fit")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Extent;

    #[test]
    fn a_row_and_a_sequence_are_sixteen_bytes() {
        assert!(size_of::<Row>() + size_of::<AtomicU64>() <= 16);
    }

    #[test]
    fn a_segment_is_free_again_only_when_its_end_is_durable() {
        let mut table = Table::new(8, Standing::Free);
        let segment = table.take_free().unwrap();
        let place = Place::new(segment, Extent { offset: 64, length: 128 });
        table.enter(place);
        table.written(segment, 1);
        assert_eq!((table.free(), table.live_bytes(), table.held(segment)), (7, 128, (1, 128)));
        table.leave(place, 5);
        table.settle(4);
        assert_eq!((table.free(), table.dying()), (7, 1));
        table.settle(5);
        assert_eq!((table.free(), table.dying(), table.standing(segment)), (8, 0, Standing::Free));
        assert_ne!(table.take_free(), Some(segment), "they are written in turn");
    }
}
