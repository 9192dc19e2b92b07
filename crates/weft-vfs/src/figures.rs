//! Counters of what the file system did.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

macro_rules! figures {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// Counters since the daemon started.
        #[derive(Debug, Default)]
        pub(crate) struct Figures { $($(#[$doc])* pub(crate) $name: AtomicU64),+ }

        /// The counters at one moment; each counts since the daemon started.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct FiguresSnapshot { $($(#[$doc])* pub $name: u64),+ }

        impl Figures {
            pub(crate) fn snapshot(&self) -> FiguresSnapshot {
                FiguresSnapshot { $($name: self.$name.load(Ordering::Relaxed)),+ }
            }
        }
    };
}

figures! {
    /// Lookups answered from the store.
    lookups_local,
    /// Lookups that asked a remote.
    lookups_remote,
    /// Opens answered from the store.
    opens_local,
    /// Opens that asked a remote.
    opens_remote,
    /// Listings answered from the store.
    listings_local,
    /// Listings that asked a remote.
    listings_remote,
    /// Attribute checks that asked a remote.
    checks_remote,
    /// Checks that confirmed what is held.
    checks_confirmed,
    /// Checks that found another version.
    checks_changed,
    /// Bytes served to readers by the daemon (not those the kernel read itself).
    bytes_served,
    /// Bytes received from remotes.
    bytes_received,
    /// Bytes written by programs.
    bytes_written,
    /// Changes of contents sent to remotes.
    writes_sent,
    /// Ranges fetched from the middle of files.
    ranges_fetched,
    /// Files fetched or checked, and directories listed, ahead of a walk.
    prefetches,
    /// Of those, used afterwards.
    prefetches_used,
    /// Answers served although their lease had ended, since the source did not answer.
    served_stale,
    /// Files forgotten to which no name led any more.
    orphans_forgotten,
    /// Calls that failed.
    failures,
}

/// Adds one.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Adds `amount`.
pub(crate) fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}
