//! The parts in which what is written to a file is stored, one store each.
//!
//! A file that is stored beyond its end is filled up with zeros by its server, which takes no room there for them
//! (`StoreData_RXStyle` of OpenAFS `src/viced/afsfileprocs.c`; observed with 1.8.9). So where all is written from some place on
//! to the end, the file is cut off first where the first long hole in that begins, and the long holes are not sent.

use weft_remote::{Content, Extent};

/// One store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// What is stored; nothing where the file gets its length alone.
    pub at: Extent,
    /// The length of the file by it, in bytes.
    pub file_length: u64,
}

/// The stores by which these extents are written to what is to be a file of this length.
pub(crate) fn parts(extents: &[Extent], length: u64, content: &dyn Content) -> Vec<Part> {
    let of_length = |at| Part { at, file_length: length };
    let Some(cut) = first_hole_of_end(extents, length, content) else {
        return extents.iter().copied().flat_map(in_stores).map(of_length).collect();
    };
    let before = extents.iter().filter_map(|extent| between(extent.offset, cut.min(extent.offset + extent.length)));
    let stored = before.chain(data(cut, length, content)).flat_map(in_stores).map(of_length);
    std::iter::once(Part { at: Extent { offset: cut, length: 0 }, file_length: cut }).chain(stored).collect()
}

/// Where the first long hole begins from where on all is written.
/// How many of the first parts may be on their way at once: short ones, in any order, for each takes a way to the server and back
/// more than its bytes.
pub(crate) fn at_once(parts: &[Part]) -> usize {
    let Some(first) = parts.first() else { return 0 };
    let may_go = |part: &&Part| part.at.length <= SHORT_BYTES_MAX && part.file_length == first.file_length;
    parts.iter().take(AT_ONCE_MAX).take_while(may_go).count().max(1)
}

fn first_hole_of_end(extents: &[Extent], length: u64, content: &dyn Content) -> Option<u64> {
    let mut start = length;
    for extent in extents.iter().rev() {
        if extent.offset + extent.length < start {
            break;
        }
        start = start.min(extent.offset);
    }
    long_hole(start, length, content).map(|(from, _)| from)
}

/// The next hole that is not worth being sent.
fn long_hole(mut at: u64, end: u64, content: &dyn Content) -> Option<(u64, u64)> {
    while at + HOLE_BYTES_MIN <= end {
        let hole = content.hole(at..end)?;
        if hole.end - hole.start >= HOLE_BYTES_MIN {
            return Some((hole.start, hole.end));
        }
        at = hole.end;
    }
    None
}

/// What there is between long holes.
fn data(mut at: u64, end: u64, content: &dyn Content) -> impl Iterator<Item = Extent> {
    std::iter::from_fn(move || {
        while at < end {
            let (from, to) = long_hole(at, end, content).unwrap_or((end, end));
            let data = between(at, from);
            at = to;
            if data.is_some() {
                return data;
            }
        }
        None
    })
}

fn between(start: u64, end: u64) -> Option<Extent> {
    (start < end).then(|| Extent { offset: start, length: end - start })
}

fn in_stores(extent: Extent) -> impl Iterator<Item = Extent> {
    let end = extent.offset + extent.length;
    let starts = (extent.offset..end).step_by(STORE_BYTES as usize);
    starts.map(move |offset| Extent { offset, length: STORE_BYTES.min(end - offset) })
}

/// Bytes of one store.
const STORE_BYTES: u64 = 16 << 20;
/// A shorter hole is sent as zeros: as a call of its own the next part would take longer.
const HOLE_BYTES_MIN: u64 = 1 << 20;
/// Stores of one file under way at once: a file server does them one after the other, each with a thread that waits.
const AT_ONCE_MAX: usize = 4;
/// What is longer goes alone.
const SHORT_BYTES_MAX: u64 = 256 << 10;

#[cfg(test)]
mod tests {
    use std::io;
    use std::ops::Range;

    use bytes::Bytes;

    use super::*;

    /// Content with these holes.
    struct Holes(Vec<Range<u64>>);

    impl Content for Holes {
        fn read(&self, _: u64, length: usize) -> io::Result<Bytes> {
            Ok(vec![0; length].into())
        }

        fn hole(&self, bytes: Range<u64>) -> Option<Range<u64>> {
            let within = self.0.iter().map(|hole| hole.start.max(bytes.start)..hole.end.min(bytes.end));
            within.into_iter().find(|hole| hole.start < hole.end)
        }
    }

    fn stored(extents: &[(u64, u64)], length: u64, holes: &[(u64, u64)]) -> Vec<(u64, u64, u64)> {
        let holes = holes.iter().map(|(from, to)| *from..*to).collect();
        let extents: Vec<_> =
            extents.iter().map(|(offset, length)| Extent { offset: *offset, length: *length }).collect();
        let parts = parts(&extents, length, &Holes(holes));
        parts.into_iter().map(|part| (part.at.offset, part.at.length, part.file_length)).collect()
    }

    #[test]
    fn long_extents_are_stored_in_parts() {
        let length = 200 + STORE_BYTES * 2;
        let wanted = [(5, 3), (100, STORE_BYTES), (100 + STORE_BYTES, STORE_BYTES), (100 + 2 * STORE_BYTES, 1)];
        let wanted = wanted.map(|(offset, bytes)| (offset, bytes, length));
        assert_eq!(stored(&[(5, 3), (100, STORE_BYTES * 2 + 1)], length, &[]), wanted);
    }

    /// Goal: only short parts go at once, and none beside the one that cuts the file off.
    #[test]
    fn short_parts_go_at_once() {
        let part = |length, file_length| Part { at: Extent { offset: 0, length }, file_length };
        let short = part(SHORT_BYTES_MAX, 100);
        assert_eq!(at_once(&[]), 0);
        assert_eq!(at_once(&[short; AT_ONCE_MAX + 1]), AT_ONCE_MAX);
        assert_eq!(at_once(&[short, short, part(SHORT_BYTES_MAX + 1, 100), short]), 2);
        assert_eq!(at_once(&[part(SHORT_BYTES_MAX + 1, 100), short]), 1);
        assert_eq!(at_once(&[part(0, 50), short, short]), 1);
    }

    /// Goal: what is written all to the end is cut off at its first long hole, and its long holes are not sent; what was there
    /// before is never cut off.
    #[test]
    fn long_holes_at_the_end_are_not_sent() {
        const M: u64 = 1 << 20;
        let holes = [(10, 20), (2 * M, 2 * M + 5), (3 * M, 9 * M), (10 * M, 10 * M + 7), (11 * M, 12 * M)];
        let end = [(3 * M, 0, 3 * M), (9 * M, 2 * M, 12 * M)];
        let with = |first: (u64, u64, u64)| [end[0], first, end[1]];
        assert_eq!(stored(&[(0, 12 * M)], 12 * M, &holes), with((0, 3 * M, 12 * M)));
        assert_eq!(stored(&[(0, M), (M, 11 * M)], 12 * M, &holes)[1..], [(0, M, 12 * M), (M, 2 * M, 12 * M), end[1]]);
        assert_eq!(stored(&[(5, 1), (2 * M, 10 * M)], 12 * M, &holes)[..2], [end[0], (5, 1, 12 * M)]);
        // Something between may be there that is not written, or behind.
        let as_they_are = [(0, 3 * M + 1, 12 * M), (4 * M, 4 * M, 12 * M)];
        assert_eq!(stored(&[(0, 3 * M + 1), (4 * M, 4 * M)], 12 * M, &holes), as_they_are);
        assert_eq!(stored(&[(0, 10)], 10, &[(0, 10)]), [(0, 10, 10)], "a short one");
        assert_eq!(stored(&[(0, 5 * M)], 5 * M, &[(0, 5 * M)]), [(0, 0, 0)], "nothing but a hole");
        assert_eq!(stored(&[], 5 * M, &[(0, 5 * M)]), []);
    }
}
