//! The store: the one door to what this machine holds.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;
use serde::de::DeserializeOwned;
use weft_remote::{Lease, Name, Notes, Version};

use crate::bindings::Bindings;
use crate::database::Place;
use crate::dirty::Dirty;
use crate::disk::Disk;
use crate::draft_files::DraftFiles;
use crate::flusher::Flusher;
use crate::index::Index;
use crate::marks::{self, Marks};
use crate::notes::StoreNotes;
use crate::numbers::Numbers;
use crate::shelf::Shelf;
use crate::small::Small;
use crate::stage::{Change, Due};
use crate::sweeper::Sweeper;
use crate::troubles::Troubles;
use crate::{
    Account, Affinity, BindingId, Bound, Bounds, Candidate, Class, DentryRecord, Evicted, ListingRecord, NewObject,
    NodeId, NodeRecord, Object, ObjectRecord, Record, Result, StoreError, StoreOptions, Sum, Usage, key, value,
};

/// What this machine holds: names, attributes and leases in an index, content as objects.
///
/// A change is visible to every later call at once and durable within the flush interval, or when
/// [`Store::flush`] returns. Dropping the store makes everything durable. Calls may be made from any thread; those
/// that miss what is in memory read the disk.
#[derive(Debug)]
pub struct Store {
    _sweeper: Sweeper,
    // Dropped after the sweeper and before the shelf: it writes what is left.
    _flusher: Flusher,
    shelf: Arc<Shelf>,
    drafts: Arc<DraftFiles>,
    dir: PathBuf,
    pub(crate) numbers: Numbers,
    marks: Marks,
    bindings: Bindings,
}

impl Store {
    /// Opens the store in `dir`, which is made if need be (for this user alone). A database that cannot be read is
    /// set aside and a new one begun; [`Store::troubles`] tells.
    ///
    /// # Errors
    /// `InUse` when another daemon has it open, `Full`, `Io`.
    pub fn open(dir: &Path, options: StoreOptions) -> Result<Arc<Store>> {
        Store::open_on(Disk::default(), dir, options)
    }

    pub(crate) fn open_on(disk: Disk, dir: &Path, options: StoreOptions) -> Result<Arc<Store>> {
        let refused = |error| StoreError::from_io(dir, error);
        disk.make_dir(dir).map_err(refused)?;
        let lock = disk.lock(&dir.join(LOCK_NAME)).map_err(refused)?;
        let lock = lock.ok_or_else(|| StoreError::InUse { path: dir.into() })?;
        let troubles = Arc::new(Troubles::default());
        let place = Place {
            disk: disk.clone(),
            dir: dir.into(),
            cache_bytes: options.index_cache_bytes,
            troubles: Arc::clone(&troubles),
        };
        let small = Arc::new(Small::open(dir.join(SEGMENTS_NAME), disk.clone(), Arc::clone(&troubles))?);
        let (index, flusher) = Index::open(place, Arc::clone(&small), options.flush_interval, options.journal)?;
        let numbers = Numbers::of(&index)?;
        let bindings = Bindings::of(&index)?;
        let objects = dir.join(OBJECTS_NAME);
        let drafts = DraftFiles::new(&disk, dir.join(DIRTY_NAME));
        let shelf = Shelf::open(objects, disk, index, small, troubles, lock, options.use_interval)?;
        let shelf = Arc::new(shelf);
        shelf.small.replay(|key| shelf.refers_to(key))?;
        let sweeper = Sweeper::start(Arc::clone(&shelf))?;
        Ok(Arc::new(Store {
            _sweeper: sweeper,
            _flusher: flusher,
            shelf,
            drafts,
            dir: dir.into(),
            numbers,
            marks: Marks::default(),
            bindings,
        }))
    }

    /// What is known of a node.
    ///
    /// # Errors
    /// `Index` when the database cannot be read; so with every call that reads the index.
    pub fn node(&self, node: NodeId) -> Result<Option<NodeRecord>> {
        self.read(&key::node(node))
    }

    /// What a name in a directory leads to.
    ///
    /// # Errors
    /// `Index`.
    pub fn dentry(&self, dir: NodeId, name: &Name) -> Result<Option<DentryRecord>> {
        self.read(&key::dentry(dir, name))
    }

    /// The names known in a directory, in byte order, at most `limit` after `after`.
    ///
    /// # Errors
    /// `Index`.
    pub fn dentries(&self, dir: NodeId, after: Option<&Name>, limit: usize) -> Result<Vec<(Name, DentryRecord)>> {
        let prefix = key::dentries(dir);
        let mut after = after.map(|name| key::dentry(dir, name));
        let mut names = Vec::new();
        // Records that cannot be read are passed over, so more than one scan may be needed.
        while names.len() < limit {
            let pairs = self.shelf.index.scan(&prefix, after.as_deref(), limit - names.len())?;
            let Some((last, _)) = pairs.last() else { break };
            after = Some(last.clone());
            for (key, value) in pairs {
                let name = Name::new(&key[prefix.len()..]).ok();
                names.extend(name.zip(self.decode(&key, &value)));
            }
        }
        Ok(names)
    }

    /// What is known of a directory's listing as a whole.
    ///
    /// # Errors
    /// `Index`.
    pub fn listing(&self, dir: NodeId) -> Result<Option<ListingRecord>> {
        self.read(&key::listing(dir))
    }

    /// Makes all changes at once: visible to every later call, durable within the flush interval, and never in
    /// part. Waits when much is on its way to the disk already; changes by the ten thousand are better brought in
    /// portions.
    ///
    /// # Errors
    /// `Full` or `Index` when the database has not been able to take changes for so long that there is no more room
    /// in memory; then none of them is made.
    pub fn apply(&self, records: Vec<Record>) -> Result<()> {
        self.apply_by(records, Due::Soon)
    }

    /// The same for changes that tell no more than that something was so for longer ([`NodeRecord::confirms`]): they are
    /// durable a while later.
    ///
    /// # Errors
    /// As [`Store::apply`].
    pub fn apply_confirmed(&self, records: Vec<Record>) -> Result<()> {
        self.apply_by(records, Due::Later)
    }

    fn apply_by(&self, records: Vec<Record>, due: Due) -> Result<()> {
        // What only confirms changes no names.
        let touched = match due {
            Due::Soon => marks::touched(&records, |node| self.node(node).ok().flatten()),
            Due::Later => Vec::new(),
        };
        let changes = records.into_iter().map(encode).collect::<Result<Vec<_>>>()?;
        self.shelf.index.apply(changes, None, due)?;
        self.marks.change(&touched);
        Ok(())
    }

    /// A number that changes, before [`Store::apply`] returns, with the names of a directory or with who may see which of
    /// them. It may change without that as well, and says nothing to another store.
    pub fn names_mark(&self, dir: NodeId) -> u64 {
        self.marks.of(dir)
    }

    /// A number that changes with the mark of any directory ([`Store::names_mark`]).
    pub fn all_names_mark(&self) -> u64 {
        self.marks.of_all()
    }

    /// Waits until everything applied so far is durable.
    ///
    /// # Errors
    /// `Full` or `Index` when it could not be written; it stays in memory and is tried again.
    pub fn flush(&self) -> Result<()> {
        self.shelf.note_uses()?;
        self.shelf.index.flush()
    }

    /// Puts the uses on the list ([`Object::touch`]) into the index, to be durable within the flush interval.
    ///
    /// # Errors
    /// `Full`, `Index`.
    pub fn note_uses(&self) -> Result<()> {
        self.shelf.note_uses()
    }

    /// The number of a source: always the same for the same string.
    ///
    /// # Errors
    /// `Index`, also when there are more sources than numbers are given out for.
    pub fn binding(&self, source: &str) -> Result<BindingId> {
        self.bindings.number_of(source, &self.shelf.index)
    }

    /// Durable notes for one kind, apart from those of every other.
    pub fn notes(self: &Arc<Self>, kind: &str) -> Arc<dyn Notes> {
        Arc::new(StoreNotes::of_kind(Arc::clone(&self.shelf.index), kind))
    }

    /// What was found damaged or could not be done, and what was done about it: plain sentences, oldest first.
    pub fn troubles(&self) -> Vec<String> {
        self.shelf.troubles.list()
    }

    /// Figures of the store and of the disk that it is on.
    pub fn usage(&self) -> Usage {
        let (object_bytes, objects) = self.shelf.totals();
        let (free_bytes, total_bytes) = self.shelf.disk.space(&self.dir).unwrap_or_default();
        let nodes = self.shelf.index.get(key::NODES).ok().flatten();
        let nodes = nodes.and_then(|value| value::decode(key::NODES, &value).ok()).unwrap_or(0);
        Usage { object_bytes, objects, nodes, free_bytes, total_bytes }
    }

    /// The committed object of a node, whole or in part. All callers share one.
    ///
    /// # Errors
    /// `Index`, `Io`. An object whose file is missing or too short is given up and is `None`.
    pub fn object(&self, node: NodeId) -> Result<Option<Arc<Object>>> {
        self.shelf.object(node)
    }

    /// What is known of a node's object, without opening it.
    ///
    /// # Errors
    /// `Index`.
    pub fn object_record(&self, node: NodeId) -> Result<Option<ObjectRecord>> {
        self.shelf.record(node)
    }

    /// A new generation of a node's object, to be written and committed. Nobody sees it until then.
    ///
    /// # Errors
    /// `Full`, `Io`.
    pub fn create(self: &Arc<Self>, node: NodeId, new: NewObject) -> Result<Arc<Object>> {
        self.shelf.create(node, NewObject { lease: encodable(new.lease), ..new })
    }

    /// The generation of an object that were begun now: those of earlier generations were begun before.
    pub fn next_generation(&self) -> u64 {
        self.shelf.coming_number()
    }

    /// Makes an object that has no bytes yet and writes none: it takes over what was written ([`Object::take_over`]).
    pub fn create_to_come(self: &Arc<Self>, node: NodeId, new: NewObject) -> Arc<Object> {
        self.shelf.create_to_come(node, NewObject { lease: encodable(new.lease), ..new })
    }

    /// The source has another version of a node's content, which is not here yet: what is held is confirmed no more, and stays
    /// until a newer one is committed. Whether it is there, and whole; in part it is not marked, for it is of little use.
    ///
    /// # Errors
    /// `Full`, `Index`.
    pub fn supersede(&self, node: NodeId) -> Result<bool> {
        self.shelf.supersede(node)
    }

    /// The source confirmed a node's content at `checked`, with this lease. Nothing happens when there is none, or it is
    /// superseded.
    ///
    /// # Errors
    /// `Full`, `Index`.
    pub fn renew(&self, node: NodeId, lease: Lease, checked: SystemTime) -> Result<()> {
        self.shelf.renew(node, encodable(lease), checked)
    }

    /// Removes a node's object and tells the bytes freed on disk; who has it open can go on reading.
    ///
    /// # Errors
    /// `Full`, `Index`.
    pub fn remove_object(&self, node: NodeId) -> Result<u64> {
        self.shelf.remove(node)
    }

    /// A generation that no object has, now or later.
    pub fn new_generation(&self) -> u64 {
        self.shelf.next_number()
    }

    /// Begins to hold what is written to a node whose source has it in this version and length, for those who have it open
    /// under the generation `readers`. What was held before is gone.
    ///
    /// # Errors
    /// `Full`, `Io`.
    pub fn dirty(&self, node: NodeId, version: Version, length: u64, readers: u64) -> Result<Dirty> {
        Dirty::begin(&self.drafts, node, (version, length), Some(readers))
    }

    /// What was written and not sent when a former daemon ended. What cannot be read is left where it is, and told as a
    /// trouble.
    pub fn left_dirty(&self) -> Vec<Dirty> {
        let tell = |error: &StoreError| {
            self.shelf.troubles.tell(format!("what was written to a file cannot be sent to its source: {error}"));
        };
        let left = self.drafts.left().inspect_err(tell).unwrap_or_default();
        left.damaged.iter().for_each(tell);
        let again = |left| Dirty::again(&self.drafts, left).inspect_err(tell).ok().flatten();
        left.nodes.into_iter().filter_map(again).collect()
    }

    /// Where the cache lies.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether a content of this length takes no more of the disk than the store has reserved already.
    pub fn is_reserved(&self, bytes: u64) -> bool {
        bytes <= Small::CONTENT_BYTES_MAX && self.shelf.small.has_room()
    }

    /// Sets the bounds on what is held; they are compared when room is reserved ([`Object::reserve`]).
    pub fn bind(&self, bounds: Bounds) {
        self.shelf.ledger.bind(bounds);
    }

    /// How much counts towards a bound, what is on its way included, and the bound.
    pub fn filled(&self, bound: Bound) -> (u64, Option<u64>) {
        self.shelf.ledger.filled(bound)
    }

    /// How much counts towards a bound, how much of that may be evicted, and the bound.
    pub fn standing(&self, bound: Bound) -> (u64, u64, Option<u64>) {
        self.shelf.ledger.standing(bound)
    }

    /// The bound that this many bytes would pass even when all that may be evicted were; `None` when they may fit.
    pub fn never_fits(&self, account: &Account, bytes: u64) -> Option<Bound> {
        self.shelf.ledger.never_fits(account, bytes)
    }

    /// The longest unused objects of class scratch that count towards a bound, after the place `after`; and the place
    /// to go on from, `None` at the end. Looks at a bounded number of objects.
    pub fn oldest(
        &self,
        bound: Bound,
        after: Option<(u64, NodeId)>,
        limit: usize,
    ) -> (Vec<Candidate>, Option<(u64, NodeId)>) {
        self.shelf.ledger.oldest(bound, after, limit)
    }

    /// Removes an object that nobody writes and that was not used since `used_us` (microseconds since 1970); who has it
    /// open keeps reading.
    ///
    /// # Errors
    /// `Full`, `Index`.
    pub fn evict(&self, node: NodeId, used_us: u64) -> Result<Evicted> {
        self.shelf.evict(node, used_us)
    }

    /// When a node's object was last used, in microseconds since 1970, by all that is known; 0 without one. After this
    /// [`Store::oldest`] knows as well.
    pub fn refresh_use(&self, node: NodeId) -> u64 {
        self.shelf.refresh_use(node)
    }

    /// The nodes that have objects, at most `limit` after `after`.
    ///
    /// # Errors
    /// `Index`.
    pub fn objects(&self, after: Option<NodeId>, limit: usize) -> Result<Vec<NodeId>> {
        self.shelf.nodes(after, limit)
    }

    /// Enters an object of an earlier life of the daemon into the accounts; nothing happens when it is there already.
    ///
    /// # Errors
    /// `Index`.
    pub fn enter(&self, node: NodeId, account: Account) -> Result<()> {
        self.shelf.enter(node, account)
    }

    /// Changes what a node's object counts towards.
    pub fn transfer(&self, node: NodeId, account: Account) {
        self.shelf.ledger.transfer(node, account);
    }

    /// What a node's object counts towards, its bytes on disk and its last use in microseconds since 1970; `None`
    /// without an object, or before it was entered.
    pub fn account(&self, node: NodeId) -> Option<(Account, u64, u64)> {
        self.shelf.ledger.line(node).map(|line| (line.account, line.bytes, line.used_us))
    }

    /// What is held, by top-level tree, class and owner. Takes time with the number of objects.
    pub fn sums(&self) -> HashMap<(NodeId, Class, u32), Sum> {
        self.shelf.ledger.sums()
    }

    /// Waits until the files left behind by a kill have been removed.
    /// Says that these files are read together. Small contents of them are laid side by side where they come at about
    /// the same time.
    pub fn group(&self, affinity: Affinity, nodes: &[NodeId]) {
        self.shelf.small.group(affinity, nodes);
    }

    /// Looks at the tables of all volumes, and with `repair` writes them anew: how many are damaged, and how.
    pub(crate) fn check_volumes(&self, repair: bool) -> Result<(u64, Vec<String>)> {
        self.shelf.small.check(repair)
    }

    #[cfg(test)]
    pub(crate) fn wait_for_sweeper(&self) {
        self._sweeper.wait();
    }

    pub(crate) fn index(&self) -> &Index {
        &self.shelf.index
    }

    fn read<T: DeserializeOwned>(&self, key: &[u8]) -> Result<Option<T>> {
        let value = self.shelf.index.get(key)?;
        Ok(value.and_then(|value| self.decode(key, &value)))
    }

    /// Decodes a record; one that cannot be understood is as good as none, and told.
    pub(crate) fn decode<T: DeserializeOwned>(&self, key: &[u8], value: &[u8]) -> Option<T> {
        value::decode(key, value)
            .inspect_err(|error| {
                self.shelf.troubles.tell(format!(
                    "{}: a record of the index cannot be read ({error}) and counts as absent",
                    self.dir.display()
                ));
            })
            .ok()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // The flusher, which ends after this, writes them; a failure costs the order of a few uses.
        let _ = self.shelf.note_uses();
    }
}

fn encode(record: Record) -> Result<Change> {
    match record {
        Record::Node(node, mut record) => {
            if let Some(record) = &mut record {
                record.lease = encodable(record.lease);
            }
            change(key::node(node), record)
        }
        Record::Dentry(dir, name, mut record) => {
            record.iter_mut().for_each(|record| record.lease = encodable(record.lease));
            change(key::dentry(dir, &name), record)
        }
        Record::Listing(dir, mut record) => {
            record.iter_mut().for_each(|record| record.lease = encodable(record.lease));
            change(key::listing(dir), record)
        }
    }
}

fn change<T: Serialize>(key: key::Key, record: Option<T>) -> Result<Change> {
    let value = record.map(|record| value::encode(&key, &record)).transpose()?;
    Ok((key, value))
}

/// The encoding has no times of leases before 1970, which a source may name: one that ended then is spent.
fn encodable(lease: Lease) -> Lease {
    match lease.end() {
        Some(end) if end < SystemTime::UNIX_EPOCH => Lease::Spent,
        _ => lease,
    }
}

const LOCK_NAME: &str = "lock";
const OBJECTS_NAME: &str = "objects";
const DIRTY_NAME: &str = "dirty";
const SEGMENTS_NAME: &str = "segments";
