//! Files that the kernel opens by what it knows: a name that may lead to another file by now, a length that it may not be told.
//! It is told to follow the path again (`ESTALE`), which it does once in a call.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use weft_remote::{Call, Name, clock};
use weft_store::NodeId;

use crate::absences::ON_ITS_WAY_MAX;
use crate::ask::OpenFor;
use crate::faces::has_several_names;
use crate::handle::Handle;
use crate::inode::Inode;
use crate::notice::Notice;
use crate::open::Opened;
use crate::unopened::Guard;
use crate::vfs::Vfs;
use crate::{Result, VfsError};

impl Vfs {
    /// Opens a file for the kernel.
    ///
    /// # Errors
    /// `IsADirectory`, `Stale`, `Denied`, `NotFound`; whatever keeps the remote from answering. `Stale` also where the kernel
    /// takes the file to be of another length: it follows the path again, and learns it by that.
    pub async fn open(self: Arc<Self>, call: Call, node: NodeId, how: OpenFor) -> Result<Opened> {
        let inode = self.inode(node)?;
        let opened = self.open_surely(&call, &inode, node, how).await;
        if !matches!(opened, Err(VfsError::Stale)) {
            self.retries.forget(&call);
        }
        opened
    }

    async fn open_surely(
        self: &Arc<Self>,
        call: &Call,
        inode: &Arc<Inode>,
        node: NodeId,
        how: OpenFor,
    ) -> Result<Opened> {
        let again = self.followed_again(call, inode);
        let begins_again = || Box::pin(self.begins_again_quietly(call, inode));
        if how.truncating {
            // What is emptied cannot be given back.
            self.hear_of_moves(inode).await;
        }
        let may_be_left = self.may_be_left_by_a_name(inode) || self.has_moved(inode);
        if again.is_none() && may_be_left && begins_again().await {
            return Err(VfsError::Stale);
        }
        if how.kill_suidgid {
            self.refuse_read_only(inode)?;
            self.admit(call, inode).await?;
            self.drop_set_id(call, inode).await?;
        }
        let (mut told, drafts_ended) = (self.told_length(inode, again), inode.drafts_ended.load(Ordering::Acquire));
        let mut opened = match self.clone().open_here(*call, node, how).await {
            Err(VfsError::Stale) => {
                // Also where it is by another face by now.
                begins_again().await;
                return Err(VfsError::Stale);
            }
            opened => opened?,
        };
        let guard = Guard::new(self, opened.handle);
        // It may have been found where it is now.
        if again.is_none() && self.has_moved(inode) && begins_again().await {
            return Err(VfsError::Stale);
        }
        self.let_ended_go(inode).await;
        let handle = self.handle(opened.handle)?;
        if inode.drafts_ended.load(Ordering::Acquire) != drafts_ended {
            // As long as it was written here.
            told = self.told_length(inode, again);
        }
        if !how.truncating && self.is_length_untold(&handle, told) {
            if again.is_none() && begins_again().await {
                return Err(VfsError::Stale);
            }
            if how.writing {
                inode.told_length.go_amiss();
            }
            self.open_past_pages(&mut opened, &handle);
            // Boxed: it is rare, and reads.
            Box::pin(self.tell_growth(call, inode, &handle, told)).await;
        }
        guard.keep();
        Ok(opened)
    }

    /// The kernel takes a file to be of another length, and does not follow the path once more: by that it would cut off what it
    /// reads into its pages, or fill it up. Past them it gets what there is, and what is appended goes to the end of that.
    fn open_past_pages(&self, opened: &mut Opened, handle: &Handle) {
        handle.bypass_pages.store(true, Ordering::Relaxed);
        (opened.keep_pages, opened.bypass_pages, opened.record.bypass_pages) = (false, true, true);
        opened.backing = None;
        self.notices.send(Notice::Attributes { node: self.namespace.shown(handle.inode.id) });
    }

    /// Refuses what is to be done to a file that the kernel has found by a name, where somebody else has moved it since: it follows
    /// the path again, and finds what is there.
    ///
    /// # Errors
    /// `Stale`, once.
    pub(crate) async fn refuse_moved(&self, call: &Call, inode: &Inode) -> Result<()> {
        self.hear_of_moves(inode).await;
        match self.has_moved(inode) && self.may_be_late(inode) && self.begins_again(call, inode) {
            true => Err(VfsError::Stale),
            false => Ok(()),
        }
    }

    /// Whether a request about a file that has lost its name is by somebody who has it open.
    pub(crate) fn is_of_open(&self, inode: &Inode) -> Result<bool> {
        Ok(self.is_held_open(inode)? && self.is_told_all(inode) && !self.may_be_late(inode))
    }

    /// Whether a request may be of before the kernel was told that the name by which a file was found leads to it no longer. A
    /// later one is by somebody who has it open, of which the kernel does not tell.
    fn may_be_late(&self, inode: &Inode) -> bool {
        let (binding, parent, name) = {
            let record = inode.record.read();
            (record.binding, record.parent, record.name.clone())
        };
        let lately = clock::now().checked_sub(ON_ITS_WAY_MAX);
        let (Some(lately), Some(breaks)) = (lately, self.namespace.breaks(binding)) else { return true };
        // Not by the file: that it is gone ends what was told of it when somebody asks.
        breaks.name_ended(parent, &name, lately)
    }

    /// Waits a little for what there is to be heard, if there is anything.
    async fn hear_of_moves(&self, inode: &Inode) {
        if !self.is_told_all(inode) {
            self.hear_all(inode).await;
        }
    }

    /// Whether somebody else has moved a file away from the name by which it was found.
    fn has_moved(&self, inode: &Inode) -> bool {
        let (binding, file, parent, name) = {
            let record = inode.record.read();
            (record.binding, record.file.clone(), record.parent, record.name.clone())
        };
        if !self.is_breakable(binding) || inode.is_gone() || self.was_unnamed_here(inode, parent, &name) {
            return false;
        }
        let (Some(remote), Some(dir)) = (self.namespace.remote(binding), self.inodes.peek(parent)) else {
            return false;
        };
        let dir = dir.record.read().file.clone();
        !remote.may_be_named(&file, &dir, &name)
    }

    /// Whether the name by which a file was found was taken away from here: whoever comes by the file has it open, or has found it
    /// by another.
    fn was_unnamed_here(&self, inode: &Inode, parent: NodeId, name: &Name) -> bool {
        let is_it = |unnamed: &(NodeId, Name)| unnamed.0 == parent && unnamed.1 == *name;
        let leads_here = || {
            let known = self.store.dentry(parent, name).ok().flatten();
            known.and_then(|known| known.node()) == Some(inode.id)
        };
        let was_it = inode.content.lock().unnamed_here.as_ref().is_some_and(is_it);
        was_it && !leads_here()
    }

    /// Whether the name by which a file was found may lead to another by now: by which of several it was is not known here, the
    /// file is there as long as any of them is, and the kernel may have begun to follow the path before it was told. While
    /// something that is written here is not sent, the file's source is not asked about it either.
    fn may_be_left_by_a_name(&self, inode: &Inode) -> bool {
        let (binding, has_others) = {
            let record = inode.record.read();
            (record.binding, has_several_names(&record))
        };
        let is_late = |at: Instant| at.elapsed() < ON_ITS_WAY_MAX;
        let had_others = || inode.content.lock().had_several_names.is_some_and(is_late);
        let since = || clock::now().checked_sub(ON_ITS_WAY_MAX);
        let has_ended = || since().is_some_and(|since| self.is_broken(binding, inode.id, since));
        let is_unsent = || inode.draft().is_some_and(|draft| draft.dirty.is_unsent());
        (has_others || had_others() || is_unsent())
            && self.is_breakable(binding)
            && (!self.is_told_all(inode) || has_ended())
    }
}
