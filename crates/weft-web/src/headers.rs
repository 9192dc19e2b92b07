//! What the headers of an answer say of its body, and of when to come back.

use std::time::{Duration, SystemTime};

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use weft_remote::{RemoteError, Result};

use crate::coding::foreign_coding;
use crate::pool::{HEADER_BYTES_MAX, HEADERS_MAX};

/// Refuses an answer whose headers are too much or whose body is not plain.
///
/// # Errors
/// `Damaged`.
pub(crate) fn check_headers(url: &str, headers: &HeaderMap) -> Result<()> {
    let unasked = |name: HeaderName, value: &str| RemoteError::Damaged {
        detail: format!("{url}: came with {name} \"{value}\" although only plain content was asked for"),
    };
    if let Some(coding) = foreign_coding(url, headers) {
        return Err(unasked(header::CONTENT_ENCODING, &coding));
    }
    let is_strange = |value: &&HeaderValue| !value.is_empty() && !value.as_bytes().eq_ignore_ascii_case(b"chunked");
    if let Some(coding) = headers.get_all(header::TRANSFER_ENCODING).iter().find(is_strange) {
        return Err(unasked(header::TRANSFER_ENCODING, &coding.as_bytes().escape_ascii().to_string()));
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

/// How many bytes of body are to come in answer to a method, where the headers tell.
pub(crate) fn announced_length(method: &Method, status: StatusCode, headers: &HeaderMap) -> Option<u64> {
    if method == Method::HEAD {
        // They are those of a GET (RFC 9110 section 9.3.2).
        return Some(0);
    }
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

/// Whether S3 has answered, or what speaks as it does.
pub(crate) fn is_of_s3(headers: &HeaderMap) -> bool {
    headers.contains_key("x-amz-request-id") || headers.get(header::SERVER).is_some_and(|server| server == "AmazonS3")
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
