//! Servers behind TLS: a good one by hyper whose frames of HTTP/2 are changed on their way out, and one of HTTP/1.1
//! that ends its connections as it likes.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::support::Certificate;

/// How a row's server speaks.
#[derive(Clone, Copy)]
pub enum Speech {
    /// HTTP/1.1 in plain text.
    Plain,
    /// HTTP/2 in TLS: the frames to send instead of a body, and whether the connection is cut behind them.
    Http2(Twist, Option<Farewell>),
    /// HTTP/1.1 in TLS: the bytes to send, and whether TLS is ended before the connection is.
    Tls(&'static [u8], Farewell),
}

/// Makes frames: of a stream and the body that belongs to it.
pub type Twist = fn(u32, &[u8]) -> Vec<u8>;

/// How a connection ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Farewell {
    /// With TLS's `close_notify` (RFC 8446 section 6.1).
    Said,
    /// The connection is cut.
    Cut,
}

/// What is answered for a path.
pub enum Telling {
    /// Nothing: the connection is closed.
    Nothing,
    /// This body, in a page or a file.
    Truth(Vec<u8>),
    /// The lie, instead of this body.
    Lie(Vec<u8>),
}

/// A server on a free port of 127.0.0.1. It ends when this is dropped.
pub struct Secure {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    runtime: Option<tokio::runtime::Runtime>,
}

type Teller = Arc<dyn Fn(&str) -> Telling + Send + Sync>;

impl Secure {
    /// Serves by `teller`, under this certificate.
    pub fn new(
        speech: Speech,
        certificate: &Certificate,
        teller: impl Fn(&str) -> Telling + Send + Sync + 'static,
    ) -> Secure {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let acceptor = acceptor(speech, certificate);
        let log = asked.clone();
        let teller: Teller = Arc::new(move |path| {
            log.lock().expect("nobody panics under this lock").push(path.to_owned());
            teller(path)
        });
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(talk(speech, acceptor.clone(), stream, teller.clone()));
            }
        });
        Secure { address, asked, runtime: Some(runtime) }
    }

    /// `127.0.0.1:PORT`, its name in the mount.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// The paths that were asked for so far.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("nobody panics under this lock").clone()
    }
}

impl Drop for Secure {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn acceptor(speech: Speech, certificate: &Certificate) -> TlsAcceptor {
    let chain = CertificateDer::from_pem_file(&certificate.chain).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(&certificate.key).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config =
        builder.expect("its own versions").with_no_client_auth().with_single_cert(vec![chain], key).expect("they fit");
    config.alpn_protocols = match speech {
        Speech::Http2(..) => vec![b"h2".to_vec()],
        Speech::Plain | Speech::Tls(..) => vec![b"http/1.1".to_vec()],
    };
    TlsAcceptor::from(Arc::new(config))
}

async fn talk(speech: Speech, acceptor: TlsAcceptor, stream: TcpStream, teller: Teller) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    match speech {
        Speech::Http2(twist, farewell) => by_frames((twist, farewell), stream, teller).await,
        Speech::Tls(lie, farewell) => by_hand(lie, farewell, stream, teller).await,
        Speech::Plain => {}
    }
}

async fn by_frames((twist, farewell): (Twist, Option<Farewell>), stream: TlsStream<TcpStream>, teller: Teller) {
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        let teller = teller.clone();
        async move {
            let (kind, body) = match teller(request.uri().path()) {
                Telling::Nothing => return Err("closed"),
                Telling::Truth(body) => (if body.starts_with(b"<") { "text/html" } else { "text/plain" }, body),
                Telling::Lie(body) => ("text/plain", [MARK, &body].concat()),
            };
            // The mark is taken out again before it is sent.
            let length = body.strip_prefix(MARK).unwrap_or(&body).len();
            let response = Response::builder().header("content-type", kind).header("content-length", length);
            Ok(response.body(Full::new(Bytes::from(body))).expect("good headers"))
        }
    });
    let cuts = farewell == Some(Farewell::Cut);
    let twister = Twister { stream, twist, cuts, twisted: false, coming: Vec::new(), going: Vec::new() };
    // What becomes of the connection, the client sees.
    let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(twister), service)
        .await;
}

/// Passes frames on and puts others in the place of the marked body.
struct Twister {
    stream: TlsStream<TcpStream>,
    twist: Twist,
    /// Whether the connection ends behind the twist.
    cuts: bool,
    twisted: bool,
    /// The beginning of a frame that is not all here.
    coming: Vec<u8>,
    /// What is still to be sent.
    going: Vec<u8>,
}

impl Twister {
    fn pass_on(&mut self, bytes: &[u8]) {
        self.coming.extend_from_slice(bytes);
        loop {
            let Some((head, rest)) = self.coming.split_at_checked(HEAD_BYTES) else { return };
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let Some(payload) = rest.get(..length) else { return };
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            match payload.strip_prefix(MARK).filter(|_| head[3] == DATA) {
                Some(body) => {
                    let frames = (self.twist)(stream, body);
                    self.going.extend(frames);
                    self.twisted = true;
                }
                None => self.going.extend_from_slice(&self.coming[..HEAD_BYTES + length]),
            }
            self.coming.drain(..HEAD_BYTES + length);
        }
    }

    fn send(&mut self, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        while !self.going.is_empty() {
            let end = self.going.len().min(PART_BYTES_MAX);
            let sent = ready!(Pin::new(&mut self.stream).poll_write(context, &self.going[..end]))?;
            self.going.drain(..sent);
        }
        if self.twisted && self.cuts {
            ready!(Pin::new(&mut self.stream).poll_flush(context))?;
            return Poll::Ready(Err(std::io::ErrorKind::ConnectionAborted.into()));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Twister {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Twister {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        ready!(self.send(context))?;
        self.pass_on(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        ready!(self.send(context))?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        ready!(self.send(context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

async fn by_hand(lie: &[u8], farewell: Farewell, mut stream: TlsStream<TcpStream>, teller: Teller) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default();
    let told = teller(path);
    let bytes = match &told {
        Telling::Nothing => return,
        Telling::Truth(body) => {
            let kind = if body.starts_with(b"<") { "text/html" } else { "text/plain" };
            let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\n");
            let length = format!("content-length: {}\r\n\r\n", body.len());
            [head.as_bytes(), length.as_bytes(), body].concat()
        }
        Telling::Lie(_) => lie.to_vec(),
    };
    // Whoever hangs up early does not want the answer.
    let sent = async { stream.write_all(&bytes).await.and(stream.flush().await) }.await;
    if sent.is_ok() && (farewell == Farewell::Said || matches!(told, Telling::Truth(_))) {
        let _ = stream.shutdown().await;
    }
}

/// A frame (RFC 9113 section 4.1).
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short frames").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Types of frames (RFC 9113 section 6).
pub const DATA: u8 = 0;
/// Carries header fields.
pub const HEADERS: u8 = 1;
/// Ends a stream by force.
pub const RST_STREAM: u8 = 3;
/// Tells of settings.
pub const SETTINGS: u8 = 4;
/// Promises an answer to a request that was not made.
pub const PUSH_PROMISE: u8 = 5;
/// Asks for an echo.
pub const PING: u8 = 6;
/// Says that the connection ends.
pub const GOAWAY: u8 = 7;
/// Lets more be sent.
pub const WINDOW_UPDATE: u8 = 8;
/// Goes on with header fields.
pub const CONTINUATION: u8 = 9;
/// The flag of a stream's last frame.
pub const END_STREAM: u8 = 1;
/// The flag of the last header fields.
pub const END_HEADERS: u8 = 4;

const HEAD_BYTES: usize = 9;
/// Stands before a body that is to be twisted.
const MARK: &[u8] = b"\x00twist\x00";
const PART_BYTES_MAX: usize = 64 << 10;
