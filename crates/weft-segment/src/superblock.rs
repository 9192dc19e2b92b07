//! What a volume is and where its parts lie; kept twice at its beginning.

use std::io;

use xxhash_rust::xxh3::xxh3_64;

use crate::device::{Aligned, BLOCK_BYTES, Device};
use crate::fields::{Fields, Packed};
use crate::{Result, SegmentError};

/// The shape of a new volume.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Length of a segment: 64, 128 or 256 KiB.
    pub segment_bytes: u32,
    /// Most objects that it may hold; `None` for one for every 4 KiB. Checkpoints have room for that many.
    pub objects_max: Option<u64>,
    /// Its identity; `None` for a random one.
    pub uuid: Option<u128>,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape { segment_bytes: 128 << 10, objects_max: None, uuid: None }
    }
}

/// What both superblocks say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) uuid: u128,
    /// Counts the lives of the volume: one more each time that it is opened.
    pub(crate) epoch: u64,
    /// Keeps outsiders from choosing keys whose hashes collide.
    pub(crate) seed: u64,
    pub(crate) segment_bytes: u32,
    pub(crate) segments: u32,
    pub(crate) objects_max: u64,
    pub(crate) log_bytes: u64,
}

impl Superblock {
    /// The largest volume of this shape on a device of `length` bytes.
    pub(crate) fn of_shape(
        shape: &Shape,
        length: u64,
        volume: &str,
        random: impl Fn(u64) -> u64,
    ) -> Result<Superblock> {
        let bad = |what| SegmentError::BadShape { volume: volume.to_owned(), what };
        if !matches!(shape.segment_bytes, SEGMENT_BYTES_64K | SEGMENT_BYTES_128K | SEGMENT_BYTES_256K) {
            return Err(bad("a segment has 64, 128 or 256 KiB"));
        }
        let segment = u64::from(shape.segment_bytes);
        let log_bytes = (length / LOG_SHARE / segment * segment).clamp(segment * LOG_SEGMENTS_MIN, LOG_BYTES_MAX);
        let objects_max = shape.objects_max.unwrap_or(length / BYTES_PER_OBJECT).clamp(1, OBJECTS_MAX);
        let made = u128::from(random(0)) << 64 | u128::from(random(1));
        let mut block = Superblock {
            uuid: shape.uuid.unwrap_or(made),
            epoch: 0,
            seed: random(2),
            segment_bytes: shape.segment_bytes,
            segments: u32::try_from((length / segment).min(SEGMENTS_MAX.into())).expect("limited"),
            objects_max,
            log_bytes,
        };
        let before = block.first_segment() - 2 * block.checkpoint_bytes();
        // Each segment needs its own bytes and its row in both checkpoints.
        let around = before + 2 * (block.checkpoint_bytes() - block.table_bytes()) + 4 * BLOCK_BYTES as u64;
        let fitting = length.saturating_sub(around) / (segment + 2 * TABLE_ROW_BYTES);
        block.segments = block.segments.min(u32::try_from(fitting).unwrap_or(u32::MAX));
        if block.segments < SEGMENTS_MIN {
            return Err(bad("too small for 64 segments, the log and two checkpoints"));
        }
        Ok(block)
    }

    /// Reads both and takes the newer one that is sound; tells where that one lies.
    pub(crate) fn read(device: &dyn Device) -> Result<(Superblock, u64)> {
        let volume = device.name();
        let length = device.length().map_err(|source| SegmentError::Io { volume: volume.clone(), source })?;
        let mut newest: Option<(Superblock, u64)> = None;
        let mut other_format = None;
        for at in [0, BLOCK_BYTES as u64] {
            let mut bytes = Aligned::zeroed(BLOCK_BYTES);
            match device.read_at(&mut bytes, at) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => continue,
                Err(source) => return Err(SegmentError::Io { volume, source }),
            }
            match Superblock::decode(&bytes, length) {
                Ok(block) if newest.is_none_or(|(other, _)| other.epoch < block.epoch) => newest = Some((block, at)),
                Ok(_) | Err(Unreadable::Damaged) => {}
                Err(Unreadable::OtherFormat(found)) => other_format = Some(found),
            }
        }
        match (newest, other_format) {
            (_, Some(found)) => Err(SegmentError::OtherFormat { volume, found, known: FORMAT }),
            (Some(newest), None) => Ok(newest),
            (None, None) => Err(SegmentError::NotAVolume { volume }),
        }
    }

    /// Writes both, one after the other; the one at `last` after the other, so that one is sound at any moment.
    pub(crate) fn write(&self, device: &dyn Device, last: u64) -> io::Result<()> {
        let mut bytes = Aligned::zeroed(BLOCK_BYTES);
        bytes.copy_from_slice(&self.encode());
        for at in [BLOCK_BYTES as u64 - last, last] {
            device.write_at(&bytes, at)?;
            device.sync()?;
        }
        Ok(())
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut packed = Packed::default();
        packed.bytes(MAGIC).u32(FORMAT).u32(self.segment_bytes).u128(self.uuid).u64(self.epoch).u64(self.seed);
        packed.u32(self.segments).u32(0).u64(self.objects_max).u64(self.log_bytes);
        packed.0.resize(BLOCK_BYTES - 8, 0);
        let check = xxh3_64(&packed.0);
        packed.u64(check);
        packed.0
    }

    pub(crate) fn decode(bytes: &[u8], device_length: u64) -> Result<Superblock, Unreadable> {
        let body = bytes.get(..BLOCK_BYTES - 8).ok_or(Unreadable::Damaged)?;
        let check = Fields(&bytes[BLOCK_BYTES - 8..]).u64();
        let mut fields = Fields(body);
        if fields.take(8) != Some(MAGIC) || check != Some(xxh3_64(body)) {
            return Err(Unreadable::Damaged);
        }
        let format = fields.u32().ok_or(Unreadable::Damaged)?;
        if format != FORMAT {
            return Err(Unreadable::OtherFormat(format));
        }
        let block = Superblock::fields(fields).ok_or(Unreadable::Damaged)?;
        if block.is_sound(device_length) { Ok(block) } else { Err(Unreadable::Damaged) }
    }

    fn fields(mut fields: Fields<'_>) -> Option<Superblock> {
        let segment_bytes = fields.u32()?;
        let uuid = fields.u128()?;
        let (epoch, seed) = (fields.u64()?, fields.u64()?);
        let (segments, _) = (fields.u32()?, fields.u32()?);
        let (objects_max, log_bytes) = (fields.u64()?, fields.u64()?);
        Some(Superblock { uuid, epoch, seed, segment_bytes, segments, objects_max, log_bytes })
    }

    /// Whether its parts lie within the device.
    fn is_sound(&self, device_length: u64) -> bool {
        let segment = u64::from(self.segment_bytes);
        matches!(self.segment_bytes, SEGMENT_BYTES_64K | SEGMENT_BYTES_128K | SEGMENT_BYTES_256K)
            && (SEGMENTS_MIN..=SEGMENTS_MAX).contains(&self.segments)
            && (1..=OBJECTS_MAX).contains(&self.objects_max)
            && (segment * LOG_SEGMENTS_MIN..=LOG_BYTES_MAX).contains(&self.log_bytes)
            && self.log_bytes.is_multiple_of(BLOCK_BYTES as u64)
            && self.epoch < u64::from(u32::MAX)
            && self.end() <= device_length
    }

    /// Where the log begins.
    pub(crate) fn log_start(&self) -> u64 {
        LOG_START
    }

    /// Where a checkpoint begins: there are two.
    pub(crate) fn checkpoint_start(&self, slot: u8) -> u64 {
        LOG_START + self.log_bytes + u64::from(slot & 1) * self.checkpoint_bytes()
    }

    /// Room of one checkpoint: a head, a row for each segment, a slot for each object.
    pub(crate) fn checkpoint_bytes(&self) -> u64 {
        let slots = (self.objects_max + SLOTS_SPARE) * SLOT_BYTES;
        blocks(BLOCK_BYTES as u64 + u64::from(self.segments) * TABLE_ROW_BYTES) + blocks(slots)
    }

    /// Where the first segment begins.
    pub(crate) fn first_segment(&self) -> u64 {
        LOG_START + self.log_bytes + 2 * self.checkpoint_bytes()
    }

    /// Where a segment begins.
    pub(crate) fn segment_start(&self, number: u32) -> u64 {
        self.first_segment() + u64::from(number) * u64::from(self.segment_bytes)
    }

    fn table_bytes(&self) -> u64 {
        u64::from(self.segments) * TABLE_ROW_BYTES
    }

    fn end(&self) -> u64 {
        self.segment_start(self.segments)
    }
}

/// Why a superblock cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    Damaged,
    OtherFormat(u32),
}

fn blocks(bytes: u64) -> u64 {
    bytes.next_multiple_of(BLOCK_BYTES as u64)
}

/// The format of this program; docs/formats/segments.md draws it.
pub(crate) const FORMAT: u32 = 1;
const MAGIC: &[u8; 8] = b"weftvol\n";
const LOG_START: u64 = 2 * BLOCK_BYTES as u64;

const SEGMENT_BYTES_64K: u32 = 64 << 10;
const SEGMENT_BYTES_128K: u32 = 128 << 10;
const SEGMENT_BYTES_256K: u32 = 256 << 10;
/// So that the group buffer is a fourth of it at most.
const SEGMENTS_MIN: u32 = 64;
/// What a place in the index can name.
const SEGMENTS_MAX: u32 = 1 << 26;
const OBJECTS_MAX: u64 = 1 << 32;
/// The log is this part of the device.
const LOG_SHARE: u64 = 64;
const LOG_SEGMENTS_MIN: u64 = 16;
const LOG_BYTES_MAX: u64 = 256 << 20;
/// One object for that many bytes, unless said otherwise.
const BYTES_PER_OBJECT: u64 = 4096;
/// Bytes of a segment's row in a checkpoint.
pub(crate) const TABLE_ROW_BYTES: u64 = 16;
/// Bytes of an object's slot in a checkpoint.
pub(crate) const SLOT_BYTES: u64 = 16;
/// A checkpoint is made while objects come and go.
const SLOTS_SPARE: u64 = 4096;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::device::MemoryDevice;

    fn block() -> Superblock {
        Superblock::of_shape(&Shape::default(), 64 << 20, "test", |salt| salt + 7).unwrap()
    }

    #[test]
    fn parts_lie_one_after_another_within_the_device() {
        for length in [48 << 20, 64 << 20, (1 << 30) + 12345, 40 << 30] {
            for segment_bytes in [SEGMENT_BYTES_64K, SEGMENT_BYTES_128K, SEGMENT_BYTES_256K] {
                let shape = Shape { segment_bytes, ..Shape::default() };
                let block = Superblock::of_shape(&shape, length, "test", |salt| salt).unwrap();
                assert!(block.is_sound(length), "{block:?}");
                assert!(block.checkpoint_start(1) >= block.checkpoint_start(0) + block.checkpoint_bytes());
                assert!(block.first_segment() >= block.checkpoint_start(1) + block.checkpoint_bytes());
                let lost = length - block.end();
                assert!(lost < 3 * u64::from(segment_bytes), "{lost} bytes are of no use: {block:?}");
            }
        }
    }

    #[test]
    fn a_shape_that_cannot_be_is_refused_with_a_reason() {
        let make = |segment_bytes, length| {
            Superblock::of_shape(&Shape { segment_bytes, ..Shape::default() }, length, "/v", |salt| salt)
        };
        assert!(make(100, 1 << 30).unwrap_err().to_string().starts_with("/v: a segment has 64"));
        assert!(make(SEGMENT_BYTES_64K, 1 << 20).unwrap_err().to_string().starts_with("/v: too small"));
    }

    #[test]
    fn one_torn_superblock_is_no_harm_and_the_newer_one_counts() {
        let device = MemoryDevice::new(64 << 20);
        let old = block();
        old.write(&device, 0).unwrap();
        let new = Superblock { epoch: 5, ..old };
        device.write_at(&new.encode(), 0).unwrap();
        assert_eq!(Superblock::read(&device).unwrap(), (new, 0));
        device.flip(8 * 100);
        assert_eq!(Superblock::read(&device).unwrap(), (old, 4096));
        device.flip(8 * (4096 + 100));
        assert!(matches!(Superblock::read(&device), Err(SegmentError::NotAVolume { .. })));
    }

    #[test]
    fn another_format_is_named() {
        let device = MemoryDevice::new(64 << 20);
        let mut bytes = block().encode();
        bytes[8] = 9;
        let check = xxh3_64(&bytes[..BLOCK_BYTES - 8]);
        bytes[BLOCK_BYTES - 8..].copy_from_slice(&check.to_le_bytes());
        device.write_at(&bytes, 0).unwrap();
        let said = Superblock::read(&device).unwrap_err().to_string();
        assert!(said.contains("format 9") && said.contains("knows 1"), "{said}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_sound(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), fix: bool) {
            bytes.resize(BLOCK_BYTES, 0);
            if fix {
                // Past the checksum, so that the fields themselves are tried.
                bytes[..8].copy_from_slice(MAGIC);
                bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
                let check = xxh3_64(&bytes[..BLOCK_BYTES - 8]);
                bytes[BLOCK_BYTES - 8..].copy_from_slice(&check.to_le_bytes());
            }
            if let Ok(block) = Superblock::decode(&bytes, 1 << 40) {
                prop_assert!(block.end() <= 1 << 40);
            }
        }
    }
}
