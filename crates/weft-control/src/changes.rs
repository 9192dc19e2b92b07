//! What `weft watch` tells, line by line.

use serde::{Deserialize, Serialize};

use crate::PathBytes;

/// One line of `weft watch`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Watched {
    /// Something has changed.
    Change(Change),
    /// The reader was too slow: so many changes, of the whole mount, were dropped here.
    Lost {
        /// How many.
        lost: u64,
    },
}

/// A change that weft has found by asking.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// When it was found, in seconds since 1970, to the millisecond.
    pub at: f64,
    /// What it is about, relative to the mount's root.
    pub path: PathBytes,
    /// What has happened.
    pub change: ChangeKind,
    /// The version before, where the source gives versions; a weak one begins with `W/`.
    pub from: Option<String>,
    /// The version now.
    pub to: Option<String>,
    /// Length in bytes now, as well as it is known.
    pub size: Option<u64>,
}

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// A file has other content.
    Changed,
    /// A name is no more.
    Gone,
    /// A name is there that was not.
    New,
    /// What was a file is a directory.
    MovedToDirectory,
    /// A directory was listed for the first time, or its listing is another.
    Listed,
    /// What was stored was found damaged on this machine; it is fetched again.
    Damaged,
}

impl ChangeKind {
    /// As it is written in JSON, with spaces.
    pub fn words(self) -> &'static str {
        match self {
            ChangeKind::Changed => "changed",
            ChangeKind::Gone => "gone",
            ChangeKind::New => "new",
            ChangeKind::MovedToDirectory => "moved to directory",
            ChangeKind::Listed => "listed",
            ChangeKind::Damaged => "damaged",
        }
    }
}
