//! What `weft warm` asks for and is told.

use serde::{Deserialize, Serialize};

use crate::{Code, PathBytes};

/// What is to be fetched ahead.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmOrder {
    /// Files, and directories with what is below them, relative to the mount's root.
    pub paths: Vec<PathBytes>,
    /// Levels of directories below those; all where nothing is said.
    pub depth: Option<u32>,
    /// Globs of files that are wanted; none for all.
    pub matching: Vec<String>,
    /// Globs of files and directories that are not.
    pub excluding: Vec<String>,
    /// Most bytes.
    pub max_bytes: Option<u64>,
    /// Whether the paths are pinned as well.
    pub pin: bool,
    /// Whether it ends with the forecast.
    pub dry_run: bool,
    /// Whether it begins although it does not fit.
    pub force: bool,
    /// Whether nobody is asked for a robots.txt.
    pub ignore_robots: bool,
    /// Files and listings under way at a time.
    pub jobs: usize,
    /// Least time between two requests, in milliseconds.
    pub pause_ms: u64,
}

impl WarmOrder {
    /// Most bytes of paths that one order may have.
    pub const PATH_BYTES_MAX: usize = 64 << 20;
}

/// One line of `weft warm`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Warmed {
    /// Listing; so far.
    Walking {
        /// Directories.
        directories: u64,
        /// Files.
        files: u64,
    },
    /// Something about a source.
    Note {
        /// What.
        text: String,
    },
    /// The source's rules for such programs do not allow it.
    Forbidden {
        /// What, relative to the mount's root.
        path: PathBytes,
        /// Which rule.
        why: String,
    },
    /// It did not come.
    Failed {
        /// What, relative to the mount's root.
        path: PathBytes,
        /// Why.
        why: String,
        /// The sort of failure.
        code: Code,
        /// So many others are not tried for the same cause.
        others: u64,
    },
    /// What it would bring.
    Forecast(WarmForecast),
    /// A file is here.
    File {
        /// Which, relative to the mount's root.
        path: PathBytes,
        /// How it came.
        came: WarmCame,
        /// Bytes that came for it.
        bytes: u64,
    },
    /// How far it is.
    Progress(WarmProgress),
    /// The last line.
    Done(WarmProgress),
}

/// What is known before the first byte.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmForecast {
    /// Files in all.
    pub files: u64,
    /// Directories that were listed.
    pub directories: u64,
    /// Files that are held and used without asking.
    pub fresh: u64,
    /// Files that are held and asked about.
    pub to_check: u64,
    /// Files of which something is missing.
    pub to_fetch: u64,
    /// Bytes missing, as far as sizes are known.
    pub bytes: u64,
    /// Of those, by sizes that are only rounded.
    pub estimated_bytes: u64,
    /// Files to fetch whose sizes nobody has told.
    pub unknown: u64,
    /// Free bytes of the disk.
    pub disk_free_bytes: u64,
    /// What keeps it from fitting.
    pub misfits: Vec<String>,
}

/// How a file came to be here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WarmCame {
    /// It was here, and nobody was asked.
    Held,
    /// It was here, and its source was asked.
    Confirmed,
    /// It was fetched, or what was missing of it.
    Fetched,
}

/// How far it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmProgress {
    /// Files that are to be here.
    pub files: u64,
    /// Files that are.
    pub files_done: u64,
    /// Of those, files that were fetched.
    pub fetched: u64,
    /// Bytes that were missing, as far as known.
    pub bytes: u64,
    /// Bytes that came.
    pub bytes_done: u64,
    /// Paths that failed.
    pub failed: u64,
    /// Paths that the sources' rules do not allow.
    pub forbidden: u64,
    /// The path that was begun last.
    pub current: String,
}

/// A `weft warm` under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmStatus {
    /// The user who asked for it.
    pub uid: u32,
    /// The first path.
    pub path: String,
    /// How many others there are.
    pub others: u64,
    /// How far it is.
    pub progress: WarmProgress,
}
