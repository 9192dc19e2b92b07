//! Places for requests to one host, of which long bodies never take all.
//!
//! A request has an *ordinary* place or one of the *reserve*. When its answer turns out to be long, it changes to a place
//! *for long bodies*, or stays where it is if that is an ordinary one: it may not stay in the reserve, which therefore
//! is soon free again for the next question, however many downloads there are and however slow.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The places for requests to one host.
pub(crate) struct Places {
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

/// One request's place.
pub(crate) struct Place {
    permit: OwnedSemaphorePermit,
    in_reserve: bool,
    places: Arc<Places>,
}

impl Places {
    /// So many places, at least one, a quarter of them in reserve, and so many more for long bodies.
    pub fn new(requests_max: usize, long_max: usize) -> Arc<Places> {
        let requests_max = requests_max.max(1);
        let reserve = (requests_max / 4).max(1);
        let places = |count| Arc::new(Semaphore::new(count));
        Arc::new(Places { ordinary: places(requests_max - reserve), reserve: places(reserve), long: places(long_max) })
    }

    /// The next place for such a request.
    ///
    /// # Cancel safety
    /// Whoever stops waiting loses its turn.
    pub async fn take(self: &Arc<Self>, expects: Expects) -> Place {
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
        Place { permit, in_reserve: expects == Expects::Anything && is_second, places: self.clone() }
    }
}

impl Place {
    /// Keeps a place for a long body; says whether there is one.
    pub fn keep_for_long_body(&mut self) -> bool {
        if let Ok(permit) = self.places.long.clone().try_acquire_owned() {
            self.permit = permit;
            self.in_reserve = false;
        } else if self.in_reserve
            && let Ok(permit) = self.places.ordinary.clone().try_acquire_owned()
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

    /// Goal: however few places there are, a question finds one beside all the long bodies that there may be, and a long
    /// body that found none gets the next that is left. Method: long bodies take places until one is refused.
    #[test]
    fn long_bodies_never_take_all_places() {
        for (requests_max, long_max, most) in [(0, 1, 1), (1, 1, 1), (2, 2, 3), (3, 3, 5), (16, 16, 28), (64, 0, 48)] {
            let places = Places::new(requests_max, long_max);
            let ask = |expects| places.take(expects).now_or_never();
            let mut long = Vec::new();
            loop {
                let mut place = ask(Expects::Anything).expect("a question finds a place");
                if !place.keep_for_long_body() {
                    break;
                }
                long.push(place);
            }
            assert_eq!(long.len(), most, "of {requests_max} and {long_max}");
            assert!(ask(Expects::LongBody).is_none());
            long.pop();
            assert!(ask(Expects::LongBody).expect("one is free").keep_for_long_body());
        }
    }
}
