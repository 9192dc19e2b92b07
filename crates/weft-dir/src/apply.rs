//! Changes, each made relative to the descriptor of its directory, right after a look at what it changes.

use std::os::fd::AsFd;
use std::time::{Instant, SystemTime};

use rustix::fs::{AtFlags, CWD, OFlags, RenameFlags};
use rustix::io::Errno;
use weft_remote::{
    Answer, Caller, Change, FileId, FileKind, Mutation, Name, Outcome, RemoteError, RenameTarget, Result, Version,
};

use crate::directory::Shared;
use crate::error::failed;
use crate::listing::LISTING;
use crate::places::Names;
use crate::resolve::At;
use crate::top::held;

/// A directory that is about to change, and one of its names.
pub(crate) struct Spot<'a> {
    pub dir: At,
    pub name: &'a Name,
    /// The name's path.
    pub path: Vec<u8>,
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
        let spot = |dir: &FileId, name| self.spot(dir, name, expected, deadline);
        // What is told of a file that has several names is not waited for: its leases are short.
        let held = |file: &FileId| self.place_of(file).map(|path| self.hold(&path));
        match &mutation.change {
            Change::Create { dir, name, kind, mode, device } => {
                let spot = spot(dir, name)?;
                let _held = self.hold(&spot.path);
                self.create(&spot, (*kind, *device), *mode, caller)?;
                self.outcome_at(&spot)
            }
            Change::Symlink { dir, name, target } => {
                let spot = spot(dir, name)?;
                let _held = self.hold(&spot.path);
                self.symlink(&spot, target, caller)?;
                self.outcome_at(&spot)
            }
            Change::Link { file, dir, name } => {
                // It is the file that is expected, and not the directory.
                let spot = self.spot(dir, name, &Version::None, deadline)?;
                let _held = self.hold(&spot.path);
                self.link(file, expected, &spot)?;
                self.outcome_at(&spot)
            }
            Change::Remove { dir, name } => {
                self.remove(&spot(dir, name)?)?;
                Ok(Answer::new(Outcome { entry: None, dirs: Vec::new() }, Version::None, self.watches.short_lease()))
            }
            Change::Rename { from, name, to, new_name, target } => {
                let old = spot(from, name)?;
                let new = self.spot(to, new_name, &Version::None, deadline)?;
                let _held = self.hold(&new.path);
                self.rename(&old, &new, *target)?;
                self.outcome_at(&new)
            }
            Change::Write { file, extents, length, content } => {
                let _held = held(file);
                self.write(file, expected, extents, *length, &**content, mutation.made)?;
                self.outcome_of(file, true)
            }
            Change::SetAttributes { file, new } => {
                let _held = held(file);
                self.set_attributes(file, expected, new)?;
                self.outcome_of(file, new.modified.is_some())
            }
            Change::SetExtended { file, name, value, must_exist } => {
                let _held = held(file);
                self.set_extended(file, expected, (name, value.as_deref()), *must_exist, caller)?;
                self.outcome_of(file, false)
            }
        }
    }

    /// The directory of a name that is to change, if it is as expected.
    fn spot<'a>(&self, dir: &FileId, name: &'a Name, expected: &Version, deadline: Instant) -> Result<Spot<'a>> {
        let dir = self.find_directory(dir)?;
        let path = self.below(&dir.path, name)?;
        self.expect_at(&dir, expected, deadline)?;
        Ok(Spot { dir, name, path })
    }

    /// Holds a directory against the version that it is expected to have: its own, or that of its listing.
    fn expect_at(&self, dir: &At, expected: &Version, deadline: Instant) -> Result<()> {
        let Some(token) = expected.token() else { return Ok(()) };
        let now = match token.starts_with(LISTING.as_bytes()) {
            true => self.list_at(dir, deadline, false)?.version,
            false => dir.facts.version(),
        };
        self.expect(&dir.path, &now, expected)
    }

    /// # Errors
    /// `VersionChanged` when a file's bytes are not those of the expected version.
    pub fn expect_bytes(&self, at: &At, expected: &Version) -> Result<()> {
        match at.facts.has_bytes_of(expected) || self.ours.may_follow(at.id, &at.facts, expected) {
            true => Ok(()),
            false => Err(RemoteError::VersionChanged { detail: self.top.shown(&at.path) }),
        }
    }

    /// Notes that what the kernel is about to tell of a file was our own doing: where whatever somebody else writes after
    /// it moves the file's time or length, for the clock of files moves in ticks.
    fn note_echo(&self, at: &At, times_set: bool) {
        let shows_writes = at.facts.kind != FileKind::File
            || at.facts.length == 0
            || times_set
            || at.facts.was_written_before(SystemTime::now());
        if shows_writes {
            self.watches.note_echo(&at.path, &at.facts);
        }
    }

    /// Notes that a file's attributes or names were changed by us.
    pub fn note(&self, before: &At) {
        self.note_set(before, false);
    }

    /// The same, where its time of modification may have been set.
    pub fn note_set(&self, before: &At, times_set: bool) {
        if before.facts.kind == FileKind::File
            && let Ok(after) = self.facts(&before.path, &before.fd)
        {
            self.ours.changed(before.id, &before.facts, &after, times_set);
        }
    }

    /// What a name that was just made stands for.
    fn outcome_at(&self, spot: &Spot<'_>) -> Result<Answer<Outcome>> {
        let answer = self.look_in(&spot.dir, spot.name)?;
        if answer.value.is_none() {
            let detail = format!("{}: it was made, and has gone since", self.top.shown(&spot.path));
            return Err(RemoteError::NotFound { detail });
        }
        if let Ok(Some(at)) = self.step(&spot.dir, spot.name, spot.path.clone())
            && at.facts.version() == answer.version
        {
            self.note_echo(&at, false);
        }
        Ok(answer.map(|found| Outcome { entry: found.map(|found| found.entry), dirs: Vec::new() }))
    }

    /// What a file is after a change.
    fn outcome_of(&self, file: &FileId, times_set: bool) -> Result<Answer<Outcome>> {
        let (at, entry, lease) = self.look_where(file)?;
        let version = entry.version.clone();
        self.note_echo(&at, times_set);
        Ok(Answer::new(Outcome { entry: Some(entry), dirs: Vec::new() }, version, lease))
    }

    fn link(&self, file: &FileId, expected: &Version, spot: &Spot<'_>) -> Result<()> {
        let _noted = self.ours.begin();
        let at = self.find(file)?;
        if at.facts.kind == FileKind::Directory {
            let detail = format!("{}: a directory has one name", self.top.shown(&at.path));
            return Err(RemoteError::Unsupported { detail });
        }
        self.expect_bytes(&at, expected)?;
        let name = spot.name.as_bytes();
        let turns = self.places.turns();
        let linked = rustix::fs::linkat(CWD, held(&at.fd), &spot.dir.fd, name, AtFlags::SYMLINK_FOLLOW);
        linked.map_err(|errno| failed(&self.top.shown(&spot.path), "link", errno))?;
        self.places.learn(at.id, Names::Several, (spot.dir.id.key(), spot.name), turns);
        self.note(&at);
        self.watches.changed_by_another_name(&at.path);
        self.watches.changed(&spot.path, false);
        Ok(())
    }

    fn remove(&self, spot: &Spot<'_>) -> Result<()> {
        let _noted = self.ours.begin();
        let Spot { dir, name, path } = spot;
        let gone = self.step(dir, name, path.clone())?.ok_or_else(|| self.top.lost(path, Errno::NOENT))?;
        let is_directory = gone.facts.kind == FileKind::Directory;
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        rustix::fs::unlinkat(&dir.fd, name.as_bytes(), flags).map_err(|errno| {
            // Some file systems say so of a directory that has names.
            let errno = if is_directory && errno == Errno::EXIST { Errno::NOTEMPTY } else { errno };
            failed(&self.top.shown(path), "remove", errno)
        })?;
        self.places.forget(gone.id, dir.id.key(), name);
        self.note(&gone);
        self.watches.changed(path, is_directory);
        self.is_gone(gone);
        Ok(())
    }

    fn rename(&self, old: &Spot<'_>, new: &Spot<'_>, target: RenameTarget) -> Result<()> {
        let _noted = self.ours.begin();
        let moved = self.step(&old.dir, old.name, old.path.clone())?;
        let moved = moved.ok_or_else(|| self.top.lost(&old.path, Errno::NOENT))?;
        let there = self.step(&new.dir, new.name, new.path.clone())?;
        if there.is_none() && self.is_covered(new) {
            let detail = format!("{}: another file system is mounted there", self.top.shown(&new.path));
            return Err(RemoteError::Exists { detail });
        }
        let flags = match target {
            RenameTarget::Replaced => RenameFlags::empty(),
            RenameTarget::Absent => RenameFlags::NOREPLACE,
            RenameTarget::Exchanged => RenameFlags::EXCHANGE,
        };
        {
            let _under_way = self.places.renames.read();
            let (from, to) = (old.name.as_bytes(), new.name.as_bytes());
            let renamed = match flags.is_empty() {
                true => rustix::fs::renameat(&old.dir.fd, from, &new.dir.fd, to),
                false => rustix::fs::renameat_with(&old.dir.fd, from, &new.dir.fd, to, flags),
            };
            renamed.map_err(|errno| {
                let doing = format!("rename to {}", self.top.shown(&new.path));
                let full = errno == Errno::EXIST && target == RenameTarget::Replaced;
                failed(&self.top.shown(&old.path), &doing, if full { Errno::NOTEMPTY } else { errno })
            })?;
            self.has_moved(&moved, there.as_ref(), old, new, target);
        }
        self.note(&moved);
        there.iter().for_each(|there| self.note(there));
        let tree = [Some(&moved), there.as_ref()].into_iter().flatten().any(|at| at.facts.kind == FileKind::Directory);
        self.watches.changed(&old.path, tree);
        self.watches.changed(&new.path, tree);
        if target == RenameTarget::Exchanged {
            // Of what has that name now nothing is told with the outcome.
            self.watches.changed_by_another_name(&old.path);
        }
        if let Some(gone) = there.filter(|_| target == RenameTarget::Replaced) {
            self.is_gone(gone);
        }
        Ok(())
    }

    /// What has lost a name here: a directory its only one.
    fn is_gone(&self, gone: At) {
        if gone.facts.kind == FileKind::Directory {
            self.held_open.let_go(gone.id);
        }
        self.newborn.keep(gone);
    }

    /// Enters in the table of places what a rename has done.
    fn has_moved(&self, moved: &At, there: Option<&At>, old: &Spot<'_>, new: &Spot<'_>, target: RenameTarget) {
        let (from, to) = ((old.dir.id.key(), old.name), (new.dir.id.key(), new.name));
        match there {
            // Two names of one file: nothing was done, and both are there.
            Some(there) if there.id == moved.id => return,
            Some(there) if target == RenameTarget::Exchanged => {
                self.places.renamed(there.id, there.facts.names(), from, to);
            }
            Some(there) => self.places.forget(there.id, to.0, to.1),
            None => {}
        }
        self.places.renamed(moved.id, moved.facts.names(), to, from);
    }

    /// Whether something that is not shown has a name: another file system.
    fn is_covered(&self, spot: &Spot<'_>) -> bool {
        let told = self.top.step(spot.dir.fd.as_fd(), spot.name.as_bytes(), OFlags::PATH);
        matches!(told, Ok(_) | Err(Errno::XDEV))
    }
}
