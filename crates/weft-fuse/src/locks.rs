//! Advisory locks of one file: who has which bytes.
//!
//! The rules are those of fcntl(2) and flock(2): one owner's new lock replaces its own bytes, another owner's must not be in
//! the way, and the two families do not know of each other.

use serde::{Deserialize, Serialize};
use weft_remote::LockMode;

/// Locks of the two families do not know of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Family {
    /// Of fcntl(2).
    Posix,
    /// Of flock(2).
    Flock,
}

/// Whose a lock is: the same number in the same family is the same owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Owner {
    pub family: Family,
    pub number: u64,
}

/// Bytes that an owner has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Held {
    pub owner: Owner,
    /// First byte.
    pub start: u64,
    /// Last byte; [`END`] for whatever the file's end is.
    pub end: u64,
    pub exclusive: bool,
    /// The process, for those who ask what is in their way.
    pub pid: u32,
    /// The process's user and group, in whose name the source is asked.
    pub uid: u32,
    pub gid: u32,
    /// The open file by which it was asked for last.
    pub handle: u64,
}

/// The last byte that there can be (`OFFSET_MAX` of the kernel).
pub(crate) const END: u64 = i64::MAX as u64;

/// The locks of a file.
#[derive(Debug, Default)]
pub(crate) struct FileLocks {
    held: Vec<Held>,
    /// Owners who have something that the source has not any more: somebody else may have written since they read.
    lost: Vec<Owner>,
}

impl Held {
    fn overlaps(&self, other: &Held) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    /// The lock of the whole file that covers it.
    pub fn mode(&self) -> LockMode {
        if self.exclusive { LockMode::Exclusive } else { LockMode::Shared }
    }

    /// What of this lies outside of another.
    fn without(self, other: &Held) -> impl Iterator<Item = Held> {
        let before = (self.start < other.start).then(|| Held { end: self.end.min(other.start - 1), ..self });
        let after = (self.end > other.end).then(|| Held { start: self.start.max(other.end + 1), ..self });
        before.into_iter().chain(after)
    }
}

impl FileLocks {
    /// What keeps somebody from having these bytes.
    pub fn in_the_way(&self, wanted: &Held) -> Option<Held> {
        let others = self.held.iter().filter(|held| {
            held.owner.family == wanted.owner.family && held.owner != wanted.owner && held.overlaps(wanted)
        });
        others.copied().find(|held| held.exclusive || wanted.exclusive)
    }

    /// Gives an owner these bytes, in place of what it had of them.
    pub fn take(&mut self, wanted: Held) {
        self.cut(&wanted);
        let joins = |held: &Held| {
            held.owner == wanted.owner
                && held.exclusive == wanted.exclusive
                && held.start <= wanted.end.saturating_add(1)
                && wanted.start <= held.end.saturating_add(1)
        };
        let joined = self.held.extract_if(.., |held| joins(held));
        let whole = joined.fold(wanted, |all, part| Held {
            start: all.start.min(part.start),
            end: all.end.max(part.end),
            ..all
        });
        self.held.push(whole);
    }

    /// Takes these bytes from their owner. Says whether it had any.
    pub fn give_back(&mut self, bytes: &Held) -> bool {
        let had_any = self.cut(bytes);
        self.forget_lost();
        had_any
    }

    fn cut(&mut self, bytes: &Held) -> bool {
        let cut: Vec<Held> =
            self.held.extract_if(.., |held| held.owner == bytes.owner && held.overlaps(bytes)).collect();
        self.held.extend(cut.iter().flat_map(|held| held.without(bytes)));
        !cut.is_empty()
    }

    /// Takes all from the owners of whom this is so. Says from whom.
    pub fn give_back_all(&mut self, ends: impl Fn(&Held) -> bool) -> Vec<Owner> {
        let mut owners: Vec<Owner> = self.held.extract_if(.., |held| ends(held)).map(|held| held.owner).collect();
        owners.dedup();
        self.forget_lost();
        owners
    }

    /// What an owner has.
    pub fn of(&self, owner: Owner) -> Vec<Held> {
        self.held.iter().filter(|held| held.owner == owner).copied().collect()
    }

    /// Puts what an owner had in the place of what it has.
    pub fn restore(&mut self, owner: Owner, had: &[Held]) {
        self.held.retain(|held| held.owner != owner);
        self.held.extend_from_slice(had);
        self.forget_lost();
    }

    /// The source has nothing any more of what all these have.
    pub fn lose(&mut self) {
        self.lost = self.owners();
    }

    /// Who has anything.
    pub fn owners(&self) -> Vec<Owner> {
        self.held.iter().map(|held| held.owner).collect()
    }

    /// The open files by which anything was asked for.
    pub fn handles(&self) -> Vec<u64> {
        self.held.iter().map(|held| held.handle).collect()
    }

    /// Whether somebody still has what is lost at the source.
    pub fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Whether this owner has.
    pub fn is_lost(&self, owner: Owner) -> bool {
        self.lost.contains(&owner)
    }

    /// An owner relies on nothing of what was lost: it has not been told yet that it has anything.
    pub fn begin_anew(&mut self, owner: Owner) {
        self.lost.retain(|lost| *lost != owner);
    }

    /// Who has given back what was lost is as anybody else.
    fn forget_lost(&mut self) {
        self.lost.retain(|owner| self.held.iter().any(|held| held.owner == *owner));
    }

    /// The weakest lock of the whole file that covers all these.
    pub fn strongest(&self) -> LockMode {
        self.held.iter().map(Held::mode).max().unwrap_or(LockMode::Unlocked)
    }

    pub fn count(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(owner: u64, start: u64, end: u64, exclusive: bool) -> Held {
        let owner = Owner { family: Family::Posix, number: owner };
        Held { owner, start, end, exclusive, pid: 7, uid: 8, gid: 9, handle: 1 }
    }

    fn shown(locks: &FileLocks, owner: u64) -> Vec<(u64, u64, bool)> {
        let mut all: Vec<_> =
            locks.of(lock(owner, 0, 0, true).owner).iter().map(|l| (l.start, l.end, l.exclusive)).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn an_owners_locks_are_split_replaced_and_joined() {
        let mut locks = FileLocks::default();
        locks.take(lock(1, 0, 99, true));
        locks.take(lock(1, 40, 59, false));
        assert_eq!(shown(&locks, 1), [(0, 39, true), (40, 59, false), (60, 99, true)]);
        assert!(locks.give_back(&lock(1, 90, END, true)));
        assert_eq!(shown(&locks, 1), [(0, 39, true), (40, 59, false), (60, 89, true)]);
        locks.take(lock(1, 40, 59, true));
        assert_eq!(shown(&locks, 1), [(0, 89, true)], "neighbours of one mode are one");
        assert!(!locks.give_back(&lock(2, 0, END, true)), "another owner has none");
        locks.take(lock(1, 5, END, true));
        assert_eq!(shown(&locks, 1), [(0, END, true)]);
        assert!(locks.give_back(&lock(1, 0, END, true)));
        assert_eq!(locks.strongest(), LockMode::Unlocked);
    }

    #[test]
    fn only_what_excludes_is_in_the_way() {
        let mut locks = FileLocks::default();
        locks.take(lock(1, 10, 19, false));
        assert_eq!(locks.strongest(), LockMode::Shared);
        assert_eq!(locks.in_the_way(&lock(2, 0, END, false)), None, "both read");
        assert_eq!(locks.in_the_way(&lock(2, 0, 9, true)), None, "other bytes");
        assert_eq!(locks.in_the_way(&lock(2, 20, END, true)), None);
        assert_eq!(locks.in_the_way(&lock(1, 0, END, true)), None, "its own");
        assert_eq!(locks.in_the_way(&lock(2, 19, 19, true)), Some(lock(1, 10, 19, false)));
        let flock = Held { owner: Owner { family: Family::Flock, number: 2 }, ..lock(2, 0, END, true) };
        assert_eq!(locks.in_the_way(&flock), None, "the families do not know of each other");
        locks.take(flock);
        assert_eq!(locks.strongest(), LockMode::Exclusive);
        assert_eq!(locks.give_back_all(|held| held.owner == flock.owner), [flock.owner]);
        assert_eq!(locks.strongest(), LockMode::Shared);
    }

    #[test]
    fn what_is_lost_counts_until_its_owner_has_given_it_back() {
        let mut locks = FileLocks::default();
        let [first, second] = [1, 2].map(|owner| lock(owner, 0, 99, false));
        locks.take(first);
        locks.take(second);
        locks.lose();
        locks.take(lock(1, 0, 99, true));
        assert!(locks.is_lost(first.owner), "another lock in its place gives nothing back");
        locks.restore(first.owner, &[first]);
        assert!(locks.is_lost(first.owner) && locks.is_lost(second.owner));
        locks.give_back(&lock(1, 0, 49, false));
        assert!(locks.is_lost(first.owner), "it has half of it");
        locks.give_back(&lock(1, 50, 99, false));
        assert!(!locks.is_lost(first.owner) && locks.has_lost());
        locks.begin_anew(second.owner);
        assert!(!locks.has_lost());
    }

    /// Goal: any row of locks and unlocks leaves each byte as fcntl(2) has it. Method: a table of bytes beside it.
    #[test]
    fn any_row_leaves_each_byte_to_its_last() {
        let mut seed = 1_u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for _ in 0..200 {
            let (mut locks, mut bytes) = (FileLocks::default(), [[None; 32]; 3]);
            for _ in 0..60 {
                let (owner, start) = (next(3), next(32));
                let (end, what) = (start + next(32 - start), next(3));
                let asked = lock(owner, start, end, what == 1);
                if what == 2 {
                    locks.give_back(&asked);
                } else if locks.in_the_way(&asked).is_none() {
                    locks.take(asked);
                } else {
                    continue;
                }
                bytes[owner as usize][start as usize..=end as usize].fill((what < 2).then_some(what == 1));
                for (owner, bytes) in bytes.iter().enumerate() {
                    for (at, wanted) in bytes.iter().enumerate() {
                        let held = locks.of(lock(owner as u64, 0, 0, true).owner);
                        let of = held.iter().filter(|held| (held.start..=held.end).contains(&(at as u64)));
                        let found: Vec<bool> = of.map(|held| held.exclusive).collect();
                        assert_eq!(found, Vec::from_iter(*wanted), "owner {owner}, byte {at}");
                    }
                }
            }
        }
    }
}
