//! Files to which no name leads any more.

use std::time::{Duration, SystemTime};

use weft_remote::fake::{Fault, Order, Promise};
use weft_remote::{Change, Completeness, FileKind, Mutation, Name, Remote, RemoteError, RenameTarget, Version};
use weft_store::{Onward, Store};
use weft_vfs::{Looked, NewNode, Notice, Removal, VfsError};

use crate::bench::Bench;

/// More than any test here knows of.
const ENOUGH: usize = 10_000;

/// A file system that asks about everything each time.
fn asking() -> Bench {
    let bench = Bench::writable();
    bench.fake.adjust(|terms| terms.promise = Promise::Lasting(Duration::ZERO));
    bench
}

/// Goes through all names until nothing more comes of it; how many files were forgotten. A file without a name may be taken
/// for one with a name once, and what is below a directory is found after it.
async fn forgotten(bench: &Bench) -> u64 {
    let (mut sum, mut quiet) = (0, 0);
    while quiet < 4 {
        let forgotten = bench.vfs.forget_orphans(SystemTime::now()).await.expect("gone through");
        quiet = if forgotten > 0 { 0 } else { quiet + 1 };
        sum += forgotten;
    }
    sum
}

/// Nodes, names and listings that are known.
fn known(store: &Store) -> (usize, usize, usize) {
    let nodes = store.nodes_onward(&mut Onward::default(), ENOUGH).expect("nodes");
    let names = store.names_onward(&mut Onward::default(), ENOUGH).expect("names");
    let listings = store.listings_onward(&mut Onward::default(), ENOUGH).expect("listings");
    (nodes.len(), names.len(), listings.len())
}

/// Reads a file, and has what was read kept.
async fn read(bench: &Bench, path: &str) -> Vec<u8> {
    let content = bench.cat(path).await.expect("content");
    bench.settled(path).await;
    content
}

/// Goal: of files that others have replaced or removed nothing stays, of those that are there all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_have_removed_is_forgotten() {
    let bench = asking();
    assert_eq!(read(&bench, "fake/a/b/hello.txt").await, b"hello");
    let before = (known(bench.vfs.store()), bench.vfs.store().usage().objects);
    for nth in 0..30 {
        bench.fake.file("a/b/often", format!("version {nth}"));
        assert_eq!(read(&bench, "fake/a/b/often").await, format!("version {nth}").as_bytes());
        bench.fake.remove("a/b/often");
    }
    assert!(matches!(bench.cat("fake/a/b/often").await, Err(VfsError::NotFound)));
    assert!(known(bench.vfs.store()).0 >= 30, "each of them is another file");
    forgotten(&bench).await;
    let ((nodes, _, listings), objects) = (known(bench.vfs.store()), bench.vfs.store().usage().objects);
    assert_eq!((nodes, listings, objects), (before.0.0, before.0.2, before.1));
    assert_eq!(bench.fake.counts().forget, 30, "its source need not remember it either");
    bench.fake.reset_counts();
    assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("content"), b"hello");
    assert_eq!(bench.fake.counts().fetch, 0, "it is held still");
    assert_eq!(bench.vfs.figures().orphans_forgotten, 30);
}

/// Goal: a directory that others have removed goes with all that is known below it; one that is removed here leaves nothing
/// from the start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_goes_with_all_below_it() {
    let bench = asking();
    let top = bench.walk("fake/a/b").await.expect("a directory").node;
    bench.list("fake/a/b").await.expect("names");
    let before = known(bench.vfs.store());
    bench.fake.dir("a/b/tree/below");
    bench.fake.file("a/b/tree/below/file", "text");
    bench.fake.file("a/b/tree/other", "text");
    assert_eq!(bench.list("fake/a/b/tree").await.expect("names"), ["below", "other"]);
    assert_eq!(bench.list("fake/a/b/tree/below").await.expect("names"), ["file"]);
    read(&bench, "fake/a/b/tree/below/file").await;
    for path in ["a/b/tree/below/file", "a/b/tree/below", "a/b/tree/other", "a/b/tree"] {
        bench.fake.remove(path);
    }
    assert_eq!(bench.list("fake/a/b").await.expect("names"), ["hello.txt"]);
    assert_eq!(forgotten(&bench).await, 4);
    assert_eq!(known(bench.vfs.store()), before);
    assert_eq!(bench.vfs.store().usage().objects, 0);

    let call = bench.call();
    let new = NewNode { kind: FileKind::Directory, mode: 0o755.into(), device: 0 };
    for _ in 0..3 {
        bench.vfs.clone().create(call, top, b"here".to_vec(), new).await.expect("made");
        assert!(bench.list("fake/a/b/here").await.expect("names").is_empty());
        assert!(matches!(bench.walk("fake/a/b/here/nothing").await, Err(VfsError::NotFound)));
        bench.vfs.clone().remove_name(call, top, b"here".to_vec(), Removal::Directory).await.expect("removed");
    }
    bench.list("fake/a/b").await.expect("names");
    // It is put away beside whoever removed it. But for that there is no such name, all is as before.
    while known(bench.vfs.store()) != (before.0, before.1 + 1, before.2) {
        tokio::task::yield_now().await;
    }
}

/// Goal: what is only moved is kept, and so is what somebody has open, or of which nobody tells.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_be_wanted_is_not_forgotten() {
    let bench = asking();
    bench.fake.dir("a/elsewhere");
    bench.fake.file("a/b/moved", "it is moved");
    read(&bench, "fake/a/b/moved").await;
    let name = |text: &str| Name::new(text).expect("a good name");
    let (from, to) = (bench.fake.id("a/b"), bench.fake.id("a/elsewhere"));
    let change =
        Change::Rename { from, name: name("moved"), to, new_name: name("there"), target: RenameTarget::Absent };
    let moved = Mutation { change, made: SystemTime::now() };
    bench.fake.apply(&bench.call(), &moved, &Version::None).await.expect("moved by somebody else");
    assert_eq!(bench.list("fake/a/b").await.expect("names"), ["hello.txt"]);
    assert_eq!(forgotten(&bench).await, 0);
    bench.fake.reset_counts();
    assert_eq!(read(&bench, "fake/a/elsewhere/there").await, b"it is moved");
    assert_eq!(bench.fake.counts().fetch, 0, "it was held all the time");

    bench.fake.file("a/b/open", "somebody reads it");
    let handle = bench.open("fake/a/b/open").await.expect("open").handle;
    assert_eq!(bench.drain(handle).await.expect("content"), b"somebody reads it");
    bench.fake.remove("a/b/open");
    assert!(matches!(bench.cat("fake/a/b/open").await, Err(VfsError::NotFound)));
    let nodes = known(bench.vfs.store()).0;
    assert_eq!(forgotten(&bench).await, 0);
    assert_eq!(bench.drain(handle).await.expect("content"), b"somebody reads it");
    bench.vfs.close(handle);

    bench.fake.file("a/b/untold", "nobody tells");
    read(&bench, "fake/a/b/untold").await;
    bench.fake.remove("a/b/untold");
    assert!(matches!(bench.cat("fake/a/b/untold").await, Err(VfsError::NotFound)));
    bench.fake.order(Order::of(Fault::Error(RemoteError::Unreachable { detail: "the cable".to_owned() })));
    assert_eq!(forgotten(&bench).await, 0);
    bench.fake.heal();
    assert_eq!(known(bench.vfs.store()).0, nodes + 1, "the source was not there");
    assert_eq!(forgotten(&bench).await, 0, "both are asked about later");
    let bench = bench.remount();
    assert_eq!(forgotten(&bench).await, 2);
    assert_eq!(known(bench.vfs.store()).0, nodes - 1);
}

/// Goal: where a file is what its name says, what nothing is held of goes with its name; of the rest the source is asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_list_leaves_out_is_asked_about_if_it_is_held() {
    let bench = asking();
    bench.fake.adjust(|terms| terms.stable_ids = false);
    let before = bench.list("fake/a/b").await.map(|names| (names, known(bench.vfs.store()))).expect("names");
    for nth in 0..10 {
        bench.fake.file(format!("a/b/f{nth}"), format!("text {nth}"));
    }
    assert_eq!(bench.list("fake/a/b").await.expect("names").len(), 11);
    for nth in [0, 1] {
        read(&bench, &format!("fake/a/b/f{nth}")).await;
    }
    for nth in 1..10 {
        bench.fake.remove(format!("a/b/f{nth}"));
    }
    bench.fake.hide("a/b/f0");
    bench.fake.completeness("a/b", Completeness::Complete);
    assert_eq!(bench.list("fake/a/b").await.expect("names"), before.0);
    assert_eq!(known(bench.vfs.store()).0, before.1.0 + 10);
    bench.fake.reset_counts();
    assert_eq!(forgotten(&bench).await, 9);
    assert_eq!((bench.fake.counts().attributes, bench.fake.counts().calls()), (2, 2), "of two something was held");
    assert_eq!((known(bench.vfs.store()).0, bench.vfs.store().usage().objects), (before.1.0 + 1, 1));
}

/// Goal: names that come and go leave nothing for good, and are absent all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_were_there_are_not_known_for_ever() {
    let bench = asking();
    let dir = bench.walk("fake/a/b").await.expect("a directory").node;
    bench.list("fake/a/b").await.expect("names");
    let before = known(bench.vfs.store());
    let name = |nth: usize| format!("passing{nth}").into_bytes();
    for nth in 0..50 {
        let new = NewNode { kind: FileKind::File, mode: 0o644.into(), device: 0 };
        bench.vfs.clone().create(bench.call(), dir, name(nth), new).await.expect("made");
        bench.vfs.clone().remove_name(bench.call(), dir, name(nth), Removal::File).await.expect("removed");
        assert!(matches!(bench.lookup(dir, &format!("asked{nth}")).await, Ok(Looked::Absent { .. })));
    }
    // They are put away beside whoever removed them.
    while known(bench.vfs.store()).0 > before.0 || bench.fake.counts().forget < 50 {
        tokio::task::yield_now().await;
    }
    assert_eq!(known(bench.vfs.store()).1, before.1 + 100);
    forgotten(&bench).await;
    assert_eq!(known(bench.vfs.store()).1, before.1 + 100, "an answer of before may be on its way");
    bench.vfs.forget_orphans(SystemTime::now() + Duration::from_secs(600)).await.expect("gone through");
    assert_eq!(known(bench.vfs.store()), before);
    for nth in [0, 49] {
        let looked = bench.lookup(dir, &format!("passing{nth}")).await;
        assert!(matches!(looked, Ok(Looked::Absent { .. })), "{looked:?}");
    }
    assert_eq!(bench.list("fake/a/b").await.expect("names"), ["hello.txt"]);
    assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("content"), b"hello");
}

/// Goal: the kernel does not take a name to be absent of which nobody here knows that any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_kernel_was_told_is_taken_back_with_what_is_known() {
    let (bench, heard) = asking().heard();
    let dir = bench.walk("fake/a/b").await.expect("a directory").node;
    for name in ["one", "other"] {
        assert!(matches!(bench.lookup(dir, name).await, Ok(Looked::Absent { .. })));
    }
    heard.others.try_iter().for_each(drop);
    bench.vfs.forget_orphans(SystemTime::now() + Duration::from_secs(600)).await.expect("gone through");
    let expired: Vec<_> = heard.others.try_iter().collect();
    let is_of = |notice: &Notice, text: &str| match notice {
        Notice::Expired { parent, name } => *parent == dir && name.as_bytes() == text.as_bytes(),
        _ => false,
    };
    assert!(expired.len() == 2 && is_of(&expired[0], "one") && is_of(&expired[1], "other"), "{expired:?}");
}
