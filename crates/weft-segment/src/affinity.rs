//! What is known of which objects are used together: groups of keys, given by callers.
//!
//! A group says that its members were, or will be, wanted one after another: the parts of a page, the files of a
//! package. Its weight says how much that is worth. An object in many groups (a logo, a style sheet) belongs to none of
//! them in particular; packing divides by the root of how many there are.

use std::collections::{HashMap, VecDeque};

/// How far a group is to be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Affinity {
    /// Somebody who knows says so: a log of accesses, a list in the source.
    Told,
    /// One refers to the others.
    Linked,
}

impl Affinity {
    fn weight(self) -> u64 {
        match self {
            Affinity::Told => 4,
            Affinity::Linked => 3,
        }
    }
}

/// The groups, bounded; the oldest goes first.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    groups: HashMap<u32, Group>,
    of: HashMap<u64, Vec<u32>>,
    order: VecDeque<u32>,
    next: u32,
    members: usize,
}

#[derive(Debug)]
struct Group {
    weight: u64,
    members: Box<[u64]>,
}

impl Groups {
    /// Remembers a group. One that is known already, or has a single member, adds nothing.
    pub(crate) fn add(&mut self, affinity: Affinity, members: &[u64]) {
        let mut unique: Vec<u64> = Vec::with_capacity(members.len().min(MEMBERS_MAX));
        for member in members.iter().take(MEMBERS_MAX) {
            if !unique.contains(member) {
                unique.push(*member);
            }
        }
        if unique.len() < 2 || self.of(unique[0]).iter().any(|group| *self.groups[group].members == *unique) {
            return;
        }
        let (id, weight) = (self.next, affinity.weight());
        self.next = self.next.wrapping_add(1);
        self.members += unique.len();
        for member in &unique {
            let groups = self.of.entry(*member).or_default();
            if groups.len() < GROUPS_OF_ONE_MAX {
                groups.push(id);
            }
        }
        self.groups.insert(id, Group { weight, members: unique.into() });
        self.order.push_back(id);
        while self.members > MEMBERS_OF_ALL_MAX {
            self.forget_oldest();
        }
    }

    /// Tells all that belong with an object, and how much.
    pub(crate) fn friends(&self, hash: u64, mut tell: impl FnMut(u64, u64)) {
        for group in self.of(hash).iter().filter_map(|id| self.groups.get(id)) {
            for member in group.members.iter().filter(|member| **member != hash) {
                tell(*member, group.weight);
            }
        }
    }

    /// In how many groups it is, as far as they are counted.
    pub(crate) fn popularity(&self, hash: u64) -> u64 {
        self.of(hash).len() as u64
    }

    /// Whether it belongs to so many groups that it belongs to none of them.
    pub(crate) fn is_popular(&self, hash: u64) -> bool {
        self.of(hash).len() >= POPULAR
    }

    fn of(&self, hash: u64) -> &[u32] {
        self.of.get(&hash).map_or(&[], Vec::as_slice)
    }

    fn forget_oldest(&mut self) {
        let Some(id) = self.order.pop_front() else { return };
        let Some(group) = self.groups.remove(&id) else { return };
        self.members -= group.members.len();
        for member in &group.members {
            if let Some(groups) = self.of.get_mut(member) {
                groups.retain(|other| *other != id);
                if groups.is_empty() {
                    self.of.remove(member);
                }
            }
        }
    }
}

/// Most members of a group; further ones are left out.
pub(crate) const MEMBERS_MAX: usize = 256;
/// Most groups that are remembered of one object.
const GROUPS_OF_ONE_MAX: usize = 16;
/// One that is in as many groups is popular.
pub(crate) const POPULAR: usize = 8;
/// Most members of all groups together: about 8 MiB.
const MEMBERS_OF_ALL_MAX: usize = 1 << 18;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn friends_are_the_members_of_common_groups() {
        let mut groups = Groups::default();
        groups.add(Affinity::Told, &[1, 2, 2, 3]);
        groups.add(Affinity::Linked, &[1, 3]);
        groups.add(Affinity::Linked, &[1, 3]);
        groups.add(Affinity::Told, &[9]);
        let mut told = Vec::new();
        groups.friends(1, |hash, weight| told.push((hash, weight)));
        assert_eq!(told, [(2, 4), (3, 4), (3, 3)]);
        assert_eq!((groups.popularity(1), groups.popularity(9)), (2, 0));
    }

    #[test]
    fn the_oldest_are_forgotten_when_there_are_too_many() {
        let mut groups = Groups::default();
        for number in 0..2000u64 {
            let members: Vec<u64> = (0..300).map(|member| number * 1000 + member).collect();
            groups.add(Affinity::Told, &members);
        }
        assert!(groups.members <= MEMBERS_OF_ALL_MAX);
        assert_eq!(groups.of.len(), groups.members);
        assert_eq!((groups.popularity(0), groups.popularity(1_999_000)), (0, 1));
    }
}
