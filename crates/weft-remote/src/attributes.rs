//! What a source tells about a file, and how exactly.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// A figure with its quality. What the kernel is told is exact; the file system above asks once more when
/// somebody needs what was only rounded or unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Figure<T> {
    /// The source gave this very value.
    Exact(T),
    /// The source gave an approximation (an index page says `1.2K`, or a time without seconds).
    Rounded(T),
    /// The source has not said.
    #[default]
    Unknown,
}

impl<T: Copy> Figure<T> {
    /// The value if it is exact.
    pub fn exact(self) -> Option<T> {
        match self {
            Figure::Exact(value) => Some(value),
            Figure::Rounded(_) | Figure::Unknown => None,
        }
    }

    /// The same figure in other terms.
    pub fn map<U>(self, terms: impl FnOnce(T) -> U) -> Figure<U> {
        match self {
            Figure::Exact(value) => Figure::Exact(terms(value)),
            Figure::Rounded(value) => Figure::Rounded(terms(value)),
            Figure::Unknown => Figure::Unknown,
        }
    }

    /// The best value at hand.
    pub fn known(self) -> Option<T> {
        match self {
            Figure::Exact(value) | Figure::Rounded(value) => Some(value),
            Figure::Unknown => None,
        }
    }
}

/// What sort of thing a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FileKind {
    /// A file with bytes.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// The source has named it without saying what it is (a link on a page): ask before use.
    Unknown,
    /// A fifo: what goes through it stays on this machine.
    Fifo,
    /// A socket's name; as a fifo.
    Socket,
    /// A character device. No mount lets anybody open it.
    CharDevice,
    /// A block device. No mount lets anybody open it.
    BlockDevice,
}

impl FileKind {
    /// Whether it is a name with attributes and without content: fifos, sockets, devices.
    pub fn is_special(self) -> bool {
        match self {
            FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => true,
            FileKind::File | FileKind::Directory | FileKind::Symlink | FileKind::Unknown => false,
        }
    }
}

/// Owner at the source, where the source has such a thing in terms of local ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// Attributes as told by the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Attributes {
    /// What it is.
    pub kind: FileKind,
    /// Length in bytes; `Unknown` for directories.
    pub size: Figure<u64>,
    /// Last modification.
    #[serde(with = "crate::moment")]
    pub modified: Figure<SystemTime>,
    /// Permission bits with the set-id and sticky bits, where the source has them. Set-id bits become nobody's rights:
    /// every mount is `nosuid`.
    pub mode: Option<u16>,
    /// Owner, where the source has one.
    pub owner: Option<Owner>,
    /// Last change of content, attributes or names.
    #[serde(skip)]
    pub changed: Figure<SystemTime>,
    /// Last use, where the source keeps that.
    #[serde(skip)]
    pub accessed: Figure<SystemTime>,
    /// How many names it has; of a directory what `st_nlink` has there.
    #[serde(skip)]
    pub links: Option<u32>,
    /// Of a device: which (`st_rdev`, in the kernel's encoding for user space: 20 bits of minor, 12 of major).
    #[serde(skip)]
    pub device: Option<u32>,
    /// Bytes that it takes on the disk of its source (`st_blocks` times 512), where that is told.
    #[serde(skip)]
    pub allocated: Option<u64>,
    /// Whether it has a POSIX access list, or of a directory a default one, beside what the mode says (acl(5)), where that is
    /// told.
    #[serde(skip)]
    pub has_access_list: Option<bool>,
}

impl Attributes {
    /// Attributes of which only the kind is known.
    pub fn of_kind(kind: FileKind) -> Attributes {
        Attributes {
            kind,
            size: Figure::Unknown,
            modified: Figure::Unknown,
            mode: None,
            owner: None,
            changed: Figure::Unknown,
            accessed: Figure::Unknown,
            links: None,
            device: None,
            allocated: None,
            has_access_list: None,
        }
    }
}
