//! `GET /metrics` over HTTP, for Prometheus.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, CONTENT_TYPE, HOST};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use weft_control::Measures;

/// What makes the figures when they are asked for.
pub type Source = Arc<dyn Fn() -> Measures + Send + Sync>;

/// A bound listener.
pub struct Metrics {
    listener: TcpListener,
    address: SocketAddr,
}

impl Metrics {
    /// Binds. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// What the system says, with the address and what to do.
    pub fn bind(address: SocketAddr) -> Result<Metrics, String> {
        let bound = || -> io::Result<Metrics> {
            let listener = std::net::TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok(Metrics { listener: TcpListener::from_std(listener)?, address })
        };
        bound().map_err(|error| {
            format!("cannot listen on {address}: {error}; `listen` in [metrics] names another address, with port 0 any")
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until it is dropped.
    pub async fn serve(self, source: Source) {
        let seats = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let seat = Arc::clone(&seats).acquire_owned().await.expect("the semaphore is never closed");
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "the listener of metrics cannot accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let (source, loopback) = (source.clone(), self.address.ip().is_loopback());
            tokio::spawn(async move {
                // Whoever is slow, or silent, gives its seat back in time.
                let _ = tokio::time::timeout(CONNECTION_TIME_MAX, converse(stream, source, loopback)).await;
                drop(seat);
            });
        }
    }
}

async fn converse(stream: TcpStream, source: Source, loopback: bool) {
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        let answer = answer(&request, loopback, &source);
        async move { Ok::<_, Infallible>(answer) }
    });
    let mut builder = http1::Builder::new();
    builder.max_buf_size(BUFFER_BYTES).keep_alive(false);
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a connection for metrics ended");
    }
}

fn answer<B>(request: &Request<B>, loopback: bool, source: &Source) -> Response<Full<Bytes>> {
    let say = |status: StatusCode, text: &'static str| {
        let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
        *response.status_mut() = status;
        response
    };
    if loopback && !is_local(request) {
        // A page in a browser may have its own name lead here (DNS rebinding); Prometheus asks by address.
        return say(StatusCode::FORBIDDEN, "ask by a loopback address or localhost\n");
    }
    if request.uri().path() != "/metrics" {
        return say(StatusCode::NOT_FOUND, "there is /metrics\n");
    }
    if request.method() != Method::GET {
        let mut response = say(StatusCode::METHOD_NOT_ALLOWED, "GET alone\n");
        response.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static("GET"));
        return response;
    }
    let mut response = Response::new(Full::new(Bytes::from(source().exposition())));
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(MEDIA_TYPE));
    response
}

/// Whether a request names this machine by a loopback address or as localhost.
fn is_local<B>(request: &Request<B>) -> bool {
    let Some(host) = request.headers().get(HOST).and_then(|host| host.to_str().ok()) else { return false };
    if let Ok(address) = host.parse::<SocketAddr>() {
        return address.ip().is_loopback();
    }
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// Of the text format that `Measures::exposition` writes.
const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Most connections at one time; more wait.
const CONNECTIONS_MAX: usize = 8;
/// Longest time of one connection.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(10);
/// Most of a request's head that is held.
const BUFFER_BYTES: usize = 16 * 1024;
/// Before accepting again when the process has no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_metrics_by_get_and_only_by_a_local_name() {
        let source: Source = Arc::new(Measures::default);
        let ask = |method: &str, path: &str, host: &str, loopback: bool| {
            let request = Request::builder().method(method).uri(path).header(HOST, host).body(()).expect("a request");
            answer(&request, loopback, &source).status().as_u16()
        };
        for host in ["127.0.0.1:9469", "localhost:1", "LOCALHOST", "[::1]:9469", "[::1]", "127.9.9.9"] {
            assert_eq!(ask("GET", "/metrics", host, true), 200, "{host}");
        }
        for host in ["evil.example:9469", "10.0.0.1:9469", "localhost.evil.example", "", "[::2]:1", "::1:x"] {
            assert_eq!(ask("GET", "/metrics", host, true), 403, "{host}");
        }
        assert_eq!(ask("GET", "/metrics", "any.example", false), 200);
        assert_eq!(ask("GET", "/", "localhost", true), 404);
        assert_eq!(ask("GET", "/metrics/", "localhost", true), 404);
        assert_eq!(ask("POST", "/metrics", "localhost", true), 405);
    }
}
