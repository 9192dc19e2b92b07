//! Where an answer sends us.

use hyper::StatusCode;
use hyper::header::{self, HeaderMap, HeaderValue};
use url::Url;
use weft_remote::{RemoteError, Result};

use crate::id::Place;
use crate::target::place_of;

/// The URL that an answer sends us to; `None` when it is no redirect.
pub(crate) fn redirect_target(from: &Url, status: StatusCode, headers: &HeaderMap) -> Option<Result<Url>> {
    if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = headers.get(header::LOCATION).map(HeaderValue::as_bytes).map(String::from_utf8_lossy);
    let target = location.as_deref().and_then(|location| from.join(location).ok());
    let Some(mut target) = target else {
        let detail = format!("{from}: {status} without a URL that can be read");
        return Some(Err(RemoteError::Damaged { detail }));
    };
    target.set_fragment(None);
    Some(Ok(target))
}

/// Whether a redirect leads from `place` to the same with a slash: on the same host, or on another that takes its
/// place (`www.`).
pub(crate) fn is_slashed(place: &Place, next: &Url) -> bool {
    if place.query.is_some() || place.path.ends_with('/') {
        return false;
    }
    let path = place_of(next).map(|next| next.path);
    path.is_some_and(|path| path.strip_suffix('/') == Some(&place.path))
}
