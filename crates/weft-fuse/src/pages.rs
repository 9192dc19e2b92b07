//! Small files' content, given to the kernel with the answer to the open that it will be read through.
//!
//! A read of a small file costs more for being asked than for its bytes. The kernel takes pages that it has not asked
//! for (`FUSE_NOTIFY_STORE`), but the write waits while one of them is locked by a read that this daemon has yet to
//! answer. So fewer threads do this at a time than read requests: one is always left to answer that read.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use weft_fusedev::{Notifier, Told};
use weft_vfs::NodeId;

/// Gives pages to the kernel.
pub(crate) struct Pages {
    notifier: Notifier,
    under_way: AtomicUsize,
    /// Threads that may do it at a time.
    at_a_time: usize,
}

impl Pages {
    /// For a connection whose requests are read by `threads` threads, any of which may read any request.
    pub(crate) fn new(notifier: Notifier, threads: usize) -> Pages {
        Pages { notifier, under_way: AtomicUsize::new(0), at_a_time: threads.saturating_sub(1) }
    }

    /// Gives the whole content of a file, unless others are at it; says whether the kernel has it now.
    pub(crate) fn give(&self, node: NodeId, content: impl FnOnce() -> Option<Bytes>) -> bool {
        let begun = self.under_way.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |under_way| {
            (under_way < self.at_a_time).then_some(under_way + 1)
        });
        if begun.is_err() {
            return false;
        }
        let told = content().map(|bytes| self.notifier.store(node.0, 0, &bytes));
        self.under_way.fetch_sub(1, Ordering::SeqCst);
        matches!(told, Some(Ok(Told::Done)))
    }
}
