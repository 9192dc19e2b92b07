//! Small files' content, given to the kernel with the answer to the open that it will be read through.
//!
//! A read of a small file costs more for being asked than for its bytes. The kernel takes pages that it has not asked
//! for (`FUSE_NOTIFY_STORE`), but waits while one of them is locked by a read that is yet to be answered; a daemon that
//! is killed then cannot even die. So pages are given only while there can be no such read: the file has no other
//! handle, for a release comes after the reads of its handle, and who opens it meanwhile is answered afterwards.

use bytes::Bytes;
use parking_lot::Mutex;
use weft_fusedev::{Notifier, Told};
use weft_vfs::NodeId;

/// Gives pages to the kernel.
pub(crate) struct Pages {
    notifier: Notifier,
    /// By the last bits of the inode. Held while pages go to the kernel, which never waits for this process meanwhile.
    gates: [Mutex<()>; GATES],
}

impl Pages {
    pub(crate) fn new(notifier: Notifier) -> Pages {
        Pages { notifier, gates: [const { Mutex::new(()) }; GATES] }
    }

    /// Gives the content of a file; says whether the kernel has it now. `content` is asked when nobody else is
    /// answered, and says nothing where the file has another handle.
    pub(crate) fn give(&self, node: NodeId, content: impl FnOnce() -> Option<Bytes>) -> bool {
        let _gate = self.gate(node).lock();
        let told = content().map(|bytes| self.notifier.store(node.0, 0, &bytes));
        matches!(told, Some(Ok(Told::Done)))
    }

    /// Waits until nobody gives pages of a file: before an open of it is answered whose reads would need them.
    pub(crate) fn settle(&self, node: NodeId) {
        drop(self.gate(node).lock());
    }

    fn gate(&self, node: NodeId) -> &Mutex<()> {
        &self.gates[node.0 as usize % GATES]
    }
}

/// Files whose pages can be given at once.
const GATES: usize = 64;
