//! Each kind of change at the source breaks the leases that it concerns, and no other.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use tokio::sync::Notify;
use weft_remote::{Answer, Event, FileId, Lease, Remote, RemoteError, Version};

use crate::support::{ALL, Bed, PATIENCE, call, name};

/// After `change`, the leases on `wanted` are broken, and until a sentinel is told nothing of `others` is.
async fn breaks(bed: &mut Bed, change: impl FnOnce(&Bed), wanted: &[&str], others: &[&str]) {
    let sentinel = bed.sentinel().await;
    change(bed);
    let mut seen = bed.broken(wanted).await;
    fs::write(bed.path(&sentinel), "").unwrap();
    seen.extend(bed.broken(&[&sentinel]).await);
    for other in others.iter().chain(&[ALL]) {
        assert!(!seen.contains(*other), "{other} is broken as well: {seen:?}");
    }
}

async fn bed() -> Bed {
    let bed = Bed::new(&["d/file", "d/other", "e/file", "sentinel/"]).await;
    bed.lease_listing("d").await;
    bed.lease_listing("e").await;
    bed.lease("d").await;
    bed
}

/// Goal: from the moment a change has been made until it is heard, not all is told.
#[tokio::test]
async fn what_has_changed_is_not_all_told_before_it_is_heard() {
    let bed = Bed::new(&["file"]).await;
    let mut events = bed.take_events();
    let mut heard = async || {
        let mut seen = Vec::new();
        let all = async {
            while !bed.dir.has_told_all() {
                seen.extend(futures_util::FutureExt::now_or_never(events.next()).flatten());
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, all).await.expect("all is told in the end");
        seen
    };
    for round in 0..100 {
        bed.lease("file").await;
        heard().await;
        match round % 3 {
            0 => fs::write(bed.path("file"), round.to_string()).unwrap(),
            1 => {
                fs::write(bed.path("other"), "").and_then(|()| fs::rename(bed.path("other"), bed.path("file"))).unwrap()
            }
            _ => fs::remove_file(bed.path("file")).unwrap(),
        }
        assert!(!bed.dir.has_told_all(), "round {round}");
        let told = heard().await;
        assert!(told.iter().any(|event| matches!(event, Event::NameBroken { .. })), "round {round}: {told:?}");
    }
}

/// Goal: who waits until all is told waits for what has changed before.
#[tokio::test]
async fn who_waits_for_all_to_be_told_does_so_until_it_is_heard() {
    let bed = Bed::new(&["file"]).await;
    let mut events = bed.take_events();
    for round in 0..100 {
        bed.lease("file").await;
        fs::write(bed.path("file"), round.to_string()).unwrap();
        let mut told = Vec::new();
        let all = async {
            tokio::select! {
                biased;
                () = bed.dir.told_all() => {}
                () = async { while let Some(event) = events.next().await { told.push(event) } } => {}
            }
        };
        tokio::time::timeout(PATIENCE, all).await.expect("all is told in the end");
        assert!(told.iter().any(|event| matches!(event, Event::NameBroken { .. })), "round {round}: {told:?}");
    }
}

/// Goal: whoever was told of a file by itself is told of its end, whatever name it has by then: nobody may know that name.
#[tokio::test]
async fn what_was_told_of_a_file_by_itself_is_told_to_have_ended() {
    let mut bed = bed().await;
    let (file, dir) = (bed.id("d/file").await, bed.id("d").await);
    let write = |path| fs::write(path, "other bytes");
    let shut = |path| fs::set_permissions(path, fs::Permissions::from_mode(0o700));
    let mut change = async |of: &FileId, path, change: &dyn Fn(PathBuf) -> std::io::Result<()>| {
        bed.attributes_of(of).await.unwrap();
        let sentinel = bed.sentinel().await;
        change(bed.path(path)).unwrap();
        fs::write(bed.path(&sentinel), "").unwrap();
        let told = bed.told(&[&sentinel]).await;
        let of_it = |event: &Event| matches!(event, Event::NameBroken { file: Some(file), .. } if file == of);
        assert!(told.iter().any(of_it), "{path}: {told:?}");
        fs::rename(bed.path("d"), bed.path("moved")).or_else(|_| fs::rename(bed.path("moved"), bed.path("d"))).unwrap();
    };
    change(&file, "d/file", &write).await;
    change(&dir, "moved", &shut).await;
    change(&file, "d/file", &write).await;
}

#[tokio::test]
async fn creating_breaks_the_listing_and_the_absence() {
    let mut bed = bed().await;
    bed.lease("d/new").await;
    breaks(&mut bed, |bed| fs::write(bed.path("d/new"), "x").unwrap(), &["d/new", "d"], &["d/other", "e", "e/file"])
        .await;
    assert!(!bed.is_absent("d/new").await);
}

#[tokio::test]
async fn writing_appending_truncating_break_the_file() {
    let changes: [fn(&Bed); 3] = [
        |bed| fs::write(bed.path("d/file"), "other bytes").unwrap(),
        |bed| {
            let mut file = fs::OpenOptions::new().append(true).open(bed.path("d/file")).unwrap();
            file.write_all(b"more").unwrap();
        },
        |bed| fs::OpenOptions::new().write(true).open(bed.path("d/file")).unwrap().set_len(1).unwrap(),
    ];
    for change in changes {
        let mut bed = bed().await;
        let before = bed.entry("d/file").await.version;
        breaks(&mut bed, change, &["d/file", "d"], &["d/other", "e", "e/file"]).await;
        assert_ne!(bed.entry("d/file").await.version, before);
    }
}

#[tokio::test]
async fn modes_and_times_break_the_file() {
    let changes: [fn(&Bed); 2] = [
        |bed| fs::set_permissions(bed.path("d/file"), fs::Permissions::from_mode(0o640)).unwrap(),
        |bed| {
            let file = fs::OpenOptions::new().write(true).open(bed.path("d/file")).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
        },
    ];
    for change in changes {
        let mut bed = bed().await;
        breaks(&mut bed, change, &["d/file", "d"], &["d/other", "e", "e/file"]).await;
    }
    let mut bed = bed().await;
    let shut = |bed: &Bed| fs::set_permissions(bed.path("d"), fs::Permissions::from_mode(0o700)).unwrap();
    breaks(&mut bed, shut, &["d"], &["d/file", "d/other", "e"]).await;
    assert_eq!(bed.entry("d").await.attributes.mode, Some(0o700));
}

#[tokio::test]
async fn renaming_within_into_and_out_of_breaks_both_names() {
    let mut within = bed().await;
    within.lease("e/new").await;
    let change = |bed: &Bed| fs::rename(bed.path("d/file"), bed.path("e/new")).unwrap();
    breaks(&mut within, change, &["d/file", "d", "e/new", "e"], &["d/other", "e/file"]).await;

    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("file"), "from outside").unwrap();
    let mut into = bed().await;
    let change = |bed: &Bed| fs::rename(outside.path().join("file"), bed.path("d/file")).unwrap();
    breaks(&mut into, change, &["d/file", "d"], &["d/other", "e", "e/file"]).await;
    assert_eq!(into.read("d/file").await.unwrap(), "from outside");

    let mut out = bed().await;
    let change = |bed: &Bed| fs::rename(bed.path("d/file"), outside.path().join("gone")).unwrap();
    breaks(&mut out, change, &["d/file", "d"], &["d/other", "e", "e/file"]).await;
    assert!(out.is_absent("d/file").await);
}

#[tokio::test]
async fn deleting_a_file_and_a_directory() {
    let mut file = bed().await;
    breaks(&mut file, |bed| fs::remove_file(bed.path("d/file")).unwrap(), &["d/file", "d"], &["d/other", "e"]).await;

    let mut dir = bed().await;
    dir.lease_listing("").await;
    breaks(&mut dir, |bed| fs::remove_dir_all(bed.path("d")).unwrap(), &["d/file", "d/other", "d", ""], &["e/file"])
        .await;
    assert!(dir.is_absent("d").await);
}

#[tokio::test]
async fn a_directory_that_is_replaced_breaks_what_was_below_it() {
    let mut bed = Bed::new(&["d/deep/file", "new/deep/file", "sentinel/"]).await;
    fs::write(bed.path("new/deep/file"), "replaced").unwrap();
    for path in ["d", "d/deep", "d/deep/file", "d/deep/absent"] {
        bed.lease(path).await;
    }
    let change = |bed: &Bed| {
        fs::rename(bed.path("d"), bed.path("old")).unwrap();
        fs::rename(bed.path("new"), bed.path("d")).unwrap();
    };
    breaks(&mut bed, change, &["d", "d/deep", "d/deep/file", "d/deep/absent"], &[]).await;
    assert_eq!(bed.read("d/deep/file").await.unwrap(), "replaced");
    // The watches belong to what is there now.
    bed.lease("d/deep/file").await;
    breaks(&mut bed, |bed| fs::write(bed.path("d/deep/file"), "again").unwrap(), &["d/deep/file"], &[]).await;
    // And a change of what was moved away is told under its new name alone.
    bed.lease("old/deep/file").await;
    bed.lease("d/deep/file").await;
    let old = |bed: &Bed| fs::write(bed.path("old/deep/file"), "elsewhere").unwrap();
    breaks(&mut bed, old, &["old/deep/file"], &["d/deep/file"]).await;
}

#[tokio::test]
async fn a_directory_moved_by_one_above_it_is_told_by_no_old_name() {
    let mut bed = Bed::new(&["a/b/c/file", "sentinel/"]).await;
    bed.lease("a/b/c/file").await;
    let change = |bed: &Bed| fs::rename(bed.path("a"), bed.path("z")).unwrap();
    breaks(&mut bed, change, &["a/b/c/file"], &[]).await;
    bed.lease("z/b/c/file").await;
    let write = |bed: &Bed| fs::write(bed.path("z/b/c/file"), "x").unwrap();
    breaks(&mut bed, write, &["z/b/c/file"], &["a/b/c/file"]).await;
}

#[tokio::test]
async fn a_moved_directory_is_told_of_by_its_own_identity_alone() {
    let mut bed = Bed::new(&["d/file", "new/file", "sentinel/"]).await;
    let (old, new) = (bed.id("d").await, bed.id("new").await);
    bed.lease("d/file").await;
    bed.lease("new/file").await;
    let change = |bed: &Bed| {
        let exchange = rustix::fs::RenameFlags::EXCHANGE;
        rustix::fs::renameat_with(rustix::fs::CWD, bed.path("d"), rustix::fs::CWD, bed.path("new"), exchange).unwrap();
    };
    breaks(&mut bed, change, &["d/file", "new/file"], &[]).await;
    bed.lease("d/file").await;
    bed.lease("new/file").await;
    assert_eq!((bed.id("d").await, bed.id("new").await), (new, old));
    breaks(&mut bed, |bed| fs::write(bed.path("d/file"), "x").unwrap(), &["d/file"], &["new/file"]).await;
    breaks(&mut bed, |bed| fs::write(bed.path("new/file"), "x").unwrap(), &["new/file"], &["d/file"]).await;
}

#[tokio::test]
async fn a_name_that_was_never_looked_up_is_told_of() {
    let mut bed = Bed::new(&["d/file", "sentinel/"]).await;
    bed.lease_listing("d").await;
    breaks(&mut bed, |bed| fs::write(bed.path("d/new"), "x").unwrap(), &["d/new", "d"], &["d/file"]).await;
    bed.lease_listing("d").await;
    breaks(&mut bed, |bed| fs::write(bed.path("d/file"), "x").unwrap(), &["d/file", "d"], &["d/new"]).await;
}

#[tokio::test]
async fn a_lease_broken_before_is_told_once_for_each_time_somebody_asked() {
    let mut bed = Bed::new(&["file", "sentinel/"]).await;
    bed.lease("file").await;
    let many = |bed: &Bed| (0..1000).for_each(|round| fs::write(bed.path("file"), round.to_string()).unwrap());
    breaks(&mut bed, many, &["file"], &[]).await;
    bed.lease("file").await;
    breaks(&mut bed, |bed| fs::write(bed.path("file"), "last").unwrap(), &["file"], &[]).await;
}

#[tokio::test]
async fn the_top_that_goes_ends_everything_with_a_clear_sentence() {
    for moved in [true, false] {
        let mut bed = Bed::new(&["file"]).await;
        bed.lease("file").await;
        let away = tempfile::tempdir().unwrap();
        match moved {
            true => fs::rename(bed.folder.path(), away.path().join("moved")).unwrap(),
            false => fs::remove_dir_all(bed.folder.path()).unwrap(),
        }
        if moved {
            bed.broken(&[ALL]).await;
        }
        let answer = bed.dir.lookup(&call(), &bed.dir.root(), &name("file")).await;
        match answer {
            Err(RemoteError::Failed { detail }) => assert!(detail.contains("put it back"), "{detail}"),
            other => panic!("{other:?}"),
        }
        if !moved {
            bed.broken(&[ALL]).await;
        }
        // Another in its place, as when a site is replaced as a whole.
        fs::create_dir(bed.folder.path()).unwrap();
        fs::write(bed.path("file"), "new").unwrap();
        fs::create_dir(bed.path("sentinel")).unwrap();
        bed.found_again("file").await;
        bed.broken(&[ALL]).await;
        bed.lease("file").await;
        breaks(&mut bed, |bed| fs::write(bed.path("file"), "newer").unwrap(), &["file"], &[]).await;
    }
}

#[tokio::test]
async fn events_end_with_the_directory() {
    let bed = Bed::new(&["file"]).await;
    bed.lease("file").await;
    let events = bed.take_events();
    drop(bed);
    let rest = tokio::time::timeout(PATIENCE, events.collect::<Vec<_>>()).await.expect("the stream ends");
    assert!(rest.len() <= 1, "{rest:?}");
}

/// Method: a change strikes while an answer is made, sooner or later from round to round. Whoever keeps answers by their
/// leases and drops them by the events that come from the call on must hold what is there in the end. A sentinel,
/// changed last, says when all events have come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_a_change_overtakes_is_not_trusted() {
    let paths: Vec<String> = (0..300).map(|at| format!("d/{at}")).collect();
    let mut paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    paths.extend(["d/file", "sentinel/"]);
    let bed = Bed::new(&paths).await;
    let heard = Heard::listen(&bed);
    let file = bed.id("d/file").await;
    let (mut long, mut broken) = (0, 0);
    for round in 0..ROUNDS {
        let path = bed.path("d/file");
        let start = Arc::new(std::sync::Barrier::new(2));
        let other = start.clone();
        let writer = std::thread::spawn(move || {
            let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
            other.wait();
            // The time it takes does not matter, only that it differs.
            (0..round * 100).for_each(|turn| {
                std::hint::black_box(turn);
            });
            file.write_all(b"x").unwrap();
        });
        let before = heard.count();
        tokio::task::block_in_place(|| start.wait());
        let (of, version, lease) = match round % 3 {
            0 => {
                let answer = bed.lookup("d/file").await.unwrap();
                ("d/file", answer.version, answer.lease)
            }
            1 => {
                let (_, version, lease) = bed.list("d").await.unwrap();
                ("d", version, lease)
            }
            _ => {
                let answer = bed.dir.attributes(&call(), &file, &Version::None).await.unwrap();
                ("d/file", answer.version, answer.lease)
            }
        };
        tokio::task::block_in_place(|| writer.join().unwrap());
        let sentinel = bed.sentinel().await;
        fs::write(bed.path(&sentinel), "").unwrap();
        let seen = heard.until(before, &sentinel).await;
        let is_long = matches!(lease, Lease::UntilBroken(_));
        let is_broken = seen.iter().any(|event| event == of || event == ALL);
        long += u32::from(is_long);
        broken += u32::from(is_long && is_broken);
        if is_long && !is_broken {
            let now = if of == "d" { bed.list("d").await.unwrap().1 } else { bed.entry(of).await.version };
            assert_eq!(version, now, "round {round}: {of} is trusted and is not what is there");
        }
    }
    println!("{ROUNDS} answers: {long} with long leases, {broken} of them broken");
    assert!(long > 0 && broken > 0, "changes came after answers, and answers were trusted");
}

/// Goal: however often directories change their places while somebody asks about them, what changes in them afterwards is
/// told. Method: a promise that is given when all is quiet is tried.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directories_that_change_places_all_the_time_are_watched_still() {
    // Too few for all at once.
    let bed = Bed::with(&["a/", "b/", "d/c/"], |options| options.watches_max = 4).await;
    let mut events = bed.take_events();
    let dir = bed.dir.clone();
    let (done, tops) = (Arc::new(AtomicBool::new(false)), ["a", "b", "d/c"]);
    for round in 0..EXCHANGES {
        done.store(false, Ordering::Relaxed);
        let asking = |nth: usize| {
            let (dir, done) = (dir.clone(), done.clone());
            tokio::spawn(async move {
                while !done.load(Ordering::Relaxed) {
                    let mut at = dir.root();
                    for part in tops[nth].split('/') {
                        let Ok(Answer { value: Some(found), .. }) = dir.lookup(&call(), &at, &name(part)).await else {
                            break;
                        };
                        at = found.entry.id;
                        drop(dir.entries(&call(), &at, &Version::None, None).await);
                        drop(dir.lookup(&call(), &at, &name("inside")).await);
                    }
                }
            })
        };
        let asking: Vec<_> = (0..tops.len()).map(asking).collect();
        tokio::task::block_in_place(|| {
            for turn in 0..20 {
                let [one, other] = [0, 1].map(|shift| bed.path(tops[(turn + shift) % tops.len()]));
                renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
            }
        });
        done.store(true, Ordering::Relaxed);
        futures_util::future::join_all(asking).await;
        for top in tops {
            // While the kernel still tells of the exchanges, leases are short.
            let promised = async { while !matches!(bed.list(top).await.unwrap().2, Lease::UntilBroken(_)) {} };
            tokio::time::timeout(PATIENCE, promised)
                .await
                .unwrap_or_else(|_| panic!("round {round}: {top} is not watched"));
            let id = bed.id(top).await;
            fs::write(bed.path(top).join(round.to_string()), "").unwrap();
            let told = async { while events.next().await != Some(Event::Broken(id.clone())) {} };
            tokio::time::timeout(PATIENCE, told).await.unwrap_or_else(|_| panic!("round {round}: {top}"));
        }
    }
}

const ROUNDS: u32 = 600;
const EXCHANGES: u32 = 100;

/// Events as they come, heard by a task beside the test.
struct Heard {
    paths: Arc<Mutex<Vec<String>>>,
    more: Arc<Notify>,
}

impl Heard {
    fn listen(bed: &Bed) -> Heard {
        let (mut events, names) = (bed.take_events(), bed.paths());
        let heard = Heard { paths: Arc::default(), more: Arc::default() };
        let (paths, more) = (heard.paths.clone(), heard.more.clone());
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                paths.lock().unwrap().push(names.of(&event));
                more.notify_one();
            }
        });
        heard
    }

    fn count(&self) -> usize {
        self.paths.lock().unwrap().len()
    }

    /// What came after the first `before` events, once `last` is among it.
    async fn until(&self, before: usize, last: &str) -> Vec<String> {
        let wait = async {
            loop {
                let seen = self.paths.lock().unwrap()[before..].to_vec();
                if seen.iter().any(|path| path == last) {
                    return seen;
                }
                self.more.notified().await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.expect("the sentinel is told of")
    }
}
