//! How long cached knowledge is trusted: a policy per tree.

use std::fmt;
use std::time::{Duration, SystemTime};

use weft_remote::{Lease, Name};

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

/// The policies of a mount: the rule with the longest matching path wins.
#[derive(Clone, Debug)]
pub struct Policies {
    rules: Vec<(Vec<Name>, Freshness)>,
    default: Freshness,
    /// How long after its lease what is held serves when the source answers with an error.
    stale_rules: Vec<(Vec<Name>, Duration)>,
    stale_default: Option<Duration>,
}

impl Policies {
    /// Policies with a default for everything that no rule names.
    pub fn new(default: Freshness, rules: Vec<(Vec<Name>, Freshness)>) -> Policies {
        Policies { rules, default, stale_rules: Vec::new(), stale_default: None }
    }

    /// The same, with how long after its lease what is held serves when the source answers with an error.
    pub fn with_stale_if_error(self, default: Option<Duration>, rules: Vec<(Vec<Name>, Duration)>) -> Policies {
        Policies { stale_rules: rules, stale_default: default, ..self }
    }

    /// How long after its lease what is held at a path serves when the source answers with an error.
    pub fn stale_if_error(&self, path: &[Name]) -> Option<Duration> {
        let matching = self.stale_rules.iter().filter(|(prefix, _)| path.starts_with(prefix));
        matching.max_by_key(|(prefix, _)| prefix.len()).map(|(_, time)| *time).or(self.stale_default)
    }

    /// The path of the rule that decides on the freshness of a path; `None` when that is the mount's own policy.
    pub fn rule_for(&self, path: &[Name]) -> Option<&[Name]> {
        let matching = self.rules.iter().filter(|(prefix, _)| path.starts_with(prefix));
        matching.max_by_key(|(prefix, _)| prefix.len()).map(|(prefix, _)| prefix.as_slice())
    }

    /// Whether any rule depends on the path.
    pub fn depend_on_path(&self) -> bool {
        !self.rules.is_empty()
    }

    /// The policy for a path below the mount's root.
    pub fn for_path(&self, path: &[Name]) -> Freshness {
        // Of equally long ones the first: `max_by_key` gives the last.
        let matching = self.rules.iter().rev().filter(|(prefix, _)| path.starts_with(prefix));
        matching.max_by_key(|(prefix, _)| prefix.len()).map_or(self.default, |(_, freshness)| *freshness)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_wins() {
        let name = |n: &str| Name::new(n).expect("a good name");
        let rules = vec![
            (vec![name("web")], Freshness::Manual),
            (vec![name("web"), name("a.org"), name("live")], Freshness::Always),
            (vec![name("web")], Freshness::Always),
        ];
        let policies = Policies::new(Freshness::Http, rules);
        assert_eq!(policies.for_path(&[]), Freshness::Http);
        assert_eq!(policies.for_path(&[name("web"), name("a.org")]), Freshness::Manual);
        assert_eq!(policies.for_path(&[name("web"), name("a.org"), name("live"), name("x")]), Freshness::Always);
    }

    #[test]
    fn what_was_reloaded_is_never_trusted() {
        let now = SystemTime::now();
        assert!(!Freshness::Manual.holds(&Lease::Forever, SystemTime::UNIX_EPOCH, now));
        assert!(Freshness::Manual.holds(&Lease::Spent, now, now));
        assert!(!Freshness::Always.holds(&Lease::Forever, now, now));
        assert!(Freshness::Ttl(Duration::from_secs(9)).holds(&Lease::Spent, now, now));
    }
}
