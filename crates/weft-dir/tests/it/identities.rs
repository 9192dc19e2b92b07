//! An identity is one file: whatever its names are, wherever its directories go, and no other.

use std::fs;

use weft_dir::{Directory, DirectoryOptions};
use weft_remote::{FileId, FileKind, Remote, RemoteError, Version};

use crate::hands::{apply, create, link, remove, rename, write_all};
use crate::support::{Bed, call, is_not_found, name};

fn is_unplaced<T>(result: &Result<T, RemoteError>) -> bool {
    matches!(result, Err(RemoteError::Unplaced { .. }))
}

#[tokio::test]
async fn an_identity_stays_with_a_file_that_is_renamed_and_with_all_below_a_directory() {
    let bed = Bed::new(&["a/b/file", "c/"]).await;
    let (top, b, c) = (bed.dir.root(), bed.id("a/b").await, bed.id("c").await);
    let file = bed.id("a/b/file").await;
    assert_eq!(file.as_bytes().len(), 17);
    apply(&bed, rename(b.clone(), "file", b.clone(), "renamed")).await.unwrap();
    assert_eq!(bed.read_of(&file).await.unwrap(), "a/b/file");
    apply(&bed, rename(top.clone(), "a", c.clone(), "moved")).await.unwrap();
    assert_eq!(bed.read_of(&file).await.unwrap(), "a/b/file");
    apply(&bed, write_all(file.clone(), b"written")).await.unwrap();
    assert_eq!(fs::read(bed.path("c/moved/b/renamed")).unwrap(), b"written");
    let made = apply(&bed, create(b, "new", FileKind::File, 0o600)).await.unwrap().unwrap();
    assert_eq!(bed.id("c/moved/b/new").await, made.id);
    assert_eq!(bed.attributes_of(&file).await.unwrap().name, name("renamed"));
    let paths = bed.dir.about(&file);
    assert!(paths[0].1.ends_with("c/moved/b/renamed"), "{paths:?}");
}

#[tokio::test]
async fn directories_moved_by_others_are_followed_with_all_that_is_in_them() {
    let bed = Bed::new(&["a/b/file", "c/"]).await;
    let (a, b, file) = (bed.id("a").await, bed.id("a/b").await, bed.id("a/b/file").await);
    // One above, the one itself, and both, so that neither is where it was and another is in its place.
    for (from, to) in [("a", "c/a"), ("c/a/b", "b"), ("c/a", "a"), ("b", "a/b")] {
        fs::rename(bed.path(from), bed.path(to)).unwrap();
        assert_eq!(bed.read_of(&file).await.unwrap(), "a/b/file", "{from} to {to}");
    }
    fs::rename(bed.path("a/b"), bed.path("c/b")).unwrap();
    fs::rename(bed.path("a"), bed.path("c/b/a")).unwrap();
    fs::create_dir_all(bed.path("a/b")).unwrap();
    assert_eq!(bed.list_of(&a).await.unwrap().0.entries.len(), 0);
    assert_eq!(bed.list_of(&b).await.unwrap().0.entries.len(), 2);
    let made = apply(&bed, create(a.clone(), "new", FileKind::File, 0o600)).await.unwrap().unwrap();
    assert!(bed.path("c/b/a/new").exists() && !bed.path("a/new").exists());
    assert_eq!(bed.id("c/b/a/new").await, made.id);
    assert_eq!(bed.attributes_of(&a).await.unwrap().name, name("a"));
    fs::remove_dir_all(bed.path("c/b")).unwrap();
    assert!(is_not_found(&bed.list_of(&b).await), "it is gone");
}

/// Goal: a file that others move is found where it is, and has its former name no more, where the kernel tells of the move;
/// elsewhere when its name is looked up.
#[tokio::test]
async fn a_file_moved_by_others_is_found_where_it_is() {
    let bed = Bed::new(&["a/file", "b/"]).await;
    let (top, a, b, file) = (bed.dir.root(), bed.id("a").await, bed.id("b").await, bed.id("a/file").await);
    for dir in ["", "a", "b"] {
        bed.list(dir).await.unwrap();
    }
    let places = [("a/file", &a, "file"), ("b/moved", &b, "moved"), ("b/file", &b, "file"), ("file", &top, "file")];
    for [(from, former, gone), (to, dir, new)] in places.windows(2).map(|pair| [pair[0], pair[1]]) {
        fs::rename(bed.path(from), bed.path(to)).unwrap();
        fs::write(bed.path(from), "another").unwrap();
        assert_eq!(bed.read_of(&file).await.unwrap(), "a/file", "{from} to {to}");
        apply(&bed, write_all(file.clone(), b"a/file")).await.unwrap();
        assert_eq!(fs::read(bed.path(from)).unwrap(), b"another");
        assert!(bed.dir.may_be_named(&file, dir, &name(new)), "{to}");
        assert!(!bed.dir.may_be_named(&file, former, &name(gone)), "{from}");
    }
    fs::remove_file(bed.path("file")).unwrap();
    assert!(is_not_found(&bed.read_of(&file).await), "it is gone");

    let bed = Bed::with(&["a/file"], |options| options.watches_max = 0).await;
    let file = bed.id("a/file").await;
    fs::rename(bed.path("a/file"), bed.path("file")).unwrap();
    assert!(is_not_found(&bed.read_of(&file).await), "it is not where it was");
    assert_eq!(bed.names("").await, ["a", "file"]);
    assert_eq!(bed.read_of(&file).await.unwrap(), "a/file", "the listing has told where it is");
}

#[tokio::test]
async fn two_names_of_one_file_have_one_identity() {
    let bed = Bed::new(&["d/one", "e/"]).await;
    let (d, e, file) = (bed.id("d").await, bed.id("e").await, bed.id("d/one").await);
    let second = apply(&bed, link(file.clone(), e.clone(), "two")).await.unwrap().unwrap();
    assert_eq!((second.id, second.attributes.links), (file.clone(), Some(2)));
    assert_eq!(bed.entry("d/one").await.attributes.links, Some(2));
    // Whichever name was used last: when it goes, the file is found by the other.
    for gone in [(&d, "one"), (&e, "two")] {
        let other = if gone.1 == "one" { "e/two" } else { "d/one" };
        bed.entry(&format!("{}/{}", if gone.1 == "one" { "d" } else { "e" }, gone.1)).await;
        apply(&bed, remove(gone.0.clone(), gone.1)).await.unwrap();
        let told = bed.attributes_of(&file).await.unwrap();
        assert_eq!(told.attributes.links, Some(1));
        assert_eq!(bed.read_of(&file).await.unwrap(), "d/one");
        assert_eq!(bed.id(other).await, file);
        apply(&bed, link(file.clone(), gone.0.clone(), gone.1)).await.unwrap();
    }
    // Others take away the name that was seen last.
    bed.entry("e/two").await;
    fs::remove_file(bed.path("e/two")).unwrap();
    assert_eq!(bed.read_of(&file).await.unwrap(), "d/one");
    apply(&bed, write_all(file.clone(), b"x")).await.unwrap();
    let refused = apply(&bed, link(d, e, "dir")).await;
    assert!(matches!(refused, Err(RemoteError::Unsupported { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_name_that_was_not_seen_may_be_all_that_is_left_of_a_file() {
    // Where nothing is heard of names that come.
    let bed = Bed::with(&["one"], |options| options.watches_max = 0).await;
    fs::hard_link(bed.path("one"), bed.path("two")).unwrap();
    let file = bed.id("one").await;
    fs::remove_file(bed.path("one")).unwrap();
    assert!(is_unplaced(&bed.read_of(&file).await));
    assert_eq!(bed.id("two").await, file);
    assert_eq!(bed.read_of(&file).await.unwrap(), "one");
    fs::remove_file(bed.path("two")).unwrap();
    assert!(is_not_found(&bed.read_of(&file).await));
}

#[tokio::test]
async fn after_a_start_a_file_is_unplaced_until_it_is_looked_up() {
    let bed = Bed::new(&["d/file"]).await;
    let (d, file) = (bed.id("d").await, bed.id("d/file").await);
    let next = Directory::open(DirectoryOptions::new(bed.folder.path())).unwrap();
    for unknown in [&d, &file] {
        assert!(!next.is_placed(unknown) && is_unplaced(&next.attributes(&call(), unknown, &Version::None).await));
        assert!(is_unplaced(&next.fetch(&call(), unknown, &Version::None, weft_remote::Span::WHOLE).await));
    }
    assert_eq!(next.about(&file)[0].1, "not known now");
    let found = next.lookup(&call(), &next.root(), &name("d")).await.unwrap().value.unwrap();
    assert_eq!(found.entry.id, d);
    assert!(next.is_placed(&d) && !next.is_placed(&file));
    assert!(is_unplaced(&next.attributes(&call(), &file, &Version::None).await));
    next.entries(&call(), &d, &Version::None, None).await.unwrap();
    next.attributes(&call(), &file, &Version::None).await.unwrap();
    assert!(next.is_placed(&file));
}

#[tokio::test]
async fn another_file_under_the_same_name_or_inode_is_another() {
    let bed = Bed::new(&["file"]).await;
    let file = bed.id("file").await;
    // Some file systems give the inode of a removed file to the next: such a one is made, within some tries.
    for round in 0..100 {
        fs::remove_file(bed.path("file")).unwrap();
        fs::write(bed.path("file"), round.to_string()).unwrap();
        assert!(is_not_found(&bed.read_of(&file).await));
        let other = bed.id("file").await;
        assert_ne!(other, file);
        if other.as_bytes()[..9] == file.as_bytes()[..9] {
            println!("the inode was used again");
        }
        assert!(is_not_found(&bed.read_of(&file).await));
        assert!(apply(&bed, write_all(file.clone(), b"to the wrong one")).await.is_err());
        assert_eq!(bed.read_of(&other).await.unwrap(), round.to_string());
    }
}

#[tokio::test]
async fn few_places_are_enough_to_go_on() {
    let paths: Vec<String> = (0..200).map(|at| format!("d{}/file{at}", at % 10)).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let bed = Bed::with(&paths, |options| options.places_max = 10).await;
    let mut unplaced = 0;
    for _ in 0..2 {
        for path in &paths {
            let file = bed.id(path).await;
            assert_eq!(bed.read_of(&file).await.unwrap(), *path);
            let first = bed.id(paths[0]).await;
            assert_eq!(bed.read_of(&first).await.unwrap(), paths[0]);
        }
    }
    for path in &paths {
        let file = bed.id(path).await;
        for other in paths.iter().take(20) {
            bed.id(other).await;
        }
        unplaced += u32::from(is_unplaced(&bed.read_of(&file).await));
    }
    assert!(unplaced > 150, "{unplaced}");
}

/// Files are read while they and their directories are renamed by us: none is ever missed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_we_rename_is_found_all_the_time() {
    let bed = std::sync::Arc::new(Bed::new(&["a/d/file", "b/"]).await);
    let (a, b, d, file) = (bed.id("a").await, bed.id("b").await, bed.id("a/d").await, bed.id("a/d/file").await);
    let mover = bed.clone();
    let moves = tokio::spawn(async move {
        for _ in 0..300 {
            apply(&mover, rename(a.clone(), "d", b.clone(), "d")).await.unwrap();
            apply(&mover, rename(d.clone(), "file", d.clone(), "renamed")).await.unwrap();
            apply(&mover, rename(b.clone(), "d", a.clone(), "d")).await.unwrap();
            apply(&mover, rename(d.clone(), "renamed", d.clone(), "file")).await.unwrap();
        }
    });
    let mut looks = 0;
    while !moves.is_finished() {
        bed.attributes_of(&file).await.unwrap();
        looks += 1;
    }
    moves.await.unwrap();
    println!("{looks} looks");
}

/// The kernel's clock stands still for some milliseconds: an inode that was used again meanwhile would have the same birth.
#[tokio::test]
async fn no_inode_is_used_again_within_a_tick_of_the_clock() {
    let bed = Bed::new(&[]).await;
    let top = bed.dir.root();
    let mut births = std::collections::HashMap::new();
    let mut again = 0;
    let mut note = |file: FileId| {
        let part = |from: usize| u64::from_le_bytes(file.as_bytes()[from..from + 8].try_into().unwrap());
        let (inode, born) = (part(1), part(9));
        if let Some(before) = births.insert(inode, born) {
            again += 1;
            // 20 ms of a clock that may be 10 ms behind.
            assert!(born == 0 || born >= before + 10_000_000, "inode {inode} was born at {before} and at {born}");
        }
    };
    let make = async |name, kind| apply(&bed, create(top.clone(), name, kind, 0o700)).await.unwrap().unwrap().id;
    let unmake = async |name| drop(apply(&bed, remove(top.clone(), name)).await.unwrap());
    for round in 0..300 {
        note(make("x", FileKind::File).await);
        match round % 3 {
            0 => {}
            1 => {
                note(make("y", FileKind::File).await);
                apply(&bed, rename(top.clone(), "y", top.clone(), "x")).await.unwrap();
            }
            _ => {
                note(make("d", FileKind::Directory).await);
                unmake("d").await;
            }
        }
        unmake("x").await;
    }
    println!("{again} inodes were used again");
}
