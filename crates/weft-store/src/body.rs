//! The bytes of one object: in memory while a small one comes, then in a segment; or in a file of its own.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::OnceLock;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};

use crate::disk::{Disk, DiskFile};
use crate::small::{Small, SmallKey};

/// The bytes of one object.
#[derive(Debug)]
pub(crate) struct Body {
    key: SmallKey,
    /// Where its file is, if it has one.
    path: PathBuf,
    file: OnceLock<DiskFile>,
    /// Who writes the file shares it; who makes it longer by its length has it alone, for what others write beyond would be
    /// cut off. Held over that one call each.
    growing: RwLock<()>,
    /// Guards what is in memory; held for no I/O.
    memory: Mutex<Memory>,
}

/// What of it is in memory.
#[derive(Debug)]
enum Memory {
    /// All that came so far.
    Draft(Vec<u8>),
    /// All of it.
    Held(Bytes),
    /// Nothing: it is in a segment.
    InSegment,
    /// Nothing: it is in its file.
    InFile,
}

impl Body {
    /// Bytes that are to come, few by all that is known.
    pub(crate) fn draft(key: SmallKey, path: PathBuf) -> Body {
        Body::of(key, path, OnceLock::new(), Memory::Draft(Vec::new()))
    }

    /// Bytes in a file that is to become its own ([`Body::own`]).
    pub(crate) fn in_file_to_come(key: SmallKey, path: PathBuf) -> Body {
        Body::of(key, path, OnceLock::new(), Memory::InFile)
    }

    /// Bytes in a segment.
    pub(crate) fn in_segment(key: SmallKey, path: PathBuf) -> Body {
        Body::of(key, path, OnceLock::new(), Memory::InSegment)
    }

    /// Bytes in a file.
    pub(crate) fn in_file(key: SmallKey, path: PathBuf, file: DiskFile) -> Body {
        Body::of(key, path, OnceLock::from(file), Memory::InFile)
    }

    fn of(key: SmallKey, path: PathBuf, file: OnceLock<DiskFile>, memory: Memory) -> Body {
        Body { key, path, file, growing: RwLock::default(), memory: Mutex::new(memory) }
    }

    /// The file at its path is its own from now on.
    pub(crate) fn own(&self, file: DiskFile) {
        let _ = self.file.set(file);
    }

    /// Where its file is or would be.
    pub(crate) fn path(&self) -> &PathBuf {
        &self.path
    }

    /// Whether it has a file.
    pub(crate) fn has_file(&self) -> bool {
        self.file.get().is_some()
    }

    /// Its file, if it has one.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.file.get().map(AsFd::as_fd)
    }

    /// Has the system forget what it keeps of the file in memory.
    pub(crate) fn forget_pages(&self) {
        if let Some(file) = self.file.get() {
            file.forget_pages();
        }
    }

    /// Writes bytes that nobody else writes. More than a segment takes go to a file, with all that came before.
    pub(crate) fn write(&self, disk: &Disk, bytes: &[u8], at: u64) -> io::Result<()> {
        let before = {
            let mut memory = self.memory.lock();
            if matches!(*memory, Memory::InSegment | Memory::Held(_)) {
                // What was there is damaged, and comes again.
                *memory = Memory::Draft(Vec::new());
            }
            match &mut *memory {
                Memory::Draft(held) if at + bytes.len() as u64 <= Small::CONTENT_BYTES_MAX => {
                    let at = usize::try_from(at).map_err(io::Error::other)?;
                    held.resize(held.len().max(at + bytes.len()), 0);
                    held[at..at + bytes.len()].copy_from_slice(bytes);
                    return Ok(());
                }
                Memory::Draft(held) => Some(held.clone()),
                _ => None,
            }
        };
        if let Some(before) = before {
            self.spill(disk, &before)?;
        }
        let file = self.file()?;
        if is_zeros(bytes) && self.clear(file, at, bytes.len() as u64).is_ok() {
            return Ok(());
        }
        let _shared = self.growing.read();
        file.write_all_at(bytes, at)
    }

    /// Has a range read as zeros without a place on the disk.
    fn clear(&self, file: &DiskFile, at: u64, count: u64) -> io::Result<()> {
        file.punch(at, count)?;
        let _alone = self.growing.write();
        if file.len()? < at + count { file.set_len(at + count) } else { Ok(()) }
    }

    /// Of a content in a file: where a range with a place on the disk begins at or after `offset`, or one without.
    pub(crate) fn seek(&self, offset: u64, hole: bool) -> io::Result<Option<Option<u64>>> {
        self.file.get().map(|file| file.seek(offset, hole)).transpose()
    }

    /// Up to `length` bytes from `offset` on; fewer only where they end.
    pub(crate) fn read(&self, small: &Small, offset: u64, length: usize) -> io::Result<Bytes> {
        // With a file all that there is is there. Many read it at once, and none waits for another.
        if let Some(file) = self.file.get() {
            return file.read_vec(offset, length).map(Bytes::from);
        }
        if let Some(bytes) = self.in_memory(offset, length) {
            return Ok(bytes);
        }
        match small.read(self.key, offset, length)? {
            Some(all) => Ok(all.slice_ref(part(&all, offset, length))),
            // Another has taken its place just now: what is held of it is in memory.
            None => Ok(self.in_memory(offset, length).unwrap_or_default()),
        }
    }

    /// The part that is asked for, if the content is in memory.
    fn in_memory(&self, offset: u64, length: usize) -> Option<Bytes> {
        match &*self.memory.lock() {
            Memory::Draft(held) => Some(Bytes::copy_from_slice(part(held, offset, length))),
            Memory::Held(held) => Some(held.slice_ref(part(held, offset, length))),
            Memory::InSegment | Memory::InFile => None,
        }
    }

    /// Brings a whole content to where it stays: a segment, or a file where there is no room in one.
    pub(crate) fn settle(&self, small: &Small, disk: &Disk, directory: u64) -> io::Result<()> {
        let content = {
            let mut memory = self.memory.lock();
            let Memory::Draft(held) = &mut *memory else { return Ok(()) };
            let content = Bytes::from(std::mem::take(held));
            *memory = Memory::Held(content.clone());
            content
        };
        if content.is_empty() {
            return Ok(());
        }
        if small.put(self.key, &content, directory) {
            *self.memory.lock() = Memory::InSegment;
            return Ok(());
        }
        let spilled = self.spill(disk, &content);
        if spilled.is_err() {
            // It stays nowhere yet: whoever tries again begins here.
            *self.memory.lock() = Memory::Draft(content.into());
        }
        spilled
    }

    /// The segment will not have it any more: whoever reads it goes on with what is in memory.
    pub(crate) fn hold(&self, small: &Small) {
        let in_segment = matches!(*self.memory.lock(), Memory::InSegment);
        if in_segment && let Ok(Some(content)) = small.get(self.key) {
            *self.memory.lock() = Memory::Held(content);
        }
    }

    fn spill(&self, disk: &Disk, before: &[u8]) -> io::Result<()> {
        let file = match disk.create_new(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                disk.make_dir(self.path.parent().expect("files of objects lie in a folder"))?;
                disk.create_new(&self.path)?
            }
            outcome => outcome?,
        };
        if let Err(error) = file.write_all_at(before, 0) {
            // Nothing is lost: what came is in memory still.
            let _ = disk.remove(&self.path);
            return Err(error);
        }
        let _ = self.file.set(file);
        *self.memory.lock() = Memory::InFile;
        Ok(())
    }

    fn file(&self) -> io::Result<&DiskFile> {
        self.file.get().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Whether these are so many zeros that a hole in a file saves something.
fn is_zeros(bytes: &[u8]) -> bool {
    bytes.len() >= HOLE_BYTES_MIN && bytes[0] == 0 && bytes[1..] == bytes[..bytes.len() - 1]
}

fn part(held: &[u8], offset: u64, length: usize) -> &[u8] {
    let begin = usize::try_from(offset).map_or(held.len(), |offset| offset.min(held.len()));
    let end = begin.saturating_add(length).min(held.len());
    &held[begin..end]
}

/// Least zeros at a time that are left out on the disk: a block of most file systems.
const HOLE_BYTES_MIN: usize = 4096;
