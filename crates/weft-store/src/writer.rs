//! Bytes on their way into an object.

use std::io;
use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3;

use crate::object::{Appending, OBJECT_BYTES_MAX, Object, piece_of};
use crate::pieces::Trust;
use crate::{PIECE_BYTES, Result, StoreError};

/// Appends bytes to an object from one place on.
///
/// What was appended can be read at once; a piece that is full is present from then on. Dropping a writer that has
/// not finished forgets its last, unfinished piece.
pub struct Writer {
    object: Arc<Object>,
    id: u64,
    position: u64,
    owns: bool,
    hash: Xxh3,
}

impl Writer {
    pub(crate) fn begin(object: Arc<Object>, start: u64) -> Result<Writer> {
        if !start.is_multiple_of(PIECE_BYTES) {
            return Err(object.refused(io::ErrorKind::InvalidInput.into()));
        }
        let id = object.shelf.next_number();
        let mut state = object.state.lock();
        if let Some(expected) = state.length.filter(|length| start > *length) {
            return Err(StoreError::WrongLength { expected, given: start });
        }
        if state.appending.len() >= WRITERS_MAX {
            return Err(object.refused(io::ErrorKind::ResourceBusy.into()));
        }
        state.appending.push(Appending { id, position: start, owns: false });
        drop(state);
        Ok(Writer { object, id, position: start, owns: false, hash: Xxh3::new() })
    }

    /// Where the next byte goes.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Appends `bytes`. After an error the bytes up to [`Writer::position`] count.
    ///
    /// # Errors
    /// `WrongLength` when they go beyond the end of the file, `Full` when the disk is, `Io`.
    pub fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        let end = self.position.saturating_add(bytes.len() as u64);
        let length = self.object.length();
        if let Some(expected) = length.filter(|length| end > *length) {
            return Err(StoreError::WrongLength { expected, given: end });
        }
        if end > OBJECT_BYTES_MAX {
            return Err(self.object.refused(io::ErrorKind::FileTooLarge.into()));
        }
        while !bytes.is_empty() {
            let within = self.position % PIECE_BYTES;
            if within == 0 {
                self.enter_piece();
            }
            let room = usize::try_from(PIECE_BYTES - within).expect("a piece fits in memory");
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            if self.owns {
                let written = self.object.body.write(&self.object.shelf.disk, now, self.position);
                written.map_err(|error| self.object.refused(error))?;
                self.hash.update(now);
            }
            self.advance(now.len() as u64);
            bytes = later;
        }
        Ok(())
    }

    /// Ends the stream. Where the length was unknown it is known now; when this is the end of the file, its last
    /// piece is present; when the stream ended early, the piece that is not full is forgotten.
    ///
    /// # Errors
    /// `WrongLength` when the length was unknown and bytes are held beyond this end.
    pub fn finish(self) -> Result<()> {
        let mut state = self.object.state.lock();
        if state.length.is_none() {
            let held = state.pieces.last().map_or(0, |piece| (u64::from(piece) + 1) * PIECE_BYTES);
            let ahead = state.appending.iter().map(|tail| tail.position).max().unwrap_or(0);
            let given = held.max(ahead);
            if given > self.position {
                return Err(StoreError::WrongLength { expected: self.position, given });
            }
            state.length = Some(self.position);
        }
        if self.owns && state.length == Some(self.position) && !self.position.is_multiple_of(PIECE_BYTES) {
            state.pieces.insert(piece_of(self.position), self.hash.digest(), Trust::Seen);
        }
        Ok(())
    }

    /// Decides whether the piece at the position is this writer's to write: bytes that are held, or that somebody
    /// reads while another writer brings them, are never written over.
    fn enter_piece(&mut self) {
        let piece = piece_of(self.position);
        let mut state = self.object.state.lock();
        let others = state.appending.iter().filter(|tail| tail.id != self.id && tail.owns);
        let taken = others.map(|tail| piece_of(tail.position)).any(|other| other == piece);
        self.owns = !taken && state.pieces.get(piece).is_none();
        let owns = self.owns;
        if let Some(tail) = state.appending.iter_mut().find(|tail| tail.id == self.id) {
            tail.owns = owns;
        }
        drop(state);
        self.hash.reset();
    }

    fn advance(&mut self, count: u64) {
        let filled = piece_of(self.position);
        self.position += count;
        let full = self.position.is_multiple_of(PIECE_BYTES);
        let mut state = self.object.state.lock();
        if full && self.owns {
            state.pieces.insert(filled, self.hash.digest(), Trust::Seen);
        }
        if full {
            self.owns = false;
        }
        if let Some(tail) = state.appending.iter_mut().find(|tail| tail.id == self.id) {
            (tail.position, tail.owns) = (self.position, self.owns);
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.object.state.lock().appending.retain(|tail| tail.id != self.id);
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("object", &self.object.node).field("position", &self.position).finish()
    }
}

/// Most writers at work on one object.
const WRITERS_MAX: usize = 64;
