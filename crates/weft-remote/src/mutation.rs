//! One change that a user made: sent now, sent later, logged or replicated, always this record.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;

use crate::{Audience, Completeness, Entry, FileId, FileKind, Lease, Name};

/// A change with who made it and when.
#[derive(Clone, Debug)]
pub struct Mutation {
    /// What changes.
    pub change: Change,
    /// When the user made it; a replay keeps this time.
    pub made: SystemTime,
}

/// Where bytes lie in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
}

/// Bytes to be written, read from wherever the store holds them.
pub trait Content: Send + Sync {
    /// Up to `length` bytes at `offset`; fewer only at the end of the file.
    ///
    /// # Errors
    /// Whatever reading the store's file gives.
    fn read(&self, offset: u64, length: usize) -> std::io::Result<Bytes>;

    /// The first range among these bytes that reads as zeros and was given no room, so that it may be a hole at the source as
    /// well; `None` where there is none, or that is not known.
    fn hole(&self, _bytes: Range<u64>) -> Option<Range<u64>> {
        None
    }
}

/// The changes that a file system can make.
#[derive(Clone)]
pub enum Change {
    /// A new, empty file, a new directory, or a new special file.
    Create {
        /// Directory that gets the name.
        dir: FileId,
        /// The new name.
        name: Name,
        /// What it is to be: not a link.
        kind: FileKind,
        /// What it allows to whom.
        mode: NewMode,
        /// Of a device: which, as in [`Attributes::device`](crate::Attributes::device). 0 otherwise.
        device: u32,
    },
    /// A new symbolic link.
    Symlink {
        /// Directory that gets the name.
        dir: FileId,
        /// The new name.
        name: Name,
        /// What the link says.
        target: Vec<u8>,
    },
    /// A second name for a file.
    Link {
        /// The file.
        file: FileId,
        /// Directory that gets the name.
        dir: FileId,
        /// The new name.
        name: Name,
    },
    /// A name taken away, and with the last name the file.
    Remove {
        /// Directory that loses the name.
        dir: FileId,
        /// The name.
        name: Name,
    },
    /// A name moved.
    Rename {
        /// Directory that loses the name.
        from: FileId,
        /// The old name.
        name: Name,
        /// Directory that gets the name.
        to: FileId,
        /// The new name.
        new_name: Name,
        /// What becomes of what the new name stands for.
        target: RenameTarget,
    },
    /// New bytes: these extents of the content, and this length of the file.
    Write {
        /// The file.
        file: FileId,
        /// Which parts changed, ascending, not overlapping.
        extents: Vec<Extent>,
        /// The file's length in bytes afterwards.
        length: u64,
        /// Where the bytes are read from.
        content: Arc<dyn Content>,
    },
    /// New attributes.
    SetAttributes {
        /// The file.
        file: FileId,
        /// What they are to be.
        new: NewAttributes,
    },
    /// An extended attribute set or taken away.
    SetExtended {
        /// The file.
        file: FileId,
        /// The attribute's name with its prefix (`user.`), without NUL.
        name: Vec<u8>,
        /// Its value; `None` takes it away.
        value: Option<Vec<u8>>,
        /// Whether it must be there already (`XATTR_REPLACE`), or must not (`XATTR_CREATE`).
        must_exist: Option<bool>,
    },
}

/// What becomes of what a new name stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RenameTarget {
    /// It is replaced.
    #[default]
    Replaced,
    /// There must be none (`RENAME_NOREPLACE`).
    Absent,
    /// It gets the old name (`RENAME_EXCHANGE`).
    Exchanged,
}

/// Attributes to be set; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewAttributes {
    /// Permission bits with the set-id and sticky bits.
    pub mode: Option<u16>,
    /// Owner's user id. A change of owner or group by itself leaves the mode alone; whoever wants set-id bits gone
    /// sets the mode as well.
    pub uid: Option<u32>,
    /// Owner's group id.
    pub gid: Option<u32>,
    /// Last modification.
    pub modified: Option<SystemTime>,
    /// Last use.
    pub accessed: Option<SystemTime>,
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Create { dir, name, kind, .. } => write!(f, "Create({kind:?} {name:?} in {dir:?})"),
            Change::Symlink { dir, name, .. } => write!(f, "Symlink({name:?} in {dir:?})"),
            Change::Link { file, dir, name } => write!(f, "Link({file:?} as {name:?} in {dir:?})"),
            Change::Remove { dir, name } => write!(f, "Remove({name:?} in {dir:?})"),
            Change::Rename { from, name, to, new_name, .. } => {
                write!(f, "Rename({name:?} in {from:?} to {new_name:?} in {to:?})")
            }
            Change::Write { file, extents, length, .. } => {
                write!(f, "Write({file:?}, {} extents, length {length})", extents.len())
            }
            Change::SetAttributes { file, .. } => write!(f, "SetAttributes({file:?})"),
            Change::SetExtended { file, name, .. } => write!(f, "SetExtended({} of {file:?})", name.escape_ascii()),
        }
    }
}

/// The permission bits that a program asks for when it makes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewMode {
    /// As it asks for them, with the set-id and sticky bits.
    pub asked: u16,
    /// What its umask takes off, where the directory has no default access list, which says what new files allow instead
    /// (umask(2)).
    pub umask: u16,
}

impl NewMode {
    /// The bits where the umask counts.
    pub fn masked(self) -> u16 {
        self.asked & !(self.umask & 0o777)
    }
}

impl From<u16> for NewMode {
    /// These bits, whatever the umask is.
    fn from(asked: u16) -> NewMode {
        NewMode { asked, umask: 0 }
    }
}

/// What a mutation led to.
#[derive(Debug)]
pub struct Outcome {
    /// The file as it is now, under the name that the mutation gave it; `None` after a removal.
    pub entry: Option<Entry>,
    /// The directories whose names it changed, and the one that it made, as far as the source has told what they are now.
    pub dirs: Vec<Changed>,
}

/// A directory whose names were changed, or that was made, as it is now.
#[derive(Debug)]
pub struct Changed {
    /// What it is; its name is of no account.
    pub entry: Entry,
    /// How long that is so.
    pub lease: Lease,
    /// Who may be told.
    pub audience: Audience,
    /// What is known of its names.
    pub names: NamesNow,
}

/// What the reply to a change tells of a directory's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamesNow {
    /// Nothing: somebody else may have changed some as well.
    Unknown,
    /// They are those of before, with this change: whoever knows a listing whose lease lasts knows them.
    Followed,
    /// There are none, as far as a listing of this kind would tell: it was just made, and is so for its lease.
    Empty(Completeness),
}
