//! https first: certificates, protocols, and never back to plain http.

mod support;

use std::sync::Arc;

use support::{Seen, Server, answer, fails, find, html, read, web};
use weft_remote::{MemoryNotes, Notes, Remote, RemoteError};
use weft_web::{Web, WebOptions};

fn script(seen: &Seen) -> support::Reply {
    match seen.path.as_str() {
        "/downgrade" => {
            let host = seen.headers.get("host").map(|h| h.to_str().unwrap().to_owned());
            answer(302, &[("location", &format!("http://{}/x", host.unwrap_or_default()))], "")
        }
        "/" => html("<a href=x>x</a>"),
        path => answer(200, &[], path.to_owned()),
    }
}

/// A web that trusts `pem`, and its notes.
fn trusting(pem: &str) -> (Arc<Web>, Arc<MemoryNotes>, tempfile::NamedTempFile) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), pem).unwrap();
    let notes = Arc::new(MemoryNotes::default());
    let options = WebOptions { extra_ca: Some(file.path().to_owned()), ..WebOptions::default() };
    (Web::new(options, notes.clone()).unwrap(), notes, file)
}

#[tokio::test]
async fn http2_carries_many_requests_over_one_connection() {
    let (server, pem) = Server::start_tls(script, &[b"h2", b"http/1.1"]).await;
    let (web, notes, _file) = trusting(&pem);
    let tasks: Vec<_> = (0..30)
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
    assert_eq!(*server.connections.lock(), 1);
    assert!(server.log.lock().iter().all(|seen| seen.version == hyper::Version::HTTP_2));
    assert!(String::from_utf8_lossy(&notes.list(b"host/").unwrap()[0].1).contains("\"https_seen\":true"));
}

#[tokio::test]
async fn without_http2_connections_are_kept() {
    let (server, pem) = Server::start_tls(script, &[b"http/1.1"]).await;
    let (web, _notes, _file) = trusting(&pem);
    for _ in 0..3 {
        let found = find(&web, &server.dir("/"), "x").await.value;
        assert_eq!(read(found.along.unwrap().body).await.unwrap().0, b"/x");
    }
    assert_eq!(*server.connections.lock(), 1);
    assert!(server.log.lock().iter().all(|seen| seen.version == hyper::Version::HTTP_11));
    let facts = web.about(&server.file("/x"));
    assert!(facts.contains(&("scheme because".to_owned(), "it speaks TLS".to_owned())), "{facts:?}");
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_refused_and_not_gone_around() {
    let (server, _pem) = Server::start_tls(script, &[b"http/1.1"]).await;
    let web = web();
    let error = fails(&web, &web.root(), &server.address.to_string()).await;
    assert!(
        matches!(&error, RemoteError::Denied { detail } if detail.contains("certificate") && detail.contains("ca_file")),
        "{error}"
    );
    assert!(server.paths().is_empty());
}

/// What `openssl req -x509` makes: it signs itself and says that it is an authority.
fn of_its_own_authority(names: &[&str]) -> rcgen::CertificateParams {
    let mut params =
        rcgen::CertificateParams::new(names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params
}

#[tokio::test]
async fn a_certificate_that_is_its_own_authority_is_trusted_when_it_is_named() {
    let (server, pem) =
        Server::start_certified(script, &[b"http/1.1"], None, of_its_own_authority(&["127.0.0.1"])).await;
    let (web, _notes, _file) = trusting(&pem);
    let found = find(&web, &server.dir("/"), "x").await.value;
    assert_eq!(read(found.along.unwrap().body).await.unwrap().0, b"/x");
}

/// Goal: being one's own authority counts for nothing by itself. Method: the same kind of certificate unnamed, with another
/// one's name in it, and out of date.
#[tokio::test]
async fn a_certificate_that_is_its_own_authority_is_refused_as_any_other() {
    let named = of_its_own_authority(&["127.0.0.1"]);
    let (_other, other_pem) = Server::start_certified(script, &[b"http/1.1"], None, named.clone()).await;
    let mut old = named.clone();
    old.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let elsewhere = of_its_own_authority(&["elsewhere.example"]);
    for (params, is_named, word) in [(named, false, "ca_file"), (elsewhere, true, "name"), (old, true, "expired")] {
        let (server, pem) = Server::start_certified(script, &[b"http/1.1"], None, params).await;
        let (web, _notes, _file) = trusting(if is_named { &pem } else { &other_pem });
        let error = fails(&web, &web.root(), &server.address.to_string()).await;
        assert!(matches!(&error, RemoteError::Denied { detail } if detail.contains(word)), "{word}: {error}");
        assert!(server.paths().is_empty());
    }
}

/// Goal: who has made an authority anew is told what to do. Method: two of one name; the one that is trusted did not sign.
#[tokio::test]
async fn an_authority_of_the_same_name_with_another_key_is_told_of() {
    let (_old, old_pem) =
        Server::start_certified(script, &[b"http/1.1"], None, of_its_own_authority(&["127.0.0.1"])).await;
    let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let (server, _pem) = Server::start_certified(script, &[b"http/1.1"], None, params).await;
    let (web, _notes, _file) = trusting(&old_pem);
    let error = fails(&web, &web.root(), &server.address.to_string()).await;
    let is_told = matches!(&error, RemoteError::Denied { detail } if detail.contains("another key") && detail.contains("ca_file"));
    assert!(is_told, "{error}");
}

#[tokio::test]
async fn a_host_once_seen_in_tls_is_never_spoken_to_in_plain_text() {
    let (server, pem) = Server::start_tls(script, &[b"http/1.1"]).await;
    let (web, notes, file) = trusting(&pem);
    let error = fails(&web, &server.dir("/"), "downgrade").await;
    assert!(matches!(&error, RemoteError::Denied { detail } if detail.contains("redirect")), "{error}");
    let plain = Server::start(|_| html("plain")).await;
    let key = format!("host/{}", plain.address);
    notes.put(key.as_bytes(), Some(br#"{"scheme":"https","https_seen":true,"why":"it speaks TLS"}"#)).unwrap();
    let options = WebOptions { extra_ca: Some(file.path().to_owned()), ..WebOptions::default() };
    let web = Web::new(options, notes).unwrap();
    let error = fails(&web, &plain.dir("/"), "x").await;
    assert!(matches!(&error, RemoteError::Unreachable { detail } if detail.contains("plain http")), "{error}");
    assert!(plain.paths().is_empty());
}

#[tokio::test]
async fn a_file_without_certificates_is_said_to_be_so() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let options = WebOptions { extra_ca: Some(file.path().to_owned()), ..WebOptions::default() };
    assert!(matches!(Web::new(options, Arc::new(MemoryNotes::default())).err(), Some(RemoteError::Failed { .. })));
}
