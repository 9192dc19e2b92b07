//! Bytes of an object that lie in its file, to be taken from there.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use bytes::Bytes;

use crate::object::piece_of;
use crate::{Object, Result};

/// Bytes of an object that lie in its file and were written, or compared with their checksums, in this life of the
/// daemon. They have not been read: that is left to whoever wants them.
#[derive(Clone, Debug)]
pub struct Stretch {
    object: Arc<Object>,
    offset: u64,
    length: usize,
}

impl Object {
    /// Up to `length` bytes from `offset` on; fewer only at the end of the file. `None` when they have to be read or
    /// compared first ([`Object::read`]).
    ///
    /// # Errors
    /// `Missing` when not all of it is held.
    pub fn stretch(self: &Arc<Self>, offset: u64, length: usize) -> Result<Option<Stretch>> {
        if !self.body.has_file() {
            return Ok(None);
        }
        let state = self.state.lock();
        let length = state.readable(offset, length)?;
        let is_seen = length > 0 && state.unseen(offset, length).is_empty();
        Ok(is_seen.then(|| Stretch { object: self.clone(), offset, length }))
    }
}

impl Stretch {
    /// The file; `None` is never met, for an object that has a file keeps it.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.object.body.fd()
    }

    /// Where it begins in the file, in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// How long it is, in bytes; never 0.
    #[expect(clippy::len_without_is_empty, reason = "none is")]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Reads it.
    ///
    /// # Errors
    /// As [`Object::read`].
    pub fn read(&self) -> Result<Bytes> {
        self.object.read(self.offset, self.length)
    }

    /// It could not be read: its pieces are compared before they are used again, and fetched again if they are not
    /// what was written.
    pub fn doubt(&self) {
        let mut state = self.object.state.lock();
        let end = self.offset + self.length as u64;
        (piece_of(self.offset)..=piece_of(end - 1)).for_each(|piece| state.pieces.doubt(piece));
    }
}
