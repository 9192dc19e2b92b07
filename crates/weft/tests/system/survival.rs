//! Crashes, many readers, slow bodies, changing files.

use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use rustix::io::Errno;

use crate::support::{Liar, Mount, Server, Setup, answer, fails_with, noise, page, write_aged};

/// Goal: whatever was told to be cached is served after a crash with nobody to ask, and nothing readable is wrong.
/// Method: readers go through many files, the daemon is killed in the middle of it, ten times, at a place that
/// differs from round to round.
#[test]
fn a_killed_daemon_loses_nothing_that_it_had_committed() {
    const FILES: usize = 400;
    let (Some(mut server), Some(mount)) = (Server::nginx(""), Mount::new()) else { return };
    let content = |nth: usize| format!("line of file {nth}\n").repeat(1 + (nth * 7919) % 3000);
    for nth in 0..FILES {
        write_aged(&server.root().join(format!("d{}/{nth}.txt", nth % 8)), content(nth).as_bytes(), nth as u64);
    }
    let top = mount.at(server.site());
    let file = |nth: usize| top.join(format!("d{}/{nth}.txt", nth % 8));
    let mut cached: Vec<usize> = Vec::new();
    for round in 0..10 {
        server.stop();
        for nth in &cached {
            let read =
                std::fs::read_to_string(file(*nth)).unwrap_or_else(|error| panic!("file {nth} was cached: {error}"));
            assert!(read == content(*nth), "file {nth} after round {round}");
        }
        server.restart();
        // A host that was away is asked again after a moment; until then it is answered for as down.
        while std::fs::read(file((round * 37) % FILES)).is_err() {
            std::thread::yield_now();
        }
        let files: Vec<PathBuf> = (0..FILES).map(|nth| file((nth + round * 40) % FILES)).collect();
        cached = kill_while_reading(&mount, &top, &files, round);
        assert_eq!(mount.verb("umount --lazy", [mount.dir()]).code, Some(0));
        mount.mount();
        assert!(!cached.is_empty(), "something was said to be cached");
    }
}

/// Goal: a verb that comes between a daemon's end and the next one waits for that.
#[test]
fn a_verb_waits_for_the_next_daemon() {
    let Some(mount) = Mount::new() else { return };
    for _ in 0..5 {
        let former = mount.daemon();
        rustix::process::kill_process(former, rustix::process::Signal::KILL).expect("killed");
        let told = mount.verb("status --json", [mount.dir()]);
        assert_eq!(told.code, Some(0), "{told:?}");
    }
}

/// Reads `files` from four threads and kills the daemon when a number of them that depends on the round is read. Gives
/// the numbers of the files that it said to be cached just before.
fn kill_while_reading(mount: &Mount, top: &Path, files: &[PathBuf], round: usize) -> Vec<usize> {
    let (told, read) = mpsc::channel();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (told, next) = (told.clone(), &next);
            scope.spawn(move || {
                while let Some(file) = files.get(next.fetch_add(1, Ordering::SeqCst)) {
                    // Errors are expected once the daemon is dead.
                    if std::fs::read(file).is_err() || told.send(()).is_err() {
                        return;
                    }
                }
            });
        }
        drop(told);
        let enough = 5 + (round * 31) % 120;
        read.iter().take(enough).for_each(drop);
        let cached = whole_names(mount, top);
        mount.kill9();
        cached
    })
}

/// The numbers of the files that are said to be cached whole.
fn whole_names(mount: &Mount, top: &Path) -> Vec<usize> {
    let folders: Vec<PathBuf> = (0..8).map(|nth| top.join(format!("d{nth}"))).collect();
    let known = folders.iter().filter(|folder| mount.verb("why", [folder]).code == Some(0));
    let lists = mount.json("ls -w --all", known);
    let names =
        lists.as_array().expect("lists").iter().flat_map(|list| list["names"].as_array().expect("names").clone());
    let whole = names.filter(|name| name["cached"] == "whole");
    whole
        .map(|name| {
            let name = name["name"].as_str().expect("a text").to_owned();
            name.strip_suffix(".txt").and_then(|number| number.parse().ok()).expect("one of our names")
        })
        .collect()
}

#[test]
fn the_first_bytes_are_read_before_the_last_are_sent() {
    let (go_on, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let whole = noise(2 << 20);
    let of_liar = whole.clone();
    let liar = Liar::talking(move |asked, stream| {
        let bytes = if asked.path == "/slow.bin" {
            let head = format!("HTTP/1.1 200 OK\r\nx: y\r\ncontent-length: {}\r\n\r\n", of_liar.len());
            let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&of_liar[..1 << 20]));
            // The second half is sent only when the test has read from the first.
            let _ = sent.map(|()| wait.lock().expect("no panic").recv());
            of_liar[1 << 20..].to_vec()
        } else {
            page("<a href='slow.bin'>s</a>")
        };
        let _ = stream.write_all(&bytes);
    });
    let Some(mount) = Mount::new() else { return };
    let file = std::fs::File::open(mount.at(liar.site()).join("slow.bin")).expect("opened");
    let mut start = vec![0; 4096];
    file.read_exact_at(&mut start, 0).expect("read");
    assert!(start == whole[..4096]);
    go_on.send(()).expect("the server waits");
    let mut all = Vec::new();
    (&file).read_to_end(&mut all).expect("read");
    assert!(all == whole);
    assert_eq!(liar.times("/slow.bin"), 1);
}

#[test]
fn many_readers_of_many_files_get_their_bytes() {
    const FILES: usize = 120;
    let liar = Liar::answering(|asked| match asked.path.trim_matches(['/', '.', 'b', 'i', 'n']).parse::<usize>() {
        Ok(nth) => answer("200 OK", &["cache-control: max-age=3600"], &noise(200_000 + nth)[nth..]),
        Err(_) => page("top"),
    });
    let Some(mount) = Mount::new() else { return };
    let top = mount.at(liar.site());
    let whole = noise(200_000 + FILES);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (top, whole) = (&top, &whole);
            scope.spawn(move || {
                for step in 0..FILES {
                    let nth = (step * 7 + thread * 15) % FILES;
                    let read = std::fs::read(top.join(format!("{nth}.bin"))).expect("read");
                    assert!(read == whole[nth..200_000 + nth], "file {nth}");
                }
            });
        }
    });
    let twice: Vec<usize> = (0..FILES).filter(|nth| liar.times(&format!("/{nth}.bin")) != 1).collect();
    assert_eq!(twice, [0_usize; 0], "eight readers, one request each");
}

#[test]
fn an_open_file_is_one_version() {
    let version = Arc::new(AtomicU64::new(1));
    let served = version.clone();
    let liar = Liar::answering(move |asked| match asked.path.as_str() {
        "/a.txt" => {
            let now = served.load(Ordering::SeqCst);
            let text = format!("version {now} ").repeat(30_000);
            answer("200 OK", &[&format!("etag: \"{now}\""), "cache-control: no-cache"], text)
        }
        _ => page("top"),
    });
    // A file that is all here when it is opened is the kernel's to read, and then no other version can be opened.
    let Some(mount) = Mount::with(Setup::default().option("no_passthrough")) else { return };
    let path = mount.at(liar.site()).join("a.txt");
    let text = |nth: u64| format!("version {nth} ").repeat(30_000);
    let read = |file: &std::fs::File| {
        let mut text = vec![0; 30_000 * 10];
        file.read_exact_at(&mut text, 0).expect("read");
        String::from_utf8(text).expect("UTF-8")
    };
    let first = std::fs::File::open(&path).expect("opened");
    assert!(read(&first) == text(1));
    version.store(2, Ordering::SeqCst);
    let second = std::fs::File::open(&path).expect("opened");
    assert!(read(&second) == text(2), "the new open sees the new version");
    assert!(read(&first) == text(1), "the old one still has its own");
    assert!(read(&second) == text(2));
}

#[test]
fn a_file_that_changes_while_it_is_fetched_by_range_is_an_error_and_never_a_mix() {
    let version = Arc::new(AtomicU64::new(1));
    let served = version.clone();
    let liar = ranged(move || (served.load(Ordering::SeqCst), 64 << 20));
    let Some(mount) = Mount::new() else { return };
    let path = mount.at(liar.site()).join("large.bin");
    let file = std::fs::File::open(&path).expect("opened");
    let mut bytes = [0; 1000];
    file.read_exact_at(&mut bytes, 60 << 20).expect("read");
    assert_eq!(bytes[0], 1);
    version.store(2, Ordering::SeqCst);
    // Far from what the first body may have brought by now.
    fails_with(file.read_exact_at(&mut bytes, 40 << 20), Errno::IO);
}

/// A server of `/large.bin`, each byte of which is the version, that knows ranges. `state` gives version and length.
fn ranged(state: impl Fn() -> (u64, usize) + Send + Sync + 'static) -> Liar {
    Liar::answering(move |asked| {
        let (version, length) = state();
        if asked.path != "/large.bin" {
            return page("<a href='large.bin'>l</a>");
        }
        let tag = format!("etag: \"{version}\"");
        let body = |range: std::ops::Range<usize>| vec![version as u8; range.len()];
        let range = asked.header("range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
        let same = asked.header("if-range").is_none_or(|wanted| tag.ends_with(wanted));
        match range {
            Some((start, end)) if same => {
                let start: usize = start.parse().expect("a number");
                let end = end.parse().map_or(length, |end: usize| (end + 1).min(length));
                let content_range = format!("content-range: bytes {start}-{}/{length}", end - 1);
                answer("206 Partial Content", &[&tag, &content_range, "accept-ranges: bytes"], body(start..end))
            }
            _ => answer("200 OK", &[&tag, "accept-ranges: bytes"], body(0..length)),
        }
    })
}

#[test]
fn a_piece_of_a_large_file_does_not_cost_all_of_it() {
    const LENGTH: usize = 96 << 20;
    let Some((server, mount)) = Server::nginx("").zip(Mount::new()) else { return };
    let file = std::fs::File::create(server.root().join("large.bin")).expect("made");
    file.set_len(LENGTH as u64).expect("set");
    for place in [0, 40 << 20, LENGTH as u64 - 100] {
        file.write_all_at(b"here", place).expect("written");
    }
    // What was changed this second is sent in one piece.
    file.set_modified(std::time::SystemTime::UNIX_EPOCH).expect("set");
    let path = mount.at(server.site()).join("large.bin");
    let open = std::fs::File::open(&path).expect("opened");
    for place in [40 << 20, LENGTH as u64 - 100, 0] {
        let mut bytes = [0; 4];
        open.read_exact_at(&mut bytes, place).expect("read");
        assert_eq!(&bytes, b"here", "{place}");
    }
    let received = mount.figure("received_bytes");
    assert!(received < LENGTH as u64 / 2, "{received} bytes came");
    assert!(mount.json("ls -w --all", [&path])[0]["names"][0]["cached"] != "whole");
    drop(open);
    let disk = std::fs::read(server.root().join("large.bin")).expect("read");
    assert!(std::fs::read(&path).expect("read") == disk, "and all of it can be had");
}

#[test]
fn a_slow_reader_of_a_dead_server_ends_at_the_deadline() {
    let liar = Liar::talking(|asked, stream| {
        let bytes = match asked.path.as_str() {
            "/half.bin" => {
                [b"HTTP/1.1 200 OK\r\netag: \"1\"\r\ncontent-length: 2000000\r\n\r\n", &noise(500_000)[..]].concat()
            }
            _ => page("top"),
        };
        let _ = stream.write_all(&bytes);
        // And nothing more comes.
    });
    let Some(mount) = Mount::with(Setup::default().option("deadline=2s")) else { return };
    let file = std::fs::File::open(mount.at(liar.site()).join("half.bin")).expect("opened");
    let mut bytes = vec![0; 100_000];
    file.read_exact_at(&mut bytes, 0).expect("what has come is there");
    assert!(bytes == noise(100_000));
    fails_with(file.read_exact_at(&mut bytes, 1_500_000), Errno::TIMEDOUT);
}
