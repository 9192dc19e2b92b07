//! Content of which the source has another version by now: it stays until that is here, all of it, or until somebody reads in
//! that, and serves while there is nobody to ask.
//!
//! Only of sources that are asked, and do not tell by themselves: theirs is what serves off the network, and nobody writes
//! over it.

use std::sync::Arc;
use std::time::SystemTime;

use weft_remote::{Call, FileKind};
use weft_store::{NodeId, Object};

use crate::figures::count;
use crate::inode::Inode;
use crate::vfs::Vfs;
use crate::{Result, VfsError};

impl Vfs {
    /// Gives up what is held of a file as what opens get, for its source has another version; where it is whole it serves until
    /// that is here. Open handles keep theirs.
    pub(crate) fn supersede_content(&self, inode: &Inode) -> Result<()> {
        let is_asked = inode.kind() == FileKind::File && !self.is_breakable(inode.record.read().binding);
        if !is_asked || !self.store.supersede(inode.id)? {
            self.give_up_content(inode.id)?;
            return Ok(());
        }
        self.let_go_of_content(inode.id);
        Ok(())
    }

    /// What an open gets where the newest version cannot be had: the one before, where there is nobody to ask and the policy
    /// lets it serve.
    ///
    /// # Errors
    /// `error`, with which the source was asked for the newest.
    pub(crate) fn superseded_content(&self, call: &Call, inode: &Arc<Inode>, error: VfsError) -> Result<Arc<Object>> {
        let nobody_answers = matches!(error, VfsError::Offline) || error.is_silence();
        let Some(object) = nobody_answers.then(|| self.superseded(inode.id)).transpose()?.flatten() else {
            return Err(error);
        };
        // Since then it is old.
        let since = inode.record.read().learnt;
        if !object.audience().includes(&call.caller) || !self.serves_after(inode, &object.lease(), since, &error) {
            return Err(error);
        }
        count(&self.figures.served_stale);
        object.touch(SystemTime::now());
        Ok(object)
    }

    /// Gives up superseded content, which takes the room of the newer; whether there was any.
    pub(crate) fn make_way(&self, node: NodeId) -> Result<bool> {
        let is_there = self.is_superseded(node)?;
        if is_there {
            self.store.remove_object(node)?;
        }
        Ok(is_there)
    }

    /// Whether superseded content is held of a node.
    pub(crate) fn is_superseded(&self, node: NodeId) -> Result<bool> {
        Ok(self.store.object_record(node)?.is_some_and(|record| record.is_superseded()))
    }

    fn superseded(&self, node: NodeId) -> Result<Option<Arc<Object>>> {
        if self.is_superseded(node)? { Ok(self.store.object(node)?) } else { Ok(None) }
    }
}
