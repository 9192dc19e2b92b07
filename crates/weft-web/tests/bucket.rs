//! Buckets of S3: how they are found out, what their keys become, and listings that go on and on. The server here is a
//! fake that follows the documented form of ListObjects and ListObjectsV2 (Amazon S3 API reference).

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use support::{Reply, Seen, Server, absent, answer, call, fails, find, list, read, shown, web};
use weft_remote::{Completeness, Cursor, Entry, FileId, FileKind, Listing, Page, Remote, RemoteError, Span, Version};
use weft_web::Web;

/// What the fake does differently from S3 itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    Plain,
    /// Knows the first version of the request only.
    First,
    /// Gives the same token for ever.
    Circling,
    /// Takes no keys for as many as it likes (`rclone serve s3`).
    Generous,
}

/// A bucket at `top` with these objects, which gives at most `page` keys at once.
struct Bucket {
    top: &'static str,
    objects: BTreeMap<String, &'static str>,
    page: usize,
    manner: Manner,
}

impl Bucket {
    fn new(top: &'static str, objects: &[(&str, &'static str)]) -> Bucket {
        let objects = objects.iter().map(|(key, body)| ((*key).to_owned(), *body)).collect();
        Bucket { top, objects, page: 1000, manner: Manner::Plain }
    }

    async fn serve(self) -> Server {
        Server::start(move |seen| self.answer(seen)).await
    }

    fn answer(&self, seen: &Seen) -> Reply {
        let (path, query) = seen.path.split_once('?').unwrap_or((&seen.path, ""));
        if path == self.top || path == self.top.trim_end_matches('/') {
            return self.listing(query);
        }
        // As S3Proxy and moto do.
        let path = path.split(';').next().unwrap_or_default();
        let key = path.strip_prefix(self.top).map(|key| key.replace('+', " "));
        let key = key.map(|key| percent_decode_str(&key).decode_utf8_lossy().into_owned());
        let id = ("x-amz-request-id", "7A");
        match key.and_then(|key| self.objects.get(&key)) {
            Some(body) => {
                answer(200, &[id, ("etag", &tag(body)), ("last-modified", "Sat, 03 Feb 2024 04:05:06 GMT")], *body)
            }
            None => answer(404, &[id, ("content-type", "application/xml")], "<Error><Code>NoSuchKey</Code></Error>"),
        }
    }

    fn listing(&self, query: &str) -> Reply {
        let value = |name: &str| {
            let pair = query.split('&').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name);
            pair.map(|(_, value)| percent_decode_str(value).decode_utf8().unwrap().into_owned())
        };
        let (prefix, delimiter) = (value("prefix").unwrap_or_default(), value("delimiter"));
        let encode = |text: &str| match value("encoding-type") {
            Some(_) => utf8_percent_encode(text, NON_ALPHANUMERIC).to_string().replace("%20", "+").replace("%2F", "/"),
            None => text.replace('&', "&amp;").replace('<', "&lt;"),
        };
        // Keys and groups in one order, as S3 has them.
        let mut rows = BTreeSet::new();
        for key in self.objects.keys().filter(|key| key.starts_with(&prefix)) {
            let group = delimiter.as_ref().and_then(|d| key[prefix.len()..].find(d.as_str()));
            rows.insert(group.map_or((key.clone(), false), |at| (key[..prefix.len() + at + 1].to_owned(), true)));
        }
        let after =
            value("continuation-token").map(|token| token.trim_start_matches("t/").to_owned()).or(value("marker"));
        let rest: Vec<_> = rows.into_iter().filter(|(key, _)| after.as_ref().is_none_or(|after| key > after)).collect();
        let page = value("max-keys").map_or(self.page, |max| max.parse().unwrap());
        let page = if page == 0 && self.manner == Manner::Generous { self.page } else { page };
        let cut = rest.len() > page || self.manner == Manner::Circling;
        let mut body = String::from(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name>",
        );
        body += &format!("<IsTruncated>{cut}</IsTruncated>");
        if value("encoding-type").is_some() {
            body += "<EncodingType>url</EncodingType>";
        }
        let last = rest[..page.min(rest.len())].last().map(|(key, _)| key.clone()).unwrap_or_default();
        body += &match (cut, self.manner) {
            (false, _) => String::new(),
            (true, Manner::Plain | Manner::Generous) => {
                format!("<NextContinuationToken>t/{last}</NextContinuationToken>")
            }
            (true, Manner::First) => format!("<NextMarker>{}</NextMarker>", encode(&last)),
            (true, Manner::Circling) => "<NextContinuationToken>t/</NextContinuationToken>".to_owned(),
        };
        for (key, is_group) in rest.iter().take(page) {
            let shown = encode(key);
            body += &if *is_group {
                format!("<CommonPrefixes><Prefix>{shown}</Prefix></CommonPrefixes>")
            } else {
                let object = self.objects[key];
                format!(
                    "<Contents><Key>{shown}</Key><LastModified>2024-02-03T04:05:06.000Z</LastModified>\
                    <ETag>{}</ETag><Size>{}</Size></Contents>",
                    tag(object).replace('"', "&quot;"),
                    object.len()
                )
            };
        }
        answer(200, &[("content-type", "application/xml")], body + "</ListBucketResult>")
    }
}

fn tag(body: &str) -> String {
    format!("\"{}-{}\"", body.len(), body.chars().next().unwrap_or('0'))
}

fn names(entries: &[Entry]) -> Vec<String> {
    let mark = |entry: &Entry| if entry.attributes.kind == FileKind::Directory { "/" } else { "" };
    entries.iter().map(|entry| format!("{}{}", entry.name, mark(entry))).collect()
}

/// Every page of a listing.
async fn pages(web: &Web, dir: &FileId) -> Result<Vec<Page>, RemoteError> {
    let (mut all, mut cursor): (Vec<Page>, Option<Cursor>) = (Vec::new(), None);
    loop {
        let answer = web.entries(&call(), dir, &Version::None, cursor.as_ref()).await?;
        let Listing::Page(page, _) = answer.value else { panic!("nothing was known") };
        cursor = page.next.clone();
        all.push(page);
        if cursor.is_none() {
            return Ok(all);
        }
    }
}

const OBJECTS: &[(&str, &str)] = &[
    ("a b+c&<d>.txt", "seven b"),
    ("caf\u{e9}/x", "x"),
    ("docs/", ""),
    ("docs/deep/leaf.txt", "leaf"),
    ("docs/note.txt", "note"),
    ("per%41cent", "percent"),
];

#[tokio::test]
async fn a_bucket_at_its_own_host_is_a_tree() {
    let server = Bucket::new("/", OBJECTS).serve().await;
    let web = web();
    let (said, page, along) = list(&web, &server.dir("/")).await;
    assert_eq!(said.origin.unwrap().how, "S3 listing");
    assert!(along.is_none(), "the listing is not shown as a page");
    assert_eq!(page.completeness, Completeness::Complete);
    assert_eq!(names(&page.entries), ["a b+c&<d>.txt", "per%41cent", "caf\u{e9}/", "docs/"]);
    let file = &page.entries[0];
    assert_eq!((file.attributes.size.exact(), &file.version), (Some(7), &Version::strong("\"7-s\"")));
    assert!(file.attributes.modified.exact().is_some());
    let fetched = web.fetch(&call(), &file.id, &file.version, Span::WHOLE).await.unwrap();
    assert_eq!(read(fetched.value.body).await.unwrap().0, b"seven b");
    let docs = &page.entries[3].id;
    let (said, page, _) = list(&web, docs).await;
    assert_eq!(names(&page.entries), ["note.txt", "deep/"], "the marker is the directory");
    let again = web.entries(&call(), docs, &said.version, None).await.unwrap();
    assert!(matches!(again.value, Listing::Unchanged));
}

#[tokio::test]
async fn a_bucket_below_a_path_is_found_by_name_and_remembered() {
    let server = Bucket::new("/bucket/", OBJECTS).serve().await;
    let web = web();
    let top = find(&web, &server.dir("/bucket/"), "per%41cent").await;
    assert_eq!(top.value.entry.id, server.file("/bucket/per%2541cent"));
    list(&web, &server.dir("/bucket/")).await;
    let docs = find(&web, &server.dir("/bucket/"), "docs").await.value.entry;
    assert_eq!(docs.id, server.dir("/bucket/docs/"), "no object of that name, but keys below it");
    let deep = find(&web, &docs.id, "deep").await.value.entry;
    assert_eq!(
        shown(&list(&web, &deep.id).await.1.entries),
        [format!("leaf.txt F {}/bucket/docs/deep/leaf.txt", server.address)]
    );
    absent(&web, &docs.id, "nothing").await;
    assert!(web.attributes(&call(), &deep.id, &Version::None).await.is_ok());
    let gone = web.attributes(&call(), &server.dir("/bucket/gone/"), &Version::None).await;
    assert!(matches!(gone, Err(RemoteError::NotFound { .. })), "{gone:?}");
}

#[tokio::test]
async fn a_bucket_is_known_without_its_slash_and_a_file_that_looks_like_one_is_a_file() {
    let server = Bucket::new("/bucket/", OBJECTS).serve().await;
    let fresh = web();
    let found = find(&fresh, &server.dir("/"), "bucket").await.value.entry;
    assert_eq!(found.id, server.dir("/bucket/"));
    assert_eq!(list(&fresh, &found.id).await.1.entries.len(), 4);

    let bucket = Bucket::new("/", OBJECTS);
    let saved = Server::start(move |_| bucket.listing("")).await;
    for name in ["saved", "saved.txt", "saved.xml"] {
        let found = find(&fresh, &saved.dir("/"), name).await.value;
        assert_eq!(found.entry.id, saved.file(&format!("/{name}")));
        let (bytes, _) = read(found.along.unwrap().body).await.unwrap();
        assert!(bytes.starts_with(b"<?xml") && bytes.ends_with(b"</ListBucketResult>"));
    }
}

/// Goal: buckets are known by whatever they are called, and of servers that give keys where none are asked for. Method: a name
/// with dots, and such a server.
#[tokio::test]
async fn a_bucket_is_known_by_any_name_and_of_any_server() {
    for (top, manner) in [("/my.bucket.v2/", Manner::Plain), ("/bucket/", Manner::Generous)] {
        let server = Bucket { manner, ..Bucket::new(top, OBJECTS) }.serve().await;
        let fresh = web();
        let found = find(&fresh, &server.dir("/"), top.trim_matches('/')).await.value.entry;
        assert_eq!(found.id, server.dir(top));
        assert_eq!(list(&fresh, &found.id).await.1.entries.len(), 4);
    }
}

/// Goal: a bare `+` is a space to S3, and a name with one is not taken for it. Method: an object of each, by name before
/// anything is known of the server, and by list.
#[tokio::test]
async fn a_plus_in_a_key_is_no_space() {
    let server = Bucket::new("/bucket/", &[("a+b", "plus"), ("a b", "space")]).serve().await;
    let fresh = web();
    for (name, body) in [("a+b", &b"plus"[..]), ("a b", b"space")] {
        let found = find(&fresh, &server.dir("/bucket/"), name).await.value;
        assert_eq!(read(found.along.unwrap().body).await.unwrap().0, body, "{name}");
    }
    let found_out = server.paths();
    assert_eq!(found_out, ["/bucket/a+b", "/bucket/a%2Bb", "/bucket/a%20b"], "it is found out once");
    let listing = web();
    let entries = list(&listing, &server.dir("/bucket/")).await.1.entries;
    assert_eq!(names(&entries), ["a b", "a+b"]);
    let fetched = listing.fetch(&call(), &entries[1].id, &entries[1].version, Span::WHOLE).await.unwrap();
    assert_eq!(read(fetched.value.body).await.unwrap().0, b"plus");
    absent(&fresh, &server.dir("/bucket/"), "a++b").await;
}

/// Goal: what stands for a session in links of Java is a part of a key. Method: read by the name that the list tells.
#[tokio::test]
async fn a_key_has_no_session() {
    let server = Bucket::new("/", &[("a", "other"), ("a;jsessionid=1.txt", "of that name")]).serve().await;
    let web = web();
    let (_, page, _) = list(&web, &server.dir("/")).await;
    assert_eq!(names(&page.entries), ["a", "a;jsessionid=1.txt"]);
    let fetched = web.fetch(&call(), &page.entries[1].id, &Version::None, Span::WHOLE).await.unwrap();
    assert_eq!(read(fetched.value.body).await.unwrap().0, b"of that name");
    let found = find(&web, &server.dir("/"), "a;jsessionid=1.txt").await.value;
    assert_eq!(read(found.along.unwrap().body).await.unwrap().0, b"of that name");
}

#[tokio::test]
async fn long_listings_come_in_pages() {
    let objects: Vec<String> = (0..25).map(|n| format!("d/{n:03}")).collect();
    let objects: Vec<(&str, &str)> = objects.iter().map(|key| (key.as_str(), "x")).collect();
    for manner in [Manner::Plain, Manner::First] {
        let server = Bucket { page: 10, manner, ..Bucket::new("/", &objects) }.serve().await;
        let web = web();
        list(&web, &server.dir("/")).await;
        let pages = pages(&web, &server.dir("/d/")).await.unwrap();
        let all: Vec<_> = pages.iter().flat_map(|page| names(&page.entries)).collect();
        assert_eq!((pages.len(), all.len()), (3, 25));
        assert_eq!(all, (0..25).map(|n| format!("{n:03}")).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_listing_that_goes_in_circles_is_an_error() {
    let server = Bucket { manner: Manner::Circling, ..Bucket::new("/", &[("a", "x")]) }.serve().await;
    let failed = pages(&web(), &server.dir("/")).await;
    assert!(matches!(failed, Err(RemoteError::Damaged { .. })), "{failed:?}");
    assert!(server.log.lock().len() < 6);
}

#[tokio::test]
async fn an_object_beside_keys_below_it_is_the_page_of_the_directory() {
    let objects = [("guide", "the guide"), ("guide/part1", "part 1"), ("guide-2", "x"), ("other/y", "y")];
    let server = Bucket::new("/", &objects).serve().await;
    let fresh = web();
    let (_, page, _) = list(&fresh, &server.dir("/")).await;
    assert_eq!(names(&page.entries), ["guide/", "guide-2", "other/"]);
    let before = server.log.lock().len();
    assert_eq!(names(&list(&fresh, &server.dir("/other/")).await.1.entries), ["y"]);
    assert_eq!(server.log.lock().len(), before + 1, "what the directory above said is remembered");
    let (_, page, _) = list(&fresh, &server.dir("/guide/")).await;
    assert_eq!(names(&page.entries), ["part1", "index.html"]);
    assert_eq!(page.entries[1].id, server.file("/guide"));
    assert_eq!(page.entries[1].attributes.size.exact(), Some(9));
    assert_eq!(find(&fresh, &server.dir("/guide/"), "index.html").await.value.entry.id, server.file("/guide"));
}

#[tokio::test]
async fn keys_that_cannot_be_names_are_counted() {
    let objects = [
        ("./x", "x"),
        ("../y", "y"),
        (".", "dot"),
        ("a//b", "b"),
        ("d/", "content of the marker"),
        ("d/e", "e"),
        ("ok", "ok"),
    ];
    let server = Bucket::new("/", &objects).serve().await;
    let web = web();
    let (said, page, _) = list(&web, &server.dir("/")).await;
    assert_eq!(said.origin.unwrap().how, "S3 listing (3 keys cannot be shown)");
    assert_eq!(names(&page.entries), ["ok", "a/", "d/"]);
    let (_, page, _) = list(&web, &server.dir("/a/")).await;
    assert_eq!(names(&page.entries), ["%~/"], "the empty segment has a name");
    let empty = &page.entries[0].id;
    assert_eq!(names(&list(&web, empty).await.1.entries), ["b"]);
    let (said, page, _) = list(&web, &server.dir("/d/")).await;
    assert_eq!(said.origin.unwrap().how, "S3 listing (1 keys cannot be shown)");
    assert_eq!(names(&page.entries), ["e"]);
}

#[tokio::test]
async fn other_xml_is_a_page_and_a_bucket_may_end_to_be_one() {
    let feed = "<?xml version=\"1.0\"?><rss><channel/></rss>";
    let server = Server::start(move |_| answer(200, &[("content-type", "text/xml")], feed)).await;
    let fresh = web();
    let (_, page, along) = list(&fresh, &server.dir("/")).await;
    assert_eq!(names(&page.entries), ["index.html"]);
    assert_eq!(read(along.unwrap().body).await.unwrap().0, feed.as_bytes());

    let bucket = Bucket::new("/", OBJECTS);
    let moved = Arc::new(AtomicBool::new(false));
    let has_moved = moved.clone();
    let server = Server::start(move |seen| match has_moved.load(Ordering::Relaxed) {
        true => support::html("<a href=x>x</a>"),
        false => bucket.answer(seen),
    })
    .await;
    list(&fresh, &server.dir("/")).await;
    moved.store(true, Ordering::Relaxed);
    let (said, ..) = list(&fresh, &server.dir("/")).await;
    assert_eq!(said.origin.unwrap().how, "links of the page");
}

#[tokio::test]
async fn a_bucket_that_refuses_its_listing_says_so() {
    let bucket = Bucket::new("/", OBJECTS);
    let server = Server::start(move |seen| match seen.path.contains("list-type") {
        true => answer(403, &[("content-type", "application/xml")], "<Error><Code>AccessDenied</Code></Error>"),
        false => bucket.answer(seen),
    })
    .await;
    let web = web();
    let listed = web.entries(&call(), &server.dir("/"), &Version::None, None).await;
    assert!(matches!(listed, Err(RemoteError::Denied { .. })), "{listed:?}");
    assert!(matches!(fails(&web, &server.dir("/"), "docs").await, RemoteError::Denied { .. }));
}
