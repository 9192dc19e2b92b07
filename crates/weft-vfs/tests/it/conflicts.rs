//! Files that others write while they are being written here, over a fake.

use std::time::{Duration, UNIX_EPOCH};

use weft_remote::fake::{Fake, Promise};
use weft_remote::{Event, RenameTarget};
use weft_vfs::{Notices, SetStat, SetTime, VfsError, Write};

use crate::bench::Bench;
use crate::breaks::{told_to, untold};
use crate::walks::until;
use crate::writing::{HELLO, WRITING};

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changed_at_its_source_is_not_written_over() {
    let bench = Bench::writable();
    let handle = bench.open_for(HELLO, WRITING).await.unwrap();
    bench.write(handle, 0, b"J").await.unwrap();
    bench.fake.set("a/b/hello.txt", "theirs");
    assert!(matches!(bench.flush(handle).await, Err(VfsError::Changed)));
    assert_eq!(bench.at_source("a/b/hello.txt"), b"theirs");
    let kept = bench.vfs.unsent(&[]);
    assert_eq!(kept.len(), 1, "what was written is kept: {kept:?}");
    assert!(bench.vfs.troubles().iter().any(|trouble| trouble.text.contains("could not be sent")));
    bench.vfs.close(handle);
}

/// Goal: what was written and sent here is shown no longer than it is what the source has, though somebody has the file open
/// all the time: who opens it or looks at it sees what others wrote since; who has it open gets errors, for that is of another
/// length, and does not write over the newer one. As long as nothing is told of a change nobody is asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_sent_gives_way_to_what_others_write() {
    for first in ["stat", "open", "lookup", "write"] {
        let bench = Bench::writable();
        bench.fake.adjust(|terms| terms.promise = Promise::Breakable(Duration::from_secs(3600)));
        let path = "fake/a/b/hello.txt";
        let stat = bench.walk(path).await.expect("it is there");
        let reader = bench.open(path).await.expect("opened").handle;
        let writer = bench.open_for(path, WRITING).await.expect("opened");
        bench.write(writer, 5, b", and more").await.expect("written");
        bench.flush(writer).await.expect("sent");
        bench.fake.reset_counts();
        for _ in 0..3 {
            assert_eq!(bench.cat(path).await.expect("bytes"), b"hello, and more");
        }
        assert!(bench.fake.counts().attributes <= 1, "{:?}", bench.fake.counts());
        bench.fake.set("a/b/hello.txt", b"newest".to_vec());
        bench.fake.send(Event::Broken(bench.fake.id("a/b/hello.txt")));
        until(|| bench.vfs.stat_known(stat.node).expect("known").is_none()).await;
        match first {
            "stat" => {
                let stat = bench.vfs.clone().stat(bench.call(), stat.node, None).await;
                assert_eq!(stat.expect("told").size, 6);
            }
            "open" => assert_eq!(bench.cat(path).await.expect("bytes"), b"newest"),
            "lookup" => assert_eq!(bench.walk(path).await.expect("told").size, 6),
            _ => {}
        }
        if first != "write" {
            assert_eq!(bench.cat(path).await.expect("bytes"), b"newest");
            for handle in [reader, writer] {
                let read = bench.drain(handle).await;
                assert!(matches!(read, Err(VfsError::Changed)), "neither cut off nor filled up: {read:?}");
            }
            assert!(matches!(bench.write(writer, 0, b"J").await, Err(VfsError::Changed)));
        } else {
            // Who has it open has not seen the newer version: it is not written over.
            bench.write(writer, 0, b"J").await.expect("written");
            assert!(matches!(bench.flush(writer).await, Err(VfsError::Changed)));
        }
        assert_eq!(bench.at_source("a/b/hello.txt"), b"newest");
    }
}

/// Goal: what somebody else has written meanwhile is not written over, nor hidden by what was written here before, because
/// attributes were set, or the file was renamed, in between; where nobody has, that changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attributes_that_are_set_do_not_hide_what_others_wrote() {
    let changes = ["nothing", "mode", "time", "name"];
    for (between, is_written) in changes.into_iter().flat_map(|change| [(change, true), (change, false)]) {
        let bench = Bench::writable();
        let opened = bench.open_for(HELLO, WRITING).await.expect("opened");
        bench.write(opened, 0, b"H").await.expect("written");
        bench.flush(opened).await.expect("sent");
        if is_written {
            bench.fake.set("a/b/hello.txt", "other");
        }
        let path = change_between(&bench, between).await;
        if is_written && between != "nothing" {
            assert_eq!(bench.cat(&format!("fake/{path}")).await.expect("read"), b"other", "{between}");
        }
        let written = bench.write(opened, 1, b"E").await;
        let sent = match written {
            Ok(_) => bench.flush(opened).await,
            Err(error) => Err(error),
        };
        assert_eq!(sent.is_err(), is_written, "{between}: {sent:?}");
        let wanted: &[u8] = if is_written { b"other" } else { b"HEllo" };
        assert_eq!(bench.fake.content(path).as_deref(), Some(wanted), "{between}");
        bench.vfs.close(opened);
    }
}

/// Sets something of a file that is not its content; where it is then.
async fn change_between(bench: &Bench, what: &str) -> &'static str {
    let vfs = || bench.vfs.clone();
    let dir = bench.walk("fake/a/b").await.expect("a directory").node;
    let node = bench.walk(HELLO).await.expect("a file").node;
    let set = async |new: SetStat| {
        vfs().set_stat(bench.call(), node, None, new).await.expect("set");
    };
    match what {
        "mode" => set(SetStat { mode: Some(0o600), ..SetStat::default() }).await,
        "time" => set(SetStat { modified: Some(SetTime::At(UNIX_EPOCH)), ..SetStat::default() }).await,
        "name" => {
            let (from, to) = ((dir, b"hello.txt".to_vec()), (dir, b"moved".to_vec()));
            vfs().rename(bench.call(), from, to, RenameTarget::Replaced).await.expect("moved");
            return "a/b/moved";
        }
        _ => {}
    }
    "a/b/hello.txt"
}

/// Goal: the set-id bits of a file are taken away by the mode that it has, and not by one that somebody has changed since: that
/// would be undone. By a write and by what sets something else; what has changed is told in the middle of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn set_id_bits_are_taken_from_the_mode_that_there_is() {
    let bench = told_to(Fake::writable(), Notices::nowhere());
    let changed = |mode| {
        untold(&bench, || bench.fake.mode("a/b/hello.txt", mode));
        bench.fake.send_late(Event::Broken(bench.fake.id("a/b/hello.txt")));
    };
    bench.fake.mode("a/b/hello.txt", 0o4755);
    let node = bench.walk(HELLO).await.expect("a file").node;
    let set = async || {
        let new = SetStat { kill_suidgid: true, ..SetStat::default() };
        bench.vfs.clone().set_stat(bench.call(), node, None, new).await.expect("set").mode
    };
    changed(0o700);
    assert_eq!(set().await, 0o700);
    changed(0o4711);
    assert_eq!(set().await, 0o711);
    let handle = bench.open_for(HELLO, WRITING).await.expect("opened");
    for (given, left) in [(0o6750, 0o750), (0o600, 0o600), (0o2744, 0o2744)] {
        changed(given);
        let write =
            Write { offset: 0, bytes: HELLO.as_bytes().into(), kill_suidgid: true, unseen: false, appends: false };
        bench.vfs.clone().write(bench.call(), handle, write).await.expect("written");
        assert_eq!(bench.vfs.clone().stat(bench.call(), node, None).await.expect("a file").mode, left);
    }
    bench.vfs.close(handle);
}
