//! The inodes in use, and those that were used of late.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use weft_store::NodeId;

use crate::inode::Inode;

/// The inodes in use, bounded: two generations of maps, the older dropped when the younger is full. An inode that
/// somebody still holds is carried over, so one node never has two inodes. The lock guards the maps alone.
pub(crate) struct Inodes {
    maps: Mutex<Maps>,
    young_max: usize,
}

#[derive(Default)]
struct Maps {
    young: HashMap<NodeId, Arc<Inode>>,
    old: HashMap<NodeId, Arc<Inode>>,
    /// How many the younger began with: what was carried over is in use.
    carried: usize,
    /// How many files were closed since it was looked how many are unused.
    closed: usize,
}

impl Inodes {
    /// Holds about `max` inodes that nobody uses, and all that are used.
    pub(crate) fn new(max: usize) -> Inodes {
        Inodes { maps: Mutex::default(), young_max: (max / 2).max(1) }
    }

    pub(crate) fn get(&self, id: NodeId) -> Option<Arc<Inode>> {
        self.find(&mut self.maps.lock(), id)
    }

    fn find(&self, maps: &mut Maps, id: NodeId) -> Option<Arc<Inode>> {
        if let Some(inode) = maps.young.get(&id) {
            return Some(inode.clone());
        }
        let inode = maps.old.remove(&id)?;
        self.keep(maps, inode.clone());
        Some(inode)
    }

    /// The inode, without counting that as a use.
    pub(crate) fn peek(&self, id: NodeId) -> Option<Arc<Inode>> {
        let maps = self.maps.lock();
        maps.young.get(&id).or_else(|| maps.old.get(&id)).cloned()
    }

    /// Adds an inode, or returns the one that somebody added before.
    pub(crate) fn add(&self, inode: Inode) -> Arc<Inode> {
        let mut maps = self.maps.lock();
        // One look and one change under one lock: of two who add at once, one would have an inode of its own.
        if let Some(there) = self.find(&mut maps, inode.id) {
            return there;
        }
        let inode = Arc::new(inode);
        self.keep(&mut maps, inode.clone());
        inode
    }

    /// All that are in memory.
    pub(crate) fn all(&self) -> Vec<Arc<Inode>> {
        let maps = self.maps.lock();
        maps.young.values().chain(maps.old.values()).cloned().collect()
    }

    /// A file was closed. Once in a while it is looked whether more are unused than are to be held, after more than that were in
    /// use at once: the files of the store that they have open are wanted for others.
    pub(crate) fn closed(&self) {
        let mut maps = self.maps.lock();
        maps.closed += 1;
        if maps.closed < self.young_max.div_ceil(2) {
            return;
        }
        maps.closed = 0;
        let is_used = |inode: &Arc<Inode>| Arc::strong_count(inode) > 1;
        let unused = |map: &HashMap<_, _>| map.values().filter(|inode| !is_used(inode)).count();
        let (young, old) = (unused(&maps.young), unused(&maps.old));
        if young + old > 2 * self.young_max {
            maps.old.retain(|_, inode| is_used(inode));
        }
        if young > 2 * self.young_max {
            maps.young.retain(|_, inode| is_used(inode));
            maps.carried = maps.young.len();
        }
    }

    pub(crate) fn count(&self) -> usize {
        let maps = self.maps.lock();
        maps.young.len() + maps.old.len()
    }

    fn keep(&self, maps: &mut Maps, inode: Arc<Inode>) {
        // Where more are in use than the map is to hold, it grows with them: all of them are carried over each time.
        if maps.young.len() >= self.young_max.max(2 * maps.carried) {
            let retired = std::mem::take(&mut maps.young);
            let dropped = std::mem::replace(&mut maps.old, retired);
            let used = dropped.into_iter().filter(|(_, inode)| Arc::strong_count(inode) > 1);
            maps.young.extend(used);
            maps.carried = maps.young.len();
        }
        maps.young.insert(inode.id, inode);
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use weft_remote::{Attributes, Audience, FileId, FileKind, Lease, Name, Version};
    use weft_store::{BindingId, NodeRecord};

    use super::*;
    use crate::freshness::Freshness;
    use crate::policies::Policies;

    fn inode(id: u64) -> Inode {
        let record = NodeRecord {
            binding: BindingId(1),
            file: FileId::new(id.to_be_bytes()),
            parent: NodeId::ROOT,
            name: Name::new("x").expect("a good name"),
            attributes: Attributes::of_kind(FileKind::File),
            version: Version::None,
            lease: Lease::Spent,
            audience: Audience::Everyone,
            learnt: SystemTime::now(),
            origin: None,
        };
        Inode::new(NodeId(id), Policies::new(Freshness::Http, Vec::new()).for_path(&[]), record)
    }

    #[test]
    fn the_table_is_bounded_and_never_splits_an_inode_in_use() {
        let inodes = Inodes::new(10);
        let used = inodes.add(inode(1));
        for id in 2..1000 {
            inodes.add(inode(id));
        }
        assert!(inodes.count() <= 12, "{} inodes held", inodes.count());
        assert!(Arc::ptr_eq(&inodes.add(inode(1)), &used));
    }

    #[test]
    fn more_in_use_than_the_table_is_to_hold_are_all_kept() {
        let inodes = Inodes::new(10);
        let used: Vec<_> = (1..=1000).map(|id| inodes.add(inode(id))).collect();
        for id in 1001..5000 {
            inodes.add(inode(id));
        }
        assert!(inodes.count() <= 4000, "{} inodes held", inodes.count());
        for known in used {
            assert!(Arc::ptr_eq(&inodes.get(known.id).expect("in use"), &known));
        }
        for id in 5000..20_000 {
            inodes.add(inode(id));
        }
        assert!(inodes.count() <= 12, "{} inodes held of which none is used", inodes.count());
    }

    #[test]
    fn what_was_in_use_is_not_held_on_once_it_is_not() {
        let inodes = Inodes::new(100);
        let used: Vec<_> = (1..=1000).map(|id| inodes.add(inode(id))).collect();
        inodes.closed();
        assert_eq!(inodes.count(), 1000);
        for inode in used {
            drop(inode);
            inodes.closed();
        }
        assert!(inodes.count() <= 150, "{} inodes held of which none is used", inodes.count());
    }

    #[test]
    fn two_who_add_an_inode_at_once_get_the_same() {
        for id in 1..1000 {
            let inodes = Inodes::new(10);
            let start = std::sync::Barrier::new(2);
            let add = || {
                let inode = inode(id);
                start.wait();
                inodes.add(inode)
            };
            let (one, two) = std::thread::scope(|scope| {
                let other = scope.spawn(add);
                (add(), other.join().expect("added"))
            });
            assert!(Arc::ptr_eq(&one, &two), "in round {id}");
        }
    }
}
