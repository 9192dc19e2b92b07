//! When a server that said "not now" is asked again.
//!
//! It is left alone as long as it says. Where it says nothing, or has said the same more than twice, the pauses grow, each
//! twice the one before and at most half of the time that is left, so that a few requests reach to the deadline. One that
//! never says when is given up after a few seconds: it may be down for good, and what is held of it may serve.

use std::time::Duration;

/// How often one call was told to come back later, and what it waits next.
pub(crate) struct Patience {
    refusals: u32,
    /// Those that did not say when.
    untold: u32,
    growing: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience { refusals: 0, untold: 0, growing: PAUSE_MIN }
    }
}

impl Patience {
    /// The pause after another refusal, of a server that said how long or did not; `None` when the time that is left is
    /// too short for it.
    pub fn pause(&mut self, told: Option<Duration>, left: Duration) -> Option<Duration> {
        self.refusals += 1;
        self.untold += u32::from(told.is_none());
        let pause = match told {
            Some(told) if self.refusals <= TOLD_MAX => told,
            None if self.untold > UNTOLD_MAX => return None,
            _ if left / 2 < PAUSE_MIN => return None,
            told => {
                let growing = self.growing.min(left / 2);
                self.growing = self.growing.saturating_mul(2);
                growing.max(told.unwrap_or_default())
            }
        };
        (pause < left).then_some(pause)
    }
}

/// The first pause that a server does not ask for.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Refusals up to which what a server says is followed to the letter.
const TOLD_MAX: u32 = 2;
/// Refusals of a server that does not say when, after which it is asked once more.
const UNTOLD_MAX: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    /// When a server is asked, in milliseconds, that always says this, within a deadline.
    fn asked_at(told: Option<Duration>, deadline: Duration) -> Vec<u128> {
        let (mut patience, mut now, mut asked) = (Patience::default(), Duration::ZERO, vec![0]);
        while let Some(pause) = patience.pause(told, deadline.saturating_sub(now)) {
            now += pause;
            asked.push(now.as_millis());
        }
        asked
    }

    /// Goal: a call that is told when waits until hardly any time is left, with few requests, and never asks earlier than it is
    /// told to; one that is not told asks three times more.
    #[test]
    fn pauses_reach_to_the_deadline() {
        let seconds = Duration::from_secs;
        assert_eq!(asked_at(None, seconds(6)), [0, 1000, 3000, 4500]);
        assert_eq!(asked_at(None, seconds(30)), [0, 1000, 3000, 7000]);
        assert_eq!(asked_at(Some(seconds(1)), seconds(30))[..5], [0, 1000, 2000, 3000, 5000]);
        assert_eq!(asked_at(Some(seconds(10)), seconds(30)), [0, 10000, 20000]);
        assert_eq!(asked_at(Some(seconds(3600)), seconds(30)), [0]);
        assert_eq!(asked_at(Some(Duration::ZERO), seconds(2)), [0, 0, 0, 1000]);
        for told in [Duration::ZERO, seconds(1)] {
            let asked = asked_at(Some(told), seconds(3600));
            assert!(asked.len() < 25 && *asked.last().expect("asked once") > 3_590_000, "{asked:?}");
        }
    }
}
