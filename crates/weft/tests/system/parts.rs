//! Parts of files that readers were given: they are there after a clean end of the mount.

use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

use crate::support::{Liar, Mount, answer, fails_with, noise};

/// A server of one large file that sends a body no further than `stop`, and nothing at all once `gone` is set.
/// It announces ranges and gives the whole file instead.
fn stopping(stop: usize, gone: Arc<AtomicBool>) -> Liar {
    let content = noise(LENGTH);
    Liar::talking(move |_, stream| {
        if gone.load(Ordering::SeqCst) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
            return;
        }
        let whole = answer("200 OK", &["etag: \"one\"", "accept-ranges: bytes"], &content);
        let head = whole.len() - content.len();
        // Whoever hangs up early does not want the answer; the rest is kept back until they do.
        let _ = stream.write_all(&whole[..head + stop]).and_then(|()| stream.read(&mut [0]));
    })
}

/// Goal: bytes that a reader was given are there after a remount without the server. Method: the file is closed and
/// the mount taken away while the body is still on its way, which the server holds back.
#[track_caller]
fn stays_after_a_remount(at: usize) {
    let gone = Arc::new(AtomicBool::new(false));
    let liar = stopping((at + SPAN).next_multiple_of(PIECE), gone.clone());
    let Some(mount) = Mount::new() else { return };
    let file = mount.at(liar.site()).join("large.bin");
    let read = |file: &std::path::Path| {
        let mut bytes = vec![0; SPAN];
        let read = std::fs::File::open(file).and_then(|file| file.read_exact_at(&mut bytes, at as u64));
        read.unwrap_or_else(|error| panic!("{SPAN} bytes at {at}: {error}"));
        bytes
    };
    assert!(read(&file) == noise(LENGTH)[at..at + SPAN]);
    gone.store(true, Ordering::SeqCst);
    mount.remount();
    assert!(read(&file) == noise(LENGTH)[at..at + SPAN]);
}

#[test]
fn the_first_part_of_a_body_that_is_still_coming_stays() {
    stays_after_a_remount(PIECE);
}

#[test]
fn a_piece_brought_by_a_server_that_gives_the_whole_for_a_range_stays() {
    stays_after_a_remount(12 << 20);
}

/// A server that closes each connection after a mebibyte of a body. It gives ranges, or only says so.
fn cutting(has_ranges: bool) -> Liar {
    let content = noise(CUT_LENGTH);
    Liar::talking(move |asked, stream| {
        let start =
            asked.header("range").and_then(|range| range.strip_prefix("bytes=")?.split('-').next()?.parse().ok());
        let headers = ["etag: \"one\"", "accept-ranges: bytes"];
        let whole = match start.filter(|_| has_ranges) {
            Some(start) => {
                let said = format!("content-range: bytes {start}-{}/{CUT_LENGTH}", CUT_LENGTH - 1);
                answer("206 Partial Content", &[headers[0], &said], &content[start..])
            }
            None => answer("200 OK", &headers, &content),
        };
        // The client may have hung up.
        let _ = stream.write_all(&whole[..whole.len().min(1 << 20)]);
        let _ = stream.shutdown(std::net::Shutdown::Both);
    })
}

/// Goal: what a server does not bring in one body comes in several, for readers and for `weft warm`, each from where the one
/// before broke off.
#[test]
fn a_body_that_breaks_off_is_gone_on_with() {
    let liar = cutting(true);
    let Some(mount) = Mount::new() else { return };
    let top = mount.at(liar.site());
    assert!(std::fs::read(top.join("read.bin")).expect("read") == noise(CUT_LENGTH));
    let warmed = mount.verb("warm --ignore-robots", [top.join("warm.bin")]);
    assert_eq!(warmed.code, Some(0), "{warmed:?}");
    for name in ["/read.bin", "/warm.bin"] {
        assert!(liar.times(name) <= 14, "{name} was asked for {} times", liar.times(name));
    }
    let asked = liar.asked().len();
    assert!(std::fs::read(top.join("warm.bin")).expect("read") == noise(CUT_LENGTH));
    assert_eq!(liar.asked().len(), asked, "all is here");
}

#[test]
fn a_body_that_always_breaks_off_at_the_same_place_is_an_error() {
    let liar = cutting(false);
    let Some(mount) = Mount::new() else { return };
    let file = mount.at(liar.site()).join("large.bin");
    fails_with(std::fs::read(&file), Errno::IO);
    assert!(liar.times("/large.bin") <= 6, "asked for {} times", liar.times("/large.bin"));
}

/// Of a file whose bodies all break off.
const CUT_LENGTH: usize = 5 << 20;
const LENGTH: usize = 20 << 20;
const SPAN: usize = 64 << 10;
/// What is held or not held as one.
const PIECE: usize = 256 << 10;
