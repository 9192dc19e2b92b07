//! What we did to files ourselves, so that it is not taken for somebody else's doing.
//!
//! A version says when a file's attributes or names changed last. Where we changed those, the bytes are still those of the
//! version before: whoever reads that one reads on. And a write that broke off has left a version that nobody wanted:
//! whoever has the whole of what was to be written may write it over that.

use std::collections::{HashMap, VecDeque};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use weft_remote::{Sameness, Version};

use crate::facts::Facts;
use crate::identity::Identity;

/// What was done of late, of a bounded number of files.
#[derive(Debug, Default)]
pub(crate) struct Ours {
    deeds: Mutex<Deeds>,
    /// Held for reading from before a change until it is noted.
    under_way: RwLock<()>,
}

#[derive(Debug, Default)]
struct Deeds {
    of: HashMap<Identity, Deed>,
    /// Oldest first.
    order: VecDeque<Identity>,
}

/// What came of a file by what was done.
#[derive(Debug)]
struct Deed {
    now: Version,
    /// The versions that had the bytes that it has now, oldest first.
    same: VecDeque<Version>,
    /// The version over which a write broke off.
    torn: Option<Version>,
}

impl Ours {
    /// To be held from before a change until it is noted.
    pub fn begin(&self) -> RwLockReadGuard<'_, ()> {
        self.under_way.read()
    }

    /// Attributes or names of a file were changed: its bytes are what they were, if nobody wrote it meanwhile. With
    /// `times_set` its time of modification was among them.
    pub fn changed(&self, id: Identity, before: &Facts, after: &Facts, times_set: bool) {
        let same = if times_set { after.length == before.length } else { after.has_bytes_of(&before.version()) };
        if after.is_same_version(before) || !same {
            return;
        }
        let mut deeds = self.deeds.lock();
        let deed = deeds.of(id, before.version());
        deed.same.push_back(before.version());
        if deed.same.len() > SAME_MAX {
            deed.same.pop_front();
        }
        deed.now = after.version();
    }

    /// A write that was meant to follow `expected` broke off.
    pub fn torn(&self, id: Identity, expected: &Version, after: &Facts) {
        let mut deeds = self.deeds.lock();
        let deed = deeds.of(id, after.version());
        deed.now = after.version();
        deed.same.clear();
        deed.torn = Some(expected.clone());
    }

    /// Whether a file that is this now has the bytes of a version, by what we know of it. Waits for what is under way.
    pub fn has_bytes_of(&self, id: Identity, now: &Facts, expected: &Version) -> bool {
        let known = || self.is_same(id, now, expected);
        known() || {
            drop(self.under_way.write());
            known()
        }
    }

    /// The same, without waiting.
    pub fn is_same(&self, id: Identity, now: &Facts, expected: &Version) -> bool {
        self.of(id, now, |deed| deed.same.iter().any(|same| is_same(same, expected)))
    }

    /// Whether a file that is this now may be written by whoever has read that version, by what we know of it: also where
    /// somebody else changed its names or its mode since.
    pub fn may_follow(&self, id: Identity, now: &Facts, expected: &Version) -> bool {
        let deeds = self.deeds.lock();
        let of = |deed: &Deed| now.has_bytes_of(&deed.now) && deed.same.iter().any(|same| is_same(same, expected));
        deeds.of.get(&id).is_some_and(of)
    }

    /// Whether a file that is this now is what a write over that version left when it broke off.
    pub fn is_torn(&self, id: Identity, now: &Facts, expected: &Version) -> bool {
        let deeds = self.deeds.lock();
        let of =
            |deed: &Deed| deed.torn.as_ref().is_some_and(|torn| is_same(torn, expected)) && now.has_bytes_of(&deed.now);
        deeds.of.get(&id).is_some_and(of)
    }

    fn of(&self, id: Identity, now: &Facts, says: impl Fn(&Deed) -> bool) -> bool {
        let deeds = self.deeds.lock();
        deeds.of.get(&id).is_some_and(|deed| is_same(&deed.now, &now.version()) && says(deed))
    }
}

impl Deeds {
    /// What is known of a file, if that is what it was before; otherwise a new beginning.
    fn of(&mut self, id: Identity, before: Version) -> &mut Deed {
        let begin = || Deed { now: before.clone(), same: VecDeque::new(), torn: None };
        if !self.of.contains_key(&id) {
            if self.order.len() >= FILES_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.of.remove(&oldest);
            }
            self.order.push_back(id);
        }
        let deed = self.of.entry(id).or_insert_with(begin);
        if !is_same(&deed.now, &before) {
            *deed = begin();
        }
        deed
    }
}

fn is_same(one: &Version, other: &Version) -> bool {
    one.compare(other) == Sameness::Same
}

/// Files of which is known what we did.
const FILES_MAX: usize = 4096;
/// Versions of one file that are known to have the same bytes.
const SAME_MAX: usize = 16;
