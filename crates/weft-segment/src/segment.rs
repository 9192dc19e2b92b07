//! A segment: a head, a table of its objects, their frames, a foot. Written at once and never changed; a write that
//! was torn leaves one whose parts do not agree, and that one is void.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::device::BLOCK_BYTES;
use crate::fields::{Fields, Packed};
use crate::frame::{ALIGN_BYTES, Parts};

/// The head of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHead {
    pub(crate) number: u32,
    /// Unique: the life of the volume in the high half, a count in the low one. Later ones are greater.
    pub(crate) sequence: u64,
    /// Rows in the table.
    pub(crate) objects: u32,
    /// Bytes that were written, the foot included; a multiple of [`BLOCK_BYTES`].
    pub(crate) length: u32,
}

/// An object's row in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) hash: u128,
    /// Where its frame begins in the segment.
    pub(crate) offset: u32,
    pub(crate) content_bytes: u32,
    pub(crate) key_bytes: u16,
    pub(crate) attributes_bytes: u16,
    pub(crate) flags: u32,
    /// XXH3-64 of the frame.
    pub(crate) check: u64,
}

/// An object that goes into a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'p> {
    pub(crate) hash: u128,
    pub(crate) parts: Parts<'p>,
    /// Whether it is not to be read with the one before it.
    pub(crate) begins: bool,
}

/// Where an object came to lie in a segment, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) offset: u32,
    pub(crate) length: u32,
}

/// Writes a whole segment into `out`, as long as a segment is; only the first `length` bytes of the head it returns
/// need be written. The caller has seen to it that the entries fit ([`room`], [`cost`]).
pub(crate) fn encode(
    number: u32,
    sequence: u64,
    seed: u64,
    entries: &[Entry<'_>],
    out: &mut [u8],
) -> (SegmentHead, Vec<Extent>) {
    let count = u32::try_from(entries.len()).expect("few fit");
    let mut at = table_end(entries.len());
    out[..at].fill(0);
    let mut table = Packed::default();
    let mut extents = Vec::with_capacity(entries.len());
    for Entry { hash, parts, begins } in entries {
        let length = parts.frame_bytes();
        let frame = &mut out[at..at + length];
        let tail = frame.len() - ALIGN_BYTES;
        frame[tail..].fill(0);
        let check = parts.encode(sequence, seed, frame);
        let small = |value: usize| u32::try_from(value).expect("a segment is short");
        let short = |value: usize| u16::try_from(value).expect("checked when it was put");
        table.u128(*hash).u32(small(at)).u32(small(parts.content.len())).u16(short(parts.key.len()));
        let flags = if *begins { BEGINS } else { 0 };
        table.u16(short(parts.attributes.len())).u32(flags).u64(check);
        extents.push(Extent { offset: small(at), length: small(length) });
        at += length;
    }
    let length = (at + FOOT_BYTES).next_multiple_of(BLOCK_BYTES);
    out[at..length].fill(0);
    let head =
        SegmentHead { number, sequence, objects: count, length: u32::try_from(length).expect("a segment is short") };
    out[HEAD_BYTES..HEAD_BYTES + table.0.len()].copy_from_slice(&table.0);
    head.encode(seed, out);
    let foot = length - FOOT_BYTES;
    out[foot..foot + 8].copy_from_slice(FOOT_MAGIC);
    out[foot + 8..foot + 16].copy_from_slice(&sequence.to_le_bytes());
    let check = xxh3_64_with_seed(&out[..length - 8], seed);
    out[length - 8..length].copy_from_slice(&check.to_le_bytes());
    (head, extents)
}

impl SegmentHead {
    /// Writes the head in front of the table, which is there.
    fn encode(&self, seed: u64, out: &mut [u8]) {
        let mut head = Packed::default();
        head.bytes(MAGIC).u32(self.number).u32(self.objects).u64(self.sequence).u32(self.length).u32(0);
        out[..head.0.len()].copy_from_slice(&head.0);
        let check = xxh3_64_with_seed(&out[CHECKED..HEAD_BYTES + rows_bytes(self.objects)], seed);
        let check = check ^ xxh3_64_with_seed(&head.0, seed);
        out[HEAD_BYTES - 8..HEAD_BYTES].copy_from_slice(&check.to_le_bytes());
    }

    /// The head alone, not yet checked: tells how much to read for [`SegmentHead::decode`].
    pub(crate) fn peek(bytes: &[u8], segment_bytes: u32) -> Option<SegmentHead> {
        let mut fields = Fields(bytes.get(..HEAD_BYTES)?);
        if fields.take(8)? != MAGIC {
            return None;
        }
        let (number, objects, sequence) = (fields.u32()?, fields.u32()?, fields.u64()?);
        let length = fields.u32()?;
        let head = SegmentHead { number, sequence, objects, length };
        let fits = length <= segment_bytes
            && usize::try_from(length).ok()?.is_multiple_of(BLOCK_BYTES)
            && objects <= OBJECTS_MAX
            && head.table_end() + FOOT_BYTES <= usize::try_from(length).ok()?;
        fits.then_some(head)
    }

    /// Bytes up to the end of the table.
    pub(crate) fn table_end(&self) -> usize {
        HEAD_BYTES + rows_bytes(self.objects)
    }

    /// The head and the table, checked; `bytes` go at least to the end of the table.
    pub(crate) fn decode(bytes: &[u8], segment_bytes: u32, seed: u64) -> Option<(SegmentHead, Vec<Row>)> {
        let head = SegmentHead::peek(bytes, segment_bytes)?;
        let table = bytes.get(HEAD_BYTES..head.table_end())?;
        let check = xxh3_64_with_seed(&bytes[CHECKED..head.table_end()], seed);
        // The bytes of the checksum itself are not in it: they lie between both parts.
        let check = check ^ xxh3_64_with_seed(&bytes[..FIELDS_BYTES], seed);
        if Fields(&bytes[HEAD_BYTES - 8..]).u64() != Some(check) {
            return None;
        }
        let mut fields = Fields(table);
        let mut rows = Vec::with_capacity(usize::try_from(head.objects).ok()?);
        for _ in 0..head.objects {
            rows.push(Row::decode(&mut fields, head.length)?);
        }
        Some((head, rows))
    }
}

impl Row {
    fn decode(fields: &mut Fields<'_>, length: u32) -> Option<Row> {
        let hash = fields.u128()?;
        let (offset, content_bytes) = (fields.u32()?, fields.u32()?);
        let (key_bytes, attributes_bytes) = (fields.u16()?, fields.u16()?);
        let (flags, check) = (fields.u32()?, fields.u64()?);
        let row = Row { hash, offset, content_bytes, key_bytes, attributes_bytes, flags, check };
        let end = u64::from(offset) + row.frame_bytes() as u64;
        let fits = usize::try_from(offset).ok()?.is_multiple_of(ALIGN_BYTES) && end <= length.into() && offset > 0;
        fits.then_some(row)
    }

    /// Whether it is not to be read with the one before it.
    pub(crate) fn begins(&self) -> bool {
        self.flags & BEGINS != 0
    }

    /// Length of its frame.
    pub(crate) fn frame_bytes(&self) -> usize {
        let content = usize::try_from(self.content_bytes).unwrap_or(usize::MAX / 2);
        crate::frame::frame_bytes(self.key_bytes.into(), self.attributes_bytes.into(), content)
    }

    /// Where its frame lies.
    pub(crate) fn extent(&self) -> Extent {
        Extent { offset: self.offset, length: u32::try_from(self.frame_bytes()).unwrap_or(u32::MAX) }
    }
}

/// Head and table of a whole segment whose foot agrees with both and with every byte between.
pub(crate) fn decode_whole(bytes: &[u8], segment_bytes: u32, seed: u64) -> Option<(SegmentHead, Vec<Row>)> {
    let (head, rows) = SegmentHead::decode(bytes, segment_bytes, seed)?;
    let length = usize::try_from(head.length).ok()?;
    let foot = bytes.get(length - FOOT_BYTES..length)?;
    let check = xxh3_64_with_seed(&bytes[..length - 8], seed);
    let agrees = is_foot(foot, head.sequence) && Fields(&foot[FOOT_BYTES - 8..]).u64() == Some(check);
    agrees.then_some((head, rows))
}

/// Whether these bytes are the foot of a segment of this sequence.
pub(crate) fn is_foot(foot: &[u8], sequence: u64) -> bool {
    let mut fields = Fields(foot);
    fields.take(8) == Some(FOOT_MAGIC) && fields.u64() == Some(sequence)
}

/// Bytes for objects in a segment; each takes what [`cost`] says.
pub(crate) fn room(segment_bytes: u32) -> usize {
    // The table may have to be filled up to where the first frame begins.
    usize::try_from(segment_bytes).expect("a segment is short") - HEAD_BYTES - FOOT_BYTES - ALIGN_BYTES
}

/// What an object with a frame of this length takes of [`room`].
pub(crate) fn cost(frame_bytes: usize) -> usize {
    frame_bytes + ROW_BYTES
}

/// Where the first frame begins.
fn table_end(objects: usize) -> usize {
    (HEAD_BYTES + objects * ROW_BYTES).next_multiple_of(ALIGN_BYTES)
}

fn rows_bytes(objects: u32) -> usize {
    usize::try_from(objects).expect("32 bits fit") * ROW_BYTES
}

const MAGIC: &[u8; 8] = b"weftseg\n";
const FOOT_MAGIC: &[u8; 8] = b"weftend\n";
const HEAD_BYTES: usize = 64;
/// Fields of the head; what follows up to the checksum is zero.
const FIELDS_BYTES: usize = 32;
/// Where the table's part of the checksum begins.
const CHECKED: usize = HEAD_BYTES;
const ROW_BYTES: usize = 40;
/// The flag of a row: see [`Row::begins`].
const BEGINS: u32 = 1;
/// Length of the foot: magic, sequence, zeros, checksum.
pub(crate) const FOOT_BYTES: usize = 32;
/// Most objects of a segment: as many empty ones as the largest has room for.
const OBJECTS_MAX: u32 = (256 << 10) / (ROW_BYTES + ALIGN_BYTES) as u32;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::frame::Frame;

    const BYTES: u32 = 64 << 10;

    fn objects() -> impl Strategy<Value = Vec<(Vec<u8>, Vec<u8>)>> {
        let object = (proptest::collection::vec(any::<u8>(), 1..20), proptest::collection::vec(any::<u8>(), 0..2000));
        proptest::collection::vec(object, 0..24)
    }

    fn written(objects: &[(Vec<u8>, Vec<u8>)]) -> (Vec<u8>, SegmentHead, Vec<Extent>) {
        let entry = |(key, content): &(Vec<u8>, Vec<u8>), hash| (hash, key.clone(), content.clone());
        let owned: Vec<_> = objects.iter().zip(1u128..).map(|(object, hash)| entry(object, hash)).collect();
        let entries: Vec<Entry<'_>> = owned
            .iter()
            .map(|(hash, key, content)| Entry {
                hash: *hash,
                parts: Parts { key, attributes: b"a", content },
                begins: hash % 3 == 1,
            })
            .collect();
        // What the buffer held before must not matter.
        let mut bytes = vec![0xee; BYTES as usize];
        let (head, extents) = encode(3, 55, 7, &entries, &mut bytes);
        bytes.truncate(head.length as usize);
        (bytes, head, extents)
    }

    proptest! {
        #[test]
        fn a_segment_comes_back_and_any_flipped_bit_voids_it(objects in objects(), bit: usize) {
            let (mut bytes, head, extents) = written(&objects);
            let (found, rows) = decode_whole(&bytes, BYTES, 7).unwrap();
            prop_assert_eq!(found, head);
            for ((row, extent), (key, content)) in rows.iter().zip(&extents).zip(&objects) {
                prop_assert_eq!(row.extent(), *extent);
                prop_assert_eq!(row.begins(), row.hash % 3 == 1);
                let frame = &bytes[extent.offset as usize..][..extent.length as usize];
                let parts = Frame::decode(frame, 55, 7).unwrap();
                prop_assert_eq!(&frame[parts.key], &key[..]);
                prop_assert_eq!(&frame[parts.content], &content[..]);
            }
            prop_assert_eq!(rows.len(), objects.len());
            let bit = bit % (bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(decode_whole(&bytes, BYTES, 7).is_none());
        }

        #[test]
        fn any_torn_write_over_another_segment_is_void(objects in objects(), cut: usize) {
            let (new, _, _) = written(&objects);
            let (old, _, _) = written(&[(vec![1], vec![2; 30_000])]);
            let blocks = new.len() / 512;
            let cut = (1 + cut % (blocks - 1)) * 512;
            let mut torn = old.clone();
            torn.resize(new.len().max(old.len()), 0);
            torn[..cut].copy_from_slice(&new[..cut]);
            if torn[..new.len()] != new[..] {
                let found = decode_whole(&torn, BYTES, 7);
                prop_assert!(found.is_none_or(|_| torn[..old.len()] == old[..]));
            }
        }

        #[test]
        fn any_bytes_are_refused_or_lie_within(mut bytes in proptest::collection::vec(any::<u8>(), 0..5000), fix: bool) {
            if fix && bytes.len() > 64 {
                bytes[..8].copy_from_slice(MAGIC);
                bytes[12] %= 30;
                bytes[13..16].fill(0);
                bytes[24..28].copy_from_slice(&4096u32.to_le_bytes());
                if let Some(head) = SegmentHead::peek(&bytes, BYTES).filter(|head| head.table_end() <= bytes.len()) {
                    let check = xxh3_64_with_seed(&bytes[CHECKED..head.table_end()], 7)
                        ^ xxh3_64_with_seed(&bytes[..FIELDS_BYTES], 7);
                    bytes[HEAD_BYTES - 8..HEAD_BYTES].copy_from_slice(&check.to_le_bytes());
                }
            }
            if let Some((head, rows)) = SegmentHead::decode(&bytes, BYTES, 7) {
                prop_assert!(rows.iter().all(|row| row.offset + row.extent().length <= head.length));
            }
            let _ = decode_whole(&bytes, BYTES, 7);
        }
    }

    #[test]
    fn as_much_as_the_room_allows_fits_whatever_the_lengths() {
        for content in [0usize, 1, 31, 500, 4000, 32_000] {
            let parts = Parts { key: b"k", attributes: b"", content: &vec![5; content] };
            let count = room(BYTES) / cost(parts.frame_bytes());
            let entries = vec![Entry { hash: 1, parts, begins: false }; count];
            let mut bytes = vec![0; BYTES as usize];
            let (head, _) = encode(0, 1, 0, &entries, &mut bytes);
            assert!(head.length <= BYTES);
            assert!(decode_whole(&bytes, BYTES, 0).is_some());
        }
    }
}
