//! Open files that show the newest version.

use std::time::Duration;

use weft_remote::fake::{Fault, Operation, Order, Promise, Validator};
use weft_remote::{Event, RemoteError};
use weft_vfs::{OpenFor, SpaceOptions};

use crate::bench::{Bench, pattern};

const WRITING: OpenFor =
    OpenFor { writing: true, truncating: false, appends: false, running: false, kill_suidgid: false };
const FILE: &str = "fake/a/b/hello.txt";

/// The source has another content, and has told so.
async fn set(bench: &Bench, content: &[u8]) {
    bench.fake.set("a/b/hello.txt", content.to_vec());
    bench.fake.send(Event::Broken(bench.fake.id("a/b/hello.txt")));
    let look = async || {
        let node = bench.walk(FILE).await?.node;
        bench.vfs.clone().stat(bench.call(), node, None).await
    };
    while look().await.expect("it is there").size != content.len() as u64 {
        tokio::task::yield_now().await;
    }
}

/// A bench whose source tells of changes.
fn telling() -> Bench {
    let bench = Bench::newest();
    bench.fake.adjust(|terms| terms.promise = Promise::Breakable(Duration::from_secs(3600)));
    bench
}

/// Goal: who has a file open that grows reads what was added, and is told how long it is; each read is of one version,
/// whether the kernel names the handle when it asks for the length or not. The kernel keeps no pages of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_watches_a_file_sees_it_grow() {
    let bench = telling();
    let opened = bench.open(FILE).await.expect("opened");
    assert!(opened.bypass_pages && !opened.keep_pages && opened.backing.is_none() && opened.record.bypass_pages);
    let handle = opened.handle;
    assert_eq!(bench.drain(handle).await.expect("bytes"), b"hello");
    for added in [1, 5_000, 600_000] {
        let content = [&b"hello"[..], &pattern(added)].concat();
        set(&bench, &content).await;
        let node = bench.walk(FILE).await.expect("it is there").node;
        for by in [None, Some(handle)] {
            let stat = bench.vfs.clone().stat(bench.call(), node, by).await.expect("told");
            assert_eq!(stat.size, content.len() as u64);
        }
        assert_eq!(bench.drain(handle).await.expect("bytes"), content);
    }
    set(&bench, b"anew").await;
    assert_eq!(bench.drain(handle).await.expect("bytes"), b"anew");
    bench.vfs.close(handle);
}

/// Goal: the same where there is no room for what it has become, also without a validator, and when it is small again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_watches_a_file_sees_what_there_is_no_room_for() {
    for validator in [Validator::Strong, Validator::None] {
        let bench = Bench::newest_in(SpaceOptions { max: Some(1 << 20), ..SpaceOptions::default() });
        bench.fake.adjust(|terms| {
            (terms.promise, terms.validator) = (Promise::Breakable(Duration::from_secs(3600)), validator)
        });
        let handle = bench.open(FILE).await.expect("opened").handle;
        assert_eq!(bench.drain(handle).await.expect("bytes"), b"hello");
        for round in 0..2 {
            let large = pattern((3 << 20) + round);
            set(&bench, &large).await;
            assert!(bench.drain(handle).await.expect("bytes") == large, "{validator:?}");
            let middle = bench.read_at(handle, 1_000_000, 10).await.expect("bytes");
            assert_eq!(middle, large[1_000_000..1_000_010], "{validator:?}");
            set(&bench, b"anew").await;
            assert_eq!(bench.drain(handle).await.expect("bytes"), b"anew", "{validator:?}");
        }
        bench.vfs.close(handle);
    }
}

/// Goal: the same of what is written here, before it is sent and after, by one who had it open before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_watches_a_file_sees_what_is_written_here() {
    let bench = telling();
    let reader = bench.open(FILE).await.expect("opened").handle;
    set(&bench, b"another, which nobody has read by that").await;
    let writer = bench.open_for(FILE, WRITING).await.expect("opened");
    set(&bench, b"newer").await;
    bench.write(writer, 5, b", and more").await.expect("written");
    assert_eq!(bench.drain(reader).await.expect("bytes"), b"newer, and more", "before it is sent");
    bench.flush(writer).await.expect("sent: it was written over the newest");
    bench.vfs.close(writer);
    assert_eq!(bench.at_source("a/b/hello.txt"), b"newer, and more");
    set(&bench, b"newest").await;
    assert_eq!(bench.drain(reader).await.expect("bytes"), b"newest");
    bench.vfs.close(reader);
}

/// Goal: what is gone stays readable as far as it was; where the source is silent, what is held serves as it does at an
/// open, and what it refuses is an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_gone_stays_and_what_fails_fails() {
    let bench = telling();
    let handle = bench.open(FILE).await.expect("opened").handle;
    assert_eq!(bench.drain(handle).await.expect("bytes"), b"hello");
    bench.fake.send(Event::Broken(bench.fake.id("a/b/hello.txt")));
    let failing = || RemoteError::Failed { detail: "on purpose".to_owned() };
    bench.fake.order(Order::of(Fault::Error(failing())).on(Operation::Attributes));
    while bench.drain(handle).await.is_ok() {
        tokio::task::yield_now().await;
    }
    bench.fake.heal();
    bench.fake.remove("a/b/hello.txt");
    assert_eq!(bench.drain(handle).await.expect("bytes"), b"hello");
    bench.vfs.close(handle);
}
