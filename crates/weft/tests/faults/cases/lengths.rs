//! Lies about how long a body is: a body that does not match its announcement is no content.

use rustix::io::Errno;

use crate::row::{FILE_PATH, Reply, Row, See, Then, truth};

/// Lengths that are announced, bodies that end early, and chunks that are none.
pub fn rows() -> Vec<Row> {
    announced().chain(short()).chain(chunked()).chain(twice()).collect()
}

const EIO: See = See::Fails(&[Errno::IO]);

fn reply(headers: &str, body: &[u8], then: Then) -> Reply {
    let head = format!("HTTP/1.1 200 OK\r\ncache-control: max-age=600\r\n{headers}\r\n");
    Reply::then([head.as_bytes(), body].concat(), then)
}

/// A file that comes with these header lines and then hangs up.
fn row(case: &'static str, input: String, see: See, headers: String) -> Row {
    let lie = move |_: &_, rest: &str, _: &str| reply(&headers, &truth(rest), Then::Close);
    Row::new(case, input, see, Box::new(lie)).requests(4)
}

fn announced() -> impl Iterator<Item = Row> {
    let right = truth(FILE_PATH).len();
    let wrong = [
        (right + 1).to_string(),
        (right * 2).to_string(),
        "4294967296".to_owned(),
        "9223372036854775807".to_owned(),
        "9223372036854775808".to_owned(),
        "18446744073709551614".to_owned(),
        "18446744073709551615".to_owned(),
        "18446744073709551616".to_owned(),
        "99999999999999999999999999".to_owned(),
        "9".repeat(4000),
        "-1".to_owned(),
        format!("-{right}"),
        format!("+{right}"),
        format!("0x{right:x}"),
        format!("{right}.0"),
        format!("{right}e0"),
        format!("{right} bytes"),
        format!("{right};"),
        "a".to_owned(),
        "NaN".to_owned(),
        "\u{b9}\u{b8}".to_owned(),
        format!("{right},{}", right + 1),
        format!("{},{right}", right + 1),
    ];
    let wrong = wrong
        .into_iter()
        .map(|length| row("content-length", length.clone(), EIO, format!("content-length: {length}\r\n")));
    let same = [format!("{right}"), format!("000{right}"), format!("  {right}  ")];
    let same = same.into_iter().map(|length| {
        let see = See::bytes(truth(FILE_PATH));
        row("content-length", format!("{length:?}, right"), see, format!("content-length: {length}\r\n"))
    });
    wrong.chain(same)
}

/// Bodies that end before their announced end, at many places.
fn short() -> impl Iterator<Item = Row> {
    [0_usize, 1, 2, 1023, 1024, 4095, 4096, 16_384, 65_535, 65_536, 131_072, 262_143, 262_144, 299_999].into_iter().map(
        |sent| {
            let lie =
                move |_: &_, _: &str, _: &str| reply("content-length: 300000\r\n", &vec![b'x'; sent], Then::Close);
            Row::new("cut body", format!("{sent} of 300000 bytes"), EIO, Box::new(lie)).requests(6)
        },
    )
}

fn chunked() -> impl Iterator<Item = Row> {
    let good = truth(FILE_PATH);
    let (length, text) = (good.len(), String::from_utf8(good).expect("text"));
    let bad = [
        format!("{length:x}\r\n{text}"),
        format!("{length:x}\r\n{text}\r\n"),
        format!("{length:x}\r\n{text}\r\n0\r\n"),
        format!("{:x}\r\n{text}\r\n0\r\n\r\n", length + 1),
        format!("{:x}\r\n{text}\r\n0\r\n\r\n", length - 1),
        format!("ffffffffffffffff\r\n{text}\r\n0\r\n\r\n"),
        format!("10000000000000000\r\n{text}\r\n0\r\n\r\n"),
        format!("-1\r\n{text}\r\n0\r\n\r\n"),
        format!("xyz\r\n{text}\r\n0\r\n\r\n"),
        format!("\r\n{text}\r\n0\r\n\r\n"),
        format!("{length:x}{text}0\r\n\r\n"),
        format!("0x{length:x}\r\n{text}\r\n0\r\n\r\n"),
        format!("{length:x};{}\r\n{text}\r\n0\r\n\r\n", "e".repeat(100_000)),
        text.clone(),
    ];
    let bad = bad.into_iter().enumerate().map(|(nth, body)| {
        let lie = move |_: &_, _: &str, _: &str| reply("transfer-encoding: chunked\r\n", body.as_bytes(), Then::Close);
        Row::new("chunks", format!("broken, number {nth}"), EIO, Box::new(lie)).requests(6)
    });
    let fine = [
        format!("{length:x}\r\n{text}\r\n0\r\n\r\n"),
        format!("{length:X}\r\n{text}\r\n0\r\n\r\n"),
        format!("000{length:x};name=value\r\n{text}\r\n0\r\ntrailer: x\r\n\r\n"),
        text.chars().map(|c| format!("1\r\n{c}\r\n")).collect::<String>() + "0\r\n\r\n",
    ];
    let fine = fine.into_iter().enumerate().map(|(nth, body)| {
        let lie = move |_: &_, _: &str, _: &str| reply("transfer-encoding: chunked\r\n", body.as_bytes(), Then::Close);
        Row::new("chunks", format!("good, number {nth}"), See::bytes(truth(FILE_PATH)), Box::new(lie))
    });
    bad.chain(fine)
}

/// Two announcements that contradict each other, and none at all.
fn twice() -> impl Iterator<Item = Row> {
    let right = truth(FILE_PATH).len();
    let wrong = [
        format!("content-length: {right}\r\ncontent-length: {}\r\n", right - 1),
        format!("content-length: {}\r\ncontent-length: {right}\r\n", right - 1),
        format!("content-length: {right}\r\ntransfer-encoding: gzip\r\n"),
        format!("content-length: {right}\r\ntransfer-encoding: identity, chunked\r\n"),
        format!("transfer-encoding: chunked\r\ncontent-length: {right}\r\n"),
        format!("content-length: {right}\r\ntransfer-encoding:\x0bchunked\r\n"),
        "transfer-encoding: chunked, chunked\r\n".to_owned(),
    ];
    let wrong = wrong.into_iter().map(|headers| row("two lengths", headers.clone(), EIO, headers));
    let see = See::bytes(truth(FILE_PATH));
    let equal = format!("content-length: {right}\r\ncontent-length: {right}\r\n");
    let fine = [row(
        "two lengths",
        "equal".to_owned(),
        See::Either(crate::row::Seen::Bytes(truth(FILE_PATH)), &[Errno::IO]),
        equal,
    )];
    let none = [row("no length", "the end of the connection ends it".to_owned(), see, String::new())];
    wrong.chain(fine).chain(none)
}
