//! One queue and its thread.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{self, notice, opcode};
use crate::decode::{Incoming, Malformed, Parts, decode_parts};
use crate::device::Device;
use crate::reply::Source;
use crate::serve::{Serve, dispatch};
use crate::sys::{Completed, Ring, Slot};

use super::answer::{Answer, Mailbox, SlotSink, StagedSink};
use super::{Head, RingLimits, Stop};

/// What the thread of one queue has.
pub(super) struct Queue {
    number: u16,
    ring: Ring,
    mailbox: Arc<Mailbox>,
    limits: RingLimits,
    payload_bytes: usize,
    /// Entries that there are.
    entries: usize,
    /// Of entries that have a request: what the kernel calls it.
    commit_ids: Vec<u64>,
    /// Entries whose request lies in the payload.
    held: Vec<Option<Slot>>,
    /// Requests of our own so far.
    nudges: u64,
    completed: Vec<Completed>,
    answers: Vec<Answer>,
}

impl Queue {
    pub(super) fn new(
        number: u16,
        ring: Ring,
        mailbox: Arc<Mailbox>,
        limits: RingLimits,
        payload_bytes: usize,
    ) -> Queue {
        let (entries, nudges) = (0, 0);
        let (commit_ids, held, completed, answers) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Queue { number, ring, mailbox, limits, payload_bytes, entries, commit_ids, held, nudges, completed, answers }
    }

    /// Serves the queue until it is stopped and the kernel has none of its entries. Tells once whether the kernel has
    /// taken the entries.
    pub(super) fn run<S: Serve>(
        mut self,
        device: &Arc<Device>,
        serve: &S,
        stop: &Stop,
        slots: Vec<Slot>,
        tell: Sender<(u16, io::Result<()>)>,
    ) -> io::Result<()> {
        let begun = self.begin(device, slots);
        let go_on = begun.is_ok();
        // Whoever started the queues waits for this, or has given up.
        let _ = tell.send((self.number, begun));
        drop(tell);
        let outcome = if go_on { self.serve(device, serve, stop) } else { Ok(()) };
        self.mailbox.close();
        outcome
    }

    fn begin(&mut self, device: &Device, slots: Vec<Slot>) -> io::Result<()> {
        // A CPU that is off, or not ours, has its queue all the same; its thread runs anywhere.
        let mut cpus = rustix::thread::CpuSet::new();
        if usize::from(self.number) < rustix::thread::CpuSet::MAX_CPU {
            cpus.set(usize::from(self.number));
            let _ = rustix::thread::sched_setaffinity(None, &cpus);
        }
        self.mailbox.begin();
        self.ring.enable()?;
        self.ring.watch(self.mailbox.wake_fd())?;
        self.register(device, slots)?;
        // What the kernel refuses it refuses at once. A first request may have come as well.
        self.ring.completed(&mut self.completed);
        let refused = self.completed.iter().find_map(|completed| match completed {
            Completed::Entry(_, result) if *result < 0 => Some(*result),
            _ => None,
        });
        refused.map_or(Ok(()), |result| Err(io::Error::from_raw_os_error(result.wrapping_neg())))
    }

    /// Gives new entries to the kernel. The first is the one that it uses first.
    fn register(&mut self, device: &Device, slots: Vec<Slot>) -> io::Result<()> {
        self.entries += slots.len();
        self.commit_ids.resize(self.entries, 0);
        self.held.resize_with(self.entries, || None);
        for slot in slots.into_iter().rev() {
            self.ring.register(device.as_fd(), slot)?;
        }
        self.ring.submit_and_wait(0)
    }

    fn serve<S: Serve>(&mut self, device: &Arc<Device>, serve: &S, stop: &Stop) -> io::Result<()> {
        loop {
            let mut completed = std::mem::take(&mut self.completed);
            for completed in completed.drain(..) {
                match completed {
                    Completed::Entry(slot, 0) => self.request(device, serve, slot)?,
                    // The entry is no longer used: the connection is gone.
                    Completed::Entry(_, _) => {}
                    Completed::Woken => {
                        self.mailbox.rest();
                        self.ring.watch(self.mailbox.wake_fd())?;
                    }
                }
            }
            self.completed = completed;
            self.commit_all(device)?;
            if stop.is_stopped() {
                if self.ring.outstanding() == 0 {
                    return Ok(());
                }
            } else if self.ring.outstanding() <= self.reserve() {
                self.grow(device)?;
            }
            self.ring.submit_and_wait(1)?;
            self.ring.completed(&mut self.completed);
        }
    }

    /// Hands one request on.
    fn request<S: Serve>(&mut self, device: &Arc<Device>, serve: &S, slot: Slot) -> io::Result<()> {
        let head = slot.head();
        let number = slot.number();
        self.commit_ids[number] = head.commit_id;
        let Ok((header, _)) = abi::InHeader::read_from_prefix(&head.in_out) else {
            return self.commit(device, slot, head.commit_id, EIO, 0);
        };
        if header.opcode == opcode::NOTIFY_REPLY {
            return self.commit(device, slot, header.unique, 0, 0);
        }
        if head.payload_bytes == 0 {
            let mut slot = Some(slot);
            let source = || match slot.take() {
                Some(slot) => Source::Sink(Box::new(SlotSink { mailbox: self.mailbox.clone(), slot })),
                None => self.staged(number),
            };
            dispatch(serve, device, message(header, &head, &[]), source);
            // What is not answered elsewhere is not answered here, but the entry goes back.
            return match slot {
                Some(slot) => self.commit(device, slot, head.commit_id, ENOSYS, 0),
                None => Ok(()),
            };
        }
        let mut answered = false;
        let source = || {
            answered = true;
            self.staged(number)
        };
        dispatch(serve, device, message(header, &head, slot.payload()), source);
        match answered {
            true => {
                self.held[number] = Some(slot);
                Ok(())
            }
            false => self.commit(device, slot, head.commit_id, ENOSYS, 0),
        }
    }

    fn staged(&self, number: usize) -> Source {
        let (mailbox, payload_bytes) = (self.mailbox.clone(), self.payload_bytes);
        Source::Sink(Box::new(StagedSink { mailbox, number, payload_bytes }))
    }

    /// Gives back the entries whose requests are answered.
    fn commit_all(&mut self, device: &Device) -> io::Result<()> {
        let mut answers = std::mem::take(&mut self.answers);
        self.mailbox.take(&mut answers);
        for answer in answers.drain(..) {
            match answer {
                Answer::InSlot { slot, unique, errno, bytes } => self.commit(device, slot, unique, errno, bytes)?,
                Answer::Staged { number, unique, errno, body } => {
                    // The entry is there: an answer is given once, after the request was handed on.
                    let Some(mut slot) = self.held.get_mut(number).and_then(Option::take) else { continue };
                    slot.payload_mut()[..body.len()].copy_from_slice(&body);
                    self.commit(device, slot, unique, errno, body.len())?;
                }
            }
        }
        self.answers = answers;
        Ok(())
    }

    fn commit(&mut self, device: &Device, mut slot: Slot, unique: u64, errno: i32, bytes: usize) -> io::Result<()> {
        let commit_id = self.commit_ids[slot.number()];
        slot.set_head(&head_of_answer(unique, errno, bytes));
        self.ring.commit(device.as_fd(), slot, commit_id)
    }

    /// When no more entries than these are the kernel's, it is time for more.
    fn reserve(&self) -> usize {
        self.limits.entries / 4
    }

    /// Gives the kernel more entries, if there may be more.
    fn grow(&mut self, device: &Device) -> io::Result<()> {
        let more = (self.limits.entries_max - self.entries).min(self.limits.entries);
        if more == 0 {
            if self.ring.outstanding() == 0 {
                device.counters.rings_full.fetch_add(1, Ordering::Relaxed);
            }
            return Ok(());
        }
        // Without memory it goes on with what there is.
        let Ok(slots) = Slot::map(self.entries, more, self.payload_bytes) else { return Ok(()) };
        self.register(device, slots)?;
        for _ in 0..more {
            self.nudges += 1;
            let unique = NUDGE | u64::from(self.number) << 32 | (self.nudges & u64::from(u32::MAX >> 1)) << 1;
            let out = abi::NotifyRetrieve { notify_unique: unique, nodeid: ROOT, ..Default::default() };
            // Not heard, the requests that wait get their entries when others are answered.
            let _ = device.write(0, notice::RETRIEVE, &[out.as_bytes()]);
        }
        Ok(())
    }
}

/// Decodes what lies in an entry. Lengths are checked against what there is.
fn message<'a>(header: abi::InHeader, head: &'a Head, payload: &'a [u8]) -> Result<Incoming<'a>, Malformed> {
    let wrong = |why| Malformed { unique: Some(header.unique), opcode: header.opcode, why };
    let rest =
        payload.get(..head.payload_bytes as usize).ok_or_else(|| wrong("its payload is longer than its room"))?;
    let arguments = (header.len as usize).checked_sub(size_of::<abi::InHeader>() + rest.len());
    let argument = arguments.and_then(|length| head.argument.get(..length));
    let argument = argument.ok_or_else(|| wrong("its length is not that of its parts"))?;
    decode_parts(Parts { header, argument: Some(argument), rest })
}

/// `fuse_out_header` and the length of the body.
fn head_of_answer(unique: u64, errno: i32, bytes: usize) -> Head {
    let bytes = u32::try_from(bytes).unwrap_or(0);
    let len = bytes.saturating_add(size_of::<abi::OutHeader>() as u32);
    let header = abi::OutHeader { len, error: errno.wrapping_neg(), unique };
    let mut head = Head {
        in_out: [0; 128],
        argument: [0; 128],
        flags: 0,
        commit_id: unique,
        payload_bytes: if errno == 0 { bytes } else { 0 },
        padding: 0,
        reserved: 0,
    };
    head.in_out[..size_of::<abi::OutHeader>()].copy_from_slice(header.as_bytes());
    head
}

/// Has the kernel refuse an entry (a number of a queue that there cannot be), so that it gives up rings on this
/// connection.
pub(super) fn refuse(device: &Device) {
    let attempt = || -> io::Result<()> {
        let mut ring = Ring::new(u16::MAX, 1)?;
        ring.enable()?;
        for slot in Slot::map(0, 1, super::PAYLOAD_BYTES_MIN)? {
            ring.register(device.as_fd(), slot)?;
        }
        ring.submit_and_wait(0)?;
        ring.completed(&mut Vec::new());
        Ok(())
    };
    // What else could be done fails as well: the caller gives the connection up.
    let _ = attempt();
}

const EIO: i32 = Errno::IO.raw_os_error();
const ENOSYS: i32 = Errno::NOSYS.raw_os_error();
/// Numbers of requests of our own, which the kernel does not use for its own.
const NUDGE: u64 = 1 << 62;
/// `FUSE_ROOT_ID`: an inode that the kernel knows.
const ROOT: u64 = 1;

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
