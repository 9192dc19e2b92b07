//! Whether a file of which a time is known is that still: what servers tell of that, and what they leave out.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use hyper::Method;
use support::{Reply, Seen, Server, answer, call, find, web};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use weft_remote::{Call, Caller, Checked, FileId, Remote, Version};
use weft_web::Web;

const NEWER: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const OLDER: &str = "Sat, 05 Nov 1994 08:49:37 GMT";

/// What a server without HEAD does with the range of a GET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ranges {
    Honoured,
    Ignored,
}

/// Answers of a file that was put back to what it was, as of a server that gives nothing of it to who has a newer one.
fn older(seen: &Seen, body: &'static str, ranges: Ranges) -> Reply {
    let modified = ("last-modified", OLDER);
    if seen.method == Method::HEAD {
        return answer(405, &[], "");
    }
    if seen.headers.contains_key("if-modified-since") {
        return answer(304, &[modified], "");
    }
    match seen.headers.contains_key("range") && ranges == Ranges::Honoured {
        true if body.is_empty() => answer(416, &[("content-range", "bytes */0")], ""),
        true => answer(206, &[modified, ("content-range", &format!("bytes 0-0/{}", body.len()))], &body[..1]),
        false => answer(200, &[modified], body),
    }
}

async fn check(web: &Web, file: &FileId, known: &str) -> Checked {
    web.attributes(&call(), file, &Version::weak(known)).await.unwrap().value
}

/// Goal: a file that is older than what is held is seen, whatever its server calls modified, and however it tells of headers alone.
/// Method: a server that has no HEAD; the same once more, for what is learnt of it.
#[tokio::test]
async fn an_older_file_is_seen_where_there_is_no_head() {
    for (body, ranges) in [("old", Ranges::Honoured), ("", Ranges::Honoured), ("old", Ranges::Ignored)] {
        let server = Server::start(move |seen| older(seen, body, ranges)).await;
        let web = web();
        let is_seen = check(&web, &server.file("/x"), &format!("m3|{NEWER}")).await;
        assert!(matches!(is_seen, Checked::Is(_)), "{body:?}, {ranges:?}: {is_seen:?}");
        let is_same = check(&web, &server.file("/x"), &format!("m{}|{OLDER}", body.len())).await;
        assert!(matches!(is_same, Checked::Unchanged), "{body:?}, {ranges:?}: {is_same:?}");
        let heads = server.log.lock().iter().filter(|seen| seen.method == Method::HEAD).count();
        assert_eq!(heads, 1, "{body:?}, {ranges:?}: it is known by now that there is none");
    }
}

/// Goal: a server that never answers HEAD costs no file its answer, and is asked by it once. Method: one that answers all else,
/// and two checks.
#[tokio::test]
async fn who_never_answers_head_is_asked_otherwise() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let heads = Arc::new(AtomicUsize::new(0));
    let counted = heads.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let heads = counted.clone();
            tokio::spawn(async move {
                let mut asked = Vec::new();
                while stream.read_buf(&mut asked).await.unwrap_or(0) > 0 {
                    if asked[0] == TLS {
                        return;
                    }
                    if !asked.ends_with(b"\r\n\r\n") {
                        continue;
                    }
                    if asked.starts_with(b"HEAD ") {
                        heads.fetch_add(1, Ordering::SeqCst);
                    } else {
                        let head = format!("last-modified: {OLDER}\r\ncontent-range: bytes 0-0/3\r\ncontent-length: 1");
                        let _ = stream.write_all(format!("HTTP/1.1 206 Part\r\n{head}\r\n\r\no").as_bytes()).await;
                    }
                    asked.clear();
                }
            });
        }
    });
    let (web, file) = (web(), FileId::new(format!("F {address}/x")));
    for _ in 0..2 {
        let call = Call::within(Caller::DAEMON, Duration::from_secs(6));
        let checked = web.attributes(&call, &file, &Version::weak(format!("m3|{OLDER}"))).await;
        assert!(matches!(checked.unwrap().value, Checked::Unchanged));
    }
    assert_eq!(heads.load(Ordering::SeqCst), 1);
}

/// Goal: what was asked of the wrong connection is asked of another one, once. Method: a server that says so of its first
/// request, and one that always does.
#[tokio::test]
async fn a_misdirected_request_is_sent_on_another_connection() {
    for alpn in [&[&b"h2"[..]][..], &[]] {
        let is_first = AtomicBool::new(true);
        let script = move |seen: &Seen| match seen.path == "/never" || is_first.swap(false, Ordering::SeqCst) {
            true => answer(421, &[], "not here"),
            false => answer(200, &[], "text"),
        };
        let (server, certificate) = Server::start_tls(script, alpn).await;
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), certificate).unwrap();
        let options =
            weft_web::WebOptions { extra_ca: Some(file.path().to_owned()), ..weft_web::WebOptions::default() };
        let web = support::web_with(options);
        let found = find(&web, &server.dir("/"), "x").await.value;
        assert_eq!(support::read(found.along.unwrap().body).await.unwrap().0, b"text", "{alpn:?}");
        assert_eq!(*server.connections.lock(), 2, "{alpn:?}");
        support::fails(&web, &server.dir("/"), "never").await;
        assert_eq!(server.paths().iter().filter(|path| *path == "/never").count(), 2, "{alpn:?}");
    }
}

/// How a greeting of TLS begins.
const TLS: u8 = 0x16;
