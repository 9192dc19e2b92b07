//! The content of one version of a file, whole or in part.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use parking_lot::Mutex;
use weft_remote::{Audience, Lease, Seek, Version};
use xxhash_rust::xxh3::xxh3_64;

use crate::body::Body;
use crate::ledger::Reservation;
use crate::pieces::{Pieces, Trust};
use crate::records::piece_length;
use crate::shelf::Shelf;
use crate::uses::Use;
use crate::{Account, Bound, Dirty, NodeId, ObjectRecord, PIECE_BYTES, Result, StoreError, Writer};

/// What a new object is made from.
#[derive(Clone, Debug)]
pub struct NewObject {
    /// Which version the bytes will be of.
    pub version: Version,
    /// Length of the file in bytes, where announced.
    pub length: Option<u64>,
    /// How long the content may be trusted.
    pub lease: Lease,
    /// Who may be shown it.
    pub audience: Audience,
    /// The user whose read brings it here.
    pub owner_uid: u32,
    /// When the source said that this is its content.
    pub checked: SystemTime,
    /// What it counts towards.
    pub account: Account,
}

/// The content of one version of one file.
///
/// All callers share one `Object` per version; its bytes are there as long as somebody holds it, so removing or
/// replacing the object takes nothing away from a reader. Bytes can be read as soon as a writer has appended them.
#[derive(Debug)]
pub struct Object {
    pub(crate) shelf: Arc<Shelf>,
    pub(crate) node: NodeId,
    pub(crate) generation: u64,
    pub(crate) body: Body,
    version: Version,
    audience: Audience,
    owner_uid: u32,
    /// What a new object counts towards; one from the index has its line in the ledger.
    pub(crate) account: Option<Account>,
    pub(crate) last_use: Use,
    /// Room taken for bytes that its record does not have yet. Held for one change, before the ledger's lock.
    pub(crate) reserved: Mutex<Option<Reservation>>,
    /// Guards what changes; held for no I/O. Taken after the shelf's locks.
    pub(crate) state: Mutex<State>,
}

/// What changes about an object.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) length: Option<u64>,
    pub(crate) lease: Lease,
    pub(crate) checked: SystemTime,
    pub(crate) pieces: Pieces,
    pub(crate) appending: Vec<Appending>,
    pub(crate) standing: Standing,
}

/// A writer in progress.
#[derive(Debug)]
pub(crate) struct Appending {
    pub(crate) id: u64,
    /// Where its next byte goes.
    pub(crate) position: u64,
    /// Whether the piece at its position is its own to write: not present, nor another writer's.
    pub(crate) owns: bool,
}

/// Where an object stands towards the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Not committed; its file goes when it is dropped.
    Draft,
    /// The object of its node.
    Committed,
    /// Removed, replaced or discarded: only those who hold it can read it.
    Gone,
}

impl Object {
    pub(crate) fn draft(shelf: Arc<Shelf>, node: NodeId, generation: u64, body: Body, new: NewObject) -> Object {
        let state = State {
            length: new.length,
            lease: new.lease,
            checked: new.checked,
            pieces: Pieces::default(),
            appending: Vec::new(),
            standing: Standing::Draft,
        };
        let NewObject { version, audience, owner_uid, account, .. } = new;
        let (account, last_use, reserved) = (Some(account), Use::now(), Mutex::default());
        let state = Mutex::new(state);
        Object { shelf, node, generation, body, version, audience, owner_uid, account, last_use, reserved, state }
    }

    pub(crate) fn of_record(shelf: Arc<Shelf>, node: NodeId, body: Body, record: ObjectRecord) -> Object {
        let pieces = Pieces::of_record(&record.pieces);
        let generation = record.generation;
        let new = NewObject {
            version: record.version,
            length: Some(record.length),
            lease: record.lease,
            audience: record.audience,
            owner_uid: record.owner_uid,
            checked: record.checked,
            account: Account::default(),
        };
        let last_use = Use::noted(shelf.ledger.line(node).map_or(0, |line| line.used_us));
        let mut object = Object::draft(shelf, node, generation, body, new);
        (object.account, object.last_use) = (None, last_use);
        let state = object.state.get_mut();
        (state.pieces, state.standing) = (pieces, Standing::Committed);
        object
    }

    /// The file whose content this is.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Tells the objects of one node apart: never used twice.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Which version the bytes are of.
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// Length of the file in bytes; `None` until it is known.
    pub fn length(&self) -> Option<u64> {
        self.state.lock().length
    }

    /// How long the content may be trusted.
    pub fn lease(&self) -> Lease {
        self.state.lock().lease
    }

    /// Who may be shown it.
    pub fn audience(&self) -> Audience {
        self.audience
    }

    /// The user whose read brought it here.
    pub fn owner_uid(&self) -> u32 {
        self.owner_uid
    }

    /// Notes that somebody uses it now. Costs no lock and no disk but once per [`crate::StoreOptions::use_interval`],
    /// when it is put on the list of uses to be made durable.
    pub fn touch(&self, now: SystemTime) {
        self.shelf.touch(self, now);
    }

    /// Takes room for more bytes than it has; they count towards the bounds from now on.
    ///
    /// # Errors
    /// The bound that would be passed.
    pub fn reserve(&self, more: u64) -> Result<(), Bound> {
        let mut reserved = self.reserved.lock();
        match &mut *reserved {
            Some(reserved) => reserved.grow(more),
            None => {
                let account = self.account.or_else(|| self.shelf.ledger.line(self.node).map(|line| line.account));
                *reserved = Some(self.shelf.ledger.reserve(account.unwrap_or_default(), more)?);
                Ok(())
            }
        }
    }

    /// When the source last confirmed it.
    pub fn checked(&self) -> SystemTime {
        self.state.lock().checked
    }

    /// A writer that appends from `start` on, a multiple of [`PIECE_BYTES`]. Several writers
    /// may be at work; bytes that are held already, or that another writer is bringing, are passed over.
    ///
    /// # Errors
    /// `Io` when `start` is no multiple or too many writers are at work, `WrongLength` when it is after the end.
    pub fn writer(self: &Arc<Self>, start: u64) -> Result<Writer> {
        Writer::begin(Arc::clone(self), start)
    }

    /// Takes over what was written, which is all at the source: its file becomes this object's, without a copy. `sums` are
    /// those of its pieces ([`Dirty::sums`]). False, and nothing done, where it is not all of the file, or not all sent.
    ///
    /// # Errors
    /// `Io`: what was written is given up, for its source has it.
    pub fn take_over(&self, dirty: &Dirty, sums: &[u64]) -> Result<bool> {
        let (disk, path) = (&self.shelf.disk, self.body.path());
        let length = self.length().filter(|length| length.div_ceil(PIECE_BYTES) == sums.len() as u64);
        let Some(length) = length else { return Ok(false) };
        let bring = |from: &Path| {
            disk.make_dir(path.parent().expect("files of objects lie in a folder"))?;
            disk.rename(from, path)?;
            let file = disk.open(path)?;
            // What was added by its length alone reads as zeros.
            if file.len()? < length { file.set_len(length).map(|()| file) } else { Ok(file) }
        };
        let Some(file) = dirty.hand_over(length, bring)? else { return Ok(false) };
        self.body.own(file);
        let mut state = self.state.lock();
        for (piece, sum) in (0..).zip(sums) {
            state.pieces.insert(piece, *sum, Trust::Seen);
        }
        Ok(true)
    }

    /// How many bytes from `offset` on can be read now without a gap.
    pub fn available(&self, offset: u64) -> u64 {
        let state = self.state.lock();
        state.reach(offset) - offset
    }

    /// Start of the first piece, from the one that `offset` lies in on, that is not present; `None` when all are,
    /// up to the end.
    pub fn missing_from(&self, offset: u64) -> Option<u64> {
        self.state.lock().missing_from(offset)
    }

    /// Whether the length is known and every piece is present.
    pub fn is_complete(&self) -> bool {
        self.state.lock().is_complete()
    }

    /// Up to `length` bytes from `offset` on; fewer only at the end of the file.
    ///
    /// A piece that comes from before this start of the daemon is compared with its checksum the first time.
    ///
    /// # Errors
    /// `Missing` when not all of it is held, `Damaged` when a piece is not what was written (it is forgotten, and
    /// missing from then on), `Io`.
    pub fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        let (count, unseen) = {
            let state = self.state.lock();
            // Room is made only for bytes that are there, whatever was asked for.
            let count = state.readable(offset, length)?;
            (count, state.unseen(offset, count))
        };
        let bytes = self.bytes(offset, count)?;
        if bytes.len() < count {
            return Err(self.damaged((offset + bytes.len() as u64) / PIECE_BYTES, "it is shorter than it was"));
        }
        for (piece, sum) in unseen {
            self.compare(piece, sum, offset, &bytes)?;
        }
        Ok(bytes)
    }

    /// Makes this the object of its node, in place of the one before: complete, or in part when it has a version
    /// and a length, so that the rest can be fetched later. Calling it again records further pieces. Does not wait
    /// for the disk. An object that was removed, replaced or discarded in the meantime stays so, without an error.
    ///
    /// # Errors
    /// `Missing` when it is neither; what the index says when it takes no more changes.
    pub fn commit(self: &Arc<Self>) -> Result<()> {
        self.shelf.commit(self)
    }

    /// The file for the kernel to read by itself: only when it is complete and every piece was written, or
    /// compared with its checksum, in this life of the daemon. Small contents have none.
    pub fn backing(&self) -> Option<BorrowedFd<'_>> {
        let state = self.state.lock();
        (state.is_complete() && state.pieces.all_seen()).then(|| self.body.fd()).flatten()
    }

    /// Where data or a hole begins at or after `offset`; `None` past the end. Of small contents nothing but the end is a hole.
    ///
    /// # Errors
    /// `Missing` when it is not all here, or not every piece was written, or compared with its checksum, in this life of the
    /// daemon: what a crash has kept from the disk looks like a hole. `Io`.
    pub fn seek(&self, offset: u64, what: Seek) -> Result<Option<u64>> {
        let length = {
            let state = self.state.lock();
            let sure = state.is_complete() && state.pieces.all_seen();
            state.length.filter(|_| sure).ok_or(StoreError::Missing { offset: state.missing_from(0).unwrap_or(0) })?
        };
        if offset >= length {
            return Ok(None);
        }
        let found = self.body.seek(offset, what == Seek::Hole).map_err(|error| self.refused(error))?;
        Ok(match what {
            Seek::Data => found.unwrap_or(Some(offset)).filter(|place| *place < length),
            Seek::Hole => Some(found.flatten().unwrap_or(length).min(length)),
        })
    }

    /// Takes all pieces for right without comparing them: a former life of the daemon had done so, and somebody reads
    /// the file past this store since.
    pub fn vouch(&self) {
        self.state.lock().pieces.trust_all();
    }

    /// Forgets the pieces that these bytes lie in: what brought them turned out not to be what it had announced. The
    /// record tells of it with the next [`Object::commit`].
    pub fn forget(&self, bytes: Range<u64>) {
        let mut state = self.state.lock();
        if bytes.start < bytes.end {
            for piece in piece_of(bytes.start)..=piece_of(bytes.end - 1) {
                state.pieces.forget(piece);
            }
        }
    }

    /// Removes the file of an object that was never committed; one that was committed stays.
    pub fn discard(&self) {
        self.shelf.discard(self);
    }

    /// Removes an object, committed or not, that turned out not to be what it had announced. One that has replaced it stays,
    /// and whoever holds it can read what came of it.
    ///
    /// # Errors
    /// What the index says when it takes no more changes.
    pub fn revoke(&self) -> Result<()> {
        self.shelf.revoke(self)
    }

    /// What the index is to remember.
    ///
    /// # Errors
    /// `Missing` when it may not be committed as it is.
    pub(crate) fn record(&self) -> Result<ObjectRecord> {
        let state = self.state.lock();
        let partial_is_of_use = self.version != Version::None;
        let Some(length) = state.length.filter(|_| partial_is_of_use || state.is_complete()) else {
            return Err(StoreError::Missing { offset: state.missing_from(0).unwrap_or(0) });
        };
        Ok(ObjectRecord {
            version: self.version.clone(),
            length,
            lease: state.lease,
            audience: self.audience,
            owner_uid: self.owner_uid,
            checked: state.checked,
            generation: self.generation,
            pieces: state.pieces.to_record(),
        })
    }

    /// The pieces that are held, each with its checksum.
    pub(crate) fn pieces_held(&self) -> Vec<(u32, u64)> {
        self.state.lock().pieces.to_record()
    }

    /// Has the system forget what it keeps of the file in memory, so that it is read from the disk.
    pub(crate) fn forget_pages(&self) {
        self.body.forget_pages();
    }

    /// Up to `length` bytes of a piece, uncompared; fewer where they are not there.
    pub(crate) fn piece_from_disk(&self, offset: u64, length: u64) -> Result<Bytes> {
        self.bytes(offset, usize::try_from(length).expect("a piece fits into memory"))
    }

    /// Forgets a piece that turned out damaged.
    pub(crate) fn give_up(&self, piece: u32, cause: &str) {
        self.shelf.give_up(self, piece, cause);
    }

    fn bytes(&self, offset: u64, length: usize) -> Result<Bytes> {
        self.body.read(&self.shelf.small, offset, length).map_err(|error| self.refused(error))
    }

    /// The system's refusal, about this object's file.
    pub(crate) fn refused(&self, error: std::io::Error) -> StoreError {
        StoreError::from_io(self.body.path(), error)
    }

    /// Compares a whole piece with its checksum: from `bytes`, read at `offset`, where they have all of it, otherwise
    /// from the disk.
    fn compare(&self, piece: u32, sum: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        let start = u64::from(piece) * PIECE_BYTES;
        let length = self.state.lock().length.map_or(PIECE_BYTES, |length| piece_length(piece, length)) as usize;
        let here = start.checked_sub(offset).and_then(|skipped| usize::try_from(skipped).ok());
        let found = match here.and_then(|skipped| bytes.get(skipped..)?.get(..length)) {
            Some(whole) => xxh3_64(whole),
            None => {
                let whole = self.bytes(start, length)?;
                if whole.len() < length {
                    return Err(self.damaged(piece.into(), "it is shorter than it was"));
                }
                xxh3_64(&whole)
            }
        };
        if found != sum {
            return Err(self.damaged(piece.into(), "the bytes are not those that were written"));
        }
        self.state.lock().pieces.trust(piece, sum);
        Ok(())
    }

    fn damaged(&self, piece: u64, cause: &str) -> StoreError {
        let offset = piece * PIECE_BYTES;
        if let Ok(piece) = u32::try_from(piece) {
            self.shelf.give_up(self, piece, cause);
        }
        StoreError::Damaged { path: self.body.path().clone(), offset }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        self.shelf.put_back(self.node, self.generation);
        self.shelf.ledger.used(self.node, self.last_use.at_us());
        if self.state.get_mut().standing == Standing::Draft && self.body.has_file() {
            self.shelf.remove_file(self.body.path());
        }
    }
}

impl State {
    pub(crate) fn is_complete(&self) -> bool {
        self.length.is_some_and(|length| self.pieces.count() as u64 == length.div_ceil(PIECE_BYTES))
    }

    /// The end of what can be read from `offset` on without a gap.
    pub(crate) fn reach(&self, offset: u64) -> u64 {
        let end = self.length.unwrap_or(u64::MAX);
        let mut reach = offset;
        while reach < end {
            let piece = piece_of(reach);
            let gap = u64::from(self.pieces.first_gap(piece)) * PIECE_BYTES;
            let tails = self.appending.iter().filter(|tail| tail.owns && piece_of(tail.position) == piece);
            let next = tails.map(|tail| tail.position).chain([gap.min(end)]).max().unwrap_or(reach);
            if next <= reach {
                break;
            }
            reach = next;
        }
        reach
    }

    fn missing_from(&self, offset: u64) -> Option<u64> {
        let gap = u64::from(self.pieces.first_gap(piece_of(offset))) * PIECE_BYTES;
        (gap < self.length.unwrap_or(u64::MAX)).then_some(gap)
    }

    /// How much of `length` bytes from `offset` on there is to read.
    pub(crate) fn readable(&self, offset: u64, length: usize) -> Result<usize> {
        let wanted = match self.length {
            Some(end) => end.saturating_sub(offset).min(length as u64),
            None => length as u64,
        };
        let held = self.reach(offset) - offset;
        if held < wanted {
            return Err(StoreError::Missing { offset: offset + held });
        }
        Ok(usize::try_from(wanted).expect("at most the length asked for, which is one"))
    }

    /// The pieces under these bytes that have to be compared before they are used, with their checksums.
    pub(crate) fn unseen(&self, offset: u64, count: usize) -> Vec<(u32, u64)> {
        if count == 0 || self.pieces.all_seen() {
            return Vec::new();
        }
        let pieces = piece_of(offset)..=piece_of(offset + count as u64 - 1);
        let held = pieces.filter_map(|piece| Some((piece, self.pieces.get(piece)?)));
        held.filter(|(_, held)| held.trust == Trust::Unseen).map(|(piece, held)| (piece, held.sum)).collect()
    }
}

/// The piece that a byte lies in; offsets beyond what an object can have give the last number.
pub(crate) fn piece_of(offset: u64) -> u32 {
    u32::try_from(offset / PIECE_BYTES).unwrap_or(u32::MAX)
}

/// Longest file that an object can hold, in bytes (1 PiB); its pieces are numbered in 32 bits.
pub(crate) const OBJECT_BYTES_MAX: u64 = (u32::MAX as u64 - 1) * PIECE_BYTES;
