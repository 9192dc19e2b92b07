//! A site of which chance decides how it answers: what it tells of versions and lengths, whether it has ranges, what it promises.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::{Asked, Chance};

/// A file of such a site.
#[derive(Debug)]
pub struct Served {
    validator: Validator,
    has_ranges: bool,
    /// Whether no length is announced.
    chunked: bool,
    promise: &'static str,
    /// The length of each version.
    lengths: Mutex<Vec<usize>>,
    /// The next body breaks off.
    breaks_off: AtomicBool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Validator {
    Strong,
    Weak,
    /// The time of its last modification, of which no two versions have the same.
    Time,
}

impl Served {
    /// One that has a first version.
    pub fn by(chance: &mut Chance) -> Served {
        let file = Served {
            validator: *chance.pick(&[Validator::Strong, Validator::Strong, Validator::Weak, Validator::Time]),
            has_ranges: chance.below(3) > 0,
            chunked: chance.below(3) == 0,
            promise: PROMISES[chance.below(PROMISES.len() as u64) as usize],
            lengths: Mutex::default(),
            breaks_off: AtomicBool::new(false),
        };
        file.change(chance);
        file
    }

    /// It is another version from now on, which is often as long.
    pub fn change(&self, chance: &mut Chance) {
        let most = *chance.pick(&[1, 40, 5000, 300_000, 3_000_000]);
        let mut lengths = self.lengths.lock().expect("no panic");
        let same = lengths.last().copied().filter(|_| chance.below(3) == 0);
        lengths.push(same.unwrap_or(chance.below(most) as usize));
    }

    /// The next body breaks off in its middle.
    pub fn break_off(&self) {
        self.breaks_off.store(true, Ordering::Relaxed);
    }

    /// The newest version: its number.
    pub fn newest(&self) -> usize {
        self.lengths.lock().expect("no panic").len() - 1
    }

    /// How long a version is.
    pub fn length(&self, number: usize) -> usize {
        self.lengths.lock().expect("no panic")[number]
    }

    /// The bytes of a version at a place, as many as it has there.
    pub fn bytes(&self, number: usize, offset: usize, most: usize) -> Vec<u8> {
        let end = self.length(number).min(offset.saturating_add(most)).max(offset);
        let mut whole = Vec::with_capacity(end - offset + 2 * BLOCK);
        for nth in offset / BLOCK..end.div_ceil(BLOCK) {
            whole.extend((number as u64).to_le_bytes());
            whole.extend((nth as u64).to_le_bytes());
        }
        let start = offset % BLOCK;
        whole.drain(..start.min(whole.len()));
        whole.truncate(end - offset);
        whole
    }

    /// Which versions have these bytes at this place, all of them.
    pub fn which(&self, offset: usize, bytes: &[u8]) -> Vec<usize> {
        let has = |number: usize, bytes: &[u8]| self.bytes(number, offset, bytes.len()) == bytes;
        let start = &bytes[..bytes.len().min(2 * BLOCK)];
        (0..=self.newest()).filter(|number| has(*number, start) && has(*number, bytes)).collect()
    }

    /// Answers a request.
    pub fn answer(&self, asked: &Asked, stream: &mut TcpStream) {
        let number = self.newest();
        let (tag, time) = (self.tag(number), time_of(number));
        let mut head = format!("cache-control: {}\r\n", self.promise);
        match self.validator {
            Validator::Time => head += &format!("last-modified: {time}\r\n"),
            Validator::Strong | Validator::Weak => head += &format!("etag: {tag}\r\n"),
        }
        let unchanged = match self.validator {
            // As most servers do: what is of a time before has not been modified since.
            Validator::Time => asked.header("if-modified-since").is_some_and(|since| moment(since) >= moment(&time)),
            Validator::Strong | Validator::Weak => asked.header("if-none-match") == Some(&tag),
        };
        if unchanged {
            return send(stream, &format!("HTTP/1.1 304 Not Modified\r\n{head}\r\n"), &[]);
        }
        let length = self.length(number);
        let holds = match asked.header("if-range") {
            Some(range) => self.validator == Validator::Strong && range == tag,
            None => true,
        };
        let range = asked.header("range").filter(|_| self.has_ranges && holds).map(|range| range_of(range, length));
        let (status, bytes) = match range {
            Some((start, end)) if start < end => {
                head += &format!("content-range: bytes {start}-{}/{length}\r\n", end - 1);
                ("206 Partial Content", self.bytes(number, start, end - start))
            }
            Some(_) => {
                head += &format!("content-range: bytes */{length}\r\ncontent-length: 0\r\n");
                return send(stream, &format!("HTTP/1.1 416 Range Not Satisfiable\r\n{head}\r\n"), &[]);
            }
            None => ("200 OK", self.bytes(number, 0, length)),
        };
        let framed = match (self.chunked, bytes.is_empty()) {
            (false, _) => bytes,
            (true, true) => b"0\r\n\r\n".to_vec(),
            (true, false) => [format!("{:x}\r\n", bytes.len()).as_bytes(), &bytes, b"\r\n0\r\n\r\n"].concat(),
        };
        let framing = match self.chunked {
            true => "transfer-encoding: chunked".to_owned(),
            false => format!("content-length: {}", framed.len()),
        };
        if asked.method == "HEAD" {
            return send(stream, &format!("HTTP/1.1 {status}\r\n{head}{framing}\r\n\r\n"), &[]);
        }
        let breaks_off = self.breaks_off.swap(false, Ordering::Relaxed);
        let sent = if breaks_off { framed.len() / 2 } else { framed.len() };
        send(stream, &format!("HTTP/1.1 {status}\r\n{head}{framing}\r\n\r\n"), &framed[..sent]);
        if breaks_off {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn tag(&self, number: usize) -> String {
        let weak = if self.validator == Validator::Weak { "W/" } else { "" };
        format!("{weak}\"{number}\"")
    }
}

/// Each second version is older than the one before, as what is put back is.
fn time_of(number: usize) -> String {
    let minutes = if number.is_multiple_of(2) { number } else { 100_000 - number };
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(1_600_000_000 + 60 * minutes as u64))
}

fn moment(date: &str) -> SystemTime {
    httpdate::parse_http_date(date).unwrap_or_else(|error| panic!("{date}: {error}"))
}

/// The first place of a range and that behind it.
fn range_of(header: &str, length: usize) -> (usize, usize) {
    let words = header.strip_prefix("bytes=").and_then(|range| range.split_once('-'));
    let (first, last) = words.unwrap_or_else(|| panic!("a range: {header}"));
    let end = last.parse::<usize>().map_or(length, |last| length.min(last + 1));
    (first.parse().expect("a number"), end)
}

fn send(stream: &mut TcpStream, head: &str, body: &[u8]) {
    // Whoever hangs up early does not want the answer.
    let _ = stream.write_all(&[head.as_bytes(), body].concat());
}

/// A version consists of pieces of so many bytes, of which each says of which version it is and which of its pieces.
const BLOCK: usize = 16;
/// How long an answer may be used.
const PROMISES: &[&str] = &["max-age=3600", "no-cache", "no-store", "max-age=0, must-revalidate", "public"];
