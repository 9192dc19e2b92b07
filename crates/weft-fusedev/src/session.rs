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
use crate::flags::InitFlags;
use crate::init::{Answer, InitError, Negotiated, Wanted, negotiate};
use crate::notify::Notifier;
use crate::ring::{RingLimits, Rings};
use crate::serve::Serve;
use crate::transport::{RingError, Transport};

/// A connection on which both sides have agreed. It ends when the last of those who hold the descriptor lets go of it:
/// this, what serves it, its notifiers and backing files.
#[derive(Debug)]
pub struct Session {
    device: Arc<Device>,
    negotiated: Negotiated,
    rings: Option<Rings>,
    missing: Option<RingError>,
}

impl Session {
    /// Begins a connection on a descriptor that [`mount`](crate::mount()) gave: reads the kernel's first request and
    /// answers it. All requests come over the device.
    ///
    /// # Errors
    /// [`InitError`]: the kernel is too old, or the descriptor is not that of a new mount.
    pub fn begin(fd: OwnedFd, wanted: &Wanted) -> Result<Session, InitError> {
        Session::begin_over(fd, wanted, Transport::Classic, RingLimits::default())
    }

    /// As [`Session::begin`], with requests that come as `transport` says. Over io_uring, requests and answers have at
    /// most [`RingLimits::PAYLOAD_BYTES_MAX`] bytes, whatever is wanted.
    ///
    /// # Errors
    /// As [`Session::begin`]; [`InitError::NoRing`] when it shall be io_uring and cannot be.
    pub fn begin_over(
        fd: OwnedFd,
        wanted: &Wanted,
        transport: Transport,
        limits: RingLimits,
    ) -> Result<Session, InitError> {
        let device = Device::new(fd);
        let mut buffer = RequestBuffer::new(FIRST_REQUEST_BYTES);
        loop {
            let length = device.read_one(buffer.bytes_mut())?;
            let Ok(Incoming::Init { header, offer }) = decode(&buffer.bytes()[..length]) else {
                return Err(InitError::NotInit);
            };
            let io = |error: Errno| InitError::Io(error.into());
            let offered = InitFlags(offer.flags).contains(InitFlags::OVER_IO_URING);
            let (wanted, rings, missing) = match rings_for(offered, wanted, transport, limits) {
                Ok((wanted, rings)) => (wanted, rings, None),
                Err(error) if transport == Transport::IoUring => {
                    // The mount is of no use: say so, that nobody waits in it.
                    let _ = device.write(header.unique, -Errno::OPNOTSUPP.raw_os_error(), &[]);
                    return Err(error.into());
                }
                Err(error) => (without_rings(wanted), None, Some(error)),
            };
            match negotiate(&offer, &wanted) {
                Answer::Agreed(negotiated, out) => {
                    device.write(header.unique, 0, &[out.as_bytes()]).map_err(io)?;
                    return Ok(Session { device: Arc::new(device), negotiated, rings, missing });
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
    ///
    /// A connection whose requests came over io_uring cannot be taken over: what its server had in its rings does not
    /// come again (`fuse_resend` in fs/fuse/dev.c knows the device's requests alone), and the kernel never goes back
    /// to the device.
    pub fn take_over(fd: OwnedFd, negotiated: Negotiated) -> Session {
        Session { device: Arc::new(Device::new(fd)), negotiated, rings: None, missing: None }
    }

    /// Whether requests will come over io_uring.
    pub fn has_rings(&self) -> bool {
        self.rings.is_some()
    }

    /// Why requests come over the device although they might have come over io_uring ([`Transport::Auto`]).
    pub fn rings_missing(&self) -> Option<&RingError> {
        self.missing.as_ref()
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
    /// share the one descriptor. With rings there is a thread for each CPU, and one that reads what does not come over
    /// rings. When rings turn out not to work, everything comes over the device ([`Serving::rings_missing`]).
    ///
    /// # Errors
    /// When a thread cannot be started: those that were end when the mount does.
    pub fn serve<S: Serve>(self, serve: Arc<S>, threads: usize, name: &str) -> io::Result<Serving> {
        let Session { device, negotiated, rings, mut missing } = self;
        let mut running = None;
        if let Some(rings) = rings {
            match rings.start(&device, &serve, name) {
                Ok(started) => running = Some(started),
                Err(error) => missing = Some(error),
            }
        }
        let has_rings = running.is_some();
        let threads_classic = if has_rings { 1 } else { threads };
        let (stop, rings) = running.map(|running| (running.stop, running.threads)).unzip();
        let mut threads = classic::start(&device, &negotiated, &serve, threads_classic, name, stop)?;
        threads.extend(rings.into_iter().flatten());
        Ok(Serving { device, threads, has_rings, missing })
    }
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The last mount of it is gone.
    Unmounted,
    /// It was aborted through the control file system (fusectl), and whoever uses the mount gets `ENOTCONN`; told where
    /// `ABORT_ERROR` was agreed on.
    Aborted,
}

/// A connection that is being served.
#[derive(Debug)]
pub struct Serving {
    device: Arc<Device>,
    threads: Vec<std::thread::JoinHandle<io::Result<End>>>,
    has_rings: bool,
    missing: Option<RingError>,
}

/// What is wanted of a connection with rings, and the rings; or without, when that is wanted.
fn rings_for(
    offered: bool,
    wanted: &Wanted,
    transport: Transport,
    limits: RingLimits,
) -> Result<(Wanted, Option<Rings>), RingError> {
    if transport == Transport::Classic {
        return Ok((without_rings(wanted), None));
    }
    if !offered {
        return Err(RingError::NotOffered);
    }
    let max_write = wanted.max_write.min(RingLimits::PAYLOAD_BYTES_MAX);
    let rings = Rings::prepare(limits, max_write)?;
    Ok((Wanted { flags: wanted.flags | InitFlags::OVER_IO_URING, max_write, ..*wanted }, Some(rings)))
}

fn without_rings(wanted: &Wanted) -> Wanted {
    Wanted { flags: wanted.flags.without(InitFlags::OVER_IO_URING), ..*wanted }
}

impl Serving {
    /// Whether requests come over io_uring.
    pub fn has_rings(&self) -> bool {
        self.has_rings
    }

    /// Why requests come over the device although they might have come over io_uring.
    pub fn rings_missing(&self) -> Option<&RingError> {
        self.missing.as_ref()
    }

    /// What went unusual ways so far.
    pub fn counts(&self) -> Counts {
        self.device.counters.read()
    }

    /// A view of the counts that outlives this.
    pub fn watch(&self) -> Watch {
        Watch(self.device.clone())
    }

    /// Waits until the connection has ended; how it did.
    ///
    /// # Errors
    /// When reading requests failed in a way that does not mean the end of the mount.
    pub fn join(self) -> io::Result<End> {
        let mut outcome = Ok(End::Unmounted);
        for thread in self.threads {
            let ended = thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread that read requests panicked")));
            outcome = match (outcome, ended) {
                (Err(error), _) | (Ok(_), Err(error)) => Err(error),
                (Ok(End::Unmounted), Ok(end)) => Ok(end),
                (Ok(End::Aborted), Ok(_)) => Ok(End::Aborted),
            };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::Curious;
    use crate::mount::{MountOptions, mount, unmount};
    use crate::transport::PARAMETER;

    /// Goal: when the kernel refuses the entries of rings after it was told that there are some, requests come over the
    /// device, and nobody waits for rings. Method: entries with less room than the kernel wants.
    #[test]
    fn refused_rings_leave_the_device() {
        let _switch = Switch::on();
        if let Err(why) = RingError::check() {
            return println!("skipped: {why}");
        }
        let folder = tempfile::tempdir().expect("a folder");
        let options = MountOptions {
            mountpoint: folder.path().to_owned(),
            source: "refused".to_owned(),
            subtype: "fusedev".to_owned(),
            allow_other: false,
            check_permissions: true,
            read_only: true,
            exec: false,
            atime: false,
            sync: false,
        };
        let device = match mount(&options) {
            Ok(device) => device,
            Err(why) => return println!("skipped: nothing can be mounted here: {why}"),
        };
        let limits = RingLimits { entries: 2 };
        let begun = Session::begin_over(device, &Wanted::default(), Transport::IoUring, limits);
        let outcome = begun.map(|mut session| {
            session.rings.as_mut().expect("it has rings").shorten();
            let serving = session.serve(Arc::new(Curious), 1, "test").expect("threads start");
            let space = rustix::fs::statvfs(folder.path());
            (serving.has_rings(), serving.rings_missing().map(ToString::to_string), space.is_ok(), serving)
        });
        unmount(folder.path(), true).expect("unmounted");
        let (has_rings, missing, answered, serving) = outcome.expect("the connection begins");
        assert!(!has_rings && answered);
        assert!(missing.is_some_and(|why| why.contains("refused") && why.contains("transport=classic")));
        assert_eq!(serving.join().expect("it ends"), End::Unmounted);
    }

    /// Has the kernel offer io_uring where this process may say so, and leaves the switch as it was found.
    struct Switch(Option<String>);

    impl Switch {
        fn on() -> Switch {
            let found = std::fs::read_to_string(PARAMETER).ok();
            Switch(found.filter(|_| std::fs::write(PARAMETER, "Y").is_ok()))
        }
    }

    impl Drop for Switch {
        fn drop(&mut self) {
            self.0.take().map(|found| std::fs::write(PARAMETER, found.trim()));
        }
    }
}
