//! The one thread that writes the index to the database.

use std::sync::Arc;
use std::thread::JoinHandle;

use crate::database::{Begun, Database, Fault, Place, Snapshot};
use crate::index::{Failure, Index, Inner};
use crate::small::Small;
use crate::stage::Stage;
use crate::{Result, StoreError};

/// The running flusher. Dropping it writes what is left and waits for the end.
#[derive(Debug)]
pub(crate) struct Flusher {
    index: Arc<Index>,
    thread: Option<JoinHandle<()>>,
}

impl Flusher {
    /// Starts the thread.
    pub(crate) fn start(index: Arc<Index>, place: Place, small: Arc<Small>, database: Database) -> Result<Flusher> {
        let database = Some(database);
        let mut worker = Worker { index: Arc::clone(&index), place, small, database, telling: false, wanted_room: 0 };
        let thread = std::thread::Builder::new()
            .name("weft-flush".into())
            .spawn(move || worker.run())
            .map_err(|error| StoreError::Index(Box::new(error)))?;
        Ok(Flusher { index, thread: Some(thread) })
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.index.stop();
        if let Some(thread) = self.thread.take() {
            // A panic of that thread has been reported by the panic hook.
            let _ = thread.join();
        }
    }
}

struct Worker {
    index: Arc<Index>,
    place: Place,
    small: Arc<Small>,
    /// `None` after a failure, until it could be opened again.
    database: Option<Database>,
    /// Whether the failure that lasts has been told.
    telling: bool,
    /// So many bytes more the disk had no room for, if it had none when that was tried last.
    wanted_room: u64,
}

impl Worker {
    fn run(&mut self) {
        loop {
            let (stage, broken, stopping) = {
                let mut inner = self.index.wait_for_work();
                inner.wanted = false;
                (take_stage(&mut inner), inner.broken.take(), inner.stopping)
            };
            let outcome = self.round(stage.as_deref(), broken);
            let failed = outcome.is_err();
            if let Some(stage) = stage.filter(|_| !failed) {
                self.remove_doomed(&stage);
            }
            self.publish(outcome);
            self.small.settle();
            if stopping && (failed || self.index.lock().current.is_empty()) {
                return;
            }
        }
    }

    /// Opens the database if need be and writes the stage; a new snapshot when either happened.
    fn round(&mut self, stage: Option<&Stage>, broken: Option<Fault>) -> Result<Option<Snapshot>> {
        let reopened = match broken {
            Some(fault) => Some(self.reopen(&fault)?),
            None if self.database.is_none() => Some(self.reopen(&Fault::Earlier)?),
            None => None,
        };
        let Some(stage) = stage else { return Ok(reopened) };
        if self.has_no_room() {
            if let Some(snapshot) = reopened {
                self.index.lock().snapshot = Arc::new(snapshot);
            }
            return Err(StoreError::Full { path: self.place.path() });
        }
        let fault = match self.database().write(stage) {
            Ok(snapshot) => {
                self.wanted_room = 0;
                return Ok(Some(snapshot));
            }
            Err(fault) => fault,
        };
        // After any failure the library wants to be opened again, which readers need as well. Only after damage is
        // there hope for the stage at once: a disk that was full a moment ago still is.
        self.wanted_room = self.database().refused();
        let snapshot = self.reopen(&fault)?;
        let path = self.place.path();
        if let Fault::System(_) = fault {
            self.index.lock().snapshot = Arc::new(snapshot);
            return Err(fault.into_error(&path));
        }
        self.database().write(stage).map(Some).map_err(|fault| fault.into_error(&path))
    }

    /// Whether the disk still has less room than was missing. Who would write all the same would have readers wait for the database
    /// to be opened again, over and over.
    fn has_no_room(&self) -> bool {
        self.wanted_room > 0 && self.place.disk.space(&self.place.dir).is_ok_and(|(free, _)| free < self.wanted_room)
    }

    fn remove_doomed(&self, stage: &Stage) {
        for doomed in &stage.doomed {
            doomed.remove(&self.small, &self.place.disk, &self.place.troubles);
        }
    }

    fn reopen(&mut self, fault: &Fault) -> Result<Snapshot> {
        if let Some(database) = self.database.take() {
            database.abandon();
        }
        let (database, begun) = match fault {
            Fault::Damage(cause) => self.place.open_suspect(cause)?,
            Fault::System(_) | Fault::Earlier => self.place.open()?,
        };
        let path = self.place.path();
        if begun == Begun::Anew {
            let lasting = self.index.lock().lasting.clone();
            let mut stage = Stage::default();
            lasting.into_iter().for_each(|(key, value)| stage.put((key, Some(value))));
            database.write(&stage).map_err(|fault| fault.into_error(&path))?;
            self.index.lock().begun_anew += 1;
        }
        let snapshot = database.snapshot().map_err(|fault| fault.into_error(&path))?;
        self.database = Some(database);
        Ok(snapshot)
    }

    fn publish(&mut self, outcome: Result<Option<Snapshot>>) {
        let mut emptied = None;
        let mut inner = self.index.lock();
        match outcome {
            Ok(snapshot) => {
                if let Some(snapshot) = snapshot {
                    inner.snapshot = Arc::new(snapshot);
                }
                if let Some(stage) = inner.flushing.take() {
                    inner.durable = stage.last;
                    emptied = Some(inner.taken - 1);
                }
                inner.failure = None;
                self.telling = false;
            }
            Err(error) => {
                inner.failures += 1;
                let words = error.to_string();
                inner.failure = Some(match error {
                    StoreError::Full { .. } => Failure::Full,
                    _ => Failure::Other(words.clone()),
                });
                if !std::mem::replace(&mut self.telling, true) {
                    let path = self.place.path();
                    self.place.troubles.tell(format!(
                        "{}: changes to the index could not be written ({words}); they are kept in memory and \
                         tried again",
                        path.display()
                    ));
                }
            }
        }
        drop(inner);
        // Nothing else of this thread comes between: the other file has the changes since.
        if let (Some(journal), Some(which)) = (&self.index.journal, emptied)
            && let Err(error) = journal.empty(which)
        {
            tracing::warn!(%error, "changes that are durable could not be taken out of the journal");
        }
        self.index.tell_done();
    }

    fn database(&self) -> &Database {
        self.database.as_ref().expect("opened at the start of the round")
    }
}

/// The stage to write: the one that failed before, or else the current one.
fn take_stage(inner: &mut Inner) -> Option<Arc<Stage>> {
    if inner.flushing.is_none() && !inner.current.is_empty() {
        inner.flushing = Some(Arc::new(std::mem::take(&mut inner.current)));
        inner.taken += 1;
    }
    inner.flushing.clone()
}
