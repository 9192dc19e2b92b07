//! From identities to open files, and what is told of them.
//!
//! A place is where to look (`places.rs`); what is opened there counts only if it is the very file. When it is not:
//!
//! 1. Our own renames that are under way are waited for, and if the place is another then, that one is tried.
//! 2. A file with several names is looked for under each that is known.
//! 3. Directories on the way that somebody else has moved are followed, as far as they are held open (`moved.rs`).
//! 4. Where the directory of its only name is at its place, the file has gone (`NotFound`). Otherwise, and where no place
//!    is known or there may be names that were not seen, nothing can be said (`Unplaced`) until its name is looked up.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::Errno;
use weft_remote::{Answer, Entry, Event, FileId, FileKind, Found, Lease, Name, RemoteError, Result, Version};

use crate::access::attributes;
use crate::directory::Shared;
use crate::error::failed;
use crate::facts::{Facts, facts};
use crate::identity::{Identity, Key};
use crate::place::{below, parted};
use crate::places::{Learnt, Seen};
use crate::promise::Promise;

/// A file that was found, open without being used.
#[derive(Debug)]
pub(crate) struct At {
    pub id: Identity,
    /// Where it is, below the top.
    pub path: Vec<u8>,
    /// The directory that has its name.
    pub dir: Key,
    pub fd: OwnedFd,
    pub facts: Facts,
}

impl Shared {
    /// Finds a file by its identity.
    ///
    /// # Errors
    /// `NotFound` when it has gone, `Unplaced` when its place is not known.
    pub fn find(&self, file: &FileId) -> Result<At> {
        let id = Identity::of(file).ok_or_else(|| RemoteError::NotFound {
            detail: format!("{file:?} is no identity below {}", self.top.shown(b"")),
        })?;
        for _ in 0..TRIES_MAX {
            let moves = self.places.moves();
            let seen = self.places.seen(id);
            let mut refused = None;
            for name in &seen {
                match self.is_at(id, name) {
                    Ok(Some(at)) => return Ok(at),
                    Ok(None) => {}
                    Err(error) => refused = Some(error),
                }
            }
            if let Some(error) = refused {
                return Err(error);
            }
            drop(self.places.renames.write());
            // Somebody else may have moved it just now, which the kernel is about to tell.
            self.watches.wait_taken_in();
            if self.places.moves() == moves && self.places.seen(id) == seen && !self.follow(id) {
                return Err(self.missing(id, &seen));
            }
        }
        Err(self.moved_all_the_time(file))
    }

    /// The same for a directory.
    ///
    /// # Errors
    /// `NotADirectory` too.
    pub fn find_directory(&self, dir: &FileId) -> Result<At> {
        let at = self.find(dir)?;
        match at.facts.kind {
            FileKind::Directory => {
                self.held_open.keep(&at);
                Ok(at)
            }
            _ => Err(RemoteError::NotADirectory { detail: self.top.shown(&at.path) }),
        }
    }

    /// The file under a name under which it was seen, if it is there still.
    fn is_at(&self, id: Identity, seen: &Seen) -> Result<Option<At>> {
        match self.open(&seen.path) {
            Ok((fd, facts)) if self.top.identity(&facts) == id => {
                Ok(Some(At { id, path: seen.path.clone(), dir: seen.dir, fd, facts }))
            }
            Ok(_) | Err(RemoteError::NotFound { .. } | RemoteError::NotADirectory { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What it means that a file has none of the names under which it was seen.
    fn missing(&self, id: Identity, seen: &[Seen]) -> RemoteError {
        let Some(Seen { path, dir }) = seen.first() else {
            return RemoteError::Unplaced { detail: format!("{:?} below {}", id.file_id(), self.top.shown(b"")) };
        };
        let above = parted(path).map_or(&b""[..], |(above, _)| above);
        let above = self.open(above).is_ok_and(|(_, facts)| self.top.identity(&facts).key() == *dir);
        let detail = self.top.shown(path);
        match above && !self.places.may_have_others(id) {
            true => RemoteError::NotFound { detail },
            false => RemoteError::Unplaced { detail },
        }
    }

    /// Finds a file that changes of its name are told of from before it was opened.
    ///
    /// # Errors
    /// As of [`Shared::find`].
    pub fn find_promised(&self, file: &FileId) -> Result<(At, Promise)> {
        for _ in 0..TRIES_MAX {
            let at = self.find(file)?;
            let promise = match parted(&at.path) {
                Some((above, name)) => self.watches.promise_name(above, at.dir, name),
                None => self.watches.promise_directory(&at.path, at.id.key()),
            };
            if matches!(promise, Promise::NotMade) {
                return Ok((at, promise));
            }
            // What is promised is of the name: it must lead there still.
            if let Some(at) = self.is_at(at.id, &Seen { path: at.path, dir: at.dir })? {
                if let Some((above, name)) = parted(&at.path) {
                    self.watches.note_told_of(above, name, at.id);
                }
                return Ok((at, promise));
            }
        }
        Err(self.moved_all_the_time(file))
    }

    fn moved_all_the_time(&self, file: &FileId) -> RemoteError {
        RemoteError::Unplaced { detail: format!("{}: it is moved all the time", self.shown(file)) }
    }

    /// What a file is, where, and how long that may be trusted.
    ///
    /// # Errors
    /// As of [`Shared::find`].
    pub fn look_where(&self, file: &FileId) -> Result<(At, Entry, Lease)> {
        self.usable()?;
        let (at, promise) = self.find_promised(file)?;
        let name = parted(&at.path).map_or(&b"top"[..], |(_, name)| name);
        let name = Name::new(name).map_err(|error| RemoteError::BadName { detail: error.to_string() })?;
        let (entry, lease) = self.told(&name, &at, &promise)?;
        Ok((at, entry, lease))
    }

    /// What a name in a directory stands for; an absence is told for as long as the directory was found.
    ///
    /// # Errors
    /// What keeps it from being opened.
    pub fn look_in(&self, dir: &At, name: &Name) -> Result<Answer<Option<Found>>> {
        let path = self.below(&dir.path, name)?;
        let promise = self.watches.promise_name(&dir.path, dir.id.key(), name.as_bytes());
        let absent = || Ok(Answer::new(None, Version::None, self.watches.lease(&[&promise])));
        let mut turns = self.places.turns();
        let Some(mut at) = self.step(dir, name, path.clone())? else { return absent() };
        for _ in 0..TRIES_MAX {
            let learnt = self.places.learn(at.id, at.facts.names(), (at.dir, name), turns);
            self.doubt_other_names(at.id, learnt);
            if learnt != Learnt::Late {
                break;
            }
            // A rename came between: it may have been of this very file.
            turns = self.places.turns();
            match self.step(dir, name, path.clone())? {
                Some(now) => at = now,
                None => return absent(),
            }
        }
        self.held_open.keep(&at);
        let (entry, lease) = self.told(name, &at, &promise)?;
        let version = entry.version.clone();
        Ok(Answer::new(Some(Found { entry, along: None }), version, lease))
    }

    /// Opens a name in a directory; `None` when there is none, or another file system is mounted there.
    pub fn step(&self, dir: &At, name: &Name, path: Vec<u8>) -> Result<Option<At>> {
        let fd = match self.top.step(dir.fd.as_fd(), name.as_bytes(), OFlags::PATH) {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::XDEV) => return Ok(None),
            Err(errno) => return Err(self.top.lost(&path, errno)),
        };
        match self.facts(&path, &fd) {
            Ok(facts) => Ok(Some(At { id: self.top.identity(&facts), path, dir: dir.id.key(), fd, facts })),
            Err(RemoteError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What is told of a file that was opened under a promise of its name.
    fn told(&self, name: &Name, at: &At, promise: &Promise) -> Result<(Entry, Lease)> {
        let At { id, path, fd, facts, .. } = at;
        let mut facts = *facts;
        let lease = if facts.kind == FileKind::Directory {
            // Its times are those of its own changes, which its own watch tells.
            let itself = self.watches.promise_directory(path, id.key());
            facts = self.facts(path, fd)?;
            self.watches.lease(&[promise, &itself])
        } else {
            self.limited(&facts, self.watches.lease(&[promise]))
        };
        let (attributes, version) = (attributes(fd.as_fd(), &facts), facts.version());
        Ok((Entry { name: name.clone(), id: id.file_id(), attributes, version }, lease))
    }

    /// The lease of a file by what it is: changes through another of its names are not told.
    pub fn limited(&self, facts: &Facts, lease: Lease) -> Lease {
        match lease {
            Lease::UntilBroken(_) if facts.kind != FileKind::Directory && facts.links > 1 => self.watches.short_lease(),
            lease => lease,
        }
    }

    /// Tells of a file that has a name which nobody knew of: what was promised while it had others alone ends.
    pub fn doubt_other_names(&self, file: Identity, learnt: Learnt) {
        if learnt == Learnt::Beside {
            self.watches.news.tell(vec![Event::Broken(file.file_id())]);
        }
    }

    /// Opens what is at `path` without using it, and says what it is.
    pub fn open(&self, path: &[u8]) -> Result<(OwnedFd, Facts)> {
        let fd = self.top.reach(path, OFlags::PATH).map_err(|errno| self.top.lost(path, errno))?;
        let told = self.facts(path, &fd)?;
        Ok((fd, told))
    }

    /// What an open file is.
    pub fn facts(&self, path: &[u8], fd: &OwnedFd) -> Result<Facts> {
        match facts(fd.as_fd()) {
            Ok((facts, mount)) if mount == self.top.mount => Ok(facts),
            Ok(_) => Err(self.top.lost(path, Errno::XDEV)),
            Err(errno) => Err(failed(&self.top.shown(path), "statx", errno)),
        }
    }

    /// The path of a name in a directory.
    ///
    /// # Errors
    /// `BadName` when it is too long.
    pub fn below(&self, dir: &[u8], name: &Name) -> Result<Vec<u8>> {
        below(dir, name.as_bytes()).ok_or_else(|| RemoteError::BadName {
            detail: format!("{name:?} in {}: the path would be too long", self.top.shown(dir)),
        })
    }

    /// Where a file was seen last, if that is known; asks nobody.
    pub fn place_of(&self, file: &FileId) -> Option<Vec<u8>> {
        Some(self.places.seen(Identity::of(file)?).into_iter().next()?.path)
    }

    /// What people call a file, where its place is known; asks nobody.
    pub fn shown(&self, file: &FileId) -> String {
        let seen = Identity::of(file).and_then(|id| self.places.seen(id).into_iter().next());
        match seen {
            Some(seen) => self.top.shown(&seen.path),
            None => format!("{file:?} below {}", self.top.shown(b"")),
        }
    }
}

/// How often a file that is moved meanwhile is looked for.
const TRIES_MAX: usize = 8;
