//! The lease of an answer: promised before the answer is read, looked at again when it has been.

use std::time::Instant;

use weft_remote::{Lease, clock};

use crate::identity::Key;
use crate::rows::Row;
use crate::watches::Watches;

/// What was promised before something was read.
#[derive(Debug)]
pub(crate) enum Promise {
    /// Changes of a name in a directory, or of the directory itself, will be told.
    Made {
        dir: Vec<u8>,
        /// `None` for the directory itself.
        name: Option<Vec<u8>>,
        stamp: u64,
    },
    /// Changes may go unseen.
    NotMade,
}

impl Watches {
    /// Promises to tell when a name in a directory changes: what it stands for, its content, its attributes. Nothing is
    /// promised when another directory than `key` is at that path.
    pub fn promise_name(&self, dir: &[u8], key: Key, name: &[u8]) -> Promise {
        self.make_promise(dir, key, Some(name))
    }

    /// Promises to tell when a directory changes: its listing and its times.
    pub fn promise_directory(&self, dir: &[u8], key: Key) -> Promise {
        self.make_promise(dir, key, None)
    }

    fn make_promise(&self, dir: &[u8], key: Key, name: Option<&[u8]>) -> Promise {
        match self.enter_promise(dir, key, name) {
            Some(stamp) => Promise::Made { dir: dir.to_vec(), name: name.map(<[u8]>::to_vec), stamp },
            None => Promise::NotMade,
        }
    }

    /// The lease of an answer that was read under these promises.
    pub fn lease(&self, promises: &[&Promise]) -> Lease {
        let mut made = true;
        for promise in promises {
            match promise {
                Promise::Made { dir, name, stamp } if self.stands(dir, name.as_deref(), *stamp) => {}
                Promise::Made { .. } => return Lease::Spent,
                Promise::NotMade => made = false,
            }
        }
        if made { self.long_lease() } else { self.short_lease() }
    }

    /// The lease of a listing that was read under a promise, which begins `since` then; its rows are promised with it, and held.
    pub fn lease_listing(&self, promise: &Promise, rows: &[Row], since: Instant) -> Lease {
        let Promise::Made { dir, stamp, .. } = promise else { return self.short_lease() };
        let names: Vec<&[u8]> = rows.iter().map(|row| row.entry.name.as_bytes()).collect();
        match self.promise_names(dir, *stamp, &names) {
            Some(Some(until)) => {
                self.hold_rows(dir, until, rows, since);
                Lease::UntilBroken(clock::now() + self.options.lease.saturating_sub(since.elapsed()))
            }
            Some(None) => self.short_lease(),
            None => Lease::Spent,
        }
    }

    fn long_lease(&self) -> Lease {
        Lease::UntilBroken(clock::now() + self.options.lease)
    }

    /// The lease where changes are not told.
    pub fn short_lease(&self) -> Lease {
        Lease::lasting(self.options.unwatched_lease)
    }
}
