//! One UDP socket's worth of Rx: client and server at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Instant;

use crate::call::{Call, CallId};
use crate::call_state::{CallError, CallState, Cause};
use crate::config::{
    CONTROL_PACKETS_MAX, Config, INCOMING_IDLE, REPLY_WINDOW_PACKETS, REQUEST_WINDOW_PACKETS, WAITING_CALLS_MAX,
};
use crate::connection::{Connection, ConnectionId, Remnant, Side};
use crate::counts::{Counts, Load};
use crate::event::Event;
use crate::receiving::{Drained, Read};
use crate::route::{Route, RouteId};
use crate::security::{Guard, Security};
use crate::wire::{CHANNEL_MASK, DATA_BYTES_MAX};

/// The bit of an epoch that says that the epoch and the connection's id name a connection, whatever the address is.
const EPOCH_NAMES: u32 = 1 << 31;

/// The bit of an epoch that is always clear.
const EPOCH_CLEAR: u32 = 1 << 30;

/// A datagram to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where to.
    pub to: SocketAddr,
    /// The whole datagram; at most 1440 bytes, but for the proof of who calls, which has up to 12,100 and may be sent
    /// in fragments.
    pub payload: Vec<u8>,
}

/// The state of all calls of one UDP socket, in both roles; it does no I/O and knows no clock.
///
/// Whoever drives it gives it what comes ([`handle_datagram`](Self::handle_datagram)), the time
/// ([`handle_timeout`](Self::handle_timeout), when [`poll_timeout`](Self::poll_timeout) says) and the application's
/// wishes, and after any of these asks, until there is nothing more, what to tell the application
/// ([`poll_event`](Self::poll_event)), what to send ([`poll_transmit`](Self::poll_transmit)), and then for the time of
/// the next timeout. Times never go back. Acknowledgements are made when they are polled for: to handle all datagrams that
/// have come, and to read what they brought, before polling saves packets.
///
/// A packet of a connection that was opened here is known by the epoch and the connection's id, and by coming from the
/// server's port: a server may answer from another of its addresses. A client's connection is known by its address too:
/// what comes from elsewhere under its name is another one, so that nobody speaks in the name of a known address but
/// who can send from there.
///
/// Strangers can make an endpoint keep no more than [`Config`] says. What concerns no running call is answered with 65
/// bytes at most.
#[derive(Debug)]
pub struct Endpoint {
    pub(crate) config: Config,
    pub(crate) epoch: u32,
    pub(crate) next_cid: u32,
    last_id: u64,
    pub(crate) routes: BTreeMap<RouteId, Route>,
    pub(crate) connections: BTreeMap<ConnectionId, Connection>,
    pub(crate) calls: BTreeMap<CallId, Call>,
    /// Connections of ours by their id in packets.
    pub(crate) outgoing: BTreeMap<u32, ConnectionId>,
    /// Clients' connections by epoch, id in packets and address.
    pub(crate) incoming: BTreeMap<(u32, u32, SocketAddr), ConnectionId>,
    /// Those of them without calls, by the time since when.
    pub(crate) idle: BTreeSet<(Instant, ConnectionId)>,
    /// Clients' calls, also those of whose end the application has not heard.
    pub(crate) incoming_calls: usize,
    /// When calls want [`Call::handle_timeout`].
    pub(crate) timers: BTreeSet<(Instant, CallId)>,
    /// Calls that may have something to send, in turn.
    pub(crate) line: VecDeque<CallId>,
    pub(crate) control: VecDeque<Transmit>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) counts: Counts,
    /// Connections were opened or forgotten here.
    pub(crate) names_changed: bool,
}

impl Endpoint {
    /// An endpoint that nobody knows yet. The seed has to be random: who knows it can forge answers.
    #[must_use]
    pub fn new(config: Config, seed: [u8; 32]) -> Endpoint {
        let word = |at: usize| u32::from_be_bytes([seed[at], seed[at + 1], seed[at + 2], seed[at + 3]]);
        Endpoint {
            config,
            epoch: (word(0) | EPOCH_NAMES) & !EPOCH_CLEAR,
            next_cid: word(4) & !CHANNEL_MASK,
            last_id: 0,
            routes: BTreeMap::new(),
            connections: BTreeMap::new(),
            calls: BTreeMap::new(),
            outgoing: BTreeMap::new(),
            incoming: BTreeMap::new(),
            idle: BTreeSet::new(),
            incoming_calls: 0,
            timers: BTreeSet::new(),
            line: VecDeque::new(),
            control: VecDeque::new(),
            events: VecDeque::new(),
            counts: Counts::default(),
            names_changed: false,
        }
    }

    /// A way to a service of a server. Connections are opened as calls need them.
    pub fn route(&mut self, address: SocketAddr, service: u16, security: Security) -> RouteId {
        let id = RouteId(self.next_id());
        let (connections, waiting) = (Vec::new(), VecDeque::new());
        self.routes.insert(id, Route { address, service, security, connections, waiting, forgotten: false });
        id
    }

    /// No more calls go this way: those that wait end as closed, those that run go on.
    pub fn forget_route(&mut self, now: Instant, id: RouteId) {
        let Some(route) = self.routes.get_mut(&id) else {
            return;
        };
        route.forgotten = true;
        let connections = route.connections.clone();
        for call in std::mem::take(&mut route.waiting) {
            self.change(now, call, Cause::RouteForgotten);
        }
        connections.into_iter().for_each(|connection| self.forget_if_unused(connection));
        if self.routes.get(&id).is_some_and(|route| route.connections.is_empty()) {
            self.routes.remove(&id);
        }
    }

    /// A new call. It waits if all channels are taken, and what is written meanwhile waits with it.
    pub fn call(&mut self, now: Instant, route: RouteId) -> CallId {
        let id = CallId(self.next_id());
        self.calls.insert(id, Call::to_server(route, now, REPLY_WINDOW_PACKETS, self.config.dead_after));
        match self.routes.get_mut(&route).filter(|route| !route.forgotten) {
            None => self.change(now, id, Cause::RouteForgotten),
            Some(route) if route.waiting.len() >= WAITING_CALLS_MAX => {
                self.counts.calls_refused += 1;
                self.change(now, id, Cause::QueueFull);
            }
            Some(it) => {
                it.waiting.push_back(id);
                self.fill(now, route);
            }
        }
        id
    }

    /// Takes bytes of a request or a reply, as many as there is room for, and tells how many. If that is not all, an
    /// [`Event::Writable`] follows. What is written to a server that already replies is taken and dropped.
    ///
    /// # Errors
    /// How the call ended; `Closed` if it did so before, or if the end was written.
    pub fn write(&mut self, now: Instant, call: CallId, bytes: &[u8]) -> Result<usize, CallError> {
        let it = self.calls.get_mut(&call).ok_or(CallError::Closed)?;
        let connection = it.place.and_then(|place| self.connections.get(&place.connection));
        let route = it.route.and_then(|route| self.routes.get(&route));
        let packet_bytes = match (connection, route) {
            (Some(connection), _) => connection.data_bytes_max(),
            // It is not known yet which connection it will be.
            (None, Some(route)) => Guard::new(&route.security, 0, 0).data_bytes_max(DATA_BYTES_MAX),
            (None, None) => DATA_BYTES_MAX,
        };
        let taken = it.write(bytes, packet_bytes);
        self.settle(now, call);
        taken
    }

    /// The end of a request, or, in the server role, of a reply. Without effect on a call that ended.
    pub fn finish(&mut self, now: Instant, call: CallId) {
        if let Some(it) = self.calls.get_mut(&call) {
            it.finish();
            self.settle(now, call);
        }
    }

    /// What there is to read, at most `max` bytes. Reading is what lets the other side send more.
    ///
    /// # Errors
    /// How the call ended; `Closed` if it did so before. What was received and not read is lost then.
    pub fn read(&mut self, now: Instant, call: CallId, max: usize) -> Result<Read, CallError> {
        let it = self.calls.get_mut(&call).ok_or(CallError::Closed)?;
        let read = it.read(now, max);
        self.has_read(now, call, read == Ok(Read::End));
        read
    }

    /// Gives `take` what there is to read, piece by piece, up to `max` bytes.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn drain(
        &mut self,
        now: Instant,
        call: CallId,
        max: usize,
        mut take: impl FnMut(&[u8]),
    ) -> Result<Drained, CallError> {
        let it = self.calls.get_mut(&call).ok_or(CallError::Closed)?;
        let mut left = max;
        let drained = loop {
            if left == 0 && it.receiving.is_readable() && !it.receiving.is_read() {
                break Ok(Drained::Full);
            }
            match it.read(now, left) {
                Ok(Read::Bytes(bytes)) => {
                    left -= bytes.len();
                    take(&bytes);
                }
                Ok(Read::Blocked) => break Ok(Drained::Blocked),
                Ok(Read::End) => break Ok(Drained::End),
                Err(error) => break Err(error),
            }
        };
        self.has_read(now, call, drained == Ok(Drained::End));
        drained
    }

    /// The application has read; to the end, or not.
    fn has_read(&mut self, now: Instant, call: CallId, to_the_end: bool) {
        if let Some(it) = self.calls.get_mut(&call)
            && to_the_end
            && it.side == Side::Client
            && !std::mem::replace(&mut it.told.ended, true)
        {
            self.events.push_back(Event::Ended(call, Ok(())));
        }
        self.settle(now, call);
    }

    /// Gives a call up: the other side is told the code, and nobody here hears of the call again. Also for a call whose
    /// reply nobody waits for any more. Without effect on a call that ended.
    pub fn abort(&mut self, now: Instant, call: CallId, code: i32) {
        let Some(it) = self.calls.get_mut(&call) else {
            return;
        };
        let place = it.place.filter(|_| it.state().needs_peer());
        if let Some(connection) = place.and_then(|place| self.connections.get_mut(&place.connection)) {
            let channel = place.map_or(0, |place| place.channel);
            let abort = connection.abort(channel, code);
            let there = &mut connection.channels[channel];
            there.remnant = Some(Remnant::Aborted(code));
            there.is_busy_there(now);
            self.send(abort);
        }
        self.events.retain(|event| event.call() != call);
        self.change(now, call, Cause::GivenUp);
    }

    /// The time is `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((_, id)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            let Some(call) = self.calls.get_mut(&id) else {
                self.timers.pop_first();
                continue;
            };
            match call.place.and_then(|place| self.connections.get(&place.connection)) {
                Some(connection) => call.handle_timeout(now, connection),
                None => call.change(Cause::Silence),
            }
            // Before its channel is free for one of those that wait.
            if let Some(route) = call.route.filter(|_| call.state() == CallState::Over(Err(CallError::Dead))) {
                self.despair(now, route);
            }
            self.settle(now, id);
        }
        while let Some((since, connection)) = self.idle.first().copied()
            && since + INCOMING_IDLE <= now
        {
            self.forget_connection(connection);
        }
    }

    /// When [`Endpoint::handle_timeout`] is to be called next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let call = self.timers.first().map(|(at, _)| *at);
        let idle = self.idle.first().map(|(since, _)| *since + INCOMING_IDLE);
        [call, idle].into_iter().flatten().min()
    }

    /// The next datagram to be sent. Calls take turns.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        if let Some(control) = self.control.pop_front() {
            return Some(control);
        }
        while let Some(id) = self.line.pop_front() {
            let Some(call) = self.calls.get_mut(&id) else {
                continue;
            };
            call.lined_up = false;
            let connection = call.place.and_then(|place| self.connections.get_mut(&place.connection));
            let transmit = connection.and_then(|connection| call.transmit(now, connection));
            self.settle(now, id);
            if transmit.is_some() {
                return transmit;
            }
        }
        None
    }

    /// Whether [`Endpoint::poll_transmit`] may have something.
    #[must_use]
    pub fn wants_to_send(&self) -> bool {
        !self.control.is_empty() || !self.line.is_empty()
    }

    /// The next thing to tell the application.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        if let Event::Ended(id, _) = event
            && let Some(call) = self.calls.get_mut(&id)
        {
            call.change(Cause::EndHeard);
            if call.state() == CallState::Gone {
                self.remove(id);
            }
        }
        Some(event)
    }

    /// What happened so far that nobody was told of.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// When a host was heard last; of one that has said nothing yet, since when it is talked to. `None` when it is not.
    #[must_use]
    pub fn heard(&self, of: SocketAddr) -> Option<Instant> {
        let its = self.connections.values().filter(|connection| connection.to == of);
        its.map(|connection| connection.heard).max()
    }

    /// What is there now.
    #[must_use]
    pub fn load(&self) -> Load {
        let received_bytes = self.calls.values().map(|call| call.receiving.held_bytes()).sum();
        Load {
            calls: self.calls.len(),
            incoming_calls: self.incoming_calls,
            connections: self.connections.len(),
            incoming_connections: self.incoming.len(),
            received_bytes,
            control_packets: self.control.len(),
            events: self.events.len(),
        }
    }

    /// A number that was not used before.
    pub(crate) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Sends what concerns no running call.
    pub(crate) fn send(&mut self, transmit: Transmit) {
        if self.control.len() >= CONTROL_PACKETS_MAX {
            self.counts.control_dropped += 1;
        } else {
            self.control.push_back(transmit);
        }
    }

    /// A call of a client on a channel that is free for it.
    pub(crate) fn of_client(&mut self, now: Instant, place: crate::call::Place) -> CallId {
        let id = CallId(self.next_id());
        self.calls.insert(id, Call::of_client(place, now, REQUEST_WINDOW_PACKETS, self.config.dead_after));
        self.incoming_calls += 1;
        id
    }
}
