//! Nothing leads out of the directory, and nothing but files, directories and links is shown.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use weft_dir::{Directory, DirectoryError, DirectoryOptions};
use weft_remote::{Change, FileKind, Mutation, Name, Remote, RemoteError, Span, Version};

use crate::support::{Bed, call, id, is_not_found};

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
        let within = bed.dir.lookup(&call(), &id(link), &Name::new("secret").unwrap()).await;
        assert!(matches!(within, Err(RemoteError::NotADirectory { .. })), "{within:?}");
    }
    assert!(is_not_found(&bed.attributes("out/secret").await));
    assert!(is_not_found(&bed.read("inside/file").await));
    let create = Change::Create { dir: id("out"), name: Name::new("x").unwrap(), kind: FileKind::File, mode: 0o644 };
    let mutation = Mutation { change: create, made: std::time::SystemTime::now() };
    assert!(bed.dir.apply(&call(), &mutation, &Version::None).await.is_err());
    assert!(!outside.path().join("x").exists());
}

#[tokio::test]
async fn identities_that_climb_do_not_exist() {
    let bed = Bed::new(&["d/file"]).await;
    for climbing in ["..", "../..", "d/../d/file", "/etc/passwd", "/", "d//file", "./d", "d/", "d/.", "\0"] {
        assert!(is_not_found(&bed.attributes(climbing).await), "{climbing}");
        assert!(is_not_found(&bed.read(climbing).await), "{climbing}");
        assert!(is_not_found(&bed.list(climbing).await), "{climbing}");
        assert!(is_not_found(&bed.dir.read_link(&call(), &id(climbing)).await), "{climbing}");
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
    fs::rename(bed.path("d/deep"), bed.path("d/kept")).unwrap();
    symlink(outside.path(), bed.path("d/deep")).unwrap();
    bed.broken(&["d/deep", "d/deep/file"]).await;
    assert!(is_not_found(&bed.attributes("d/deep/file").await));
    assert!(is_not_found(&bed.read("d/deep/file").await));
    assert!(matches!(bed.list("d/deep").await, Err(RemoteError::NotADirectory { .. })));
    assert_eq!(bed.entry("d/deep").await.attributes.kind, FileKind::Symlink);
    assert_eq!(bed.read("d/kept/file").await.unwrap(), "d/deep/file");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_changes_places_with_a_link_all_the_time_never_lets_anybody_out() {
    let outside = outside();
    fs::write(outside.path().join("file"), "secret").unwrap();
    let bed = Bed::new(&["d/file"]).await;
    symlink(outside.path(), bed.path("link")).unwrap();
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
        match bed.read("d/file").await {
            Ok(bytes) => {
                assert_eq!(bytes, "d/file");
                inside += 1;
            }
            Err(RemoteError::NotFound { .. }) => nowhere += 1,
            Err(error) => panic!("{error}"),
        }
    }
    running.store(false, std::sync::atomic::Ordering::Relaxed);
    swapper.join().unwrap();
}

#[tokio::test]
async fn other_kinds_of_files_are_absent() {
    let bed = Bed::new(&["file"]).await;
    mknodat(CWD, bed.path("fifo"), FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
    let _socket = UnixListener::bind(bed.path("socket")).unwrap();
    let mut others = vec!["fifo", "socket"];
    match mknodat(CWD, bed.path("null"), FileType::CharacterDevice, Mode::from_raw_mode(0o666), 0x103) {
        Ok(()) => others.push("null"),
        Err(error) => println!("skipped in part: no device can be made here: {error}"),
    }
    assert_eq!(bed.names("").await, ["file"]);
    for other in others {
        assert!(bed.is_absent(other).await, "{other}");
        assert!(is_not_found(&bed.attributes(other).await), "{other}");
        assert!(is_not_found(&bed.read(other).await), "{other}");
    }
}

/// A file system in memory, mounted for as long as this lives.
struct Mounted(std::path::PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH).unwrap();
    }
}

#[tokio::test]
async fn a_mount_below_the_top_is_not_entered() {
    let bed = Bed::new(&["d/m/below", "d/file"]).await;
    let point = bed.path("d/m");
    let flags = rustix::mount::MountFlags::NODEV | rustix::mount::MountFlags::NOSUID;
    if let Err(error) = rustix::mount::mount("none", &point, "tmpfs", flags, None) {
        println!("skipped: nothing can be mounted here: {error}");
        return;
    }
    let mounted = Mounted(point.clone());
    fs::write(point.join("above"), "in the mount").unwrap();
    assert_eq!(bed.names("d").await, ["file"]);
    assert!(bed.is_absent("d/m").await);
    for path in ["d/m", "d/m/above", "d/m/below"] {
        assert!(is_not_found(&bed.attributes(path).await), "{path}");
        assert!(is_not_found(&bed.read(path).await), "{path}");
    }
    assert!(is_not_found(&bed.list("d/m").await));
    let remove = Change::Remove { dir: id("d"), name: Name::new("m").unwrap() };
    let mutation = Mutation { change: remove, made: std::time::SystemTime::now() };
    assert!(is_not_found(&bed.dir.apply(&call(), &mutation, &Version::None).await));
    drop(mounted);
    assert_eq!(bed.names("d").await, ["file", "m"]);
    assert_eq!(bed.read("d/m/below").await.unwrap(), "d/m/below");
}

/// Runs itself again as a user without rights, since root is denied nothing.
#[tokio::test]
async fn what_the_system_denies_is_denied_with_a_sentence() {
    const NOBODY: u32 = 65_534;
    const NAME: &str = "confined::what_the_system_denies_is_denied_with_a_sentence";
    if rustix::process::geteuid().is_root() {
        // A copy, for the folder of the build may be closed to others.
        let folder = tempfile::tempdir().unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(folder.path(), open).unwrap();
        let program = folder.path().join("it");
        fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        let output = Command::new(&program).args(["--exact", NAME]).uid(NOBODY).gid(NOBODY).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
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
