//! The one place of this crate with unsafe code: reads by io_uring into memory that is borrowed.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::RawFd;

use io_uring::{IoUring, opcode, types};
use rustix::io::Errno;

use super::ReadAt;

/// A ring that one thread uses at a time. Nothing is under way between two calls.
pub(super) struct Ring {
    ring: IoUring,
}

impl Ring {
    /// A ring for so many reads at once, that works: a host may let rings be made and forbid their use.
    ///
    /// # Errors
    /// What the system says where it has none, or none for this process.
    pub(super) fn new(depth: u32) -> io::Result<Ring> {
        let mut ring = IoUring::new(depth)?;
        // SAFETY: it does nothing, with no memory and no descriptor.
        unsafe { ring.submission().push(&opcode::Nop::new().build()) }.map_err(io::Error::other)?;
        ring.submit_and_wait(1)?;
        let works = ring.completion().next().is_some_and(|end| end.result() == 0);
        works.then_some(Ring { ring }).ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// Makes reads, no more than the ring is deep, and waits for all of them. Gives for each how many bytes came, or a
    /// negated errno; `-EAGAIN` for those that were not made.
    pub(super) fn read(&mut self, fd: RawFd, reads: &mut [ReadAt<'_>]) -> Vec<i32> {
        let mut counts = vec![-Errno::AGAIN.raw_os_error(); reads.len()];
        let mut under_way = 0usize;
        for (read, number) in reads.iter_mut().zip(0u64..) {
            let length = u32::try_from(read.buffer.len()).unwrap_or(u32::MAX);
            let entry = opcode::Read::new(types::Fd(fd), read.buffer.as_mut_ptr(), length).offset(read.offset);
            // SAFETY: the descriptor is open and the memory borrowed, for writing and by nobody else, until this function
            // returns, which it does only when every read that was pushed has ended.
            match unsafe { self.ring.submission().push(&entry.build().user_data(number)) } {
                Ok(()) => under_way += 1,
                Err(_) => break,
            }
        }
        while under_way > 0 {
            if self.ring.submit_and_wait(1).is_err() {
                // Interrupted, or short of memory for a moment. The kernel may have the buffers: there is no way but on.
                std::thread::yield_now();
            }
            for end in self.ring.completion() {
                if let Some(count) = usize::try_from(end.user_data()).ok().and_then(|at| counts.get_mut(at)) {
                    *count = end.result();
                }
                under_way -= 1;
            }
        }
        counts
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").finish_non_exhaustive()
    }
}
