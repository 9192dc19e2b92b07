//! Parts of files that readers were given: they are there after a clean end of the mount.

use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{Liar, Mount, answer, noise};

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

const LENGTH: usize = 20 << 20;
const SPAN: usize = 64 << 10;
/// What is held or not held as one.
const PIECE: usize = 256 << 10;
