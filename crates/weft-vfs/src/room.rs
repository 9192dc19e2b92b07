//! Room for a body on its way: reserved a little ahead of its bytes.

use std::sync::Arc;

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
}

impl Room {
    /// Room for the beginning of a body that brings the bytes of an object from `start` on.
    ///
    /// # Errors
    /// `NoRoom`.
    pub(crate) fn for_body(vfs: &Arc<Vfs>, object: &Object, start: u64, lists: bool) -> Result<Room> {
        let expected = object.length().map(|length| length.saturating_sub(start));
        let mut room = Room { came: 0, covered: 0, expected, lists, lent: false };
        room.reserve(vfs, object)?;
        Ok(room)
    }

    /// Sees to room for `more` bytes that came.
    ///
    /// # Errors
    /// `NoRoom`.
    pub(crate) fn cover(&mut self, vfs: &Arc<Vfs>, object: &Object, more: u64) -> Result<()> {
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
        match vfs.make_room(object, on_disk(step)) {
            Ok(()) => self.covered += step,
            Err(error) if error.is_full() && self.lists => self.lent = true,
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// What is reserved at once of a body whose length is known.
const KNOWN_STEP_BYTES: u64 = 4 << 20;
/// What is reserved at once of one that does not tell.
const UNKNOWN_STEP_BYTES: u64 = 256 << 10;
