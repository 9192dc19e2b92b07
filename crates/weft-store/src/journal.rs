//! Changes that are not in the database yet, where a kill of the daemon does not reach them.
//!
//! The database is written a few times in a second. Whoever was told of a change before that (the kernel knows a file by
//! its number from the moment that a lookup was answered) must find it again in the next life of the daemon. So
//! somebody who outlives the daemon may give the store two files in memory, and each change is written to one of them
//! as well, with one write(2) and no lock held. The flusher takes a stage: the changes after it go to the other file;
//! the stage is durable: the file that it had is emptied. What is found in the files at the next start goes into the
//! database first of all.
//!
//! A record is `WEFTjrnl`, the length of its content, the XXH3 of that (64 bits each, little-endian) and the content:
//! the number of the change, the number of the newest one that was durable when it was written, and the changes. A
//! record that was not written to its end has another checksum and is passed over: nobody was told of its change.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use serde::Deserialize;
use serde_bytes::{ByteBuf, Bytes};
use xxhash_rust::xxh3::xxh3_64;

use crate::stage::{Change, Stage};

/// The two files. Clones share them.
#[derive(Clone, Debug)]
pub struct Journal {
    files: Arc<[Kept; 2]>,
}

/// One of the files.
#[derive(Debug)]
struct Kept {
    file: File,
    /// How long it is, but for what is being written while it is emptied.
    bytes: AtomicU64,
}

/// What one record says: written as a tuple of the same.
#[derive(Debug, Deserialize)]
struct Content {
    number: u64,
    durable: u64,
    changes: Vec<(ByteBuf, Option<ByteBuf>)>,
}

impl Journal {
    /// A journal in these files, which nobody else writes.
    ///
    /// # Errors
    /// When they cannot be appended to.
    pub fn new(files: [File; 2]) -> io::Result<Journal> {
        let [first, second] = files.map(Kept::new);
        Ok(Journal { files: Arc::new([first?, second?]) })
    }

    /// What a former life left behind that may not be in the database, oldest first and in one stage.
    pub(crate) fn replay(&self) -> io::Result<Stage> {
        let mut records = self.records()?;
        let durable = records.iter().map(|record| record.durable).max().unwrap_or(0);
        records.retain(|record| record.number > durable);
        records.sort_by_key(|record| record.number);
        let mut stage = Stage::default();
        for (key, value) in records.into_iter().flat_map(|record| record.changes) {
            stage.put((key.into_vec().into(), value.map(|value| value.into_vec().into())));
        }
        Ok(stage)
    }

    fn records(&self) -> io::Result<Vec<Content>> {
        let mut records = Vec::new();
        for kept in &*self.files {
            let mut bytes = Vec::new();
            let mut file = &kept.file;
            file.seek(SeekFrom::Start(0))?;
            file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
            records.extend(contents(&bytes));
        }
        Ok(records)
    }

    /// Has the first file hold what a former life left, which could not be written to the database yet, as one change, and the
    /// second be empty; the number of the newest change before that one. A kill in the middle loses nothing.
    pub(crate) fn begin_with(&self, left: &Stage) -> io::Result<u64> {
        let newest = self.records()?.iter().map(|record| record.number).max().unwrap_or(0);
        let changes: Vec<Change> = left.pairs.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        let record = record(newest + 1, newest, &changes)?;
        match self.write(0, &record) {
            // It is full of what this one has anew, which goes when that is in the other.
            Err(error) if error.kind() == io::ErrorKind::QuotaExceeded => {
                self.write(1, &record)?;
                self.empty(0)?;
                self.write(0, &record)?;
            }
            outcome => outcome?,
        }
        self.empty(1)?;
        Ok(newest)
    }

    /// Empties both files.
    pub(crate) fn clear(&self) -> io::Result<()> {
        self.files.iter().try_for_each(Kept::empty)
    }

    /// Empties the file that has the changes of a stage that is durable now.
    pub(crate) fn empty(&self, which: usize) -> io::Result<()> {
        self.files[which % 2].empty()
    }

    /// Writes changes to one of the files; nothing is written when it is full.
    pub(crate) fn write(&self, which: usize, record: &[u8]) -> io::Result<()> {
        let Kept { file, bytes } = &self.files[which % 2];
        let more = record.len() as u64;
        if bytes.fetch_add(more, Ordering::Relaxed) + more > FILE_BYTES_MAX {
            bytes.fetch_sub(more, Ordering::Relaxed);
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        // Appended in one call, so that records of several threads do not mix.
        (&*file).write_all(record)
    }
}

impl Kept {
    fn new(file: File) -> io::Result<Kept> {
        fcntl_setfl(&file, fcntl_getfl(&file)? | OFlags::APPEND)?;
        let bytes = AtomicU64::new(file.metadata()?.len());
        Ok(Kept { file, bytes })
    }

    fn empty(&self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.bytes.store(0, Ordering::Relaxed);
        Ok(())
    }
}

/// A record of changes, as it is written.
pub(crate) fn record(number: u64, durable: u64, changes: &[Change]) -> io::Result<Vec<u8>> {
    let octets = |(key, value): &Change| key.len() + value.as_ref().map_or(0, |value| value.len()) + LENGTHS_BYTES;
    let room = HEAD_BYTES + NUMBERS_BYTES + changes.iter().map(octets).sum::<usize>();
    let changes = changes.iter().map(|(key, value)| (Bytes::new(key), value.as_deref().map(Bytes::new)));
    let content = (number, durable, changes.collect::<Vec<(&Bytes, Option<&Bytes>)>>());
    let mut bytes = Vec::with_capacity(room);
    bytes.resize(HEAD_BYTES, 0);
    bytes = postcard::to_extend(&content, bytes).map_err(io::Error::other)?;
    let length = (bytes.len() - HEAD_BYTES) as u64;
    let sum = xxh3_64(&bytes[HEAD_BYTES..]);
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..16].copy_from_slice(&length.to_le_bytes());
    bytes[16..24].copy_from_slice(&sum.to_le_bytes());
    Ok(bytes)
}

/// The records in a file that are whole, in its order.
fn contents(mut bytes: &[u8]) -> Vec<Content> {
    let mut found = Vec::new();
    while bytes.len() >= HEAD_BYTES {
        match whole(bytes) {
            Some((content, length)) => {
                found.push(content);
                bytes = &bytes[HEAD_BYTES + length..];
            }
            // Something was not written to its end: the next record begins somewhere after it.
            None => bytes = &bytes[bytes[1..].windows(8).position(|at| at == MAGIC).map_or(bytes.len(), |at| at + 1)..],
        }
    }
    found
}

fn whole(bytes: &[u8]) -> Option<(Content, usize)> {
    let field = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let length = usize::try_from(field(8)?).ok()?;
    let content = bytes.get(HEAD_BYTES..HEAD_BYTES.checked_add(length)?)?;
    let sound = &bytes[..8] == MAGIC && field(16)? == xxh3_64(content);
    sound.then(|| postcard::from_bytes(content).ok()).flatten().map(|content| (content, length))
}

const MAGIC: &[u8; 8] = b"WEFTjrnl";
/// Magic, length and checksum.
const HEAD_BYTES: usize = 24;
/// What the lengths of a key and of a value, and that there is one, take at most, mostly.
const LENGTHS_BYTES: usize = 6;
/// What the numbers before the changes take at most.
const NUMBERS_BYTES: usize = 30;
/// Most bytes in one file: the stages are bounded to a fraction of it, but keys may change again and again while the
/// disk is full. What does not fit is not there after a kill, as without a journal.
const FILE_BYTES_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn journal() -> Journal {
        Journal::new([tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap()]).unwrap()
    }

    fn change(key: &[u8], value: Option<&[u8]>) -> Change {
        (key.into(), value.map(Into::into))
    }

    fn pairs(stage: &Stage) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        stage.pairs.iter().map(|(key, value)| (key.to_vec(), value.as_ref().map(|value| value.to_vec()))).collect()
    }

    #[test]
    fn the_newest_of_both_files_counts_and_what_was_durable_does_not() {
        let journal = journal();
        let write = |which, number, durable, changes: &[Change]| {
            journal.write(which, &record(number, durable, changes).unwrap()).unwrap();
        };
        write(1, 3, 0, &[change(b"a", Some(b"new")), change(b"gone", None)]);
        write(0, 2, 0, &[change(b"a", Some(b"old")), change(b"gone", Some(b"x"))]);
        write(0, 1, 0, &[change(b"b", Some(b"durable"))]);
        write(1, 4, 1, &[change(b"c", Some(b"c"))]);
        let text = |text: &str| text.as_bytes().to_vec();
        let expected = [(text("a"), Some(text("new"))), (text("c"), Some(text("c"))), (text("gone"), None)];
        assert_eq!(pairs(&journal.replay().unwrap()), expected);
        journal.clear().unwrap();
        assert!(journal.replay().unwrap().is_empty());
    }

    /// A full file takes nothing more; emptied, it does.
    #[test]
    fn a_file_has_a_most_that_it_takes() {
        let journal = journal();
        let half = vec![0; FILE_BYTES_MAX as usize / 2];
        journal.write(0, &half).unwrap();
        journal.write(0, &half).unwrap();
        assert_eq!(journal.write(0, b"x").unwrap_err().kind(), io::ErrorKind::QuotaExceeded);
        journal.write(1, b"x").unwrap();
        journal.empty(0).unwrap();
        journal.write(0, b"x").unwrap();
    }

    /// Goal: what a former life left is in the first file alone, and found, also where that was full.
    #[test]
    fn what_is_left_is_gathered_in_the_first_file() {
        for is_full in [false, true] {
            let journal = journal();
            journal.write(0, &record(3, 0, &[change(b"a", Some(b"old"))]).unwrap()).unwrap();
            journal.write(1, &record(4, 0, &[change(b"b", None)]).unwrap()).unwrap();
            let left = journal.replay().unwrap();
            if is_full {
                let rest = FILE_BYTES_MAX - journal.files[0].bytes.load(Ordering::Relaxed);
                journal.write(0, &vec![0; rest as usize]).unwrap();
            }
            assert_eq!(journal.begin_with(&left).unwrap(), 4);
            assert_eq!(journal.files[1].file.metadata().unwrap().len(), 0);
            assert_eq!(pairs(&journal.replay().unwrap()), pairs(&left));
            journal.write(0, b"x").unwrap();
        }
    }

    /// Whatever is cut off the middle of a file, all other records are found.
    #[test]
    fn a_record_that_breaks_off_is_passed_over() {
        let records: Vec<_> =
            (1..4).map(|nth: u8| record(nth.into(), 0, &[change(&[nth], Some(&[nth; 300]))]).unwrap()).collect();
        for kept in 0..records[1].len() {
            let journal = journal();
            journal.write(0, &records[0]).unwrap();
            journal.write(0, &records[1][..kept]).unwrap();
            journal.write(0, &records[2]).unwrap();
            let keys: Vec<_> = pairs(&journal.replay().unwrap()).into_iter().map(|(key, _)| key).collect();
            assert_eq!(keys, [vec![1], vec![3]], "{kept} bytes of the second");
        }
    }
}
