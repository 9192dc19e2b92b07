//! A mount as a POSIX file system: two suites that others wrote, and what they cannot try.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::support::{Offered, Outcome, Pair, Program, fails_with, is_root, without};

/// Goal: what POSIX says of names, modes, owners, times and error numbers holds, for root and for an ordinary user. Of the
/// skipped ones the reason is known.
#[test]
fn pjdfstest_finds_nothing() {
    if !is_root() {
        return without("pjdfstest becomes other users, which root alone may");
    }
    let Some(suite) = suite("pjdfstest") else { return };
    let Some(pair) = Pair::new() else { return };
    let other = tempfile::Builder::new().prefix("wt-other-").tempdir_in("/dev/shm").expect("another file system");
    let config = pair.mount.beside("pjdfstest.toml");
    std::fs::write(&config, PJDFSTEST).expect("written");
    let outcome =
        Program::new(&suite).arg("-c").arg(&config).arg("-s").arg(other.path()).arg("-p").arg(pair.mount.dir()).run();
    let skipped = outcome.out.lines().filter_map(|line| line.trim_end().strip_suffix(" skipped")).map(str::trim);
    let skipped: BTreeSet<&str> = skipped.collect();
    passed(&outcome);
    assert_eq!(skipped, SKIPPED.iter().map(|(name, _)| *name).collect());
    for (name, reason) in SKIPPED {
        println!("skipped: {name}: {reason}");
    }

    let copy = pair.mount.beside("pjdfstest");
    std::fs::copy(&suite, &copy).expect("copied");
    std::fs::create_dir(pair.at("nobody")).expect("made");
    std::os::unix::fs::chown(pair.at("nobody"), Some(NOBODY), Some(NOBODY)).expect("given");
    let of_user = Program::new("setpriv").args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")]);
    let of_user = of_user.arg("--clear-groups").arg(&copy).arg("-c").arg(&config).arg("-p").arg(pair.at("nobody"));
    passed(&of_user.dir(Path::new("/")).run());
    pair.agree();
}

#[track_caller]
fn passed(outcome: &Outcome) {
    let summary = outcome.out.lines().find(|line| line.starts_with("Summary:")).unwrap_or_default();
    println!("pjdfstest: {summary}");
    let failed: Vec<_> =
        outcome.out.split_inclusive('\n').skip_while(|line| !line.contains("FAILED")).take(30).collect();
    assert!(outcome.code == Some(0) && summary.contains(" 0 failed,"), "{summary}\n{}{}", failed.concat(), outcome.err);
}

/// Goal: after any row of writes, cuts, maps and holes the bytes are those that a file of a local disk would have.
#[test]
fn fsx_finds_nothing_over_the_device() {
    fsx("classic", &SEEDS[..3]);
}

/// The same over the other transport, with other rows: only what carries them is another.
#[test]
fn fsx_finds_nothing_over_io_uring() {
    let Some(_offered) = Offered::now() else { return };
    fsx("io_uring", &SEEDS[3..]);
}

fn fsx(transport: &str, seeds: &[&str]) {
    let Some(suite) = suite("fsx") else { return };
    let Some(pair) = Pair::with(&[&format!("transport={transport}")]) else { return };
    assert_eq!(pair.mount.status()["transport"], transport);
    let config = pair.mount.beside("fsx.toml");
    std::fs::write(&config, FSX).expect("written");
    for &seed in seeds {
        let file = pair.at(format!("seed-{seed}"));
        let outcome = Program::new(&suite).args(["-q", "-N", "10000", "-S", seed]).arg("-f").arg(&config);
        let outcome = outcome.arg("-P").arg(pair.mount.beside("")).arg(&file).run();
        let last: Vec<&str> = outcome.err.lines().rev().take(20).collect();
        assert_eq!(outcome.code, Some(0), "seed {seed}, the last first: {last:#?}");
        let name = file.file_name().expect("a name");
        assert!(std::fs::read(pair.there(name)).expect("read") == std::fs::read(&file).expect("read"), "seed {seed}");
    }
    pair.agree();
}

/// Goal: in a mount that is told to be read-only every change ends with that, and none is made: what pjdfstest could try by
/// remounting alone.
#[test]
fn a_mount_that_is_read_only_takes_no_change() {
    let source = tempfile::Builder::new().prefix("wt-source-").tempdir().expect("a temporary folder");
    std::fs::write(source.path().join("file"), "as it was").expect("written");
    symlink("file", source.path().join("link")).expect("made");
    std::fs::create_dir(source.path().join("folder")).expect("made");
    let Some(pair) = Pair::over(source.path(), &["ro"]) else { return };
    let (file, new, folder) = (pair.at("file"), pair.at("new"), pair.at("folder"));
    let ro = |what: &str, result: std::io::Result<()>| {
        println!("{what}");
        fails_with(result, Errno::ROFS);
    };
    ro("open(O_CREAT)", File::create_new(&new).map(drop));
    ro("open(O_WRONLY)", OpenOptions::new().write(true).open(&file).map(drop));
    ro("open(O_RDWR)", OpenOptions::new().read(true).write(true).open(&file).map(drop));
    ro("open(O_TRUNC)", File::create(&file).map(drop));
    ro(
        "open(O_TMPFILE)",
        rustix::fs::open(&folder, OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR).map(drop).map_err(Into::into),
    );
    ro("unlink", std::fs::remove_file(&file));
    ro("rmdir", std::fs::remove_dir(&folder));
    ro("mkdir", std::fs::create_dir(&new));
    ro("mkfifo", rustix::fs::mknodat(CWD, &new, FileType::Fifo, Mode::RUSR, 0).map_err(Into::into));
    ro("rename", std::fs::rename(&file, &new));
    ro("link", std::fs::hard_link(&file, &new));
    ro("symlink", symlink("file", &new));
    ro("chmod", std::fs::set_permissions(&file, Permissions::from_mode(0o600)));
    ro("chown", std::os::unix::fs::chown(&file, Some(1), None));
    ro("lchown", std::os::unix::fs::lchown(pair.at("link"), Some(1), None));
    ro("truncate", Program::new("truncate").args(["-s", "0"]).arg(&file).run().read_only());
    ro("utimensat", Program::new("touch").arg("-c").arg(&file).run().read_only());
    let xattr = rustix::fs::setxattr(&file, "user.a", b"1", rustix::fs::XattrFlags::empty());
    ro("setxattr", xattr.map_err(Into::into));
    assert_eq!(std::fs::read_to_string(&file).expect("read"), "as it was");
    assert!(!source.path().join("new").exists());
    pair.agree();
}

/// Goal: a program that is run is not cut, whatever its file is opened for, also by the next daemon; it can be once the program
/// has ended.
#[test]
fn a_program_that_is_run_is_not_cut() {
    let Some(pair) = Pair::new() else { return };
    let program = pair.at("program");
    let sleep = std::fs::read("/bin/sleep").expect("a program of every system");
    std::fs::write(&program, &sleep).expect("written");
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("set");
    let mut running = std::process::Command::new(&program).arg("600").spawn().expect("run");
    let cut = || rustix::fs::open(&program, OFlags::RDONLY | OFlags::TRUNC, Mode::empty()).map(drop);
    let tried = || {
        fails_with(OpenOptions::new().write(true).open(&program), Errno::TXTBSY);
        fails_with(OpenOptions::new().read(true).write(true).open(&program), Errno::TXTBSY);
        fails_with(File::create(&program), Errno::TXTBSY);
        fails_with(cut().map_err(Into::into), Errno::TXTBSY);
        assert!(std::fs::read(&program).expect("read") == sleep && std::fs::read(pair.there("program")).is_ok());
    };
    tried();
    pair.mount.kill_daemon();
    tried();
    assert_eq!(running.try_wait().expect("looked"), None, "it runs on");
    running.kill().expect("ended");
    running.wait().expect("ended");
    crate::interrupts::wait_until("the kernel closes the program", || cut().is_ok());
    assert_eq!(std::fs::metadata(&program).expect("its length").len(), 0);
    pair.agree();
}

impl Outcome {
    /// The error that a program told.
    fn read_only(self) -> std::io::Result<()> {
        match self.code {
            Some(0) => Ok(()),
            _ if self.err.contains("Read-only file system") => Err(Errno::ROFS.into()),
            _ => Err(std::io::Error::other(format!("{self:?}"))),
        }
    }
}

/// A suite that `scripts/install-posix-tests.sh` has built. `None`, with a line that says so, where it has not.
pub fn suite(name: &str) -> Option<PathBuf> {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/posix/bin").join(name);
    if !program.is_file() {
        without(&format!("{name} is missing; scripts/install-posix-tests.sh builds it"));
        return None;
    }
    Some(program)
}

const NOBODY: u32 = 65534;

/// The users are those of every Debian. Remounting is off, for it would be of whatever is at the path.
pub const PJDFSTEST: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.02
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"], ["bin", "bin"]]
"#;

const REMOUNTS: &str = "it would remount; a_mount_that_is_read_only_takes_no_change tries the same";

/// What pjdfstest does not try here, and why.
pub const SKIPPED: &[(&str, &str)] = &[
    ("chmod::erofs_named", REMOUNTS),
    ("chown::erofs_named", REMOUNTS),
    ("chown::lchown::erofs_named", REMOUNTS),
    ("link::erofs_named", REMOUNTS),
    ("link::link_count_max", "it asks pathconf(3) for the most links, and no FUSE file system can answer that"),
    ("mkdir::erofs_new_file", REMOUNTS),
    ("mkfifo::erofs_new_file", REMOUNTS),
    ("open::erofs_named", REMOUNTS),
    ("open::erofs_new_file", REMOUNTS),
    ("rename::erofs_named", REMOUNTS),
    ("rmdir::erofs_named", REMOUNTS),
    ("symlink::erofs_new_file", REMOUNTS),
    ("truncate::erofs_named", REMOUNTS),
    ("unlink::erofs_named", REMOUNTS),
];

/// With some others fsx allocates no bytes at the end of the file, which POSIX has fail, and gives up.
const SEEDS: [&str; 6] = ["1", "2", "3", "4", "5", "6"];

pub const FSX: &str = "
[weights]
close_open = 2
read = 10
write = 10
mapread = 10
mapwrite = 10
invalidate = 1
truncate = 5
fsync = 1
fdatasync = 1
posix_fallocate = 3
punch_hole = 3
sendfile = 1
posix_fadvise = 1
copy_file_range = 3
";
