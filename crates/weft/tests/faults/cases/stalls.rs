//! Servers that say too little for too long, or never stop: the deadline ends every wait, and nobody takes more
//! than was wanted.

use rustix::io::Errno;

use crate::row::{FILE, Look, Reply, Row, See, Seen, Then, truth};

/// Rows that each keep a server of their own busy.
pub fn rows() -> Vec<Row> {
    silent().chain(dripping()).chain(endless()).chain(smuggled()).collect()
}

const LATE: &[Errno] = &[Errno::TIMEDOUT];

fn silent() -> impl Iterator<Item = Row> {
    let beginnings = [
        ("nothing", ""),
        ("half a first line", "HTTP/1.1 2"),
        ("a first line", "HTTP/1.1 200 OK\r\n"),
        ("half a header", "HTTP/1.1 200 OK\r\ncontent-len"),
        ("headers without their end", "HTTP/1.1 200 OK\r\ncontent-length: 19\r\n"),
        ("an interim answer", "HTTP/1.1 100 Continue\r\n\r\n"),
        ("headers", "HTTP/1.1 200 OK\r\ncontent-length: 19\r\n\r\n"),
        ("half a body", "HTTP/1.1 200 OK\r\ncontent-length: 19\r\n\r\nthe bytes"),
        ("half a chunk", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n13\r\nthe bytes"),
        ("chunks without their end", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nthe\r\n"),
        ("a redirect's headers", "HTTP/1.1 302 Found\r\nlocation: y.bin\r\ncontent-length: 9\r\n\r\n"),
    ];
    beginnings.into_iter().map(|(what, beginning)| {
        let lie = move |_: &_, _: &str, _: &str| Reply::then(beginning, Then::Hold);
        // Behind the headers of a file it is the kernel's own reading ahead that waits, and its errors are not always
        // handed on as they are. A redirect is followed without its body, here to where it has been.
        let see = match what {
            "a redirect's headers" => See::Fails(&[Errno::LOOP]),
            _ if beginning.contains("\r\n\r\n") => See::Fails(&[Errno::TIMEDOUT, Errno::IO]),
            _ => See::Fails(LATE),
        };
        Row::new("stall", what, see, Box::new(lie)).own_host().requests(24)
    })
}

fn dripping() -> impl Iterator<Item = Row> {
    let answers = [
        ("headers", "HTTP/1.1 200 OK\r\ncontent-length: 19\r\n\r\nthe bytes of x.bin\n".to_owned()),
        ("body", format!("HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n{}", "x".repeat(9999))),
        ("chunks", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_owned() + &"1\r\nx\r\n".repeat(99)),
        ("status", "HTTP/1.1 200 OKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKK".to_owned()),
        ("an error", "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 9\r\n\r\nan error.".to_owned()),
    ];
    answers.into_iter().map(|(what, text)| {
        let lie = move |_: &_, _: &str, _: &str| Reply::then([], Then::Drip(text.clone().into_bytes()));
        Row::new("drip", what, See::Fails(LATE), Box::new(lie)).own_host().requests(4)
    })
}

/// Bodies without end, of which a little is read.
fn endless() -> impl Iterator<Item = Row> {
    let heads = [
        ("announced", "content-length: 9000000000000\r\n", "x".repeat(65_536)),
        ("without a length", "", "x".repeat(65_536)),
        ("in chunks", "transfer-encoding: chunked\r\n", format!("10000\r\n{}\r\n", "x".repeat(65_536))),
        ("in chunks of one byte", "transfer-encoding: chunked\r\n", "1\r\nx\r\n".repeat(10_000)),
    ];
    heads.into_iter().map(|(what, head, again)| {
        let head = format!("HTTP/1.1 200 OK\r\n{head}\r\n");
        let lie = move |_: &_, _: &str, _: &str| Reply::then(head.clone(), Then::Repeat(again.clone().into_bytes()));
        let little = Seen::Bytes(vec![b'x'; LITTLE]);
        let see = See::Either(little.clone(), &[Errno::TIMEDOUT, Errno::IO]);
        let gone = See::Either(little, &[Errno::HOSTUNREACH, Errno::IO, Errno::NOENT]);
        let row = Row::new("endless", what, see, Box::new(lie)).busy().requests(6);
        row.look(Look::Span(FILE.to_vec(), 0, LITTLE)).gone(gone).healed(See::bytes(truth("x.bin")))
    })
}

/// Answers with more behind them, which must never answer the next request.
fn smuggled() -> impl Iterator<Item = Row> {
    let first = |rest: &str| {
        let body = truth(rest);
        [format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()).into_bytes(), body].concat()
    };
    let behind = [
        ("an answer", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwrong"),
        ("ten answers", "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
        ("half an answer", "HTTP/1.1 200 OK\r\ncontent-length: 999"),
        ("text", "wrong wrong wrong"),
        ("an absence", "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"),
    ];
    behind.into_iter().map(move |(what, text)| {
        let names = ["a", "b", "c", "d", "e"];
        let page: String = names.iter().map(|name| format!("<a href='{name}'>x</a>")).collect();
        let lie = move |_: &_, rest: &str, _: &str| match rest {
            "" => Reply::keep(crate::support::page(&page)),
            rest => Reply::keep(
                [first(rest), text.repeat(if what.starts_with("ten") { 10 } else { 1 }).into_bytes()].concat(),
            ),
        };
        let names = names.iter().map(|name| (name.as_bytes().to_vec(), Seen::Bytes(truth(name)))).collect();
        Row::list("smuggled", what, names, Box::new(lie)).own_host().requests(24)
    })
}

const LITTLE: usize = 4096;
