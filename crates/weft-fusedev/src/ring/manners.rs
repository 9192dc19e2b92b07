//! Whether the thread of a queue takes the processor from who runs there when it is woken.
//!
//! Who asks runs on the queue's processor and mostly waits at once. Some requests nobody waits for (RELEASE is one after
//! every open): to take the processor for each costs two switches, where the same program is about to ask for something
//! that both could have been done with. So a thread that answers everything itself is one of `SCHED_BATCH`, which takes
//! the processor from nobody: it runs when who asks waits.
//!
//! An answer that another thread made must not wait until a busy program's turn has ended, which is milliseconds. So
//! while an answer is awaited from elsewhere, and for a while after, the thread is an ordinary one.

use crate::sys::{self, Policy};

/// What a queue's thread is, and why.
#[derive(Debug)]
pub(super) struct Manners {
    /// The thread was an ordinary one when it began. One that somebody made another is left alone.
    may_change: bool,
    now: Policy,
    /// How often in a row it waited with all that had come answered by itself.
    alone: u32,
}

impl Manners {
    /// Of the calling thread.
    pub(super) fn of_this_thread() -> Manners {
        let may_change = matches!(sys::policy(), Ok(Policy::Other));
        Manners { may_change, now: Policy::Other, alone: 0 }
    }

    /// The thread is about to wait; `awaits` tells whether for an answer of another thread as well.
    pub(super) fn before_waiting(&mut self, awaits: bool) {
        self.alone = if awaits { 0 } else { self.alone.saturating_add(1) };
        let wanted = if self.alone < ALONE_MIN { Policy::Other } else { Policy::Batch };
        if self.may_change && wanted != self.now {
            // Where it is forbidden it will be so the next time.
            self.may_change = sys::set_policy(wanted).is_ok();
            self.now = wanted;
        }
    }
}

/// So often in a row: to change costs as much as a switch.
const ALONE_MIN: u32 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_gentle_while_it_answers_by_itself_and_not_while_others_answer() {
        let mut manners = Manners::of_this_thread();
        if !manners.may_change {
            return println!("skipped: tests run under another policy than SCHED_OTHER here");
        }
        (1..ALONE_MIN).for_each(|_| manners.before_waiting(false));
        assert_eq!(sys::policy().unwrap(), Policy::Other);
        manners.before_waiting(false);
        assert_eq!(sys::policy().unwrap(), Policy::Batch);
        manners.before_waiting(true);
        assert_eq!(sys::policy().unwrap(), Policy::Other, "at once");
        (0..ALONE_MIN).for_each(|_| manners.before_waiting(false));
        assert_eq!(sys::policy().unwrap(), Policy::Batch);
    }

    #[test]
    fn a_thread_that_somebody_made_another_is_left_alone() {
        sys::set_policy(Policy::Batch).unwrap();
        let mut manners = Manners::of_this_thread();
        (0..2 * ALONE_MIN).for_each(|_| manners.before_waiting(false));
        manners.before_waiting(true);
        assert_eq!(sys::policy().unwrap(), Policy::Batch);
    }
}
