//! Changes made through the contract.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::{Duration, SystemTime};

use weft_remote::{
    Caller, Change, Extent, FileKind, Mutation, NewAttributes, Remote, RemoteError, RenameTarget, Version,
};

use crate::hands::{
    apply, apply_as, create, link, mode_of, remove, rename, rename_to, set, set_extended, symlink, write, write_all,
};
use crate::support::{ALL, Bed, call};

#[tokio::test]
async fn creating_gives_exactly_the_mode_that_was_asked_for() {
    let bed = Bed::new(&["d/"]).await;
    let d = bed.id("d").await;
    let made = apply(&bed, create(d.clone(), "file", FileKind::File, 0o6777)).await.unwrap().unwrap();
    assert_eq!((made.attributes.mode, made.attributes.links), (Some(0o6777), Some(1)));
    assert_eq!((mode_of(&bed, "d/file"), made.id), (0o6777, bed.id("d/file").await));
    apply(&bed, create(d.clone(), "dir", FileKind::Directory, 0o1751)).await.unwrap().unwrap();
    assert_eq!(mode_of(&bed, "d/dir"), 0o1751);
    let made = apply(&bed, symlink(d.clone(), "link", b"../anything\xff")).await.unwrap().unwrap();
    assert_eq!(made.attributes.kind, FileKind::Symlink);
    assert_eq!(bed.dir.read_link(&call(), &made.id).await.unwrap().value, b"../anything\xff");
    for taken in ["file", "dir", "link"] {
        let again = apply(&bed, create(d.clone(), taken, FileKind::File, 0o600)).await;
        assert!(matches!(again, Err(RemoteError::Exists { .. })), "{taken}: {again:?}");
    }
    let no_kind = apply(&bed, create(d.clone(), "x", FileKind::Symlink, 0o600)).await;
    assert!(matches!(no_kind, Err(RemoteError::Invalid { .. })), "{no_kind:?}");
    fs::remove_dir_all(bed.path("d")).unwrap();
    let nowhere = apply(&bed, create(d, "x", FileKind::File, 0o600)).await;
    assert!(matches!(nowhere, Err(RemoteError::NotFound { .. })), "{nowhere:?}");
}

#[tokio::test]
async fn special_files_are_created_shown_and_removed() {
    let bed = Bed::new(&["d/"]).await;
    let d = bed.id("d").await;
    for kind in [FileKind::Fifo, FileKind::Socket, FileKind::CharDevice, FileKind::BlockDevice] {
        let is_device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
        // 0x12345 of 0x678.
        let device = if is_device { 0x12367845 } else { 0 };
        let change =
            Change::Create { dir: d.clone(), name: crate::support::name("x"), kind, mode: 0o6642.into(), device };
        let made = match apply(&bed, change).await {
            Ok(made) => made.unwrap(),
            Err(RemoteError::NotPermitted { .. }) if is_device => {
                println!("skipped: this user can make no {kind:?}");
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        assert_eq!((made.attributes.kind, made.attributes.mode), (kind, Some(0o6642)));
        assert_eq!(made.attributes.device, is_device.then_some(device));
        if is_device {
            let real = rustix::fs::lstat(bed.path("d/x")).unwrap().st_rdev;
            assert_eq!((rustix::fs::major(real), rustix::fs::minor(real)), (0x678, 0x12345));
        }
        assert_eq!(bed.list("d").await.unwrap().0.entries[0].attributes.kind, kind);
        apply(&bed, set(made.id, NewAttributes { mode: Some(0o600), ..Default::default() })).await.unwrap();
        assert_eq!(mode_of(&bed, "d/x"), 0o600);
        apply(&bed, remove(d.clone(), "x")).await.unwrap();
        assert!(bed.is_absent("d/x").await);
    }
}

#[tokio::test]
async fn what_a_caller_makes_belongs_to_the_caller() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can give files away");
        return;
    }
    let bed = Bed::new(&["plain/", "shared/"]).await;
    fs::set_permissions(bed.path("shared"), fs::Permissions::from_mode(0o2775)).unwrap();
    std::os::unix::fs::chown(bed.path("shared"), None, Some(4321)).unwrap();
    let caller = Caller { uid: 1234, gid: 1235, pid: 1 };
    for (dir, group) in [("plain", 1235), ("shared", 4321)] {
        for kind in [FileKind::File, FileKind::Directory, FileKind::Fifo] {
            let new = format!("{kind:?}");
            let change = create(bed.id(dir).await, &new, kind, 0o755);
            let made = apply_as(&bed, caller, change, &Version::None).await.unwrap().unwrap();
            let owner = made.attributes.owner.unwrap();
            assert_eq!((owner.uid, owner.gid), (1234, group), "{dir}");
        }
        let change = symlink(bed.id(dir).await, "link", b"x");
        let made = apply_as(&bed, caller, change, &Version::None).await.unwrap().unwrap();
        assert_eq!(made.attributes.owner.unwrap().uid, 1234);
    }
    assert_eq!(mode_of(&bed, "shared/Directory"), 0o2755, "the group goes on to what is made in it");
}

#[tokio::test]
async fn writing_changes_the_extents_and_the_length_and_nothing_else() {
    let bed = Bed::new(&["file"]).await;
    let before: Vec<u8> = (0..50_000u32).map(|at| (at % 250) as u8).collect();
    fs::write(bed.path("file"), &before).unwrap();
    let content = vec![255; 60_000];
    let extents = vec![Extent { offset: 10, length: 5000 }, Extent { offset: 40_000, length: 20_000 }];
    let made = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 5);
    let mutation = Mutation { change: write(bed.id("file").await, content, extents, 60_000), made };
    let entry = bed.dir.apply(&call(), &mutation, &Version::None).await.unwrap().value.entry.unwrap();
    let mut expected = before.clone();
    expected.resize(60_000, 0);
    expected[10..5010].fill(255);
    expected[40_000..60_000].fill(255);
    assert_eq!(fs::read(bed.path("file")).unwrap(), expected);
    assert_eq!(entry.attributes.size.exact(), Some(60_000));
    assert_eq!(entry.attributes.modified.exact(), Some(made));
    assert_eq!(bed.read("file").await.unwrap(), expected);
    // Shorter again, with no new bytes.
    apply(&bed, write(bed.id("file").await, Vec::new(), Vec::new(), 3)).await.unwrap();
    assert_eq!(fs::read(bed.path("file")).unwrap(), expected[..3]);
}

#[tokio::test]
async fn a_write_that_makes_no_sense_changes_nothing() {
    let bed = Bed::new(&["file", "d/"]).await;
    let (file, d) = (bed.id("file").await, bed.id("d").await);
    for extent in [Extent { offset: 3, length: 2 }, Extent { offset: u64::MAX, length: 2 }] {
        let refused = apply(&bed, write(file.clone(), vec![1; 100], vec![extent], 4)).await;
        assert!(matches!(refused, Err(RemoteError::Failed { .. })), "{refused:?}");
    }
    let short = apply(&bed, write(file.clone(), vec![1; 2], vec![Extent { offset: 2, length: 2 }], 4)).await;
    assert!(matches!(short, Err(RemoteError::Failed { .. })), "{short:?}");
    let directory = apply(&bed, write_all(d, b"x")).await;
    assert!(matches!(directory, Err(RemoteError::IsADirectory { .. })), "{directory:?}");
    assert_eq!(fs::read(bed.path("file")).unwrap(), b"file");
}

#[tokio::test]
async fn set_id_bits_are_set_and_kept_as_the_kernel_has_it() {
    let bed = Bed::new(&["program"]).await;
    let program = bed.id("program").await;
    apply(&bed, set(program.clone(), NewAttributes { mode: Some(0o4755), ..Default::default() })).await.unwrap();
    assert_eq!(mode_of(&bed, "program"), 0o4755);
    let written = apply(&bed, write_all(program, b"x")).await.unwrap().unwrap();
    // Whoever is not root takes them away by writing; for root it is the file system above that sets the mode.
    let expected = if rustix::process::geteuid().is_root() { 0o4755 } else { 0o755 };
    assert_eq!((written.attributes.mode, mode_of(&bed, "program")), (Some(expected as u16), expected));
}

#[tokio::test]
async fn removing_and_renaming() {
    let bed = Bed::new(&["d/file", "e/other", "empty/"]).await;
    let (top, d, e) = (bed.dir.root(), bed.id("d").await, bed.id("e").await);
    let full = apply(&bed, remove(top.clone(), "d")).await;
    assert!(matches!(full, Err(RemoteError::NotEmpty { .. })), "{full:?}");
    let absent = apply(&bed, remove(d.clone(), "absent")).await;
    assert!(matches!(absent, Err(RemoteError::NotFound { .. })), "{absent:?}");
    assert!(apply(&bed, remove(top.clone(), "empty")).await.unwrap().is_none());
    assert!(!bed.path("empty").exists());

    let file = bed.id("d/file").await;
    let moved = apply(&bed, rename(d.clone(), "file", e.clone(), "other")).await.unwrap().unwrap();
    assert_eq!((moved.id, moved.name), (file.clone(), crate::support::name("other")));
    assert_eq!(fs::read(bed.path("e/other")).unwrap(), b"d/file");
    assert!(!bed.path("d/file").exists());
    let into_itself = apply(&bed, rename(top.clone(), "e", e.clone(), "below")).await;
    assert!(matches!(into_itself, Err(RemoteError::Invalid { .. })), "{into_itself:?}");
    let onto_full = apply(&bed, rename(top.clone(), "d", top.clone(), "e")).await;
    assert!(matches!(onto_full, Err(RemoteError::NotEmpty { .. })), "{onto_full:?}");
    let onto_directory = apply(&bed, rename(e.clone(), "other", top.clone(), "d")).await;
    assert!(matches!(onto_directory, Err(RemoteError::IsADirectory { .. })), "{onto_directory:?}");
    let onto_file = apply(&bed, rename(top, "d", e.clone(), "other")).await;
    assert!(matches!(onto_file, Err(RemoteError::NotADirectory { .. })), "{onto_file:?}");
    let absent = apply(&bed, rename(e, "absent", d, "x")).await;
    assert!(matches!(absent, Err(RemoteError::NotFound { .. })), "{absent:?}");
}

#[tokio::test]
async fn renaming_where_there_must_be_nothing_and_exchanging() {
    let bed = Bed::new(&["d/file", "e/sub/leaf"]).await;
    let (d, e) = (bed.id("d").await, bed.id("e").await);
    let (file, sub, leaf) = (bed.id("d/file").await, bed.id("e/sub").await, bed.id("e/sub/leaf").await);
    let taken = apply(&bed, rename_to(d.clone(), "file", e.clone(), "sub", RenameTarget::Absent)).await;
    assert!(matches!(taken, Err(RemoteError::Exists { .. })), "{taken:?}");
    let moved =
        apply(&bed, rename_to(d.clone(), "file", d.clone(), "new", RenameTarget::Absent)).await.unwrap().unwrap();
    assert_eq!(moved.id, file);
    let exchange = rename_to(d.clone(), "new", e.clone(), "sub", RenameTarget::Exchanged);
    let moved = apply(&bed, exchange).await.unwrap().unwrap();
    assert_eq!((moved.id, moved.name), (file.clone(), crate::support::name("sub")));
    assert_eq!((bed.id("d/new").await, bed.id("e/sub").await), (sub.clone(), file.clone()));
    assert_eq!(bed.read_of(&file).await.unwrap(), "d/file");
    assert_eq!(bed.read_of(&leaf).await.unwrap(), "e/sub/leaf");
    let absent = apply(&bed, rename_to(d, "new", e, "absent", RenameTarget::Exchanged)).await;
    assert!(matches!(absent, Err(RemoteError::NotFound { .. })), "{absent:?}");
    assert_eq!(bed.names("d").await, ["new"]);
}

#[tokio::test]
async fn attributes_are_set_on_files_directories_and_links() {
    let bed = Bed::new(&["file", "d/"]).await;
    std::os::unix::fs::symlink("file", bed.path("link")).unwrap();
    let times = [Duration::new(1_500_000_000, 7), Duration::ZERO];
    let early = SystemTime::UNIX_EPOCH - Duration::from_millis(1_250);
    for modified in times.map(|time| SystemTime::UNIX_EPOCH + time).into_iter().chain([early]) {
        for path in ["file", "d", "link"] {
            let mode = (path != "link").then_some(0o6700);
            let new = NewAttributes { mode, modified: Some(modified), ..Default::default() };
            let before = bed.entry(path).await;
            let entry = apply(&bed, set(before.id.clone(), new)).await.unwrap().unwrap();
            assert_eq!((entry.attributes.modified.exact(), &entry.id), (Some(modified), &before.id), "{path}");
            assert_eq!(entry.attributes.accessed, before.attributes.accessed, "left alone");
            let accessed = modified + Duration::from_secs(5);
            let new = NewAttributes { accessed: Some(accessed), ..Default::default() };
            let entry = apply(&bed, set(entry.id, new)).await.unwrap().unwrap();
            assert_eq!(entry.attributes.accessed.exact(), Some(accessed), "{path}");
            assert_eq!(entry.attributes.modified.exact(), Some(modified), "left alone");
        }
    }
    assert_eq!((mode_of(&bed, "file"), mode_of(&bed, "d")), (0o6700, 0o6700));
    let plain = NewAttributes { mode: Some(0o600), ..Default::default() };
    assert!(matches!(apply(&bed, set(bed.id("link").await, plain)).await, Err(RemoteError::Unsupported { .. })));
    assert_eq!(mode_of(&bed, "file"), 0o6700, "the link was not followed");
    apply(&bed, set(bed.id("d").await, plain)).await.unwrap();
    assert_eq!(mode_of(&bed, "d"), 0o600, "a directory has just the mode that it is given");
    if rustix::process::geteuid().is_root() {
        for path in ["file", "d", "link"] {
            let new = NewAttributes { uid: Some(77), gid: Some(78), ..Default::default() };
            let owner = apply(&bed, set(bed.id(path).await, new)).await.unwrap().unwrap().attributes.owner.unwrap();
            assert_eq!((owner.uid, owner.gid), (77, 78), "{path}");
        }
        assert_eq!(fs::symlink_metadata(bed.path("link")).unwrap().uid(), 77);
    } else {
        println!("skipped in part: only root can change owners");
    }
}

#[tokio::test]
async fn extended_attributes_of_users_are_set_shown_and_taken_away() {
    let bed = Bed::new(&["file", "d/"]).await;
    std::os::unix::fs::symlink("file", bed.path("link")).unwrap();
    for path in ["file", "d"] {
        let file = bed.id(path).await;
        let change = |value, must_exist| set_extended(file.clone(), "user.note", value, must_exist);
        match apply(&bed, change(Some(&b"one"[..]), Some(false))).await {
            Err(RemoteError::Unsupported { .. }) => return println!("skipped: no extended attributes here"),
            made => assert_eq!(made.unwrap().unwrap().id, file),
        }
        let twice = apply(&bed, change(Some(b"two"), Some(false))).await;
        assert!(matches!(twice, Err(RemoteError::Exists { .. })), "{twice:?}");
        apply(&bed, change(Some(b"two\0\xff"), Some(true))).await.unwrap();
        let told = bed.dir.extended(&call(), &file, b"user.note").await.unwrap();
        assert_eq!(told.as_deref(), Some(&b"two\0\xff"[..]));
        apply(&bed, set_extended(file.clone(), "user.empty", Some(b""), None)).await.unwrap();
        assert_eq!(bed.dir.extended(&call(), &file, b"user.empty").await.unwrap().as_deref(), Some(&b""[..]));
        let mut names = bed.dir.extended_names(&call(), &file).await.unwrap();
        names.sort();
        assert_eq!(names, [b"user.empty".to_vec(), b"user.note".to_vec()]);
        apply(&bed, change(None, None)).await.unwrap();
        assert_eq!(bed.dir.extended(&call(), &file, b"user.note").await.unwrap(), None);
        let gone = apply(&bed, change(None, None)).await;
        assert!(matches!(gone, Err(RemoteError::NotFound { .. })), "{gone:?}");
        let gone = apply(&bed, change(Some(b"x"), Some(true))).await;
        assert!(matches!(gone, Err(RemoteError::NotFound { .. })), "{gone:?}");
    }
    for (path, attribute) in [("file", "trusted.x"), ("file", "security.x"), ("file", "user."), ("link", "user.x")] {
        let refused = apply(&bed, set_extended(bed.id(path).await, attribute, Some(b"x"), None)).await;
        assert!(matches!(refused, Err(RemoteError::Unsupported { .. })), "{path} {attribute}: {refused:?}");
    }
    let other = bed.dir.extended(&call(), &bed.id("file").await, b"security.selinux").await;
    assert!(matches!(other, Err(RemoteError::Unsupported { .. })), "{other:?}");
    assert_eq!(bed.dir.extended(&call(), &bed.id("link").await, b"user.x").await.unwrap(), None);
}

#[tokio::test]
async fn what_was_written_is_synced() {
    let bed = Bed::new(&["d/file"]).await;
    std::os::unix::fs::symlink("file", bed.path("d/link")).unwrap();
    for path in ["", "d", "d/file", "d/link"] {
        bed.dir.sync(&call(), &bed.id(path).await).await.unwrap();
    }
    let file = bed.id("d/file").await;
    fs::remove_file(bed.path("d/file")).unwrap();
    let gone = bed.dir.sync(&call(), &file).await;
    assert!(matches!(gone, Err(RemoteError::NotFound { .. })), "{gone:?}");
}

#[tokio::test]
async fn a_change_is_made_on_the_expected_version_alone() {
    let bed = Bed::new(&["d/file"]).await;
    let (file, dir, listing) = (bed.entry("d/file").await, bed.entry("d").await, bed.list("d").await.unwrap().1);
    fs::write(bed.path("d/file"), "changed meanwhile").unwrap();
    fs::write(bed.path("d/more"), "").unwrap();
    let (d, top) = (|| dir.id.clone(), bed.dir.root());
    let private = NewAttributes { mode: Some(0o600), ..Default::default() };
    let old_file = [
        write_all(file.id.clone(), b"x"),
        set(file.id.clone(), private),
        set_extended(file.id.clone(), "user.x", Some(b"x"), None),
        link(file.id.clone(), top.clone(), "second"),
    ];
    for change in old_file {
        let refused = apply_as(&bed, Caller::DAEMON, change, &file.version).await;
        assert!(matches!(refused, Err(RemoteError::VersionChanged { .. })), "{refused:?}");
    }
    for old in [&dir.version, &listing] {
        let changes = [
            create(d(), "new", FileKind::File, 0o600),
            symlink(d(), "new", b"x"),
            remove(d(), "more"),
            rename(d(), "more", top.clone(), "new"),
        ];
        for change in changes {
            let refused = apply_as(&bed, Caller::DAEMON, change, old).await;
            assert!(matches!(refused, Err(RemoteError::VersionChanged { .. })), "{refused:?}");
        }
    }
    assert_eq!(fs::read(bed.path("d/file")).unwrap(), b"changed meanwhile");
    let now = bed.list("d").await.unwrap().1;
    apply_as(&bed, Caller::DAEMON, remove(d(), "more"), &now).await.unwrap();
}

#[tokio::test]
async fn a_change_of_attributes_or_names_alone_is_no_other_version_to_write_on() {
    let bed = Bed::new(&["file"]).await;
    let file = bed.entry("file").await;
    let top = bed.dir.root();
    let changes = [
        set(file.id.clone(), NewAttributes { mode: Some(0o640), ..Default::default() }),
        link(file.id.clone(), top.clone(), "second"),
        rename(top.clone(), "second", top.clone(), "third"),
        set(file.id.clone(), NewAttributes { accessed: Some(SystemTime::UNIX_EPOCH), ..Default::default() }),
    ];
    for change in changes {
        let expected = if matches!(change, Change::Rename { .. }) { &Version::None } else { &file.version };
        apply_as(&bed, Caller::DAEMON, change, expected).await.unwrap();
    }
    assert_ne!(bed.entry("file").await.version, file.version);
    apply_as(&bed, Caller::DAEMON, write_all(file.id.clone(), b"written"), &file.version).await.unwrap();
    let again = apply_as(&bed, Caller::DAEMON, write_all(file.id, b"again!!"), &file.version).await;
    assert!(matches!(again, Err(RemoteError::VersionChanged { .. })), "{again:?}");
    assert_eq!(fs::read(bed.path("third")).unwrap(), b"written");
}

/// What we change ourselves is told by the outcome, whose lease lasts; what others change afterwards is told as ever, of
/// the file, of the listing that somebody knew before, and of names below what was moved.
#[tokio::test]
async fn our_own_changes_are_no_news_and_those_of_others_are() {
    let mut bed = Bed::new(&["d/file", "d/sub/leaf", "sentinel/"]).await;
    for path in ["d/file", "d/sub/leaf"] {
        bed.lease(path).await;
    }
    bed.lease_listing("d").await;
    let d = bed.id("d").await;
    apply(&bed, write_all(bed.id("d/file").await, b"x")).await.unwrap();
    let sentinel = bed.sentinel().await;
    fs::write(bed.path(&sentinel), "").unwrap();
    let told = bed.broken(&[&sentinel]).await;
    assert!(!told.contains("d/file") && !told.contains("d"), "{told:?}");
    fs::write(bed.path("d/file"), "y").unwrap();
    let told = bed.broken(&["d/file", "d"]).await;
    assert!(!told.contains(ALL), "{told:?}");
    // All that the kernel has to say of that write has been told before the next lease is taken.
    let sentinel = bed.sentinel().await;
    fs::write(bed.path(&sentinel), "").unwrap();
    bed.broken(&[&sentinel]).await;
    bed.lease_listing("d").await;
    apply(&bed, write_all(bed.id("d/file").await, b"again")).await.unwrap();
    fs::write(bed.path("d/new"), "").unwrap();
    bed.broken(&["d/new", "d"]).await;
    bed.lease("d/sub/leaf").await;
    apply(&bed, rename(d.clone(), "sub", d, "moved")).await.unwrap();
    bed.broken(&["d/sub/leaf"]).await;
}

#[tokio::test]
async fn a_full_disk_is_no_space() {
    let folder = tempfile::tempdir().unwrap();
    let flags = rustix::mount::MountFlags::NODEV | rustix::mount::MountFlags::NOSUID;
    let small = Some(c"size=64k");
    if let Err(error) = rustix::mount::mount("none", folder.path(), "tmpfs", flags, small) {
        println!("skipped: nothing can be mounted here: {error}");
        return;
    }
    fs::write(folder.path().join("file"), "").unwrap();
    let dir = weft_dir::Directory::open(weft_dir::DirectoryOptions::new(folder.path())).unwrap();
    let found = dir.lookup(&call(), &dir.root(), &crate::support::name("file")).await.unwrap().value;
    let change = write_all(found.unwrap().entry.id, &vec![1; 1 << 20]);
    let mutation = Mutation { change, made: SystemTime::now() };
    let refused = dir.apply(&call(), &mutation, &Version::None).await;
    drop(dir);
    rustix::mount::unmount(folder.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
    assert!(matches!(refused, Err(RemoteError::NoSpace { .. })), "{refused:?}");
}
