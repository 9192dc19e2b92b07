//! The group buffer: objects that are in no segment yet, in the order of their first use.

use std::collections::{BTreeMap, HashMap};
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
    pub(crate) fn entry(&self) -> Entry<'_> {
        let Waiting { hash, key, attributes, content, .. } = self;
        Entry { hash: *hash, parts: Parts { key, attributes, content } }
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

    /// In the order of their first use.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Waiting> {
        self.order.values().filter_map(|hash| self.objects.get(hash))
    }

    /// What packing has to know, in the order of their first use.
    pub(crate) fn items(&self) -> Vec<Item> {
        let item =
            |object: &Waiting| Item { hash: short(object.hash), cost: object.cost(), directory: object.directory };
        self.iter().map(item).collect()
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
