//! What can go wrong between a verb and a daemon.

use std::path::PathBuf;

use crate::Refusal;

/// Why a verb has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The path lies in no mount of weft.
    #[error("{path}: not inside a weft mount; `weft status` lists the mounts")]
    NotAMount {
        /// The path.
        path: PathBuf,
    },
    /// The path lies in a mount whose daemon does not answer.
    #[error("{mountpoint}: mounted, but its daemon does not answer; `weft umount --lazy {mountpoint}` clears it away")]
    NoDaemon {
        /// The mount.
        mountpoint: PathBuf,
    },
    /// The daemon refuses.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The socket folder belongs to somebody else or is open to others.
    #[error("{path}: not safe as a folder for control sockets: {why}")]
    UnsafeFolder {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The daemon went before its answer was whole.
    #[error("the daemon ended before it had answered: it was upgraded, unmounted or killed")]
    Ended,
    /// What came back is not an answer.
    #[error("the daemon's answer cannot be read: {why}")]
    Protocol {
        /// What is wrong with it.
        why: String,
    },
    /// The operating system refused.
    #[error("{path}: {source}")]
    Io {
        /// The socket, folder or file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
}

impl ControlError {
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> ControlError {
        let path = path.into();
        move |source| ControlError::Io { path, source }
    }
}
