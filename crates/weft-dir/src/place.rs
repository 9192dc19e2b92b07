//! Paths below the top, as bytes, `/` between names; the empty path is the top.

/// The path of `name` in `dir`; `None` when it would be longer than [`PATH_BYTES_MAX`].
pub(crate) fn below(dir: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    let path = if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() };
    (path.len() <= PATH_BYTES_MAX).then_some(path)
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

/// Longest path below the top, in bytes.
pub(crate) const PATH_BYTES_MAX: usize = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_come_apart_and_together() {
        assert_eq!(parted(b""), None);
        assert_eq!(parted(b"a"), Some((&b""[..], &b"a"[..])));
        assert_eq!(parted(b"a/b/c"), Some((&b"a/b"[..], &b"c"[..])));
        assert_eq!(below(b"", b"a").unwrap(), b"a");
        assert_eq!(below(b"a/b", b"c").unwrap(), b"a/b/c");
        assert_eq!(below(&[b'a'; PATH_BYTES_MAX], b"c"), None);
        assert_eq!(way(b"").collect::<Vec<_>>(), [b""]);
        assert_eq!(way(b"a/b").collect::<Vec<_>>(), [&b""[..], b"a", b"a/b"]);
    }
}
