//! Which directories may have other names than before.
//!
//! What was made of a directory's names stays right for as long as its mark is the same. Marks are few and shared by
//! directories, and live in memory alone: another mark says no more than that one must look again.

use std::sync::atomic::{AtomicU64, Ordering};

use xxhash_rust::xxh3::xxh3_64;

use crate::records::{NodeId, NodeRecord, Record};

/// The marks of all directories.
#[derive(Debug)]
pub(crate) struct Marks(Vec<AtomicU64>);

impl Default for Marks {
    fn default() -> Marks {
        Marks((0..MARKS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Marks {
    /// The mark of a directory. To be read before its names are.
    pub(crate) fn of(&self, dir: NodeId) -> u64 {
        self.at(dir).load(Ordering::Acquire)
    }

    /// A number that changes with the mark of any directory.
    pub(crate) fn of_all(&self) -> u64 {
        self.0.iter().fold(0, |sum, mark| sum.wrapping_add(mark.load(Ordering::Acquire)))
    }

    /// Gives directories other marks. To be called after their names have changed.
    pub(crate) fn change(&self, dirs: &[NodeId]) {
        dirs.iter().for_each(|dir| {
            self.at(*dir).fetch_add(1, Ordering::Release);
        });
    }

    fn at(&self, dir: NodeId) -> &AtomicU64 {
        &self.0[xxh3_64(&dir.0.to_le_bytes()) as usize % MARKS]
    }
}

/// The directories whose names, or who may see which of them, records that are about to be applied may change. `former`
/// tells what is known of a node.
pub(crate) fn touched(records: &[Record], mut former: impl FnMut(NodeId) -> Option<NodeRecord>) -> Vec<NodeId> {
    let mut dirs = Vec::new();
    let mut touch = |dir: NodeId| {
        if dirs.last() != Some(&dir) {
            dirs.push(dir);
        }
    };
    // Names first: what is known of a node mostly comes with its name.
    for record in records {
        if let Record::Dentry(dir, ..) | Record::Listing(dir, _) = record {
            touch(*dir);
        }
    }
    for record in records {
        let Record::Node(node, now) = record else { continue };
        if now.as_ref().is_some_and(|now| dirs.contains(&now.parent)) {
            continue;
        }
        let shown = |record: &NodeRecord| (record.attributes.kind, record.audience, record.parent);
        let former = former(*node);
        if former.as_ref().map(shown) != now.as_ref().map(shown) {
            dirs.extend(former.iter().chain(now).map(|record| record.parent));
        }
    }
    dirs
}

/// How many marks there are.
const MARKS: usize = 4096;

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use weft_remote::{Attributes, Audience, FileId, FileKind, Lease, Name, Version};

    use super::*;
    use crate::records::{BindingId, DentryRecord, DentrySource, DentryTarget};

    fn node(parent: u64, kind: FileKind, audience: Audience) -> NodeRecord {
        NodeRecord {
            binding: BindingId(1),
            file: FileId::new("f"),
            parent: NodeId(parent),
            name: Name::new("n").unwrap(),
            attributes: Attributes::of_kind(kind),
            version: Version::None,
            lease: Lease::Spent,
            audience,
            learnt: SystemTime::UNIX_EPOCH,
            origin: None,
        }
    }

    fn dentry(dir: u64) -> Record {
        let record = DentryRecord {
            target: DentryTarget::Absent,
            source: DentrySource::LookedUp,
            lease: Lease::Spent,
            learnt: SystemTime::UNIX_EPOCH,
        };
        Record::Dentry(NodeId(dir), Name::new("n").unwrap(), Some(record))
    }

    #[test]
    fn names_touch_their_directory_and_attributes_do_not() {
        let file = || node(7, FileKind::File, Audience::Everyone);
        let touched = |records: Vec<Record>| touched(&records, |_| Some(file()));
        assert_eq!(touched(vec![dentry(7), Record::Listing(NodeId(8), None)]), [NodeId(7), NodeId(8)]);
        assert_eq!(touched(vec![dentry(7), Record::Node(NodeId(9), Some(file()))]), [NodeId(7)]);
        let longer = NodeRecord { learnt: SystemTime::now(), ..file() };
        assert!(touched(vec![Record::Node(NodeId(9), Some(longer))]).is_empty());
        for other in
            [node(7, FileKind::Directory, Audience::Everyone), node(7, FileKind::File, Audience::Only { uid: 5 })]
        {
            assert!(touched(vec![Record::Node(NodeId(9), Some(other))]).contains(&NodeId(7)));
        }
        assert_eq!(touched(vec![Record::Node(NodeId(9), None)]), [NodeId(7)]);
    }

    #[test]
    fn another_mark_is_never_one_that_was() {
        let marks = Marks::default();
        let before = marks.of(NodeId(1));
        assert_eq!(marks.of(NodeId(1)), before);
        marks.change(&[NodeId(1), NodeId(2)]);
        assert_ne!(marks.of(NodeId(1)), before);
    }
}
