//! Dropping content from the cache, never from a remote.

use weft_remote::{FileKind, Name};
use weft_store::{NodeId, Record};

use crate::notice::Notice;
use crate::vfs::Vfs;
use crate::{Result, VfsError};

/// What a removal from the cache freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Files whose content was dropped.
    pub files: u64,
    /// Bytes freed.
    pub bytes: u64,
}

/// What a removal does to pinned content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfPinned {
    /// It stays.
    Stays,
    /// It is dropped like any other.
    Goes,
}

impl Vfs {
    /// Drops a file's content from the cache, or that of everything below a directory, but of what is being written. The names
    /// stay known. `uid` must own what it drops, or be root.
    ///
    /// # Errors
    /// `NotFound`; `IsADirectory` when a directory is given without `recursive`; `Denied` when somebody else's read
    /// brought the content here, `Pinned` when there is pinned content that stays (the rest may have been dropped by
    /// then).
    pub fn remove(&self, path: &[Name], recursive: bool, of_pinned: OfPinned, uid: u32) -> Result<Removed> {
        let node = self.namespace.real(self.find(path)?);
        let mut removed = Removed::default();
        let (mut denied, mut pinned) = (false, false);
        let mut waiting = vec![node];
        while let Some(node) = waiting.pop() {
            let is_directory = node == NodeId::ROOT
                || self.store.node(node)?.is_some_and(|n| n.attributes.kind == FileKind::Directory);
            if is_directory {
                if !recursive {
                    return Err(VfsError::IsADirectory);
                }
                waiting.extend(self.children(node)?);
                self.forget_listing(node)?;
                continue;
            }
            let Some(owner_uid) = self.owner_of_content(node)? else { continue };
            if uid != 0 && owner_uid != uid {
                denied = true;
                continue;
            }
            if of_pinned == OfPinned::Stays && self.is_pinned(node)? {
                pinned = true;
                continue;
            }
            if self.is_being_written(node) {
                continue;
            }
            removed.files += 1;
            removed.bytes += self.drop_content(node)?;
        }
        match (denied, pinned) {
            (true, _) => Err(VfsError::Denied),
            (false, true) => Err(VfsError::Pinned),
            (false, false) => Ok(removed),
        }
    }

    /// Whose read brought a file's content, or is bringing it; `None` where there is none.
    fn owner_of_content(&self, node: NodeId) -> Result<Option<u32>> {
        if let Some(record) = self.store.object_record(node)? {
            return Ok(Some(record.owner_uid));
        }
        let inode = self.inodes.get(node);
        Ok(inode.and_then(|inode| inode.content.lock().current.as_ref().map(|current| current.object.owner_uid())))
    }

    /// Whether somebody has a file open for writing, or what was written is not sent: what lies below that stays, for those who
    /// open it next read and write it together with who has it open.
    fn is_being_written(&self, node: NodeId) -> bool {
        let inode = self.inodes.get(node);
        inode.is_some_and(|inode| inode.draft().is_some() || self.is_open_for_writing(&inode))
    }

    /// Has the next use of a directory list it anew; its names stay known.
    pub(crate) fn forget_listing(&self, dir: NodeId) -> Result<()> {
        if self.store.listing(dir)?.is_some() {
            self.store.apply(vec![Record::Listing(dir, None)])?;
        }
        Ok(())
    }

    fn drop_content(&self, node: NodeId) -> Result<u64> {
        let freed = self.give_up_content(node)?;
        if let Some(inode) = self.inodes.get(node) {
            inode.content.lock().pages_of = None;
        }
        self.notices.send(Notice::Content { node: self.namespace.shown(node) });
        Ok(freed)
    }
}
