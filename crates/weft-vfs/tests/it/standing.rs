//! Lists that tell only what has changed.

use std::time::SystemTime;

use weft_remote::fake::Fake;
use weft_remote::{Change, Event, Mutation, Name, Remote, RenameTarget, Version};
use weft_vfs::Looked;

use crate::bench::Bench;
use crate::breaks::{heard, told_by, untold};

/// A source that tells of changes, with a few more files, whose list was told once.
async fn listed() -> Bench {
    let bench = told_by(Fake::writable());
    bench.fake.adjust(|terms| terms.standing = true);
    for name in ["one", "two", "three"] {
        bench.fake.file(format!("a/b/{name}"), name);
    }
    assert_eq!(bench.list("fake/a/b").await.expect("names"), ["hello.txt", "one", "three", "two"]);
    bench
}

/// The list, asked for again.
async fn asked_again(bench: &Bench) -> Vec<String> {
    bench.fake.send(Event::Broken(bench.fake.id("a/b")));
    heard(bench).await;
    bench.fake.reset_counts();
    let names = bench.list("fake/a/b").await.expect("names");
    assert_eq!(bench.fake.counts().entries, 1);
    bench.fake.reset_counts();
    names
}

/// Goal: what came, went and changed is shown, and what stands is not asked about for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_changed_is_shown_and_the_rest_stands() {
    let bench = listed().await;
    let dir = bench.walk("fake/a/b").await.expect("a directory").node;
    untold(&bench, || {
        bench.fake.remove("a/b/one");
        bench.fake.file("a/b/four", "four");
        bench.fake.set("a/b/two", "not two any more");
    });
    assert_eq!(asked_again(&bench).await, ["four", "hello.txt", "three", "two"]);
    let size = async |name| match bench.lookup(dir, name).await.expect("an answer") {
        Looked::Entry { stat, .. } => Some(stat.size),
        Looked::Absent { .. } => None,
    };
    let sizes = [size("one").await, size("two").await, size("three").await, size("four").await];
    assert_eq!(sizes, [None, Some(16), Some(5), Some(4)]);
    assert_eq!(bench.fake.counts().calls(), 0, "the list has told it all");
}

/// Goal: a row that stands is learnt like any other where it was found to be otherwise in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_stands_and_is_not_known_any_more_is_learnt() {
    let bench = listed().await;
    let dir = bench.walk("fake/a/b").await.expect("a directory").node;
    renamed(&bench, "one", "moved").await;
    let told = Event::NamesBroken(bench.fake.id("a/b"));
    bench.fake.send(told.clone());
    heard(&bench).await;
    assert!(matches!(bench.lookup(dir, "one").await, Ok(Looked::Absent { .. })));
    renamed(&bench, "moved", "one").await;
    bench.fake.send(told);
    heard(&bench).await;
    assert_eq!(asked_again(&bench).await, ["hello.txt", "one", "three", "two"]);
    assert_eq!(bench.cat("fake/a/b/one").await.expect("read"), b"one");
}

/// Gives a file another name at the source, which does not tell.
async fn renamed(bench: &Bench, name: &str, new_name: &str) {
    let named = |text: &str| Name::new(text).expect("a name");
    let (dir, target) = (bench.fake.id("a/b"), RenameTarget::Replaced);
    let change = Change::Rename { from: dir.clone(), name: named(name), to: dir, new_name: named(new_name), target };
    let mutation = Mutation { change, made: SystemTime::now() };
    bench.fake.apply(&bench.call(), &mutation, &Version::None).await.expect("renamed");
}
