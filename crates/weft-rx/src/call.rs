//! A call: what its two directions, its timers and its state make of packets and of the application's wishes.
//!
//! A call knows neither the endpoint nor its own connection's table: it is given its connection where it needs one, and
//! says in [`Call::transmit`] and [`Call::deadline`] what it wants.

use std::time::{Duration, Instant};

use crate::ack::{Acked, Reason};
use crate::call_state::{CallError, CallState, Cause};
use crate::connection::{Connection, ConnectionId, Remnant, Side};
use crate::endpoint::Transmit;
use crate::receiving::{Arrival, Read, Receiving};
use crate::route::RouteId;
use crate::sending::{Sending, Silence};
use crate::wire::{Header, PacketType, flag};

/// A ping goes after this part of the time after which a silent side is dead.
const PINGS_BEFORE_DEAD: u32 = 6;

/// A ping that is not answered is repeated after this time: on a way that loses much, few would say too little.
const PING_AGAIN: Duration = Duration::from_secs(2);

/// What late packets of a call are answered with that ended here for silence (RX_CALL_DEAD).
const DEAD: i32 = -1;

/// The code of an ABORT that does not say one (RX_PROTOCOL_ERROR).
const NO_CODE: i32 = -5;

/// A call of an endpoint. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub(crate) u64);

/// One call, on either side.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) side: Side,
    /// The route of a client's call.
    pub(crate) route: Option<RouteId>,
    /// Where it runs, once it does.
    pub(crate) place: Option<Place>,
    pub(crate) sending: Sending,
    pub(crate) receiving: Receiving,
    pub(crate) told: Told,
    /// The entry among the endpoint's timers.
    pub(crate) scheduled: Option<Instant>,
    /// Whether it stands in the endpoint's line of calls that may have something to send.
    pub(crate) lined_up: bool,
    state: CallState,
    /// When the other side was heard last, or the call began.
    heard: Instant,
    /// When the other side was asked last whether it is there, or was heard.
    asked: Instant,
    ping: bool,
    /// The last ping has not been answered.
    unanswered: bool,
    dead_after: Duration,
}

/// A channel of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) connection: ConnectionId,
    pub(crate) channel: usize,
}

/// Of what the application has been told, so that nothing is told twice.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told {
    /// There is something to read; until a read finds nothing.
    pub(crate) readable: bool,
    /// A write found no room, and none was found since.
    pub(crate) wants_room: bool,
    /// The end.
    pub(crate) ended: bool,
}

impl Call {
    /// A call of ours, which waits for a channel.
    pub(crate) fn to_server(route: RouteId, now: Instant, window: u8, dead_after: Duration) -> Call {
        Call::new(Side::Client, Some(route), None, CallState::Queued, now, window, dead_after)
    }

    /// A call of a client, on a channel of its connection.
    pub(crate) fn of_client(place: Place, now: Instant, window: u8, dead_after: Duration) -> Call {
        Call::new(Side::Server, None, Some(place), CallState::Serving, now, window, dead_after)
    }

    fn new(
        side: Side,
        route: Option<RouteId>,
        place: Option<Place>,
        state: CallState,
        now: Instant,
        window: u8,
        dead_after: Duration,
    ) -> Call {
        Call {
            side,
            route,
            place,
            sending: Sending::new(),
            receiving: Receiving::new(window),
            told: Told::default(),
            scheduled: None,
            lined_up: false,
            state,
            heard: now,
            asked: now,
            ping: false,
            unanswered: false,
            dead_after,
        }
    }

    pub(crate) fn state(&self) -> CallState {
        self.state
    }

    /// The one place where a call's state changes.
    pub(crate) fn change(&mut self, cause: Cause) {
        if let Some(next) = self.state.after(cause) {
            self.state = next;
        }
    }

    /// It runs from now on.
    pub(crate) fn attach(&mut self, place: Place, now: Instant) {
        self.place = Some(place);
        self.heard = now;
        self.asked = now;
        self.change(Cause::ChannelFound);
    }

    /// The error of a call that is over.
    pub(crate) fn check(&self) -> Result<(), CallError> {
        match self.state {
            CallState::Over(Err(error)) => Err(error),
            CallState::Over(Ok(())) | CallState::Gone | CallState::Dallying => Err(CallError::Closed),
            _ => Ok(()),
        }
    }

    /// A packet of this call, of any type. False if its data is not what the other side sealed.
    pub(crate) fn handle(
        &mut self,
        now: Instant,
        header: &Header,
        payload: &[u8],
        connection: &mut Connection,
    ) -> bool {
        if !self.state.is_live() {
            return true;
        }
        let alive = match header.kind {
            PacketType::Data => self.data(now, header, payload, connection),
            PacketType::Ack => self.ack(now, header, payload, connection),
            PacketType::AckAll => {
                self.sending.acknowledged_all();
                true
            }
            PacketType::Busy => {
                self.sending.busy();
                connection.channels[header.channel()].is_busy_there(now);
                true
            }
            PacketType::Abort => {
                let code = payload.first_chunk().map_or(NO_CODE, |code| i32::from_be_bytes(*code));
                self.change(Cause::PeerAborted(code));
                true
            }
            _ => false,
        };
        if alive {
            self.heard = now;
            self.asked = now;
            self.unanswered = false;
            connection.heard = now;
        }
        if self.state == CallState::Holding && self.sending.is_done() {
            self.change(Cause::ReplyArrived);
        }
        alive || header.kind != PacketType::Data
    }

    fn data(&mut self, now: Instant, header: &Header, payload: &[u8], connection: &mut Connection) -> bool {
        let Some(data) = connection.guard.open(header, payload) else {
            return false;
        };
        let arrival = self.receiving.arrived(now, header, data, connection.rtt.way());
        if self.state == CallState::Requesting && arrival != Arrival::Dropped {
            self.sending.since_sent(now).into_iter().for_each(|after| connection.rtt.replied(after));
            // A reply shows that the request was received, or that the rest of it is not wanted.
            self.sending.drop_all();
            self.change(Cause::ReplyCame);
        }
        true
    }

    fn ack(&mut self, now: Instant, header: &Header, payload: &[u8], connection: &mut Connection) -> bool {
        if header.has(flag::REQUEST_ACK) {
            self.receiving.owe(Reason::PingResponse, header.serial);
        }
        let Some(acked) = Acked::decode(payload) else {
            return false;
        };
        if self.sending.acknowledged(now, &acked, &mut connection.rtt) {
            connection.datagram_bytes_max = acked.datagram_bytes_max;
        }
        // Also who says something old, or something of a request that was dropped for its reply, is there.
        true
    }

    /// Bytes from the application: how many were taken.
    pub(crate) fn write(&mut self, bytes: &[u8], packet_bytes: usize) -> Result<usize, CallError> {
        self.check()?;
        self.change(Cause::ReplyBegun);
        match self.state {
            // The server answers already: nobody would take it.
            CallState::Receiving => return Ok(bytes.len()),
            _ if self.sending.is_finished() => return Err(CallError::Closed),
            _ => {}
        }
        let taken = self.sending.write(bytes, packet_bytes);
        self.told.wants_room |= taken < bytes.len();
        Ok(taken)
    }

    /// The application has written all.
    pub(crate) fn finish(&mut self) {
        if self.check().is_ok() {
            self.sending.finish();
            if self.side == Side::Server {
                self.change(Cause::ReplyWritten);
            }
        }
    }

    /// What there is to read, at most `max` bytes.
    pub(crate) fn read(&mut self, now: Instant, max: usize) -> Result<Read, CallError> {
        self.check()?;
        let read = self.receiving.read(now, max);
        if read == Read::Blocked {
            self.told.readable = false;
        }
        if read == Read::End && self.state == CallState::Receiving {
            self.change(Cause::ReplyRead);
            if self.receiving.is_told() {
                self.change(Cause::ReplyTold);
            } else {
                self.receiving.owe_the_end(now);
            }
        }
        Ok(read)
    }

    /// When [`Call::handle_timeout`] is to be called.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        if !self.state.is_live() {
            return None;
        }
        let delayed = self.receiving.delayed_until();
        if !self.state.needs_peer() {
            return delayed;
        }
        let ping = self.asked + self.ping_interval();
        let dead = self.heard + self.dead_after;
        [delayed, self.sending.wait_until(), Some(ping), Some(dead)].into_iter().flatten().min()
    }

    /// The time has come for something.
    pub(crate) fn handle_timeout(&mut self, now: Instant, connection: &Connection) {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if due(self.receiving.delayed_until()) {
            self.receiving.delayed(now);
            if self.state == CallState::Dallying && self.receiving.is_told() {
                self.change(Cause::ReplyTold);
            }
        }
        if !self.state.needs_peer() {
            return;
        }
        if self.heard + self.dead_after <= now {
            self.change(Cause::Silence);
            return;
        }
        if due(self.sending.wait_until()) && self.sending.silent(now, &connection.rtt) == Silence::Probe {
            self.ping = true;
        }
        if self.asked + self.ping_interval() <= now {
            self.asked = now;
            self.ping = true;
            self.unanswered = true;
        }
    }

    /// Whether [`Call::transmit`] would give a packet.
    pub(crate) fn wants_to_send(&self) -> bool {
        self.state.is_live() && (self.receiving.is_owed() || self.ping || self.sending.is_ready())
    }

    /// The next datagram.
    pub(crate) fn transmit(&mut self, now: Instant, connection: &mut Connection) -> Option<Transmit> {
        let channel = self.place.filter(|_| self.state.is_live())?.channel;
        if let Some(ack) = self.receiving.take_ack() {
            let transmit = connection.ack(channel, &ack);
            if self.state == CallState::Dallying && self.receiving.is_told() {
                self.change(Cause::ReplyTold);
            }
            return Some(transmit);
        }
        if std::mem::take(&mut self.ping) {
            let ack = self.receiving.ack(Reason::Ping, 0);
            return Some(connection.ack(channel, &ack));
        }
        let next = self.sending.next(now, connection.next_serial(), &connection.rtt)?;
        let last = if next.last { flag::LAST_PACKET } else { 0 };
        let asks = if next.request_ack { flag::REQUEST_ACK } else { 0 };
        let header = connection.header(channel, PacketType::Data, last | asks);
        let header = Header { seq: next.seq, ..header };
        if self.side == Side::Server {
            // The reply says that the request is here.
            self.receiving.owe_nothing();
        }
        Some(Transmit { to: connection.to, payload: connection.guard.seal(header, &next.data) })
    }

    /// What is left of the call for its channel.
    pub(crate) fn remnant(&self) -> Option<Remnant> {
        match self.state {
            CallState::Over(Err(CallError::Dead)) => Some(Remnant::Aborted(DEAD)),
            _ => self.receiving.end().map(|next| Remnant::Complete { next }),
        }
    }

    fn ping_interval(&self) -> Duration {
        let usual = self.dead_after / PINGS_BEFORE_DEAD;
        if self.unanswered { usual.min(PING_AGAIN) } else { usual }
    }
}
