//! Reads of a file that are under way at the same time: io_uring, from one thread.
//!
//! Measured, a single read is no faster by a ring than by a plain call; many at once are, for the disk then has
//! something to do while the last answer is looked at. So rings are for [`super::Device::read_each`] alone.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use super::ReadAt;
use super::sys::Ring;

/// The ring of one file, made when it is first wanted.
#[derive(Debug, Default)]
pub(super) enum Rings {
    #[default]
    Unmade,
    Made(Box<Ring>),
    /// The system has none for us (old, or forbidden by the host), or none is wanted.
    Without,
}

impl Rings {
    /// Fills all of `reads`; `None` without a ring: then nothing was read. What a read that was cut short lacks is
    /// read by plain calls.
    pub(super) fn read_each(&mut self, file: &File, reads: &mut [ReadAt<'_>]) -> Option<Vec<io::Result<()>>> {
        if matches!(self, Rings::Unmade) {
            *self = Ring::new(DEPTH).map_or(Rings::Without, |ring| Rings::Made(Box::new(ring)));
        }
        let Rings::Made(ring) = self else { return None };
        let mut outcomes = Vec::with_capacity(reads.len());
        for part in reads.chunks_mut(DEPTH as usize) {
            let counts = ring.read(file.as_raw_fd(), part);
            outcomes.extend(part.iter_mut().zip(counts).map(|(read, count)| complete(file, read, count)));
        }
        Some(outcomes)
    }
}

/// Reads what a ring has left out. `count` is how many bytes it read, or a negated errno.
fn complete(file: &File, read: &mut ReadAt<'_>, count: i32) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    let done = match usize::try_from(count) {
        Ok(done) => done.min(read.buffer.len()),
        // The plain call says whether it was the ring's own trouble (a short queue, an interruption).
        Err(_) => 0,
    };
    if done == read.buffer.len() {
        return Ok(());
    }
    // From a block on, as direct I/O wants it.
    let from = done - done % super::BLOCK_BYTES;
    file.read_exact_at(&mut read.buffer[from..], read.offset + from as u64)
}

/// Reads that are under way at once.
pub(super) const DEPTH: u32 = 32;
