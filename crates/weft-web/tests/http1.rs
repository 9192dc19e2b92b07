//! HTTP/1 as it is spoken.

mod support;

use support::{Server, find, read, web};
use weft_remote::Figure;

/// What is no longer to be sent and is understood all the same: a header in several lines, as nginx sends what its
/// configuration writes so, and one with a space before its colon (RFC 9112 sections 5.1 and 5.2); a length beside chunks,
/// which says nothing (section 6.3).
#[tokio::test]
async fn what_other_clients_understand_is_understood() {
    let server = Server::raw(|path| {
        Some(match path {
            "/folded" => b"HTTP/1.1 200 OK\r\nX-Policy: a;\n    b;\r\n\tc\r\nContent-Length: 5\r\n\r\n01234".to_vec(),
            "/spaced" => b"HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\n01234".to_vec(),
            "/both" => {
                let chunks = "2\r\n01\r\n3\r\n234\r\n0\r\n\r\n";
                format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n{chunks}")
                    .into_bytes()
            }
            _ => b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n".to_vec(),
        })
    })
    .await;
    let web = web();
    for (path, size) in [("folded", Figure::Exact(5)), ("spaced", Figure::Exact(5)), ("both", Figure::Unknown)] {
        let found = find(&web, &server.dir("/"), path).await.value;
        assert_eq!(found.entry.attributes.size, size, "{path}");
        assert_eq!(read(found.along.unwrap().body).await.unwrap().0, b"01234", "{path}");
    }
}
