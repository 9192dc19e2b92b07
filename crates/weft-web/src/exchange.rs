//! A question to a host, and its answer.

use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use url::Url;
use weft_remote::{Audience, RemoteError};

use crate::content::SHORT_BODY_BYTES;
use crate::flow::Flow;
use crate::host::Host;
use crate::pool::SendError;
use crate::refusal;
use crate::slots::Expects;

/// What is asked of a place.
pub(crate) struct Question<'a> {
    /// GET, or another that changes nothing and may be sent again.
    pub method: Method,
    /// Sent besides what every request has.
    pub headers: &'a [(HeaderName, HeaderValue)],
    pub body: Bytes,
    pub needs: Needs,
}

/// What of an answer is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Its headers; a body is welcome.
    Headers,
    /// All of it: for a long body a place is waited for.
    Body,
}

impl<'a> Question<'a> {
    /// What the answer is taken to be: a long part of a file is asked for from a place to stay, for without one the answer
    /// would be of no use.
    pub fn expects(&self) -> Expects {
        let is_long = |(name, value): &(HeaderName, HeaderValue)| {
            *name == header::RANGE && part_length(value).is_some_and(|length| length > SHORT_BODY_BYTES)
        };
        match self.needs == Needs::Body && self.headers.iter().any(is_long) {
            true => Expects::LongBody,
            false => Expects::Anything,
        }
    }

    /// A GET with these conditions.
    pub fn get(conditions: &'a [(HeaderName, HeaderValue)]) -> Question<'a> {
        Question { method: Method::GET, headers: conditions, body: Bytes::new(), needs: Needs::Body }
    }

    /// The same, of which the headers are the answer.
    pub fn look(conditions: &'a [(HeaderName, HeaderValue)]) -> Question<'a> {
        Question { needs: Needs::Headers, ..Question::get(conditions) }
    }

    /// A HEAD: the headers, and never a body.
    pub fn head() -> Question<'a> {
        Question { method: Method::HEAD, ..Question::look(&[]) }
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
    /// The body is long and has no place among those of its host: it is not to be read.
    pub unplaced: bool,
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

/// What went wrong with a request that was sent.
pub(crate) fn request_error(url: &str, error: &SendError) -> RemoteError {
    let mut why = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        why = format!("{why}: {inner}");
        source = inner.source();
    }
    // Under TLS 1.3 a server that misses or does not accept a certificate says so after its handshake. HTTP/2 passes on
    // the text alone.
    if why.contains(TLS_REFUSAL) {
        return RemoteError::Denied { detail: format!("{url}: {}", refusal::of_tls(why)) };
    }
    let detail = format!("{url}: {why}");
    if matches!(error, SendError::Connection(error) if error.is_parse() || error.is_parse_too_large()) {
        RemoteError::Damaged { detail }
    } else {
        RemoteError::Unreachable { detail }
    }
}

/// How many bytes a Range header asks for, where it says so.
fn part_length(range: &HeaderValue) -> Option<u64> {
    let (first, last) = range.to_str().ok()?.strip_prefix("bytes=")?.split_once('-')?;
    (last.parse::<u64>().ok()?).checked_sub(first.parse().ok()?)?.checked_add(1)
}

/// How rustls begins to tell of what the other side ended TLS with.
const TLS_REFUSAL: &str = "received fatal alert";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_part_is_expected_to_be_long() {
        for (range, expects) in [
            ("bytes=0-1048575", Expects::LongBody),
            ("bytes=7-7", Expects::Anything),
            ("bytes=7-", Expects::Anything),
            ("bytes=9-7", Expects::Anything),
            ("bytes=0-18446744073709551615", Expects::Anything),
        ] {
            let headers = [(header::RANGE, HeaderValue::from_static(range))];
            assert_eq!(Question::get(&headers).expects(), expects, "{range}");
            assert_eq!(Question::look(&headers).expects(), Expects::Anything, "{range}");
        }
        assert_eq!(Question::get(&[]).expects(), Expects::Anything);
    }
}
