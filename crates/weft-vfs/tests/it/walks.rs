//! Fetching ahead of a walk.

use std::time::{Duration, Instant};

use weft_remote::fake::{Fault, Gate, Operation, Order, Promise, Quality};

use weft_vfs::Freshness;

use crate::bench::{Bench, names};

/// A directory `d` of files `00`, `01`, ... of a few bytes each.
fn files(bench: &Bench, count: usize) {
    for n in 0..count {
        bench.fake.file(format!("d/{n:02}"), format!("content {n}"));
    }
}

async fn cat(bench: &Bench, n: usize) {
    assert_eq!(bench.cat(&format!("fake/d/{n:02}")).await.expect("content"), format!("content {n}").into_bytes());
}

/// Lists a directory whose source takes its time.
async fn list_from_afar(bench: &Bench, path: &str) {
    let gate = Gate::new();
    bench.fake.order(Order::of(Fault::Delay(gate.clone())).on(Operation::Entries).at(path));
    let hold = async {
        gate.arrived(1).await;
        let since = Instant::now();
        until(|| since.elapsed() >= A_WHILE).await;
        gate.open();
    };
    let shown = format!("fake/{path}");
    let (listed, ()) = tokio::join!(bench.list(&shown), hold);
    listed.expect("a listing");
    bench.fake.heal();
}

/// More than what is far takes at least.
const A_WHILE: Duration = Duration::from_millis(20);

/// Lets the fetches that were begun come to their end.
pub async fn until(mut reached: impl FnMut() -> bool) {
    while !reached() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_read_one_after_the_other_are_there_before_they_are_asked_for() {
    let bench = Bench::new();
    files(&bench, 40);
    bench.list("fake/d").await.expect("a listing");
    for n in 0..3 {
        cat(&bench, n).await;
    }
    until(|| bench.fake.counts().fetch >= 5).await;
    for n in 3..40 {
        cat(&bench, n).await;
    }
    assert_eq!(bench.fake.counts().fetch, 40, "each once");
    let figures = bench.vfs.figures();
    assert!(figures.prefetches_used >= 2, "{figures:?}");
    assert!(figures.prefetches <= 37, "{figures:?}");
}

/// Goal: whoever goes through a tree waits for one file of each directory. Method: the first of the second directory is
/// read, and the others come by themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_is_walked_like_the_one_beside_it_was() {
    let bench = Bench::new();
    for (dir, n) in ["a", "b", "c"].into_iter().flat_map(|dir| (0..6).map(move |n| (dir, n))) {
        bench.fake.file(format!("t/{dir}/{n}"), format!("content {n}"));
    }
    let fetched = || bench.fake.counts().fetch;
    bench.list("fake/t/a").await.expect("a listing");
    for n in 0..6 {
        bench.cat(&format!("fake/t/a/{n}")).await.expect("content");
    }
    for (dir, before) in [("b", 6), ("c", 12)] {
        bench.list(&format!("fake/t/{dir}")).await.expect("a listing");
        bench.cat(&format!("fake/t/{dir}/0")).await.expect("content");
        until(|| fetched() >= before + 6).await;
        for n in 0..6 {
            let content = bench.cat(&format!("fake/t/{dir}/{n}")).await.expect("content");
            assert_eq!(content, format!("content {n}").into_bytes());
        }
    }
    assert_eq!(fetched(), 18, "each once");
}

/// Goal: whoever goes through the directories of a far source waits for the lists of the first alone, and each list is asked
/// for once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directories_of_a_far_source_are_listed_ahead() {
    let bench = Bench::new();
    for (above, n) in ["t", "u"].into_iter().flat_map(|above| (0..8).map(move |n| (above, n))) {
        bench.fake.file(format!("{above}/{n}/file"), "content");
        bench.fake.file(format!("{above}/between {n}"), "content");
    }
    // The second is walked like the first, from its first directory on.
    for (above, waited_for, foreseen) in [("t", 3, 2), ("u", 1, 7)] {
        bench.list(&format!("fake/{above}")).await.expect("a listing");
        bench.fake.reset_counts();
        for n in 0..waited_for {
            list_from_afar(&bench, &format!("{above}/{n}")).await;
        }
        until(|| bench.fake.counts().entries >= waited_for + foreseen).await;
        for n in waited_for..8 {
            let path = format!("fake/{above}/{n}");
            // Who was here before it was asked for ahead would have it at once, as from a source that is near.
            until(|| bench.vfs.names(&names(&path)).is_ok_and(|known| !known.is_empty())).await;
            assert_eq!(bench.list(&path).await.expect("a listing"), ["file"]);
        }
        assert_eq!(bench.fake.counts().entries, 8, "each once");
    }
    let figures = bench.vfs.figures();
    assert!(figures.prefetches_used >= 9 && figures.prefetches <= 12, "{figures:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_are_asked_by_whoever_goes_there_alone() {
    let bench = Bench::new();
    bench.fake.adjust(|terms| terms.hosts = true);
    for host in 0..8 {
        bench.fake.file(format!("{host}/file"), "content");
    }
    bench.list("fake").await.expect("a listing");
    for host in 0..5 {
        list_from_afar(&bench, &host.to_string()).await;
    }
    assert_eq!(bench.vfs.figures().prefetches, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sizes_asked_for_one_after_the_other_are_made_exact_ahead() {
    let bench = Bench::new();
    files(&bench, 20);
    bench.fake.adjust(|terms| terms.listing = Quality::Rounded);
    bench.list("fake/d").await.expect("a listing");
    for n in 0..3 {
        bench.walk(&format!("fake/d/{n:02}")).await.expect("a file");
    }
    until(|| bench.fake.counts().attributes >= 5).await;
    for n in 3..20 {
        let stat = bench.walk(&format!("fake/d/{n:02}")).await.expect("a file");
        assert_eq!(stat.size, format!("content {n}").len() as u64);
    }
    assert_eq!(bench.fake.counts().attributes, 20, "each once");
    assert!(bench.vfs.figures().prefetches_used >= 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fetch_ahead_that_fails_or_is_slow_harms_nobody() {
    let bench = Bench::new();
    files(&bench, 12);
    bench.list("fake/d").await.expect("a listing");
    for n in 0..2 {
        cat(&bench, n).await;
    }
    let gate = Gate::new();
    bench.fake.order(Order::of(Fault::CutShort { after: 3 }).on(Operation::Fetch).at("d/03"));
    bench.fake.order(Order::of(Fault::Delay(gate.clone())).on(Operation::Fetch).at("d/04"));
    cat(&bench, 2).await;
    gate.arrived(1).await;
    // The one that was cut short is an error of that file alone, the slow one is waited for by its reader alone.
    bench.cat("fake/d/03").await.expect_err("cut short");
    cat(&bench, 6).await;
    bench.fake.heal();
    gate.open();
    // One that was asked for before may still come, cut short: also after it is known that nothing is on its way.
    bench.settled("fake/d/03").await;
    if bench.cat("fake/d/03").await.is_err() {
        bench.settled("fake/d/03").await;
    }
    for n in 3..12 {
        cat(&bench, n).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaps_through_a_large_directory_fetch_nothing_ahead() {
    let bench = Bench::new();
    files(&bench, 90);
    bench.list("fake/d").await.expect("a listing");
    for n in [50, 10, 80, 30, 70, 5, 45, 20] {
        cat(&bench, n).await;
    }
    assert_eq!(bench.vfs.figures().prefetches, 0);
    assert_eq!(bench.fake.counts().fetch, 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_must_be_asked_about_at_each_use_is_not_fetched_ahead_for_long() {
    let bench = Bench::new();
    bench.fake.adjust(|terms| terms.promise = Promise::Spent);
    files(&bench, 60);
    bench.list("fake/d").await.expect("a listing");
    for n in 0..60 {
        cat(&bench, n).await;
    }
    let figures = bench.vfs.figures();
    assert!(figures.prefetches <= 8, "{figures:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_asked_about_at_each_use_is_not_fetched_ahead() {
    let bench = Bench::with(Freshness::Always);
    files(&bench, 12);
    bench.list("fake/d").await.expect("a listing");
    for n in 0..6 {
        cat(&bench, n).await;
    }
    assert_eq!(bench.vfs.figures().prefetches, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fetch_ahead_that_fails_is_no_trouble_before_somebody_wants_the_file() {
    let bench = Bench::new();
    files(&bench, 12);
    bench.list("fake/d").await.expect("a listing");
    bench.fake.order(Order::of(Fault::CutShort { after: 3 }).on(Operation::Fetch).at("d/03"));
    for n in 0..3 {
        cat(&bench, n).await;
    }
    let failed = || {
        let why = bench.vfs.why(&names("fake/d/03")).expect("known");
        why.facts.iter().any(|(key, _)| key == "last error")
    };
    until(failed).await;
    assert!(bench.vfs.troubles().is_empty(), "{:?}", bench.vfs.troubles());
    // A reader has the error a moment before it is told; one that comes while what was fetched ahead ends has that one's.
    while bench.vfs.troubles().is_empty() {
        bench.cat("fake/d/03").await.expect_err("cut short");
    }
}
