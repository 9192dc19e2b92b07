//! Files that programs of this machine share with others by locks: databases.
//!
//! Whoever has a lock of one has the newest version ([`crate::lock`]), and nobody changes it meanwhile. Who reads without one
//! does not count on what it reads (SQLite reads the head of a database before it locks it), and must not fail by what
//! others have written: all that is open of the file goes on in the newest then, as on a local disk, where in other files an
//! open version ends. So it does before the first lock of it here, for as long as nothing was read or written by what is
//! open.
//!
//! While a lock is being made stronger, its source may not have it for a moment, and it may be lost by that. What was read under
//! it is relied on until it is had for certain, or the next lock is taken: until then its holder goes on in that version, which
//! does not end, and nothing else goes on in the newest, for all that is open of a file has the kernel's pages and the length
//! in common. Who opens it waits for that.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use weft_remote::{Call, LockMode};

use crate::handle::{Handle, HandleId};
use crate::inode::Inode;
use crate::lock::of_all;
use crate::vfs::Vfs;
use crate::{Result, VfsError};

impl Handle {
    /// Whether it goes on in the newest version where its own is there no more.
    pub(crate) fn goes_on(&self) -> bool {
        let content = self.inode.content.lock();
        let may = content.goes_by_locks || (self.writing && !content.was_used);
        may && !self.relies.load(Ordering::Acquire) && !self.inode.is_gone()
    }
}

impl Vfs {
    /// Notes that a lock of a file is taken here, where it has this one already. It goes by locks until nobody has it open.
    pub(crate) fn note_lock(&self, inode: &Inode, has: LockMode) {
        inode.content.lock().goes_by_locks = true;
        if has == LockMode::Unlocked {
            // All have given back what was lost.
            self.handles.each_of(inode, |_, handle| handle.relies.store(false, Ordering::Release));
            self.reliance_ended.notify_waiters();
        }
    }

    /// Notes of open files whether what was read by them is relied on, whatever the source has of their lock.
    pub(crate) fn note_reliance(&self, by: &[HandleId], relies: bool) {
        let handles = by.iter().filter_map(|id| self.handles.get(*id));
        handles.for_each(|handle| handle.relies.store(relies, Ordering::Release));
        self.reliance_ended.notify_waiters();
    }

    /// Has an open file whose version has ended, or is there no more, show what an open would get now, and all others of its
    /// file as well.
    ///
    /// # Errors
    /// `Changed` where it does not go by locks, or may not go on for as long as the call may take; as of an open.
    pub(crate) async fn go_on(self: &Arc<Self>, call: &Call, handle: &Handle) -> Result<()> {
        let (inode, before) = (&handle.inode, handle.counted());
        for _ in 0..ROUNDS_MAX {
            if !handle.goes_on() {
                return Err(VfsError::Changed);
            }
            let reliance = tokio::time::timeout_at(call.deadline.into(), self.until_not_relied_on(inode));
            reliance.await.map_err(|_| VfsError::Changed)?;
            if self.is_caught_up(handle) {
                handle.over.store(false, Ordering::Release);
                return Ok(());
            }
            // Not what was the newest when it was asked for: somebody may have got a lock since, or have read.
            let may = |object: &Arc<_>| {
                handle.goes_on() && !self.is_relied_on(inode) && inode.content.lock().is_current(object)
            };
            let turned = tokio::time::timeout_at(call.deadline.into(), self.turn_all(call, inode, may)).await;
            if let Some((object, turned)) = turned.map_err(|_| VfsError::TimedOut)?? {
                self.tell_handles_turned(&turned);
                // Not waited for: who reads has a page locked.
                let notices = of_all(&self.faces_of(inode));
                notices.into_iter().for_each(|notice| self.notices.send_later(notice, &self.runtime));
                let is_newest = handle.counted() == object.generation();
                let was_there_no_more = before != object.generation() || handle.over.load(Ordering::Acquire);
                if !is_newest || !was_there_no_more {
                    return Err(VfsError::Changed);
                }
                handle.over.store(false, Ordering::Release);
                return Ok(());
            }
        }
        Err(VfsError::Changed)
    }

    /// Waits until nothing is relied on of a file that is about to be opened: its older version and its newest would have one
    /// length in the kernel. Who relies on what is lost for long does not keep others from the newest: that ends.
    pub(crate) async fn after_reliance(&self, inode: &Inode) {
        if !inode.content.lock().goes_by_locks {
            return;
        }
        if tokio::time::timeout(RELIANCE_MAX, self.until_not_relied_on(inode)).await.is_err() {
            self.handles.each_of(inode, |_, handle| {
                handle.over.fetch_or(handle.relies.load(Ordering::Acquire), Ordering::AcqRel);
            });
        }
    }

    async fn until_not_relied_on(&self, inode: &Inode) {
        loop {
            let ended = self.reliance_ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if !self.is_relied_on(inode) {
                return;
            }
            ended.await;
        }
    }

    /// Whether what was read of a file under a lock that its source may not have any more is relied on.
    pub(crate) fn is_relied_on(&self, inode: &Inode) -> bool {
        self.handles.of(inode).iter().any(|handle| handle.relies.load(Ordering::Acquire))
    }
}

/// How long who opens a file waits for who relies on what is lost of it.
const RELIANCE_MAX: Duration = Duration::from_secs(2);
/// How often it is looked anew what the newest is, where others go on changing the file.
const ROUNDS_MAX: usize = 100;
