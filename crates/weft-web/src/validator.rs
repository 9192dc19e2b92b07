//! Versions out of headers, and headers out of versions.
//!
//! The token of a version says where it comes from by its first byte: `"` is an entity tag as the server wrote it
//! (without `W/`; the version's own kind says weak), `m` is `m<length>|<Last-Modified>`, with the length of the
//! whole file in decimal or `-`, and `h` is the hash of a listing that came without a validator.

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use weft_remote::Version;

/// The version of the content that `headers` describe. `length` is that of the whole file, where known.
pub(crate) fn version_of(headers: &HeaderMap, length: Option<u64>) -> Version {
    if let Some(version) = headers.get(header::ETAG).and_then(|tag| version_of_tag(tag.as_bytes())) {
        return version;
    }
    let Some(modified) = headers.get(header::LAST_MODIFIED).and_then(|m| m.to_str().ok()) else {
        return Version::None;
    };
    if httpdate::parse_http_date(modified).is_err() {
        return Version::None;
    }
    let length = length.map_or("-".to_owned(), |length| length.to_string());
    Version::weak(format!("m{length}|{modified}"))
}

/// The version that an entity tag stands for (RFC 9110 section 8.8.3); `None` when it is none.
pub(crate) fn version_of_tag(tag: &[u8]) -> Option<Version> {
    let weak = tag.strip_prefix(b"W/");
    let opaque = weak.unwrap_or(tag);
    is_opaque_tag(opaque).then(|| if weak.is_some() { Version::weak(opaque) } else { Version::strong(opaque) })
}

/// The version of a listing that came without a validator.
pub(crate) fn hashed(hash: u128) -> Version {
    Version::weak(format!("h{hash:032x}"))
}

/// The header that asks for content only if it is no longer `known` (RFC 9110 sections 13.1.2 and 13.1.3).
pub(crate) fn unless_same(known: &Version) -> Option<(HeaderName, HeaderValue)> {
    let token = known.token()?;
    match token.first()? {
        b'"' => Some((header::IF_NONE_MATCH, tag_header(known)?)),
        b'm' => {
            let date = token.splitn(2, |b| *b == b'|').nth(1)?;
            Some((header::IF_MODIFIED_SINCE, HeaderValue::from_bytes(date).ok()?))
        }
        _ => None,
    }
}

/// The header that makes a range hold only for `expected` (RFC 9110 section 13.1.5): strong tags alone may stand
/// there.
pub(crate) fn if_range(expected: &Version) -> Option<(HeaderName, HeaderValue)> {
    match expected {
        Version::Strong(token) if token.first() == Some(&b'"') => Some((header::IF_RANGE, tag_header(expected)?)),
        _ => None,
    }
}

/// Whether a version makes sure that two pieces of a file belong together: a strong tag, or a time and a length.
pub(crate) fn holds_pieces_together(version: &Version) -> bool {
    match version {
        Version::Strong(_) => true,
        Version::Weak(token) => token.starts_with(b"m") && !token.starts_with(b"m-"),
        Version::None => false,
    }
}

fn tag_header(version: &Version) -> Option<HeaderValue> {
    let token = version.token()?;
    let text = match version {
        Version::Weak(_) => [b"W/", token].concat(),
        _ => token.to_vec(),
    };
    HeaderValue::from_bytes(&text).ok()
}

fn is_opaque_tag(tag: &[u8]) -> bool {
    let inner = tag.strip_prefix(b"\"").and_then(|t| t.strip_suffix(b"\""));
    inner.is_some_and(|inner| tag.len() <= TAG_BYTES_MAX && !inner.contains(&b'"'))
}

/// Longer tags are taken for none: versions are kept for every file.
const TAG_BYTES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| {
            (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap())
        };
        list.iter().map(pair).collect()
    }

    #[test]
    fn conditions_are_rebuilt_from_tokens() {
        let strong = version_of(&headers(&[("etag", "\"a\"")]), Some(3));
        assert_eq!(unless_same(&strong).unwrap(), (header::IF_NONE_MATCH, HeaderValue::from_static("\"a\"")));
        assert_eq!(if_range(&strong).unwrap().1, "\"a\"");
        let weak = version_of(&headers(&[("etag", "W/\"a\"")]), None);
        assert_eq!(unless_same(&weak).unwrap().1, "W/\"a\"");
        assert_eq!(if_range(&weak), None);
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        let dated = version_of(&headers(&[("last-modified", date)]), Some(3));
        assert_eq!(unless_same(&dated).unwrap(), (header::IF_MODIFIED_SINCE, HeaderValue::from_static(date)));
        assert!(holds_pieces_together(&dated) && holds_pieces_together(&strong) && !holds_pieces_together(&weak));
        assert!(!dated.still_holds(&version_of(&headers(&[("last-modified", date)]), Some(4))));
        assert_eq!(unless_same(&hashed(7)), None);
    }

    #[test]
    fn broken_validators_are_none() {
        for bad in [("etag", "abc"), ("etag", "\""), ("etag", "\"a\"b\""), ("last-modified", "yesterday")] {
            assert_eq!(version_of(&headers(&[bad]), Some(1)), Version::None, "{bad:?}");
        }
    }
}
