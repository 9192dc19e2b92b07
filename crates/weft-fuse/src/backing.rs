//! Which inodes the kernel reads by itself.
//!
//! The kernel wants one mode per inode at a time: while a file is open in passthrough, every other open of it must
//! be in passthrough with the same backing file, and while it is open through the page cache, none may be (kernel
//! `fs/fuse/iomode.c`). A backing id costs a system call, so it is kept for a while after the last close.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
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

/// What the kernel takes for one inode: a number, and which use of that number (`generation` of `fuse_entry_out`). An inode
/// of a former use can be open still, with a mode of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KernelInode {
    pub(crate) node: NodeId,
    pub(crate) generation: u64,
}

/// The modes of all inodes that are open, and backing ids kept for the next open. `B` is the door's backing id. The
/// lock is held over the system call that makes an id, never over anything that waits for a remote.
pub(crate) struct Backings<B> {
    state: Mutex<State<B>>,
    allowed: bool,
}

struct State<B> {
    inodes: BTreeMap<KernelInode, PerInode<B>>,
    handles: HashMap<HandleId, (KernelInode, bool)>,
}

/// Nobody has the kernel read an inode by itself while this is held: it is about to be written.
pub(crate) struct Reserved<B> {
    modes: Arc<Backings<B>>,
    inode: KernelInode,
}

struct PerInode<B> {
    cached_opens: u32,
    passthrough_opens: u32,
    /// Of which generation of the content it is.
    backing: Option<(u64, Arc<B>)>,
}

impl<B> Backings<B> {
    /// `allowed`: whether this process may have the kernel read files (it needs `CAP_SYS_ADMIN`).
    pub(crate) fn new(allowed: bool) -> Backings<B> {
        Backings { state: Mutex::new(State { inodes: BTreeMap::new(), handles: HashMap::new() }), allowed }
    }

    /// Chooses the mode of an open and counts it.
    pub(crate) fn open(
        &self,
        inode: KernelInode,
        handle: HandleId,
        backing: Option<&Arc<Object>>,
        bypass: bool,
        make: impl FnOnce(&Object) -> std::io::Result<B>,
    ) -> Mode<B> {
        let mut state = self.state.lock();
        let state = &mut *state;
        if state.inodes.len() >= KEPT_MAX {
            state.inodes.retain(|_, inode| inode.is_open());
        }
        let entry = state.inodes.entry(inode).or_default();
        let generation = backing.map(|object| object.generation());
        if entry.passthrough_opens > 0 {
            let Some((open_generation, id)) = &entry.backing else { return Mode::Refused };
            if generation != Some(*open_generation) {
                return Mode::Refused;
            }
            entry.passthrough_opens += 1;
            state.handles.insert(handle, (inode, true));
            return Mode::Passthrough(id.clone());
        }
        if let Some(object) = backing
            && self.allowed
            && entry.cached_opens == 0
            && let Some(id) = entry.id_for(object, make)
        {
            entry.passthrough_opens += 1;
            state.handles.insert(handle, (inode, true));
            return Mode::Passthrough(id);
        }
        if bypass {
            return Mode::Bypass;
        }
        entry.cached_opens += 1;
        state.handles.insert(handle, (inode, false));
        Mode::Cached
    }

    /// Chooses the mode of an open by somebody who writes and counts it: also past the page cache, for what is written
    /// is not in a backing file.
    pub(crate) fn open_to_write(&self, inode: KernelInode, handle: HandleId, bypass: bool) -> Mode<B> {
        let mut state = self.state.lock();
        let entry = state.inodes.entry(inode).or_default();
        if entry.passthrough_opens > 0 {
            return Mode::Refused;
        }
        entry.cached_opens += 1;
        state.handles.insert(handle, (inode, false));
        if bypass { Mode::Bypass } else { Mode::Cached }
    }

    /// Keeps the kernel from reading an inode by itself from now on; `None` while it does.
    pub(crate) fn reserve(self: &Arc<Self>, inode: KernelInode) -> Option<Reserved<B>> {
        let mut state = self.state.lock();
        let entry = state.inodes.entry(inode).or_default();
        if entry.passthrough_opens > 0 {
            return None;
        }
        entry.cached_opens += 1;
        Some(Reserved { modes: self.clone(), inode })
    }

    /// Takes over a backing id of a former daemon, of this generation of the content. One that the inode had is let go.
    pub(crate) fn restore(&self, inode: KernelInode, content: u64, id: B) {
        let former = self.state.lock().inodes.entry(inode).or_default().backing.replace((content, Arc::new(id)));
        // An id that goes is a system call.
        drop(former);
    }

    /// Counts a file that was open when a former daemon ended.
    pub(crate) fn restore_open(&self, inode: KernelInode, handle: HandleId, read_by: ReadBy) {
        let mut state = self.state.lock();
        let entry = state.inodes.entry(inode).or_default();
        match read_by {
            ReadBy::Kernel => entry.passthrough_opens += 1,
            ReadBy::Daemon => entry.cached_opens += 1,
        }
        state.handles.insert(handle, (inode, read_by == ReadBy::Kernel));
    }

    /// Counts a close.
    pub(crate) fn close(&self, handle: HandleId) {
        let mut state = self.state.lock();
        let Some((inode, passthrough)) = state.handles.remove(&handle) else { return };
        let over = state.count_off(inode, passthrough);
        drop(state);
        // An id that goes is a system call.
        drop(over);
    }
}

impl<B> State<B> {
    /// Gives back what is to be let go of with it.
    fn count_off(&mut self, inode: KernelInode, passthrough: bool) -> Option<PerInode<B>> {
        let entry = self.inodes.get_mut(&inode)?;
        let opens = if passthrough { &mut entry.passthrough_opens } else { &mut entry.cached_opens };
        *opens = opens.saturating_sub(1);
        // Of a former use no more is opened.
        let is_needless = !entry.is_open() && (entry.backing.is_none() || self.has_later_use(inode));
        is_needless.then(|| self.inodes.remove(&inode)).flatten()
    }

    fn has_later_use(&self, inode: KernelInode) -> bool {
        self.inodes.range((Bound::Excluded(inode), Bound::Included(inode.last_use()))).next().is_some()
    }
}

impl KernelInode {
    fn first_use(self) -> KernelInode {
        KernelInode { generation: 0, ..self }
    }

    fn last_use(self) -> KernelInode {
        KernelInode { generation: u64::MAX, ..self }
    }
}

impl<B> Drop for Reserved<B> {
    fn drop(&mut self) {
        let over = self.modes.state.lock().count_off(self.inode, false);
        // An id that goes is a system call.
        drop(over);
    }
}

impl<B> Backings<B> {
    /// Lets go of the backing ids of a number's inodes that are not open: what they were made from may have been removed,
    /// and an id keeps the file's bytes on the disk.
    pub(crate) fn forget(&self, node: NodeId) {
        let any = KernelInode { node, generation: 0 };
        let idle: Vec<PerInode<B>> = {
            let mut state = self.state.lock();
            let is_idle = |(inode, entry): (&KernelInode, &PerInode<B>)| (!entry.is_open()).then_some(*inode);
            let idle: Vec<_> = state.inodes.range(any.first_use()..=any.last_use()).filter_map(is_idle).collect();
            idle.iter().filter_map(|inode| state.inodes.remove(inode)).collect()
        };
        // An id that goes is a system call.
        drop(idle);
    }
}

// Not derived: ids need no default.
impl<B> Default for PerInode<B> {
    fn default() -> PerInode<B> {
        PerInode { cached_opens: 0, passthrough_opens: 0, backing: None }
    }
}

impl<B> PerInode<B> {
    fn is_open(&self) -> bool {
        self.cached_opens + self.passthrough_opens > 0
    }

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
        let (inode, handle) = (KernelInode { node: NodeId(7), generation: 0 }, HandleId(1));
        modes.restore_open(inode, handle, ReadBy::Kernel);
        assert!(modes.reserve(inode).is_none());
        assert!(matches!(modes.open_to_write(inode, handle, true), Mode::Refused));
        modes.close(handle);
        let reserved = modes.reserve(inode).expect("nobody reads it");
        assert!(matches!(modes.open_to_write(inode, HandleId(2), true), Mode::Bypass));
        drop(reserved);
        assert_eq!(modes.state.lock().inodes[&inode].cached_opens, 1, "as long as it is open");
        assert!(modes.reserve(inode).is_some(), "several may write");
        modes.close(HandleId(2));
        assert!(modes.state.lock().inodes.is_empty());
    }

    #[test]
    fn an_inode_of_a_former_use_of_its_number_is_in_nobodys_way() {
        let modes = Arc::new(Backings::<()>::new(true));
        let [former, inode] = [0, 1].map(|generation| KernelInode { node: NodeId(7), generation });
        modes.restore(former, 3, ());
        modes.restore_open(former, HandleId(1), ReadBy::Kernel);
        assert!(matches!(modes.open(former, HandleId(2), None, false, |_| Ok(())), Mode::Refused));
        assert!(matches!(modes.open(inode, HandleId(2), None, false, |_| Ok(())), Mode::Cached));
        assert!(modes.reserve(inode).is_some());
        modes.forget(NodeId(7));
        assert_eq!(modes.state.lock().inodes.len(), 2, "both are open");
        modes.close(HandleId(1));
        let left: Vec<KernelInode> = modes.state.lock().inodes.keys().copied().collect();
        assert_eq!(left, [inode], "its backing id is not of use any more");
        modes.close(HandleId(2));
        modes.restore(former, 3, ());
        modes.restore(inode, 4, ());
        modes.restore(KernelInode { node: NodeId(8), generation: 0 }, 5, ());
        modes.forget(NodeId(7));
        assert_eq!(modes.state.lock().inodes.len(), 1, "of the other file");
    }
}
