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
use weft_remote::{Caller, Version};
use xxhash_rust::xxh3::xxh3_64;

use crate::draft_files::{self, DraftFiles, Pair, Paths};
use crate::draft_log::{self, Logged, Told, Whose};
use crate::extents::{Batch, Extents, Origin};
use crate::{NodeId, PIECE_BYTES, Result, StoreError};

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
    /// How often bytes or the length were changed.
    changes: u64,
    /// The version that the source is taken to have.
    version: Version,
    /// Under which generation those have the file open that read what is written.
    readers: Option<u64>,
    /// Who closed or synced it last, where that was noted.
    writer: Option<Caller>,
    /// Where the log goes on, and its life.
    log_end: u64,
    life: u64,
    /// Bytes that are on their way to the source, if anything is.
    taken: Option<u64>,
    /// All of it is this file's own, also for the next daemon.
    is_kept: bool,
    /// A former daemon put bytes of the base beside what was written.
    was_filled: bool,
    /// It was discarded: nothing of it is to outlive the daemon. Whether its files can be used again.
    gone: Option<bool>,
}

impl State {
    /// What stays at the end of a log of this life.
    fn trailer(&self, life: u64) -> postcard::Result<Vec<u8>> {
        let record = self.writer.map(|writer| Logged::Writer { uid: writer.uid, gid: writer.gid });
        record.map_or(Ok(Vec::new()), |record| record.encoded(life))
    }
}

impl Dirty {
    /// Begins to hold what is written to a file that its source has in this version and length, for those who have it open
    /// under the generation `readers`.
    pub(crate) fn begin(
        folder: &Arc<DraftFiles>,
        node: NodeId,
        (version, length): (Version, u64),
        readers: Option<u64>,
    ) -> Result<Dirty> {
        let files = folder.begin(node)?;
        let (bytes, life) = draft_log::beginning(node, version.clone(), length, readers).map_err(unwritable)?;
        if let Err(error) = files.log.write_all_at(&bytes, 0) {
            let error = StoreError::from_io(&files.paths().log, error);
            folder.remove(node, &files);
            return Err(error);
        }
        let (extents, end) = (Extents::over(length), bytes.len() as u64);
        let told = Told { extents, version, readers, is_filled: false, writer: None, end, life };
        Ok(Dirty::new(folder, node, files, told))
    }

    /// Takes up what a former daemon left; `None`, and its files removed, when it ended before anything was written.
    ///
    /// # Errors
    /// `Io`: the files cannot be read, or the log does not say which bytes were written. Then they stay, for people.
    pub(crate) fn again(folder: &Arc<DraftFiles>, (node, paths): (NodeId, Arc<Paths>)) -> Result<Option<Dirty>> {
        let files = folder.again(node, paths)?;
        let refused = |error| StoreError::from_io(&files.paths().log, error);
        let length = usize::try_from(files.log.len().map_err(refused)?.min(LOG_BYTES_MAX)).unwrap_or(0);
        let bytes = files.log.read_vec(0, length).map_err(refused)?;
        let Some(told) = draft_log::replay(&bytes) else {
            if draft_log::whose(&bytes) == Whose::Nobody {
                folder.remove(node, &files);
                return Ok(None);
            }
            return Err(refused(draft_files::damaged()));
        };
        Ok(Some(Dirty::new(folder, node, files, told)))
    }

    fn new(folder: &Arc<DraftFiles>, node: NodeId, files: Pair, told: Told) -> Dirty {
        let Told { extents, version, readers, is_filled, writer, end, life } = told;
        let state = State {
            extents,
            changes: 0,
            version,
            readers,
            writer,
            log_end: end,
            life,
            taken: None,
            is_kept: false,
            was_filled: is_filled,
            gone: None,
        };
        let state = Mutex::new(state);
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

    /// How often its bytes or its length were changed since it was begun or taken up: the same number, the same content.
    pub fn changes(&self) -> u64 {
        self.state.lock().changes
    }

    /// The version that the source is taken to have.
    pub fn version(&self) -> Version {
        self.state.lock().version.clone()
    }

    /// Under which generation those have the file open that read what is written, where that was told.
    pub fn readers(&self) -> Option<u64> {
        self.state.lock().readers
    }

    /// Who closed or synced it last, where that was noted, by whichever daemon; without the process.
    pub fn writer(&self) -> Option<Caller> {
        self.state.lock().writer
    }

    /// Notes who closes or syncs it, for the next daemon as well.
    ///
    /// # Errors
    /// `Full`, `Io`: the log does not know; it is known here.
    pub fn note_writer(&self, writer: Caller) -> Result<()> {
        let (mut state, writer) = (self.state.lock(), Caller { pid: 0, ..writer });
        if state.writer == Some(writer) {
            return Ok(());
        }
        state.writer = Some(writer);
        self.append(&mut state, Vec::new())
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
        (state.version, state.was_filled) = (version, false);
        Ok(true)
    }

    /// The source will not have the file any more, or does not: what it is here is all its own from now on, for the next daemon
    /// as well, whatever of it was sent. False, and nothing done, while bytes of it are still the base's ([`Dirty::fill`]).
    ///
    /// # Errors
    /// As of [`Dirty::write`].
    pub fn keep_all(&self) -> Result<bool> {
        let mut state = self.state.lock();
        if state.extents.needs_base() {
            return Ok(false);
        }
        if state.is_kept {
            return Ok(true);
        }
        if let Some(record) = all_of(&state.extents) {
            self.log(&mut state, &record)?;
            let length = state.extents.length();
            state.extents.fill(0..length);
        }
        state.is_kept = true;
        Ok(true)
    }

    /// Whether a former daemon put bytes of the base beside what was written: those were never synced, so that they may be others
    /// where the machine failed, and the source, if it has the file, knows better.
    pub fn was_filled(&self) -> bool {
        self.state.lock().was_filled
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
        if at < end && self.punch(at..end)? {
            return Ok(());
        }
        let zeros = vec![0; usize::try_from(end.saturating_sub(at).min(CLEAR_BYTES)).unwrap_or(0)];
        while at < end {
            let length = zeros.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
            self.write(at, &zeros[..length])?;
            at += length as u64;
        }
        Ok(())
    }

    /// The same without room on the disk for it; false, and nothing done, where its file system knows no holes.
    fn punch(&self, range: Range<u64>) -> Result<bool> {
        let _no_filling = self.filling.read();
        if self.files().bytes.punch(range.start, range.end - range.start).is_err() {
            return Ok(false);
        }
        let mut state = self.state.lock();
        self.log(&mut state, &Logged::Wrote(range.clone()))?;
        state.extents.write(range);
        Ok(true)
    }

    /// The first hole in a range of what was written here: bytes that read as zeros and take no room. `None` where there is none,
    /// or that cannot be told.
    pub fn hole(&self, range: Range<u64>) -> Option<Range<u64>> {
        let files = self.files();
        let start = files.bytes.seek(range.start, true).ok()?.unwrap_or(range.start);
        let end = files.bytes.seek(start, false).ok()?.unwrap_or(range.end).min(range.end);
        (start < end).then_some(start..end)
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

    /// Whether something was taken out to be sent, and nobody knows yet whether the source has it.
    pub fn is_being_sent(&self) -> bool {
        self.state.lock().taken.is_some()
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
        if state.extents.is_unsent() || state.gone.is_some() {
            return self.log(&mut state, &Logged::Sent(version));
        }
        // Nothing is left to be lost: the log begins anew, and at no time says nothing.
        let length = state.extents.length();
        let (mut bytes, life) = draft_log::beginning(self.node, version, length, state.readers).map_err(unwritable)?;
        // What is all here the next daemon can hold against what the source has then.
        if let Some(record) = all_of(&state.extents).filter(|_| !state.extents.needs_base()) {
            bytes.extend(record.encoded(life).map_err(unwritable)?);
        }
        let end = bytes.len() as u64;
        bytes.extend(state.trailer(life).map_err(unwritable)?);
        let files = self.files();
        // Whoever has begun another one meanwhile is whose it is.
        let begun = files.while_current(|| files.log.write_all_at(&bytes, 0));
        if begun.transpose().map_err(|error| StoreError::from_io(&files.paths().log, error))?.is_some() {
            (state.log_end, state.life) = (end, life);
        }
        Ok(())
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

    /// The checksums of the pieces of the file, of [`PIECE_BYTES`] each, for an object that is to take it over; `None` when
    /// somebody stopped asking, or bytes of it are the base's.
    ///
    /// # Errors
    /// `Io`.
    pub fn sums(&self, is_asked: impl Fn() -> bool) -> Result<Option<Vec<u64>>> {
        let length = self.length();
        let mut sums = Vec::new();
        for begin in (0..length).step_by(PIECE_BYTES as usize) {
            if self.needs_base() || !is_asked() {
                return Ok(None);
            }
            sums.push(xxh3_64(&self.read(begin, PIECE_BYTES.min(length - begin) as usize)?));
        }
        Ok(Some(sums))
    }

    /// Gives the file with the bytes away, whose log goes before it: `take` gets its path. `None`, and nothing done, where it is
    /// not of this length, not whole, not all sent, or nobody's any more.
    ///
    /// # Errors
    /// `Io`: it is given up.
    pub(crate) fn hand_over<T>(&self, length: u64, take: impl FnOnce(&Path) -> io::Result<T>) -> Result<Option<T>> {
        let mut state = self.state.lock();
        let is_away = state.taken.is_some() || state.extents.is_unsent();
        if is_away || state.gone.is_some() || state.extents.needs_base() || state.extents.length() != length {
            return Ok(None);
        }
        if !self.folder.give_away(self.node, self.files()) {
            return Ok(None);
        }
        // No pair is made of it again.
        state.gone = Some(false);
        let taken = take(self.path());
        if taken.is_err() {
            self.folder.remove(self.node, self.files());
        }
        taken.map(Some).map_err(|error| self.refused(error))
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
        state.changes += u64::from(matches!(record, Logged::Wrote(_) | Logged::Resized(_)));
        let record = record.encoded(state.life).map_err(unwritable)?;
        self.append(state, record)
    }

    /// Writes records at the log's end, and behind them what is to stay there.
    fn append(&self, state: &mut State, mut records: Vec<u8>) -> Result<()> {
        if state.gone.is_some() {
            return Ok(());
        }
        let end = state.log_end + records.len() as u64;
        records.extend(state.trailer(state.life).map_err(unwritable)?);
        let files = self.files();
        let written = files.log.write_all_at(&records, state.log_end);
        written.map_err(|error| StoreError::from_io(&files.paths().log, error))?;
        state.log_end = end;
        Ok(())
    }

    fn refused(&self, error: io::Error) -> StoreError {
        StoreError::from_io(self.path(), error)
    }
}

impl Drop for Dirty {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        if let (Some(files), Some(true)) = (self.files.take(), state.gone) {
            self.folder.give_back(files);
        }
    }
}

/// What says that all of a file is held here; `None` where it is empty.
fn all_of(extents: &Extents) -> Option<Logged> {
    let length = extents.length();
    (length > 0).then_some(Logged::Filled(0..length))
}

fn unwritable(error: postcard::Error) -> StoreError {
    StoreError::Index(Box::new(error))
}

/// Longest file that can be written, in bytes.
const LENGTH_MAX: u64 = i64::MAX as u64;
/// Longest log that is read again.
const LOG_BYTES_MAX: u64 = 1 << 30;
/// Zeros written at once.
const CLEAR_BYTES: u64 = 1 << 20;

#[cfg(test)]
#[path = "dirty_tests.rs"]
mod tests;
