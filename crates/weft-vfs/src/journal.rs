//! What was evicted, for people: lines of JSON in the cache folder, of bounded size.

use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use crate::vfs::Vfs;

/// One eviction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eviction {
    /// When, in seconds since 1970.
    pub at_unix_s: u64,
    /// What, as its path below the mount's root reads.
    pub path: String,
    /// Bytes on disk.
    pub bytes: u64,
    /// Its class.
    pub class: String,
    /// For what: the bound that was met.
    pub reason: String,
}

/// The journal of evictions. Lines are appended whole, so nothing needs a lock.
#[derive(Debug)]
pub(crate) struct Journal {
    current: PathBuf,
    former: PathBuf,
    rotating: AtomicBool,
}

impl Journal {
    pub(crate) fn in_folder(dir: &Path) -> Journal {
        Journal { current: dir.join(NAME), former: dir.join(FORMER_NAME), rotating: AtomicBool::new(false) }
    }

    /// Adds lines. They are written before what they tell of is done: after a kill there may be a line too many, never
    /// one too few.
    pub(crate) fn write(&self, evictions: &[Eviction]) -> io::Result<()> {
        let mut text = Vec::new();
        for eviction in evictions {
            serde_json::to_writer(&mut text, eviction)?;
            text.push(b'\n');
        }
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.current)?;
        file.write_all(&text)?;
        if file.metadata()?.len() > FILE_BYTES_MAX && !self.rotating.swap(true, Ordering::SeqCst) {
            // Somebody else may have rotated just before: looked at again by the one who may.
            let outcome = match std::fs::metadata(&self.current) {
                Ok(metadata) if metadata.len() > FILE_BYTES_MAX => std::fs::rename(&self.current, &self.former),
                Ok(_) => Ok(()),
                Err(error) => Err(error),
            };
            self.rotating.store(false, Ordering::SeqCst);
            outcome?;
        }
        Ok(())
    }

    /// The newest lines, oldest first, at most `limit`. Lines that cannot be read are passed over.
    pub(crate) fn newest(&self, limit: usize) -> io::Result<Vec<Eviction>> {
        let mut all = Vec::new();
        for path in [&self.former, &self.current] {
            match tail(path) {
                Ok(text) => {
                    all.extend(text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        let surplus = all.len().saturating_sub(limit);
        Ok(all.split_off(surplus))
    }
}

/// The end of a file, at most [`READ_BYTES_MAX`].
fn tail(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = std::fs::File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(READ_BYTES_MAX)))?;
    let mut text = Vec::new();
    file.take(READ_BYTES_MAX).read_to_end(&mut text)?;
    Ok(text)
}

impl Vfs {
    /// The newest evictions, oldest first, at most `limit`.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub fn evictions(&self, limit: usize) -> io::Result<Vec<Eviction>> {
        self.space.journal.newest(limit)
    }
}

const NAME: &str = "evictions.jsonl";
const FORMER_NAME: &str = "evictions.1.jsonl";
/// A file longer than this is set aside, in place of the one set aside before.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// A file may be longer than the bound by what was written at once.
const READ_BYTES_MAX: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the journal is bounded and its newest lines are there. Method: far more lines than it may hold, one of
    /// them broken off.
    #[test]
    fn the_journal_is_bounded_and_tells_the_newest() {
        let dir = tempfile::tempdir().expect("a folder");
        let journal = Journal::in_folder(dir.path());
        assert_eq!(journal.newest(5).expect("none is no error"), []);
        let eviction = |nth: u64| Eviction {
            at_unix_s: nth,
            path: "web/example.org/".to_string() + &"x".repeat(200),
            bytes: 4096,
            class: "scratch".to_string(),
            reason: "[cache] max".to_string(),
        };
        let batch: Vec<_> = (0..100).map(eviction).collect();
        for _ in 0..120 {
            journal.write(&batch).expect("written");
        }
        std::fs::OpenOptions::new()
            .append(true)
            .open(dir.path().join(NAME))
            .expect("opened")
            .write_all(b"{\"at")
            .expect("written");
        let newest = journal.newest(150).expect("read");
        assert_eq!(newest.len(), 150);
        assert_eq!(newest[149], eviction(99));
        let held: u64 = std::fs::read_dir(dir.path())
            .expect("read")
            .map(|e| e.expect("one").metadata().expect("there").len())
            .sum();
        assert!(held < 3 * FILE_BYTES_MAX, "{held}");
    }
}
