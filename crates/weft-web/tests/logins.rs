//! Logins: sent to one origin, for one user, and what came of them is that user's.

mod support;

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use support::{Reply, Seen, Server, answer, html, list, name, web_with};
use weft_remote::{Answer, Audience, Call, Caller, Found, Remote, RemoteError, Result, Span, Version};
use weft_web::{Credentials, Web, WebOptions};

/// `me:word` in Basic.
const HEADER: &str = "Basic bWU6d29yZA==";

/// Shows what it has to those who log in, and is open under `/open`.
fn guarded(seen: &Seen) -> Reply {
    let known = seen.headers.get("authorization").is_some_and(|value| value == HEADER);
    match seen.path.as_str() {
        path if !known && !path.starts_with("/open") => {
            answer(401, &[("www-authenticate", "Basic realm=\"x\"")], "who are you?")
        }
        "/" => html("<a href='a.txt'>a</a> <a href='deep/b.txt'>b</a>"),
        "/gone" => answer(404, &[], ""),
        "/moved" => answer(302, &[("location", "/a.txt")], ""),
        path => answer(200, &[("content-type", "text/plain"), ("etag", "\"1\"")], path.to_owned()),
    }
}

fn uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn as_user(uid: u32) -> Call {
    Call::within(Caller { uid, gid: uid, pid: 1 }, Duration::from_secs(20))
}

fn logins(text: &str, insecure: bool) -> Credentials {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    std::fs::set_permissions(file.path(), PermissionsExt::from_mode(0o600)).unwrap();
    Credentials::from_netrc(file.path(), uid(), insecure)
}

fn web(text: &str, insecure: bool) -> Arc<Web> {
    web_with(WebOptions { credentials: logins(text, insecure), ..WebOptions::default() })
}

const MINE: &str = "machine 127.0.0.1 login me password word";

async fn look(web: &Web, uid: u32, server: &Server, path: &str) -> Result<Answer<Option<Found>>> {
    web.lookup(&as_user(uid), &server.dir("/"), &name(path)).await
}

/// The value of the header in every request to a path.
fn headers(server: &Server, path: &str) -> Vec<Option<String>> {
    let seen = server.log.lock();
    let value = |seen: &Seen| seen.headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
    seen.iter().filter(|seen| seen.path == path).map(value).collect()
}

#[tokio::test]
async fn what_a_login_fetched_is_for_its_user_alone() {
    let server = Server::start(guarded).await;
    let web = web(MINE, true);
    let only = Audience::Only { uid: uid() };
    let found = look(&web, uid(), &server, "a.txt").await.unwrap();
    assert_eq!(found.audience, only);
    assert_eq!(found.value.unwrap().along.unwrap().audience, only);
    assert_eq!(look(&web, uid(), &server, "gone").await.unwrap().audience, only, "an absence as well");
    assert_eq!(look(&web, uid(), &server, "moved").await.unwrap().audience, only);
    let file = server.file("/a.txt");
    let fetched = web.fetch(&as_user(uid()), &file, &Version::None, Span::WHOLE).await.unwrap();
    assert_eq!(fetched.audience, only);
    let checked = web.attributes(&as_user(uid()), &file, &Version::None).await.unwrap();
    assert_eq!(checked.audience, only);
    assert!(headers(&server, "/a.txt").iter().all(|value| value.as_deref() == Some(HEADER)));
    let facts = web.about(&file);
    assert!(facts.iter().any(|(key, _)| key == "login"), "{facts:?}");
    assert!(!format!("{facts:?} {web:?}", web = logins(MINE, true)).contains("word"));
}

#[tokio::test]
async fn names_learnt_with_a_login_are_for_its_user_alone() {
    if uid() != 0 {
        // The support's calls are root's.
        return eprintln!("not tried: only root's calls are made here");
    }
    let server = Server::start(guarded).await;
    let only = Audience::Only { uid: 0 };
    let web = web(MINE, true);
    let (answer, page, along) = list(&web, &server.dir("/")).await;
    assert_eq!((answer.audience, page.entries.len()), (only, 3));
    let (_, known) = support::read(along.unwrap().body).await.unwrap();
    assert!(!known.is_empty() && known.iter().all(|known| known.page.audience == only), "{known:?}");
    // The same where the names stream by after the first bytes.
    let found = web.lookup(&as_user(0), &web.root(), &server.name()).await.unwrap().value.unwrap();
    let (_, known) = support::read(found.along.unwrap().body).await.unwrap();
    assert!(!known.is_empty() && known.iter().all(|known| known.page.audience == only), "{known:?}");
}

#[tokio::test]
async fn others_go_without_and_are_denied() {
    let server = Server::start(guarded).await;
    let web = web(MINE, true);
    look(&web, uid(), &server, "a.txt").await.unwrap();
    let stranger = uid() + 1;
    let error = look(&web, stranger, &server, "a.txt").await.unwrap_err();
    assert!(matches!(error, RemoteError::Denied { .. }), "{error}");
    assert_eq!(headers(&server, "/a.txt"), [Some(HEADER.to_owned()), None]);
    // What is open to anyone is so for them, and stays everyone's.
    assert_eq!(look(&web, stranger, &server, "open").await.unwrap().audience, Audience::Everyone);
}

#[tokio::test]
async fn plain_http_gets_no_login_unless_told_so() {
    for (text, insecure, sent) in [
        (MINE, false, false),
        (MINE, true, true),
        ("machine 127.0.0.2 login me password word", true, false),
        ("default login me password word", true, true),
        ("", true, false),
    ] {
        let server = Server::start(guarded).await;
        let found = look(&web(text, insecure), uid(), &server, "a.txt").await;
        assert_eq!(found.is_ok(), sent, "{text}, {insecure}");
        assert_eq!(headers(&server, "/a.txt"), [sent.then(|| HEADER.to_owned())], "{text}, {insecure}");
    }
}

/// Goal: a server that we log in to cannot hand the login on. Method: it redirects to another port of its own host,
/// to another address, and back to itself over the other; every request's header is looked at.
#[tokio::test]
async fn a_redirect_to_another_origin_does_not_carry_the_login() {
    let other = Server::start(|seen| match seen.path.strip_prefix("/back/") {
        Some(home) => answer(302, &[("location", &format!("http://{home}/a.txt"))], ""),
        None => answer(200, &[], "elsewhere"),
    })
    .await;
    let (elsewhere, port) = (other.address, other.address.port());
    let server = Server::start(move |seen| match seen.path.as_str() {
        "/port" => answer(302, &[("location", &format!("http://{elsewhere}/x"))], ""),
        "/user" => answer(302, &[("location", &format!("http://me:word@{elsewhere}/x"))], ""),
        "/name" => answer(302, &[("location", &format!("http://localhost:{port}/x"))], ""),
        "/round" => {
            let home = seen.headers["host"].to_str().unwrap();
            answer(302, &[("location", &format!("http://{elsewhere}/back/{home}"))], "")
        }
        _ => guarded(seen),
    })
    .await;
    let web = web("default login me password word", true);
    for path in ["port", "user", "name", "round"] {
        let found = look(&web, uid(), &server, path).await.unwrap();
        // Where we were sent was told to the user who logged in.
        assert_eq!(found.audience, Audience::Only { uid: uid() }, "{path}");
        assert_eq!(headers(&server, &format!("/{path}")), [Some(HEADER.to_owned())]);
    }
    assert_eq!(other.paths().len(), 4);
    assert!(other.log.lock().iter().all(|seen| !seen.headers.contains_key("authorization")));
    assert_eq!(headers(&server, "/a.txt"), [Some(HEADER.to_owned())], "the right origin again");
}

#[tokio::test]
async fn https_gets_the_login_and_its_plain_neighbour_does_not() {
    let plain = Server::start(|_| answer(200, &[], "elsewhere")).await;
    let port = plain.address.port();
    for protocol in [&b"h2"[..], b"http/1.1"] {
        let script = move |seen: &Seen| match seen.path.as_str() {
            "/plain" => answer(302, &[("location", &format!("http://localhost:{port}/x"))], ""),
            _ => guarded(seen),
        };
        let (server, pem) = Server::start_tls(script, &[protocol]).await;
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), pem).unwrap();
        let extra_ca = Some(file.path().to_owned());
        let credentials = logins(&format!("machine {} login me password word", server.address), false);
        let web = web_with(WebOptions { credentials, extra_ca, ..WebOptions::default() });
        assert_eq!(look(&web, uid(), &server, "a.txt").await.unwrap().audience, Audience::Only { uid: uid() });
        look(&web, uid(), &server, "plain").await.unwrap();
        assert_eq!(headers(&server, "/plain"), [Some(HEADER.to_owned())]);
        let error = look(&web, uid() + 1, &server, "a.txt").await.unwrap_err();
        assert!(matches!(error, RemoteError::Denied { .. }), "{error}");
    }
    assert_eq!(headers(&plain, "/x"), [None, None]);
}
