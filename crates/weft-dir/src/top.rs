//! The descriptor that everything is reached from.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;
use weft_remote::RemoteError;

use crate::error::{DirectoryError, failed};
use crate::facts::{Facts, facts};
use crate::identity::Identity;

/// The top directory, held open, and what is asked of it before each step down.
#[derive(Debug)]
pub(crate) struct Top {
    path: PathBuf,
    fd: OwnedFd,
    /// The mount that the top is in; everything shown is in the same.
    pub mount: u64,
    /// What it was when it was opened.
    pub facts: Facts,
    /// Why changes below are not all told by inotify, if so.
    pub blind: Option<&'static str>,
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
        let magic = rustix::fs::fstatfs(&fd).map_err(open)?.f_type;
        let top = Top { path: path.to_owned(), fd, mount, facts, blind: blind(i128::from(magic)) };
        match top.step(top.fd.as_fd(), b".", OFlags::PATH) {
            Ok(_) => Ok(top),
            Err(errno) => Err(DirectoryError::Unsafe { path: path.to_owned(), source: errno.into() }),
        }
    }

    /// The real path of what is at `path`, for people.
    pub fn shown(&self, path: &[u8]) -> String {
        self.path.join(OsStr::from_bytes(path)).display().to_string()
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

    /// Where below the top what is open is now; `None` when it is not there. What has gone has a path that leads to nothing, or
    /// to another.
    pub fn path_of(&self, fd: &OwnedFd) -> Option<Vec<u8>> {
        let (top, path) = (std::fs::read_link(held(&self.fd)).ok()?, std::fs::read_link(held(fd)).ok()?);
        Some(path.strip_prefix(&top).ok()?.as_os_str().as_bytes().to_vec()).filter(|below| !below.is_empty())
    }

    /// Which file this is.
    pub fn identity(&self, facts: &Facts) -> Identity {
        facts.identity(&self.facts)
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
fn blind(magic: i128) -> Option<&'static str> {
    let (_, name) = BLIND.iter().find(|(known, _)| *known == (magic & 0xffff_ffff) as u32)?;
    Some(name)
}

/// Longest path that is given to the kernel at once, in bytes.
const STEP_BYTES_MAX: usize = 4000;
/// How often a step is tried again when somebody renames around it.
const RACES_MAX: usize = 32;
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
