//! URL segments as file names and back. What users need to know of it is in `docs/names.md`.
//!
//! A segment is percent-decoded, so that `a%20b` is the file `a b`. Escaped stay the bytes that Linux cannot hold
//! in a name (`%2F`, `%00`), `%3F` because a bare `?` starts the query, and a `%` that would otherwise read as one
//! of these escapes (`%25`). An empty segment is `%~`. A name of more than 255 bytes is cut and ends in `%~` and
//! 16 hexadecimal digits of the XXH3 hash of the whole name. Queries keep their escapes, since `%26` and `&` mean
//! different things there; only their slashes become `%2F`.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use weft_remote::Name;

use crate::target::place_of;

/// The names that lead from the directory of all hosts to what a URL stands for: the host, then one for each segment.
/// `None` for what is no URL of the web.
pub fn names_of_url(url: &str) -> Option<Vec<Name>> {
    let url = url::Url::parse(url).ok()?;
    let place = place_of(&url)?;
    let mut names = vec![Name::new(&place.authority).ok()?];
    let path = place.path.strip_prefix('/')?;
    let (path, is_dir) = match path.strip_suffix('/') {
        Some(path) => (path, true),
        None => (path, path.is_empty()),
    };
    let mut segments = path.split('/').filter(|_| !path.is_empty()).peekable();
    while let Some(segment) = segments.next() {
        let query = place.query.as_deref().filter(|_| segments.peek().is_none() && !is_dir);
        names.push(name_of(segment, query)?);
    }
    if is_dir && let Some(query) = &place.query {
        names.push(name_of("", Some(query))?);
    }
    Some(names)
}

/// The end of a URL that a name stands for: canonical segment and query, both percent-encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The segment; empty in `dir/?x=1`.
    pub segment: String,
    /// What follows the question mark, if there is one.
    pub query: Option<String>,
}

impl Part {
    /// The same as a link of Java writes it that carries a session (Servlet 6.0 section 7.1.3); `None` where nothing looks like one.
    pub fn with_session(&self) -> Option<Part> {
        let (name, session) = self.segment.split_once("%3Bjsessionid=").filter(|(name, _)| !is_dots(name))?;
        Some(Part { segment: format!("{name}{SESSION}{session}"), query: self.query.clone() })
    }
}

/// What a name asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The URL that ends so.
    Part(Part),
    /// A name that was shortened: only a listing knows its URL.
    Shortened,
    /// No URL ends so.
    Impossible,
}

/// The name of a URL's end; `None` for the dot segments, which URLs never keep.
pub(crate) fn name_of(segment: &str, query: Option<&str>) -> Option<Name> {
    let decoded: Vec<u8> = percent_decode_str(segment).collect();
    if matches!(decoded.as_slice(), b"." | b"..") {
        return None;
    }
    let mut bytes = Vec::with_capacity(decoded.len());
    for (at, byte) in decoded.iter().enumerate() {
        let rest = &decoded[at + 1..];
        match byte {
            0 => bytes.extend(b"%00"),
            b'/' => bytes.extend(b"%2F"),
            b'?' => bytes.extend(b"%3F"),
            b'%' if SEGMENT_ESCAPES.iter().any(|e| rest.starts_with(e)) => bytes.extend(b"%25"),
            other => bytes.push(*other),
        }
    }
    match query {
        Some(query) => append_query(&mut bytes, &canonical_query(query)),
        None if bytes.is_empty() => bytes.extend(MARK),
        None => {}
    }
    if bytes.len() > Name::BYTES_MAX {
        bytes = shortened(&bytes);
    }
    Some(Name::new(bytes).expect("escaped, not empty, not dots and cut to the longest length"))
}

/// What `name` asks for.
pub(crate) fn wanted_of(name: &Name) -> Wanted {
    let bytes = name.as_bytes();
    let (head, query) = match bytes.iter().position(|b| *b == b'?') {
        Some(at) => (&bytes[..at], Some(&bytes[at + 1..])),
        None => (bytes, None),
    };
    let query = match query.map(query_from_name).transpose() {
        Ok(query) => query,
        Err(Marked) => return Wanted::Shortened,
    };
    if head == MARK && query.is_none() {
        return Wanted::Part(Part { segment: String::new(), query });
    }
    let Ok(decoded) = unescape(head, SEGMENT_ESCAPES) else { return Wanted::Shortened };
    if matches!(decoded.as_slice(), b"." | b"..") {
        return Wanted::Impossible;
    }
    Wanted::Part(Part { segment: encode_segment(&decoded), query })
}

/// The one spelling of a segment that ids and requests use: what may stand bare is bare, all else is escaped. The session of a
/// link stays as it is.
pub(crate) fn canonical_segment(segment: &str) -> String {
    let encode = |part: &str| encode_segment(&percent_decode_str(part).collect::<Vec<u8>>());
    match segment.split_once(SESSION).map(|(name, session)| (encode(name), session)) {
        Some((name, session)) if !is_dots(&name) => format!("{name}{SESSION}{}", encode(session)),
        _ => encode(segment),
    }
}

/// A path with every segment in its canonical spelling.
pub(crate) fn canonical_path(path: &str) -> String {
    let segments: Vec<String> = path.split('/').map(canonical_segment).collect();
    segments.join("/")
}

/// The same of what a list tells, in which no link carries a session: there it is a part of a file's name (Tomcat leaves it bare).
pub(crate) fn listed_path(path: &str) -> String {
    canonical_path(path).replace(SESSION, "%3Bjsessionid=")
}

/// A query with what may not stand in one escaped; existing escapes stay.
pub(crate) fn canonical_query(query: &str) -> String {
    percent_encode(query.as_bytes(), QUERY_ENCODED).to_string()
}

/// A URL as a server wrote it, which may hold any bytes: what is no UTF-8 is escaped, for it is a part of a name as it is.
pub(crate) fn any_bytes(url: &[u8]) -> String {
    let mut text = String::with_capacity(url.len());
    for chunk in url.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(percent_encode(chunk.invalid(), NON_ALPHANUMERIC));
    }
    text
}

/// Escapes what may not stand in a path, leaving escapes and slashes as they are.
pub(crate) fn clean_path(path: &str) -> String {
    percent_encode(path.as_bytes(), QUERY_ENCODED).to_string().replace('?', "%3F")
}

/// Escapes one segment given in plain bytes. A bare `;` begins parameters for servers of Java, which give the file of the
/// name before it: escaped it is a letter of the name for all (RFC 3986 section 3.3 leaves it to the server).
pub(crate) fn encode_segment(decoded: &[u8]) -> String {
    percent_encode(decoded, SEGMENT_ENCODED).to_string()
}

/// Whether a segment would lead elsewhere if what follows it did not count.
fn is_dots(segment: &str) -> bool {
    matches!(segment, "." | "..")
}

fn append_query(bytes: &mut Vec<u8>, query: &str) {
    bytes.push(b'?');
    let query = query.as_bytes();
    for (at, byte) in query.iter().enumerate() {
        match byte {
            b'/' => bytes.extend(b"%2F"),
            b'%' if QUERY_ESCAPES.iter().any(|e| query[at + 1..].starts_with(e)) => bytes.extend(b"%25"),
            other => bytes.push(*other),
        }
    }
}

fn query_from_name(bytes: &[u8]) -> Result<String, Marked> {
    let plain = unescape(bytes, QUERY_ESCAPES)?;
    Ok(percent_encode(&plain, QUERY_ENCODED).to_string())
}

/// A shortening mark stands in the name.
struct Marked;

/// Undoes the escapes in `known`, leaving any other `%` as it is.
fn unescape(bytes: &[u8], known: &[&[u8]]) -> Result<Vec<u8>, Marked> {
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at + 1..];
        if bytes[at] != b'%' {
            plain.push(bytes[at]);
            at += 1;
            continue;
        }
        if rest.starts_with(b"~") {
            return Err(Marked);
        }
        match known.iter().find(|escape| rest.starts_with(escape)) {
            Some(&b"00") => plain.push(0),
            Some(&b"2F") => plain.push(b'/'),
            Some(&b"3F") => plain.push(b'?'),
            Some(_) => plain.push(b'%'),
            None => {
                plain.push(b'%');
                at += 1;
                continue;
            }
        }
        at += 3;
    }
    Ok(plain)
}

fn shortened(bytes: &[u8]) -> Vec<u8> {
    let hash = xxhash_rust::xxh3::xxh3_64(bytes);
    let mut end = Name::BYTES_MAX - MARK.len() - HASH_DIGITS;
    // A character is never cut in two; without one nearby the bytes are not text and any cut will do.
    while end > 230 && (bytes[end] & 0xC0) == 0x80 {
        end -= 1;
    }
    let mut name = bytes[..end].to_vec();
    name.extend(MARK);
    name.extend(format!("{hash:016x}").bytes());
    name
}

/// What begins a session in a link.
const SESSION: &str = ";jsessionid=";
/// Stands for an empty segment, and marks a shortened name.
const MARK: &[u8] = b"%~";
const HASH_DIGITS: usize = 16;
const SEGMENT_ESCAPES: &[&[u8]] = &[b"00", b"2F", b"3F", b"25", b"~"];
const QUERY_ESCAPES: &[&[u8]] = &[b"2F", b"25", b"~"];

/// RFC 3986 section 3.3: everything but unreserved, sub-delims without `;`, `:` and `@`.
const SEGMENT_ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b'=')
    .remove(b':')
    .remove(b'@');
/// RFC 3986 section 3.4, with `%` left alone because the escapes are in place.
const QUERY_ENCODED: &AsciiSet = &SEGMENT_ENCODED.remove(b';').remove(b'/').remove(b'?').remove(b'%');

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn part(segment: &str, query: Option<&str>) -> Wanted {
        Wanted::Part(Part { segment: segment.into(), query: query.map(str::to_owned) })
    }

    #[test]
    fn urls_are_paths() {
        for (url, path) in [
            ("https://example.org", "example.org"),
            ("http://Example.org:80/", "example.org"),
            ("https://example.org:8443/a/b%20c.txt#part", "example.org:8443/a/b c.txt"),
            ("https://example.org/a/?x=1", "example.org/a/?x=1"),
            ("https://example.org/a/", "example.org/a"),
            ("https://example.org/a%2Fb?q=/", "example.org/a%2Fb?q=%2F"),
            ("https://example.org/a//b", "example.org/a/%~/b"),
        ] {
            let names = names_of_url(url).expect(url);
            assert_eq!(names.iter().map(Name::to_string).collect::<Vec<_>>().join("/"), path, "{url}");
        }
        for url in ["ftp://example.org/", "example.org/a", "https://", "file:///etc", "mailto:a@b"] {
            assert_eq!(names_of_url(url), None, "{url}");
        }
    }

    #[test]
    fn the_table_of_the_manual_holds() {
        for (segment, query, shown) in [
            ("a%20b", None, "a b"),
            ("caf%C3%A9", None, "caf\u{e9}"),
            ("100%25", None, "100%"),
            ("a%2Fb", None, "a%2Fb"),
            ("a%252Fb", None, "a%252Fb"),
            ("a%3Fb", None, "a%3Fb"),
            ("", None, "%~"),
            ("%25~", None, "%25~"),
            ("a%3Bb=1", None, "a;b=1"),
            ("a%3Bjsessionid=1F.n1", None, "a;jsessionid=1F.n1"),
            ("list", Some("p=1;q=2"), "list?p=1;q=2"),
            ("list", Some("p=1&q=a/b"), "list?p=1&q=a%2Fb"),
            ("list", Some("q=a%2Fb"), "list?q=a%252Fb"),
            ("", Some("p=1"), "?p=1"),
        ] {
            assert_eq!(name_of(segment, query), Some(name(shown)), "{segment}");
            assert_eq!(wanted_of(&name(shown)), part(segment, query), "{shown}");
        }
    }

    /// A bare `;` and an escaped one are one name, and sent escaped: bare, Tomcat gives another file for it.
    #[test]
    fn a_semicolon_is_a_letter_of_a_name() {
        assert_eq!(name_of("a;b", None), name_of("a%3bb", None));
        assert_eq!(canonical_path("/a;b/c;jsessionid=1/..;jsessionid=1"), "/a%3Bb/c;jsessionid=1/..%3Bjsessionid=1");
        assert_eq!(listed_path("/a;b/c;jsessionid=1"), "/a%3Bb/c%3Bjsessionid=1");
        assert_eq!(canonical_path("/c%3Bjsessionid=1"), "/c%3Bjsessionid=1", "a letter of a name, as a list tells it");
        let Wanted::Part(part) = wanted_of(&name("c d;jsessionid=1")) else { panic!() };
        let link = part.with_session().unwrap();
        assert_eq!((part.segment.as_str(), link.segment.as_str()), ("c%20d%3Bjsessionid=1", "c%20d;jsessionid=1"));
        assert_eq!(link.with_session(), None);
    }

    #[test]
    fn dot_segments_have_no_name_and_no_url() {
        assert_eq!(name_of("%2e%2E", None), None);
        assert_eq!(wanted_of(&name("..?x")), Wanted::Impossible);
    }

    #[test]
    fn long_names_are_cut_and_stay_apart() {
        let one = name_of(&"\u{e9}x".repeat(200), None).unwrap();
        let other = name_of(&("\u{e9}x".repeat(199) + "\u{e9}y"), None).unwrap();
        assert_ne!(one, other);
        assert!(one.as_bytes().len() <= 255 && std::str::from_utf8(one.as_bytes()).is_ok());
        assert_eq!(wanted_of(&one), Wanted::Shortened);
    }

    #[test]
    fn nothing_in_a_name_can_leave_its_place_in_a_request() {
        let Wanted::Part(part) = wanted_of(&name("a\r\nHost: x #?b c\r\n\u{7f}#")) else { panic!() };
        assert_eq!(part.segment, "a%0D%0AHost:%20x%20%23");
        assert_eq!(part.query.unwrap(), "b%20c%0D%0A%7F%23");
    }

    proptest! {
        #[test]
        fn segments_survive_the_way_through_names(decoded in proptest::collection::vec(any::<u8>(), 0..80)) {
            let segment = encode_segment(&decoded);
            if let Some(name) = name_of(&segment, None) {
                prop_assert_eq!(wanted_of(&name), part(&segment, None));
            }
        }

        #[test]
        fn names_survive_the_way_through_segments(bytes in proptest::collection::vec(any::<u8>(), 1..80)) {
            if let Ok(name) = Name::new(&bytes)
                && !bytes.contains(&b'?')
                && let Wanted::Part(part) = wanted_of(&name)
            {
                let back = name_of(&part.segment, None).unwrap();
                // Several names may lead to one URL (an idle `%25` for `%`); its own name is one of them.
                prop_assert_eq!(wanted_of(&back), Wanted::Part(part));
            }
        }

        #[test]
        fn queries_survive_the_way_through_names(segment in "[a-z%/?~0-9]{0,6}", query in "[ -~]{0,30}") {
            let segment = encode_segment(segment.as_bytes());
            let query = canonical_query(&query);
            if let Some(name) = name_of(&segment, Some(&query)) {
                prop_assert_eq!(wanted_of(&name), part(&segment, Some(&query)));
            }
        }
    }
}
