//! The descriptor of `/dev/fuse` that belongs to one mount.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::abi;
use crate::reply::{Body, Delivery};
use crate::splice::{self, Part, Spliced};

/// The connection to the kernel, shared by all who read, answer or notify. It is never cloned
/// (`FUSE_DEV_IOC_CLONE`): what was read through a clone ends with it, and could not be sent again.
#[derive(Debug)]
pub(crate) struct Device {
    fd: OwnedFd,
    pub(crate) counters: Counters,
}

/// What went unusual ways on one connection.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) unknown: AtomicU64,
    pub(crate) malformed: AtomicU64,
    pub(crate) interrupts: AtomicU64,
    pub(crate) gone: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) panics: AtomicU64,
    pub(crate) resent: AtomicU64,
    pub(crate) rings_full: AtomicU64,
}

/// What went unusual ways on one connection so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests of kinds that this crate does not know or refuses, answered `ENOSYS`.
    pub unknown: u64,
    /// Requests that are not as the protocol has them, answered `EIO`.
    pub malformed: u64,
    /// Interrupts that the kernel sent.
    pub interrupts: u64,
    /// Answers that the kernel did not want any more.
    pub gone: u64,
    /// Answers that the kernel took for wrong; the request got `EIO`.
    pub refused: u64,
    /// Requests whose handling panicked, answered `EIO`.
    pub panics: u64,
    /// Requests that came again.
    pub resent: u64,
    /// Times a queue of io_uring had as many requests waiting as it may hold, so that others had to wait for them.
    pub rings_full: u64,
}

impl Device {
    pub(crate) fn new(fd: OwnedFd) -> Device {
        Device { fd, counters: Counters::default() }
    }

    /// Reads one request. A message is read whole or not at all.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        rustix::io::read(&self.fd, buffer)
    }

    /// Waits until something can be read, on a descriptor that does not wait by itself.
    pub(crate) fn wait_readable(&self) -> Result<(), Errno> {
        let mut fds = [rustix::event::PollFd::new(&self.fd, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut fds, None).map(|_| ())
    }

    /// Whether something can be read now. Also where reading would fail: then that says how.
    pub(crate) fn is_readable(&self) -> bool {
        let mut fds = [rustix::event::PollFd::new(&self.fd, rustix::event::PollFlags::IN)];
        !matches!(rustix::event::poll(&mut fds, Some(&rustix::event::Timespec::default())), Ok(0))
    }

    /// Sends the answer to a request.
    pub(crate) fn answer(&self, unique: u64, errno: i32, body: Body<'_>) -> Delivery {
        let pieces = match body {
            Body::Pieces(pieces) => pieces,
            // The device has no room of its own to build in.
            Body::InPlace(_) => &[],
        };
        match self.write(unique, errno.wrapping_neg(), pieces) {
            Ok(()) => Delivery::Delivered,
            // Aborted (ENOENT) or unmounted.
            Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED) => {
                self.counters.gone.fetch_add(1, Ordering::Relaxed);
                Delivery::Gone
            }
            Err(_) => {
                self.counters.refused.fetch_add(1, Ordering::Relaxed);
                let _ = self.write(unique, -Errno::IO.raw_os_error(), &[]);
                Delivery::Gone
            }
        }
    }

    /// Sends a part of a file as the answer to a request. What the system says when the file does not have it; then
    /// nothing was sent.
    pub(crate) fn answer_part(&self, unique: u64, part: &Part<'_>) -> io::Result<Delivery> {
        let length = u32::try_from(size_of::<abi::OutHeader>() + part.length).map_err(io::Error::other)?;
        let header = abi::OutHeader { len: length, error: 0, unique };
        match splice::send(self.as_fd(), &header, part) {
            Spliced::Told(Ok(())) => Ok(Delivery::Delivered),
            Spliced::Told(Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED)) => {
                self.counters.gone.fetch_add(1, Ordering::Relaxed);
                Ok(Delivery::Gone)
            }
            Spliced::Told(Err(_)) | Spliced::Unfit => Ok(self.answer(unique, 0, Body::Pieces(&[&part.read()?]))),
        }
    }

    /// Writes one message: `error` is 0, a negated errno, or the code of a notice (which has no number).
    pub(crate) fn write(&self, unique: u64, error: i32, pieces: &[&[u8]]) -> Result<(), Errno> {
        let length = size_of::<abi::OutHeader>() + pieces.iter().map(|piece| piece.len()).sum::<usize>();
        let len = u32::try_from(length).map_err(|_| Errno::TOOBIG)?;
        let header = abi::OutHeader { len, error, unique };
        let mut slices = [IoSlice::new(&[]); PIECES_MAX + 1];
        slices[0] = IoSlice::new(header.as_bytes());
        let rest = slices.get_mut(1..=pieces.len()).ok_or(Errno::TOOBIG)?;
        for (slice, piece) in rest.iter_mut().zip(pieces) {
            *slice = IoSlice::new(piece);
        }
        loop {
            match rustix::io::writev(&self.fd, &slices[..=pieces.len()]) {
                Err(Errno::INTR) => {}
                written => return written.map(|_| ()),
            }
        }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Counters {
    pub(crate) fn read(&self) -> Counts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            unknown: of(&self.unknown),
            malformed: of(&self.malformed),
            interrupts: of(&self.interrupts),
            gone: of(&self.gone),
            refused: of(&self.refused),
            panics: of(&self.panics),
            resent: of(&self.resent),
            rings_full: of(&self.rings_full),
        }
    }
}

/// Pieces of one message.
const PIECES_MAX: usize = 8;
