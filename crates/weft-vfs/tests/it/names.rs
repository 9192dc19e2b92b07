//! Lookups and listings.

use std::time::Duration;

use weft_remote::fake::{Fake, Fault, Gate, Operation, Order, Promise, Quality};
use weft_remote::{Call, Caller, Completeness, FileKind, Name, RemoteError};
use weft_vfs::{Freshness, Looked, NodeId, Notices, Removal, VfsError};

use crate::bench::Bench;
use crate::breaks::told_to;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_root_holds_the_bindings_and_asks_nobody() {
    let bench = Bench::new();
    assert_eq!(bench.list("").await.expect("a listing"), ["fake"]);
    assert!(matches!(bench.lookup(NodeId::ROOT, ".git").await, Ok(Looked::Absent { .. })));
    bench.walk("fake").await.expect("the binding is there");
    assert_eq!(bench.fake.counts().calls(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_is_asked_once_within_its_lease() {
    let bench = Bench::new();
    for _ in 0..3 {
        let stat = bench.walk("fake/a/b/hello.txt").await.expect("the file is there");
        assert_eq!(stat.size, 5);
        assert!(!stat.ttl.is_zero(), "the kernel may keep it");
    }
    assert_eq!(bench.fake.counts().lookup, 3, "a, b and hello.txt");
    let bench = bench.remount();
    bench.walk("fake/a/b/hello.txt").await.expect("the file is there");
    assert_eq!(bench.fake.counts().lookup, 3, "nor after a remount");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn absence_has_a_lease_too() {
    let bench = Bench::new();
    let dir = bench.walk("fake/a").await.expect("a directory").node;
    for _ in 0..3 {
        match bench.lookup(dir, "missing").await.expect("an answer") {
            Looked::Absent { ttl } => assert!(!ttl.is_zero()),
            Looked::Entry { .. } => panic!("there is no such file"),
        }
    }
    assert_eq!(bench.fake.counts().lookup, 2, "a once, missing once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_complete_listing_answers_for_what_it_lacks_and_a_partial_one_does_not() {
    let bench = Bench::new();
    assert_eq!(bench.list("fake/a/b").await.expect("a listing"), ["hello.txt"]);
    bench.fake.reset_counts();
    assert!(matches!(bench.walk("fake/a/b/missing").await, Err(VfsError::NotFound)));
    assert_eq!(bench.fake.counts().calls(), 0);

    bench.fake.completeness("a", Completeness::Partial);
    bench.fake.file("a/hidden", "x");
    bench.fake.hide("a/hidden");
    assert_eq!(bench.list("fake/a").await.expect("a listing"), ["b"]);
    bench.fake.reset_counts();
    assert_eq!(bench.cat("fake/a/hidden").await.expect("it is there when asked for"), b"x");
    assert_eq!(bench.fake.counts().lookup, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_with_attributes_spares_asking_file_by_file() {
    let bench = Bench::new();
    for i in 0..250 {
        bench.fake.file(format!("many/f{i:03}"), format!("content {i}"));
    }
    let names = bench.list("fake/many").await.expect("a listing");
    assert_eq!(names.len(), 250);
    assert_eq!(bench.fake.counts().entries, 3, "three pages of a hundred");
    bench.fake.reset_counts();
    for name in &names {
        bench.walk(&format!("fake/many/{name}")).await.expect("it is listed");
    }
    assert_eq!(bench.fake.counts().calls(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rounded_size_is_made_exact_before_it_is_shown() {
    let bench = Bench::new();
    bench.fake.file("r/big", vec![7; 5000]);
    bench.fake.adjust(|terms| terms.listing = Quality::Rounded);
    bench.list("fake/r").await.expect("a listing");
    assert_eq!(bench.walk("fake/r/big").await.expect("the file").size, 5000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_listing_drops_what_is_gone_and_shows_what_is_new() {
    let bench = Bench::with(Freshness::Always);
    bench.fake.file("d/old", "1");
    bench.fake.file("d/stays", "2");
    assert_eq!(bench.list("fake/d").await.expect("a listing"), ["old", "stays"]);
    bench.fake.remove("d/old");
    bench.fake.file("d/new", "3");
    assert_eq!(bench.list("fake/d").await.expect("a listing"), ["new", "stays"]);
    assert!(matches!(bench.walk("fake/d/old").await, Err(VfsError::NotFound)));
}

/// Goal: what a list told that broke off is not taken to be there because the directory is again what it was before that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_breaks_off_is_not_confirmed_as_the_one_before_it() {
    let bench = Bench::with(Freshness::Always);
    bench.fake.adjust(|terms| terms.page_entries = 1);
    bench.fake.file("d/first", "1");
    bench.fake.file("d/third", "3");
    assert_eq!(bench.list("fake/d").await.expect("a listing"), ["first", "third"]);
    let before = bench.fake.version("d");
    bench.fake.file("d/second", "2");
    let fault = Fault::Error(RemoteError::Failed { detail: "no more".to_owned() });
    bench.fake.order(Order::of(fault).on(Operation::Entries).at("d").after(2));
    bench.list("fake/d").await.expect_err("it breaks off");
    bench.fake.heal();
    bench.fake.remove("d/second");
    bench.fake.go_back("d", before);
    assert_eq!(bench.list("fake/d").await.expect("a listing"), ["first", "third"]);
}

/// Goal: a name that is met by a look while the first list of its directory comes, and is gone before that ends, is not taken to
/// be of the list. Method: a list in pages, the last of which is held until the name has been looked up and removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_is_met_while_the_first_list_comes_is_not_of_it() {
    let bench = Bench::with(Freshness::Always);
    bench.fake.adjust(|terms| terms.page_entries = 1);
    for name in ["d/a", "d/b", "d/z"] {
        bench.fake.file(name, name);
    }
    let gate = Gate::new();
    bench.fake.order(Order::of(Fault::Delay(gate.clone())).on(Operation::Entries).at("d").after(1).times(1));
    let meanwhile = async {
        gate.arrived(1).await;
        bench.walk("fake/d/z").await.expect("it is there");
        bench.fake.remove("d/z");
        gate.open();
    };
    let (listed, ()) = tokio::join!(bench.list("fake/d"), meanwhile);
    assert_eq!(listed.expect("a listing"), ["a", "b"]);
}

/// Goal: a list that its source showed and shows no more is over, also where its names were met one by one; names that were never
/// in a list count on. Method: refused and gone, by a use and by a reload; and then shown again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_is_refused_or_gone_is_not_shown_from_memory() {
    let refused = RemoteError::Denied { detail: "closed".to_owned() };
    let gone = RemoteError::NotFound { detail: "404".to_owned() };
    for (error, reloads) in [(refused.clone(), false), (gone.clone(), false), (refused, true), (gone, true)] {
        let bench = Bench::with(Freshness::Always);
        bench.fake.adjust(|terms| terms.stable_ids = false);
        bench.fake.file("d/f", "one");
        bench.fake.file("d/g", "two");
        assert_eq!(bench.list("fake/d").await.expect("a listing"), ["f", "g"]);
        assert_eq!(bench.cat("fake/d/f").await.expect("content"), b"one");
        bench.fake.order(Order::of(Fault::Error(error.clone())).on(Operation::Entries).at("d"));
        if reloads {
            let reloaded = bench.vfs.reload(&crate::bench::names("fake/d"), false, crate::bench::USER).await;
            assert!(reloaded.is_err(), "{error}: {reloaded:?}");
        }
        for _ in 0..2 {
            let listed = bench.list("fake/d").await;
            assert!(listed.is_err(), "{error}: {listed:?}");
        }
        assert_eq!(bench.cat("fake/d/g").await.expect("content"), b"two");
        if matches!(error, RemoteError::NotFound { .. }) {
            // What is met from now on is all that there is to see.
            assert_eq!(bench.list("fake/d").await.expect("names met"), ["g"]);
        }
        bench.fake.heal();
        assert_eq!(bench.list("fake/d").await.expect("a listing"), ["f", "g"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_that_contradicts_what_is_known_wins() {
    let bench = Bench::with(Freshness::Ttl(Duration::from_secs(3600)));
    bench.fake.file("d/f", "one");
    bench.list("fake/d").await.expect("a listing");
    assert_eq!(bench.cat("fake/d/f").await.expect("content"), b"one");
    bench.fake.set("d/f", "two and more");
    bench.vfs.reload(&crate::bench::names("fake/d"), false, crate::bench::USER).await.expect("a reload");
    assert_eq!(bench.walk("fake/d/f").await.expect("the file").size, 12);
    assert_eq!(bench.cat("fake/d/f").await.expect("content"), b"two and more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spent_lease_is_checked_at_the_use_and_not_at_the_lookup() {
    let bench = Bench::new();
    bench.fake.adjust(|terms| terms.promise = Promise::Spent);
    let first = bench.walk("fake/a/b/hello.txt").await.expect("the file");
    bench.fake.reset_counts();
    let Looked::Entry { stat, ttl } =
        bench.lookup(bench.walk("fake/a/b").await.expect("a directory").node, "hello.txt").await.expect("an answer")
    else {
        panic!("the file is there");
    };
    assert_eq!(stat.node, first.node);
    assert!(ttl.is_zero() && stat.ttl.is_zero(), "the kernel must ask at each use");
    assert_eq!(bench.fake.counts().lookup, 0);
    // By another thread: what came for this one a moment ago serves its next look as well.
    let call = bench.call();
    let call = Call { caller: Caller { pid: 7, ..call.caller }, ..call };
    bench.vfs.clone().stat(call, stat.node, None).await.expect("attributes");
    assert_eq!(bench.fake.counts().calls(), 1, "one check");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_cannot_be_are_answered_without_asking() {
    let bench = Bench::new();
    let dir = bench.walk("fake").await.expect("the binding").node;
    assert!(matches!(bench.lookup(dir, &"x".repeat(256)).await, Err(VfsError::NameTooLong)));
    let file = bench.walk("fake/a/b/hello.txt").await.expect("the file").node;
    assert!(matches!(bench.lookup(file, "x").await, Err(VfsError::NotADirectory)));
    assert!(matches!(
        bench.vfs.clone().open(bench.call(), dir, weft_vfs::OpenFor::default()).await,
        Err(VfsError::IsADirectory)
    ));
    assert!(matches!(bench.vfs.clone().stat(bench.call(), NodeId(77), None).await, Err(VfsError::Stale)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_of_a_directory_comes_along_with_its_lookup() {
    let bench = Bench::new();
    let page = weft_remote::Name::new("index.html").expect("a good name");
    bench.fake.file("site/index.html", "<a href=x>x</a>");
    bench.fake.file("site/x", "target");
    bench.fake.page("site", &page);
    bench.fake.adjust(|terms| terms.along = true);
    assert_eq!(bench.list("fake/site").await.expect("a listing"), ["index.html", "x"]);
    assert_eq!(bench.cat("fake/site/index.html").await.expect("the page"), b"<a href=x>x</a>");
    let counts = bench.fake.counts();
    assert_eq!((counts.lookup, counts.entries, counts.fetch), (1, 0, 0), "one request for all of it");
}

/// A look-up whose answer is held back: asked for now, and learnt when the gate opens.
async fn held(bench: &Bench, path: &str) -> (Gate, tokio::task::JoinHandle<Result<Looked, VfsError>>) {
    let gate = Gate::new();
    bench.fake.order(Order::of(Fault::Delay(gate.clone())).on(Operation::LookupAnswer).at(path).times(1));
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    let dir = bench.walk(&format!("fake/{above}")).await.expect("a directory").node;
    let asking = tokio::spawn(bench.vfs.clone().lookup(bench.call(), dir, name.as_bytes().to_vec()));
    gate.arrived(1).await;
    (gate, asking)
}

/// Goal: a directory's list that comes late, along with another answer, takes nothing away from what a list says that was
/// asked for after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_comes_late_does_not_replace_a_newer_one() {
    let bench = Bench::new();
    bench.fake.file("docs/index.html", "<a href=old>");
    bench.fake.file("docs/old", "o");
    bench.fake.page("docs", &Name::new("index.html").expect("a name"));
    let (gate, asking) = held(&bench, "docs").await;
    bench.fake.file("docs/new", "n");
    bench.fake.remove("docs/old");
    assert_eq!(bench.list("fake/docs").await.expect("a listing"), ["index.html", "new"]);
    gate.open();
    assert!(matches!(asking.await.expect("no panic"), Ok(Looked::Entry { .. })));
    bench.settled("fake/docs/index.html").await;
    assert_eq!(bench.list("fake/docs").await.expect("a listing"), ["index.html", "new"]);
}

/// Goal: nor does what is said late of one name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_word_on_a_name_that_comes_late_does_not_replace_a_newer_list() {
    for came in [true, false] {
        let bench = Bench::new();
        if !came {
            bench.fake.file("a/b/brief.txt", "brief");
        }
        let (gate, asking) = held(&bench, "a/b/brief.txt").await;
        match came {
            true => drop(bench.fake.file("a/b/brief.txt", "brief")),
            false => bench.fake.remove("a/b/brief.txt"),
        }
        let names = bench.list("fake/a/b").await.expect("a listing");
        gate.open();
        let told = asking.await.expect("no panic").expect("an answer");
        let (Looked::Entry { ttl, .. } | Looked::Absent { ttl }) = told;
        assert!(ttl.is_zero() && came == matches!(told, Looked::Absent { .. }), "of that moment: {told:?}");
        assert_eq!(bench.list("fake/a/b").await.expect("a listing"), names);
        let dir = bench.walk("fake/a/b").await.expect("a directory").node;
        let found = bench.lookup(dir, "brief.txt").await.expect("an answer");
        assert_eq!(matches!(found, Looked::Entry { .. }), came, "{found:?}");
    }
}

/// Goal: whoever has a directory open may ask what it is while it is removed from here: of directories the kernel does not say
/// that they are open. Method: the answer to the removal is held back until the source, which has made it, was asked about the
/// directory and about its name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_is_being_removed_may_be_looked_at() {
    let bench = told_to(Fake::writable(), Notices::nowhere());
    bench.fake.dir("a/going");
    let (above, going) = (bench.walk("fake/a").await.unwrap().node, bench.walk("fake/a/going").await.unwrap().node);
    let gate = Gate::new();
    bench.fake.order(Order::of(Fault::Delay(gate.clone())).on(Operation::ApplyAnswer).times(1));
    let removal = bench.vfs.clone().remove_name(bench.call(), above, b"going".to_vec(), Removal::Directory);
    let removing = tokio::spawn(removal);
    gate.arrived(1).await;
    bench.fake.adjust(|terms| terms.told_all = false);
    bench.fake.reset_counts();
    let looking = tokio::spawn(bench.vfs.clone().stat(bench.call(), going, None));
    while bench.fake.counts().attributes + bench.fake.counts().lookup < 2 {
        tokio::task::yield_now().await;
    }
    gate.open();
    removing.await.unwrap().expect("removed");
    let stat = looking.await.unwrap().expect("what it was");
    assert_eq!((stat.kind, stat.links), (FileKind::Directory, 0));
}
