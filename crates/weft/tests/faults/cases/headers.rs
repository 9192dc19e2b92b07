//! Headers that flood, contradict, or claim an encoding nobody asked for.

use rustix::io::Errno;

use crate::row::{FILE_PATH, Reply, Row, See, Then, truth};

/// Floods, encodings, digests, validators and freshness that make no sense.
pub fn rows() -> Vec<Row> {
    floods().chain(encodings()).chain(digests()).chain(harmless()).chain(broken()).collect()
}

const EIO: See = See::Fails(&[Errno::IO]);

fn with(headers: &str, rest: &str) -> Vec<u8> {
    let body = truth(rest);
    let head = format!("HTTP/1.1 200 OK\r\n{headers}content-length: {}\r\n\r\n", body.len());
    [head.into_bytes(), body].concat()
}

fn row(case: &'static str, input: impl Into<String>, see: See, headers: String) -> Row {
    Row::new(case, input, see, Box::new(move |_, rest, _| Reply::close(with(&headers, rest)))).requests(4)
}

fn floods() -> impl Iterator<Item = Row> {
    let lines = [101_usize, 1000, 10_000].into_iter().map(|count| {
        let lines: String = (0..count).map(|nth| format!("x-{nth}: y\r\n")).collect();
        row("flood", format!("{count} headers"), EIO, lines)
    });
    let cookies = (0..500).map(|nth| format!("set-cookie: c{nth}={}\r\n", "v".repeat(100))).collect();
    let long = [1_usize << 20, 4 << 20].into_iter().map(|length| {
        row("flood", format!("a header of {length} bytes"), EIO, format!("x: {}\r\n", "y".repeat(length)))
    });
    let name = format!("{}: y\r\n", "x".repeat(1 << 20));
    let endless = [("lines", "x: y\r\n"), ("one line", "yyyyyyyy")].into_iter().map(|(what, again)| {
        let lie = move |_: &_, _: &str, _: &str| {
            Reply::then("HTTP/1.1 200 OK\r\nx: ", Then::Repeat(again.repeat(1000).into_bytes()))
        };
        Row::new("flood", format!("headers without end, {what}"), EIO, Box::new(lie)).requests(4)
    });
    let single = [row("flood", "500 cookies", EIO, cookies), row("flood", "a name of 1 MiB", EIO, name)];
    lines.chain(long).chain(endless).chain(single)
}

/// Encodings that were not asked for: what is not plain is never taken for the file.
fn encodings() -> impl Iterator<Item = Row> {
    let encodings = [
        "gzip",
        "x-gzip",
        "deflate",
        "br",
        "zstd",
        "compress",
        "gzip, gzip",
        "gzip,identity",
        "GZIP",
        "x-snappy-framed",
        "br;q=1",
        "a gzip",
        "gzip\r\ncontent-encoding: identity",
        "identity\r\ncontent-encoding: gzip",
    ];
    let named = encodings
        .into_iter()
        .map(|encoding| row("encoding", encoding, EIO, format!("content-encoding: {encoding}\r\n")));
    // 64 MiB that would be as much a thousand times over: nobody takes them, and nobody looks inside.
    let bombs = ["gzip", "br", "zstd"].into_iter().map(|encoding| {
        let lie = move |_: &_, _: &str, _: &str| {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-encoding: {encoding}\r\n\r\n");
            Reply::then(head, Then::Repeat(vec![0; 65_536]))
        };
        Row::new("encoding", format!("{encoding}, a bomb"), EIO, Box::new(lie)).requests(4)
    });
    named.chain(bombs)
}

/// Digests of something else: of nothing at all.
fn digests() -> impl Iterator<Item = Row> {
    let sha256 = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";
    let sha512 = "z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==";
    let lines = [
        format!("repr-digest: sha-256=:{sha256}:"),
        format!("repr-digest: sha-512=:{sha512}:"),
        format!("content-digest: sha-256=:{sha256}:"),
        format!("content-digest: md5=:AAAA:, sha-512=:{sha512}:;x=1"),
        format!("digest: SHA-256={sha256}"),
        format!("digest: md5=AAAA,sha-512={sha512}"),
        format!("digest: unixsum=1\r\nrepr-digest: sha-256=:{sha256}:"),
    ];
    // A look asks when it looks up, opens and reads: each again when the body before it has turned out to be wrong.
    lines.into_iter().map(|line| row("digest", line.clone(), EIO, format!("{line}\r\n")).requests(6))
}

/// Headers that make no sense and do no harm.
fn harmless() -> impl Iterator<Item = Row> {
    let lines = [
        "content-encoding: identity",
        "content-encoding: IDENTITY",
        "content-encoding: unknown",
        "content-encoding: *",
        "content-encoding: aws-chunked\r\ncontent-encoding: UTF-8",
        "content-encoding:",
        "etag: none",
        "etag: \"",
        "etag: W/",
        "etag: \"a\"b\"",
        "etag:",
        "last-modified: yesterday",
        "last-modified: Mon, 99 Foo 0000 99:99:99 GMT",
        "last-modified: Fri, 31 Dec 9999 23:59:59 GMT",
        "last-modified: Thu, 01 Jan 1970 00:00:00 GMT",
        "date: never",
        "age: -5",
        "age: 99999999999999999999",
        "expires: -1",
        "cache-control: max-age=-1",
        "cache-control: max-age=99999999999999999999",
        "cache-control: ,,,=,\"",
        "content-type:",
        "content-type: text/html; charset=\"",
        "content-type: application/json",
        "content-type: ////",
        "content-range: bytes 5-9/10",
        "content-range: bytes 0-0/1",
        "accept-ranges: none",
        "content-disposition: attachment; filename=\"../../etc/passwd\"",
        "content-location: /etc/passwd",
        "location: /elsewhere",
        "refresh: 0; url=/elsewhere",
        "link: </x>; rel=preload",
        "strict-transport-security: max-age=99999999",
        "alt-svc: h3=\":1\"",
        "x: \u{e9}\u{fffd}",
        "connection: upgrade\r\nupgrade: h2c",
        "keep-alive: timeout=-1",
        "trailer: x",
        "vary: *",
        "pragma: x",
        "set-cookie: a=b; path=/; domain=.",
        "www-authenticate: Basic",
        "repr-digest: sha-256=:AAAA:",
        "repr-digest: sha-256=AAAA",
        "content-digest: x=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:",
        "digest: ,,=,SHA-256=,SHA-512",
    ];
    lines.into_iter().map(|line| {
        // What is not to be trusted is asked for again, which the bound leaves room for.
        row("odd header", line, See::bytes(truth(FILE_PATH)), format!("{line}\r\n")).requests(8)
    })
}

/// Headers that are none.
fn broken() -> impl Iterator<Item = Row> {
    let lines = [
        "no colon here",
        ": no name",
        "a b: c",
        "a\0b: c",
        "x: a\0b",
        "x : y",
        "\u{e9}: x",
        "x: a\rb",
        "x: \x1b[31mred",
    ];
    lines.into_iter().map(|line| {
        let see = See::Either(crate::row::Seen::Bytes(truth(FILE_PATH)), &[Errno::IO]);
        row("broken header", line, see, format!("{line}\r\n"))
    })
}
