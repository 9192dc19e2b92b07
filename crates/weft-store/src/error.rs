//! What can go wrong in the store.

use std::io;
use std::path::{Path, PathBuf};

/// Why the store could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk (or a quota on it) is full: nothing was stored.
    #[error("{path}: no space left for cached content; free some or remove some with `weft rm -w`")]
    Full {
        /// The file that could not grow.
        path: PathBuf,
    },
    /// What was read back is not what was written; the object has been given up and can be fetched again.
    #[error("{path}: the stored copy is damaged at byte {offset} and was given up")]
    Damaged {
        /// The damaged file.
        path: PathBuf,
        /// Start of the damaged piece.
        offset: u64,
    },
    /// The bytes asked for are not held.
    #[error("bytes from {offset} on are not held")]
    Missing {
        /// First byte that is not held.
        offset: u64,
    },
    /// More or fewer bytes came than the object has.
    #[error("an object of {expected} bytes was given {given}")]
    WrongLength {
        /// Announced length.
        expected: u64,
        /// What came.
        given: u64,
    },
    /// Another daemon uses this cache directory.
    #[error("{path}: in use by another weft; give this mount a cache of its own with --cache")]
    InUse {
        /// The cache directory.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The database refused.
    #[error("the index of the cache cannot be used: {0}")]
    Index(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl StoreError {
    /// What the system said about a file, in the words of the store.
    pub(crate) fn from_io(path: &Path, source: io::Error) -> StoreError {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::Full { path: path.into() },
            _ => StoreError::Io { path: path.into(), source },
        }
    }

    /// Whether asking again later may help.
    pub fn may_pass(&self) -> bool {
        match self {
            StoreError::Full { .. }
            | StoreError::Damaged { .. }
            | StoreError::Missing { .. }
            | StoreError::InUse { .. }
            | StoreError::Io { .. }
            | StoreError::Index(_) => true,
            StoreError::WrongLength { .. } => false,
        }
    }
}
