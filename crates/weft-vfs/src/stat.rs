//! Attributes as the kernel wants them.

use std::time::{Duration, SystemTime};

use weft_remote::{Attributes, FileKind};
use weft_store::{NodeId, NodeRecord};

use crate::faces::Faces;

/// What `stat` shows of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Which inode of the kernel it is.
    pub node: NodeId,
    /// Which use of that number.
    pub generation: u64,
    /// File, directory or symbolic link; never `Unknown`.
    pub kind: FileKind,
    /// Length in bytes.
    pub size: u64,
    /// Last modification.
    pub modified: SystemTime,
    /// Last change of content, attributes or names.
    pub changed: SystemTime,
    /// Last use.
    pub accessed: SystemTime,
    /// Permission bits with the set-id and sticky bits.
    pub mode: u16,
    /// How many names it has; 1 where that is not known, of directories too.
    pub links: u32,
    /// Of a device: which.
    pub device: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// How long the kernel may use these without asking.
    pub ttl: Duration,
}

impl Stat {
    /// The inode number that programs see.
    pub fn number(&self) -> u64 {
        Faces::number(self.node).0
    }
}

/// What `df` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// Bytes of the file system that holds the cache.
    pub total: u64,
    /// Bytes free there.
    pub free: u64,
}

/// Whose files the mount shows where the source has no owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DefaultOwner {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl DefaultOwner {
    /// A record as `stat` shows it; `seen` stands for a time that the source does not tell.
    pub(crate) fn stat(&self, node: NodeId, record: &NodeRecord, seen: SystemTime, ttl: Duration) -> Stat {
        let Attributes { kind, size, modified, mode, owner, changed, accessed, links, device } = record.attributes;
        let (kind, default_mode) = match kind {
            FileKind::Directory => (FileKind::Directory, 0o555),
            FileKind::Symlink => (FileKind::Symlink, 0o777),
            FileKind::Unknown => (FileKind::File, 0o444),
            kind => (kind, 0o444),
        };
        let modified = modified.known().unwrap_or(seen);
        Stat {
            node,
            generation: 0,
            kind,
            size: size.known().unwrap_or(0),
            modified,
            changed: changed.known().unwrap_or(modified),
            accessed: accessed.known().unwrap_or(modified),
            // Set-id bits become no rights: every mount is `nosuid`.
            mode: mode.unwrap_or(default_mode) & 0o7777,
            // 1 for directories too where the source does not say (find(1) takes that for "not known").
            links: links.unwrap_or(1),
            device: device.unwrap_or(0),
            uid: owner.map_or(self.uid, |owner| owner.uid),
            gid: owner.map_or(self.gid, |owner| owner.gid),
            ttl,
        }
    }
}
