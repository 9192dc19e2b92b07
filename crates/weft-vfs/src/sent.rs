//! What was written here and is at its source, while somebody still has the file open. It is shown to whoever opens the file,
//! as long as the source has no other version: then it is an older version like any other, which those keep who have it open,
//! and others see the newest.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use weft_remote::{Call, Checked, Version};

use crate::draft::Draft;
use crate::handle::Held;
use crate::inode::Inode;
use crate::learn::Told;
use crate::reopen::Lost;
use crate::vfs::{Vfs, is_gone};
use crate::{Result, VfsError};

impl Inode {
    /// What was written here, if all of it is at its source.
    fn sent_draft(&self) -> Option<Arc<Draft>> {
        self.draft().filter(|draft| !draft.dirty.is_unsent() && !self.is_gone())
    }
}

impl Vfs {
    /// Has what was written here and sent give way, where its source has another version by now. It stays where the source does
    /// not answer, or has the file no more; tells whether it is that.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) async fn outdate_sent(self: &Arc<Self>, call: &Call, inode: &Arc<Inode>) -> Result<bool> {
        let Some(draft) = inode.sent_draft() else { return Ok(false) };
        if self.is_sent_trusted(inode, &draft)? {
            return Ok(false);
        }
        Box::pin(self.outdate_asking(call, inode)).await
    }

    /// Whether what is trusted of a file says that it is what was written here and sent.
    pub(crate) fn is_sent_trusted(&self, inode: &Inode, draft: &Draft) -> Result<bool> {
        let is_same = || draft.dirty.version().still_holds(&inode.record.read().version);
        Ok(self.is_told_all(inode) && is_same() && !self.attributes_remaining(inode)?.is_zero())
    }

    async fn outdate_asking(self: &Arc<Self>, call: &Call, inode: &Arc<Inode>) -> Result<bool> {
        let _gate = inode.gate.lock().await;
        let Some(draft) = inode.sent_draft() else { return Ok(false) };
        match self.is_at_source(call, inode, &draft).await {
            Ok(true) => Ok(false),
            Ok(false) => self.end_outdated(inode, &draft).map(|()| false),
            Err(error) if is_gone(&error) || matches!(error, VfsError::Stale) => Ok(true),
            Err(error) => {
                inode.note_error(&error);
                Ok(false)
            }
        }
    }

    /// Whether the source has what was written here and sent, be it with other attributes: what is written here rests on that
    /// then.
    ///
    /// # Errors
    /// Whatever keeps the source from telling.
    pub(crate) async fn is_at_source_still(
        self: &Arc<Self>,
        call: &Call,
        inode: &Arc<Inode>,
        draft: &Draft,
    ) -> Result<bool> {
        let _gate = inode.gate.lock().await;
        Box::pin(self.is_at_source(call, inode, draft)).await
    }

    /// The same. The caller holds the inode's gate.
    async fn is_at_source(self: &Arc<Self>, call: &Call, inode: &Arc<Inode>, draft: &Draft) -> Result<bool> {
        let (remote, file, version) = (self.remote_of(inode)?.clone(), inode.record().file, draft.dirty.version());
        let answer = self.ask_of(call, inode, || remote.attributes(call, &file, &version)).await?;
        let told = Told::by(&answer);
        let (entry, is_same) = match answer.value {
            Checked::Unchanged => {
                // What is known may be of before that.
                if version.still_holds(&inode.record().version) {
                    self.learn_confirmed(inode, &told)?;
                }
                return Ok(true);
            }
            Checked::Touched(entry) => (*entry, true),
            Checked::Is(found) if found.entry.id != file => return Err(VfsError::Stale),
            Checked::Is(found) => {
                let is_same = version.still_holds(&told.version)
                    || Box::pin(self.has_what_was_sent(call, inode, draft, &told.version)).await?;
                (found.entry, is_same)
            }
        };
        self.learn_attributes(inode, entry.attributes, &told)?;
        if is_same {
            draft.turn_to(|dirty| dirty.rest_on(told.version))?;
        }
        Ok(is_same)
    }

    /// Has what is written here rest on the version that came of a change of attributes or names, where that has the bytes that
    /// it is written on. Somebody else may have written the file before that change: its source says. Where it does not answer,
    /// it is asked at the next use. The caller holds the inode's gate.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) async fn rest_on(self: &Arc<Self>, call: &Call, inode: &Arc<Inode>, told: &Version) -> Result<()> {
        let Some(draft) = inode.draft() else { return Ok(()) };
        if draft.dirty.version().still_holds(told) {
            return Ok(());
        }
        match Box::pin(self.is_at_source(call, inode, &draft)).await {
            Err(error @ VfsError::Store(_)) => Err(error),
            Err(error) => {
                tracing::debug!(%error, node = inode.id.0, "whether others have written it is asked at the next use");
                Ok(())
            }
            Ok(_) => Ok(()),
        }
    }

    /// Ends a draft that is all sent and of which the source has a newer version. The caller holds the inode's gate.
    fn end_outdated(&self, inode: &Arc<Inode>, draft: &Arc<Draft>) -> Result<()> {
        let (version, length) = (draft.dirty.version(), draft.dirty.length());
        // For those who have it open alone.
        let kept = self.adopted(inode, draft)?.inspect(|object| object.discard());
        let held = |generation| match &kept {
            Some(object) => (Held::Object(object.clone()), object.generation()),
            None => (Held::Lost(Lost { generation, version: version.clone(), length: Some(length) }), generation),
        };
        let mut slot = inode.draft.write();
        // Written again meanwhile, it is not all sent, and nobody has seen a newer version.
        if !slot.as_ref().is_some_and(|there| Arc::ptr_eq(there, draft)) || draft.dirty.is_unsent() {
            return Ok(());
        }
        self.give_up_content(inode.id)?;
        let mut turned = Vec::new();
        self.handles.each_of(inode, |id, handle| {
            if handle.counted() == draft.generation() && !matches!(*handle.content.lock(), Held::Through(_)) {
                let (held, generation) = held(handle.counted());
                handle.turn(&mut inode.content.lock(), held, generation);
                turned.push((id, handle.record_of((&version, length), generation)));
            }
        });
        // Before the draft is gone, by which the next daemon knows what they read.
        self.tell_handles_turned(&turned);
        {
            // Pages were written through, and read, as of what was written.
            let mut content = inode.content.lock();
            let are_of_it = content.pages_of.take() == Some(draft.generation());
            content.pages_of = kept.as_ref().filter(|_| are_of_it).map(|object| object.generation());
            content.pages_length = content.pages_of.map(|_| length);
        }
        inode.drafts_ended.fetch_add(1, Ordering::Release);
        self.drop_draft(inode.id, &mut slot);
        drop(slot);
        // Of a file that is being written none is turned.
        self.compare_reopened(inode);
        Ok(())
    }
}
