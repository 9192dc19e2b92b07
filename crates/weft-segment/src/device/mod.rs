//! The one way to the disk: every read, write and sync of a volume passes this trait.

mod aligned;
mod file;
mod memory;
mod recorder;
mod ring;
mod rotating;
mod sys;

use std::fmt::Debug;
use std::io;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

pub use aligned::Aligned;
pub use file::{FileDevice, Prepare};
pub use memory::MemoryDevice;
pub use recorder::{Recorder, Tear};
pub use rotating::{Head, Rotating};

/// Unit of every read and write, in bytes.
pub const BLOCK_BYTES: usize = 4096;

/// Where a volume lies. Offsets and lengths of reads and writes are multiples of [`BLOCK_BYTES`].
pub trait Device: Send + Sync + Debug {
    /// Fills `buffer` from `offset` on.
    ///
    /// # Errors
    /// What the system said; `UnexpectedEof` beyond the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Makes several reads, at the same time where the device can, and says of each what came of it as
    /// [`Device::read_at`] does.
    fn read_each(&self, reads: &mut [ReadAt<'_>]) -> Vec<io::Result<()>> {
        reads.iter_mut().map(|read| self.read_at(read.buffer, read.offset)).collect()
    }

    /// Writes all of `bytes` at `offset`. Durable after the next [`Device::sync`]; until then a crash may leave any
    /// part of it.
    ///
    /// # Errors
    /// What the system said.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes durable what was written before.
    ///
    /// # Errors
    /// What the system said.
    fn sync(&self) -> io::Result<()>;

    /// Length in bytes.
    ///
    /// # Errors
    /// What the system said.
    fn length(&self) -> io::Result<u64>;

    /// Its name in messages: a path where it has one.
    fn name(&self) -> String;

    /// The time that its costs are measured by; a model may have a clock of its own.
    fn clock(&self) -> Duration {
        START.elapsed()
    }
}

/// One of several reads.
#[derive(Debug)]
pub struct ReadAt<'b> {
    /// What is filled.
    pub buffer: &'b mut [u8],
    /// From where on.
    pub offset: u64,
}

static START: LazyLock<Instant> = LazyLock::new(Instant::now);
