//! `weft stats`, its Prometheus text, and the same over HTTP.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use crate::support::{Liar, Mount, Setup, answer, damage_small, fails_with, page};

/// A site of one page and one file.
fn site() -> Liar {
    Liar::answering(|asked| match asked.path.as_str() {
        "/" => page("<a href='a.txt'>a</a>"),
        "/a.txt" if asked.header("if-none-match").is_some() => b"HTTP/1.1 304 Not Modified\r\n\r\n".to_vec(),
        "/a.txt" => answer("200 OK", &["etag: \"1\"", "cache-control: no-cache"], "text"),
        "/denied.txt" => answer("403 Forbidden", &[], ""),
        _ => answer("404 Not Found", &[], ""),
    })
}

/// Figures by name and labels as they are written, after a check of the text format 0.0.4: each family has its help
/// and type before its samples, once; labels are quoted; values are numbers; the buckets of a histogram only rise.
#[track_caller]
fn parse(text: &str) -> BTreeMap<String, f64> {
    let mut figures = BTreeMap::new();
    let (mut helped, mut typed, mut family) = (BTreeSet::new(), BTreeSet::new(), String::new());
    let mut last_bucket: Option<(String, f64)> = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a name and a help");
            assert!(helped.insert(name.to_owned()) && !help.is_empty(), "{line}");
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a name and a type");
            assert!(helped.contains(name) && typed.insert(name.to_owned()), "{line}");
            assert!(matches!(kind, "counter" | "gauge" | "histogram"), "{line}");
            family = name.to_owned();
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a series and a value");
        let value: f64 = value.parse().unwrap_or_else(|error| panic!("{error}: {line}"));
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        assert!(name == family || name.strip_prefix(&family).is_some_and(|part| part.starts_with('_')), "{line}");
        let good = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
        assert!(name.bytes().all(good), "{line}");
        for label in labels.trim_end_matches('}').split(',').filter(|label| !label.is_empty()) {
            let (key, quoted) = label.split_once('=').expect("a key and a value");
            assert!(key.bytes().all(good), "{line}");
            assert!(quoted.len() >= 2 && quoted.starts_with('"') && quoted.ends_with('"'), "{line}");
        }
        if name.ends_with("_bucket") {
            let (without_bound, _) = series.split_once("le=").expect("a bound");
            if let Some((before, least)) = &last_bucket {
                assert!(before != without_bound || value >= *least, "{line}");
            }
            last_bucket = Some((without_bound.to_owned(), value));
        }
        assert!(figures.insert(series.to_owned(), value).is_none(), "told twice: {line}");
    }
    figures
}

/// An HTTP answer as it came.
fn get(address: &str, method: &str, path: &str, host: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("connected");
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    answer
}

/// Goal: what a reader does moves the counters that tell of it, in all three views, which agree in their names.
#[test]
fn counters_move_with_what_readers_do() {
    let liar = site();
    let config = "[metrics]\nlisten = \"127.0.0.1:0\"\n";
    let Some(mount) = Mount::with(Setup::default().config(config)) else { return };
    let prometheus = || parse(&mount.verb("stats --prometheus", [mount.dir()]).out);
    let top = mount.at(liar.site());
    let before = prometheus();
    assert!(before.keys().all(|series| !series.contains("host=")), "nobody was talked to");
    for _ in 0..3 {
        assert_eq!(std::fs::read(top.join("a.txt")).expect("read"), b"text");
    }
    fails_with(std::fs::read(top.join("denied.txt")), rustix::io::Errno::ACCESS);
    let now = prometheus();
    let host = format!("binding=\"web\",host=\"{}\"", liar.host());
    let series = |name: &str| now.get(name).copied().unwrap_or_else(|| panic!("{name}"));
    let moved = |name: &str| series(name) - before.get(name).copied().unwrap_or(0.0);
    assert!(moved("weft_lookups_total{from=\"source\"}") >= 2.0);
    assert!(moved("weft_checks_total{found=\"same\"}") >= 1.0);
    assert!(moved("weft_served_bytes_total") >= 4.0);
    assert!(moved("weft_kernel_errors_total{operation=\"lookup\",errno=\"EACCES\"}") >= 1.0);
    assert_eq!(moved(&format!("weft_host_requests_total{{{host},outcome=\"answered\"}}")) as usize, liar.asked().len());
    assert!(moved(&format!("weft_host_received_bytes_total{{{host}}}")) >= 4.0);
    let opens = "weft_kernel_request_duration_seconds_count{operation=\"open\"}";
    assert_eq!(moved(opens), 3.0);
    assert_eq!(series(&opens.replace("_count{", "_bucket{").replace('}', ",le=\"+Inf\"}")), series(opens));

    let status = mount.status();
    let address = status["metrics"].as_str().expect("an address").to_owned();
    let answer = get(&address, "GET", "/metrics", &address);
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/plain; version=0.0.4"), "{head}");
    let over_http = parse(body);
    assert_eq!(over_http.keys().collect::<Vec<_>>(), now.keys().collect::<Vec<_>>());
    assert!(over_http[opens] == now[opens] && !body.contains("a.txt"), "{body}");
    assert!(get(&address, "GET", "/metrics", "evil.example").starts_with("HTTP/1.1 403"));
    assert!(get(&address, "GET", "/a", &address).starts_with("HTTP/1.1 404"));
    assert!(get(&address, "PUT", "/metrics", &address).starts_with("HTTP/1.1 405"));
    let words = mount.verb("stats", [mount.dir()]);
    assert!(words.out.contains("p99") && words.out.contains(&liar.host()), "{words:?}");
}

/// Goal: `--every` tells what is new in each interval, line by line, and ends with the mount.
#[test]
fn intervals_tell_what_is_new_in_them() {
    let liar = site();
    let Some(mount) = Mount::new() else { return };
    let mut live = mount.weft().args(["stats", "--json", "--every", "100ms"]).arg(mount.dir()).start();
    let mut read =
        |path: &str| -> Value { serde_json::from_str(&live.line()).unwrap_or_else(|e| panic!("{e}: {path}")) };
    let first = read("first");
    assert!(first["interval_seconds"].as_f64() > Some(0.0) && first["at"].as_f64() > Some(1e9), "{first}");
    assert_eq!(std::fs::read(mount.at(liar.site()).join("a.txt")).expect("read"), b"text");
    // However the read falls into intervals, they tell of it once in all.
    let mut served = 0;
    while served < 4 {
        served += read("next")["new"]["weft_served_bytes_total"].as_u64().expect("a number");
    }
    assert_eq!(served, 4);
    assert_eq!(read("later")["new"]["weft_served_bytes_total"], 0);
    let refused = mount.verb("stats --every 1ms", [mount.dir()]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    mount.umount();
    assert_eq!(live.end(), Some(3), "no mount any more");
}

/// Goal: an address that is taken keeps nothing from being mounted, and is told.
#[test]
fn an_address_that_is_taken_is_told() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address");
    let config = format!("[metrics]\nlisten = \"{address}\"\n");
    let Some(mount) = Mount::with(Setup::default().config(&config)) else { return };
    let told = mount.status()["metrics"].as_str().expect("a sentence").to_owned();
    assert!(told.contains("cannot listen") && told.contains("another address"), "{told}");
}

/// Goal: a small file that is kept is given to the kernel with its open, whole and unchanged, and damage is not.
#[test]
fn a_small_file_that_is_kept_costs_no_read() {
    let text = "word ".repeat(3000);
    let body = text.clone();
    let liar = Liar::answering(move |asked| match asked.path.as_str() {
        "/" => page("<a href='a.txt'>a</a>"),
        "/a.txt" => answer("200 OK", &["etag: \"1\"", "cache-control: max-age=9999"], &body),
        _ => answer("404 Not Found", &[], ""),
    });
    let Some(mount) = Mount::new() else { return };
    let file = mount.at(liar.site()).join("a.txt");
    assert_eq!(std::fs::read_to_string(&file).expect("fetched"), text);
    let reads = || {
        let told = parse(&mount.verb("stats --prometheus", [mount.dir()]).out);
        told["weft_kernel_request_duration_seconds_count{operation=\"read\"}"]
    };
    mount.remount();
    assert_eq!(std::fs::read_to_string(&file).expect("kept"), text);
    assert_eq!(reads(), 0.0, "what the kernel was given it need not ask for");

    mount.umount();
    damage_small(&mount.cache(), text.as_bytes());
    mount.mount();
    assert_eq!(std::fs::read_to_string(&file).expect("fetched again"), text);
    assert!(reads() > 0.0);
}
