//! What a store can be told, and what it tells of itself.

use std::time::Duration;

use crate::journal::Journal;

/// Settings of a store.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// How long a change may wait in memory before it is made durable.
    pub flush_interval: Duration,
    /// Memory for pages of the database, in bytes.
    pub index_cache_bytes: usize,
    /// The last use of an object is made durable at most this often.
    pub use_interval: Duration,
    /// Where changes outlive a kill of the daemon until they are durable; what is found there is taken over.
    pub journal: Option<Journal>,
}

impl Default for StoreOptions {
    fn default() -> StoreOptions {
        StoreOptions {
            flush_interval: Duration::from_millis(200),
            index_cache_bytes: 8 << 20,
            use_interval: Duration::from_secs(3600),
            journal: None,
        }
    }
}

/// Figures of a store. Asking for them never waits for a disk, except for the system's own figures of the file
/// system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Bytes that the pieces of all committed objects take on disk, in whole blocks of 4 KiB.
    pub object_bytes: u64,
    /// Number of committed objects.
    pub objects: u64,
    /// Number of nodes known, as of the last flush.
    pub nodes: u64,
    /// Free bytes of the file system that the cache lies on.
    pub free_bytes: u64,
    /// All bytes of that file system.
    pub total_bytes: u64,
}
