//! Every file operation of the store passes here, so that a test can make the nth write fail.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::buffer::spare_capacity;
use rustix::fs::{FallocateFlags, FlockOperation, SeekFrom, flock};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// The way to the disk. Costs nothing outside of tests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    #[cfg(test)]
    pub(crate) faults: std::sync::Arc<Faults>,
}

/// An open file with positioned reads and writes.
#[derive(Debug)]
pub(crate) struct DiskFile {
    file: File,
    #[cfg(test)]
    faults: std::sync::Arc<Faults>,
}

impl Disk {
    /// Makes a file that must not exist, for reading and writing by this user alone.
    ///
    /// # Errors
    /// As of [`DiskFile::with_some_to_spare`]; then none is made.
    pub(crate) fn create_new(&self, path: &Path) -> io::Result<DiskFile> {
        let made = self.open_with(path, OpenOptions::new().create_new(true))?;
        made.with_some_to_spare().inspect_err(|_| {
            // Nobody would look for it before the next start.
            let _ = self.remove(path);
        })
    }

    /// Opens a file for reading and writing; makes it when it is not there.
    pub(crate) fn open_or_create(&self, path: &Path) -> io::Result<DiskFile> {
        self.open_with(path, OpenOptions::new().create(true).truncate(false))
    }

    /// Opens a file that exists, for reading and writing.
    pub(crate) fn open(&self, path: &Path) -> io::Result<DiskFile> {
        self.open_with(path, &mut OpenOptions::new())
    }

    /// Removes a file; one that is not there is as good as removed.
    pub(crate) fn remove(&self, path: &Path) -> io::Result<()> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            outcome => outcome,
        }
    }

    /// Gives a file another name.
    pub(crate) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    /// Makes a directory and those above it, for this user alone; one that exists is left as it is.
    pub(crate) fn make_dir(&self, path: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)
    }

    /// Makes names that were given in a directory durable.
    pub(crate) fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    /// Has a file of at most so many bytes read into the system's memory, in the background; whether it is, costs nobody
    /// but time.
    pub(crate) fn read_ahead(&self, path: &Path, bytes_max: u64) {
        let Ok(file) = File::open(path) else { return };
        if !file.metadata().is_ok_and(|told| (1..=bytes_max).contains(&told.len())) {
            return;
        }
        let read = move || {
            let mut piece = vec![0; AHEAD_PIECE_BYTES];
            let mut at = 0;
            while let Ok(count @ 1..) = file.read_at(&mut piece, at) {
                at += count as u64;
            }
        };
        if let Err(error) = std::thread::Builder::new().name("weft-ahead".to_owned()).spawn(read) {
            tracing::debug!(%error, "the index is read as it is used");
        }
    }

    /// Takes the lock of a cache directory; `None` when somebody else has it.
    pub(crate) fn lock(&self, path: &Path) -> io::Result<Option<Lock>> {
        let file = self.open_or_create(path)?;
        match flock(&file.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Lock(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Free bytes (for this user) and all bytes of the file system that holds `path`.
    pub(crate) fn space(&self, path: &Path) -> io::Result<(u64, u64)> {
        #[cfg(test)]
        if self.faults.no_room.load(std::sync::atomic::Ordering::Relaxed) {
            return Ok((0, 1));
        }
        let figures = rustix::fs::statvfs(path)?;
        let unit = figures.f_frsize;
        Ok((figures.f_bavail.saturating_mul(unit), figures.f_blocks.saturating_mul(unit)))
    }

    fn open_with(&self, path: &Path, options: &mut OpenOptions) -> io::Result<DiskFile> {
        let file = options.read(true).write(true).mode(0o600).open(path)?;
        Ok(DiskFile {
            file,
            #[cfg(test)]
            faults: self.faults.clone(),
        })
    }
}

impl DiskFile {
    /// A file that stays open for as long as people have one open, if this process can open a few others beside: what comes and
    /// goes, without which nobody could list a directory any more, ask for the status, or unmount.
    ///
    /// # Errors
    /// `EMFILE` where it cannot.
    pub(crate) fn with_some_to_spare(self) -> io::Result<DiskFile> {
        // The system gives out the lowest number that is free: as many are in use.
        let used = u64::try_from(self.file.as_raw_fd()).unwrap_or_default();
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        match used < limit - (limit / SPARE_SHARE).min(SPARE_MAX) {
            true => Ok(self),
            false => Err(Errno::MFILE.into()),
        }
    }

    /// Writes all of `bytes` at `offset`.
    pub(crate) fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        #[cfg(test)]
        self.faults.before_write()?;
        self.file.write_all_at(bytes, offset)
    }

    /// Fills as much of `buffer` from `offset` on as the file has, and tells how much that was.
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.file.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// Up to `length` bytes from `offset` on; fewer only at the end of the file.
    pub(crate) fn read_vec(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        // Not filled with zeros first: a tenth of the price of a large read.
        let mut bytes = Vec::with_capacity(length);
        while bytes.len() < length {
            let next = offset + bytes.len() as u64;
            match rustix::io::pread(&self.file, spare_capacity(&mut bytes), next) {
                Ok(0) => break,
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // The memory that was had may be more than was asked for.
        bytes.truncate(length);
        Ok(bytes)
    }

    /// Has the system forget what it keeps of the file in memory, but for what is not written yet.
    pub(crate) fn forget_pages(&self) {
        // It is a wish: where it is not heard, what is in memory is read.
        let _ = rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::DontNeed);
    }

    /// Length of the file in bytes.
    pub(crate) fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Sets the length of the file in bytes.
    pub(crate) fn set_len(&self, length: u64) -> io::Result<()> {
        #[cfg(test)]
        self.faults.before_write()?;
        self.file.set_len(length)
    }

    /// Makes the file this long with room on the disk for all of it, which it was `from` bytes long before.
    pub(crate) fn grow_with_room(&self, from: u64, length: u64) -> io::Result<()> {
        #[cfg(test)]
        self.faults.before_write()?;
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), from, length - from) {
            // A file system that knows no such thing.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => self.file.set_len(length),
            Err(errno) => {
                // Some of it may have been had.
                let _ = self.file.set_len(from);
                Err(errno.into())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Gives back the room of a range, which reads as zeros from then on. The length stays.
    pub(crate) fn punch(&self, offset: u64, count: u64) -> io::Result<()> {
        #[cfg(test)]
        self.faults.before_write()?;
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.file, how, offset, count)?)
    }

    /// Where a range begins that has a place on the disk, or (`hole`) one that has none, at or after `offset`; `None` where
    /// there is none before the end.
    pub(crate) fn seek(&self, offset: u64, hole: bool) -> io::Result<Option<u64>> {
        let to = if hole { SeekFrom::Hole(offset) } else { SeekFrom::Data(offset) };
        match rustix::fs::seek(&self.file, to) {
            Ok(place) => Ok(Some(place)),
            Err(rustix::io::Errno::NXIO) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Makes what was written durable.
    pub(crate) fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// A lock that keeps other daemons out until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock(DiskFile);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing alone is not enough: a process that is just being started has a copy until it is under way.
        let _ = flock(&self.0.file, FlockOperation::Unlock);
    }
}

impl AsFd for DiskFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Faults to order: which writes fail with "no space left".
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct Faults {
    plan: parking_lot::Mutex<Option<Plan>>,
    /// The disk says that nothing is free.
    pub(crate) no_room: std::sync::atomic::AtomicBool,
}

#[cfg(test)]
#[derive(Debug)]
struct Plan {
    succeed: u64,
    fail: u64,
}

#[cfg(test)]
impl Faults {
    /// Lets `succeed` writes pass, then fails `fail` writes, then passes all.
    pub(crate) fn full_after(&self, succeed: u64, fail: u64) {
        *self.plan.lock() = Some(Plan { succeed, fail });
    }

    /// Passes all writes again.
    pub(crate) fn clear(&self) {
        *self.plan.lock() = None;
    }

    /// How many writes are to fail still.
    pub(crate) fn left_to_fail(&self) -> u64 {
        self.plan.lock().as_ref().map_or(0, |plan| plan.fail)
    }

    /// Whether a write has failed of those that were to.
    pub(crate) fn have_failed(&self) -> bool {
        self.left_to_fail() == 0 && self.plan.lock().is_some()
    }

    fn before_write(&self) -> io::Result<()> {
        let mut plan = self.plan.lock();
        match plan.as_mut() {
            Some(plan) if plan.succeed > 0 => plan.succeed -= 1,
            Some(plan) if plan.fail > 0 => {
                plan.fail -= 1;
                return Err(io::Error::from(io::ErrorKind::StorageFull));
            }
            _ => {}
        }
        Ok(())
    }
}

/// The share of the files that this process may have open which is kept for others than those of the store, and the most.
const SPARE_SHARE: u64 = 8;
const SPARE_MAX: u64 = 32;
/// Bytes read at once when a file is read ahead.
const AHEAD_PIECE_BYTES: usize = 1 << 20;
