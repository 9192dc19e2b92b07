//! Fetching ahead of a walk: the siblings of files that are being used one after the other, before they are asked for.
//!
//! What is fetched ahead must pay: each fetch costs credit and each use of what it brought earns some, so that a guess
//! that keeps being wrong ends by itself. It never has more than a few requests under way, is on behalf of the user
//! whose walk it is, and leaves large files alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use weft_remote::{Call, Caller, FileKind, Name, Purpose, SourceState};
use weft_store::{DentryTarget, NodeId};

use crate::Result;
use crate::figures::count;
use crate::freshness::Freshness;
use crate::inode::Inode;
use crate::offline::Mode;
use crate::vfs::Vfs;
use crate::walk::Sibling;

/// What may be fetched ahead.
pub(crate) struct Prefetch {
    /// Requests at a time.
    seats: Arc<Semaphore>,
    /// Fetches under way or waiting for a seat.
    queue: Arc<Semaphore>,
    credit: AtomicI64,
}

/// What a walk uses of its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// What `stat` shows.
    Attributes,
    /// The bytes.
    Content,
    /// The names in a directory.
    Names,
}

impl Default for Prefetch {
    fn default() -> Prefetch {
        Prefetch {
            seats: Arc::new(Semaphore::new(SEATS)),
            queue: Arc::new(Semaphore::new(QUEUE_MAX)),
            credit: AtomicI64::new(CREDIT_START),
        }
    }
}

impl Prefetch {
    /// A place for one fetch, and what it costs; none where enough are under way, or where they have not paid.
    pub(crate) fn place(&self) -> Option<OwnedSemaphorePermit> {
        let place = self.queue.clone().try_acquire_owned().ok()?;
        let spent = |credit: i64| (credit >= COST).then_some(credit - COST);
        let paid = self.credit.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spent).is_ok();
        paid.then_some(place)
    }

    /// Waits until one more request may be made.
    pub(crate) async fn seat(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.seats.acquire().await.ok()
    }

    /// What was fetched ahead is used.
    pub(crate) fn earn_by_use(&self) {
        self.earn(EARNED_BY_USE);
    }

    /// Something is used that was not foreseen.
    pub(crate) fn earn_by_miss(&self) {
        self.earn(EARNED_BY_MISS);
    }

    fn earn(&self, amount: i64) {
        let earned = |credit: i64| Some((credit + amount).min(CREDIT_MAX));
        // The closure never refuses.
        let _ = self.credit.fetch_update(Ordering::Relaxed, Ordering::Relaxed, earned);
    }
}

impl Vfs {
    /// A file is used: if it was fetched ahead, that has paid, and the walk goes on.
    pub(crate) fn used(self: &Arc<Self>, call: &Call, inode: &Inode) {
        if call.purpose == Purpose::Ahead {
            return;
        }
        let ahead = inode.content.lock().ahead.take();
        if let Some(want) = ahead {
            count(&self.figures.prefetches_used);
            self.prefetch.earn_by_use();
            self.go_ahead(call, inode, want);
        }
    }

    /// A file is used that was not here: a walk of its directory may have begun.
    pub(crate) fn walked(self: &Arc<Self>, call: &Call, inode: &Inode, want: Want) {
        if call.purpose == Purpose::Ahead {
            return;
        }
        self.prefetch.earn_by_miss();
        self.go_ahead(call, inode, want);
    }

    /// Fetches what the walk of this file's directory will come to.
    fn go_ahead(self: &Arc<Self>, call: &Call, inode: &Inode, want: Want) {
        if let Err(error) = self.fetch_ahead(call, inode, want) {
            tracing::debug!(%error, "nothing was fetched ahead");
        }
    }

    fn fetch_ahead(self: &Arc<Self>, call: &Call, inode: &Inode, want: Want) -> Result<()> {
        let (parent, name) = {
            let record = inode.record.read();
            (record.parent, record.name.clone())
        };
        if !self.may_fetch_ahead(inode) {
            return Ok(());
        }
        let dir = self.inode(parent)?;
        let next = self.next_of_walk(&dir, &name, want, |after, limit| self.names_after(&dir, after, limit))?;
        // What is being used has its room to come.
        let mut planned = inode.record.read().attributes.size.known().unwrap_or(0);
        for (_, node) in next {
            let Some((wanted, size)) = self.worth_fetching(call, node, want) else { continue };
            planned = planned.saturating_add(size);
            if !self.has_room_to_spare(node, planned) {
                break;
            }
            let Some(place) = self.prefetch.place() else { break };
            count(&self.figures.prefetches);
            let (vfs, caller, dir) = (self.clone(), call.caller, dir.clone());
            self.runtime.spawn(async move {
                if let Err(error) = vfs.prefetch_one(caller, &dir, wanted, want).await {
                    tracing::debug!(%error, "a file was not fetched ahead");
                }
                drop(place);
            });
        }
        Ok(())
    }

    /// What the walk of a directory comes to after a use of this name. `following` gives the names after one that are used
    /// like it.
    pub(crate) fn next_of_walk(
        &self,
        dir: &Inode,
        name: &Name,
        want: Want,
        following: impl Fn(Option<&Name>, usize) -> Result<Vec<Sibling>>,
    ) -> Result<Vec<Sibling>> {
        let above = || self.inodes.get(dir.record.read().parent).filter(|above| above.id != dir.id);
        let begins = !dir.walk.lock().of(want).has_begun();
        let habit = if begins { above().and_then(|above| above.walk.lock().try_below(want)) } else { None };
        let (next, shown) = {
            let mut walk = dir.walk.lock();
            let walk = walk.of(want);
            (walk.note(name, habit, following)?, walk.habit())
        };
        // A guess that asks for nothing says nothing of the habit.
        if let Some(habit) = shown.or(habit.filter(|_| next.is_empty()))
            && let Some(above) = above()
        {
            above.walk.lock().learn_below(habit, want);
        }
        Ok(next)
    }

    /// The files and directories in a directory, after a name.
    fn names_after(&self, dir: &Inode, after: Option<&Name>, limit: usize) -> Result<Vec<Sibling>> {
        let names = self.store.dentries(dir.id, after, limit)?;
        let leads = names.into_iter().filter_map(|(name, dentry)| match dentry.target {
            DentryTarget::Node(node) => Some((name, node)),
            DentryTarget::Absent => None,
        });
        Ok(leads.collect())
    }

    /// Whether such a use of this file would not ask the remote.
    fn is_at_hand(&self, inode: &Arc<Inode>, want: Want) -> bool {
        inode.arrival(|_| true).is_some() || self.is_trusted(inode, want)
    }

    /// Whether what is held, or on its way, may be used so without asking.
    fn is_trusted(&self, inode: &Arc<Inode>, want: Want) -> bool {
        if want == Want::Attributes {
            return inode.is_settled() || inode.arrival(|_| true).is_some();
        }
        match self.held_content(inode) {
            Ok(Some(held)) => self.is_current(inode, &held).unwrap_or(true),
            Ok(None) => false,
            Err(_) => true,
        }
    }

    /// Whether anything is to be gained beside this file: not where each use asks all the same, and not from a source
    /// that is away, busy, or not to be asked.
    pub(crate) fn may_fetch_ahead(&self, inode: &Inode) -> bool {
        inode.freshness != Freshness::Always
            && self.mode_of(inode) != Some(Mode::Offline)
            && self.source_state(inode) == SourceState::Connected
    }

    /// The inode, if it is a file whose use would ask the remote, that the caller may see without asking, and not a
    /// large one; and its length, or what is fetched of it at most.
    fn worth_fetching(&self, call: &Call, node: NodeId, want: Want) -> Option<(Arc<Inode>, u64)> {
        let inode = self.inode(node).ok()?;
        let attributes = inode.record.read().attributes;
        let size = attributes.size.known().unwrap_or(self.options.unclaimed_bytes_max);
        let small = size <= self.options.unclaimed_bytes_max;
        let is_file = matches!(attributes.kind, FileKind::File | FileKind::Unknown);
        let worth = is_file && small && !self.is_at_hand(&inode, want) && self.admits(&inode, call);
        worth.then_some((inode, size))
    }

    async fn prefetch_one(self: &Arc<Self>, caller: Caller, dir: &Inode, inode: Arc<Inode>, want: Want) -> Result<()> {
        let _seat = self.prefetch.seat().await;
        // Whoever holds the gate asks already.
        let Ok(_gate) = inode.gate.try_lock() else { return Ok(()) };
        if self.is_at_hand(&inode, want) {
            return Ok(());
        }
        let call = self.call(caller);
        let since = Instant::now();
        inode.content.lock().ahead = Some(want);
        let outcome = if inode.is_settled() && self.held_content(&inode)?.is_none() {
            self.fetch_whole(&call, &inode).await.map(|_| ())
        } else {
            self.check(&call, &inode).await.map(|_| ())
        };
        let at_hand = self.is_trusted(&inode, want);
        {
            let mut walk = dir.walk.lock();
            walk.latency = since.elapsed();
            walk.in_vain |= outcome.is_ok() && !at_hand;
        }
        if outcome.is_err() || !at_hand {
            inode.content.lock().ahead = None;
        }
        outcome
    }
}

/// Requests under way at a time: fewer than a host has connections, so that whoever waits for an answer finds one.
const SEATS: usize = 12;
/// Fetches that may wait for that.
const QUEUE_MAX: usize = 64;
/// What a fetch costs.
const COST: i64 = 4;
/// What a use of something that was fetched ahead earns: half of what is fetched must be used.
const EARNED_BY_USE: i64 = 2 * COST;
/// What a use that was not foreseen earns: a guess that is always wrong adds a request to every fourth.
const EARNED_BY_MISS: i64 = 1;
/// Credit before anything has paid.
const CREDIT_START: i64 = 64 * COST;
/// Most credit.
const CREDIT_MAX: i64 = 256 * COST;
