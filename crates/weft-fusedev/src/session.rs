//! A connection to the kernel, from its first request to its end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::backing::Backings;
use crate::classic::{self, RequestBuffer};
use crate::decode::{Incoming, decode};
use crate::device::{Counts, Device};
use crate::init::{Answer, InitError, Negotiated, Wanted, negotiate};
use crate::notify::Notifier;
use crate::serve::Serve;

/// A connection on which both sides have agreed. It ends when the last of those who hold the descriptor lets go of it:
/// this, what serves it, its notifiers and backing files.
#[derive(Debug)]
pub struct Session {
    device: Arc<Device>,
    negotiated: Negotiated,
}

impl Session {
    /// Begins a connection on a descriptor that [`mount`](crate::mount()) gave: reads the kernel's first request and
    /// answers it.
    ///
    /// # Errors
    /// [`InitError`]: the kernel is too old, or the descriptor is not that of a new mount.
    pub fn begin(fd: OwnedFd, wanted: &Wanted) -> Result<Session, InitError> {
        let device = Device::new(fd);
        let mut buffer = RequestBuffer::new(FIRST_REQUEST_BYTES);
        loop {
            let length = device.read_one(buffer.bytes_mut())?;
            let Ok(Incoming::Init { header, offer }) = decode(&buffer.bytes()[..length]) else {
                return Err(InitError::NotInit);
            };
            let io = |error: Errno| InitError::Io(error.into());
            match negotiate(&offer, wanted) {
                Answer::Agreed(negotiated, out) => {
                    device.write(header.unique, 0, &[out.as_bytes()]).map_err(io)?;
                    return Ok(Session { device: Arc::new(device), negotiated });
                }
                Answer::OurMajor(out) => device.write(header.unique, 0, &[out.as_bytes()]).map_err(io)?,
                Answer::TooOld => {
                    // The mount is of no use: say so, that nobody waits in it.
                    let _ = device.write(header.unique, -Errno::PROTO.raw_os_error(), &[]);
                    return Err(InitError::TooOld { major: offer.major, minor: offer.minor });
                }
            }
        }
    }

    /// Takes over a connection that began before, in this process or another: `negotiated` is what was agreed on then.
    /// What the former server had read and not answered comes again after [`Notifier::resend`].
    pub fn take_over(fd: OwnedFd, negotiated: Negotiated) -> Session {
        Session { device: Arc::new(Device::new(fd)), negotiated }
    }

    /// What was agreed on.
    pub fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    /// Tells the kernel what to forget.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(self.device.clone(), self.negotiated)
    }

    /// Makes files that the kernel reads by itself.
    pub fn backings(&self) -> Backings {
        Backings::new(self.device.clone())
    }

    /// Serves with `threads` threads that read requests (at least one), each called `name` and a number. Several
    /// share the one descriptor.
    ///
    /// # Errors
    /// When a thread cannot be started: those that were end when the mount does.
    pub fn serve<S: Serve>(self, serve: Arc<S>, threads: usize, name: &str) -> io::Result<Serving> {
        let threads = classic::start(&self.device, &self.negotiated, &serve, threads, name)?;
        Ok(Serving { device: self.device, threads })
    }
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

/// A connection that is being served.
#[derive(Debug)]
pub struct Serving {
    device: Arc<Device>,
    threads: Vec<std::thread::JoinHandle<io::Result<()>>>,
}

impl Serving {
    /// What went unusual ways so far.
    pub fn counts(&self) -> Counts {
        self.device.counters.read()
    }

    /// A view of the counts that outlives this.
    pub fn watch(&self) -> Watch {
        Watch(self.device.clone())
    }

    /// Waits until the mount is gone.
    ///
    /// # Errors
    /// When reading requests failed in a way that does not mean the end of the mount.
    pub fn join(self) -> io::Result<()> {
        let mut outcome = Ok(());
        for thread in self.threads {
            let ended = thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread that read requests panicked")));
            outcome = outcome.and(ended);
        }
        outcome
    }
}

impl AsFd for Serving {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

/// The counts of a connection, whoever serves it.
#[derive(Clone, Debug)]
pub struct Watch(Arc<Device>);

impl Watch {
    /// What went unusual ways so far.
    pub fn counts(&self) -> Counts {
        self.0.counters.read()
    }
}

/// Room for INIT: the least that the kernel accepts (`FUSE_MIN_READ_BUFFER`).
const FIRST_REQUEST_BYTES: usize = 8192;
