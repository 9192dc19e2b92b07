//! Holes of open files.
//!
//! A hole is told only where it is certain: by what is held, if that is all of the file and compared, or by the source, of the version
//! that is open. Everywhere else all is data up to the end, which is never wrong.

use std::sync::Arc;

use weft_remote::{Call, RemoteError, Seek, Version};
use weft_store::{Dirty, Origin};

use crate::handle::{Handle, HandleId, Held};
use crate::vfs::Vfs;
use crate::{Result, VfsError};

impl Vfs {
    /// Where data or a hole begins at or after `offset`; `None` past the end of the file.
    ///
    /// # Errors
    /// `BadHandle`; `Changed` when the handle's version is over.
    pub async fn seek(self: Arc<Self>, call: Call, handle: HandleId, offset: u64, what: Seek) -> Result<Option<u64>> {
        let handle = self.handle(handle)?;
        if handle.is_over() {
            self.go_on(&call, &handle).await?;
        }
        if let Some(draft) = handle.draft() {
            return Ok(seek_written(&draft.dirty, offset, what));
        }
        let length = self.length_of(&handle);
        if offset >= length {
            return Ok(None);
        }
        // Of what is being written here there may be pages that only the kernel has.
        let is_written = self.handles.of(&handle.inode).iter().any(|handle| handle.writing);
        let told = if is_written || handle.inode.draft().is_some() {
            None
        } else {
            self.told(&call, &handle, offset, what).await
        };
        Ok(match (told, what) {
            (Some(told), _) => told.filter(|place| (offset..=length).contains(place)),
            (None, Seek::Data) => Some(offset),
            (None, Seek::Hole) => Some(length),
        })
    }

    /// What the store, or else the source, says; `None` when neither does.
    async fn told(&self, call: &Call, handle: &Handle, offset: u64, what: Seek) -> Option<Option<u64>> {
        let held = handle.content.lock().clone();
        let version = match held {
            Held::Object(object) => match object.seek(offset, what) {
                Ok(told) => return Some(told),
                Err(_) => object.version().clone(),
            },
            Held::Through(through) => through.version(),
            Held::Empty(_) | Held::Lost(_) => return None,
        };
        if version == Version::None {
            return None;
        }
        let (remote, file) = (self.remote_of(&handle.inode).ok()?, handle.inode.record.read().file.clone());
        match self.ask_for(call, remote.seek(call, &file, &version, offset, what)).await {
            Ok(told) => Some(told),
            Err(VfsError::Remote(RemoteError::Unsupported { .. })) => None,
            Err(error) => {
                tracing::debug!(%error, "all of it is taken for data");
                None
            }
        }
    }

    fn length_of(&self, handle: &Handle) -> u64 {
        match &*handle.content.lock() {
            Held::Object(object) => object.length().unwrap_or(0),
            Held::Lost(lost) => lost.length.unwrap_or(0),
            Held::Empty(_) => 0,
            Held::Through(_) => handle.inode.record.read().attributes.size.known().unwrap_or(0),
        }
    }
}

/// The same in what is written. What is not written here counts as data, but what lies beyond all content is a hole.
fn seek_written(dirty: &Dirty, offset: u64, what: Seek) -> Option<u64> {
    let parts = dirty.parts(offset, usize::MAX);
    if parts.is_empty() {
        return None;
    }
    let wanted = |origin: Origin| (origin == Origin::Zeros) == (what == Seek::Hole);
    let found = parts.into_iter().find(|(_, origin)| wanted(*origin)).map(|(range, _)| range.start);
    found.or((what == Seek::Hole).then(|| dirty.length()))
}
