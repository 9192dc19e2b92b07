//! Making room: evictions when a bound is met, and the task that enters what earlier lives left and keeps the disk
//! from filling up.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use weft_store::{Bound, Candidate, Class, Evicted, NodeId};

use crate::Result;
use crate::journal::Eviction;
use crate::notice::Notice;
use crate::vfs::Vfs;

/// Bytes that were evicted of late: the disk shows them free only when the store has made that durable.
#[derive(Debug, Default)]
pub(crate) struct Leaving {
    since: Option<Instant>,
    bytes: u64,
}

impl Leaving {
    fn add(&mut self, bytes: u64) {
        let before = self.bytes();
        *self = Leaving { since: Some(Instant::now()), bytes: before + bytes };
    }

    fn bytes(&self) -> u64 {
        if self.since.is_some_and(|since| since.elapsed() < LEAVING_TIME) { self.bytes } else { 0 }
    }
}

impl Vfs {
    /// Evicts the longest unused scratch content that counts towards a bound, until `wanted` bytes are free of it.
    /// Returns how many are; a bounded amount of work, after which the keeper goes on.
    pub(crate) fn evict_oldest(&self, bound: Bound, wanted: u64, reason: &str) -> u64 {
        let mut freed = 0;
        let mut after = None;
        for _ in 0..STEPS_MAX {
            let (candidates, next) = self.store.oldest(bound, after, EVICTIONS_AT_ONCE);
            // What is in memory may have been used since the ledger heard of it: then it has another place in the order.
            let moved =
                candidates.iter().filter(|candidate| self.store.refresh_use(candidate.node) > candidate.used_us);
            if moved.count() > 0 {
                continue;
            }
            let mut chosen = Vec::new();
            let mut hoped = freed;
            for candidate in candidates {
                if hoped >= wanted {
                    break;
                }
                if self.is_scratch(candidate.node) && self.lets_go(candidate.node) {
                    hoped += candidate.bytes;
                    chosen.push(candidate);
                }
            }
            freed += self.evict_all(&chosen, reason);
            if freed >= wanted || next.is_none() {
                return freed;
            }
            after = next;
        }
        self.space.wanted.notify_one();
        freed
    }

    /// Writes the journal, then evicts; returns the bytes freed.
    fn evict_all(&self, chosen: &[Candidate], reason: &str) -> u64 {
        if chosen.is_empty() {
            return 0;
        }
        let at_unix_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let lines: Vec<Eviction> = chosen
            .iter()
            .map(|candidate| Eviction {
                at_unix_s,
                path: self.place_of(candidate.node).map(|place| place.text()).unwrap_or_default(),
                bytes: candidate.bytes,
                class: class_word(Class::Scratch).to_string(),
                reason: reason.to_string(),
            })
            .collect();
        if let Err(error) = self.space.journal.write(&lines) {
            // On a full disk no line can be written; what is evicted is what helps against that.
            self.troubles.tell(String::new(), format!("the journal of evictions cannot be written: {error}"));
        }
        let mut freed = 0;
        for candidate in chosen {
            match self.store.evict(candidate.node, candidate.used_us) {
                Ok(Evicted::Done { bytes }) => {
                    freed += bytes;
                    // The kernel's pages of it, and its hold on the file where it reads that itself.
                    self.notices.send(Notice::Content { node: self.namespace.shown(candidate.node) });
                }
                Ok(Evicted::InUse | Evicted::Gone) => {}
                Err(error) => {
                    self.troubles.tell(self.path_text(candidate.node), format!("not evicted: {error}"));
                    break;
                }
            }
        }
        self.space.leaving.lock().add(freed);
        freed
    }

    /// Whether a node's content is scratch still: it may have been pinned while it came, when it had no line in the
    /// accounts that the pin could have changed.
    fn is_scratch(&self, node: NodeId) -> bool {
        match self.account_of(node) {
            Ok(account) if account.class != Class::Scratch => {
                self.store.transfer(node, account);
                false
            }
            Ok(_) => true,
            // What nothing leads to any more is nobody's.
            Err(_) => true,
        }
    }

    /// Has the inode of a node let go of its content, unless somebody has it open or it is still coming.
    fn lets_go(&self, node: NodeId) -> bool {
        let Some(inode) = self.inodes.peek(node) else { return true };
        let mut content = inode.content.lock();
        content.arrivals.retain(|arrival| arrival.is_running());
        if !content.is_closed() || !content.arrivals.is_empty() {
            return false;
        }
        // The object is dropped after the lock: its own locks come first.
        let current = content.current.take();
        drop(content);
        drop(current);
        true
    }

    /// Whether the disk has room for all that it has been promised to, beyond what is to stay free; evicts for it.
    pub(crate) fn keeps_free(&self) -> bool {
        let needed = self.space.options.keep_free().saturating_add(self.space.promises.bytes());
        let free = self.store.usage().free_bytes.saturating_add(self.space.leaving.lock().bytes());
        match needed.saturating_sub(free) {
            0 => true,
            wanted => self.evict_oldest(Bound::All, wanted, "[cache] keep_free") >= wanted,
        }
    }

    /// Starts the keeper, which ends with the file system.
    pub(crate) fn keep_space(self: &Arc<Self>) {
        let vfs = Arc::downgrade(self);
        let wanted = Arc::clone(&self.space.wanted);
        self.runtime.spawn(async move {
            count(&vfs).await;
            if let Some(vfs) = vfs.upgrade() {
                vfs.keep_tree_bounds();
            }
            loop {
                let Some(strong) = vfs.upgrade() else { return };
                strong.keep_bounds();
                if let Err(error) = strong.store.note_uses() {
                    tracing::debug!(%error, "the last uses of files were not noted");
                }
                drop(strong);
                // Not sooner again than this, however often it is called.
                tokio::time::sleep(KEEPER_PAUSE).await;
                let _ = tokio::time::timeout(KEEPER_INTERVAL, wanted.notified()).await;
            }
        });
    }

    /// Evicts what is over the bounds: they may have been lowered since it was stored, or more of it be scratch now.
    fn keep_bounds(&self) {
        let bounds = [(Bound::All, "[cache] max"), (Bound::Scratch, "[cache] scratch_max")];
        for (bound, reason) in bounds {
            self.keep_bound(bound, reason);
        }
        for nth in 0..self.space.options.rules.len() {
            self.keep_bound(Bound::Rule(nth), "max of [[tree]]");
        }
        self.keeps_free();
    }

    /// The same for the bound on each tree, once: what comes later is refused before it is stored.
    fn keep_tree_bounds(&self) {
        if self.space.options.tree_max.is_some() {
            let trees: std::collections::HashSet<NodeId> = self.store.sums().keys().map(|(tree, ..)| *tree).collect();
            trees.into_iter().for_each(|tree| self.keep_bound(Bound::Tree(tree), "[cache] max_per_host"));
        }
    }

    fn keep_bound(&self, bound: Bound, reason: &str) {
        if let (filled, Some(max)) = self.store.filled(bound)
            && filled > max
        {
            self.evict_oldest(bound, filled - max, reason);
        }
    }
}

/// Enters the objects of earlier lives into the accounts, a few at a time.
async fn count(vfs: &Weak<Vfs>) {
    let mut after = None;
    loop {
        let Some(vfs) = vfs.upgrade() else { return };
        match enter_some(&vfs, after) {
            Ok(Some(last)) => after = Some(last),
            Ok(None) => {
                vfs.space.counted.store(true, Ordering::SeqCst);
                return;
            }
            Err(error) => {
                let text =
                    format!("what the cache holds could not be counted: {error}; bounds count what is new alone");
                vfs.troubles.tell(String::new(), text);
                return;
            }
        }
        drop(vfs);
        tokio::task::yield_now().await;
    }
}

/// Enters some objects after `after`; the last of them, `None` when there are no more.
fn enter_some(vfs: &Vfs, after: Option<NodeId>) -> Result<Option<NodeId>> {
    let nodes = vfs.store.objects(after, COUNTED_AT_ONCE)?;
    for node in &nodes {
        vfs.store.enter(*node, vfs.account_of(*node)?)?;
    }
    Ok(nodes.last().copied())
}

/// A class as the configuration writes it.
pub(crate) fn class_word(class: Class) -> &'static str {
    match class {
        Class::Pinned => "pinned",
        Class::Kept => "kept",
        Class::Scratch => "scratch",
    }
}

/// Objects looked at together for eviction.
const EVICTIONS_AT_ONCE: usize = 64;
/// How often that is done for one call: enough to hear of the uses of all files in memory.
const STEPS_MAX: usize = 256;
/// Objects entered into the accounts before others get their turn.
const COUNTED_AT_ONCE: usize = 64;
/// How long evicted bytes count as free although the disk may not show it: longer than the store takes.
const LEAVING_TIME: Duration = Duration::from_secs(1);
/// How often the keeper looks, and how long it rests at least.
const KEEPER_INTERVAL: Duration = Duration::from_secs(5);
const KEEPER_PAUSE: Duration = Duration::from_millis(200);
