//! Small facts that a kind must remember across restarts.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// Why a note could not be kept or read.
#[derive(Debug, thiserror::Error)]
#[error("the notes of this kind cannot be used: {0}")]
pub struct NotesError(#[source] pub Box<dyn std::error::Error + Send + Sync>);

/// A key with its value.
pub type Note = (Vec<u8>, Vec<u8>);

/// A small durable map that the house lends to each kind: which scheme a host speaks, which servers a cell has.
///
/// Keys are ordered bytes. Not for content, and of files only for those that something is being done to. A note that was put
/// is there after a restart, except for the last moments before a crash.
pub trait Notes: Send + Sync {
    /// The value under `key`.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, NotesError>;

    /// Sets the value under `key`; `None` takes it away.
    ///
    /// # Errors
    /// When the store cannot be written.
    fn put(&self, key: &[u8], value: Option<&[u8]>) -> Result<(), NotesError>;

    /// Every key that starts with `prefix`, with its value, in order.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn list(&self, prefix: &[u8]) -> Result<Vec<Note>, NotesError>;
}

/// Notes that last as long as the process: for tests and for kinds tried without a store.
#[derive(Debug, Default)]
pub struct MemoryNotes(Mutex<BTreeMap<Vec<u8>, Vec<u8>>>);

impl Notes for MemoryNotes {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, NotesError> {
        Ok(self.0.lock().get(key).cloned())
    }

    fn put(&self, key: &[u8], value: Option<&[u8]>) -> Result<(), NotesError> {
        match value {
            Some(value) => self.0.lock().insert(key.to_vec(), value.to_vec()),
            None => self.0.lock().remove(key),
        };
        Ok(())
    }

    fn list(&self, prefix: &[u8]) -> Result<Vec<Note>, NotesError> {
        let map = self.0.lock();
        let from_prefix = map.range(prefix.to_vec()..);
        Ok(from_prefix.take_while(|(k, _)| k.starts_with(prefix)).map(|(k, v)| (k.clone(), v.clone())).collect())
    }
}
