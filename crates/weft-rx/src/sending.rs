//! One direction of a call as its sender has it: what waits, what is under way, what arrived.
//!
//! Bytes are cut into packets as they are written; the packet being filled goes when a byte follows it or the end is
//! known, for the last packet has to say that it is the last. A packet is kept until the other side's application has
//! it (*firstPacket* of an acknowledgement): what was only received may be taken back. A packet goes again when it is
//! lost (`window.rs`) or when nothing was heard for the time of `rtt.rs`. When all that the receiver's window allows
//! has arrived, nothing is under way and nobody has to speak; then the receiver is asked (*probe*) at the same
//! intervals. Before that time is over one packet goes again: where the last ones were lost, or what was said of them, nobody
//! would tell of it (RFC 8985, 7).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::ack::{Acked, Reason};
use crate::rtt::Rtt;
use crate::window::{REORDERING, REORDERING_MAX, Window};
use crate::wire::distance;

/// Packets that wait to be sent for the first time, at most; more is not accepted from the application.
const WAITING_PACKETS_MAX: usize = 64;

/// The receiver's window before it tells, in packets.
const RECEIVER_WINDOW_INITIAL: u8 = 16;

/// How often the wait is doubled for a side that says that it is busy.
const BUSY_DOUBLINGS_MAX: u32 = 2;

/// Waited in addition when only the last packet is under way: its acknowledgement may be delayed so long.
const LAST_ACK_DELAY: Duration = Duration::from_millis(400);

/// The same before one packet goes again: it costs a packet where the other side takes longer for its answer.
const LAST_PROBE_DELAY: Duration = Duration::from_millis(100);

/// The sender of one direction of a call.
#[derive(Debug)]
pub(crate) struct Sending {
    /// From `first` on.
    queue: VecDeque<Packet>,
    /// The lowest number that the other side's application does not have.
    first: u32,
    /// How many of the queue have been sent at least once.
    sent: usize,
    /// The packet being filled.
    open: Vec<u8>,
    finished: bool,
    /// What the other side allows, in packets from `first`.
    receiver_window: u8,
    /// The highest number that the other side has told of.
    previous: u32,
    window: Window,
    /// The number of the next transmission.
    order: u64,
    /// The latest transmission that arrived.
    arrived: Option<u64>,
    /// Transmissions after which one that has not arrived is lost.
    reordering: u64,
    /// A window has just been shrunk for a loss: one packet goes again at once, whatever is under way.
    urgent: bool,
    /// Something was taken for lost, and nothing said yet that it was not.
    doubted: bool,
    /// Waits in vain since something was heard.
    in_vain: u32,
    /// When to do something about silence.
    wait_until: Option<Instant>,
    /// When one packet goes again, before that.
    probe_at: Option<Instant>,
}

/// A packet to be sent now.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) seq: u32,
    pub(crate) data: Bytes,
    pub(crate) last: bool,
    /// An acknowledgement is wanted at once.
    pub(crate) request_ack: bool,
}

/// What to do when the time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// Packets go again.
    Resend,
    /// The other side is asked.
    Probe,
}

#[derive(Debug)]
struct Packet {
    data: Bytes,
    last: bool,
    sent: Option<Sent>,
    arrived: bool,
    /// To be sent again.
    lost: bool,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    order: u64,
    serial: u32,
    at: Instant,
    /// It went before, so that its arrival does not tell which transmission arrived.
    again: bool,
}

impl Packet {
    fn under_way(&self) -> bool {
        self.sent.is_some() && !self.arrived && !self.lost
    }
}

impl Sending {
    pub(crate) fn new() -> Sending {
        Sending {
            queue: VecDeque::new(),
            first: 1,
            sent: 0,
            open: Vec::new(),
            finished: false,
            receiver_window: RECEIVER_WINDOW_INITIAL,
            previous: 0,
            window: Window::new(),
            order: 0,
            arrived: None,
            reordering: REORDERING,
            urgent: false,
            doubted: false,
            in_vain: 0,
            wait_until: None,
            probe_at: None,
        }
    }

    /// Takes what there is room for, in packets of `packet_bytes` at most, and tells how much that was.
    pub(crate) fn write(&mut self, mut bytes: &[u8], packet_bytes: usize) -> usize {
        let offered = bytes.len();
        while !bytes.is_empty() && !self.finished {
            if self.open.len() >= packet_bytes {
                if self.waiting() >= WAITING_PACKETS_MAX {
                    break;
                }
                self.close(false);
            }
            let (taken, rest) = bytes.split_at(bytes.len().min(packet_bytes - self.open.len()));
            self.open.extend_from_slice(taken);
            bytes = rest;
        }
        offered - bytes.len()
    }

    /// Nothing more will be written.
    pub(crate) fn finish(&mut self) {
        if !self.finished {
            self.close(true);
            self.finished = true;
        }
    }

    /// Whether the end is known.
    pub(crate) fn is_finished(&self) -> bool {
        self.finished
    }

    /// Whether a good part of the room for what waits is free.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting() <= WAITING_PACKETS_MAX / 2
    }

    /// Whether all that there will ever be has arrived.
    pub(crate) fn is_done(&self) -> bool {
        self.finished && self.queue.iter().all(|packet| packet.arrived)
    }

    /// Whether there is a packet that may go now.
    pub(crate) fn is_ready(&self) -> bool {
        self.next_index().is_some()
    }

    /// When [`Sending::silent`] is to be called.
    pub(crate) fn wait_until(&self) -> Option<Instant> {
        self.wait_until.into_iter().chain(self.probe_at).min()
    }

    /// How long ago the last of what was sent went, if all went once: an answer to it took so long.
    pub(crate) fn since_sent(&self, now: Instant) -> Option<Duration> {
        let last = self.queue.iter().take(self.sent).next_back()?.sent.filter(|sent| !sent.again)?;
        Some(now.saturating_duration_since(last.at))
    }

    /// The packet that goes now, with this serial number.
    pub(crate) fn next(&mut self, now: Instant, serial: u32, rtt: &Rtt) -> Option<Outgoing> {
        let index = self.next_index()?;
        let packet = &mut self.queue[index];
        let again = packet.sent.is_some();
        packet.sent = Some(Sent { order: self.order, serial, at: now, again });
        packet.lost = false;
        self.urgent = false;
        let (data, last) = (packet.data.clone(), packet.last);
        self.order += 1;
        self.sent = self.sent.max(index + 1);
        if self.wait_until.is_none() {
            let (delay, probe_delay) =
                if last { (LAST_ACK_DELAY, LAST_PROBE_DELAY) } else { (Duration::ZERO, Duration::ZERO) };
            self.wait_until = Some(now + rtt.wait(self.in_vain) + delay);
            self.probe_at = rtt.probe().map(|probe| now + probe + probe_delay);
        }
        // The last packet is answered by what it makes the other side send.
        let request_ack = again || (!last && self.next_index().is_none());
        Some(Outgoing { seq: self.first.wrapping_add(index as u32), data, last, request_ack })
    }

    /// The other side tells what came. False if this is nothing that can be believed, or older than what is known.
    pub(crate) fn acknowledged(&mut self, now: Instant, acked: &Acked<'_>, rtt: &mut Rtt) -> bool {
        let Some(given) = self.plausible(acked) else {
            return false;
        };
        if self.is_sensible(acked) {
            self.previous = acked.previous;
        }
        self.receiver_window = acked.window;
        if acked.reason != Reason::Delay as u8 {
            self.measure(now, acked.serial, rtt);
        }
        // What comes twice had been overtaken, most likely.
        if acked.reason == Reason::Duplicate as u8 && std::mem::take(&mut self.doubted) {
            self.reordering = (self.reordering * 2).min(REORDERING_MAX);
            self.window.regain();
        }
        let mut news = News { serial: acked.serial, ..News::default() };
        for packet in self.queue.drain(..given) {
            news.tell(&packet);
        }
        self.first = self.first.wrapping_add(given as u32);
        self.sent -= given;
        for (packet, received) in self.queue.iter_mut().take(self.sent).zip(acked.received()) {
            if received {
                news.tell(packet);
            }
            packet.arrived = received;
        }
        self.arrived = self.arrived.max(news.latest);
        if let (Some(order), true) = (self.arrived, news.count > 0) {
            self.window.arrived(news.count, order);
        }
        self.find_lost();
        if news.count > 0 || given > 0 {
            self.in_vain = 0;
            self.wait_for_nothing();
        }
        self.await_answer(now, rtt);
        true
    }

    /// All that was sent has arrived, as the other side says or shows.
    pub(crate) fn acknowledged_all(&mut self) {
        self.queue.drain(..self.sent);
        self.first = self.first.wrapping_add(self.sent as u32);
        self.sent = 0;
        self.in_vain = 0;
        self.wait_for_nothing();
    }

    /// Nothing more is to be sent, whatever waits.
    pub(crate) fn drop_all(&mut self) {
        self.acknowledged_all();
        self.queue.clear();
        self.open = Vec::new();
        self.finished = true;
    }

    /// The other side is there, but has no place for the call yet: there is no reason to try ever more rarely.
    pub(crate) fn busy(&mut self) {
        self.in_vain = self.in_vain.min(BUSY_DOUBLINGS_MAX);
    }

    /// The time has come.
    pub(crate) fn silent(&mut self, now: Instant, rtt: &Rtt) -> Silence {
        if self.probe_at.take().is_some() && self.wait_until.is_some_and(|until| now < until) {
            // The first one that is missing, as far as is known. The answer tells of the others.
            let missing = self.queue.iter_mut().take(self.sent).find(|packet| packet.under_way());
            missing.into_iter().for_each(|packet| (packet.lost, self.urgent) = (true, true));
            return Silence::Resend;
        }
        let under_way = self.under_way();
        self.in_vain = self.in_vain.saturating_add(1);
        self.wait_until = None;
        if under_way == 0 {
            self.await_answer(now, rtt);
            return Silence::Probe;
        }
        self.window.silent(under_way, self.order);
        for packet in self.queue.iter_mut().filter(|packet| packet.under_way()) {
            packet.lost = true;
        }
        Silence::Resend
    }

    fn close(&mut self, last: bool) {
        let data = Bytes::from(std::mem::take(&mut self.open));
        self.queue.push_back(Packet { data, last, sent: None, arrived: false, lost: false });
    }

    fn waiting(&self) -> usize {
        self.queue.len() - self.sent
    }

    fn under_way(&self) -> u32 {
        self.queue.iter().take(self.sent).filter(|packet| packet.under_way()).count() as u32
    }

    /// Where in the queue the packet is that may go now: what was lost before what is new.
    fn next_index(&self) -> Option<usize> {
        let full = self.under_way() >= self.window.packets();
        if self.queue.is_empty() || (full && !self.urgent) {
            return None;
        }
        let lost = self.queue.iter().take(self.sent).position(|packet| packet.lost && !packet.arrived);
        if full {
            return lost;
        }
        let allowed = self.sent < self.queue.len().min(self.receiver_window.into());
        lost.or_else(|| allowed.then_some(self.sent))
    }

    /// How many packets the acknowledgement says that the application has; `None` if it is not to be believed.
    ///
    /// One of the same state that tells of less is an older one. Programs before OpenAFS 1.6.23 put a serial number
    /// into its place, which is seen by its being beyond the window.
    fn plausible(&self, acked: &Acked<'_>) -> Option<usize> {
        let given = usize::try_from(distance(self.first, acked.first)).ok().filter(|given| *given <= self.sent)?;
        let older = given == 0 && distance(self.previous, acked.previous) < 0;
        (!(older && self.is_sensible(acked))).then_some(given)
    }

    fn is_sensible(&self, acked: &Acked<'_>) -> bool {
        distance(self.first, acked.previous) < i32::from(self.receiver_window)
    }

    fn measure(&self, now: Instant, serial: u32, rtt: &mut Rtt) {
        let sent = self.queue.iter().take(self.sent).filter_map(|packet| packet.sent);
        if let Some(sent) = sent.into_iter().find(|sent| sent.serial == serial) {
            rtt.measure(now.saturating_duration_since(sent.at));
        }
    }

    fn find_lost(&mut self) {
        let Some(latest) = self.arrived else {
            return;
        };
        for packet in self.queue.iter_mut().take(self.sent).filter(|packet| packet.under_way()) {
            if let Some(sent) = packet.sent
                && sent.order + self.reordering <= latest
            {
                packet.lost = true;
                self.doubted = true;
                self.urgent |= self.window.lost(sent.order, self.order);
            }
        }
    }

    /// Waits where an answer is owed: for what is under way, or for the receiver to open its window.
    fn await_answer(&mut self, now: Instant, rtt: &Rtt) {
        let shut = self.sent < self.queue.len() && self.sent >= usize::from(self.receiver_window);
        let is_under_way = self.under_way() > 0;
        if !is_under_way && !shut {
            self.wait_for_nothing();
        } else if self.wait_until.is_none() {
            self.wait_until = Some(now + rtt.wait(self.in_vain));
            self.probe_at = rtt.probe().filter(|_| is_under_way && self.in_vain == 0).map(|probe| now + probe);
        }
    }

    fn wait_for_nothing(&mut self) {
        (self.wait_until, self.probe_at) = (None, None);
    }
}

/// What an acknowledgement says that was not known.
#[derive(Default)]
struct News {
    /// The packet that provoked it.
    serial: u32,
    count: u32,
    /// The latest transmission that arrived for certain.
    latest: Option<u64>,
}

impl News {
    fn tell(&mut self, packet: &Packet) {
        if packet.arrived {
            return;
        }
        self.count += 1;
        let certain = packet.sent.filter(|sent| !sent.again || sent.serial == self.serial);
        self.latest = self.latest.max(certain.map(|sent| sent.order));
    }
}
