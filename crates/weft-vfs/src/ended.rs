//! Open files whose version cannot be read any more.
//!
//! Where somebody has a file open for writing it keeps its face ([`crate::faces`]), and with that its one length in the
//! kernel: by that an older version of another length would be cut off, or filled up with zeros. So whoever has such a one
//! open gets errors (EIO) before the kernel is told of the newer length: it has ended. A lock has its holder go on in the
//! newest version ([`crate::lock`]).
//!
//! The kernel has pages of an older version, the last one filled up with zeros, and shows them as far as it takes the file to
//! reach. So it is told of another length when it has let them go, which may wait for reads that are under way: a look-up, under
//! which it holds the directory, is answered with the former length until then, and what has to have the newer one waits.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use weft_remote::{Figure, Version};
use weft_store::Object;

use crate::handle::Handle;
use crate::inode::{Content, Inode};
use crate::notice::Notice;
use crate::vfs::Vfs;

/// That an older version of a file has ended, and is open still.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    /// The length in bytes that the kernel is told until it has let its pages go.
    pub(crate) shown: Option<u64>,
}

impl Vfs {
    /// Ends those of another length than the file has from now on, for the kernel takes it to be as long as it was; whether
    /// there are any. The lock of the inode's content is held.
    pub(crate) fn end_other_lengths(
        &self,
        inode: &Inode,
        content: &mut Content,
        handles: &[Arc<Handle>],
        (was, size): (Figure<u64>, Figure<u64>),
    ) -> bool {
        let has_ended = end(inode, handles, |handle| handle.is_of_another_length(size));
        if has_ended {
            let shown = content.ended.and_then(|ended| ended.shown).or(was.exact());
            content.ended = Some(Ended { shown });
        }
        has_ended
    }

    /// Ends those of another version than what is about to be opened, where somebody has the file open for writing; whether there
    /// are any. What is opened is read past the kernel's pages then, but what is copied or sent within the kernel is not
    /// (fuse_splice_read() of Linux fs/fuse/file.c): who reads an older version would put that there.
    pub(crate) fn end_beside(
        &self,
        inode: &Inode,
        content: &mut Content,
        handles: &[Arc<Handle>],
        object: &Object,
    ) -> bool {
        let is_written = handles.iter().any(|handle| handle.writing);
        let has_ended = is_written && end(inode, handles, |handle| handle.is_of_another_version(object.version()));
        if has_ended {
            content.ended.get_or_insert(Ended { shown: None });
        }
        has_ended
    }

    /// Has the kernel let go what it has of an older version that has ended, before it is told of the newer length.
    pub(crate) async fn let_ended_go(&self, inode: &Inode) {
        if inode.content.lock().ended.is_none_or(|ended| ended.shown.is_none()) || self.is_relied_on(inode) {
            return;
        }
        self.notices.tell(vec![Notice::Content { node: self.namespace.shown(inode.id) }]).await;
        if let Some(ended) = &mut inode.content.lock().ended {
            ended.shown = None;
        }
    }

    /// Ends those of another version than the one that is written over from now on, for the length is that of what is written;
    /// whether there are any. The slot of the draft is held.
    pub(crate) fn end_other_versions(&self, inode: &Inode, version: &Version, generation: u64) -> bool {
        let handles = self.handles.of(inode);
        let is_other = |handle: &Handle| handle.counted() != generation && handle.is_of_another_version(version);
        let has_ended = end(inode, &handles, is_other);
        if has_ended {
            inode.content.lock().ended.get_or_insert(Ended { shown: None });
            // Not waited for: who writes may have pages locked.
            self.notices.send_later(Notice::Content { node: self.namespace.shown(inode.id) }, &self.runtime);
        }
        has_ended
    }

    /// Tells people why who has an older version open gets errors.
    pub(crate) fn tell_ended(&self, inode: &Inode) {
        if !self.handles.of(inode).iter().any(|handle| handle.is_over()) {
            return;
        }
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
    // What is relied on ends when it is not any more (crate::by_locks).
    others.inspect(|handle| handle.over.store(!handle.relies.load(Ordering::Acquire), Ordering::Release)).count() > 0
}
