//! What `weft cache check` and `weft cache repair` are told.

use serde::{Deserialize, Serialize};

use crate::PathBytes;

/// One line of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Checked {
    /// How far it is.
    Progress(CheckProgress),
    /// A part of a file's content is not what was written.
    Damage {
        /// Which file, relative to the mount's root; as far as it is known.
        path: PathBytes,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
        /// In words.
        cause: String,
    },
    /// Something of a volume is not what was written.
    Volume {
        /// In words.
        cause: String,
    },
    /// The end, with everything that was found.
    Done(CheckProgress),
}

/// How far a check is, and what it has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckProgress {
    /// Contents that were looked at.
    pub files: u64,
    /// Bytes that were read and compared.
    pub bytes: u64,
    /// Of so many that are held, in whole blocks of the disk.
    pub bytes_held: u64,
    /// Contents of which something is damaged.
    pub damaged_files: u64,
    /// Bytes of the pieces that are.
    pub damaged_bytes: u64,
    /// Volumes whose own tables are.
    pub damaged_volumes: u64,
}

impl CheckProgress {
    /// Whether nothing is damaged.
    pub fn is_sound(&self) -> bool {
        self.damaged_files == 0 && self.damaged_volumes == 0
    }
}
