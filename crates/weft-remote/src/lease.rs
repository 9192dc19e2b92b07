//! How long an answer may be trusted, and on whose word.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::clock;

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
    /// Trusted until `end`, in the source's own words, which say more than that.
    Said {
        /// When the trust ends; a time that has passed when it was good for one request only.
        end: SystemTime,
        /// How long the source wanted it trusted, in seconds: counts again when the source confirms it and says no
        /// more than that.
        lifetime_s: u32,
        /// Whether it may be used after its end.
        stale: Stale,
    },
}

/// What a source says of using its answer after the lease has ended, when it cannot be asked or fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stale {
    /// Nothing.
    Unsaid,
    /// For so long after the end, even when the source answers with an error.
    Allowed {
        /// Seconds.
        seconds: u32,
    },
    /// Never: it must be confirmed first.
    Forbidden,
}

impl Lease {
    /// A lease of this length from now.
    pub fn lasting(time: Duration) -> Lease {
        Lease::Until(clock::now() + time)
    }

    /// What the source says of using it after its end.
    pub fn stale(&self) -> Stale {
        match self {
            Lease::Said { stale, .. } => *stale,
            Lease::Spent | Lease::Until(_) | Lease::UntilBroken(_) | Lease::Forever => Stale::Unsaid,
        }
    }

    /// The lease of something that its source has confirmed at `now`, when the confirmation came with `news`: where
    /// the news say nothing of their own, what was said before counts again from now on.
    pub fn confirmed(self, news: Lease, now: SystemTime) -> Lease {
        match (self, news) {
            (_, Lease::Said { .. }) => news,
            (Lease::Said { lifetime_s, stale, .. }, _) => {
                Lease::Said { end: now + Duration::from_secs(u64::from(lifetime_s)), lifetime_s, stale }
            }
            _ => news,
        }
    }

    /// Whether the answer may be used at `now` without asking.
    pub fn holds_at(&self, now: SystemTime) -> bool {
        !self.remaining_at(now).is_zero()
    }

    /// Time left at `now`; zero when spent, [`Duration::MAX`] when it never ends.
    pub fn remaining_at(&self, now: SystemTime) -> Duration {
        match self {
            Lease::Spent => Duration::ZERO,
            Lease::Until(end) | Lease::UntilBroken(end) | Lease::Said { end, .. } => {
                end.duration_since(now).unwrap_or(Duration::ZERO)
            }
            Lease::Forever => Duration::MAX,
        }
    }

    /// When it ends: `None` for never, and for a lease that is spent already.
    pub fn end(&self) -> Option<SystemTime> {
        match self {
            Lease::Until(end) | Lease::UntilBroken(end) | Lease::Said { end, .. } => Some(*end),
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

    #[test]
    fn a_confirmation_that_says_nothing_repeats_what_was_said() {
        let now = SystemTime::now();
        let said = Lease::Said { end: now, lifetime_s: 7, stale: Stale::Forbidden };
        let again = said.confirmed(Lease::lasting(Duration::from_secs(60)), now);
        assert_eq!(again, Lease::Said { end: now + Duration::from_secs(7), lifetime_s: 7, stale: Stale::Forbidden });
        let guess = Lease::Until(now);
        assert_eq!(guess.confirmed(Lease::Spent, now), Lease::Spent);
        assert_eq!(guess.confirmed(said, now), said);
    }
}
