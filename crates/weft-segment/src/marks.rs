//! Where something begins in a segment that is not to be read with what lies before it.
//!
//! Segments hold units of friends one behind the other. A read that brings neighbours along brings those of the unit
//! that is wanted, to the nearest sixteenth of a segment: two bytes for each segment tell enough.

use std::ops::Range;

use crate::segment::{Extent, Row};

/// The sixteenths of a segment in which something begins. None: nothing is known, and neighbours are all that is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks(pub(crate) u16);

impl Marks {
    /// Of a segment in which something begins at these offsets.
    pub(crate) fn at(offsets: impl Iterator<Item = u32>, segment_bytes: u32) -> Marks {
        let bit = |offset: u32| 1u16.checked_shl(offset / part(segment_bytes)).unwrap_or(0);
        Marks(offsets.fold(0, |marks, offset| marks | bit(offset)))
    }

    /// What the table of a segment tells.
    pub(crate) fn of(rows: &[Row], segment_bytes: u32) -> Marks {
        Marks::at(rows.iter().filter(|row| row.begins()).map(|row| row.offset), segment_bytes)
    }

    /// The bytes of a segment to read for an object and the neighbours that belong with it, of whole sixteenths.
    pub(crate) fn around(self, object: Extent, segment_bytes: u32) -> Range<u32> {
        let part = part(segment_bytes);
        let first = (object.offset / part).min(PARTS - 1);
        // Where the object's own sixteenth is marked, the object is taken for what begins there.
        let from = (0..=first).rev().find(|at| self.has(*at)).unwrap_or(0);
        let to = (first + 1..PARTS).find(|at| self.has(*at)).map_or(PARTS, |at| at + 1);
        let end = (object.offset + object.length).next_multiple_of(part);
        from * part..(to * part).max(end).min(segment_bytes)
    }

    fn has(self, at: u32) -> bool {
        self.0 & (1 << at) != 0
    }
}

/// Length of a sixteenth: whole blocks in every segment.
fn part(segment_bytes: u32) -> u32 {
    (segment_bytes / PARTS).max(1)
}

const PARTS: u32 = 16;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::device::BLOCK_BYTES;

    const BYTES: u32 = 64 << 10;

    fn extent(offset: u32, length: u32) -> Extent {
        Extent { offset, length }
    }

    #[test]
    fn a_read_goes_from_mark_to_mark() {
        // Something begins in the first sixteenth, in the sixth and in the eleventh.
        let marks = Marks(1 | 1 << 5 | 1 << 10);
        assert_eq!(marks.around(extent(5 * 4096 + 64, 128), BYTES), 5 * 4096..11 * 4096);
        assert_eq!(marks.around(extent(9 * 4096, 128), BYTES), 5 * 4096..11 * 4096);
        assert_eq!(marks.around(extent(64, 128), BYTES), 0..6 * 4096);
        assert_eq!(marks.around(extent(15 * 4096, 4096), BYTES), 10 * 4096..BYTES);
        assert_eq!(Marks::default().around(extent(9 * 4096, 128), BYTES), 0..BYTES, "nothing is known");
    }

    proptest! {
        #[test]
        fn the_object_itself_is_always_read(marks: u16, offset in 1u32..1024, length in 1u32..512) {
            let object = extent(offset * 64, (length * 64).min(BYTES - offset * 64));
            prop_assume!(object.length > 0);
            let read = Marks(marks).around(object, BYTES);
            prop_assert!(read.start <= object.offset && object.offset + object.length <= read.end && read.end <= BYTES);
            prop_assert!(read.start.is_multiple_of(BLOCK_BYTES as u32) && read.end.is_multiple_of(BLOCK_BYTES as u32));
        }
    }
}
