//! One component of a path.

use std::borrow::{Borrow, Cow};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A directory entry's name that Linux can hold: 1 to 255 bytes, no `/`, no NUL, neither `.` nor `..`.
///
/// A kind translates what its source calls things into names and back, without loss.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<[u8]>);

/// Why some bytes are not a [`Name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// No bytes at all.
    #[error("a name cannot be empty")]
    Empty,
    /// More than [`Name::BYTES_MAX`] bytes.
    #[error("a name cannot be longer than 255 bytes")]
    TooLong,
    /// `/` or NUL among the bytes.
    #[error("a name cannot hold a slash or a NUL byte")]
    ForbiddenByte,
    /// `.` or `..`.
    #[error("a name cannot be . or ..")]
    Dots,
}

impl Name {
    /// Longest name in bytes (Linux `NAME_MAX`).
    pub const BYTES_MAX: usize = 255;

    /// Checks the bytes and wraps them.
    ///
    /// # Errors
    /// [`BadName`] says which rule the bytes break.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Name, BadName> {
        let bytes = bytes.as_ref();
        match bytes {
            [] => Err(BadName::Empty),
            b"." | b".." => Err(BadName::Dots),
            _ if bytes.len() > Name::BYTES_MAX => Err(BadName::TooLong),
            _ if bytes.iter().any(|b| matches!(b, b'/' | 0)) => Err(BadName::ForbiddenByte),
            _ => Ok(Name(Arc::from(bytes))),
        }
    }

    /// The name's bytes; not always UTF-8.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The name as the standard library's paths want it.
    pub fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        serde_bytes::serialize(&*self.0, to)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Name, D::Error> {
        let bytes = serde_bytes::deserialize::<Cow<'de, [u8]>, D>(from)?;
        Name::new(bytes).map_err(serde::de::Error::custom)
    }
}

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(&self.0) {
            Ok(text) if !text.chars().any(char::is_control) => f.write_str(text),
            _ => write!(f, "{}", self.0.escape_ascii()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileId, Version};

    #[test]
    fn names_that_linux_cannot_hold_are_refused() {
        assert_eq!(Name::new(b""), Err(BadName::Empty));
        assert_eq!(Name::new(b"."), Err(BadName::Dots));
        assert_eq!(Name::new(b".."), Err(BadName::Dots));
        assert_eq!(Name::new(b"a/b"), Err(BadName::ForbiddenByte));
        assert_eq!(Name::new(b"a\0"), Err(BadName::ForbiddenByte));
        assert_eq!(Name::new(vec![b'x'; 256]), Err(BadName::TooLong));
        assert!(Name::new(vec![b'x'; 255]).is_ok());
        assert!(Name::new(b"...").is_ok());
        assert!(Name::new([0xff, b'\n']).is_ok());
    }

    /// Goal: what records hold as octets is written as the lists of octets that earlier versions wrote, and read from both.
    #[test]
    fn octets_are_written_as_they_always_were() {
        let octets = vec![0xff, b'n', 1];
        let (name, version) = (Name::new(&octets).unwrap(), Version::strong(&octets));
        let written = postcard::to_allocvec(&(&name, FileId::new(&octets), &version)).unwrap();
        let as_lists = postcard::to_allocvec(&(&octets, &octets, 0_u8, &octets)).unwrap();
        assert_eq!(written, as_lists);
        assert_eq!(postcard::from_bytes(&written), Ok((name, FileId::new(&octets), version)));
        let bad = postcard::to_allocvec(&b"a/b".to_vec()).unwrap();
        assert!(postcard::from_bytes::<Name>(&bad).is_err());
        assert!(postcard::from_bytes::<FileId>(&written[..2]).is_err(), "it is cut off");
    }
}
