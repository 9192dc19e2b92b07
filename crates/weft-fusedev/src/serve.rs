//! What a server is, whatever transport brings the requests.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use rustix::io::Errno;

use crate::decode::{Incoming, Malformed};
use crate::device::{Counters, Device};
use crate::reply::{Reply, Source};
use crate::request::Request;

/// A file system that is asked. Called by several threads at once; what must wait for something slow goes elsewhere
/// with its reply, for the thread that calls is one of those that read requests.
pub trait Serve: Send + Sync + 'static {
    /// A request. What is not known is answered with `ENOSYS`.
    fn serve(&self, request: Request<'_>, reply: Reply);

    /// The kernel gives back so many lookups of an inode.
    fn forget(&self, _node: u64, _lookups: u64) {}

    /// Somebody who waits for the request with this number has a signal. The request is still to be answered, with
    /// `EINTR` when it ends without having changed anything.
    ///
    /// The number may be of a request that is not known yet, for an interrupt can be read by another thread before its
    /// request has got anywhere, or of one that is answered already. [`Waiting`](crate::Waiting) keeps such books.
    fn interrupt(&self, unique: u64) -> Interrupted;

    /// The file system ends.
    fn destroy(&self) {}
}

/// What became of an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupted {
    /// It arrived, or is remembered.
    Taken,
    /// It is not known what it is about: the kernel sends it again while its request is not answered (`EAGAIN`,
    /// Documentation/filesystems/fuse.rst). A server that always says so keeps the kernel busy.
    Again,
}

/// Hands one message on. `source` makes the way back of a request's answer.
pub(crate) fn dispatch<S: Serve>(
    serve: &S,
    device: &Device,
    message: Result<Incoming<'_>, Malformed>,
    source: impl FnOnce() -> Source,
) {
    let counters = &device.counters;
    let count = |counter: &std::sync::atomic::AtomicU64| {
        counter.fetch_add(1, Ordering::Relaxed);
    };
    match message {
        Ok(Incoming::Request(request)) => {
            let header = request.header;
            if header.is_resent() {
                count(&counters.resent);
            }
            let reply = Reply::from_source(header.unique, header.opcode, source());
            guarded(counters, || serve.serve(request, reply));
        }
        Ok(Incoming::Forget(forgets)) => {
            guarded(counters, || forgets.each(|node, lookups| serve.forget(node, lookups)));
        }
        Ok(Incoming::Interrupt { interrupt, unique }) => {
            count(&counters.interrupts);
            let mut outcome = Interrupted::Taken;
            guarded(counters, || outcome = serve.interrupt(unique));
            if outcome == Interrupted::Again {
                // The answer fails with ENOENT when the request has been answered meanwhile: all is well then.
                let _ = device.write(interrupt.unique, -Errno::AGAIN.raw_os_error(), &[]);
            }
        }
        Ok(Incoming::Destroy(header)) => {
            guarded(counters, || serve.destroy());
            if header.unique != 0 {
                Reply::from_source(header.unique, header.opcode, source()).done();
            }
        }
        // A second INIT means nothing: the connection has begun.
        Ok(Incoming::Unknown(header) | Incoming::Init { header, .. }) => {
            count(&counters.unknown);
            if header.unique != 0 {
                Reply::from_source(header.unique, header.opcode, source()).error(Errno::NOSYS.raw_os_error());
            }
        }
        Ok(Incoming::NotifyReply) => count(&counters.unknown),
        Err(Malformed { unique, opcode, .. }) => {
            count(&counters.malformed);
            if let Some(unique) = unique {
                Reply::from_source(unique, opcode, source()).error(Errno::IO.raw_os_error());
            }
        }
    }
}

/// A panic of a handler drops the reply, which answers `EIO`, and nothing else.
fn guarded(counters: &Counters, act: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(act)).is_err() {
        counters.panics.fetch_add(1, Ordering::Relaxed);
    }
}
