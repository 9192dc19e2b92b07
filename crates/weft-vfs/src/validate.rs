//! Asking about what is held, politely: for `weft watch --validate`.

use std::sync::Arc;

use weft_remote::{Caller, FileKind, Name, Version};
use weft_store::NodeId;

use crate::changes::ChangeKind;
use crate::vfs::{Vfs, is_gone};
use crate::{Result, VfsError};

impl Vfs {
    /// Asks the source once about every file held (or that told its version) and every listing known at and below a path that the caller may see.
    /// Unlike `reload` it takes no trust away: where the source is silent all stays as it was. A path that is not known is
    /// asked for.
    ///
    /// # Errors
    /// When the store cannot be read. What the source says or does not say is learnt, not returned.
    pub async fn validate(self: &Arc<Self>, path: &[Name], caller: Caller) -> Result<()> {
        let mut waiting = match self.find(path) {
            Err(VfsError::NotFound) => return Box::pin(self.look_out_for(path, caller)).await,
            found => vec![found?],
        };
        while !waiting.is_empty() {
            let some = waiting.split_off(waiting.len().saturating_sub(AT_ONCE));
            let asked = some.iter().map(|node| self.validate_one(*node, caller));
            for outcome in futures_util::future::join_all(asked).await {
                outcome?;
            }
            for node in some {
                if self.namespace.is_own(node) || self.is_directory(node) {
                    waiting.extend(self.children(node)?);
                }
            }
        }
        Ok(())
    }

    /// Asks for a path that is not known, and tells of it when it is there after it was known to be absent.
    async fn look_out_for(self: &Arc<Self>, path: &[Name], caller: Caller) -> Result<()> {
        if self.leads_astray(path).is_some() {
            return Ok(());
        }
        let was_absent = self.absent_above(path).is_some();
        if let Err(error) = self.reload_unknown(path, caller).await {
            tracing::debug!(%error, "what is watched is not there, or its source does not say");
            return Ok(());
        }
        let Ok(node) = self.find(path) else { return Ok(()) };
        let record = self.store.node(self.namespace.real(node))?;
        if was_absent
            && let Some(record) = record
            && !self.tell_back(&record)
        {
            let version = record.version.clone();
            self.tell_change(ChangeKind::New, &record, Version::None, version);
        }
        Ok(())
    }

    fn is_directory(&self, node: NodeId) -> bool {
        self.inode(node).is_ok_and(|inode| inode.kind() == FileKind::Directory)
    }

    async fn validate_one(self: &Arc<Self>, node: NodeId, caller: Caller) -> Result<()> {
        if self.namespace.is_own(node) {
            return Ok(());
        }
        // A name may go while its neighbours are asked about.
        let Ok(inode) = self.inode(node) else { return Ok(()) };
        let call = self.call(caller);
        if self.admit(&call, &inode).await.is_err() {
            return Ok(());
        }
        let outcome = if inode.kind() == FileKind::Directory {
            if self.store.listing(inode.id)?.is_none() {
                return Ok(());
            }
            self.relist(&call, &inode).await
        } else {
            // A file that was found changed may not be held any more: it has told a version all the same.
            let told = inode.record.read().version != Version::None;
            if !told && self.store.object_record(inode.id)?.is_none() {
                return Ok(());
            }
            let _gate = inode.gate.lock().await;
            self.check(&call, &inode).await.map(drop)
        };
        match outcome {
            Ok(()) => Ok(()),
            Err(error) if is_gone(&error) && inode.kind() != FileKind::Directory => {
                self.learn_gone(&call, &inode).await.map(drop)
            }
            Err(error) => {
                inode.note_error(&error);
                Ok(())
            }
        }
    }
}

/// Questions under way at one time.
const AT_ONCE: usize = 4;
