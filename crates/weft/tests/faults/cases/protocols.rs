//! Listings by WebDAV and S3 that lie: hrefs and keys that lead elsewhere, sizes that are not those of the bodies, XML
//! made to exhaust whoever reads it.

use std::collections::BTreeMap;

use rustix::io::Errno;

use crate::row::{Reply, Row, See, Seen, Then, truth};
use crate::support::{Asked, answer};

/// Rows that each have a server of their own, for what it speaks is remembered of a host.
pub fn rows() -> Vec<Row> {
    dav_rows().into_iter().chain(s3_rows()).collect()
}

/// How a listing is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Dav,
    S3,
}

impl Protocol {
    fn case(self) -> &'static str {
        if self == Protocol::Dav { "WebDAV" } else { "S3" }
    }

    /// Answers the questions for the listing with `xml`, in which `{base}` is the folder, and then `then`.
    fn lie(self, xml: String, then: fn() -> Then) -> crate::row::Lie {
        Box::new(move |asked: &Asked, rest: &str, base: &str| {
            let (status, is_listing) = match self {
                Protocol::Dav => ("207 Multi-Status", asked.method == "PROPFIND"),
                Protocol::S3 => ("200 OK", rest.is_empty() || rest.starts_with('?')),
            };
            let xml = xml.replace("{base}", base);
            match (is_listing, then()) {
                (true, Then::Keep) => Reply::keep(answer(status, &["content-type: application/xml"], xml)),
                (true, then) => {
                    let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/xml\r\n\r\n{xml}");
                    Reply::then(head, then)
                }
                (false, _) if rest.is_empty() => Reply::keep(answer("405 Method Not Allowed", &[], "no")),
                (false, _) => Reply::keep(answer("200 OK", &["cache-control: max-age=600"], truth(rest))),
            }
        })
    }

    fn shows(self, what: impl Into<String>, xml: String, names: &[&str]) -> Row {
        let names = names.iter().map(|name| (name.as_bytes().to_vec(), Seen::Bytes(truth(name)))).collect();
        Row::list(self.case(), what, names, self.lie(xml, || Then::Keep)).own_host().requests(14)
    }

    fn fails(self, what: &str, xml: String, then: fn() -> Then) -> Row {
        let row = Row::list(self.case(), what, BTreeMap::new(), self.lie(xml, then));
        // What comes without end may come slowly.
        let see = See::Fails(&[Errno::IO, Errno::TIMEDOUT]);
        Row { cold: see.clone(), warm: see.clone(), healed: see, ..row }
            .gone(See::Fails(&[Errno::HOSTUNREACH]))
            .own_host()
            .requests(14)
    }
}

/// A row of a PROPFIND answer (RFC 4918 section 9.1).
fn resource(href: &str, properties: &str) -> String {
    let status = "<status>HTTP/1.1 200 OK</status>";
    format!("<response><href>{href}</href><propstat><prop>{properties}</prop>{status}</propstat></response>")
}

fn multistatus(rows: &str) -> String {
    let itself = resource("{base}", "<resourcetype><collection/></resourcetype>");
    format!("<?xml version=\"1.0\"?><multistatus xmlns=\"DAV:\">{itself}{rows}</multistatus>")
}

fn sized(href: &str, size: &str) -> String {
    resource(href, &format!("<resourcetype/><getcontentlength>{size}</getcontentlength>"))
}

const SIZES: [&str; 9] = ["0", "1", "14", "16", "4096", "-1", "NaN", "9223372036854775807", "18446744073709551615"];

fn dav_rows() -> Vec<Row> {
    let dav = Protocol::Dav;
    let right = sized("{base}a", "15");
    let elsewhere = [
        "/etc/passwd",
        "{base}../x",
        "{base}%2e%2e/x",
        "http://x.invalid/a",
        "//x.invalid{base}y",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "{base}b/c",
        "{base}..",
        "{base}x?y",
        "{base}x#y",
        "http://[",
    ];
    let elsewhere = elsewhere.iter().map(|href| {
        let rows = [&right, &sized(href, "1")].map(String::as_str).concat();
        dav.shows(format!("a row about {href:?}"), multistatus(&rows), &["a"])
    });
    let sizes =
        SIZES.iter().map(|size| dav.shows(format!("size {size}"), multistatus(&sized("{base}a", size)), &["a"]));
    let gone = right.replace("200 OK", "404 Not Found").replace("/a<", "/b<");
    let odd = [
        dav.shows("a name twice", multistatus(&right.repeat(2)), &["a"]),
        dav.shows("a name 1000 times", multistatus(&right.repeat(1000)), &["a"]),
        dav.shows("properties that could not be told", multistatus(&right.replace("200 OK", "403 No")), &["a"]),
        dav.shows("a resource that is gone", multistatus(&(right.clone() + &failed(&gone))), &["a"]),
        dav.shows("10,000 properties", multistatus(&resource("{base}a", &"<p/>".repeat(10_000))), &["a"]),
    ];
    let broken = [
        // That it is no directory it says of itself.
        dav.fails("a row about \"\"", multistatus(&(right.clone() + &sized("", "1"))), || Then::Keep),
        dav.fails("a row about \"{base}.\"", multistatus(&(right.clone() + &sized("{base}.", "1"))), || Then::Keep),
        dav.fails("not about itself", multistatus(&right).replacen("{base}", "{base}q/", 1), || Then::Keep),
        dav.fails("an href of 1 MiB", multistatus(&sized(&"x".repeat(1 << 20), "1")), || Then::Keep),
        dav.fails("not XML", "multistatus".to_owned(), || Then::Keep),
        dav.fails("another document", "<html><body/></html>".to_owned(), || Then::Keep),
        dav.fails("another namespace", multistatus(&right).replace("\"DAV:\"", "\"dav\""), || Then::Keep),
        dav.fails("no end", multistatus(&right).replace("</multistatus>", ""), || Then::Close),
        dav.fails("tags that do not match", multistatus("<response></href>"), || Then::Keep),
        dav.fails("100,000 open tags", multistatus(&"<x>".repeat(100_000)), || Then::Keep),
        dav.fails("entities in entities", bomb(&multistatus(&sized("{base}&e9;", "1"))), || Then::Keep),
        dav.fails("without end", multistatus("").replace("</multistatus>", ""), || {
            Then::Repeat(sized("/x", "1").repeat(500).into_bytes())
        }),
    ];
    elsewhere.chain(sizes).chain(odd).chain(broken).collect()
}

/// A row whose resource, not its properties, has a status.
fn failed(row: &str) -> String {
    row.replace("<propstat>", "<status>HTTP/1.1 404 Not Found</status><propstat>")
}

/// A document with entities of which each is ten of the one before, and one that is a file of this machine.
fn bomb(document: &str) -> String {
    let each = |nth: usize| format!("<!ENTITY e{} \"{}\">", nth + 1, format!("&e{nth};").repeat(10));
    let all: String = (0..9).map(each).collect();
    let doctype = format!("<!DOCTYPE x [<!ENTITY e0 \"x\"><!ENTITY f SYSTEM \"file:///etc/passwd\">{all}]>");
    document.replacen("<multistatus", &format!("{doctype}<multistatus"), 1).replacen(
        "<ListBucketResult",
        &format!("{doctype}<ListBucketResult"),
        1,
    )
}

/// An answer of a bucket (Amazon S3 API reference, ListObjectsV2).
fn bucket(rows: &str) -> String {
    let space = "http://s3.amazonaws.com/doc/2006-03-01/";
    format!("<?xml version=\"1.0\"?><ListBucketResult xmlns=\"{space}\"><Name>b</Name>{rows}</ListBucketResult>")
}

fn object(key: &str, size: &str) -> String {
    format!("<Contents><Key>{key}</Key><Size>{size}</Size></Contents>")
}

fn s3_rows() -> Vec<Row> {
    let s3 = Protocol::S3;
    let right = object("a", "15");
    let keys = ["..", ".", "", "../x", "../../x", "./x", "a"]
        .iter()
        .map(|key| s3.shows(format!("a key {key:?}"), bucket(&[right.as_str(), &object(key, "0")].concat()), &["a"]));
    let sizes = SIZES.iter().map(|size| s3.shows(format!("size {size}"), bucket(&object("a", size)), &["a"]));
    let groups = ["../", "./", ""].iter().map(|prefix| {
        let group = format!("<CommonPrefixes><Prefix>{prefix}</Prefix></CommonPrefixes>");
        s3.shows(format!("a group {prefix:?}"), bucket(&(right.clone() + &group)), &["a"])
    });
    // A key may begin with a slash: a folder whose name is empty in the URL, and leads nowhere else (docs/names.md).
    let empty = ["/", "//", "/etc/passwd"].iter().map(|key| {
        let row = s3.shows(format!("a key {key:?}"), bucket(&(right.clone() + &object(key, "0"))), &[]);
        let names = BTreeMap::from([(b"a".to_vec(), Seen::Bytes(truth("a"))), (b"%~".to_vec(), Seen::Folder)]);
        let see = See::This(Seen::Names(names));
        Row { cold: see.clone(), warm: see.clone(), gone: see.clone(), healed: see, ..row }
    });
    let truncated = "<IsTruncated>true</IsTruncated>";
    let again = "<NextContinuationToken>t</NextContinuationToken>";
    let odd = [
        s3.fails("a key of 1 MiB", bucket(&object(&"k".repeat(1 << 20), "1")), || Then::Keep),
        s3.shows("another bucket's name", bucket(&right).replace(">b<", ">../../x<"), &["a"]),
        s3.fails("more of it, always the same", bucket(&[&right, truncated, again].concat()), || Then::Keep),
        s3.fails("more of it, of which nothing is", bucket(truncated), || Then::Keep),
        s3.fails("no end", bucket(&right).replace("</ListBucketResult>", ""), || Then::Close),
        s3.fails("100,000 open tags", bucket(&"<x>".repeat(100_000)), || Then::Keep),
        // With a DTD it is a document like any other, and has no links.
        s3.shows("entities in entities", bomb(&bucket(&object("&e9;", "1"))), &[]),
        s3.shows("a file of this machine", bomb(&bucket(&object("&f;", "1"))), &[]),
        s3.fails("without end", bucket("").replace("</ListBucketResult>", ""), || {
            Then::Repeat(object("x", "1").repeat(500).into_bytes())
        }),
    ];
    keys.chain(empty).chain(sizes).chain(groups).chain(odd).collect()
}
