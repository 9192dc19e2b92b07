//! How long cached knowledge is trusted: a policy per tree.

use std::fmt;
use std::time::{Duration, SystemTime};

use weft_remote::Lease;

/// When cached knowledge is checked with its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Only when the user asks (`weft reload`), as WFS had it.
    Manual,
    /// A fixed time after it was learnt or confirmed.
    Ttl(Duration),
    /// As the source says (for the web: RFC 9111).
    Http,
    /// At each use.
    Always,
}

impl Freshness {
    /// How much longer something with this lease, learnt then, is trusted. What was learnt in the future was learnt before the
    /// clock was set back: how long ago that was nobody knows.
    pub fn remaining(&self, lease: &Lease, learnt: SystemTime, now: SystemTime) -> Duration {
        if learnt == SystemTime::UNIX_EPOCH {
            return Duration::ZERO;
        }
        let is_of_another_clock = learnt > now + CLOCK_SLACK;
        match self {
            Freshness::Manual => Duration::MAX,
            Freshness::Ttl(_) | Freshness::Http if is_of_another_clock => Duration::ZERO,
            Freshness::Ttl(time) => (learnt + *time).duration_since(now).unwrap_or(Duration::ZERO),
            Freshness::Http => lease.remaining_at(now),
            Freshness::Always => Duration::ZERO,
        }
    }

    /// Whether something with this lease, learnt then, may be used without asking.
    pub fn holds(&self, lease: &Lease, learnt: SystemTime, now: SystemTime) -> bool {
        !self.remaining(lease, learnt, now).is_zero()
    }

    /// Whether what is held may be served when the source does not answer.
    pub fn serves_stale(&self) -> bool {
        !matches!(self, Freshness::Always)
    }
}

impl fmt::Display for Freshness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Freshness::Manual => f.write_str("manual"),
            Freshness::Ttl(time) => write!(f, "ttl={}s", time.as_secs()),
            Freshness::Http => f.write_str("http"),
            Freshness::Always => f.write_str("always"),
        }
    }
}

/// How much later than now something may have been learnt: another thread may have learnt it since it was asked what time it is.
const CLOCK_SLACK: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_reloaded_is_never_trusted() {
        let now = SystemTime::now();
        assert!(!Freshness::Manual.holds(&Lease::Forever, SystemTime::UNIX_EPOCH, now));
        assert!(Freshness::Manual.holds(&Lease::Spent, now, now));
        assert!(!Freshness::Always.holds(&Lease::Forever, now, now));
        assert!(Freshness::Ttl(Duration::from_secs(9)).holds(&Lease::Spent, now, now));
    }

    /// Goal: a clock that was ahead, and is set right, has nothing trusted for as long as it was ahead.
    #[test]
    fn what_was_learnt_in_the_future_is_not_trusted() {
        let now = SystemTime::now();
        let year = Duration::from_secs(365 * 24 * 3600);
        let lease = Lease::Until(now + year + Duration::from_secs(60));
        let ttl = Freshness::Ttl(Duration::from_secs(60));
        for freshness in [Freshness::Http, ttl] {
            assert!(freshness.holds(&lease, now + year, now + year), "{freshness}");
            assert!(freshness.holds(&lease, now + Duration::from_secs(1), now), "{freshness}: learnt just now");
            assert!(!freshness.holds(&lease, now + year, now), "{freshness}");
        }
        assert!(Freshness::Manual.holds(&lease, now + year, now), "until the user asks");
    }
}
