//! Slots for requests to one host, of which long bodies never take all.
//!
//! A request has an *ordinary* slot or one of the *reserve*. When its answer turns out to be long, it changes to a slot
//! *for long bodies*, or stays where it is if that is an ordinary one: it may not stay in the reserve, which therefore
//! is soon free again for the next question, however many downloads there are and however slow.
//!
//! Long bodies take turns: one that has come for a while [gives way](Slot::gives_way) to one that waits for its slot.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The slots for requests to one host.
pub(crate) struct Slots {
    ordinary: Arc<Semaphore>,
    reserve: Arc<Semaphore>,
    long: Arc<Semaphore>,
    /// How many wait for a slot for a long body.
    waiting: AtomicUsize,
    /// How many long bodies are about to leave theirs to these.
    leaving: AtomicUsize,
}

/// What the answer to a request may turn out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expects {
    Anything,
    /// Its body is long: it was asked for before, or is a long part of a file.
    LongBody,
}

/// One request's slot.
pub(crate) struct Slot {
    permit: OwnedSemaphorePermit,
    in_reserve: bool,
    /// Since when it has a long body.
    long_since: Option<Instant>,
    /// It is about to be left to another.
    leaves: bool,
    slots: Arc<Slots>,
}

/// One who waits for a slot for a long body.
struct Waits<'a>(&'a Slots);

impl Slots {
    /// So many slots, at least one, a quarter of them in reserve, and so many more for long bodies.
    pub fn new(requests_max: usize, long_max: usize) -> Arc<Slots> {
        let requests_max = requests_max.max(1);
        let reserve = (requests_max / 4).max(1);
        let slots = |count| Arc::new(Semaphore::new(count));
        Arc::new(Slots {
            ordinary: slots(requests_max - reserve),
            reserve: slots(reserve),
            long: slots(long_max),
            waiting: AtomicUsize::new(0),
            leaving: AtomicUsize::new(0),
        })
    }

    /// The next slot for such a request.
    ///
    /// # Cancel safety
    /// Whoever stops waiting loses its turn.
    pub async fn take(self: &Arc<Self>, expects: Expects) -> Slot {
        let (first, second) = match expects {
            Expects::Anything => (&self.ordinary, &self.reserve),
            Expects::LongBody => (&self.long, &self.ordinary),
        };
        let _waits = (expects == Expects::LongBody).then(|| Waits::new(self));
        let (permit, is_second) = tokio::select! {
            biased;
            permit = first.clone().acquire_owned() => (permit, false),
            permit = second.clone().acquire_owned() => (permit, true),
        };
        let permit = permit.expect("these semaphores are never closed");
        Slot {
            permit,
            in_reserve: expects == Expects::Anything && is_second,
            long_since: None,
            leaves: false,
            slots: self.clone(),
        }
    }
}

impl Slot {
    /// Keeps a slot for a long body; says whether there is one.
    pub fn keep_for_long_body(&mut self) -> bool {
        if let Ok(permit) = self.slots.long.clone().try_acquire_owned() {
            self.permit = permit;
            self.in_reserve = false;
        } else if self.in_reserve
            && let Ok(permit) = self.slots.ordinary.clone().try_acquire_owned()
        {
            self.permit = permit;
            self.in_reserve = false;
        }
        self.long_since = (!self.in_reserve).then(Instant::now);
        !self.in_reserve
    }

    /// Whether the long body that has this slot is to end here: it had its turn, and another waits for whom nobody has left
    /// yet. Whoever is told so drops the slot.
    pub fn gives_way(&mut self) -> bool {
        self.leaves_after(TURN)
    }

    fn leaves_after(&mut self, turn: Duration) -> bool {
        let Slots { waiting, leaving, .. } = &*self.slots;
        if !self.leaves && self.long_since.is_some_and(|since| since.elapsed() >= turn) {
            let waiting = waiting.load(Ordering::SeqCst);
            let one_more = |leaving: usize| (leaving < waiting).then_some(leaving + 1);
            self.leaves = leaving.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).is_ok();
        }
        self.leaves
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.leaves {
            self.slots.leaving.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl<'a> Waits<'a> {
    fn new(slots: &'a Slots) -> Waits<'a> {
        slots.waiting.fetch_add(1, Ordering::SeqCst);
        Waits(slots)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// How long a body comes before it gives way: long beside what asking again costs, and short enough that some hundred readers
/// have all had a turn before one of them has waited for its deadline.
const TURN: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// Goal: however few slots there are, a question finds one beside all the long bodies that there may be, and a long
    /// body that found none gets the next that is left. Method: long bodies take slots until one is refused.
    #[test]
    fn long_bodies_never_take_all_slots() {
        for (requests_max, long_max, most) in [(0, 1, 1), (1, 1, 1), (2, 2, 3), (3, 3, 5), (16, 16, 28), (64, 0, 48)] {
            let slots = Slots::new(requests_max, long_max);
            let ask = |expects| slots.take(expects).now_or_never();
            let mut long = Vec::new();
            loop {
                let mut slot = ask(Expects::Anything).expect("a question finds a slot");
                if !slot.keep_for_long_body() {
                    break;
                }
                long.push(slot);
            }
            assert_eq!(long.len(), most, "of {requests_max} and {long_max}");
            assert!(ask(Expects::LongBody).is_none());
            long.pop();
            assert!(ask(Expects::LongBody).expect("one is free").keep_for_long_body());
        }
    }

    /// Goal: for each who waits one long body gives way, when it has had its turn, and for nobody none does.
    #[test]
    fn long_bodies_take_turns() {
        let slots = Slots::new(1, 2);
        let now = Duration::ZERO;
        let mut long: Vec<Slot> = Vec::new();
        for _ in 0..2 {
            let mut slot = slots.take(Expects::Anything).now_or_never().expect("one is free");
            assert!(!slot.leaves_after(now), "it has no long body yet");
            assert!(slot.keep_for_long_body() && !slot.leaves_after(now), "nobody waits");
            long.push(slot);
        }
        let mut waits: Vec<_> = (0..2).map(|_| Box::pin(slots.take(Expects::LongBody))).collect();
        assert!(waits[0].as_mut().now_or_never().is_none());
        assert!(!long[0].leaves_after(Duration::MAX), "it has not had its turn");
        assert!(long[0].leaves_after(now) && long[0].leaves_after(now), "it is told again");
        assert!(!long[1].leaves_after(now), "one waits, and one leaves");
        assert!(waits[1].as_mut().now_or_never().is_none());
        assert!(long[1].leaves_after(now));
        drop(long);
        assert!(waits.into_iter().all(|wait| wait.now_or_never().is_some()));
        assert_eq!((slots.waiting.load(Ordering::SeqCst), slots.leaving.load(Ordering::SeqCst)), (0, 0));
    }
}
