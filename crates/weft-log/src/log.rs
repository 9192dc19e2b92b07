//! A real log, as requests. Bad lines are counted and left out.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use crate::line::{self, Line};
use crate::worldcup::{self, RECORD_BYTES};
use crate::{Act, Request, Trace};

/// How a log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// A line each: the common format or the combined one.
    Lines,
    /// Records of 20 bytes, as the World Cup of 1998 has them.
    Worldcup,
}

impl std::str::FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<LogFormat, String> {
        match text {
            "lines" => Ok(LogFormat::Lines),
            "worldcup" => Ok(LogFormat::Worldcup),
            _ => Err(format!("`{text}` is no format of a log: lines or worldcup")),
        }
    }
}

/// What a log held.
#[derive(Debug, Default)]
pub struct Log {
    /// Reads of objects, in the order of the log: a server writes when an answer has gone, whatever the clock says.
    pub trace: Trace,
    /// Lines or records in all.
    pub lines: u64,
    /// Of these such as make no sense.
    pub bad: u64,
    /// Requests that read no object: other methods, errors, redirections.
    pub others: u64,
    /// Whether the log went on after [`REQUESTS_MAX`].
    pub is_cut: bool,
}

impl Log {
    /// Reads a log.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(path: &Path, format: LogFormat) -> io::Result<Log> {
        Log::of(BufReader::new(File::open(path)?), format)
    }

    /// Reads a log from anywhere.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn of(reader: impl BufRead, format: LogFormat) -> io::Result<Log> {
        match format {
            LogFormat::Lines => Log::of_lines(reader),
            LogFormat::Worldcup => Log::of_records(reader),
        }
    }

    fn of_lines(mut reader: impl BufRead) -> io::Result<Log> {
        let (mut log, mut names, mut clients) = (Log::default(), Numbers::default(), Numbers::default());
        let (mut hosts, mut referers) = (Numbers::default(), Vec::new());
        let mut bytes = Vec::new();
        while log.goes_on(!reader.fill_buf()?.is_empty()) {
            let is_whole = next_line(&mut reader, &mut bytes)?;
            let parsed = if is_whole { line::parse(bytes.trim_ascii()) } else { None };
            let Some(line) = parsed else {
                log.bad += 1;
                continue;
            };
            if line.method != b"GET" || !READ.contains(&line.status) {
                log.others += 1;
                continue;
            }
            let split = line.referer.and_then(url);
            referers.push(split.map(|(host, path)| (hosts.of(host), names.of(path))));
            let object = names.of(url(line.target).map_or(line.target, |(_, path)| path));
            let client = clients.of(line.client);
            log.trace.requests.push(Request {
                time_s: line.time_s,
                client,
                object,
                bytes: whole_length(&line),
                referer: None,
                act: Act::Read,
            });
        }
        log.trace.names = names.names;
        // The host that refers most is the site itself: what others refer to has no page here.
        let mut counts = vec![0u32; hosts.names.len()];
        referers.iter().flatten().for_each(|(host, _)| counts[*host as usize] += 1);
        let own = (0..counts.len()).max_by_key(|host| counts[*host]);
        for (request, referer) in log.trace.requests.iter_mut().zip(referers) {
            request.referer = referer.filter(|(host, _)| Some(*host as usize) == own).map(|(_, path)| path);
        }
        Ok(log)
    }

    fn of_records(mut reader: impl BufRead) -> io::Result<Log> {
        let (mut log, mut names) = (Log::default(), Numbers::default());
        while log.goes_on(!reader.fill_buf()?.is_empty()) {
            let mut bytes = Vec::with_capacity(RECORD_BYTES);
            reader.by_ref().take(RECORD_BYTES as u64).read_to_end(&mut bytes)?;
            let record = <[u8; RECORD_BYTES]>::try_from(bytes).ok().and_then(|record| worldcup::parse(&record));
            match record {
                Some(record) if record.is_read => log.trace.requests.push(Request {
                    time_s: record.time_s,
                    client: record.client,
                    object: names.of(record.object.to_string().as_bytes()),
                    bytes: record.bytes,
                    referer: None,
                    act: Act::Read,
                }),
                Some(_) => log.others += 1,
                None => log.bad += 1,
            }
        }
        log.trace.names = names.names;
        Ok(log)
    }

    /// Counts one more where there is one, until there are too many.
    fn goes_on(&mut self, has_more: bool) -> bool {
        self.is_cut = has_more && self.trace.requests.len() >= REQUESTS_MAX;
        let goes_on = has_more && !self.is_cut;
        self.lines += u64::from(goes_on);
        goes_on
    }
}

/// Reads up to the end of a line; whether it was short enough.
fn next_line(reader: &mut impl BufRead, bytes: &mut Vec<u8>) -> io::Result<bool> {
    bytes.clear();
    reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', bytes)?;
    let is_whole = bytes.ends_with(b"\n") || (bytes.len() as u64) < LINE_BYTES_MAX;
    if !is_whole {
        reader.skip_until(b'\n')?;
    }
    Ok(is_whole)
}

/// The length of the object, where the line tells it: not of a part, and not of what was not sent.
fn whole_length(line: &Line<'_>) -> Option<u32> {
    let bytes = line.bytes.filter(|_| line.status == 200)?;
    u32::try_from(bytes).ok()
}

/// Host, without `www.`, and path of a whole URL, without the fragment.
fn url(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = text.strip_prefix(b"http://").or_else(|| text.strip_prefix(b"https://"))?;
    let rest = rest.split(|byte| *byte == b'#').next()?;
    let end = rest.iter().position(|byte| *byte == b'/');
    let (host, path) = end.map_or((rest, &b"/"[..]), |end| rest.split_at(end));
    Some((host.strip_prefix(b"www.").unwrap_or(host), path))
}

/// Numbers for names, in the order in which they came.
#[derive(Default)]
struct Numbers {
    names: Vec<String>,
    by_name: HashMap<String, u32>,
}

impl Numbers {
    fn of(&mut self, name: &[u8]) -> u32 {
        let name = String::from_utf8_lossy(name);
        if let Some(number) = self.by_name.get(&*name) {
            return *number;
        }
        let number = u32::try_from(self.names.len()).expect("no more than three for each request");
        self.names.push(name.clone().into_owned());
        self.by_name.insert(name.into_owned(), number);
        number
    }
}

/// Most requests that are taken of a log; the rest is left.
pub const REQUESTS_MAX: usize = 20_000_000;
/// Longer lines are bad ones.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// What gives an object, or tells a client that it has it.
const READ: [u16; 3] = [200, 206, 304];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(text: &str) -> Log {
        Log::of_lines(text.as_bytes()).unwrap()
    }

    #[test]
    fn reads_are_taken_and_the_rest_is_counted() {
        let time = "[17/May/2015:10:05:03 +0000]";
        let long = "x".repeat(70_000);
        let log = of(&format!(
            "a - - {time} \"GET /p/ HTTP/1.1\" 200 100 \"-\" \"-\"\n\
             a - - {time} \"GET /p/i.png HTTP/1.1\" 200 50 \"http://www.s/p/\" \"-\"\n\
             b - - {time} \"GET /p/i.png HTTP/1.1\" 304 - \"http://s/p/#top\" \"-\"\n\
             b - - {time} \"GET http://s/q?r HTTP/1.1\" 206 7 \"http://other/p/\" \"-\"\n\
             b - - {time} \"POST /p/ HTTP/1.1\" 200 5 \"-\" \"-\"\n\
             b - - {time} \"GET /none HTTP/1.1\" 404 5 \"-\" \"-\"\n\
             nonsense\n\
             {long}\n\
             a - - {time} \"GET /last HTTP/1.1\" 200 1"
        ));
        assert_eq!((log.lines, log.bad, log.others, log.is_cut), (9, 2, 2, false));
        let names = |request: &Request| log.trace.names[request.object as usize].clone();
        let referer = |request: &Request| request.referer.map(|page| log.trace.names[page as usize].clone());
        let requests = &log.trace.requests;
        assert_eq!(requests.iter().map(names).collect::<Vec<_>>(), ["/p/", "/p/i.png", "/p/i.png", "/q?r", "/last"]);
        let page = Some("/p/".to_owned());
        assert_eq!(requests.iter().map(referer).collect::<Vec<_>>(), [None, page.clone(), page, None, None]);
        assert_eq!(requests.iter().map(|request| request.client).collect::<Vec<_>>(), [0, 0, 1, 1, 0]);
        let lengths = log.trace.lengths();
        assert_eq!(lengths[requests[1].object as usize], Some(50));
        assert_eq!(lengths[requests[3].object as usize], None, "a part tells nothing of the whole");
        assert_eq!(log.trace.folder(requests[3].object), "/");
    }

    #[test]
    fn records_are_read_and_half_a_one_is_bad() {
        let record = |object: u32, method: u8, status: u8| {
            let mut bytes = [9u32, 5, object, 700].map(u32::to_be_bytes).concat();
            bytes.extend([method, status, 0, 0]);
            bytes
        };
        let bytes =
            [record(70, 0, 0x82), record(71, 2, 2), record(70, 0, 13), record(70, 99, 2), vec![1, 2, 3]].concat();
        let log = Log::of_records(&bytes[..]).unwrap();
        assert_eq!((log.lines, log.bad, log.others), (5, 2, 1));
        assert_eq!(log.trace.names, ["70"]);
        assert_eq!(log.trace.requests.len(), 2);
        assert_eq!((log.trace.requests[0].time_s, log.trace.requests[0].bytes), (9, Some(700)));
    }

    proptest! {
        #[test]
        fn any_log_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let log = Log::of_lines(&bytes[..]).unwrap();
            prop_assert_eq!(log.lines, log.bad + log.others + log.trace.requests.len() as u64);
            let log = Log::of_records(&bytes[..]).unwrap();
            prop_assert_eq!(log.lines as usize, bytes.len().div_ceil(RECORD_BYTES));
        }
    }
}
