//! Directories that others have moved, by which the kernel would still go as they were.
//!
//! The kernel knows a directory by one name. Where it is told of another one, it moves what it knows; but not within rename(2)
//! from one directory to another, which holds the lock that this takes: then it answers with `ESTALE` itself and follows the path
//! again, to the same end (d_splice_alias() and do_renameat2(), Linux fs/dcache.c and fs/namei.c). So a thread that goes on to
//! other names after it was told of a directory in a new place may be following a path again, and the kernel is told first to
//! forget the directory by its former name.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use weft_remote::{Call, FileKind, Name};
use weft_store::{NodeId, NodeRecord};

use crate::inode::Inode;
use crate::lookup::Looked;
use crate::notice::Notice;
use crate::retry::RETRY_TIME;
use crate::vfs::Vfs;

/// A directory, and a name in it.
type Place = (NodeId, Name);

/// Directories that are in another place than the kernel knows.
#[derive(Debug, Default)]
pub(crate) struct MovedDirectories {
    table: Mutex<Table>,
    /// How many threads there are in it, for almost always there is none.
    threads: AtomicUsize,
}

#[derive(Debug, Default)]
struct Table {
    /// Where those were of which the kernel has not been told since.
    left: HashMap<NodeId, Place>,
    /// Of which of them threads were told last.
    told: HashMap<u32, Told>,
}

#[derive(Debug)]
struct Told {
    left: Place,
    now: Place,
    at: Instant,
}

impl MovedDirectories {
    /// A thread is about to be told that this directory is here now.
    fn tell(&self, call: &Call, id: NodeId, now: impl FnOnce() -> Place) {
        let mut table = self.table.lock();
        let Some(left) = table.left.remove(&id) else { return };
        table.told.retain(|_, told| told.at.elapsed() < RETRY_TIME);
        if call.caller.pid != 0 && table.told.len() < TOLD_MAX {
            table.told.insert(call.caller.pid, Told { left, now: now(), at: Instant::now() });
        }
        self.threads.store(table.told.len(), Ordering::Relaxed);
    }

    /// Where the directory was of which a thread was told last, if it asks for another name now.
    fn left_by(&self, call: &Call, dir: NodeId, name: &Name) -> Option<Place> {
        if self.threads.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut table = self.table.lock();
        if table.told.get(&call.caller.pid).is_some_and(|told| told.now.0 == dir && told.now.1 == *name) {
            return None;
        }
        let told = table.told.remove(&call.caller.pid);
        self.threads.store(table.told.len(), Ordering::Relaxed);
        told.filter(|told| told.at.elapsed() < RETRY_TIME).map(|told| told.left)
    }
}

impl Vfs {
    /// A node is in another place than it was; where that was done here the kernel knows.
    pub(crate) fn note_former_place(&self, id: NodeId, former: &NodeRecord, changed_here: bool) {
        if former.attributes.kind != FileKind::Directory {
            return;
        }
        let mut table = self.moved_directories.table.lock();
        if changed_here {
            table.left.remove(&id);
        } else if table.left.len() < LEFT_MAX {
            // The kernel may not have heard of a place in between.
            table.left.entry(id).or_insert_with(|| (former.parent, former.name.clone()));
        }
    }

    /// A thread asks for a name: what keeps the kernel from going by what it was told before is taken away.
    pub(crate) async fn let_former_place_go(&self, call: &Call, dir: &Inode, name: &Name) {
        let Some((parent, name)) = self.moved_directories.left_by(call, dir.id, name) else { return };
        let former = Notice::Entry { parent: self.namespace.shown(parent), name };
        // The thread may hold a lock for which that waits, unless it follows a path again.
        let _ = tokio::time::timeout(FORGETTING_PATIENCE, self.notices.tell(vec![former])).await;
    }

    /// The kernel is about to be told what a name leads to.
    pub(crate) fn note_told_place(&self, call: &Call, dir: &Inode, name: &Name, looked: &Looked) {
        if let Looked::Entry { stat, .. } = looked
            && stat.kind == FileKind::Directory
        {
            self.moved_directories.tell(call, self.namespace.real(stat.node), || (dir.id, name.clone()));
        }
    }
}

/// Directories of which it is known where they were.
const LEFT_MAX: usize = 4096;
/// Threads of which it is known what they were told.
const TOLD_MAX: usize = 256;
/// How long a look-up waits until the kernel has forgotten a directory by its former name.
const FORGETTING_PATIENCE: Duration = Duration::from_millis(100);
