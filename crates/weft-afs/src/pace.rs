//! How many pieces of one body are asked for at once, and how long they are.
//!
//! A call has few packets under way (32 from a file server of OpenAFS), so that on a long way many calls together are many times
//! faster than one. On a narrow way they only share it, and what is under way of all of them is more than the way holds: each
//! takes many times longer, much is lost, and the piece that the reader waits for is one of them. So a body begins with a few
//! calls, and has more while that makes the whole faster; and a piece is so long that all that are under way come soon.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::servers::ServerId;

/// Pieces under way at once, and the bytes of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub at_once: usize,
    pub bytes: u64,
}

/// How the pieces of one body come.
#[derive(Debug)]
pub(crate) struct Pace {
    at_once: usize,
    /// Bytes per second, of all together, and how long that is what is under way may take.
    rate: f64,
    horizon: Duration,
    /// The same rate with fewer calls, and how many these were.
    former: (f64, usize),
    /// More did not pay, so many rounds ago.
    settled: Option<u32>,
    /// Since when pieces of this round are under way; how many came, and their bytes.
    since: Option<Instant>,
    came: usize,
    bytes: u64,
    /// The number of the round.
    round: u32,
}

/// How the last bodies of servers came: the next one of each begins where that was.
#[derive(Debug, Default)]
pub(crate) struct Paces(Mutex<HashMap<ServerId, Last>>);

/// What the last body of a server came to.
#[derive(Clone, Copy, Debug)]
struct Last {
    at_once: usize,
    rate: f64,
    settled: Option<u32>,
    /// When it came to that many calls.
    since: Instant,
}

impl Paces {
    /// A body of a server, whose first piece, asked for alone, came so; the way there and back takes that long, if it is known.
    pub fn begin(&self, server: ServerId, (bytes, took): (u64, Duration), way: Option<Duration>, now: Instant) -> Pace {
        let pace = Pace::after(bytes, took, way);
        let last = self.0.lock().get(&server).copied();
        match last.filter(|last| now.saturating_duration_since(last.since) < REMEMBERED_FOR) {
            Some(Last { at_once, rate, settled, .. }) => Pace { at_once, rate, settled, ..pace },
            None => pace,
        }
    }

    /// What a body of a server has come to by now.
    pub fn note(&self, server: ServerId, pace: &Pace, now: Instant) {
        let Pace { at_once, rate, settled, .. } = *pace;
        let mut lasts = self.0.lock();
        // What it is used for does not make it any truer: after a while it is found out anew.
        let same = lasts.get(&server).filter(|last| last.at_once == at_once);
        let same = same.filter(|last| now.saturating_duration_since(last.since) < REMEMBERED_FOR);
        let since = same.map_or(now, |last| last.since);
        lasts.insert(server, Last { at_once, rate, settled, since });
    }
}

impl Pace {
    /// A body whose first piece, asked for alone, came so.
    fn after(bytes: u64, took: Duration, way: Option<Duration>) -> Pace {
        let rate = rate(bytes, took);
        // It took about as long as the way takes for that many packets: of how wide it is that says little.
        let is_far = way.is_some_and(|way| took < way * WAYS_OF_FIRST);
        let (at_once, horizon) = if is_far { (AT_ONCE_FAR, HORIZON_FAR) } else { (AT_ONCE_MIN, HORIZON) };
        let (since, came, bytes, round, settled) = (None, 0, 0, 0, None);
        Pace { at_once, rate, horizon, former: (rate, 1), settled, since, came, bytes, round }
    }

    /// The number of the round that pieces are asked for in by now.
    pub fn round(&self) -> u32 {
        self.round
    }

    /// What is asked for by now, of so many bytes in all: as many calls as may be under way have something to do.
    pub fn step(&self, whole: u64) -> Step {
        let at_once = self.at_once as u64;
        let soon = (self.rate * self.horizon.as_secs_f64()) as u64 / at_once / PIECE_BYTES_MIN * PIECE_BYTES_MIN;
        let share = whole.div_ceil(at_once).next_multiple_of(PIECE_BYTES_MIN).max(SHARE_BYTES_MIN);
        Step { at_once: self.at_once, bytes: soon.min(share).clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX) }
    }

    /// A piece is asked for.
    pub fn asked(&mut self, now: Instant) {
        self.since = self.since.or(Some(now));
    }

    /// A piece of a round came; whether that was the last one of it.
    pub fn came(&mut self, round: u32, bytes: u64, now: Instant) -> bool {
        let Some(since) = self.since.filter(|_| round == self.round) else { return false };
        self.came += 1;
        self.bytes += bytes;
        if self.came < self.at_once {
            return false;
        }
        self.rate = rate(self.bytes, now.saturating_duration_since(since));
        // Those of the next round are asked for while these come: it is as long as they come after these.
        (self.since, self.came, self.bytes, self.round) = (Some(now), 0, 0, self.round + 1);
        match self.settled {
            None => self.judge(),
            // The way may have become wider.
            Some(rounds) if rounds >= SETTLED_ROUNDS && self.at_once < AT_ONCE_MAX => self.try_more(),
            Some(rounds) => self.settled = Some(rounds + 1),
        }
        true
    }

    fn try_more(&mut self) {
        (self.former, self.settled) = ((self.rate, self.at_once), None);
        self.at_once = (self.at_once * 2).min(AT_ONCE_MAX);
    }

    /// Has more calls, or as many as before.
    fn judge(&mut self) {
        let ((former, calls), now) = (self.former, (self.rate, self.at_once));
        let gain = self.rate / former;
        self.settled = (gain < GAIN_MIN || self.at_once == AT_ONCE_MAX).then_some(0);
        if gain < GAIN_MIN {
            self.at_once = calls.max(AT_ONCE_MIN);
        } else {
            // Each call had as much as the fewer before: the line has room for many more.
            let alone = gain >= self.at_once as f64 / calls as f64 * GAIN_EACH;
            self.at_once = (self.at_once * if alone { 4 } else { 2 }).min(AT_ONCE_MAX);
            // So much more comes then, with some certainty.
            self.rate *= if alone { 2.0 } else { 1.0 };
        }
        self.former = now;
    }
}

fn rate(bytes: u64, took: Duration) -> f64 {
    bytes as f64 / took.as_secs_f64().max(1e-6)
}

/// Calls under way at once: most, fewest, and in the beginning on a long way.
const AT_ONCE_MAX: usize = 16;
const AT_ONCE_MIN: usize = 2;
const AT_ONCE_FAR: usize = 4;
/// Bytes of a piece. On a long way each call takes long to get up to its pace, so that they are not small there.
const PIECE_BYTES_MIN: u64 = 64 << 10;
const PIECE_BYTES_MAX: u64 = 1 << 20;
/// A piece is no shorter for there being little to ask for.
const SHARE_BYTES_MIN: u64 = 256 << 10;
/// So long may take what is under way; and what is known of a long way is mostly how long it is.
const HORIZON: Duration = Duration::from_secs(1);
const HORIZON_FAR: Duration = Duration::from_secs(5);
/// A first piece comes within so many ways there and back where nothing else holds it up: its call begins slowly.
const WAYS_OF_FIRST: u32 = 10;
/// How much faster more calls must have made the whole.
const GAIN_MIN: f64 = 1.4;
/// Rounds after which more are tried again.
const SETTLED_ROUNDS: u32 = 32;
/// The part of what each of fewer calls had that each of more has where the line has room.
const GAIN_EACH: f64 = 0.7;
/// How long what a server's last body came to counts for the next.
const REMEMBERED_FOR: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    const NEAR: Option<Duration> = Some(Duration::from_millis(1));
    const FAR: Option<Duration> = Some(Duration::from_millis(100));

    /// The calls of the rounds of a body, when a round takes as long as `takes` says for its bytes and the calls at once, and the
    /// longest of these times.
    fn course(way: Option<Duration>, takes: impl Fn(u64, usize) -> Duration) -> (Vec<usize>, Duration) {
        let mut now = Instant::now();
        let mut pace = Pace::after(64 << 10, takes(64 << 10, 1), way);
        let mut longest = Duration::ZERO;
        let rounds = (0..6).map(|_| {
            let (round, Step { at_once, bytes }) = (pace.round(), pace.step(1 << 30));
            pace.asked(now);
            let took = takes(bytes * at_once as u64, at_once);
            (now, longest) = (now + took, longest.max(took));
            for _ in 0..at_once {
                pace.came(round, bytes, now);
            }
            at_once
        });
        (rounds.collect(), longest)
    }

    fn seconds(bytes: u64, rate: f64) -> Duration {
        Duration::from_secs_f64(bytes as f64 / rate)
    }

    #[test]
    fn on_a_long_way_there_are_more_calls_while_they_pay() {
        let far =
            |calls_max: usize| course(FAR, move |bytes, calls| seconds(bytes, 130e3 * calls.min(calls_max) as f64)).0;
        assert_eq!(far(16), [4, 16, 16, 16, 16, 16]);
        assert_eq!(far(8), [4, 16, 16, 16, 16, 16], "eight would do as well");
        assert_eq!(far(4), [4, 16, 4, 4, 4, 4]);
        assert_eq!(far(2), [4, 8, 4, 4, 4, 4]);
    }

    #[test]
    fn a_near_server_has_few() {
        assert_eq!(course(NEAR, |bytes, _| seconds(bytes, 100e6)).0, [4, 2, 2, 2, 2, 2]);
        let (calls, longest) = course(NEAR, |bytes, calls| seconds(bytes, 40e6 * calls.min(4) as f64));
        assert_eq!((calls, longest < Duration::from_millis(200)), (vec![4, 16, 4, 4, 4, 4], true));
    }

    #[test]
    fn on_a_narrow_way_nobody_waits_for_long() {
        // 16 Mbit/s, 2 Mbit/s, 256 kbit/s.
        for rate in [2e6, 250e3, 32e3] {
            let (calls, longest) = course(NEAR, |bytes, _| seconds(bytes, rate));
            assert_eq!(calls, [2; 6], "{rate}");
            assert!(longest <= Duration::from_millis(4100), "{rate}: {longest:?}");
        }
        // A long one that is narrow as well: one time all that was thought to be soon.
        let (calls, longest) = course(FAR, |bytes, _| Duration::from_millis(300) + seconds(bytes, 250e3));
        assert_eq!((calls, longest < Duration::from_secs(5)), (vec![4, 8, 4, 4, 4, 4], true), "{longest:?}");
    }

    #[test]
    fn more_is_tried_again_after_a_while() {
        let mut now = Instant::now();
        let mut pace = Pace::after(64 << 10, Duration::from_millis(100), NEAR);
        let mut tried = Vec::new();
        for round in 0..80 {
            let Step { at_once, bytes } = pace.step(1 << 30);
            pace.asked(now);
            // Wider from the fortieth on.
            now += seconds(bytes * at_once as u64, 650e3 * if round < 40 { 1.0 } else { at_once as f64 });
            (0..at_once).for_each(|_| _ = pace.came(round, bytes, now));
            if at_once != AT_ONCE_MIN {
                tried.push((round, at_once));
            }
        }
        assert_eq!(tried[..3], [(34, 4), (68, 4), (69, 16)], "{tried:?}");
        assert_eq!(tried.last(), Some(&(79, 16)), "{tried:?}");
    }

    #[test]
    fn a_body_begins_where_the_last_one_of_its_server_was() {
        let (paces, now) = (Paces::default(), Instant::now());
        let [far, other] = [1, 2].map(|number| ServerId::Address([10, 0, 0, number].into()));
        let begin = |server, now| paces.begin(server, (64 << 10, Duration::from_secs(1)), None, now).at_once;
        assert_eq!(begin(far, now), AT_ONCE_MIN);
        paces.note(far, &Pace { at_once: 16, ..Pace::after(1, Duration::ZERO, None) }, now);
        assert_eq!((begin(far, now), begin(other, now)), (16, AT_ONCE_MIN));
        assert_eq!(begin(far, now + REMEMBERED_FOR), AT_ONCE_MIN, "it may be another way by now");
    }

    #[test]
    fn little_is_asked_for_in_few_pieces() {
        let pace = Pace { at_once: 16, rate: 1e9, ..Pace::after(1, Duration::ZERO, None) };
        assert_eq!(pace.step(2 << 20), Step { at_once: 16, bytes: SHARE_BYTES_MIN });
        assert_eq!(pace.step(1 << 30), Step { at_once: 16, bytes: PIECE_BYTES_MAX });
    }
}
