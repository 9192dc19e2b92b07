//! Which inodes the kernel reads by itself.
//!
//! The kernel wants one mode per inode at a time: while a file is open in passthrough, every other open of it must
//! be in passthrough with the same backing file, and while it is open through the page cache, none may be (kernel
//! `fs/fuse/iomode.c`). A backing id costs a system call, so it is kept for a while after the last close.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use weft_vfs::{HandleId, NodeId, Object, ReadBy};

/// How an open is answered.
pub(crate) enum Mode<B> {
    /// Through the page cache.
    Cached,
    /// Past the page cache.
    Bypass,
    /// The kernel reads the backing file itself.
    Passthrough(Arc<B>),
    /// An older version is open in passthrough: this open cannot be had now.
    Refused,
}

/// The modes of all inodes that are open, and backing ids kept for the next open. `B` is the door's backing id. The
/// lock is held over the system call that makes an id, never over anything that waits for a remote.
pub(crate) struct Backings<B> {
    state: Mutex<State<B>>,
    allowed: bool,
}

struct State<B> {
    nodes: HashMap<NodeId, PerNode<B>>,
    handles: HashMap<HandleId, (NodeId, bool)>,
}

/// Nobody has the kernel read an inode by itself while this is held: it is about to be written.
pub(crate) struct Reserved<B> {
    modes: Arc<Backings<B>>,
    node: NodeId,
}

struct PerNode<B> {
    cached_opens: u32,
    passthrough_opens: u32,
    backing: Option<(u64, Arc<B>)>,
}

impl<B> Backings<B> {
    /// `allowed`: whether this process may have the kernel read files (it needs `CAP_SYS_ADMIN`).
    pub(crate) fn new(allowed: bool) -> Backings<B> {
        Backings { state: Mutex::new(State { nodes: HashMap::new(), handles: HashMap::new() }), allowed }
    }

    /// Chooses the mode of an open and counts it.
    pub(crate) fn open(
        &self,
        node: NodeId,
        handle: HandleId,
        backing: Option<&Arc<Object>>,
        bypass: bool,
        make: impl FnOnce(&Object) -> std::io::Result<B>,
    ) -> Mode<B> {
        let mut state = self.state.lock();
        let state = &mut *state;
        if state.nodes.len() >= KEPT_MAX {
            state.nodes.retain(|_, node| node.cached_opens + node.passthrough_opens > 0);
        }
        let entry = state.nodes.entry(node).or_default();
        let generation = backing.map(|object| object.generation());
        if entry.passthrough_opens > 0 {
            let Some((open_generation, id)) = &entry.backing else { return Mode::Refused };
            if generation != Some(*open_generation) {
                return Mode::Refused;
            }
            entry.passthrough_opens += 1;
            state.handles.insert(handle, (node, true));
            return Mode::Passthrough(id.clone());
        }
        if let Some(object) = backing
            && self.allowed
            && entry.cached_opens == 0
            && let Some(id) = entry.id_for(object, make)
        {
            entry.passthrough_opens += 1;
            state.handles.insert(handle, (node, true));
            return Mode::Passthrough(id);
        }
        if bypass {
            return Mode::Bypass;
        }
        entry.cached_opens += 1;
        state.handles.insert(handle, (node, false));
        Mode::Cached
    }

    /// Chooses the mode of an open by somebody who writes and counts it: also past the page cache, for what is written
    /// is not in a backing file.
    pub(crate) fn open_to_write(&self, node: NodeId, handle: HandleId, bypass: bool) -> Mode<B> {
        let mut state = self.state.lock();
        let entry = state.nodes.entry(node).or_default();
        if entry.passthrough_opens > 0 {
            return Mode::Refused;
        }
        entry.cached_opens += 1;
        state.handles.insert(handle, (node, false));
        if bypass { Mode::Bypass } else { Mode::Cached }
    }

    /// Keeps the kernel from reading an inode by itself from now on; `None` while it does.
    pub(crate) fn reserve(self: &Arc<Self>, node: NodeId) -> Option<Reserved<B>> {
        let mut state = self.state.lock();
        let entry = state.nodes.entry(node).or_default();
        if entry.passthrough_opens > 0 {
            return None;
        }
        entry.cached_opens += 1;
        Some(Reserved { modes: self.clone(), node })
    }

    /// Takes over a backing id of a former daemon. One that the inode had is let go.
    pub(crate) fn restore(&self, node: NodeId, generation: u64, id: B) {
        let former = self.state.lock().nodes.entry(node).or_default().backing.replace((generation, Arc::new(id)));
        // An id that goes is a system call.
        drop(former);
    }

    /// Counts a file that was open when a former daemon ended.
    pub(crate) fn restore_open(&self, node: NodeId, handle: HandleId, read_by: ReadBy) {
        let mut state = self.state.lock();
        let entry = state.nodes.entry(node).or_default();
        match read_by {
            ReadBy::Kernel => entry.passthrough_opens += 1,
            ReadBy::Daemon => entry.cached_opens += 1,
        }
        state.handles.insert(handle, (node, read_by == ReadBy::Kernel));
    }

    /// Counts a close.
    pub(crate) fn close(&self, handle: HandleId) {
        let mut state = self.state.lock();
        let Some((node, passthrough)) = state.handles.remove(&handle) else { return };
        state.count_off(node, passthrough);
    }
}

impl<B> State<B> {
    fn count_off(&mut self, node: NodeId, passthrough: bool) {
        if let Some(entry) = self.nodes.get_mut(&node) {
            let opens = if passthrough { &mut entry.passthrough_opens } else { &mut entry.cached_opens };
            *opens = opens.saturating_sub(1);
            if entry.cached_opens + entry.passthrough_opens == 0 && entry.backing.is_none() {
                self.nodes.remove(&node);
            }
        }
    }
}

impl<B> Drop for Reserved<B> {
    fn drop(&mut self) {
        self.modes.state.lock().count_off(self.node, false);
    }
}

impl<B> Backings<B> {
    /// Lets go of the backing id of an inode that is not open: what it was made from may have been removed, and an id
    /// keeps the file's bytes on the disk.
    pub(crate) fn forget(&self, node: NodeId) {
        let idle = {
            let mut state = self.state.lock();
            match state.nodes.get(&node) {
                Some(entry) if entry.cached_opens + entry.passthrough_opens == 0 => state.nodes.remove(&node),
                Some(_) | None => None,
            }
        };
        // An id that goes is a system call.
        drop(idle);
    }
}

// Not derived: ids need no default.
impl<B> Default for PerNode<B> {
    fn default() -> PerNode<B> {
        PerNode { cached_opens: 0, passthrough_opens: 0, backing: None }
    }
}

impl<B> PerNode<B> {
    /// The backing id for this content: the one at hand, or a new one.
    fn id_for(&mut self, object: &Object, make: impl FnOnce(&Object) -> std::io::Result<B>) -> Option<Arc<B>> {
        if let Some((generation, id)) = &self.backing
            && *generation == object.generation()
        {
            return Some(id.clone());
        }
        match make(object) {
            Ok(id) => {
                let id = Arc::new(id);
                self.backing = Some((object.generation(), id.clone()));
                Some(id)
            }
            Err(error) => {
                tracing::debug!(%error, "the kernel does not take this file as a backing file");
                None
            }
        }
    }
}

/// Inodes whose backing ids are kept after their last close.
const KEPT_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_writes_what_the_kernel_reads_by_itself() {
        let modes = Arc::new(Backings::<()>::new(true));
        let (node, handle) = (NodeId(7), HandleId(1));
        modes.restore_open(node, handle, ReadBy::Kernel);
        assert!(modes.reserve(node).is_none());
        assert!(matches!(modes.open_to_write(node, handle, true), Mode::Refused));
        modes.close(handle);
        let reserved = modes.reserve(node).expect("nobody reads it");
        assert!(matches!(modes.open_to_write(node, HandleId(2), true), Mode::Bypass));
        drop(reserved);
        assert_eq!(modes.state.lock().nodes[&node].cached_opens, 1, "as long as it is open");
        assert!(modes.reserve(node).is_some(), "several may write");
        modes.close(HandleId(2));
        assert!(modes.state.lock().nodes.is_empty());
    }
}
