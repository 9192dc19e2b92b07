//! Open files whose version cannot be read any more.
//!
//! Where somebody has a file open for writing it keeps its face ([`crate::faces`]), and with that its one length in the
//! kernel: by that an older version of another length would be cut off, or filled up with zeros. So whoever has such a one
//! open gets errors (EIO) before the kernel can be told of the newer length: it has ended. A lock has its holder go on in the
//! newest version ([`crate::lock`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use weft_remote::{Figure, Version};

use crate::handle::{Handle, Held};
use crate::inode::Inode;
use crate::vfs::Vfs;

impl Vfs {
    /// Ends those of another length than the file has from now on; whether there are any. The lock of the inode's content is
    /// held.
    pub(crate) fn end_other_lengths(&self, inode: &Inode, handles: &[Arc<Handle>], size: Figure<u64>) -> bool {
        end(inode, handles, |handle| handle.is_of_another_length(size))
    }

    /// Ends those of another version than the one that is written over from now on, for the length is that of what is written;
    /// whether there are any. The slot of the draft is held.
    pub(crate) fn end_other_versions(&self, inode: &Inode, version: &Version, generation: u64) -> bool {
        let handles = self.handles.of(inode);
        let is_other = |handle: &Handle| {
            let is_of_it = match &*handle.content.lock() {
                Held::Object(object) => object.version().still_holds(version),
                Held::Lost(lost) => lost.version.still_holds(version),
                Held::Empty(empty) => empty.still_holds(version),
                Held::Through(_) => true,
            };
            !is_of_it && handle.counted() != generation
        };
        end(inode, &handles, is_other)
    }

    /// Tells people why who has an older version open gets errors.
    pub(crate) fn tell_ended(&self, inode: &Inode) {
        let text =
            "it changed at its source while it was open here for writing: an older version that is open has ended";
        self.troubles.tell(self.path_text(inode.id), text.to_owned());
    }
}

fn end(inode: &Inode, handles: &[Arc<Handle>], is_other: impl Fn(&Handle) -> bool) -> bool {
    if inode.shows_newest() || inode.is_gone() {
        return false;
    }
    // One that is being opened is opened again where that is so.
    let is_by_this_face = |handle: &Handle| handle.face().is_some() && !handle.by_former.load(Ordering::Acquire);
    let others = handles.iter().filter(|handle| is_by_this_face(handle) && !handle.is_over() && is_other(handle));
    others.inspect(|handle| handle.over.store(true, Ordering::Release)).count() > 0
}
