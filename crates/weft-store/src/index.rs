//! The index: names, attributes and objects by key, visible at once and durable soon.
//!
//! A change goes into the *current* stage in memory and is visible from then on. The flusher, one thread, takes the
//! current stage as the *flushing* one and writes it to the database in one durable transaction; meanwhile changes
//! gather in a new current stage. Changes that tell no more than that something is as it was wait longer for others: on
//! a disk that turns, each transaction takes as long as several reads. Readers look at the current stage, the flushing
//! stage and the database, in this order, and never wait for a write. The current stage has a maximum, at which changes
//! wait for the flusher: that is the backpressure. When the database fails (a full disk), the flushing stage stays and
//! is tried again, and a change that finds both stages full is refused.
//!
//! A database that fails is opened again by the flusher, which sets a damaged one aside; the few facts that must
//! outlive even that (the numbers of bindings, the seed) are kept in memory as *lasting* and written to the new one.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::database::{Database, Fault, Pairs, Place, Snapshot};
use crate::flusher::Flusher;
use crate::journal::{self, Journal};
use crate::key::{self, Key};
use crate::small::Small;
use crate::stage::{Change, Doomed, Due, Patch, Stage};
use crate::value::Value;
use crate::{Result, StoreError};

/// The index of one store.
#[derive(Debug)]
pub(crate) struct Index {
    /// Guards the stages and the flusher's state; held for no I/O. Taken last of all locks of the store.
    inner: Mutex<Inner>,
    /// The flusher waits here for work.
    work: Condvar,
    /// Everybody else waits here for the flusher.
    done: Condvar,
    path: PathBuf,
    flush_interval: Duration,
    /// Where changes outlive a kill until they are durable.
    pub(crate) journal: Option<Journal>,
}

/// What the index and its flusher share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) current: Stage,
    pub(crate) flushing: Option<Arc<Stage>>,
    /// Counts the stages that were taken to be flushed: says which file of the journal the current one has.
    pub(crate) taken: usize,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) lasting: BTreeMap<Key, Value>,
    /// Number of the newest change.
    applied: u64,
    /// Number of the newest change that is durable.
    pub(crate) durable: u64,
    /// Why the last flush failed; `None` when it did not.
    pub(crate) failure: Option<Failure>,
    /// How many flushes failed.
    pub(crate) failures: u64,
    /// Somebody waits: flush now.
    pub(crate) wanted: bool,
    /// Somebody could not read, for this reason: open the database again.
    pub(crate) broken: Option<Fault>,
    pub(crate) stopping: bool,
    /// How many databases were begun in this life of the daemon because one was damaged.
    pub(crate) begun_anew: u64,
}

/// Why a flush failed, to be told more than once.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    Full,
    Other(String),
}

impl Index {
    /// Opens the database and starts the flusher. What a former life has left in the journal is written first; where the disk has
    /// no room for that, it is tried again as any stage is.
    pub(crate) fn open(
        place: Place,
        small: Arc<Small>,
        flush_interval: Duration,
        journal: Option<Journal>,
    ) -> Result<(Arc<Index>, Flusher)> {
        let (database, _) = place.open()?;
        let left = match &journal {
            Some(journal) => journal.replay().map_err(|error| StoreError::Index(Box::new(error)))?,
            None => Stage::default(),
        };
        let (database, is_written) = match left.is_empty() {
            true => (database, true),
            false => written(&place, database, &left)?,
        };
        let flushing = Some(left).filter(|_| !is_written);
        let cleared = journal.as_ref().map_or(Ok(0), |journal| match &flushing {
            Some(left) => journal.begin_with(left),
            None => journal.clear().map(|()| 0),
        });
        let durable = cleared.map_err(|error| StoreError::Index(Box::new(error)))?;
        let snapshot = database.snapshot().map_err(|fault| fault.into_error(&place.path()))?;
        let flushing = flushing.map(|left| Arc::new(Stage { last: durable + 1, ..left }));
        let inner = Inner {
            current: Stage::default(),
            taken: flushing.is_some().into(),
            snapshot: Arc::new(snapshot),
            lasting: BTreeMap::new(),
            applied: durable + u64::from(flushing.is_some()),
            durable,
            flushing,
            failure: None,
            failures: 0,
            wanted: false,
            broken: None,
            stopping: false,
            begun_anew: 0,
        };
        let index = Arc::new(Index {
            inner: Mutex::new(inner),
            work: Condvar::new(),
            done: Condvar::new(),
            path: place.path(),
            flush_interval,
            journal,
        });
        let flusher = Flusher::start(Arc::clone(&index), place, small, database)?;
        Ok((index, flusher))
    }

    /// The newest value under `key`.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        self.reading(
            |inner| match inner.staged(key) {
                Some(value) => Staged::Known(value.clone()),
                None => Staged::Ask(Arc::clone(&inner.snapshot), ()),
            },
            |snapshot, ()| snapshot.get(key),
        )
    }

    /// The first `limit` pairs whose keys start with `prefix`, after `after` if given, in order.
    pub(crate) fn scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Pairs> {
        let end = key::after_prefix(prefix).expect("prefixes start with a tag, which is ASCII");
        let from = after.map_or(Bound::Included(prefix), Bound::Excluded);
        self.reading(
            |inner| {
                let stages: Vec<&Stage> = std::iter::once(&inner.current).chain(inner.flushing.as_deref()).collect();
                let patch = Patch::take(&stages, from, &end, limit);
                Staged::Ask(Arc::clone(&inner.snapshot), patch)
            },
            |snapshot, patch| {
                let room = limit.saturating_add(patch.hidden_max());
                let below = match patch.cut() {
                    Some(cut) => snapshot.range(from, &just_after(cut), room)?,
                    None => snapshot.range(from, &end, room)?,
                };
                Ok(patch.lay_over(below, limit))
            },
        )
    }

    /// Makes all changes visible at once, and the `doomed` content removed once they are durable.
    ///
    /// # Errors
    /// When the changes do not fit since the database cannot be written.
    pub(crate) fn apply(&self, changes: Vec<Change>, doomed: Option<Doomed>, due: Due) -> Result<()> {
        let mut inner = self.inner.lock();
        while inner.current.bytes >= STAGE_BYTES_MAX {
            self.wait_for_room(&mut inner)?;
        }
        if inner.stopping {
            return Err(closed());
        }
        inner.applied += 1;
        inner.current.last = inner.applied;
        let written = self.journal.as_ref().map(|journal| {
            let record = journal::record(inner.applied, inner.durable, &changes);
            (journal, inner.taken, record)
        });
        let since = match due {
            Due::Soon => &mut inner.current.since,
            Due::Later => &mut inner.current.later_since,
        };
        if since.is_none() {
            *since = Some(Instant::now());
            self.work.notify_one();
        }
        for change in changes {
            inner.current.put(change);
        }
        if let Some(doomed) = doomed {
            inner.current.doom(doomed);
        }
        if inner.current.bytes >= STAGE_BYTES_MAX / 2 && inner.flushing.is_none() && !inner.wanted {
            // Before anybody has to wait.
            inner.wanted = true;
            self.work.notify_one();
        }
        drop(inner);
        if let Some((journal, which, record)) = written
            && let Err(error) = record.and_then(|record| journal.write(which, &record))
        {
            // It is durable a moment later all the same, if the daemon lives.
            tracing::warn!(%error, "a change of the index could not be written where it outlives a kill");
        }
        Ok(())
    }

    /// Applies a change that must outlive even the loss of the database.
    pub(crate) fn apply_lasting(&self, key: Key, value: Value) -> Result<()> {
        self.apply(vec![(key.clone(), Some(value.clone()))], None, Due::Soon)?;
        self.remember(key, value);
        Ok(())
    }

    /// Keeps a pair that is in the database already, for the case that the database is lost.
    pub(crate) fn remember(&self, key: Key, value: Value) {
        self.inner.lock().lasting.insert(key, value);
    }

    /// Waits until everything applied so far is durable.
    ///
    /// # Errors
    /// When it could not be written; it stays in memory and is tried again.
    pub(crate) fn flush(&self) -> Result<()> {
        let mut inner = self.inner.lock();
        let (target, failures) = (inner.applied, inner.failures);
        while inner.durable < target {
            if let Some(failure) = inner.failure.as_ref().filter(|_| inner.failures > failures || inner.stopping) {
                return Err(failure.to_error(self));
            }
            inner.wanted = true;
            self.work.notify_one();
            self.done.wait(&mut inner);
        }
        Ok(())
    }

    /// How many databases were begun because one was damaged while in use.
    pub(crate) fn begun_anew(&self) -> u64 {
        self.inner.lock().begun_anew
    }

    /// Asks the flusher to write what is left and end.
    pub(crate) fn stop(&self) {
        self.inner.lock().stopping = true;
        self.work.notify_one();
    }

    /// For the flusher: waits until there is something to do.
    pub(crate) fn wait_for_work(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.inner.lock();
        loop {
            if inner.stopping || inner.wanted || inner.broken.is_some() {
                return inner;
            }
            let later = inner.current.later_since.map(|since| since + self.flush_interval.max(LATER_INTERVAL));
            let due = match (&inner.flushing, inner.current.since) {
                // A stage that failed is tried again, not too often.
                (Some(_), _) => Some(Instant::now() + self.flush_interval.max(RETRY_INTERVAL)),
                (None, since) => since.map(|since| since + self.flush_interval).into_iter().chain(later).min(),
            };
            let timed_out = match due {
                Some(due) => self.work.wait_until(&mut inner, due).timed_out(),
                None => {
                    self.work.wait(&mut inner);
                    false
                }
            };
            if timed_out {
                return inner;
            }
        }
    }

    /// For the flusher: the shared state.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// For the flusher: wakes everybody who waits for it.
    pub(crate) fn tell_done(&self) {
        self.done.notify_all();
    }

    /// Reads under the lock what the stages know and, without the lock, what the database knows. A database that
    /// fails is opened again by the flusher, and the reading done once more.
    fn reading<P, T>(
        &self,
        look: impl Fn(&Inner) -> Staged<T, P>,
        read: impl Fn(&Snapshot, P) -> Result<T, Fault>,
    ) -> Result<T> {
        for _ in 1..READ_TRIES {
            let (snapshot, patch) = match look(&self.inner.lock()) {
                Staged::Known(value) => return Ok(value),
                Staged::Ask(snapshot, patch) => (snapshot, patch),
            };
            match read(&snapshot, patch) {
                Ok(value) => return Ok(value),
                Err(fault) => self.wait_for_another(snapshot, fault)?,
            }
        }
        Err(StoreError::Index(Box::new(Fault::Earlier)))
    }

    fn wait_for_another(&self, failed: Arc<Snapshot>, fault: Fault) -> Result<()> {
        let deadline = Instant::now() + REOPEN_WAIT_MAX;
        let mut inner = self.inner.lock();
        let failures = inner.failures;
        if Arc::ptr_eq(&failed, &inner.snapshot) {
            inner.broken.get_or_insert(fault);
            self.work.notify_one();
        }
        while Arc::ptr_eq(&failed, &inner.snapshot) {
            let given_up = inner.stopping || inner.failures > failures;
            if given_up || self.done.wait_until(&mut inner, deadline).timed_out() {
                return Err(StoreError::Index(Box::new(Fault::Earlier)));
            }
        }
        Ok(())
    }

    fn wait_for_room(&self, inner: &mut MutexGuard<'_, Inner>) -> Result<()> {
        if let Some(failure) = &inner.failure {
            return Err(failure.to_error(self));
        }
        if inner.stopping {
            return Err(closed());
        }
        inner.wanted = true;
        self.work.notify_one();
        self.done.wait(inner);
        Ok(())
    }
}

impl Inner {
    /// What the stages say of a key: nothing, that it is gone, or its value.
    fn staged(&self, key: &[u8]) -> Option<&Option<Value>> {
        let flushing = || self.flushing.as_ref().and_then(|stage| stage.pairs.get(key));
        self.current.pairs.get(key).or_else(flushing)
    }
}

/// Writes a stage to a database that was just opened; whether there was room for it, and the database, which is opened again where
/// there was none.
fn written(place: &Place, database: Database, stage: &Stage) -> Result<(Database, bool)> {
    let Err(fault) = database.write(stage) else { return Ok((database, true)) };
    match fault.into_error(&place.path()) {
        StoreError::Full { .. } => {}
        error => return Err(error),
    }
    // After any failure the library wants that.
    database.abandon();
    Ok((place.open()?.0, false))
}

impl Failure {
    fn to_error(&self, index: &Index) -> StoreError {
        match self {
            Failure::Full => StoreError::Full { path: index.path.clone() },
            Failure::Other(words) => StoreError::Index(words.clone().into()),
        }
    }
}

/// What a look at the stages gave.
enum Staged<T, P> {
    Known(T),
    Ask(Arc<Snapshot>, P),
}

/// The answer to whoever still holds an object when its store is gone.
fn closed() -> StoreError {
    StoreError::Index("the store is closed".into())
}

fn just_after(key: &Key) -> Key {
    let mut next = key.to_vec();
    next.push(0);
    next.into()
}

/// Memory that each of the two stages may take before changes wait; one call's changes may go beyond it. Half of it is written at
/// once: a list of ten thousand names takes less, and is not written while it comes.
pub(crate) const STAGE_BYTES_MAX: usize = 16 << 20;
/// How long changes that are not in a hurry wait for others.
const LATER_INTERVAL: Duration = Duration::from_secs(30);
/// How often a stage that could not be written is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// How often a read is tried on a database that is opened again in between.
const READ_TRIES: u32 = 3;
/// How long a read waits for the database to be opened again.
const REOPEN_WAIT_MAX: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk;
    use crate::troubles::Troubles;

    /// Goal: what only confirms is seen at once, waits longer than other changes, and goes with them. Method: a look at when
    /// the flusher is to write.
    #[test]
    fn what_only_confirms_waits_for_other_changes() {
        let dir = tempfile::tempdir().unwrap();
        let (disk, troubles) = (Disk::default(), Arc::new(Troubles::default()));
        let small = Arc::new(Small::open(dir.path().join("segments"), disk.clone(), Arc::clone(&troubles)).unwrap());
        let place = Place { disk, dir: dir.path().to_owned(), cache_bytes: 1 << 20, troubles };
        let never = Duration::from_secs(86_400);
        let (index, flusher) = Index::open(place, small, never, None).unwrap();
        let put = |key: &[u8], bytes: usize, due| {
            index.apply(vec![(key.into(), Some(vec![1; bytes].into()))], None, due).unwrap();
        };
        let waits = || {
            let inner = index.lock();
            (inner.current.since.is_some(), inner.current.later_since.is_some(), inner.wanted)
        };
        put(b"xa", 1, Due::Later);
        assert_eq!((waits(), index.get(b"xa").unwrap().is_some()), ((false, true, false), true));
        put(b"xb", 1, Due::Soon);
        assert_eq!(waits(), (true, true, false));
        index.flush().unwrap();
        assert_eq!(waits(), (false, false, false), "both were written");
        // So much is written at once, whatever it is.
        put(b"xc", STAGE_BYTES_MAX / 2, Due::Later);
        while index.lock().durable < 3 {
            std::thread::yield_now();
        }
        drop(flusher);
    }

    /// Goal: a store is opened whose journal has what the disk has no room for: it is seen, stays in the journal, and is durable
    /// when there is room. Method: each write of an opening in turn meets a full disk.
    #[test]
    fn what_a_former_life_left_waits_for_room() {
        let dir = tempfile::tempdir().unwrap();
        let (disk, troubles) = (Disk::default(), Arc::new(Troubles::default()));
        let place = Place { disk: disk.clone(), dir: dir.path().to_owned(), cache_bytes: 1 << 20, troubles };
        let never = Duration::from_secs(86_400);
        let journal = Journal::new([tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap()]).unwrap();
        let open = || {
            let small = Small::open(dir.path().join("segments"), disk.clone(), Arc::clone(&place.troubles)).unwrap();
            Index::open(place.clone(), Arc::new(small), never, Some(journal.clone()))
        };
        drop(open().unwrap());
        let mut waited = 0;
        for nth in 0.. {
            let (key, value): (Key, Value) = ((*b"xa").into(), vec![nth as u8; 5000].into());
            let newest = journal.begin_with(&Stage::default()).unwrap();
            let left = journal::record(newest + 2, newest + 1, &[(key.clone(), Some(value.clone()))]).unwrap();
            journal.write(1, &left).unwrap();
            disk.faults.full_after(nth, 1);
            let opened = open();
            let was_full = disk.faults.have_failed();
            disk.faults.clear();
            // Where it could not be opened at all, the next one finds all that was left.
            let (index, flusher) = opened.or_else(|_| open()).unwrap();
            assert_eq!(index.get(&key).unwrap(), Some(value.clone()), "after {nth} writes");
            if index.lock().flushing.is_some() {
                waited += 1;
                assert_eq!(journal.replay().unwrap().pairs.get(&key), Some(&Some(value.clone())));
                index.apply(vec![((*b"xb").into(), Some(value.clone()))], None, Due::Soon).unwrap();
                index.flush().unwrap();
            }
            assert!(journal.replay().unwrap().is_empty(), "all is durable");
            drop((flusher, index));
            if !was_full {
                break;
            }
        }
        assert!(waited > 0);
    }
}
