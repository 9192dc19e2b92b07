//! One direction of a call as its receiver has it: what came, what is missing, and what to tell the sender.
//!
//! Packets lie in slots from the lowest number that the application does not have. What came is never dropped before
//! the application has it, so that what was acknowledged is never taken back. An acknowledgement is owed at once for
//! what is asked for, came twice, left a gap or lies beyond the window; else after every second packet, or a moment
//! after the last; and when the application has taken a part of the window, for only that moves it on. Acknowledgements
//! that are owed at one time are sent as one. Where the sender falls silent before its end, what came is told again a few
//! times: what it was told may be lost, and of a gap it believes the third word alone. Source: `rxi_ReceiveDataPacket`,
//! `rxi_SendAck` and `rxi_ReceiveAckPacket` in OpenAFS `src/rx/rx.c`.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::ack::{Ack, Reason};
use crate::wire::{DATAGRAM_BYTES_INVITED, Header, distance, flag};

/// Packets after which an acknowledgement is sent without being asked for.
const ACK_EVERY: u32 = 2;

/// Such a part of the window is told to be free again when the application has taken it: the sender does not wait for more.
const TAKEN_PARTS: u8 = 16;
const TAKEN_MIN: i32 = 2;

/// How long the acknowledgement of a packet may wait for another one.
const ACK_DELAY: Duration = Duration::from_millis(100);

/// How often what came is told again while nothing comes.
const PROMPTS_MAX: u8 = 3;

/// How long the acknowledgement of a whole reply may wait for the next call to say it.
const FINAL_ACK_DELAY: Duration = Duration::from_millis(200);

/// The receiver of one direction of a call.
#[derive(Debug)]
pub(crate) struct Receiving {
    /// From `first` on; the first may have been read in part.
    slots: VecDeque<Option<Bytes>>,
    /// The lowest number that the application does not have.
    first: u32,
    /// Slots from the first that are filled without a gap.
    whole: usize,
    /// The number of the last packet, once it came.
    last: Option<u32>,
    /// The highest number that came.
    highest: u32,
    /// Packets from `first` that are taken.
    window: u8,
    /// Bytes in the slots.
    held_bytes: usize,
    /// `first` as it was told last.
    told_first: u32,
    /// Packets that came since the last acknowledgement.
    untold: u32,
    owed: Option<(Reason, u32)>,
    delayed_until: Option<Instant>,
    /// When a packet came.
    heard: Option<Instant>,
    /// When to look whether what came is to be told again.
    prompt_at: Option<Instant>,
    /// How often that was done since something came.
    prompts: u8,
    /// How long to wait before that for the first time.
    way: Duration,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// There is more to read, or the end is known.
    Readable,
    /// Kept until what is missing comes.
    Kept,
    /// Known already, or beyond what is taken.
    Dropped,
}

/// What there is to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// The next bytes, at least one.
    Bytes(Bytes),
    /// Nothing yet; an event will tell.
    Blocked,
    /// All has been read.
    End,
}

/// What is left when as much was read as there was room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Nothing yet; an event will tell.
    Blocked,
    /// More than there was room for: there is more to read, and no event tells so.
    Full,
    /// Nothing: all has been read.
    End,
}

impl Receiving {
    /// Takes so many packets ahead of the application.
    pub(crate) fn new(window: u8) -> Receiving {
        Receiving {
            slots: VecDeque::new(),
            first: 1,
            whole: 0,
            last: None,
            highest: 0,
            window,
            held_bytes: 0,
            told_first: 1,
            untold: 0,
            owed: None,
            delayed_until: None,
            heard: None,
            prompt_at: None,
            prompts: 0,
            way: Duration::ZERO,
        }
    }

    /// A packet came, its data open and checked; the next one takes so long at most to come here, once it is to come.
    pub(crate) fn arrived(&mut self, now: Instant, header: &Header, data: Bytes, way: Duration) -> Arrival {
        let arrival = self.take(now, header, data);
        let is_whole = self.last.is_some_and(|last| distance(last, self.first.wrapping_add(self.whole as u32)) > 0);
        (self.heard, self.prompts, self.way) = (Some(now), 0, way);
        let prompt_at = self.prompt_at.map_or(now + way, |at| at.min(now + way));
        self.prompt_at = (!is_whole).then_some(prompt_at);
        arrival
    }

    fn take(&mut self, now: Instant, header: &Header, data: Bytes) -> Arrival {
        let Some(index) = usize::try_from(distance(self.first, header.seq)).ok() else {
            return self.refuse(Reason::Duplicate, header);
        };
        if index >= self.window.into() {
            return self.refuse(Reason::ExceedsWindow, header);
        }
        if self.slots.get(index).is_some_and(Option::is_some) {
            return self.refuse(Reason::Duplicate, header);
        }
        if !self.fits_the_end(header) {
            return Arrival::Dropped;
        }
        // The next one is always taken, else there would be no way to make room.
        let room_bytes = usize::from(self.window) * DATAGRAM_BYTES_INVITED as usize;
        if index > 0 && self.held_bytes + data.len() > room_bytes {
            return self.refuse(Reason::NoSpace, header);
        }
        let gap = index > self.whole;
        self.keep(index, header, data);
        self.untold += 1;
        if gap {
            self.owed = Some((Reason::OutOfSequence, header.serial));
        } else if header.has(flag::REQUEST_ACK) {
            self.owed = Some((Reason::Requested, header.serial));
        } else if self.untold >= ACK_EVERY && !header.has(flag::LAST_PACKET) {
            self.owed = self.owed.or(Some((Reason::Idle, header.serial)));
        } else {
            let delay = if header.has(flag::LAST_PACKET) { FINAL_ACK_DELAY } else { ACK_DELAY };
            self.delayed_until = self.delayed_until.or(Some(now + delay));
        }
        if gap { Arrival::Kept } else { Arrival::Readable }
    }

    /// The next bytes, at most `max`.
    pub(crate) fn read(&mut self, now: Instant, max: usize) -> Read {
        while max > 0 && self.whole > 0 {
            let Some(Some(data)) = self.slots.front_mut() else {
                break;
            };
            let taken = data.split_to(data.len().min(max));
            self.held_bytes -= taken.len();
            if data.is_empty() {
                self.pass(now);
            }
            if !taken.is_empty() {
                return Read::Bytes(taken);
            }
        }
        if self.is_read() { Read::End } else { Read::Blocked }
    }

    /// Whether the application has all that there will ever be.
    pub(crate) fn is_read(&self) -> bool {
        self.last.is_some_and(|last| distance(last, self.first) > 0)
    }

    /// Bytes that came and were not read.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// The number after the last packet, once that came.
    pub(crate) fn end(&self) -> Option<u32> {
        self.last.map(|last| last.wrapping_add(1))
    }

    /// Whether a call to [`Receiving::read`] would give bytes or the end.
    pub(crate) fn is_readable(&self) -> bool {
        self.whole > 0 || self.is_read()
    }

    /// Whether all has been told that the sender has to know.
    pub(crate) fn is_told(&self) -> bool {
        self.told_first == self.first && self.untold == 0 && self.owed.is_none()
    }

    /// An acknowledgement is owed for this reason, and for the packet with this serial number.
    pub(crate) fn owe(&mut self, reason: Reason, serial: u32) {
        self.owed = Some((reason, serial));
    }

    /// The acknowledgement may wait for the next call, for that says the same.
    pub(crate) fn owe_the_end(&mut self, now: Instant) {
        self.owe_nothing();
        self.delayed_until = Some(now + FINAL_ACK_DELAY);
    }

    /// Nothing is owed any more: what is sent says it.
    pub(crate) fn owe_nothing(&mut self) {
        self.owed = self.owed.filter(|(reason, _)| *reason == Reason::PingResponse);
        self.delayed_until = None;
    }

    /// Whether there is an acknowledgement to be sent now.
    pub(crate) fn is_owed(&self) -> bool {
        self.owed.is_some()
    }

    /// When [`Receiving::delayed`] is to be called.
    pub(crate) fn delayed_until(&self) -> Option<Instant> {
        self.delayed_until.into_iter().chain(self.prompt_at).min()
    }

    /// The time has come.
    pub(crate) fn delayed(&mut self, now: Instant) {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.delayed_until) {
            self.delayed_until = None;
            if self.untold > 0 || self.told_first != self.first {
                self.owed = self.owed.or(Some((Reason::Delay, 0)));
            }
        }
        if is_due(self.prompt_at) {
            // It was not put off for each packet that came meanwhile.
            if is_due(self.next_prompt()) {
                self.prompts += 1;
                self.owed = self.owed.or(Some((Reason::Delay, 0)));
            }
            self.prompt_at = self.next_prompt();
        }
    }

    fn next_prompt(&self) -> Option<Instant> {
        self.heard.filter(|_| self.prompts < PROMPTS_MAX).map(|heard| heard + self.way * (1 << self.prompts))
    }

    /// The acknowledgement that is owed.
    pub(crate) fn take_ack(&mut self) -> Option<Ack> {
        let (reason, serial) = self.owed?;
        Some(self.ack(reason, serial))
    }

    /// An acknowledgement for this reason.
    pub(crate) fn ack(&mut self, reason: Reason, serial: u32) -> Ack {
        self.owed = None;
        self.delayed_until = None;
        self.untold = 0;
        self.told_first = self.first;
        Ack {
            first: self.first,
            previous: self.highest,
            serial,
            reason,
            received: self.slots.iter().map(Option::is_some).collect(),
            window: self.window,
        }
    }

    fn refuse(&mut self, reason: Reason, header: &Header) -> Arrival {
        self.owed = Some((reason, header.serial));
        Arrival::Dropped
    }

    /// Whether the packet is where it can be, by what is known of the end.
    fn fits_the_end(&self, header: &Header) -> bool {
        match (self.last, header.has(flag::LAST_PACKET)) {
            (Some(last), false) => distance(header.seq, last) > 0,
            (Some(last), true) => header.seq == last,
            (None, true) => distance(self.highest, header.seq) > 0,
            (None, false) => true,
        }
    }

    fn keep(&mut self, index: usize, header: &Header, data: Bytes) {
        if self.slots.len() <= index {
            self.slots.resize(index + 1, None);
        }
        self.held_bytes += data.len();
        self.slots[index] = Some(data);
        while self.slots.get(self.whole).is_some_and(Option::is_some) {
            self.whole += 1;
        }
        if distance(self.highest, header.seq) > 0 {
            self.highest = header.seq;
        }
        if header.has(flag::LAST_PACKET) {
            self.last = Some(header.seq);
        }
    }

    /// The application has the first packet.
    fn pass(&mut self, now: Instant) {
        self.slots.pop_front();
        self.whole -= 1;
        self.first = self.first.wrapping_add(1);
        let taken = distance(self.told_first, self.first);
        if taken >= i32::from(self.window / TAKEN_PARTS).max(TAKEN_MIN) && !self.is_read() {
            self.owed = self.owed.or(Some((Reason::Idle, 0)));
        } else {
            self.delayed_until = self.delayed_until.or(Some(now + ACK_DELAY));
        }
    }
}
