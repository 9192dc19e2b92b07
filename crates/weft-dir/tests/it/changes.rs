//! Changes made through the contract.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use weft_remote::{
    Call, Caller, Change, Content, Entry, Extent, FileKind, Mutation, Name, Remote, RemoteError, Result, Version,
};

use crate::support::{Bed, PATIENCE, call, id};

/// Bytes to be written, given out in pieces of at most 1000.
struct Held(Vec<u8>);

impl Content for Held {
    fn read(&self, offset: u64, length: usize) -> std::io::Result<Bytes> {
        let rest = self.0.get(offset as usize..).unwrap_or_default();
        Ok(Bytes::copy_from_slice(&rest[..length.min(rest.len()).min(1000)]))
    }
}

async fn apply_as(bed: &Bed, caller: Caller, change: Change, expected: &Version) -> Result<Option<Entry>> {
    let mutation = Mutation { change, made: SystemTime::now() };
    let answer = bed.dir.apply(&Call::within(caller, PATIENCE), &mutation, expected).await?;
    Ok(answer.value.entry)
}

async fn apply(bed: &Bed, change: Change) -> Result<Option<Entry>> {
    apply_as(bed, Caller::DAEMON, change, &Version::None).await
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn create(dir: &str, new: &str, kind: FileKind, mode: u16) -> Change {
    Change::Create { dir: id(dir), name: name(new), kind, mode }
}

fn rename(from: &str, old: &str, to: &str, new: &str) -> Change {
    Change::Rename { from: id(from), name: name(old), to: id(to), new_name: name(new) }
}

fn write(file: &str, content: Vec<u8>, extents: Vec<Extent>, length: u64) -> Change {
    Change::Write { file: id(file), extents, length, content: Arc::new(Held(content)) }
}

fn mode_of(bed: &Bed, path: &str) -> u32 {
    fs::symlink_metadata(bed.path(path)).unwrap().mode() & 0o7777
}

#[tokio::test]
async fn creating_gives_exactly_the_mode_that_was_asked_for_without_set_id_bits() {
    let bed = Bed::new(&["d/"]).await;
    let made = apply(&bed, create("d", "file", FileKind::File, 0o6777)).await.unwrap().unwrap();
    assert_eq!((made.id.as_bytes(), made.attributes.mode), (&b"d/file"[..], Some(0o777)));
    assert_eq!(mode_of(&bed, "d/file"), 0o777);
    apply(&bed, create("d", "dir", FileKind::Directory, 0o1751)).await.unwrap().unwrap();
    assert_eq!(mode_of(&bed, "d/dir"), 0o1751);
    let link = Change::Symlink { dir: id("d"), name: name("link"), target: b"../anything\xff".to_vec() };
    let link = apply(&bed, link).await.unwrap().unwrap();
    assert_eq!(link.attributes.kind, FileKind::Symlink);
    assert_eq!(bed.dir.read_link(&call(), &link.id).await.unwrap().value, b"../anything\xff");
    for taken in ["file", "dir", "link"] {
        let again = apply(&bed, create("d", taken, FileKind::File, 0o600)).await;
        assert!(matches!(again, Err(RemoteError::Exists { .. })), "{taken}: {again:?}");
    }
    let nowhere = apply(&bed, create("absent", "x", FileKind::File, 0o600)).await;
    assert!(matches!(nowhere, Err(RemoteError::NotFound { .. })), "{nowhere:?}");
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
        for kind in [FileKind::File, FileKind::Directory] {
            let new = format!("{kind:?}");
            let made = apply_as(&bed, caller, create(dir, &new, kind, 0o755), &Version::None).await.unwrap().unwrap();
            let owner = made.attributes.owner.unwrap();
            assert_eq!((owner.uid, owner.gid), (1234, group), "{dir}");
        }
        let link = Change::Symlink { dir: id(dir), name: name("link"), target: b"x".to_vec() };
        let made = apply_as(&bed, caller, link, &Version::None).await.unwrap().unwrap();
        assert_eq!(made.attributes.owner.unwrap().uid, 1234);
    }
    assert_eq!(mode_of(&bed, "shared/Directory") & 0o2000, 0o2000, "the group goes on to what is made in it");
}

#[tokio::test]
async fn writing_changes_the_extents_and_the_length_and_nothing_else() {
    let bed = Bed::new(&["file"]).await;
    let before: Vec<u8> = (0..50_000u32).map(|at| (at % 250) as u8).collect();
    fs::write(bed.path("file"), &before).unwrap();
    let content = vec![255; 60_000];
    let extents = vec![Extent { offset: 10, length: 5000 }, Extent { offset: 40_000, length: 20_000 }];
    let made = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 5);
    let mutation = Mutation { change: write("file", content, extents, 60_000), made };
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
    apply(&bed, write("file", Vec::new(), Vec::new(), 3)).await.unwrap();
    assert_eq!(fs::read(bed.path("file")).unwrap(), expected[..3]);
}

#[tokio::test]
async fn a_write_that_makes_no_sense_changes_nothing() {
    let bed = Bed::new(&["file", "d/"]).await;
    for extent in [Extent { offset: 3, length: 2 }, Extent { offset: u64::MAX, length: 2 }] {
        let refused = apply(&bed, write("file", vec![1; 100], vec![extent], 4)).await;
        assert!(matches!(refused, Err(RemoteError::Failed { .. })), "{refused:?}");
    }
    let short = apply(&bed, write("file", vec![1; 2], vec![Extent { offset: 2, length: 2 }], 4)).await;
    assert!(matches!(short, Err(RemoteError::Failed { .. })), "{short:?}");
    let directory = apply(&bed, write("d", vec![1], vec![Extent { offset: 0, length: 1 }], 1)).await;
    assert!(matches!(directory, Err(RemoteError::IsADirectory { .. })), "{directory:?}");
    assert_eq!(fs::read(bed.path("file")).unwrap(), b"file");
}

#[tokio::test]
async fn a_program_with_set_id_bits_loses_them_when_it_is_written() {
    let bed = Bed::new(&["program"]).await;
    fs::set_permissions(bed.path("program"), fs::Permissions::from_mode(0o6755)).unwrap();
    apply(&bed, write("program", vec![1], vec![Extent { offset: 0, length: 1 }], 1)).await.unwrap();
    assert_eq!(mode_of(&bed, "program"), 0o755);
}

#[tokio::test]
async fn removing_and_renaming() {
    let bed = Bed::new(&["d/file", "e/other", "empty/"]).await;
    let full = apply(&bed, Change::Remove { dir: id(""), name: name("d") }).await;
    assert!(matches!(full, Err(RemoteError::NotEmpty { .. })), "{full:?}");
    let absent = apply(&bed, Change::Remove { dir: id("d"), name: name("absent") }).await;
    assert!(matches!(absent, Err(RemoteError::NotFound { .. })), "{absent:?}");
    assert!(apply(&bed, Change::Remove { dir: id(""), name: name("empty") }).await.unwrap().is_none());
    assert!(!bed.path("empty").exists());

    let moved = apply(&bed, rename("d", "file", "e", "other")).await.unwrap().unwrap();
    assert_eq!(moved.id, id("e/other"));
    assert_eq!(fs::read(bed.path("e/other")).unwrap(), b"d/file");
    assert!(!bed.path("d/file").exists());
    let into_itself = apply(&bed, rename("", "e", "e", "below")).await;
    assert!(into_itself.is_err(), "{into_itself:?}");
    let onto_full = apply(&bed, rename("", "d", "", "e")).await;
    assert!(matches!(onto_full, Err(RemoteError::NotEmpty { .. })), "{onto_full:?}");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        bed.path("d/fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let onto_hidden = apply(&bed, rename("e", "other", "d", "fifo")).await;
    assert!(matches!(onto_hidden, Err(RemoteError::Exists { .. })), "{onto_hidden:?}");
    let link = Change::Link { file: id("e/other"), dir: id("d"), name: name("second") };
    assert_eq!(apply(&bed, link).await.unwrap().unwrap().id, id("d/second"));
    assert_eq!(fs::metadata(bed.path("e/other")).unwrap().nlink(), 2);
}

#[tokio::test]
async fn attributes_are_set_on_files_directories_and_links() {
    let bed = Bed::new(&["file", "d/"]).await;
    std::os::unix::fs::symlink("file", bed.path("link")).unwrap();
    fs::set_permissions(bed.path("d"), fs::Permissions::from_mode(0o2755)).unwrap();
    let times = [Duration::new(1_500_000_000, 7), Duration::ZERO];
    let early = SystemTime::UNIX_EPOCH - Duration::from_millis(1_250);
    for modified in times.map(|time| SystemTime::UNIX_EPOCH + time).into_iter().chain([early]) {
        for path in ["file", "d", "link"] {
            let mode = (path != "link").then_some(0o700);
            let set = Change::SetAttributes { file: id(path), mode, uid: None, gid: None, modified: Some(modified) };
            let entry = apply(&bed, set).await.unwrap().unwrap();
            assert_eq!(entry.attributes.modified.exact(), Some(modified), "{path}");
        }
    }
    assert_eq!((mode_of(&bed, "file"), mode_of(&bed, "d")), (0o700, 0o2700), "a directory keeps its set-id bits");
    let set = Change::SetAttributes { file: id("link"), mode: Some(0o600), uid: None, gid: None, modified: None };
    assert!(matches!(apply(&bed, set).await, Err(RemoteError::Unsupported { .. })));
    assert_eq!(mode_of(&bed, "file"), 0o700, "the link was not followed");
    if rustix::process::geteuid().is_root() {
        for path in ["file", "d", "link"] {
            let set =
                Change::SetAttributes { file: id(path), mode: None, uid: Some(77), gid: Some(78), modified: None };
            let owner = apply(&bed, set).await.unwrap().unwrap().attributes.owner.unwrap();
            assert_eq!((owner.uid, owner.gid), (77, 78), "{path}");
        }
        assert_eq!(fs::symlink_metadata(bed.path("link")).unwrap().uid(), 77);
    } else {
        println!("skipped in part: only root can change owners");
    }
}

#[tokio::test]
async fn a_change_is_made_on_the_expected_version_alone() {
    let bed = Bed::new(&["d/file"]).await;
    let (file, dir, listing) = (bed.entry("d/file").await, bed.entry("d").await, bed.list("d").await.unwrap().1);
    fs::write(bed.path("d/file"), "changed meanwhile").unwrap();
    fs::write(bed.path("d/more"), "").unwrap();
    let old_file: [Change; 3] = [
        write("d/file", vec![1], vec![Extent { offset: 0, length: 1 }], 1),
        Change::SetAttributes { file: id("d/file"), mode: Some(0o600), uid: None, gid: None, modified: None },
        Change::Link { file: id("d/file"), dir: id(""), name: name("second") },
    ];
    for change in old_file {
        let refused = apply_as(&bed, Caller::DAEMON, change, &file.version).await;
        assert!(matches!(refused, Err(RemoteError::VersionChanged { .. })), "{refused:?}");
    }
    for old in [&dir.version, &listing] {
        let changes = [
            create("d", "new", FileKind::File, 0o600),
            Change::Symlink { dir: id("d"), name: name("new"), target: b"x".to_vec() },
            Change::Remove { dir: id("d"), name: name("more") },
            rename("d", "more", "", "new"),
        ];
        for change in changes {
            let refused = apply_as(&bed, Caller::DAEMON, change, old).await;
            assert!(matches!(refused, Err(RemoteError::VersionChanged { .. })), "{refused:?}");
        }
    }
    assert_eq!(fs::read(bed.path("d/file")).unwrap(), b"changed meanwhile");
    let now = bed.list("d").await.unwrap().1;
    let remove = Change::Remove { dir: id("d"), name: name("more") };
    apply_as(&bed, Caller::DAEMON, remove, &now).await.unwrap();
}

#[tokio::test]
async fn our_own_changes_break_leases_as_well() {
    let mut bed = Bed::new(&["d/file", "d/sub/leaf"]).await;
    for path in ["d/file", "d/new", "d/sub", "d/sub/leaf"] {
        bed.lease(path).await;
    }
    bed.lease_listing("d").await;
    apply(&bed, write("d/file", vec![1], vec![Extent { offset: 0, length: 1 }], 1)).await.unwrap();
    bed.broken(&["d/file", "d"]).await;
    bed.lease_listing("d").await;
    apply(&bed, create("d", "new", FileKind::File, 0o644)).await.unwrap();
    bed.broken(&["d/new", "d"]).await;
    apply(&bed, rename("d", "sub", "d", "moved")).await.unwrap();
    bed.broken(&["d/sub", "d/sub/leaf"]).await;
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
    let change = write("file", vec![1; 1 << 20], vec![Extent { offset: 0, length: 1 << 20 }], 1 << 20);
    let mutation = Mutation { change, made: SystemTime::now() };
    let refused = dir.apply(&call(), &mutation, &Version::None).await;
    drop(dir);
    rustix::mount::unmount(folder.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
    assert!(matches!(refused, Err(RemoteError::NoSpace { .. })), "{refused:?}");
}
