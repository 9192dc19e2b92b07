//! A directory that goes away while it is mounted, and comes back.

use std::io;

use crate::interrupts::wait_until;
use crate::support::{Exit, Mount, Setup};

/// Goal: a daemon that ends while the directory is away, as a disk that is taken out, is followed by another all the same: what
/// is held is read, the rest is EHOSTUNREACH, and it is found when it is back.
#[test]
fn a_daemon_that_ends_while_its_directory_is_away_is_followed_by_another() {
    let above = tempfile::Builder::new().prefix("wt-away-").tempdir().expect("a temporary folder");
    let (there, away) = (above.path().join("there"), above.path().join("away"));
    std::fs::create_dir(&there).expect("made");
    for name in ["read", "other"] {
        std::fs::write(there.join(name), name).expect("written");
    }
    let source: &str = format!("dir:{}", there.display()).leak();
    let Some(mount) = Mount::with(Setup { source, ..Setup::default() }) else { return };
    assert_eq!(std::fs::read(mount.at("read")).expect("read"), b"read");
    std::fs::rename(&there, &away).expect("moved");
    for _ in 0..2 {
        let daemon = mount.daemon();
        let gone = Exit::of(daemon);
        rustix::process::kill_process(daemon, rustix::process::Signal::KILL).expect("killed");
        assert!(gone.wait());
        wait_until("what is held", || std::fs::read(mount.at("read")).is_ok_and(|bytes| bytes == b"read"));
        let other = std::fs::read(mount.at("other")).expect_err("it is away");
        assert_eq!(other.kind(), io::ErrorKind::HostUnreachable, "{other}");
        let status = mount.verb("status", [mount.dir()]);
        assert!(status.out.contains("disconnected") && status.out.contains("dir away"), "{status:?}");
    }
    std::fs::rename(&away, &there).expect("moved back");
    wait_until("the directory", || std::fs::read(mount.at("other")).is_ok_and(|bytes| bytes == b"other"));
}
