//! Asking for a path of which the store does not know. Some sources give a file to whoever knows its whole path and tell
//! nothing of the directories on the way: there a name that the source denies may lead on, and only the whole path says.

use std::sync::Arc;

use weft_remote::{Call, Caller, FileKind, Name, RemoteError};
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

    async fn look_for_first(self: &Arc<Self>, dir: NodeId, names: &[Name], caller: Caller) -> Result<NodeId> {
        let [name, ..] = names else { return Ok(dir) };
        let looked = self.clone().lookup(self.call(caller), dir, name.as_bytes().to_vec()).await;
        if self.namespace.is_own(dir) && matches!(looked, Ok(Looked::Absent { .. })) {
            return Err(VfsError::NotFound);
        }
        match first_of(looked, names) {
            Err(refusal) if may_lead_on(&refusal, names) => {
                self.reach(dir, names, self.call(caller)).await?.ok_or(refusal)
            }
            outcome => outcome,
        }
    }

    /// Asks the source for the whole path below a directory, whose first name it has refused or does not list. Where there is
    /// something, the directory that has this name.
    ///
    /// # Errors
    /// Whatever keeps the source from answering.
    pub(crate) async fn reach(self: &Arc<Self>, dir: NodeId, names: &[Name], call: Call) -> Result<Option<NodeId>> {
        let Some(name) = names.first().filter(|_| !self.namespace.is_own(dir)) else { return Ok(None) };
        let inode = self.inode(dir)?;
        // A list that denied it may be of before: what has come since is found as anything is, and goes as that.
        if names.len() > 1
            && let Ok(node) = first_of(self.lookup_asking(&call, &inode, name).await, names)
        {
            return Ok(Some(node));
        }
        let (remote, file) = (self.remote_of(&inode)?.clone(), inode.record().file);
        if !self.ask_for(&call, remote.reach(&call, &file, names)).await? {
            return Ok(None);
        }
        // What was known of it is outdated.
        self.store.apply(vec![Record::Dentry(inode.id, name.clone(), None)])?;
        self.notices.send(Notice::Entry { parent: self.namespace.shown(inode.id), name: name.clone() });
        // Asked, for a list may say that there is no such name.
        let looked = self.lookup_asking(&call, &inode, name).await;
        first_of(looked, names).map(Some)
    }
}

/// What the first of these names leads to, if the others can be looked for in it; else how it was refused.
pub(crate) fn first_of(looked: Result<Looked>, names: &[Name]) -> Result<NodeId> {
    match looked? {
        Looked::Entry { stat, .. } if names.len() == 1 || stat.kind == FileKind::Directory => Ok(stat.node),
        Looked::Entry { .. } => Err(VfsError::NotADirectory),
        Looked::Absent { .. } => Err(RemoteError::NotFound { detail: "asked just now".to_owned() }.into()),
    }
}

/// Whether the refusal of the first of these names leaves it open what the others lead to: the source has answered, and shows
/// no directory.
pub(crate) fn may_lead_on(refusal: &VfsError, names: &[Name]) -> bool {
    let shows_none = matches!(
        refusal,
        VfsError::NotADirectory | VfsError::Remote(RemoteError::Denied { .. } | RemoteError::Failed { .. })
    );
    names.len() > 1 && (is_gone(refusal) || shows_none)
}
