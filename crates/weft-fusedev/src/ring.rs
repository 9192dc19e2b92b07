//! Requests over io_uring (Documentation/filesystems/fuse/fuse-io-uring.rst, fs/fuse/dev_uring.c; Linux 6.14).
//!
//! The kernel has one queue for each CPU, and puts a request into that of the CPU on which it was made. Here each
//! queue has a ring and a thread on that CPU, so that the way there and back does not leave it.
//!
//! An entry of a queue is memory for one request: a head and a payload. It is either the kernel's, waiting for a
//! request, or ours, with one that is not answered yet; then whoever has its [`Slot`] may write the
//! answer into it, on any thread. The queue's thread gives it back: the answer goes in and the next request comes out.
//!
//! A request holds its entry until it is answered, and those that wait for a network may be many. So a queue has many
//! entries from the beginning: each is a page's fraction of memory until its payload is used, and the kernel uses the one
//! that came back last. (More could not be given later: the kernel gives new entries only to new requests, and those that
//! wait for an entry get one only when another is given back.)
//!
//! FORGET, INTERRUPT, notices and what comes before all queues are ready go over the device: a thread reads it as
//! without rings. When it finds the connection gone it stops the queues, whose threads end when all their entries have
//! come back.

mod answer;
mod manners;
mod ordinary;
mod queue;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::device::Device;
use crate::serve::Serve;
use crate::session::End;
use crate::sys::{Ring, Slot};
use crate::transport::RingError;

pub use ordinary::OrdinaryThread;

use answer::Mailbox;
use queue::Queue;

/// How many requests a queue holds, of which there is one for each CPU. An entry takes a payload of `max_write` bytes
/// (256 KiB) of address space, and as much memory as the longest request or answer in it needed so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLimits {
    /// Most entries of one queue; at least one. Requests beyond wait until one of those before them is answered.
    pub entries: usize,
}

impl RingLimits {
    /// Most entries of all queues together, if each has at least 64: 1 GiB of address space at 256 KiB each.
    pub const ALL_ENTRIES_MAX: usize = 4096;
    /// Largest request or answer over a ring in bytes.
    pub const PAYLOAD_BYTES_MAX: u32 = 256 << 10;
}

impl Default for RingLimits {
    fn default() -> RingLimits {
        RingLimits { entries: 1024 }
    }
}

/// Rings that are ready to be used: all that may fail has been done before the kernel is told that there are any, for
/// then it holds requests back until all queues have entries.
#[derive(Debug)]
pub(crate) struct Rings {
    queues: Vec<Prepared>,
    payload_bytes: usize,
}

#[derive(Debug)]
struct Prepared {
    ring: Ring,
    slots: Vec<Slot>,
    mailbox: Arc<Mailbox>,
}

impl Rings {
    /// Makes rings and the memory of their entries, for payloads of `max_write` bytes.
    pub(crate) fn prepare(limits: RingLimits, max_write: u32) -> Result<Rings, RingError> {
        let cpus = possible_cpus();
        if cpus > QUEUES_MAX {
            return Err(RingError::Cpus { cpus });
        }
        Ring::try_out().map_err(|source| RingError::Setup { source })?;
        let share = (RingLimits::ALL_ENTRIES_MAX / cpus).max(SHARE_MIN);
        let entries = limits.entries.clamp(1, share);
        // The kernel wants max(FUSE_MIN_READ_BUFFER, max_write, max_pages pages), where max_pages is max_write in
        // pages of 4096 bytes, counted in its own.
        let pages = max_write.div_ceil(4096) as usize * rustix::param::page_size();
        let payload_bytes = pages.max(max_write as usize).max(PAYLOAD_BYTES_MIN);
        let prepare = |queue: usize| {
            let setup = |source| RingError::Setup { source };
            let ring = Ring::new(u16::try_from(queue).unwrap_or(u16::MAX), entries).map_err(setup)?;
            let slots = Slot::map(0, entries, payload_bytes).map_err(|source| RingError::Memory { entries, source })?;
            Ok(Prepared { ring, slots, mailbox: Arc::new(Mailbox::new().map_err(setup)?) })
        };
        let queues = (0..cpus).map(prepare).collect::<Result<_, _>>()?;
        Ok(Rings { queues, payload_bytes })
    }

    /// Has payloads so short that the kernel refuses the entries.
    #[cfg(test)]
    pub(crate) fn shorten(&mut self) {
        for queue in &mut self.queues {
            queue.slots = Slot::map(0, queue.slots.len(), 1).expect("memory");
        }
    }

    /// Starts a thread for each queue and waits until the kernel has their entries.
    pub(crate) fn start<S: Serve>(
        self,
        device: &Arc<Device>,
        serve: &Arc<S>,
        name: &str,
    ) -> Result<Running, RingError> {
        let (tell, told) = mpsc::channel();
        let mut running = Running { stop: Arc::new(Stop::default()), threads: Vec::new() };
        let mut outcome = Ok(());
        for (number, prepared) in self.queues.into_iter().enumerate() {
            let number = u16::try_from(number).unwrap_or(u16::MAX);
            running.stop.add(prepared.mailbox.clone());
            let queue = Queue::new(number, prepared.ring, prepared.mailbox, self.payload_bytes);
            let (device, serve, stop, tell) = (device.clone(), serve.clone(), running.stop.clone(), tell.clone());
            // Why it ends is the other thread's to tell.
            let work = move || queue.run(&device, &*serve, &stop, prepared.slots, tell).map(|()| End::Unmounted);
            match std::thread::Builder::new().name(format!("{name}-ring-{number}")).spawn(work) {
                Ok(thread) => running.threads.push(thread),
                Err(source) => outcome = outcome.and(Err(RingError::Setup { source })),
            }
        }
        drop(tell);
        // Each thread tells once, or drops its end.
        for (queue, registered) in told {
            outcome = outcome.and(registered.map_err(|source| RingError::Refused { queue, source }));
        }
        match outcome {
            Ok(()) => Ok(running),
            Err(error) => {
                running.give_up(device);
                Err(error)
            }
        }
    }
}

/// Queues that are served.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) stop: Arc<Stop>,
    pub(crate) threads: Vec<JoinHandle<std::io::Result<End>>>,
}

impl Running {
    /// Not all queues are ready. The kernel must know that none will be used, for it holds requests back until it
    /// does: one entry that it refuses tells it (`fuse_uring_cmd`). The threads that run have entries that get no
    /// requests, and end with the connection.
    fn give_up(self, device: &Arc<Device>) {
        self.stop.stop();
        queue::refuse(device);
    }
}

/// Ends queues when the connection is gone.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    stopped: AtomicBool,
    /// Taken to add and to stop, never while waiting.
    mailboxes: parking_lot::Mutex<Vec<Arc<Mailbox>>>,
}

impl Stop {
    fn add(&self, mailbox: Arc<Mailbox>) {
        self.mailboxes.lock().push(mailbox);
    }

    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        for mailbox in self.mailboxes.lock().iter() {
            mailbox.wake();
        }
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
}

/// `fuse_uring_req_header`: what the kernel writes about a request beside the payload, and what it reads about an
/// answer.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Head {
    /// `fuse_in_header`, or `fuse_out_header` of the answer.
    pub(crate) in_out: [u8; 128],
    /// The first argument.
    pub(crate) argument: [u8; 128],
    pub(crate) flags: u64,
    /// The request's number, by which the answer is given.
    pub(crate) commit_id: u64,
    pub(crate) payload_bytes: u32,
    pub(crate) padding: u32,
    pub(crate) reserved: u64,
}

const _: () = assert!(size_of::<Head>() == 288);

/// CPUs for each of which the kernel wants a queue (`num_possible_cpus`).
fn possible_cpus() -> usize {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    count_of_list(&text).unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// How many numbers a list such as `0-3,8` has.
fn count_of_list(text: &str) -> Option<usize> {
    let mut count = 0usize;
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(count)
}

/// Queues of one connection.
const QUEUES_MAX: usize = 1024;
/// Entries that a queue may have however many queues there are.
const SHARE_MIN: usize = 64;
/// `FUSE_MIN_READ_BUFFER`.
const PAYLOAD_BYTES_MIN: usize = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_counted() {
        assert_eq!(count_of_list("0-1\n"), Some(2));
        assert_eq!(count_of_list("0"), Some(1));
        assert_eq!(count_of_list("0-3,8-9,12"), Some(7));
        for strange in ["", "a", "3-1", "0-18446744073709551615", "1-2-3"] {
            assert_eq!(count_of_list(strange), None, "{strange}");
        }
    }
}
