//! The files that hold what was written, used again: a file system takes long to make, name and cut files, and whoever
//! writes many small files has each begun, sent and done with at once.
//!
//! They come in pairs, whose names mean nothing: the log says whose a pair is. That of one that is done with is empty before
//! its bytes are another's: file systems keep the order of what is cut, so that not even a machine that fails finds a log
//! beside bytes of another file. Then the pair is the next one's. Those of a daemon that was killed are removed by the next.
//! Before, files had the name of their node; what was left so is taken up as it is.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::disk::{Disk, DiskFile};
use crate::draft_log::{self, WHOSE_BYTES, Whose};
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
    /// Whose files are a node's. Held for one look or one change.
    named: Mutex<HashMap<NodeId, Arc<Paths>>>,
}

/// The two files of a draft.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) bytes: DiskFile,
    pub(crate) log: DiskFile,
    /// No two pairs that are there at the same time have the same.
    paths: Arc<Paths>,
}

/// Where they are.
#[derive(Debug)]
pub(crate) struct Paths {
    pub(crate) bytes: PathBuf,
    pub(crate) log: PathBuf,
    /// The log may say whose they are: nobody has begun others for the node, or let go of these. Held while it begins anew,
    /// or is emptied.
    is_current: Mutex<bool>,
}

/// What a former daemon left.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// Of these nodes, there.
    pub(crate) nodes: Vec<(NodeId, Arc<Paths>)>,
    /// Why logs do not say of which.
    pub(crate) damaged: Vec<StoreError>,
}

impl Paths {
    fn named(dir: &Path, name: &str) -> Arc<Paths> {
        let log = dir.join(format!("{name}{LOG_SUFFIX}"));
        Arc::new(Paths { log, bytes: dir.join(name), is_current: Mutex::new(true) })
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

    /// Does something with the log while nobody begins another for the node; `None`, and nothing done, where somebody has, or
    /// these were let go of.
    pub(crate) fn while_current<T>(&self, doing: impl FnOnce() -> T) -> Option<T> {
        self.paths.is_current.lock().then(doing)
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
        files.clear_up();
        Arc::new(files)
    }

    /// Removes what says nothing.
    fn clear_up(&self) {
        let names = self.names().unwrap_or_default();
        let numbers = names.iter().filter_map(|name| name.strip_prefix(PREFIX)?.parse().ok());
        self.next.store(numbers.max().map_or(0, |last: u64| last.saturating_add(1)), Ordering::Relaxed);
        let silent = |name: &&String| {
            let whose = (!name.ends_with(LOG_SUFFIX)).then(|| self.whose(&Paths::named(&self.dir, name)));
            // One that stays is emptied where its name comes again.
            name.starts_with(FORMER_SPARE_PREFIX) || matches!(whose, Some(Ok(Whose::Nobody)))
        };
        names.iter().filter(silent).for_each(|name| Paths::named(&self.dir, name).remove(&self.disk));
    }

    /// Whose log that is; one that is not there says nothing.
    fn whose(&self, paths: &Paths) -> io::Result<Whose> {
        let log = match self.disk.open(&paths.log) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Whose::Nobody),
            log => log?,
        };
        Ok(draft_log::whose(&log.read_vec(0, WHOSE_BYTES)?))
    }

    /// Two files for a node, of which the log is to be begun by the caller. Those that it had say nothing from now on;
    /// whoever has them goes on with them.
    pub(crate) fn begin(&self, node: NodeId) -> Result<Pair> {
        let spare = self.spare.lock().pop();
        let pair = spare.map_or_else(|| self.make(), Ok)?;
        *pair.paths.is_current.lock() = true;
        let former = self.named.lock().insert(node, pair.paths.clone());
        if let Some(former) = former {
            let mut is_current = former.is_current.lock();
            *is_current = false;
            let emptied = self.disk.open(&former.log).and_then(|log| log.set_len(0));
            if let Err(error) = emptied {
                tracing::debug!(path = %former.log.display(), %error, "a log is removed, and not used again");
                former.remove(&self.disk);
            }
        }
        Ok(pair)
    }

    fn make(&self) -> Result<Pair> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let paths = Paths::named(&self.dir, &format!("{PREFIX}{number}"));
        let open = |path: &Path| {
            let file = self.disk.open_or_create(path).and_then(DiskFile::with_some_to_spare);
            file.and_then(|file| file.set_len(0).map(|()| file)).map_err(|error| StoreError::from_io(path, error))
        };
        self.disk.make_dir(&self.dir).map_err(|error| StoreError::from_io(&self.dir, error))?;
        let opened = open(&paths.bytes).and_then(|bytes| Ok((bytes, open(&paths.log)?)));
        let (bytes, log) = opened.inspect_err(|_| paths.remove(&self.disk))?;
        Ok(Pair { bytes, log, paths })
    }

    /// The files that a former daemon left of a node.
    pub(crate) fn again(&self, node: NodeId, paths: Arc<Paths>) -> Result<Pair> {
        let open = |path: &Path| self.disk.open(path).map_err(|error| StoreError::from_io(path, error));
        let pair = Pair { bytes: open(&paths.bytes)?, log: open(&paths.log)?, paths };
        self.named.lock().insert(node, pair.paths.clone());
        Ok(pair)
    }

    /// What a former daemon left something of.
    ///
    /// # Errors
    /// `Io`: the folder cannot be read.
    pub(crate) fn left(&self) -> Result<Left> {
        let mut left = Left::default();
        for name in self.names().map_err(|error| StoreError::from_io(&self.dir, error))? {
            let Some(name) = name.strip_suffix(LOG_SUFFIX) else { continue };
            let paths = Paths::named(&self.dir, name);
            let node = match self.whose(&paths) {
                Ok(Whose::Nobody) => continue,
                Ok(Whose::Node(node)) => Ok(node),
                Ok(Whose::Named) => u64::from_str_radix(name, 16).map(NodeId).map_err(|_| damaged()),
                Err(error) => Err(error),
            };
            match node {
                Ok(node) => left.nodes.push((node, paths)),
                // The others are taken up all the same.
                Err(error) => left.damaged.push(StoreError::from_io(&paths.log, error)),
            }
        }
        Ok(left)
    }

    /// A node has these files no more; whoever has them open goes on with them. Whether they can be used again then.
    pub(crate) fn let_go(&self, node: NodeId, pair: &Pair) -> bool {
        let emptied = {
            let mut is_current = pair.paths.is_current.lock();
            std::mem::take(&mut *is_current).then(|| pair.log.set_len(0))
        };
        self.unname(node, pair);
        match emptied {
            Some(Ok(())) => return true,
            Some(Err(error)) => {
                tracing::debug!(path = %pair.paths.bytes.display(), %error, "written bytes are not used again");
            }
            // Somebody has begun others.
            None => {}
        }
        pair.paths.remove(&self.disk);
        false
    }

    /// A node has these files no more, and that of the bytes is somebody else's: the log goes first, so that at no time it tells
    /// of bytes that are not a draft's. False, and nothing done, where they are not the node's, or the log stays.
    pub(crate) fn give_away(&self, node: NodeId, pair: &Pair) -> bool {
        {
            let mut is_current = pair.paths.is_current.lock();
            if !*is_current {
                return false;
            }
            if let Err(error) = self.disk.remove(&pair.paths.log) {
                tracing::debug!(path = %pair.paths.log.display(), %error, "written bytes are not given away");
                return false;
            }
            *is_current = false;
        }
        self.unname(node, pair);
        true
    }

    /// Nobody has these files open any more, whose log is empty.
    pub(crate) fn give_back(&self, pair: Pair) {
        let is_empty = pair.bytes.set_len(0).is_ok();
        let mut spare = self.spare.lock();
        if is_empty && spare.len() < SPARE_MAX {
            return spare.push(pair);
        }
        drop(spare);
        pair.paths.remove(&self.disk);
    }

    /// Removes the files of a node.
    pub(crate) fn remove(&self, node: NodeId, pair: &Pair) {
        self.unname(node, pair);
        pair.paths.remove(&self.disk);
    }

    /// The files of a node are nobody's from now on, if they were these.
    fn unname(&self, node: NodeId, pair: &Pair) {
        let mut named = self.named.lock();
        if named.get(&node).is_some_and(|paths| Arc::ptr_eq(paths, &pair.paths)) {
            named.remove(&node);
        }
    }

    /// Free bytes, and all, of the disk that they are on.
    pub(crate) fn space(&self) -> io::Result<(u64, u64)> {
        self.disk.space(&self.dir)
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

/// What a log that makes no sense is called.
pub(crate) fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "its first record is damaged")
}

const LOG_SUFFIX: &str = ".log";
/// Names begin so, and end in a number.
const PREFIX: &str = "draft-";
/// Before, names of files that no node has began so.
const FORMER_SPARE_PREFIX: &str = "spare-";
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

    fn left(folder: &DraftFiles) -> Vec<NodeId> {
        let mut left: Vec<NodeId> = folder.left().unwrap().nodes.into_iter().map(|(node, _)| node).collect();
        left.sort();
        left
    }

    /// What a log says, read anew.
    fn again(folder: &Arc<DraftFiles>, node: u64) -> Dirty {
        let mut nodes = folder.left().unwrap().nodes.into_iter();
        let left = nodes.find(|(of, _)| *of == NodeId(node)).expect("it is there");
        Dirty::again(folder, left).unwrap().unwrap()
    }

    /// Goal: whoever reads what was discarded goes on reading that, and files are used again only when nobody does.
    #[test]
    fn files_are_used_again_when_nobody_has_them() {
        let dir = tempfile::tempdir().unwrap();
        let folder = DraftFiles::new(&Disk::default(), dir.path().to_owned());
        let begin = |node| Dirty::begin(&folder, NodeId(node), (Version::strong("1"), 0), None).unwrap();
        let first = begin(7);
        first.write(0, b"first").unwrap();
        first.discard();
        first.discard();
        first.write(5, b"!").unwrap();
        first.take().unwrap();
        first.sent(Version::strong("2")).unwrap();
        assert!(left(&folder).is_empty(), "nothing of it outlives the daemon");
        let second = begin(7);
        second.write(0, b"2").unwrap();
        assert_eq!(
            (&first.read(0, 6).unwrap()[..], &second.read(0, 6).unwrap()[..]),
            (&b"first!"[..], &b"2\0\0\0\0\0"[..])
        );
        assert_eq!(names(dir.path()), ["draft-0", "draft-0.log", "draft-1", "draft-1.log"]);
        drop(first);
        let third = begin(8);
        assert_eq!((third.length(), &third.read(0, 3).unwrap()[..]), (0, &b"\0\0\0"[..]));
        assert_eq!(left(&folder), [NodeId(7), NodeId(8)]);
        assert_eq!(names(dir.path()).len(), 4, "the first's are the third's");
        third.write(0, b"3").unwrap();
        let again = again(&folder, 8);
        assert_eq!((again.length(), again.bytes_away()), (1, Some(1)));
    }

    /// Goal: who is done with files late takes none from whoever has begun for the same node meanwhile. Method: also where
    /// there are spare ones, and where the first goes on writing, sending and reading.
    #[test]
    fn who_is_done_late_takes_nothing_from_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let folder = DraftFiles::new(&Disk::default(), dir.path().to_owned());
        let begin = || Dirty::begin(&folder, NodeId(7), (Version::strong("1"), 0), None).unwrap();
        for round in 0..3 {
            let first = begin();
            first.write(0, b"first").unwrap();
            let second = begin();
            second.write(0, b"second").unwrap();
            first.write(5, b"!").unwrap();
            first.take().unwrap();
            first.sent(Version::strong("2")).unwrap();
            assert_eq!(left(&folder), [NodeId(7)]);
            first.discard();
            assert_eq!(&first.read(0, 6).unwrap()[..], b"first!");
            drop(first);
            assert_eq!(&second.read(0, 6).unwrap()[..], b"second", "round {round}");
            let again = again(&folder, 7);
            assert_eq!((again.length(), &again.read(0, 6).unwrap()[..]), (6, &b"second"[..]));
            again.discard();
            drop((second, again));
            assert!(left(&folder).is_empty());
        }
    }

    /// Goal: what a daemon leaves that is killed is not taken for what was written, and not left for ever; names that are
    /// taken are not given again.
    #[test]
    fn spare_files_of_a_former_daemon_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = || DraftFiles::new(&Disk::default(), dir.path().to_owned());
        let former = folder();
        let dirty = |folder: &_, node| Dirty::begin(folder, NodeId(node), (Version::strong("1"), 0), None).unwrap();
        let all: Vec<Dirty> = (1..=SPARE_MAX as u64 + 3).map(|node| dirty(&former, node)).collect();
        all.iter().take(SPARE_MAX + 2).for_each(Dirty::discard);
        drop(all);
        assert_eq!(names(dir.path()).len(), 2 + 2 * SPARE_MAX, "no more are kept");
        std::mem::forget(former);
        let next = folder();
        assert_eq!(left(&next), [NodeId(SPARE_MAX as u64 + 3)]);
        assert_eq!(names(dir.path()).len(), 2);
        dirty(&next, 2).discard();
        assert_eq!(names(dir.path()).len(), 4);
        assert_eq!(left(&next).len(), 1);
        drop(next);
        assert_eq!(names(dir.path()).len(), 2, "one that ends removes its own");
    }

    /// Goal: neither bytes nor records of before are the next one's.
    #[test]
    fn what_is_used_again_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let folder = DraftFiles::new(&Disk::default(), dir.path().to_owned());
        let begin = || Dirty::begin(&folder, NodeId(7), (Version::strong("1"), 0), None).unwrap();
        let first = begin();
        (0..500).for_each(|at| first.write(at, b"x").unwrap());
        first.discard();
        drop(first);
        let length = |name| std::fs::metadata(dir.path().join(name)).unwrap().len();
        assert_eq!((length("draft-0"), length("draft-0.log")), (0, 0));
        let second = begin();
        second.write(5, b"y").unwrap();
        assert_eq!(&second.read(0, 6).unwrap()[..], b"\0\0\0\0\0y");
        assert!(length("draft-0.log") < 200);
    }
}
