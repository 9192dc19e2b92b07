//! What is on the site.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::path::encode;
use super::{Content, Page};

/// Every path of the site, decoded, with a leading slash.
pub(super) fn pages() -> BTreeMap<String, Page> {
    let mut pages = BTreeMap::new();
    for (path, text) in FILES {
        pages.insert(format!("/{path}"), Page::Content(Content::new(Bytes::from_static(text.as_bytes()), path)));
    }
    pages.insert(format!("/{BIG}"), Page::Content(Content::new(big(), BIG)));
    let list = index_page("/pub/", &pages);
    pages.insert("/pub/".to_owned(), Page::Content(Content::new(Bytes::from(list), "pub/index.html")));
    for dir in ["/", "/docs/"] {
        let index = FILES.iter().find(|(path, _)| format!("/{path}") == format!("{dir}index.html"));
        let (path, text) = index.expect("each of these directories has an index.html below");
        pages.insert(dir.to_owned(), Page::Content(Content::new(Bytes::from_static(text.as_bytes()), path)));
    }
    for dir in ["/docs", "/pub"] {
        pages.insert(dir.to_owned(), Page::Moved(format!("{dir}/")));
    }
    pages
}

impl Content {
    fn new(bytes: Bytes, path: &str) -> Content {
        let media_type = match path.rsplit_once('.').map(|(_, ending)| ending) {
            Some("html") => "text/html; charset=utf-8",
            Some("txt") => "text/plain; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => "application/octet-stream",
        };
        let etag = format!("\"{:x}-{:016x}\"", bytes.len(), fingerprint(&bytes));
        Content { bytes, media_type, etag }
    }
}

/// A generated list of a directory, in the form of nginx's autoindex module: names padded to 50 columns, the time,
/// the size in 19 columns.
fn index_page(dir: &str, pages: &BTreeMap<String, Page>) -> String {
    let mut rows = String::new();
    for (path, page) in pages {
        let (Some(name), Page::Content(content)) = (path.strip_prefix(dir), page) else { continue };
        let space = " ".repeat(50usize.saturating_sub(name.chars().count()));
        let size = content.bytes.len();
        rows += &format!("<a href=\"{}\">{name}</a>{space} {LIST_TIME} {size:>19}\r\n", encode(name));
    }
    format!(
        "<html>\r\n<head><title>Index of {dir}</title></head>\r\n<body>\r\n<h1>Index of {dir}</h1><hr><pre>\
         <a href=\"../\">../</a>\r\n{rows}</pre><hr></body>\r\n</html>\r\n"
    )
}

/// The large file: the same bytes each time, and nothing that compresses (xorshift, Marsaglia 2003).
fn big() -> Bytes {
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut bytes = Vec::with_capacity(BIG_BYTES);
    while bytes.len() < BIG_BYTES {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    Bytes::from(bytes)
}

/// FNV-1a: enough to tell versions of this site from each other.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

pub(super) const BIG: &str = "big.bin";
pub(super) const BIG_BYTES: usize = 4 << 20;
/// When everything on the site was last changed, as the list writes it; the same time as [`super::answer::MODIFIED`].
const LIST_TIME: &str = "01-Jun-2026 12:00";

const FILES: &[(&str, &str)] = &[
    ("index.html", include_str!("files/index.html")),
    ("picture.svg", include_str!("files/picture.svg")),
    ("robots.txt", include_str!("files/robots.txt")),
    ("docs/index.html", include_str!("files/docs/index.html")),
    ("docs/names.html", include_str!("files/docs/names.html")),
    ("docs/cache.html", include_str!("files/docs/cache.html")),
    ("docs/notes.txt", include_str!("files/docs/notes.txt")),
    ("pub/README.txt", include_str!("files/pub/README.txt")),
    ("pub/with space.txt", "A name with a space in it is %20 in a URL and a space here.\n"),
    ("pub/100%.txt", "A percent sign is %25 in a URL and itself here.\n"),
    ("pub/empty.txt", ""),
];
