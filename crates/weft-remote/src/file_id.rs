//! The lasting identity of a file within one remote.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Names one file or directory of one remote for as long as it exists, across restarts of weft.
///
/// The bytes are the kind's own (a URL without its scheme, an AFS fid, a path); nobody else reads meaning into
/// them. At most [`FileId::BYTES_MAX`] bytes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(Arc<[u8]>);

/// Where a file lies among those of its remote, as far as its identity tells: the same for as long as that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbourhood {
    /// Files that are likely to be used together have the same; others as well, by chance.
    pub area: u64,
    /// Their order there. Any number of files may have the same.
    pub position: u8,
}

impl FileId {
    /// Longest identity in bytes: a kind answers names that would need more with `BadName`.
    pub const BYTES_MAX: usize = 8192;

    /// Wraps the kind's bytes.
    pub fn new(bytes: impl AsRef<[u8]>) -> FileId {
        FileId(Arc::from(bytes.as_ref()))
    }

    /// The kind's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Serialize for FileId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        serde_bytes::serialize(&*self.0, to)
    }
}

impl<'de> Deserialize<'de> for FileId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<FileId, D::Error> {
        serde_bytes::deserialize::<Cow<'de, [u8]>, D>(from).map(FileId::new)
    }
}

impl fmt::Debug for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileId({})", self.0.escape_ascii())
    }
}
