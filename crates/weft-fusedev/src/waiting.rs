//! Requests that wait, by number, so that interrupts find them.

use std::collections::{HashMap, HashSet, VecDeque};

use parking_lot::Mutex;

/// The requests that are not answered yet, each with what cancels it. Interrupts that come before their request are
/// remembered, a bounded number of them.
///
/// The lock is held over a look into tables and nothing else.
#[derive(Debug)]
pub struct Waiting<C> {
    state: Mutex<State<C>>,
}

#[derive(Debug)]
struct State<C> {
    waiting: HashMap<u64, C>,
    /// Interrupts without a request, in the order in which they came: of requests that are about to wait, or that
    /// were answered before the interrupt was read.
    early: VecDeque<u64>,
    early_set: HashSet<u64>,
}

/// How a request began to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    /// Nobody has a signal yet.
    Waits,
    /// Its interrupt overtook it.
    Interrupted,
}

impl<C> Default for Waiting<C> {
    fn default() -> Waiting<C> {
        let state = State { waiting: HashMap::new(), early: VecDeque::new(), early_set: HashSet::new() };
        Waiting { state: Mutex::new(state) }
    }
}

impl<C: Clone> Waiting<C> {
    /// A request begins to wait. Says when it has been interrupted already.
    pub fn enter(&self, unique: u64, cancel: C) -> Entered {
        let mut state = self.state.lock();
        state.waiting.insert(unique, cancel);
        if !state.early_set.remove(&unique) {
            return Entered::Waits;
        }
        state.early.retain(|early| *early != unique);
        Entered::Interrupted
    }

    /// A request is about to be answered, or has been entered by nobody.
    pub fn leave(&self, unique: u64) -> Option<C> {
        self.state.lock().waiting.remove(&unique)
    }

    /// Somebody has a signal: what cancels the request, which stays in the table until it leaves. Otherwise the
    /// interrupt is remembered, and the oldest one that is goes, if there are too many: it is of a request that was
    /// answered without having waited, for others come to wait at once.
    pub fn interrupt(&self, unique: u64) -> Option<C> {
        let mut state = self.state.lock();
        if let Some(cancel) = state.waiting.get(&unique) {
            return Some(cancel.clone());
        }
        if state.early_set.insert(unique) {
            state.early.push_back(unique);
        }
        if state.early.len() > EARLY_MAX
            && let Some(oldest) = state.early.pop_front()
        {
            state.early_set.remove(&oldest);
        }
        None
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Interrupts that are remembered without a request.
const EARLY_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_finds_its_request_before_and_after_it_begins_to_wait() {
        let waiting = Waiting::default();
        assert_eq!(waiting.enter(2, "two"), Entered::Waits);
        assert_eq!(waiting.interrupt(2), Some("two"));
        assert_eq!(waiting.leave(2), Some("two"));
        assert_eq!(waiting.leave(2), None);

        assert_eq!(waiting.interrupt(4), None);
        assert_eq!(waiting.enter(4, "four"), Entered::Interrupted);
        assert_eq!(waiting.enter(6, "six"), Entered::Waits, "the interrupt was of another");
        assert_eq!((waiting.leave(4), waiting.leave(6)), (Some("four"), Some("six")));
        assert!(waiting.is_empty());
    }

    #[test]
    fn what_is_remembered_is_bounded_and_the_newest_stay() {
        let waiting = Waiting::default();
        for unique in 0..3 * EARLY_MAX as u64 {
            assert_eq!(waiting.interrupt(unique), None::<()>);
        }
        let state = waiting.state.lock();
        assert_eq!((state.early.len(), state.early_set.len()), (EARLY_MAX, EARLY_MAX));
        drop(state);
        assert_eq!(waiting.enter(0, ()), Entered::Waits);
        assert_eq!(waiting.enter(3 * EARLY_MAX as u64 - 1, ()), Entered::Interrupted);
    }
}
