//! One queue and its thread.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use crate::abi;
use crate::decode::{Incoming, Malformed, Parts, decode_parts};
use crate::device::Device;
use crate::reply::Source;
use crate::serve::{Serve, dispatch};
use crate::sys::{Completed, Ring, Slot};

use super::answer::{Answer, Mailbox, SlotSink, StagedSink};
use super::manners::Manners;
use super::{Head, Stop};

/// What the thread of one queue has.
pub(super) struct Queue {
    number: u16,
    ring: Ring,
    mailbox: Arc<Mailbox>,
    payload_bytes: usize,
    /// Of entries that have a request: what the kernel calls it.
    commit_ids: Vec<u64>,
    /// Entries whose request lies in the payload.
    held: Vec<Option<Slot>>,
    completed: Vec<Completed>,
    answers: Vec<Answer>,
}

impl Queue {
    pub(super) fn new(number: u16, ring: Ring, mailbox: Arc<Mailbox>, payload_bytes: usize) -> Queue {
        let (commit_ids, held, completed, answers) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Queue { number, ring, mailbox, payload_bytes, commit_ids, held, completed, answers }
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
        self.ring.enable(device.as_fd())?;
        self.ring.watch(self.mailbox.wake_fd())?;
        self.register(slots)?;
        // What the kernel refuses it refuses at once. A first request may have come as well.
        self.ring.completed(&mut self.completed);
        let refused = self.completed.iter().find_map(|completed| match completed {
            Completed::Entry(_, result) if *result < 0 => Some(*result),
            _ => None,
        });
        refused.map_or(Ok(()), |result| Err(io::Error::from_raw_os_error(result.wrapping_neg())))
    }

    /// Gives the entries to the kernel. The first is the one that it uses first.
    fn register(&mut self, slots: Vec<Slot>) -> io::Result<()> {
        self.commit_ids.resize(slots.len(), 0);
        self.held.resize_with(slots.len(), || None);
        for slot in slots.into_iter().rev() {
            self.ring.register(slot)?;
        }
        self.ring.submit_and_wait(0)
    }

    fn serve<S: Serve>(&mut self, device: &Arc<Device>, serve: &S, stop: &Stop) -> io::Result<()> {
        let mut manners = Manners::of_this_thread();
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
            self.commit_all()?;
            if self.ring.outstanding() == 0 {
                if stop.is_stopped() {
                    return Ok(());
                }
                device.counters.rings_full.fetch_add(1, Ordering::Relaxed);
            }
            manners.before_waiting(self.ring.outstanding() < self.commit_ids.len());
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
            return self.commit(slot, head.commit_id, EIO, 0);
        };
        if head.payload_bytes == 0 {
            let mut slot = Some(slot);
            let source = || match slot.take() {
                Some(slot) => Source::Sink(Box::new(SlotSink { mailbox: self.mailbox.clone(), slot })),
                None => self.staged(number),
            };
            dispatch(serve, device, message(header, &head, &[]), source);
            // What is not answered elsewhere is not answered here, but the entry goes back.
            return match slot {
                Some(slot) => self.commit(slot, head.commit_id, ENOSYS, 0),
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
            false => self.commit(slot, head.commit_id, ENOSYS, 0),
        }
    }

    fn staged(&self, number: usize) -> Source {
        let (mailbox, payload_bytes) = (self.mailbox.clone(), self.payload_bytes);
        Source::Sink(Box::new(StagedSink { mailbox, number, payload_bytes }))
    }

    /// Gives back the entries whose requests are answered.
    fn commit_all(&mut self) -> io::Result<()> {
        let mut answers = std::mem::take(&mut self.answers);
        self.mailbox.take(&mut answers);
        for answer in answers.drain(..) {
            match answer {
                Answer::InSlot { slot, unique, errno, bytes } => self.commit(slot, unique, errno, bytes)?,
                Answer::Staged { number, unique, errno, body } => {
                    // The entry is there: an answer is given once, after the request was handed on.
                    let Some(mut slot) = self.held.get_mut(number).and_then(Option::take) else { continue };
                    slot.payload_mut()[..body.len()].copy_from_slice(&body);
                    self.commit(slot, unique, errno, body.len())?;
                }
            }
        }
        self.answers = answers;
        Ok(())
    }

    fn commit(&mut self, mut slot: Slot, unique: u64, errno: i32, bytes: usize) -> io::Result<()> {
        let commit_id = self.commit_ids[slot.number()];
        write_answer(slot.head_mut(), unique, errno, bytes);
        self.ring.commit(slot, commit_id)
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

/// Writes `fuse_out_header` and the length of the body, which is all that the kernel reads.
fn write_answer(head: &mut Head, unique: u64, errno: i32, bytes: usize) {
    let bytes = u32::try_from(bytes).unwrap_or(0);
    let len = bytes.saturating_add(size_of::<abi::OutHeader>() as u32);
    let header = abi::OutHeader { len, error: errno.wrapping_neg(), unique };
    head.in_out[..size_of::<abi::OutHeader>()].copy_from_slice(header.as_bytes());
    head.payload_bytes = if errno == 0 { bytes } else { 0 };
}

/// Has the kernel refuse an entry (a number of a queue that there cannot be), so that it gives up rings on this
/// connection.
pub(super) fn refuse(device: &Device) {
    let attempt = || -> io::Result<()> {
        let mut ring = Ring::new(u16::MAX, 1)?;
        ring.enable(device.as_fd())?;
        for slot in Slot::map(0, 1, super::PAYLOAD_BYTES_MIN)? {
            ring.register(slot)?;
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

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
