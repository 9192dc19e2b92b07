//! Servers that lie, stall, cut, change and ask to wait.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use hyper::Method;
use support::{Server, answer, call, fails, find, html, name, read, web, web_with};
use weft_remote::{Call, Caller, Checked, Event, Figure, Piece, Remote, RemoteError, SourceState, Span, Version};
use weft_web::{Web, WebOptions};

const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

fn span(start: u64, length: u64) -> Span {
    Span { start, length: Some(length) }
}

/// Serves `0123456789` with honest ranges, under the validators given.
async fn digits(etag: Option<&'static str>, modified: Option<&'static str>) -> Server {
    Server::start(move |seen| {
        let mut headers = vec![("accept-ranges", "bytes")];
        headers.extend(etag.map(|tag| ("etag", tag)));
        headers.extend(modified.map(|date| ("last-modified", date)));
        let same = |header: &str, ours: Option<&str>| seen.headers.get(header).is_some_and(|h| h.to_str().ok() == ours);
        if same("if-none-match", etag) || same("if-modified-since", modified) {
            return answer(304, &headers, "");
        }
        let range = seen.headers.get("range").and_then(|r| r.to_str().ok()?.strip_prefix("bytes=").map(str::to_owned));
        let current = seen.headers.get("if-range").is_none_or(|tag| tag.to_str().ok() == etag);
        let Some(range) = range.filter(|_| current) else { return answer(200, &headers, "0123456789") };
        let (first, last) = range.split_once('-').unwrap();
        let first: usize = first.parse().unwrap();
        let last = last.parse().unwrap_or(9).min(9);
        if first > 9 {
            return answer(416, &[("content-range", "bytes */10")], "out of range");
        }
        let content_range = format!("bytes {first}-{last}/10");
        headers.push(("content-range", &content_range));
        answer(206, &headers, &"0123456789"[first..=last])
    })
    .await
}

#[tokio::test]
async fn ranges_come_from_where_they_were_asked() {
    for (etag, modified, version) in [
        (Some("\"v1\""), None, Version::strong("\"v1\"")),
        (None, Some(DATE), Version::weak(format!("m10|{DATE}"))),
        (None, None, Version::None),
    ] {
        let (server, web) = (digits(etag, modified).await, web());
        let file = server.file("/d");
        let fetched = web.fetch(&call(), &file, &version, span(3, 4)).await.unwrap();
        assert_eq!(fetched.version, version);
        assert_eq!(fetched.value.attributes.size, Figure::Exact(10));
        let body = fetched.value.body;
        assert_eq!((body.start, body.file_length, body.resumable), (3, Some(10), version != Version::None));
        assert_eq!(read(body).await.unwrap().0, b"3456");
        let rest = web.fetch(&call(), &file, &version, Span { start: 8, length: None }).await.unwrap();
        assert_eq!(read(rest.value.body).await.unwrap().0, b"89");
        let short = web.fetch(&call(), &file, &version, span(8, 100)).await.unwrap();
        assert_eq!(read(short.value.body).await.unwrap().0, b"89");
        let past = web.fetch(&call(), &file, &version, span(10, 5)).await.unwrap().value.body;
        assert_eq!((past.start, past.file_length), (10, Some(10)));
        assert_eq!(read(past).await.unwrap().0, b"");
    }
}

#[tokio::test]
async fn another_version_is_never_delivered() {
    let (server, web) = (digits(Some("\"v2\""), None).await, web());
    for asked in [Span::WHOLE, span(3, 4), Span { start: 3, length: None }] {
        let error = web.fetch(&call(), &server.file("/d"), &Version::strong("\"v1\""), asked).await.unwrap_err();
        assert!(matches!(error, RemoteError::VersionChanged { .. }), "{error}");
    }
    let (server, expected) = (digits(None, Some(DATE)).await, Version::weak(format!("m11|{DATE}")));
    let error = web.fetch(&call(), &server.file("/d"), &expected, span(3, 4)).await.unwrap_err();
    assert!(matches!(error, RemoteError::VersionChanged { .. }), "{error}");
}

#[tokio::test]
async fn checking_is_conditional() {
    for (etag, modified) in [(Some("\"v1\""), None), (Some("W/\"v1\""), None), (None, Some(DATE))] {
        let (server, web) = (digits(etag, modified).await, web());
        let found = find(&web, &server.dir("/"), "d").await;
        let known = found.version;
        drop(found.value);
        let checked = web.attributes(&call(), &server.file("/d"), &known).await.unwrap();
        assert!(matches!(checked.value, Checked::Unchanged));
        assert!(known.still_holds(&checked.version));
        let checked = web.attributes(&call(), &server.file("/d"), &Version::strong("\"old\"")).await.unwrap();
        assert!(matches!(checked.value, Checked::Is(found) if found.entry.attributes.size == Figure::Exact(10)));
    }
}

#[tokio::test]
async fn a_server_without_ranges_starts_at_the_beginning() {
    let server = Server::start(|_| answer(200, &[("etag", "\"v1\"")], "0123456789")).await;
    let body =
        web().fetch(&call(), &server.file("/d"), &Version::strong("\"v1\""), span(3, 4)).await.unwrap().value.body;
    assert_eq!((body.start, body.resumable), (0, false));
    assert_eq!(read(body).await.unwrap().0, b"0123456789");
}

#[tokio::test]
async fn false_ranges_are_damage() {
    for content_range in
        ["bytes 0-3/10", "bytes 4-7/10", "bytes 3-6/5", "bytes 3-9/10", "bytes 3-4/10", "nonsense", "bytes 3-5/9"]
    {
        let server =
            Server::start(move |_| answer(206, &[("content-range", content_range), ("etag", "\"v1\"")], "3456")).await;
        let error = web().fetch(&call(), &server.file("/d"), &Version::strong("\"v1\""), span(3, 4)).await.unwrap_err();
        assert!(matches!(error, RemoteError::Damaged { .. }), "{content_range}: {error}");
    }
    let server = Server::start(|_| answer(206, &[("content-range", "bytes 0-1/10")], "01")).await;
    assert!(matches!(fails(&web(), &server.dir("/"), "d").await, RemoteError::Damaged { .. }));
}

/// Goal: a range that ends elsewhere than was asked brings what it has of that. Method: 3 to 6 of ten digits are asked for.
#[tokio::test]
async fn ranges_may_end_before_or_after_what_was_asked() {
    for (said, sent, right, is_short) in
        [("3-9/10", "3456789", "3456", false), ("3-6/10", "3456", "3456", false), ("3-4/10", "34", "34", true)]
    {
        let said = format!("bytes {said}");
        let server = Server::start(move |_| answer(206, &[("content-range", &said), ("etag", "\"v1\"")], sent)).await;
        let fetched = web().fetch(&call(), &server.file("/d"), &Version::strong("\"v1\""), span(3, 4)).await.unwrap();
        let (mut came, mut stream) = (Vec::new(), fetched.value.body.stream);
        let mut broke_off = false;
        while let Some(piece) = stream.next().await {
            match piece {
                Ok(Piece::Bytes(bytes)) => came.extend_from_slice(&bytes),
                Ok(Piece::Known(_)) => {}
                Err(error) => {
                    assert!(matches!(error, RemoteError::CutShort { .. }), "{error}");
                    broke_off = true;
                    break;
                }
            }
        }
        assert_eq!((came, broke_off), (right.as_bytes().to_vec(), is_short));
    }
}

#[tokio::test]
async fn bodies_are_held_to_their_announced_length() {
    let server = Server::raw(|path| {
        Some(match path {
            "/short" => b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n01234".to_vec(),
            "/chunked" => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n01234\r\n5\r\n56".to_vec(),
            "/range" => b"HTTP/1.1 206 P\r\nContent-Range: bytes 3-6/10\r\nContent-Length: 4\r\n\r\n34".to_vec(),
            "/both" => b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\n01234".to_vec(),
            "/open" => b"HTTP/1.0 200 OK\r\n\r\n01234".to_vec(),
            _ => b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n".to_vec(),
        })
    })
    .await;
    let web = web();
    for path in ["short", "chunked"] {
        let found = find(&web, &server.dir("/"), path).await.value;
        let error = read(found.along.unwrap().body).await.unwrap_err();
        assert!(matches!(error, RemoteError::CutShort { .. }), "{path}: {error}");
    }
    let ranged = web.fetch(&call(), &server.file("/range"), &Version::None, span(3, 4)).await.unwrap().value;
    assert!(matches!(read(ranged.body).await.unwrap_err(), RemoteError::CutShort { .. }));
    assert!(matches!(fails(&web, &server.dir("/"), "both").await, RemoteError::Damaged { .. }));
    let open = find(&web, &server.dir("/"), "open").await.value;
    assert_eq!(open.entry.attributes.size, Figure::Unknown);
    assert_eq!(read(open.along.unwrap().body).await.unwrap().0, b"01234");
}

#[tokio::test]
async fn broken_protocol_and_encoded_content_are_damage() {
    let headers: String = (0..200).map(|n| format!("X-{n}: y\r\n")).collect();
    let server = Server::raw(move |path| {
        Some(match path {
            "/headers" => format!("HTTP/1.1 200 OK\r\n{headers}Content-Length: 0\r\n\r\n").into_bytes(),
            "/long" => {
                format!("HTTP/1.1 200 OK\r\nX: {}\r\nContent-Length: 0\r\n\r\n", "y".repeat(1 << 20)).into_bytes()
            }
            "/gzip" => b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nxx".to_vec(),
            "/nowhere" => b"HTTP/1.1 302 F\r\nContent-Length: 0\r\n\r\n".to_vec(),
            "/nothing" => b"HTTP/1.1 204 N\r\n\r\n".to_vec(),
            _ => b"what?\r\n\r\n".to_vec(),
        })
    })
    .await;
    let web = web();
    for path in ["headers", "long", "gzip", "nowhere", "nothing", "noise"] {
        let error = fails(&web, &server.dir("/"), path).await;
        assert!(matches!(error, RemoteError::Damaged { .. }), "{path}: {error}");
    }
}

#[tokio::test]
async fn a_server_that_says_when_is_asked_again_then() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    let server = Server::start(move |seen| match (seen.path.as_str(), counter.fetch_add(1, Ordering::SeqCst)) {
        ("/soon", 0) => answer(503, &[("retry-after", "0")], "busy"),
        ("/soon", 1) => answer(429, &[("retry-after", DATE)], "busy"),
        ("/soon", _) => answer(200, &[], "done"),
        ("/late", _) => answer(503, &[("retry-after", "3600")], "busy"),
        ("/" | "/never", _) => answer(503, &[("retry-after", "0")], "busy"),
        _ => answer(404, &[], ""),
    })
    .await;
    let web = web();
    let found = find(&web, &server.dir("/"), "soon").await.value;
    assert_eq!(read(found.along.unwrap().body).await.unwrap().0, b"done");
    assert_eq!(asked.load(Ordering::SeqCst), 3);
    let late = fails(&web, &server.dir("/"), "late").await;
    assert!(matches!(late, RemoteError::Busy { retry_after: Some(wait), .. } if wait == Duration::from_secs(3600)));
    assert_eq!(asked.load(Ordering::SeqCst), 4);
    let hurried = || Call::within(Caller::DAEMON, Duration::from_millis(1900));
    let error = web.lookup(&hurried(), &server.dir("/"), &name("never")).await.unwrap_err();
    assert!(matches!(error, RemoteError::Busy { .. }), "{error}");
    assert_eq!(asked.load(Ordering::SeqCst), 7);
    // A busy host is a host.
    let host = web.lookup(&hurried(), &web.root(), &name(&server.address.to_string())).await.unwrap();
    assert!(host.value.is_some_and(|host| host.along.is_none()));
}

/// Goal: a server that is well again before the deadline gives its content, however often it has refused before.
#[tokio::test]
async fn a_busy_server_is_asked_until_the_deadline() {
    let asked = AtomicUsize::new(0);
    let server = Server::start(move |_| match asked.fetch_add(1, Ordering::SeqCst) {
        0..3 => answer(503, &[("retry-after", "0")], "busy"),
        _ => answer(200, &[], "done"),
    })
    .await;
    let found = find(&web(), &server.dir("/"), "x").await.value;
    assert_eq!(read(found.along.unwrap().body).await.unwrap().0, b"done");
}

#[tokio::test]
async fn silence_ends_at_the_deadline_and_a_stalled_body_at_its_own() {
    let server = Server::raw(|_| None).await;
    let web = web();
    let short = Call::within(Caller::DAEMON, Duration::from_millis(300));
    let error = web.lookup(&short, &server.dir("/"), &name("silent")).await.unwrap_err();
    assert!(matches!(error, RemoteError::TimedOut { .. }), "{error}");

    let stalling = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = stalling.local_addr().unwrap();
    let held = tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = stalling.accept().await {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            let mut first = [0];
            let _ = stream.read_exact(&mut first).await;
            if first == *b"G" {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n012").await;
                open.push(stream);
            }
        }
    });
    let web = web_with(WebOptions { stall_timeout: Duration::from_millis(200), ..WebOptions::default() });
    let dir = weft_remote::FileId::new(format!("D {address}/"));
    let found = find(&web, &dir, "x").await.value;
    assert!(matches!(read(found.along.unwrap().body).await.unwrap_err(), RemoteError::TimedOut { .. }));
    held.abort();
}

#[tokio::test]
async fn a_dead_host_is_said_to_be_so_at_once_and_bothers_no_other() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dead = free.local_addr().unwrap();
    drop(free);
    let (server, web) = (Server::start(|_| html("here")).await, web());
    for _ in 0..2 {
        let error = fails(&web, &web.root(), &dead.to_string()).await;
        assert!(matches!(error, RemoteError::Unreachable { .. }), "{error}");
    }
    find(&web, &web.root(), &server.address.to_string()).await;
    let facts = web.about(&weft_remote::FileId::new(format!("D {dead}/")));
    assert!(facts.iter().any(|(key, _)| key == "last error of the host"), "{facts:?}");
}

/// Goal: a host that has no HEAD is not shown as one in trouble when a time is compared by that; its other refusals are shown.
#[tokio::test]
async fn a_method_that_is_not_implemented_is_no_trouble_of_the_host() {
    for (status, is_trouble) in [(501, false), (500, true)] {
        let server = Server::start(move |seen| match seen.method {
            Method::HEAD => answer(status, &[], ""),
            _ => answer(200, &[("last-modified", DATE)], "text"),
        })
        .await;
        let web = web();
        let found = find(&web, &server.dir("/"), "x").await.value;
        let known = found.entry.version.clone();
        let _ = web.attributes(&call(), &found.entry.id, &known).await;
        assert_eq!(server.log.lock().iter().filter(|seen| seen.method == Method::HEAD).count(), 1, "{status}");
        let facts = web.about(&server.dir("/"));
        assert_eq!(facts.iter().any(|(key, _)| key == "last error of the host"), is_trouble, "{status}: {facts:?}");
    }
}

#[tokio::test]
async fn a_connection_closed_while_idle_is_replaced_once() {
    let server = Server::raw(|path| {
        Some(match path {
            // Promises to stay, and closes.
            "/a" => b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\na".to_vec(),
            _ => b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nb".to_vec(),
        })
    })
    .await;
    let web = web();
    for (path, bytes) in [("a", b"a"), ("b", b"b"), ("a", b"a"), ("b", b"b")] {
        let found = find(&web, &server.dir("/"), path).await.value;
        assert_eq!(read(found.along.unwrap().body).await.unwrap().0, bytes);
    }
}

#[tokio::test]
async fn many_requests_share_few_connections() {
    let server = Server::start(|seen| answer(200, &[], seen.path.clone())).await;
    let web = web_with(WebOptions { connections_per_host_max: 3, ..WebOptions::default() });
    let tasks: Vec<_> = (0..40)
        .map(|number| {
            let (web, dir) = (web.clone(), server.dir("/"));
            tokio::spawn(async move {
                let found = find(&web, &dir, &format!("f{number}")).await.value;
                read(found.along.unwrap().body).await.unwrap().0
            })
        })
        .collect();
    for (number, task) in tasks.into_iter().enumerate() {
        assert_eq!(task.await.unwrap(), format!("/f{number}").as_bytes());
    }
    // Three, and the one that was greeted in TLS.
    assert!(*server.connections.lock() <= 4, "{}", server.connections.lock());
    assert_eq!(server.paths().len(), 40);
}

/// SHA-256 of `0123456789`.
const DIGITS_SHA256: &str = "hNiYd/DUBB77a/kaFvAkjy/Vc+avBcGflr7bn4gveII=";
const OTHER_SHA256: &str = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";

/// Goal: a body that is not what its digest says is damaged, and its end is delivered to nobody. Method: each field,
/// right and wrong, over a whole body, one without a length, and a range.
#[tokio::test]
async fn a_body_is_held_to_its_digest() {
    for (name, form) in
        [("repr-digest", "sha-256=:DIGEST:"), ("content-digest", "sha-256=:DIGEST:"), ("digest", "SHA-256=DIGEST")]
    {
        for (digest, right) in [(DIGITS_SHA256, true), (OTHER_SHA256, false)] {
            let value = form.replace("DIGEST", digest);
            let server = Server::start(move |seen| match seen.headers.contains_key("range") {
                true => {
                    let about = [("content-range", "bytes 0-9/100"), ("etag", "\"v1\""), (name, value.as_str())];
                    answer(206, &about, "0123456789")
                }
                false => answer(200, &[("etag", "\"v1\""), (name, value.as_str())], "0123456789"),
            })
            .await;
            let web = web();
            let body = find(&web, &server.dir("/"), "d").await.value.along.unwrap().body;
            match (read(body).await, right) {
                (Ok((bytes, _)), true) => assert_eq!(bytes, b"0123456789"),
                (Err(RemoteError::Damaged { detail }), false) => assert!(detail.contains("SHA-256"), "{detail}"),
                (other, _) => panic!("{name} {right}: {other:?}"),
            }
            let version = Version::strong("\"v1\"");
            let range = web.fetch(&call(), &server.file("/d"), &version, span(0, 10)).await.unwrap().value.body;
            // Of a range, only the digest of the content is about what comes.
            let fine = right || name != "content-digest";
            assert_eq!(read(range).await.is_ok(), fine, "{name} {right}");
        }
    }
    let chunked = |digest: &str| {
        let head = format!("HTTP/1.1 200 OK\r\nRepr-Digest: sha-256=:{digest}:\r\nTransfer-Encoding: chunked\r\n\r\n");
        [head.as_bytes(), b"5\r\n01234\r\n5\r\n56789\r\n0\r\n\r\n"].concat()
    };
    for (digest, right) in [(DIGITS_SHA256, true), (OTHER_SHA256, false)] {
        let bytes = chunked(digest);
        let server = Server::raw(move |_| Some(bytes.clone())).await;
        let web = web();
        let mut stream = find(&web, &server.dir("/"), "d").await.value.along.unwrap().body.stream;
        let mut seen = Vec::new();
        let mut failed = false;
        while let Some(piece) = futures_util::StreamExt::next(&mut stream).await {
            match piece {
                Ok(weft_remote::Piece::Bytes(bytes)) => seen.extend_from_slice(&bytes),
                Ok(_) => {}
                Err(_) => failed = true,
            }
        }
        assert_eq!((failed, seen == b"0123456789"), (!right, right));
    }
}

#[tokio::test]
async fn the_end_of_a_long_body_waits_for_its_digest() {
    const LENGTH: usize = 3 << 20;
    for (digest, right) in [("O+qKmgfB6NyqTBuBaBXDWim0+1hbpuzHDqRIQKeUz7M=", true), (OTHER_SHA256, false)] {
        let value = format!("sha-256=:{digest}:");
        let server = Server::start(move |_| answer(200, &[("repr-digest", value.as_str())], vec![b'x'; LENGTH])).await;
        let mut stream = find(&web(), &server.dir("/"), "d").await.value.along.unwrap().body.stream;
        let (mut seen, mut failed) = (0, false);
        while let Some(piece) = futures_util::StreamExt::next(&mut stream).await {
            match piece {
                Ok(weft_remote::Piece::Bytes(bytes)) => seen += bytes.len(),
                Ok(_) => {}
                Err(_) => failed = true,
            }
        }
        assert_eq!(failed, !right);
        assert!(if right { seen == LENGTH } else { seen < LENGTH }, "{seen}");
    }
}

/// Goal: a host that falls silent costs one call its patience; then calls fail at once and none of them reaches the
/// host, and the probe's finding it again is told and ends that. The host here takes connections all the time, so only
/// an answer can show that it is back.
#[tokio::test]
async fn a_host_that_falls_silent_is_left_to_a_probe_until_it_answers() {
    let awake = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let asked = Arc::new(AtomicUsize::new(0));
    let (script, count) = (awake.clone(), asked.clone());
    let server = Server::raw(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        let good = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\na".to_vec();
        script.load(Ordering::SeqCst).then_some(good)
    })
    .await;
    let web = web_with(WebOptions { down_time: Duration::from_millis(200), ..WebOptions::default() });
    let mut events = web.events();
    let top = weft_remote::FileId::new(format!("D {}/", server.address));
    let _ = find(&web, &top, "a").await;
    awake.store(false, Ordering::SeqCst);
    let patient = Call::within(Caller::DAEMON, Duration::from_millis(1200));
    let error = web.lookup(&patient, &top, &name("a")).await.unwrap_err();
    assert!(matches!(error, RemoteError::TimedOut { .. }), "{error}");
    assert_eq!(error.to_string(), format!("{}/a: no answer in time", server.address));
    assert_eq!(events.next().await, Some(Event::Unreachable(top.clone())));
    assert_eq!(web.source(&top).map(|source| source.state), Some(SourceState::Disconnected));
    for _ in 0..100 {
        assert!(matches!(fails(&web, &top, "a").await, RemoteError::Unreachable { .. }));
    }
    let before = asked.load(Ordering::SeqCst);
    assert!(before < 20, "{before} requests: calls are not passed on");
    awake.store(true, Ordering::SeqCst);
    assert_eq!(events.next().await, Some(Event::Reachable(top.clone())));
    let _ = find(&web, &top, "a").await;
    assert_eq!(web.sources()[0].state, SourceState::Connected);
}

/// Goal: the user's word is enough for the next call to try.
#[tokio::test]
async fn a_silent_host_is_tried_at_once_when_the_user_says_so() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let web = web_with(WebOptions { down_time: Duration::from_secs(3600), ..WebOptions::default() });
    let top = weft_remote::FileId::new(format!("D {address}/"));
    assert!(!web.try_again(&web.root()), "nothing is held back");
    for _ in 0..2 {
        assert!(matches!(fails(&web, &top, "a").await, RemoteError::Unreachable { .. }));
    }
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    let accepted = tokio::spawn(async move { listener.accept().await.map(|_| ()) });
    assert!(matches!(fails(&web, &top, "a").await, RemoteError::Unreachable { .. }));
    assert!(!accepted.is_finished(), "nobody tried");
    assert!(web.try_again(&top));
    let _ = web.lookup(&call(), &top, &name("a")).await;
    accepted.await.unwrap().unwrap();
}

/// Goal: downloads that nobody ends keep no question waiting, connections are bounded all the same, and a download that
/// found no place comes when one is left. Method: bodies that are not read, over each way to share a host.
async fn downloads_leave_room(server: Server, web: Arc<Web>, downloads_max: usize) {
    let dir = server.dir("/");
    let small = async || read(find(&web, &dir, "small").await.value.along.unwrap().body).await.unwrap().0;
    assert_eq!(small().await, b"small");
    let mut held = Vec::new();
    while let Some(along) = find(&web, &dir, "large").await.value.along {
        held.push(along);
        assert!(held.len() <= downloads_max, "{} bodies", held.len());
    }
    assert_eq!(held.len(), downloads_max);
    assert_eq!(small().await, b"small");
    let file = server.file("/large");
    let patient = call();
    let mut fetched = web.fetch(&patient, &file, &Version::None, Span::WHOLE);
    // It asks, finds no place and waits, while the next question is answered.
    tokio::select! {
        biased;
        _ = &mut fetched => panic!("there is no place"),
        bytes = small() => assert_eq!(bytes, b"small"),
    }
    held.pop();
    let body = fetched.await.unwrap().value.body;
    assert_eq!(read(body).await.unwrap().0.len(), LARGE_BYTES);
}

const LARGE_BYTES: usize = 8 << 20;

fn large_and_small(seen: &support::Seen) -> support::Reply {
    match seen.path.as_str() {
        "/large" => answer(200, &[("content-type", "application/zip")], vec![0; LARGE_BYTES]),
        _ => answer(200, &[], "small"),
    }
}

#[tokio::test]
async fn downloads_leave_connections_to_questions() {
    let server = Server::start(large_and_small).await;
    let connections = server.connections.clone();
    let web = web_with(WebOptions { connections_per_host_max: 4, ..WebOptions::default() });
    downloads_leave_room(server, web, 7).await;
    // Twice the bound, the greeting in TLS, and the few that were closed with a body on them.
    assert!(*connections.lock() <= 12, "{}", connections.lock());
}

#[tokio::test]
async fn downloads_leave_streams_to_questions() {
    use std::io::Write;
    let (server, pem) = Server::start_tls(large_and_small, &[b"h2"]).await;
    let mut ca = tempfile::NamedTempFile::new().unwrap();
    ca.write_all(pem.as_bytes()).unwrap();
    let web = web_with(WebOptions { extra_ca: Some(ca.path().to_owned()), ..WebOptions::default() });
    downloads_leave_room(server, web, 48).await;
}
