//! Records of the log: each sets something, so that replaying them in order over any later state ends in the same.

use std::ops::Range;

use crate::fields::{Fields, Packed};

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// An object that is not in a segment yet; the ranges are within the batch's records.
    Put { sequence: u64, pinned: bool, key: Range<usize>, attributes: Range<usize>, content: Range<usize> },
    /// Objects that are no more: whatever segments up to this sequence hold of them is dead.
    Removed { sequence: u64, hashes: Vec<u64> },
    /// A segment was written; the rows named hold what was replaced or removed meanwhile.
    Written { segment: u32, sequence: u64, friends: bool, dead: Vec<u16> },
    /// Objects were pinned, or are no longer.
    Pinned { pinned: bool, hashes: Vec<u64> },
}

/// Appends the record of an object's bytes.
pub(crate) fn put(out: &mut Vec<u8>, sequence: u64, pinned: bool, key: &[u8], attributes: &[u8], content: &[u8]) {
    let short = |bytes: &[u8]| u16::try_from(bytes.len()).expect("lengths are checked when an object is put");
    let mut packed = Packed(std::mem::take(out));
    packed.u8(PUT).u8(u8::from(pinned)).u16(short(key)).u16(short(attributes)).u16(0);
    packed.u32(u32::try_from(content.len()).expect("lengths are checked")).u32(0).u64(sequence);
    packed.bytes(key).bytes(attributes).bytes(content);
    *out = packed.0;
}

/// Appends the record of objects that are no more.
pub(crate) fn removed(out: &mut Vec<u8>, sequence: u64, hashes: &[u64]) {
    list(out, REMOVED, 0, sequence, hashes);
}

/// Appends the record of objects that were pinned or are no longer.
pub(crate) fn pinned(out: &mut Vec<u8>, pinned: bool, hashes: &[u64]) {
    list(out, PINNED, u8::from(pinned), 0, hashes);
}

/// Appends the record of a segment that was written.
pub(crate) fn written(out: &mut Vec<u8>, segment: u32, sequence: u64, friends: bool, dead: &[u16]) {
    let mut packed = Packed(std::mem::take(out));
    packed.u8(WRITTEN).u8(u8::from(friends)).u16(0).u32(segment).u64(sequence);
    packed.u32(u32::try_from(dead.len()).expect("a segment has few rows"));
    for row in dead {
        packed.u16(*row);
    }
    *out = packed.0;
}

fn list(out: &mut Vec<u8>, kind: u8, flag: u8, sequence: u64, hashes: &[u64]) {
    let mut packed = Packed(std::mem::take(out));
    packed.u8(kind).u8(flag).u16(0).u32(u32::try_from(hashes.len()).expect("lists are short")).u64(sequence);
    for hash in hashes {
        packed.u64(*hash);
    }
    *out = packed.0;
}

/// All records of a batch; `None` when they make no sense.
pub(crate) fn decode_all(bytes: &[u8]) -> Option<Vec<Record>> {
    let mut fields = Fields(bytes);
    let mut records = Vec::new();
    while !fields.0.is_empty() {
        records.push(decode(&mut fields, bytes.len())?);
    }
    Some(records)
}

fn decode(fields: &mut Fields<'_>, all: usize) -> Option<Record> {
    let (kind, flag) = (fields.u8()?, fields.u8()?);
    match kind {
        PUT => {
            let (key, attributes, _) = (fields.u16()?.into(), fields.u16()?.into(), fields.u16()?);
            let (content, _) = (usize::try_from(fields.u32()?).ok()?, fields.u32()?);
            let sequence = fields.u64()?;
            let mut part = |length: usize| {
                let start = all - fields.0.len();
                fields.take(length).map(|bytes| start..start + bytes.len())
            };
            let (key, attributes, content) = (part(key)?, part(attributes)?, part(content)?);
            Some(Record::Put { sequence, pinned: flag != 0, key, attributes, content })
        }
        WRITTEN => {
            let (_, segment, sequence) = (fields.u16()?, fields.u32()?, fields.u64()?);
            let count = usize::try_from(fields.u32()?).ok()?;
            let mut rows = Fields(fields.take(count.checked_mul(2)?)?);
            let dead = (0..count).map(|_| rows.u16()).collect::<Option<_>>()?;
            Some(Record::Written { segment, sequence, friends: flag != 0, dead })
        }
        REMOVED | PINNED => {
            let (_, count, sequence) = (fields.u16()?, usize::try_from(fields.u32()?).ok()?, fields.u64()?);
            let mut list = Fields(fields.take(count.checked_mul(8)?)?);
            let hashes = (0..count).map(|_| list.u64()).collect::<Option<_>>()?;
            Some(if kind == REMOVED {
                Record::Removed { sequence, hashes }
            } else {
                Record::Pinned { pinned: flag != 0, hashes }
            })
        }
        _ => None,
    }
}

const PUT: u8 = 1;
const REMOVED: u8 = 2;
const WRITTEN: u8 = 3;
const PINNED: u8 = 4;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn records_come_back_in_order() {
        let mut out = Vec::new();
        put(&mut out, 5, true, b"key", b"at", b"content");
        removed(&mut out, 6, &[1, 2]);
        written(&mut out, 9, 7, true, &[3]);
        pinned(&mut out, false, &[4]);
        let records = decode_all(&out).unwrap();
        let Record::Put { sequence: 5, pinned: true, key, attributes, content } = &records[0] else {
            panic!("{records:?}")
        };
        assert_eq!((&out[key.clone()], &out[attributes.clone()]), (&b"key"[..], &b"at"[..]));
        assert_eq!(&out[content.clone()], b"content");
        assert_eq!(records[1], Record::Removed { sequence: 6, hashes: vec![1, 2] });
        assert_eq!(records[2], Record::Written { segment: 9, sequence: 7, friends: true, dead: vec![3] });
        assert_eq!(records[3], Record::Pinned { pinned: false, hashes: vec![4] });
        assert_eq!(decode_all(&out[..out.len() - 1]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_lie_within(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), kind in 1u8..5) {
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            for record in decode_all(&bytes).into_iter().flatten() {
                if let Record::Put { content, .. } = record {
                    prop_assert!(content.end <= bytes.len());
                }
            }
        }
    }
}
