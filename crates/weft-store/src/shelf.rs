//! Where objects stand: which file holds the object of a node, who has it open, and how much there is of it all.
//!
//! The bytes of a small object are in a segment (`small.rs`); any other has a file,
//! `objects/<2 hex>/<node>-<generation>`. A generation is never used twice: numbers start at the
//! nanoseconds of the clock when the store is opened and count up, and a name that exists is passed over. So the
//! files of this life have numbers from the *floor* on, and the sweeper, which removes files that no record
//! mentions, leaves those alone.
//!
//! Commit changes the record in memory at once; it is durable with the next flush of the index, and only then is the
//! file of the replaced generation removed, so that a kill in between leaves either the old object or the new one.
//! Content is not synced to the disk before its record is: a kill of the daemon loses nothing of either (the system
//! has the bytes), and what a power cut tears is noticed by the checksums when it is read, given up, and fetched
//! again.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use weft_remote::Lease;

use crate::body::Body;
use crate::disk::{Disk, DiskFile, Lock};
use crate::index::Index;
use crate::ledger::{Ledger, Line};
use crate::object::{OBJECT_BYTES_MAX, Standing};
use crate::records::superseded;
use crate::small::{Small, SmallKey};
use crate::stage::{Change, Doomed, Due};
use crate::troubles::Troubles;
use crate::uses::{micros, use_noted};
use crate::value;
use crate::{NewObject, NodeId, Object, ObjectRecord, Result, StoreError, key};

/// The objects of one store.
#[derive(Debug)]
pub(crate) struct Shelf {
    pub(crate) dir: PathBuf,
    pub(crate) disk: Disk,
    pub(crate) index: Arc<Index>,
    /// Where small contents are.
    pub(crate) small: Arc<Small>,
    pub(crate) troubles: Arc<Troubles>,
    /// Orders the changes of object records; guards the totals. Held while the index is read (which may read the
    /// disk) and never taken to read content. Taken before `live` and before any object's state.
    pub(crate) changes: Mutex<Totals>,
    /// Guards the table of open objects; held for no I/O. Taken before any object's state.
    live: Mutex<Live>,
    numbers: AtomicU64,
    /// Files with generations from here on were made in this life of the daemon.
    pub(crate) floor: u64,
    /// Who uses how much; changed together with the records.
    pub(crate) ledger: Arc<Ledger>,
    /// Uses to be made durable, bounded; held for one change, with no other lock taken under it.
    pub(crate) uses: Mutex<Vec<(NodeId, u64)>>,
    pub(crate) use_interval_us: u64,
    held_bytes: AtomicU64,
    held_count: AtomicU64,
    /// Keeps other daemons out for as long as anything of this store is open.
    _lock: Lock,
}

#[derive(Debug, Default)]
struct Live {
    objects: HashMap<NodeId, (u64, Weak<Object>)>,
    /// Counts commits and removals, so that an object opened meanwhile is known to be old.
    changes: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    bytes: u64,
    objects: u64,
    /// Which database these count; see [`Index::begun_anew`].
    database: u64,
}

impl Shelf {
    /// The objects below `dir`, as `index` knows them.
    pub(crate) fn open(
        dir: PathBuf,
        disk: Disk,
        index: Arc<Index>,
        small: Arc<Small>,
        troubles: Arc<Troubles>,
        lock: Lock,
        use_interval: Duration,
    ) -> Result<Shelf> {
        disk.make_dir(&dir).map_err(|error| StoreError::from_io(&dir, error))?;
        let totals = index.get(key::TOTALS)?.and_then(|value| value::decode(key::TOTALS, &value).ok());
        let (bytes, objects) = totals.unwrap_or((0, 0));
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let floor = u64::try_from(now.as_nanos()).unwrap_or(1);
        Ok(Shelf {
            dir,
            disk,
            index,
            small,
            troubles,
            changes: Mutex::new(Totals { bytes, objects, database: 0 }),
            live: Mutex::new(Live::default()),
            numbers: AtomicU64::new(floor),
            floor,
            ledger: Arc::default(),
            uses: Mutex::default(),
            use_interval_us: u64::try_from(use_interval.as_micros()).unwrap_or(u64::MAX),
            held_bytes: AtomicU64::new(bytes),
            held_count: AtomicU64::new(objects),
            _lock: lock,
        })
    }

    /// Bytes on disk and number of the committed objects.
    pub(crate) fn totals(&self) -> (u64, u64) {
        (self.held_bytes.load(Ordering::Relaxed), self.held_count.load(Ordering::Relaxed))
    }

    /// A number that nothing else in this life has.
    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// The one that is given next.
    pub(crate) fn coming_number(&self) -> u64 {
        self.numbers.load(Ordering::Relaxed)
    }

    /// What the index knows of a node's object; a record that cannot be understood is as good as none.
    pub(crate) fn record(&self, node: NodeId) -> Result<Option<ObjectRecord>> {
        let key = key::object(node);
        let Some(value) = self.index.get(&key)? else { return Ok(None) };
        match value::decode::<ObjectRecord>(&key, &value) {
            Ok(record) if record.is_sound() => Ok(Some(record)),
            outcome => {
                let cause = outcome.err().map_or("its pieces make no sense".into(), |error| error.to_string());
                self.troubles.tell(format!(
                    "{}: the index's record of object {:016x} cannot be read ({cause}); the content will be fetched \
                     again",
                    self.dir.display(),
                    node.0
                ));
                self.index.apply(vec![(key, None)], None, Due::Soon)?;
                Ok(None)
            }
        }
    }

    /// A new generation of a node's object. It has a file when it is known to be too long for a segment.
    pub(crate) fn create(self: &Arc<Self>, node: NodeId, new: NewObject) -> Result<Arc<Object>> {
        if new.length.is_some_and(|length| length > OBJECT_BYTES_MAX) {
            return Err(StoreError::Io { path: self.dir.clone(), source: io::ErrorKind::FileTooLarge.into() });
        }
        if new.length.is_none_or(|length| length <= Small::CONTENT_BYTES_MAX) {
            let generation = self.next_number();
            let body = Body::draft(SmallKey { node, generation }, self.path(node, generation));
            return Ok(Arc::new(Object::draft(Arc::clone(self), node, generation, body, new)));
        }
        for _ in 0..NAME_TRIES {
            let generation = self.next_number();
            let path = self.path(node, generation);
            match self.create_file(&path) {
                Ok(file) => {
                    let body = Body::in_file(SmallKey { node, generation }, path, file);
                    return Ok(Arc::new(Object::draft(Arc::clone(self), node, generation, body, new)));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(StoreError::from_io(&path, error)),
            }
        }
        Err(StoreError::Io { path: self.dir.clone(), source: io::ErrorKind::AlreadyExists.into() })
    }

    /// Makes an object whose file is to come from elsewhere ([`Object::take_over`]).
    pub(crate) fn create_to_come(self: &Arc<Self>, node: NodeId, new: NewObject) -> Arc<Object> {
        let generation = self.next_number();
        let body = Body::in_file_to_come(SmallKey { node, generation }, self.path(node, generation));
        Arc::new(Object::draft(Arc::clone(self), node, generation, body, new))
    }

    /// The committed object of a node.
    pub(crate) fn object(self: &Arc<Self>, node: NodeId) -> Result<Option<Arc<Object>>> {
        for _ in 0..OPEN_TRIES {
            let before = {
                let live = self.live.lock();
                if let Some(object) = live.get(node) {
                    return Ok(Some(object));
                }
                live.changes
            };
            let Some(record) = self.record(node)? else { return Ok(None) };
            let generation = record.generation;
            let object = match self.open_body(node, &record) {
                Ok(body) => Arc::new(Object::of_record(Arc::clone(self), node, body, record)),
                Err(Unusable::Refused(error)) => {
                    return Err(StoreError::from_io(&self.path(node, generation), error));
                }
                Err(Unusable::Damaged(cause)) => {
                    self.drop_record(node, generation, cause)?;
                    continue;
                }
            };
            let mut live = self.live.lock();
            if let Some(object) = live.get(node) {
                return Ok(Some(object));
            }
            if live.changes == before {
                live.objects.insert(node, (generation, Arc::downgrade(&object)));
                return Ok(Some(object));
            }
        }
        Err(StoreError::Io { path: self.dir.clone(), source: io::ErrorKind::WouldBlock.into() })
    }

    /// See [`Object::commit`].
    pub(crate) fn commit(&self, object: &Arc<Object>) -> Result<()> {
        self.settle(object)?;
        let mut totals = self.changes.lock();
        if object.state.lock().standing == Standing::Gone {
            drop(totals);
            self.unsettle(object);
            return Ok(());
        }
        let record = object.record()?;
        let former = self.record(object.node)?;
        let replaced = former.as_ref().filter(|former| former.generation != record.generation);
        let doomed = replaced.map(|former| self.doomed(object.node, former.generation));
        self.put(&mut totals, object.node, former.as_ref(), Some(&record), doomed)?;
        self.post(object, &record);
        let mut live = self.live.lock();
        live.changes += 1;
        let entry = live.objects.insert(object.node, (object.generation, Arc::downgrade(object)));
        object.state.lock().standing = Standing::Committed;
        let replaced = entry.and_then(|(_, held)| held.upgrade());
        drop(live);
        if let Some(replaced) = replaced.filter(|replaced| replaced.generation != object.generation) {
            replaced.body.hold(&self.small);
            replaced.state.lock().standing = Standing::Gone;
        }
        Ok(())
    }

    /// See [`Object::discard`].
    pub(crate) fn discard(&self, object: &Object) {
        let _totals = self.changes.lock();
        let mut state = object.state.lock();
        if state.standing == Standing::Draft {
            state.standing = Standing::Gone;
            drop(state);
            if object.body.has_file() {
                self.remove_file(object.body.path());
            }
        }
    }

    /// See [`Object::revoke`].
    pub(crate) fn revoke(&self, object: &Object) -> Result<()> {
        self.discard(object);
        let mut totals = self.changes.lock();
        match self.record(object.node)?.filter(|record| record.generation == object.generation) {
            Some(record) => self.take_away(&mut totals, object.node, &record),
            None => Ok(()),
        }
    }

    /// The source confirmed the content.
    pub(crate) fn renew(&self, node: NodeId, lease: Lease, checked: SystemTime) -> Result<()> {
        let mut totals = self.changes.lock();
        let Some(former) = self.record(node)?.filter(|former| !former.is_superseded()) else { return Ok(()) };
        self.confirm(&mut totals, node, &former, (lease, checked))
    }

    /// See [`crate::Store::supersede`].
    pub(crate) fn supersede(&self, node: NodeId) -> Result<bool> {
        let mut totals = self.changes.lock();
        let Some(former) = self.record(node)?.filter(ObjectRecord::is_complete) else { return Ok(false) };
        if !former.is_superseded() {
            self.confirm(&mut totals, node, &former, (former.lease, superseded()))?;
        }
        Ok(true)
    }

    /// Puts when the content of a node was last confirmed, and with what lease.
    fn confirm(
        &self,
        totals: &mut Totals,
        node: NodeId,
        former: &ObjectRecord,
        (lease, checked): (Lease, SystemTime),
    ) -> Result<()> {
        let record = ObjectRecord { lease, checked, ..former.clone() };
        self.put(totals, node, Some(former), Some(&record), None)?;
        let object = self.live.lock().get(node);
        if let Some(object) = object {
            let mut state = object.state.lock();
            (state.lease, state.checked) = (lease, checked);
        }
        Ok(())
    }

    /// Removes a node's object; tells the bytes that its pieces took on disk.
    pub(crate) fn remove(&self, node: NodeId) -> Result<u64> {
        let mut totals = self.changes.lock();
        let Some(record) = self.record(node)? else {
            // The record may have been lost with the database while somebody has the object open.
            self.detach(node);
            return Ok(0);
        };
        self.take_away(&mut totals, node, &record)?;
        Ok(record.disk_bytes())
    }

    /// A piece of an object is not what was written: forgets it, and the whole object when the rest is of no use.
    pub(crate) fn give_up(&self, object: &Object, piece: u32, cause: &str) {
        let mut totals = self.changes.lock();
        let committed = {
            let mut state = object.state.lock();
            // Another reader may have found it first.
            if !state.pieces.forget(piece) {
                return;
            }
            state.standing == Standing::Committed
        };
        self.troubles.tell(format!(
            "{}: the cached copy is damaged in piece {piece} ({cause}); the piece was given up and will be fetched \
             again",
            object.body.path().display()
        ));
        if !committed {
            return;
        }
        let outcome = self.record(object.node).and_then(|former| {
            let Some(former) = former.filter(|former| former.generation == object.generation) else { return Ok(()) };
            match object.record() {
                Ok(record) => self.put(&mut totals, object.node, Some(&former), Some(&record), None),
                Err(_) => self.take_away(&mut totals, object.node, &former),
            }
        });
        if let Err(error) = outcome {
            self.troubles.tell(format!("{}: the damage could not be recorded: {error}", object.body.path().display()));
        }
    }

    /// Forgets that somebody has an object open.
    pub(crate) fn put_back(&self, node: NodeId, generation: u64) {
        let mut live = self.live.lock();
        if live.objects.get(&node).is_some_and(|(held, object)| *held == generation && object.strong_count() == 0) {
            live.objects.remove(&node);
        }
    }

    /// Removes a file that nothing refers to.
    pub(crate) fn remove_file(&self, path: &Path) {
        if let Err(error) = self.disk.remove(path) {
            self.troubles.tell(format!("{}: could not be removed: {error}", path.display()));
        }
    }

    /// The file of one generation of a node's object.
    pub(crate) fn path(&self, node: NodeId, generation: u64) -> PathBuf {
        self.dir.join(format!("{:02x}/{:016x}-{generation:016x}", node.0 & 0xff, node.0))
    }

    fn create_file(&self, path: &Path) -> io::Result<DiskFile> {
        match self.disk.create_new(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.disk.make_dir(path.parent().expect("files of objects lie in a folder"))?;
                self.disk.create_new(path)
            }
            outcome => outcome,
        }
    }

    pub(crate) fn open_file(&self, path: &Path, end: u64) -> Result<DiskFile, Unusable> {
        let file = match self.disk.open(path).and_then(DiskFile::with_some_to_spare) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Unusable::Damaged("it is missing")),
            Err(error) => return Err(Unusable::Refused(error)),
        };
        match file.len() {
            Ok(length) if length >= end => Ok(file),
            Ok(_) => Err(Unusable::Damaged("it is shorter than it was")),
            Err(error) => Err(Unusable::Refused(error)),
        }
    }

    /// Drops the record of a generation whose file is of no use, unless it was replaced in the meantime.
    fn drop_record(&self, node: NodeId, generation: u64, cause: &str) -> Result<()> {
        let mut totals = self.changes.lock();
        let Some(record) = self.record(node)?.filter(|record| record.generation == generation) else { return Ok(()) };
        self.troubles.tell(format!(
            "{}: the file of a cached copy cannot be used ({cause}); it was given up and will be fetched again",
            self.path(node, generation).display()
        ));
        self.take_away(&mut totals, node, &record)
    }

    fn take_away(&self, totals: &mut Totals, node: NodeId, record: &ObjectRecord) -> Result<()> {
        self.put(totals, node, Some(record), None, None)?;
        self.detach(node);
        self.doomed(node, record.generation).remove(&self.small, &self.disk, &self.troubles);
        Ok(())
    }

    /// What is to be removed of a generation that nothing refers to any more.
    pub(crate) fn doomed(&self, node: NodeId, generation: u64) -> Doomed {
        Doomed { key: SmallKey { node, generation }, path: self.path(node, generation) }
    }

    /// Takes an object that somebody has open out of sight.
    pub(crate) fn detach(&self, node: NodeId) {
        let removed = {
            let mut live = self.live.lock();
            live.changes += 1;
            live.objects.remove(&node)
        };
        if let Some(object) = removed.and_then(|(_, object)| object.upgrade()) {
            object.body.hold(&self.small);
            object.state.lock().standing = Standing::Gone;
        }
    }

    /// Enters a committed object into the ledger: what was reserved for it is held now.
    fn post(&self, object: &Object, record: &ObjectRecord) {
        let reserved = object.reserved.lock().take();
        let (bytes, owner_uid) = (record.disk_bytes(), record.owner_uid);
        let line = match (object.account, self.ledger.line(object.node)) {
            (Some(account), None) => Some(Line { account, bytes, owner_uid, used_us: object.last_use.at_us() }),
            (Some(account), Some(line)) => {
                let used_us = line.used_us.max(object.last_use.at_us());
                Some(Line { account, bytes, owner_uid, used_us })
            }
            (None, line) => line.map(|line| Line { bytes, ..line }),
        };
        match line {
            Some(line) => self.ledger.put(object.node, Some(line), reserved),
            None => drop(reserved),
        }
    }

    /// The object of a node, if somebody holds it.
    pub(crate) fn held(&self, node: NodeId) -> Option<Arc<Object>> {
        self.live.lock().get(node)
    }

    /// Changes a node's record and the totals together.
    pub(crate) fn put(
        &self,
        totals: &mut Totals,
        node: NodeId,
        former: Option<&ObjectRecord>,
        record: Option<&ObjectRecord>,
        doomed: Option<Doomed>,
    ) -> Result<()> {
        let mut changed = *totals;
        let database = self.index.begun_anew();
        if changed.database != database {
            changed = Totals { database, ..Totals::default() };
            self.ledger.clear();
        }
        let bytes = |record: Option<&ObjectRecord>| record.map_or(0, ObjectRecord::disk_bytes);
        changed.bytes = (changed.bytes + bytes(record)).saturating_sub(bytes(former));
        changed.objects = (changed.objects + u64::from(record.is_some())).saturating_sub(former.is_some().into());
        let key = key::object(node);
        let value = record.map(|record| value::encode(&key, record)).transpose()?;
        let sum: Change = (key::TOTALS.into(), Some(value::encode(key::TOTALS, &(changed.bytes, changed.objects))?));
        let mut changes = vec![(key, value), sum];
        let is_new = record.is_some_and(|record| former.is_none_or(|former| former.generation != record.generation));
        if is_new {
            changes.push(use_noted(node, micros(SystemTime::now()))?);
        } else if record.is_none() {
            changes.push((key::used(node), None));
        }
        let due = match (former, record) {
            (Some(former), Some(record)) if record.confirms(former) => Due::Later,
            _ => Due::Soon,
        };
        self.index.apply(changes, doomed, due)?;
        *totals = changed;
        match (record, self.ledger.line(node)) {
            (Some(record), Some(line)) => {
                self.ledger.put(node, Some(Line { bytes: record.disk_bytes(), ..line }), None);
            }
            // A commit makes the line; what the start has not counted yet is left to it.
            (Some(_), None) => {}
            (None, _) => self.ledger.put(node, None, None),
        }
        self.held_bytes.store(changed.bytes, Ordering::Relaxed);
        self.held_count.store(changed.objects, Ordering::Relaxed);
        Ok(())
    }
}

impl Live {
    fn get(&self, node: NodeId) -> Option<Arc<Object>> {
        self.objects.get(&node).and_then(|(_, object)| object.upgrade())
    }
}

/// Why an object's file cannot be used.
pub(crate) enum Unusable {
    Damaged(&'static str),
    Refused(io::Error),
}

/// How many names are tried for a new file.
const NAME_TRIES: u32 = 16;
/// How often an object is opened that others replace at the same time.
const OPEN_TRIES: u32 = 64;
