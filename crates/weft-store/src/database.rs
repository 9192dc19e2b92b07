//! The transactional database under the index: one table of byte keys and byte values.
//!
//! A database that cannot be read is set aside under another name and a new one is begun: what it held can be
//! fetched again. redb answers most damage with an error but may panic on some; panics are caught here and count
//! as damage, so the daemon lives.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use redb::{ReadOnlyTable, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition};

use crate::disk::{Disk, DiskFile};
use crate::key::{self, Key};
use crate::stage::Stage;
use crate::troubles::Troubles;
use crate::value::{self, Value};
use crate::{Result, StoreError};

/// An open database; only the flusher writes.
pub(crate) struct Database {
    redb: Option<redb::Database>,
    gate: Arc<AtomicBool>,
    /// So many bytes more the disk had no room for.
    refused: Arc<AtomicU64>,
}

/// The database as it was after one transaction. Holding one keeps its pages from being used again.
pub(crate) struct Snapshot {
    table: Option<ReadOnlyTable<&'static [u8], &'static [u8]>>,
}

/// Where a database lies and what it may use.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) disk: Disk,
    pub(crate) dir: PathBuf,
    pub(crate) cache_bytes: usize,
    pub(crate) troubles: Arc<Troubles>,
}

/// Whether the database held anything when it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    Before,
    Anew,
}

/// Why the database did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// The system refused; what the database holds is not in doubt.
    #[error("{0}")]
    System(io::Error),
    /// What the database holds is not what was written.
    #[error("{0}")]
    Damage(String),
    /// An earlier fault keeps it from working until it is opened again.
    #[error("an earlier failure")]
    Earlier,
}

/// Names and values of one range, in order.
pub(crate) type Pairs = Vec<(Key, Value)>;

impl Place {
    /// The database file.
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.join(FILE_NAME)
    }

    /// Opens the database; one that cannot be read is set aside and a new one begun.
    pub(crate) fn open(&self) -> Result<(Database, Begun)> {
        match self.try_open() {
            Ok(opened) => return Ok(opened),
            Err(Fault::Damage(cause)) => self.set_aside(&cause)?,
            Err(Fault::System(error)) => return Err(StoreError::from_io(&self.path(), error)),
            Err(Fault::Earlier) => {}
        }
        self.try_open().map_err(|fault| fault.into_error(&self.path()))
    }

    /// Opens the database after it was seen to be damaged: one that does not stand up to a full check is set aside.
    pub(crate) fn open_suspect(&self, cause: &str) -> Result<(Database, Begun)> {
        let path = self.path();
        let checked = self.try_open().and_then(|(mut database, begun)| match database.check() {
            Ok(()) => Ok((database, begun)),
            Err(fault) => {
                database.abandon();
                Err(fault)
            }
        });
        match checked {
            Ok(opened) => Ok(opened),
            Err(Fault::System(error)) => Err(StoreError::from_io(&path, error)),
            Err(Fault::Damage(_) | Fault::Earlier) => {
                self.set_aside(cause)?;
                self.try_open().map_err(|fault| fault.into_error(&path))
            }
        }
    }

    fn try_open(&self) -> Result<(Database, Begun), Fault> {
        let path = self.path();
        let file = self.disk.open_or_create(&path)?;
        let begun = if file.len()? == 0 { Begun::Anew } else { Begun::Before };
        let (gate, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let backend = Backend { file, closed: Arc::clone(&gate), refused: Arc::clone(&refused) };
        let redb =
            guarded(|| Ok(redb::Builder::new().set_cache_size(self.cache_bytes).create_with_backend(backend)?))?;
        let database = Database { redb: Some(redb), gate, refused };
        match begun {
            Begun::Anew => {
                database.write(&Stage::of_pair(key::FORMAT, &[FORMAT]))?;
                self.disk.sync_dir(&self.dir)?;
            }
            Begun::Before => {
                database.check_format()?;
                self.disk.read_ahead(&path, AHEAD_BYTES_MAX);
            }
        }
        Ok((database, begun))
    }

    fn set_aside(&self, cause: &str) -> Result<()> {
        let path = self.path();
        let aside = |number| self.dir.join(format!("{ASIDE_PREFIX}{number}"));
        // The last name is used over and over, so that a disk that damages everything is not filled with it.
        let aside = (1..ASIDE_MAX).map(aside).find(|name| !name.exists()).unwrap_or_else(|| aside(ASIDE_MAX));
        self.disk.rename(&path, &aside).map_err(|error| StoreError::from_io(&path, error))?;
        self.troubles.tell(format!(
            "{}: the index of the cache cannot be read ({cause}); it was set aside as {} and a new one was begun, so \
             that what was cached will be fetched again",
            path.display(),
            aside.display()
        ));
        Ok(())
    }
}

impl Database {
    /// Writes a stage in one durable transaction; tells the state after it.
    pub(crate) fn write(&self, stage: &Stage) -> Result<Snapshot, Fault> {
        guarded(|| {
            let transaction = self.redb().begin_write()?;
            {
                let mut table = transaction.open_table(TABLE)?;
                let mut nodes = read_count(&table)?;
                for (key, value) in &stage.pairs {
                    let had = match value {
                        Some(value) => table.insert(&**key, &**value)?.is_some(),
                        None => table.remove(&**key)?.is_some(),
                    };
                    if key::is_node(key) {
                        nodes = nodes.saturating_add(value.is_some().into()).saturating_sub(had.into());
                    }
                }
                if let Ok(value) = value::encode(key::NODES, &nodes) {
                    table.insert(key::NODES, &*value)?;
                }
            }
            transaction.commit()?;
            self.snapshot()
        })
    }

    /// The state after the newest transaction.
    pub(crate) fn snapshot(&self) -> Result<Snapshot, Fault> {
        guarded(|| Ok(Snapshot { table: Some(self.redb().begin_read()?.open_table(TABLE)?) }))
    }

    /// How many bytes more the disk had no room for; 0 where it has refused none.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Lets go of the file without writing to it again: after damage, nothing more may go out.
    pub(crate) fn abandon(self) {
        self.gate.store(true, Ordering::Release);
    }

    /// Compares all pages with their checksums.
    fn check(&mut self) -> Result<(), Fault> {
        let redb = self.redb.as_mut().expect("only drop takes it");
        match guarded(|| Ok(redb.check_integrity()?))? {
            true => Ok(()),
            false => Err(Fault::Damage("its pages do not match their checksums".into())),
        }
    }

    fn check_format(&self) -> Result<(), Fault> {
        match self.snapshot()?.get(key::FORMAT)? {
            Some(value) if *value == [FORMAT] => Ok(()),
            Some(value) => Err(Fault::Damage(format!("its format {value:?} is not known to this version"))),
            None => Err(Fault::Damage("it does not say which format it has".into())),
        }
    }

    fn redb(&self) -> &redb::Database {
        self.redb.as_ref().expect("only drop takes it")
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let redb = self.redb.take();
        // Closing writes, and so may meet damage; there is nobody to tell, and opening finds it again.
        let _ = guarded(|| {
            drop(redb);
            Ok(())
        });
    }
}

impl Snapshot {
    /// The value under `key`.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Value>, Fault> {
        guarded(|| Ok(self.table().get(key)?.map(|value| Value::from(value.value()))))
    }

    /// The first `limit` pairs with keys from `from` on (exclusive when `after`), before `end`.
    pub(crate) fn range(&self, from: std::ops::Bound<&[u8]>, end: &[u8], limit: usize) -> Result<Pairs, Fault> {
        guarded(|| {
            let range = self.table().range::<&[u8]>((from, std::ops::Bound::Excluded(end)))?;
            let mut pairs = Vec::new();
            for pair in range.take(limit) {
                let (key, value) = pair?;
                pairs.push((Key::from(key.value()), Value::from(value.value())));
            }
            Ok(pairs)
        })
    }

    fn table(&self) -> &ReadOnlyTable<&'static [u8], &'static [u8]> {
        self.table.as_ref().expect("only drop takes it")
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        let table = self.table.take();
        // After a panic inside the library, giving back its locks may panic as well.
        let _ = guarded(|| {
            drop(table);
            Ok(())
        });
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Snapshot")
    }
}

impl Fault {
    /// The fault in the words of the store.
    pub(crate) fn into_error(self, path: &Path) -> StoreError {
        match self {
            Fault::System(error) => StoreError::from_io(path, error),
            other => StoreError::Index(Box::new(other)),
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        match error.kind() {
            // The file is shorter than it says, or says what cannot be.
            io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => Fault::Damage(error.to_string()),
            _ => Fault::System(error),
        }
    }
}

/// Lists the conversions from each of redb's errors, which all lead through its general one.
macro_rules! faults_from {
    ($($error:ty),+) => {$(
        impl From<$error> for Fault {
            fn from(error: $error) -> Fault {
                Fault::of(redb::Error::from(error))
            }
        }
    )+};
}

faults_from!(redb::StorageError, redb::TableError, redb::DatabaseError, redb::TransactionError, redb::CommitError);

impl Fault {
    fn of(error: redb::Error) -> Fault {
        match error {
            redb::Error::Io(error) => Fault::from(error),
            redb::Error::PreviousIo | redb::Error::DatabaseClosed => Fault::Earlier,
            redb::Error::ValueTooLarge(_) => Fault::System(io::ErrorKind::FileTooLarge.into()),
            other => Fault::Damage(other.to_string()),
        }
    }
}

/// The database's file; once closed it lets nothing through.
#[derive(Debug)]
struct Backend {
    file: DiskFile,
    closed: Arc<AtomicBool>,
    refused: Arc<AtomicU64>,
}

impl Backend {
    fn check(&self) -> io::Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(io::Error::other("the database was given up"));
        }
        Ok(())
    }

    /// Notes what the disk has no room for.
    fn noted(&self, bytes: u64, outcome: io::Result<()>) -> io::Result<()> {
        if outcome.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::StorageFull) {
            self.refused.store(bytes, Ordering::Relaxed);
        }
        outcome
    }
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match self.file.read_at(out, offset)? {
            count if count == out.len() => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check()?;
        let before = self.file.len()?;
        let grown = match len.checked_sub(before) {
            // A disk that is full refuses the growth then, and not a page later on: with all its room a database can be
            // opened again after a failure, which writes to it, and read.
            Some(1..=ROOM_AHEAD_BYTES_MAX) if before > 0 => self.file.grow_with_room(before, len),
            // One that begins may not have it, and should begin.
            Some(1..=ROOM_AHEAD_BYTES_MAX) => self.file.grow_with_room(before, len).or_else(|_| self.file.set_len(len)),
            _ => self.file.set_len(len),
        };
        self.noted(len.saturating_sub(before), grown)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.check()?;
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check()?;
        self.noted(data.len() as u64, self.file.write_all_at(data, offset))
    }
}

fn read_count(table: &redb::Table<'_, &'static [u8], &'static [u8]>) -> Result<u64, Fault> {
    let value = table.get(key::NODES)?;
    Ok(value.and_then(|value| value::decode(key::NODES, value.value()).ok()).unwrap_or(0))
}

fn guarded<T>(work: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    // What the work may leave half done is inside redb, and damage makes us give that up.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<&str>().map(ToString::to_string);
        let words = words.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(Fault::Damage(words.unwrap_or_else(|| "the database library gave up".into())))
    })
}

const TABLE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("weft");
const FILE_NAME: &str = "index.redb";
/// Longest database that is read into the system's memory at a start: in one sweep that costs a turning disk what some
/// dozens of records cost that are looked up one by one.
const AHEAD_BYTES_MAX: u64 = 256 << 20;
/// By so many bytes the database grows with room for all of them on the disk; what a larger one grows by it may never use.
const ROOM_AHEAD_BYTES_MAX: u64 = 64 << 20;
const ASIDE_PREFIX: &str = "index.damaged-";
/// Most damaged databases kept for people to look at.
const ASIDE_MAX: u32 = 3;
/// Which keys and values the database has.
const FORMAT: u8 = 1;
