//! Names of volumes, and which of a volume's copies a name means.

use std::fmt;

/// Longest name of a volume, its ending included, in bytes (OpenAFS `src/vlserver/vldbint.xg`, `VL_MAXNAMELEN` less a
/// NUL).
pub const VOLUME_NAME_BYTES_MAX: usize = 64;

/// One of the copies of a volume. The number is its place in an entry of the VLDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum VolumeType {
    /// The one that can be changed. It has one site.
    ReadWrite = 0,
    /// What was released of it, on one or several sites.
    ReadOnly = 1,
    /// A snapshot of it, beside it.
    Backup = 2,
}

/// A volume's name: letters, digits, `.`, `-` and `_`, not digits alone; it may end in `.readonly` or `.backup`.
/// (OpenAFS `src/vlserver/vlprocs.c`, `InvalidVolname`.)
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VolumeName(String);

/// Why some bytes are not a [`VolumeName`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadVolumeName {
    /// No bytes at all.
    #[error("the name of a volume cannot be empty")]
    Empty,
    /// More than [`VOLUME_NAME_BYTES_MAX`] bytes.
    #[error("the name of a volume cannot be longer than {VOLUME_NAME_BYTES_MAX} bytes")]
    TooLong,
    /// A byte that no such name has.
    #[error("the name of a volume has letters, digits, '.', '-' and '_' only")]
    ForbiddenByte,
    /// Digits alone are a number.
    #[error("digits alone are the number of a volume and not a name")]
    Number,
}

impl VolumeName {
    /// Checks the bytes and wraps them.
    ///
    /// # Errors
    /// [`BadVolumeName`] says which rule the bytes break.
    pub fn new(bytes: &[u8]) -> Result<VolumeName, BadVolumeName> {
        match std::str::from_utf8(bytes) {
            Ok("") => Err(BadVolumeName::Empty),
            _ if bytes.len() > VOLUME_NAME_BYTES_MAX => Err(BadVolumeName::TooLong),
            Ok(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => Err(BadVolumeName::Number),
            Ok(text) if text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte)) => {
                Ok(VolumeName(text.to_owned()))
            }
            _ => Err(BadVolumeName::ForbiddenByte),
        }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The copy that the name's ending asks for; `None` without an ending.
    #[must_use]
    pub fn ending(&self) -> Option<VolumeType> {
        [VolumeType::ReadOnly, VolumeType::Backup].into_iter().find(|kind| self.before(*kind).is_some())
    }

    /// The name without an ending: that of the read-write volume.
    #[must_use]
    pub fn base(&self) -> &str {
        self.ending().and_then(|kind| self.before(kind)).unwrap_or(&self.0)
    }

    /// What is before that ending, if it is there and not all of the name.
    fn before(&self, kind: VolumeType) -> Option<&str> {
        self.0.strip_suffix(kind.ending()).filter(|base| !base.is_empty())
    }
}

impl VolumeType {
    /// All, in the order of the VLDB.
    pub const ALL: [VolumeType; 3] = [VolumeType::ReadWrite, VolumeType::ReadOnly, VolumeType::Backup];

    /// What a name ends in that means this copy.
    #[must_use]
    pub const fn ending(self) -> &'static str {
        match self {
            VolumeType::ReadWrite => "",
            VolumeType::ReadOnly => ".readonly",
            VolumeType::Backup => ".backup",
        }
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_vldb_cannot_have_are_refused() {
        assert_eq!(VolumeName::new(b""), Err(BadVolumeName::Empty));
        assert_eq!(VolumeName::new(&[b'a'; 65]), Err(BadVolumeName::TooLong));
        assert_eq!(VolumeName::new(b"536870918"), Err(BadVolumeName::Number));
        for name in [&b"a b"[..], b"a/b", b"a:b", b"a\0", b"\xff", "\u{e5}".as_bytes()] {
            assert_eq!(VolumeName::new(name), Err(BadVolumeName::ForbiddenByte), "{name:?}");
        }
        for name in [&b"root.cell"[..], b"user_x-1", &[b'a'; 64], b"1a"] {
            assert!(VolumeName::new(name).is_ok(), "{name:?}");
        }
    }

    #[test]
    fn an_ending_says_which_copy() {
        let read = |name: &str| {
            let name = VolumeName::new(name.as_bytes()).expect("a name");
            (name.ending(), name.base().to_owned())
        };
        assert_eq!(read("root.cell"), (None, "root.cell".to_owned()));
        assert_eq!(read("root.cell.readonly"), (Some(VolumeType::ReadOnly), "root.cell".to_owned()));
        assert_eq!(read("root.cell.backup"), (Some(VolumeType::Backup), "root.cell".to_owned()));
        assert_eq!(read(".backup"), (None, ".backup".to_owned()), "an ending of nothing is a name");
        assert_eq!(read("x.backup.readonly"), (Some(VolumeType::ReadOnly), "x.backup".to_owned()));
    }
}
