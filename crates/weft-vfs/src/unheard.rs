//! Changes of names that were made, and of which the kernel has not heard yet.
//!
//! The kernel sees for itself what it had changed, when it is answered. A request that is ended before (its program was
//! killed) is answered EINTR, and the kernel keeps what it knew: of a name that was made, or moved there, that there is none
//! (`create_new_entry` and `fuse_rename_common` of Linux's fs/fuse/dir.c; observed with 6.18).

use std::sync::Arc;

use weft_remote::Name;
use weft_store::NodeId;

use crate::inode::Inode;
use crate::notice::Notice;
use crate::vfs::Vfs;

/// The names of one change. Unless the kernel has heard, it is told to look them up again when this goes.
pub(crate) struct Unheard {
    vfs: Arc<Vfs>,
    names: Vec<(NodeId, Name)>,
}

impl Unheard {
    /// The kernel hears now.
    pub(crate) fn heard(mut self) {
        self.names.clear();
    }
}

impl Drop for Unheard {
    fn drop(&mut self) {
        for (dir, name) in self.names.drain(..) {
            let notice = Notice::Expired { parent: self.vfs.namespace.shown(dir), name };
            self.vfs.notices.send_later(notice, &self.vfs.runtime);
        }
    }
}

impl Vfs {
    /// Names that have been made, moved or taken away just now.
    pub(crate) fn unheard(self: &Arc<Self>, names: &[(&Inode, &Name)]) -> Unheard {
        let names = names.iter().map(|(dir, name)| (dir.id, (*name).clone())).collect();
        Unheard { vfs: self.clone(), names }
    }
}
