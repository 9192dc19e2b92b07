//! What a directory is bound with.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::{CutOff, MountNote};

/// What a [`Directory`](crate::Directory) is opened with.
#[derive(Clone, Debug)]
pub struct DirectoryOptions {
    /// The top: an absolute path of a directory. Links on the way to it are followed, once.
    pub path: PathBuf,
    /// Whether nothing is changed.
    pub read_only: bool,
    /// How long an answer is trusted where its directory is watched.
    pub lease: Duration,
    /// How long where it is not.
    pub unwatched_lease: Duration,
    /// Most directories watched at a time; 0 to watch none. The least recently used gives way.
    pub watches_max: usize,
    /// Most names with a lease that is broken at a time; the least recently used directory's give way.
    pub promises_max: usize,
    /// About how many names of files are remembered, to find files by their identities; what was not used for long is
    /// forgotten. Each takes about 100 bytes.
    pub places_max: usize,
    /// Most events that wait to be read; beyond them, all leases are broken in one word.
    pub events_max: usize,
    /// Where writes are noted for the daemon after this one.
    pub cut_off: Option<Arc<CutOff>>,
    /// Where it is noted for that one whether something is mounted at the top.
    pub mount_note: Option<MountNote>,
}

impl DirectoryOptions {
    /// The usual options for this path.
    pub fn new(path: impl Into<PathBuf>) -> DirectoryOptions {
        DirectoryOptions {
            path: path.into(),
            read_only: false,
            lease: Duration::from_secs(600),
            unwatched_lease: Duration::from_secs(1),
            watches_max: 65_536,
            promises_max: 1 << 20,
            places_max: 2 << 20,
            events_max: 4096,
            cut_off: None,
            mount_note: None,
        }
    }
}
