//! robots.txt (RFC 9309) as hosts give it: what may be asked for, and how often the rules are.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use support::{Server, answer, call, name, web_with};
use weft_remote::{Crawl, FileId, Leave, Remote, RemoteError, Rules};
use weft_web::{Web, WebOptions};

async fn crawl(web: &Arc<Web>, file: &FileId) -> Crawl {
    web.may_crawl(&call(), file, &[], Rules::Kept).await.unwrap()
}

async fn allowed(web: &Arc<Web>, file: &FileId) -> bool {
    crawl(web, file).await.leave == Leave::Granted
}

fn web() -> Arc<Web> {
    web_with(WebOptions { down_time: Duration::ZERO, ..WebOptions::default() })
}

fn file(server: &Server, path: &str) -> FileId {
    FileId::new(format!("F {}{path}", server.address))
}

#[tokio::test]
async fn rules_are_asked_for_once_and_bind_paths() {
    let rules = "user-agent: weft\ndisallow: /d/\nallow: /d/ok\ndisallow: /*?sort=\ncrawl-delay: 400\n";
    let server = Server::start(move |_| answer(200, &[("content-type", "text/plain")], rules)).await;
    let web = web();
    for (path, may) in [("/a", true), ("/d/x", false), ("/d/ok", true), ("/a?sort=x", false), ("/robots.txt", true)] {
        assert_eq!(allowed(&web, &file(&server, path)).await, may, "{path}");
    }
    assert!(!allowed(&web, &server.dir("/d/")).await);
    // A name that may be a directory may be asked for where either may.
    let by_name = async |text: &str| web.may_crawl(&call(), &server.dir("/"), &[name(text)], Rules::Kept).await;
    assert_eq!(by_name("d").await.unwrap().leave, Leave::Granted, "/d is allowed, /d/ is not");
    let told = crawl(&web, &file(&server, "/a")).await;
    assert_eq!((told.pause, told.at_once, told.source), (Duration::from_secs(60), 2, server.address.to_string()));
    assert!(told.note.is_some_and(|note| note.contains("400 s") && note.contains("60 s")));
    assert_eq!(server.log.lock().iter().filter(|seen| seen.path == "/robots.txt").count(), 1);
    let ignored = web.may_crawl(&call(), &file(&server, "/d/x"), &[], Rules::Ignored).await.unwrap();
    assert_eq!((ignored.leave, ignored.pause), (Leave::Granted, Duration::ZERO));
}

#[tokio::test]
async fn a_host_without_rules_allows_all_and_one_that_fails_nothing() {
    for (status, may) in [(404, true), (410, true), (401, true), (500, false), (502, false), (204, true)] {
        let server = Server::start(move |_| answer(status, &[], "")).await;
        let leave = crawl(&web(), &file(&server, "/a")).await.leave;
        assert_eq!(leave == Leave::Granted, may, "{status}: {leave:?}");
    }
    let server = Server::start(|_| answer(503, &[("retry-after", "7")], "")).await;
    let busy = web().may_crawl(&call().ahead(), &file(&server, "/a"), &[], Rules::Kept).await;
    let again = Some(Duration::from_secs(7));
    assert!(matches!(busy, Err(RemoteError::Busy { retry_after, .. }) if retry_after == again), "{busy:?}");
    let gone = Server::start(|_| answer(200, &[], "")).await;
    let id = file(&gone, "/a");
    drop(gone);
    assert!(!allowed(&web(), &id).await, "silence allows nothing");
}

/// Goal: five redirects are followed, and what is further away is not there.
#[tokio::test]
async fn redirects_are_followed_as_far_as_the_rfc_says() {
    for (hops, may) in [(5, false), (6, true), (99, true)] {
        let asked = AtomicUsize::new(0);
        let server = Server::start(move |_| {
            let nth = asked.fetch_add(1, Ordering::SeqCst);
            let rules = "user-agent: *\ndisallow: /";
            if nth < hops { answer(302, &[("location", &format!("/r{nth}"))], "") } else { answer(200, &[], rules) }
        })
        .await;
        assert_eq!(allowed(&web(), &file(&server, "/a")).await, may, "{hops}");
    }
}

#[tokio::test]
async fn the_list_of_hosts_is_not_gone_through() {
    let web = web();
    let refused = web.may_crawl(&call(), &web.root(), &[], Rules::Ignored).await.unwrap();
    assert!(matches!(refused.leave, Leave::Refused { why } if why.contains("name one host")));
    let by_name = web.may_crawl(&call(), &web.root(), &[name("example.org")], Rules::Kept).await.unwrap();
    assert_eq!(by_name, Crawl::default());
}
