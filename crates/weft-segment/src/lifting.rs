//! Objects that have become popular since they were packed: they lie with the page that they came with first, and are packed
//! anew with their like.

use crate::core::Shared;
use crate::device::{Aligned, BLOCK_BYTES};
use crate::group::Waiting;
use crate::index::Place;
use crate::segment;

impl Shared {
    /// Has some of them wait for that. They may be more than what else may wait, by a segment: those who wait for room are
    /// those who tell what is popular.
    pub(crate) fn lift_risen(&self) {
        let mut left = segment::room(self.block.segment_bytes);
        while left > 0 && self.has_space(&self.core.lock(), left) {
            // By itself: the lock must not be held any more.
            let risen = self.groups.lock().next_risen();
            let Some(hash) = risen else { return };
            let Some(place) = self.index.get(hash) else { continue };
            let mut memory = self.borrow_memory(self.block.segment_bytes);
            left = left.saturating_sub(self.lift((hash, place), &mut memory));
            self.return_memory(memory);
        }
    }

    /// Has one wait, and tells what it takes of a segment's room. One that cannot be read is found where it is wanted.
    fn lift(&self, (hash, place): (u64, Place), memory: &mut Aligned) -> usize {
        let (sequence, extent) = (self.sequences.get(place.segment()), place.extent());
        let block = u32::try_from(BLOCK_BYTES).expect("small");
        let start = extent.offset / block * block;
        let end = (extent.offset + extent.length).next_multiple_of(block);
        memory.set_length(usize::try_from(end - start).expect("short"));
        let offset = self.block.segment_start(place.segment()) + u64::from(start);
        if self.device.read_at(memory, offset).is_err() {
            return 0;
        }
        let frame = &memory[usize::try_from(extent.offset - start).expect("short")..];
        let Some(object) = self.cut(frame, extent, sequence) else { return 0 };
        let mut core = self.core.lock();
        let mut waiting = Waiting {
            hash: self.hash(&object.key),
            name: self.name_of(&object.key),
            key: object.key,
            attributes: object.attributes,
            content: object.content,
            directory: 0,
            pinned: false,
            ticket: None,
            former_ticket: None,
            sequence: core.sequence,
            since: self.now(),
            arrival: 0,
        };
        if !self.is_still(hash, (place, sequence)) || core.group.get(hash).is_some() {
            return 0;
        }
        let cost = waiting.cost();
        waiting.pinned = self.index.get(hash).is_some_and(Place::is_pinned);
        // It stays where it is as well until it is written elsewhere.
        core.group.insert(waiting);
        cost
    }
}
