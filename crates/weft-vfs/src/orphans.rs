//! Files to which no name leads any more: somebody else has removed them at their source, or put another in their place.
//!
//! Nobody can come by what is known and held of such a file, and it would stay for good. So from time to time all names are
//! gone through. Of a file that none of them leads to, twice in a row, the source is asked, for it may only have been moved to
//! where nobody has looked yet, or be left out of a list: if it has the file no more, the file is forgotten, and so are names
//! below a directory that is known no more.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use weft_remote::{Call, Caller, FileKind, clock};
use weft_store::{BindingId, NodeId, NodeRecord, Onward, Record};

use crate::bygones::Bygones;
use crate::figures::count;
use crate::inode::Inode;
use crate::nameless::is_nameless;
use crate::send::is_away;
use crate::vfs::Vfs;
use crate::{Result, VfsError};

/// Files without a name that were found so far.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    /// When each is to be asked about at the earliest. Held for one look or one change.
    found: Mutex<HashMap<NodeId, Instant>>,
    /// How many rounds there were.
    rounds: AtomicU64,
    /// How long it took to go through all names the last time, in milliseconds.
    took_ms: AtomicU64,
}

/// What became of a file without a name.
enum Outcome {
    Forgotten,
    /// Somebody has it open, or has found it.
    InUse,
    /// Its source has it.
    IsThere,
    /// Its source does not say, which may pass.
    IsUntold,
}

/// Nodes that names lead to, a bit for each: one that is not in it has no name.
struct Named {
    bits: Vec<u64>,
    seed: u64,
}

impl Named {
    /// Room for about so many.
    fn new(nodes: u64, seed: u64) -> Named {
        let bits = nodes.saturating_mul(BITS_PER_NODE).clamp(BITS_MIN, BITS_MAX).next_power_of_two();
        Named { bits: vec![0; (bits / 64) as usize], seed }
    }

    fn note(&mut self, node: NodeId) {
        let (word, bit) = self.place(node);
        self.bits[word] |= bit;
    }

    /// Whether it was noted; now and then also where it was not, and by another seed then most likely not.
    fn has(&self, node: NodeId) -> bool {
        let (word, bit) = self.place(node);
        self.bits[word] & bit != 0
    }

    fn place(&self, node: NodeId) -> (usize, u64) {
        let mixed = (node.0 ^ self.seed.wrapping_mul(ODD)).wrapping_mul(ODD);
        let nth = (mixed ^ (mixed >> 32)).wrapping_mul(ODD) >> 16;
        ((nth / 64) as usize % self.bits.len(), 1 << (nth % 64))
    }
}

impl Vfs {
    /// Starts to forget files that are without a name, for as long as the file system is there.
    pub(crate) fn keep_names(self: &Arc<Self>) {
        self.runtime.spawn(rounds(Arc::downgrade(self)));
    }

    /// Goes through all names once, and forgets files that have none now and had none the last time, if their source says that
    /// it does not have them. Returns how many were forgotten. Names that are known to be absent go as well, as far as at that
    /// time it need not be known any more.
    ///
    /// # Errors
    /// When the store cannot be read or written.
    pub async fn forget_orphans(self: &Arc<Self>, as_of: SystemTime) -> Result<u64> {
        let (vfs, begun) = (self.clone(), Instant::now());
        let counted = tokio::task::spawn_blocking(move || vfs.census(as_of));
        let orphans = counted.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
        let now = Instant::now();
        self.orphans.took_ms.store(now.duration_since(begun).as_millis() as u64, Ordering::Relaxed);
        let due = self.note_orphans(orphans, now)?;
        let (mut forgotten, mut of_sites, mut silent) = (0, 0, HashSet::new());
        for id in due {
            if now.elapsed() > ASKING_TIME || self.ending.has_begun() {
                break;
            }
            let Some(inode) = self.orphan(id)? else { continue };
            let is_asked = self.is_asked_about(&inode)?;
            let is_of_site = is_asked && !self.has_identities(&inode)?;
            of_sites += usize::from(is_of_site);
            if is_of_site && of_sites > ASKED_OF_SITES {
                continue;
            }
            let source = self.source_of(&inode)?;
            let outcome = match is_asked && silent.contains(&source) {
                true => Outcome::IsUntold,
                false => self.forget_if_gone(&inode, is_asked).await?,
            };
            let pause = match outcome {
                Outcome::Forgotten => {
                    count(&self.figures.orphans_forgotten);
                    forgotten += 1;
                    continue;
                }
                Outcome::InUse | Outcome::IsUntold => PUT_OFF,
                Outcome::IsThere if is_of_site => SITES_ASKED_AGAIN_AFTER,
                Outcome::IsThere => ASKED_AGAIN_AFTER,
            };
            if matches!(outcome, Outcome::IsUntold) {
                silent.insert(source);
            }
            self.orphans.found.lock().insert(id, Instant::now() + pause);
        }
        Ok(forgotten)
    }

    /// Notes which files have no name now. Returns those that had none the last time either, and are not put off.
    fn note_orphans(&self, orphans: Vec<NodeId>, now: Instant) -> Result<Vec<NodeId>> {
        let mut before = std::mem::take(&mut *self.orphans.found.lock());
        let (mut found, mut due) = (HashMap::with_capacity(orphans.len()), Vec::new());
        for id in orphans {
            let at = before.remove(&id);
            due.extend(at.filter(|at| *at <= now).map(|_| id));
            found.insert(id, at.unwrap_or(now));
        }
        // One that was taken to have a name this time stays put off.
        for (id, at) in before.into_iter().filter(|(_, at)| *at > now) {
            let Some(record) = self.store.node(id)? else { continue };
            if !self.is_led_to(id, &record)? {
                found.insert(id, at);
            }
        }
        *self.orphans.found.lock() = found;
        Ok(due)
    }

    /// Whether the name that a file was found by leads to it.
    fn is_led_to(&self, id: NodeId, record: &NodeRecord) -> Result<bool> {
        let named = self.store.dentry(record.parent, &record.name)?;
        Ok(named.is_some_and(|named| named.node() == Some(id)))
    }

    /// Who is asked about a file.
    fn source_of(&self, inode: &Inode) -> Result<(BindingId, Option<String>)> {
        let record = inode.record();
        let source = self.remote_of(inode)?.source(&record.file);
        Ok((record.binding, source.map(|source| source.name)))
    }

    /// Goes through all that is known, and forgets what is left of directories that are not. Returns files that no name leads
    /// to.
    fn census(&self, now: SystemTime) -> Result<Vec<NodeId>> {
        let seed = self.orphans.rounds.fetch_add(1, Ordering::Relaxed);
        let mut named = Named::new(self.store.usage().nodes, seed);
        let mut strays = Vec::new();
        self.namespace.all().iter().for_each(|bound| named.note(bound.root));
        let (mut onward, mut last) = (Onward::default(), None::<Bygones>);
        loop {
            let names = self.store.names_onward(&mut onward, RECORDS_AT_ONCE)?;
            if self.ending.has_begun() {
                return Ok(Vec::new());
            }
            if names.is_empty() {
                self.forget_bygones(last)?;
                break;
            }
            for (dir, name, dentry) in names {
                if last.as_ref().is_none_or(|bygones: &Bygones| bygones.dir() != dir) {
                    self.note_stray(dir, &mut strays)?;
                    let former = last.replace(self.bygones_in(dir, now)?);
                    self.forget_bygones(former)?;
                }
                match dentry.node() {
                    Some(node) => named.note(node),
                    None => last.iter_mut().for_each(|bygones| bygones.note(&name, &dentry)),
                }
            }
            last = self.forget_many_bygones(last)?;
        }
        let mut onward = Onward::default();
        loop {
            let listings = self.store.listings_onward(&mut onward, RECORDS_AT_ONCE)?;
            if listings.is_empty() {
                break;
            }
            listings.into_iter().try_for_each(|dir| self.note_stray(dir, &mut strays))?;
        }
        for dir in strays {
            while self.forget_names_in(dir)? && !self.ending.has_begun() {}
        }
        let mut orphans = Vec::new();
        let mut onward = Onward::default();
        loop {
            let nodes = self.store.nodes_onward(&mut onward, RECORDS_AT_ONCE)?;
            if nodes.is_empty() {
                return Ok(orphans);
            }
            let nameless =
                nodes.into_iter().filter(|(id, binding)| !named.has(*id) && self.namespace.bound(*binding).is_some());
            let left = ORPHANS_MAX - orphans.len();
            orphans.extend(nameless.map(|(id, _)| id).take(left));
        }
    }

    /// Notes a directory of which names or a listing are known, and it is not.
    fn note_stray(&self, dir: NodeId, strays: &mut Vec<NodeId>) -> Result<()> {
        let is_known = self.namespace.is_own(dir) || self.store.node(dir)?.is_some();
        if !is_known && strays.last() != Some(&dir) && strays.len() < ORPHANS_MAX {
            strays.push(dir);
        }
        Ok(())
    }

    /// A file that was found to be without a name, if it is known still.
    fn orphan(&self, id: NodeId) -> Result<Option<Arc<Inode>>> {
        if let Some(inode) = self.inodes.peek(id) {
            return Ok(Some(inode));
        }
        let Some(record) = self.store.node(id)? else { return Ok(None) };
        Ok(Some(Arc::new(Inode::new(id, self.policy_of(&record)?, record))))
    }

    /// Whether a source is asked before a file without a name is forgotten. Of a file that is what its name says (a URL) it is
    /// only if something is held of it: else nothing is known that the next list would not tell.
    fn is_asked_about(&self, inode: &Inode) -> Result<bool> {
        if inode.is_gone() {
            return Ok(false);
        }
        let holds_more = inode.kind() == FileKind::Directory || self.store.object_record(inode.id)?.is_some();
        Ok(holds_more || self.has_identities(inode)?)
    }

    /// Forgets a file without a name, if its source, where that is asked, does not have it and nobody here does.
    ///
    /// # Errors
    /// As of [`Vfs::forget_orphans`].
    async fn forget_if_gone(self: &Arc<Self>, inode: &Arc<Inode>, is_asked: bool) -> Result<Outcome> {
        let id = inode.id;
        let _gate = inode.gate.lock().await;
        if self.is_in_use(inode) {
            return Ok(Outcome::InUse);
        }
        if is_asked {
            let (remote, record) = (self.remote_of(inode)?.clone(), inode.record());
            let call = Call::within(Caller::DAEMON, self.options.deadline);
            let question = || remote.attributes(&call, &record.file, &record.version);
            match self.ask_of(&call, inode, question).await {
                Err(error) if is_away(&error) => {}
                Err(error) if error.may_pass() => return Ok(Outcome::IsUntold),
                Ok(_) | Err(_) => return Ok(Outcome::IsThere),
            }
        }
        let names = self.renames.lock();
        let Some(record) = self.store.node(id)? else { return Ok(Outcome::Forgotten) };
        if self.is_in_use(inode) || self.is_led_to(id, &record)? {
            return Ok(Outcome::InUse);
        }
        self.store.apply(vec![Record::Node(id, None)])?;
        drop(names);
        self.give_up_content(id)?;
        self.forget_what_was_of(id, &record)?;
        Ok(Outcome::Forgotten)
    }

    /// Forgets what else there is of a file that is known no more; of a directory with many names the next round does the rest.
    pub(crate) fn forget_what_was_of(&self, id: NodeId, record: &NodeRecord) -> Result<()> {
        self.namespace.forget_face(id);
        if is_nameless(&record.file) || record.attributes.links == Some(0) {
            self.forget_nameless(id);
        }
        self.namespace.remote(record.binding).into_iter().for_each(|remote| remote.forget(&record.file));
        match record.attributes.kind {
            FileKind::Directory => self.forget_names_in(id).map(drop),
            _ => Ok(()),
        }
    }

    /// Whether somebody has a file open, or it is being fetched or written.
    fn is_in_use(&self, inode: &Inode) -> bool {
        let is_fetched = inode.arrival(|_| true).is_some();
        is_fetched || !inode.content.lock().is_closed() || inode.draft().is_some()
    }

    /// Forgets some of what is known of the names in a directory that is known no more; says whether there may be others. What
    /// they lead to has one name less.
    fn forget_names_in(&self, dir: NodeId) -> Result<bool> {
        let _names = self.renames.lock();
        if self.store.node(dir)?.is_some() {
            return Ok(false);
        }
        let listing = self.store.listing(dir)?.map(|_| Record::Listing(dir, None));
        let names = self.store.dentries(dir, None, NAMES_AT_ONCE)?;
        let there_may_be_others = names.len() == NAMES_AT_ONCE;
        let forgotten = names.into_iter().map(|(name, _)| Record::Dentry(dir, name, None));
        self.store.apply(listing.into_iter().chain(forgotten).collect())?;
        Ok(there_may_be_others)
    }
}

/// Goes through all names every now and then, when some have changed.
async fn rounds(vfs: Weak<Vfs>) {
    let (mut pause, mut last_mark) = (PERIOD, None);
    loop {
        tokio::time::sleep(pause).await;
        let Some(vfs) = vfs.upgrade() else { return };
        let mark = vfs.store.all_names_mark();
        let is_waited_for = vfs.orphans.found.lock().values().any(|due| *due <= Instant::now());
        if last_mark == Some(mark) && !is_waited_for {
            continue;
        }
        match vfs.forget_orphans(clock::now()).await {
            Ok(forgotten) => tracing::debug!(forgotten, "names were gone through"),
            Err(VfsError::Store(error)) => tracing::warn!(%error, "files without a name are not forgotten"),
            Err(error) => tracing::debug!(%error, "files without a name are not forgotten"),
        }
        last_mark = Some(mark);
        pause = PERIOD.max(Duration::from_millis(vfs.orphans.took_ms.load(Ordering::Relaxed)) * REST);
    }
}

/// How often names are gone through at the most, and how much longer than that takes it rests.
const PERIOD: Duration = Duration::from_secs(60);
const REST: u32 = 500;
/// Records that are read at once.
const RECORDS_AT_ONCE: usize = 4096;
/// Names that are forgotten at once.
const NAMES_AT_ONCE: usize = 1024;
/// Files without a name that are remembered; others are found when these are gone.
const ORPHANS_MAX: usize = 1 << 18;
/// How long sources are asked in one round, and about how many files of web sites at the most.
const ASKING_TIME: Duration = Duration::from_secs(20);
const ASKED_OF_SITES: usize = 64;
/// When one is looked at again that is in use, or of which its source does not tell.
const PUT_OFF: Duration = Duration::from_secs(600);
/// When it is asked again about one that it has.
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(24 * 3600);
const SITES_ASKED_AGAIN_AFTER: Duration = Duration::from_secs(30 * 24 * 3600);
/// Bits for each node: of 16 without a name, one is taken to have one.
const BITS_PER_NODE: u64 = 16;
const BITS_MIN: u64 = 1 << 16;
const BITS_MAX: u64 = 1 << 31;
/// Mixes the bits of a number.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what was noted is found by every seed; what was not is, nearly always, not.
    #[test]
    fn who_has_a_name_is_known_and_few_others() {
        let node = |nth: u64| NodeId(nth.wrapping_mul(0x1234_5678_9abc_def1) >> (nth % 8));
        for seed in 0..4 {
            let mut named = Named::new(10_000, seed);
            (0..10_000).for_each(|nth| named.note(node(nth)));
            assert!((0..10_000).all(|nth| named.has(node(nth))));
            let taken = (10_000..20_000).filter(|nth| named.has(node(*nth))).count();
            assert!(taken < 1000, "seed {seed}: {taken} of 10000");
        }
    }
}
