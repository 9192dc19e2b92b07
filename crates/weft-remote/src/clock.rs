//! The clock that leases go by: the wall clock, as it would go on if nobody set it back.
//!
//! Leases are kept in wall-clock time, for they outlive the daemon. A wall clock that is set back would have each last longer by
//! so much, and what is asked now seem to be asked before what has come. So this one goes on with one that nobody sets, and that
//! counts while the machine sleeps; one that is set forward it follows, and has leases end too early, which costs a question.
//! The next process begins with the wall clock again: what was learnt in its future is not believed.
//!
//! What is held against times of others (of files, in the answers of servers, in tickets) goes by the wall clock itself.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// What this clock says. Of two calls, one after the other, the second is never told less than the first.
pub fn now() -> SystemTime {
    // In this order: who is stopped in between takes the wall clock for further behind than it is, and it was not so before.
    let wall_ns = nanoseconds(SystemTime::now());
    let running = clock_gettime(ClockId::Boottime);
    let running_ns = running.tv_sec.saturating_mul(SECOND_NS).saturating_add(running.tv_nsec);
    let told_ns = AHEAD.told(wall_ns, running_ns);
    raise(&LATEST_NS, told_ns);
    time(told_ns)
}

/// Whether this clock has yet to say a time. Of one that it has said already it is not read for that.
pub fn is_to_come(at: SystemTime) -> bool {
    nanoseconds(at) > LATEST_NS.load(Ordering::Acquire) && at > now()
}

/// What the wall clock, as it is set now, said when this one said so: to be held against times of others.
pub fn by_wall(at: SystemTime) -> SystemTime {
    let ahead = now().duration_since(SystemTime::now()).unwrap_or_default();
    at.checked_sub(ahead).unwrap_or(at)
}

/// How far the wall clock was ahead of the one that nobody sets, the furthest that it was.
#[derive(Debug)]
struct Ahead(AtomicI64);

impl Ahead {
    /// What the clock says when these two say so.
    fn told(&self, wall_ns: i64, running_ns: i64) -> i64 {
        let ahead_ns = wall_ns.saturating_sub(running_ns);
        running_ns.saturating_add(raise(&self.0, ahead_ns))
    }
}

/// Sees to it that a number is as large as this one; how large it is then. What is large enough is only read: others do so at the
/// same time.
fn raise(number: &AtomicI64, to: i64) -> i64 {
    match number.load(Ordering::Acquire) {
        large if large >= to => large,
        _ => number.fetch_max(to, Ordering::AcqRel).max(to),
    }
}

/// Since 1970; the last that there is for what is later than that.
fn nanoseconds(time: SystemTime) -> i64 {
    let of = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    time.duration_since(UNIX_EPOCH).map_or_else(|before| -of(before.duration()), of)
}

fn time(nanoseconds: i64) -> SystemTime {
    let since = Duration::from_nanos(nanoseconds.unsigned_abs());
    if nanoseconds < 0 { UNIX_EPOCH - since } else { UNIX_EPOCH + since }
}

static AHEAD: Ahead = Ahead(AtomicI64::new(i64::MIN));
/// The latest time that was told.
static LATEST_NS: AtomicI64 = AtomicI64::new(i64::MIN);

const SECOND_NS: i64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a clock that is set back goes on, and one that is set forward is followed.
    #[test]
    fn a_clock_that_is_set_back_goes_on() {
        let ahead = Ahead(AtomicI64::new(i64::MIN));
        assert_eq!(ahead.told(1_000, 10), 1_000);
        assert_eq!(ahead.told(1_005, 15), 1_005);
        assert_eq!(ahead.told(500, 20), 1_010, "set back");
        assert_eq!(ahead.told(1_009, 29), 1_019, "and almost as far as it was");
        assert_eq!(ahead.told(2_000, 30), 2_000, "set forward");
        assert_eq!(ahead.told(-7, 31), 2_001);
    }

    #[test]
    fn it_is_the_wall_clock_that_nobody_has_set() {
        let (before, told, after) = (SystemTime::now(), now(), SystemTime::now());
        // Another test may have been stopped between its two looks.
        assert!(before <= told && told <= after.max(now()));
        assert!(!is_to_come(told) && !is_to_come(before));
        // A time that comes, and that nobody need have been told.
        let next = told + Duration::from_micros(500);
        while SystemTime::now() < next {
            std::hint::spin_loop();
        }
        assert!(!is_to_come(next) && is_to_come(now() + Duration::from_secs(3600)));
        assert!(by_wall(told) <= told && by_wall(now()) <= SystemTime::now());
        for ns in [i64::MIN + 1, -1, 0, 1, i64::MAX] {
            assert_eq!(nanoseconds(time(ns)), ns);
        }
    }
}
