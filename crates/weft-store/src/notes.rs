//! The durable notes that the store lends to each kind.

use std::sync::Arc;

use weft_remote::{Notes, NotesError};

use crate::index::Index;
use crate::stage::Due;
use crate::{StoreError, key, value};

/// The notes of one kind.
#[derive(Debug)]
pub(crate) struct StoreNotes {
    index: Arc<Index>,
    kind: Box<str>,
}

impl StoreNotes {
    /// The notes of `kind`, a name without NUL bytes.
    pub(crate) fn of_kind(index: Arc<Index>, kind: &str) -> StoreNotes {
        debug_assert!(!kind.contains('\0'), "kinds are named in the code");
        StoreNotes { index, kind: kind.into() }
    }
}

impl Notes for StoreNotes {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, NotesError> {
        let key = key::note(&self.kind, key);
        let value = self.index.get(&key).map_err(unusable)?;
        // A note that cannot be read is as good as none: whatever it said can be learnt again.
        Ok(value.and_then(|value| value::decode(&key, &value).ok()))
    }

    fn put(&self, key: &[u8], value: Option<&[u8]>) -> Result<(), NotesError> {
        if key.len() > NOTE_KEY_BYTES_MAX || value.is_some_and(|value| value.len() > NOTE_BYTES_MAX) {
            return Err(NotesError("a note may have a key of 16 KiB and 1 MiB".into()));
        }
        let key = key::note(&self.kind, key);
        let value = value.map(|value| value::encode(&key, &value)).transpose().map_err(unusable)?;
        self.index.apply(vec![(key, value)], None, Due::Soon).map_err(unusable)
    }

    fn list(&self, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>, NotesError> {
        let kind_bytes = key::note(&self.kind, b"").len();
        let prefix = key::note(&self.kind, prefix);
        let pairs = self.index.scan(&prefix, None, NOTES_LISTED_MAX + 1).map_err(unusable)?;
        if pairs.len() > NOTES_LISTED_MAX {
            return Err(NotesError(format!("more than {NOTES_LISTED_MAX} notes in one list").into()));
        }
        let read = |(key, value): (key::Key, value::Value)| {
            Some((key[kind_bytes..].to_vec(), value::decode(&key, &value).ok()?))
        };
        Ok(pairs.into_iter().filter_map(read).collect())
    }
}

fn unusable(error: StoreError) -> NotesError {
    NotesError(Box::new(error))
}

/// Longest key of a note.
const NOTE_KEY_BYTES_MAX: usize = 16 << 10;
/// Longest note.
const NOTE_BYTES_MAX: usize = 1 << 20;
/// Most notes that one list gives.
const NOTES_LISTED_MAX: usize = 1 << 17;
