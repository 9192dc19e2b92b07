//! What has a name that is about to be taken away, or to be given to another.

use std::sync::Arc;
use std::time::SystemTime;

use weft_remote::{Call, Checked, FileKind, Name, Version};
use weft_store::{DentryRecord, DentryTarget, NodeId, NodeRecord, Record};

use crate::Result;
use crate::faces::has_several_names;
use crate::inode::Inode;
use crate::lookup::Looked;
use crate::vfs::Vfs;

impl Vfs {
    /// What a name leads to: as far as is known here, and its source has not told otherwise, or else by its source.
    pub(crate) async fn victim(
        self: &Arc<Self>,
        call: &Call,
        dir: &Inode,
        name: &Name,
    ) -> Result<Option<(NodeId, NodeRecord)>> {
        let holds = |dentry: &DentryRecord| self.is_told_all(dir) && !self.name_has_ended(dir, name, dentry.learnt);
        let known = self.store.dentry(dir.id, name)?.filter(|dentry| holds(dentry));
        let id = match known.map(|dentry| dentry.target) {
            Some(DentryTarget::Node(id)) => id,
            _ => match self.clone().lookup(*call, self.namespace.shown(dir.id), name.as_bytes().to_vec()).await? {
                Looked::Entry { stat, .. } => self.namespace.real(stat.node),
                Looked::Absent { .. } => return Ok(None),
            },
        };
        let record = match self.inodes.peek(id) {
            Some(inode) => Some(inode.record()),
            None => self.store.node(id)?,
        };
        Ok(record.map(|record| (id, record)))
    }

    /// The same with the number of its names, which may be in doubt since it has lost one: of what is open its source is asked,
    /// for this name may be its last.
    pub(crate) async fn victim_counted(
        self: &Arc<Self>,
        call: &Call,
        dir: &Inode,
        name: &Name,
    ) -> Result<Option<(NodeId, NodeRecord)>> {
        let Some((id, mut record)) = self.victim(call, dir, name).await? else { return Ok(None) };
        let in_doubt = record.learnt == SystemTime::UNIX_EPOCH && has_several_names(&record);
        let is_in_use = |inode: &Arc<Inode>| inode.draft().is_some() || !inode.content.lock().is_closed();
        if in_doubt
            && let Some(inode) = self.inodes.peek(id).filter(is_in_use)
            && let Ok(remote) = self.remote_of(&inode).cloned()
        {
            let asked = self.ask_of(call, &inode, || remote.attributes(call, &record.file, &Version::None)).await;
            match asked.map(|answer| answer.value) {
                Ok(Checked::Is(found)) if found.entry.id == record.file => {
                    record.attributes.links = found.entry.attributes.links;
                }
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, node = id.0, "it is not known how many names it has"),
            }
        }
        Ok(Some((id, record)))
    }

    /// What is open of a file that is about to lose its last name is all brought here. What cannot be had is lost to
    /// whoever has it open; the name goes all the same.
    pub(crate) async fn keep_open(self: &Arc<Self>, call: &Call, victim: Option<&(NodeId, NodeRecord)>) {
        let Some((id, record)) = victim else { return };
        let Some(inode) = self.inodes.peek(*id) else { return };
        let is_open = !inode.content.lock().is_closed();
        if !is_open || record.attributes.kind != FileKind::File || has_several_names(record) {
            return;
        }
        if let Err(error) = self.complete(call, &inode).await {
            tracing::warn!(%error, path = self.path_text(*id), "removed while it is open, and not all of it is here");
        }
        if let Err(error) = self.note_extended(call, &inode).await {
            tracing::debug!(%error, path = self.path_text(*id), "removed while it is open, and its attributes are not here");
        }
    }

    /// What had this name has it no longer, by a change that the kernel has asked for.
    pub(crate) fn lost_a_name(
        self: &Arc<Self>,
        victim: Option<(NodeId, NodeRecord)>,
        (dir, name): (&Inode, &Name),
    ) -> Result<()> {
        let Some((id, record)) = victim else { return Ok(()) };
        if record.attributes.kind == FileKind::Directory || !has_several_names(&record) {
            return self.mark_gone(id);
        }
        match self.inodes.peek(id) {
            Some(inode) => {
                inode.content.lock().unnamed_here = Some((dir.id, name.clone()));
                self.distrust_quietly(&inode)
            }
            None => {
                let distrusted = NodeRecord { learnt: SystemTime::UNIX_EPOCH, ..record };
                Ok(self.store.apply(vec![Record::Node(id, Some(distrusted))])?)
            }
        }
    }
}
