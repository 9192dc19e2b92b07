//! Room for a body on its way: reserved a little ahead of its bytes.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weft_store::Object;

use crate::Result;
use crate::space::on_disk;
use crate::vfs::Vfs;

/// What has been reserved for one body.
pub(crate) struct Room {
    /// Bytes that came, and bytes that there is room for.
    came: u64,
    covered: u64,
    /// The length of what the body brings, where it is known.
    expected: Option<u64>,
    /// The body is of a page that lists a directory, which is read to its end in any case.
    lists: bool,
    /// There was no room: the page's bytes lie on the disk only while they are read.
    lent: bool,
    /// What is to come of `covered`; `None` where it takes nothing of the disk.
    promise: Option<Promise>,
}

impl Room {
    /// Room for the beginning of a body that brings this range of an object, or as much of it as there is.
    ///
    /// # Errors
    /// `NoRoom`.
    pub(crate) fn for_body(vfs: &Arc<Vfs>, object: &Object, range: Range<u64>, lists: bool) -> Result<Room> {
        let end = object.length().map_or(range.end, |length| length.min(range.end));
        let expected = (end < u64::MAX).then(|| end.saturating_sub(range.start));
        let is_reserved = object.length().is_some_and(|length| vfs.store.is_reserved(length));
        let promise = (!is_reserved).then(|| vfs.space.promises.none_yet());
        let mut room = Room { came: 0, covered: 0, expected, lists, lent: false, promise };
        room.reserve(vfs, object)?;
        Ok(room)
    }

    /// Sees to room for `more` bytes that came; those before them have been stored.
    ///
    /// # Errors
    /// `NoRoom`.
    pub(crate) fn cover(&mut self, vfs: &Arc<Vfs>, object: &Object, more: u64) -> Result<()> {
        if let Some(promise) = &mut self.promise {
            promise.is_to_come(self.covered.saturating_sub(self.came));
        }
        self.came += more;
        while self.came > self.covered && !self.lent {
            self.reserve(vfs, object)?;
        }
        Ok(())
    }

    /// Whether the bytes may not stay.
    pub(crate) fn is_lent(&self) -> bool {
        self.lent
    }

    fn reserve(&mut self, vfs: &Arc<Vfs>, object: &Object) -> Result<()> {
        let step = match self.expected {
            // More than announced is refused elsewhere.
            Some(expected) if self.covered >= expected => {
                self.covered = u64::MAX;
                return Ok(());
            }
            Some(expected) => (expected - self.covered).min(KNOWN_STEP_BYTES),
            None => UNKNOWN_STEP_BYTES,
        };
        // First promised, then compared with the disk: of two bodies at a time, one at least counts the other.
        let before = self.promise.as_mut().map(|promise| promise.grow(on_disk(step)));
        let outcome = vfs.make_room(object, on_disk(step));
        if let (Err(_), Some(promise), Some(before)) = (&outcome, &mut self.promise, before) {
            promise.is_to_come(before);
        }
        match outcome {
            Ok(()) => self.covered += step,
            Err(error) if error.is_full() && self.lists => self.lent = true,
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Bytes of the disk that bodies on their way have been promised and have not taken yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Promises(Arc<AtomicU64>);

impl Promises {
    /// What all bodies are to take yet, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn none_yet(&self) -> Promise {
        Promise { of: self.clone(), bytes: 0 }
    }
}

/// What one body is to take yet of the disk; nothing any more when it has ended.
struct Promise {
    of: Promises,
    bytes: u64,
}

impl Promise {
    /// Promises `more`; returns what was promised before.
    fn grow(&mut self, more: u64) -> u64 {
        let before = self.bytes;
        self.of.0.fetch_add(more, Ordering::SeqCst);
        self.bytes += more;
        before
    }

    /// Some of it came, or was not to be had: so much is left, no more than before.
    fn is_to_come(&mut self, bytes: u64) {
        let less = self.bytes.saturating_sub(bytes);
        self.of.0.fetch_sub(less, Ordering::SeqCst);
        self.bytes -= less;
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.is_to_come(0);
    }
}

/// What is reserved at once of a body whose length is known.
const KNOWN_STEP_BYTES: u64 = 4 << 20;
/// What is reserved at once of one that does not tell.
const UNKNOWN_STEP_BYTES: u64 = 256 << 10;
