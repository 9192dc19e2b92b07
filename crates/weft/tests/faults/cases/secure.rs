//! Lies of servers behind TLS: frames of HTTP/2 that break its rules or come without end, and connections that are cut
//! where only TLS could tell that something is missing.

use rustix::io::Errno;

use crate::row::{FILE_PATH, Reply, Row, See, Seen, truth};
use crate::secure::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, Farewell, GOAWAY, HEADERS, PING, PUSH_PROMISE, RST_STREAM, SETTINGS,
    Speech, Twist, WINDOW_UPDATE, frame,
};

/// Rows that each have a server of their own.
pub fn rows() -> Vec<Row> {
    resets().chain(ends()).chain(lengths()).chain(floods()).chain(nonsense()).chain(cuts()).collect()
}

/// A connection that is no use any more is one that broke.
const BROKEN: &[Errno] = &[Errno::IO, Errno::HOSTUNREACH];

fn row(case: &'static str, what: &str, see: See, speech: Speech) -> Row {
    // What is refused before it was begun may be asked again, on another connection.
    Row::new(case, what, see, Box::new(|_, _, _| Reply::close([]))).spoken(speech).requests(8)
}

fn broken(what: &str, twist: Twist) -> Row {
    row("HTTP/2", what, See::Fails(BROKEN), Speech::Http2(twist, None))
}

/// The right bytes, or an error: there is nothing wrong but too much.
fn either(what: &str, twist: Twist) -> Row {
    let see = See::Either(Seen::Bytes(truth(FILE_PATH)), &[Errno::IO, Errno::HOSTUNREACH, Errno::TIMEDOUT]);
    row("HTTP/2", what, see, Speech::Http2(twist, None))
}

fn whole(stream: u32, body: &[u8]) -> Vec<u8> {
    frame(DATA, END_STREAM, stream, body)
}

fn half(stream: u32, body: &[u8]) -> Vec<u8> {
    frame(DATA, 0, stream, &body[..body.len() / 2])
}

fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &code.to_be_bytes())
}

fn goaway(last: u32, code: u32) -> Vec<u8> {
    frame(GOAWAY, 0, 0, &[last.to_be_bytes(), code.to_be_bytes()].concat())
}

/// Streams that are reset (RFC 9113 section 7 has the codes).
fn resets() -> impl Iterator<Item = Row> {
    [
        broken("reset, no error", |s, _| reset(s, 0)),
        broken("reset, protocol error", |s, _| reset(s, 1)),
        broken("reset, refused", |s, _| reset(s, 7)),
        broken("reset, cancelled", |s, _| reset(s, 8)),
        broken("reset, calm down", |s, _| reset(s, 11)),
        broken("reset, use HTTP/1.1", |s, _| reset(s, 13)),
        broken("reset, unknown code", |s, _| reset(s, u32::MAX)),
        broken("half, then reset", |s, b| [half(s, b), reset(s, 2)].concat()),
        broken("half, then reset without error", |s, b| [half(s, b), reset(s, 0)].concat()),
        either("whole, then reset", |s, b| [whole(s, b), reset(s, 1)].concat()),
        either("reset twice and 1000 times", |s, b| [whole(s, b), reset(s, 1).repeat(1000)].concat()),
    ]
    .into_iter()
}

/// Connections that end.
fn ends() -> impl Iterator<Item = Row> {
    let cut = |what, twist| row("HTTP/2", what, See::Fails(BROKEN), Speech::Http2(twist, Some(Farewell::Cut)));
    let going = [
        cut("going away in mid-body, cut", |s, b| [half(s, b), goaway(s, 0)].concat()),
        cut("going away before this stream, cut", |s, b| [half(s, b), goaway(0, 0)].concat()),
        cut("going away, calm down, cut", |s, b| [half(s, b), goaway(s, 11)].concat()),
        cut("cut in mid-body", half),
        cut("cut in mid-frame", |s, b| whole(s, b)[..12].to_vec()),
        cut("cut after the headers", |_, _| Vec::new()),
        broken("going away before this stream", |s, b| [half(s, b), goaway(0, 2)].concat()),
        either("going away with the last bytes", |s, b| [goaway(s, 0), whole(s, b)].concat()),
        either("going away, and later than before", |s, b| [goaway(1, 0), goaway(99, 0), whole(s, b)].concat()),
    ];
    going.into_iter()
}

/// Bodies that are not as long as their content-length.
fn lengths() -> impl Iterator<Item = Row> {
    [
        broken("shorter than announced", |s, b| frame(DATA, END_STREAM, s, &b[..b.len() - 1])),
        broken("nothing of what was announced", |s, _| frame(DATA, END_STREAM, s, b"")),
        broken("longer than announced", |s, b| frame(DATA, END_STREAM, s, &[b, b"x"].concat())),
        broken("much longer than announced", |s, b| [half(s, b), frame(DATA, END_STREAM, s, &[b'x'; 9000])].concat()),
        broken("padding longer than the frame", |s, b| frame(DATA, END_STREAM | 8, s, &[&[255], b].concat())),
        either("in padded pieces", |s, b| {
            let pieces = b.iter().flat_map(|byte| frame(DATA, 8, s, &[2, *byte, 0, 0]));
            pieces.chain(frame(DATA, END_STREAM, s, b"")).collect()
        }),
        either("without an end", |s, b| frame(DATA, 0, s, b)),
    ]
    .into_iter()
}

/// Frames that cost the one who reads them and bring nothing.
fn floods() -> impl Iterator<Item = Row> {
    [
        either("10,000 settings", |s, b| [frame(SETTINGS, 0, 0, b"").repeat(10_000), whole(s, b)].concat()),
        either("10,000 pings", |s, b| [frame(PING, 0, 0, b"01234567").repeat(10_000), whole(s, b)].concat()),
        either("300,000 empty frames", |s, b| [frame(DATA, 0, s, b"").repeat(300_000), whole(s, b)].concat()),
        either("10,000 frames of unknown type", |s, b| [frame(99, 255, s, b"x").repeat(10_000), whole(s, b)].concat()),
        either("10,000 resets of others", |s, b| {
            let others = (0..10_000).flat_map(|nth| reset(nth * 2 + 1001, 8));
            others.chain(whole(s, b)).collect()
        }),
        broken("header fields without end", |s, _| {
            let more = frame(CONTINUATION, 0, s, &[0x40, 1, b'x', 1, b'y'].repeat(3000));
            [frame(HEADERS, 0, s, b""), more.repeat(200)].concat()
        }),
        either("settings that take everything back", |s, b| {
            let none: Vec<u8> = [(1_u16, 0_u32), (3, 0), (4, 0), (6, 0)]
                .iter()
                .flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
                .collect();
            [frame(SETTINGS, 0, 0, &none), whole(s, b)].concat()
        }),
    ]
    .into_iter()
}

/// Frames that break the rules.
fn nonsense() -> impl Iterator<Item = Row> {
    [
        broken("content of no stream", |_, b| frame(DATA, END_STREAM, 0, b)),
        broken("a window of 2^31", |s, b| {
            let more = frame(WINDOW_UPDATE, 0, 0, &0x7fff_ffff_u32.to_be_bytes());
            [more.repeat(2), half(s, b)].concat()
        }),
        broken("a window update of 0", |s, b| [half(s, b), frame(WINDOW_UPDATE, 0, 0, &[0; 4])].concat()),
        broken("a frame of 16 MiB", |s, b| [&[255, 255, 255, DATA, 0], &s.to_be_bytes()[..], b].concat()),
        broken("a promise", |s, b| [frame(PUSH_PROMISE, END_HEADERS, s, &[0, 0, 0, 2, 0x82]), whole(s, b)].concat()),
        broken("fields that cannot be decoded", |s, b| {
            [half(s, b), frame(HEADERS, END_HEADERS | END_STREAM, s, &[0xff; 40])].concat()
        }),
        broken("text", |_, _| b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwrong".to_vec()),
        broken("settings of another stream", |s, b| [half(s, b), frame(SETTINGS, 0, s, b"")].concat()),
        broken("settings of five bytes", |s, b| [half(s, b), frame(SETTINGS, 0, 0, b"12345")].concat()),
        broken("a ping of seven bytes", |s, b| [half(s, b), frame(PING, 0, 0, b"1234567")].concat()),
        broken("content before its headers", |s, b| {
            let other = frame(DATA, END_STREAM, s + 2, b);
            [half(s, b), other, reset(s, 0)].concat()
        }),
    ]
    .into_iter()
}

/// Connections by HTTP/1.1 that are cut without a word of TLS: nobody can tell who cut them.
fn cuts() -> impl Iterator<Item = Row> {
    use Farewell::{Cut, Said};
    let right = || See::bytes(truth(FILE_PATH));
    let answers: [(&str, See, &[u8], Farewell); 6] = [
        ("no length, ended", right(), b"HTTP/1.1 200 OK\r\n\r\nthe bytes of x.bin\n", Said),
        ("no length, cut", See::Fails(BROKEN), b"HTTP/1.1 200 OK\r\n\r\nthe bytes of x.bin\n", Cut),
        ("no length, cut earlier", See::Fails(BROKEN), b"HTTP/1.1 200 OK\r\n\r\nthe bytes", Cut),
        ("cut in mid-body", See::Fails(BROKEN), b"HTTP/1.1 200 OK\r\ncontent-length: 19\r\n\r\nthe bytes", Cut),
        ("ended in mid-body", See::Fails(BROKEN), b"HTTP/1.1 200 OK\r\ncontent-length: 19\r\n\r\nthe bytes", Said),
        ("cut in mid-header", See::Fails(BROKEN), b"HTTP/1.1 200 OK\r\ncontent-len", Cut),
    ];
    answers.into_iter().map(|(what, see, lie, farewell)| row("TLS", what, see, Speech::Tls(lie, farewell)))
}
