//! The files that hold what was written, used again: a file system takes long to make files where as many were removed a
//! moment ago, and whoever writes many small files has each begun, sent and done with at once.
//!
//! Files that are done with go to a spare name, empty. Those of a daemon that was killed are removed by the next.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::disk::{Disk, DiskFile};
use crate::{NodeId, Result, StoreError};

/// The folder of drafts. Those of one node are begun and let go of one at a time: the caller sees to that.
#[derive(Debug)]
pub(crate) struct DraftFiles {
    disk: Disk,
    dir: PathBuf,
    /// Held for one look or one change.
    spare: Mutex<Vec<Pair>>,
    /// The number of the next pair.
    next: AtomicU64,
    /// Whose files the names of a node are. Held for one look or one change.
    named: Mutex<HashMap<NodeId, u64>>,
}

/// The two files of a draft.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) bytes: DiskFile,
    pub(crate) log: DiskFile,
    paths: Paths,
    /// Tells it from another that has had the same names; its spare name has it.
    number: u64,
}

/// Where they are.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    pub(crate) bytes: PathBuf,
    pub(crate) log: PathBuf,
}

impl Paths {
    fn named(dir: &Path, name: &str) -> Paths {
        Paths { log: dir.join(format!("{name}{LOG_SUFFIX}")), bytes: dir.join(name) }
    }

    pub(crate) fn of(dir: &Path, node: NodeId) -> Paths {
        Paths::named(dir, &format!("{:016x}", node.0))
    }

    fn remove(&self, disk: &Disk) {
        // The log first: without it the bytes mean nothing.
        for path in [&self.log, &self.bytes] {
            if let Err(error) = disk.remove(path) {
                tracing::warn!(path = %path.display(), %error, "written bytes could not be removed");
            }
        }
    }
}

impl Pair {
    /// Where they are.
    pub(crate) fn paths(&self) -> &Paths {
        &self.paths
    }
}

impl DraftFiles {
    /// Those in this folder, which need not be there yet.
    pub(crate) fn new(disk: &Disk, dir: PathBuf) -> Arc<DraftFiles> {
        let files = DraftFiles {
            disk: disk.clone(),
            dir,
            spare: Mutex::default(),
            next: AtomicU64::new(0),
            named: Mutex::default(),
        };
        for name in files.names().unwrap_or_default() {
            if name.starts_with(SPARE_PREFIX) {
                // One that stays is emptied and used when its number comes.
                let _ = disk.remove(&files.dir.join(name));
            }
        }
        Arc::new(files)
    }

    /// Two empty files for a node. Those that it had have no name from now on; whoever has them goes on with them.
    pub(crate) fn begin(&self, node: NodeId) -> Result<Pair> {
        let (paths, number) = (Paths::of(&self.dir, node), self.number());
        let former = self.named.lock().insert(node, number);
        if former.is_some() {
            paths.remove(&self.disk);
        }
        let spare = self.spare.lock().pop();
        if let Some(pair) = spare {
            // The bytes first: without a log they mean nothing.
            match self.rename(&pair.paths, &paths, [|paths| &paths.bytes, |paths| &paths.log]) {
                Ok(()) => return Ok(Pair { paths, number, ..pair }),
                Err(error) => {
                    tracing::debug!(path = %paths.bytes.display(), %error, "a spare file is not used");
                    pair.paths.remove(&self.disk);
                }
            }
        }
        let open = |path: &Path| {
            let file = self.disk.open_or_create(path).and_then(|file| file.set_len(0).map(|()| file));
            file.map_err(|error| StoreError::from_io(path, error))
        };
        self.disk.make_dir(&self.dir).map_err(|error| StoreError::from_io(&self.dir, error))?;
        Ok(Pair { bytes: open(&paths.bytes)?, log: open(&paths.log)?, paths, number })
    }

    /// The files that a former daemon left of a node.
    pub(crate) fn again(&self, node: NodeId) -> Result<Pair> {
        let (paths, number) = (Paths::of(&self.dir, node), self.number());
        let open = |path: &Path| self.disk.open(path).map_err(|error| StoreError::from_io(path, error));
        let pair = Pair { bytes: open(&paths.bytes)?, log: open(&paths.log)?, paths, number };
        self.named.lock().insert(node, number);
        Ok(pair)
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The nodes of which a former daemon left something.
    pub(crate) fn left(&self) -> io::Result<Vec<NodeId>> {
        let node = |name: String| u64::from_str_radix(name.strip_suffix(LOG_SUFFIX)?, 16).ok().map(NodeId);
        Ok(self.names()?.into_iter().filter_map(node).collect())
    }

    /// A node has these files no more; whoever has them open goes on with them. Where they are then, or `None` where they
    /// have no name any more.
    pub(crate) fn let_go(&self, node: NodeId, pair: &Pair) -> Option<Paths> {
        if !self.unname(node, pair) {
            return None;
        }
        let paths = Paths::named(&self.dir, &format!("{SPARE_PREFIX}{}", pair.number));
        // The log first: without it the bytes mean nothing.
        let emptied = pair.log.set_len(0);
        match emptied.and_then(|()| self.rename(&pair.paths, &paths, [|paths| &paths.log, |paths| &paths.bytes])) {
            Ok(()) => Some(paths),
            Err(error) => {
                tracing::debug!(path = %pair.paths.bytes.display(), %error, "written bytes are removed, and not used again");
                pair.paths.remove(&self.disk);
                paths.remove(&self.disk);
                None
            }
        }
    }

    /// Nobody has these files open any more, which are here by now.
    pub(crate) fn give_back(&self, pair: Pair, paths: Paths) {
        let is_empty = pair.bytes.set_len(0).and_then(|()| pair.log.set_len(0)).is_ok();
        let mut spare = self.spare.lock();
        if is_empty && spare.len() < SPARE_MAX {
            return spare.push(Pair { paths, ..pair });
        }
        drop(spare);
        paths.remove(&self.disk);
    }

    /// Removes the files of a node.
    pub(crate) fn remove(&self, node: NodeId, pair: &Pair) {
        if self.unname(node, pair) {
            pair.paths.remove(&self.disk);
        }
    }

    /// The names of a node are nobody's from now on; whether they were this pair's.
    fn unname(&self, node: NodeId, pair: &Pair) -> bool {
        let mut named = self.named.lock();
        let is_own = named.get(&node) == Some(&pair.number);
        if is_own {
            named.remove(&node);
        }
        is_own
    }

    /// Free bytes, and all, of the disk that they are on.
    pub(crate) fn space(&self) -> io::Result<(u64, u64)> {
        self.disk.space(&self.dir)
    }

    /// Renames the two, in this order.
    fn rename(&self, from: &Paths, to: &Paths, order: [fn(&Paths) -> &PathBuf; 2]) -> io::Result<()> {
        order.into_iter().try_for_each(|which| self.disk.rename(which(from), which(to)))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let names = match std::fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            names => names?,
        };
        Ok(names.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect())
    }
}

impl Drop for DraftFiles {
    fn drop(&mut self) {
        self.spare.get_mut().iter().for_each(|pair| pair.paths.remove(&self.disk));
    }
}

const LOG_SUFFIX: &str = ".log";
/// Names of files that no node has; no number of a node begins so.
const SPARE_PREFIX: &str = "spare-";
/// Most pairs that are kept.
const SPARE_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use weft_remote::Version;

    use super::*;
    use crate::Dirty;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Goal: whoever reads what was discarded goes on reading that, and files are used again only when nobody does.
    #[test]
    fn files_are_used_again_when_nobody_has_them() {
        let dir = tempfile::tempdir().unwrap();
        let folder = DraftFiles::new(&Disk::default(), dir.path().to_owned());
        let begin = |node| Dirty::begin(&folder, NodeId(node), Version::strong("1"), 0).unwrap();
        let first = begin(7);
        first.write(0, b"first").unwrap();
        first.discard();
        first.discard();
        first.write(5, b"!").unwrap();
        assert!(folder.left().unwrap().is_empty(), "nothing of it outlives the daemon");
        let second = begin(7);
        second.write(0, b"2").unwrap();
        assert_eq!(
            (&first.read(0, 6).unwrap()[..], &second.read(0, 6).unwrap()[..]),
            (&b"first!"[..], &b"2\0\0\0\0\0"[..])
        );
        assert_eq!(names(dir.path()), ["0000000000000007", "0000000000000007.log", "spare-0", "spare-0.log"]);
        drop(first);
        let third = begin(8);
        assert_eq!((third.length(), &third.read(0, 3).unwrap()[..]), (0, &b"\0\0\0"[..]));
        assert_eq!(folder.left().unwrap().len(), 2);
        assert!(names(dir.path()).iter().all(|name| !name.starts_with(SPARE_PREFIX)), "they are the third's");
        third.write(0, b"3").unwrap();
        let again = Dirty::again(&folder, NodeId(8)).unwrap().unwrap();
        assert_eq!((again.length(), again.bytes_away()), (1, Some(1)));
    }

    /// Goal: who is done with files late takes none from whoever has begun with the same names meanwhile. Method: also where
    /// there are spare ones, and where the first goes on writing and reading.
    #[test]
    fn who_is_done_late_takes_nothing_from_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let folder = DraftFiles::new(&Disk::default(), dir.path().to_owned());
        let begin = || Dirty::begin(&folder, NodeId(7), Version::strong("1"), 0).unwrap();
        for round in 0..3 {
            let first = begin();
            first.write(0, b"first").unwrap();
            let second = begin();
            second.write(0, b"second").unwrap();
            first.write(5, b"!").unwrap();
            first.discard();
            assert_eq!(&first.read(0, 6).unwrap()[..], b"first!");
            drop(first);
            assert_eq!(&second.read(0, 6).unwrap()[..], b"second", "round {round}");
            assert_eq!(folder.left().unwrap(), [NodeId(7)]);
            let again = Dirty::again(&folder, NodeId(7)).unwrap().unwrap();
            assert_eq!((again.length(), &again.read(0, 6).unwrap()[..]), (6, &b"second"[..]));
            again.discard();
            drop((second, again));
            assert!(folder.left().unwrap().is_empty());
        }
    }

    /// Goal: what a daemon leaves that is killed is not taken for what was written, and not left for ever.
    #[test]
    fn spare_files_of_a_former_daemon_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = || DraftFiles::new(&Disk::default(), dir.path().to_owned());
        let former = folder();
        let dirty = |node| Dirty::begin(&former, NodeId(node), Version::strong("1"), 0).unwrap();
        let all: Vec<Dirty> = (1..=SPARE_MAX as u64 + 3).map(dirty).collect();
        all.iter().skip(1).for_each(Dirty::discard);
        drop(all);
        assert_eq!(names(dir.path()).len(), 2 + 2 * SPARE_MAX, "no more are kept");
        std::mem::forget(former);
        assert_eq!(folder().left().unwrap(), [NodeId(1)]);
        assert_eq!(names(dir.path()).len(), 2);
        let short = folder();
        Dirty::begin(&short, NodeId(2), Version::strong("1"), 0).unwrap().discard();
        drop(short);
        assert_eq!(names(dir.path()).len(), 2, "one that ends removes its own");
    }
}
