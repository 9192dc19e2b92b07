//! The log: a ring of blocks that tells what changed since the last checkpoint, in order.
//!
//! Records are written in *batches*. A batch begins at a block, carries its number and the checksum of the batch
//! before it, and is there whole or not at all. So the log is a chain: reading ends at the first batch that is not
//! the next one, and batches that a former life of the volume left behind never join it. A batch that would not fit
//! before the end of the ring begins at its start instead.

use std::collections::{HashMap, VecDeque};
use std::io;

use xxhash_rust::xxh3::Xxh3;

use crate::device::{Aligned, BLOCK_BYTES, Device};
use crate::fields::{Fields, Packed};
use crate::superblock::Superblock;

/// Where the next batch goes, and which one it has to follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    /// Offset in the ring.
    pub(crate) offset: u64,
    /// Number of the batch before; later ones are greater.
    pub(crate) number: u64,
    /// Checksum of the batch before.
    pub(crate) chain: u64,
}

/// Where the ring lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    start: u64,
    bytes: u64,
    seed: u64,
}

/// The end of the log that grows.
#[derive(Debug)]
pub(crate) struct Tail {
    ring: Ring,
    at: Position,
    /// Where a replay would begin.
    begin: Position,
    /// Bytes since the place from which a replay would begin.
    used: u64,
    /// Every batch since then: the first record of it, and the position before it.
    batches: VecDeque<(u64, Position)>,
    /// The last record that was written.
    written: u64,
}

impl Ring {
    pub(crate) fn of(block: &Superblock) -> Ring {
        Ring { start: block.log_start(), bytes: block.log_bytes, seed: block.seed }
    }

    /// Most bytes of records in one batch.
    pub(crate) fn batch_records_max(&self) -> usize {
        usize::try_from(self.bytes / BATCHES_MIN).expect("the ring is limited") - HEAD_BYTES
    }

    /// Bytes that callers may have in the log at once; the rest is for what a checkpoint itself has to write.
    pub(crate) fn open_to_callers(&self) -> u64 {
        self.bytes / 8 * 5
    }

    /// The batch after `position`: its records, and the position after it.
    pub(crate) fn next(&self, device: &dyn Device, position: Position) -> io::Result<Option<(Vec<u8>, Position)>> {
        for offset in [position.offset, 0] {
            if let Some((head, records)) = self.read(device, offset)?
                && head.follows(position)
            {
                let end = offset + batch_bytes(records.len());
                let after = Position { offset: end % self.bytes, number: head.number, chain: head.check };
                return Ok(Some((records, after)));
            }
        }
        Ok(None)
    }

    /// Where the batches lie that are newer than `number`, as far back from the newest one as the chain goes; and the
    /// position after it, unless there is none. For when the chain from a checkpoint on does not lead there.
    pub(crate) fn newest_chain(&self, device: &dyn Device, number: u64) -> io::Result<Option<(Vec<u64>, Position)>> {
        let mut found: HashMap<u64, (Head, u64)> = HashMap::new();
        self.for_each(device, &mut |head, offset| {
            found.insert(head.check, (head, offset));
        })?;
        let newest = found.values().max_by_key(|(head, _)| head.number).filter(|(head, _)| head.number > number);
        let Some((last, offset)) = newest.copied() else { return Ok(None) };
        let end = offset + batch_bytes(usize::try_from(last.length).unwrap_or(usize::MAX / 2));
        let position = Position { offset: end % self.bytes, number: last.number, chain: last.check };
        let mut chain = Vec::new();
        let (mut at, mut before) = (last.check, u64::MAX);
        while let Some((head, offset)) =
            found.remove(&at).filter(|(head, _)| (number + 1..before).contains(&head.number))
        {
            (at, before) = (head.chain, head.number);
            chain.push(offset);
        }
        chain.reverse();
        Ok(Some((chain, position)))
    }

    /// The records of the batch at an offset.
    pub(crate) fn records_at(&self, device: &dyn Device, offset: u64) -> io::Result<Option<Vec<u8>>> {
        Ok(self.read(device, offset)?.map(|(_, records)| records))
    }

    /// Tells every batch that is whole, wherever it lies.
    fn for_each(&self, device: &dyn Device, tell: &mut dyn FnMut(Head, u64)) -> io::Result<()> {
        let mut chunk = Aligned::zeroed(CHUNK_BYTES);
        for start in (0..self.bytes).step_by(CHUNK_BYTES) {
            let length = usize::try_from(self.bytes - start).unwrap_or(usize::MAX).min(CHUNK_BYTES);
            chunk.set_length(length);
            device.read_at(&mut chunk, self.start + start)?;
            for (block, bytes) in (0u64..).zip(chunk.chunks(BLOCK_BYTES)) {
                let offset = start + block * BLOCK_BYTES as u64;
                if bytes.starts_with(MAGIC)
                    && let Some((head, _)) = self.read(device, offset)?
                {
                    tell(head, offset);
                }
            }
        }
        Ok(())
    }

    fn read(&self, device: &dyn Device, offset: u64) -> io::Result<Option<(Head, Vec<u8>)>> {
        if offset + BLOCK_BYTES as u64 > self.bytes {
            return Ok(None);
        }
        let mut first = Aligned::zeroed(BLOCK_BYTES);
        device.read_at(&mut first, self.start + offset)?;
        let Some(head) = Head::decode(&first) else { return Ok(None) };
        let length = usize::try_from(head.length).unwrap_or(usize::MAX);
        if length > self.batch_records_max() || offset + batch_bytes(length) > self.bytes {
            return Ok(None);
        }
        let mut all = Aligned::zeroed((HEAD_BYTES + length).next_multiple_of(BLOCK_BYTES));
        device.read_at(&mut all, self.start + offset)?;
        let records = &all[HEAD_BYTES..HEAD_BYTES + length];
        let is_whole = check(&all[..HEAD_BYTES - 8], records, self.seed) == head.check;
        Ok(is_whole.then(|| (head, records.to_vec())))
    }
}

impl Tail {
    /// A log that goes on at `at`, while a replay would begin at `begin`.
    pub(crate) fn new(ring: Ring, begin: Position, at: Position) -> Tail {
        // A whole lap between both is possible, and told by the numbers.
        let distance = (at.offset + ring.bytes - begin.offset) % ring.bytes;
        let used = if distance == 0 && at.number != begin.number { ring.bytes } else { distance };
        let batches = if at == begin { VecDeque::new() } else { VecDeque::from([(0, begin)]) };
        Tail { ring, at, begin, used, batches, written: 0 }
    }

    /// Where the next batch goes.
    pub(crate) fn position(&self) -> Position {
        self.at
    }

    /// Where a replay would begin.
    pub(crate) fn begin(&self) -> Position {
        self.begin
    }

    /// Bytes since the place from which a replay would begin.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Writes records as a batch of the life `epoch`; they are durable after the next sync. `tickets` are the numbers
    /// of the first record and of the last.
    ///
    /// # Errors
    /// `StorageFull` when the ring is full, and what the device says.
    pub(crate) fn append(
        &mut self,
        device: &dyn Device,
        epoch: u64,
        tickets: (u64, u64),
        records: &[u8],
    ) -> io::Result<()> {
        let bytes = batch_bytes(records.len());
        let rest = self.ring.bytes - self.at.offset;
        let (offset, wasted) = if bytes > rest { (0, rest) } else { (self.at.offset, 0) };
        if self.used + wasted + bytes > self.ring.bytes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        // Numbers of later lives are greater than any of this one.
        let number = (self.at.number + 1).max(epoch << 32);
        let mut head = Packed::default();
        head.bytes(MAGIC).u64(epoch).u64(number).u64(self.at.chain);
        head.u32(u32::try_from(records.len()).expect("batches are limited"));
        head.0.resize(HEAD_BYTES - 8, 0);
        let chain = check(&head.0, records, self.ring.seed);
        head.u64(chain);
        let mut batch = Aligned::zeroed(usize::try_from(bytes).expect("batches are limited"));
        batch[..HEAD_BYTES].copy_from_slice(&head.0);
        batch[HEAD_BYTES..HEAD_BYTES + records.len()].copy_from_slice(records);
        device.write_at(&batch, self.ring.start + offset)?;
        self.batches.push_back((tickets.0, self.at));
        self.written = tickets.1;
        self.used += wasted + bytes;
        self.at = Position { offset: (offset + bytes) % self.ring.bytes, number, chain };
        Ok(())
    }

    /// Where a replay has to begin so that it meets the record `ticket` and all later ones.
    pub(crate) fn position_before(&self, ticket: u64) -> Position {
        if ticket > self.written {
            return self.at;
        }
        let after = self.batches.partition_point(|(first, _)| *first <= ticket);
        after.checked_sub(1).map_or(self.at, |at| self.batches[at].1)
    }

    /// A checkpoint holds what came before `begin`: its room is free. Tells whether that is any.
    pub(crate) fn trim(&mut self, begin: Position) -> bool {
        let is_shorter = begin != self.begin;
        self.begin = begin;
        while self.batches.front().is_some_and(|(_, position)| position.number < begin.number) {
            self.batches.pop_front();
        }
        let distance = (self.at.offset + self.ring.bytes - begin.offset) % self.ring.bytes;
        let is_lap = distance == 0 && self.at.number != begin.number;
        self.used = if is_lap { self.ring.bytes } else { distance };
        is_shorter
    }
}

/// The head of a batch.
#[derive(Clone, Copy, Debug)]
struct Head {
    number: u64,
    chain: u64,
    length: u32,
    check: u64,
}

impl Head {
    fn decode(bytes: &[u8]) -> Option<Head> {
        let mut fields = Fields(bytes);
        if fields.take(8)? != MAGIC {
            return None;
        }
        let (_, number, chain) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let length = fields.u32()?;
        let check = Fields(bytes.get(HEAD_BYTES - 8..)?).u64()?;
        Some(Head { number, chain, length, check })
    }

    fn follows(&self, position: Position) -> bool {
        self.chain == position.chain && self.number > position.number
    }
}

fn check(head: &[u8], records: &[u8], seed: u64) -> u64 {
    let mut hash = Xxh3::with_seed(seed);
    hash.update(head);
    hash.update(records);
    hash.digest()
}

/// What a batch with so many bytes of records takes of the ring.
pub(crate) fn batch_bytes(records: usize) -> u64 {
    (HEAD_BYTES + records).next_multiple_of(BLOCK_BYTES) as u64
}

const MAGIC: &[u8; 8] = b"weftlog\n";
const HEAD_BYTES: usize = 64;
const CHUNK_BYTES: usize = 1 << 20;
/// A batch is at most this part of the ring.
const BATCHES_MIN: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::MemoryDevice;
    use crate::superblock::Shape;

    fn ring() -> (MemoryDevice, Ring) {
        let shape = Shape { segment_bytes: 64 << 10, ..Shape::default() };
        let block = Superblock::of_shape(&shape, 8 << 20, "test", |salt| salt).unwrap();
        (MemoryDevice::new(8 << 20), Ring::of(&block))
    }

    fn replay(device: &MemoryDevice, ring: Ring, mut at: Position) -> (Vec<Vec<u8>>, Position) {
        let mut all = Vec::new();
        while let Some((records, after)) = ring.next(device, at).unwrap() {
            all.push(records);
            at = after;
        }
        (all, at)
    }

    #[test]
    fn what_was_appended_is_replayed_round_and_round_the_ring() {
        let (device, ring) = ring();
        let begin = Position::default();
        let mut tail = Tail::new(ring, begin, begin);
        let (mut kept, mut from) = (VecDeque::new(), begin);
        for number in 0..200u64 {
            let records = vec![number as u8; 1 + (number as usize * 7919) % 60_000];
            while tail.append(&device, 1, (number, number), &records).is_err() {
                // A checkpoint after the two oldest.
                kept.drain(..2);
                from = tail.position_before(number - kept.len() as u64);
                tail.trim(from);
            }
            kept.push_back(records);
            let (found, at) = replay(&device, ring, from);
            assert_eq!(found, Vec::from(kept.clone()), "after {number}");
            assert_eq!(at, tail.position());
            assert_eq!(Tail::new(ring, from, at).used(), tail.used());
        }
        let (chain, at) = ring.newest_chain(&device, 0).unwrap().unwrap();
        let chain: Vec<_> = chain.iter().map(|offset| ring.records_at(&device, *offset).unwrap().unwrap()).collect();
        assert!(chain.ends_with(kept.make_contiguous()));
        assert_eq!(at, tail.position());
        let (after, _) = ring.newest_chain(&device, from.number).unwrap().unwrap();
        assert_eq!(after.len(), kept.len());
        assert!(ring.newest_chain(&device, at.number).unwrap().is_none());
    }

    #[test]
    fn what_another_life_left_behind_never_joins() {
        let (device, ring) = ring();
        let begin = Position::default();
        let mut old = Tail::new(ring, begin, begin);
        for number in 0..4 {
            old.append(&device, 1, (number, number), &[number as u8; 10]).unwrap();
        }
        // The second batch was lost; this life writes one of the same length in its place.
        let (_, after_first) = ring.next(&device, begin).unwrap().unwrap();
        let mut new = Tail::new(ring, begin, after_first);
        new.append(&device, 2, (0, 0), &[99; 10]).unwrap();
        assert_eq!(replay(&device, ring, begin).0, [vec![0; 10], vec![99; 10]]);
    }

    #[test]
    fn reading_ends_at_a_batch_that_is_damaged() {
        let (device, ring) = ring();
        let mut tail = Tail::new(ring, Position::default(), Position::default());
        for number in 0..3 {
            tail.append(&device, 1, (number, number), &[number as u8; 5000]).unwrap();
        }
        device.flip((ring.start + 8192 + 5000) * 8);
        assert_eq!(replay(&device, ring, Position::default()).0.len(), 1);
    }
}
