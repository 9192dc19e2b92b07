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
    /// How much longer something with this lease, learnt then, is trusted.
    pub fn remaining(&self, lease: &Lease, learnt: SystemTime, now: SystemTime) -> Duration {
        if learnt == SystemTime::UNIX_EPOCH {
            return Duration::ZERO;
        }
        match self {
            Freshness::Manual => Duration::MAX,
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
}
