//! Tokens, certificates and cookies: shown to one origin, for one user.

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use support::{Reply, Seen, Server, answer, name, read, web_with};
use weft_remote::{Answer, Audience, Call, Caller, Found, Remote, RemoteError, Result};
use weft_web::{Credentials, Login, LoginHost, LoginMeans, Web, WebOptions};

fn uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn as_user(uid: u32) -> Call {
    Call::within(Caller { uid, gid: uid, pid: 1 }, Duration::from_secs(20))
}

/// A folder of secrets.
struct Secrets(tempfile::TempDir);

impl Secrets {
    fn new() -> Secrets {
        Secrets(tempfile::tempdir().unwrap())
    }

    fn put(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        path
    }
}

fn login(host: &str, means: LoginMeans) -> Login {
    Login { hosts: vec![LoginHost::parse(host).unwrap()], uid: uid(), means }
}

fn credentials(logins: Vec<Login>) -> Credentials {
    Credentials::default().with_logins(logins, true)
}

fn web(logins: Vec<Login>) -> Arc<Web> {
    web_with(WebOptions { credentials: credentials(logins), ..WebOptions::default() })
}

fn command(script: String, lifetime: Duration) -> LoginMeans {
    let command = ["/bin/sh".to_owned(), "-c".to_owned(), script].to_vec();
    LoginMeans::BearerCommand { command, run_as: None, lifetime }
}

async fn look(web: &Web, uid: u32, server: &Server, path: &str) -> Result<Answer<Option<Found>>> {
    web.lookup(&as_user(uid), &server.dir("/"), &name(path)).await
}

fn sent(server: &Server, header: &str) -> Vec<Option<String>> {
    let value = |seen: &Seen| seen.headers.get(header).map(|value| value.to_str().unwrap().to_owned());
    server.log.lock().iter().map(value).collect()
}

fn some(texts: &[&str]) -> Vec<Option<String>> {
    texts.iter().map(|text| Some((*text).to_owned())).collect()
}

/// Goal: a token is asked for once, and again when the server has had enough of it. Method: the server takes a number
/// of tokens, each for some requests; the program counts how often it ran.
#[tokio::test]
async fn a_printed_token_is_kept_until_the_server_refuses_it() {
    let secrets = Secrets::new();
    let runs = secrets.put("runs", "");
    let shown = runs.display();
    let script = format!("echo x >> {shown}; echo t$(wc -l < {shown})");
    let server = Server::start(|seen| {
        let token = seen.headers.get("authorization").map(|value| value.to_str().unwrap()).unwrap_or_default();
        match (seen.path.as_str(), token) {
            ("/old", "Bearer t1") | ("/new", "Bearer t2") => answer(200, &[], "secret"),
            _ => answer(401, &[], "who are you?"),
        }
    })
    .await;
    let web = web(vec![login("127.0.0.1", command(script, Duration::from_secs(3600)))]);
    let only = Audience::Only { uid: uid() };
    for path in ["old", "old", "new", "new"] {
        assert_eq!(look(&web, uid(), &server, path).await.unwrap().audience, only, "{path}");
    }
    let tokens = ["Bearer t1", "Bearer t1", "Bearer t1", "Bearer t2", "Bearer t2"];
    assert_eq!(sent(&server, "authorization"), some(&tokens));
    // What no token opens costs one more run, and no loop.
    let error = look(&web, uid(), &server, "never").await.unwrap_err();
    assert!(matches!(error, RemoteError::Denied { .. }), "{error}");
    assert_eq!(sent(&server, "authorization")[5..], some(&["Bearer t2", "Bearer t3"]));
    assert_eq!(std::fs::read_to_string(&runs).unwrap().lines().count(), 3);
    // Others run nothing and show nothing.
    look(&web, uid() + 1, &server, "old").await.unwrap_err();
    assert_eq!(sent(&server, "authorization").last().unwrap(), &None);
    assert_eq!(std::fs::read_to_string(&runs).unwrap().lines().count(), 3);
    let facts = web.about(&server.file("/old"));
    assert!(facts.iter().any(|(key, how)| key == "login" && how.contains("/bin/sh")), "{facts:?}");
}

#[tokio::test]
async fn a_token_ends_with_its_lifetime() {
    let secrets = Secrets::new();
    let runs = secrets.put("runs", "");
    let script = format!("echo x >> {runs}; echo t$(wc -l < {runs})", runs = runs.display());
    let server = Server::start(|_| answer(200, &[], "here")).await;
    let web = web(vec![login("127.0.0.1", command(script, Duration::ZERO))]);
    for path in ["a", "b"] {
        look(&web, uid(), &server, path).await.unwrap();
    }
    assert_eq!(sent(&server, "authorization"), some(&["Bearer t1", "Bearer t2"]));
}

#[tokio::test]
async fn without_its_login_a_user_is_denied_and_told_why() {
    let server = Server::start(|_| answer(200, &[], "for anyone")).await;
    let secrets = Secrets::new();
    let open = secrets.put("open", "token");
    std::fs::set_permissions(&open, PermissionsExt::from_mode(0o644)).unwrap();
    let hour = Duration::from_secs(3600);
    for (means, words) in [
        (command("exit 7".to_owned(), hour), "exit status: 7"),
        (LoginMeans::BearerFile(open.clone()), "chmod 600"),
        (LoginMeans::BearerFile(secrets.put("empty", "\n")), "no token"),
        (LoginMeans::CookieFile(secrets.put("cookies", "what is this")), "line 1"),
        (LoginMeans::CookieFile(secrets.0.path().join("missing")), "No such file"),
        (LoginMeans::Certificate { certificate: open.clone(), key: open.clone() }, "chmod 600"),
        (LoginMeans::Certificate { certificate: open, key: secrets.put("key", "x") }, "no certificate"),
    ] {
        let web = web(vec![login("127.0.0.1", means)]);
        let error = look(&web, uid(), &server, "x").await.unwrap_err();
        assert!(matches!(&error, RemoteError::Denied { detail } if detail.contains(words)), "{words}: {error}");
        assert!(!error.to_string().contains("what is this"), "{error}");
        look(&web, uid() + 1, &server, "x").await.unwrap();
    }
}

#[tokio::test]
async fn a_token_from_a_file_is_read_again_when_it_is_refused() {
    let secrets = Secrets::new();
    let file = secrets.put("token", "first\n");
    let server = Server::start(|seen| {
        let old = seen.headers.get("authorization").is_some_and(|value| value == "Bearer first");
        if old && seen.path == "/new" { answer(401, &[], "") } else { answer(200, &[], "here") }
    })
    .await;
    let web = web(vec![login("127.0.0.1", LoginMeans::BearerFile(file))]);
    look(&web, uid(), &server, "old").await.unwrap();
    look(&web, uid(), &server, "new").await.unwrap_err();
    secrets.put("token", "second\n");
    look(&web, uid(), &server, "new").await.unwrap();
    let tokens = ["Bearer first", "Bearer first", "Bearer first", "Bearer second"];
    assert_eq!(sent(&server, "authorization"), some(&tokens));
}

/// Goal: a login is bound to its origin. Method: the server sends every kind of request on to another port; what
/// arrives there is looked at.
#[tokio::test]
async fn nothing_is_carried_to_another_origin() {
    let other = Server::start(|_| answer(200, &[], "elsewhere")).await;
    let elsewhere = other.address;
    let server = Server::start(move |seen| match seen.path.as_str() {
        "/away" => answer(302, &[("location", &format!("http://{elsewhere}/x"))], ""),
        _ => answer(200, &[("set-cookie", "later=1")], "here"),
    })
    .await;
    let secrets = Secrets::new();
    let cookies = "127.0.0.1\tFALSE\t/\tFALSE\t0\tid\tword\n127.0.0.1\tFALSE\t/\tTRUE\t0\tsafe\tword\n\
        127.0.0.1\tFALSE\t/\tFALSE\t1\tover\tword\n";
    let home = format!("127.0.0.1:{}", server.address.port());
    let web = web(vec![
        login(&home, LoginMeans::CookieFile(secrets.put("cookies", cookies))),
        login(&home, LoginMeans::BearerFile(secrets.put("token", "word"))),
    ]);
    for path in ["here", "away", "here"] {
        assert_eq!(look(&web, uid(), &server, path).await.unwrap().audience, Audience::Only { uid: uid() });
    }
    assert_eq!(sent(&server, "cookie"), some(&["id=word"; 3]));
    assert_eq!(sent(&server, "authorization"), some(&["Bearer word"; 3]));
    assert_eq!((sent(&other, "cookie"), sent(&other, "authorization")), (vec![None], vec![None]));
    let origin = look(&web, uid(), &server, "here").await.unwrap();
    assert!(!format!("{origin:?} {:?}", web.about(&server.file("/here"))).contains("word"));
}

/// Goal: somebody else's 401 is not about our token. Method: a redirect leads to one; the program runs once.
#[tokio::test]
async fn a_refusal_elsewhere_costs_no_token() {
    let other = Server::start(|_| answer(401, &[], "who are you?")).await;
    let elsewhere = other.address;
    let server = Server::start(move |seen| match seen.path.as_str() {
        "/away" => answer(302, &[("location", &format!("http://{elsewhere}/x"))], ""),
        _ => answer(200, &[], "here"),
    })
    .await;
    let secrets = Secrets::new();
    let runs = secrets.put("runs", "");
    let script = format!("echo x >> {}; echo token", runs.display());
    let home = format!("127.0.0.1:{}", server.address.port());
    let web = web(vec![login(&home, command(script, Duration::from_secs(3600)))]);
    look(&web, uid(), &server, "here").await.unwrap();
    look(&web, uid(), &server, "away").await.unwrap_err();
    assert_eq!(std::fs::read_to_string(&runs).unwrap().lines().count(), 1);
    assert_eq!(sent(&other, "authorization"), [None]);
}

#[tokio::test]
async fn https_alone_carries_a_login() {
    let server = Server::start(|_| answer(200, &[], "here")).await;
    let secrets = Secrets::new();
    let logins = vec![
        login("127.0.0.1", LoginMeans::BearerFile(secrets.put("token", "word"))),
        login("*", LoginMeans::CookieFile(secrets.put("cookies", "127.0.0.1\tFALSE\t/\tFALSE\t0\tid\tword\n"))),
    ];
    let credentials = Credentials::default().with_logins(logins, false);
    let web = web_with(WebOptions { credentials, ..WebOptions::default() });
    assert_eq!(look(&web, uid(), &server, "x").await.unwrap().audience, Audience::Everyone);
    assert_eq!((sent(&server, "cookie"), sent(&server, "authorization")), (vec![None], vec![None]));
}

/// What a server makes of those who show no certificate.
#[derive(PartialEq)]
enum Strangers {
    MayCome,
    AreRefused,
}

fn verifier(
    client: &rustls::pki_types::CertificateDer<'static>,
    strangers: Strangers,
) -> Arc<dyn rustls::server::danger::ClientCertVerifier> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(client.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = if strangers == Strangers::MayCome { builder.allow_unauthenticated() } else { builder };
    builder.build().unwrap()
}

/// Goal: nginx, which says of a certificate in a page alone that it misses or does not take it, denies as well. Method: its
/// pages, and that of another bad request.
#[tokio::test]
async fn a_certificate_that_is_refused_in_a_page_is_refused() {
    let page = |title: &str| format!("<html>\r\n<head><title>400 {title}</title></head>\r\n<body></body></html>");
    let script = move |seen: &support::Seen| match seen.path.as_str() {
        "/missed" => answer(400, &[("content-type", "text/html")], page("No required SSL certificate was sent")),
        "/not-taken" => answer(400, &[("content-type", "text/html")], page("The SSL certificate error")),
        _ => answer(400, &[("content-type", "text/html")], page("Request Header Or Cookie Too Large")),
    };
    for protocol in [&b"h2"[..], b"http/1.1"] {
        let (server, pem) = Server::start_tls(script, &[protocol]).await;
        let secrets = Secrets::new();
        let extra_ca = Some(secrets.put("ca.pem", &pem));
        let web = web_with(WebOptions { extra_ca, ..WebOptions::default() });
        for (name, hint) in [("missed", "can give it a certificate"), ("not-taken", "does not take the certificate")] {
            let error = look(&web, uid(), &server, name).await.unwrap_err();
            assert!(matches!(&error, RemoteError::Denied { detail } if detail.contains(hint)), "{error:?}");
        }
        let error = look(&web, uid(), &server, "other").await.unwrap_err();
        assert!(matches!(error, RemoteError::Failed { .. }), "{error:?}");
    }
}

/// Goal: a server that refuses us in TLS denies, and does not count as silent: what is held would serve in its place.
#[tokio::test]
async fn a_server_that_wants_a_certificate_denies_those_without() {
    let client = rcgen::generate_simple_self_signed(vec!["me".to_owned()]).unwrap();
    let secrets = Secrets::new();
    let means = LoginMeans::Certificate {
        certificate: secrets.put("cert.pem", &client.cert.pem()),
        key: secrets.put("key.pem", &client.signing_key.serialize_pem()),
    };
    for protocol in [&b"h2"[..], b"http/1.1"] {
        let clients = verifier(client.cert.der(), Strangers::AreRefused);
        let (server, pem) = Server::start_mutual(|_| answer(200, &[], "known"), &[protocol], Some(clients)).await;
        let extra_ca = Some(secrets.put("ca.pem", &pem));
        let credentials = credentials(vec![login("127.0.0.1", means.clone())]);
        let web = web_with(WebOptions { credentials, extra_ca, ..WebOptions::default() });
        let error = look(&web, uid() + 1, &server, "x").await.unwrap_err();
        let is_told = matches!(&error, RemoteError::Denied { detail } if detail.contains("can give it a certificate"));
        assert!(is_told, "{error:?}");
        look(&web, uid(), &server, "x").await.unwrap();
        let error = look(&web, uid() + 1, &server, "x").await.unwrap_err();
        assert!(matches!(error, RemoteError::Denied { .. }), "{error:?}");
    }
}

/// Goal: a connection that a user's certificate made is that user's alone. Method: a server that knows clients by
/// certificate; the user with one and another without ask in turns, over HTTP/2 and HTTP/1.1.
#[tokio::test]
async fn a_certificate_makes_connections_that_are_not_shared() {
    let client = rcgen::generate_simple_self_signed(vec!["me".to_owned()]).unwrap();
    let secrets = Secrets::new();
    let means = LoginMeans::Certificate {
        certificate: secrets.put("cert.pem", &client.cert.pem()),
        key: secrets.put("key.pem", &client.signing_key.serialize_pem()),
    };
    for protocol in [&b"h2"[..], b"http/1.1"] {
        let script = |seen: &Seen| -> Reply {
            let known = if seen.headers.contains_key("x-client") { "known" } else { "stranger" };
            answer(200, &[], known)
        };
        let (server, pem) =
            Server::start_mutual(script, &[protocol], Some(verifier(client.cert.der(), Strangers::MayCome))).await;
        let extra_ca = Some(secrets.put("ca.pem", &pem));
        let credentials = credentials(vec![login("127.0.0.1", means.clone())]);
        let web = web_with(WebOptions { credentials, extra_ca, ..WebOptions::default() });
        for round in 0..3 {
            for (user, word, audience) in
                [(uid(), "known", Audience::Only { uid: uid() }), (uid() + 1, "stranger", Audience::Everyone)]
            {
                let found = look(&web, user, &server, "x").await.unwrap();
                assert_eq!(found.audience, audience, "{round}");
                let body = found.value.unwrap().along.unwrap().body;
                assert_eq!(read(body).await.unwrap().0, word.as_bytes(), "{round}");
            }
        }
        assert_eq!(*server.connections.lock(), 2, "one each, kept");
    }
}

#[tokio::test]
async fn each_user_may_have_a_netrc_file_of_their_own() {
    let homes = Secrets::new();
    let mine = homes.0.path().join("mine");
    std::fs::create_dir(&mine).unwrap();
    homes.put("mine/.netrc", "machine 127.0.0.1 login me password word\n");
    let foreign = homes.0.path().join("foreign");
    std::fs::create_dir(&foreign).unwrap();
    std::os::unix::fs::symlink(mine.join(".netrc"), foreign.join(".netrc")).unwrap();
    let (me, stranger) = (uid(), uid() + 1);
    let home_of = move |uid: u32| match uid {
        uid if uid == me => Some(mine.clone()),
        uid if uid == stranger => Some(foreign.clone()),
        _ => None,
    };
    let credentials = credentials(Vec::new()).with_netrc_of_users(Arc::new(home_of));
    let web = web_with(WebOptions { credentials, ..WebOptions::default() });
    let server = Server::start(|_| answer(200, &[], "here")).await;
    look(&web, me, &server, "a").await.unwrap();
    for other in [stranger, stranger + 1] {
        assert_eq!(look(&web, other, &server, "a").await.unwrap().audience, Audience::Everyone);
    }
    let basic = Some("Basic bWU6d29yZA==".to_owned());
    assert_eq!(sent(&server, "authorization"), [basic, None, None], "a link to another's file is nobody's login");
}

/// Goal: that a host hides a name from strangers is told to nobody but the stranger who asked.
#[tokio::test]
async fn a_name_that_is_hidden_from_strangers_is_absent_for_them_alone() {
    let secrets = Secrets::new();
    let means = LoginMeans::BearerFile(secrets.put("token", "word"));
    let server = Server::start(|seen| match seen.headers.contains_key("authorization") {
        true => answer(200, &[], "here"),
        false => answer(404, &[], "no such thing"),
    })
    .await;
    for (logins, strangers) in [(vec![login("127.0.0.1", means)], Some(uid() + 1)), (Vec::new(), None)] {
        let web = web(logins);
        let answer = look(&web, uid() + 1, &server, "x").await.unwrap();
        assert!(answer.value.is_none());
        assert_eq!(answer.audience, strangers.map_or(Audience::Everyone, |uid| Audience::Only { uid }));
        assert_eq!(look(&web, uid(), &server, "x").await.unwrap().value.is_some(), strangers.is_some());
    }
}

/// Goal: a host that only answers those who show a certificate is not called silent because a probe has none. Method: it
/// leaves one request without an answer; the probe is refused in TLS.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_probe_without_a_certificate_does_not_call_a_host_silent() {
    let client = rcgen::generate_simple_self_signed(vec!["me".to_owned()]).unwrap();
    let secrets = Secrets::new();
    let means = LoginMeans::Certificate {
        certificate: secrets.put("cert.pem", &client.cert.pem()),
        key: secrets.put("key.pem", &client.signing_key.serialize_pem()),
    };
    let (stall, stalled) = std::sync::mpsc::channel::<()>();
    let stalled = parking_lot::Mutex::new(stalled);
    let script = move |seen: &Seen| {
        if seen.path == "/slow" {
            // Ends when the test drops the other end.
            let _ = tokio::task::block_in_place(|| stalled.lock().recv());
        }
        answer(200, &[], "here")
    };
    let clients = verifier(client.cert.der(), Strangers::AreRefused);
    let (server, pem) = Server::start_mutual(script, &[b"http/1.1"], Some(clients)).await;
    let extra_ca = Some(secrets.put("ca.pem", &pem));
    let credentials = credentials(vec![login("127.0.0.1", means)]);
    let web = web_with(WebOptions { credentials, extra_ca, ..WebOptions::default() });
    let impatient = Call { deadline: std::time::Instant::now() + Duration::from_millis(1200), ..as_user(uid()) };
    web.lookup(&impatient, &server.dir("/"), &name("slow")).await.unwrap_err();
    look(&web, uid(), &server, "x").await.unwrap();
    drop(stall);
}
