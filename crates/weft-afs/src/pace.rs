//! How many pieces of one body are asked for at once, and how long they are.
//!
//! A call has few packets under way (32 from a file server of OpenAFS), so that on a long way many calls together are many times
//! faster than one. On a narrow way they only share it: each takes many times longer, and the piece that the reader waits for is
//! one of them. So a body begins with few short pieces, and has more and longer ones while they come soon, or while that
//! has made the whole faster.

use std::time::{Duration, Instant};

/// Pieces under way at once, and the bytes of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub at_once: usize,
    pub bytes: u64,
}

/// How the pieces of one body come.
#[derive(Debug)]
pub(crate) struct Pace {
    level: usize,
    /// Since when pieces of this level are under way.
    since: Option<Instant>,
    /// How many of them came, and their bytes.
    came: usize,
    bytes: u64,
    /// Bytes per second of the level below, or of the first piece.
    former: f64,
    /// More did not pay.
    settled: bool,
}

impl Pace {
    /// A body whose first piece, asked for alone, came so.
    pub fn after(bytes: u64, took: Duration) -> Pace {
        let former = rate(bytes, took);
        Pace { level: usize::from(comes_soon(1, former)), since: None, came: 0, bytes: 0, former, settled: false }
    }

    /// The level that pieces are asked for by now.
    pub fn level(&self) -> usize {
        self.level
    }

    /// What is asked for by now, of so many bytes in all: as many calls as may be under way have something to do.
    pub fn step(&self, whole: u64) -> Step {
        let step = LEVELS[self.level];
        let share = (whole / step.at_once as u64).next_multiple_of(SHARE_BYTES);
        Step { bytes: step.bytes.min(share.max(SHARE_BYTES)), ..step }
    }

    /// A piece is asked for.
    pub fn asked(&mut self, now: Instant) {
        self.since = self.since.or(Some(now));
    }

    /// A piece of a level came.
    pub fn came(&mut self, level: usize, bytes: u64, now: Instant) {
        let Some(since) = self.since.filter(|_| level == self.level) else { return };
        self.came += 1;
        self.bytes += bytes;
        if self.came < LEVELS[level].at_once {
            return;
        }
        let took = now.saturating_duration_since(since);
        let rate = rate(self.bytes, took);
        (self.since, self.came, self.bytes) = (Some(now), 0, 0);
        let paid = rate >= self.former * GAIN_MIN;
        if level + 1 < LEVELS.len() && (comes_soon(level + 1, rate) || (paid && !self.settled)) {
            self.turn(level + 1, rate);
        } else if level > 0 && took > WAIT_MAX && !paid {
            self.turn(level - 1, rate);
            self.settled = true;
        }
    }

    fn turn(&mut self, level: usize, rate: f64) {
        (self.level, self.since, self.former) = (level, None, rate);
    }
}

/// Whether all that a level has under way would come soon at this rate, so that nobody waits for long.
fn comes_soon(level: usize, rate: f64) -> bool {
    let Step { at_once, bytes } = LEVELS[level];
    at_once as f64 * bytes as f64 <= rate * WAIT_MAX.as_secs_f64()
}

fn rate(bytes: u64, took: Duration) -> f64 {
    bytes as f64 / took.as_secs_f64().max(1e-6)
}

/// From few short pieces to many long ones.
const LEVELS: [Step; 4] = [
    Step { at_once: 2, bytes: 64 << 10 },
    Step { at_once: 4, bytes: 128 << 10 },
    Step { at_once: 8, bytes: 256 << 10 },
    Step { at_once: 16, bytes: 1 << 20 },
];
/// A piece is no shorter for there being little to ask for.
const SHARE_BYTES: u64 = 256 << 10;
/// So long may what is under way take without having made the whole faster.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// How much faster more and longer pieces must have made the whole, where they take longer.
const GAIN_MIN: f64 = 1.4;

#[cfg(test)]
mod tests {
    use super::*;

    /// The levels of the rounds of a body, when a round takes as long as `takes` says for its bytes and the calls at once.
    fn course(takes: impl Fn(u64, usize) -> Duration) -> Vec<usize> {
        let mut now = Instant::now();
        let mut pace = Pace::after(64 << 10, takes(64 << 10, 1));
        let rounds = (0..7).map(|_| {
            let (level, step) = (pace.level(), pace.step(1 << 30));
            pace.asked(now);
            now += takes(step.bytes * step.at_once as u64, step.at_once);
            (0..step.at_once).for_each(|_| pace.came(level, step.bytes, now));
            pace.level()
        });
        rounds.collect()
    }

    fn seconds(bytes: u64, rate: f64) -> Duration {
        Duration::from_secs_f64(bytes as f64 / rate)
    }

    #[test]
    fn a_near_server_is_asked_for_much_soon() {
        assert_eq!(course(|bytes, _| seconds(bytes, 100e6)), [2, 3, 3, 3, 3, 3, 3]);
        // One call alone is enough to fill the line, which is fast.
        assert_eq!(course(|bytes, _| seconds(bytes, 12e6)), [2, 3, 3, 3, 3, 3, 3]);
    }

    #[test]
    fn on_a_long_way_more_calls_are_more() {
        assert_eq!(course(|bytes, calls| seconds(bytes, 130e3 * calls as f64)), [1, 2, 3, 3, 3, 3, 3]);
        // Four fill the line.
        assert_eq!(course(|bytes, calls| seconds(bytes, 130e3 * calls.min(4) as f64)), [1, 2, 1, 1, 1, 1, 1]);
    }

    #[test]
    fn on_a_narrow_way_more_calls_are_none_the_faster() {
        // 2 Mbit/s, 256 kbit/s, 64 kbit/s.
        assert_eq!(course(|bytes, _| seconds(bytes, 250e3)), [0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(course(|bytes, _| seconds(bytes, 32e3)), [0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(course(|bytes, _| seconds(bytes, 8e3)), [0, 0, 0, 0, 0, 0, 0]);
        // 16 Mbit/s: two seconds for all.
        assert_eq!(course(|bytes, _| seconds(bytes, 2e6)), [2, 2, 2, 2, 2, 2, 2]);
    }

    #[test]
    fn little_is_asked_for_in_few_pieces() {
        let mut pace = Pace::after(64 << 10, Duration::ZERO);
        pace.level = 3;
        assert_eq!(pace.step(2 << 20), Step { at_once: 16, bytes: SHARE_BYTES });
        assert_eq!(pace.step(1 << 30), Step { at_once: 16, bytes: 1 << 20 });
    }
}
