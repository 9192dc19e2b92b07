//! The listing of a directory: one pass over its names, one look at each.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use rustix::fs::{Dir, FileType, OFlags};
use rustix::io::Errno;
use weft_remote::{Attributes, Entry, Figure, FileId, FileKind, Lease, Name, RemoteError, Result, Version};
use xxhash_rust::xxh3::Xxh3;

use crate::directory::Shared;
use crate::error::failed;
use crate::facts::{Facts, facts, facts_of};
use crate::place::below;
use crate::promise::Promise;

/// What a directory holds.
pub(crate) struct Listed {
    pub entries: Vec<Entry>,
    pub version: Version,
    pub lease: Lease,
}

impl Shared {
    /// Lists a directory; the rows are promised with the listing.
    ///
    /// # Errors
    /// `NotADirectory`, `NotFound`, `Denied`; `TimedOut` when it takes longer than the deadline.
    pub fn list(&self, path: &[u8], deadline: Instant) -> Result<Listed> {
        self.usable()?;
        let promise = self.watches.promise_directory(path);
        let entries = self.rows(path, deadline, matches!(promise, Promise::Made { .. }))?;
        let version = version_of(&entries);
        let lease = self.watches.lease_listing(&promise, &entries);
        Ok(Listed { entries, version, lease })
    }

    /// The rows in the order of their names. With `promised`, a row of a file with several names tells its name alone,
    /// for a change through another name is not told.
    pub(crate) fn rows(&self, path: &[u8], deadline: Instant, promised: bool) -> Result<Vec<Entry>> {
        let fd = self.top.directory(path, OFlags::RDONLY)?;
        let shown = || self.top.shown(path);
        let same = fd.try_clone().map_err(|_| failed(&shown(), "open", Errno::MFILE))?;
        let names = Dir::new(same).map_err(|errno| failed(&shown(), "getdents", errno))?;
        let mut entries = Vec::new();
        for (at, row) in names.enumerate() {
            let row = row.map_err(|errno| failed(&shown(), "getdents", errno))?;
            if at.is_multiple_of(LOOKS_BETWEEN) && Instant::now() >= deadline {
                return Err(RemoteError::TimedOut { detail: format!("{}: {at} names so far", shown()) });
            }
            if at >= NAMES_MAX {
                let detail = format!("{}: more than {NAMES_MAX} names (split the directory)", shown());
                return Err(RemoteError::Failed { detail });
            }
            // `.` and `..`, and what is too deep to be named.
            let Ok(name) = Name::new(row.file_name().to_bytes()) else { continue };
            let Some(id) = below(path, name.as_bytes()) else { continue };
            match self.row(fd.as_fd(), row.file_name(), row.file_type()) {
                Ok(Some(facts)) => entries.extend(described(name, id, &facts, promised)),
                Ok(None) => {}
                Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => {
                    return Err(failed(&shown(), "open what is in it", Errno::MFILE));
                }
                Err(_) => entries.extend(named(name, id, row.file_type())),
            }
        }
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// What a name stands for; `None` for what has vanished or is not shown. What may be a mount is opened, which stops
    /// at it, and not looked at by name, which would ask whoever serves the mount.
    fn row(&self, dir: BorrowedFd<'_>, name: &CStr, kind: FileType) -> rustix::io::Result<Option<Facts>> {
        let told = match kind {
            FileType::Directory | FileType::Unknown => {
                self.top.step(dir, name.to_bytes(), OFlags::PATH).and_then(|fd| facts(fd.as_fd()))
            }
            _ => facts_of(dir, name),
        };
        match told {
            Ok((facts, mount)) if mount == self.top.mount && facts.kind.is_some() => Ok(Some(facts)),
            Ok(_) | Err(Errno::NOENT | Errno::XDEV) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

fn described(name: Name, id: Vec<u8>, facts: &Facts, promised: bool) -> Option<Entry> {
    let attributes = facts.attributes()?;
    let (attributes, version) = match promised && attributes.kind != FileKind::Directory && facts.links > 1 {
        true => (Attributes { size: Figure::Unknown, modified: Figure::Unknown, ..attributes }, Version::None),
        false => (attributes, facts.version()),
    };
    Some(Entry { name, id: FileId::new(id), attributes, version })
}

/// A row of which no more can be told than its name and kind: a directory that may be read but not entered.
fn named(name: Name, id: Vec<u8>, kind: FileType) -> Option<Entry> {
    let kind = match kind {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Unknown => FileKind::Unknown,
        _ => return None,
    };
    Some(Entry { name, id: FileId::new(id), attributes: Attributes::of_kind(kind), version: Version::None })
}

/// The listing's version: a hash of all that its rows tell. A row's version covers size and times.
fn version_of(entries: &[Entry]) -> Version {
    let mut hash = Xxh3::new();
    for Entry { name, attributes, version, .. } in entries {
        let token = version.token().unwrap_or_default();
        hash.update(&(name.as_bytes().len() as u64).to_le_bytes());
        hash.update(name.as_bytes());
        hash.update(&(token.len() as u64).to_le_bytes());
        hash.update(token);
        let Attributes { kind, mode, owner, .. } = attributes;
        let owner = owner.map(|owner| (owner.uid, owner.gid));
        hash.update(format!("{kind:?} {mode:?} {owner:?}").as_bytes());
    }
    Version::strong(format!("{LISTING}{:032x}", hash.digest128()))
}

/// What the version of a listing begins with, unlike any of a file.
pub(crate) const LISTING: &str = "names-";
/// Most names in one directory.
const NAMES_MAX: usize = 2_000_000;
/// How many names are looked at before the deadline is.
const LOOKS_BETWEEN: usize = 256;
