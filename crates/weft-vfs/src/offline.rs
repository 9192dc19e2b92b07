//! Trees that the user has taken off the network.
//!
//! Below such a path no remote is asked: what is held is used as if every lease lasted, and what is not held fails at
//! once with an error of its own. A path may also be taken off for checks alone: what is held is used, what is missing is
//! fetched. The paths are notes of the store, so they outlast the daemon.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use weft_remote::{Name, Notes, Remote};

use crate::inode::Inode;
use crate::vfs::Vfs;
use crate::{Result, VfsError};

/// How far a path is off the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nobody is asked.
    Offline,
    /// Only what is missing is asked for; what is held is not checked.
    FetchOnly,
}

impl Mode {
    /// As it is noted: nothing for the mode that was there first.
    fn noted(self) -> &'static [u8] {
        match self {
            Mode::Offline => b"",
            Mode::FetchOnly => FETCH_ONLY,
        }
    }
}

/// The paths that are offline. The lock guards the list alone and is held for one look or one change.
pub(crate) struct Offline {
    /// Whether there are any: spares all others the look.
    any: AtomicBool,
    paths: RwLock<Vec<(Vec<Name>, Mode)>>,
    notes: Arc<dyn Notes>,
}

impl Offline {
    /// The paths as noted.
    pub(crate) fn noted(notes: Arc<dyn Notes>) -> Offline {
        let noted = notes.list(b"").unwrap_or_else(|error| {
            tracing::warn!(%error, "which trees are offline cannot be read");
            Vec::new()
        });
        let mode = |value: &[u8]| if value == FETCH_ONLY { Mode::FetchOnly } else { Mode::Offline };
        let paths = noted.iter().filter_map(|(key, value)| Some((names_of(key)?, mode(value))));
        let paths: Vec<(Vec<Name>, Mode)> = paths.collect();
        Offline { any: AtomicBool::new(!paths.is_empty()), paths: RwLock::new(paths), notes }
    }

    /// What counts for a path: the strictest of what was said at it and above it.
    fn mode(&self, path: &[Name]) -> Option<Mode> {
        let paths = self.paths.read();
        let above = paths.iter().filter(|(offline, _)| path.starts_with(offline)).map(|(_, mode)| *mode);
        above.min_by_key(|mode| *mode != Mode::Offline)
    }
}

impl Vfs {
    /// Takes everything below a path off the network.
    ///
    /// # Errors
    /// When the store cannot note it.
    pub fn take_offline(&self, path: &[Name], mode: Mode) -> Result<()> {
        self.offline.notes.put(&key_of(path), Some(mode.noted())).map_err(VfsError::notes)?;
        let mut paths = self.offline.paths.write();
        paths.retain(|(offline, _)| offline != path);
        paths.push((path.to_vec(), mode));
        self.offline.any.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Puts a path, and everything below it, back on the network, and has its source tried at the next use if it was
    /// silent; says how many paths had been taken off.
    ///
    /// # Errors
    /// `NotFound` when a directory above it is what was taken off, or nothing was and no source was silent.
    pub fn bring_online(&self, path: &[Name]) -> Result<usize> {
        let tried = self.try_again(path);
        let mut paths = self.offline.paths.write();
        let (back, stays): (Vec<_>, Vec<_>) = paths.drain(..).partition(|(offline, _)| offline.starts_with(path));
        *paths = stays;
        self.offline.any.store(!paths.is_empty(), Ordering::SeqCst);
        drop(paths);
        for (path, _) in &back {
            self.offline.notes.put(&key_of(path), None).map_err(VfsError::notes)?;
        }
        if back.is_empty() && !tried { Err(VfsError::NotFound) } else { Ok(back.len()) }
    }

    /// The paths that are offline.
    pub fn offline_paths(&self) -> Vec<(Vec<Name>, Mode)> {
        self.offline.paths.read().clone()
    }

    /// Has the sources behind a path tried at the next use; says whether any had been given up for the moment.
    pub(crate) fn try_again(&self, path: &[Name]) -> bool {
        // A host that was silent when it was first asked has no name here yet: then whoever is above it tries again.
        let known = (0..=path.len()).rev().find_map(|length| Some((self.find(&path[..length]).ok()?, length)));
        let Some((node, length)) = known else { return false };
        if self.namespace.is_own(node) {
            if length < path.len() {
                return false;
            }
            let all = self.namespace.all().iter();
            return all.fold(false, |any, bound| bound.remote.try_again(&bound.remote.root()) | any);
        }
        let Ok(inode) = self.inode(node) else { return false };
        let record = inode.record();
        self.remote(record.binding).is_ok_and(|remote| remote.try_again(&record.file))
    }

    /// How far an inode is off the network by the user's word.
    pub(crate) fn mode_of(&self, inode: &Inode) -> Option<Mode> {
        if !self.offline.any.load(Ordering::SeqCst) {
            return None;
        }
        self.offline.mode(&self.path_of(inode.id).ok()?)
    }

    /// The remote to ask about an inode.
    ///
    /// # Errors
    /// `Offline` when its tree has been taken off the network.
    pub(crate) fn remote_of(&self, inode: &Inode) -> Result<&Arc<dyn Remote>> {
        if self.mode_of(inode) == Some(Mode::Offline) {
            return Err(VfsError::Offline);
        }
        self.remote(inode.record.read().binding)
    }
}

/// The note of a path of which only what is missing is fetched.
const FETCH_ONLY: &[u8] = b"fetch-only";

/// Names hold no slash.
fn key_of(path: &[Name]) -> Vec<u8> {
    path.iter().map(Name::as_bytes).collect::<Vec<_>>().join(&b'/')
}

fn names_of(key: &[u8]) -> Option<Vec<Name>> {
    key.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).map(|part| Name::new(part).ok()).collect()
}
