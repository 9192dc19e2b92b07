//! Whether a body is the bytes of its file, going by what is said of its coding.
//!
//! Plain content is asked for (`Accept-Encoding: identity`), and a server that encodes it on the way all the same gives
//! something else than the file. But `Content-Encoding` is also what people and programs write beside a file that they store,
//! and then it is sent with the file as it is.

use hyper::header::{self, HeaderMap};

use crate::headers::content_length;

/// The coding that keeps the body of an answer from being the file's bytes; `None` where it is those.
pub(crate) fn foreign_coding(url: &str, headers: &HeaderMap) -> Option<String> {
    // Every line counts: one that is harmless does not excuse the next.
    let lines = headers.get_all(header::CONTENT_ENCODING).iter();
    let lines: Vec<String> =
        lines.map(|line| String::from_utf8_lossy(line.as_bytes()).trim().to_ascii_lowercase()).collect();
    let mut codings =
        lines.iter().flat_map(|line| line.split(',')).map(str::trim).filter(|coding| changes_bytes(coding));
    let coding = codings.next()?;
    let is_only_one = codings.next().is_none();
    (!is_only_one || !is_of_the_file(coding, url, headers)).then(|| lines.join(", "))
}

/// Whether a coding makes other bytes of a file. What no program can encode in is a word that came with an upload and tells
/// nothing: `aws-chunked`, of how it was sent (some stores of S3's kind keep it), `none`, `utf-8`, `binary`.
fn changes_bytes(coding: &str) -> bool {
    let mut words = coding.split(|letter: char| !letter.is_ascii_alphanumeric());
    words.any(|word| CODINGS.contains(&word))
}

/// Whether the one coding that an answer came with is that of the file itself: its name says so, as of `x.tar.gz` that Apache
/// (`AddEncoding`) calls a `x.tar` in gzip; or an object store gives it, which keeps what it was given. What a server encodes
/// on the way has no length, or depends on what was asked for and says so (RFC 9110 section 12.5.5).
fn is_of_the_file(coding: &str, url: &str, headers: &HeaderMap) -> bool {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let is_named = CODED_NAMES
        .iter()
        .any(|(names, endings)| names.contains(&coding) && endings.iter().any(|ending| path.ends_with(ending)));
    let is_stored = STORES.iter().any(|name| headers.contains_key(*name));
    let varies = headers.get_all(header::VARY).iter().any(|value| {
        let value = value.as_bytes().to_ascii_lowercase();
        value.contains(&b'*') || value.windows(ACCEPT_ENCODING.len()).any(|window| window == ACCEPT_ENCODING)
    });
    (is_named || is_stored) && !varies && content_length(headers).is_some()
}

/// Words in the names of codings: IANA's registry of them (RFC 9110 section 16.6.1), and formats that people call so.
const CODINGS: [&str; 24] = [
    "aes128gcm",
    "br",
    "brotli",
    "bz2",
    "bzip",
    "bzip2",
    "compress",
    "dcb",
    "dcz",
    "deflate",
    "exi",
    "gz",
    "gzip",
    "lz4",
    "lzip",
    "lzma",
    "pack200",
    "sdch",
    "snappy",
    "xz",
    "zip",
    "zlib",
    "zst",
    "zstd",
];
/// Codings (RFC 9110 section 8.4.1, RFC 7932, RFC 8878, and what Apache is told), and how names of files in them end.
const CODED_NAMES: [(&[&str], &[&str]); 6] = [
    (&["gzip", "x-gzip"], &[".gz", ".tgz", ".svgz"]),
    (&["compress", "x-compress"], &[".Z"]),
    (&["bzip2", "x-bzip2"], &[".bz2", ".tbz"]),
    (&["xz", "x-xz"], &[".xz", ".txz"]),
    (&["br"], &[".br"]),
    (&["zstd"], &[".zst"]),
];
/// What object stores send with every object (Amazon S3 and those of its kind, Google's, Azure's): none encodes anything.
const STORES: [&str; 3] = ["x-amz-request-id", "x-goog-stored-content-encoding", "x-ms-blob-type"];
/// In lower case.
const ACCEPT_ENCODING: &[u8] = b"accept-encoding";

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::{HeaderName, HeaderValue};

    fn passes(path: &str, lines: &[(HeaderName, &str)]) -> bool {
        let headers = lines.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap())).collect();
        foreign_coding(&format!("http://host.example/{path}"), &headers).is_none()
    }

    fn coded(coding: &str) -> [(HeaderName, &str); 2] {
        [(header::CONTENT_ENCODING, coding), (header::CONTENT_LENGTH, "9")]
    }

    /// Goal: an encoding is taken for the file's own only where nothing speaks for another one. Method: each sign, alone.
    #[test]
    fn the_encoding_of_a_file_that_is_named_after_it_is_its_own() {
        for (path, value) in
            [("a.tar.gz", "x-gzip"), ("a.tgz?x=1", "GZIP"), ("a.Z", "compress"), ("a.tar.bz2", "x-bzip2")]
        {
            assert!(passes(path, &coded(value)), "{path} {value}");
        }
        for (path, value) in
            [("a.tar", "gzip"), ("a.tar.gz", "br"), ("a.tar.gz", "gzip, gzip"), ("a?x=a.gz", "gzip"), ("a.gz/", "gzip")]
        {
            assert!(!passes(path, &coded(value)), "{path} {value}");
        }
        let vary = |value| [coded("gzip").as_slice(), &[(header::VARY, value)]].concat();
        assert!(passes("a.gz", &vary("Origin")));
        assert!(!passes("a.gz", &vary("Origin, Accept-Encoding")) && !passes("a.gz", &vary("*")));
        assert!(!passes("a.gz", &coded("gzip")[..1]), "no length");
        assert!(!passes("a.gz", &[coded("gzip"), coded("gzip")].concat()));
    }

    /// Goal: a word that names no coding says nothing of the bytes. Method: what is found in object stores, also beside a coding.
    #[test]
    fn a_word_that_is_no_coding_is_passed_over() {
        for value in
            ["identity", "IDENTITY", "", "aws-chunked", "none", "UTF-8", "binary", "text/plain", "8bit", "*", "null,"]
        {
            assert!(passes("a.txt", &coded(value)), "{value}");
        }
        assert!(passes("a.gz", &coded("gzip,aws-chunked")) && passes("a.gz", &coded("aws-chunked, gzip")));
        for value in ["gzip,aws-chunked", "identity, br", "x-snappy-framed", "gzip;q=1", "gzip-foo", "X-ZSTD"] {
            assert!(!passes("a.txt", &coded(value)), "{value}");
        }
    }

    /// Goal: an object store gives what it was given. Method: its header, alone and with signs of a coding on the way.
    #[test]
    fn an_object_store_encodes_nothing() {
        let store = (HeaderName::from_static("x-amz-request-id"), "0123456789ABCDEF");
        assert!(passes("tile.pbf", &[coded("gzip").as_slice(), std::slice::from_ref(&store)].concat()));
        assert!(!passes("tile.pbf", &[(header::CONTENT_ENCODING, "gzip"), store.clone()]), "no length");
        let beside = [store, (header::VARY, "accept-encoding")];
        assert!(!passes("tile.pbf", &[coded("gzip").as_slice(), &beside].concat()), "what stands before it may encode");
    }
}
