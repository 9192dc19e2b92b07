//! An object as it lies in a segment: a head, the full key, attributes and content, one after another, so that one
//! read brings all that is needed to know that it is the right one and undamaged.

use std::ops::Range;

use xxhash_rust::xxh3::Xxh3;

use crate::fields::{Fields, Packed};

/// What a frame is made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts<'p> {
    pub(crate) key: &'p [u8],
    pub(crate) attributes: &'p [u8],
    pub(crate) content: &'p [u8],
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHead {
    pub(crate) key_bytes: u16,
    pub(crate) attributes_bytes: u16,
    pub(crate) content_bytes: u32,
    pub(crate) check: u64,
}

/// Where the parts lie within a frame that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) key: Range<usize>,
    pub(crate) attributes: Range<usize>,
    pub(crate) content: Range<usize>,
}

impl Parts<'_> {
    /// Length of the frame, filled up to [`ALIGN_BYTES`].
    pub(crate) fn frame_bytes(&self) -> usize {
        frame_bytes(self.key.len(), self.attributes.len(), self.content.len())
    }

    /// Writes the frame to the beginning of `out` and tells its checksum.
    pub(crate) fn encode(&self, sequence: u64, seed: u64, out: &mut [u8]) -> u64 {
        let mut head = Packed::default();
        let lengths = "lengths are checked when an object is put";
        head.u32(MAGIC).u32(u32::try_from(self.content.len()).expect(lengths));
        head.u16(u16::try_from(self.key.len()).expect(lengths));
        head.u16(u16::try_from(self.attributes.len()).expect(lengths)).u32(0).u64(sequence);
        let mut hash = Xxh3::with_seed(seed);
        for part in [&head.0[..], self.key, self.attributes, self.content] {
            hash.update(part);
        }
        let check = hash.digest();
        head.u64(check);
        let mut at = 0;
        for part in [&head.0[..], self.key, self.attributes, self.content] {
            out[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        check
    }
}

impl Frame {
    /// Checks the frame that `bytes` begin with: that it is of this sequence and undamaged.
    pub(crate) fn decode(bytes: &[u8], sequence: u64, seed: u64) -> Option<Frame> {
        let mut fields = Fields(bytes);
        let head = FrameHead::decode(&mut fields, sequence)?;
        let key = HEAD_BYTES..HEAD_BYTES + usize::from(head.key_bytes);
        let attributes = key.end..key.end + usize::from(head.attributes_bytes);
        let content = attributes.end..attributes.end + usize::try_from(head.content_bytes).ok()?;
        let body = bytes.get(HEAD_BYTES..content.end)?;
        let mut hash = Xxh3::with_seed(seed);
        hash.update(&bytes[..HEAD_BYTES - 8]);
        hash.update(body);
        (hash.digest() == head.check).then_some(Frame { key, attributes, content })
    }
}

impl FrameHead {
    fn decode(fields: &mut Fields<'_>, sequence: u64) -> Option<FrameHead> {
        let (magic, content_bytes) = (fields.u32()?, fields.u32()?);
        let (key_bytes, attributes_bytes, _) = (fields.u16()?, fields.u16()?, fields.u32()?);
        let (found, check) = (fields.u64()?, fields.u64()?);
        let fits = magic == MAGIC && found == sequence;
        fits.then_some(FrameHead { key_bytes, attributes_bytes, content_bytes, check })
    }
}

/// The key and the length of the frame that `bytes` seem to begin with, of this sequence; it is all there. Nothing is
/// checked: bytes of an object may look like that as well.
pub(crate) fn peek(bytes: &[u8], sequence: u64) -> Option<(&[u8], usize)> {
    let head = FrameHead::decode(&mut Fields(bytes), sequence)?;
    let (key, attributes) = (usize::from(head.key_bytes), usize::from(head.attributes_bytes));
    let length = frame_bytes(key, attributes, usize::try_from(head.content_bytes).ok()?);
    (length <= bytes.len()).then(|| (&bytes[HEAD_BYTES..HEAD_BYTES + key], length))
}

/// Length of a frame with parts of these lengths, filled up to [`ALIGN_BYTES`].
pub(crate) fn frame_bytes(key: usize, attributes: usize, content: usize) -> usize {
    (HEAD_BYTES + key + attributes + content).next_multiple_of(ALIGN_BYTES)
}

/// Frames begin at multiples of this, in bytes.
pub(crate) const ALIGN_BYTES: usize = 64;
/// Length of a frame's head.
pub(crate) const HEAD_BYTES: usize = 32;
const MAGIC: u32 = u32::from_le_bytes(*b"wfrm");

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_frame_comes_back_and_any_flipped_bit_is_seen(
            key in proptest::collection::vec(any::<u8>(), 1..40),
            attributes in proptest::collection::vec(any::<u8>(), 0..20),
            content in proptest::collection::vec(any::<u8>(), 0..300),
            bit: usize,
        ) {
            let parts = Parts { key: &key, attributes: &attributes, content: &content };
            let mut bytes = vec![0; parts.frame_bytes()];
            parts.encode(9, 77, &mut bytes);
            let frame = Frame::decode(&bytes, 9, 77).unwrap();
            prop_assert_eq!(&bytes[frame.key.clone()], &key[..]);
            prop_assert_eq!(&bytes[frame.attributes.clone()], &attributes[..]);
            prop_assert_eq!(&bytes[frame.content.clone()], &content[..]);
            prop_assert_eq!(Frame::decode(&bytes, 10, 77), None);
            prop_assert_eq!(Frame::decode(&bytes, 9, 78), None);
            let bit = bit % (frame.content.end * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Frame::decode(&bytes, 9, 77), None);
        }

        #[test]
        fn any_bytes_are_refused_or_lie_within(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if bytes.len() >= 24 {
                bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
                bytes[16..24].copy_from_slice(&3u64.to_le_bytes());
            }
            if let Some(frame) = Frame::decode(&bytes, 3, 0) {
                prop_assert!(frame.content.end <= bytes.len());
            }
        }
    }
}
