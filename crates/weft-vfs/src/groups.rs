//! Files of which somebody knows that they are read together.

use std::sync::Arc;

use weft_remote::{Call, Name};
use weft_store::{Affinity, NodeId};

use crate::lookup::Looked;
use crate::vfs::Vfs;
use crate::{Result, VfsError};

/// What was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grouped {
    /// Groups of at least two files that are known.
    pub groups: u64,
    /// Files in them.
    pub files: u64,
    /// Paths that nothing is known of.
    pub unknown: u64,
}

impl Vfs {
    /// Has small contents of these files laid side by side, where they come at about the same time. A path that is not
    /// known is looked up where asking costs next to nothing, and otherwise left out.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn group(
        self: &Arc<Self>,
        call: &Call,
        groups: &[Vec<Vec<Name>>],
        affinity: Affinity,
    ) -> Result<Grouped> {
        let mut done = Grouped::default();
        for group in groups {
            let mut nodes = Vec::with_capacity(group.len());
            for path in group {
                match self.file_at(call, path).await? {
                    Some(node) => nodes.push(node),
                    None => done.unknown += 1,
                }
            }
            if nodes.len() > 1 {
                self.store.group(affinity, &nodes);
                done.groups += 1;
                done.files += nodes.len() as u64;
            }
        }
        Ok(done)
    }

    async fn file_at(self: &Arc<Self>, call: &Call, path: &[Name]) -> Result<Option<NodeId>> {
        match self.find(path) {
            Ok(node) => return Ok(Some(self.namespace.real(node))),
            Err(VfsError::NotFound) => {}
            Err(error) => return Err(error),
        }
        let mut node = NodeId::ROOT;
        for name in path {
            if !self.namespace.is_own(node) {
                let Ok(dir) = self.inode(node) else { return Ok(None) };
                if !self.is_breakable(dir.record.read().binding) {
                    return Ok(None);
                }
            }
            match self.clone().lookup(*call, node, name.as_bytes().to_vec()).await {
                Ok(Looked::Entry { stat, .. }) => node = stat.node,
                // What keeps one name from being found keeps nobody from being told of the others.
                Ok(Looked::Absent { .. }) | Err(_) => return Ok(None),
            }
        }
        Ok(Some(self.namespace.real(node)))
    }
}
