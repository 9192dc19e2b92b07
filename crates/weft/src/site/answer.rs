//! From a request to an answer.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{
    ACCEPT_RANGES, ALLOW, CACHE_CONTROL, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, IF_MODIFIED_SINCE,
    IF_NONE_MATCH, IF_RANGE, LAST_MODIFIED, LOCATION, RANGE,
};
use hyper::http::response::Builder;
use hyper::{Method, Response, StatusCode};

use super::path::decode;
use super::range::{Wanted, wanted};
use super::{Content, Page, Site};

/// The answer; hyper leaves the body away for HEAD and keeps its length.
pub(super) fn answer(site: &Site, method: &Method, path: &str, headers: &HeaderMap) -> Response<Full<Bytes>> {
    if method != Method::GET && method != Method::HEAD {
        let builder = Response::builder().status(StatusCode::METHOD_NOT_ALLOWED).header(ALLOW, "GET, HEAD");
        return built(builder, Bytes::new());
    }
    match decode(path).and_then(|path| site.pages.get(&path)) {
        Some(Page::Content(content)) => of_content(content, headers),
        Some(Page::Moved(to)) => {
            let builder = Response::builder().status(StatusCode::MOVED_PERMANENTLY).header(LOCATION, to.as_str());
            built(builder, Bytes::new())
        }
        None => {
            let builder = Response::builder().status(StatusCode::NOT_FOUND).header(CONTENT_TYPE, "text/html");
            built(builder, Bytes::from_static(b"<html><title>404</title>Not found.</html>\n"))
        }
    }
}

fn of_content(content: &Content, headers: &HeaderMap) -> Response<Full<Bytes>> {
    let builder = Response::builder()
        .header(ETAG, &content.etag)
        .header(LAST_MODIFIED, MODIFIED)
        .header(CACHE_CONTROL, "max-age=300")
        .header(ACCEPT_RANGES, "bytes");
    if unchanged(content, headers) {
        return built(builder.status(StatusCode::NOT_MODIFIED), Bytes::new());
    }
    let builder = builder.header(CONTENT_TYPE, content.media_type);
    let length = content.bytes.len();
    // A condition that fails asks for the whole of what is there now (RFC 9110 section 13.1.5).
    let holds = text(headers, IF_RANGE).is_none_or(|condition| condition == content.etag || condition == MODIFIED);
    match wanted(text(headers, RANGE).filter(|_| holds), length) {
        Wanted::Everything => built(builder, content.bytes.clone()),
        Wanted::Part(range) => {
            let told = format!("bytes {}-{}/{length}", range.start, range.end - 1);
            let builder = builder.status(StatusCode::PARTIAL_CONTENT).header(CONTENT_RANGE, told);
            built(builder, content.bytes.slice(range))
        }
        Wanted::Unsatisfiable => {
            let builder = builder.status(StatusCode::RANGE_NOT_SATISFIABLE);
            built(builder.header(CONTENT_RANGE, format!("bytes */{length}")), Bytes::new())
        }
    }
}

/// Whether the client has this already; its tags go before its date (RFC 9110 section 13.2.2).
fn unchanged(content: &Content, headers: &HeaderMap) -> bool {
    match (text(headers, IF_NONE_MATCH), text(headers, IF_MODIFIED_SINCE)) {
        (Some(tags), _) => tags
            .split(',')
            .map(str::trim)
            .any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == content.etag),
        (None, Some(date)) => date == MODIFIED,
        (None, None) => false,
    }
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

fn built(builder: Builder, body: Bytes) -> Response<Full<Bytes>> {
    builder.body(Full::new(body)).expect("the headers above are all valid")
}

/// When everything on the site was last changed.
pub(super) const MODIFIED: &str = "Mon, 01 Jun 2026 12:00:00 GMT";
