//! What those who watch are told.

use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Wake, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use weft_remote::fake::{Fault, Operation, Order, Promise, Quality};
use weft_remote::{Audience, Caller, RemoteError};
use weft_vfs::{ChangeKind, Notice, Vfs, Watched, Watching};

use crate::bench::{Bench, USER, names};

const OTHER: Caller = Caller { uid: 1001, gid: 1001, pid: 2 };

/// What is told up to now: a marker change ends it, since what is told later comes later.
async fn told(bench: &Bench, watching: &mut Watching) -> Vec<(ChangeKind, String, Option<u64>)> {
    bench.fake.touch("marker");
    let started = SystemTime::now();
    bench.vfs.reload(&names("fake/marker"), false, USER).await.expect("a reload");
    let mut told = Vec::new();
    loop {
        let line = tokio::time::timeout(Duration::from_secs(20), watching.next()).await.expect("the marker is told");
        let Some(Watched::Change(change)) = line else { panic!("{line:?}") };
        let path = change.path.iter().map(ToString::to_string).collect::<Vec<_>>().join("/");
        if path == "fake/marker" {
            assert!(change.at >= started && change.from != change.to, "{change:?}");
            return told;
        }
        told.push((change.what, path, change.size));
    }
}

async fn scene() -> (Bench, Watching) {
    let bench = Bench::new();
    bench.fake.file("marker", "m");
    bench.fake.file("d/one", "1");
    bench.fake.file("d/two", "22");
    bench.cat("fake/marker").await.expect("content");
    bench.cat("fake/d/one").await.expect("content");
    let watching = bench.vfs.watch(names("fake"), USER);
    (bench, watching)
}

/// Goal: each sort of change is told once, where it is found, and what is only learnt for the first time is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_change_is_told_once() {
    let (bench, mut watching) = scene().await;
    assert_eq!(bench.cat("fake/d/two").await.expect("content"), b"22");
    assert_eq!(told(&bench, &mut watching).await, [], "what is learnt for the first time is no change");
    bench.list("fake/d").await.expect("a listing");
    assert_eq!(told(&bench, &mut watching).await, [(ChangeKind::Listed, "fake/d".to_owned(), None)]);

    bench.vfs.validate(&names("fake/d"), USER).await.expect("validated");
    assert_eq!(told(&bench, &mut watching).await, [], "nothing has changed");
    bench.fake.set("d/one", "other");
    bench.vfs.validate(&names("fake/d/one"), USER).await.expect("validated");
    assert_eq!(told(&bench, &mut watching).await, [(ChangeKind::Changed, "fake/d/one".to_owned(), Some(5))]);

    bench.fake.remove("d/two");
    bench.fake.file("d/three", "333");
    bench.vfs.validate(&names("fake"), USER).await.expect("validated");
    let mut all = told(&bench, &mut watching).await;
    all.sort_by(|a, b| a.1.cmp(&b.1));
    let row = |what, path: &str, size| (what, path.to_owned(), size);
    let wanted = [
        row(ChangeKind::Listed, "fake/d", None),
        row(ChangeKind::New, "fake/d/three", Some(3)),
        row(ChangeKind::Gone, "fake/d/two", None),
    ];
    assert_eq!(all, wanted);

    bench.fake.remove("d/one");
    bench.vfs.validate(&names("fake/d/one"), USER).await.expect("validated");
    assert_eq!(told(&bench, &mut watching).await, [row(ChangeKind::Gone, "fake/d/one", None)]);
}

/// Goal: who watches a path that is not there is told when it is, once, be it for the first time or after it had gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_looked_out_for_is_told_when_it_comes() {
    let (bench, mut watching) = scene().await;
    let validated = async |path: &str| bench.vfs.validate(&names(path), USER).await.expect("validated");
    let new = |path: &str| vec![(ChangeKind::New, path.to_owned(), Some(5))];
    validated("fake/comes").await;
    validated("fake/comes").await;
    assert_eq!(told(&bench, &mut watching).await, [], "it is not there");
    bench.fake.file("comes", "fifth");
    validated("fake/comes").await;
    validated("fake/comes").await;
    assert_eq!(told(&bench, &mut watching).await, new("fake/comes"));

    bench.fake.remove("d/one");
    validated("fake/d/one").await;
    validated("fake/d/one").await;
    assert_eq!(told(&bench, &mut watching).await, [(ChangeKind::Gone, "fake/d/one".to_owned(), None)]);
    bench.fake.file("d/one", "fifth");
    validated("fake/d/one").await;
    validated("fake/d/one").await;
    assert_eq!(told(&bench, &mut watching).await, new("fake/d/one"));

    bench.list("fake/d").await.expect("a listing");
    validated("fake/d/listed").await;
    told(&bench, &mut watching).await;
    bench.fake.file("d/listed", "fifth");
    validated("fake/d/listed").await;
    validated("fake/d/listed").await;
    let told = told(&bench, &mut watching).await;
    let told: Vec<_> = told.into_iter().filter(|(what, ..)| *what != ChangeKind::Listed).collect();
    assert_eq!(told, new("fake/d/listed"), "by the list, and not twice");
    validated("nowhere/at/all").await;
}

/// Goal: looking out for what is not there does not disturb a source that is silent, and forgets nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn looking_out_where_the_source_is_silent_forgets_nothing() {
    let (bench, _watching) = scene().await;
    bench.vfs.validate(&names("fake/comes"), USER).await.expect("validated");
    assert!(bench.vfs.absent_above(&names("fake/comes")).is_some());
    bench.fake.order(Order::of(Fault::Error(RemoteError::Unreachable { detail: "x".to_owned() })).times(9));
    bench.vfs.validate(&names("fake/comes"), USER).await.expect("validated");
    assert!(bench.vfs.absent_above(&names("fake/comes")).is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_becomes_a_directory_is_told_so() {
    let (bench, mut watching) = scene().await;
    bench.fake.adjust(|terms| terms.promise = Promise::Lasting(Duration::ZERO));
    bench.list("fake/d").await.expect("a listing");
    told(&bench, &mut watching).await;
    bench.fake.remove("d/one");
    bench.fake.file("d/one/below", "x");
    bench.vfs.validate(&names("fake"), USER).await.expect("validated");
    let all = told(&bench, &mut watching).await;
    assert!(all.contains(&(ChangeKind::MovedToDirectory, "fake/d/one".to_owned(), None)), "{all:?}");
}

/// Goal: a watch of a path tells that path alone, and no user learns of what another user's rights brought.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_tells_its_subtree_and_only_what_its_user_may_see() {
    let bench = Bench::new();
    bench.fake.adjust(|terms| terms.audience = Audience::Only { uid: USER.uid });
    bench.fake.file("marker", "m");
    bench.fake.file("d/one", "1");
    bench.fake.file("e/one", "1");
    for path in ["fake/marker", "fake/d/one", "fake/e/one"] {
        bench.cat(path).await.expect("content");
    }
    let mut below = bench.vfs.watch(names("fake/e"), USER);
    let mut own = bench.vfs.watch(Vec::new(), USER);
    let mut of_other = bench.vfs.watch(Vec::new(), OTHER);
    bench.fake.set("d/one", "other");
    bench.fake.set("e/one", "other");
    bench.vfs.validate(&[], OTHER).await.expect("validated");
    assert_eq!(told(&bench, &mut own).await, [], "another user's questions leave these files alone");
    bench.vfs.validate(&[], USER).await.expect("validated");
    let mut all = told(&bench, &mut own).await;
    all.sort_by(|a, b| a.1.cmp(&b.1));
    assert_eq!(all.iter().map(|line| line.1.as_str()).collect::<Vec<_>>(), ["fake/d/one", "fake/e/one"]);
    let Some(Watched::Change(change)) = below.next().await else { panic!("told") };
    assert_eq!(change.path, names("fake/e/one"));
    drop(bench);
    assert!(below.next().await.is_none() && of_other.next().await.is_none(), "nothing more was told to either");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_that_lags_is_told_how_much_it_lost() {
    let (bench, mut watching) = scene().await;
    bench.list("fake/d").await.expect("a listing");
    for number in 0..5000 {
        bench.fake.file(format!("d/new{number}"), "x");
    }
    bench.vfs.validate(&names("fake/d"), USER).await.expect("validated");
    let Some(Watched::Lost(lost)) = watching.next().await else { panic!("it lags") };
    let mut rest = 0;
    while let Ok(Some(Watched::Change(_))) = tokio::time::timeout(Duration::ZERO, watching.next()).await {
        rest += 1;
    }
    assert_eq!(lost + rest, 5000 + 2, "all names, and two listings");
}

/// Goal: validating takes no trust away. A source that does not answer is asked about what is held, and what is held
/// serves as before without another question.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn validating_a_silent_source_changes_nothing() {
    let (bench, mut watching) = scene().await;
    bench.list("fake/d").await.expect("a listing");
    told(&bench, &mut watching).await;
    let silent = || Fault::Error(RemoteError::Unreachable { detail: "x".to_owned() });
    for operation in [Operation::Attributes, Operation::Entries] {
        bench.fake.order(Order::of(silent()).on(operation).at("d"));
        bench.fake.order(Order::of(silent()).on(operation).at("d/one"));
    }
    bench.vfs.validate(&names("fake/d"), USER).await.expect("validated as far as it goes");
    bench.fake.reset_counts();
    assert_eq!(bench.cat("fake/d/one").await.expect("held"), b"1");
    bench.list("fake/d").await.expect("held");
    assert_eq!(bench.fake.counts().calls(), 0);
    bench.fake.heal();
    assert_eq!(told(&bench, &mut watching).await, []);
}

/// Goal: a file that is gone is told once, and once that it is back, although the page of its directory links to it all
/// the time. Method: a source whose lists tell names alone answers that the file is not there, then that it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_is_gone_and_listed_on_is_told_once() {
    let (bench, mut watching) = scene().await;
    bench.fake.adjust(|terms| {
        terms.stable_ids = false;
        terms.listing = Quality::Unknown;
    });
    bench.list("fake/d").await.expect("a listing");
    told(&bench, &mut watching).await;
    let row = |what, size| (what, "fake/d/one".to_owned(), size);
    for _ in 0..2 {
        let gone = || Fault::Error(RemoteError::NotFound { detail: "x".to_owned() });
        for operation in [Operation::Attributes, Operation::Lookup] {
            bench.fake.order(Order::of(gone()).on(operation).at("d/one"));
        }
        bench.vfs.validate(&names("fake"), USER).await.expect("validated");
        assert_eq!(told(&bench, &mut watching).await, [row(ChangeKind::Gone, None)]);
        for _ in 0..3 {
            bench.vfs.validate(&names("fake"), USER).await.expect("validated");
            assert_eq!(told(&bench, &mut watching).await, [], "it was told");
        }
        bench.fake.heal();
        bench.vfs.validate(&names("fake"), USER).await.expect("validated");
        assert_eq!(told(&bench, &mut watching).await, [row(ChangeKind::New, Some(1))]);
    }
}

/// Has a thread wait for the kernel, at the moment at which a change is told.
struct WaitsForKernel {
    vfs: Arc<Vfs>,
    runtime: tokio::runtime::Handle,
    waits: Mutex<Option<JoinHandle<bool>>>,
}

impl Wake for WaitsForKernel {
    fn wake(self: Arc<Self>) {
        let thread = Arc::<OnceLock<_>>::default();
        let (vfs, runtime, of_thread) = (self.vfs.clone(), self.runtime.clone(), thread.clone());
        *self.waits.lock().expect("no panic") = Some(std::thread::spawn(move || {
            let own = std::fs::read_link("/proc/thread-self").expect("Linux has it");
            of_thread.set(Path::new("/proc").join(own).join("stat")).expect("once");
            runtime.block_on(vfs.kernel_is_told(Duration::from_secs(20)))
        }));
        // It sleeps when there is something to wait for.
        loop {
            let stat = thread.get().map(std::fs::read_to_string);
            if stat.is_some_and(|stat| stat.is_ok_and(|stat| stat.contains(") S "))) {
                return;
            }
            std::thread::yield_now();
        }
    }
}

/// Goal: who is told that a name is there, and then waits until the kernel knows, finds it: the kernel hears before that that
/// the name is not absent any more. Method: the wait begins at the very moment at which the change is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_kernel_knows_what_was_told() {
    let (bench, heard) = scene().await.0.heard();
    let mut watching = bench.vfs.watch(names("fake"), USER);
    bench.walk("fake/comes").await.expect_err("it is not there");
    bench.fake.file("comes", "fifth");
    let waits = Arc::new(WaitsForKernel {
        vfs: bench.vfs.clone(),
        runtime: tokio::runtime::Handle::current(),
        waits: Mutex::default(),
    });
    {
        let next = pin!(watching.next());
        assert!(next.poll(&mut Context::from_waker(&Waker::from(waits.clone()))).is_pending());
        let found = bench.vfs.reload(&names("fake"), true, USER).await;
        found.expect("a reload");
    }
    let order: Vec<&str> = std::iter::from_fn(|| heard.others.recv_timeout(Duration::from_secs(20)).ok())
        .map(|notice| match notice {
            Notice::Entry { name, .. } if name.as_bytes() == b"comes" => "entry",
            Notice::Fence(_) => "fence",
            _ => "other",
        })
        .take_while(|what| *what != "fence")
        .collect();
    assert!(order.contains(&"entry"), "{order:?}");
    let waits = waits.waits.lock().expect("no panic").take().expect("the change was told");
    assert!(waits.join().expect("no panic"));
}
