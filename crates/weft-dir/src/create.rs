//! New files, directories, links and special files, given to whoever asked for them.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use weft_remote::{Caller, FileKind, Name, NewMode, RemoteError, Result};

use crate::access::mode_in;
use crate::apply::Spot;
use crate::directory::Shared;
use crate::error::failed;
use crate::facts::{Facts, SHOWN_MODE, facts, parts_of_device};
use crate::top::held;

impl Shared {
    /// Makes what is no link.
    pub(crate) fn create(
        &self,
        spot: &Spot<'_>,
        (kind, device): (FileKind, u32),
        mode: NewMode,
        caller: &Caller,
    ) -> Result<()> {
        let Spot { dir, name, path } = spot;
        let said = |doing, errno| failed(&self.top.shown(path), doing, errno);
        let mode = mode_in(dir.fd.as_fd(), mode).map_err(|errno| said("read the default access list for", errno))?;
        let made = match kind {
            FileKind::File => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let made = rustix::fs::openat(&dir.fd, name.as_bytes(), flags, Mode::from_raw_mode(0o600));
                made.map_err(|errno| said("create", errno))?
            }
            FileKind::Directory => {
                let made = rustix::fs::mkdirat(&dir.fd, name.as_bytes(), Mode::from_raw_mode(0o700));
                made.map_err(|errno| said("mkdir", errno))?;
                let open = self.top.step(dir.fd.as_fd(), name.as_bytes(), OFlags::RDONLY | OFlags::DIRECTORY);
                open.map_err(|errno| self.top.lost(path, errno))?
            }
            FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => {
                self.make_node(spot, kind, device)?
            }
            FileKind::Symlink | FileKind::Unknown => {
                let detail = format!("{}: {kind:?} is nothing that is created so", self.top.shown(path));
                return Err(RemoteError::Invalid { detail });
            }
        };
        let is_directory = kind == FileKind::Directory;
        self.watches.changed(path, is_directory);
        let given = is_just_made(&made, kind, device).and_then(|ours| match ours {
            true => give(&dir.fd, &made, caller).and_then(|()| set_mode(&made, is_directory, mode)),
            false => Ok(()),
        });
        given.map_err(|errno| {
            let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            self.take_back(&dir.fd, name, &made, flags);
            said("give to its owner", errno)
        })
    }

    /// Makes a fifo, a socket's name or a device, and opens it without using it.
    fn make_node(&self, spot: &Spot<'_>, kind: FileKind, device: u32) -> Result<OwnedFd> {
        let Spot { dir, name, path } = spot;
        let (type_of, number) = match kind {
            FileKind::Fifo => (FileType::Fifo, 0),
            FileKind::Socket => (FileType::Socket, 0),
            FileKind::CharDevice => (FileType::CharacterDevice, device),
            _ => (FileType::BlockDevice, device),
        };
        let (major, minor) = parts_of_device(number);
        let number = rustix::fs::makedev(major, minor);
        let made = rustix::fs::mknodat(&dir.fd, name.as_bytes(), type_of, Mode::from_raw_mode(0o600), number);
        made.map_err(|errno| failed(&self.top.shown(path), "mknod", errno))?;
        let open = self.top.step(dir.fd.as_fd(), name.as_bytes(), OFlags::PATH);
        open.map_err(|errno| self.top.lost(path, errno))
    }

    /// Makes a symbolic link.
    pub(crate) fn symlink(&self, spot: &Spot<'_>, target: &[u8], caller: &Caller) -> Result<()> {
        let Spot { dir, name, path } = spot;
        let said = |doing, errno| failed(&self.top.shown(path), doing, errno);
        rustix::fs::symlinkat(target, &dir.fd, name.as_bytes()).map_err(|errno| said("symlink", errno))?;
        self.watches.changed(path, false);
        let made = self.top.step(dir.fd.as_fd(), name.as_bytes(), OFlags::PATH);
        let made = made.map_err(|errno| self.top.lost(path, errno))?;
        let told = self.facts(path, &made)?;
        // Whoever may rename there can put another file under the name: that one is not given away.
        let ours = told.kind == FileKind::Symlink
            && told.links == 1
            && is_our_own(&told)
            && rustix::fs::readlinkat(&made, "", Vec::new()).is_ok_and(|told| told.as_bytes() == target);
        if ours {
            give(&dir.fd, &made, caller).map_err(|errno| {
                self.take_back(&dir.fd, name, &made, AtFlags::empty());
                said("give to its owner", errno)
            })?;
        }
        Ok(())
    }

    /// Removes what was made in vain, if it still has its name.
    fn take_back(&self, dir: &OwnedFd, name: &Name, made: &OwnedFd, flags: AtFlags) {
        let there = self.top.step(dir.as_fd(), name.as_bytes(), OFlags::PATH).and_then(|fd| facts(fd.as_fd()));
        if let (Ok((there, _)), Ok((made, _))) = (there, facts(made.as_fd()))
            && there.is_same_file(&made)
        {
            let _ = rustix::fs::unlinkat(dir, name.as_bytes(), flags);
        }
    }
}

/// Whether something is as it was just made. A file is open from the moment it was made on; of the others, whoever may
/// rename there can put another one under the name. Only what is closed to all but us is given away, and of directories
/// only an empty one.
fn is_just_made(made: &OwnedFd, kind: FileKind, device: u32) -> rustix::io::Result<bool> {
    let told = facts(made.as_fd())?.0;
    match kind {
        FileKind::File => Ok(true),
        _ if told.kind != kind || !is_our_own(&told) || told.mode & 0o077 != 0 => Ok(false),
        FileKind::Directory => {
            let mut names = Dir::read_from(made)?;
            Ok(names.all(|name| name.is_ok_and(|name| matches!(name.file_name().to_bytes(), b"." | b".."))))
        }
        FileKind::CharDevice | FileKind::BlockDevice => Ok(told.links == 1 && told.attributes().device == Some(device)),
        _ => Ok(told.links == 1),
    }
}

/// Whether a file is owned by the user that we are.
pub(crate) fn is_our_own(told: &Facts) -> bool {
    told.owner.uid == rustix::process::geteuid().as_raw()
}

/// Gives what was made in `dir` to the caller, where we may: the kernel would have made it for the caller.
fn give(dir: &OwnedFd, made: &OwnedFd, caller: &Caller) -> rustix::io::Result<()> {
    let we = rustix::process::geteuid();
    // Root may have another group than ours as well.
    let is_ours = caller.uid == we.as_raw() && caller.gid == rustix::process::getegid().as_raw();
    if is_ours || !we.is_root() {
        return Ok(());
    }
    // A directory with the set-group-id bit gives its own group to what is made in it.
    let inherits = facts(dir.as_fd())?.0.mode & SET_GROUP_ID != 0;
    let gid = (!inherits).then(|| Gid::from_raw(caller.gid));
    tolerated(rustix::fs::chownat(made, "", Some(Uid::from_raw(caller.uid)), gid, AtFlags::EMPTY_PATH))
}

/// Sets the whole mode of what was made. A directory keeps the set-group-id bit that it has from the one above it.
fn set_mode(made: &OwnedFd, is_directory: bool, mode: u16) -> rustix::io::Result<()> {
    let inherited = if is_directory { facts(made.as_fd())?.0.mode & SET_GROUP_ID } else { 0 };
    let mode = Mode::from_raw_mode(u32::from(mode & SHOWN_MODE | inherited));
    tolerated(rustix::fs::chmodat(CWD, held(made), mode, AtFlags::empty()))
}

/// File systems without owners or modes keep their own. Those of FUSE that cannot set any say ENOSYS.
fn tolerated(outcome: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match outcome {
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        outcome => outcome,
    }
}

/// What is made in a directory with this bit gets its group; a directory gets the bit too.
pub(crate) const SET_GROUP_ID: u16 = 0o2000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sets_no_owners_and_modes_is_tolerated() {
        for errno in [Errno::PERM, Errno::OPNOTSUPP, Errno::NOSYS] {
            assert_eq!(tolerated(Err(errno)), Ok(()), "{errno}");
        }
        for errno in [Errno::IO, Errno::ROFS, Errno::NOSPC] {
            assert_eq!(tolerated(Err(errno)), Err(errno));
        }
    }
}
