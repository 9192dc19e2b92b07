//! What the kernel is told of inodes and of the file system.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::abi;

/// Attributes of an inode (`fuse_attr`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Inode number, as stat(2) shows it.
    pub node: u64,
    /// Length in bytes.
    pub size: u64,
    /// Room that it takes, in units of 512 bytes.
    pub blocks: u64,
    /// Last use.
    pub accessed: Stamp,
    /// Last change of the content.
    pub modified: Stamp,
    /// Last change of the inode.
    pub changed: Stamp,
    /// Type and permissions, as stat(2) has them.
    pub mode: u32,
    /// Names of it.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device.
    pub rdev: u32,
    /// Preferred size of reads and writes in bytes.
    pub block_bytes: u32,
}

/// A moment of a file: seconds since 1970 and nanoseconds after them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Since 1970, negative before.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanoseconds: u32,
}

/// Where a name leads (`fuse_entry_out`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The inode, as the kernel names it in requests. Never 0.
    pub node: u64,
    /// Tells apart inodes that had the same number, one after the other.
    pub generation: u64,
    /// How long the kernel may keep the name.
    pub name_ttl: Duration,
    /// What it leads to.
    pub attributes: Attributes,
    /// How long the kernel may keep the attributes.
    pub attributes_ttl: Duration,
}

/// Figures for `df` (`fuse_kstatfs`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Blocks in all.
    pub blocks: u64,
    /// Of these free.
    pub blocks_free: u64,
    /// Of these for ordinary users.
    pub blocks_available: u64,
    /// Inodes in all; 0 where they are not counted.
    pub files: u64,
    /// Of these free.
    pub files_free: u64,
    /// Size of a block in bytes.
    pub block_bytes: u32,
    /// Longest name in bytes.
    pub name_bytes_max: u32,
}

/// Attributes as statx(2) has them (`fuse_statx`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statx {
    /// What stat(2) has.
    pub attributes: Attributes,
    /// Which of them are set, and `STATX_BTIME` when `born` is.
    pub mask: u32,
    /// When it was made.
    pub born: Stamp,
}

impl Attributes {
    pub(crate) fn wire(&self) -> abi::Attr {
        abi::Attr {
            ino: self.node,
            size: self.size,
            blocks: self.blocks,
            atime: self.accessed.seconds.cast_unsigned(),
            mtime: self.modified.seconds.cast_unsigned(),
            ctime: self.changed.seconds.cast_unsigned(),
            atimensec: self.accessed.nanoseconds,
            mtimensec: self.modified.nanoseconds,
            ctimensec: self.changed.nanoseconds,
            mode: self.mode,
            nlink: self.links,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            blksize: self.block_bytes,
            flags: 0,
        }
    }
}

impl From<SystemTime> for Stamp {
    fn from(time: SystemTime) -> Stamp {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Stamp { seconds: whole_seconds(after), nanoseconds: after.subsec_nanos() },
            Err(before) => {
                let before = before.duration();
                let (seconds, nanoseconds) = (-whole_seconds(before), before.subsec_nanos());
                match nanoseconds {
                    0 => Stamp { seconds, nanoseconds },
                    _ => Stamp { seconds: seconds - 1, nanoseconds: NANOSECONDS - nanoseconds },
                }
            }
        }
    }
}

impl Entry {
    pub(crate) fn wire(&self) -> abi::EntryOut {
        let (entry_valid, entry_valid_nsec) = seconds_of(self.name_ttl);
        let (attr_valid, attr_valid_nsec) = seconds_of(self.attributes_ttl);
        abi::EntryOut {
            nodeid: self.node,
            generation: self.generation,
            entry_valid,
            attr_valid,
            entry_valid_nsec,
            attr_valid_nsec,
            attr: self.attributes.wire(),
        }
    }
}

impl Space {
    pub(crate) fn wire(&self) -> abi::StatfsOut {
        abi::StatfsOut {
            blocks: self.blocks,
            bfree: self.blocks_free,
            bavail: self.blocks_available,
            files: self.files,
            ffree: self.files_free,
            bsize: self.block_bytes,
            namelen: self.name_bytes_max,
            frsize: self.block_bytes,
            ..Default::default()
        }
    }
}

impl Statx {
    pub(crate) fn wire(&self) -> abi::Statx {
        let of = |stamp: Stamp| abi::SxTime { seconds: stamp.seconds, nanoseconds: stamp.nanoseconds, reserved: 0 };
        let attributes = &self.attributes;
        abi::Statx {
            mask: self.mask,
            blksize: attributes.block_bytes,
            nlink: attributes.links,
            uid: attributes.uid,
            gid: attributes.gid,
            // The upper half of st_mode is not used by Linux.
            mode: (attributes.mode & 0xffff) as u16,
            ino: attributes.node,
            size: attributes.size,
            blocks: attributes.blocks,
            atime: of(attributes.accessed),
            btime: of(self.born),
            ctime: of(attributes.changed),
            mtime: of(attributes.modified),
            ..Default::default()
        }
    }
}

/// A time for the kernel: seconds and nanoseconds. Longer ones than it can count are its longest.
pub(crate) fn seconds_of(ttl: Duration) -> (u64, u32) {
    (ttl.as_secs(), ttl.subsec_nanos())
}

fn whole_seconds(time: Duration) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

const NANOSECONDS: u32 = 1_000_000_000;
