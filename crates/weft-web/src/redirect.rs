//! Where an answer sends us.

use hyper::StatusCode;
use hyper::header::{self, HeaderMap, HeaderValue};
use url::Url;
use weft_remote::{RemoteError, Result};

use crate::host::Host;
use crate::id::Place;
use crate::target::{Target, place_of};

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

/// Refuses a hop `from` one URL `to` another, the last of a chain of redirects.
///
/// # Errors
/// `Loop` in circles and after too many hops, `Denied` from https to http on a host that is known to speak https.
pub(crate) fn check_hop(host: &Host, from: &Url, to: &Url, chain: &[String], redirects_max: usize) -> Result<()> {
    let returning = chain[..chain.len() - 1].contains(&chain[chain.len() - 1]) || from == to;
    if chain.len() > redirects_max || returning {
        let detail = format!("{from}: redirected to {}", chain.join(", then to "));
        return Err(RemoteError::Loop { detail });
    }
    let same = from.host_str() == to.host_str();
    if same && from.scheme() == "https" && to.scheme() == "http" && host.memory().is_some_and(|m| m.https_seen) {
        let detail = format!("{from}: refused to follow a redirect from https to {to}");
        return Err(RemoteError::Denied { detail });
    }
    Ok(())
}

/// Where a hop leads.
///
/// # Errors
/// `Failed` when that is not on the web.
pub(crate) fn target_of(from: &Url, to: &Url) -> Result<Target> {
    Target::of_url(to).ok_or_else(|| RemoteError::Failed { detail: format!("{from}: redirects to {to}") })
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
