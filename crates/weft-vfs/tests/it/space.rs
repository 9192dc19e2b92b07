//! Classes, bounds, pins and evictions.

use weft_remote::fake::{Fault, Gate, Operation, Order};
use weft_vfs::{Cached, Class, Freshness, OfPinned, SpaceOptions, SpaceRule, VfsError};

use crate::bench::{Bench, USER, names, pattern};

/// Bytes of the files of these tests: whole blocks, so that what they take on disk is their length.
const FILE: usize = 64 << 10;
const FILE_BYTES: u64 = FILE as u64;

fn scratch() -> SpaceOptions {
    SpaceOptions { class: Class::Scratch, ..SpaceOptions::default() }
}

fn rule(path: &str, class: Option<Class>, max: Option<u64>) -> SpaceRule {
    SpaceRule { path: names(path), class, max }
}

/// A mount with files `one/0`, `one/1`, ... and `two/0`, ... of one length.
fn bench(space: SpaceOptions) -> Bench {
    let bench = Bench::with_space(Freshness::Http, space);
    for tree in ["one", "two"] {
        for nth in 0..12 {
            bench.fake.file(format!("{tree}/{nth}"), pattern(FILE));
        }
    }
    bench
}

impl Bench {
    async fn reads(&self, path: &str) {
        assert!(self.cat(path).await.unwrap_or_else(|error| panic!("{path}: {error}")) == pattern(FILE), "{path}");
        self.settled(path).await;
    }

    fn holds(&self, path: &str) -> bool {
        self.vfs.names(&names(path)).is_ok_and(|infos| infos[0].cached == Cached::Whole)
    }

    /// Which of the files of a tree are held.
    fn held(&self, tree: &str) -> Vec<u32> {
        (0..12).filter(|nth| self.holds(&format!("fake/{tree}/{nth}"))).collect()
    }

    async fn counted(&self) {
        while !self.vfs.cache_usage(&[]).expect("figures").counted {
            tokio::task::yield_now().await;
        }
    }

    fn xattr(&self, node: weft_vfs::NodeId, name: &str) -> String {
        let value = self.vfs.extended(node, name.as_bytes()).expect("known").expect("there");
        String::from_utf8(value).expect("text")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scratch_goes_oldest_use_first_and_stays_listed() {
    let bench = bench(SpaceOptions { scratch_max: Some(3 * FILE_BYTES), ..scratch() });
    for nth in 0..3 {
        bench.reads(&format!("fake/one/{nth}")).await;
    }
    bench.reads("fake/one/0").await;
    bench.reads("fake/one/3").await;
    assert_eq!(bench.held("one"), [0, 2, 3], "1 was the longest unused");
    let listed = bench.list("fake/one").await.expect("a listing");
    assert!(listed.contains(&"1".to_string()), "{listed:?}");
    let evictions = bench.vfs.evictions(10).expect("a journal");
    assert_eq!(evictions.len(), 1);
    assert_eq!((evictions[0].path.as_str(), evictions[0].bytes), ("fake/one/1", FILE_BYTES));
    assert_eq!(evictions[0].reason, "[cache] scratch_max");
    assert_eq!(bench.vfs.cache_usage(&[]).expect("figures").total.bytes, 3 * FILE_BYTES);
    bench.reads("fake/one/1").await;
    assert_eq!(bench.held("one"), [0, 1, 3]);
}

/// Goal: what is served without being stored and breaks off is asked for again from there, a few times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_served_through_is_gone_on_with_where_it_broke_off() {
    let bench = Bench::with_space(Freshness::Http, SpaceOptions { max: Some(FILE_BYTES), ..SpaceOptions::default() });
    let content = pattern(5 << 20);
    bench.fake.file("large", content.clone());
    let cut = |after: u64, times: u32| {
        bench.fake.order(Order::of(Fault::CutShort { after }).on(Operation::Fetch).times(times));
    };
    let handle = bench.open("fake/large").await.expect("an open file").handle;
    cut(3 << 20, 1);
    cut(700_000, 1);
    assert!(bench.drain(handle).await.expect("all of it") == content);
    cut(0, 100);
    let again = bench.read_at(handle, 0, 4096).await.map(|bytes| bytes.len());
    assert!(matches!(again, Err(VfsError::Remote(_))), "{again:?}");
    bench.vfs.close(handle);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kept_content_is_served_through_when_the_bound_is_met_and_that_is_told_once() {
    let bench = bench(SpaceOptions { tree_max: Some(2 * FILE_BYTES), ..SpaceOptions::default() });
    for nth in 0..5 {
        bench.reads(&format!("fake/one/{nth}")).await;
    }
    assert_eq!(bench.held("one"), [0, 1], "nothing is evicted");
    bench.reads("fake/two/0").await;
    assert_eq!(bench.held("two"), [0], "another tree has a bound of its own");
    let told: Vec<_> = bench.vfs.troubles().into_iter().filter(|t| t.text.contains("max_per_host")).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].text.starts_with("fake/one: "), "{told:?}");
    bench.vfs.remove(&names("fake/one/0"), false, OfPinned::Stays, USER.uid).expect("removed");
    bench.reads("fake/one/4").await;
    assert_eq!(bench.held("one"), [1, 4], "there is room again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scratch_makes_room_for_what_is_kept_and_only_where_that_helps() {
    let rules = vec![rule("fake/one", Some(Class::Scratch), None), rule("fake/two", None, Some(2 * FILE_BYTES))];
    let space = SpaceOptions { rules, max: Some(4 * FILE_BYTES), ..SpaceOptions::default() };
    let bench = bench(space);
    for path in ["fake/one/0", "fake/one/1", "fake/one/2", "fake/one/3", "fake/two/0", "fake/two/1", "fake/two/2"] {
        bench.reads(path).await;
    }
    assert_eq!(bench.held("two"), [0, 1], "its own bound lets no third one in");
    assert_eq!(bench.held("one"), [2, 3], "and no scratch of another tree was evicted for that");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_file_is_not_evicted() {
    let bench = bench(SpaceOptions { scratch_max: Some(2 * FILE_BYTES), ..scratch() });
    bench.reads("fake/one/0").await;
    let open = bench.open("fake/one/0").await.expect("open").handle;
    for nth in 1..6 {
        bench.reads(&format!("fake/one/{nth}")).await;
        assert!(bench.holds("fake/one/0"), "after {nth}");
    }
    assert!(bench.drain(open).await.expect("content") == pattern(FILE));
    bench.vfs.close(open);
    for nth in 6..8 {
        bench.reads(&format!("fake/one/{nth}")).await;
    }
    assert_eq!(bench.held("one"), [6, 7]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_longer_than_its_bound_is_never_stored_and_evicts_nothing() {
    let bench = bench(SpaceOptions { scratch_max: Some(4 * FILE_BYTES), ..scratch() });
    bench.reads("fake/one/0").await;
    bench.fake.file("one/huge", pattern(5 * FILE));
    assert!(bench.cat("fake/one/huge").await.expect("content") == pattern(5 * FILE));
    assert_eq!(bench.held("one"), [0]);
    assert!(!bench.holds("fake/one/huge"));
}

/// Goal: a body that finds no more room half way is read to its end, right, and leaves nothing. Method: an open file
/// takes the room that eviction would have given.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bound_met_half_way_costs_no_byte() {
    let bench = bench(SpaceOptions { scratch_max: Some(6 << 20), ..scratch() });
    bench.fake.file("one/open", pattern(2 << 20));
    bench.fake.file("one/large", pattern(5 << 20));
    let open = bench.open("fake/one/open").await.expect("open").handle;
    assert!(bench.drain(open).await.expect("content") == pattern(2 << 20));
    assert!(bench.cat("fake/one/large").await.expect("content") == pattern(5 << 20));
    bench.settled("fake/one/large").await;
    assert!(!bench.holds("fake/one/large"));
    assert!(bench.holds("fake/one/open"));
    bench.vfs.close(open);
    assert!(bench.cat("fake/one/large").await.expect("content") == pattern(5 << 20));
    bench.settled("fake/one/large").await;
    assert!(bench.holds("fake/one/large"), "the other could go now");
    assert!(!bench.holds("fake/one/open"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_earlier_mounts_left_counts_and_goes_in_the_order_of_its_use() {
    let bench = bench(SpaceOptions { scratch_max: Some(4 * FILE_BYTES), ..scratch() });
    for nth in [2, 0, 3, 1] {
        bench.reads(&format!("fake/one/{nth}")).await;
        // Uses are told apart by the millisecond.
        let now = std::time::SystemTime::now();
        while now.elapsed().is_ok_and(|since| since.as_millis() < 2) {
            tokio::task::yield_now().await;
        }
    }
    let bench = bench.remount();
    bench.counted().await;
    assert_eq!(bench.vfs.cache_usage(&[]).expect("figures").total.bytes, 4 * FILE_BYTES);
    bench.reads("fake/one/4").await;
    bench.reads("fake/one/5").await;
    assert_eq!(bench.held("one"), [1, 3, 4, 5]);
    let bench = bench.remount_with(SpaceOptions { scratch_max: Some(FILE_BYTES), ..scratch() });
    // The bound was lowered: the keeper evicts down to it.
    while bench.held("one").len() > 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!(bench.held("one"), [5]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pins_hold_are_told_and_last() {
    let bench = bench(SpaceOptions { scratch_max: Some(2 * FILE_BYTES), ..scratch() });
    bench.list("fake/one").await.expect("a listing");
    bench.reads("fake/one/0").await;
    bench.reads("fake/one/1").await;
    let covered = bench.vfs.pin(&names("fake/one/0")).expect("pinned");
    assert_eq!((covered.files, covered.bytes, covered.missing_files), (1, FILE_BYTES, 0));
    let covered = bench.vfs.pin(&names("fake/one")).expect("pinned");
    assert_eq!((covered.files, covered.missing_files, covered.missing_bytes), (12, 10, 10 * FILE_BYTES));
    assert_eq!(bench.vfs.unpin(&names("fake/one/0")).expect("only the one").files, 1);
    let bench = bench.remount();
    bench.counted().await;
    for nth in 0..6 {
        bench.reads(&format!("fake/two/{nth}")).await;
    }
    assert_eq!(bench.held("one"), [0, 1], "pinned");
    assert_eq!(bench.held("two"), [4, 5], "scratch has its bound to itself");
    assert_eq!(bench.vfs.pinned_paths(), ["fake/one"]);
    let node = bench.walk("fake/one/0").await.expect("known").node;
    assert_eq!(bench.xattr(node, "user.weft.class"), "pinned");
    let why = bench.vfs.why(&names("fake/one/0")).expect("explained");
    assert!(why.facts.iter().any(|(key, _)| key == "pinned"), "{why:?}");
    let refused = bench.vfs.remove(&names("fake"), true, OfPinned::Stays, USER.uid);
    assert!(matches!(refused, Err(VfsError::Pinned)), "{refused:?}");
    assert_eq!((bench.held("one"), bench.held("two")), (vec![0, 1], vec![]));
    assert!(matches!(bench.vfs.unpin(&names("fake/two")), Err(VfsError::NotFound)));
    bench.vfs.unpin(&names("fake")).expect("all below");
    assert_eq!(bench.xattr(node, "user.weft.class"), "scratch");
    for nth in 6..8 {
        bench.reads(&format!("fake/two/{nth}")).await;
    }
    assert_eq!(bench.held("one"), [] as [u32; 0], "scratch again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_that_is_not_known_can_be_pinned_below_a_known_tree() {
    let bench = bench(SpaceOptions { scratch_max: Some(FILE_BYTES), ..scratch() });
    bench.walk("fake/one").await.expect("known");
    assert!(matches!(bench.vfs.pin(&names("fake/never/x")), Err(VfsError::NotFound)));
    assert!(matches!(bench.vfs.pin(&names("elsewhere")), Err(VfsError::NotFound)));
    bench.fake.file("one/later/deep", pattern(FILE));
    assert_eq!(bench.vfs.pin(&names("fake/one/later")).expect("pinned").files, 0);
    bench.reads("fake/one/later/deep").await;
    bench.reads("fake/one/0").await;
    bench.reads("fake/one/1").await;
    assert!(bench.holds("fake/one/later/deep"));
    assert_eq!(bench.held("one"), [1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_longest_rule_decides_and_figures_tell_trees_and_users() {
    let rules = vec![rule("fake", Some(Class::Scratch), None), rule("fake/two", Some(Class::Pinned), Some(9 << 20))];
    let bench = bench(SpaceOptions { rules, ..SpaceOptions::default() });
    bench.reads("fake/one/0").await;
    bench.reads("fake/two/0").await;
    bench.reads("fake/two/1").await;
    let usage = bench.vfs.cache_usage(&[]).expect("figures");
    let trees: Vec<_> = usage.trees.iter().map(|t| (t.path.as_str(), t.class.as_str(), t.sum.files, t.max)).collect();
    assert_eq!(trees, [("fake/two", "pinned", 2, Some(9 << 20)), ("fake/one", "scratch", 1, None)]);
    assert_eq!((usage.pinned_bytes, usage.scratch_bytes), (2 * FILE_BYTES, FILE_BYTES));
    assert_eq!(usage.users.len(), 1);
    assert_eq!((usage.users[0].uid, usage.users[0].sum.files), (USER.uid, 3));
    let part = bench.vfs.cache_usage(&names("fake/two/1")).expect("figures");
    assert_eq!((part.trees[0].path.as_str(), part.total.bytes), ("fake/two/1", FILE_BYTES));
    let why = bench.vfs.why(&names("fake/two/0")).expect("explained");
    let quota = why.facts.iter().find(|(key, _)| key == "quota").map(|(_, value)| value.clone());
    assert_eq!(quota, Some(format!("max of [[tree]] fake/two: {} of {} bytes taken", 2 * FILE_BYTES, 9 << 20)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_pinned_while_it_comes_is_not_evicted() {
    let bench = bench(SpaceOptions { scratch_max: Some(2 * FILE_BYTES), ..scratch() });
    bench.list("fake/one").await.expect("a listing");
    let gate = Gate::new();
    let stall = Order::of(Fault::Stall { after: 1024, gate: gate.clone() });
    bench.fake.order(stall.on(Operation::Fetch).at("one/0"));
    let open = bench.open("fake/one/0").await.expect("open").handle;
    bench.vfs.pin(&names("fake/one/0")).expect("pinned");
    gate.open();
    bench.drain(open).await.expect("content");
    bench.vfs.close(open);
    bench.settled("fake/one/0").await;
    for nth in 0..4 {
        bench.reads(&format!("fake/two/{nth}")).await;
    }
    assert_eq!(bench.held("one"), [0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_fetched_ahead_evicts_nothing_and_fills_no_bound() {
    let bounded = |max: u64| {
        [
            SpaceOptions { scratch_max: Some(max), ..scratch() },
            SpaceOptions { max: Some(max), ..SpaceOptions::default() },
            SpaceOptions { tree_max: Some(max), ..SpaceOptions::default() },
            SpaceOptions { rules: vec![rule("fake/one", None, Some(max))], ..SpaceOptions::default() },
        ]
    };
    for (files, ahead) in [(4, 0), (12, 2)] {
        for space in bounded(files * FILE_BYTES) {
            let bench = bench(space);
            bench.list("fake/one").await.expect("a listing");
            for path in ["fake/one/0", "fake/one/1", "fake/one/10"] {
                bench.reads(path).await;
            }
            assert_eq!(bench.vfs.figures().prefetches, ahead, "a bound of {files} files");
        }
    }
}
