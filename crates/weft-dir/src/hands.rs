//! Names of files that we are changing: what the kernel tells of them waits until it is known what we made of them.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::inotify::ReadFlags;

use crate::directory::Shared;
use crate::place::parted;
use crate::watches::Watches;

/// By path below the top.
#[derive(Debug, Default)]
pub(crate) struct Hands(Mutex<HashMap<Box<[u8]>, Held>>);

#[derive(Debug)]
struct Held {
    /// How many changes are under way.
    count: usize,
    /// What was told meanwhile, and the number of the watch that it was told of.
    heard: Option<(i32, ReadFlags)>,
}

/// A file that is being changed, for as long as this lives.
pub(crate) struct Hand {
    watches: Arc<Watches>,
    path: Box<[u8]>,
}

impl Hands {
    /// Takes in what is told of a path, if that has to wait.
    pub fn defers(&self, path: &[u8], number: i32, what: ReadFlags) -> bool {
        let mut held = self.0.lock();
        let Some(held) = held.get_mut(path) else { return false };
        let before = held.heard.map_or(ReadFlags::empty(), |(_, before)| before);
        held.heard = Some((number, before.union(what)));
        true
    }

    /// Whether a path is being changed.
    pub fn is_held(&self, path: &[u8]) -> bool {
        self.0.lock().contains_key(path)
    }

    fn begin(&self, path: &[u8]) {
        let mut held = self.0.lock();
        held.entry(Box::from(path)).or_insert(Held { count: 0, heard: None }).count += 1;
    }

    fn end(&self, path: &[u8]) -> Option<(i32, ReadFlags)> {
        let mut held = self.0.lock();
        let there = held.get_mut(path)?;
        there.count -= 1;
        if there.count > 0 {
            return None;
        }
        held.remove(path)?.heard
    }
}

impl Shared {
    /// Has what the kernel tells of a path wait until the hand is dropped.
    pub fn hold(&self, path: &[u8]) -> Hand {
        self.watches.hands.begin(path);
        Hand { watches: self.watches.clone(), path: Box::from(path) }
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        if let Some((number, what)) = self.watches.hands.end(&self.path)
            && let Some((_, name)) = parted(&self.path)
        {
            self.watches.hear(number, what, Some(name));
        }
    }
}
