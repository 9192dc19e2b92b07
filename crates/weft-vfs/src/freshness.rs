//! How long cached knowledge is trusted: a policy per tree.

use std::fmt;
use std::str::FromStr;
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

/// A freshness policy that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no freshness policy: use manual, http, always or ttl=TIME (as in ttl=10m)")]
pub struct BadFreshness(pub String);

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

impl FromStr for Freshness {
    type Err = BadFreshness;

    fn from_str(text: &str) -> Result<Freshness, BadFreshness> {
        match text {
            "manual" => Ok(Freshness::Manual),
            "http" => Ok(Freshness::Http),
            "always" => Ok(Freshness::Always),
            _ => {
                let time = text.strip_prefix("ttl=").and_then(parse_duration);
                time.map(Freshness::Ttl).ok_or_else(|| BadFreshness(text.to_string()))
            }
        }
    }
}

/// `90`, `90s`, `10m`, `2h`, `1d`; seconds when no unit is given.
fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let seconds_each = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    let seconds = digits.parse::<u64>().ok()?.checked_mul(seconds_each)?;
    (seconds <= TTL_MAX.as_secs()).then(|| Duration::from_secs(seconds))
}

/// The policies of a mount: the rule with the longest matching path wins.
#[derive(Clone, Debug)]
pub struct Policies {
    rules: Vec<(Vec<Name>, Freshness)>,
    default: Freshness,
}

impl Policies {
    /// Policies with a default for everything that no rule names.
    pub fn new(default: Freshness, rules: Vec<(Vec<Name>, Freshness)>) -> Policies {
        Policies { rules, default }
    }

    /// Whether any rule depends on the path.
    pub fn depend_on_path(&self) -> bool {
        !self.rules.is_empty()
    }

    /// The policy for a path below the mount's root.
    pub fn for_path(&self, path: &[Name]) -> Freshness {
        let matching = self.rules.iter().filter(|(prefix, _)| path.starts_with(prefix));
        matching.max_by_key(|(prefix, _)| prefix.len()).map_or(self.default, |(_, freshness)| *freshness)
    }
}

/// Longest time that `ttl=` takes: ten years.
const TTL_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_read_as_written() {
        assert_eq!("ttl=10m".parse(), Ok(Freshness::Ttl(Duration::from_secs(600))));
        assert_eq!("ttl=7".parse(), Ok(Freshness::Ttl(Duration::from_secs(7))));
        assert_eq!("manual".parse(), Ok(Freshness::Manual));
        for bad in ["", "ttl", "ttl=", "ttl=-1", "ttl=1w", "ttl=99999999999999999999d", "Always"] {
            assert_eq!(bad.parse::<Freshness>(), Err(BadFreshness(bad.to_string())));
        }
    }

    #[test]
    fn the_longest_prefix_wins() {
        let name = |n: &str| Name::new(n).expect("a good name");
        let rules = vec![
            (vec![name("web")], Freshness::Manual),
            (vec![name("web"), name("a.org"), name("live")], Freshness::Always),
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
