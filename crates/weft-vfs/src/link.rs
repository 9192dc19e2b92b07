//! Symbolic links.

use std::sync::Arc;

use weft_remote::{Call, FileKind};
use weft_store::NodeId;

use crate::retry::{Kept, Purpose};
use crate::vfs::{Vfs, is_gone};
use crate::{Result, VfsError};

impl Vfs {
    /// What a symbolic link says. Asked each time: it is short, and nothing of it is stored.
    ///
    /// # Errors
    /// `Stale`, `Denied`, `NotFound` when the source no longer has it; whatever keeps the remote from answering.
    pub async fn read_link(self: Arc<Self>, call: Call, node: NodeId) -> Result<Vec<u8>> {
        let read = self.read_link_of(&call, node).await;
        let says = |kept| if let Kept::Link(target) = kept { Some(target) } else { None };
        self.followed(&call, &*self.inode(node)?, Purpose::Link, read, says)
    }

    pub(crate) async fn read_link_of(self: &Arc<Self>, call: &Call, node: NodeId) -> Result<Vec<u8>> {
        let inode = self.inode(node)?;
        if inode.kind() != FileKind::Symlink {
            return Err(VfsError::Stale);
        }
        self.admit(call, &inode).await?;
        let file = inode.record().file;
        let remote = self.remote_of(&inode)?.clone();
        match self.ask_of(call, &inode, || remote.read_link(call, &file)).await {
            Ok(answer) => Ok(answer.value),
            Err(error) if is_gone(&error) => Err(self.learn_gone(call, &inode).await?),
            Err(error) => Err(error),
        }
    }
}
