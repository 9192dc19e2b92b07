//! The policies of trees as the configuration writes them.

pub use weft_vfs::{Freshness, OpenFiles};

use super::{parse_duration, show_duration};

/// Reads `manual`, `ttl=10m`, `http` or `always`.
///
/// # Errors
/// A sentence that says what is allowed.
pub fn parse_freshness(text: &str) -> Result<Freshness, String> {
    match text {
        "manual" => Ok(Freshness::Manual),
        "http" => Ok(Freshness::Http),
        "always" => Ok(Freshness::Always),
        _ => match text.strip_prefix("ttl=") {
            Some(time) => parse_duration(time).map(Freshness::Ttl),
            None => Err(format!("`{text}` is no freshness: write manual, ttl=10m (or another time), http or always")),
        },
    }
}

/// Reads what open files show: `version` or `newest`.
///
/// # Errors
/// A sentence that says what is allowed.
pub fn parse_open_files(text: &str) -> Result<OpenFiles, String> {
    match text {
        "version" => Ok(OpenFiles::Version),
        "newest" => Ok(OpenFiles::Newest),
        _ => Err(format!("open files show no `{text}`: write version or newest")),
    }
}

/// Writes a policy as [`parse_freshness`] reads it.
pub fn show_freshness(freshness: Freshness) -> String {
    match freshness {
        Freshness::Ttl(time) => format!("ttl={}", show_duration(time)),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read_and_written_alike() {
        for text in ["manual", "ttl=10m", "http", "always"] {
            assert_eq!(show_freshness(parse_freshness(text).expect("a policy")), text);
        }
        for text in ["", "ttl", "ttl=", "ttl=soon", "never"] {
            assert!(parse_freshness(text).is_err(), "{text}");
        }
        for text in ["version", "newest"] {
            assert_eq!(parse_open_files(text).expect("a policy").to_string(), text);
        }
        assert!(parse_open_files("").is_err());
    }
}
