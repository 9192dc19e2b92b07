//! A question to a host, and its answer.

use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use url::Url;
use weft_remote::{Audience, RemoteError};

use crate::flow::Flow;
use crate::host::Host;

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
    /// A GET with these conditions.
    pub fn get(conditions: &'a [(HeaderName, HeaderValue)]) -> Question<'a> {
        Question { method: Method::GET, headers: conditions, body: Bytes::new(), needs: Needs::Body }
    }

    /// The same, of which the headers are the answer.
    pub fn look(conditions: &'a [(HeaderName, HeaderValue)]) -> Question<'a> {
        Question { needs: Needs::Headers, ..Question::get(conditions) }
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
