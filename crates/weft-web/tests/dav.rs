//! WebDAV: when it is asked, what it tells, and what a server can do with it that it should not.

mod support;

use support::{Reply, Server, absent, answer, call, fails, find, html, list, shown, web, web_with};
use weft_remote::{Completeness, Figure, FileKind, Listing, Remote, RemoteError, Version};
use weft_web::{HostPattern, WebOptions};

/// A row of a multistatus; `props` is what stands in `prop` besides the type.
fn row(href: &str, collection: bool, props: &str) -> String {
    let kind = if collection { "<D:collection/>" } else { "" };
    format!(
        "<D:response><D:href>{href}</D:href><D:propstat><D:prop><D:resourcetype>{kind}</D:resourcetype>{props}</D:prop>\
        <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
    )
}

fn multistatus(rows: &str) -> Reply {
    let body = format!("<?xml version=\"1.0\"?>\n<D:multistatus xmlns:D=\"DAV:\">{rows}</D:multistatus>");
    answer(207, &[("content-type", "application/xml")], body)
}

fn count(server: &Server, method: &str) -> usize {
    server.log.lock().iter().filter(|seen| seen.method == method).count()
}

/// A server that speaks WebDAV at these rows and refuses to show directories.
async fn speaking(rows: impl Fn(&str) -> String + Send + Sync + 'static) -> Server {
    Server::start(move |seen| match seen.method.as_str() {
        "PROPFIND" => multistatus(&rows(&seen.path)),
        _ if seen.path.ends_with('/') => answer(403, &[], "no listing"),
        _ => answer(404, &[], ""),
    })
    .await
}

#[tokio::test]
async fn a_refused_directory_is_tried_once_and_the_outcome_is_remembered() {
    let server = speaking(|_| {
        let told = "<D:getcontentlength>5</D:getcontentlength><D:getetag>\"e1\"</D:getetag>\
            <D:getlastmodified>Sun, 06 Nov 1994 08:49:37 GMT</D:getlastmodified>";
        [row("/", true, ""), row("/a%20b&amp;c", false, told), row("/.dot", false, ""), row("/sub/", true, "")].concat()
    })
    .await;
    let web = web();
    let (said, page, _) = list(&web, &server.dir("/")).await;
    assert_eq!(said.origin.unwrap().how, "WebDAV PROPFIND");
    assert_eq!(page.completeness, Completeness::Complete);
    let address = server.address;
    let expected = ["a b&c F ADDRESS/a%20b&c", ".dot F ADDRESS/.dot", "sub D ADDRESS/sub/"];
    assert_eq!(shown(&page.entries), expected.map(|row| row.replace("ADDRESS", &address.to_string())));
    assert_eq!(page.entries[0].attributes.size, Figure::Exact(5));
    assert!(page.entries[0].attributes.modified.exact().is_some());
    assert_eq!(page.entries[0].version, Version::strong("\"e1\""));
    assert_eq!(page.entries[2].attributes.kind, FileKind::Directory);
    assert_eq!(count(&server, "PROPFIND"), 2, "one finds out, one lists");
    let gets = count(&server, "GET");
    let known = said.version;
    let again = web.entries(&call(), &server.dir("/"), &known, None).await.unwrap();
    assert!(matches!(again.value, Listing::Unchanged));
    assert_eq!(count(&server, "GET"), gets, "from then on nothing else is asked");
}

#[tokio::test]
async fn a_server_that_does_not_speak_it_is_asked_once() {
    let server = Server::start(|seen| match seen.method.as_str() {
        "PROPFIND" => answer(405, &[], ""),
        _ => answer(403, &[], ""),
    })
    .await;
    let web = web();
    for dir in ["/", "/a/", "/b/", "/c/d/"] {
        let listed = web.entries(&call(), &server.dir(dir), &Version::None, None).await;
        assert!(matches!(listed, Err(RemoteError::Denied { .. })), "{listed:?}");
    }
    assert_eq!(count(&server, "PROPFIND"), 1);
}

#[tokio::test]
async fn pages_with_links_are_never_asked_for_more() {
    let server = Server::start(|_| html("<a href='x.html'>x</a>")).await;
    list(&web(), &server.dir("/")).await;
    assert_eq!(count(&server, "PROPFIND"), 0);
}

#[tokio::test]
async fn named_hosts_are_asked_first_and_directories_are_found_by_it() {
    let server = speaking(|path| row(path, true, "") + &row("/sub/inner", true, "")).await;
    let dav_hosts = vec![HostPattern::parse("127.0.0.1").unwrap()];
    let web = web_with(WebOptions { dav_hosts, ..WebOptions::default() });
    list(&web, &server.dir("/sub/")).await;
    assert_eq!(count(&server, "GET"), 0);
    let found = find(&web, &server.dir("/"), "sub").await.value.entry;
    assert_eq!(found.id, server.dir("/sub/"), "GET says 404, WebDAV knows better");
    let checked = web.attributes(&call(), &server.dir("/sub/"), &Version::None).await;
    assert!(checked.is_ok(), "{checked:?}");
}

#[tokio::test]
async fn a_directory_is_found_before_anything_was_listed() {
    let server = speaking(|path| row(path, true, "")).await;
    let web = web();
    let top = find(&web, &web.root(), &server.address.to_string()).await.value.entry;
    let found = find(&web, &top.id, "sub").await.value.entry;
    assert_eq!(found.id, server.dir("/sub/"));
}

#[tokio::test]
async fn what_is_not_there_is_absent() {
    let server = Server::start(|seen| match (seen.method.as_str(), seen.path.as_str()) {
        ("PROPFIND", "/") => multistatus(&row("/", true, "")),
        _ => answer(404, &[], ""),
    })
    .await;
    let web = web();
    list(&web, &server.dir("/")).await;
    absent(&web, &server.dir("/"), "nothing").await;
}

#[tokio::test]
async fn rows_about_other_places_name_nothing_here() {
    let server = speaking(|_| {
        let hrefs = [
            "/d/",
            "/d/good",
            "/elsewhere/x",
            "http://other.example/d/x",
            "/d/sub/deeper",
            "/d/../up",
            "/d/%2e%2e/up",
            "/d/a?b",
            "/d/a#b",
            "/d/sl%2Fash",
        ];
        let failed = "<D:response><D:href>/d/gone</D:href><D:status>HTTP/1.1 404 Not Found</D:status></D:response>";
        hrefs.map(|href| row(href, href == "/d/", "")).concat() + failed
    })
    .await;
    let (said, page, _) = list(&web(), &server.dir("/d/")).await;
    let names: Vec<_> = page.entries.iter().map(|entry| entry.name.to_string()).collect();
    assert_eq!(names, ["good", "sl%2Fash"]);
    assert_eq!(page.completeness, Completeness::Partial, "something could not be read");
    assert_eq!(said.origin.unwrap().how, "WebDAV PROPFIND (3 rows cannot be shown)");
}

#[tokio::test]
async fn properties_that_the_server_could_not_tell_are_unknown() {
    let server = speaking(|_| {
row("/", true, "") + "<D:response><D:href>/x</D:href><D:propstat><D:prop><D:resourcetype/></D:prop><D:status>HTTP/1.1 200 OK</D:status>\
        </D:propstat><D:propstat><D:prop><D:getcontentlength>7</D:getcontentlength><D:resourcetype><D:collection/>\
        </D:resourcetype></D:prop><D:status>HTTP/1.1 404 Not Found</D:status></D:propstat></D:response>"
    })
    .await;
    let (_, page, _) = list(&web(), &server.dir("/")).await;
    assert_eq!(page.entries[0].attributes.kind, FileKind::File);
    assert_eq!(page.entries[0].attributes.size, Figure::Unknown);
}

#[tokio::test]
async fn xml_that_is_made_to_harm_is_an_error() {
    let bombs = [
        "<!DOCTYPE x [<!ENTITY a \"aaaa\">]><D:multistatus xmlns:D=\"DAV:\">&a;</D:multistatus>".to_owned(),
        "<D:multistatus xmlns:D=\"DAV:\"><D:response><D:href>/&a;</D:href></D:response></D:multistatus>".to_owned(),
        "<D:multistatus xmlns:D=\"DAV:\">".to_owned(),
        "<D:multistatus xmlns:D=\"DAV:\"><D:response></D:multistatus>".to_owned(),
        format!("<D:multistatus xmlns:D=\"DAV:\">{}", "<D:response>".repeat(100)),
        format!("<D:multistatus xmlns:D=\"DAV:\"><D:response><D:href>{}", "x".repeat(2 << 20)),
        "<rss/>".to_owned(),
        "not XML".to_owned(),
        "<D:multistatus xmlns:D=\"DAV:\">&#0;</D:multistatus>".to_owned(),
    ];
    for bomb in bombs {
        let body = bomb.clone();
        let server = Server::start(move |seen| match seen.method.as_str() {
            "PROPFIND" => answer(207, &[], body.clone()),
            _ => answer(403, &[], ""),
        })
        .await;
        let dav_hosts = vec![HostPattern::parse("127.0.0.1").unwrap()];
        let named = web_with(WebOptions { dav_hosts, ..WebOptions::default() });
        let listed = named.entries(&call(), &server.dir("/"), &Version::None, None).await;
        assert!(matches!(listed, Err(RemoteError::Damaged { .. })), "{bomb:.80}: {listed:?}");
        let tried = web();
        for _ in 0..2 {
            let listed = tried.entries(&call(), &server.dir("/d/"), &Version::None, None).await;
            assert!(matches!(listed, Err(RemoteError::Denied { .. })), "{bomb:.80}: {listed:?}");
        }
        assert_eq!(count(&server, "PROPFIND"), 2, "one for each");
    }
}

#[tokio::test]
async fn a_login_that_is_needed_comes_before_any_try() {
    let server = Server::start(|_| answer(401, &[], "")).await;
    let web = web();
    assert!(matches!(fails(&web, &server.dir("/"), "x").await, RemoteError::Denied { .. }));
    let listed = web.entries(&call(), &server.dir("/"), &Version::None, None).await;
    assert!(matches!(listed, Err(RemoteError::Denied { .. })), "{listed:?}");
    assert_eq!(count(&server, "PROPFIND"), 0);
}

/// Goal: a page that a server made for WebDAV shows to people is no list: a file `index.html` is that file, and what belongs to
/// the page is no name. Method: WsgiDAV's page, met by each of the three ways to a directory.
#[tokio::test]
async fn a_page_for_people_of_a_server_for_webdav_is_no_list() {
    let page = "<link rel='icon' href='/:dir_browser/favicon.ico'><a href='index.html'>index.html</a>";
    let of_wsgidav = move || {
        Server::start(move |seen| match (seen.method.as_str(), seen.path.as_str()) {
            ("PROPFIND", _) => multistatus(&(row("/", true, "") + &row("/index.html", false, ""))),
            (_, "/index.html") => answer(200, &[("content-type", "text/html")], "the file"),
            _ => answer(200, &[("content-type", "text/html"), ("server", "WsgiDAV/4.4.0 Cheroot/11.1.2")], page),
        })
    };
    let (server, web) = (of_wsgidav().await, web());
    let (said, listed, _) = list(&web, &server.dir("/")).await;
    assert_eq!(said.origin.unwrap().how, "WebDAV PROPFIND");
    assert_eq!(shown(&listed.entries), [format!("index.html F {}/index.html", server.address)]);

    let server = of_wsgidav().await;
    let found = find(&web, &server.dir("/"), "index.html").await.value.entry;
    assert_eq!(found.id, server.file("/index.html"));

    let server = of_wsgidav().await;
    let top = find(&web, &web.root(), &server.address.to_string()).await.value.entry;
    let (said, ..) = list(&web, &top.id).await;
    assert_eq!(said.origin.unwrap().how, "WebDAV PROPFIND");
    assert_eq!(count(&server, "PROPFIND"), 2, "one finds out, one lists");
}

/// Goal: what looks like the session of a link is a part of a name that WebDAV tells, also of a directory. Method: rows as Tomcat's.
#[tokio::test]
async fn a_row_has_no_session() {
    let server =
        speaking(|_| row("/a;jsessionid=1/", true, "") + &row("/a;jsessionid=1/b;jsessionid=2", false, "")).await;
    let (_, page, _) = list(&web(), &server.dir("/a%3Bjsessionid=1/")).await;
    assert_eq!(
        shown(&page.entries),
        [format!("b;jsessionid=2 F {}/a%3Bjsessionid=1/b%3Bjsessionid=2", server.address)]
    );
}

/// Goal: a page that a server for WebDAV gives people is no file, also where it comes without a redirect to the name with a slash.
/// Method: looked up by its name alone, as nothing has been listed, beside a file that is a page.
#[tokio::test]
async fn a_page_for_people_is_no_file() {
    let server = Server::start(|seen| match (seen.method.as_str(), seen.path.as_str()) {
        ("PROPFIND", "/sub/") => multistatus(&row("/sub/", true, "")),
        ("PROPFIND", "/page.html/") => multistatus(&row("/page.html", false, "")),
        ("GET", "/sub" | "/page.html") => html("<a href='/sub/x'>x</a>"),
        _ => answer(404, &[], ""),
    })
    .await;
    let options = WebOptions { dav_hosts: vec![HostPattern::parse("127.0.0.1").unwrap()], ..WebOptions::default() };
    let web = web_with(options);
    for (name, kind) in [("sub", FileKind::Directory), ("page.html", FileKind::File)] {
        assert_eq!(find(&web, &server.dir("/"), name).await.value.entry.attributes.kind, kind, "{name}");
    }
}
