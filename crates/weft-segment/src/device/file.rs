//! A volume in a file or on a raw device, past the page cache where the system lets us.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rustix::fs::{Advice, FallocateFlags, FlockOperation, OFlags, fadvise, fallocate, fcntl_getfl, fcntl_setfl, flock};

use super::aligned::is_aligned;
use super::ring::Rings;
use super::{Aligned, BLOCK_BYTES, Device, ReadAt};

/// How the blocks of a new file come to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prepare {
    /// Reserved, not written: quick to make, but the first write to each place also changes the file system's own
    /// records.
    #[default]
    Allocated,
    /// Written once with zeros, so that no later write changes anything but the data.
    Written,
}

/// A file or a raw device, locked for as long as this is open.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    path: PathBuf,
    direct: bool,
    /// Held for one look. Whoever makes several reads takes it out meanwhile.
    rings: Mutex<Rings>,
}

impl FileDevice {
    /// Makes a file of `length` bytes, which must not exist. What was made is removed again when it fails.
    ///
    /// # Errors
    /// `AlreadyExists`, `StorageFull`, and what else the system says.
    pub fn create(path: &Path, length: u64, prepare: Prepare) -> io::Result<FileDevice> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        let device = FileDevice::of(file, path);
        let made = device.lock().and_then(|()| device.prepare(length, prepare));
        match made {
            Ok(()) => Ok(device.turn_direct()),
            Err(error) => {
                let _ = std::fs::remove_file(path);
                Err(error)
            }
        }
    }

    /// Opens a file or a raw device that exists.
    ///
    /// # Errors
    /// `ResourceBusy` when another process has it, and what else the system says.
    pub fn open(path: &Path) -> io::Result<FileDevice> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let device = FileDevice::of(file, path);
        device.lock()?;
        Ok(device.turn_direct())
    }

    /// The same, but for every read being made by itself, as where the system has no io_uring.
    pub fn without_ring(mut self) -> FileDevice {
        *self.rings.get_mut() = Rings::Without;
        self
    }

    fn of(file: File, path: &Path) -> FileDevice {
        FileDevice { file, path: path.to_owned(), direct: false, rings: Mutex::default() }
    }

    /// Whether reads and writes go past the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    fn lock(&self) -> io::Result<()> {
        match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => Err(io::ErrorKind::ResourceBusy.into()),
            outcome => Ok(outcome?),
        }
    }

    fn prepare(&self, length: u64, prepare: Prepare) -> io::Result<()> {
        match fallocate(&self.file, FallocateFlags::empty(), 0, length) {
            // Not every file system can reserve.
            Err(rustix::io::Errno::OPNOTSUPP) => self.file.set_len(length)?,
            outcome => outcome?,
        }
        if prepare == Prepare::Written {
            let zeros = vec![0; ZEROS_BYTES];
            let mut at = 0;
            while at < length {
                let count = zeros.len().min(usize::try_from(length - at).unwrap_or(usize::MAX));
                self.file.write_all_at(&zeros[..count], at)?;
                at += count as u64;
            }
        }
        self.file.sync_all()?;
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
    }

    /// Turns to direct I/O where a read shows that the system does it, else asks it not to read ahead.
    fn turn_direct(mut self) -> FileDevice {
        self.direct = self.try_direct().unwrap_or(false);
        if !self.direct {
            // A file system may accept the flag and refuse the reads.
            if let Ok(flags) = fcntl_getfl(&self.file) {
                let _ = fcntl_setfl(&self.file, flags - OFlags::DIRECT);
            }
            let _ = fadvise(&self.file, 0, None, Advice::Random);
        }
        self
    }

    fn try_direct(&self) -> io::Result<bool> {
        let flags = fcntl_getfl(&self.file)?;
        fcntl_setfl(&self.file, flags | OFlags::DIRECT)?;
        let mut probe = Aligned::zeroed(BLOCK_BYTES);
        self.file.read_at(&mut probe, 0)?;
        Ok(true)
    }
}

impl Device for FileDevice {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if self.direct && !is_aligned(buffer) {
            let mut own = Aligned::zeroed(buffer.len());
            self.file.read_exact_at(&mut own, offset)?;
            buffer.copy_from_slice(&own);
            return Ok(());
        }
        self.file.read_exact_at(buffer, offset)
    }

    fn read_each(&self, reads: &mut [ReadAt<'_>]) -> Vec<io::Result<()>> {
        let fits = reads.len() > 1 && (!self.direct || reads.iter().all(|read| is_aligned(read.buffer)));
        let read = fits.then(|| {
            // Who comes meanwhile goes without.
            let mut rings = std::mem::replace(&mut *self.rings.lock(), Rings::Without);
            let read = rings.read_each(&self.file, reads);
            if !matches!(rings, Rings::Without) {
                *self.rings.lock() = rings;
            }
            read
        });
        read.flatten().unwrap_or_else(|| reads.iter_mut().map(|read| self.read_at(read.buffer, read.offset)).collect())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.direct && !is_aligned(bytes) {
            let mut own = Aligned::zeroed(bytes.len());
            own.copy_from_slice(bytes);
            return self.file.write_all_at(&own, offset);
        }
        self.file.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn length(&self) -> io::Result<u64> {
        // A raw device says 0 where a file says its length.
        match self.file.metadata()?.len() {
            0 => (&self.file).seek(SeekFrom::End(0)),
            length => Ok(length),
        }
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }
}

impl Drop for FileDevice {
    fn drop(&mut self) {
        // Closing alone is not enough: a process that is just being started has a copy until it is under way.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

const ZEROS_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_from_aligned_and_other_memory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("volume");
        let device = FileDevice::create(&path, 1 << 20, Prepare::Written).unwrap();
        let content: Vec<u8> = (0..8192u32).map(|number| (number % 251) as u8).collect();
        device.write_at(&content, 4096).unwrap();
        let mut aligned = Aligned::zeroed(8192);
        device.read_at(&mut aligned, 4096).unwrap();
        assert_eq!(aligned[..], content[..]);
        let mut own = vec![0; 8193];
        device.read_at(&mut own[1..], 4096).unwrap();
        assert_eq!(own[1..], content[..]);
        assert_eq!(device.length().unwrap(), 1 << 20);
        assert!(device.read_at(&mut aligned, 1 << 20).is_err());
    }

    #[test]
    fn reads_at_once_bring_what_single_ones_do() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("volume");
        let device = FileDevice::create(&path, 1 << 20, Prepare::Written).unwrap();
        let blocks = (1usize << 20) / BLOCK_BYTES;
        for block in 0..blocks {
            device.write_at(&vec![block as u8; BLOCK_BYTES], (block * BLOCK_BYTES) as u64).unwrap();
        }
        let asked = |device: &FileDevice| {
            // More than a ring takes, of several lengths, the last two at the end and beyond it.
            let mut buffers: Vec<Aligned> = (0..100).map(|n| Aligned::zeroed((1 + n % 3) * BLOCK_BYTES)).collect();
            let last = (blocks - 1) * BLOCK_BYTES;
            let offset = |n: usize| if n >= 98 { last + (n - 98) * BLOCK_BYTES } else { n * 7 % 250 * BLOCK_BYTES };
            let reads = buffers.iter_mut().enumerate();
            let mut reads: Vec<_> = reads.map(|(n, buffer)| ReadAt { buffer, offset: offset(n) as u64 }).collect();
            let kinds = device.read_each(&mut reads).into_iter().map(|outcome| outcome.err().map(|e| e.kind()));
            let kinds: Vec<_> = kinds.collect();
            let bytes: Vec<Vec<u8>> = buffers.iter().map(|buffer| buffer.to_vec()).collect();
            (kinds, bytes)
        };
        let (kinds, bytes) = asked(&device);
        if matches!(*device.rings.lock(), Rings::Without) {
            eprintln!("skipped in part: this system gives no io_uring");
        }
        assert_eq!(kinds[..98], [None; 98]);
        assert_eq!(kinds[98..], [Some(io::ErrorKind::UnexpectedEof); 2], "three blocks where one is, and none");
        for (n, buffer) in bytes[..98].iter().enumerate() {
            let first = n * 7 % 250;
            let expected = (first..first + 1 + n % 3).flat_map(|block| [block as u8; BLOCK_BYTES]);
            assert!(buffer.iter().copied().eq(expected), "read {n}");
        }
        drop(device);
        let plain = FileDevice::open(&path).unwrap().without_ring();
        let (plain_kinds, plain_bytes) = asked(&plain);
        assert_eq!(plain_kinds, kinds);
        assert_eq!(plain_bytes[..98], bytes[..98]);
    }

    #[test]
    fn one_has_it_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("volume");
        let first = FileDevice::create(&path, 1 << 20, Prepare::Allocated).unwrap();
        assert_eq!(FileDevice::open(&path).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        drop(first);
        FileDevice::open(&path).unwrap();
        assert_eq!(
            FileDevice::create(&path, 4096, Prepare::Allocated).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        assert!(path.exists(), "what others made stays");
    }
}
