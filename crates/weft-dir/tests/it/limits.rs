//! Bounds: how many directories are watched, and what has short leases.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, SystemTime};

use weft_dir::DirectoryOptions;
use weft_remote::{Lease, Remote, Version};

use crate::hands::{apply, remove, rename};
use crate::support::{Bed, PATIENCE, call};

fn is_short(lease: Lease, options: &DirectoryOptions) -> bool {
    matches!(lease, Lease::Until(end) if end <= SystemTime::now() + options.unwatched_lease)
}

#[tokio::test]
async fn twenty_directories_with_four_watches() {
    let paths: Vec<String> = (0..20).map(|at| format!("d{at:02}/file")).collect();
    let all: Vec<&str> = paths.iter().map(String::as_str).collect();
    let mut bed = Bed::with(&all, |options| options.watches_max = 4).await;
    let mut ids = Vec::new();
    for path in &all {
        bed.lease(path).await;
        ids.push(bed.id(path).await);
    }
    // The top and three directories are watched; the leases of the others were broken when they gave way.
    let given_way: Vec<&str> = all[..17].to_vec();
    let seen = bed.broken(&given_way).await;
    let kept: BTreeSet<&str> = all[17..].iter().copied().collect();
    assert!(kept.iter().all(|path| !seen.contains(*path)), "{seen:?}");
    for (path, file) in all.iter().zip(&ids) {
        let watched = bed.dir.about(file).into_iter().find(|(key, _)| key == "watched").unwrap().1;
        assert_eq!(watched == "yes", kept.contains(path), "{path}: {watched}");
    }
    for path in kept {
        fs::write(bed.path(path), "changed").unwrap();
        bed.broken(&[path]).await;
    }
}

/// What is held open for whoever moves it is not held for nobody: its inode and its room would stay taken on the disk.
#[tokio::test]
async fn directories_that_are_removed_here_are_not_held_open() {
    let bed = Bed::new(&["removed/", "replaced/", "other/"]).await;
    let open = || {
        let links = fs::read_dir("/proc/self/fd").unwrap().flatten();
        let targets = links.filter_map(|link| fs::read_link(link.path()).ok());
        let here = targets.filter(|target| target.starts_with(bed.folder.path()));
        here.filter(|target| target.to_string_lossy().ends_with("(deleted)")).count()
    };
    for path in ["removed", "replaced", "other"] {
        bed.names(path).await;
    }
    let root = bed.dir.root();
    apply(&bed, remove(root.clone(), "removed")).await.unwrap();
    apply(&bed, rename(root.clone(), "other", root, "replaced")).await.unwrap();
    // A young file is kept for as long as its inode must not be used again.
    let ended = async {
        while open() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.expect("nothing that was removed is open");
    assert_eq!(bed.names("replaced").await, [""; 0]);
}

#[tokio::test]
async fn without_watches_leases_are_short() {
    let options = DirectoryOptions::new("/");
    let bed = Bed::with(&["d/file"], |options| options.watches_max = 0).await;
    assert!(is_short(bed.lookup("d/file").await.unwrap().lease, &options));
    assert!(is_short(bed.lookup("d/absent").await.unwrap().lease, &options));
    assert!(is_short(bed.list("d").await.unwrap().2, &options));
    let fetched =
        bed.dir.fetch(&call(), &bed.id("d/file").await, &Version::None, weft_remote::Span::WHOLE).await.unwrap();
    assert!(is_short(fetched.lease, &options));
}

#[tokio::test]
async fn a_file_with_several_names_has_a_short_lease_and_a_row_without_details() {
    let options = DirectoryOptions::new("/");
    let bed = Bed::new(&["d/one", "d/alone"]).await;
    fs::hard_link(bed.path("d/one"), bed.path("two")).unwrap();
    assert!(is_short(bed.lookup("d/one").await.unwrap().lease, &options));
    let (page, _, lease) = bed.list("d").await.unwrap();
    assert!(matches!(lease, Lease::UntilBroken(_)), "{lease:?}");
    let row = |name: &str| page.entries.iter().find(|entry| entry.name.as_bytes() == name.as_bytes()).unwrap();
    assert_eq!(row("one").attributes.size.known(), None);
    assert_eq!(row("one").version, Version::None);
    assert_eq!(row("alone").attributes.size.exact(), Some(7));
    // What its own answer tells is all there is to know.
    assert_eq!(bed.entry("d/one").await.attributes.size.exact(), Some(5));
}

#[tokio::test]
async fn a_mount_of_the_kernel_s_own_files_is_not_trusted_to_tell() {
    let dir = weft_dir::Directory::open(DirectoryOptions::new("/proc")).unwrap();
    let name = weft_remote::Name::new("version").unwrap();
    let answer = dir.lookup(&call(), &dir.root(), &name).await.unwrap();
    assert!(is_short(answer.lease, &DirectoryOptions::new("/proc")), "{:?}", answer.lease);
    assert_eq!(dir.space(&call(), &dir.root()).await.unwrap(), None);
}

#[tokio::test]
async fn figures_for_df_are_those_of_the_disk() {
    let bed = Bed::new(&[]).await;
    let told = bed.dir.space(&call(), &bed.dir.root()).await.unwrap().expect("known");
    let real = rustix::fs::statvfs(bed.folder.path()).unwrap();
    assert_eq!(told.total, real.f_blocks * real.f_frsize);
    assert!(told.free <= told.total);
}
