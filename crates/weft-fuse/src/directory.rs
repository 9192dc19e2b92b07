//! Directories that are open, and their names for the kernel.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use weft_fusedev::{Name, Read, Reply, Room};
use weft_remote::FileKind;
use weft_vfs::{DirectoryName, NodeId, Snapshot};

use crate::attributes::{entry_of, kind_of};
use crate::handler::Attributes;

/// The directories that are open, each with its names as they were when it was opened.
#[derive(Default)]
pub(crate) struct Directories {
    open: Mutex<HashMap<u64, Arc<Snapshot>>>,
    last: AtomicU64,
}

impl Directories {
    /// One more; its handle.
    pub(crate) fn open(&self, snapshot: Snapshot) -> u64 {
        let handle = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.open.lock().insert(handle, Arc::new(snapshot));
        handle
    }

    /// One that is open.
    pub(crate) fn get(&self, handle: u64) -> Option<Arc<Snapshot>> {
        self.open.lock().get(&handle).cloned()
    }

    /// One less.
    pub(crate) fn close(&self, handle: u64) {
        let closed = self.open.lock().remove(&handle);
        // A large listing takes a while to go.
        drop(closed);
    }
}

/// Answers with names alone.
pub(crate) fn names(snapshot: &Snapshot, dir: NodeId, read: &Read, reply: Reply) {
    let mut names = reply.names(read.size);
    for (next, row) in rows(snapshot, dir, read.offset) {
        if names.add(&name_of(next, &row)) == Room::Full {
            break;
        }
    }
    names.send();
}

/// Answers with names and what is known of them.
pub(crate) fn entries(
    snapshot: &Snapshot,
    dir: NodeId,
    read: &Read,
    known: impl Fn(NodeId) -> Option<Attributes>,
    reply: Reply,
) {
    let mut entries = reply.entries(read.size);
    for (next, row) in rows(snapshot, dir, read.offset) {
        let is_dots = next <= DOTS;
        // A name of which not even the kind is known is looked up when somebody uses it.
        let known = if is_dots { None } else { known(row.node).filter(|stat| stat.kind != FileKind::Unknown) };
        let entry = known.map(|stat| entry_of(&stat, stat.ttl));
        if entries.add(&name_of(next, &row), entry.as_ref()) == Room::Full {
            break;
        }
    }
    entries.send();
}

fn name_of<'a>(next: u64, row: &DirectoryName<'a>) -> Name<'a> {
    Name { node: row.node.0, next, kind: kind_of(row.kind), name: row.name }
}

/// The rows of a listing from `offset` on, each with the offset of the row after it; `.` and `..` come first.
fn rows(snapshot: &Snapshot, dir: NodeId, offset: u64) -> impl Iterator<Item = (u64, DirectoryName<'_>)> {
    let dots = [&b"."[..], b".."].into_iter().zip(1..=DOTS);
    let dots = dots.map(move |(name, next)| (next, DirectoryName { name, node: dir, kind: FileKind::Directory }));
    let first = usize::try_from(offset.saturating_sub(DOTS)).unwrap_or(usize::MAX);
    let names = (first..snapshot.len()).filter_map(|index| {
        let row = snapshot.get(index)?;
        Some((index as u64 + DOTS + 1, row))
    });
    dots.filter(move |(next, _)| *next > offset).chain(names)
}

/// Offsets taken by `.` and `..`.
const DOTS: u64 = 2;
