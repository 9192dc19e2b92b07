//! What was written to a file here and its source does not have yet: a sparse file of the bytes, and a log of which
//! bytes those are, so that they outlive the daemon.
//!
//! Neither is synced: whoever wants what was written to be durable has it sent to its source, which is asked to make it
//! so.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};
use weft_remote::Version;
use xxhash_rust::xxh3::xxh3_64;

use crate::draft_files::{DraftFiles, Pair, Paths};
use crate::extents::{Batch, Extents, Origin};
use crate::{NodeId, Result, StoreError};

/// Written bytes of one file.
#[derive(Debug)]
pub struct Dirty {
    node: NodeId,
    folder: Arc<DraftFiles>,
    /// Until this is dropped.
    files: Option<Pair>,
    /// Held for reading by who writes, and for writing by who puts bytes of the base beside what was written: none of
    /// it is written over. Comes before `state`.
    filling: RwLock<()>,
    /// Held for one look, one change, or one record of the log.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    extents: Extents,
    /// The version that the source is taken to have.
    version: Version,
    /// Where the log goes on.
    log_end: u64,
    /// Bytes that are on their way to the source, if anything is.
    taken: Option<u64>,
    /// It was discarded: nothing of it is to outlive the daemon. Where its files are then, if anywhere.
    gone: Option<Option<Paths>>,
}

/// A record of the log.
#[derive(Serialize, Deserialize)]
enum Logged {
    /// The log begins: the file at its source.
    Base { version: Version, length: u64 },
    /// Bytes were written.
    Wrote(Range<u64>),
    /// The file has this length.
    Resized(u64),
    /// The source has another version now, by what was sent. Which of the records before were in that is not told:
    /// all are sent again.
    Sent(Version),
    /// Bytes of the base were put beside what was written.
    Filled(Range<u64>),
    /// The source has another file in this version and length, and is to be told all of this one.
    Over { version: Version, length: u64 },
}

impl Dirty {
    /// Begins to hold what is written to a file that its source has in this version and length.
    pub(crate) fn begin(folder: &Arc<DraftFiles>, node: NodeId, version: Version, length: u64) -> Result<Dirty> {
        let files = folder.begin(node)?;
        let dirty = Dirty::new(folder, node, files, Extents::over(length), version.clone(), 0);
        dirty.log(&mut dirty.state.lock(), &Logged::Base { version, length })?;
        Ok(dirty)
    }

    /// Takes up what a former daemon left; `None`, and its files removed, when it ended before anything was written.
    ///
    /// # Errors
    /// `Io`: the files cannot be read, or the log does not say which bytes were written. Then they stay, for people.
    pub(crate) fn again(folder: &Arc<DraftFiles>, node: NodeId) -> Result<Option<Dirty>> {
        let files = folder.again(node)?;
        let refused = |error| StoreError::from_io(&files.paths().log, error);
        let length = usize::try_from(files.log.len().map_err(refused)?.min(LOG_BYTES_MAX)).unwrap_or(0);
        let bytes = files.log.read_vec(0, length).map_err(refused)?;
        let Some((extents, version, log_end)) = replay(&bytes) else {
            if bytes.is_empty() {
                folder.remove(node, &files);
                return Ok(None);
            }
            return Err(refused(io::Error::new(io::ErrorKind::InvalidData, "its first record is damaged")));
        };
        Ok(Some(Dirty::new(folder, node, files, extents, version, log_end)))
    }

    fn new(
        folder: &Arc<DraftFiles>,
        node: NodeId,
        files: Pair,
        extents: Extents,
        version: Version,
        log_end: u64,
    ) -> Dirty {
        let state = Mutex::new(State { extents, version, log_end, taken: None, gone: None });
        Dirty { node, folder: folder.clone(), files: Some(files), filling: RwLock::default(), state }
    }

    /// The file that this was written to.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Where the bytes lie, for people.
    pub fn path(&self) -> &Path {
        &self.files().paths().bytes
    }

    /// The file's length in bytes, here.
    pub fn length(&self) -> u64 {
        self.state.lock().extents.length()
    }

    /// The file's length at its source, in bytes.
    pub fn source_length(&self) -> u64 {
        self.state.lock().extents.sent_length()
    }

    /// The version that the source is taken to have.
    pub fn version(&self) -> Version {
        self.state.lock().version.clone()
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// `Full` when the disk is, `Io`: what the range reads as is not said then, but for where it was not written before.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= LENGTH_MAX);
        let end = end.ok_or_else(|| self.refused(io::ErrorKind::FileTooLarge.into()))?;
        let _no_filling = self.filling.read();
        self.files().bytes.write_all_at(bytes, offset).map_err(|error| self.refused(error))?;
        let mut state = self.state.lock();
        self.log(&mut state, &Logged::Wrote(offset..end))?;
        state.extents.write(offset..end);
        Ok(())
    }

    /// Keeps bytes of the base, so that they outlive it: where nothing was written meanwhile.
    ///
    /// # Errors
    /// As of [`Dirty::write`].
    pub fn fill(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let _alone = self.filling.write();
        for (range, origin) in self.parts(offset, bytes.len()) {
            if origin != Origin::Base {
                continue;
            }
            let from = usize::try_from(range.start - offset).unwrap_or(usize::MAX);
            let part = bytes.get(from..).unwrap_or_default();
            let part = &part[..part.len().min((range.end - range.start) as usize)];
            self.files().bytes.write_all_at(part, range.start).map_err(|error| self.refused(error))?;
            let mut state = self.state.lock();
            // Cut meanwhile, it stays cut.
            let end = range.end.min(state.extents.length());
            if range.start < end {
                self.log(&mut state, &Logged::Filled(range.start..end))?;
                state.extents.fill(range.start..end);
            }
        }
        Ok(())
    }

    /// The source has another file in this version and length: all of this one is to be sent over it. False, and
    /// nothing done, while bytes of this one are still the base's ([`Dirty::fill`]).
    ///
    /// # Errors
    /// As of [`Dirty::write`].
    pub fn over(&self, version: Version, source_length: u64) -> Result<bool> {
        let mut state = self.state.lock();
        if state.extents.needs_base() {
            return Ok(false);
        }
        self.log(&mut state, &Logged::Over { version: version.clone(), length: source_length })?;
        state.extents.replace(source_length);
        state.version = version;
        Ok(true)
    }

    /// How many bytes the source does not have, as far as it has said; `None` when it has all of the file, and 0 when
    /// only the length is another.
    pub fn bytes_away(&self) -> Option<u64> {
        let state = self.state.lock();
        let away = state.extents.is_unsent() || state.taken.is_some();
        away.then(|| state.extents.unsent_bytes() + state.taken.unwrap_or(0))
    }

    /// When it was changed last, as its files tell.
    pub fn changed_at(&self) -> Option<SystemTime> {
        std::fs::metadata(&self.files().paths().log).and_then(|log| log.modified()).ok()
    }

    /// Has a range read as zeros; the length stays.
    ///
    /// # Errors
    /// As of [`Dirty::write`].
    pub fn clear(&self, range: Range<u64>) -> Result<()> {
        let mut at = range.start;
        let end = range.end.min(self.length());
        let zeros = vec![0; usize::try_from(end.saturating_sub(at).min(CLEAR_BYTES)).unwrap_or(0)];
        while at < end {
            let length = zeros.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
            self.write(at, &zeros[..length])?;
            at += length as u64;
        }
        Ok(())
    }

    /// Gives the file another length: what is cut off is gone, what is new reads as zeros.
    ///
    /// # Errors
    /// `Io`.
    pub fn resize(&self, length: u64) -> Result<()> {
        if length > LENGTH_MAX {
            return Err(self.refused(io::ErrorKind::FileTooLarge.into()));
        }
        let mut state = self.state.lock();
        if length < state.extents.length() {
            let held = self.files().bytes.len().map_err(|error| self.refused(error))?;
            if length < held {
                self.files().bytes.set_len(length).map_err(|error| self.refused(error))?;
            }
        }
        self.log(&mut state, &Logged::Resized(length))?;
        state.extents.resize(length);
        Ok(())
    }

    /// Where the bytes of a range come from, in order, up to the end of the file.
    pub fn parts(&self, offset: u64, length: usize) -> Vec<(Range<u64>, Origin)> {
        self.state.lock().extents.parts(offset..offset.saturating_add(length as u64))
    }

    /// Bytes that were written here; what lies in the range without having been written is zeros.
    ///
    /// # Errors
    /// `Io`.
    pub fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        let mut bytes = self.files().bytes.read_vec(offset, length).map_err(|error| self.refused(error))?;
        bytes.resize(length, 0);
        Ok(bytes.into())
    }

    /// Whether the source has to be told of anything, or is being told.
    pub fn is_unsent(&self) -> bool {
        let state = self.state.lock();
        // What is on its way is not there: who asks whether all is must not be told so before.
        state.taken.is_some() || state.extents.is_unsent()
    }

    /// Takes out what the source has not been told; `None` when that is nothing. What is written from now on is not in
    /// it.
    pub fn take(&self) -> Option<Batch> {
        let mut state = self.state.lock();
        let bytes = state.extents.unsent_bytes();
        let batch = state.extents.take()?;
        state.taken = Some(bytes);
        Some(batch)
    }

    /// It could not be sent.
    pub fn put_back(&self, batch: Batch) {
        let mut state = self.state.lock();
        state.taken = None;
        state.extents.put_back(batch);
    }

    /// It was sent, and the source has this version now.
    ///
    /// # Errors
    /// `Full`, `Io`: the log does not know; it is known here.
    pub fn sent(&self, version: Version) -> Result<()> {
        let mut state = self.state.lock();
        (state.version, state.taken) = (version.clone(), None);
        if state.extents.is_unsent() {
            return self.log(&mut state, &Logged::Sent(version));
        }
        // Nothing is left to be lost: the log begins anew, and at no time says nothing.
        let length = state.extents.length();
        state.log_end = 0;
        self.log(&mut state, &Logged::Base { version, length })?;
        let files = self.files();
        files.log.set_len(state.log_end).map_err(|error| StoreError::from_io(&files.paths().log, error))
    }

    /// The source is taken to have this version, with the same bytes: its attributes or names changed.
    ///
    /// # Errors
    /// As of [`Dirty::sent`].
    pub fn rest_on(&self, version: Version) -> Result<()> {
        let mut state = self.state.lock();
        state.version = version.clone();
        self.log(&mut state, &Logged::Sent(version))
    }

    /// Whether any byte of the file is still the base's.
    pub fn needs_base(&self) -> bool {
        self.state.lock().extents.needs_base()
    }

    /// Whether the file has room on its disk for what it holds: fallocate(2) has no other meaning here.
    ///
    /// # Errors
    /// `Full` when that many bytes are not free.
    pub fn reserve(&self, bytes: u64) -> Result<()> {
        let (free, _) = self.folder.space().map_err(|error| self.refused(error))?;
        match bytes > free {
            true => Err(StoreError::Full { path: self.path().to_owned() }),
            false => Ok(()),
        }
    }

    /// Removes what was written: it was sent, or is not wanted any more. Whoever has it goes on with it.
    pub fn discard(&self) {
        let mut state = self.state.lock();
        if state.gone.is_none() {
            state.gone = Some(self.folder.let_go(self.node, self.files()));
        }
    }

    fn files(&self) -> &Pair {
        self.files.as_ref().expect("only drop takes them")
    }

    fn log(&self, state: &mut State, record: &Logged) -> Result<()> {
        if state.gone.is_some() {
            return Ok(());
        }
        let fields = postcard::to_stdvec(record).map_err(|error| StoreError::Index(Box::new(error)))?;
        let length = u32::try_from(fields.len()).map_err(|error| StoreError::Index(Box::new(error)))?;
        let mut bytes = Vec::with_capacity(HEAD_BYTES + fields.len());
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&xxh3_64(&fields).to_le_bytes());
        bytes.extend_from_slice(&fields);
        let files = self.files();
        let written = files.log.write_all_at(&bytes, state.log_end);
        written.map_err(|error| StoreError::from_io(&files.paths().log, error))?;
        state.log_end += bytes.len() as u64;
        Ok(())
    }

    fn refused(&self, error: io::Error) -> StoreError {
        StoreError::from_io(self.path(), error)
    }
}

impl Drop for Dirty {
    fn drop(&mut self) {
        if let (Some(files), Some(Some(paths))) = (self.files.take(), self.state.get_mut().gone.take()) {
            self.folder.give_back(files, paths);
        }
    }
}

/// What a log says: extents, version, and where it goes on. A record that is torn ends it.
fn replay(log: &[u8]) -> Option<(Extents, Version, u64)> {
    let mut state: Option<(Extents, Version)> = None;
    let mut rest = log;
    while let Some((record, after)) = record(rest) {
        match (record, &mut state) {
            (Logged::Base { version, length }, _) => state = Some((Extents::over(length), version)),
            (Logged::Wrote(range), Some((extents, _))) if range.start <= range.end => extents.write(range),
            (Logged::Resized(length), Some((extents, _))) => extents.resize(length),
            (Logged::Sent(told), Some((_, version))) => *version = told,
            (Logged::Filled(range), Some((extents, _))) if range.start < range.end => extents.fill(range),
            (Logged::Over { version: told, length }, Some((extents, version))) if !extents.needs_base() => {
                extents.replace(length);
                *version = told;
            }
            _ => break,
        }
        rest = after;
    }
    let (extents, version) = state?;
    Some((extents, version, (log.len() - rest.len()) as u64))
}

fn record(log: &[u8]) -> Option<(Logged, &[u8])> {
    let (length, rest) = log.split_first_chunk::<4>()?;
    let (check, rest) = rest.split_first_chunk::<8>()?;
    let (fields, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    if xxh3_64(fields).to_le_bytes() != *check {
        return None;
    }
    Some((postcard::from_bytes(fields).ok()?, rest))
}

/// Bytes before a record's fields: their length (4, little-endian) and their XXH3-64 (8, little-endian).
const HEAD_BYTES: usize = 12;
/// Longest file that can be written, in bytes.
const LENGTH_MAX: u64 = i64::MAX as u64;
/// Longest log that is read again.
const LOG_BYTES_MAX: u64 = 1 << 30;
/// Zeros written at once.
const CLEAR_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk;

    fn folder(dir: &Path) -> Arc<DraftFiles> {
        DraftFiles::new(&Disk::default(), dir.to_owned())
    }

    fn begin(dir: &Path) -> Dirty {
        Dirty::begin(&folder(dir), NodeId(7), Version::strong("1"), 10).unwrap()
    }

    #[test]
    fn what_was_written_outlives_the_daemon_and_a_torn_end_of_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let dirty = begin(dir.path());
        dirty.write(4, b"four").unwrap();
        dirty.resize(20).unwrap();
        let (log, extents) = (dirty.files().paths().log.clone(), dirty.state.lock().extents.clone());
        drop(dirty);
        let mut torn = std::fs::read(&log).unwrap();
        torn.extend_from_slice(&[9, 0, 0, 0, 1, 2, 3]);
        std::fs::write(&log, &torn).unwrap();
        assert_eq!(folder(dir.path()).left().unwrap(), [NodeId(7)]);
        let again = Dirty::again(&folder(dir.path()), NodeId(7)).unwrap().unwrap();
        assert_eq!(again.state.lock().extents, extents);
        assert_eq!((again.version(), again.read(4, 6).unwrap()), (Version::strong("1"), Bytes::from("four\0\0")));
        again.write(0, b"zero").unwrap();
        let extents = again.state.lock().extents.clone();
        let third = Dirty::again(&folder(dir.path()), NodeId(7)).unwrap().unwrap();
        assert_eq!(third.state.lock().extents, extents, "the torn record was written over");
        third.discard();
        assert!(folder(dir.path()).left().unwrap().is_empty());
    }

    #[test]
    fn what_says_nothing_is_removed_and_what_is_damaged_stays() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::of(dir.path(), NodeId(7));
        let again = || Dirty::again(&folder(dir.path()), NodeId(7));
        begin(dir.path()).write(4, b"four").unwrap();
        let mut log = std::fs::read(&paths.log).unwrap();
        log[5] ^= 1;
        std::fs::write(&paths.log, &log).unwrap();
        assert!(matches!(again(), Err(StoreError::Io { .. })));
        assert!(paths.log.exists() && paths.bytes.exists());
        std::fs::write(&paths.log, b"").unwrap();
        assert!(again().unwrap().is_none());
        assert!(!paths.log.exists() && !paths.bytes.exists());
    }

    #[test]
    fn when_all_is_sent_nothing_is_left_to_send_after_a_start() {
        let dir = tempfile::tempdir().unwrap();
        let dirty = begin(dir.path());
        dirty.write(4, b"four").unwrap();
        let batch = dirty.take().unwrap();
        dirty.write(0, b"meanwhile").unwrap();
        dirty.sent(Version::strong("2")).unwrap();
        let again = || Dirty::again(&folder(dir.path()), NodeId(7)).unwrap().unwrap();
        assert!(again().is_unsent() && again().version() == Version::strong("2"));
        assert_eq!((batch.extents().len(), batch.length()), (1, 10));
        dirty.take().unwrap();
        dirty.sent(Version::strong("3")).unwrap();
        assert!(!again().is_unsent() && again().version() == Version::strong("3"));
        assert_eq!(again().parts(0, 99), [(0..10, Origin::Base)]);
    }

    #[test]
    fn what_is_to_be_sent_over_another_version_is_all_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let dirty = begin(dir.path());
        dirty.write(4, b"four").unwrap();
        assert!(!dirty.over(Version::strong("2"), 99).unwrap(), "bytes are missing");
        dirty.fill(0, b"0123456789").unwrap();
        assert_eq!(dirty.bytes_away(), Some(4), "what was filled is not told by itself");
        assert_eq!(dirty.read(0, 10).unwrap(), Bytes::from("0123four89"));
        assert!(dirty.over(Version::strong("2"), 99).unwrap());
        for dirty in [Dirty::again(&folder(dir.path()), NodeId(7)).unwrap().unwrap(), dirty] {
            assert_eq!((dirty.version(), dirty.source_length()), (Version::strong("2"), 99));
            assert_eq!((dirty.bytes_away(), dirty.length()), (Some(10), 10));
            let batch = dirty.take().unwrap();
            assert_eq!((batch.extents()[0].length, batch.length()), (10, 10));
            assert_eq!(dirty.bytes_away(), Some(10), "what is on its way is not there");
            dirty.sent(Version::strong("3")).unwrap();
            assert_eq!(dirty.bytes_away(), None);
        }
    }
}
