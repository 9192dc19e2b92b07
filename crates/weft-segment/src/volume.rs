//! The volume, as its users see it.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use bytes::Bytes;

use crate::affinity::Affinity;
use crate::core::Shared;
use crate::device::{Device, FileDevice, Prepare};
use crate::inspect::Findings;
use crate::options::{Class, Options, Packer, Stats};
use crate::reading::Keep;
use crate::superblock::{Shape, Superblock};
use crate::{Result, SegmentError, checkpoint, packer, recovery};

/// Small objects on one volume. All calls may come from any thread.
///
/// When it is dropped, everything that waits is written and a checkpoint made, so that the next start reads that alone.
#[derive(Debug)]
pub struct Volume {
    shared: Arc<Shared>,
    packer: Option<JoinHandle<()>>,
}

/// An object that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// What was put beside the content.
    pub attributes: Bytes,
    /// The content.
    pub content: Bytes,
}

/// What is known of a new object's use.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hints<'h> {
    /// The directory that it lies in, as the caller numbers them; 0 for none.
    pub directory: u64,
    /// Keys of objects that it refers to.
    pub links: &'h [&'h [u8]],
}

impl Volume {
    /// Makes a volume in a new file of `length` bytes, and opens it. What was made goes when it fails.
    ///
    /// # Errors
    /// `Io` when the file exists or the disk is full, `BadShape`.
    pub fn create(path: &Path, length: u64, prepare: Prepare, shape: &Shape, options: Options) -> Result<Volume> {
        let named = |source| SegmentError::Io { volume: path.display().to_string(), source };
        let device = FileDevice::create(path, length, prepare).map_err(named)?;
        let made = Volume::format(&device, shape).and_then(|()| Volume::open_on(Arc::new(device), options));
        if made.is_err() {
            let _ = std::fs::remove_file(path);
        }
        made
    }

    /// Opens the volume in a file or on a raw device.
    ///
    /// # Errors
    /// `InUse`, `NotAVolume`, `OtherFormat`, `OtherVolume`, `Io`.
    pub fn open(path: &Path, options: Options) -> Result<Volume> {
        let volume = || path.display().to_string();
        let device = FileDevice::open(path).map_err(|source| match source.kind() {
            io::ErrorKind::ResourceBusy => SegmentError::InUse { volume: volume() },
            _ => SegmentError::Io { volume: volume(), source },
        })?;
        Volume::open_on(Arc::new(device), options)
    }

    /// Makes an empty volume of what a device holds.
    ///
    /// # Errors
    /// `BadShape`, `Io`.
    pub fn format(device: &dyn Device, shape: &Shape) -> Result<()> {
        let volume = device.name();
        let hasher = RandomState::new();
        let named = |source| SegmentError::Io { volume: volume.clone(), source };
        let length = device.length().map_err(named)?;
        let block = Superblock::of_shape(shape, length, &volume, |salt| hasher.hash_one(salt))?;
        checkpoint::write_first(device, &block).and_then(|()| block.write(device, 0)).map_err(named)
    }

    /// Opens the volume on a device.
    ///
    /// # Errors
    /// `NotAVolume`, `OtherFormat`, `OtherVolume`, `Io`.
    pub fn open_on(device: Arc<dyn Device>, options: Options) -> Result<Volume> {
        let shared = Arc::new(recovery::open(device, options)?);
        let packer = match options.packer {
            Packer::Thread => Some(packer::start(&shared).map_err(|error| shared.io(error))?),
            Packer::Caller => None,
        };
        Ok(Volume { shared, packer })
    }

    /// Which volume it is.
    pub fn uuid(&self) -> u128 {
        self.shared.block.uuid
    }

    /// Longest content that it takes, in bytes: half a segment.
    pub fn content_bytes_max(&self) -> usize {
        usize::try_from(self.shared.block.segment_bytes / 2).expect("a segment is short")
    }

    /// The object of a key. One that is damaged is not held any more.
    ///
    /// # Errors
    /// `Io` when the device does not read.
    pub fn get(&self, key: &[u8]) -> Result<Option<Held>> {
        self.shared.get(key, Keep::Here)
    }

    /// The same, for a caller who keeps it as long as it is of use: memory is left to its neighbours.
    ///
    /// # Errors
    /// As of [`Volume::get`].
    pub fn take(&self, key: &[u8]) -> Result<Option<Held>> {
        self.shared.get(key, Keep::Elsewhere)
    }

    /// Whether there is an object of this key, or, very rarely, of another one with the same hash. Reads no disk.
    pub fn knows(&self, key: &[u8]) -> bool {
        self.shared.knows(key)
    }

    /// Keeps an object in place of a former one of the same key. It can be read at once.
    ///
    /// # Errors
    /// `TooLarge`, `Full`, `Failed`.
    pub fn put(&self, key: &[u8], attributes: &[u8], content: Bytes, hints: Hints<'_>, class: Class) -> Result<()> {
        self.shared.put(key, attributes, content, hints, class)
    }

    /// Drops an object; whether there was one. [`Class::Durable`] makes durable what was removed before as well.
    ///
    /// # Errors
    /// `Failed`; `Full` when the log has no room for it.
    pub fn remove(&self, key: &[u8], class: Class) -> Result<bool> {
        self.shared.remove(key, class)
    }

    /// Keeps an object from being evicted, or lets it go again; whether there is one. Durable with the next flush.
    ///
    /// # Errors
    /// `Failed`; `Full` when the log has no room for it.
    pub fn pin(&self, key: &[u8], pinned: bool) -> Result<bool> {
        self.shared.pin(key, pinned)
    }

    /// Says that objects are used together; they need not be here yet. Of the keys the part counts that groups go by
    /// ([`Options::group_part`]).
    pub fn hint(&self, affinity: Affinity, keys: &[&[u8]]) {
        let names: Vec<u64> = keys.iter().map(|key| self.shared.name_of(key)).collect();
        self.shared.groups.lock().add(affinity, &names);
    }

    /// Makes durable all that was put and removed before.
    ///
    /// # Errors
    /// `Full`, `Failed`.
    pub fn flush(&self) -> Result<()> {
        self.shared.flush()
    }

    /// Writes all that waits into segments, and a checkpoint.
    ///
    /// # Errors
    /// `Full`, `Failed`.
    pub fn checkpoint(&self) -> Result<()> {
        self.shared.checkpoint()
    }

    /// Waits until the search through the segments, after both checkpoints were lost, has come to its end.
    pub fn wait_for_scan(&self) {
        self.shared.wait_for_scan();
    }

    /// Tells key and attributes of every object in a segment, in no order, with their contents read and checked.
    ///
    /// # Errors
    /// `Io` when the device does not read.
    pub fn for_each(&self, tell: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        self.shared.for_each(tell)
    }

    /// Reads everything and tells what is damaged; changes nothing.
    ///
    /// # Errors
    /// `Io` when the device does not read.
    pub fn check(&self) -> Result<Findings> {
        self.shared.check()
    }

    /// Drops the objects that are damaged, and writes a new checkpoint; tells what was damaged.
    ///
    /// # Errors
    /// `Io` when the device does not read, `Failed`.
    pub fn repair(&self) -> Result<Findings> {
        self.shared.repair()
    }

    /// What it holds and has done.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        self.shared.core.lock().stop = true;
        self.shared.work.notify_all();
        if let Some(packer) = self.packer.take() {
            let _ = packer.join();
        }
        // What cannot be written now the next start finds in the log, as far as it was promised.
        let _ = self.shared.write_checkpoint();
    }
}
