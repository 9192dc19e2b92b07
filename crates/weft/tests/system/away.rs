//! A directory that goes away while it is mounted, and comes back.

use std::io;

use rustix::io::Errno;
use rustix::process::{Signal, kill_process};

use crate::interrupts::wait_until;
use crate::support::{Exit, Mount, Setup, fails_with, names_in};

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

/// Goal: a directory of the configuration that is not there when everything is mounted, as one on a disk that is not plugged in,
/// keeps nothing else away, is told of, and is shown when it is there; so it is by the next daemon.
#[test]
fn a_directory_that_comes_after_the_mount_is_shown_then() {
    is_shown_when_it_comes("", "dir");
}

/// Goal: so it is where the directories alone are mounted.
#[test]
fn a_directory_that_comes_after_the_others_is_shown_then() {
    is_shown_when_it_comes("dir", "");
}

/// Goal: where none of the directories is there nothing is mounted, and one of them is named.
#[test]
fn directories_of_which_none_is_there_are_not_mounted() {
    let config = "[[dir]]\nname = \"there\"\npath = \"/nowhere/there\"\n".to_owned();
    let Some(mount) = Mount::prepare(Setup { source: "dir", config, ..Setup::default() }) else { return };
    let refused = mount.try_mount();
    assert!(refused.code == Some(1) && refused.err.contains("/nowhere/there"), "{refused:?}");
}

#[track_caller]
fn is_shown_when_it_comes(source: &'static str, folder: &str) {
    let above = tempfile::Builder::new().prefix("wt-away-").tempdir().expect("a temporary folder");
    let [here, there] = ["here", "there"].map(|name| above.path().join(name));
    let table = |name: &str| format!("[[dir]]\nname = \"{name}\"\npath = \"{}/{name}\"\n", above.path().display());
    std::fs::create_dir(&here).expect("made");
    std::fs::write(here.join("file"), "here").expect("written");
    let config = table("there") + &table("here");
    let Some(mount) = Mount::with(Setup { source, config, ..Setup::default() }) else { return };
    let at = |path: &str| mount.at(folder).join(path);
    let is_away = || {
        assert_eq!(std::fs::read(at("here/file")).expect("read"), b"here");
        assert_eq!(names_in(&mount.at(folder)), ["here", "there"]);
        fails_with(std::fs::read(at("there/file")), Errno::HOSTUNREACH);
        fails_with(std::fs::write(at("there/file"), "lost"), Errno::HOSTUNREACH);
        let status = mount.status();
        let names = status["sources"].as_array().expect("a list").iter().map(|source| source["name"].clone());
        assert_eq!(names.collect::<Vec<_>>(), [there.to_str().expect("text")], "{status}");
    };
    is_away();
    mount.kill_daemon();
    is_away();
    std::fs::create_dir(&there).expect("made");
    std::fs::write(there.join("file"), "there").expect("written");
    wait_until("the directory", || std::fs::read(at("there/file")).is_ok_and(|bytes| bytes == b"there"));
    std::fs::write(at("there/new"), "new").expect("written");
    assert_eq!(std::fs::read(there.join("new")).expect("read"), b"new");
    assert_eq!(mount.status()["sources"].as_array().expect("a list").len(), 0);
}

/// Goal: it is told that a directory answers nothing, and no longer when it does. Method: one on a file system whose daemon is
/// stopped.
#[test]
fn a_directory_that_answers_nothing_is_told_of() {
    let Some(below) = Mount::with(Setup { source: "web:weft.example", ..Setup::default() }) else { return };
    let source: &str = format!("dir:{}", below.dir().display()).leak();
    let setup = Setup { source, ..Setup::default() }.option("deadline=6s");
    let mount = Mount::with(setup).expect("there is FUSE");
    let names = names_in(&mount.dir());
    let shown = || mount.verb("status", [mount.dir()]).out;
    assert!(shown().contains("dir on this machine"), "{}", shown());
    let daemon = below.daemon();
    kill_process(daemon, Signal::STOP).expect("stopped");
    let mut names_asked = (0..).map(|nth: u32| mount.at(format!("none-{nth}")));
    let mut ask = || std::fs::metadata(names_asked.next().expect("without end"));
    wait_until("nothing is answered", || ask().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut));
    let silent = shown();
    kill_process(daemon, Signal::CONT).expect("it goes on");
    assert!(silent.contains("disconnected") && silent.contains("answers nothing"), "{silent}");
    wait_until("it answers", || names_in(&mount.dir()) == names && shown().contains("dir on this machine"));
}
