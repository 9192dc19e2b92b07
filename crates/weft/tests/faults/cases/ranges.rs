//! Lies about ranges: a piece of a large file is the right one, of the right version, or an error.

use std::sync::LazyLock;

use rustix::io::Errno;

use crate::row::{Look, Reply, Row, See};
use crate::support::{Asked, answer, noise};

/// Content-Range headers, lengths and versions that are not what was asked for.
pub fn rows() -> Vec<Row> {
    lies().into_iter().map(row).collect()
}

/// What a server says to a range, and whether it may be believed.
struct RangeLie {
    what: &'static str,
    /// Status, headers and body for the range from `first` to `last`.
    answer: fn(&[u8], usize, usize) -> Vec<u8>,
    right: bool,
}

fn row(lie: RangeLie) -> Row {
    static CONTENT: LazyLock<Vec<u8>> = LazyLock::new(|| noise(LENGTH));
    let right = CONTENT[AT..AT + SPAN].to_vec();
    let see = if lie.right { See::bytes(right.clone()) } else { See::Fails(&[Errno::IO]) };
    let serve = move |asked: &Asked, _: &str, _: &str| {
        Reply::keep(match range_of(asked) {
            Some((first, last)) => (lie.answer)(&CONTENT, first, last),
            // It is held back far before the piece that is wanted, so that a range must be asked for.
            None => answer("200 OK", &[VERSION, "accept-ranges: bytes"], &*CONTENT),
        })
    };
    let row = Row::new("range", lie.what, see.clone(), Box::new(serve));
    let mended = See::Either(crate::row::Seen::Bytes(Vec::new()), &[Errno::IO]);
    let gone = if lie.right { see } else { See::Fails(&[Errno::HOSTUNREACH, Errno::IO]) };
    // The mended server has a short file under that name: nothing is where the piece was.
    let row = Row { content: right, ..row };
    row.look(Look::Span(b"x.bin".to_vec(), AT as u64, SPAN)).busy().gone(gone).healed(mended).requests(8)
}

fn range_of(asked: &Asked) -> Option<(usize, usize)> {
    let (first, last) = asked.header("range")?.strip_prefix("bytes=")?.split_once('-')?;
    Some((first.parse().ok()?, last.parse().unwrap_or(LENGTH - 1).min(LENGTH - 1)))
}

fn part(range: &str, version: &str, body: &[u8]) -> Vec<u8> {
    answer("206 Partial Content", &[&format!("content-range: {range}"), version], body)
}

fn said(first: usize, last: usize) -> String {
    format!("bytes {first}-{last}/{LENGTH}")
}

fn lies() -> Vec<RangeLie> {
    let lie = |what, answer| RangeLie { what, answer, right: false };
    vec![
        RangeLie { what: "the truth", answer: |c, f, l| part(&said(f, l), VERSION, &c[f..=l]), right: true },
        RangeLie {
            what: "length unknown",
            answer: |c, f, l| part(&format!("bytes {f}-{l}/*"), VERSION, &c[f..=l]),
            right: true,
        },
        lie("one byte later", |c, f, l| part(&said(f + 1, l), VERSION, &c[f + 1..=l])),
        lie("one byte earlier", |c, f, l| part(&said(f - 1, l), VERSION, &c[f - 1..=l])),
        lie("from the beginning", |c, f, l| part(&said(0, l - f), VERSION, &c[..=l - f])),
        RangeLie { what: "to the end", answer: |c, f, _| part(&said(f, LENGTH - 1), VERSION, &c[f..]), right: true },
        RangeLie {
            what: "never more than half a mebibyte",
            answer: |c, f, l| {
                let last = l.min(f + (512 << 10) - 1);
                part(&said(f, last), VERSION, &c[f..=last])
            },
            right: true,
        },
        lie("one byte only", |c, f, _| part(&said(f, f), VERSION, &c[f..=f])),
        lie("body shorter than said", |c, f, l| part(&said(f, l), VERSION, &c[f..l])),
        lie("body longer than said", |c, f, l| part(&said(f, l), VERSION, &[&c[f..=l], b"x"].concat())),
        lie("another total", |c, f, l| part(&format!("bytes {f}-{l}/{}", LENGTH * 2), VERSION, &c[f..=l])),
        lie("total too small", |c, f, l| part(&format!("bytes {f}-{l}/{f}"), VERSION, &c[f..=l])),
        lie("total zero", |c, f, l| part(&format!("bytes {f}-{l}/0"), VERSION, &c[f..=l])),
        lie("total of 2^64", |c, f, l| part(&format!("bytes {f}-{l}/18446744073709551616"), VERSION, &c[f..=l])),
        lie("last of 2^64-1", |c, f, l| part(&format!("bytes {f}-18446744073709551615/*"), VERSION, &c[f..=l])),
        lie("backwards", |c, f, l| part(&said(l, f), VERSION, &c[f..=l])),
        lie("negative", |c, f, l| part(&format!("bytes -{f}-{l}/{LENGTH}"), VERSION, &c[f..=l])),
        lie("other unit", |c, f, l| part(&format!("items {f}-{l}/{LENGTH}"), VERSION, &c[f..=l])),
        lie("empty", |c, f, l| part("", VERSION, &c[f..=l])),
        lie("no Content-Range", |c, f, l| answer("206 Partial Content", &[VERSION], &c[f..=l])),
        lie("several parts", |c, f, l| {
            answer("206 Partial Content", &["content-type: multipart/byteranges; boundary=x", VERSION], &c[f..=l])
        }),
        lie("another version", |c, f, l| part(&said(f, l), "etag: \"two\"", &c[f..=l])),
        lie("a weak version", |c, f, l| part(&said(f, l), "etag: W/\"two\"", &c[f..=l])),
        lie("whole file of another version", |c, _, _| answer("200 OK", &["etag: \"two\""], c)),
        lie("whole file, shorter", |c, _, _| answer("200 OK", &["etag: \"two\""], &c[..1000])),
        lie("precondition failed", |_, _, _| answer("412 Precondition Failed", &[], "no")),
        lie("not modified", |_, _, _| b"HTTP/1.1 304 Not Modified\r\netag: \"one\"\r\n\r\n".to_vec()),
        lie("not satisfiable", |_, _, _| answer("416 Range Not Satisfiable", &["content-range: bytes */10"], "no")),
        lie("error page", |_, _, _| answer("500 Internal Server Error", &[], "an error page")),
        lie("encoded", |c, f, l| {
            let range = format!("content-range: {}", said(f, l));
            answer("206 Partial Content", &[&range, VERSION, "content-encoding: gzip"], &c[f..=l])
        }),
        RangeLie {
            what: "the whole file, same version",
            answer: |c, _, _| answer("200 OK", &[VERSION], c),
            right: true,
        },
    ]
}

/// Length of the file.
pub const LENGTH: usize = 24 << 20;
/// Beyond how far a body runs ahead of its reader, so that it does not come along with the whole.
const AT: usize = 16 << 20;
const SPAN: usize = 64 << 10;
const VERSION: &str = "etag: \"one\"";
