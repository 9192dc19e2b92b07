//! Ways in which a mount ends: its daemon, its supervisor, its socket and what they left lying about go with it.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout};

use rustix::process::Pid;

use crate::interrupts::{Halting, cat, stop, wait_until_stuck};
use crate::support::{Exit, Mount, Offered, Running, Setup, is_root, without};

/// Does something with a mount in both transports, once with nobody in it and once while a program waits for a host.
fn each(end: impl Fn(&Case)) {
    let offered = Offered::now();
    for transport in ["classic", "io_uring"] {
        if transport == "io_uring" && offered.is_none() {
            continue;
        }
        for waits in [false, true] {
            let setup = Setup::default().option("deadline=120s").option(&format!("transport={transport}"));
            let Some(mount) = Mount::prepare(setup) else { return };
            println!("{transport}, a program waits: {waits}");
            let before = leavings(&mount);
            let supervisor = mount.stay();
            assert_eq!(mount.status()["transport"], transport);
            let (daemon, halting) = (mount.daemon(), Halting::new());
            let waiter = waits.then(|| cat(&halting.path(&mount)));
            waiter.iter().for_each(|(child, _)| wait_until_stuck(child, &halting.path(&mount)));
            end(&Case { mount: &mount, halting: &halting, waiter: std::cell::Cell::new(waiter) });
            is_gone(&mount, supervisor, daemon, &before);
        }
    }
}

struct Case<'a> {
    mount: &'a Mount,
    halting: &'a Halting,
    waiter: std::cell::Cell<Option<(Child, ChildStdout)>>,
}

/// Asserts that nothing is left of a mount: it has not to be waited for longer than its last process takes to go.
#[track_caller]
fn is_gone(mount: &Mount, supervisor: Running, daemon: Pid, before: &[PathBuf]) {
    let daemon = Exit::of(daemon);
    assert_eq!(supervisor.end(), Some(0), "the supervisor ends well");
    assert!(daemon.wait(), "the daemon has ended");
    assert!(!mount.is_mounted());
    assert_eq!(leavings(mount), before, "no socket and no file of a moment stays");
}

/// What lies beside a mount, but for the cache's own files.
fn leavings(mount: &Mount) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![mount.beside("")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder").flatten() {
            let path = entry.path();
            if path == mount.cache() {
                continue;
            }
            match entry.file_type().expect("told").is_dir() {
                true => folders.push(path),
                false => found.push(path),
            }
        }
    }
    found.sort();
    found
}

fn rest_of(mut out: ChildStdout) -> Vec<u8> {
    let mut bytes = Vec::new();
    out.read_to_end(&mut bytes).expect("read");
    bytes
}

#[track_caller]
fn umount(mount: &Mount, words: &str, place: &Path) {
    let outcome = mount.verb(words, [place]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}

/// Goal: a mount in use is not taken away, and the sentence names who uses it; it goes when they have.
#[test]
fn a_mount_goes_when_those_who_use_it_have_gone() {
    each(|Case { mount, waiter, .. }| {
        let user = waiter.take();
        let held = user.is_none().then(|| std::fs::File::open(mount.at("web")).expect("opened"));
        let who = user.as_ref().map_or(std::process::id(), |(child, _)| child.id());
        let refused = mount.verb("umount", [mount.dir()]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.err.contains(&format!("(process {who})")) && refused.err.contains("--lazy"), "{refused:?}");
        assert!(mount.is_mounted());
        drop(held);
        if let Some((child, _)) = user {
            stop(child);
        }
        umount(mount, "umount", &mount.dir());
    });
}

/// Goal: a mount that is taken away lazily goes at once; who is in it gets all bytes, and the daemon ends after that.
#[test]
fn a_lazy_one_goes_at_once_and_serves_whoever_is_in_it() {
    each(|Case { mount, halting, waiter }| {
        umount(mount, "umount --lazy", &mount.dir());
        assert!(!mount.is_mounted());
        if let Some((mut child, out)) = waiter.take() {
            halting.go_on();
            assert!(rest_of(out) == halting.whole);
            assert!(child.wait().expect("a child of ours").success());
        }
    });
}

/// Goal: an abort through the control file system ends those who wait and the daemon, and no dead mount stays.
#[test]
fn an_aborted_one_ends_and_leaves_no_dead_mount() {
    if !is_root() {
        return without("only root may abort connections");
    }
    each(|Case { mount, waiter, .. }| {
        mount.abort();
        if let Some((mut child, out)) = waiter.take() {
            drop(out);
            assert!(!child.wait().expect("a child of ours").success());
        }
    });
}
