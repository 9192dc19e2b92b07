//! What the file system says of an inode, in the kernel's words.

use std::time::Duration;

use weft_fusedev::{Attributes, Entry, Kind};
use weft_remote::FileKind;
use weft_vfs::Stat;

/// Attributes for the kernel.
pub(crate) fn attributes_of(stat: &Stat) -> Attributes {
    Attributes {
        node: stat.number(),
        size: stat.size,
        blocks: stat.allocated.div_ceil(512),
        accessed: stat.accessed.into(),
        modified: stat.modified.into(),
        changed: stat.changed.into(),
        mode: type_bits(stat.kind) | u32::from(stat.mode),
        links: stat.links,
        uid: stat.uid,
        gid: stat.gid,
        rdev: stat.device,
        block_bytes: BLOCK_BYTES,
    }
}

/// A name that the kernel may keep for `name_ttl`.
pub(crate) fn entry_of(stat: &Stat, name_ttl: Duration) -> Entry {
    let (node, attributes) = (stat.node.0, attributes_of(stat));
    Entry { node, generation: stat.generation, name_ttl, attributes, attributes_ttl: stat.ttl }
}

/// What a listing says of a name.
pub(crate) fn kind_of(kind: FileKind) -> Kind {
    match kind {
        FileKind::Directory => Kind::Directory,
        FileKind::Symlink => Kind::Symlink,
        FileKind::Fifo => Kind::Fifo,
        FileKind::Socket => Kind::Socket,
        FileKind::CharDevice => Kind::CharacterDevice,
        FileKind::BlockDevice => Kind::BlockDevice,
        FileKind::File => Kind::File,
        FileKind::Unknown => Kind::Unknown,
    }
}

/// The type in `st_mode`.
fn type_bits(kind: FileKind) -> u32 {
    let kind = match kind {
        FileKind::Directory => rustix::fs::FileType::Directory,
        FileKind::Symlink => rustix::fs::FileType::Symlink,
        FileKind::Fifo => rustix::fs::FileType::Fifo,
        FileKind::Socket => rustix::fs::FileType::Socket,
        FileKind::CharDevice => rustix::fs::FileType::CharacterDevice,
        FileKind::BlockDevice => rustix::fs::FileType::BlockDevice,
        // Attributes must have a type; a look at the file finds the right one before they are told.
        FileKind::File | FileKind::Unknown => rustix::fs::FileType::RegularFile,
    };
    kind.as_raw_mode()
}

/// Unit of `df` and preferred size of reads, in bytes.
pub(crate) const BLOCK_BYTES: u32 = 4096;
