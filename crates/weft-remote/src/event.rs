//! What a remote says without being asked.

use crate::FileId;

/// A message from a remote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The lease on this file or directory has ended: it may have changed.
    Broken(FileId),
    /// Every lease of this remote has ended.
    AllBroken,
    /// The source that holds this file answers again.
    Reachable(FileId),
    /// The source that holds this file does not answer.
    Unreachable(FileId),
}
