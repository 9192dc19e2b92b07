//! What an HTTP proxy says in the place of a host that it cannot reach.
//!
//! For https a proxy refuses to connect (`tunnel.rs`). For plain http it answers the request itself, with a status that would
//! be the host's own word otherwise: that it is busy, has failed, or has no such file. Such an answer is told by what the
//! proxy puts on it; where it puts nothing of its own on it, it cannot be told from one of the host's.

use hyper::ext::ReasonPhrase;
use hyper::http::response::Parts;
use hyper::{StatusCode, header};
use weft_remote::RemoteError;

use crate::proxy::Proxy;

/// Why the host cannot be reached, where an answer that came by way of `proxy` is the proxy's own and says that.
pub(crate) fn unreachable_by(proxy: &Proxy, url: &str, answer: &Parts) -> Option<RemoteError> {
    let why = squid(answer).or_else(|| tinyproxy(answer)).or_else(|| privoxy(answer))?;
    let detail = format!("{url}: the proxy {proxy} says: {why}");
    let is_late = why.contains("TIMEOUT") || why.starts_with("504");
    Some(if is_late { RemoteError::TimedOut { detail } } else { RemoteError::Unreachable { detail } })
}

/// Squid names the error page that it shows (`errorpage.cc`; observed: 5.7).
fn squid(answer: &Parts) -> Option<String> {
    let error = answer.headers.get("x-squid-error")?.to_str().ok()?;
    let name = error.split(' ').next().unwrap_or_default();
    SQUID_ERRORS.contains(&name).then(|| error.to_owned())
}

/// Tinyproxy calls itself the server (observed: 1.11.1); of a host's answer it leaves that as it is.
fn tinyproxy(answer: &Parts) -> Option<String> {
    let server = answer.headers.get(header::SERVER)?.to_str().ok()?;
    let failed = [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::BAD_GATEWAY, StatusCode::GATEWAY_TIMEOUT];
    (server.starts_with("tinyproxy/") && failed.contains(&answer.status)).then(|| words(answer))
}

/// Privoxy has words of its own beside the status (observed: 3.0.34).
fn privoxy(answer: &Parts) -> Option<String> {
    let said = (answer.status.as_u16(), reason(answer)?);
    PRIVOXY_ERRORS.contains(&said).then(|| words(answer))
}

fn reason(answer: &Parts) -> Option<&str> {
    std::str::from_utf8(answer.extensions.get::<ReasonPhrase>()?.as_bytes()).ok()
}

fn words(answer: &Parts) -> String {
    format!("{} {}", answer.status.as_u16(), reason(answer).or(answer.status.canonical_reason()).unwrap_or_default())
}

/// Those about the way to a host; others are about the request, or the proxy's own rules.
const SQUID_ERRORS: [&str; 6] = [
    "ERR_CANNOT_FORWARD",
    "ERR_CONNECT_FAIL",
    "ERR_DNS_FAIL",
    "ERR_READ_ERROR",
    "ERR_READ_TIMEOUT",
    "ERR_ZERO_SIZE_OBJECT",
];
const PRIVOXY_ERRORS: [(u16, &str); 3] =
    [(404, "No such domain"), (503, "Connect failed"), (504, "Connection timeout")];
