//! How long an answer may be trusted, and on whose word.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

/// The trust that comes with an answer. Wall-clock time, since leases outlive the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lease {
    /// Good for the request that asked; ask again next time.
    Spent,
    /// Trusted until then.
    Until(SystemTime),
    /// Trusted until then, and the source says earlier when it changes (an AFS callback promise): the kind
    /// sends [`Event::Broken`](crate::Event::Broken).
    UntilBroken(SystemTime),
    /// Never changes.
    Forever,
}

impl Lease {
    /// A lease of this length from now.
    pub fn lasting(time: Duration) -> Lease {
        Lease::Until(SystemTime::now() + time)
    }

    /// Whether the answer may be used at `now` without asking.
    pub fn holds_at(&self, now: SystemTime) -> bool {
        !self.remaining_at(now).is_zero()
    }

    /// Time left at `now`; zero when spent, [`Duration::MAX`] when it never ends.
    pub fn remaining_at(&self, now: SystemTime) -> Duration {
        match self {
            Lease::Spent => Duration::ZERO,
            Lease::Until(end) | Lease::UntilBroken(end) => end.duration_since(now).unwrap_or(Duration::ZERO),
            Lease::Forever => Duration::MAX,
        }
    }

    /// When it ends: `None` for never, and for a lease that is spent already.
    pub fn end(&self) -> Option<SystemTime> {
        match self {
            Lease::Until(end) | Lease::UntilBroken(end) => Some(*end),
            Lease::Spent | Lease::Forever => None,
        }
    }

    /// The longer of two leases at `now`.
    pub fn longer_at(self, other: Lease, now: SystemTime) -> Lease {
        if other.remaining_at(now) > self.remaining_at(now) { other } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_ends_at_its_end() {
        let now = SystemTime::now();
        let lease = Lease::Until(now + Duration::from_secs(5));
        assert!(lease.holds_at(now));
        assert_eq!(lease.remaining_at(now), Duration::from_secs(5));
        assert!(!lease.holds_at(now + Duration::from_secs(5)));
        assert!(!Lease::Spent.holds_at(now));
        assert!(Lease::Forever.holds_at(now + Duration::from_secs(1 << 40)));
        assert_eq!(lease.longer_at(Lease::Spent, now), lease);
        assert_eq!(lease.longer_at(Lease::Forever, now), Lease::Forever);
    }
}
