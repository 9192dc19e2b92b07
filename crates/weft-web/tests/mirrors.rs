//! A host that sends to mirrors: what is read of a version comes from where the version came from.

mod support;

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use support::{Reply, Seen, Server, answer, call, find, read, web, web_with};
use weft_remote::{Audience, Call, Caller, Remote, RemoteError, Span, Version};
use weft_web::{Credentials, WebOptions};

const LENGTH: usize = 300_000;

fn span(start: u64) -> Span {
    Span { start, length: Some(1000) }
}

/// A file in ranges, under a tag of its own.
fn mirrored(seen: &Seen, tag: &str) -> Reply {
    let whole = vec![b'x'; LENGTH];
    let headers = [("etag", tag), ("accept-ranges", "bytes")];
    let range = seen.headers.get("range").and_then(|range| range.to_str().ok()?.strip_prefix("bytes="));
    let is_current = seen.headers.get("if-range").is_none_or(|asked| asked == tag);
    let Some((first, last)) = range.filter(|_| is_current).and_then(|range| range.split_once('-')) else {
        return answer(200, &headers, whole);
    };
    let (first, last) = (first.parse::<usize>().unwrap(), last.parse::<usize>().unwrap());
    let said = format!("bytes {first}-{last}/{LENGTH}");
    answer(206, &[headers[0], ("content-range", &said)], whole[first..=last].to_vec())
}

/// Mirrors, and a host that sends to each in turn.
struct Mirrors {
    front: Server,
    mirrors: Vec<Server>,
    /// The first refuses, as signed URLs do at their end.
    is_over: Arc<AtomicBool>,
}

impl Mirrors {
    async fn start(tags: &[&'static str]) -> Mirrors {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut mirrors = Vec::new();
        for (nth, tag) in tags.iter().copied().enumerate() {
            let is_over = is_over.clone();
            mirrors.push(
                Server::start(move |seen| match nth == 0 && is_over.load(Ordering::SeqCst) {
                    true => answer(403, &[], "over"),
                    false => mirrored(seen, tag),
                })
                .await,
            );
        }
        let addresses: Vec<_> = mirrors.iter().map(|mirror| mirror.address).collect();
        let turn = AtomicUsize::new(0);
        let front = Server::start(move |seen| match seen.path.as_str() {
            "/f" => {
                let address = addresses[turn.fetch_add(1, Ordering::SeqCst) % addresses.len()];
                answer(302, &[("location", &format!("http://{address}/copy"))], "")
            }
            _ => answer(404, &[], ""),
        })
        .await;
        Mirrors { front, mirrors, is_over }
    }
}

/// Goal: all of a version comes from one mirror, and the host that sends there is asked once.
#[tokio::test]
async fn parts_of_a_version_come_from_where_it_came_from() {
    let all = Mirrors::start(&["\"one\"", "\"two\"", "\"three\""]).await;
    let web = web();
    let found = find(&web, &all.front.dir("/"), "f").await;
    assert_eq!(found.value.entry.version, Version::strong("\"one\""));
    let file = all.front.file("/f");
    for start in [200_000, 1000, 100_000] {
        let part = web.fetch(&call(), &file, &found.version, span(start)).await.unwrap();
        assert_eq!(part.origin.as_ref().unwrap().redirects.len(), 1, "{:?}", part.origin);
        assert_eq!((part.value.body.start, read(part.value.body).await.unwrap().0.len()), (start, 1000));
    }
    assert_eq!(all.front.paths().iter().filter(|path| *path == "/f").count(), 1);
    assert_eq!(all.mirrors[0].paths(), ["/copy"; 4]);
    // Who opens it anew is sent to another one: both versions can be read.
    let anew = find(&web, &all.front.dir("/"), "f").await;
    assert_eq!(anew.version, Version::strong("\"two\""));
    for version in [&found.version, &anew.version] {
        assert_eq!(web.fetch(&call(), &file, version, span(5000)).await.unwrap().version, *version);
    }
}

/// Goal: where that mirror refuses, the host is asked, and what it leads to counts if it has the version.
#[tokio::test]
async fn a_mirror_that_refuses_is_left_for_another_with_the_version() {
    for (second, is_same) in [("\"one\"", true), ("\"two\"", false)] {
        let all = Mirrors::start(&["\"one\"", second]).await;
        let web = web();
        let found = find(&web, &all.front.dir("/"), "f").await;
        all.is_over.store(true, Ordering::SeqCst);
        match web.fetch(&call(), &all.front.file("/f"), &found.version, span(1000)).await {
            Ok(part) => assert!(is_same, "{part:?}"),
            Err(error) => assert!(!is_same && matches!(error, RemoteError::VersionChanged { .. }), "{error}"),
        }
        assert_eq!(all.mirrors[1].paths(), ["/copy"]);
    }
}

/// Goal: where a login has led is for its user alone, and the login does not go there.
#[tokio::test]
async fn where_a_login_led_is_for_its_user_alone() {
    let mirror = Server::start(|seen| mirrored(seen, "\"one\"")).await;
    let address = mirror.address;
    let front = Server::start(move |seen| match seen.headers.contains_key("authorization") {
        true => answer(302, &[("location", &format!("http://{address}/signed"))], ""),
        false => answer(401, &[("www-authenticate", "Basic realm=\"x\"")], "who are you?"),
    })
    .await;
    let uid = rustix::process::geteuid().as_raw();
    let netrc = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(netrc.path(), "machine 127.0.0.1 login me password word").unwrap();
    std::fs::set_permissions(netrc.path(), PermissionsExt::from_mode(0o600)).unwrap();
    let credentials = Credentials::from_netrc(netrc.path(), uid, true);
    let web = web_with(WebOptions { credentials, ..WebOptions::default() });
    let as_user = |uid| Call::within(Caller { uid, gid: uid, pid: 1 }, Duration::from_secs(20));
    let (file, version) = (front.file("/f"), Version::strong("\"one\""));
    web.fetch(&as_user(uid), &file, &Version::None, Span::WHOLE).await.unwrap();
    let part = web.fetch(&as_user(uid), &file, &version, span(1000)).await.unwrap();
    assert_eq!(part.audience, Audience::Only { uid });
    assert_eq!(front.paths().iter().filter(|path| *path == "/f").count(), 1, "the part came from the mirror");
    let stranger = web.fetch(&as_user(uid + 1), &file, &version, span(1000)).await;
    assert!(matches!(stranger, Err(RemoteError::Denied { .. })), "{stranger:?}");
    assert_eq!(mirror.paths(), ["/signed"; 2]);
    assert!(mirror.log.lock().iter().all(|seen| !seen.headers.contains_key("authorization")));
}

/// Goal: a redirect to a scheme that a host does not speak is an error of what redirects, and the host is asked on for the rest.
#[tokio::test]
async fn a_redirect_to_a_scheme_that_is_not_spoken_leaves_the_host_connected() {
    let address = Arc::new(std::sync::OnceLock::<std::net::SocketAddr>::new());
    let of_server = address.clone();
    let server = Server::start(move |seen| match seen.path.as_str() {
        "/led" => {
            let address = of_server.get().expect("set before anything is asked");
            answer(302, &[("location", &format!("https://{address}/file"))], "")
        }
        path => answer(200, &[], path.to_owned()),
    })
    .await;
    address.set(server.address).expect("set once");
    let web = web();
    let top = server.dir("/");
    find(&web, &top, "before").await;
    for _ in 0..2 {
        let error = support::fails(&web, &top, "led").await;
        assert!(
            matches!(&error, RemoteError::Unreachable { detail } if detail.contains("nothing speaks TLS")),
            "{error}"
        );
        find(&web, &top, "after").await;
    }
    assert!(web.sources().iter().all(|source| source.state == weft_remote::SourceState::Connected));
}

/// Goal: what a balancer spreads over servers whose tags differ is read to its end, and a file that changed costs one request
/// more, or three where that was so. Method: two that take turns, then one that has another version for good.
#[tokio::test]
async fn servers_behind_one_name_may_have_a_tag_each() {
    let (turn, is_new) = (AtomicUsize::new(0), Arc::new(AtomicBool::new(false)));
    let new = is_new.clone();
    let server =
        Server::start(move |seen| match (new.load(Ordering::SeqCst), turn.fetch_add(1, Ordering::SeqCst) % 2) {
            (true, _) => mirrored(seen, "\"new\""),
            (false, 0) => mirrored(seen, "\"a\""),
            (false, _) => mirrored(seen, "\"b\""),
        })
        .await;
    let web = web();
    let version = find(&web, &server.dir("/"), "f").await.value.entry.version;
    let asked_of_a_changed_one = async || {
        is_new.store(true, Ordering::SeqCst);
        let before = server.paths().len();
        let error = web.fetch(&call(), &server.file("/f"), &version, span(0)).await.err();
        assert!(matches!(error, Some(RemoteError::VersionChanged { .. })), "{error:?}");
        is_new.store(false, Ordering::SeqCst);
        server.paths().len() - before
    };
    assert_eq!(asked_of_a_changed_one().await, 2);
    for start in [0, 5000, 90_000] {
        let part = web.fetch(&call(), &server.file("/f"), &version, span(start)).await.unwrap().value;
        assert_eq!(read(part.body).await.unwrap().0, [b'x'; 1000], "{start}");
    }
    assert_eq!(asked_of_a_changed_one().await, 4);
}
