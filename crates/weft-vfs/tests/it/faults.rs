//! What happens when the remote misbehaves.

use std::time::Duration;

use futures_util::FutureExt;
use weft_remote::fake::{Fault, Gate, Operation, Order, Promise};
use weft_remote::{Call, RemoteError};
use weft_vfs::{Freshness, VfsError};

use crate::bench::{Bench, USER, pattern};

fn unreachable() -> Fault {
    Fault::Error(RemoteError::Unreachable { detail: "fake".to_string() })
}

/// Goal: nobody gets the bytes of a short body as the file. Who waits for the rest gets the error; who comes when that body
/// has ended has the file fetched again, and gets it whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_body_is_an_error_and_never_kept() {
    let bench = Bench::new();
    bench.fake.file("f", pattern(100_000));
    bench.fake.order(Order::of(Fault::CutShort { after: 50_000 }).on(Operation::Fetch).times(1));
    match bench.cat("fake/f").await {
        Err(VfsError::Remote(RemoteError::CutShort { .. })) => {}
        Ok(whole) => assert!(whole == pattern(100_000), "{} bytes", whole.len()),
        Err(other) => panic!("{other}"),
    }
    let bench = bench.remount();
    assert_eq!(bench.cat("fake/f").await.expect("whole at the next try"), pattern(100_000));
}

/// Goal: a source whose bodies all break off after a while is read to the end of the file, each body from where the one before
/// ended, also after a remount in the middle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_breaks_off_is_gone_on_with() {
    let bench = Bench::new();
    let content = pattern(5 << 20);
    bench.fake.file("f", content.clone());
    bench.fake.order(Order::of(Fault::CutShort { after: 1 << 20 }).on(Operation::Fetch));
    let handle = bench.open("fake/f").await.expect("an open file").handle;
    let begun = bench.read_at(handle, 2 << 20, 128 << 10).await.expect("the third body brings it");
    assert!(begun == content[2 << 20..(2 << 20) + (128 << 10)]);
    bench.vfs.close(handle);
    let bench = bench.remount();
    assert!(bench.cat("fake/f").await.expect("all of it") == content);
    bench.settled("fake/f").await;
    assert!(bench.cat("fake/f").await.expect("all of it") == content);
    assert!(bench.fake.counts().fetch <= 10, "{:?}", bench.fake.counts());
}

/// Goal: a source whose bodies bring next to nothing is not asked for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_brings_next_to_nothing_is_an_error() {
    let bench = Bench::new();
    bench.fake.file("f", pattern(5 << 20));
    bench.fake.order(Order::of(Fault::CutShort { after: 1 << 20 }).on(Operation::Fetch).times(1));
    bench.fake.order(Order::of(Fault::CutShort { after: 100_000 }).on(Operation::Fetch));
    let read = bench.cat("fake/f").await;
    assert!(matches!(read, Err(VfsError::Remote(RemoteError::CutShort { .. }))), "{read:?}");
    assert!(bench.fake.counts().fetch <= 3, "{:?}", bench.fake.counts());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_under_the_reader_is_an_error_on_the_open_file() {
    let bench = Bench::new();
    bench.fake.file("f", pattern(100_000));
    let to = bytes::Bytes::from_static(b"something else");
    bench.fake.order(Order::of(Fault::ChangeUnderReader { after: 32_768, to }).on(Operation::Fetch).times(1));
    let read = bench.cat("fake/f").await;
    assert!(matches!(read, Err(VfsError::Changed)), "{read:?}");
    assert_eq!(bench.cat("fake/f").await.expect("the new version"), b"something else");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_remote_that_never_answers_is_given_up_at_the_deadline() {
    let bench = Bench::new();
    bench.fake.order(Order::of(Fault::Delay(Gate::new())).on(Operation::Lookup));
    let call = Call::within(USER, Duration::ZERO);
    let dir = bench.walk("fake").await.expect("the binding").node;
    let looked = bench.vfs.clone().lookup(call, dir, b"a".to_vec()).await;
    assert!(looked.as_ref().is_err_and(VfsError::is_silence), "{looked:?}");
    bench.fake.heal();
    bench.walk("fake/a").await.expect("nothing is left behind");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_cached_is_served_when_the_source_is_silent() {
    let bench = Bench::new();
    bench.fake.adjust(|terms| terms.promise = Promise::Spent);
    bench.list("fake/a/b").await.expect("a listing");
    assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("content"), b"hello");
    bench.fake.order(unreachable());
    assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("stale content"), b"hello");
    assert_eq!(bench.list("fake/a/b").await.expect("a stale listing"), ["hello.txt"]);
    assert!(bench.vfs.figures().served_stale > 0);
    let unknown = bench.walk("fake/a/b/never-seen").await;
    assert!(unknown.as_ref().is_err_and(VfsError::is_silence), "{unknown:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn always_means_never_stale() {
    let bench = Bench::with(Freshness::Always);
    assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("content"), b"hello");
    bench.fake.order(unreachable());
    let read = bench.cat("fake/a/b/hello.txt").await;
    assert!(read.as_ref().is_err_and(VfsError::is_silence), "{read:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_of_the_source_does_not_replace_what_is_cached() {
    let bench = Bench::with(Freshness::Always);
    assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("content"), b"hello");
    bench.fake.order(Fault::Error(RemoteError::Failed { detail: "500".to_string() }));
    assert!(bench.cat("fake/a/b/hello.txt").await.is_err());
    bench.fake.heal();
    bench.fake.reset_counts();
    assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("content"), b"hello");
    assert_eq!(bench.fake.counts().fetch, 0, "checked, not fetched again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_gone_is_gone() {
    let bench = Bench::with(Freshness::Always);
    assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("content"), b"hello");
    bench.fake.remove("a/b/hello.txt");
    assert!(matches!(bench.cat("fake/a/b/hello.txt").await, Err(VfsError::NotFound)));
    assert!(bench.list("fake/a/b").await.expect("a listing").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_readers_of_one_missing_file_ask_once() {
    let bench = std::sync::Arc::new(Bench::new());
    bench.fake.file("f", pattern(300_000));
    let node = bench.walk("fake/f").await.expect("the file").node;
    let gate = Gate::new();
    bench.fake.order(Order::of(Fault::Delay(gate.clone())).on(Operation::Fetch));
    let readers: Vec<_> = (0..20)
        .map(|_| {
            let bench = bench.clone();
            tokio::spawn(async move {
                let opened = bench.vfs.clone().open(bench.call(), node, weft_vfs::OpenFor::default()).await?;
                bench.drain(opened.handle).await
            })
        })
        .collect();
    gate.arrived(1).await;
    gate.open();
    for reader in readers {
        assert_eq!(reader.await.expect("no panic").expect("content"), pattern(300_000));
    }
    assert_eq!(bench.fake.counts().fetch, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_without_validator_is_waited_for_however_far_the_reader_is() {
    let bench = Bench::new();
    bench.fake.adjust(|terms| terms.validator = weft_remote::fake::Validator::None);
    let content = pattern(12 << 20);
    bench.fake.file("f", content.clone());
    let gate = Gate::new();
    bench.fake.order(Order::of(Fault::Stall { after: 65_536, gate: gate.clone() }).on(Operation::Fetch));
    let handle = bench.open("fake/f").await.expect("an open file").handle;
    let far = bench.read_at(handle, 11 << 20, 1000);
    let (far, ()) = tokio::join!(far, async {
        gate.arrived(1).await;
        gate.open();
    });
    assert_eq!(far.expect("the bytes come with the one body"), content[11 << 20..(11 << 20) + 1000]);
    assert_eq!(bench.fake.counts().fetch, 1);
}

/// Goal: a body that turns out not to be what it announced is in nobody's way, although ranges of its file came meanwhile and
/// were made to last: who opens the file next has it fetched again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_breaks_off_beside_its_ranges_is_not_kept() {
    let bench = Bench::new();
    let content = pattern(12 << 20);
    bench.fake.file("f", content.clone());
    let gate = Gate::new();
    bench.fake.order(Order::of(Fault::Stall { after: 65_536, gate: gate.clone() }).on(Operation::Fetch).times(1));
    bench.fake.order(Order::of(Fault::CutShort { after: 65_536 }).on(Operation::Fetch).times(1));
    let node = bench.walk("fake/f").await.expect("the file").node;
    let first = bench.open("fake/f").await.expect("an open file").handle;
    gate.arrived(1).await;
    while bench.vfs.store().object_record(node).expect("the store answers").is_none() {
        let far = bench.open("fake/f").await.expect("an open file").handle;
        let bytes = bench.read_at(far, 11 << 20, 1000).await.expect("a range");
        assert_eq!(bytes, content[11 << 20..(11 << 20) + 1000]);
        bench.vfs.close(far);
    }
    let reads = bench.read_at(first, 65_536, 1000);
    let (read, ()) = tokio::join!(reads, async { gate.open() });
    assert!(matches!(read, Err(VfsError::Remote(RemoteError::CutShort { .. }))), "{read:?}");
    bench.vfs.close(first);
    assert_eq!(bench.cat("fake/f").await.expect("fetched again"), content);
}

/// Goal: a program waits for its deadline once, although the kernel asks again for a page that did not come. Method: a body
/// stalls; the second question, as the kernel asks it, gets the first one's error with a deadline that is far away, and the
/// third, which is another program's, waits for the bytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_that_timed_out_is_not_waited_for_twice() {
    let bench = Bench::new();
    let content = pattern(12 << 20);
    bench.fake.file("f", content.clone());
    let gate = Gate::new();
    bench.fake.order(Order::of(Fault::Stall { after: 65_536, gate: gate.clone() }).on(Operation::Fetch));
    let handle = bench.open("fake/f").await.expect("an open file").handle;
    let call = Call::within(USER, Duration::from_millis(100));
    let read = bench.vfs.clone().read(call, handle, 131_072, 131_072).await;
    assert!(matches!(read, Err(VfsError::TimedOut)), "{read:?}");
    let again = bench.read_at(handle, 131_072, 4096).now_or_never();
    assert!(matches!(again, Some(Err(VfsError::TimedOut))), "{again:?}");
    let read = bench.read_at(handle, 131_072, 4096);
    let (read, ()) = tokio::join!(read, async { gate.open() });
    assert_eq!(read.expect("the bytes"), content[131_072..131_072 + 4096]);
}
