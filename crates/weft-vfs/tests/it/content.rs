//! Reading.

use std::time::Duration;

use weft_remote::fake::{Fault, Gate, Operation, Order, Promise, Quality, Validator};
use weft_remote::{Call, Caller, Name};
use weft_vfs::{Freshness, Notice, NoticeReceivers, OpenFor, ReadBy, VfsError};

use crate::bench::{Bench, pattern};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn content_is_fetched_once_and_is_there_after_a_remount() {
    let bench = Bench::new();
    for _ in 0..3 {
        assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("content"), b"hello");
    }
    assert_eq!(bench.fake.counts().fetch, 1);
    let bench = bench.remount();
    bench.fake.reset_counts();
    assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("content"), b"hello");
    assert_eq!(bench.fake.counts().calls(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_body_of_a_lookup_serves_the_open_that_follows() {
    let bench = Bench::new();
    bench.fake.adjust(|terms| terms.along = true);
    assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("content"), b"hello");
    let counts = bench.fake.counts();
    assert_eq!((counts.lookup, counts.fetch), (3, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_are_read_while_they_arrive() {
    let bench = Bench::new();
    let content = pattern(600_000);
    bench.fake.file("slow", content.clone());
    let gate = Gate::new();
    bench.fake.order(Order::of(Fault::Stall { after: 300_000, gate: gate.clone() }).on(Operation::Fetch));
    let handle = bench.open("fake/slow").await.expect("an open file").handle;
    let first = bench.read_at(handle, 0, 100_000).await.expect("the first bytes");
    assert_eq!(first, content[..100_000]);
    let rest = bench.read_at(handle, 250_000, 200_000);
    let (rest, ()) = tokio::join!(rest, async {
        gate.arrived(1).await;
        gate.open();
    });
    assert_eq!(rest.expect("bytes from both sides of the stall"), content[250_000..450_000]);
    assert_eq!(bench.drain(handle).await.expect("all"), content);
    assert_eq!(bench.fake.counts().fetch, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_reads_of_a_large_file_fetch_ranges_and_leave_it_held_in_part() {
    let bench = Bench::new();
    let content = pattern(40 << 20);
    bench.fake.file("large", content.clone());
    // The whole body stalls at once: what is read can only come by range.
    let gate = Gate::new();
    let stall = Order::of(Fault::Stall { after: 65_536, gate: gate.clone() }).on(Operation::Fetch).times(1);
    bench.fake.order(stall);
    let handle = bench.open("fake/large").await.expect("an open file").handle;
    for offset in [30 << 20, 11 << 20, (40 << 20) - 100, 20_000_001] {
        let bytes = bench.read_at(handle, offset as u64, 5000).await.expect("bytes");
        assert_eq!(bytes, content[offset..(offset + 5000).min(content.len())], "at {offset}");
    }
    let fetched = bench.fake.counts().content_bytes;
    assert!(fetched < 4 << 20, "{fetched} bytes were fetched for 20,000");
    gate.open();
    assert_eq!(bench.drain(handle).await.expect("all"), content);
    bench.vfs.close(handle);
}

/// Goal: a range ends where another that is on its way begins. Method: a reader in sequence, whose reads come out of order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_on_its_way_is_not_fetched_by_another_range() {
    let bench = Bench::new();
    let content = pattern(20 << 20);
    bench.fake.file("large", content.clone());
    let (whole, far) = (Gate::new(), Gate::new());
    let stall =
        |after, gate: &Gate| Order::of(Fault::Stall { after, gate: gate.clone() }).on(Operation::Fetch).times(1);
    bench.fake.order(stall(65_536, &whole));
    let handle = bench.open("fake/large").await.expect("an open file").handle;
    let start = 10 << 20;
    for _ in 0..100 {
        bench.read_at(handle, start, 60_000).await.expect("bytes");
    }
    let before = bench.fake.counts();
    bench.fake.order(stall(0, &far));
    let read_far = bench.read_at(handle, start + (512 << 10), 1000);
    let read_near = async {
        far.arrived(1).await;
        let near = bench.read_at(handle, start + (256 << 10), 1000).await;
        far.open();
        near
    };
    let (far, near) = tokio::join!(read_far, read_near);
    assert_eq!(far.expect("bytes"), content[start as usize + (512 << 10)..][..1000]);
    assert_eq!(near.expect("bytes"), content[start as usize + (256 << 10)..][..1000]);
    assert_eq!(bench.fake.counts().fetch, before.fetch + 2);
    whole.open();
    assert_eq!(bench.drain(handle).await.expect("all"), content);
    let fetched = bench.fake.counts().content_bytes - before.content_bytes;
    assert!(fetched < (20 << 20) + (9 << 20), "{fetched} bytes were fetched, of which 8 MiB twice");
    bench.vfs.close(handle);
}

/// Goal: a range that comes when others have brought all of it is no trouble, whatever becomes of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_range_that_comes_too_late_is_left() {
    let bench = Bench::new();
    let content = pattern(20 << 20);
    bench.fake.file("large", content.clone());
    let (whole, late) = (Gate::new(), Gate::new());
    let once = |fault| Order::of(fault).on(Operation::Fetch).times(1);
    bench.fake.order(once(Fault::Stall { after: 65_536, gate: whole.clone() }));
    let handle = bench.open("fake/large").await.expect("an open file").handle;
    bench.fake.order(once(Fault::Delay(late.clone())));
    bench.fake.order(once(Fault::CutShort { after: 65_536 }));
    let read_late = bench.read_at(handle, 15 << 20, 1000);
    let read_all = async {
        late.arrived(1).await;
        whole.open();
        let all = bench.drain(handle).await;
        late.open();
        all
    };
    let (read, all) = tokio::join!(read_late, read_all);
    assert_eq!(read.expect("bytes"), content[15 << 20..][..1000]);
    assert_eq!(all.expect("all"), content);
    assert!(bench.vfs.troubles().is_empty(), "{:?}", bench.vfs.troubles());
    bench.vfs.close(handle);
}

/// Goal: who has a file open reads one version of it, and who opens it next gets the new one, also where the source had promised
/// the old one for longer and only a part of that is held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_file_is_one_version() {
    for freshness in [Freshness::Always, Freshness::Http, Freshness::Manual] {
        let bench = Bench::with(freshness);
        bench.fake.adjust(|terms| terms.promise = Promise::Lasting(Duration::from_secs(3600)));
        let old = pattern(20 << 20);
        bench.fake.file("f", old.clone());
        let gate = Gate::new();
        bench.fake.order(Order::of(Fault::Stall { after: 65_536, gate }).on(Operation::Fetch).times(1));
        let handle = bench.open("fake/f").await.expect("an open file").handle;
        assert_eq!(bench.read_at(handle, 0, 1000).await.expect("old bytes"), old[..1000]);
        bench.fake.set("f", vec![9; 20 << 20]);
        let late = bench.read_at(handle, 15 << 20, 1000).await;
        assert!(matches!(late, Err(VfsError::Changed)), "never bytes of another version: {late:?}");
        assert_eq!(bench.read_at(handle, 10, 1000).await.expect("old bytes"), old[10..1010]);
        let new = bench.cat("fake/f").await.expect("the new version at the next open");
        assert!(new == vec![9; 20 << 20], "{freshness:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unchanged_file_keeps_its_pages_and_a_changed_one_does_not() {
    let bench = Bench::with(Freshness::Always);
    bench.fake.file("f", "one");
    let first = bench.open("fake/f").await.expect("an open file");
    assert!(!first.keep_pages);
    // Until the first answer has come, the kernel has the pages of before.
    let beside = bench.open("fake/f").await.expect("an open file");
    assert!(!beside.keep_pages && !beside.bypass_pages);
    bench.vfs.close(beside.handle);
    bench.vfs.released(first.handle);
    let again = bench.open("fake/f").await.expect("an open file");
    assert!(again.keep_pages && !again.bypass_pages);
    let node = bench.walk("fake/f").await.expect("it is there").node;
    bench.fake.set("f", "two");
    let changed = bench.open("fake/f").await.expect("an open file");
    assert!(!changed.keep_pages && !changed.bypass_pages, "by another number of the kernel");
    assert_ne!(bench.walk("fake/f").await.expect("it is there").node, node, "the old version is still open");
    bench.fake.set("f", "new");
    let third = bench.open("fake/f").await.expect("an open file");
    assert!(!third.keep_pages && !third.bypass_pages, "what is read past the pages can be mapped, and put into them");
    assert!(matches!(bench.drain(again.handle).await, Err(VfsError::Changed)), "three are too many");
    for (opened, content) in [(changed, b"two"), (third, b"new")] {
        assert_eq!(bench.drain(opened.handle).await.expect("as it was opened"), content);
        bench.vfs.close(opened.handle);
    }
    bench.vfs.close(again.handle);
    let last = bench.open("fake/f").await.expect("an open file");
    assert!(!last.bypass_pages);
}

/// Goal: what came again without a validator has the pages of what is open where it is the same; where it is another
/// it is opened by another number, and of three the oldest ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_no_validator_is_compared_with_what_is_open() {
    for along in [false, true] {
        let bench = Bench::with(Freshness::Always);
        bench.fake.adjust(|terms| (terms.validator, terms.along) = (Validator::None, along));
        bench.fake.file("f", "one");
        let open = async || bench.open("fake/f").await.expect("an open file");
        let number = async || bench.walk("fake/f").await.expect("it is there").node;
        let node = number().await;
        let mut of_one = vec![open().await];
        assert_eq!(bench.drain(of_one[0].handle).await.expect("content"), b"one");
        for _ in 0..3 {
            let beside = open().await;
            assert!(beside.keep_pages && !beside.bypass_pages, "{along}");
            of_one.push(beside);
        }
        assert_eq!(number().await, node, "{along}");
        bench.fake.set("f", "two");
        let two = open().await;
        assert!(!two.keep_pages && !two.bypass_pages, "{along}");
        assert_ne!(number().await, node, "{along}");
        assert_eq!(bench.drain(of_one[0].handle).await.expect("as it was opened"), b"one");
        bench.fake.set("f", "new");
        let three = open().await;
        assert!(!three.keep_pages && !three.bypass_pages, "{along}");
        for one in of_one {
            assert!(matches!(bench.drain(one.handle).await, Err(VfsError::Changed)), "three are too many: {along}");
        }
        assert_eq!(bench.drain(two.handle).await.expect("as it was opened"), b"two");
        assert_eq!(bench.drain(three.handle).await.expect("content"), b"new");
    }
}

/// Goal: who reads the oldest of three versions is shown no zeros behind its end. Method: the number of the kernel by which that is
/// open is the newest one's by now; how long that is, is told by it after the kernel has dropped its pages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_oldest_of_three_versions_is_dropped_before_the_length_of_another_is_told() {
    let (bench, NoticeReceivers { attributes, others, told }) = Bench::with(Freshness::Always).heard();
    std::thread::spawn(move || attributes.iter().for_each(|_| told.send_modify(|count| *count += 1)));
    bench.fake.file("f", "zero");
    let mut nodes = Vec::new();
    for content in ["zero", "older", "newest"] {
        bench.fake.set("f", content);
        bench.open("fake/f").await.expect("an open file");
        nodes.push(bench.walk("fake/f").await.expect("it is there").node);
    }
    assert!(nodes[0] == nodes[2] && nodes[0] != nodes[1], "{nodes:?}");
    let asking = tokio::spawn(bench.vfs.clone().stat(bench.call(), nodes[0], None));
    let kernel = tokio::task::spawn_blocking(move || {
        let mut dropped = Vec::new();
        loop {
            match others.recv_timeout(Duration::from_secs(10)).expect("somebody waits for the kernel") {
                Notice::Content { node } => dropped.push(node),
                Notice::Fence(passed) => return (dropped, passed),
                _ => {}
            }
        }
    });
    let (dropped, passed) = kernel.await.expect("no panic");
    assert!(dropped.contains(&nodes[0]), "{dropped:?}");
    assert!(!asking.is_finished());
    passed.send(()).expect("it is waited for");
    assert_eq!(asking.await.expect("no panic").expect("it is there").size, 6);
    let again = bench.vfs.clone().stat(bench.call(), nodes[0], None).await;
    assert_eq!(again.expect("and nobody waits twice").size, 6);
}

/// Goal: a daemon that takes a mount over knows which version the next reader gets, in whatever order it hears of the open
/// files.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_versions_that_are_open_stay_apart_after_a_restart() {
    for newest_first in [false, true] {
        let bench = Bench::with(Freshness::Always);
        // The former one by the second number of the kernel, the newer one by the first, in a use of its own.
        bench.fake.file("f", "zero");
        let open = async |content: &str| {
            bench.fake.set("f", content.to_owned());
            let opened = bench.open("fake/f").await.expect("an open file");
            (bench.walk("fake/f").await.expect("it is there"), opened)
        };
        let (_, zero) = open("zero").await;
        let (of_older, older) = open("older").await;
        let (of_newest, newest) = open("newest").await;
        assert_ne!(of_older.node, of_newest.node);
        assert!(matches!(bench.drain(zero.handle).await, Err(VfsError::Changed)), "three are too many");
        bench.vfs.close(zero.handle);
        let mut held =
            vec![(of_older.node, older.handle, older.record), (of_newest.node, newest.handle, newest.record)];
        if newest_first {
            held.reverse();
        }
        let bench = bench.remount();
        for (node, handle, record) in &held {
            bench.vfs.reopen(*node, *handle, record, ReadBy::Daemon).expect("it is known");
        }
        let now = bench.walk("fake/f").await.expect("it is there");
        let number = |stat: weft_vfs::Stat| (stat.node, stat.generation);
        assert_eq!((number(now), now.generation), (number(of_newest), 1), "{newest_first}");
        let beside = bench.open("fake/f").await.expect("an open file");
        assert!(!beside.bypass_pages, "{newest_first}: nobody reads another version by this number");
        assert_eq!(bench.drain(newest.handle).await.expect("as it was opened"), b"newest");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_complete_large_file_is_offered_to_the_kernel_and_a_small_one_is_not() {
    let bench = Bench::new();
    bench.fake.file("large", pattern(1 << 20));
    bench.cat("fake/large").await.expect("content");
    bench.cat("fake/a/b/hello.txt").await.expect("content");
    assert!(bench.open("fake/large").await.expect("an open file").backing.is_some());
    assert!(bench.open("fake/a/b/hello.txt").await.expect("an open file").backing.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_without_validator_is_served_and_kept_for_its_lease() {
    let bench = Bench::new();
    bench.fake.adjust(|terms| terms.validator = Validator::None);
    assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("content"), b"hello");
    assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("content"), b"hello");
    assert_eq!(bench.fake.counts().fetch, 1);
}

/// Goal: a body that announces no length is waited for by who opens it: the kernel, which goes by the length of before, is
/// sent to learn the new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_of_unannounced_length_is_opened_when_it_is_whole() {
    let bench = Bench::with(Freshness::Always);
    bench.fake.adjust(|terms| terms.along = true);
    bench.fake.file("f", pattern(4100));
    bench.fake.quality("f", Quality::Unknown);
    assert_eq!(bench.cat("fake/f").await.expect("content"), pattern(4100));
    let node = bench.walk("fake/f").await.expect("it is there").node;
    bench.fake.set("f", "short");
    let gate = Gate::new();
    bench.fake.order(Order::of(Fault::Stall { after: 2, gate: gate.clone() }).on(Operation::Attributes).times(1));
    let opening = tokio::spawn(bench.vfs.clone().open(bench.call(), node, OpenFor::default()));
    gate.arrived(1).await;
    gate.open();
    let opened = opening.await.expect("no panic").map(|opened| opened.handle);
    assert!(matches!(opened, Err(VfsError::Stale)), "{opened:?}");
    assert_eq!(bench.walk("fake/f").await.expect("it is there").size, 5);
    assert_eq!(bench.cat("fake/f").await.expect("content"), b"short");
}

/// Goal: the kernel, which follows a path once more in a call and not twice, keeps no pages of what has become of another length
/// meanwhile: by the length that it goes by they would be cut off or filled up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_changes_twice_while_it_is_opened_is_read_past_the_pages() {
    let bench = Bench::with(Freshness::Always);
    bench.fake.file("f", pattern(10));
    let mut node = bench.walk("fake/f").await.expect("it is there").node;
    let open = async |node| bench.vfs.clone().open(bench.call(), node, OpenFor::default()).await;
    bench.fake.set("f", pattern(20));
    assert!(matches!(open(node).await.map(|opened| opened.handle), Err(VfsError::Stale)));
    node = bench.walk("fake/f").await.expect("it is there").node;
    bench.fake.set("f", pattern(30));
    let opened = open(node).await.expect("opened");
    assert!(opened.bypass_pages && opened.record.bypass_pages && !opened.keep_pages);
    assert_eq!(bench.drain(opened.handle).await.expect("content"), pattern(30));
    bench.vfs.released(opened.handle);
    let again = open(node).await.expect("opened");
    assert!(!again.bypass_pages && !again.keep_pages, "what the kernel has pages of is not known");
}

/// Goal: who looks at a file without validator and without an announced length is told how long the body is that came for that,
/// and not an older one that ends meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_length_is_that_of_the_newest_body() {
    let bench = Bench::with(Freshness::Always);
    bench.fake.adjust(|terms| (terms.along, terms.validator) = (true, Validator::None));
    bench.fake.file("f", pattern(10));
    bench.fake.quality("f", Quality::Unknown);
    let node = bench.walk("fake/f").await.expect("it is there").node;
    let look = async |pid: u32| {
        let gate = Gate::new();
        bench.fake.order(Order::of(Fault::Stall { after: 2, gate: gate.clone() }).on(Operation::Attributes).times(1));
        let call = Call { caller: Caller { pid, ..bench.call().caller }, ..bench.call() };
        let looking = tokio::spawn(bench.vfs.clone().stat(call, node, None));
        gate.arrived(1).await;
        (gate, looking)
    };
    let (older, first) = look(1000).await;
    bench.fake.set("f", pattern(5));
    let (newer, second) = look(1001).await;
    older.open();
    while bench.fake.counts().content_bytes < 10 + 10 + 2 {
        tokio::task::yield_now().await;
    }
    newer.open();
    for looking in [first, second] {
        assert_eq!(looking.await.expect("no panic").expect("told").size, 5);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_user_may_see_is_not_shown_to_another() {
    let bench = Bench::new();
    bench.fake.adjust(|terms| terms.audience = weft_remote::Audience::Only { uid: 1 });
    assert!(matches!(bench.cat("fake/a/b/hello.txt").await, Err(VfsError::Denied)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_lease_is_asked_about_again() {
    let bench = Bench::new();
    bench.fake.adjust(|terms| terms.promise = Promise::Breakable(Duration::from_secs(3600)));
    assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("content"), b"hello");
    bench.fake.set("a/b/hello.txt", "other");
    // The event travels by itself; until it has arrived the old content is right by its lease.
    while bench.cat("fake/a/b/hello.txt").await.expect("content") != b"other" {
        tokio::task::yield_now().await;
    }
}

/// Goal: the page of a directory that comes to its end after the file was fetched anew does not take that one's place, neither
/// at once nor after a remount.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_body_that_ends_later_replaces_nothing() {
    let bench = Bench::new();
    bench.fake.file("d/index.html", pattern(300_000));
    bench.fake.page("d", &Name::new("index.html").expect("a name"));
    let gate = Gate::new();
    bench.fake.order(Order::of(Fault::Stall { after: 65_536, gate: gate.clone() }).on(Operation::Lookup).times(1));
    bench.walk("fake/d").await.expect("there");
    gate.arrived(1).await;
    bench.fake.set("d/index.html", pattern(400_000));
    let shows_the_newer = async |bench: &Bench| {
        assert_eq!(bench.walk("fake/d/index.html").await.expect("there").size, 400_000);
        assert!(bench.cat("fake/d/index.html").await.expect("content") == pattern(400_000));
    };
    shows_the_newer(&bench).await;
    bench.settled("fake/d/index.html").await;
    gate.open();
    bench.list("fake/d").await.expect("a listing");
    shows_the_newer(&bench).await;
    shows_the_newer(&bench.remount()).await;
}

/// Goal: of two answers that cross on their way the one that was asked for first is not what is known from then on, when it comes
/// last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_comes_late_is_not_believed() {
    let bench = Bench::new();
    bench.fake.adjust(|terms| terms.along = true);
    bench.fake.file("d/f", pattern(300));
    let gate = Gate::new();
    bench.fake.order(Order::of(Fault::Delay(gate.clone())).on(Operation::LookupAnswer).at("d/f").times(1));
    let dir = bench.walk("fake/d").await.expect("there").node;
    let looking = tokio::spawn(bench.vfs.clone().lookup(bench.call(), dir, b"f".to_vec()));
    gate.arrived(1).await;
    bench.fake.set("d/f", pattern(400));
    assert!(bench.cat("fake/d/f").await.expect("the newer") == pattern(400));
    gate.open();
    looking.await.expect("no panic").expect("there");
    let node = bench.walk("fake/d/f").await.expect("there").node;
    assert_eq!(bench.vfs.clone().stat(bench.call(), node, None).await.expect("there").size, 400);
    assert!(bench.cat("fake/d/f").await.expect("the newer") == pattern(400));
}
