//! What the headers of an answer say of its body, and of when to come back.

use std::time::{Duration, SystemTime};

use hyper::StatusCode;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use weft_remote::{RemoteError, Result};

use crate::pool::{HEADER_BYTES_MAX, HEADERS_MAX};

/// Refuses an answer whose headers are too much or whose body is not plain.
///
/// # Errors
/// `Damaged`.
pub(crate) fn check_headers(url: &str, headers: &HeaderMap) -> Result<()> {
    // Every line counts: one that is harmless does not excuse the next.
    let plain: [(HeaderName, &[u8]); 2] =
        [(header::CONTENT_ENCODING, b"identity"), (header::TRANSFER_ENCODING, b"chunked")];
    let strange =
        |value: &&HeaderValue, plain: &[u8]| !value.is_empty() && !value.as_bytes().eq_ignore_ascii_case(plain);
    for (name, plain) in plain {
        let encoding = headers.get_all(&name).iter().find(|value| strange(value, plain));
        if let Some(encoding) = encoding.filter(|_| name != header::CONTENT_ENCODING || !is_of_the_file(url, headers)) {
            let detail = format!("{url}: came with {name} {encoding:?} although only plain content was asked for");
            return Err(RemoteError::Damaged { detail });
        }
    }
    if let Some(length) = content_length(headers).filter(|length| i64::try_from(*length).is_err()) {
        return Err(RemoteError::Damaged { detail: format!("{url}: no file can have {length} bytes") });
    }
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if headers.len() > HEADERS_MAX || bytes > HEADER_BYTES_MAX {
        let detail = format!("{url}: {} headers of {bytes} bytes are too much", headers.len());
        return Err(RemoteError::Damaged { detail });
    }
    Ok(())
}

/// Whether the one encoding that an answer came with is that of the file itself, whose name says so: Apache (`AddEncoding`) and
/// object stores tell of `x.tar.gz` that it is a `x.tar` in gzip. What a server encodes on the way has no length, or depends
/// on what was asked for and says so (RFC 9110 section 12.5.5).
fn is_of_the_file(url: &str, headers: &HeaderMap) -> bool {
    let mut encodings = headers.get_all(header::CONTENT_ENCODING).iter();
    let (Some(encoding), None) = (encodings.next(), encodings.next()) else { return false };
    let Some(encoding) = encoding.to_str().ok().map(str::to_ascii_lowercase) else { return false };
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let says_so = ENCODED_NAMES.iter().any(|(names, endings)| {
        names.contains(&encoding.as_str()) && endings.iter().any(|ending| path.ends_with(ending))
    });
    let varies = headers.get_all(header::VARY).iter().any(|value| {
        let value = value.as_bytes().to_ascii_lowercase();
        value.contains(&b'*') || value.windows(ACCEPT_ENCODING.len()).any(|window| window == ACCEPT_ENCODING)
    });
    says_so && !varies && content_length(headers).is_some()
}

/// How many bytes of body are to come, where the headers tell.
pub(crate) fn announced_length(status: StatusCode, headers: &HeaderMap) -> Option<u64> {
    if matches!(status, StatusCode::NOT_MODIFIED | StatusCode::NO_CONTENT) {
        return None;
    }
    content_length(headers)
}

/// The length that is announced. Beside a transfer coding it says nothing (RFC 9112 section 6.3).
pub(crate) fn content_length(headers: &HeaderMap) -> Option<u64> {
    if headers.contains_key(header::TRANSFER_ENCODING) {
        return None;
    }
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// How long a server asks to be left alone.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => {
            let at = httpdate::parse_http_date(text).ok()?;
            Some(at.duration_since(SystemTime::now()).unwrap_or(Duration::ZERO))
        }
    }
}

/// Encodings (RFC 9110 section 8.4.1, RFC 7932, RFC 8878, and what Apache is told), and how names of files in them end.
const ENCODED_NAMES: [(&[&str], &[&str]); 6] = [
    (&["gzip", "x-gzip"], &[".gz", ".tgz", ".svgz"]),
    (&["compress", "x-compress"], &[".Z"]),
    (&["bzip2", "x-bzip2"], &[".bz2", ".tbz"]),
    (&["xz", "x-xz"], &[".xz", ".txz"]),
    (&["br"], &[".br"]),
    (&["zstd"], &[".zst"]),
];
/// In lower case.
const ACCEPT_ENCODING: &[u8] = b"accept-encoding";

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(path: &str, lines: &[(HeaderName, &str)]) -> bool {
        let headers = lines.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap())).collect();
        check_headers(&format!("http://host.example/{path}"), &headers).is_ok()
    }

    /// Goal: an encoding is taken for the file's own only where nothing speaks for another one. Method: each sign, alone.
    #[test]
    fn the_encoding_of_a_file_that_is_named_after_it_is_its_own() {
        let (encoding, length) = (header::CONTENT_ENCODING, (header::CONTENT_LENGTH, "9"));
        let said = |value| [(encoding.clone(), value), length.clone()];
        for (path, value) in
            [("a.tar.gz", "x-gzip"), ("a.tgz?x=1", "GZIP"), ("a.Z", "compress"), ("a.tar.bz2", "x-bzip2")]
        {
            assert!(passes(path, &said(value)), "{path} {value}");
        }
        for (path, value) in
            [("a.tar", "gzip"), ("a.tar.gz", "br"), ("a.tar.gz", "gzip, gzip"), ("a?x=a.gz", "gzip"), ("a.gz/", "gzip")]
        {
            assert!(!passes(path, &said(value)), "{path} {value}");
        }
        let vary = |value| [(encoding.clone(), "gzip"), length.clone(), (header::VARY, value)];
        assert!(passes("a.gz", &vary("Origin")));
        assert!(!passes("a.gz", &vary("Origin, Accept-Encoding")) && !passes("a.gz", &vary("*")));
        assert!(!passes("a.gz", &[(encoding.clone(), "gzip")]), "no length");
        let twice = [(encoding.clone(), "gzip"), (encoding.clone(), "gzip"), length.clone()];
        assert!(!passes("a.gz", &twice));
    }
}
