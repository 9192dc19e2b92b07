//! A million names from one page, and from one list in JSON: what is shown is right, no more than the documented bounds,
//! and the rest is there by name.

use std::sync::Arc;

use crate::support::{Liar, Mount, Setup, answer};

/// Links of a page that count.
const LINKS_MAX: usize = 100_000;
/// Names that the server tells.
const NAMES: usize = 1_000_000;
/// Most memory of a daemon that was told so much.
const MEMORY_BYTES_MAX: u64 = 320 << 20;

/// Goal: what is shown is right and the daemon lives within bounds. Method: the directory is listed, every name held
/// against what the server told; a name that is not shown is read, and the mount serves another path afterwards.
#[track_caller]
fn check(kind: &'static str, shown: usize, why: &str, body: Vec<u8>) {
    let body = Arc::new(body);
    let liar = Liar::answering(move |asked| match asked.path.as_str() {
        "/many/" => answer("200 OK", &[kind, "cache-control: max-age=9999"], &*body),
        "/many" => answer("301 Moved", &["location: /many/"], ""),
        _ => answer("200 OK", &["content-type: text/plain"], "alive"),
    });
    // Without optimisation, on a busy machine, so much takes its time.
    let setup = Setup::default().config("[mount]\ndeadline = \"300s\"\n");
    let Some(mount) = Mount::with(setup) else { return };
    let dir = mount.at(liar.site()).join("many");
    let read = std::fs::read_dir(&dir).unwrap_or_else(|error| panic!("{kind}: {error}"));
    let mut names: Vec<_> = read.map(|entry| entry.expect("an entry").file_name()).collect();
    names.retain(|name| name != "index.html");
    names.sort();
    let wanted: Vec<_> = (0..shown).map(|nth| std::ffi::OsString::from(format!("n{nth:06}.txt"))).collect();
    assert!(names == wanted, "{kind}: {} names, from {:?} to {:?}", names.len(), names.first(), names.last());
    let told = mount.verb("why", [&dir]).out;
    assert!(told.contains(why), "{kind}: {told}");
    assert_eq!(std::fs::read(dir.join("n999999.txt")).expect("there by name"), b"alive");
    assert_eq!(std::fs::read(mount.at(liar.site()).join("other.txt")).expect("alive"), b"alive");
    let status = std::fs::read_to_string(format!("/proc/{}/status", mount.daemon().as_raw_nonzero())).expect("alive");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
    let peak: u64 = peak.map(|kib: u64| kib * 1024).expect("a number");
    println!("{kind}: {} MiB", peak >> 20);
    assert!(peak <= MEMORY_BYTES_MAX, "{kind}: {peak} bytes of memory");
}

#[test]
fn a_page_of_a_million_links() {
    let links: String = (0..NAMES).map(|nth| format!("<a href=n{nth:06}.txt>x</a>\n")).collect();
    check("content-type: text/html", LINKS_MAX, "links of the first 16 MiB of the page", links.into_bytes());
}

/// A list that is too long to be read as one is none: it is no part of what it might be.
#[test]
fn a_json_list_of_a_million_names() {
    let row = |nth: usize| {
        format!(
            "{{\"name\":\"n{nth:06}.txt\",\"type\":\"file\",\"mtime\":\"Sat, 03 Feb 2024 04:05:06 GMT\",\"size\":1}}"
        )
    };
    let rows: Vec<String> = (0..NAMES).map(row).collect();
    check("content-type: application/json", 0, "more than 16 MiB", format!("[{}]", rows.join(",")).into_bytes());
}
