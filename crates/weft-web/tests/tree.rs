//! The tree that a site becomes: hosts, directories, pages, links, names.

mod support;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use support::{absent, answer, call, fails, find, html, list, name, read, shown, web, web_with};
use weft_remote::{
    Checked, Completeness, Figure, FileKind, Lease, Listing, MemoryNotes, Notes, Remote, RemoteError, Version,
};
use weft_web::{Connector, Web, WebOptions};

const HOME: &str = "<html><body><a href='a.html'>a</a> <a href='docs/deep/x.txt'>x</a> <a href='docs'>docs</a></body>";

async fn site() -> support::Server {
    support::Server::start(|seen| match seen.path.as_str() {
        "/" => html(HOME),
        "/a.html" => answer(
            200,
            &[
                ("content-type", "text/html"),
                ("etag", "\"v1\""),
                ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
                ("accept-ranges", "bytes"),
                ("cache-control", "max-age=600"),
            ],
            "<a href='b.html'>b</a>",
        ),
        "/docs" => answer(301, &[("location", "/docs/")], ""),
        "/docs/" => html("<a href='one'>one</a>"),
        "/secret" => answer(403, &[], "no"),
        "/broken" => answer(500, &[], "error page"),
        "/gone" => answer(410, &[("cache-control", "max-age=9")], ""),
        "/with%20space%3F" => answer(200, &[], "odd"),
        "/moved" => answer(302, &[("location", "/a.html")], ""),
        "/loop" => answer(302, &[("location", "/loop2")], ""),
        "/loop2" => answer(302, &[("location", "/loop")], ""),
        path if path.starts_with("/chain") => {
            let number: u32 = path[6..].parse().unwrap();
            answer(302, &[("location", &format!("/chain{}", number + 1))], "")
        }
        _ => answer(404, &[], "not here"),
    })
    .await
}

#[tokio::test]
async fn one_request_finds_a_host_and_brings_its_page_and_names() {
    let (server, web) = (site().await, web());
    let host = find(&web, &web.root(), &server.address.to_string()).await;
    let found = host.value;
    assert_eq!(found.entry.id, server.dir("/"));
    assert_eq!(found.entry.attributes.kind, FileKind::Directory);
    let along = found.along.unwrap();
    assert_eq!((&along.body.file, &along.lists), (&server.file("/"), &Some(server.dir("/"))));
    let (bytes, known) = read(along.body).await.unwrap();
    assert_eq!(bytes, HOME.as_bytes());
    let address = server.address;
    assert_eq!(known[0].dir, server.dir("/"));
    assert_eq!(
        shown(&known[0].page.value.entries),
        [format!("index.html F {address}/"), format!("a.html F {address}/a.html"), format!("docs D {address}/docs/")]
    );
    assert_eq!(known[0].page.value.entries[0].attributes.size, Figure::Exact(HOME.len() as u64));
    assert_eq!(known[0].page.value.completeness, Completeness::Partial);
    let below: Vec<_> = known[1..].iter().map(|k| (k.dir.clone(), shown(&k.page.value.entries))).collect();
    assert_eq!(
        below,
        [
            (
                server.dir("/docs/"),
                vec![format!("deep D {address}/docs/deep/"), format!("index.html F {address}/docs")]
            ),
            (server.dir("/docs/deep/"), vec![format!("x.txt F {address}/docs/deep/x.txt")]),
        ]
    );
    assert_eq!(server.paths(), ["/"]);
}

#[tokio::test]
async fn a_file_is_answered_from_the_headers_of_its_get() {
    let (server, web) = (site().await, web());
    let found = find(&web, &server.dir("/"), "a.html").await;
    let Lease::Said { end: until, .. } = found.lease else { panic!("{:?}", found.lease) };
    assert!(until > SystemTime::now() + Duration::from_secs(500));
    let entry = &found.value.entry;
    assert_eq!(entry.id, server.file("/a.html"));
    assert_eq!(entry.version, Version::strong("\"v1\""));
    assert_eq!(entry.attributes.size, Figure::Exact(22));
    assert_eq!(entry.attributes.modified.exact(), Some(SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777)));
    let along = found.value.along.unwrap();
    assert!(along.body.resumable && along.lists.is_none());
    let (bytes, known) = read(along.body).await.unwrap();
    assert_eq!(bytes.len(), 22);
    assert_eq!(known[0].dir, server.dir("/"));
    let log = server.log.lock().clone();
    assert_eq!(log.len(), 1);
    assert_eq!(log[0].headers["accept-encoding"], "identity");
    assert_eq!(log[0].headers["host"], server.address.to_string().as_str());
    assert!(log[0].headers["user-agent"].to_str().unwrap().starts_with("weft/"));
}

#[tokio::test]
async fn a_redirect_to_the_slash_is_a_directory_and_its_page_comes_along() {
    let (server, web) = (site().await, web());
    let found = find(&web, &server.dir("/"), "docs").await;
    assert_eq!(found.value.entry.id, server.dir("/docs/"));
    let (_, known) = read(found.value.along.unwrap().body).await.unwrap();
    let names = shown(&known[0].page.value.entries);
    assert_eq!(names, [format!("index.html F {}/docs/", server.address), format!("one F {}/docs/one", server.address)]);
    assert_eq!(server.paths(), ["/docs", "/docs/"]);
    let Checked::Is(now) = web.attributes(&call(), &server.file("/docs"), &Version::None).await.unwrap().value else {
        panic!("it was a file")
    };
    assert_eq!(now.entry.id, server.dir("/docs/"));
}

#[tokio::test]
async fn statuses_become_answers_and_errors_and_never_content() {
    let (server, web) = (site().await, web());
    let dir = server.dir("/");
    absent(&web, &dir, "nothing").await;
    let gone = absent(&web, &dir, "gone").await;
    assert!(gone.lease.remaining_at(SystemTime::now()) <= Duration::from_secs(9));
    assert!(matches!(fails(&web, &dir, "secret").await, RemoteError::Denied { .. }));
    assert!(matches!(fails(&web, &dir, "broken").await, RemoteError::Failed { .. }));
    let file = server.file("/a.html");
    assert!(matches!(web.lookup(&call(), &file, &name("x")).await.unwrap_err(), RemoteError::NotADirectory { .. }));
}

#[tokio::test]
async fn redirects_are_followed_and_recorded_and_loops_end() {
    let (server, web) = (site().await, web());
    let dir = server.dir("/");
    let found = find(&web, &dir, "moved").await;
    assert_eq!(found.value.entry.id, server.file("/moved"));
    assert_eq!(found.origin.unwrap().redirects, [format!("http://{}/a.html", server.address)]);
    assert!(matches!(fails(&web, &dir, "loop").await, RemoteError::Loop { .. }));
    let before = server.paths().len();
    assert!(matches!(fails(&web, &dir, "chain0").await, RemoteError::Loop { .. }));
    assert_eq!(server.paths().len() - before, 11);
}

#[tokio::test]
async fn names_that_programs_probe_for_and_no_hosts_cost_no_request() {
    let (server, web) = (site().await, web());
    for probe in [".git", ".hidden", ".Trash-1000", "autorun.inf", "._a.html"] {
        absent(&web, &server.dir("/"), probe).await;
    }
    for no_host in [".git", "README", "autorun.inf", "a..b", "x.y."] {
        absent(&web, &web.root(), no_host).await;
    }
    assert_eq!(server.paths(), Vec::<String>::new());
}

#[tokio::test]
async fn odd_names_reach_the_server_in_one_request_each() {
    let (server, web) = (site().await, web());
    let found = find(&web, &server.dir("/"), "with space%3F").await;
    assert_eq!(found.value.entry.id, server.file("/with%20space%3F"));
    absent(&web, &server.dir("/"), "x\r\nHost: evil\r\n\r\nGET ").await;
    assert_eq!(server.paths(), ["/with%20space%3F", "/x%0D%0AHost:%20evil%0D%0A%0D%0AGET%20"]);
}

#[tokio::test]
async fn hosts_are_remembered_and_listed_from_the_notes() {
    let (server, notes) = (site().await, Arc::new(MemoryNotes::default()));
    let web = Web::new(WebOptions::default(), notes.clone()).unwrap();
    assert!(list(&web, &web.root()).await.1.entries.is_empty());
    find(&web, &web.root(), &server.address.to_string()).await;
    let note = notes.list(b"host/").unwrap();
    assert!(String::from_utf8_lossy(&note[0].1).contains("\"scheme\":\"http\""));
    let again = Web::new(WebOptions::default(), notes).unwrap();
    let (answer, page, _) = list(&again, &again.root()).await;
    assert_eq!(shown(&page.entries), [format!("{0} D {0}/", server.address)]);
    let unchanged = again.entries(&call(), &again.root(), &answer.version, None).await.unwrap();
    assert!(matches!(unchanged.value, Listing::Unchanged));
    let facts = again.about(&server.file("/a.html"));
    assert!(facts.contains(&("scheme".to_owned(), "http".to_owned())), "{facts:?}");
    assert!(facts.iter().any(|(key, why)| key == "scheme because" && why.contains("does not speak TLS")), "{facts:?}");
    // The remembered scheme spares the greeting in TLS.
    let before = *server.connections.lock();
    find(&again, &server.dir("/"), "a.html").await;
    assert_eq!(*server.connections.lock() - before, 1);
}

#[tokio::test]
async fn a_listing_brings_the_page_along_and_knows_when_nothing_changed() {
    let (server, web) = (site().await, web());
    let (answer, page, along) = list(&web, &server.dir("/")).await;
    assert_eq!(page.entries.len(), 3);
    assert_eq!(page.entries[0].attributes.size, Figure::Exact(HOME.len() as u64));
    let (bytes, known) = read(along.unwrap().body).await.unwrap();
    assert_eq!(bytes, HOME.as_bytes());
    assert_eq!(known[0].dir, server.dir("/docs/"));
    assert_eq!(server.paths(), ["/"]);
    let again = web.entries(&call(), &server.dir("/"), &answer.version, None).await.unwrap();
    assert!(matches!(again.value, Listing::Unchanged));
}

#[tokio::test]
async fn a_page_is_found_where_its_directory_has_it() {
    let server = support::Server::start(|seen| match seen.path.as_str() {
        "/page/" => html("<p>the page</p>"),
        "/listed/" => html(include_str!("../src/index/fixtures/nginx.html")),
        "/named/" => answer(403, &[], ""),
        "/named/index.html" => html("named"),
        "/data/" => answer(200, &[("content-type", "application/octet-stream")], "data"),
        "/prefix" => html("<a href='prefix/x.html'>x</a> <a href='other'>o</a>"),
        _ => answer(404, &[], ""),
    })
    .await;
    let web = web();
    for (dir, file) in
        [("/page/", "/page/"), ("/named/", "/named/index.html"), ("/prefix/", "/prefix"), ("/data/", "/data/")]
    {
        let found = find(&web, &server.dir(dir), "index.html").await.value;
        assert_eq!(found.entry.id, server.file(file));
        assert!(found.along.is_some());
    }
    absent(&web, &server.dir("/listed/"), "index.html").await;
    absent(&web, &server.dir("/none/"), "index.html").await;
    let (_, page, _) = list(&web, &server.dir("/prefix/")).await;
    let address = server.address;
    assert_eq!(
        shown(&page.entries),
        [format!("index.html F {address}/prefix"), format!("x.html F {address}/prefix/x.html")]
    );
    let (_, page, along) = list(&web, &server.dir("/data/")).await;
    assert_eq!(shown(&page.entries), [format!("index.html F {address}/data/")]);
    assert_eq!(read(along.unwrap().body).await.unwrap().0, b"data");
    let (_, page, along) = list(&web, &server.dir("/listed/")).await;
    assert_eq!((page.entries.len(), page.completeness), (12, Completeness::CompleteButHidden));
    assert!(along.is_none());
    assert!(matches!(
        web.entries(&call(), &server.dir("/none/"), &Version::None, None).await.unwrap_err(),
        RemoteError::NotFound { .. }
    ));
    assert!(matches!(
        web.attributes(&call(), &server.dir("/none/"), &Version::None).await.unwrap_err(),
        RemoteError::NotFound { .. }
    ));
}

#[tokio::test]
async fn a_page_too_long_to_be_held_is_listed_by_its_beginning_and_comes_along_whole() {
    let links: String = (0..2000).map(|number| format!("<a href='f{number}.html'>f</a>\n")).collect();
    let page = format!("<html><head><title>Index of /</title></head><body><h1>Index of /</h1>{links}");
    let served = page.clone();
    let server = support::Server::start(move |_| html(&served)).await;
    let web = web_with(WebOptions { page_bytes_max: 4096, ..WebOptions::default() });
    let (_, listed, along) = list(&web, &server.dir("/")).await;
    assert_eq!(listed.completeness, Completeness::Partial);
    assert!(listed.entries.len() > 100 && listed.entries.len() < 200, "{}", listed.entries.len());
    assert_eq!(listed.entries[0].attributes.size, Figure::Exact(page.len() as u64));
    assert_eq!(read(along.unwrap().body).await.unwrap().0, page.as_bytes());
}

#[tokio::test]
async fn long_names_are_reached_through_the_listing() {
    let long = "n".repeat(300);
    let page = format!("<a href='{long}'>long</a>");
    let server = support::Server::start(move |seen| match seen.path.as_str() {
        "/" => html(&page),
        path if path.len() == 301 => answer(200, &[], "long"),
        _ => answer(404, &[], ""),
    })
    .await;
    let web = web();
    let (_, page, _) = list(&web, &server.dir("/")).await;
    let entry = page.entries.into_iter().nth(1).unwrap();
    let found = find(&web, &server.dir("/"), &entry.name.to_string()).await.value;
    assert_eq!(found.entry.id, entry.id);
    let fetched = web.fetch(&call(), &entry.id, &Version::None, weft_remote::Span::WHOLE).await.unwrap().value;
    assert_eq!(read(fetched.body).await.unwrap().0, b"long");
}

#[tokio::test]
async fn a_tree_starts_at_its_directory() {
    let server = site().await;
    let notes = Arc::new(MemoryNotes::default());
    let tree = format!("{}/docs", server.address);
    let web = Web::for_tree(&tree, WebOptions::default(), notes.clone()).unwrap();
    assert_eq!(web.root(), server.dir("/docs/"));
    assert_eq!(list(&web, &web.root()).await.1.entries.len(), 2);
    for bad in ["", "/docs", "h/../x", "a b/c"] {
        assert!(matches!(
            Web::for_tree(bad, WebOptions::default(), notes.clone()).err(),
            Some(RemoteError::BadName { .. })
        ));
    }
}

#[tokio::test]
async fn hosts_of_the_house_need_no_socket() {
    let connector = Connector::new(|| {
        let (ours, theirs) = tokio::io::duplex(4096);
        tokio::spawn(async move {
            let service =
                hyper::service::service_fn(async |_| Ok::<_, std::convert::Infallible>(html("<a href=x>x</a>")));
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(hyper_util::rt::TokioIo::new(theirs), service)
                .await;
        });
        ours
    });
    let builtin = [("sample".to_owned(), connector)].into();
    let web = web_with(WebOptions { builtin, ..WebOptions::default() });
    assert_eq!(shown(&list(&web, &web.root()).await.1.entries), ["sample D sample/"]);
    let found = find(&web, &web.root(), "sample").await;
    assert_eq!(shown(&read(found.value.along.unwrap().body).await.unwrap().1[0].page.value.entries).len(), 2);
}
