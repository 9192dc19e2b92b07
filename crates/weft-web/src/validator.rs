//! Versions out of headers, and headers out of versions.
//!
//! The token of a version says where it comes from by its first byte: `"` is an entity tag as the server wrote it
//! (without `W/`; the version's own kind says weak), `m` is `m<length>|<Last-Modified>`, with the length of the
//! whole file in decimal or `-`, and `h` is the hash of a listing that came without a validator.
//!
//! A validator that is made of a time in seconds says nothing as long as that second may still last: what is written once
//! more in it, as long as before, has the same. An answer that was made within [`SETTLED_AFTER`] of such a time has no
//! version (RFC 9110 section 8.8.2.2): it comes in one piece and is fetched anew when it is asked about.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use weft_remote::{Sameness, Version};

/// The version of the content that `headers` describe, which came at `now`. `length` is that of the whole file, where known.
pub(crate) fn version_of(headers: &HeaderMap, length: Option<u64>, now: SystemTime) -> Version {
    let tag = headers.get(header::ETAG).map(HeaderValue::as_bytes);
    let tag = tag.and_then(|tag| Some((tag, version_of_tag(tag)?)));
    let modified = headers.get(header::LAST_MODIFIED).and_then(|m| m.to_str().ok());
    let at = modified.and_then(|modified| httpdate::parse_http_date(modified).ok());
    let made = headers.get(header::DATE).and_then(|d| httpdate::parse_http_date(d.to_str().ok()?).ok()).unwrap_or(now);
    let is_unsettled = at.is_some_and(|at| may_change_unseen(at, made));
    if let Some((tag, version)) = tag {
        let tells_nothing =
            names_second_near(tag, made) || is_unsettled && at.is_some_and(|at| is_caddys(tag, at, length));
        return if tells_nothing { Version::None } else { version };
    }
    if is_unsettled {
        return Version::None;
    }
    let Some(modified) = modified.filter(|_| at.is_some()) else { return Version::None };
    let length = length.map_or("-".to_owned(), |length| length.to_string());
    Version::weak(format!("m{length}|{modified}"))
}

/// Whether a file that was last modified in the second `at` may be modified in it once more after an answer of the time
/// `made`. A time that is yet to come is none of a clock that goes on.
fn may_change_unseen(at: SystemTime, made: SystemTime) -> bool {
    made < at + SETTLED_AFTER && at < made + SETTLED_AFTER
}

/// Whether an entity tag names a second, in hexadecimal or decimal, that may still last at the time `made`. Such a tag is taken to
/// say no more than that, for what else is in it is the length (nginx and h2o: `"time-length"`, civetweb: `"time.length"`), the
/// number of the file besides (WEBrick, LiteSpeed), or nothing (weborf, which tells no other time). One that names parts of the
/// second beside it has no version for that while either.
fn names_second_near(tag: &[u8], made: SystemTime) -> bool {
    let words = tag.split(|byte| !byte.is_ascii_alphanumeric()).filter_map(|word| std::str::from_utf8(word).ok());
    let is_near =
        |seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).is_some_and(|at| may_change_unseen(at, made));
    words
        .flat_map(|word| [10, 16].map(|radix| u64::from_str_radix(word, radix)))
        .any(|seconds| seconds.is_ok_and(is_near))
}

/// Whether an entity tag is one of Caddy before 2.8 (`calculateEtag`): the time and the length in base 36, side by side. Where the
/// length is not told, one that begins so may be.
fn is_caddys(tag: &[u8], at: SystemTime, length: Option<u64>) -> bool {
    let Ok(since) = at.duration_since(UNIX_EPOCH) else { return false };
    let (tag, time) = (tag.strip_prefix(b"W/").unwrap_or(tag), in_base_36(since.as_secs()));
    match length {
        Some(length) => tag == format!("\"{time}{}\"", in_base_36(length)).as_bytes(),
        None => tag.starts_with(format!("\"{time}").as_bytes()),
    }
}

fn in_base_36(mut number: u64) -> String {
    let mut digits = Vec::new();
    loop {
        let digit = (number % 36) as u8;
        digits.push(char::from(if digit < 10 { b'0' + digit } else { b'a' + digit - 10 }));
        number /= 36;
        if number == 0 {
            return digits.into_iter().rev().collect();
        }
    }
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

/// A version that is made of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dated<'a> {
    /// Of the whole file; `None` where it was not told.
    length: Option<&'a [u8]>,
    /// Last-Modified, as the server wrote it.
    modified: &'a [u8],
}

impl Dated<'_> {
    /// What a version is made of, if it is made of a time.
    pub fn of(version: &Version) -> Option<Dated<'_>> {
        let token = version.token()?.strip_prefix(b"m")?;
        let bar = token.iter().position(|byte| *byte == b'|')?;
        let (length, modified) = (&token[..bar], &token[bar + 1..]);
        Some(Dated { length: Some(length).filter(|length| *length != b"-"), modified })
    }

    /// Whether both are of one content. Of the same time alone nobody can tell when only one has a length.
    pub fn compare(&self, other: &Dated<'_>) -> Sameness {
        match (self.length, other.length) {
            _ if self.modified != other.modified => Sameness::Different,
            (a, b) if a == b => Sameness::Equivalent,
            (Some(_), Some(_)) => Sameness::Different,
            _ => Sameness::CannotTell,
        }
    }
}

/// The header that asks for content only if it is no longer `known` (RFC 9110 sections 13.1.2 and 13.1.3).
pub(crate) fn unless_same(known: &Version) -> Option<(HeaderName, HeaderValue)> {
    if let Some(dated) = Dated::of(known) {
        return Some((header::IF_MODIFIED_SINCE, HeaderValue::from_bytes(dated.modified).ok()?));
    }
    let is_tag = known.token()?.first() == Some(&b'"');
    is_tag.then(|| Some((header::IF_NONE_MATCH, tag_header(known)?))).flatten()
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
        Version::Weak(_) => Dated::of(version).is_some_and(|dated| dated.length.is_some()),
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

/// How much later than its last modification an answer must have been made, by the clock of its server, for that time to
/// tell versions apart: a second, and what passes between looking at the file and dating the answer.
const SETTLED_AFTER: Duration = Duration::from_secs(2);
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

    /// Any time but that of the files.
    fn now() -> SystemTime {
        httpdate::parse_http_date("Sat, 06 Jan 2024 00:00:00 GMT").unwrap()
    }

    #[test]
    fn conditions_are_rebuilt_from_tokens() {
        let strong = version_of(&headers(&[("etag", "\"a\"")]), Some(3), now());
        assert_eq!(unless_same(&strong).unwrap(), (header::IF_NONE_MATCH, HeaderValue::from_static("\"a\"")));
        assert_eq!(if_range(&strong).unwrap().1, "\"a\"");
        let weak = version_of(&headers(&[("etag", "W/\"a\"")]), None, now());
        assert_eq!(unless_same(&weak).unwrap().1, "W/\"a\"");
        assert_eq!(if_range(&weak), None);
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        let dated = version_of(&headers(&[("last-modified", date)]), Some(3), now());
        assert_eq!(unless_same(&dated).unwrap(), (header::IF_MODIFIED_SINCE, HeaderValue::from_static(date)));
        assert!(holds_pieces_together(&dated) && holds_pieces_together(&strong) && !holds_pieces_together(&weak));
        assert!(!dated.still_holds(&version_of(&headers(&[("last-modified", date)]), Some(4), now())));
        assert_eq!(unless_same(&hashed(7)), None);
    }

    #[test]
    fn times_are_compared_with_their_lengths() {
        let (day, before) = ("Sun, 06 Nov 1994 08:49:37 GMT", "Sat, 05 Nov 1994 08:49:37 GMT");
        let compare = |a: (Option<u64>, &str), b: (Option<u64>, &str)| {
            let version = |(length, date)| version_of(&headers(&[("last-modified", date)]), length, now());
            Dated::of(&version(a)).unwrap().compare(&Dated::of(&version(b)).unwrap())
        };
        assert_eq!(compare((Some(3), day), (Some(3), day)), Sameness::Equivalent);
        assert_eq!(compare((None, day), (None, day)), Sameness::Equivalent);
        assert_eq!(compare((Some(3), day), (None, day)), Sameness::CannotTell);
        assert_eq!(compare((Some(3), day), (Some(4), day)), Sameness::Different);
        assert_eq!(compare((Some(3), day), (None, before)), Sameness::Different);
        assert_eq!(Dated::of(&Version::strong("\"m3|a\"")), None);
    }

    #[test]
    fn broken_validators_are_none() {
        for bad in [("etag", "abc"), ("etag", "\""), ("etag", "\"a\"b\""), ("last-modified", "yesterday")] {
            assert_eq!(version_of(&headers(&[bad]), Some(1), now()), Version::None, "{bad:?}");
        }
    }

    /// Goal: what may be written once more without a sign of it has no version. Method: answers made in the second of the last
    /// modification and later; tags that say as much as the time, and others.
    #[test]
    fn a_second_that_still_lasts_tells_nothing() {
        let at = "Sun, 06 Nov 1994 08:49:37 GMT";
        let told = |made: &str, length, tag: Option<&str>| {
            let list: Vec<_> =
                [("last-modified", at), ("date", made)].into_iter().chain(tag.map(|t| ("etag", t))).collect();
            version_of(&headers(&list), length, now())
        };
        let of_the_second =
            ["\"2ebc98a1-64\"", "\"cyu8ip2s\"", "\"2EBC98A1.100\"", "\"784111777\"", "W/\"1f-64-2ebc98a1\""];
        let others = ["\"64-2ebc98a1f\"", "\"784111777000\"", "\"cyu8ip2t\"", "\"2ebc98b1-64\"", "\"\""];
        for made in ["Sun, 06 Nov 1994 08:49:36 GMT", at, "Sun, 06 Nov 1994 08:49:38 GMT"] {
            assert_eq!(told(made, Some(100), None), Version::None, "{made}");
            for tag in of_the_second {
                assert_eq!(told(made, Some(100), Some(tag)), Version::None, "{made} {tag}");
                assert_eq!(told(made, None, Some(tag)), Version::None, "{made} {tag}");
            }
            for tag in others {
                assert_eq!(told(made, Some(100), Some(tag)), Version::strong(tag), "{made} {tag}");
            }
        }
        for made in ["Sun, 06 Nov 1994 08:49:39 GMT", "Sun, 06 Nov 1994 08:49:35 GMT", "Mon, 07 Nov 1994 08:49:37 GMT"]
        {
            assert_eq!(told(made, Some(100), None), Version::weak(format!("m100|{at}")), "{made}");
            for tag in &of_the_second[..4] {
                assert_eq!(told(made, Some(100), Some(tag)), Version::strong(*tag), "{made} {tag}");
            }
        }
        let tag_alone = |made| version_of(&headers(&[("etag", "\"784111777\"")]), None, made);
        let second = httpdate::parse_http_date(at).unwrap();
        assert_eq!(tag_alone(second + Duration::from_millis(1900)), Version::None, "by this machine's clock");
        assert_eq!(tag_alone(second + Duration::from_secs(2)), Version::strong("\"784111777\""));
    }
}
