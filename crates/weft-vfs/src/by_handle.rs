//! What is found without a name: by the number that the kernel has put into a handle (name_to_handle_at(2), the NFS server), for
//! which it asks by the names `.` and `..` when it knows the inode no more (fuse_get_dentry() and fuse_get_parent() of Linux
//! fs/fuse/inode.c). The numbers are the store's, so a handle is good for as long as the cache knows the file, remounts included.

use std::sync::Arc;
use std::time::Duration;

use weft_remote::{Call, FileKind};
use weft_store::NodeId;

use crate::lookup::Looked;
use crate::vfs::Vfs;
use crate::{Result, VfsError};

impl Vfs {
    /// What has this number. By another face of the same file it would not be what the handle was made of.
    ///
    /// # Errors
    /// `Stale` where there is no such file any more; `Denied`; whatever keeps the remote from answering.
    pub(crate) async fn lookup_itself(self: Arc<Self>, call: Call, node: NodeId) -> Result<Looked> {
        if !self.namespace.is_own(node) {
            let inode = self.inode(node)?;
            if inode.is_gone() && self.handles.of(&inode).is_empty() {
                return Err(VfsError::Stale);
            }
        }
        let stat = self.stat(call, node, None).await?;
        if stat.node != node {
            return Err(VfsError::Stale);
        }
        Ok(Looked::Entry { stat, ttl: Duration::ZERO })
    }

    /// The directory that a directory is in.
    ///
    /// # Errors
    /// As [`Vfs::lookup_itself`]; `NotADirectory`.
    pub(crate) async fn lookup_above(self: Arc<Self>, call: Call, node: NodeId) -> Result<Looked> {
        let above = self.above(node)?;
        self.lookup_itself(call, above).await
    }

    fn above(&self, node: NodeId) -> Result<NodeId> {
        if self.namespace.is_own(node) {
            return Ok(NodeId::ROOT);
        }
        let inode = self.inode(node)?;
        if inode.kind() != FileKind::Directory {
            return Err(VfsError::NotADirectory);
        }
        let record = inode.record.read();
        match self.namespace.bound(record.binding).filter(|bound| bound.root == inode.id) {
            Some(bound) => Ok(self.namespace.own_above(bound).unwrap_or(NodeId::ROOT)),
            None => Ok(self.namespace.shown(record.parent)),
        }
    }
}
