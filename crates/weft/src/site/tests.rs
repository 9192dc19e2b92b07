//! The site over a pipe. Goal: it behaves as a real static server does, since it stands in for one.

use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, StatusCode};

use super::*;

async fn connect() -> SendRequest<Empty<Bytes>> {
    let (near, far) = tokio::io::duplex(64 * 1024);
    tokio::spawn(Arc::new(Site::new()).serve(far));
    let (sender, connection) = handshake(TokioIo::new(near)).await.expect("connected");
    tokio::spawn(connection);
    sender
}

/// Status, headers and body of a request with these headers.
async fn ask(
    sender: &mut SendRequest<Empty<Bytes>>,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> (StatusCode, hyper::HeaderMap, Bytes) {
    let mut request = Request::builder().method(method).uri(path).header("host", HOST);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = sender.send_request(request.body(Empty::new()).expect("a request")).await.expect("answered");
    let (parts, body) = answer.into_parts();
    (parts.status, parts.headers, body.collect().await.expect("a whole body").to_bytes())
}

#[tokio::test]
async fn pages_come_with_validators_and_links_lead_somewhere() {
    let mut sender = connect().await;
    let (status, headers, page) = ask(&mut sender, "GET", "/", &[]).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(headers["content-type"], "text/html; charset=utf-8");
    let page = String::from_utf8(page.to_vec()).expect("UTF-8");
    let links: Vec<&str> = page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(links.len() >= 5, "{links:?}");
    for link in links {
        let (status, _, _) = ask(&mut sender, "GET", &format!("/{link}"), &[]).await;
        assert_eq!(status, StatusCode::OK, "{link}");
    }
    let etag = headers["etag"].to_str().expect("ASCII");
    let (status, _, body) = ask(&mut sender, "GET", "/", &[("if-none-match", etag)]).await;
    assert_eq!((status, body.len()), (StatusCode::NOT_MODIFIED, 0));
    let modified = headers["last-modified"].to_str().expect("ASCII");
    let (status, _, _) = ask(&mut sender, "GET", "/", &[("if-modified-since", modified)]).await;
    assert_eq!(status, StatusCode::NOT_MODIFIED);
    let (status, _, _) = ask(&mut sender, "GET", "/", &[("if-none-match", "\"other\"")]).await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test]
async fn parts_of_the_large_file_fit_together() {
    let mut sender = connect().await;
    let (_, headers, whole) = ask(&mut sender, "GET", "/big.bin", &[]).await;
    assert_eq!(whole.len(), pages::BIG_BYTES);
    let (status, part_headers, part) = ask(&mut sender, "GET", "/big.bin", &[("range", "bytes=1000-1999")]).await;
    assert_eq!(status, StatusCode::PARTIAL_CONTENT);
    assert_eq!(part_headers["content-range"], format!("bytes 1000-1999/{}", whole.len()));
    assert_eq!(part, whole.slice(1000..2000));
    let etag = headers["etag"].to_str().expect("ASCII");
    let kept = [("range", "bytes=0-1"), ("if-range", etag)];
    assert_eq!(ask(&mut sender, "GET", "/big.bin", &kept).await.0, StatusCode::PARTIAL_CONTENT);
    let changed = [("range", "bytes=0-1"), ("if-range", "\"other\"")];
    assert_eq!(ask(&mut sender, "GET", "/big.bin", &changed).await.0, StatusCode::OK);
    let (status, headers, _) = ask(&mut sender, "GET", "/robots.txt", &[("range", "bytes=999999-")]).await;
    assert_eq!(status, StatusCode::RANGE_NOT_SATISFIABLE);
    assert!(headers["content-range"].to_str().expect("ASCII").starts_with("bytes */"));
}

#[tokio::test]
async fn directories_lists_and_refusals() {
    let mut sender = connect().await;
    let (status, headers, _) = ask(&mut sender, "GET", "/docs", &[]).await;
    assert_eq!(
        (status, &headers["location"]),
        (StatusCode::MOVED_PERMANENTLY, &hyper::header::HeaderValue::from_static("/docs/"))
    );
    let (_, _, list) = ask(&mut sender, "GET", "/pub/", &[]).await;
    let list = String::from_utf8(list.to_vec()).expect("UTF-8");
    assert!(list.contains("<a href=\"with%20space.txt\">with space.txt</a>"), "{list}");
    let (status, _, body) = ask(&mut sender, "GET", "/pub/100%25.txt", &[]).await;
    assert_eq!(status, StatusCode::OK);
    assert!(!body.is_empty());
    assert_eq!(ask(&mut sender, "GET", "/absent", &[]).await.0, StatusCode::NOT_FOUND);
    assert_eq!(ask(&mut sender, "GET", "/%ff", &[]).await.0, StatusCode::NOT_FOUND);
    assert_eq!(ask(&mut sender, "DELETE", "/", &[]).await.0, StatusCode::METHOD_NOT_ALLOWED);
    let (status, headers, body) = ask(&mut sender, "HEAD", "/robots.txt", &[]).await;
    assert_eq!((status, body.len()), (StatusCode::OK, 0));
    assert_ne!(headers["content-length"], "0");
}

#[test]
fn files_are_those_that_a_reader_would_find() {
    let site = Site::new();
    let files: Vec<&str> = site.files().collect();
    assert!(files.contains(&"docs/index.html") && files.contains(&"pub/with space.txt") && files.contains(&"big.bin"));
    assert!(!files.iter().any(|path| path.is_empty() || path.ends_with('/') || *path == "docs"));
}
