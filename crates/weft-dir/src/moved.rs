//! Directories that somebody moves beside us: whoever is in one goes on in it, wherever it is then.
//!
//! The directories that were used last are held open, and of an open one the kernel tells where it is now (`/proc/self/fd`,
//! proc(5)). Nothing is asked as long as what is looked for is at its place.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use weft_remote::{FileKind, Name};

use crate::directory::Shared;
use crate::identity::{Identity, Key};
use crate::place::{parted, way};
use crate::places::Learnt;
use crate::resolve::At;

/// Directories that are held open, in two generations: the older of them goes when the younger is full.
#[derive(Debug, Default)]
pub(crate) struct HeldOpen(Mutex<Generations>);

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<Key, Held>,
    old: HashMap<Key, Held>,
}

#[derive(Clone, Debug)]
struct Held {
    id: Identity,
    fd: Arc<OwnedFd>,
}

/// Those that gave way. To close the last descriptor of what was removed may take a disk's time, so it is done without the lock.
type GaveWay = HashMap<Key, Held>;

impl HeldOpen {
    /// Holds a directory that is used.
    pub fn keep(&self, at: &At) {
        if at.facts.kind != FileKind::Directory || at.id == Identity::TOP {
            return;
        }
        if self.get(at.id.key()).is_some_and(|known| known.id == at.id) {
            return;
        }
        // Where there are too many, it is not held.
        let Ok(fd) = at.fd.try_clone() else { return };
        let gave_way = self.0.lock().put(at.id.key(), Held { id: at.id, fd: Arc::new(fd) });
        drop(gave_way);
    }

    /// Lets go of a directory that has been removed here.
    pub fn let_go(&self, id: Identity) {
        let held = self.0.lock().take(id);
        drop(held);
    }

    fn get(&self, key: Key) -> Option<Held> {
        let (held, gave_way) = self.0.lock().used(key);
        drop(gave_way);
        held
    }
}

impl Generations {
    fn used(&mut self, key: Key) -> (Option<Held>, GaveWay) {
        let gave_way = match self.old.remove(&key) {
            Some(held) => self.put(key, held),
            None => GaveWay::new(),
        };
        (self.young.get(&key).cloned(), gave_way)
    }

    fn take(&mut self, id: Identity) -> Option<Held> {
        let key = id.key();
        [&mut self.young, &mut self.old].into_iter().find_map(|held| match held.get(&key) {
            Some(known) if known.id == id => held.remove(&key),
            _ => None,
        })
    }

    fn put(&mut self, key: Key, held: Held) -> GaveWay {
        let mut gave_way = GaveWay::new();
        if self.young.len() >= YOUNG_MAX {
            gave_way = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
        }
        if let Some(former) = self.young.insert(key, held) {
            gave_way.insert(key, former);
        }
        gave_way
    }
}

impl Shared {
    /// Learns where directories are now on the way to a file that is not at its place; whether one of them is elsewhere.
    pub fn follow(&self, file: Identity) -> bool {
        let mut has_moved = false;
        for key in self.places.way_to(file) {
            has_moved |= self.held_open.get(key).is_some_and(|held| self.follow_one(&held));
        }
        has_moved
    }

    fn follow_one(&self, Held { id, fd }: &Held) -> bool {
        for _ in 0..TRIES_MAX {
            let turns = self.places.turns();
            let Some(path) = self.top.path_of(fd) else { return false };
            if self.places.seen(*id).iter().any(|seen| seen.path == path) {
                return false;
            }
            match self.learn_way(*id, &path, turns) {
                Some(Learnt::Late) => {}
                learnt => return learnt.is_some(),
            }
        }
        false
    }

    /// Enters the directories on the way to one that is at this path; `None` when it is not.
    fn learn_way(&self, id: Identity, path: &[u8], turns: u64) -> Option<Learnt> {
        let mut dir = Key::TOP;
        let (mut last, mut learnt) = (Identity::TOP, Learnt::Entered);
        for step in way(path).skip(1) {
            let (_, name) = parted(step)?;
            let (_, facts) = self.open(step).ok()?;
            last = self.top.identity(&facts);
            match self.places.learn(last, facts.names(), (dir, &Name::new(name).ok()?), turns) {
                Learnt::Late => learnt = Learnt::Late,
                Learnt::Entered | Learnt::Beside => {}
            }
            dir = last.key();
        }
        (last == id).then_some(learnt)
    }
}

/// Most directories that are held in one generation.
const YOUNG_MAX: usize = 64;
/// How often a directory that is moved meanwhile is looked for.
const TRIES_MAX: usize = 8;
