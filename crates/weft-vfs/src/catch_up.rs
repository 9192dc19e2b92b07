//! Open files that show the newest version, where the policy of their tree says so ([`OpenFiles::Newest`]): logs that grow
//! while somebody watches them.
//!
//! The kernel keeps no pages of them, so that each read is answered here, from one version: by then the handle is what an
//! open would get. They have one face, for nobody has an older version open for long.

use std::sync::Arc;

use weft_remote::Call;
use weft_store::Object;

use crate::handle::{Handle, Held};
use crate::inode::Inode;
use crate::notice::Notice;
use crate::policies::OpenFiles;
use crate::through::Through;
use crate::vfs::{Vfs, is_gone};
use crate::{Result, VfsError};

impl Inode {
    /// Whether who has it open goes on in the newest version.
    pub(crate) fn shows_newest(&self) -> bool {
        self.open_files == OpenFiles::Newest
    }

    /// [`crate::inode::Content::pages_for`], and of what shows the newest version none are kept.
    pub(crate) fn pages_for(&self, generation: u64, length: Option<u64>) -> (bool, bool) {
        let mut content = self.content.lock();
        if self.shows_newest() {
            content.opened(generation);
            return (false, true);
        }
        content.pages_for(generation, length)
    }
}

impl Vfs {
    /// Has an open file show what an open would get now, where that is its policy. What is gone stays as it is.
    ///
    /// # Errors
    /// As of an open: whatever keeps the source from answering, where what is held does not serve.
    pub(crate) async fn catch_up(self: &Arc<Self>, call: &Call, handle: &Handle) -> Result<()> {
        let inode = &handle.inode;
        if !inode.shows_newest() || inode.is_gone() {
            return Ok(());
        }
        self.outdate_sent(call, inode).await?;
        if self.is_caught_up(handle) {
            return Ok(());
        }
        if self.is_told_all(inode) && self.is_newest_past_store(handle)? {
            return Ok(());
        }
        let object = match self.trusted_content(call, inode)? {
            Some(object) => object,
            None => match Box::pin(self.content_asking(call, inode)).await {
                Ok(object) => object,
                // It was removed, or another file has its name: whoever has it open keeps what there is of it.
                Err(error) if is_gone(&error) || matches!(error, VfsError::Stale) => return Ok(()),
                Err(error) if error.is_full() => {
                    self.tell_unstored(inode.id, &error);
                    self.show_past_store(handle);
                    return Ok(());
                }
                Err(error) => return Err(error),
            },
        };
        self.show_newest(handle, &object);
        Ok(())
    }

    /// Has a handle show what is being written here; says whether something is.
    pub(crate) fn is_caught_up(&self, handle: &Handle) -> bool {
        // Held until the handle is counted, so that the draft does not end meanwhile.
        let slot = handle.inode.draft.read();
        let Some(draft) = &*slot else { return false };
        if draft.generation() != handle.counted() {
            let held = draft.base().map_or(Held::Empty(draft.dirty.version()), Held::Object);
            handle.turn(&mut handle.inode.content.lock(), held, draft.generation());
        }
        true
    }

    fn show_newest(&self, handle: &Handle, object: &Arc<Object>) {
        let inode = &handle.inode;
        let slot = inode.draft.read();
        if slot.is_some() || handle.counted() == object.generation() {
            return;
        }
        handle.turn_to(&mut inode.content.lock(), object);
        // What somebody has mapped is of the version before.
        self.notices.send_later(Notice::Content { node: self.namespace.shown(inode.id) }, &self.runtime);
    }

    /// Whether a handle reads past the store what is trusted to be there.
    fn is_newest_past_store(&self, handle: &Handle) -> Result<bool> {
        let version = match &*handle.content.lock() {
            Held::Through(through) => through.version(),
            Held::Object(_) | Held::Empty(_) | Held::Lost(_) => return Ok(false),
        };
        let is_it = version.still_holds(&handle.inode.record.read().version);
        Ok(is_it && !self.attributes_remaining(&handle.inode)?.is_zero())
    }

    /// Has a handle read what its source has now past the store.
    fn show_past_store(&self, handle: &Handle) {
        let inode = &handle.inode;
        let slot = inode.draft.read();
        let version = inode.record.read().version.clone();
        let is_it = |through: &Through| through.version().still_holds(&version);
        if slot.is_some() || matches!(&*handle.content.lock(), Held::Through(through) if is_it(through)) {
            return;
        }
        let through = Arc::new(Through::of_version(version, None, self));
        handle.turn_past_store(&mut inode.content.lock(), through);
        self.notices.send_later(Notice::Content { node: self.namespace.shown(inode.id) }, &self.runtime);
    }
}
