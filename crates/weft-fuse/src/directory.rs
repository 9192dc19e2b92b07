//! Directories that are open, and their names for the kernel.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use weft_fusedev::{Name, Read, Reply, Room};
use weft_remote::{Caller, FileKind};
use weft_vfs::{DirectoryName, NodeId, Snapshot};
use xxhash_rust::xxh3::xxh3_64;

use crate::Errno;
use crate::attributes::{entry_of, kind_of};
use crate::handler::{Answer, Attributes};

/// The directories that are open, each with its names as they were when it was opened.
#[derive(Default)]
pub(crate) struct Directories {
    open: Mutex<HashMap<u64, Names>>,
    last: AtomicU64,
}

/// The names of an open directory.
#[derive(Clone)]
enum Names {
    Known(Arc<Snapshot>),
    /// A former daemon had it open for this caller: its names are found again when somebody reads on.
    Again(NodeId, Caller),
}

impl Directories {
    /// One more; its handle.
    pub(crate) fn open(&self, snapshot: Snapshot) -> u64 {
        let handle = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.open.lock().insert(handle, Names::Known(Arc::new(snapshot)));
        handle
    }

    /// One that a former daemon had open under this handle.
    pub(crate) fn restore(&self, handle: u64, node: NodeId, caller: Caller) {
        self.last.fetch_max(handle, Ordering::Relaxed);
        self.open.lock().insert(handle, Names::Again(node, caller));
    }

    /// The names of one that is open; `again` finds those of one that a former daemon had open.
    pub(crate) fn get(
        &self,
        handle: u64,
        again: impl FnOnce(NodeId, Caller) -> Answer<Snapshot>,
    ) -> Answer<Arc<Snapshot>> {
        let names = self.open.lock().get(&handle).cloned();
        match names.ok_or(Errno(rustix::io::Errno::BADF))? {
            Names::Known(snapshot) => Ok(snapshot),
            Names::Again(node, caller) => {
                let snapshot = Arc::new(again(node, caller)?);
                if let Some(names) = self.open.lock().get_mut(&handle) {
                    *names = Names::Known(snapshot.clone());
                }
                Ok(snapshot)
            }
        }
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
    let first = place_of(snapshot, offset);
    let names = (first..snapshot.len()).filter_map(|index| {
        let row = snapshot.get(index)?;
        Some((offset_after(index, row.name), row))
    });
    dots.filter(move |(next, _)| *next > offset).chain(names)
}

/// The offset of the row after the one at `index`: its number, and above it 31 bits of a hash of this row's name. So
/// whoever reads on in names that were found again goes on after the same name, also when others came or went.
fn offset_after(index: usize, name: &[u8]) -> u64 {
    let number = (index as u64 + DOTS + 1) & u64::from(u32::MAX);
    hash_of(name) << 32 | number
}

/// The index of the row at an offset.
fn place_of(snapshot: &Snapshot, offset: u64) -> usize {
    let number = offset & u64::from(u32::MAX);
    let Some(last) = number.checked_sub(DOTS + 1) else { return 0 };
    let last = usize::try_from(last).unwrap_or(usize::MAX);
    let is_last = |index: usize| snapshot.get(index).is_some_and(|row| hash_of(row.name) == offset >> 32);
    if is_last(last) {
        return last + 1;
    }
    let nearest = (0..snapshot.len()).filter(|index| is_last(*index)).min_by_key(|index| index.abs_diff(last));
    // The name itself may be gone: what took its place is next.
    nearest.map_or(last, |index| index + 1)
}

fn hash_of(name: &[u8]) -> u64 {
    xxh3_64(name) >> 33
}

/// Offsets taken by `.` and `..`.
const DOTS: u64 = 2;
