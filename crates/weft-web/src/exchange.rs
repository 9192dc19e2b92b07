//! A question to a host, and its answer.

use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use url::Url;
use weft_remote::{Audience, RemoteError, Result};

use crate::flow::Flow;
use crate::host::Host;

/// What is asked of a place.
pub(crate) struct Question<'a> {
    /// GET, or another that changes nothing and may be sent again.
    pub method: Method,
    /// Sent besides what every request has.
    pub headers: &'a [(HeaderName, HeaderValue)],
    pub body: Bytes,
}

impl<'a> Question<'a> {
    /// A GET with these conditions.
    pub fn get(conditions: &'a [(HeaderName, HeaderValue)]) -> Question<'a> {
        Question { method: Method::GET, headers: conditions, body: Bytes::new() }
    }
}

/// An answer to a question, of any status but a redirect that was followed.
pub(crate) struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// The URL that was asked for first.
    pub asked: String,
    /// Where the answer came from in the end.
    pub url: Url,
    /// Every hop on the way.
    pub redirects: Vec<String>,
    pub body: Flow,
    /// The host that answered.
    pub host: Arc<Host>,
    /// A redirect had led from the place to the place with a slash: it is a directory, and this its page.
    pub slashed: bool,
    /// Who may see it: everyone, unless a login was sent on the way.
    pub audience: Audience,
}

/// Why there is no reply.
#[derive(Debug)]
pub(crate) enum GetError {
    /// The host that was asked for does not exist.
    NoSuchHost(String),
    /// Anything else.
    Remote(RemoteError),
}

impl From<RemoteError> for GetError {
    fn from(error: RemoteError) -> GetError {
        GetError::Remote(error)
    }
}

impl From<GetError> for RemoteError {
    fn from(error: GetError) -> RemoteError {
        match error {
            GetError::NoSuchHost(detail) => RemoteError::Unreachable { detail },
            GetError::Remote(error) => error,
        }
    }
}

/// Refuses headers of what cannot be used: encoded content, or more than is read.
///
/// # Errors
/// `Damaged`.
pub(crate) fn check_headers(url: &str, headers: &HeaderMap) -> Result<()> {
    // Every line counts: one that is harmless does not excuse the next.
    let plain: [(HeaderName, &[u8]); 2] =
        [(header::CONTENT_ENCODING, b"identity"), (header::TRANSFER_ENCODING, b"chunked")];
    for (name, plain) in plain {
        let strange = |value: &&HeaderValue| !value.is_empty() && !value.as_bytes().eq_ignore_ascii_case(plain);
        if let Some(encoding) = headers.get_all(&name).iter().find(strange) {
            let detail = format!("{url}: came with {name} {encoding:?} although only plain content was asked for");
            return Err(RemoteError::Damaged { detail });
        }
    }
    if let Some(length) = content_length(headers).filter(|length| i64::try_from(*length).is_err()) {
        return Err(RemoteError::Damaged { detail: format!("{url}: no file can have {length} bytes") });
    }
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if headers.len() > crate::pool::HEADERS_MAX || bytes > crate::pool::HEADER_BYTES_MAX {
        let detail = format!("{url}: {} headers of {bytes} bytes are too much", headers.len());
        return Err(RemoteError::Damaged { detail });
    }
    Ok(())
}

/// How many bytes the body shall have.
pub(crate) fn announced_length(status: StatusCode, headers: &HeaderMap) -> Option<u64> {
    if matches!(status, StatusCode::NOT_MODIFIED | StatusCode::NO_CONTENT) {
        return None;
    }
    content_length(headers)
}

pub(crate) fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
