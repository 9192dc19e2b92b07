//! Leases that the source ends by its own word.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use weft_remote::fake::{Fake, Fault, Gate, Operation, Order, Promise, Quality};
use weft_remote::{Call, Caller, Change, Event, FileKind, Mutation, Name, Remote, RemoteError, RenameTarget, Version};
use weft_vfs::{Looked, NewNode, Notice, NoticeReceivers, Notices, OpenFor, Removal, VfsError, Write};

use crate::bench::{Bench, USER};
use crate::writing::WRITING;

const TELLING: Promise = Promise::Breakable(Duration::from_secs(3600));

/// A source that tells of changes, and trusts itself to do so for an hour.
pub fn telling() -> Bench {
    told_by(Fake::new())
}

/// The same of this one.
pub fn told_by(fake: Fake) -> Bench {
    told_to(fake, Notices::nowhere())
}

/// The same, and where the kernel is told.
pub fn told_to(fake: Fake, notices: Notices) -> Bench {
    fake.dir("a/b");
    fake.file("a/b/hello.txt", "hello");
    fake.adjust(|terms| terms.promise = TELLING);
    Bench::telling(fake.clone(), Arc::new(fake), notices)
}

/// A change that the source does not tell.
pub fn change_untold(bench: &Bench) {
    untold(bench, || bench.fake.set("a/b/hello.txt", "other"));
}

/// Another one.
pub fn untold<T>(bench: &Bench, change: impl FnOnce() -> T) -> T {
    bench.fake.adjust(|terms| terms.promise = Promise::Lasting(Duration::ZERO));
    let changed = change();
    bench.fake.adjust(|terms| terms.promise = TELLING);
    changed
}

/// Goal: a name that was not there is found once the source has told that its directory changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_absent_name_is_looked_for_again_when_its_directory_changed() {
    let bench = telling();
    let dir = bench.walk("fake/a/b").await.expect("a directory").node;
    for _ in 0..2 {
        assert!(matches!(bench.lookup(dir, "new.txt").await, Ok(Looked::Absent { .. })));
    }
    assert_eq!(bench.fake.counts().lookup, 3, "two directories, and the name once");
    assert_eq!(bench.list("fake/a/b").await.expect("names"), ["hello.txt"]);
    let changed = |id| bench.fake.send(Event::Broken(id));
    bench.fake.file("a/b/new.txt", "new");
    changed(bench.fake.id("a/b"));
    // The event travels by itself.
    while matches!(bench.lookup(dir, "new.txt").await, Ok(Looked::Absent { .. })) {
        tokio::task::yield_now().await;
    }
    assert_eq!(bench.list("fake/a/b").await.expect("names"), ["hello.txt", "new.txt"]);
    let new = bench.fake.id("a/b/new.txt");
    bench.fake.remove("a/b/new.txt");
    changed(new);
    changed(bench.fake.id("a/b"));
    while bench.walk("fake/a/b/new.txt").await.is_ok() {
        tokio::task::yield_now().await;
    }
    heard(&bench).await;
    assert_eq!(bench.list("fake/a/b").await.expect("names"), ["hello.txt"]);
}

/// Goal: a list that tells a file's version vouches for no other content, also where that is as long and of the same time as
/// the list tells it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_vouches_for_the_version_that_it_tells() {
    let bench = telling();
    bench.fake.adjust(|terms| terms.listing = Quality::Rounded);
    assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("content"), b"hello");
    bench.settled("fake/a/b/hello.txt").await;
    change_untold(&bench);
    let bench = bench.remount();
    assert_eq!(bench.list("fake/a/b").await.expect("names"), ["hello.txt"]);
    assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("content"), b"other");
    // And where the source tells nobody, and trusts its lists for longer than its files.
    let bench = Bench::new();
    bench.fake.adjust(|terms| (terms.promise, terms.listing) = (Promise::Spent, Quality::Rounded));
    assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("content"), b"hello");
    bench.fake.set("a/b/hello.txt", "other");
    bench.fake.adjust(|terms| terms.promise = Promise::Lasting(Duration::from_secs(3600)));
    assert_eq!(bench.list("fake/a/b").await.expect("names"), ["hello.txt"]);
    assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("content"), b"other");
}

/// Goal: what was learnt while nobody listens is not taken for true by the next daemon, and is confirmed, not fetched.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_remount_asks_about_what_it_has_and_fetches_what_changed() {
    let bench = telling();
    bench.fake.file("a/b/same.txt", "same");
    for (path, content) in [("fake/a/b/hello.txt", "hello"), ("fake/a/b/same.txt", "same")] {
        assert_eq!(bench.cat(path).await.expect("content"), content.as_bytes());
        bench.settled(path).await;
    }
    change_untold(&bench);
    bench.fake.reset_counts();
    let bench = bench.remount();
    assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("content"), b"other");
    assert_eq!(bench.cat("fake/a/b/same.txt").await.expect("content"), b"same");
    assert_eq!(bench.fake.counts().fetch, 1, "only what changed");
    let calls = bench.fake.counts().calls();
    assert_eq!(bench.cat("fake/a/b/same.txt").await.expect("content"), b"same");
    assert_eq!(bench.fake.counts().calls(), calls, "and nothing is asked twice");
}

/// Goal: when all leases have ended, as at a start, a confirmed listing vouches for its names, until the source tells of one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_that_is_confirmed_vouches_for_its_names() {
    let bench = telling();
    let dir = bench.walk("fake/a/b").await.expect("a directory").node;
    assert_eq!(bench.list("fake/a/b").await.expect("names"), ["hello.txt"]);
    bench.fake.send(Event::AllBroken);
    heard(&bench).await;
    assert_eq!(bench.list("fake/a/b").await.expect("names"), ["hello.txt"]);
    bench.fake.reset_counts();
    for _ in 0..2 {
        assert!(matches!(bench.lookup(dir, "hello.txt").await, Ok(Looked::Entry { .. })));
    }
    assert_eq!(bench.fake.counts().lookup, 0, "the listing was asked for after the start");
    let name = weft_remote::Name::new("hello.txt").expect("a name");
    bench.fake.send(Event::NameBroken { dir: bench.fake.id("a/b"), name, file: None });
    heard(&bench).await;
    bench.fake.reset_counts();
    assert!(matches!(bench.lookup(dir, "hello.txt").await, Ok(Looked::Entry { .. })));
    assert_eq!(bench.fake.counts().lookup, 1, "what the source has ended is asked about");
}

/// Goal: a look at a file tells which content it has; who opens it then does not ask for that again, unless it is another,
/// or the source has told of a change since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_at_a_file_vouches_for_its_content() {
    let bench = telling();
    assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("content"), b"hello");
    bench.settled("fake/a/b/hello.txt").await;
    let ask = async |content: &[u8]| {
        bench.fake.reset_counts();
        bench.walk("fake/a/b/hello.txt").await.expect("a file");
        let looked = bench.fake.counts();
        assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("content"), content);
        let opened = bench.fake.counts();
        (looked.calls(), opened.calls() - looked.calls(), opened.fetch)
    };
    assert_eq!(ask(b"hello").await, (0, 0, 0));
    bench.fake.send(Event::AllBroken);
    heard(&bench).await;
    let (looked, opened, fetched) = ask(b"hello").await;
    assert!(looked > 0, "the names are asked about again");
    assert_eq!((opened, fetched), (0, 0), "and tell what is needed");
    change_untold(&bench);
    bench.fake.send(Event::AllBroken);
    heard(&bench).await;
    let (_, _, fetched) = ask(b"other").await;
    assert_eq!(fetched, 1);
    let node = bench.walk("fake/a/b/hello.txt").await.expect("a file").node;
    bench.fake.send(Event::Broken(bench.fake.id("a/b/hello.txt")));
    heard(&bench).await;
    bench.fake.reset_counts();
    bench.vfs.clone().open(bench.call(), node, weft_vfs::OpenFor::default()).await.expect("an open file");
    assert_eq!(bench.fake.counts().attributes, 1, "what the source has ended is asked about");
}

/// Goal: who opens a file that has just changed, and follows its path again by that, opens it as any other: the kernel was told
/// before that of all that changed, and takes the length that it learns. Not where it is told of a change once more meanwhile:
/// then it is told the length before the open is answered, for what it sends and copies by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_has_just_changed_is_opened_as_any_other() {
    let (notices, NoticeReceivers { attributes, others, told }) = Notices::channel();
    let bench = told_to(Fake::new(), notices);
    std::thread::spawn(move || attributes.iter().for_each(|_| told.send_modify(|count| *count += 1)));
    let (grown, lengths) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        others.iter().for_each(|notice| match notice {
            Notice::Fence(passed) => passed.send(()).unwrap_or_default(),
            Notice::Grown { length, last, .. } => grown.send((length, last)).expect("heard"),
            _ => {}
        });
    });
    let (path, id) = ("fake/a/b/hello.txt", bench.fake.id("a/b/hello.txt"));
    let look = async || {
        let stat = bench.walk(path).await.expect("a file");
        bench.vfs.note_told(&stat);
        stat.node
    };
    // The other looks are another thread's.
    let call = Call { caller: Caller { pid: 77, ..USER }, ..bench.call() };
    let open = async |node| bench.vfs.clone().open(call, node, OpenFor::default()).await;
    for (content, changes_again) in
        [("longer than before", false), ("short", false), ("longer again", true), ("-", false)]
    {
        let node = look().await;
        bench.fake.set("a/b/hello.txt", content);
        bench.fake.send(Event::Broken(id.clone()));
        heard(&bench).await;
        let first = open(node).await.map(|opened| opened.handle);
        assert!(matches!(first, Err(VfsError::Stale)), "{content}: {first:?}");
        let node = look().await;
        if changes_again {
            bench.fake.send(Event::Broken(id.clone()));
            heard(&bench).await;
        }
        let opened = open(node).await.expect("opened");
        assert_eq!(opened.bypass_pages, changes_again, "{content}");
        let told: Vec<_> = lengths.try_iter().collect();
        let end = (content.len() as u64, content.as_bytes()[content.len() - 1]);
        assert_eq!(told, if changes_again { vec![end] } else { Vec::new() }, "{content}");
        assert_eq!(bench.drain(opened.handle).await.expect("content"), content.as_bytes());
        bench.vfs.released(opened.handle);
    }
}

/// Goal: of a file that was made without a name, and so has another number than its source's identity gives, the source is
/// heard as of any other: while it is open, and afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_was_made_without_a_name_is_told_of_as_any_other() {
    let bench = told_by(Fake::writable());
    let root = bench.walk("fake").await.expect("a directory").node;
    let (made, opened) = bench.vfs.clone().create_nameless(bench.call(), root, 0o640.into()).await.expect("made");
    let Looked::Entry { stat: made, .. } = made else { panic!("{made:?}") };
    bench.write(opened.handle, 0, b"draft").await.expect("written");
    let name = b"made".to_vec();
    bench.vfs.clone().link(bench.call(), made.node, root, name).await.expect("linked");
    let id = bench.fake.id("made");
    for (turn, content) in ["first", "other", "again"].into_iter().enumerate() {
        // It is trusted from now on.
        bench.cat("fake/made").await.expect("content");
        bench.fake.set("made", content);
        bench.fake.send(Event::Broken(id.clone()));
        heard(&bench).await;
        let handle = bench.vfs.clone().open(bench.call(), made.node, WRITING).await.expect("opened").handle;
        assert_eq!(bench.drain(handle).await.expect("content"), content.as_bytes());
        let stat = bench.walk("fake/made").await.expect("a file");
        assert_eq!(stat.node, made.node, "{content}: it keeps its number");
        bench.write(handle, 0, b"+").await.expect("written");
        bench.flush(handle).await.expect("sent");
        bench.vfs.close(handle);
        assert_eq!(bench.at_source("made"), [b"+", &content.as_bytes()[1..]].concat());
        if turn == 0 {
            bench.vfs.close(opened.handle);
        }
        bench.retired().await;
    }
}

/// Goal: what was told of a file ends with a name by which it was told, also where that name is not known to lead to it: the
/// look for it was overtaken, or the file was moved.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_was_told_of_by_way_of_a_name_ends_with_that() {
    let bench = telling();
    assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("content"), b"hello");
    let node = bench.walk("fake/a/b/hello.txt").await.expect("a file").node;
    let (id, name) = (bench.fake.id("a/b/hello.txt"), weft_remote::Name::new("nobody-knows").expect("a name"));
    let asked = async |file| {
        bench.fake.send(Event::NameBroken { dir: bench.fake.id("a"), name: name.clone(), file });
        heard(&bench).await;
        bench.fake.reset_counts();
        bench.vfs.clone().open(bench.call(), node, weft_vfs::OpenFor::default()).await.expect("an open file");
        bench.fake.counts().attributes
    };
    assert_eq!((asked(None).await, asked(Some(id)).await), (0, 1));
}

/// Goal: when the source has lost count of its changes, everything is asked about once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_leases_end_at_once() {
    let bench = telling();
    assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("content"), b"hello");
    change_untold(&bench);
    assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("content"), b"hello", "nobody has told");
    bench.fake.send(Event::AllBroken);
    while bench.cat("fake/a/b/hello.txt").await.expect("content") != b"other" {
        tokio::task::yield_now().await;
    }
}

/// Goal: a change that is told while an answer from before it is on its way is not overlooked. Method: the answer to a
/// lookup is held back until the word has been heard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_from_before_the_word_counts_no_longer_than_it() {
    let bench = telling();
    bench.fake.file("a/b/late.txt", "late");
    let dir = bench.walk("fake/a/b").await.expect("a directory").node;
    let gate = Gate::new();
    bench.fake.order(Order::of(Fault::Delay(gate.clone())).on(Operation::Lookup).at("a/b/late.txt").times(1));
    let asking = tokio::spawn(bench.vfs.clone().lookup(bench.call(), dir, b"late.txt".to_vec()));
    gate.arrived(1).await;
    bench.fake.send(Event::Broken(bench.fake.id("a/b/late.txt")));
    heard(&bench).await;
    gate.open();
    assert!(matches!(asking.await.expect("no panic"), Ok(Looked::Entry { .. })));
    bench.fake.reset_counts();
    for _ in 0..2 {
        assert!(matches!(bench.lookup(dir, "late.txt").await, Ok(Looked::Entry { .. })));
    }
    assert_eq!(bench.fake.counts().lookup, 1, "it is asked about again, once");
}

/// Goal: the same of a name that was nowhere known: one that came, or went again, while somebody looked for it. It is neither
/// told for longer than that moment, nor listed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_came_or_went_while_it_was_looked_for_is_not_kept() {
    for came in [true, false] {
        let bench = telling();
        let (dir, path) = (bench.walk("fake/a/b").await.expect("a directory").node, "a/b/brief.txt");
        let (id, name) = (bench.fake.id("a/b"), weft_remote::Name::new("brief.txt").expect("a name"));
        if !came {
            bench.fake.file(path, "brief");
        }
        let gate = Gate::new();
        let held = Order::of(Fault::Delay(gate.clone())).on(Operation::LookupAnswer).at(path).times(1);
        bench.fake.order(held);
        let asking = tokio::spawn(bench.vfs.clone().lookup(bench.call(), dir, b"brief.txt".to_vec()));
        gate.arrived(1).await;
        // The source tells of the name alone.
        bench.fake.adjust(|terms| terms.promise = Promise::Lasting(Duration::ZERO));
        match came {
            true => drop(bench.fake.file(path, "brief")),
            false => bench.fake.remove(path),
        }
        bench.fake.adjust(|terms| terms.promise = TELLING);
        bench.fake.send(Event::NameBroken { dir: id.clone(), name, file: None });
        heard(&bench).await;
        gate.open();
        let told = asking.await.expect("no panic").expect("an answer");
        let (Looked::Entry { ttl, .. } | Looked::Absent { ttl }) = told;
        assert!(ttl.is_zero() && came == matches!(told, Looked::Absent { .. }), "of that moment: {told:?}");
        bench.fake.send(Event::Broken(id));
        heard(&bench).await;
        let names = bench.list("fake/a/b").await.expect("names");
        assert_eq!(names.iter().any(|name| name == "brief.txt"), came, "{names:?}");
        let found = bench.lookup(dir, "brief.txt").await.expect("an answer");
        assert_eq!(matches!(found, Looked::Entry { .. }), came, "{found:?}");
    }
}

/// Waits until all words sent so far have been heard: they are heard in order.
pub async fn heard(bench: &Bench) {
    static WITNESSES: AtomicU32 = AtomicU32::new(0);
    let witness = format!("witness-{}", WITNESSES.fetch_add(1, Ordering::Relaxed));
    let path = format!("fake/{witness}");
    bench.fake.file(&witness, "before");
    bench.fake.send(Event::Broken(bench.fake.id("")));
    while bench.cat(&path).await.is_err() {
        tokio::task::yield_now().await;
    }
    bench.fake.set(&witness, "after");
    while bench.cat(&path).await.expect("content") != b"after" {
        tokio::task::yield_now().await;
    }
}

/// Goal: where a source tells of changes, that it refuses a listing is its word: what it listed before is not shown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_that_is_refused_from_now_on_is_not_shown() {
    let bench = telling();
    assert_eq!(bench.list("fake/a/b").await.expect("names"), ["hello.txt"]);
    let refused = RemoteError::Denied { detail: "closed".to_owned() };
    bench.fake.order(Order::of(Fault::Error(refused)).on(Operation::Entries).at("a/b"));
    assert_eq!(bench.list("fake/a/b").await.expect("names"), ["hello.txt"], "its lease lasts");
    bench.fake.send(Event::NamesBroken(bench.fake.id("a/b")));
    heard(&bench).await;
    let outcome = bench.list("fake/a/b").await;
    assert!(matches!(outcome, Err(VfsError::Remote(RemoteError::Denied { .. }))), "{outcome:?}");
}

/// Goal: a file that the source says is gone is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_gone_is_not_found() {
    let bench = telling();
    assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("content"), b"hello");
    let file = bench.fake.id("a/b/hello.txt");
    bench.fake.remove("a/b/hello.txt");
    bench.fake.send(Event::Broken(file));
    loop {
        match bench.cat("fake/a/b/hello.txt").await {
            Ok(content) => assert_eq!(content, b"hello"),
            Err(VfsError::NotFound) => break,
            Err(error) => panic!("{error}"),
        }
        tokio::task::yield_now().await;
    }
}

/// Goal: that a file is gone says nothing of a name that another file has by now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_of_another_file_stays_when_the_former_one_is_gone() {
    let bench = telling();
    let former = bench.walk("fake/a/b/hello.txt").await.expect("a file").node;
    bench.fake.remove("a/b/hello.txt");
    bench.fake.file("a/b/hello.txt", "another");
    bench.fake.send(Event::NamesBroken(bench.fake.id("a/b")));
    heard(&bench).await;
    let another = bench.walk("fake/a/b/hello.txt").await.expect("a file").node;
    assert_ne!(former, another);
    assert_eq!(bench.list("fake/a/b").await.expect("names"), ["hello.txt"]);
    let gone = bench.vfs.clone().stat(bench.call(), former, None).await;
    assert!(gone.is_err(), "{gone:?}");
    assert_eq!(bench.list("fake/a/b").await.expect("names"), ["hello.txt"]);
    assert_eq!(bench.walk("fake/a/b/hello.txt").await.expect("a file").node, another);
}

/// Goal: a file that has taken the place of another is found at once, also by who comes by the former one and before the
/// source has told of the name; once the name is gone as well, it is absent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_takes_the_place_of_another_is_found_at_once() {
    let bench = telling();
    let stat = |node| bench.vfs.clone().stat(bench.call(), node, None);
    let open = |node| bench.vfs.clone().open(bench.call(), node, weft_vfs::OpenFor::default());
    for content in ["one", "two"] {
        let former = bench.walk("fake/a/b/hello.txt").await.expect("a file").node;
        let id = bench.fake.id("a/b/hello.txt");
        bench.fake.remove("a/b/hello.txt");
        bench.fake.file("a/b/hello.txt", content);
        bench.fake.send(Event::Broken(id));
        heard(&bench).await;
        // By turns: either may be the first to come by it.
        let by = if content == "one" { stat(former).await.map(drop) } else { open(former).await.map(drop) };
        assert!(matches!(by, Err(VfsError::Stale)), "{by:?}");
        assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("the other"), content.as_bytes());
        assert_eq!(bench.list("fake/a/b").await.expect("names"), ["hello.txt"]);
    }
    let last = bench.walk("fake/a/b/hello.txt").await.expect("a file").node;
    let id = bench.fake.id("a/b/hello.txt");
    bench.fake.remove("a/b/hello.txt");
    bench.fake.send(Event::Broken(id));
    heard(&bench).await;
    // The path is followed again first, for something may be made at its end.
    assert!(matches!(stat(last).await, Err(VfsError::Stale)));
    assert!(matches!(bench.walk("fake/a/b/hello.txt").await, Err(VfsError::NotFound)));
}

/// Goal: whoever opens a file that was written here, is still open, and has another in its place by now gets that one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_written_here_is_not_opened_when_another_has_its_place() {
    let bench = told_by(Fake::writable());
    let vfs = || bench.vfs.clone();
    for (is_replaced, written) in [(true, &b"hello and more"[..]), (false, b"anoth and more")] {
        let file = bench.walk("fake/a/b/hello.txt").await.expect("a file").node;
        let writing = OpenFor { writing: true, ..OpenFor::default() };
        let opened = vfs().open(bench.call(), file, writing).await.expect("opened").handle;
        let write = Write { offset: 5, bytes: " and more".into(), kill_suidgid: false, unseen: false, appends: false };
        vfs().write(bench.call(), opened, write).await.expect("written");
        vfs().flush(bench.call(), opened).await.expect("sent");
        assert_eq!(bench.drain(opened).await.expect("all is here"), written);
        bench.fake.remove("a/b/hello.txt");
        if is_replaced {
            bench.fake.file("a/b/hello.txt", "another");
        }
        bench.fake.adjust(|terms| terms.told_all = false);
        // What has nothing in its place is said to be gone when the path was followed again.
        for (how, is_again) in [(writing, false), (OpenFor::default(), true)] {
            let error = vfs().open(bench.call(), file, how).await.map(drop).expect_err("it is not there");
            match is_again && !is_replaced {
                true => assert!(matches!(error, VfsError::NotFound), "{error:?}"),
                false => assert!(matches!(error, VfsError::Stale), "{error:?}"),
            }
        }
        if is_replaced {
            assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("the other"), b"another");
        }
        assert_eq!(bench.drain(opened).await.expect("who has it open goes on"), written);
        vfs().close(opened);
        bench.fake.adjust(|terms| terms.told_all = true);
    }
}

/// Goal: a name that somebody else has taken away is absent, also when its file goes on under another and is looked at or read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_file_is_says_nothing_of_its_name() {
    let bench = told_by(Fake::writable());
    let dir = bench.walk("fake/a/b").await.expect("a directory").node;
    let file = bench.walk("fake/a/b/hello.txt").await.expect("a file").node;
    let (from, id) = (bench.fake.id("a/b"), bench.fake.id("a/b/hello.txt"));
    let name = |text: &str| Name::new(text).expect("a name");
    let change = Change::Rename {
        from: from.clone(),
        name: name("hello.txt"),
        to: from.clone(),
        new_name: name("other.txt"),
        target: RenameTarget::Replaced,
    };
    let moved = Mutation { change, made: SystemTime::now() };
    bench.fake.apply(&bench.call(), &moved, &Version::None).await.expect("moved");
    for event in [Event::NamesBroken(from), Event::Broken(id)] {
        bench.fake.send(event);
    }
    heard(&bench).await;
    bench.vfs.clone().stat(bench.call(), file, None).await.expect("it is there");
    let opened = bench.vfs.clone().open(bench.call(), file, weft_vfs::OpenFor::default()).await.expect("it is there");
    assert_eq!(bench.drain(opened.handle).await.expect("read"), b"hello");
    let found = bench.lookup(dir, "hello.txt").await.expect("an answer");
    assert!(matches!(found, Looked::Absent { .. }), "{found:?}");
    assert_eq!(bench.walk("fake/a/b/other.txt").await.expect("it is there").node, file);
}

/// Goal: what is asked of a directory whose place another has taken is no answer, whatever is asked: the path is looked up
/// again. Once its name is gone as well, it is absent; and a name that is absent in a directory that is there is just that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_takes_the_place_of_another_is_found_at_once() {
    let bench = told_by(Fake::writable());
    let vfs = || bench.vfs.clone();
    let former = bench.walk("fake/a/b").await.expect("a directory").node;
    let new = NewNode { kind: FileKind::Directory, mode: 0o755.into(), device: 0 };
    let removed = async |dir, name: &str| vfs().remove_name(bench.call(), dir, name.into(), Removal::File).await;
    assert!(matches!(removed(former, "none").await, Err(VfsError::Remote(RemoteError::NotFound { .. }))));
    let replaced_and = async |replaced: bool| {
        for path in ["a/b/hello.txt", "a/b"] {
            bench.fake.remove(path);
        }
        if replaced {
            bench.fake.dir("a/b");
            bench.fake.file("a/b/hello.txt", "another");
        }
        bench.fake.send(Event::AllBroken);
        heard(&bench).await;
    };
    for is_replaced in [true, false] {
        let former = bench.walk("fake/a/b").await.expect("a directory").node;
        replaced_and(is_replaced).await;
        let errors = [
            bench.lookup(former, "hello.txt").await.map(drop),
            vfs().open_directory(bench.call(), former).await.map(drop),
            vfs().create(bench.call(), former, b"new".to_vec(), new).await.map(drop),
            removed(former, "hello.txt").await,
            bench.lookup(former, "other.txt").await.map(drop),
        ];
        for (at, outcome) in errors.into_iter().enumerate() {
            let error = outcome.expect_err("it is not there");
            let is_stale = matches!(error, VfsError::Stale);
            let is_absent = matches!(error, VfsError::NotFound | VfsError::Remote(RemoteError::NotFound { .. }));
            assert!(if is_replaced { is_stale } else { is_absent }, "{at}, replaced: {is_replaced}: {error:?}");
        }
        if is_replaced {
            assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("the other"), b"another");
        }
    }
    assert!(matches!(bench.walk("fake/a/b").await, Err(VfsError::NotFound)));
}

/// Goal: a file that is replaced in the course of a call, after the kernel has looked its name up again because the former one
/// was gone, is given as it was when it was found; to that call alone, and once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_that_is_followed_again_leads_to_what_was_there() {
    let bench = telling();
    let vfs = || bench.vfs.clone();
    let replace = async |content: &'static str| {
        for (path, is_link) in [("a/b/hello.txt", false), ("a/link", true)] {
            let id = bench.fake.id(path);
            bench.fake.remove(path);
            match is_link {
                true => bench.fake.symlink(path, content),
                false => bench.fake.file(path, content),
            };
            bench.fake.send(Event::Broken(id));
        }
        heard(&bench).await;
    };
    bench.fake.symlink("a/link", "zero");
    let call = |pid| Call::within(Caller { pid, ..USER }, Duration::from_secs(20));
    let open = |pid, node| vfs().open(call(pid), node, weft_vfs::OpenFor::default());
    let stale = |error: &VfsError| matches!(error, VfsError::Stale);
    let dirs = [bench.walk("fake/a/b").await.expect("one"), bench.walk("fake/a").await.expect("one")];
    let find = async |pid: u32, at: usize| {
        let name = [b"hello.txt".to_vec(), b"link".to_vec()][at].clone();
        match vfs().lookup(call(pid), dirs[at].node, name).await.expect("found") {
            Looked::Entry { stat, .. } => stat,
            absent => panic!("{absent:?}"),
        }
    };
    let (file, link) = (find(1, 0).await.node, find(1, 1).await.node);
    replace("first").await;
    assert!(open(2, file).await.is_err_and(|error| stale(&error)));
    assert!(vfs().stat(call(3), file, None).await.is_err_and(|error| stale(&error)));
    assert!(vfs().read_link(call(4), link).await.is_err_and(|error| stale(&error)));
    let found = [find(2, 0).await, find(3, 0).await, find(4, 1).await];
    let [file, link] = [found[0].node, found[2].node];
    replace("another").await;
    // Who had not begun before has no use for it.
    assert!(open(5, file).await.is_err_and(|error| stale(&error)));
    let opened = open(2, file).await.expect("what was found").handle;
    assert_eq!(bench.drain(opened).await.expect("read"), b"first");
    vfs().close(opened);
    assert_eq!(vfs().stat(call(3), file, None).await.expect("what was found").size, found[1].size);
    assert_eq!(vfs().read_link(call(4), link).await.expect("what was found"), b"first");
    assert!(open(2, file).await.is_err_and(|error| stale(&error)));
    assert!(vfs().stat(call(3), file, None).await.is_err_and(|error| stale(&error)));
    assert!(vfs().read_link(call(4), link).await.is_err_and(|error| stale(&error)));
    assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("the newest"), b"another");
}

/// Goal: so is a file that the kernel looks at before it opens it, to see whether it may be opened, be it that the path is followed
/// again for the one or the other; each of the two once, and not when the name was looked up for another call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_that_is_followed_again_for_a_look_leads_to_what_is_opened() {
    let bench = telling();
    let vfs = || bench.vfs.clone();
    let replace = async |content: &'static str| {
        let id = bench.fake.id("a/b/hello.txt");
        bench.fake.remove("a/b/hello.txt");
        bench.fake.file("a/b/hello.txt", content);
        bench.fake.send(Event::Broken(id));
        heard(&bench).await;
    };
    let dir = bench.walk("fake/a/b").await.expect("a directory").node;
    let find = async |call| match vfs().lookup(call, dir, b"hello.txt".to_vec()).await.expect("found") {
        Looked::Entry { stat, ttl } => (stat.node, ttl),
        absent => panic!("{absent:?}"),
    };
    let stale = |error: VfsError| matches!(error, VfsError::Stale);
    let ways =
        [(true, false, false), (true, true, false), (true, true, true), (false, false, false), (false, true, false)];
    for (thread, (by_look, looks_twice, is_another_call)) in (2..).zip(ways) {
        let call = Call::within(Caller { pid: thread, ..USER }, Duration::from_secs(20));
        let open = |node| vfs().open(call, node, OpenFor::default());
        let (former, _) = find(call).await;
        replace("first").await;
        match by_look {
            true => assert!(vfs().stat(call, former, None).await.is_err_and(stale)),
            false => assert!(open(former).await.is_err_and(stale)),
        }
        let (found, ttl) = find(call).await;
        assert_eq!(ttl, Duration::ZERO, "the next call looks it up");
        if looks_twice && by_look {
            vfs().stat(call, found, None).await.expect("it is there");
        }
        replace("another").await;
        if looks_twice && !by_look {
            assert_eq!(vfs().stat(call, found, None).await.expect("what was found").size, 5);
        }
        if is_another_call {
            find(call).await;
            assert!(open(found).await.is_err_and(stale));
            continue;
        }
        let opened = open(found).await.expect("what was found").handle;
        assert_eq!(bench.drain(opened).await.expect("read"), b"first");
        vfs().close(opened);
        assert!(open(found).await.is_err_and(stale));
        assert!(vfs().stat(call, found, None).await.is_err_and(stale));
    }
    assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("the newest"), b"another");
}

/// Goal: a name that was not there for a moment is listed again, although the listing is what it was before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_from_before_a_name_was_gone_is_not_confirmed() {
    let bench = telling();
    let file = bench.walk("fake/a/b/hello.txt").await.expect("a file").node;
    assert_eq!(bench.list("fake/a/b").await.expect("names"), ["hello.txt"]);
    let gone = RemoteError::NotFound { detail: "for a moment".to_owned() };
    bench.fake.order(Order::of(Fault::Error(gone)).on(Operation::Attributes).at("a/b/hello.txt").times(1));
    bench.fake.send(Event::Broken(bench.fake.id("a/b/hello.txt")));
    heard(&bench).await;
    let outcome = bench.vfs.clone().stat(bench.call(), file, None).await;
    assert!(matches!(outcome, Err(VfsError::Stale)), "its name is there: {outcome:?}");
    bench.fake.send(Event::NamesBroken(bench.fake.id("a/b")));
    heard(&bench).await;
    assert_eq!(bench.list("fake/a/b").await.expect("names"), ["hello.txt"]);
}

/// Goal: where a name no longer leads to a file, what was promised of the file by that name is not relied on: it may go on
/// elsewhere, where its source was not asked to tell of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_a_name_no_longer_leads_to_is_asked_about() {
    for (is_replaced, is_listed) in [(false, false), (true, false), (false, true), (true, true)] {
        let bench = telling();
        let dir = bench.walk("fake/a/b").await.expect("a directory").node;
        let file = bench.walk("fake/a/b/hello.txt").await.expect("a file").node;
        let stat = || bench.vfs.clone().stat(bench.call(), file, None);
        bench.fake.send(Event::NamesBroken(bench.fake.id("a/b")));
        heard(&bench).await;
        bench.fake.reset_counts();
        stat().await.expect("a file");
        assert_eq!(bench.fake.counts().calls(), 0, "its lease lasts");
        bench.fake.remove("a/b/hello.txt");
        if is_replaced {
            bench.fake.file("a/b/hello.txt", "another");
        }
        if is_listed {
            assert_eq!(bench.list("fake/a/b").await.expect("names").len(), usize::from(is_replaced));
        } else {
            let found = bench.lookup(dir, "hello.txt").await.expect("an answer");
            assert_eq!(matches!(found, Looked::Entry { .. }), is_replaced, "{found:?}");
        }
        let outcome = stat().await;
        assert!(matches!(outcome, Err(VfsError::NotFound | VfsError::Stale)), "{outcome:?}");
    }
}
