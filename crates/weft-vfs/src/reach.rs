//! Asking for a path of which the store does not know. Some sources give a file to whoever knows its whole path and tell
//! nothing of the directories on the way: there a name that the source denies may lead on, and only the whole path says.

use std::sync::Arc;

use weft_remote::{Caller, FileKind, Name, RemoteError};
use weft_store::{NodeId, Record};

use crate::lookup::Looked;
use crate::notice::Notice;
use crate::vfs::{Vfs, is_gone};
use crate::{Result, VfsError};

impl Vfs {
    /// Asks for a path of which nothing says that it is there, or that it is not.
    ///
    /// # Errors
    /// `NotFound` when the source says that it is not there; whatever keeps the source from answering.
    pub(crate) async fn look_for(self: &Arc<Self>, path: &[Name], caller: Caller) -> Result<()> {
        let mut node = NodeId::ROOT;
        for at in 0..path.len() {
            node = self.look_for_first(node, &path[at..], caller).await?;
        }
        Ok(())
    }

    /// Finds the first of these names in a directory, so that the others can be looked for in it.
    async fn look_for_first(self: &Arc<Self>, dir: NodeId, names: &[Name], caller: Caller) -> Result<NodeId> {
        let [name, deeper @ ..] = names else { return Ok(dir) };
        let looked = self.clone().lookup(self.call(caller), dir, name.as_bytes().to_vec()).await;
        let refusal = match looked {
            Ok(Looked::Entry { stat, .. }) if deeper.is_empty() || stat.kind == FileKind::Directory => {
                return Ok(stat.node);
            }
            Ok(Looked::Entry { .. }) => VfsError::NotADirectory,
            Ok(Looked::Absent { .. }) if self.namespace.is_own(dir) => return Err(VfsError::NotFound),
            Ok(Looked::Absent { .. }) => RemoteError::NotFound { detail: "asked just now".to_owned() }.into(),
            Err(error) => error,
        };
        if deeper.is_empty() || !tells_nothing_of_more(&refusal) || !self.reach(dir, names, caller).await? {
            return Err(refusal);
        }
        match self.clone().lookup(self.call(caller), dir, name.as_bytes().to_vec()).await? {
            Looked::Entry { stat, .. } if stat.kind == FileKind::Directory => Ok(stat.node),
            Looked::Entry { .. } | Looked::Absent { .. } => Err(refusal),
        }
    }

    /// Asks the source for the whole path. Where there is something, what was known of its first name is forgotten.
    async fn reach(&self, dir: NodeId, names: &[Name], caller: Caller) -> Result<bool> {
        if self.namespace.is_own(dir) {
            return Ok(false);
        }
        let inode = self.inode(dir)?;
        let (remote, file) = (self.remote_of(&inode)?.clone(), inode.record().file);
        let call = self.call(caller);
        let reached = self.ask_for(&call, remote.reach(&call, &file, names)).await?;
        if let Some(name) = names.first().filter(|_| reached) {
            self.store.apply(vec![Record::Dentry(inode.id, name.clone(), None)])?;
            self.notices.send(Notice::Entry { parent: self.namespace.shown(inode.id), name: name.clone() });
        }
        Ok(reached)
    }
}

/// Whether an answer about a name leaves it open what is below it: the source has answered, and shows no directory.
fn tells_nothing_of_more(refusal: &VfsError) -> bool {
    is_gone(refusal)
        || matches!(
            refusal,
            VfsError::NotADirectory | VfsError::Remote(RemoteError::Denied { .. } | RemoteError::Failed { .. })
        )
}
