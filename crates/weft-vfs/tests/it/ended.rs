//! Open files whose version has ended.

use std::sync::Arc;
use std::time::Duration;

use weft_remote::RenameTarget;
use weft_remote::fake::{Fake, Promise};
use weft_vfs::{OpenFor, VfsError, Write};

use crate::bench::Bench;

const WRITING: OpenFor =
    OpenFor { writing: true, truncating: false, appends: false, running: false, kill_suidgid: false };

/// A source that tells of changes, if it is asked to.
fn bench() -> Bench {
    let fake = Fake::writable();
    fake.dir("a/b");
    fake.file("a/b/hello.txt", "hello");
    fake.adjust(|terms| terms.promise = Promise::Breakable(Duration::from_secs(3600)));
    Bench::over(fake.clone(), Arc::new(fake))
}

/// Goal: while somebody has a file open for writing, nobody gets an older version cut off at the newer one's length or filled up
/// to that: who has it open gets errors, also who has it open for writing, and who opens it gets the newest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_version_ends_where_a_newer_one_is_of_another_length() {
    for newer in ["longer than it was", "less"] {
        let bench = bench();
        let vfs = || bench.vfs.clone();
        let node = bench.walk("fake/a/b/hello.txt").await.expect("a file").node;
        let reader = bench.open("fake/a/b/hello.txt").await.expect("opened").handle;
        let writer = vfs().open(bench.call(), node, WRITING).await.expect("opened").handle;
        assert_eq!(bench.drain(reader).await.expect("read"), b"hello");
        bench.fake.set("a/b/hello.txt", newer);
        // Before the kernel can be told of it.
        bench.fake.adjust(|terms| terms.told_all = false);
        let looked_up = bench.walk("fake/a/b/hello.txt").await.expect("a file");
        assert_eq!((looked_up.size, looked_up.ttl), (5, Duration::ZERO), "as long as the kernel has pages of it");
        for handle in [reader, writer] {
            let read = bench.read_at(handle, 0, 100).await;
            assert!(matches!(read, Err(VfsError::Changed)), "{newer}: {read:?}");
            let stat = vfs().stat(bench.call(), node, Some(handle)).await;
            assert!(matches!(stat, Err(VfsError::Changed)), "{newer}: {stat:?}");
        }
        let stat = vfs().stat(bench.call(), node, None).await.expect("a file");
        assert_eq!(stat.size, newer.len() as u64);
        let write = Write { offset: 0, bytes: "H".into(), kill_suidgid: false, unseen: false, appends: false };
        assert!(matches!(vfs().write(bench.call(), writer, write).await, Err(VfsError::Changed)));
        assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("read"), newer.as_bytes());
        for handle in [reader, writer] {
            vfs().close(handle);
        }
        assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("read"), newer.as_bytes());
        assert!(vfs().unsent(&[]).is_empty());
    }
}

/// Goal: what is open for writing and was not used yet goes on in the newest, and what was read or written ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_not_used_yet_goes_on_in_the_newest() {
    for used in ["not yet", "read", "written"] {
        let bench = bench();
        bench.fake.adjust(|terms| terms.promise = Promise::Spent);
        let vfs = || bench.vfs.clone();
        let node = bench.walk("fake/a/b/hello.txt").await.expect("a file").node;
        let writer = vfs().open(bench.call(), node, WRITING).await.expect("opened").handle;
        match used {
            "read" => assert_eq!(bench.read_at(writer, 0, 1).await.expect("read"), b"h"[..]),
            "written" => {
                let write = Write { offset: 0, bytes: "H".into(), kill_suidgid: false, unseen: false, appends: false };
                vfs().write(bench.call(), writer, write).await.expect("written");
                bench.flush(writer).await.expect("sent");
            }
            _ => {}
        }
        bench.fake.set("a/b/hello.txt", "longer than it was");
        bench.walk("fake/a/b/hello.txt").await.expect("that is known here");
        let read = bench.read_at(writer, 0, 100).await;
        match used {
            "not yet" => assert_eq!(read.expect("the newest"), b"longer than it was"[..]),
            _ => assert!(matches!(read, Err(VfsError::Changed)), "{used}: {read:?}"),
        }
        vfs().close(writer);
    }
}

/// Goal: what a move here tells of what somebody else has written ends an older version as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_move_tells_of_a_file_ends_an_older_version() {
    let bench = bench();
    let dir = bench.walk("fake/a/b").await.expect("a directory").node;
    let reader = bench.open("fake/a/b/hello.txt").await.expect("opened").handle;
    let node = bench.walk("fake/a/b/hello.txt").await.expect("a file").node;
    let writer = bench.vfs.clone().open(bench.call(), node, WRITING).await.expect("opened").handle;
    bench.fake.adjust(|terms| terms.promise = Promise::Lasting(Duration::ZERO));
    bench.fake.set("a/b/hello.txt", "longer than it was");
    bench.read_at(reader, 0, 1).await.expect("read");
    let (from, to) = ((dir, b"hello.txt".to_vec()), (dir, b"moved.txt".to_vec()));
    bench.vfs.clone().rename(bench.call(), from, to, RenameTarget::Replaced).await.expect("moved");
    for handle in [reader, writer] {
        let read = bench.read_at(handle, 0, 100).await;
        assert!(matches!(read, Err(VfsError::Changed)), "{read:?}");
        bench.vfs.close(handle);
    }
    assert_eq!(bench.cat("fake/a/b/moved.txt").await.expect("read"), b"longer than it was");
}
