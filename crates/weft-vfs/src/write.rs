//! Writing open files.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use weft_remote::{Call, FileKind};
use weft_store::NodeId;

use crate::ask::{Allocate, Write};
use crate::figures::add;
use crate::handle::{Handle, HandleId};
use crate::inode::Inode;
use crate::notice::Notice;
use crate::vfs::Vfs;
use crate::{Result, VfsError};

impl Vfs {
    /// Writes bytes of an open file and returns how many.
    ///
    /// # Errors
    /// `BadHandle` when it is not open for writing, `Changed` when the file changed at its source since it was opened,
    /// and `Store` with `Full` when there is no room.
    pub async fn write(self: Arc<Self>, call: Call, handle: HandleId, write: Write) -> Result<usize> {
        let Write { offset, bytes, kill_suidgid, unseen, appends } = write;
        let handle = self.handle_to_write(handle)?;
        self.catch_up(&call, &handle).await?;
        if kill_suidgid {
            // Who may not write does not take the bits away either.
            self.draft_of(&handle)?;
            self.drop_set_id(&call, &handle.inode).await?;
        }
        let draft = self.draft_held(&handle)?;
        if unseen {
            draft.note_unseen();
        }
        let end = draft.dirty.length();
        let is_misplaced = appends && offset != end && handle.inode.told_length.is_amiss();
        draft.dirty.write(if is_misplaced { end } else { offset }, &bytes)?;
        if is_misplaced {
            self.tell_misplaced(&handle);
        }
        draft.touch();
        add(&self.figures.bytes_written, bytes.len() as u64);
        Ok(bytes.len())
    }

    /// The kernel takes what was appended to be elsewhere, also where it keeps pages of that.
    fn tell_misplaced(&self, handle: &Handle) {
        let node = handle.face().unwrap_or_else(|| self.namespace.shown(handle.inode.id));
        self.notices.send(Notice::Attributes { node });
        if !handle.bypass_pages.load(Ordering::Relaxed) {
            self.notices.send_later(Notice::Content { node }, &self.runtime);
        }
    }

    /// fallocate(2).
    ///
    /// # Errors
    /// As of [`Vfs::write`].
    pub async fn allocate(
        self: Arc<Self>,
        call: Call,
        handle: HandleId,
        offset: u64,
        length: u64,
        how: Allocate,
    ) -> Result<()> {
        let handle = self.handle_to_write(handle)?;
        self.catch_up(&call, &handle).await?;
        self.draft_of(&handle)?;
        // Of this the kernel does not say who may keep them: root may (CAP_FSETID).
        if call.caller.uid != 0 {
            self.drop_set_id(&call, &handle.inode).await?;
        }
        let draft = self.draft_held(&handle)?;
        let end = offset.saturating_add(length);
        let grows = matches!(how, Allocate::Extend | Allocate::Zero) && end > draft.dirty.length();
        match how {
            Allocate::Extend | Allocate::Reserve => draft.dirty.reserve(length)?,
            Allocate::Punch | Allocate::Zero | Allocate::ZeroWithin => draft.dirty.clear(offset..end)?,
        }
        if grows {
            draft.dirty.resize(end)?;
        }
        draft.touch();
        Ok(())
    }

    fn handle_to_write(&self, handle: HandleId) -> Result<Arc<Handle>> {
        self.handle(handle).and_then(|handle| handle.writing.then_some(handle).ok_or(VfsError::BadHandle))
    }

    /// Who writes a file that runs with its owner's rights may not keep it so: the bits go, as write(2) has it.
    pub(crate) async fn drop_set_id(self: &Arc<Self>, call: &Call, inode: &Arc<Inode>) -> Result<()> {
        self.hear_of_mode(call, inode).await?;
        if inode.mode_to_drop_to().is_none() {
            return Ok(());
        }
        let _gate = inode.gate.lock().await;
        let Some(mode) = inode.mode_to_drop_to() else { return Ok(()) };
        let new = weft_remote::NewAttributes { mode: Some(mode), ..Default::default() };
        self.set_attributes(call, inode, new).await?;
        // Of a write the kernel expects nothing but another length and times.
        self.notices.send_later(Notice::Attributes { node: self.namespace.shown(inode.id) }, &self.runtime);
        Ok(())
    }

    /// Has what is known of a file's mode be what its source has told, where it tells of changes: what is set by a mode that
    /// somebody has changed there since would undo that. Where it cannot be asked, that is found out by what follows.
    pub(crate) async fn hear_of_mode(self: &Arc<Self>, call: &Call, inode: &Arc<Inode>) -> Result<()> {
        let is_told = self.is_told_all(inode);
        let is_known = !self.is_breakable(inode.record.read().binding) || !self.attributes_remaining(inode)?.is_zero();
        if !(is_told && is_known)
            && let Err(error) = self.stat_node(call, self.namespace.shown(inode.id)).await
        {
            tracing::debug!(%error, "the mode of a file that is written is not known for sure");
        }
        Ok(())
    }

    /// Has the names of a directory durable at the source.
    ///
    /// # Errors
    /// What the remote says.
    pub async fn sync_directory(self: Arc<Self>, call: Call, node: NodeId) -> Result<()> {
        if self.namespace.is_own(node) {
            return Ok(());
        }
        let inode = self.inode(node)?;
        self.sync_source(&call, &inode).await
    }
}

impl Inode {
    /// The mode of a file without the bits that give rights away, if it has such.
    pub(crate) fn mode_to_drop_to(&self) -> Option<u16> {
        let attributes = self.record.read().attributes;
        let mode = attributes.mode.filter(|_| attributes.kind == FileKind::File)?;
        Some(without_set_id(mode)).filter(|kept| *kept != mode)
    }
}

/// A mode without the bits that give rights away: set-user-id, and set-group-id where the group may execute it.
fn without_set_id(mode: u16) -> u16 {
    let group = if mode & 0o010 != 0 { 0o2000 } else { 0 };
    mode & !(0o4000 | group)
}
