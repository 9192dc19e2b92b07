//! Whether the wall clock was set back, by which promises end: they would count for longer than their servers keep them.
//!
//! The clock is held against one that nobody sets, and that goes on while the machine sleeps. One that is set forward has
//! promises end too early, which costs a question.

use std::sync::Weak;
use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};

use crate::afs::Shared;

/// Looks at the clock for as long as there is a tree.
pub(crate) async fn keep(tree: Weak<Shared>) {
    loop {
        tokio::time::sleep(PAUSE).await;
        let Some(shared) = tree.upgrade() else { return };
        if let Some(by) = shared.promises.look_at_clock() {
            tracing::info!(?by, "the clock was set back: what servers have promised ends so much earlier");
        }
    }
}

/// What the wall clock said when the machine was started, the latest that it has said.
#[derive(Debug)]
pub(crate) struct Clock {
    started: SystemTime,
}

impl Default for Clock {
    fn default() -> Clock {
        Clock { started: started() }
    }
}

impl Clock {
    /// Something is to end by what the clock says now.
    pub fn counts(&mut self) {
        self.started = self.started.max(started());
    }

    /// By how much it was set back since that was told last.
    pub fn set_back(&mut self) -> Option<Duration> {
        self.set_back_to(started())
    }

    fn set_back_to(&mut self, started: SystemTime) -> Option<Duration> {
        let by = self.started.duration_since(started).unwrap_or_default();
        if by.is_zero() || by >= SLACK {
            self.started = started;
        }
        (by >= SLACK).then_some(by)
    }
}

fn started() -> SystemTime {
    let since = Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default();
    SystemTime::now().checked_sub(since).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// How often the clock is looked at.
const PAUSE: Duration = Duration::from_secs(5);
/// What a clock may be set back by in all without being told of: other clocks are set right bit by bit.
const SLACK: Duration = Duration::from_secs(1);
/// For so long a promise may count too long by a clock that was set back, and nobody has looked at it yet.
pub(crate) const UNSEEN_MAX: Duration = PAUSE.saturating_add(SLACK);

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a clock that is set back is told of once, by how much in all; one that goes on, or is set forward, is not.
    #[test]
    fn a_clock_that_is_set_back_is_told_of() {
        let mut clock = Clock::default();
        let (second, begun) = (Duration::from_secs(1), clock.started);
        assert_eq!(clock.set_back_to(begun), None);
        assert_eq!(clock.set_back_to(begun - second * 60), Some(second * 60));
        assert_eq!(clock.set_back_to(begun - second * 60), None, "it was told of");
        assert_eq!(clock.set_back_to(begun + second * 3600), None, "set forward");
        assert_eq!(clock.set_back_to(begun + second * 3600 - second / 2), None, "a little");
        assert_eq!(clock.set_back_to(begun + second * 3599), Some(second), "and a little more");
        clock.counts();
        assert_eq!(clock.started, begun + second * 3599, "it was further ahead");
        clock.started = begun - second * 60;
        clock.counts();
        assert!(clock.set_back_to(begun - second * 60).is_some(), "what ended by it was told since");
    }
}
