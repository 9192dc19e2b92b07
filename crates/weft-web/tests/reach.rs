//! Where a path may lead: the address policy, asked for every connection.

mod support;

use std::sync::Arc;

use support::{Server, answer, call, fails, find, html, name, read, web_with};
use tokio::net::TcpListener;
use weft_remote::{FileId, Remote, RemoteError};
use weft_web::{AddressPolicy, Connector, HostPattern, PrivateAddresses, Web, WebOptions};

fn closed(allow: &[&str], deny: &[&str]) -> Arc<Web> {
    let patterns = |texts: &[&str]| texts.iter().map(|text| HostPattern::parse(text).unwrap()).collect();
    let private = PrivateAddresses::Deny { rule: "private_addresses = \"deny\" holds".to_owned() };
    let addresses = AddressPolicy { private, allow: patterns(allow), deny: patterns(deny) };
    web_with(WebOptions { addresses, ..WebOptions::default() })
}

fn assert_refused(error: &RemoteError, words: &str) {
    assert!(matches!(error, RemoteError::Denied { detail } if detail.contains(words)), "{words}: {error}");
}

/// A listener on another loopback address, at the same port as nothing else of this test.
async fn trap() -> TcpListener {
    TcpListener::bind("127.0.0.2:0").await.unwrap()
}

/// Whether nobody has ever connected: an accept that is ready would be taken at once.
async fn untouched(trap: &TcpListener) -> bool {
    let address = trap.local_addr().unwrap();
    // Connections are accepted in the order they came: ours comes first only if there was none before it.
    let mine = tokio::net::TcpStream::connect(address).await.unwrap();
    let (_, peer) = trap.accept().await.unwrap();
    peer == mine.local_addr().unwrap()
}

#[tokio::test]
async fn a_refused_address_is_denied_with_the_words_to_admit_it() {
    let server = Server::start(|_| html("secret")).await;
    let web = closed(&[], &[]);
    let error = fails(&web, &web.root(), &server.address.to_string()).await;
    assert_refused(&error, "a loopback address");
    assert_refused(&error, "allow_hosts = [\"127.0.0.1\"]");
    let facts = web.about(&server.dir("/"));
    let has = |key: &str| facts.iter().any(|(k, v)| k == key && v.contains("allow_hosts = [\"127.0.0.1\"]"));
    assert!(has("addresses") && has("last error of the host"), "{facts:?}");
    assert_eq!(*server.connections.lock(), 0);
    // Once refused is not down: it says the same again.
    assert_refused(&fails(&web, &web.root(), &server.address.to_string()).await, "a loopback address");
}

#[tokio::test]
async fn a_name_is_judged_by_what_it_resolves_to() {
    let server = Server::start(|_| html("secret")).await;
    let port = server.address.port();
    let web = closed(&[], &[]);
    let error = fails(&web, &web.root(), &format!("localhost:{port}")).await;
    assert_refused(&error, "(an address of localhost) is a loopback address");
    assert_eq!(*server.connections.lock(), 0);
    for allowed in ["localhost", "127.0.0.0/8"] {
        find(&closed(&[allowed], &[]), &web.root(), &format!("localhost:{port}")).await;
    }
    // An address of the name is admitted, the name's other one (if the machine has it) is not tried.
    let error = fails(&closed(&["localhost"], &["127.0.0.1", "::1"]), &web.root(), &format!("localhost:{port}")).await;
    assert_refused(&error, "deny_hosts");
}

#[tokio::test]
async fn an_allowed_host_is_read() {
    let server = Server::start(|_| answer(200, &[], "here")).await;
    let web = closed(&["127.0.0.1"], &[]);
    let found = find(&web, &server.dir("/"), "x").await.value;
    assert_eq!(read(found.along.unwrap().body).await.unwrap().0, b"here");
    assert_refused(&fails(&closed(&["127.0.0.1"], &["127.0.0.1"]), &server.dir("/"), "x").await, "deny_hosts");
}

/// Goal: a public host cannot send us into the network. Method: 127.0.0.1 is allowed by name and so stands for the
/// public host; it redirects to a listener on 127.0.0.2, in every spelling, at once and over another hop.
#[tokio::test]
async fn a_redirect_into_a_refused_address_connects_to_nothing() {
    let trap = trap().await;
    let port = trap.local_addr().unwrap().port();
    let spellings: &[&str] = &[
        "127.0.0.2",
        "127.2",
        "2130706434",
        "0x7f000002",
        "017700000002",
        "0177.0.0.2",
        "[::ffff:127.0.0.2]",
        "[::ffff:7f00:2]",
        "127.0.0.2.",
    ];
    let server = Server::start(move |seen| {
        let (kind, number) = seen.path[1..].split_once('/').unwrap_or(("", ""));
        match (kind, number.parse::<usize>()) {
            ("direct", Ok(nth)) => {
                let scheme = if nth % 2 == 0 { "http" } else { "https" };
                answer(302, &[("location", &format!("{scheme}://{}:{port}/x", spellings[nth / 2]))], "")
            }
            ("later", Ok(nth)) => answer(301, &[("location", &format!("/direct/{nth}"))], ""),
            _ => answer(404, &[], ""),
        }
    })
    .await;
    let web = closed(&["127.0.0.1"], &[]);
    for nth in 0..2 * spellings.len() {
        for dir in ["/direct/", "/later/"] {
            let error = fails(&web, &server.dir(dir), &nth.to_string()).await;
            assert_refused(&error, "127.0.0.2 is a loopback address");
        }
        let file = server.file(&format!("/direct/{nth}"));
        let known = weft_remote::Version::None;
        assert_refused(&web.attributes(&call(), &file, &known).await.unwrap_err(), "loopback");
        assert_refused(&web.fetch(&call(), &file, &known, weft_remote::Span::WHOLE).await.unwrap_err(), "loopback");
    }
    assert!(untouched(&trap).await);
    // The trap works: with the address allowed, somebody comes.
    let open = closed(&["127.0.0.0/8"], &[]);
    let dir = server.dir("/direct/");
    let coming = tokio::spawn(async move { open.lookup(&call(), &dir, &name("0")).await.map(|_| ()) });
    trap.accept().await.unwrap();
    coming.abort();
}

#[tokio::test]
async fn a_host_denied_by_name_is_not_even_looked_up() {
    let web = closed(&[], &["*.invalid"]);
    // Looked up, it would be absent.
    assert_refused(&fails(&web, &web.root(), "host.invalid").await, "\"*.invalid\" in deny_hosts");
}

#[tokio::test]
async fn what_is_served_inside_the_process_is_never_refused() {
    let connector = Connector::new(|| {
        let (client, mut server) = tokio::io::duplex(4096);
        tokio::spawn(async move {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            let _ = server.read_buf(&mut Vec::with_capacity(4096)).await;
            let _ = server.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhere").await;
        });
        client
    });
    let private = PrivateAddresses::Deny { rule: "all".to_owned() };
    let addresses = AddressPolicy { private, allow: Vec::new(), deny: vec![HostPattern::Any] };
    let builtin = [("weft.example".to_owned(), connector)].into();
    let web = web_with(WebOptions { addresses, builtin, ..WebOptions::default() });
    let found = find(&web, &FileId::new("D weft.example/"), "x").await.value;
    assert_eq!(read(found.along.unwrap().body).await.unwrap().0, b"here");
    assert_refused(&fails(&web, &web.root(), "example.org").await, "not in allow_hosts");
}
