//! What a remote says without being asked.

use crate::{FileId, Name};

/// A message from a remote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The lease on this file or directory has ended: it may have changed.
    Broken(FileId),
    /// The lease on a name has ended: it may lead elsewhere or nowhere now, and the file that it led to may have changed.
    /// Nothing is said of other names in the directory; of the directory itself [`Event::Broken`] tells.
    NameBroken {
        /// The directory.
        dir: FileId,
        /// The name in it.
        name: Name,
        /// A file that was told of by itself, by way of this name: its lease has ended too, whether or not the name is known
        /// to lead to it.
        file: Option<FileId>,
    },
    /// The leases on a directory and on all names in it have ended: they may lead elsewhere or nowhere now, and others
    /// may be there. What they led to has not changed by that.
    NamesBroken(FileId),
    /// Every lease of this remote has ended.
    AllBroken,
    /// The source that holds this file answers again.
    Reachable(FileId),
    /// The source that holds this file does not answer.
    Unreachable(FileId),
}
