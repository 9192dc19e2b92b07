//! How long cached content is trusted: a policy per tree.

use std::fmt;
use std::time::Duration;

use super::{parse_duration, show_duration};

/// The policy of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Only `weft reload` asks again (as WFS had it).
    Manual,
    /// Trusted for this long.
    Ttl(Duration),
    /// As HTTP says (RFC 9111); the default.
    Http,
    /// Each use asks.
    Always,
}

impl Freshness {
    /// Reads `manual`, `ttl=10m`, `http` or `always`.
    ///
    /// # Errors
    /// A sentence that says what is allowed.
    pub fn parse(text: &str) -> Result<Freshness, String> {
        match text {
            "manual" => Ok(Freshness::Manual),
            "http" => Ok(Freshness::Http),
            "always" => Ok(Freshness::Always),
            _ => match text.strip_prefix("ttl=") {
                Some(time) => parse_duration(time).map(Freshness::Ttl),
                None => {
                    Err(format!("`{text}` is no freshness: write manual, ttl=10m (or another time), http or always"))
                }
            },
        }
    }
}

impl fmt::Display for Freshness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Freshness::Manual => f.write_str("manual"),
            Freshness::Ttl(time) => write!(f, "ttl={}", show_duration(*time)),
            Freshness::Http => f.write_str("http"),
            Freshness::Always => f.write_str("always"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read_and_written_alike() {
        for text in ["manual", "ttl=10m", "http", "always"] {
            assert_eq!(Freshness::parse(text).expect("a policy").to_string(), text);
        }
        for text in ["", "ttl", "ttl=", "ttl=soon", "never"] {
            assert!(Freshness::parse(text).is_err(), "{text}");
        }
    }
}
