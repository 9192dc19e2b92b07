//! Each kind of change at the source breaks the leases that it concerns, and no other.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use weft_remote::{Lease, Name, Remote, RemoteError};

use crate::support::{ALL, Bed, PATIENCE, call, id};

/// After `change`, the leases on `wanted` are broken, and until a sentinel is told nothing of `others` is.
async fn breaks(bed: &mut Bed, change: impl FnOnce(&Bed), wanted: &[&str], others: &[&str]) {
    bed.lease("sentinel/file").await;
    change(bed);
    let mut seen = bed.broken(wanted).await;
    fs::write(bed.path("sentinel/file"), "changed").unwrap();
    seen.extend(bed.broken(&["sentinel/file"]).await);
    for other in others.iter().chain(&[ALL]) {
        assert!(!seen.contains(*other), "{other} is broken as well: {seen:?}");
    }
}

async fn bed() -> Bed {
    let bed = Bed::new(&["d/file", "d/other", "e/file", "sentinel/file"]).await;
    bed.lease_listing("d").await;
    bed.lease_listing("e").await;
    bed.lease("d").await;
    bed
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
    let mut bed = Bed::new(&["d/deep/file", "new/deep/file", "sentinel/file"]).await;
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
    let mut bed = Bed::new(&["a/b/c/file", "sentinel/file"]).await;
    bed.lease("a/b/c/file").await;
    let change = |bed: &Bed| fs::rename(bed.path("a"), bed.path("z")).unwrap();
    breaks(&mut bed, change, &["a/b/c/file"], &[]).await;
    bed.lease("z/b/c/file").await;
    let write = |bed: &Bed| fs::write(bed.path("z/b/c/file"), "x").unwrap();
    breaks(&mut bed, write, &["z/b/c/file"], &["a/b/c/file"]).await;
}

#[tokio::test]
async fn a_lease_broken_before_is_told_once_for_each_time_somebody_asked() {
    let mut bed = Bed::new(&["file", "sentinel/file"]).await;
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
        let answer = bed.dir.lookup(&call(), &id(""), &Name::new("file").unwrap()).await;
        match answer {
            Err(RemoteError::Failed { detail }) => assert!(detail.contains("mount it again"), "{detail}"),
            other => panic!("{other:?}"),
        }
        if !moved {
            bed.broken(&[ALL]).await;
        }
    }
}

#[tokio::test]
async fn events_end_with_the_directory() {
    let bed = Bed::new(&["file"]).await;
    bed.lease("file").await;
    // The directory goes with the bed.
    let rest = tokio::time::timeout(PATIENCE, bed.into_events().collect::<Vec<_>>()).await.expect("the stream ends");
    assert!(rest.len() <= 1, "{rest:?}");
}

#[tokio::test]
async fn a_change_while_an_answer_is_made_leaves_no_long_lease() {
    // Method: a writer that never stops, and looks at its file. Whatever lease an answer has, a broken one is followed
    // by an event, so nothing that was trusted stays untold.
    let mut bed = Bed::new(&["hot"]).await;
    let (path, running) = (bed.path("hot"), std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true)));
    let keep = running.clone();
    let writer = std::thread::spawn(move || {
        let mut round = 0u64;
        while keep.load(std::sync::atomic::Ordering::Relaxed) {
            round += 1;
            fs::write(&path, round.to_string()).unwrap();
        }
        fs::write(&path, "the end").unwrap();
    });
    let mut long = 0;
    for _ in 0..500 {
        let lease = bed.lookup("hot").await.unwrap().lease;
        if matches!(lease, Lease::UntilBroken(_)) {
            long += 1;
            bed.broken(&["hot"]).await;
        }
    }
    let last = bed.lookup("hot").await.unwrap();
    running.store(false, std::sync::atomic::Ordering::Relaxed);
    writer.join().unwrap();
    println!("{long} of 500 answers had a long lease");
    if matches!(last.lease, Lease::UntilBroken(_)) {
        bed.broken(&["hot"]).await;
    }
    assert_eq!(bed.read("hot").await.unwrap(), "the end");
}
