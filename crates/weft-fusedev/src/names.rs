//! Names of a directory for the kernel (`fuse_dirent`, `fuse_direntplus`).

use zerocopy::IntoBytes;

use crate::abi;
use crate::attributes::Entry;
use crate::reply::{Delivery, Filling, Room};

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name<'a> {
    /// The inode number that getdents(2) shows.
    pub node: u64,
    /// The offset of the name after this one.
    pub next: u64,
    /// What sort of thing it is.
    pub kind: Kind,
    /// The name's bytes; at most 1024 of them.
    pub name: &'a [u8],
}

/// What sort of thing a name leads to: `DT_*` of readdir(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nobody knows yet: programs ask with stat(2).
    Unknown = 0,
    /// A pipe.
    Fifo = 1,
    /// A character device.
    CharacterDevice = 2,
    /// A directory.
    Directory = 4,
    /// A block device.
    BlockDevice = 6,
    /// A file.
    File = 8,
    /// A symbolic link.
    Symlink = 10,
    /// A socket.
    Socket = 12,
}

/// The answer to a `Readdir`: add names until there is no room, then send. An answer without names is the end.
#[derive(Debug)]
pub struct Names(Filling);

/// The answer to a `Readdirplus`: as [`Names`], with what is known of each.
#[derive(Debug)]
pub struct Entries(Filling);

impl Names {
    pub(crate) fn new(filling: Filling) -> Names {
        Names(filling)
    }

    /// Adds a name.
    pub fn add(&mut self, name: &Name<'_>) -> Room {
        self.0.add(&[name.wire().as_bytes(), name.name, padding(name.name)])
    }

    /// Sends them.
    pub fn send(self) -> Delivery {
        self.0.send()
    }
}

impl Entries {
    pub(crate) fn new(filling: Filling) -> Entries {
        Entries(filling)
    }

    /// Adds a name. With an entry it counts as one lookup of the inode, except for `.` and `..`; without one the
    /// kernel looks the name up when somebody uses it (inode 0, `fuse_direntplus_link` in fs/fuse/readdir.c).
    pub fn add(&mut self, name: &Name<'_>, entry: Option<&Entry>) -> Room {
        let entry = entry.map(Entry::wire).unwrap_or_default();
        self.0.add(&[entry.as_bytes(), name.wire().as_bytes(), name.name, padding(name.name)])
    }

    /// Sends them.
    pub fn send(self) -> Delivery {
        self.0.send()
    }
}

impl Name<'_> {
    fn wire(&self) -> abi::Dirent {
        let namelen = u32::try_from(self.name.len()).unwrap_or(u32::MAX);
        abi::Dirent { ino: self.node, off: self.next, namelen, kind: self.kind as u32 }
    }
}

/// Each name ends at a multiple of 8 bytes (`FUSE_DIRENT_ALIGN`).
fn padding(name: &[u8]) -> &'static [u8] {
    &[0; 8][..name.len().next_multiple_of(8) - name.len()]
}
