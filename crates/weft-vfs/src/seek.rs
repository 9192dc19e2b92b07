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
        // Pages that a program has written by a mapping are the kernel's alone until it syncs or closes the file, and the
        // kernel asks for holes without handing them on before (fuse_file_llseek() of fs/fuse/file.c).
        let is_written = self.handles.of(&handle.inode).iter().any(|handle| handle.writing);
        let draft = handle.draft();
        let length = draft.as_ref().map_or_else(|| self.length_of(&handle), |draft| draft.dirty.length());
        if offset >= length {
            return Ok(None);
        }
        let told = match draft {
            _ if is_written => None,
            Some(draft) => Some(seek_written(&draft.dirty, offset, what)),
            None if handle.inode.draft().is_some() => None,
            None => self.told(&call, &handle, offset, what).await,
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
            Held::Through(through) => {
                through.length().or_else(|| handle.inode.record.read().attributes.size.known()).unwrap_or(0)
            }
        }
    }
}

/// The same in what is written. What is not written here counts as data, but what lies beyond all content is a hole, and so is
/// what was punched out.
fn seek_written(dirty: &Dirty, offset: u64, what: Seek) -> Option<u64> {
    for (range, origin) in dirty.parts(offset, usize::MAX) {
        let hole = match origin {
            Origin::Zeros => Some(range.clone()),
            Origin::Written => dirty.hole(range.clone()),
            Origin::Base => None,
        };
        let found = match (what, hole) {
            (Seek::Hole, hole) => hole.map(|hole| hole.start),
            (Seek::Data, Some(hole)) if hole.start <= range.start => Some(hole.end).filter(|end| *end < range.end),
            (Seek::Data, _) => Some(range.start),
        };
        if found.is_some() {
            return found;
        }
    }
    (what == Seek::Hole).then(|| dirty.length())
}
