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
    /// Which directory, and who has opened it.
    of: (NodeId, Caller),
    names: Names,
    /// As of when they are, by the directory's mark.
    mark: u64,
    /// Whether it was read from the beginning: whoever does so once more has called rewinddir(3), and wants the names of now.
    begun: bool,
    /// Of a directory whose names the kernel may keep: which.
    keeps: Option<NodeId>,
}

/// The names of an open directory.
#[derive(Clone)]
enum Names {
    Known(Arc<Snapshot>),
    /// They are found when somebody asks for them: a former daemon had it open, or the kernel has kept them.
    Later,
}

/// What an open directory is read from.
pub(crate) enum Reading {
    /// The names that it had.
    On(Arc<Snapshot>),
    /// The names that are to be found for whoever has opened it.
    Anew {
        /// Which directory.
        node: NodeId,
        /// Who has opened it.
        caller: Caller,
        /// Whether it is read from its beginning, and may have other names than are known.
        asks: bool,
        /// The names that it had, where it is read once more.
        former: Option<Arc<Snapshot>>,
    },
}

impl Directories {
    /// Opens one whose names the kernel has kept; `None` when it has not.
    pub(crate) fn open_kept(&self, node: NodeId, caller: Caller, as_of: &AsOf) -> Option<Opened> {
        let keeps = self.kept.lock().open_kept(node, as_of.mark, Instant::now());
        keeps.then(|| {
            self.add((node, caller), Names::Later, as_of.mark, Some(node), Opened::CACHE_DIR | Opened::KEEP_CACHE)
        })
    }

    /// Opens one with these names, for this caller.
    pub(crate) fn open(&self, of: (NodeId, Caller), names: Snapshot, as_of: &AsOf) -> Opened {
        let (node, _) = of;
        let keeps = names.is_for_everybody() && self.kept.lock().open_anew(node, as_of, Instant::now());
        let flags = if keeps { Opened::CACHE_DIR } else { 0 };
        self.add(of, Names::Known(Arc::new(names)), as_of.mark, keeps.then_some(node), flags)
    }

    fn add(&self, of: (NodeId, Caller), names: Names, mark: u64, keeps: Option<NodeId>, flags: u32) -> Opened {
        let handle = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.open.lock().insert(handle, Open { of, names, mark, begun: false, keeps });
        Opened { handle, flags, ..Opened::default() }
    }

    /// One that a former daemon had open under this handle.
    pub(crate) fn restore(&self, handle: u64, node: NodeId, caller: Caller) {
        self.last.fetch_max(handle, Ordering::Relaxed);
        self.kept.lock().restore(node);
        // Whether it was read is not known.
        let open = Open { of: (node, caller), names: Names::Later, mark: 0, begun: true, keeps: Some(node) };
        self.open.lock().insert(handle, open);
    }

    /// What one that is open is read from, from this offset on. Who begins to read it finds the names of now, be it that others
    /// came since it was opened: the kernel does not tell of a rewinddir(3) before the first readdir(3). `mark_now` is the
    /// mark that a directory has now.
    ///
    /// # Errors
    /// EBADF when it is not open.
    pub(crate) fn read(&self, handle: u64, offset: u64, mark_now: impl FnOnce(NodeId) -> u64) -> Answer<Reading> {
        let mut all = self.open.lock();
        let open = all.get_mut(&handle).ok_or(Errno(rustix::io::Errno::BADF))?;
        let (node, caller) = open.of;
        let rewinds = offset == 0 && (open.begun || open.mark != mark_now(node));
        open.begun |= offset == 0;
        let (names, keeps) = (open.names.clone(), open.keeps);
        drop(all);
        keeps.inspect(|node| self.kept.lock().dropped(*node));
        Ok(match names {
            Names::Known(snapshot) if !rewinds => Reading::On(snapshot),
            Names::Known(snapshot) => Reading::Anew { node, caller, asks: true, former: Some(snapshot) },
            Names::Later => Reading::Anew { node, caller, asks: rewinds, former: None },
        })
    }

    /// Whether somebody has a directory open who may read the kernel's list of its names.
    pub(crate) fn keeps_names(&self, node: NodeId) -> bool {
        self.kept.lock().is_open(node)
    }

    /// Names of one that is open, from this offset on, are about to be told alone, without what they lead to.
    pub(crate) fn tell_bare(&self, read: &Read, snapshot: &Snapshot) {
        let keeps = self.open.lock().get(&read.handle).and_then(|open| open.keeps);
        if let Some(node) = keeps.filter(|node| rows(snapshot, *node, read.offset).next().is_some()) {
            self.kept.lock().bare(node);
        }
    }

    /// One that is open has these names from now on.
    pub(crate) fn renew(&self, handle: u64, names: Snapshot) -> Arc<Snapshot> {
        let snapshot = Arc::new(names);
        if let Some(open) = self.open.lock().get_mut(&handle) {
            open.names = Names::Known(snapshot.clone());
        }
        snapshot
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
