//! Small contents that are in no segment yet, where a kill of the daemon does not reach them.
//!
//! A volume gathers objects in memory before it writes segments. Until then each is in one of two plain files as well,
//! written and never synced: the system has its bytes when the daemon is gone. Once the volumes have been flushed, the
//! file of the time before is emptied. What is found in the files at the next start goes to the volumes again.
//!
//! A frame begins at a multiple of 64 bytes: magic, length of the content (32 bits each, little-endian), node,
//! generation, XXH3 of all that follows the magic (64 bits each), then the content. One that was not written to its end
//! has another checksum and is passed over.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use xxhash_rust::xxh3::Xxh3;

use crate::NodeId;
use crate::disk::{Disk, DiskFile};

/// The two files.
#[derive(Debug)]
pub(crate) struct Staging {
    files: [DiskFile; 2],
    /// Where the next frame of each begins.
    ends: [AtomicU64; 2],
    /// Counts the turns: which file is written now.
    turn: AtomicUsize,
}

/// A content that was staged.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Staged {
    pub(crate) node: NodeId,
    pub(crate) generation: u64,
    pub(crate) content: Bytes,
}

impl Staging {
    /// Opens the files in a folder, with what they hold.
    pub(crate) fn open(disk: &Disk, dir: &Path) -> io::Result<Staging> {
        let files = [disk.open_or_create(&dir.join("staging-0"))?, disk.open_or_create(&dir.join("staging-1"))?];
        let ends = [files[0].len()?.next_multiple_of(ALIGN_BYTES), files[1].len()?.next_multiple_of(ALIGN_BYTES)];
        Ok(Staging { files, ends: ends.map(AtomicU64::new), turn: AtomicUsize::new(0) })
    }

    /// Writes one content down.
    ///
    /// # Errors
    /// `StorageFull` when too much is staged, what the system says.
    pub(crate) fn write(&self, node: NodeId, generation: u64, content: &[u8]) -> io::Result<()> {
        let mut frame = Vec::with_capacity(HEAD_BYTES + content.len());
        frame.extend_from_slice(&MAGIC.to_le_bytes());
        frame.extend_from_slice(&u32::try_from(content.len()).map_err(io::Error::other)?.to_le_bytes());
        frame.extend_from_slice(&node.0.to_le_bytes());
        frame.extend_from_slice(&generation.to_le_bytes());
        frame.extend_from_slice(&sum(node, generation, content).to_le_bytes());
        frame.extend_from_slice(content);
        let which = self.turn.load(Ordering::Acquire) % 2;
        let taken = (frame.len() as u64).next_multiple_of(ALIGN_BYTES);
        let at = self.ends[which].fetch_add(taken, Ordering::Relaxed);
        if at + taken > FILE_BYTES_MAX {
            // Full until it is emptied: a place that was taken is not given back, for another may have one behind it.
            return Err(io::ErrorKind::StorageFull.into());
        }
        // A file that is emptied at this moment has no need of it: the content is in the volumes by then.
        self.files[which].write_all_at(&frame, at)
    }

    /// Bytes in the file that is written now.
    pub(crate) fn waiting(&self) -> u64 {
        self.ends[self.turn.load(Ordering::Acquire) % 2].load(Ordering::Relaxed)
    }

    /// Begins to write the other file; gives the number of the one that was written.
    pub(crate) fn turn(&self) -> usize {
        self.turn.fetch_add(1, Ordering::AcqRel) % 2
    }

    /// Empties a file.
    pub(crate) fn empty(&self, which: usize) -> io::Result<()> {
        self.files[which].set_len(0)?;
        self.ends[which].store(0, Ordering::Release);
        Ok(())
    }

    /// What both files hold.
    pub(crate) fn read(&self) -> io::Result<Vec<Staged>> {
        let mut all = Vec::new();
        for file in &self.files {
            let length = usize::try_from(file.len()?.min(FILE_BYTES_MAX)).map_err(io::Error::other)?;
            frames(&Bytes::from(file.read_vec(0, length)?), &mut all);
        }
        Ok(all)
    }
}

/// The sound frames of a file.
fn frames(bytes: &Bytes, all: &mut Vec<Staged>) {
    let mut at = 0;
    while at + HEAD_BYTES <= bytes.len() {
        match frame(bytes, at) {
            Some(staged) => {
                at += (HEAD_BYTES + staged.content.len()).next_multiple_of(ALIGN_BYTES as usize);
                all.push(staged);
            }
            None => at += ALIGN_BYTES as usize,
        }
    }
}

fn frame(bytes: &Bytes, at: usize) -> Option<Staged> {
    let head = bytes.get(at..at + HEAD_BYTES)?;
    let word = |from: usize| Some(u64::from_le_bytes(head.get(from..from + 8)?.try_into().ok()?));
    let half = |from: usize| Some(u32::from_le_bytes(head.get(from..from + 4)?.try_into().ok()?));
    if half(0)? != MAGIC {
        return None;
    }
    let (length, node, generation) = (half(4)? as usize, NodeId(word(8)?), word(16)?);
    let begin = at + HEAD_BYTES;
    let end = begin.checked_add(length).filter(|end| *end <= bytes.len())?;
    let content = bytes.slice(begin..end);
    (sum(node, generation, &content) == word(24)?).then_some(Staged { node, generation, content })
}

fn sum(node: NodeId, generation: u64, content: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(&(content.len() as u64).to_le_bytes());
    hash.update(&node.0.to_le_bytes());
    hash.update(&generation.to_le_bytes());
    hash.update(content);
    hash.digest()
}

/// `WfSt`.
const MAGIC: u32 = u32::from_le_bytes(*b"WfSt");
const HEAD_BYTES: usize = 32;
const ALIGN_BYTES: u64 = 64;
/// Longest file: a volume that cannot be flushed takes no more.
const FILE_BYTES_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn staged(node: u64, length: usize) -> Staged {
        Staged { node: NodeId(node), generation: node + 7, content: vec![node as u8; length].into() }
    }

    /// Goal: what was written is read again, whatever part of it was lost. Method: each byte of the file is changed, and
    /// the file is cut at each.
    #[test]
    fn sound_frames_are_read_and_others_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let staging = Staging::open(&Disk::default(), dir.path()).unwrap();
        let all = [staged(1, 0), staged(2, 31), staged(3, 33), staged(4, 200)];
        for one in &all {
            staging.write(one.node, one.generation, &one.content).unwrap();
        }
        assert_eq!(staging.read().unwrap(), all);
        let file = std::fs::read(dir.path().join("staging-0")).unwrap();
        for at in 0..file.len() {
            let mut changed = file.clone();
            changed[at] ^= 0x55;
            let mut found = Vec::new();
            frames(&changed.into(), &mut found);
            assert!(found.iter().all(|one| all.contains(one)), "only what was written is read");
            assert!(found.len() >= 3, "one frame is lost at most");
            let mut found = Vec::new();
            frames(&Bytes::copy_from_slice(&file[..at]), &mut found);
            assert!(all.starts_with(&found));
        }
    }

    #[test]
    fn a_file_is_emptied_while_the_other_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let staging = Staging::open(&Disk::default(), dir.path()).unwrap();
        let (first, second) = (staged(1, 100), staged(2, 100));
        staging.write(first.node, first.generation, &first.content).unwrap();
        let before = staging.turn();
        assert_eq!(staging.waiting(), 0);
        staging.write(second.node, second.generation, &second.content).unwrap();
        assert_eq!(Staging::open(&Disk::default(), dir.path()).unwrap().read().unwrap(), [first, staged(2, 100)]);
        staging.empty(before).unwrap();
        assert_eq!(staging.read().unwrap(), [second]);
    }
}
