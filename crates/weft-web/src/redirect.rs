//! Where an answer sends us.

use hyper::StatusCode;
use hyper::header::{self, HeaderMap, HeaderValue};
use percent_encoding::percent_decode_str;
use url::Url;
use weft_remote::{RemoteError, Result};

use crate::host::Host;
use crate::id::Place;
use crate::name::any_bytes;
use crate::target::{Target, place_of};

/// The URL that an answer sends us to; `None` when it is no redirect.
pub(crate) fn redirect_target(from: &Url, status: StatusCode, headers: &HeaderMap) -> Option<Result<Url>> {
    if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = headers.get(header::LOCATION).map(HeaderValue::as_bytes);
    let target = location.and_then(|location| slashed(from, location).or_else(|| from.join(&any_bytes(location)).ok()));
    let Some(mut target) = target else {
        let detail = format!("{from}: {status} without a URL that can be read");
        return Some(Err(RemoteError::Damaged { detail }));
    };
    target.set_fragment(None);
    Some(Ok(target))
}

/// The URL `from` with a slash, where an answer sends us there by the name of the directory as it is, not escaped (mini_httpd): in
/// a URL some of its letters are none, and what comes after a `#` would be left out.
fn slashed(from: &Url, location: &[u8]) -> Option<Url> {
    let scheme = ["http://", "https://"].iter().find(|scheme| location.starts_with(scheme.as_bytes()));
    let at = match scheme {
        Some(scheme) => scheme.len() + location[scheme.len()..].iter().position(|byte| *byte == b'/')?,
        None => 0,
    };
    let (origin, path) = location.split_at(at);
    let name = path.strip_suffix(b"/")?;
    let is_same = percent_decode_str(from.path()).eq(name.iter().copied());
    // An escaped slash that is none any more leads into a directory.
    let slashes = name.iter().filter(|byte| **byte == b'/').count();
    if !is_same || from.query().is_some() || slashes != from.path().matches('/').count() {
        return None;
    }
    let mut url = from.join(std::str::from_utf8(origin).ok()?).ok()?;
    url.set_path(&format!("{}/", from.path()));
    Some(url)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(from: &str, location: &[u8]) -> String {
        let headers = HeaderMap::from_iter([(header::LOCATION, HeaderValue::from_bytes(location).unwrap())]);
        redirect_target(&Url::parse(from).unwrap(), StatusCode::FOUND, &headers).unwrap().unwrap().into()
    }

    /// Goal: a server that does not escape the name of a directory sends to that directory. Method: each letter that is another
    /// thing in a URL, and a byte that is no letter, as mini_httpd sends them; the same in an absolute URL.
    #[test]
    fn a_name_that_is_not_escaped_leads_to_the_directory() {
        for (path, location) in [
            ("/a/d%231", &b"/a/d#1/"[..]),
            ("/d%3F2", b"/d?2/"),
            ("/dir%2525", b"/dir%25/"),
            ("/d%E9", b"/d\xe9/"),
            ("/d%3B3", b"/d;3/"),
            ("/a%20b", b"/a b/"),
            ("/d", b"/d/"),
        ] {
            assert_eq!(sent(&format!("http://h:8{path}"), location), format!("http://h:8{path}/"));
            let absolute = [b"https://www.h", location].concat();
            assert_eq!(sent(&format!("http://h:8{path}"), &absolute), format!("https://www.h{path}/"));
        }
    }

    /// Goal: what leads elsewhere is read as the URL that it is. Method: near misses.
    #[test]
    fn other_urls_are_what_they_say() {
        for (from, location, to) in [
            ("/d%231", &b"/d%231/"[..], "/d%231/"),
            ("/d%231", b"/d#1", "/d"),
            ("/a%2Fb", b"/a/b/", "/a/b/"),
            ("/d", b"/d#1/", "/d"),
            ("/d%3F2?x", b"/d?2/", "/d?2/"),
            ("/x", b"/y\xe9/\xc3\xa9", "/y%E9/%C3%A9"),
            ("/x", b"y?z", "/y?z"),
        ] {
            assert_eq!(sent(&format!("http://h{from}"), location), format!("http://h{to}"));
        }
    }
}
