//! Staying awake for the next request.
//!
//! A program that asks one thing after the other asks again a few microseconds after each answer. A thread that sleeps
//! in between costs both of them a way through the scheduler, most often to another processor, which is more than the
//! request itself takes. So a thread that has answered looks for the next request for a little while before it sleeps,
//! as long as that has paid; where it has not, it sleeps at once and tries again after so many requests.

use std::time::{Duration, Instant};

/// Whether it has paid for one thread to stay awake.
#[derive(Debug, Default)]
pub(crate) struct Vigil {
    /// Never: there is no other processor that could ask meanwhile.
    never: bool,
    /// Requests before the next try.
    asleep: u32,
    /// How many were waited for asleep after the last try that was in vain.
    pause: u32,
    /// Requests that were there at once, one after the other.
    at_once: u32,
}

impl Vigil {
    /// Of a thread that one of so many processors is for.
    pub(crate) fn new(processors: usize) -> Vigil {
        Vigil { never: processors < 2, ..Vigil::default() }
    }

    /// Looks for a request until there is one, or it is time to sleep.
    pub(crate) fn keep(&mut self, is_there: impl FnMut() -> bool) {
        self.keep_by(Instant::now, is_there);
    }

    /// The request is here, so long after it was wanted.
    pub(crate) fn came(&mut self, after: Duration) {
        self.at_once = if after < AT_ONCE { self.at_once.saturating_add(1) } else { 0 };
    }

    fn keep_by(&mut self, mut now: impl FnMut() -> Instant, mut is_there: impl FnMut() -> bool) {
        // Where requests are always there, a look is a call for nothing.
        if self.never || self.at_once >= AT_ONCE_MIN {
            return;
        }
        if self.asleep > 0 {
            self.asleep -= 1;
            return;
        }
        let since = now();
        let mut before = since;
        while !is_there() {
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
            let at = now();
            // A long time between two looks: others want this processor.
            let taken = at.duration_since(before) > TAKEN_MIN;
            if taken || at.duration_since(since) >= AWAKE_MAX {
                self.pause = if taken { PAUSE_MAX } else { (2 * self.pause + 1).min(PAUSE_MAX) };
                self.asleep = self.pause;
                return;
            }
            before = at;
        }
        self.pause = 0;
    }
}

/// Longest time awake without a request: about what it costs to be woken, so that no more than twice of what is needed
/// is ever spent.
const AWAKE_MAX: Duration = Duration::from_micros(50);
/// Most requests before the next try: it then costs less than a microsecond for each of them.
const PAUSE_MAX: u32 = 63;
/// A look takes a hundredth of this, and what a machine does beside at most a tenth.
const TAKEN_MIN: Duration = Duration::from_micros(200);
/// Sooner than anybody asks who waits for the answer before.
const AT_ONCE: Duration = Duration::from_micros(2);
/// So many are no chance.
const AT_ONCE_MIN: u32 = 8;
/// Between two looks, of a few ten cycles each: a look takes the queue's lock from those who ask.
const PAUSES: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that goes on by so much with each look at it, and counts looks for requests.
    fn looks(vigil: &mut Vigil, step: Duration, there_after: u32) -> u32 {
        let (mut at, mut looks) = (Instant::now(), 0);
        let clock = || {
            at += step;
            at
        };
        vigil.keep_by(clock, || {
            looks += 1;
            looks > there_after
        });
        looks
    }

    const STEP: Duration = Duration::from_micros(1);

    #[test]
    fn who_asks_again_at_once_is_waited_for() {
        let mut vigil = Vigil::new(2);
        for _ in 0..1000 {
            assert_eq!(looks(&mut vigil, STEP, 5), 6, "until it is there");
            vigil.came(5 * STEP);
        }
    }

    #[test]
    fn in_vain_it_is_tried_less_and_less_and_never_given_up() {
        let mut vigil = Vigil::new(2);
        let tries: Vec<usize> = (0..400).filter(|_| looks(&mut vigil, STEP, u32::MAX) > 0).collect();
        let between: Vec<usize> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(between, [2, 4, 8, 16, 32, 64, 64, 64, 64, 64], "requests from one try to the next");
        while looks(&mut vigil, STEP, 3) == 0 {}
        assert_eq!(looks(&mut vigil, STEP, 3), 4, "it has paid once: no pause any more");
    }

    #[test]
    fn whoever_else_wants_the_processor_gets_it() {
        let mut vigil = Vigil::new(2);
        assert_eq!(looks(&mut vigil, 2 * TAKEN_MIN, u32::MAX), 1);
        let slept = (0..1000).take_while(|_| looks(&mut vigil, STEP, 3) == 0).count();
        assert_eq!(slept, PAUSE_MAX as usize);
        let mut alone = Vigil::new(1);
        assert_eq!(looks(&mut alone, STEP, 3), 0, "with one processor nobody can ask meanwhile");
    }

    #[test]
    fn where_requests_are_always_there_nothing_is_looked_at() {
        let mut vigil = Vigil::new(2);
        (0..AT_ONCE_MIN).for_each(|_| vigil.came(Duration::ZERO));
        assert_eq!(looks(&mut vigil, STEP, 3), 0);
        vigil.came(AT_ONCE);
        assert_eq!(looks(&mut vigil, STEP, 3), 4);
    }
}
