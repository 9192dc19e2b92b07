//! Nothing leads out of the directory, whatever is in it.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use weft_dir::{Directory, DirectoryError, DirectoryOptions, MountNote};
use weft_remote::{Change, FileId, FileKind, MemoryNotes, Mutation, Remote, RemoteError, SourceState, Span, Version};

use crate::support::{ALL, Bed, call, found_again, is_not_found, name};

/// A directory beside the top with something in it that must never be seen.
fn outside() -> tempfile::TempDir {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "secret").unwrap();
    outside
}

#[tokio::test]
async fn a_link_is_shown_as_a_link_and_never_followed() {
    let outside = outside();
    let bed = Bed::new(&["d/file"]).await;
    symlink(outside.path(), bed.path("out")).unwrap();
    symlink(outside.path().join("secret"), bed.path("d/secret")).unwrap();
    symlink("d", bed.path("inside")).unwrap();
    for path in ["out", "d/secret", "inside"] {
        let entry = bed.entry(path).await;
        assert_eq!(entry.attributes.kind, FileKind::Symlink);
        let told = bed.dir.read_link(&call(), &entry.id).await.unwrap().value;
        let real = fs::read_link(bed.path(path)).unwrap();
        assert_eq!(told, real.as_os_str().as_encoded_bytes());
        let fetched = bed.dir.fetch(&call(), &entry.id, &Version::None, Span::WHOLE).await;
        assert!(matches!(fetched, Err(RemoteError::Unsupported { .. })), "{fetched:?}");
    }
    // As a directory it is none; what would be behind it does not exist.
    for link in ["out", "inside"] {
        assert!(matches!(bed.list(link).await, Err(RemoteError::NotADirectory { .. })));
        let within = bed.dir.lookup(&call(), &bed.id(link).await, &name("secret")).await;
        assert!(matches!(within, Err(RemoteError::NotADirectory { .. })), "{within:?}");
    }
    let dir = bed.id("out").await;
    let create = Change::Create { dir, name: name("x"), kind: FileKind::File, mode: 0o644.into(), device: 0 };
    let mutation = Mutation { change: create, made: std::time::SystemTime::now() };
    let refused = bed.dir.apply(&call(), &mutation, &Version::None).await;
    assert!(matches!(refused, Err(RemoteError::NotADirectory { .. })), "{refused:?}");
    assert!(!outside.path().join("x").exists());
}

#[tokio::test]
async fn identities_that_were_never_given_out_do_not_exist() {
    let bed = Bed::new(&["d/file"]).await;
    bed.id("d/file").await;
    for odd in ["..", "../..", "d/file", "/etc/passwd", "/", "\0", "\u{1}", "\u{1}1234567812345678"] {
        let odd = FileId::new(odd);
        let is_none = |error: RemoteError| match error {
            RemoteError::NotFound { .. } => true,
            RemoteError::Unplaced { .. } => odd.as_bytes().len() == 17,
            _ => false,
        };
        assert!(is_none(bed.attributes_of(&odd).await.unwrap_err()), "{odd:?}");
        assert!(is_none(bed.read_of(&odd).await.unwrap_err()), "{odd:?}");
        assert!(is_none(bed.list_of(&odd).await.unwrap_err()), "{odd:?}");
        assert!(is_none(bed.dir.read_link(&call(), &odd).await.unwrap_err()), "{odd:?}");
    }
}

#[tokio::test]
async fn a_directory_replaced_by_a_link_while_it_is_used_leads_nowhere() {
    let outside = outside();
    fs::write(outside.path().join("file"), "secret").unwrap();
    let mut bed = Bed::new(&["d/deep/file"]).await;
    for path in ["d", "d/deep", "d/deep/file"] {
        bed.lease(path).await;
    }
    let (deep, file) = (bed.id("d/deep").await, bed.id("d/deep/file").await);
    fs::rename(bed.path("d/deep"), bed.path("d/kept")).unwrap();
    symlink(outside.path(), bed.path("d/deep")).unwrap();
    bed.broken(&["d/deep", "d/deep/file"]).await;
    // The directory is not where it was, and is followed to where it is.
    assert_eq!(bed.list_of(&deep).await.unwrap().0.entries.len(), 1);
    assert_eq!(bed.read_of(&file).await.unwrap(), "d/deep/file");
    assert!(matches!(bed.list("d/deep").await, Err(RemoteError::NotADirectory { .. })));
    assert_eq!(bed.entry("d/deep").await.attributes.kind, FileKind::Symlink);
    assert_eq!(bed.id("d/kept").await, deep);
    // Out of the tree nothing is followed.
    fs::rename(bed.path("d/kept"), outside.path().join("kept")).unwrap();
    assert!(is_not_found(&bed.list_of(&deep).await));
    let read = bed.read_of(&file).await;
    assert!(matches!(read, Err(RemoteError::Unplaced { .. })), "{read:?}");
    fs::rename(outside.path().join("kept"), bed.path("back")).unwrap();
    assert_eq!(bed.read_of(&file).await.unwrap(), "d/deep/file", "it is found again with its directory");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_changes_places_with_a_link_all_the_time_never_lets_anybody_out() {
    let outside = outside();
    fs::write(outside.path().join("file"), "secret").unwrap();
    let bed = Bed::new(&["d/file"]).await;
    symlink(outside.path(), bed.path("link")).unwrap();
    let file = bed.id("d/file").await;
    let (d, link) = (bed.path("d"), bed.path("link"));
    let running = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let keep = running.clone();
    let swapper = std::thread::spawn(move || {
        while keep.load(std::sync::atomic::Ordering::Relaxed) {
            let exchange = rustix::fs::RenameFlags::EXCHANGE;
            rustix::fs::renameat_with(CWD, &d, CWD, &link, exchange).unwrap();
        }
    });
    let (mut inside, mut nowhere) = (0, 0);
    while inside < 100 || nowhere < 100 {
        match bed.read_of(&file).await {
            Ok(bytes) => {
                assert_eq!(bytes, "d/file");
                inside += 1;
            }
            Err(RemoteError::NotFound { .. } | RemoteError::Unplaced { .. }) => nowhere += 1,
            Err(error) => panic!("{error}"),
        }
    }
    running.store(false, std::sync::atomic::Ordering::Relaxed);
    swapper.join().unwrap();
}

#[tokio::test]
async fn special_files_are_names_that_are_never_opened() {
    let bed = Bed::new(&["file"]).await;
    mknodat(CWD, bed.path("fifo"), FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
    let _socket = UnixListener::bind(bed.path("socket")).unwrap();
    let mut others = vec![("fifo", FileKind::Fifo, None), ("socket", FileKind::Socket, None)];
    match mknodat(CWD, bed.path("null"), FileType::CharacterDevice, Mode::from_raw_mode(0o666), 0x103) {
        Ok(()) => others.push(("null", FileKind::CharDevice, Some(0x103))),
        Err(error) => println!("skipped in part: no device can be made here: {error}"),
    }
    assert_eq!(bed.names("").await.len(), 1 + others.len());
    for (other, kind, device) in others {
        let told = bed.entry(other).await.attributes;
        assert_eq!((told.kind, told.device, told.size.known()), (kind, device, None), "{other}");
        // Whoever opened the fifo would hang.
        let read = bed.read(other).await;
        assert!(matches!(read, Err(RemoteError::Unsupported { .. })), "{other}: {read:?}");
        bed.dir.sync(&call(), &bed.id(other).await).await.unwrap();
        assert!(bed.dir.extended_names(&call(), &bed.id(other).await).await.unwrap().is_empty());
    }
}

/// A file system in memory, mounted for as long as this lives.
struct Mounted(std::path::PathBuf);

impl Mounted {
    /// Mounts one; nothing where nothing can be mounted, which is said.
    fn at(point: &std::path::Path) -> Option<Mounted> {
        let flags = rustix::mount::MountFlags::NODEV | rustix::mount::MountFlags::NOSUID;
        match rustix::mount::mount("none", point, "tmpfs", flags, None) {
            Ok(()) => Some(Mounted(point.to_owned())),
            Err(error) => {
                println!("skipped: nothing can be mounted here: {error}");
                None
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH).unwrap();
    }
}

/// Goal: a file system that is taken away from under the top and comes back, as one over a network that is connected anew, is
/// found again, and what is below its mount point is never taken for it. Method: file systems in memory; the top with watches
/// and without.
#[tokio::test]
async fn a_top_that_is_unmounted_is_found_again_when_it_is_mounted() {
    for watches_max in [DirectoryOptions::new("/").watches_max, 0] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "covered").unwrap();
        let Some(mounted) = Mounted::at(folder.path()) else { return };
        fs::write(folder.path().join("file"), "first").unwrap();
        let mut bed = Bed::at(folder, |options| options.watches_max = watches_max).await;
        assert_eq!(bed.read("file").await.unwrap(), "first");
        let unmounted = async |bed: &mut Bed, mounted: Mounted| {
            drop(mounted);
            bed.broken(&[ALL]).await;
            for _ in 0..3 {
                let told = bed.dir.sources();
                assert!(matches!(&told[..], [source] if source.state == SourceState::Disconnected), "{told:?}");
                match bed.lookup("file").await {
                    Err(RemoteError::Unreachable { detail }) => assert!(detail.contains("mount it again"), "{detail}"),
                    other => panic!("{other:?}"),
                }
            }
        };
        unmounted(&mut bed, mounted).await;
        let mounted = Mounted::at(bed.folder.path()).expect("as before");
        fs::write(bed.path("file"), "second").unwrap();
        bed.found_again("file").await;
        assert_eq!(bed.read("file").await.unwrap(), "second");
        assert_eq!(bed.dir.sources(), []);
        bed.broken(&[ALL]).await;
        unmounted(&mut bed, mounted).await;
    }
}

/// Goal: a directory that another daemon has shown, and that is not there now, is waited for; nothing is found or made in what
/// stands for it.
#[tokio::test]
async fn a_directory_that_was_shown_before_is_waited_for() {
    let above = tempfile::tempdir().unwrap();
    let path = above.path().join("away");
    let notes = Arc::new(MemoryNotes::default());
    let options = || {
        let mount_note = Some(MountNote::new(notes.clone(), "away"));
        DirectoryOptions { mount_note, ..DirectoryOptions::new(&path) }
    };
    assert!(matches!(Directory::open(options()), Err(DirectoryError::Open { .. })));
    let dir = Directory::open_or_await(options()).unwrap();
    is_away(&dir, &path).await;
    fs::create_dir(&path).unwrap();
    fs::write(path.join("file"), "there").unwrap();
    found_again(&dir, "file").await;

    // What is mounted there is found as well, and where something was mounted, what is below is not taken for it.
    fs::remove_dir_all(&path).unwrap();
    let dir = Directory::open_or_await(options()).unwrap();
    is_away(&dir, &path).await;
    fs::create_dir(&path).unwrap();
    let Some(mounted) = Mounted::at(&path) else { return };
    fs::write(path.join("file"), "mounted").unwrap();
    found_again(&dir, "file").await;
    drop(mounted);
    let dir = Directory::open_or_await(options()).unwrap();
    for _ in 0..3 {
        is_away(&dir, &path).await;
    }
    let Some(_mounted) = Mounted::at(&path) else { return };
    fs::write(path.join("file"), "mounted").unwrap();
    found_again(&dir, "file").await;
}

async fn is_away(dir: &Directory, path: &std::path::Path) {
    match dir.lookup(&call(), &dir.root(), &name("file")).await {
        Err(RemoteError::Unreachable { detail }) => assert!(detail.contains(path.to_str().unwrap()), "{detail}"),
        other => panic!("{other:?}"),
    }
    let (dir_id, kind) = (dir.root(), FileKind::File);
    let create = Change::Create { dir: dir_id, name: name("new"), kind, mode: 0o644.into(), device: 0 };
    let mutation = Mutation { change: create, made: std::time::SystemTime::now() };
    let made = dir.apply(&call(), &mutation, &Version::None).await;
    assert!(matches!(made, Err(RemoteError::Unreachable { .. })), "{made:?}");
}

#[tokio::test]
async fn a_mount_below_the_top_is_not_entered() {
    let mut bed = Bed::new(&["d/m/below", "d/file"]).await;
    let point = bed.path("d/m");
    let (covered, below) = (bed.id("d/m").await, bed.id("d/m/below").await);
    for path in ["d", "d/m"] {
        bed.lease_listing(path).await;
    }
    let Some(mounted) = Mounted::at(&point) else { return };
    // What was promised of what is covered now ends.
    bed.broken(&[ALL]).await;
    fs::write(point.join("above"), "in the mount").unwrap();
    assert_eq!(bed.names("d").await, ["file"]);
    assert!(bed.is_absent("d/m").await);
    bed.lease("d/m").await;
    bed.lease_listing("d").await;
    for path in ["d/m", "d/m/above", "d/m/below"] {
        assert!(is_not_found(&bed.attributes(path).await), "{path}");
        assert!(is_not_found(&bed.read(path).await), "{path}");
    }
    assert!(is_not_found(&bed.list_of(&covered).await));
    let read = bed.read_of(&below).await;
    assert!(matches!(read, Err(RemoteError::Unplaced { .. })), "{read:?}");
    let remove = Change::Remove { dir: bed.id("d").await, name: name("m") };
    let mutation = Mutation { change: remove, made: std::time::SystemTime::now() };
    assert!(is_not_found(&bed.dir.apply(&call(), &mutation, &Version::None).await));
    drop(mounted);
    bed.broken(&[ALL]).await;
    assert_eq!(bed.names("d").await, ["file", "m"]);
    assert_eq!(bed.read("d/m/below").await.unwrap(), "d/m/below");
}

/// Runs itself again as a user without rights, since root is denied nothing.
#[tokio::test]
async fn what_the_system_denies_is_denied_with_a_sentence() {
    if passes_as_nobody("confined::what_the_system_denies_is_denied_with_a_sentence") {
        return;
    }
    let bed = Bed::new(&["shut/file", "open/secret", "open/file", "listed/file"]).await;
    let mode = |path: &str, mode| {
        fs::set_permissions(bed.path(path), std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    mode("shut", 0o000);
    mode("open/secret", 0o000);
    mode("listed", 0o444);
    let denied = |error: &RemoteError| {
        assert!(matches!(error, RemoteError::Denied { detail } if detail.contains("needs the right")), "{error}");
    };
    denied(&bed.list("shut").await.unwrap_err());
    denied(&bed.lookup("shut/file").await.unwrap_err());
    denied(&bed.read("open/secret").await.unwrap_err());
    assert_eq!(bed.read("open/file").await.unwrap(), "open/file");
    // It may be read but not entered: names and kinds are all there is to tell.
    let (page, _, lease) = bed.list("listed").await.unwrap();
    assert_eq!(page.entries.len(), 1);
    assert_eq!(page.entries[0].attributes, weft_remote::Attributes::of_kind(FileKind::File));
    println!("the lease of a directory that may not be entered: {lease:?}");
    for path in ["shut", "listed"] {
        mode(path, 0o755);
    }
}

/// Has nobody run a test of this program, if this is root. False for whoever is not root: the test itself is to be done.
pub fn passes_as_nobody(test: &str) -> bool {
    const NOBODY: u32 = 65_534;
    if !rustix::process::geteuid().is_root() {
        return false;
    }
    // A copy, for the folder of the build may be closed to others.
    let folder = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(folder.path(), open).unwrap();
    let program = folder.path().join("it");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let output = Command::new(&program).args(["--exact", test]).uid(NOBODY).gid(NOBODY).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    true
}

#[test]
fn a_top_that_cannot_be_used_is_named_with_what_to_do() {
    let open = |path: &std::path::Path| Directory::open(DirectoryOptions::new(path)).unwrap_err();
    assert!(matches!(open("relative".as_ref()), DirectoryError::Relative { .. }));
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    for name in ["absent", "file"] {
        let error = open(&folder.path().join(name));
        assert!(matches!(error, DirectoryError::Open { .. }));
        assert!(error.to_string().contains(name), "{error}");
    }
}
