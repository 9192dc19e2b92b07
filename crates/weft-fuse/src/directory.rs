//! Directories that are open, and their names for the kernel.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use weft_fusedev::{Name, Opened, Read, Reply, Room};
use weft_remote::{Caller, FileKind};
use weft_vfs::{AsOf, DirectoryName, NodeId, Snapshot};
use xxhash_rust::xxh3::xxh3_64;

use crate::Errno;
use crate::attributes::{entry_of, kind_of};
use crate::handler::{Answer, Attributes};
use crate::kept_names::KeptNames;

/// The directories that are open, each with its names as they were when it was opened.
#[derive(Default)]
pub(crate) struct Directories {
    open: Mutex<HashMap<u64, Open>>,
    kept: Mutex<KeptNames>,
    last: AtomicU64,
}

/// An open directory.
struct Open {
    names: Names,
    /// Of a directory whose names the kernel may keep: which.
    keeps: Option<NodeId>,
}

/// The names of an open directory.
#[derive(Clone)]
enum Names {
    Known(Arc<Snapshot>),
    /// They are found for this caller when somebody asks for them: a former daemon had it open, or the kernel has kept them.
    Later(NodeId, Caller),
}

impl Directories {
    /// Opens one whose names the kernel has kept; `None` when it has not.
    pub(crate) fn open_kept(&self, node: NodeId, caller: Caller, as_of: &AsOf) -> Option<Opened> {
        let keeps = self.kept.lock().open_kept(node, as_of.mark, Instant::now());
        keeps.then(|| self.add(Names::Later(node, caller), Some(node), Opened::CACHE_DIR | Opened::KEEP_CACHE))
    }

    /// Opens one with these names.
    pub(crate) fn open(&self, node: NodeId, names: Snapshot, as_of: &AsOf) -> Opened {
        let keeps = names.is_for_everybody() && self.kept.lock().open_anew(node, as_of, Instant::now());
        let flags = if keeps { Opened::CACHE_DIR } else { 0 };
        self.add(Names::Known(Arc::new(names)), keeps.then_some(node), flags)
    }

    fn add(&self, names: Names, keeps: Option<NodeId>, flags: u32) -> Opened {
        let handle = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.open.lock().insert(handle, Open { names, keeps });
        Opened { handle, flags, ..Opened::default() }
    }

    /// One that a former daemon had open under this handle.
    pub(crate) fn restore(&self, handle: u64, node: NodeId, caller: Caller) {
        self.last.fetch_max(handle, Ordering::Relaxed);
        self.kept.lock().restore(node);
        self.open.lock().insert(handle, Open { names: Names::Later(node, caller), keeps: Some(node) });
    }

    /// The names of one that is open; `find` finds those that are not known yet.
    pub(crate) fn get(
        &self,
        handle: u64,
        find: impl FnOnce(NodeId, Caller) -> Answer<Snapshot>,
    ) -> Answer<Arc<Snapshot>> {
        let open = self.open.lock().get(&handle).map(|open| (open.names.clone(), open.keeps));
        let (names, keeps) = open.ok_or(Errno(rustix::io::Errno::BADF))?;
        keeps.inspect(|node| self.kept.lock().dropped(*node));
        match names {
            Names::Known(snapshot) => Ok(snapshot),
            Names::Later(node, caller) => {
                let snapshot = Arc::new(find(node, caller)?);
                if let Some(open) = self.open.lock().get_mut(&handle) {
                    open.names = Names::Known(snapshot.clone());
                }
                Ok(snapshot)
            }
        }
    }

    /// One less, of which the kernel was never told.
    pub(crate) fn close_untold(&self, handle: u64) {
        let closed = self.open.lock().remove(&handle);
        closed.and_then(|closed| closed.keeps).inspect(|node| self.kept.lock().untold(*node));
    }

    /// One less.
    pub(crate) fn close(&self, handle: u64) {
        let closed = self.open.lock().remove(&handle);
        if let Some(node) = closed.as_ref().and_then(|closed| closed.keeps) {
            let mut kept = self.kept.lock();
            kept.dropped(node);
            kept.close(node);
        }
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
    known: impl Fn(&DirectoryName<'_>) -> Option<(Attributes, Duration)>,
    reply: Reply,
) {
    let mut entries = reply.entries(read.size);
    for (next, row) in rows(snapshot, dir, read.offset) {
        let is_dots = next <= DOTS;
        // A name of which not even the kind is known is looked up when somebody uses it.
        let known = if is_dots { None } else { known(&row).filter(|(stat, _)| stat.kind != FileKind::Unknown) };
        let entry = known.map(|(stat, name_ttl)| entry_of(&stat, name_ttl));
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
