//! Requests that wait for locks: how many, and who waits for whom.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustix::io::Errno as E;

use crate::Errno;
use crate::handler::Answer;

/// A request that waits, counted for as long as this lives.
pub(crate) struct Waiting<'a>(&'a AtomicUsize);

impl Waiting<'_> {
    pub fn enter(count: &AtomicUsize) -> Answer<Waiting<'_>> {
        if count.fetch_add(1, Ordering::SeqCst) >= WAITING_MAX {
            count.fetch_sub(1, Ordering::SeqCst);
            return Err(Errno(E::NOLCK));
        }
        Ok(Waiting(count))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// An owner of POSIX locks that waits for another, for as long as this lives.
pub(crate) struct Blocked<'a> {
    all: &'a Mutex<HashMap<u64, u64>>,
    waits: u64,
}

impl Blocked<'_> {
    /// `EDEADLK` when the other waits, over however many others, for this one.
    pub fn enter(all: &Mutex<HashMap<u64, u64>>, waits: u64, for_whom: u64) -> Answer<Blocked<'_>> {
        let mut blocked = all.lock();
        let mut next = Some(for_whom);
        for _ in 0..=blocked.len() {
            match next {
                None => break,
                Some(owner) if owner == waits => return Err(Errno(E::DEADLK)),
                Some(owner) => next = blocked.get(&owner).copied(),
            }
        }
        blocked.insert(waits, for_whom);
        drop(blocked);
        Ok(Blocked { all, waits })
    }
}

impl Drop for Blocked<'_> {
    fn drop(&mut self) {
        self.all.lock().remove(&self.waits);
    }
}

/// Requests that wait at once: a ring has room for as many again, so that others get through.
const WAITING_MAX: usize = 512;
