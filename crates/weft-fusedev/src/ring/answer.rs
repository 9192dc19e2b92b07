//! Answers on their way from any thread to the thread of a queue.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use crate::reply::{Body, Delivery, Sink};
use crate::sys::Slot;

/// An answer that the queue's thread gives to the kernel.
#[derive(Debug)]
pub(super) enum Answer {
    /// The body, so many bytes, lies in the entry's payload.
    InSlot { slot: Slot, unique: u64, errno: i32, bytes: usize },
    /// The body goes into the payload of the entry with this number, which the queue's thread has.
    Staged { number: usize, unique: u64, errno: i32, body: Vec<u8> },
}

/// Answers for one queue. There are never more than it has entries.
#[derive(Debug)]
pub(super) struct Mailbox {
    /// Held to put in and to take out, never while waiting.
    state: Mutex<State>,
    /// There are some; written with the lock held.
    is_filled: AtomicBool,
    wake: OwnedFd,
}

#[derive(Debug, Default)]
struct State {
    answers: Vec<Answer>,
    closed: bool,
}

/// Answers of a queue's own thread, which looks by itself before it waits.
struct Own {
    /// Only compared: the mailbox of the queue that this thread serves.
    mailbox: *const Mailbox,
    answers: Vec<Answer>,
}

thread_local! {
    static OWN: RefCell<Own> = const { RefCell::new(Own { mailbox: ptr::null(), answers: Vec::new() }) };
}

impl Mailbox {
    pub(super) fn new() -> io::Result<Mailbox> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Mailbox { state: Mutex::default(), is_filled: AtomicBool::new(false), wake })
    }

    /// The calling thread is the queue's.
    pub(super) fn begin(&self) {
        OWN.with_borrow_mut(|own| own.mailbox = self);
    }

    /// The queue's thread, which calls, ends: nothing is delivered any more.
    pub(super) fn close(&self) {
        let mut left = OWN.replace(Own { mailbox: ptr::null(), answers: Vec::new() }).answers;
        let mut state = self.state.lock();
        state.closed = true;
        left.append(&mut state.answers);
        drop(state);
        drop(left);
    }

    /// Takes what there is, by the queue's thread.
    pub(super) fn take(&self, to: &mut Vec<Answer>) {
        OWN.with_borrow_mut(|own| to.append(&mut own.answers));
        if self.is_filled.load(Ordering::Acquire) {
            let mut state = self.state.lock();
            to.append(&mut state.answers);
            self.is_filled.store(false, Ordering::Release);
        }
    }

    pub(super) fn put(&self, answer: Answer) -> Delivery {
        match self.keep_own(answer) {
            Some(answer) => self.put_from_elsewhere(answer),
            None => Delivery::Delivered,
        }
    }

    /// Gives it back when the calling thread is not the queue's.
    fn keep_own(&self, answer: Answer) -> Option<Answer> {
        OWN.with_borrow_mut(|own| {
            if !ptr::eq(own.mailbox, self) {
                return Some(answer);
            }
            own.answers.push(answer);
            None
        })
    }

    fn put_from_elsewhere(&self, answer: Answer) -> Delivery {
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            return Delivery::Gone;
        }
        state.answers.push(answer);
        self.is_filled.store(true, Ordering::Release);
        // With others before it, who put them has woken the thread.
        let wake = state.answers.len() == 1;
        drop(state);
        if wake {
            self.wake();
        }
        Delivery::Delivered
    }

    /// Wakes the queue's thread.
    pub(super) fn wake(&self) {
        // It fails only when the counter is full, and then the thread is awake.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// What can be read when the thread was woken.
    pub(super) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    pub(super) fn rest(&self) {
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
    }
}

/// The way back of a request that has no bytes in its payload: the answer is built there.
pub(super) struct SlotSink {
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) slot: Slot,
}

impl Sink for SlotSink {
    fn room(&mut self) -> Option<&mut [u8]> {
        Some(self.slot.payload_mut())
    }

    fn send(mut self: Box<Self>, unique: u64, errno: i32, body: Body<'_>) -> Delivery {
        let bytes = match body {
            Body::InPlace(bytes) => Some(bytes).filter(|bytes| *bytes <= self.slot.payload().len()),
            Body::Pieces(pieces) => gather(pieces, self.slot.payload_mut()),
        };
        let SlotSink { mailbox, slot } = *self;
        let (errno, bytes) = bytes.map_or((EIO, 0), |bytes| (errno, bytes));
        mailbox.put(Answer::InSlot { slot, unique, errno, bytes })
    }
}

/// The way back of a request whose bytes lie in the payload: they may still be read when it is answered, so the queue's
/// thread puts the answer there.
pub(super) struct StagedSink {
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) number: usize,
    pub(super) payload_bytes: usize,
}

impl Sink for StagedSink {
    fn send(self: Box<Self>, unique: u64, errno: i32, body: Body<'_>) -> Delivery {
        let body = match body {
            Body::Pieces(pieces) => Some(pieces.concat()).filter(|body| body.len() <= self.payload_bytes),
            // There is no room to build in.
            Body::InPlace(_) => None,
        };
        let (errno, body) = body.map_or((EIO, Vec::new()), |body| (errno, body));
        self.mailbox.put(Answer::Staged { number: self.number, unique, errno, body })
    }
}

/// Puts pieces one after the other; `None` when they do not fit.
fn gather(pieces: &[&[u8]], mut to: &mut [u8]) -> Option<usize> {
    let mut bytes = 0;
    for piece in pieces {
        let (here, after) = to.split_at_mut_checked(piece.len())?;
        here.copy_from_slice(piece);
        to = after;
        bytes += piece.len();
    }
    Some(bytes)
}

const EIO: i32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_do_not_fit_become_errors() {
        let mailbox = Arc::new(Mailbox::new().expect("an eventfd"));
        let mut slots = Slot::map(0, 3, 4096).expect("memory");
        let mut sink = || Box::new(SlotSink { mailbox: mailbox.clone(), slot: slots.pop().expect("a slot") });
        let long = vec![7; 4000];
        sink().send(2, 0, Body::Pieces(&[&long, &long]));
        sink().send(4, 0, Body::InPlace(4097));
        sink().send(6, 0, Body::Pieces(&[&long, &[1, 2]]));
        let staged = || Box::new(StagedSink { mailbox: mailbox.clone(), number: 9, payload_bytes: 4096 });
        staged().send(8, 0, Body::Pieces(&[&long, &long]));
        staged().send(10, 0, Body::InPlace(1));
        staged().send(12, 0, Body::Pieces(&[&[1], &[2, 3]]));
        let mut answers = Vec::new();
        mailbox.take(&mut answers);
        let seen: Vec<_> = answers
            .iter()
            .map(|answer| match answer {
                Answer::InSlot { unique, errno, bytes, .. } => (*unique, *errno, *bytes),
                Answer::Staged { unique, errno, body, .. } => (*unique, *errno, body.len()),
            })
            .collect();
        assert_eq!(seen, [(2, EIO, 0), (4, EIO, 0), (6, 0, 4002), (8, EIO, 0), (10, EIO, 0), (12, 0, 3)]);
        mailbox.close();
        assert_eq!(staged().send(14, 0, Body::Pieces(&[])), Delivery::Gone);
    }
}
