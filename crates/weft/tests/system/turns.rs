//! Long downloads of one host, which take turns.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::interrupts::wait_until;
use crate::support::{Mount, Server, Setup, names_in, write_aged};

/// Bytes of a file that takes longer than the deadline at the server's pace.
const LONG_BYTES: usize = 9 << 20;
/// What is read of it: its reader gave way, and had another turn.
const READ_BYTES: usize = 5 << 20;

/// Bytes of which no two parts are the same.
fn bytes_of(length: usize) -> Vec<u8> {
    (0..length as u32 / 4).flat_map(u32::to_le_bytes).collect()
}

/// Reads a file until it has so many bytes, and is told that others are done.
fn read_on(file: &Path, wanted: &[u8], others_done: &AtomicBool) {
    let file = File::open(file).expect("opened");
    let (mut piece, mut at) = (vec![0; 64 << 10], 0);
    while at < LONG_BYTES && (at < READ_BYTES || !others_done.load(Ordering::SeqCst)) {
        let read = file.read_at(&mut piece, at as u64).unwrap_or_else(|error| panic!("at {at}: {error}"));
        assert!(piece[..read] == wanted[at..at + read], "other bytes at {at}");
        at += read;
    }
}

/// Goal: a download that would be there long after another's deadline keeps nobody waiting for so long, and comes on all the same;
/// looks and short files do not wait for either. Method: a host with one connection for such, and a slow server.
#[test]
fn downloads_take_turns() {
    let Some(server) = Server::nginx("limit_rate 1m;") else { return };
    let config = "[mount]\ndeadline = \"6s\"\n[web]\nconnections_per_host = 1\n";
    let Some(mount) = Mount::with(Setup::default().config(config)) else { return };
    let (root, dir) = (server.root(), mount.at(server.site()));
    let bytes = bytes_of(LONG_BYTES);
    // What was changed this second is sent in one piece.
    write_aged(&root.join("long.bin"), &bytes, 0);
    write_aged(&root.join("other.bin"), &bytes[..1 << 20], 0);
    std::fs::write(root.join("short.txt"), "short").expect("written");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let long = scope.spawn(|| read_on(&dir.join("long.bin"), &bytes, &done));
        let other = scope.spawn(|| {
            wait_until("a download that is under way", || mount.figure("received_bytes") >= 1 << 20);
            std::fs::read(dir.join("other.bin"))
        });
        assert_eq!(names_in(&dir).len(), 3);
        assert_eq!(std::fs::read(dir.join("short.txt")).expect("read"), b"short");
        let other = other.join().expect("read");
        done.store(true, Ordering::SeqCst);
        assert!(other.expect("read within the deadline") == bytes[..1 << 20]);
        long.join().expect("read");
    });
    let status = mount.status();
    assert_eq!(status["troubles"].as_array().map(Vec::len), Some(0), "{status}");
}
