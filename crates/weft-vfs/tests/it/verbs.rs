//! What the verbs ask.

use weft_remote::fake::{Fault, Order};
use weft_remote::{Caller, RemoteError};
use weft_vfs::{Cached, Freshness, OfPinned, VfsError};

use crate::bench::{Bench, USER, names, pattern};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_tell_what_is_cached() {
    let bench = Bench::new();
    bench.fake.file("d/one", "1");
    bench.fake.file("d/two", "22");
    bench.list("fake/d").await.expect("a listing");
    bench.cat("fake/d/two").await.expect("content");
    bench.settled("fake/d/two").await;
    bench.vfs.store().flush().expect("a flush");
    let infos = bench.vfs.names(&names("fake/d")).expect("names");
    let seen: Vec<_> = infos.iter().map(|i| (i.name.to_string(), i.cached, i.size)).collect();
    assert_eq!(seen, [("one".to_string(), Cached::No, Some(1)), ("two".to_string(), Cached::Whole, Some(2))]);
    assert!(matches!(bench.vfs.names(&names("fake/never")), Err(VfsError::NotFound)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removal_drops_content_keeps_the_name_and_respects_the_owner() {
    let bench = Bench::new();
    bench.fake.file("d/f", pattern(5000));
    bench.list("fake/d").await.expect("a listing");
    bench.cat("fake/d/f").await.expect("content");
    bench.settled("fake/d/f").await;
    let path = names("fake/d/f");
    assert!(matches!(bench.vfs.remove(&path, false, OfPinned::Stays, USER.uid + 1), Err(VfsError::Denied)));
    assert!(matches!(
        bench.vfs.remove(&names("fake/d"), false, OfPinned::Stays, USER.uid),
        Err(VfsError::IsADirectory)
    ));
    let removed = bench.vfs.remove(&names("fake"), true, OfPinned::Stays, USER.uid).expect("removed");
    assert_eq!(removed.files, 1);
    assert!(removed.bytes >= 5000, "{} bytes on disk", removed.bytes);
    assert_eq!(bench.vfs.names(&path).expect("the name is still known")[0].cached, Cached::No);
    bench.fake.reset_counts();
    assert_eq!(bench.cat("fake/d/f").await.expect("fetched again"), pattern(5000));
    assert_eq!(bench.fake.counts().fetch, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn manual_means_until_reload() {
    let bench = Bench::with(Freshness::Manual);
    assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("content"), b"hello");
    bench.fake.set("a/b/hello.txt", "new");
    assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("content"), b"hello");
    let done = bench.vfs.reload(&names("fake/a/b/hello.txt"), false, USER).await.expect("a reload");
    assert_eq!((done.checked, done.changed), (1, 1));
    assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("content"), b"new");
    let again = bench.vfs.reload(&names("fake"), true, Caller::DAEMON).await.expect("a reload");
    assert_eq!((again.changed, again.failed), (0, 0));
    assert!(again.checked >= 1, "{again:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_tells_source_version_and_what_happens_next() {
    let bench = Bench::new();
    bench.cat("fake/a/b/hello.txt").await.expect("content");
    bench.settled("fake/a/b/hello.txt").await;
    bench.vfs.store().flush().expect("a flush");
    let why = bench.vfs.why(&names("fake/a/b/hello.txt")).expect("an explanation");
    let fact = |key: &str| why.facts.iter().find(|(k, _)| k == key).map(|(_, v)| v.clone());
    assert_eq!(fact("cached").as_deref(), Some("whole, 5 bytes"));
    assert_eq!(fact("policy").as_deref(), Some("freshness = http (the mount's own)"));
    assert!(fact("version").is_some_and(|v| v.ends_with("(strong)")));
    assert!(fact("next").is_some_and(|next| next.starts_with("served from the cache")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offline_asks_nobody_serves_what_is_held_and_lasts_until_online() {
    let bench = Bench::with(Freshness::Always);
    bench.fake.file("d/held", "held");
    bench.fake.file("d/listed", "listed");
    bench.fake.file("other/f", "f");
    bench.list("fake/d").await.expect("a listing");
    bench.cat("fake/d/held").await.expect("content");
    bench.vfs.take_offline(&names("fake/d"), weft_vfs::Mode::Offline).expect("offline");
    let bench = bench.remount();
    bench.fake.reset_counts();
    assert_eq!(bench.list("fake/d").await.expect("the names known"), ["held", "listed"]);
    assert_eq!(bench.cat("fake/d/held").await.expect("what is held"), b"held");
    assert!(matches!(bench.cat("fake/d/listed").await, Err(VfsError::Offline)));
    assert!(matches!(bench.walk("fake/d/missing").await, Err(VfsError::NotFound)));
    assert_eq!(bench.fake.counts().fetch + bench.fake.counts().entries + bench.fake.counts().attributes, 0);
    assert_eq!(bench.cat("fake/other/f").await.expect("another tree is on the network"), b"f");
    assert_eq!(bench.vfs.bring_online(&names("fake")).expect("online"), 1);
    assert_eq!(bench.cat("fake/d/listed").await.expect("content"), b"listed");
    assert!(matches!(bench.vfs.bring_online(&names("fake")), Err(VfsError::NotFound)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_was_absent_is_asked_about_again_after_a_reload() {
    let bench = Bench::with(Freshness::Manual);
    assert!(matches!(bench.walk("fake/a/late").await, Err(VfsError::NotFound)));
    bench.fake.file("a/late", "here");
    assert!(matches!(bench.walk("fake/a/late").await, Err(VfsError::NotFound)), "as it was told");
    bench.vfs.reload(&names("fake/a/late"), false, USER).await.expect("a reload");
    assert_eq!(bench.cat("fake/a/late").await.expect("content"), b"here");
    for _ in 0..2 {
        let never = bench.vfs.reload(&names("fake/a/never"), false, USER).await;
        assert!(matches!(never, Err(VfsError::Remote(RemoteError::NotFound { .. }))), "{never:?}");
    }
    // A source that does not answer has not said that there is something.
    bench.fake.order(Order::of(Fault::Error(RemoteError::Unreachable { detail: "x".to_owned() })));
    bench.vfs.reload(&names("fake/a/never"), false, USER).await.expect_err("nobody answers");
    assert!(matches!(bench.walk("fake/a/never").await, Err(VfsError::NotFound)), "as it was told");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_finds_what_nobody_has_looked_for() {
    let bench = Bench::with(Freshness::Manual);
    let reload = async |path: &str| bench.vfs.reload(&names(path), false, USER).await;
    assert_eq!(reload("fake/a/b/hello.txt").await.expect("there").changed, 1);
    assert_eq!(reload("fake/a/b/hello.txt").await.expect("there").changed, 0, "it is known by now");
    let never = reload("fake/a/c/hello.txt").await;
    assert!(matches!(never, Err(VfsError::Remote(RemoteError::NotFound { .. }))), "{never:?}");
    assert!(matches!(reload("none/of/ours").await, Err(VfsError::NotFound)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_that_gets_no_answer_leaves_trust_as_it_was() {
    let bench = Bench::new();
    bench.list("fake/a/b").await.expect("a listing");
    bench.cat("fake/a/b/hello.txt").await.expect("content");
    bench.settled("fake/a/b/hello.txt").await;
    let silent = Fault::Error(RemoteError::Unreachable { detail: "x".to_owned() });
    bench.fake.order(Order::of(silent));
    for path in ["fake/a/b", "fake/a/b/hello.txt"] {
        bench.vfs.reload(&names(path), false, USER).await.expect_err("nobody answers");
    }
    assert_eq!(bench.vfs.reload(&[], true, USER).await.expect("a reload").checked, 0);
    bench.fake.heal();
    bench.fake.reset_counts();
    bench.list("fake/a/b").await.expect("a listing");
    assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("content"), b"hello");
    assert_eq!(bench.fake.counts().calls(), 0, "the leases last");
}
