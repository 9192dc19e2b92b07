//! Properties of every decoder that meets bytes from outside: no input makes it panic, and what it makes of one is no
//! larger than the input allows. Inputs are pieces of the real thing in any order, with noise between them.

use std::time::SystemTime;

use hyper::StatusCode;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;
use url::Url;

use crate::authority::Authority;
use crate::cookies::Jar;
use crate::digest::Announced;
use crate::fetch::content_range;
use crate::freshness::{Came, absence_lease, lease_of};
use crate::index::{read_html, read_json};
use crate::options::WebOptions;
use crate::redirect::redirect_target;
use crate::validator::version_of;
use crate::xml::{Visitor, read_pieces};
use crate::{netrc, target};

/// Some of `words`, and noise.
fn mixed(words: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => proptest::sample::select(words).prop_map(|word| word.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..12),
        1 => any::<u64>().prop_map(|number| number.to_string().into_bytes()),
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

/// A header, if the bytes can be one.
fn header(name: HeaderName, value: &[u8]) -> HeaderMap {
    HeaderValue::from_bytes(value).map(|value| HeaderMap::from_iter([(name, value)])).unwrap_or_default()
}

#[derive(Default)]
struct Counted {
    depth: usize,
    elements: usize,
    text_bytes: usize,
}

impl Visitor for Counted {
    fn start(&mut self, _: &str, _: &str) -> Result<(), String> {
        (self.depth, self.elements) = (self.depth + 1, self.elements + 1);
        Ok(())
    }

    fn end(&mut self, text: &str) -> Result<(), String> {
        self.depth = self.depth.checked_sub(1).ok_or("an end without a beginning")?;
        self.text_bytes += text.len();
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_content_range_that_is_believed_makes_sense(text in mixed(&["bytes ", "bytes", "-", "/", "*", " ", "0", "9", "+1"])) {
        if let Some(range) = content_range(&header(header::CONTENT_RANGE, &text))
            && let Some((first, last)) = range.bytes
        {
            prop_assert!(first <= last && last < u64::MAX);
            prop_assert!(range.total.is_none_or(|total| last < total));
        }
    }

    #[test]
    fn a_location_is_followed_to_a_place_or_refused(
        text in mixed(&["http", "https", "file", ":", "//", "/", "..", "%2e", "\\", "@", "[::1]", "a.b", "?", "#", ":80", "\t"])
    ) {
        let from = Url::parse("http://example.org/a/b").unwrap();
        let next = redirect_target(&from, StatusCode::FOUND, &header(header::LOCATION, &text)).unwrap();
        if let Some(target) = next.ok().and_then(|next| target::Target::of_url(&next)) {
            prop_assert!(!target.authority.text().is_empty());
            prop_assert!(target.path_and_query.starts_with('/'), "{}", target.path_and_query);
            prop_assert!(!target.path_and_query.bytes().any(|byte| byte <= b' ' || byte == 0x7f));
        }
    }

    #[test]
    fn freshness_validators_and_digests_are_read_without_harm(
        text in mixed(&["max-age", "=", ",", "no-store", "stale-if-error", "\"", "W/", "sha-256", ":", "AAAA", "-1", "Mon, ", " GMT"])
    ) {
        let options = WebOptions::default();
        for name in ["cache-control", "expires", "date", "age", "last-modified", "etag", "digest", "repr-digest"] {
            let headers = header(HeaderName::from_static(name), &text);
            lease_of(&headers, Came::now(), &options);
            absence_lease(&headers, Came::now(), &options);
            version_of(&headers, Some(7), SystemTime::now());
            if let Some(mut announced) = Announced::read(StatusCode::OK, &headers) {
                announced.update(b"x");
                // Nothing generated here is a digest of that.
                prop_assert!(announced.check().is_err());
            }
        }
    }

    #[test]
    fn a_netrc_gives_logins_of_its_own_words(
        text in mixed(&["machine ", "login ", "password ", "default", "macdef ", "\n", "\"", "\\", " ", "#", "a.b", "x"])
    ) {
        if let Ok(logins) = netrc::read(std::slice::from_ref(&text)) {
            let bytes: usize = logins.iter().map(|login| login.login.len() + login.password.len()).sum();
            prop_assert!(logins.len() + bytes <= text.len());
        }
    }

    #[test]
    fn a_jar_gives_a_header_of_its_own_bytes(
        text in mixed(&["example.org", ".example.org", "\t", "TRUE", "FALSE", "/", "\n", "#HttpOnly_", "#", "0", "name", "v\r"])
    ) {
        if let Ok(jar) = Jar::parse(&text) {
            let host = Authority::parse("www.example.org").unwrap();
            let header = jar.header(&host, crate::host::Scheme::Https, "/a", SystemTime::now());
            let length = header.as_ref().map_or(0, HeaderValue::len);
            prop_assert!(length <= 2 * text.len(), "{length} of {}", text.len());
            prop_assert!(header.is_none_or(|header| !header.as_bytes().contains(&b'\n')));
        }
    }

    #[test]
    fn an_index_page_gives_names_of_its_own_bytes(
        text in mixed(&[
            "<title>Index of /x/</title>", "<title>Directory listing for /</title>", "<h1>Index of /x/</h1>", "<hr>", "<pre>",
            "<a href=\"../\">../</a>\n", "<a href=\"", "a", "b/", "\">", "</a>", "   03-Feb-2024 04:05   ", "1.2K", "-", "\n",
            "<table>", "<tr>", "<td>", "</td>", "<th>", "</pre>", "<li>", "&amp;", "&#x0;", "%2e%2e", "/__dufs_v", "<address>Apache",
        ])
    ) {
        if let Some(index) = read_html(&text) {
            prop_assert!(index.items.len() <= text.len());
            prop_assert!(index.items.iter().all(|item| !item.segment.is_empty() && !item.segment.contains('/')));
        }
    }

    #[test]
    fn a_listing_in_json_gives_names_of_its_own_bytes(
        text in mixed(&[
            "[", "]", "{", "}", ",", ":", "\"name\"", "\"type\"", "\"file\"", "\"directory\"", "\"mtime\"", "\"size\"", "\"..\"",
            "\"a/b\"", "\"a\"", "-1", "1e999", "null", "{\"name\":\"a\",\"type\":\"file\"}", "\"\\u0000\"",
        ])
    ) {
        if let Some(index) = read_json(&text) {
            prop_assert!(index.items.len() <= text.len());
            prop_assert!(index.items.iter().all(|item| !item.segment.is_empty() && !item.segment.contains('/')));
        }
    }

    #[test]
    fn xml_in_pieces_is_read_as_in_one_and_expands_nothing(
        text in mixed(&[
            "<multistatus xmlns='DAV:'>", "</multistatus>", "<response>", "</response>", "<href>", "</href>", "<a/>", "<a", ">", "/x",
            "&amp;", "&x;", "&#65;", "<![CDATA[", "]]>", "<!--", "-->", "<?", "?>", "<!DOCTYPE x [<!ENTITY x 'yyyy'>]>", "xmlns:a='b'",
        ]),
        step in 1..20_usize,
    ) {
        let (mut whole, mut pieces) = (Counted::default(), Counted::default());
        let one = read_pieces(&text, text.len().max(1), &mut whole).is_ok();
        let many = read_pieces(&text, step, &mut pieces).is_ok();
        prop_assert_eq!(one, many);
        prop_assert!(whole.elements <= text.len() && whole.text_bytes <= 4 * text.len());
        if one {
            prop_assert_eq!((whole.depth, whole.elements), (0, pieces.elements));
            prop_assert_eq!(whole.text_bytes, pieces.text_bytes);
        }
    }
}
