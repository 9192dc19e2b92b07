//! Why nothing of a directory can be reached.

use weft_remote::RemoteError;

/// What has become of the top. Another that is found at its path takes its place; where something was mounted there, one that
/// is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    /// It was moved or deleted.
    Left,
    /// Its file system was unmounted.
    Unmounted,
    /// It was not there when this daemon began.
    Absent,
    /// The kernel tells of no changes any more.
    Unheard,
}

impl Gone {
    /// What that means for who asks for something in it. What is held of a file system that is not there now is as good as
    /// what is held of a host that does not answer.
    pub fn error(self, shown: &str) -> RemoteError {
        match self {
            Gone::Left => RemoteError::Failed {
                detail: format!(
                    "{shown}: it was moved or deleted while it was in use; put it back, or another in its place"
                ),
            },
            Gone::Unmounted => RemoteError::Unreachable {
                detail: format!("{shown}: it was unmounted while it was in use; mount it again"),
            },
            Gone::Absent => RemoteError::Unreachable {
                detail: format!("{shown}: it is not there, or not to be opened; mount what it is in, or make it"),
            },
            Gone::Unheard => RemoteError::Failed {
                detail: format!(
                    "{shown}: the kernel no longer tells of changes there; unmount the mount and mount it again"
                ),
            },
        }
    }
}
