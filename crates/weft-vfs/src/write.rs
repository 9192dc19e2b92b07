//! Writing open files.

use std::sync::Arc;

use weft_remote::{Call, FileKind};
use weft_store::{NodeId, Origin};

use crate::ask::{Allocate, Seek, Write};
use crate::figures::add;
use crate::handle::{Handle, HandleId};
use crate::inode::Inode;
use crate::vfs::Vfs;
use crate::{Result, VfsError};

impl Vfs {
    /// Writes bytes of an open file and returns how many.
    ///
    /// # Errors
    /// `BadHandle` when it is not open for writing, `Changed` when the file changed at its source since it was opened,
    /// and `Store` with `Full` when there is no room.
    pub async fn write(self: Arc<Self>, call: Call, handle: HandleId, write: Write) -> Result<usize> {
        let Write { offset, bytes, kill_suidgid, unseen } = write;
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
        draft.dirty.write(offset, &bytes)?;
        draft.touch();
        add(&self.figures.bytes_written, bytes.len() as u64);
        Ok(bytes.len())
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
        self.drop_set_id(&call, &handle.inode).await?;
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

    /// Where data or a hole begins at or after `offset`; `None` past the end of the file. What is not written here
    /// counts as data, but what lies beyond all content is a hole.
    ///
    /// # Errors
    /// `BadHandle`.
    pub fn seek(&self, handle: HandleId, offset: u64, what: Seek) -> Result<Option<u64>> {
        let handle = self.handle(handle)?;
        if handle.is_over() {
            return Err(VfsError::Changed);
        }
        let Some(draft) = handle.draft() else {
            let length = self.length_of(&handle);
            return Ok(match what {
                Seek::Data => Some(offset).filter(|offset| *offset < length),
                Seek::Hole => Some(length).filter(|length| offset < *length),
            });
        };
        let parts = draft.dirty.parts(offset, usize::MAX);
        if parts.is_empty() {
            return Ok(None);
        }
        let wanted = |origin: Origin| (origin == Origin::Zeros) == (what == Seek::Hole);
        let found = parts.into_iter().find(|(_, origin)| wanted(*origin)).map(|(range, _)| range.start);
        Ok(found.or((what == Seek::Hole).then(|| draft.dirty.length())))
    }

    fn length_of(&self, handle: &Handle) -> u64 {
        use crate::handle::Held;
        match &*handle.content.lock() {
            Held::Object(object) => object.length().unwrap_or(0),
            Held::Lost(lost) => lost.length.unwrap_or(0),
            Held::Empty(_) => 0,
            Held::Through(_) => handle.inode.record.read().attributes.size.known().unwrap_or(0),
        }
    }

    fn handle_to_write(&self, handle: HandleId) -> Result<Arc<Handle>> {
        self.handle(handle).and_then(|handle| handle.writing.then_some(handle).ok_or(VfsError::BadHandle))
    }

    /// Who writes a file that runs with its owner's rights may not keep it so: the bits go, as write(2) has it.
    pub(crate) async fn drop_set_id(self: &Arc<Self>, call: &Call, inode: &Arc<Inode>) -> Result<()> {
        let (kind, mode) = {
            let attributes = &inode.record.read().attributes;
            (attributes.kind, attributes.mode.unwrap_or(0))
        };
        let kept = without_set_id(mode);
        if kind != FileKind::File || kept == mode {
            return Ok(());
        }
        let new = weft_remote::NewAttributes { mode: Some(kept), ..Default::default() };
        let _gate = inode.gate.lock().await;
        self.set_attributes(call, inode, new).await
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

/// A mode without the bits that give rights away: set-user-id, and set-group-id where the group may execute it.
pub(crate) fn without_set_id(mode: u16) -> u16 {
    let group = if mode & 0o010 != 0 { 0o2000 } else { 0 };
    mode & !(0o4000 | group)
}
