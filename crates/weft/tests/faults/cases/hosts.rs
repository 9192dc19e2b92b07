//! Names at the top of the mount that can be no host: absent at once.

use rustix::io::Errno;

use crate::row::{Look, Reply, Row, See};

/// Names that nobody may be asked about.
pub fn rows() -> Vec<Row> {
    let long = ["l".repeat(64) + ".invalid", "a.".repeat(126) + "invalid", "x".repeat(255), "x".repeat(256)];
    let bytes = HOSTS.iter().map(|host| host.to_vec()).chain(long.map(String::into_bytes));
    let absent: &[Errno] = &[Errno::NOENT, Errno::NAMETOOLONG];
    let rows = bytes.flat_map(|host| {
        // The host itself, and a file in it.
        [&b""[..], b"/x.bin"].map(|below| {
            let path = [host.as_slice(), below].concat();
            let see = See::Fails(absent);
            let row =
                Row::new("no host", path.escape_ascii().to_string(), see.clone(), Box::new(|_, _, _| Reply::close([])));
            row.look(Look::Host(path)).gone(see.clone()).healed(see).requests(0)
        })
    });
    rows.collect()
}

const HOSTS: &[&[u8]] = &[
    b"README",
    b"..%2f",
    b"%2e%2e",
    b"%00",
    b"%",
    b"...",
    b"a..b",
    b".a.b",
    b"a.b.",
    b"-a.b",
    b"a_\xff.b",
    b"\xff",
    b"\xc0\xae.b",
    b"a b.c",
    b"a\tb.c",
    b"a\nb.c",
    b"a\r\nHost: x.y",
    b"\x1b[2J",
    b"\x7f",
    b"user@a.b",
    b"user:word@a.b:80",
    b"a.b?x",
    b"a.b#x",
    b"a.b\\x",
    b"a.b:0",
    b"a.b:-1",
    b"a.b:+80",
    b"a.b:080",
    b"a.b:65536",
    b"a.b:99999999999",
    b"a.b:",
    b"a.b:x",
    b"a.b:80:80",
    b"a.b: 80",
    b":80",
    b"[",
    b"[]",
    b"[::1",
    b"[::1]x",
    b"[::g]:80",
    b"::1",
    b"[::1%lo]:80",
    b"[::1%25lo]",
    b"127.1:80",
    b"127.0.1:80",
    b"2130706433:80",
    b"0x7f000001:80",
    b"0177.0.0.1:80",
    b"0x7f.1:80",
    b"127.0.0.1.:80",
    b"127.0.0.01:80",
    b"256.1.1.1:80",
    b"1.2.3.4.5:80",
    b"127.0.0.1%00.b",
    b"127%2e0.0.1:80",
    b"\xef\xbc\x91\xef\xbc\x92\xef\xbc\x97.0.0.1:80",
    b"127\xe3\x80\x820.0.1:80",
    b"http:",
    b"file:",
    b"https:a.b",
    b"*.b",
    b"a!.b",
    b"a,b.c",
    b"xn--a.b\xe2\x80\xae",
    b"autorun.inf",
    b".git",
    b"desktop.ini",
    b"a.b|id",
    b"$(id).b",
    b"`id`.b",
    b"<a>.b",
    b"\"a\".b",
    b"{a}.b",
    b"^a.b",
];
