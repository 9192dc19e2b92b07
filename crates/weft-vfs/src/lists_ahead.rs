//! Listing ahead: the directories beside those that are being listed one after the other, where their source is far.
//!
//! Whoever goes through a tree (`find`, `ls -R`, rsync) waits for the list of each directory in turn, and asks for the next
//! when it has that. Lists are foreseen like files ([`Walk`](crate::walk::Walk)), and at the same price
//! ([`Prefetch`](crate::prefetch::Prefetch)). A source that is near is not asked: what it would save is less than what it costs.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use weft_remote::{Call, Caller, FileKind, Name, Purpose};
use weft_store::{DentryTarget, NodeId};

use crate::Result;
use crate::figures::count;
use crate::inode::Inode;
use crate::prefetch::Want;
use crate::vfs::Vfs;
use crate::walk::Sibling;

impl Vfs {
    /// A program has listed a directory; `took` is how long its source took, if it was asked for that.
    pub(crate) fn listed_in_turn(self: &Arc<Self>, call: &Call, dir: &Inode, took: Option<Duration>) {
        if call.purpose == Purpose::Ahead {
            return;
        }
        let foreseen = dir.listed_ahead.swap(false, Ordering::AcqRel);
        if took.is_none() && !foreseen {
            return;
        }
        if let Err(error) = self.list_ahead(call, dir, took) {
            tracing::debug!(%error, "nothing was listed ahead");
        }
    }

    /// Lists the directories that the walk of the directory above will come to. `took` is nothing where this one was foreseen.
    fn list_ahead(self: &Arc<Self>, call: &Call, dir: &Inode, took: Option<Duration>) -> Result<()> {
        let (parent, name) = {
            let record = dir.record.read();
            (record.parent, record.name.clone())
        };
        let Some(above) = self.inodes.get(parent).filter(|above| above.id != dir.id) else { return Ok(()) };
        if took.is_none() {
            count(&self.figures.prefetches_used);
            self.prefetch.earn_by_use();
        }
        {
            let mut walk = above.walk.lock();
            if !walk.is_far_below(took) {
                return Ok(());
            }
            if let Some(took) = took {
                walk.of(Want::Names).latency = took;
                self.prefetch.earn_by_miss();
            }
        }
        let following = |after: Option<&Name>, limit: usize| self.directories_after(&above, after, limit);
        let next = self.next_of_walk(&above, &name, Want::Names, following)?;
        let source = self.source(dir).map(|source| source.name);
        for (_, node) in next {
            let Some(wanted) = self.worth_listing(call, node)? else { continue };
            // Hosts and cells are asked by whoever goes there alone.
            if self.source(&wanted).map(|source| source.name) != source || !self.may_fetch_ahead(&wanted) {
                continue;
            }
            let Some(place) = self.prefetch.place() else { break };
            count(&self.figures.prefetches);
            let (vfs, caller, above) = (self.clone(), call.caller, above.clone());
            self.runtime.spawn(async move {
                if let Err(error) = vfs.list_one_ahead(caller, &above, &wanted).await {
                    tracing::debug!(%error, "a directory was not listed ahead");
                }
                drop(place);
            });
        }
        Ok(())
    }

    /// The directories in a directory, after a name.
    fn directories_after(&self, above: &Inode, after: Option<&Name>, limit: usize) -> Result<Vec<Sibling>> {
        let mut directories = Vec::new();
        for (name, dentry) in self.store.dentries(above.id, after, NAMES_MAX)? {
            let DentryTarget::Node(node) = dentry.target else { continue };
            let record = self.store.node(node)?;
            if record.is_some_and(|record| record.attributes.kind == FileKind::Directory) {
                directories.push((name, node));
            }
            if directories.len() == limit {
                break;
            }
        }
        Ok(directories)
    }

    /// The directory, if its source would have to be asked for its list, and the caller may be told without asking.
    fn worth_listing(&self, call: &Call, node: NodeId) -> Result<Option<Arc<Inode>>> {
        let dir = self.inode(node)?;
        let worth =
            self.admits(&dir, call) && !self.listing_holds(&dir, &call.caller)? && dir.arrival(|_| true).is_none();
        Ok(worth.then_some(dir))
    }

    async fn list_one_ahead(self: &Arc<Self>, caller: Caller, above: &Inode, dir: &Arc<Inode>) -> Result<()> {
        let _seat = self.prefetch.seat().await;
        // Whoever holds the gate asks already.
        let Ok(_gate) = dir.gate.try_lock() else { return Ok(()) };
        let call = self.call(caller);
        if self.worth_listing(&call, dir.id)?.is_none() {
            return Ok(());
        }
        let since = Instant::now();
        dir.listed_ahead.store(true, Ordering::Release);
        count(&self.figures.listings_remote);
        let listed = self.list_remote(&call, dir).await;
        let at_hand = listed.and_then(|_| self.listing_holds(dir, &caller));
        {
            let mut walk = above.walk.lock();
            let directories = walk.of(Want::Names);
            directories.latency = since.elapsed();
            directories.in_vain |= matches!(at_hand, Ok(false));
        }
        if !matches!(at_hand, Ok(true)) {
            dir.listed_ahead.store(false, Ordering::Release);
        }
        at_hand.map(|_| ())
    }
}

/// Names that are looked through for directories.
const NAMES_MAX: usize = 256;
