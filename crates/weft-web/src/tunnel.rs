//! A connection through a proxy.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper::header;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_socks::tcp::Socks5Stream;

use crate::authority::Authority;
use crate::connect::{ConnectError, Wire};
use crate::host::Scheme;
use crate::pool::{HEADER_BYTES_MAX, HEADERS_MAX};
use crate::proxy::{Protocol, Proxy};

/// Why there is no connection through a proxy.
pub(crate) enum TunnelError {
    /// The proxy is of no use now: another may be.
    Proxy(String),
    /// The proxy works, and says this of the host.
    Host(ConnectError),
    /// It took the connection and has said nothing: it may be out of order, or wait for a host that is silent.
    Late(String),
}

/// Has a proxy connect `stream` to a host's port. For http an HTTP proxy wants whole URLs instead.
///
/// # Errors
/// Whose fault it is, and what it says.
pub(crate) async fn open(
    proxy: &Proxy,
    stream: TcpStream,
    host: &Authority,
    scheme: Scheme,
    port: u16,
    limit: Duration,
) -> Result<Box<dyn Wire>, TunnelError> {
    let opened = async {
        match (proxy.protocol, scheme) {
            (Protocol::Http, Scheme::Http) => Ok(Box::new(stream) as Box<dyn Wire>),
            (Protocol::Http, Scheme::Https) => connect(proxy, stream, host, port).await,
            (Protocol::Socks5, _) => socks(proxy, stream, host, port).await,
        }
    };
    let late = || TunnelError::Late(format!("the proxy {proxy} has not said in time whether it reaches the host"));
    timeout(limit, opened).await.unwrap_or_else(|_| Err(late()))
}

async fn connect(proxy: &Proxy, stream: TcpStream, host: &Authority, port: u16) -> Result<Box<dyn Wire>, TunnelError> {
    let broken = |e: &dyn std::fmt::Display| TunnelError::Proxy(format!("the proxy {proxy} speaks no HTTP: {e}"));
    let mut builder = http1::Builder::new();
    builder.max_headers(HEADERS_MAX).max_buf_size(HEADER_BYTES_MAX);
    let opened = builder.handshake::<_, Empty<Bytes>>(TokioIo::new(stream)).await;
    let (mut sender, connection) = opened.map_err(|e| broken(&e))?;
    tokio::spawn(connection.with_upgrades());
    let target = format!("{}:{port}", host.host);
    let mut request = Request::connect(&target).header(header::HOST, &target);
    if let Some(login) = proxy.authorization() {
        request = request.header(header::PROXY_AUTHORIZATION, login);
    }
    let request = request.body(Empty::new()).map_err(|e| broken(&e))?;
    let response = sender.send_request(request).await.map_err(|e| broken(&e))?;
    let status = response.status();
    if !status.is_success() {
        return Err(refusal(proxy, status, host.port.is_some()));
    }
    let upgraded = hyper::upgrade::on(response).await.map_err(|e| broken(&e))?;
    Ok(Box::new(TokioIo::new(upgraded)))
}

fn refusal(proxy: &Proxy, status: StatusCode, explicit_port: bool) -> TunnelError {
    let words = format!("the proxy {proxy} answers {status}");
    match status.as_u16() {
        407 => TunnelError::Proxy(format!("{words}: it wants a login, which its URL may hold")),
        // Many pass TLS to the port of https alone, and plain http to any.
        403 | 405 | 501 if explicit_port => TunnelError::Host(ConnectError::NotTls(words)),
        403 | 405 | 451 | 501 => TunnelError::Host(ConnectError::Refused(words)),
        504 => TunnelError::Host(ConnectError::TimedOut(words)),
        _ => TunnelError::Host(ConnectError::Unreachable(words)),
    }
}

async fn socks(proxy: &Proxy, stream: TcpStream, host: &Authority, port: u16) -> Result<Box<dyn Wire>, TunnelError> {
    use tokio_socks::Error;
    let target = (host.bare_host(), port);
    let opened = match &proxy.login {
        Some((user, password)) => Socks5Stream::connect_with_password_and_socket(stream, target, user, password).await,
        None => Socks5Stream::connect_with_socket(stream, target).await,
    };
    let error = match opened {
        Ok(stream) => return Ok(Box::new(stream)),
        Err(error) => error,
    };
    let words = format!("the proxy {proxy}: {error}");
    Err(match error {
        Error::ConnectionNotAllowedByRuleset => TunnelError::Host(ConnectError::Refused(words)),
        Error::TtlExpired => TunnelError::Host(ConnectError::TimedOut(words)),
        Error::NetworkUnreachable
        | Error::HostUnreachable
        | Error::ConnectionRefused
        | Error::GeneralSocksServerFailure
        | Error::AddressTypeNotSupported => TunnelError::Host(ConnectError::Unreachable(words)),
        _ => TunnelError::Proxy(words),
    })
}
