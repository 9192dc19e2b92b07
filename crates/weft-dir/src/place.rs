//! Identities: paths below the top, as bytes, `/` between names; the empty path is the top.

use weft_remote::{FileId, Name, RemoteError, Result};

/// The path that an identity is, if it is one that this kind gives out.
///
/// # Errors
/// `NotFound` for bytes that are no such path: nothing of that identity can exist.
pub(crate) fn path_of(file: &FileId) -> Result<&[u8]> {
    let path = file.as_bytes();
    let good = path.is_empty() || path.split(|byte| *byte == b'/').all(|part| Name::new(part).is_ok());
    match good && path.len() <= FileId::BYTES_MAX {
        true => Ok(path),
        false => Err(RemoteError::NotFound { detail: format!("{file:?} is no path below a directory") }),
    }
}

/// The path of `name` in `dir`; `None` when it would be longer than an identity may be.
pub(crate) fn below(dir: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    let path = if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() };
    (path.len() <= FileId::BYTES_MAX).then_some(path)
}

/// The directory that holds `path`, and its name there; `None` for the top.
pub(crate) fn parted(path: &[u8]) -> Option<(&[u8], &[u8])> {
    if path.is_empty() {
        return None;
    }
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => Some((&path[..slash], &path[slash + 1..])),
        None => Some((b"", path)),
    }
}

/// The top and every directory on the way to `path`, then `path` itself.
pub(crate) fn way(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let below = slashes.chain((!path.is_empty()).then_some(path.len()));
    std::iter::once(&path[..0]).chain(below.map(|end| &path[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_paths_are_identities() {
        for good in [&b""[..], b"a", b"a/b", b"...", b"\xff/\n"] {
            assert_eq!(path_of(&FileId::new(good)).unwrap(), good);
        }
        for bad in [&b"/"[..], b"/a", b"a/", b"a//b", b"..", b"a/../b", b".", b"a\0b"] {
            assert!(path_of(&FileId::new(bad)).is_err(), "{}", bad.escape_ascii());
        }
        assert!(path_of(&FileId::new([&[b'a'; 200][..]; 50].join(&b'/'))).is_err());
    }

    #[test]
    fn paths_come_apart_and_together() {
        assert_eq!(parted(b""), None);
        assert_eq!(parted(b"a"), Some((&b""[..], &b"a"[..])));
        assert_eq!(parted(b"a/b/c"), Some((&b"a/b"[..], &b"c"[..])));
        assert_eq!(below(b"", b"a").unwrap(), b"a");
        assert_eq!(below(b"a/b", b"c").unwrap(), b"a/b/c");
        assert_eq!(way(b"").collect::<Vec<_>>(), [b""]);
        assert_eq!(way(b"a/b").collect::<Vec<_>>(), [&b""[..], b"a", b"a/b"]);
    }
}
