//! The descriptor that everything is reached from.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;
use weft_remote::RemoteError;

use crate::error::{DirectoryError, failed};
use crate::facts::{Facts, facts, is_mount_root};
use crate::identity::Identity;

/// The top directory, held open, and what is asked of it before each step down.
#[derive(Debug)]
pub(crate) struct Top {
    path: PathBuf,
    fd: OwnedFd,
    /// The mount that the top is in; everything shown is in the same.
    pub mount: u64,
    /// Whether that is mounted on the top itself, and not above it.
    pub is_mounted: bool,
    /// What it was when it was opened.
    pub facts: Facts,
    /// Why changes below are not all told by inotify, if so.
    pub blind: Option<&'static str>,
    /// Whether its files are on a disk of this machine, or in its memory, so that no other machine is waited for.
    pub is_near: bool,
    /// Whether a change that comes after somebody has looked at a file always has another time than the last.
    pub fine_times: bool,
    /// Whether a file is born once. overlayfs tells the birth of the copy that is made of a file when it is written first, and
    /// keeps the inode's number.
    keeps_birth: bool,
}

impl Top {
    /// Opens the top.
    ///
    /// # Errors
    /// All of [`DirectoryError`] but `Thread`.
    pub fn open(path: &Path) -> std::result::Result<Top, DirectoryError> {
        if !path.is_absolute() {
            return Err(DirectoryError::Relative { path: path.to_owned() });
        }
        let open = |source: Errno| DirectoryError::Open { path: path.to_owned(), source: source.into() };
        // Links on the way to the top are the user's own choice; below it none is followed.
        let fd = openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).map_err(open)?;
        let (facts, mount) = facts(fd.as_fd()).map_err(open)?;
        let magic = (i128::from(rustix::fs::fstatfs(&fd).map_err(open)?.f_type) & 0xffff_ffff) as u32;
        let (blind, is_near, fine_times) = (blind(magic), NEAR.contains(&magic), has_fine_times(mount));
        let keeps_birth = magic != OVERLAYFS;
        let facts = if keeps_birth { facts } else { facts.without_birth() };
        let is_mounted = is_mount_root(fd.as_fd()).map_err(open)?;
        let top = Top { path: path.to_owned(), fd, mount, is_mounted, facts, blind, is_near, fine_times, keeps_birth };
        match top.step(top.fd.as_fd(), b".", OFlags::PATH) {
            Ok(_) => Ok(top),
            Err(errno) => Err(DirectoryError::Unsafe { path: path.to_owned(), source: errno.into() }),
        }
    }

    /// What stands for a top that is away: a directory that was removed, so that nothing is in it, or can be made.
    ///
    /// # Errors
    /// As [`Top::open`].
    pub fn absent(path: &Path, is_mounted: bool) -> std::result::Result<Top, DirectoryError> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let removed = std::env::temp_dir().join(format!("weft-{}-{}", std::process::id(), now.as_nanos()));
        let failed = |source| DirectoryError::Open { path: removed.clone(), source };
        std::fs::create_dir(&removed).map_err(failed)?;
        let top = Top::open(&removed);
        std::fs::remove_dir(&removed).map_err(failed)?;
        Ok(Top { path: path.to_owned(), is_mounted, is_near: false, ..top? })
    }

    /// The real path of what is at `path`, for people.
    pub fn shown(&self, path: &[u8]) -> String {
        match path {
            b"" => self.path.display().to_string(),
            _ => self.path.join(OsStr::from_bytes(path)).display().to_string(),
        }
    }

    /// The top itself.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Opens what is at `path`: beneath the top, through no link and into no mount. A link at its end is opened itself
    /// (with [`OFlags::PATH`]).
    pub fn reach(&self, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let mut rest = if path.is_empty() { &b"."[..] } else { path };
        let mut at: Option<OwnedFd> = None;
        // The kernel takes paths of up to 4095 bytes; these may be longer.
        while rest.len() > STEP_BYTES_MAX {
            let slash = rest[..=STEP_BYTES_MAX].iter().rposition(|byte| *byte == b'/').ok_or(Errno::NAMETOOLONG)?;
            let from = at.as_ref().map_or(self.fd.as_fd(), |fd| fd.as_fd());
            at = Some(self.step(from, &rest[..slash], OFlags::PATH | OFlags::DIRECTORY)?);
            rest = &rest[slash + 1..];
        }
        self.step(at.as_ref().map_or(self.fd.as_fd(), |fd| fd.as_fd()), rest, flags)
    }

    /// Opens `path`, relative to a directory that was reached.
    pub fn step(&self, from: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        for _ in 0..RACES_MAX {
            match openat2(from, path, flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                outcome => return outcome,
            }
        }
        Err(Errno::AGAIN)
    }

    /// Where the top is now, by the kernel.
    pub fn real_path(&self) -> Option<PathBuf> {
        std::fs::read_link(held(&self.fd)).ok()
    }

    /// Where below the top what is open is now; `None` when it is not there. What has gone has a path that leads to nothing, or
    /// to another.
    pub fn path_of(&self, fd: &OwnedFd) -> Option<Vec<u8>> {
        let (top, path) = (self.real_path()?, std::fs::read_link(held(fd)).ok()?);
        Some(path.strip_prefix(&top).ok()?.as_os_str().as_bytes().to_vec()).filter(|below| !below.is_empty())
    }

    /// Which file this is.
    pub fn identity(&self, facts: &Facts) -> Identity {
        if self.keeps_birth { facts.identity(&self.facts) } else { facts.without_birth().identity(&self.facts) }
    }

    /// What it means that `path` cannot be reached.
    pub fn lost(&self, path: &[u8], errno: Errno) -> RemoteError {
        match errno {
            Errno::LOOP => {
                let detail = format!("{}: a symbolic link is in the way, and none is followed", self.shown(path));
                RemoteError::NotFound { detail }
            }
            Errno::XDEV => {
                let detail = format!("{}: another file system is mounted there", self.shown(path));
                RemoteError::NotFound { detail }
            }
            _ => failed(&self.shown(path), "open", errno),
        }
    }
}

/// The path under which the kernel opens again what a descriptor of this process holds.
pub(crate) fn held(fd: &impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

/// Why inotify does not tell of every change in such a file system: others change it, or its files have no writer.
fn blind(magic: u32) -> Option<&'static str> {
    let (_, name) = BLIND.iter().find(|(known, _)| *known == magic)?;
    Some(name)
}

/// Whether the file system that is mounted there keeps multigrain timestamps: whatever changes a file whose times somebody has
/// asked for has a time of its own, and not that of the kernel's clock for files (Linux
/// Documentation/filesystems/multigrain-ts.rst; `FS_MGTIME` in the sources of these file systems).
fn has_fine_times(mount: u64) -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let keeps = |kind: String| FINE_TIMES.contains(&kind.as_str());
    is_since(&release, FINE_TIMES_SINCE)
        && std::fs::read_to_string("/proc/self/mountinfo").is_ok_and(|told| kind_of(mount, &told).is_some_and(keeps))
}

/// Whether a kernel's release is this or later.
fn is_since(release: &str, since: (u32, u32)) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().ok());
    matches!((numbers.next().flatten(), numbers.next().flatten()), (Some(major), Some(minor)) if (major, minor) >= since)
}

/// What kind of file system a mount is, by /proc/self/mountinfo (proc_pid_mountinfo(5)).
fn kind_of(mount: u64, told: &str) -> Option<String> {
    let of_it = |line: &&str| line.split(' ').next().is_some_and(|id| id.parse() == Ok(mount));
    let (_, rest) = told.lines().find(of_it)?.split_once(" - ")?;
    rest.split(' ').next().map(str::to_owned)
}

/// The magic number of overlayfs (linux/magic.h).
const OVERLAYFS: u32 = 0x794c_7630;
/// Longest path that is given to the kernel at once, in bytes.
const STEP_BYTES_MAX: usize = 4000;
/// How often a step is tried again when somebody renames around it.
const RACES_MAX: usize = 32;
/// Since when the kernel keeps multigrain timestamps, and in which file systems. (That of ext2 alone does not.)
const FINE_TIMES_SINCE: (u32, u32) = (6, 13);
const FINE_TIMES: &[&str] = &["ext4", "ext3", "xfs", "btrfs", "tmpfs"];
/// File systems of disks and of memory, by their magic number (statfs(2), linux/magic.h; those of ZFS and bcachefs are told
/// by their own headers): ext2 to ext4, XFS, btrfs, F2FS, tmpfs, ZFS, bcachefs.
const NEAR: &[u32] = &[0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x0102_1994, 0x2fc1_2fc1, 0xca45_1a4e];
/// File systems by their magic number (statfs(2), linux/magic.h).
const BLIND: &[(u32, &str)] = &[
    (0x6969, "a network file system (NFS) does not tell of others' changes"),
    (0x517b, "a network file system (SMB) does not tell of others' changes"),
    (0xff53_4d42, "a network file system (CIFS) does not tell of others' changes"),
    (0xfe53_4d42, "a network file system (SMB2) does not tell of others' changes"),
    (0x6573_5546, "a file system in user space (FUSE) does not tell of all changes"),
    (0x0102_1997, "a network file system (9P) does not tell of others' changes"),
    (0x00c3_6400, "a network file system (Ceph) does not tell of others' changes"),
    (0x5346_414f, "a network file system (AFS) does not tell of others' changes"),
    (0x6b41_4653, "a network file system (AFS) does not tell of others' changes"),
    (0x7375_7245, "a network file system (Coda) does not tell of others' changes"),
    (0x564c, "a network file system (NCP) does not tell of others' changes"),
    (0x786f_4256, "a shared folder (vboxsf) does not tell of others' changes"),
    (0x7461_636f, "a cluster file system (OCFS2) does not tell of others' changes"),
    (0x0116_1970, "a cluster file system (GFS2) does not tell of others' changes"),
    (0x0bd0_0bd0, "a cluster file system (Lustre) does not tell of others' changes"),
    (0x9fa0, "the kernel makes the files of proc when they are read"),
    (0x6265_6572, "the kernel makes the files of sysfs when they are read"),
    (0x6462_6720, "the kernel makes the files of debugfs when they are read"),
    (0x6367_7270, "the kernel makes the files of cgroups when they are read"),
    (0x0027_e0eb, "the kernel makes the files of cgroups when they are read"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernels_release_is_a_number_and_more() {
        for release in ["6.13", "6.13.0-rc1", "6.18.44-generic", "7.0", "10.2-x"] {
            assert!(is_since(release, (6, 13)), "{release}");
        }
        for release in ["6.12.99", "5.15.0-13-generic", "6", "", "x.y", "99999999999.1"] {
            assert!(!is_since(release, (6, 13)), "{release}");
        }
    }

    #[test]
    fn the_kind_of_a_mount_is_told_with_it() {
        let told = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
                    230 22 0:40 /a - /mnt rw - tmpfs none rw\nno line\n23 22 0:41 / /x rw master:1 - fuse.weft weft ro\n";
        assert_eq!(
            [22, 23, 30].map(|mount| kind_of(mount, told)),
            [Some("ext4".into()), Some("fuse.weft".into()), None]
        );
        let here = tempfile::tempdir().unwrap();
        let top = Top::open(here.path()).unwrap();
        let all = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(kind_of(top.mount, &all).is_some(), "{}", top.mount);
    }

    /// What the kernel promises is so.
    #[test]
    fn where_times_are_fine_a_change_after_a_look_has_another() {
        let here = tempfile::NamedTempFile::new().unwrap();
        let top = Top::open(here.path().parent().unwrap()).unwrap();
        if !top.fine_times {
            return eprintln!("skipped: times are not fine here");
        }
        let mut last = None;
        for round in 0..10_000 {
            std::os::unix::fs::FileExt::write_all_at(here.as_file(), b"x", 0).unwrap();
            let now = facts(here.as_file().as_fd()).unwrap().0.version();
            assert_ne!(last.replace(now.clone()), Some(now), "round {round}");
        }
    }
}
