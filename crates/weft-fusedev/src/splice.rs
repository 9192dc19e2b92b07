//! Bytes of a file on their way to the kernel: through a pipe, not through memory of this process.
//!
//! A pipe takes the pages of the file as they lie in the page cache (splice(2)), and `/dev/fuse` copies from them
//! (`fuse_dev_splice_write`): one copy, where reading and writing make two.

use std::cell::RefCell;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, splice};
use zerocopy::IntoBytes;

use crate::abi::OutHeader;

/// So many bytes of a file from a place on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    pub(crate) file: BorrowedFd<'a>,
    pub(crate) offset: u64,
    pub(crate) length: usize,
}

/// What became of a message.
#[derive(Debug)]
pub(crate) enum Spliced {
    /// The kernel's word on it.
    Told(Result<(), Errno>),
    /// It did not go this way, and may go another.
    Unfit,
}

/// How long reads are to be so that their answers find room in a pipe; `None` where the longest do, or where short ones
/// hardly would. Root in a container without `CAP_SYS_RESOURCE` and everybody else may have pipes of 1 MiB
/// (/proc/sys/fs/pipe-max-size), which is just too short for the longest read and its header.
pub(crate) fn read_bytes_max() -> Option<usize> {
    let pipe = Pipe::new().ok()?;
    if pipe.takes(READ_BYTES_MAX) {
        return None;
    }
    (0..)
        .map(|halvings| READ_BYTES_MAX >> halvings)
        .take_while(|bytes| *bytes >= READ_BYTES_MIN)
        .find(|bytes| pipe.takes(*bytes))
}

/// Sends a header, and behind it a part of a file.
pub(crate) fn send(device: BorrowedFd<'_>, header: &OutHeader, part: &Part<'_>) -> Spliced {
    if part.length < LENGTH_MIN {
        return Spliced::Unfit;
    }
    PIPE.with_borrow_mut(|kept| {
        // What went wrong may have left something in the pipe.
        let Some(pipe) = kept.take().or_else(|| Pipe::new().ok()) else { return Spliced::Unfit };
        if !pipe.takes(part.length) {
            *kept = Some(pipe);
            return Spliced::Unfit;
        }
        if pipe.fill(header, part).is_err() {
            return Spliced::Unfit;
        }
        let told = pipe.empty(device, size_of::<OutHeader>() + part.length);
        if told.is_ok() {
            *kept = Some(pipe);
        }
        Spliced::Told(told)
    })
}

impl Part<'_> {
    /// Reads it all.
    pub(crate) fn read(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(self.length);
        while bytes.len() < self.length {
            let next = self.offset + bytes.len() as u64;
            match rustix::io::pread(self.file, rustix::buffer::spare_capacity(&mut bytes), next) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        bytes.truncate(self.length);
        Ok(bytes)
    }

    /// Reads it all to the beginning of `room`, which is long enough.
    pub(crate) fn read_to(&self, room: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < self.length {
            match rustix::io::pread(self.file, &mut room[done..self.length], self.offset + done as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// A pipe that one thread uses, empty between two messages.
#[derive(Debug)]
struct Pipe {
    from: OwnedFd,
    to: OwnedFd,
    bytes: usize,
}

impl Pipe {
    fn new() -> Result<Pipe, Errno> {
        let (from, to) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // An ordinary user may have no more than /proc/sys/fs/pipe-max-size: then it stays as it was made.
        let wider = PIPE_BYTES.iter().any(|bytes| fcntl_setpipe_size(&to, *bytes).is_ok());
        let bytes = if wider { fcntl_getpipe_size(&to)? } else { PIPE_BYTES_PLAIN };
        Ok(Pipe { from, to, bytes })
    }

    /// Whether a part of a file finds room: a page of it takes a slot, two that are not whole do so at its ends, and
    /// the header takes one.
    fn takes(&self, length: usize) -> bool {
        length + 3 * PAGE_BYTES <= self.bytes
    }

    fn fill(&self, header: &OutHeader, part: &Part<'_>) -> Result<(), Errno> {
        let written = rustix::io::write(&self.to, header.as_bytes())?;
        if written != size_of::<OutHeader>() {
            return Err(Errno::IO);
        }
        let (mut offset, mut left) = (part.offset, part.length);
        while left > 0 {
            match splice(part.file, Some(&mut offset), &self.to, None, left, SpliceFlags::NONBLOCK) {
                Ok(0) => return Err(Errno::IO),
                Ok(count) => left -= count,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn empty(&self, device: BorrowedFd<'_>, length: usize) -> Result<(), Errno> {
        loop {
            // The pages are the file's and stay so: none is moved.
            match splice(&self.from, None, device, None, length, SpliceFlags::empty()) {
                Ok(sent) if sent == length => return Ok(()),
                Ok(_) => return Err(Errno::IO),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

thread_local! {
    static PIPE: RefCell<Option<Pipe>> = const { RefCell::new(None) };
}

/// What a pipe is asked to hold, best first.
const PIPE_BYTES: [usize; 2] = [2 << 20, 1 << 20];
/// What it holds unasked at the least: two pages (pipe(7), `pipe-user-pages-soft`).
const PIPE_BYTES_PLAIN: usize = 2 * PAGE_BYTES;
const PAGE_BYTES: usize = 4096;
/// Longest read that the kernel asks for unless its administrator allows more: 256 pages (fs.fuse.max_pages_limit).
const READ_BYTES_MAX: usize = 1 << 20;
/// Shorter ones for the sake of the pipe would cost more calls than the copy saves.
const READ_BYTES_MIN: usize = 256 << 10;
/// Copying so little twice costs less than the calls.
const LENGTH_MIN: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_as_long_as_a_pipe_takes_their_answers() {
        let pipe = Pipe::new().unwrap();
        match read_bytes_max() {
            Some(bytes) => assert!(pipe.takes(bytes) && !pipe.takes(2 * bytes), "{bytes} of {}", pipe.bytes),
            None => assert!(pipe.takes(READ_BYTES_MAX) || !pipe.takes(READ_BYTES_MIN), "{}", pipe.bytes),
        }
    }
}
