//! Attempts to send what was written of which nobody heard what came. Whoever writes on may write other bytes in place of
//! those: what the source may have by now is then known by these alone.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use weft_remote::Content;

use crate::draft::Draft;

/// Room for the bytes of all attempts, in KiB.
#[derive(Clone, Debug)]
pub(crate) struct Room(Arc<Semaphore>);

impl Default for Room {
    fn default() -> Room {
        Room(Arc::new(Semaphore::new(ALL_KIB_MAX)))
    }
}

/// What was handed on in one attempt.
#[derive(Debug)]
pub(crate) struct Attempt {
    /// How long the file was to be.
    pub(crate) length: u64,
    /// Each where it was to be; in any order, some more than once.
    pieces: Vec<(u64, Bytes)>,
    room: Vec<OwnedSemaphorePermit>,
}

impl Attempt {
    /// Notes which bytes of the source, from `at` on, are those of this attempt.
    pub(crate) fn account_for(&self, at: u64, theirs: &[u8], known: &mut [bool]) {
        let end = at + theirs.len() as u64;
        for (start, bytes) in &self.pieces {
            let (from, to) = ((*start).max(at), (start + bytes.len() as u64).min(end));
            for place in from..to {
                known[(place - at) as usize] |= bytes[(place - start) as usize] == theirs[(place - at) as usize];
            }
        }
    }
}

/// The bytes of a draft for whoever sends them.
pub(crate) struct Sending {
    draft: Arc<Draft>,
    room: Room,
    /// What was handed on so far; `None` where that is more than can be kept. Held for one piece.
    attempt: Mutex<Option<Attempt>>,
}

impl Sending {
    /// Of a draft that makes a file of this length.
    pub(crate) fn of(draft: Arc<Draft>, length: u64, room: Room) -> Sending {
        let attempt = Mutex::new(Some(Attempt { length, pieces: Vec::new(), room: Vec::new() }));
        Sending { draft, room, attempt }
    }

    /// What was handed on, where there was anything and all of it could be kept.
    pub(crate) fn attempt(&self) -> Option<Attempt> {
        self.attempt.lock().take().filter(|attempt| !attempt.pieces.is_empty())
    }

    fn note(&self, offset: u64, bytes: &Bytes) {
        let mut attempt = self.attempt.lock();
        let Some(noted) = &mut *attempt else { return };
        let kib = bytes.len().div_ceil(1024);
        let has: usize = noted.room.iter().map(OwnedSemaphorePermit::num_permits).sum();
        let room = u32::try_from(kib).ok().filter(|_| has + kib <= KIB_MAX);
        match room.and_then(|kib| self.room.0.clone().try_acquire_many_owned(kib).ok()) {
            Some(room) => {
                noted.room.push(room);
                noted.pieces.push((offset, bytes.clone()));
            }
            None => *attempt = None,
        }
    }
}

impl Content for Sending {
    fn read(&self, offset: u64, length: usize) -> io::Result<Bytes> {
        let dirty = &self.draft.dirty;
        let left = dirty.length().saturating_sub(offset).min(length as u64) as usize;
        let mut bytes = dirty.read(offset, left).map_err(io::Error::other)?;
        if bytes.len() < length {
            // It was cut meanwhile, which is sent next: to break off would leave the source with nobody knows how much.
            let mut whole = BytesMut::from(&bytes[..]);
            whole.resize(length, 0);
            bytes = whole.freeze();
        }
        self.note(offset, &bytes);
        Ok(bytes)
    }

    fn hole(&self, bytes: Range<u64>) -> Option<Range<u64>> {
        self.draft.dirty.hole(bytes)
    }
}

/// Most KiB that are kept of one attempt.
const KIB_MAX: usize = 4 << 10;
/// And of all together.
const ALL_KIB_MAX: usize = 64 << 10;
