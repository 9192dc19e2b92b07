//! Servers of the tests' own on 127.0.0.1, and short ways to ask the remote.
#![allow(dead_code, reason = "each test file uses its share")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, Version as HttpVersion};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use weft_remote::{
    Along, Answer, Body, Call, Caller, Entry, FileId, Found, Known, Listing, MemoryNotes, Name, Page, Piece, Remote,
    RemoteError, Result, Version,
};
use weft_web::{Web, WebOptions};

/// A request that a server saw.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: Method,
    pub path: String,
    pub headers: HeaderMap,
    pub version: HttpVersion,
}

pub type Log = Arc<Mutex<Vec<Seen>>>;

/// A server that answers from a script and remembers what it was asked.
pub struct Server {
    pub address: SocketAddr,
    pub log: Log,
    pub connections: Arc<Mutex<usize>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub type Reply = Response<Full<Bytes>>;

/// An answer with a status, headers and a body.
pub fn answer(status: u16, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Reply {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(Full::new(body.into())).unwrap()
}

pub fn html(body: &str) -> Reply {
    answer(200, &[("content-type", "text/html; charset=utf-8")], body.to_owned())
}

impl Server {
    /// Plain HTTP.
    pub async fn start(script: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Server {
        Server::serve(script, None).await
    }

    /// HTTPS for `127.0.0.1`, with these application protocols; gives the authority's certificate in PEM.
    pub async fn start_tls(
        script: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
        alpn: &[&[u8]],
    ) -> (Server, String) {
        Server::start_mutual(script, alpn, None).await
    }

    /// The same; what clients ask that have shown a certificate has the header `x-client`.
    pub async fn start_mutual(
        script: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
        alpn: &[&[u8]],
        clients: Option<Arc<dyn rustls::server::danger::ClientCertVerifier>>,
    ) -> (Server, String) {
        let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        Server::start_certified(script, alpn, clients, params).await
    }

    /// The same with a certificate of the test's own, which signs itself.
    pub async fn start_certified(
        script: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
        alpn: &[&[u8]],
        clients: Option<Arc<dyn rustls::server::danger::ClientCertVerifier>>,
        params: rcgen::CertificateParams,
    ) -> (Server, String) {
        let signing_key = rcgen::KeyPair::generate().unwrap();
        let cert = params.self_signed(&signing_key).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = match clients {
            None => config.with_no_client_auth(),
            Some(clients) => config.with_client_cert_verifier(clients),
        };
        let mut config = config.with_single_cert(vec![cert.der().clone()], key).unwrap();
        config.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
        let server = Server::serve(script, Some(Arc::new(config))).await;
        (server, cert.pem())
    }

    async fn serve(
        script: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
        tls: Option<Arc<rustls::ServerConfig>>,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (log, connections) = (Log::default(), Arc::new(Mutex::new(0)));
        let (script, seen_log, counter) = (Arc::new(script), log.clone(), connections.clone());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                *counter.lock() += 1;
                let (script, log, tls) = (script.clone(), seen_log.clone(), tls.clone());
                let identified = Arc::new(std::sync::atomic::AtomicBool::new(false));
                let told = identified.clone();
                let service = service_fn(move |request: Request<Incoming>| {
                    let mut seen = Seen {
                        method: request.method().clone(),
                        path: request.uri().path_and_query().map_or(String::new(), ToString::to_string),
                        headers: request.headers().clone(),
                        version: request.version(),
                    };
                    if told.load(std::sync::atomic::Ordering::SeqCst) {
                        seen.headers.insert("x-client", hyper::header::HeaderValue::from_static("known"));
                    }
                    let reply = script(&seen);
                    log.lock().push(seen);
                    async move { Ok::<_, std::convert::Infallible>(reply) }
                });
                tokio::spawn(async move {
                    if let Some(config) = tls {
                        let Ok(stream) = tokio_rustls::TlsAcceptor::from(config).accept(stream).await else { return };
                        let shown = stream.get_ref().1.peer_certificates().is_some();
                        identified.store(shown, std::sync::atomic::Ordering::SeqCst);
                        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                            let http2 = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                            let _ = http2.serve_connection(TokioIo::new(stream), service).await;
                        } else {
                            let http1 = hyper::server::conn::http1::Builder::new();
                            let _ = http1.serve_connection(TokioIo::new(stream), service).await;
                        }
                    } else {
                        let http1 = hyper::server::conn::http1::Builder::new();
                        let _ = http1.serve_connection(TokioIo::new(stream), service).await;
                    }
                });
            }
        });
        Server { address, log, connections, task }
    }

    /// A server that writes these very bytes for a path and closes, or stays silent for `None`.
    pub async fn raw(script: impl Fn(&str) -> Option<Vec<u8>> + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let script = Arc::new(script);
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let script = script.clone();
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    while !head.windows(4).any(|w| w == b"\r\n\r\n") && head.first() != Some(&0x16) {
                        if stream.read_buf(&mut head).await.unwrap_or(0) == 0 {
                            return;
                        }
                    }
                    let text = String::from_utf8_lossy(&head).into_owned();
                    // A TLS greeting gets what old servers give it: a closed connection.
                    let Some(path) = text.strip_prefix("GET ").and_then(|t| t.split(' ').next()) else { return };
                    match script(path) {
                        Some(bytes) => {
                            let _ = stream.write_all(&bytes).await;
                            let _ = stream.shutdown().await;
                        }
                        None => {
                            // Until the client gives up.
                            let _ = stream.read_buf(&mut Vec::new()).await;
                        }
                    }
                });
            }
        });
        Server { address, log: Log::default(), connections: Arc::default(), task }
    }

    pub fn name(&self) -> Name {
        name(&self.address.to_string())
    }

    /// The id of a directory of this server.
    pub fn dir(&self, path: &str) -> FileId {
        FileId::new(format!("D {}{path}", self.address))
    }

    /// The id of a file of this server.
    pub fn file(&self, path: &str) -> FileId {
        FileId::new(format!("F {}{path}", self.address))
    }

    /// The paths that were asked for, in order.
    pub fn paths(&self) -> Vec<String> {
        self.log.lock().iter().map(|seen| seen.path.clone()).collect()
    }
}

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub fn call() -> Call {
    Call::within(Caller::DAEMON, Duration::from_secs(20))
}

pub fn web() -> Arc<Web> {
    web_with(WebOptions::default())
}

pub fn web_with(options: WebOptions) -> Arc<Web> {
    Web::new(options, Arc::new(MemoryNotes::default())).unwrap()
}

/// Looks up a name that must be there.
pub async fn find(web: &Web, dir: &FileId, text: &str) -> Answer<Found> {
    web.lookup(&call(), dir, &name(text)).await.unwrap().map(|found| found.unwrap_or_else(|| panic!("no {text}")))
}

/// Looks up a name that must not be there.
pub async fn absent(web: &Web, dir: &FileId, text: &str) -> Answer<()> {
    web.lookup(&call(), dir, &name(text)).await.unwrap().map(|found| assert!(found.is_none(), "{found:?}"))
}

/// Looks up a name that cannot be asked for.
pub async fn fails(web: &Web, dir: &FileId, text: &str) -> RemoteError {
    web.lookup(&call(), dir, &name(text)).await.unwrap_err()
}

/// Reads a body to its end: the bytes, and what was learnt.
pub async fn read(mut body: Body) -> Result<(Vec<u8>, Vec<Known>)> {
    let (mut bytes, mut known) = (Vec::new(), Vec::new());
    while let Some(piece) = body.stream.next().await.transpose()? {
        match piece {
            Piece::Bytes(more) => bytes.extend_from_slice(&more),
            Piece::Known(more) => known.push(more),
        }
    }
    Ok((bytes, known))
}

/// Lists a directory: its page and what came along.
pub async fn list(web: &Web, dir: &FileId) -> (Answer<()>, Page, Option<Along>) {
    let answer = web.entries(&call(), dir, &Version::None, None).await.unwrap();
    let mut parts = None;
    let answer = answer.map(|listing| match listing {
        Listing::Page(page, along) => parts = Some((page, along)),
        Listing::Unchanged | Listing::Changes(..) => panic!("nothing was known"),
    });
    let (page, along) = parts.unwrap();
    (answer, page, along)
}

/// Names and ids, for comparing.
pub fn shown(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(|entry| format!("{} {}", entry.name, entry.id.as_bytes().escape_ascii())).collect()
}
