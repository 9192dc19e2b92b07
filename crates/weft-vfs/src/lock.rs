//! Locks that a source has: what programs of this machine have together of a file there.
//!
//! A lock is for seeing what others have written under it and for writing over that. So whoever gets one goes on in the
//! version that the source has then, also by a descriptor that was opened before: that is the one case in which an open file
//! becomes another version.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use weft_remote::{Call, Checked, FileId, LockMode, Remote, RemoteError, Version};
use weft_store::{NodeId, Object};

use crate::draft::Draft;
use crate::handle::{HandleId, Held};
use crate::inode::Inode;
use crate::learn::Told;
use crate::notice::Notice;
use crate::reopen::OpenRecord;
use crate::vfs::{Vfs, is_gone};
use crate::{Result, VfsError};

/// What becomes of the lock that a mount has on a file.
#[derive(Clone, Debug)]
pub struct LockChange {
    /// What it has by now.
    pub from: LockMode,
    /// What it is to have. The same: a former daemon has taken it.
    pub to: LockMode,
    /// Open files by which somebody has some of it already.
    pub had_by: Vec<HandleId>,
}

impl Vfs {
    /// Whether any source has locks.
    pub fn has_locks(&self) -> bool {
        self.namespace.all().iter().any(|bound| bound.remote.capabilities().locks)
    }

    /// Changes the lock that this mount has on a file at its source, where that has locks. Who gives it back has sent before
    /// what was written. Who gets it goes on in the version that the source has: told is which open files are in another
    /// version than before. Who gets a stronger one goes on in the version that was read under the weaker one, or does not
    /// get it. `changes` is told what the source has from then on: before it is asked to take something back, and as soon as
    /// more is had there. What counts as had was never another's. A file that was removed is this machine's alone: whoever
    /// has it open here shares it with nobody elsewhere.
    ///
    /// # Errors
    /// `Offline`; what the remote says, `Busy` above all; `Stale` when there is no lock any more, for somebody else may have
    /// written meanwhile, or no such file.
    pub async fn lock(
        self: Arc<Self>,
        call: Call,
        node: NodeId,
        LockChange { from, to, had_by }: LockChange,
        mut changes: impl FnMut(LockMode) + Send,
    ) -> Result<Vec<(HandleId, OpenRecord)>> {
        if self.namespace.is_own(node) {
            changes(to);
            return Ok(Vec::new());
        }
        let inode = self.inode(node)?;
        if inode.is_gone() {
            changes(to);
            return Ok(Vec::new());
        }
        let remote = match self.remote_of(&inode) {
            Err(VfsError::Offline) if to == LockMode::Unlocked => self.remote(inode.record().binding)?,
            remote => remote?,
        };
        if !remote.capabilities().locks {
            changes(to);
            return Ok(Vec::new());
        }
        let (remote, file) = (remote.clone(), inode.record().file);
        if to == LockMode::Unlocked {
            self.send_before_unlock(&call, &inode).await;
            changes(to);
            return self.lock_at(&call, &*remote, &file, (from, to)).await.map(|()| Vec::new());
        }
        self.note_lock(&inode, from);
        let becomes_stronger = from > LockMode::Unlocked && to > from;
        let relied_on = becomes_stronger.then(|| self.relied_on(&inode)).transpose()?;
        if becomes_stronger {
            self.note_reliance(&had_by, true);
        }
        let outcome = self.lock_at(&call, &*remote, &file, (from, to)).await;
        if outcome.as_ref().is_err_and(is_gone) {
            self.note_reliance(&had_by, false);
            changes(to);
            return Ok(Vec::new());
        }
        // Those who waited for that have their time before them.
        let call = self.call(call.caller);
        if let Err(VfsError::Remote(RemoteError::VersionChanged { .. })) = &outcome {
            return Err(VfsError::Stale);
        }
        // Between the weaker lock and the stronger one, or the weaker again, somebody else may have had one, and written.
        if let Some(version) = relied_on
            && !self.is_still(&call, &inode, &version).await.unwrap_or_else(|error| {
                tracing::warn!(%error, node = node.0, "it is not known what was written before a lock became stronger");
                outcome.is_err()
            })
        {
            let has = if outcome.is_ok() { to } else { from };
            changes(LockMode::Unlocked);
            if let Err(error) = self.lock_at(&call, &*remote, &file, (has, LockMode::Unlocked)).await {
                tracing::warn!(%error, node = node.0, "a lock that came too late is not given back");
            }
            return Err(VfsError::Stale);
        }
        self.note_reliance(&had_by, false);
        outcome?;
        changes(to);
        if becomes_stronger {
            return Ok(Vec::new());
        }
        // Also after a former daemon took it: that may have ended before this was done.
        match self.turn_to_newest(&call, &inode).await {
            Err(error) if from == LockMode::Unlocked => {
                changes(from);
                if let Err(error) = self.lock_at(&call, &*remote, &file, (to, from)).await {
                    tracing::warn!(%error, node = node.0, "a lock that is of no use is not given back");
                }
                Err(error)
            }
            Err(error) if !error.may_pass() => {
                tracing::warn!(%error, node = node.0, "what is open of a locked file stays what it was");
                Ok(Vec::new())
            }
            turned => turned,
        }
    }

    /// The strongest lock that others than this mount have on a file at its source.
    ///
    /// # Errors
    /// `Offline`; what the remote says.
    pub async fn locked_by_others(self: Arc<Self>, call: Call, node: NodeId) -> Result<LockMode> {
        if self.namespace.is_own(node) {
            return Ok(LockMode::Unlocked);
        }
        let inode = self.inode(node)?;
        if inode.is_gone() {
            return Ok(LockMode::Unlocked);
        }
        let remote = self.remote_of(&inode)?;
        if !remote.capabilities().locks {
            return Ok(LockMode::Unlocked);
        }
        let file = inode.record.read().file.clone();
        let others = self.ask_for(&call, remote.locked_by_others(&call, &file)).await;
        if others.as_ref().is_err_and(is_gone) { Ok(LockMode::Unlocked) } else { others }
    }

    /// Asks the source. That may take longer than other questions: who gives up before the answer does not know who has it.
    async fn lock_at(
        &self,
        call: &Call,
        remote: &dyn Remote,
        file: &FileId,
        (from, to): (LockMode, LockMode),
    ) -> Result<()> {
        let asking = Call { deadline: call.deadline.max(Instant::now() + PATIENCE), ..*call };
        self.ask_for(&asking, remote.lock(&asking, file, from, to)).await
    }

    async fn send_before_unlock(self: &Arc<Self>, call: &Call, inode: &Arc<Inode>) {
        if let Err(error) = self.send(call, inode).await {
            tracing::warn!(%error, node = inode.id.0, "a file is unlocked, and what was written is not at its source");
        }
    }

    /// Has what is open of a file be what its source has now, unless something is written here that it does not have.
    async fn turn_to_newest(self: &Arc<Self>, call: &Call, inode: &Arc<Inode>) -> Result<Vec<(HandleId, OpenRecord)>> {
        let Some((object, turned)) = self.turn_all(call, inode, |_| true).await? else { return Ok(Vec::new()) };
        let faces = self.faces_of(inode);
        // The pages that it has are of another version: who is to read what was written under the lock must not get those.
        let mut notices = if turned.is_empty() { Vec::new() } else { of_all(&faces) };
        notices.extend(self.length_to_tell(call, inode, &object, &faces).await);
        if !notices.is_empty() {
            let told = tokio::time::timeout_at(call.deadline.into(), self.notices.tell(notices)).await;
            if told.is_err() || inode.draft().is_some() {
                inode.told_length.go_amiss();
            }
            told.map_err(|_| VfsError::TimedOut)?;
        }
        Ok(turned)
    }

    /// Has all that is open of a file be what its source has now, if that `may` be. `None` where something is written here that
    /// it does not have, and where it may not.
    pub(crate) async fn turn_all(
        self: &Arc<Self>,
        call: &Call,
        inode: &Arc<Inode>,
        may: impl FnOnce(&Arc<Object>) -> bool + Send,
    ) -> Result<Option<(Arc<Object>, Vec<(HandleId, OpenRecord)>)>> {
        let draft = inode.draft();
        let object = match &draft {
            Some(draft) if draft.dirty.is_unsent() => return Ok(None),
            Some(draft) => match self.content_after(call, inode, draft).await? {
                Some(object) => object,
                None => return Ok(None),
            },
            None => self.content(call, inode).await?,
        };
        let mut slot = inode.draft.write();
        let is_as_before = match (&*slot, &draft) {
            (None, None) => true,
            (Some(now), Some(before)) => Arc::ptr_eq(now, before) && !now.dirty.is_unsent(),
            _ => false,
        };
        if !is_as_before || !may(&object) {
            return Ok(None);
        }
        let turned = self.turn_to(inode, &object);
        if slot.is_some() {
            inode.drafts_ended.fetch_add(1, Ordering::Release);
            self.drop_draft(inode.id, &mut slot);
        }
        drop(slot);
        Ok(Some((object, turned)))
    }

    /// By which numbers the kernel knows a file.
    pub(crate) fn faces_of(&self, inode: &Inode) -> Vec<NodeId> {
        let mut faces = vec![self.namespace.shown(inode.id)];
        faces.extend(self.handles.of(inode).iter().filter_map(|handle| handle.face()));
        faces.sort_unstable();
        faces.dedup();
        faces
    }

    fn turn_to(&self, inode: &Inode, object: &Arc<Object>) -> Vec<(HandleId, OpenRecord)> {
        let (generation, mut turned) = (object.generation(), Vec::new());
        self.handles.each_of(inode, |id, handle| {
            let mut content = inode.content.lock();
            let is_other = handle.counted() != generation && !handle.offered;
            if !is_other || matches!(*handle.content.lock(), Held::Through(_)) {
                return;
            }
            handle.turn_to(&mut content, object);
            handle.over.store(false, Ordering::Release);
            content.pages_of = Some(generation);
            content.pages_are_sure = false;
            let record = handle.record_of((object.version(), object.length().unwrap_or(0)), generation);
            turned.push((id, OpenRecord { length: object.length(), ..record }));
        });
        inode.content.lock().ended = None;
        turned
    }

    /// What the source has, where that is another version than what was written and sent.
    async fn content_after(
        self: &Arc<Self>,
        call: &Call,
        inode: &Arc<Inode>,
        draft: &Draft,
    ) -> Result<Option<Arc<Object>>> {
        let _gate = inode.gate.lock().await;
        if self.is_version(call, inode, &draft.dirty.version()).await? {
            return Ok(None);
        }
        self.give_up_content(inode.id)?;
        let arrival = self.fetch_whole(call, inode).await?;
        arrival.claim();
        Ok(Some(arrival.object.clone()))
    }

    /// The version that whoever has a lock on a file has read, or has written.
    fn relied_on(&self, inode: &Arc<Inode>) -> Result<Version> {
        if let Some(draft) = inode.draft() {
            return Ok(draft.dirty.version());
        }
        let held = self.held_content(inode)?.map(|current| current.object.version().clone());
        Ok(held.unwrap_or_else(|| inode.record().version))
    }

    async fn is_still(&self, call: &Call, inode: &Arc<Inode>, version: &Version) -> Result<bool> {
        let _gate = inode.gate.lock().await;
        self.is_version(call, inode, version).await
    }

    /// Whether the source has this version of a file, asking it where what is known is not trusted. The caller holds the
    /// inode's gate.
    async fn is_version(&self, call: &Call, inode: &Arc<Inode>, version: &Version) -> Result<bool> {
        if self.attributes_remaining(inode)?.is_zero() {
            let (remote, file) = (self.remote_of(inode)?.clone(), inode.record().file);
            let answer = self.ask_of(call, inode, || remote.attributes(call, &file, version)).await?;
            let told = Told::by(&answer);
            let entry = match answer.value {
                Checked::Unchanged => return Ok(true),
                Checked::Touched(entry) => {
                    self.learn_attributes(inode, entry.attributes, &told)?;
                    return Ok(true);
                }
                Checked::Is(found) => found.entry,
            };
            if entry.id != file {
                return Err(VfsError::Stale);
            }
            self.learn_attributes(inode, entry.attributes, &told)?;
        }
        Ok(version.still_holds(&inode.record().version))
    }
}

/// What has the kernel forget all of these.
pub(crate) fn of_all(faces: &[NodeId]) -> Vec<Notice> {
    let of_face = |node: &NodeId| [Notice::Attributes { node: *node }, Notice::Content { node: *node }];
    faces.iter().flat_map(of_face).collect()
}

/// How long a source may take to say who has a lock.
const PATIENCE: Duration = Duration::from_secs(40);
