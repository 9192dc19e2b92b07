//! A checkpoint: the index and the segments' records as they were, so that a start reads them and not the segments.
//!
//! There are two, written in turn, so that one is whole while the other is being written. A checkpoint is *fuzzy*: it
//! is copied while objects come and go. It names a position of the log from before the copy began; replaying the log
//! from there sets right whatever the copy saw too early or too late.

use std::io;

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::device::{Aligned, BLOCK_BYTES, Device};
use crate::fields::{Fields, Packed};
use crate::index::{Index, Slot};
use crate::log::Position;
use crate::marks::Marks;
use crate::superblock::Superblock;

/// The head of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointHead {
    uuid: u128,
    /// Later ones are greater.
    pub(crate) number: u64,
    /// Where a replay begins.
    pub(crate) begin: Position,
    segments: u32,
    /// Objects of each shard of the index.
    shards: Vec<u32>,
    /// XXH3-64 of the body.
    body: u64,
}

/// A segment's row: its sequence, what is known of its use, and where something begins in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentRow {
    pub(crate) sequence: u64,
    pub(crate) record: u8,
    pub(crate) marks: Marks,
}

/// What a checkpoint held.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) head: CheckpointHead,
    pub(crate) index: Index,
    pub(crate) rows: Vec<SegmentRow>,
}

/// Writes a checkpoint and syncs. `row` tells of each segment.
///
/// # Errors
/// `StorageFull` when more objects came than it has room for, and what the device says.
pub(crate) fn write(
    device: &dyn Device,
    block: &Superblock,
    number: u64,
    begin: Position,
    index: &Index,
    row: impl Fn(u32) -> SegmentRow,
) -> io::Result<()> {
    let slot = u8::try_from(number % 2).expect("0 or 1");
    let start = block.checkpoint_start(slot);
    let mut body = BodyWriter::new(device, start + BLOCK_BYTES as u64, start + block.checkpoint_bytes());
    let mut rows = Packed::default();
    for segment in 0..block.segments {
        let SegmentRow { sequence, record, marks } = row(segment);
        rows.u64(sequence).u8(record).u8(0).u16(marks.0).u32(0);
        if rows.0.len() >= CHUNK_BYTES {
            body.put(&rows.0)?;
            rows.0.clear();
        }
    }
    body.put(&rows.0)?;
    let mut shards = Vec::with_capacity(index.shard_count());
    let mut slots = Vec::new();
    for shard in 0..index.shard_count() {
        slots.clear();
        shards.push(index.shard_bytes(shard, &mut slots));
        body.put(&slots)?;
    }
    let body = body.finish()?;
    let head = CheckpointHead { uuid: block.uuid, number, begin, segments: block.segments, shards, body };
    let mut bytes = Aligned::zeroed(BLOCK_BYTES);
    bytes.copy_from_slice(&head.encode());
    device.write_at(&bytes, start)?;
    device.sync()
}

/// Writes the checkpoints of a new volume: one that is empty and one that is void, whatever was there before.
///
/// # Errors
/// What the device says.
pub(crate) fn write_first(device: &dyn Device, block: &Superblock) -> io::Result<()> {
    device.write_at(&Aligned::zeroed(BLOCK_BYTES), block.checkpoint_start(1))?;
    write(device, block, 0, Position::default(), &Index::new(), |_| SegmentRow::default())
}

/// The heads that are sound, the newest first.
///
/// # Errors
/// What the device says.
pub(crate) fn heads(device: &dyn Device, block: &Superblock) -> io::Result<Vec<CheckpointHead>> {
    let mut heads = Vec::new();
    for slot in 0..2 {
        let mut bytes = Aligned::zeroed(BLOCK_BYTES);
        device.read_at(&mut bytes, block.checkpoint_start(slot))?;
        heads.extend(CheckpointHead::decode(&bytes, block).filter(|head| head.number % 2 == u64::from(slot)));
    }
    heads.sort_by_key(|head| std::cmp::Reverse(head.number));
    Ok(heads)
}

/// The whole of a checkpoint; `None` when its body is not what was written.
///
/// # Errors
/// What the device says.
pub(crate) fn load(device: &dyn Device, block: &Superblock, head: CheckpointHead) -> io::Result<Option<Loaded>> {
    let start = block.checkpoint_start(u8::try_from(head.number % 2).expect("0 or 1"));
    let objects: u64 = head.shards.iter().map(|count| u64::from(*count)).sum();
    let length = (u64::from(block.segments) + objects) * ROW_BYTES;
    let mut body = BodyReader::new(device, start + BLOCK_BYTES as u64, length);
    let mut rows = Vec::with_capacity(usize::try_from(block.segments).expect("memory"));
    let mut is_sound = true;
    for _ in 0..block.segments {
        let mut fields = Fields(body.row()?);
        let (sequence, record, _) = (fields.u64(), fields.u8(), fields.u8());
        let (sequence, record) = (sequence.unwrap_or(0), record.unwrap_or(0));
        rows.push(SegmentRow { sequence, record, marks: Marks(fields.u16().unwrap_or(0)) });
    }
    let index = Index::new();
    for (shard, count) in head.shards.iter().enumerate() {
        index.prepare(shard, *count);
        for _ in 0..*count {
            let row = body.row()?.try_into().expect("a row's length");
            match Slot::of_bytes(row, block.segments, block.segment_bytes) {
                Some((hash, place)) => {
                    index.insert(hash, place);
                }
                None => is_sound = false,
            }
        }
    }
    let is_sound = is_sound && body.finish() == head.body && index.len() == objects;
    Ok(is_sound.then_some(Loaded { head, index, rows }))
}

impl CheckpointHead {
    fn encode(&self) -> Vec<u8> {
        let mut packed = Packed::default();
        packed.bytes(MAGIC).u128(self.uuid).u64(self.number);
        packed.u64(self.begin.offset).u64(self.begin.number).u64(self.begin.chain);
        packed.u32(self.segments).u32(u32::try_from(self.shards.len()).expect("few shards")).u64(self.body);
        for count in &self.shards {
            packed.u32(*count);
        }
        packed.0.resize(BLOCK_BYTES - 8, 0);
        let check = xxh3_64(&packed.0);
        packed.u64(check);
        packed.0
    }

    fn decode(bytes: &[u8], block: &Superblock) -> Option<CheckpointHead> {
        let body = bytes.get(..BLOCK_BYTES - 8)?;
        let mut fields = Fields(body);
        if fields.take(8)? != MAGIC || Fields(&bytes[BLOCK_BYTES - 8..]).u64()? != xxh3_64(body) {
            return None;
        }
        let (uuid, number) = (fields.u128()?, fields.u64()?);
        let begin = Position { offset: fields.u64()?, number: fields.u64()?, chain: fields.u64()? };
        let (segments, shards) = (fields.u32()?, fields.u32()?);
        let sum = fields.u64()?;
        let shards = (0..shards).map(|_| fields.u32()).collect::<Option<Vec<u32>>>()?;
        let objects: u64 = shards.iter().map(|count| u64::from(*count)).sum();
        let room = block.checkpoint_bytes() - BLOCK_BYTES as u64;
        let fits = uuid == block.uuid
            && segments == block.segments
            && shards.len() == Index::new().shard_count()
            && begin.offset < block.log_bytes
            && begin.offset.is_multiple_of(BLOCK_BYTES as u64)
            && (u64::from(segments) + objects) * ROW_BYTES <= room;
        fits.then_some(CheckpointHead { uuid, number, begin, segments, shards, body: sum })
    }
}

/// Writes the body in large pieces.
struct BodyWriter<'d> {
    device: &'d dyn Device,
    at: u64,
    end: u64,
    chunk: Aligned,
    filled: usize,
    hash: Xxh3,
}

impl<'d> BodyWriter<'d> {
    fn new(device: &'d dyn Device, at: u64, end: u64) -> BodyWriter<'d> {
        BodyWriter { device, at, end, chunk: Aligned::zeroed(CHUNK_BYTES), filled: 0, hash: Xxh3::new() }
    }

    fn put(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(CHUNK_BYTES - self.filled));
            self.chunk[self.filled..self.filled + now.len()].copy_from_slice(now);
            self.filled += now.len();
            bytes = later;
            if self.filled == CHUNK_BYTES {
                self.write()?;
            }
        }
        Ok(())
    }

    fn finish(mut self) -> io::Result<u64> {
        self.write()?;
        Ok(self.hash.digest())
    }

    fn write(&mut self) -> io::Result<()> {
        let length = self.filled.next_multiple_of(BLOCK_BYTES);
        if self.at + length as u64 > self.end {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.chunk[self.filled..length].fill(0);
        self.device.write_at(&self.chunk[..length], self.at)?;
        self.at += length as u64;
        self.filled = 0;
        Ok(())
    }
}

/// Reads the body in large pieces.
struct BodyReader<'d> {
    device: &'d dyn Device,
    at: u64,
    /// Bytes that have not been read.
    rest: u64,
    chunk: Aligned,
    from: usize,
    hash: Xxh3,
}

impl<'d> BodyReader<'d> {
    fn new(device: &'d dyn Device, at: u64, length: u64) -> BodyReader<'d> {
        let mut chunk = Aligned::zeroed(CHUNK_BYTES);
        chunk.set_length(0);
        BodyReader { device, at, rest: length, chunk, from: 0, hash: Xxh3::new() }
    }

    fn row(&mut self) -> io::Result<&[u8]> {
        if self.from == self.chunk.len() {
            let length = usize::try_from(self.rest).unwrap_or(usize::MAX).min(CHUNK_BYTES);
            self.chunk.set_length(length.next_multiple_of(BLOCK_BYTES));
            self.device.read_at(&mut self.chunk, self.at)?;
            self.at += self.chunk.len() as u64;
            self.chunk.set_length(length);
            self.hash.update(&self.chunk);
            self.rest -= length as u64;
            self.from = 0;
        }
        let row = self.from..self.from + ROW_BYTES as usize;
        self.from = row.end;
        // Chunks are multiples of a row.
        self.chunk.get(row).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn finish(self) -> u64 {
        self.hash.digest()
    }
}

const MAGIC: &[u8; 8] = b"weftchk\n";
const ROW_BYTES: u64 = 16;
const CHUNK_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::device::MemoryDevice;
    use crate::index::Place;
    use crate::segment::Extent;
    use crate::superblock::Shape;

    fn block() -> Superblock {
        let shape = Shape { segment_bytes: 64 << 10, objects_max: Some(100_000), uuid: None };
        Superblock::of_shape(&shape, 16 << 20, "test", |salt| salt).unwrap()
    }

    fn filled(objects: u64) -> Index {
        let index = Index::new();
        for number in 0..objects {
            let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            index.insert(hash, Place::new((number % 8) as u32, Extent { offset: 64, length: 128 }));
        }
        index
    }

    fn row(segment: u32) -> SegmentRow {
        SegmentRow { sequence: u64::from(segment) << 32, record: segment as u8, marks: Marks(segment as u16 ^ 0x5555) }
    }

    #[test]
    fn a_checkpoint_comes_back_and_the_newer_one_first() {
        let (device, block) = (MemoryDevice::new(16 << 20), block());
        let begin = Position { offset: 4096, number: 3, chain: 99 };
        write(&device, &block, 6, Position::default(), &filled(10), row).unwrap();
        write(&device, &block, 7, begin, &filled(90_000), row).unwrap();
        let heads = heads(&device, &block).unwrap();
        assert_eq!(heads.iter().map(|head| head.number).collect::<Vec<_>>(), [7, 6]);
        let loaded = load(&device, &block, heads[0].clone()).unwrap().unwrap();
        assert_eq!((loaded.head.begin, loaded.index.len()), (begin, 90_000));
        assert_eq!(loaded.rows, (0..block.segments).map(row).collect::<Vec<_>>());
        let (all, back) = (filled(90_000), loaded.index);
        for shard in 0..all.shard_count() {
            let (mut all, mut back) = (all.shard_slots(shard), back.shard_slots(shard));
            all.sort_by_key(|(hash, _)| *hash);
            back.sort_by_key(|(hash, _)| *hash);
            assert_eq!(all, back);
        }
    }

    #[test]
    fn more_objects_than_it_has_room_for_are_refused() {
        let (device, block) = (MemoryDevice::new(16 << 20), block());
        let error = write(&device, &block, 1, Position::default(), &filled(110_000), row).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }

    proptest! {
        #[test]
        fn any_flipped_bit_voids_it(bit in 0u64..(4096 + 9000) * 8) {
            let (device, block) = (MemoryDevice::new(16 << 20), block());
            write(&device, &block, 2, Position::default(), &filled(1000), row).unwrap();
            let used = (4096 + (u64::from(block.segments) + 1000) * 16) * 8;
            device.flip(block.checkpoint_start(0) * 8 + bit % used);
            let heads = heads(&device, &block).unwrap();
            let loaded = heads.into_iter().find_map(|head| load(&device, &block, head).unwrap());
            prop_assert!(loaded.is_none());
        }
    }
}
