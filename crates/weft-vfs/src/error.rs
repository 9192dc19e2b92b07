//! What can keep the file system from answering.

use std::sync::Arc;

use weft_remote::RemoteError;
use weft_store::StoreError;

/// Why an operation failed. The kernel side turns each into one errno; people see the text.
#[derive(Clone, Debug, thiserror::Error)]
pub enum VfsError {
    /// No such name.
    #[error("no such file or directory")]
    NotFound,
    /// The inode number is not known (the cache it belonged to is gone).
    #[error("this inode is no longer known; look the path up again")]
    Stale,
    /// The operation needs a directory.
    #[error("not a directory")]
    NotADirectory,
    /// The operation needs a file.
    #[error("is a directory")]
    IsADirectory,
    /// The name is longer than Linux allows.
    #[error("the name is too long")]
    NameTooLong,
    /// What is cached was fetched with another user's rights.
    #[error("cached with another user's rights")]
    Denied,
    /// The file changed at its source while it was open.
    #[error("the file changed at its source while it was open; open it again for the new version")]
    Changed,
    /// An older version of the file is still open in a way that keeps the kernel from mixing in the new one.
    #[error("an older version is still open; close it to see the new one")]
    OldVersionOpen,
    /// The handle is not open.
    #[error("not an open file")]
    BadHandle,
    /// The tree was taken off the network.
    #[error("offline by `weft offline`: its source is not asked; `weft online` puts it back on the network")]
    Offline,
    /// What may be held is held; the file is served without being stored.
    #[error(transparent)]
    NoRoom(Arc<crate::NoRoom>),
    /// The content is pinned.
    #[error("pinned; `weft unpin` it, or say `--pinned` to remove it all the same")]
    Pinned,
    /// The deadline passed.
    #[error("no answer in time")]
    TimedOut,
    /// The tree takes no changes.
    #[error("read-only")]
    ReadOnly,
    /// A name cannot move from one tree to another.
    #[error("the two directories are not of one tree; copy it and remove the old one")]
    OtherTree,
    /// An extended attribute is not there.
    #[error("no such attribute")]
    NoAttribute,
    /// The remote could not answer.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// The store could not answer.
    #[error(transparent)]
    Store(Arc<StoreError>),
}

impl From<StoreError> for VfsError {
    fn from(error: StoreError) -> VfsError {
        VfsError::Store(Arc::new(error))
    }
}

impl VfsError {
    /// Whether the source could not be talked to at all.
    pub fn is_silence(&self) -> bool {
        match self {
            VfsError::TimedOut | VfsError::Offline => true,
            VfsError::Remote(error) => error.is_silence(),
            _ => false,
        }
    }

    /// Whether the same, tried again later, may work.
    pub fn may_pass(&self) -> bool {
        match self {
            VfsError::TimedOut | VfsError::Offline => true,
            VfsError::Remote(error) => error.may_pass(),
            _ => false,
        }
    }

    /// The store could not keep a note.
    pub(crate) fn notes(error: weft_remote::NotesError) -> VfsError {
        StoreError::Index(error.0).into()
    }

    /// Whether the cache's disk is full, or as much of it as may be.
    pub fn is_full(&self) -> bool {
        matches!(self, VfsError::NoRoom(_))
            || matches!(self, VfsError::Store(error) if matches!(**error, StoreError::Full { .. }))
    }
}
