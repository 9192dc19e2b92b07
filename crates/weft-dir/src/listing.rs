//! The listing of a directory: one pass over its names, one look at each.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use rustix::fs::{Dir, FileType, OFlags};
use rustix::io::Errno;
use weft_remote::{Attributes, Entry, Figure, FileId, FileKind, Lease, Name, RemoteError, Result, Version};
use xxhash_rust::xxh3::Xxh3;

use crate::access::{has_list, has_list_in};
use crate::copy::reopen;
use crate::directory::Shared;
use crate::error::failed;
use crate::facts::{Facts, facts, facts_of, kind_of};
use crate::identity::Identity;
use crate::place::below;
use crate::places::Names;
use crate::promise::Promise;
use crate::resolve::At;
use crate::rows::{Row, StandingRows};

/// What a directory holds.
pub(crate) struct Listed {
    pub rows: Vec<Row>,
    pub version: Version,
    pub lease: Lease,
}

impl Shared {
    /// Lists a directory; the rows are promised with the listing. Where they may be rows of a listing before, those stand that
    /// do.
    ///
    /// # Errors
    /// `NotADirectory`, `NotFound`, `Denied`; `TimedOut` when it takes longer than the deadline.
    pub fn list(&self, dir: &FileId, deadline: Instant, may_stand: bool) -> Result<Listed> {
        self.usable()?;
        self.list_at(&self.find_directory(dir)?, deadline, may_stand)
    }

    /// Lists a directory that was found.
    ///
    /// # Errors
    /// As of [`Shared::list`].
    pub fn list_at(&self, dir: &At, deadline: Instant, may_stand: bool) -> Result<Listed> {
        let begun = Instant::now();
        let promise = self.watches.promise_directory(&dir.path, dir.id.key());
        let is_promised = matches!(promise, Promise::Made { .. });
        let standing = match is_promised && may_stand {
            true => self.watches.standing_rows(&dir.path),
            false => StandingRows::default(),
        };
        let rows = self.rows(dir, deadline, is_promised, &standing)?;
        let version = version_of(&rows);
        let lease = self.watches.lease_listing(&promise, &rows, standing.since().unwrap_or(begun));
        Ok(Listed { rows, version, lease })
    }

    /// The rows in the order of their names. With `promised`, a row of a file with several names tells its name alone,
    /// for a change through another name is not told; and one of a directory no times, which change with what is in it.
    fn rows(&self, dir: &At, deadline: Instant, promised: bool, standing: &StandingRows) -> Result<Vec<Row>> {
        let shown = || self.top.shown(&dir.path);
        // Through the descriptor, for one may be allowed to read a directory and not to enter it.
        let fd = reopen(&dir.fd, OFlags::RDONLY | OFlags::DIRECTORY);
        let fd = fd.map_err(|errno| self.top.lost(&dir.path, errno))?;
        let same = fd.try_clone().map_err(|_| failed(&shown(), "open", Errno::MFILE))?;
        let names = Dir::new(same).map_err(|errno| failed(&shown(), "getdents", errno))?;
        let mut rows = Vec::new();
        for (at, row) in names.enumerate() {
            let row = row.map_err(|errno| failed(&shown(), "getdents", errno))?;
            if at.is_multiple_of(LOOKS_BETWEEN) && Instant::now() >= deadline {
                return Err(RemoteError::TimedOut { detail: format!("{}: {at} names so far", shown()) });
            }
            if at >= NAMES_MAX {
                let detail = format!("{}: more than {NAMES_MAX} names (split the directory)", shown());
                return Err(RemoteError::Failed { detail });
            }
            // `.` and `..`, and what is too deep to be reached.
            let Ok(name) = Name::new(row.file_name().to_bytes()) else { continue };
            if below(&dir.path, name.as_bytes()).is_none() {
                continue;
            }
            if let Some((row, turns)) = standing.row(&name) {
                self.places.learn(row.id, row.names, (dir.id.key(), &name), turns);
                rows.push(Row { stands: true, ..row.clone() });
                continue;
            }
            let turns = self.places.turns();
            let (id, names, entry) = match self.row(fd.as_fd(), row.file_name(), row.file_type()) {
                Ok(Some((facts, has_access_list))) => {
                    let id = self.top.identity(&facts);
                    let mut entry = described(name, id, &facts, promised);
                    // Another file may have been asked for its list than for the rest: a promise would be ended by that.
                    if promised && facts.names() != Names::Several {
                        entry.attributes.has_access_list = has_access_list;
                    }
                    (id, facts.names(), entry)
                }
                Ok(None) => continue,
                Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => {
                    return Err(failed(&shown(), "open what is in it", Errno::MFILE));
                }
                Err(_) => {
                    let (id, kind) = (Identity::new(row.ino(), 0, 0), kind_of(row.file_type()));
                    let names = if kind == FileKind::Directory { Names::Directory } else { Names::One };
                    (id, names, named(name, id, kind))
                }
            };
            let learnt = self.places.learn(id, names, (dir.id.key(), &entry.name), turns);
            self.doubt_other_names(id, learnt);
            rows.push(Row::new(id, names, entry));
        }
        rows.sort_unstable_by(|a, b| a.entry.name.cmp(&b.entry.name));
        Ok(rows)
    }

    /// What a name stands for, and whether that has an access list; `None` for what has vanished or is mounted there. What may be
    /// a mount is opened, which stops at it, and not looked at by name, which would ask whoever serves the mount.
    fn row(
        &self,
        dir: BorrowedFd<'_>,
        name: &CStr,
        kind: FileType,
    ) -> rustix::io::Result<Option<(Facts, Option<bool>)>> {
        let opened = match kind {
            FileType::Directory | FileType::Unknown => match self.top.step(dir, name.to_bytes(), OFlags::PATH) {
                Err(Errno::NOENT | Errno::XDEV) => return Ok(None),
                opened => Some(opened?),
            },
            _ => None,
        };
        let told = match &opened {
            Some(fd) => facts(fd.as_fd()),
            None => facts_of(dir, name),
        };
        match told {
            Ok((facts, mount)) if mount == self.top.mount => {
                let has_access_list = match opened {
                    Some(fd) => has_list(fd.as_fd(), facts.kind),
                    None => has_list_in(dir, name, facts.kind),
                };
                Ok(Some((facts, has_access_list)))
            }
            Ok(_) | Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

/// A row; with `promised`, it tells only what a watch of its directory tells changes of.
fn described(name: Name, id: Identity, facts: &Facts, promised: bool) -> Entry {
    let (attributes, version) = match facts.names() {
        Names::Several if promised => {
            (Attributes { size: Figure::Unknown, ..timeless(facts.attributes()) }, Version::None)
        }
        Names::Directory if promised => (Attributes { links: None, ..timeless(facts.attributes()) }, Version::None),
        _ => (facts.attributes(), facts.version()),
    };
    Entry { name, id: id.file_id(), attributes, version }
}

fn timeless(told: Attributes) -> Attributes {
    let untold = Figure::Unknown;
    Attributes { modified: untold, changed: untold, accessed: untold, allocated: None, ..told }
}

/// A row of which no more can be told than its name and kind: a directory that may be read but not entered. Its identity
/// lacks its birth, and leads to no file until it is looked up.
fn named(name: Name, id: Identity, kind: FileKind) -> Entry {
    Entry { name, id: id.file_id(), attributes: Attributes::of_kind(kind), version: Version::None }
}

/// The listing's version: a hash of all that its rows tell, and of which files they are, for a listing that is the same
/// vouches for that. A row's version covers size and times.
fn version_of(rows: &[Row]) -> Version {
    let mut hash = Xxh3::new();
    rows.iter().for_each(|row| hash.update(&row.hash.to_le_bytes()));
    Version::strong(format!("{LISTING}{:032x}", hash.digest128()))
}

/// What the version of a listing begins with, unlike any of a file.
pub(crate) const LISTING: &str = "names-";
/// Most names in one directory.
const NAMES_MAX: usize = 2_000_000;
/// How many names are looked at before the deadline is.
const LOOKS_BETWEEN: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: another file of several names in the place of one is seen, although such rows tell no version.
    #[test]
    fn a_listing_of_other_files_is_another() {
        let row = |inode| {
            let name = Name::new("name").unwrap();
            let id = Identity::new(inode, 0, 0);
            [Row::new(id, Names::Several, named(name, id, FileKind::File))]
        };
        assert_eq!(version_of(&row(1)), version_of(&row(1)));
        assert_ne!(version_of(&row(1)), version_of(&row(2)));
    }
}
