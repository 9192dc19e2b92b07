//! Slots for requests to one host, of which long bodies never take all.
//!
//! A request has an *ordinary* slot or one of the *reserve*. When its answer turns out to be long, it changes to a slot
//! *for long bodies*, or stays where it is if that is an ordinary one: it may not stay in the reserve, which therefore
//! is soon free again for the next question, however many downloads there are and however slow.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The slots for requests to one host.
pub(crate) struct Slots {
    ordinary: Arc<Semaphore>,
    reserve: Arc<Semaphore>,
    long: Arc<Semaphore>,
}

/// What the answer to a request may turn out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expects {
    Anything,
    /// It was asked for before, and its body is long.
    LongBody,
}

/// One request's slot.
pub(crate) struct Slot {
    permit: OwnedSemaphorePermit,
    in_reserve: bool,
    slots: Arc<Slots>,
}

impl Slots {
    /// So many slots, at least one, a quarter of them in reserve, and so many more for long bodies.
    pub fn new(requests_max: usize, long_max: usize) -> Arc<Slots> {
        let requests_max = requests_max.max(1);
        let reserve = (requests_max / 4).max(1);
        let slots = |count| Arc::new(Semaphore::new(count));
        Arc::new(Slots { ordinary: slots(requests_max - reserve), reserve: slots(reserve), long: slots(long_max) })
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
        let (permit, is_second) = tokio::select! {
            biased;
            permit = first.clone().acquire_owned() => (permit, false),
            permit = second.clone().acquire_owned() => (permit, true),
        };
        let permit = permit.expect("these semaphores are never closed");
        Slot { permit, in_reserve: expects == Expects::Anything && is_second, slots: self.clone() }
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
        !self.in_reserve
    }
}

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
}
