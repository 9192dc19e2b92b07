//! What the modes of files allow where the kernel does not look at them.
//!
//! A kernel that checks modes lets nobody but the owner set the mode or the times of a file. Where a source knows its users by
//! itself, and every file is shown as that of whoever mounted, nobody else could unpack an archive there. In a mount of such a
//! source alone the kernel leaves all to the source, and what modes say of reading, writing and running is looked at here. They
//! are the same for everybody there.

use weft_remote::{Caller, FileKind};
use weft_store::NodeId;

use crate::vfs::Vfs;

impl Vfs {
    /// Whether the mode of a file allows a caller all of `wanted`, in the bits of access(2). Directories allow everything, and so
    /// does what is not known: whoever uses it hears more.
    pub fn modes_allow(&self, caller: Caller, node: NodeId, wanted: u32) -> bool {
        let Ok(inode) = self.inode(node) else { return true };
        if inode.kind() == FileKind::Directory {
            return true;
        }
        let mode = inode.record.read().attributes.mode.unwrap_or(DEFAULT_MODE);
        let given = u32::from(mode | mode >> 3 | mode >> 6) & 0o7;
        // As anywhere, root needs a bit to run a file alone.
        let given = if caller.uid == 0 { given | 0o6 } else { given };
        wanted & 0o7 & !given == 0
    }
}

/// Of what has no mode at its source.
const DEFAULT_MODE: u16 = 0o444;
