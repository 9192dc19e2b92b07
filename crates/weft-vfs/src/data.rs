//! What a read gives.

use bytes::Bytes;
use weft_store::Stretch;

use crate::Result;

/// Bytes of a file.
#[derive(Clone, Debug)]
pub enum Data {
    /// In memory.
    Bytes(Bytes),
    /// In the cache, from where they may go to the reader without passing through this process.
    Stored(Stretch),
}

impl Data {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Data::Bytes(bytes) => bytes.len(),
            Data::Stored(stretch) => stretch.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// In memory.
    ///
    /// # Errors
    /// What keeps the cache from reading them.
    pub fn into_bytes(self) -> Result<Bytes> {
        match self {
            Data::Bytes(bytes) => Ok(bytes),
            Data::Stored(stretch) => Ok(stretch.read()?),
        }
    }
}

impl From<Bytes> for Data {
    fn from(bytes: Bytes) -> Data {
        Data::Bytes(bytes)
    }
}
