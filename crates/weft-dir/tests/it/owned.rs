//! Who may write a file, found out at its open; and what is written by whoever had it open before its mode took that away.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rustix::fs::IFlags;
use weft_remote::{Extent, FileKind, NewAttributes, Remote, RemoteError, Version};

use crate::confined::passes_as_nobody;
use crate::hands::{apply, apply_as, create, mode_of, remove, set, write, write_all};
use crate::support::{Bed, call};

#[tokio::test]
async fn what_its_owner_has_open_is_written_whatever_the_mode_says_by_now() {
    if passes_as_nobody("owned::what_its_owner_has_open_is_written_whatever_the_mode_says_by_now") {
        return;
    }
    let bed = Bed::new(&["d/"]).await;
    for mode in [0o444, 0o000, 0o200, 0o555] {
        let name = format!("{mode:o}");
        let made = apply(&bed, create(bed.id("d").await, &name, FileKind::File, mode)).await.unwrap().unwrap();
        let write = write_all(made.id.clone(), b"as git has its objects");
        let written = apply_as(&bed, weft_remote::Caller::DAEMON, write, &made.version).await.unwrap().unwrap();
        bed.dir.sync(&call(), &made.id).await.unwrap();
        assert_eq!(written.attributes.mode, Some(mode), "{name}");
        assert_eq!(mode_of(&bed, &format!("d/{name}")), u32::from(mode));
        apply(&bed, set(made.id, NewAttributes { mode: Some(0o600), ..Default::default() })).await.unwrap();
        assert_eq!(fs::read(bed.path(&format!("d/{name}"))).unwrap(), b"as git has its objects", "{name}");
    }
}

#[tokio::test]
async fn a_write_that_is_refused_leaves_the_mode_and_what_was_read() {
    if passes_as_nobody("owned::a_write_that_is_refused_leaves_the_mode_and_what_was_read") {
        return;
    }
    let bed = Bed::new(&["d/file"]).await;
    fs::set_permissions(bed.path("d/file"), fs::Permissions::from_mode(0o444)).unwrap();
    let before = bed.lookup("d/file").await.unwrap().value.unwrap().entry;
    let other = Version::strong("1:2-3-4-5.0-6.0");
    let refused = apply_as(&bed, weft_remote::Caller::DAEMON, write_all(before.id.clone(), b"x"), &other).await;
    assert!(matches!(refused, Err(RemoteError::VersionChanged { .. })), "{refused:?}");
    assert_eq!(mode_of(&bed, "d/file"), 0o444);
    assert_eq!(fs::read(bed.path("d/file")).unwrap(), b"d/file");
    // Whoever had read it goes on in the same version.
    apply_as(&bed, weft_remote::Caller::DAEMON, write_all(before.id, b"y"), &before.version).await.unwrap();
    assert_eq!(fs::read(bed.path("d/file")).unwrap(), b"y");
}

/// Sets what a file is marked with, where its file system and this user can.
fn marked(bed: &Bed, path: &str, marks: IFlags) -> bool {
    let file = fs::File::open(bed.path(path)).unwrap();
    let set = rustix::fs::ioctl_getflags(&file).and_then(|flags| {
        let kept = flags & !(IFlags::APPEND | IFlags::IMMUTABLE);
        rustix::fs::ioctl_setflags(&file, kept | marks)
    });
    if let Err(error) = &set {
        println!("skipped: {path} cannot be marked here: {error}");
    }
    set.is_ok()
}

#[tokio::test]
async fn what_can_only_grow_is_written_at_its_end_and_refused_before_it_is_written_elsewhere() {
    let bed = Bed::new(&["log", "fixed"]).await;
    if !marked(&bed, "log", IFlags::APPEND) || !marked(&bed, "fixed", IFlags::IMMUTABLE) {
        return;
    }
    let (log, fixed) = (bed.lookup("log").await.unwrap().value.unwrap().entry, bed.id("fixed").await);
    let mut may = Vec::new();
    for (file, appends) in [(&log.id, true), (&log.id, false), (&fixed, true), (&fixed, false)] {
        may.push(bed.dir.may_write(&call(), file, None, appends).await);
    }
    let as_caller = weft_remote::Caller::DAEMON;
    let extent = |offset, length| vec![Extent { offset, length }];
    let over =
        apply_as(&bed, as_caller, write(log.id.clone(), b"LOg more".to_vec(), extent(2, 6), 8), &log.version).await;
    let cut = apply_as(&bed, as_caller, write(log.id.clone(), Vec::new(), Vec::new(), 2), &log.version).await;
    let more =
        apply_as(&bed, as_caller, write(log.id.clone(), b"log more".to_vec(), extent(3, 5), 8), &log.version).await;
    let late = apply_as(&bed, as_caller, write(log.id, b"log late".to_vec(), extent(3, 5), 8), &log.version).await;
    let gone = apply(&bed, remove(bed.dir.root(), "fixed")).await;
    for path in ["log", "fixed"] {
        assert!(marked(&bed, path, IFlags::empty()));
    }
    assert!(may[0].is_ok(), "{may:?}");
    assert!(may[1..].iter().all(|may| matches!(may, Err(RemoteError::NotPermitted { .. }))), "{may:?}");
    for refused in [over, cut, gone] {
        assert!(
            matches!(&refused, Err(RemoteError::NotPermitted { detail }) if detail.contains("lsattr")),
            "{refused:?}"
        );
    }
    assert!(matches!(late, Err(RemoteError::VersionChanged { .. })), "{late:?}");
    assert_eq!(more.unwrap().unwrap().attributes.size.exact(), Some(8));
    assert_eq!(fs::read(bed.path("log")).unwrap(), b"log more");
}

#[tokio::test]
async fn where_nothing_can_be_written_an_open_says_so() {
    use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
    let folder = tempfile::tempdir().unwrap();
    let flags = MountFlags::NODEV | MountFlags::NOSUID;
    if let Err(error) = mount("none", folder.path(), "tmpfs", flags, None) {
        println!("skipped: nothing can be mounted here: {error}");
        return;
    }
    fs::write(folder.path().join("file"), "").unwrap();
    let dir = weft_dir::Directory::open(weft_dir::DirectoryOptions::new(folder.path())).unwrap();
    let found = dir.lookup(&call(), &dir.root(), &crate::support::name("file")).await.unwrap().value;
    let file = found.unwrap().entry.id;
    let before = dir.may_write(&call(), &file, None, false).await;
    mount_remount(folder.path(), flags | MountFlags::RDONLY, "").unwrap();
    let after = dir.may_write(&call(), &file, None, true).await;
    drop(dir);
    unmount(folder.path(), UnmountFlags::DETACH).unwrap();
    assert!(before.is_ok(), "{before:?}");
    assert!(matches!(after, Err(RemoteError::ReadOnly { .. })), "{after:?}");
}
