//! Trees that the user has taken off the network.
//!
//! Below such a path no remote is asked: what is held is used as if every lease lasted, and what is not held fails at
//! once with an error of its own. The paths are notes of the store, so they outlast the daemon.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use weft_remote::{Name, Notes, Remote};

use crate::inode::Inode;
use crate::vfs::Vfs;
use crate::{Result, VfsError};

/// The paths that are offline. The lock guards the list alone and is held for one look or one change.
pub(crate) struct Offline {
    /// Whether there are any: spares all others the look.
    any: AtomicBool,
    paths: RwLock<Vec<Vec<Name>>>,
    notes: Arc<dyn Notes>,
}

impl Offline {
    /// The paths as noted.
    pub(crate) fn noted(notes: Arc<dyn Notes>) -> Offline {
        let noted = notes.list(b"").unwrap_or_else(|error| {
            tracing::warn!(%error, "which trees are offline cannot be read");
            Vec::new()
        });
        let paths: Vec<Vec<Name>> = noted.iter().filter_map(|(key, _)| names_of(key)).collect();
        Offline { any: AtomicBool::new(!paths.is_empty()), paths: RwLock::new(paths), notes }
    }

    fn covers(&self, path: &[Name]) -> bool {
        self.paths.read().iter().any(|offline| path.starts_with(offline))
    }
}

impl Vfs {
    /// Takes everything below a path off the network.
    ///
    /// # Errors
    /// When the store cannot note it.
    pub fn take_offline(&self, path: &[Name]) -> Result<()> {
        self.offline.notes.put(&key_of(path), Some(b"")).map_err(VfsError::notes)?;
        let mut paths = self.offline.paths.write();
        if !paths.iter().any(|offline| offline == path) {
            paths.push(path.to_vec());
        }
        self.offline.any.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Puts a path, and everything below it, back on the network; says how many paths had been taken off.
    ///
    /// # Errors
    /// `NotFound` when a directory above it is what was taken off, or nothing was.
    pub fn bring_online(&self, path: &[Name]) -> Result<usize> {
        let mut paths = self.offline.paths.write();
        let (back, stays): (Vec<_>, Vec<_>) = paths.drain(..).partition(|offline| offline.starts_with(path));
        *paths = stays;
        self.offline.any.store(!paths.is_empty(), Ordering::SeqCst);
        drop(paths);
        for path in &back {
            self.offline.notes.put(&key_of(path), None).map_err(VfsError::notes)?;
        }
        if back.is_empty() { Err(VfsError::NotFound) } else { Ok(back.len()) }
    }

    /// The paths that are offline.
    pub fn offline_paths(&self) -> Vec<Vec<Name>> {
        self.offline.paths.read().clone()
    }

    /// The remote to ask about an inode.
    ///
    /// # Errors
    /// `Offline` when its tree has been taken off the network.
    pub(crate) fn remote_of(&self, inode: &Inode) -> Result<&Arc<dyn Remote>> {
        if self.offline.any.load(Ordering::SeqCst) && self.offline.covers(&self.path_of(inode.id)?) {
            return Err(VfsError::Offline);
        }
        self.remote(inode.record.read().binding)
    }
}

/// Names hold no slash.
fn key_of(path: &[Name]) -> Vec<u8> {
    path.iter().map(Name::as_bytes).collect::<Vec<_>>().join(&b'/')
}

fn names_of(key: &[u8]) -> Option<Vec<Name>> {
    key.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).map(|part| Name::new(part).ok()).collect()
}
