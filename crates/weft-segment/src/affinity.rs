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
    of: HashMap<u64, Membership>,
    order: VecDeque<u32>,
    next: u32,
    members: usize,
    /// Hashes of keys of those that have become popular where they lie.
    risen: VecDeque<u64>,
}

/// What is known of one member.
#[derive(Debug, Default)]
struct Membership {
    groups: Vec<u32>,
    /// The hash of its key, where it was packed before it was popular.
    packed: Option<u64>,
}

#[derive(Debug)]
struct Group {
    weight: u64,
    members: Box<[u64]>,
}

impl Membership {
    /// Tells it where it is popular and was packed before.
    fn rise(&mut self, risen: &mut VecDeque<u64>) {
        if self.groups.len() >= POPULAR && risen.len() < RISEN_MAX {
            risen.extend(self.packed.take());
        }
    }
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
            let member = self.of.entry(*member).or_default();
            if member.groups.len() < GROUPS_OF_ONE_MAX {
                member.groups.push(id);
            }
            member.rise(&mut self.risen);
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

    /// The object of a key with this hash was packed as one that is not popular, as far as it is a member of a group. It may
    /// be so by now.
    pub(crate) fn packed(&mut self, hash: u64, key_hash: u64) {
        if let Some(member) = self.of.get_mut(&hash) {
            member.packed = Some(key_hash);
            member.rise(&mut self.risen);
        }
    }

    /// The hash of the key of one that was packed before it was popular, and is now; each is told once, in their order.
    pub(crate) fn next_risen(&mut self) -> Option<u64> {
        self.risen.pop_front()
    }

    fn of(&self, hash: u64) -> &[u32] {
        self.of.get(&hash).map_or(&[], |member| &member.groups)
    }

    fn forget_oldest(&mut self) {
        let Some(id) = self.order.pop_front() else { return };
        let Some(group) = self.groups.remove(&id) else { return };
        self.members -= group.members.len();
        for member in &group.members {
            if let Some(Membership { groups, .. }) = self.of.get_mut(member) {
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
/// Most that may have become popular and are not told.
const RISEN_MAX: usize = 1024;
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
    fn who_becomes_popular_where_it_lies_is_told_once() {
        let mut groups = Groups::default();
        let mut page = 0;
        let mut add = |groups: &mut Groups, pages: usize| {
            for _ in 0..pages {
                page += 1;
                groups.add(Affinity::Linked, &[page * 10, 7, 8]);
            }
        };
        add(&mut groups, POPULAR - 1);
        groups.packed(7, 77);
        groups.packed(4711, 1);
        assert_eq!(groups.next_risen(), None);
        add(&mut groups, 1);
        assert_eq!(groups.next_risen(), Some(77));
        assert_eq!(groups.next_risen(), None, "8 has not been packed");
        groups.packed(8, 88);
        assert_eq!(groups.next_risen(), Some(88), "popular by the time that it was packed");
        add(&mut groups, 20);
        assert_eq!(groups.next_risen(), None);
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
