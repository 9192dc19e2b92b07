//! Which content a file has: whatever validator its source offers.

use serde::{Deserialize, Serialize};

/// A validator for the content of a file or for a directory's listing.
///
/// The token is the kind's own (an ETag, a Last-Modified with a length, an AFS data version, a replica position).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Version {
    /// Two equal tokens mean the same bytes (RFC 9110 section 8.8.1: a strong validator).
    Strong(#[serde(with = "serde_bytes")] Box<[u8]>),
    /// Two equal tokens mean content that the source holds to be equivalent (a weak validator).
    Weak(#[serde(with = "serde_bytes")] Box<[u8]>),
    /// The source offers no validator.
    #[default]
    None,
}

/// What comparing two versions tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sameness {
    /// The same bytes.
    Same,
    /// Equivalent in the source's eyes; the bytes may differ in ways it holds to be unimportant.
    Equivalent,
    /// Not the same.
    Different,
    /// At least one side has no validator.
    CannotTell,
}

impl Version {
    /// A strong version from the kind's token.
    pub fn strong(token: impl AsRef<[u8]>) -> Version {
        Version::Strong(Box::from(token.as_ref()))
    }

    /// A weak version from the kind's token.
    pub fn weak(token: impl AsRef<[u8]>) -> Version {
        Version::Weak(Box::from(token.as_ref()))
    }

    /// The kind's token, if there is one.
    pub fn token(&self) -> Option<&[u8]> {
        match self {
            Version::Strong(token) | Version::Weak(token) => Some(token),
            Version::None => None,
        }
    }

    /// Compares by RFC 9110 section 8.8.3.2: strong only if both are strong.
    pub fn compare(&self, other: &Version) -> Sameness {
        match (self, other) {
            (Version::None, _) | (_, Version::None) => Sameness::CannotTell,
            (Version::Strong(a), Version::Strong(b)) if a == b => Sameness::Same,
            (a, b) if a.token() == b.token() => Sameness::Equivalent,
            _ => Sameness::Different,
        }
    }

    /// Whether what is held under `self` may be kept when the source now says `other`.
    pub fn still_holds(&self, other: &Version) -> bool {
        matches!(self.compare(other), Sameness::Same | Sameness::Equivalent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_two_strong_tokens_make_the_same_bytes() {
        let strong = Version::strong("a");
        assert_eq!(strong.compare(&Version::strong("a")), Sameness::Same);
        assert_eq!(strong.compare(&Version::strong("b")), Sameness::Different);
        assert_eq!(strong.compare(&Version::weak("a")), Sameness::Equivalent);
        assert_eq!(strong.compare(&Version::None), Sameness::CannotTell);
        assert_eq!(Version::None.compare(&Version::None), Sameness::CannotTell);
        assert!(!Version::None.still_holds(&Version::None));
    }
}
