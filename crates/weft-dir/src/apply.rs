//! Changes, each made relative to the descriptor of its directory, right after a look at what it changes.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, Dir, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid};
use rustix::io::Errno;
use weft_remote::{Answer, Caller, Change, FileKind, Mutation, Name, Outcome, RemoteError, Result, Version};

use crate::directory::Shared;
use crate::error::failed;
use crate::facts::{Facts, SHOWN_MODE, facts};
use crate::listing::LISTING;
use crate::place::path_of;
use crate::top::held;

/// A directory that is about to change, and one of its names.
struct Spot {
    dir: OwnedFd,
    name: Name,
    /// The name's path.
    path: Vec<u8>,
}

impl Shared {
    /// Makes a change and tells what is there now.
    ///
    /// # Errors
    /// `VersionChanged` when it is not the expected version that would change; `Exists`, `NotEmpty`, `NoSpace` and
    /// whatever else the disk says.
    pub fn apply(
        &self,
        caller: &Caller,
        mutation: &Mutation,
        expected: &Version,
        deadline: Instant,
    ) -> Result<Answer<Outcome>> {
        self.usable()?;
        let expect = |path: &[u8]| self.expect_at(path, expected, deadline);
        let path = match &mutation.change {
            Change::Create { dir, name, kind, mode, .. } => {
                let spot = self.spot(path_of(dir)?, name)?;
                expect(path_of(dir)?)?;
                Some(self.create(spot, *kind, *mode, caller)?)
            }
            Change::Symlink { dir, name, target } => {
                let spot = self.spot(path_of(dir)?, name)?;
                expect(path_of(dir)?)?;
                Some(self.symlink(spot, target, caller)?)
            }
            Change::Link { file, dir, name } => {
                let spot = self.spot(path_of(dir)?, name)?;
                Some(self.link(path_of(file)?, expected, spot)?)
            }
            Change::Remove { dir, name } => {
                let spot = self.spot(path_of(dir)?, name)?;
                expect(path_of(dir)?)?;
                self.remove(spot)?;
                None
            }
            Change::Rename { from, name, to, new_name, .. } => {
                let (old, new) = (self.spot(path_of(from)?, name)?, self.spot(path_of(to)?, new_name)?);
                expect(path_of(from)?)?;
                Some(self.rename(old, new)?)
            }
            Change::Write { file, extents, length, content } => {
                let path = path_of(file)?;
                self.write(path, expected, extents, *length, &**content, mutation.made)?;
                Some(path.to_vec())
            }
            Change::SetAttributes { file, new } => {
                let path = path_of(file)?;
                self.set_attributes(path, expected, new.mode, (new.uid, new.gid), new.modified)?;
                Some(path.to_vec())
            }
            Change::SetExtended { file, .. } => {
                let detail = format!("{}: extended attributes", self.top.shown(path_of(file)?));
                return Err(RemoteError::Unsupported { detail });
            }
        };
        let Some(path) = path else {
            return Ok(Answer::new(Outcome { entry: None }, Version::None, self.watches.short_lease()));
        };
        let (entry, lease) = self.look(&path)?;
        let version = entry.version.clone();
        Ok(Answer::new(Outcome { entry: Some(entry) }, version, lease))
    }

    /// Holds a directory against the version that it is expected to have: its own, or that of its listing.
    fn expect_at(&self, path: &[u8], expected: &Version, deadline: Instant) -> Result<()> {
        let Some(token) = expected.token() else { return Ok(()) };
        let now = match token.starts_with(LISTING.as_bytes()) {
            true => self.list(path, deadline)?.version,
            false => self.open(path)?.1.version(),
        };
        self.expect(path, &now, expected)
    }

    fn spot(&self, dir: &[u8], name: &Name) -> Result<Spot> {
        let path = self.below(dir, name)?;
        Ok(Spot { dir: self.top.directory(dir, OFlags::PATH)?, name: name.clone(), path })
    }

    fn create(&self, spot: Spot, kind: FileKind, mode: u16, caller: &Caller) -> Result<Vec<u8>> {
        let Spot { dir, name, path } = spot;
        let said = |doing, errno| failed(&self.top.shown(&path), doing, errno);
        let made = match kind {
            FileKind::File => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let made = rustix::fs::openat(&dir, name.as_bytes(), flags, Mode::from_raw_mode(0o600));
                made.map_err(|errno| said("create", errno))?
            }
            FileKind::Directory => {
                let made = rustix::fs::mkdirat(&dir, name.as_bytes(), Mode::from_raw_mode(0o700));
                made.map_err(|errno| said("mkdir", errno))?;
                let open = self.top.step(dir.as_fd(), name.as_bytes(), OFlags::RDONLY | OFlags::DIRECTORY);
                open.map_err(|errno| self.top.lost(&path, errno))?
            }
            _ => {
                let detail = format!("{}: only files and directories are created so", self.top.shown(&path));
                return Err(RemoteError::Unsupported { detail });
            }
        };
        self.watches.changed(&path, kind == FileKind::Directory);
        let is_directory = kind == FileKind::Directory;
        let given = match is_directory && !is_just_made(&made).map_err(|errno| said("statx", errno))? {
            true => Ok(()),
            false => give(&dir, &made, caller).and_then(|()| {
                let kept = if is_directory { facts(made.as_fd())?.0.mode & KEPT_ON_DIRECTORIES } else { 0 };
                tolerated(rustix::fs::fchmod(&made, Mode::from_raw_mode(u32::from(mode & SHOWN_MODE | kept))))
            }),
        };
        given.map_err(|errno| {
            self.take_back(&dir, &name, &made, if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() });
            said("give to its owner", errno)
        })?;
        Ok(path)
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

    fn symlink(&self, spot: Spot, target: &[u8], caller: &Caller) -> Result<Vec<u8>> {
        let Spot { dir, name, path } = spot;
        let said = |doing, errno| failed(&self.top.shown(&path), doing, errno);
        rustix::fs::symlinkat(target, &dir, name.as_bytes()).map_err(|errno| said("symlink", errno))?;
        self.watches.changed(&path, false);
        let made = self.top.step(dir.as_fd(), name.as_bytes(), OFlags::PATH);
        let made = made.map_err(|errno| self.top.lost(&path, errno))?;
        let told = self.facts(&path, &made)?;
        // Whoever may rename there can put another file under the name: that one is not given away.
        let ours = told.kind == Some(FileKind::Symlink)
            && told.links == 1
            && told.owner.uid == rustix::process::geteuid().as_raw()
            && rustix::fs::readlinkat(&made, "", Vec::new()).is_ok_and(|told| told.as_bytes() == target);
        if ours {
            give(&dir, &made, caller).map_err(|errno| {
                self.take_back(&dir, &name, &made, AtFlags::empty());
                said("give to its owner", errno)
            })?;
        }
        Ok(path)
    }

    fn link(&self, file: &[u8], expected: &Version, spot: Spot) -> Result<Vec<u8>> {
        let Spot { dir, name, path } = spot;
        let (fd, facts) = self.open(file)?;
        if facts.kind == Some(FileKind::Directory) {
            let detail = format!("{}: a directory has one name", self.top.shown(file));
            return Err(RemoteError::Unsupported { detail });
        }
        self.expect(file, &facts.version(), expected)?;
        let linked = rustix::fs::linkat(CWD, held(&fd), &dir, name.as_bytes(), AtFlags::SYMLINK_FOLLOW);
        linked.map_err(|errno| failed(&self.top.shown(&path), "link", errno))?;
        self.watches.changed(file, false);
        self.watches.changed(&path, false);
        Ok(path)
    }

    fn remove(&self, spot: Spot) -> Result<()> {
        let Spot { dir, name, path } = spot;
        let is_directory = self.open(&path)?.1.kind == Some(FileKind::Directory);
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        let removed = rustix::fs::unlinkat(&dir, name.as_bytes(), flags);
        removed.map_err(|errno| failed(&self.top.shown(&path), "remove", errno))?;
        self.watches.changed(&path, is_directory);
        Ok(())
    }

    fn rename(&self, old: Spot, new: Spot) -> Result<Vec<u8>> {
        let (_, moved) = self.open(&old.path)?;
        match self.top.step(new.dir.as_fd(), new.name.as_bytes(), OFlags::PATH) {
            Ok(fd) if self.facts(&new.path, &fd)?.kind.is_some() => {}
            Err(Errno::NOENT) => {}
            Ok(_) | Err(Errno::XDEV) => {
                let detail = format!("{}: something that is not shown has this name", self.top.shown(&new.path));
                return Err(RemoteError::Exists { detail });
            }
            Err(errno) => return Err(self.top.lost(&new.path, errno)),
        }
        let renamed = rustix::fs::renameat(&old.dir, old.name.as_bytes(), &new.dir, new.name.as_bytes());
        renamed.map_err(|errno| {
            let doing = format!("rename to {}", self.top.shown(&new.path));
            failed(&self.top.shown(&old.path), &doing, errno)
        })?;
        let tree = moved.kind == Some(FileKind::Directory);
        self.watches.changed(&old.path, tree);
        self.watches.changed(&new.path, tree);
        Ok(new.path)
    }

    fn set_attributes(
        &self,
        path: &[u8],
        expected: &Version,
        mode: Option<u16>,
        (uid, gid): (Option<u32>, Option<u32>),
        modified: Option<SystemTime>,
    ) -> Result<()> {
        let (fd, facts) = self.open(path)?;
        self.expect(path, &facts.version(), expected)?;
        let said = |doing| move |errno| failed(&self.top.shown(path), doing, errno);
        // The owner first: a change of it takes set-id bits away, which is right, and the mode comes after.
        if uid.is_some() || gid.is_some() {
            let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
            rustix::fs::chownat(&fd, "", uid, gid, AtFlags::EMPTY_PATH).map_err(said("chown"))?;
        }
        if let Some(mode) = mode {
            let mode = mode_of(&facts, mode).ok_or_else(|| RemoteError::Unsupported {
                detail: format!("{}: a link has no mode", self.top.shown(path)),
            })?;
            rustix::fs::chmodat(CWD, held(&fd), mode, AtFlags::empty()).map_err(said("chmod"))?;
        }
        if let Some(modified) = modified {
            rustix::fs::utimensat(&fd, "", &times(modified), AtFlags::EMPTY_PATH).map_err(said("set the time of"))?;
        }
        self.watches.changed(path, false);
        Ok(())
    }
}

/// Whether a directory is as `mkdir` leaves it. Whoever may rename there can put another one under its name; only an
/// empty one that is closed to all but us is given away.
fn is_just_made(dir: &OwnedFd) -> rustix::io::Result<bool> {
    let told = facts(dir.as_fd())?.0;
    if told.owner.uid != rustix::process::geteuid().as_raw() || told.mode & 0o077 != 0 {
        return Ok(false);
    }
    let mut names = Dir::read_from(dir)?;
    Ok(names.all(|name| name.is_ok_and(|name| matches!(name.file_name().to_bytes(), b"." | b".."))))
}

/// Gives what was made in `dir` to the caller, where we may: the kernel would have made it for the caller.
fn give(dir: &OwnedFd, made: &OwnedFd, caller: &Caller) -> rustix::io::Result<()> {
    if caller.uid == 0 || !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    // A directory with the set-group-id bit gives its own group to what is made in it.
    let inherits = facts(dir.as_fd())?.0.mode & 0o2000 != 0;
    let gid = (!inherits).then(|| Gid::from_raw(caller.gid));
    tolerated(rustix::fs::chownat(made, "", Some(Uid::from_raw(caller.uid)), gid, AtFlags::EMPTY_PATH))
}

/// File systems without owners or modes keep their own.
fn tolerated(outcome: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match outcome {
        Err(Errno::PERM | Errno::OPNOTSUPP) => Ok(()),
        outcome => outcome,
    }
}

/// The whole mode for what a caller wants: files lose set-id bits, which nobody here can see; directories keep theirs.
fn mode_of(facts: &Facts, wanted: u16) -> Option<Mode> {
    let kept = match facts.kind? {
        FileKind::Directory => facts.mode & KEPT_ON_DIRECTORIES,
        FileKind::Symlink => return None,
        _ => 0,
    };
    Some(Mode::from_raw_mode(u32::from(wanted & SHOWN_MODE | kept)))
}

/// Times to set: the modification to `modified`, the access left alone.
pub(crate) fn times(modified: SystemTime) -> Timestamps {
    let last_modification = match modified.duration_since(UNIX_EPOCH) {
        Ok(since) => Timespec { tv_sec: since.as_secs() as i64, tv_nsec: i64::from(since.subsec_nanos()) },
        Err(before) => {
            // Nanoseconds count forward from the second before.
            let before = before.duration();
            let (seconds, nanoseconds) = (before.as_secs() as i64, i64::from(before.subsec_nanos()));
            match nanoseconds {
                0 => Timespec { tv_sec: -seconds, tv_nsec: 0 },
                _ => Timespec { tv_sec: -seconds - 1, tv_nsec: NANOSECONDS - nanoseconds },
            }
        }
    };
    Timestamps { last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }, last_modification }
}

/// Set-id bits: on a directory they say who owns what is made in it.
const KEPT_ON_DIRECTORIES: u16 = 0o6000;
const NANOSECONDS: i64 = 1_000_000_000;
