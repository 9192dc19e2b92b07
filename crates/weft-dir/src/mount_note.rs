//! Whether something was mounted at the top, noted for the next daemon: what is below a mount is not what was shown.

use std::fmt;
use std::sync::Arc;

use weft_remote::Notes;

/// A note of one directory.
#[derive(Clone)]
pub struct MountNote {
    notes: Arc<dyn Notes>,
    key: Vec<u8>,
}

impl MountNote {
    /// The note under this key.
    pub fn new(notes: Arc<dyn Notes>, key: impl Into<Vec<u8>>) -> MountNote {
        MountNote { notes, key: key.into() }
    }

    /// What the note says. One that cannot be read says nothing.
    pub(crate) fn was_mounted(&self) -> bool {
        let note = self.notes.get(&self.key);
        note.inspect_err(|error| tracing::warn!(%error, "{self:?}: the note cannot be read"))
            .is_ok_and(|note| note.is_some())
    }

    /// Notes what is so now. A full disk keeps nothing from being shown.
    pub(crate) fn put(&self, is_mounted: bool) {
        if is_mounted != self.was_mounted()
            && let Err(error) = self.notes.put(&self.key, is_mounted.then_some(b"mounted"))
        {
            tracing::warn!(%error, "{self:?}: it cannot be noted whether something is mounted");
        }
    }
}

impl fmt::Debug for MountNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.key))
    }
}
