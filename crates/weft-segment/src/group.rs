//! The group buffer: objects that are in no segment yet, in the order of their first use.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;

use crate::frame::Parts;
use crate::packing::Item;
use crate::segment::{self, Entry};

/// An object that is in no segment yet.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) hash: u128,
    pub(crate) key: Bytes,
    pub(crate) attributes: Bytes,
    pub(crate) content: Bytes,
    pub(crate) directory: u64,
    /// What groups call it.
    pub(crate) name: u64,
    pub(crate) pinned: bool,
    /// The record of the log that holds it; what is found there by a replay has 0.
    pub(crate) ticket: Option<u64>,
    /// The first record that holds a former state of it, which counts until this one is in a segment.
    pub(crate) former_ticket: Option<u64>,
    /// The latest sequence that was given out before it came.
    pub(crate) sequence: u64,
    pub(crate) since: Duration,
    /// Tells the states of one key apart; set when it is added.
    pub(crate) arrival: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Group {
    objects: HashMap<u64, Waiting>,
    order: BTreeMap<u64, u64>,
    next: u64,
    cost: usize,
}

impl Waiting {
    /// How it goes into a segment.
    pub(crate) fn entry(&self, begins: bool) -> Entry<'_> {
        let Waiting { hash, key, attributes, content, .. } = self;
        Entry { hash: *hash, parts: Parts { key, attributes, content }, begins }
    }

    /// The first record of the log that holds a state of it.
    pub(crate) fn first_ticket(&self) -> Option<u64> {
        self.former_ticket.or(self.ticket)
    }

    /// What it takes of a segment's room.
    pub(crate) fn cost(&self) -> usize {
        segment::cost(crate::frame::frame_bytes(self.key.len(), self.attributes.len(), self.content.len()))
    }
}

impl Group {
    /// Adds an object in place of a former state of it.
    pub(crate) fn insert(&mut self, mut object: Waiting) {
        let short = short(object.hash);
        if let Some(former) = self.remove(short) {
            object.former_ticket = former.first_ticket();
        }
        self.next += 1;
        object.arrival = self.next;
        self.cost += object.cost();
        self.order.insert(object.arrival, short);
        self.objects.insert(short, object);
    }

    /// Takes an object out.
    pub(crate) fn remove(&mut self, hash: u64) -> Option<Waiting> {
        let object = self.objects.remove(&hash)?;
        self.order.remove(&object.arrival);
        self.cost -= object.cost();
        Some(object)
    }

    pub(crate) fn get(&self, hash: u64) -> Option<&Waiting> {
        self.objects.get(&hash)
    }

    pub(crate) fn get_mut(&mut self, hash: u64) -> Option<&mut Waiting> {
        self.objects.get_mut(&hash)
    }

    /// Those of `hashes` that are here and together take no more than `room`: since they were chosen for one segment
    /// some may have gone, and others come back longer.
    pub(crate) fn fitting(&self, hashes: &[u64], room: usize) -> Vec<Waiting> {
        let mut left = room;
        let mut take = |object: &&Waiting| {
            let fits = object.cost() <= left;
            left -= if fits { object.cost() } else { 0 };
            fits
        };
        hashes.iter().filter_map(|hash| self.objects.get(hash)).filter(|object| take(object)).cloned().collect()
    }

    /// Whether the state of an object with this arrival is still here.
    pub(crate) fn has(&self, arrival: u64) -> bool {
        self.order.contains_key(&arrival)
    }

    /// In the order of their first use.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Waiting> {
        self.order.values().filter_map(|hash| self.objects.get(hash))
    }

    /// What packing has to know, in the order of their first use, but of those with these arrivals.
    pub(crate) fn items(&self, but: &HashSet<u64>) -> Vec<Item> {
        let item = |object: &Waiting| {
            let Waiting { hash, directory, name, .. } = *object;
            Item { hash: short(hash), cost: object.cost(), directory, name }
        };
        self.iter().filter(|object| !but.contains(&object.arrival)).map(item).collect()
    }

    /// What all of them take of segments' room.
    pub(crate) fn cost(&self) -> usize {
        self.cost
    }

    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    /// The first record of the log that a replay has to meet for them.
    pub(crate) fn oldest_ticket(&self) -> Option<u64> {
        self.objects.values().filter_map(Waiting::first_ticket).min()
    }
}

/// What the index and the log have of a hash.
pub(crate) fn short(hash: u128) -> u64 {
    hash as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(hash: u128, length: usize, ticket: Option<u64>) -> Waiting {
        Waiting {
            hash,
            key: Bytes::from_static(b"k"),
            attributes: Bytes::new(),
            content: Bytes::from(vec![0; length]),
            directory: 0,
            name: hash as u64,
            pinned: false,
            ticket,
            former_ticket: None,
            sequence: 0,
            since: Duration::ZERO,
            arrival: 0,
        }
    }

    #[test]
    fn what_grew_since_it_was_chosen_waits_for_the_next_segment() {
        let mut group = Group::default();
        (1..=3).for_each(|hash| group.insert(object(hash, 1000, None)));
        let room = group.cost();
        let hashes = |objects: Vec<Waiting>| objects.iter().map(|object| short(object.hash)).collect::<Vec<_>>();
        assert_eq!(hashes(group.fitting(&[1, 2, 3], room)), [1, 2, 3]);
        group.insert(object(2, 5000, None));
        group.remove(3);
        assert_eq!(hashes(group.fitting(&[1, 2, 3], room)), [1]);
    }

    #[test]
    fn the_first_record_of_any_state_that_still_counts_is_remembered() {
        let mut group = Group::default();
        group.insert(object(1, 10, Some(7)));
        group.insert(object(1, 10, None));
        group.insert(object(2, 10, Some(9)));
        assert_eq!(group.oldest_ticket(), Some(7));
        group.insert(object(1, 10, Some(12)));
        assert_eq!(group.oldest_ticket(), Some(7));
        group.remove(1);
        assert_eq!(group.oldest_ticket(), Some(9));
    }
}
