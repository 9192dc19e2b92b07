//! What a program asks of a file in one use of it costs one question, where answers are good for one use alone.

use weft_remote::fake::{Promise, Quality};
use weft_remote::{Call, Caller};
use weft_vfs::{Freshness, HandleId, NodeId, OpenFor};

use crate::bench::{Bench, USER, names};

/// A file that was read once, of which each answer is good for one use alone.
async fn scene(freshness: Freshness) -> (Bench, NodeId) {
    let bench = Bench::with(freshness);
    bench.fake.adjust(|terms| terms.promise = Promise::Spent);
    bench.fake.file("d/f", "content");
    assert_eq!(bench.cat("fake/d/f").await.expect("content"), b"content");
    let node = bench.walk("fake/d/f").await.expect("it is there").node;
    bench.fake.reset_counts();
    (bench, node)
}

fn by(bench: &Bench, pid: u32) -> Call {
    Call { caller: Caller { pid, ..USER }, ..bench.call() }
}

async fn stat(bench: &Bench, pid: u32, node: NodeId) -> u64 {
    bench.vfs.clone().stat(by(bench, pid), node, None).await.expect("attributes").size
}

async fn open(bench: &Bench, pid: u32, node: NodeId) -> HandleId {
    bench.vfs.clone().open(by(bench, pid), node, OpenFor::default()).await.expect("an open file").handle
}

/// Goal: a look at a file, its open and the look at what is open are one question; each further open, look after the close, and
/// thread asks anew, and sees what has changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn look_open_and_look_are_one_question() {
    let (bench, node) = scene(Freshness::Http).await;
    assert_eq!(stat(&bench, 7, node).await, 7);
    // The kernel looks once more before it opens.
    assert_eq!(stat(&bench, 7, node).await, 7);
    let first = open(&bench, 7, node).await;
    assert_eq!(stat(&bench, 7, node).await, 7);
    assert_eq!(bench.fake.counts().calls(), 1);
    let second = open(&bench, 7, node).await;
    assert_eq!(bench.fake.counts().calls(), 2, "a second open is another use");
    stat(&bench, 8, node).await;
    assert_eq!(bench.fake.counts().calls(), 3, "and so is what another thread does");
    [first, second].into_iter().for_each(|handle| bench.vfs.close(handle));

    bench.fake.set("d/f", "changed");
    let handle = open(&bench, 7, node).await;
    assert_eq!(bench.drain(handle).await.expect("content"), b"changed");
    bench.fake.set("d/f", "short");
    assert_eq!(stat(&bench, 7, node).await, 7, "who has it open looks at that");
    bench.vfs.close(handle);
    assert_eq!(stat(&bench, 7, node).await, 5, "the use has ended");
}

/// Goal: what the user has reloaded, and what is always to be asked about, is asked about by each of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_always_asked_about_is_asked_about_each_time() {
    let (bench, node) = scene(Freshness::Always).await;
    stat(&bench, 7, node).await;
    bench.fake.set("d/f", "changed");
    let handle = open(&bench, 7, node).await;
    assert_eq!(bench.drain(handle).await.expect("content"), b"changed");
    bench.vfs.close(handle);

    let (bench, node) = scene(Freshness::Http).await;
    stat(&bench, 7, node).await;
    bench.fake.set("d/f", "changed");
    bench.vfs.reload(&names("fake/d/f"), false, Caller { pid: 0, ..USER }).await.expect("reloaded");
    let handle = open(&bench, 7, node).await;
    assert_eq!(bench.drain(handle).await.expect("content"), b"changed");
    bench.vfs.close(handle);
}

/// Goal: a list that is good for one use alone is asked for by who lists, for whom it tells what is in it, and not by who looks at
/// one file of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_is_good_for_one_use_is_used_once() {
    let (bench, node) = scene(Freshness::Http).await;
    bench.fake.adjust(|terms| terms.listing = Quality::Exact);
    for nth in 0..5 {
        bench.fake.file(format!("d/g{nth}"), "content");
    }
    let list = async |pid: u32| {
        let dir = bench.walk("fake/d").await.expect("a directory").node;
        bench.vfs.clone().open_directory(by(&bench, pid), dir).await.expect("a listing");
    };
    list(7).await;
    bench.fake.reset_counts();
    for nth in 0..5 {
        let node = bench.walk(&format!("fake/d/g{nth}")).await.expect("it is there").node;
        stat(&bench, 7, node).await;
    }
    let counts = bench.fake.counts();
    assert_eq!(counts.calls(), 0, "{counts:?}");
    bench.fake.set("d/f", "longer content");
    assert_eq!(stat(&bench, 8, node).await, 14);
    let counts = bench.fake.counts();
    assert_eq!((counts.entries, counts.calls()), (0, 1), "{counts:?}");
}
