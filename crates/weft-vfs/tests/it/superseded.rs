//! What is held of a file stays until the newer version is here.

use weft_remote::RemoteError;
use weft_remote::fake::{Fault, Operation, Order};
use weft_vfs::{Cached, Freshness, Mode, SpaceOptions, VfsError};

use crate::bench::{Bench, USER, names, pattern};

/// More than comes with a look.
const LONG: usize = 1 << 20;

/// A file, read to its end; then the source has another version of it, and a look at it brings its beginning.
async fn looked_at(bench: &Bench, length: usize, newer: usize) {
    bench.fake.adjust(|terms| terms.along = true);
    bench.fake.file("d/f", pattern(length));
    assert!(bench.cat("fake/d/f").await.expect("content") == pattern(length));
    bench.settled("fake/d/f").await;
    bench.fake.set("d/f", pattern(newer));
    let done = bench.vfs.reload(&names("fake/d/f"), false, USER).await.expect("a reload");
    assert_eq!(done.changed, 1);
    assert_eq!(bench.walk("fake/d/f").await.expect("attributes").size, newer as u64);
}

fn unplug(bench: &Bench) {
    bench.fake.order(Order::of(Fault::Error(RemoteError::Unreachable { detail: "unplugged".to_owned() })).times(99));
}

impl Bench {
    fn cached(&self) -> String {
        let why = self.vfs.why(&names("fake/d/f")).expect("an explanation");
        why.facts.into_iter().find(|(key, _)| key == "cached").map(|(_, value)| value).unwrap_or_default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_at_a_newer_version_takes_away_nothing() {
    let bench = Bench::new();
    looked_at(&bench, LONG, LONG + 5).await;
    bench.settled("fake/d/f").await;
    assert_eq!(bench.cached(), format!("whole, {LONG} bytes, of the version before: it serves where nobody answers"));
    assert_eq!(bench.vfs.names(&names("fake/d/f")).expect("known")[0].cached, Cached::Whole);
    unplug(&bench);
    assert!(bench.cat("fake/d/f").await.expect("the version before") == pattern(LONG));
    let bench = bench.remount();
    bench.vfs.take_offline(&names("fake/d"), Mode::Offline).expect("offline");
    assert!(bench.cat("fake/d/f").await.expect("the version before") == pattern(LONG));
    // It is not taken for what the source has.
    bench.vfs.bring_online(&names("fake/d")).expect("online");
    bench.fake.heal();
    bench.fake.reset_counts();
    assert!(bench.cat("fake/d/f").await.expect("the newer version") == pattern(LONG + 5));
    bench.settled("fake/d/f").await;
    assert_eq!(bench.cached(), format!("whole, {} bytes", LONG + 5));
    assert_eq!(bench.fake.counts().fetch, 1);
    unplug(&bench);
    assert!(bench.cat("fake/d/f").await.expect("held") == pattern(LONG + 5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_breaks_off_leaves_the_version_before() {
    let bench = Bench::new();
    bench.fake.file("d/f", pattern(LONG));
    assert!(bench.cat("fake/d/f").await.expect("content") == pattern(LONG));
    bench.settled("fake/d/f").await;
    bench.fake.set("d/f", pattern(LONG - 9));
    bench.vfs.reload(&names("fake/d/f"), false, USER).await.expect("a reload");
    bench.fake.order(Order::of(Fault::CutShort { after: 100_000 }).on(Operation::Fetch).times(99));
    bench.cat("fake/d/f").await.expect_err("it breaks off");
    bench.settled("fake/d/f").await;
    bench.fake.heal();
    unplug(&bench);
    assert!(bench.cat("fake/d/f").await.expect("the version before") == pattern(LONG));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_reads_in_the_newer_version_has_that() {
    let bench = Bench::new();
    // Longer than what comes ahead of who reads.
    looked_at(&bench, LONG, 24 * LONG).await;
    let opened = bench.open("fake/d/f").await.expect("an open");
    assert_eq!(bench.read_at(opened.handle, 0, 10).await.expect("bytes"), pattern(10));
    bench.vfs.close(opened.handle);
    bench.settled("fake/d/f").await;
    unplug(&bench);
    let opened = bench.open("fake/d/f").await.expect("what is held of the newer");
    assert_eq!(bench.read_at(opened.handle, 0, 10).await.expect("bytes"), pattern(10));
    assert_eq!(bench.vfs.names(&names("fake/d/f")).expect("known")[0].cached, Cached::Part);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_version_before_makes_way_where_there_is_no_room_for_both() {
    let space = SpaceOptions { max: Some(3 * LONG as u64 / 2), ..SpaceOptions::default() };
    let bench = Bench::with_space(Freshness::Http, space);
    looked_at(&bench, LONG, LONG + 5).await;
    assert!(bench.cat("fake/d/f").await.expect("the newer version") == pattern(LONG + 5));
    bench.settled("fake/d/f").await;
    assert_eq!(bench.cached(), format!("whole, {} bytes", LONG + 5), "it is kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_version_before_does_not_serve_where_the_source_answers() {
    let bench = Bench::new();
    looked_at(&bench, LONG, LONG + 5).await;
    let busy = RemoteError::Busy { detail: "not now".to_owned(), retry_after: None };
    bench.fake.order(Order::of(Fault::Error(busy)).on(Operation::Fetch).times(99));
    bench.settled("fake/d/f").await;
    let read = bench.cat("fake/d/f").await;
    assert!(matches!(read, Err(VfsError::Remote(RemoteError::Busy { .. }))), "{:?}", read.map(|bytes| bytes.len()));
    // Nor where it says that the file is gone.
    bench.fake.heal();
    bench.fake.remove("d/f");
    bench.cat("fake/d/f").await.expect_err("it is gone");
    unplug(&bench);
    bench.cat("fake/d/f").await.expect_err("it is gone still");
}
