//! Every status that a server can answer a GET with: an error page never becomes content.

use rustix::io::Errno;

use crate::row::{FILE_PATH, Reply, Row, See, truth};
use crate::support::answer;

/// One row for each status from 100 to 599 and some that are none.
pub fn rows() -> Vec<Row> {
    let statuses = (100..600).map(|status| {
        let see = see(status);
        let row = Row::new("status", status.to_string(), see, Box::new(move |_, rest, _| answer_with(status, rest)));
        row.requests(4)
    });
    statuses.chain(busy()).chain(odd()).collect()
}

fn answer_with(status: u16, rest: &str) -> Reply {
    // An absence would otherwise be trusted for a minute, and a mended server not be seen.
    let trust = if matches!(status, 404 | 410) { "cache-control: no-store" } else { "x-trust: yes" };
    let headers = ["content-type: text/html", "retry-after: 3600", trust];
    let bytes = answer(&format!("{status} Reason"), &headers, truth(rest));
    // What has no body by its status leaves bytes behind that belong to nothing.
    if status < 200 || matches!(status, 204 | 304) { Reply::close(bytes) } else { Reply::keep(bytes) }
}

fn see(status: u16) -> See {
    match status {
        200 | 203 => See::bytes(truth(FILE_PATH)),
        401 | 403 | 407 | 451 => See::Fails(&[Errno::ACCESS]),
        404 | 410 => See::Fails(&[Errno::NOENT]),
        429 | 503 => See::Fails(&[Errno::AGAIN]),
        // An interim answer is none: what follows it is no answer, or nothing follows.
        100..200 => See::Fails(&[Errno::IO, Errno::HOSTUNREACH]),
        _ => See::Fails(&[Errno::IO]),
    }
}

/// Servers that ask to come back later.
fn busy() -> impl Iterator<Item = Row> {
    let waits =
        ["3600", "99999999999999999999", "-1", "soon", "Fri, 31 Dec 9999 23:59:59 GMT", "4.5", "18446744073709551615"];
    waits.into_iter().flat_map(|wait| {
        [429, 503].map(|status| {
            let lie = move |_: &_, rest: &str, _: &str| {
                let retry = format!("retry-after: {wait}");
                Reply::keep(answer(&format!("{status} Busy"), &[&retry], truth(rest)))
            };
            Row::new("busy", format!("{status}, Retry-After: {wait}"), See::Fails(&[Errno::AGAIN]), Box::new(lie))
                .requests(8)
        })
    })
}

/// First lines that are none.
fn odd() -> impl Iterator<Item = Row> {
    let lines = [
        "HTTP/1.1 000 Zero",
        "HTTP/1.1 99 Short",
        "HTTP/1.1 1000 Long",
        "HTTP/1.1 20 OK",
        "HTTP/1.1 -200 OK",
        "HTTP/1.1 2OO OK",
        "HTTP/9.9 200 OK",
        "HTTP/1.1",
        "ICY 200 OK",
        "200 OK",
        "SSH-2.0-OpenSSH_9.2",
        "220 ready",
        "\0\0\0\0",
        "\u{1b}[2J",
        "HTTP/1.1  200  OK",
        "GET / HTTP/1.1",
    ];
    lines.into_iter().map(|line| {
        let lie = move |_: &_, rest: &str, _: &str| {
            let body = truth(rest);
            let head = format!("{line}\r\ncontent-length: {}\r\n\r\n", body.len());
            Reply::close([head.into_bytes(), body].concat())
        };
        Row::new("first line", line, See::Fails(&[Errno::IO]), Box::new(lie)).requests(4)
    })
}
