//! HTTP/2 frame by frame: what a library for servers would not send.

mod support;

use std::sync::Arc;

use support::{find, read};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use weft_remote::{FileId, MemoryNotes, RemoteError};
use weft_web::{Web, WebOptions};

/// A frame of a stream (RFC 9113 section 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// The eighth of the names and values that are known beforehand: `:status: 200` (RFC 7541 appendix A).
const OK: &[u8] = &[0x88];
const NO_ERROR: &[u8] = &[0; 4];

/// What a server says to a request, by the number of its stream.
type Script = Arc<dyn Fn(u32) -> Vec<u8> + Send + Sync>;

/// Answers every request of one connection with what `script` makes for its stream.
async fn answer(acceptor: TlsAcceptor, stream: TcpStream, script: Script) -> std::io::Result<()> {
    let mut stream = acceptor.accept(stream).await?;
    let mut preface = [0; b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len()];
    stream.read_exact(&mut preface).await?;
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload).await?;
        let number = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        match head[3] {
            SETTINGS if head[4] == 0 => stream.write_all(&frame(SETTINGS, 1, 0, &[])).await?,
            HEADERS => stream.write_all(&script(number)).await?,
            _ => {}
        }
    }
}

/// Some bytes as an answer, and then what `end` makes for its stream.
fn bytes_and(stream: u32, end: fn(u32) -> Vec<u8>) -> Vec<u8> {
    [frame(HEADERS, END_HEADERS, stream, OK), frame(DATA, 0, stream, b"01234"), end(stream)].concat()
}

/// A server that ends its bodies so, a web that trusts it, and its directory.
async fn start(end: fn(u32) -> Vec<u8>) -> (Arc<Web>, FileId, tempfile::NamedTempFile) {
    start_with(Arc::new(move |stream| bytes_and(stream, end))).await
}

/// The same of a server that answers so.
async fn start_with(script: Script) -> (Arc<Web>, FileId, tempfile::NamedTempFile) {
    let signed = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(signed.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_no_client_auth().with_single_cert(vec![signed.cert.der().clone()], key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(acceptor.clone(), stream, script.clone()));
        }
    });
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), signed.cert.pem()).unwrap();
    let options = WebOptions { extra_ca: Some(file.path().to_owned()), ..WebOptions::default() };
    let web = Web::new(options, Arc::new(MemoryNotes::default())).unwrap();
    (web, FileId::new(format!("D {address}/")), file)
}

#[tokio::test]
async fn a_stream_that_is_reset_before_its_end_has_no_whole_body() {
    let (web, dir, _file) = start(|stream| frame(RST_STREAM, 0, stream, NO_ERROR)).await;
    let found = find(&web, &dir, "x").await.value;
    let error = read(found.along.unwrap().body).await.unwrap_err();
    assert!(matches!(error, RemoteError::CutShort { .. }), "{error}");
}

#[tokio::test]
async fn a_stream_that_is_reset_after_its_end_is_whole() {
    let trailers = |stream| frame(HEADERS, END_HEADERS | END_STREAM, stream, &[]);
    let ends: [fn(u32) -> Vec<u8>; 3] = [
        |stream| frame(DATA, END_STREAM, stream, b""),
        |stream| [frame(DATA, END_STREAM, stream, b"56"), frame(RST_STREAM, 0, stream, NO_ERROR)].concat(),
        trailers,
    ];
    for (end, body) in ends.into_iter().zip(["01234", "0123456", "01234"]) {
        let (web, dir, _file) = start(end).await;
        let found = find(&web, &dir, "x").await.value;
        assert_eq!(read(found.along.unwrap().body).await.unwrap().0, body.as_bytes());
    }
}

/// Goal: a server that ends its connections after so many requests (nginx: `keepalive_requests`) serves all who ask at the same
/// time. Method: one that takes the first request of each connection and says so before it answers, and many lookups at once.
#[tokio::test]
async fn requests_that_a_connection_took_no_more_are_sent_on_others() {
    let script = |stream: u32| {
        let first = 1u32;
        if stream > first {
            return Vec::new();
        }
        let end = |stream| frame(DATA, END_STREAM, stream, b"");
        [frame(GOAWAY, 0, 0, &[&first.to_be_bytes()[..], NO_ERROR].concat()), bytes_and(stream, end)].concat()
    };
    let (web, dir, _file) = start_with(Arc::new(script)).await;
    let names: Vec<_> = (0..60).map(|number| format!("{number}.txt")).collect();
    futures_util::future::join_all(names.iter().map(|name| find(&web, &dir, name))).await;
}
