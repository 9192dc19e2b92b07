//! Objects that have become popular since they were packed: they lie with the page that they came with first, and are packed
//! anew with their like.

use crate::buffer::Cached;
use crate::core::{Core, Shared};
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
            if let Some(place) = self.index.get(hash) {
                left = left.saturating_sub(self.lift(hash, place));
            }
        }
    }

    /// Has one wait, and tells what it takes of a segment's room. One that cannot be read is found where it is wanted.
    fn lift(&self, hash: u64, place: Place) -> usize {
        let sequence = self.sequences.get(place.segment());
        let Ok((bytes, from, _)) = self.read_blocks(place) else { return 0 };
        let object = self.cut(&bytes[from..], place.extent(), sequence);
        self.return_memory(bytes);
        let Some(object) = object else { return 0 };
        let mut core = self.core.lock();
        if !self.is_still(hash, (place, sequence)) || core.group.get(hash).is_some() {
            return 0;
        }
        let pinned = self.index.get(hash).is_some_and(Place::is_pinned);
        self.wait_again(&mut core, object, pinned)
    }

    /// Has an object wait to be packed anew, and tells what it takes of a segment's room. It stays where it is as well until it
    /// is written elsewhere.
    pub(crate) fn wait_again(&self, core: &mut Core, object: Cached, pinned: bool) -> usize {
        let waiting = Waiting {
            hash: self.hash(&object.key),
            name: self.name_of(&object.key),
            key: object.key,
            attributes: object.attributes,
            content: object.content,
            directory: 0,
            pinned,
            ticket: None,
            former_ticket: None,
            sequence: core.sequence,
            since: self.now(),
            arrival: 0,
        };
        let cost = waiting.cost();
        core.group.insert(waiting);
        cost
    }
}
