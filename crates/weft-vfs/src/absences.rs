//! Names of which the kernel was told that they are absent.
//!
//! The kernel keeps an absence until its time is over or it is told otherwise. A source that tells of changes in a
//! directory does not say which names came, and a list that is newer than its user had to expect (`weft reload`) has
//! names of which nothing was stored. So whoever hears of a change has to know what to take back. Compilers and
//! interpreters look for each file in many places where it is not: those questions are most of what they ask.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use weft_remote::Name;
use weft_store::NodeId;

use crate::inode::Inode;
use crate::lookup::cap;
use crate::notice::Notice;
use crate::vfs::Vfs;

/// The absences of one mount.
#[derive(Debug, Default)]
pub(crate) struct Absences(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    of: HashMap<NodeId, HashMap<Name, Absence>>,
    count: usize,
    /// When it was looked last which have ended.
    looked: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Absence {
    told: Instant,
    until: Instant,
    /// The store knows of it, and whoever hears of a change finds it there: here it is of use while it is fresh.
    stored: bool,
}

impl Absences {
    /// Remembers that the kernel is about to be told that a name is absent, for so long; false when there are too many to
    /// remember. To be called before it is looked whether that is still so.
    fn tell(&self, dir: NodeId, name: &Name, (ttl, stored): (Duration, bool), now: Instant) -> bool {
        let mut told = self.0.lock();
        let absence = Absence { told: now, until: now + ttl, stored };
        if let Some(known) = told.of.get_mut(&dir).and_then(|names| names.get_mut(name)) {
            *known = absence;
            return true;
        }
        if told.count >= ABSENCES_MAX && told.looked.is_none_or(|at| now.duration_since(at) >= LOOK_PAUSE) {
            told.drop_ended(now);
        }
        if told.count >= ABSENCES_MAX {
            return false;
        }
        told.of.entry(dir).or_default().insert(name.clone(), absence);
        told.count += 1;
        true
    }

    /// Forgets those of a directory and names them; and whether the kernel may not have heard of some of them yet.
    fn take(&self, dir: NodeId, now: Instant) -> (Vec<Name>, bool) {
        let mut told = self.0.lock();
        let names = told.of.remove(&dir).unwrap_or_default();
        told.count -= names.len();
        let is_fresh = names.values().any(|absence| absence.is_fresh(now));
        let names = names.into_iter().filter(|(_, absence)| now < absence.until);
        (names.map(|(name, _)| name).collect(), is_fresh)
    }

    /// The same of one name; `None` when the kernel was not told of it.
    fn take_one(&self, dir: NodeId, name: &Name, now: Instant) -> Option<bool> {
        let mut told = self.0.lock();
        let names = told.of.get_mut(&dir)?;
        let absence = names.remove(name)?;
        if names.is_empty() {
            told.of.remove(&dir);
        }
        told.count -= 1;
        (now < absence.until).then(|| absence.is_fresh(now))
    }

    /// Forgets a name that was made by way of the kernel.
    pub(crate) fn end(&self, dir: NodeId, name: &Name) {
        let _ = self.take_one(dir, name, Instant::now());
    }

    /// Forgets all: the kernel is told that any name may be another.
    pub(crate) fn clear(&self) {
        *self.0.lock() = Told::default();
    }
}

impl Told {
    fn drop_ended(&mut self, now: Instant) {
        self.of.retain(|_, names| {
            names.retain(|_, absence| now < absence.until && (!absence.stored || absence.is_fresh(now)));
            !names.is_empty()
        });
        self.count = self.of.values().map(HashMap::len).sum();
        self.looked = Some(now);
    }
}

impl Absence {
    fn is_fresh(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.told) < ON_ITS_WAY_MAX
    }
}

impl Vfs {
    /// How long the kernel may take a name to be absent, of which that is so for so long: by what the store says of the name,
    /// or of its directory. `left` looks again, for what ends a lease takes back what was told until then.
    pub(crate) fn absent_for(
        &self,
        dir: &Inode,
        name: &Name,
        (ttl, stored): (Duration, bool),
        left: impl FnOnce() -> Duration,
    ) -> Duration {
        let ttl = cap(ttl);
        if ttl.is_zero() {
            return ttl;
        }
        match self.absences.tell(dir.id, name, (ttl, stored), Instant::now()) {
            true => left(),
            false => Duration::ZERO,
        }
    }

    /// Takes back what the kernel was told of names that a directory does not have. By now it may have some of them by itself,
    /// with somebody in there: it is to look them up again, not to drop them.
    pub(crate) fn take_back_absences(&self, dir: NodeId) {
        let (names, is_fresh) = self.absences.take(dir, Instant::now());
        let parent = self.namespace.shown(dir);
        for name in &names {
            self.notices.send_surely(Notice::Expired { parent, name: name.clone() });
        }
        if is_fresh {
            self.take_back_again(parent, names);
        }
    }

    /// The same of one name, if it was told of that.
    pub(crate) fn take_back_absence(&self, dir: NodeId, name: &Name) {
        let Some(is_fresh) = self.absences.take_one(dir, name, Instant::now()) else { return };
        let parent = self.namespace.shown(dir);
        self.notices.send(Notice::Expired { parent, name: name.clone() });
        if is_fresh {
            self.take_back_again(parent, vec![name.clone()]);
        }
    }

    /// An answer that was on its way to the kernel when that was told otherwise may have come after that.
    fn take_back_again(&self, parent: NodeId, names: Vec<Name>) {
        let notices = names.into_iter().map(|name| Notice::Expired { parent, name }).collect();
        self.notices.send_after(ON_ITS_WAY_MAX, notices, &self.runtime);
    }
}

/// How many absences are remembered.
const ABSENCES_MAX: usize = 1 << 14;
/// How often it is looked which have ended, where there are too many.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// Longer than an answer is on its way to the kernel.
pub(crate) const ON_ITS_WAY_MAX: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(60);
    const LISTED: (Duration, bool) = (TTL, false);

    fn name(number: usize) -> Name {
        Name::new(format!("{number}")).expect("a name")
    }

    #[test]
    fn what_was_told_is_taken_back_once() {
        let (absences, now) = (Absences::default(), Instant::now());
        for number in 0..3 {
            assert!(absences.tell(NodeId(1), &name(number), LISTED, now));
            assert!(absences.tell(NodeId(2), &name(number), LISTED, now));
        }
        assert_eq!(absences.take_one(NodeId(1), &name(0), now), Some(true), "it may be on its way");
        assert_eq!(absences.take_one(NodeId(1), &name(0), now), None);
        let later = now + ON_ITS_WAY_MAX;
        let (mut names, is_fresh) = absences.take(NodeId(1), later);
        names.sort();
        assert_eq!((names, is_fresh), (vec![name(1), name(2)], false));
        assert_eq!(absences.take(NodeId(1), later), (Vec::new(), false));
        assert_eq!(absences.take(NodeId(2), now + TTL), (Vec::new(), false), "the kernel has forgotten them itself");
        assert_eq!(absences.0.lock().count, 0);
    }

    #[test]
    fn no_more_are_told_than_are_remembered() {
        let (absences, now) = (Absences::default(), Instant::now());
        for number in 0..ABSENCES_MAX {
            assert!(absences.tell(NodeId(number as u64 % 7), &name(number), LISTED, now));
        }
        assert!(!absences.tell(NodeId(1), &name(ABSENCES_MAX), LISTED, now));
        assert!(absences.tell(NodeId(1), &name(1), LISTED, now + TTL / 2), "one that is told already is told again");
        assert!(absences.tell(NodeId(1), &name(ABSENCES_MAX), LISTED, now + TTL), "the others have ended");
        assert_eq!(absences.0.lock().count, 2);
        absences.clear();
        assert_eq!(absences.take(NodeId(1), now), (Vec::new(), false));
    }

    #[test]
    fn those_that_the_store_knows_of_make_room() {
        let (absences, now) = (Absences::default(), Instant::now());
        for number in 0..ABSENCES_MAX {
            assert!(absences.tell(NodeId(1), &name(number), (TTL, number > 0), now));
        }
        assert!(!absences.tell(NodeId(1), &name(ABSENCES_MAX), LISTED, now), "they are fresh");
        let later = now + LOOK_PAUSE;
        assert!(absences.tell(NodeId(1), &name(ABSENCES_MAX), LISTED, later));
        let (mut names, is_fresh) = absences.take(NodeId(1), later);
        names.sort();
        assert_eq!((names, is_fresh), (vec![name(0), name(ABSENCES_MAX)], true));
    }
}
