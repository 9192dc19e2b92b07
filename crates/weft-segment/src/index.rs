//! Where each object lies: open addressing in slots of 16 bytes, in memory.
//!
//! A slot is the 64-bit hash of the key and a *place*: segment, extent within it, use bits, pin. The table is sharded
//! by the top bits of the hash; a shard is probed in steps of one from where the other bits point, kept at most nine
//! tenths full, and grows by a twelfth, so that between 17.8 and 19.3 bytes are spent on an object at any count.
//! Removal moves later slots back, so that no marks of the dead remain. No lock is held over I/O.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::frame::ALIGN_BYTES;
use crate::segment::Extent;

/// Where an object lies, in 64 bits: segment (26), offset (12) and length (12) in units of 64 bytes, uses (2), pin (1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(u64);

/// A key's hash and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) hash: u64,
    place: u64,
}

impl Place {
    /// An extent of a segment.
    pub(crate) fn new(segment: u32, extent: Extent) -> Place {
        let unit = ALIGN_BYTES as u64;
        let (offset, length) = (u64::from(extent.offset) / unit, u64::from(extent.length) / unit);
        debug_assert!(length > 0 && length < 1 << 12 && offset < 1 << 12 && segment < 1 << 26);
        Place(u64::from(segment) | offset << OFFSET_SHIFT | length << LENGTH_SHIFT)
    }

    /// The segment's number.
    pub(crate) fn segment(self) -> u32 {
        u32::try_from(self.0 & SEGMENT_MASK).expect("26 bits")
    }

    /// Where in the segment.
    pub(crate) fn extent(self) -> Extent {
        let field = |shift| u32::try_from(self.0 >> shift & FIELD_MASK).expect("12 bits") * ALIGN_BYTES as u32;
        Extent { offset: field(OFFSET_SHIFT), length: field(LENGTH_SHIFT) }
    }

    /// How often it was read from memory or disk since eviction last looked, at most 3.
    pub(crate) fn uses(self) -> u8 {
        u8::try_from(self.0 >> USES_SHIFT & 3).expect("2 bits")
    }

    /// The same with another count of uses.
    pub(crate) fn with_uses(self, uses: u8) -> Place {
        Place(self.0 & !(3 << USES_SHIFT) | u64::from(uses.min(3)) << USES_SHIFT)
    }

    /// Whether it may not be evicted.
    pub(crate) fn is_pinned(self) -> bool {
        self.0 & PIN != 0
    }

    /// The same, pinned or not.
    pub(crate) fn with_pin(self, pinned: bool) -> Place {
        Place(if pinned { self.0 | PIN } else { self.0 & !PIN })
    }

    /// Whether both are the same bytes of the disk.
    pub(crate) fn is_same_place(self, other: Place) -> bool {
        (self.0 ^ other.0) & (PIN - 1) & !(3 << USES_SHIFT) == 0
    }
}

impl Slot {
    const VACANT: Slot = Slot { hash: 0, place: 0 };

    /// The slot as a checkpoint has it.
    pub(crate) fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.hash) | u128::from(self.place) << 64).to_le_bytes()
    }

    /// A slot of a checkpoint; `None` when it is no place of a volume with so many segments.
    pub(crate) fn of_bytes(bytes: [u8; 16], segments: u32, segment_bytes: u32) -> Option<(u64, Place)> {
        let value = u128::from_le_bytes(bytes);
        let slot = Slot { hash: value as u64, place: (value >> 64) as u64 };
        let place = slot.place()?;
        let extent = place.extent();
        let fits = extent.length > 0 && extent.offset + extent.length <= segment_bytes && place.segment() < segments;
        (fits && slot.place < PIN << 1).then_some((slot.hash, place))
    }

    fn place(self) -> Option<Place> {
        // A place has a length, so that none is zero.
        (self.place != 0).then_some(Place(self.place))
    }
}

/// All objects of a volume that lie on the disk.
#[derive(Debug)]
pub(crate) struct Index {
    /// Each guards its own part; held for one look or change, never over I/O, never two at once.
    shards: Box<[Mutex<Shard>]>,
    objects: AtomicU64,
}

impl Index {
    /// Without objects.
    pub(crate) fn new() -> Index {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Index { shards, objects: AtomicU64::new(0) }
    }

    /// How many objects there are.
    pub(crate) fn len(&self) -> u64 {
        self.objects.load(Ordering::Relaxed)
    }

    /// Where an object lies.
    pub(crate) fn get(&self, hash: u64) -> Option<Place> {
        self.shard(hash).lock().get(hash)
    }

    /// Where an object lies, counting one more use.
    pub(crate) fn used(&self, hash: u64) -> Option<Place> {
        self.change(hash, |place| place.with_uses(place.uses() + 1))
    }

    /// Enters an object, and tells where it lay before. A pin stays.
    pub(crate) fn insert(&self, hash: u64, place: Place) -> Option<Place> {
        let former = self.shard(hash).lock().insert(hash, place);
        if former.is_none() {
            self.objects.fetch_add(1, Ordering::Relaxed);
        }
        former
    }

    /// Takes an object out, and tells where it lay.
    pub(crate) fn remove(&self, hash: u64) -> Option<Place> {
        let former = self.shard(hash).lock().remove(hash);
        if former.is_some() {
            self.objects.fetch_sub(1, Ordering::Relaxed);
        }
        former
    }

    /// Changes the bits of a place; tells what it was before.
    pub(crate) fn change(&self, hash: u64, change: impl FnOnce(Place) -> Place) -> Option<Place> {
        let mut shard = self.shard(hash).lock();
        let at = shard.find(hash).ok()?;
        let place = shard.slots[at].place()?;
        shard.slots[at].place = change(place).0;
        Some(place)
    }

    /// How many shards [`Index::shard_slots`] tells of.
    pub(crate) fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// A copy of the slots of one shard, in no order.
    pub(crate) fn shard_slots(&self, number: usize) -> Vec<(u64, Place)> {
        let shard = self.shards[number].lock();
        shard.slots.iter().filter_map(|slot| Some((slot.hash, slot.place()?))).collect()
    }

    /// A copy of one shard as a checkpoint has it.
    pub(crate) fn shard_bytes(&self, number: usize, out: &mut Vec<u8>) -> u32 {
        let shard = self.shards[number].lock();
        for slot in shard.slots.iter().filter(|slot| slot.place != 0) {
            out.extend_from_slice(&slot.to_bytes());
        }
        shard.count
    }

    /// Makes room for so many objects in one shard, which is empty.
    pub(crate) fn prepare(&self, number: usize, objects: u32) {
        *self.shards[number].lock() = Shard::with_room(objects);
    }

    /// Bytes of all tables.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().slots.capacity() as u64 * size_of::<Slot>() as u64).sum()
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        &self.shards[usize::try_from(hash >> SHARD_SHIFT).expect("8 bits")]
    }
}

/// A part of the table.
#[derive(Debug, Default)]
struct Shard {
    slots: Vec<Slot>,
    count: u32,
}

impl Shard {
    fn with_room(objects: u32) -> Shard {
        let slots = usize::try_from(u64::from(objects) * FULL_OF / FULL + 8).expect("an index fits in memory");
        let mut vacant = Vec::new();
        vacant.reserve_exact(slots);
        vacant.resize(slots, Slot::VACANT);
        Shard { slots: vacant, count: 0 }
    }

    fn get(&self, hash: u64) -> Option<Place> {
        self.find(hash).ok().and_then(|at| self.slots[at].place())
    }

    fn insert(&mut self, hash: u64, place: Place) -> Option<Place> {
        if let Ok(at) = self.find(hash) {
            let former = self.slots[at].place();
            let pinned = place.is_pinned() || former.is_some_and(Place::is_pinned);
            self.slots[at].place = place.with_pin(pinned).0;
            return former;
        }
        if (u64::from(self.count) + 1) * FULL_OF > self.slots.len() as u64 * FULL {
            self.grow();
        }
        if let Err(at) = self.find(hash) {
            self.slots[at] = Slot { hash, place: place.0 };
            self.count += 1;
        }
        None
    }

    fn remove(&mut self, hash: u64) -> Option<Place> {
        let mut hole = self.find(hash).ok()?;
        let former = self.slots[hole].place();
        let length = self.slots.len();
        let mut next = hole;
        loop {
            next = (next + 1) % length;
            let slot = self.slots[next];
            if slot.place == 0 {
                break;
            }
            // It may move back to the hole unless that lies before its home.
            let from_home = (next + length - self.home(slot.hash)) % length;
            let from_hole = (next + length - hole) % length;
            if from_home >= from_hole {
                self.slots[hole] = slot;
                hole = next;
            }
        }
        self.slots[hole] = Slot::VACANT;
        self.count -= 1;
        former
    }

    /// The slot of a hash, or the vacant one where it would be.
    fn find(&self, hash: u64) -> Result<usize, usize> {
        if self.slots.is_empty() {
            return Err(0);
        }
        let mut at = self.home(hash);
        loop {
            let slot = &self.slots[at];
            if slot.place == 0 {
                return Err(at);
            }
            if slot.hash == hash {
                return Ok(at);
            }
            at = if at + 1 == self.slots.len() { 0 } else { at + 1 };
        }
    }

    fn home(&self, hash: u64) -> usize {
        let bits = hash >> HOME_SHIFT & u64::from(u32::MAX);
        usize::try_from((bits * self.slots.len() as u64) >> 32).expect("below the length")
    }

    fn grow(&mut self) {
        let room = self.count + self.count / GROWTH_PART + 1;
        let former = std::mem::replace(self, Shard::with_room(room));
        for slot in former.slots.into_iter().filter(|slot| slot.place != 0) {
            if let Err(at) = self.find(slot.hash) {
                self.slots[at] = slot;
                self.count += 1;
            }
        }
    }
}

const SHARDS: usize = 256;
const SHARD_SHIFT: u32 = 56;
const HOME_SHIFT: u32 = 24;
/// A shard grows when more than nine in ten slots are taken.
const FULL: u64 = 9;
const FULL_OF: u64 = 10;
const GROWTH_PART: u32 = 12;

const SEGMENT_MASK: u64 = (1 << 26) - 1;
const FIELD_MASK: u64 = (1 << 12) - 1;
const OFFSET_SHIFT: u32 = 26;
const LENGTH_SHIFT: u32 = 38;
const USES_SHIFT: u32 = 50;
const PIN: u64 = 1 << 52;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn place(segment: u32) -> Place {
        Place::new(segment, Extent { offset: 64, length: 128 })
    }

    #[test]
    fn a_place_keeps_its_parts() {
        let extent = Extent { offset: (256 << 10) - 64, length: (128 << 10) + 64 };
        let place = Place::new((1 << 26) - 1, extent).with_uses(7).with_pin(true);
        assert_eq!((place.segment(), place.extent()), ((1 << 26) - 1, extent));
        assert_eq!((place.uses(), place.is_pinned()), (3, true));
        let bare = place.with_uses(0).with_pin(false);
        assert_eq!(bare, Place::new((1 << 26) - 1, extent));
        assert!(bare.is_same_place(place));
        assert!(!bare.is_same_place(Place::new(1, extent)));
    }

    #[test]
    fn what_a_checkpoint_cannot_mean_is_refused() {
        let bytes = Slot { hash: 9, place: place(4).0 }.to_bytes();
        assert_eq!(Slot::of_bytes(bytes, 5, 65536), Some((9, place(4))));
        assert_eq!(Slot::of_bytes(bytes, 4, 65536), None, "no such segment");
        assert_eq!(Slot::of_bytes(bytes, 5, 128), None, "beyond the segment");
        assert_eq!(Slot::of_bytes([0xff; 16], u32::MAX, u32::MAX / 2), None);
        assert_eq!(Slot::of_bytes([0; 16], 5, 65536), None);
    }

    #[test]
    fn the_memory_for_an_object_stays_in_bounds_at_every_count() {
        let index = Index::new();
        let mut hash = 1u64;
        for count in 1..=400_000u64 {
            hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(count);
            index.insert(hash, place(1));
            if count % 50_000 == 0 {
                let each = index.memory_bytes() as f64 / index.len() as f64;
                assert!(each < 20.0, "{each} bytes an object at {count}");
            }
        }
    }

    proptest! {
        /// Random changes against a plain map; few different hashes, so that probes run into each other.
        #[test]
        fn it_is_a_map(steps in proptest::collection::vec((0u64..60, 0u32..3), 0..400)) {
            let index = Index::new();
            let mut model = HashMap::new();
            for (number, (key, what)) in steps.into_iter().enumerate() {
                // All in one shard, many with the same home.
                let hash = 7 << 56 | (key % 5) << 50 | key;
                let place = place(u32::try_from(number).unwrap());
                match what {
                    0 => prop_assert_eq!(index.remove(hash), model.remove(&hash)),
                    1 => prop_assert_eq!(index.insert(hash, place), model.insert(hash, place)),
                    _ => prop_assert_eq!(index.get(hash), model.get(&hash).copied()),
                }
                prop_assert_eq!(index.len(), model.len() as u64);
            }
            let all: HashMap<u64, Place> = index.shard_slots(7).into_iter().collect();
            prop_assert_eq!(all, model);
        }
    }
}
