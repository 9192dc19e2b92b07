//! Requests by read(2), answers by writev(2).

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::decode::decode;
use crate::device::Device;
use crate::init::Negotiated;
use crate::reply::Source;
use crate::ring::Stop;
use crate::serve::{Serve, dispatch};
use crate::session::End;
use crate::vigil::Vigil;

thread_local! {
    static HAS_RELIEF: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread reads requests that another would read as well while this one does something else.
#[must_use]
pub fn has_relief() -> bool {
    HAS_RELIEF.get()
}

/// Starts threads that read requests and hand them on until the mount is gone.
pub(crate) fn start<S: Serve>(
    device: &Arc<Device>,
    negotiated: &Negotiated,
    serve: &Arc<S>,
    threads: usize,
    name: &str,
    rings: Option<Arc<Stop>>,
) -> io::Result<Vec<JoinHandle<io::Result<End>>>> {
    let size = negotiated.request_bytes_max();
    let threads = threads.clamp(1, THREADS_MAX);
    let start = |number: usize| {
        let (device, serve, rings) = (device.clone(), serve.clone(), rings.clone());
        let work = move || {
            HAS_RELIEF.set(threads > 1);
            let outcome = run(&device, &*serve, size);
            // The rings do not hear of the end when all their entries have requests that wait.
            rings.inspect(|rings| rings.stop());
            outcome
        };
        std::thread::Builder::new().name(format!("{name}-{number}")).spawn(work)
    };
    (0..threads).map(start).collect()
}

fn run<S: Serve>(device: &Arc<Device>, serve: &S, size: usize) -> io::Result<End> {
    let mut buffer = RequestBuffer::new(size);
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut vigil = Vigil::new(processors);
    loop {
        let since = Instant::now();
        vigil.keep(|| device.is_readable());
        let length = match device.read_one(buffer.bytes_mut()) {
            Ok(length) => length,
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::NODEV) => return Ok(End::Unmounted),
                Some(Errno::CONNABORTED) => return Ok(End::Aborted),
                _ => return Err(error),
            },
        };
        vigil.came(since.elapsed());
        dispatch(serve, device, decode(&buffer.bytes()[..length]), || Source::Device(device.clone()));
    }
}

impl Device {
    /// Reads one request, however often it takes.
    pub(crate) fn read_one(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.read(buffer) {
                Ok(length) => return Ok(length),
                // ENOENT: the request was aborted before it was read.
                Err(Errno::INTR | Errno::NOENT) => {}
                // A descriptor that somebody else made so does not wait by itself.
                Err(Errno::AGAIN) => match self.wait_readable() {
                    Ok(()) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                },
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Room for one request. Its pages are there from the beginning: the kernel gets none for a process that is being killed, and
/// answers the request that it was about to hand over with EIO (`fuse_dev_do_read` in fs/fuse/dev.c).
pub(crate) struct RequestBuffer(Vec<u64>);

impl RequestBuffer {
    pub(crate) fn new(bytes: usize) -> RequestBuffer {
        // Zeros would be pages that come when they are written.
        RequestBuffer(vec![u64::MAX; bytes.div_ceil(size_of::<u64>())])
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.as_mut_bytes()
    }
}

/// Threads of one connection that read requests.
const THREADS_MAX: usize = 64;
