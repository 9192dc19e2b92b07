//! What becomes of what was written when nobody has the file open any more: it is the content that is held of the version
//! that the source has now.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use weft_store::{NodeId, Object, Origin, Record};

use crate::draft::Draft;
use crate::going_on::go_on;
use crate::inode::{Current, Inode};
use crate::open::AT_HAND_BYTES_MAX;
use crate::space::on_disk;
use crate::vfs::Vfs;
use crate::{Result, VfsError};

impl Vfs {
    /// The last handle of a file that was written is closed: what is left is sent, and what was written becomes what is
    /// held of the file.
    pub(crate) fn retire_later(self: &Arc<Self>, inode: &Arc<Inode>) {
        let draft = inode.draft();
        if draft.is_none() && !inode.is_gone() {
            return;
        }
        let is_short = draft.is_some_and(|draft| draft.dirty.length() <= AT_HAND_BYTES_MAX);
        let (vfs, inode) = (self.clone(), inode.clone());
        // The mount's end waits for it.
        let under_way = self.ending.body();
        let retired = async move {
            let _under_way = under_way;
            // Of a long file that takes long, and who sets its times or mode waits for the gate.
            let summed = if is_short { None } else { vfs.summed_ahead(&inode).await };
            let _gate = inode.gate.lock().await;
            let failed = || inode.draft().and_then(|draft| draft.failed()).map(|failed| failed.why);
            let before = failed();
            if let Err(error) = vfs.retire_summed(&inode, summed).await {
                vfs.tell_left_over(&error);
                if before.is_none() || before != failed() {
                    tracing::warn!(%error, node = inode.id.0, "what was written is not all put away");
                }
            }
        };
        // A short file is put away in less time than it takes to wake a thread for it.
        match is_short {
            true => go_on(&self.runtime, retired),
            false => drop(self.runtime.spawn(retired)),
        }
    }

    /// The caller holds the inode's gate.
    pub(crate) async fn retire(self: &Arc<Self>, inode: &Arc<Inode>) -> Result<()> {
        self.retire_summed(inode, None).await
    }

    /// The same, with checksums that may be of what was written.
    async fn retire_summed(self: &Arc<Self>, inode: &Arc<Inode>, summed: Option<Summed>) -> Result<()> {
        let is_closed = || inode.content.lock().is_closed();
        if !is_closed() {
            return Ok(());
        }
        if inode.is_gone() {
            self.end_draft(inode);
            self.store.remove_object(inode.id)?;
            self.store.apply(vec![Record::Node(inode.id, None)])?;
            return self.forget_what_was_of(inode.id, &inode.record());
        }
        // Pages that were mapped may have come after the last close of a descriptor.
        self.send_for_writer(inode).await?;
        let Some(draft) = inode.draft() else { return Ok(()) };
        let adopted = self.adopted(inode, &draft).inspect_err(fetched_again).ok().flatten();
        let to_come = self.to_come(inode, &draft, summed).await.inspect_err(fetched_again).ok().flatten();
        // While there is a draft, whoever opens the file opens that: what the store has is exchanged before it ends.
        match &adopted {
            Some(object) => object.commit()?,
            None if to_come.is_some() => {}
            None => self.drop_former(inode)?,
        }
        let mut slot = inode.draft.write();
        // Who opens it meanwhile takes the lock after this, or was here before.
        if !is_closed() || draft.dirty.is_unsent() {
            return Ok(());
        }
        let adopted = match to_come {
            // The draft ends in any case: what was handed on is no draft's any more, and all is at the source.
            Some((object, sums)) => {
                self.taken_over(inode, &draft, object, &sums).inspect_err(fetched_again).ok().flatten()
            }
            None => adopted,
        };
        {
            let mut content = inode.content.lock();
            // The kernel's pages are of what was written, for they were written through them. One that was not written
            // whole it reads all the same: a short file's is given to it with the next open.
            let length = draft.dirty.length();
            let whole = length.is_multiple_of(PAGE_BYTES) || length > AT_HAND_BYTES_MAX;
            let pages = content.pages_of.take() == Some(draft.generation()) && whole;
            content.pages_of = adopted.as_ref().filter(|_| pages).map(|object| object.generation());
            let (lease, checked) = inode.known_of(&draft.dirty.version());
            content.current = adopted.map(|object| Current { object, lease, checked });
        }
        inode.drafts_ended.fetch_add(1, Ordering::Release);
        self.drop_draft(inode.id, &mut slot);
        Ok(())
    }

    /// The checksums of what was written to a long file, before anybody has to wait for them; `None` where they are not of
    /// use, or could not be made.
    async fn summed_ahead(self: &Arc<Self>, inode: &Arc<Inode>) -> Option<Summed> {
        let draft = inode.draft().filter(|draft| may_be_taken_over(draft) && !draft.dirty.is_unsent())?;
        summed(inode, &draft).await.inspect_err(fetched_again).ok().flatten()
    }

    /// The object that is to take over what was written to a long file, with the checksums of its pieces; `None` when it may
    /// not stay, or somebody opens the file meanwhile.
    async fn to_come(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        draft: &Arc<Draft>,
        ahead: Option<Summed>,
    ) -> Result<Option<(Arc<Object>, Vec<u64>)>> {
        if !may_be_taken_over(draft) {
            return Ok(None);
        }
        let summed = match ahead.filter(|ahead| ahead.is_of(draft)) {
            Some(ahead) => Some(ahead),
            None => summed(inode, draft).await?,
        };
        let Some(Summed { sums, .. }) = summed else { return Ok(None) };
        let length = draft.dirty.length();
        let object = self.content_to_come(inode, draft.dirty.version(), length)?;
        let vfs = self.clone();
        aside(move || vfs.make_room(&object, on_disk(length)).map(|()| Some((object, sums)))).await
    }

    /// What was written, as the file's content from now on, without a copy; `None` when it has to be fetched again. The
    /// draft's slot is held, and nobody has the file open.
    fn taken_over(
        &self,
        inode: &Inode,
        draft: &Draft,
        object: Arc<Object>,
        sums: &[u64],
    ) -> Result<Option<Arc<Object>>> {
        let take = || Ok(object.take_over(&draft.dirty, sums)? && object.commit().map(|()| true)?);
        if take().inspect_err(fetched_again).unwrap_or(false) {
            return Ok(Some(object));
        }
        self.drop_former(inode).map(|()| None)
    }

    /// What is held of a file is of before what was written to it.
    fn drop_former(&self, inode: &Inode) -> Result<()> {
        let former = inode.content.lock().current.take();
        former.inspect(|former| former.object.discard());
        self.store.remove_object(inode.id)?;
        Ok(())
    }

    /// What was written, as the content of the version that the source has now; `None` when that takes more than it is
    /// worth.
    pub(crate) fn adopted(&self, inode: &Inode, draft: &Draft) -> Result<Option<Arc<Object>>> {
        let length = draft.dirty.length();
        let base = draft.base();
        let whole = !draft.dirty.needs_base() || base.as_ref().is_some_and(|base| base.is_complete());
        if !whole || length > ADOPTED_BYTES_MAX || draft.dirty.is_unsent() || draft.dirty.was_filled() {
            return Ok(None);
        }
        let version = draft.dirty.version();
        let (lease, checked) = inode.known_of(&version);
        let object = self.new_content(inode, version, length, lease, checked)?;
        let mut writer = object.writer(0)?;
        while writer.position() < length {
            let size = (length - writer.position()).min(ADOPTED_AT_ONCE) as usize;
            let parts = draft.dirty.parts(writer.position(), size);
            if parts.is_empty() {
                // Somebody has opened it again and cut it.
                return Ok(None);
            }
            for (range, origin) in parts {
                let size = (range.end - range.start) as usize;
                let bytes = match (origin, &base) {
                    (Origin::Written, _) => draft.dirty.read(range.start, size)?,
                    (Origin::Base, Some(base)) => base.read(range.start, size)?,
                    _ => vec![0; size].into(),
                };
                if bytes.len() < size {
                    return Ok(None);
                }
                writer.append(&bytes)?;
            }
        }
        writer.finish()?;
        Ok(Some(object))
    }

    pub(crate) fn end_draft(&self, inode: &Inode) {
        self.drop_draft(inode.id, &mut inode.draft.write());
    }

    /// Nothing of a draft is wanted any more. Its slot is held: the next one begins with the same names on the disk, and
    /// the same line in the table.
    pub(crate) fn drop_draft(&self, node: NodeId, slot: &mut Option<Arc<Draft>>) {
        if let Some(draft) = slot.take() {
            // All of it went through the kernel.
            if let Some(inode) = self.inodes.peek(node) {
                inode.told_length.note_written(draft.dirty.length(), self.is_open_to_be_written(&inode));
            }
            draft.dirty.discard();
        }
        self.drafts.lock().remove(&node);
    }
}

/// Checksums of what was written to a file.
struct Summed {
    draft: Arc<Draft>,
    /// After how many changes of it.
    changes: u64,
    /// Of the pieces, in order.
    sums: Vec<u64>,
}

impl Summed {
    fn is_of(&self, draft: &Arc<Draft>) -> bool {
        Arc::ptr_eq(&self.draft, draft) && self.changes == draft.dirty.changes()
    }
}

/// Whether what was written is long and whole, so that it may become what is held of the file without a copy.
fn may_be_taken_over(draft: &Draft) -> bool {
    let is_whole = !draft.dirty.needs_base() && !draft.dirty.was_filled();
    is_whole && (ADOPTED_BYTES_MAX + 1..=TAKEN_OVER_BYTES_MAX).contains(&draft.dirty.length())
}

/// The checksums of a draft as it is now; `None` when somebody opens the file meanwhile, or removes it.
async fn summed(inode: &Arc<Inode>, draft: &Arc<Draft>) -> Result<Option<Summed>> {
    let (inode, draft) = (inode.clone(), draft.clone());
    aside(move || {
        let changes = draft.dirty.changes();
        let sums = draft.dirty.sums(|| inode.content.lock().is_closed() && !inode.is_gone())?;
        Ok(sums.map(|sums| Summed { draft, changes, sums }))
    })
    .await
}

/// What waits for a disk, on a thread of its own.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

fn fetched_again(error: &VfsError) {
    tracing::debug!(%error, "what was written is fetched again when it is read");
}

/// Longest file that is copied as it was written, so that the draft's files serve the next; a longer one's bytes are taken
/// over.
const ADOPTED_BYTES_MAX: u64 = 16 << 20;
/// Longest file whose bytes are taken over, for they are all read once; a longer one is fetched again when it is read.
const TAKEN_OVER_BYTES_MAX: u64 = 4 << 30;
/// Bytes copied at once.
const ADOPTED_AT_ONCE: u64 = 1 << 20;
/// A page of the kernel.
const PAGE_BYTES: u64 = 4096;
