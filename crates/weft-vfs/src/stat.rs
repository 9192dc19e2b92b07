//! Attributes as the kernel wants them.

use std::time::{Duration, SystemTime};

use weft_remote::{Attributes, FileKind};
use weft_store::{NodeId, NodeRecord};

/// What `stat` shows of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Inode number.
    pub node: NodeId,
    /// File, directory or symbolic link; never `Unknown`.
    pub kind: FileKind,
    /// Length in bytes.
    pub size: u64,
    /// Last modification.
    pub modified: SystemTime,
    /// Permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// How long the kernel may use these without asking.
    pub ttl: Duration,
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
        let Attributes { kind, size, modified, mode, owner } = record.attributes;
        let (kind, default_mode) = match kind {
            FileKind::Directory => (FileKind::Directory, 0o555),
            FileKind::Symlink => (FileKind::Symlink, 0o777),
            FileKind::File | FileKind::Unknown => (FileKind::File, 0o444),
        };
        Stat {
            node,
            kind,
            size: size.known().unwrap_or(0),
            modified: modified.known().unwrap_or(seen),
            // Set-id and sticky bits from a source never become rights on this machine.
            mode: mode.unwrap_or(default_mode) & 0o777,
            uid: owner.map_or(self.uid, |owner| owner.uid),
            gid: owner.map_or(self.gid, |owner| owner.gid),
            ttl,
        }
    }
}
