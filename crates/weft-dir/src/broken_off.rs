//! Writes that ended in the middle, as on a full disk: what they left is another version than the one that was written
//! on, and no other program's. Whoever tries the same again may write over it.

use std::collections::HashMap;

use parking_lot::Mutex;
use weft_remote::Version;

use crate::facts::Facts;
use crate::identity::Identity;

/// By file: the version that was written on, and the one that was left. Held for one look or one change.
#[derive(Debug, Default)]
pub(crate) struct BrokenOff(Mutex<HashMap<Identity, (Version, Version)>>);

impl BrokenOff {
    /// A write over `expected` has ended in the middle, and the file is this now.
    pub fn note(&self, file: Identity, expected: &Version, left: &Facts) {
        let mut files = self.0.lock();
        if files.len() >= FILES_MAX && !files.contains_key(&file) {
            // What is not remembered looks as if it had been changed by another program: people decide.
            return;
        }
        files.insert(file, (expected.clone(), left.version()));
    }

    /// Whether a file is what a write over `expected` has left.
    pub fn is_ours(&self, file: Identity, expected: &Version, now: &Facts) -> bool {
        let files = self.0.lock();
        let Some((before, left)) = files.get(&file) else { return false };
        before == expected && *expected != Version::None && now.has_bytes_of(left)
    }

    /// All of it is written.
    pub fn forget(&self, file: Identity) {
        self.0.lock().remove(&file);
    }
}

/// Most files that are remembered.
const FILES_MAX: usize = 4096;
