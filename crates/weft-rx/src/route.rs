//! Where calls of ours go: the connections of a route, and the line of calls that wait for a channel of one.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Instant;

use crate::call::{CallId, Place};
use crate::call_state::{CallState, Cause};
use crate::connection::{Connection, ConnectionId, Side};
use crate::endpoint::Endpoint;
use crate::security::{Guard, Security};
use crate::wire::CHANNEL_MASK;

/// A server, one of its services, and how calls to it are secured. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteId(pub(crate) u64);

/// One route.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) address: SocketAddr,
    pub(crate) service: u16,
    pub(crate) security: Security,
    pub(crate) connections: Vec<ConnectionId>,
    pub(crate) waiting: VecDeque<CallId>,
    /// No new calls; the connections go when their last call does.
    pub(crate) forgotten: bool,
}

impl Endpoint {
    /// Lets as many waiting calls of the route run as there are channels.
    pub(crate) fn fill(&mut self, now: Instant, id: RouteId) {
        loop {
            let Some(call) = self.routes.get(&id).and_then(|route| route.waiting.front().copied()) else {
                return;
            };
            let Some(place) = self.find_place(now, id) else {
                return;
            };
            if let Some(route) = self.routes.get_mut(&id) {
                route.waiting.pop_front();
            }
            self.take_place(now, place, call);
            self.settle(now, call);
        }
    }

    /// Lets no call wait for a server of which nothing was heard for the time that makes it dead.
    pub(crate) fn despair(&mut self, now: Instant, id: RouteId) {
        let Some(route) = self.routes.get_mut(&id) else {
            return;
        };
        let silent = |connection: &ConnectionId| {
            self.connections.get(connection).is_none_or(|it| it.heard + self.config.dead_after <= now)
        };
        if !route.connections.iter().all(silent) {
            return;
        }
        for call in std::mem::take(&mut route.waiting) {
            self.change(now, call, Cause::Silence);
        }
    }

    /// A free channel: best one whose last call has yet to be acknowledged, for the new call does that; then one that
    /// the server is done with; then one of a new connection; then any.
    fn find_place(&mut self, now: Instant, id: RouteId) -> Option<Place> {
        let route = self.routes.get(&id)?;
        let mut free: [Option<Place>; 3] = [None; 3];
        for connection in route.connections.iter().copied() {
            let Some(it) = self.connections.get(&connection) else {
                continue;
            };
            for (channel, state) in it.channels.iter().enumerate() {
                let dallies = |call| self.calls.get(&call).is_some_and(|call| call.state() == CallState::Dallying);
                let rank = match state.call {
                    Some(call) if dallies(call) && state.number < u32::MAX => 0,
                    None if state.is_idle(now) => 1,
                    None if state.is_free() => 2,
                    _ => continue,
                };
                free[rank].get_or_insert(Place { connection, channel });
            }
        }
        if let Some(place) = free[0].or(free[1]) {
            return Some(place);
        }
        if route.connections.len() < self.config.connections_per_route_max.max(1) {
            return self.open(now, id).map(|connection| Place { connection, channel: 0 });
        }
        free[2]
    }

    fn take_place(&mut self, now: Instant, place: Place, id: CallId) {
        let Some(connection) = self.connections.get_mut(&place.connection) else {
            return;
        };
        let channel = &mut connection.channels[place.channel];
        let before = channel.call.replace(id);
        channel.number += 1;
        channel.remnant = None;
        if let Some(call) = self.calls.get_mut(&id) {
            call.attach(place, now);
        }
        if let Some(before) = before {
            self.change(now, before, Cause::ChannelReused);
        }
    }

    /// One more connection of the route.
    fn open(&mut self, now: Instant, id: RouteId) -> Option<ConnectionId> {
        let route = self.routes.get_mut(&id)?;
        // Ids of connections that live are few among 2^30.
        while self.outgoing.contains_key(&self.next_cid) {
            self.next_cid = self.next_cid.wrapping_add(CHANNEL_MASK + 1);
        }
        let cid = self.next_cid;
        self.next_cid = cid.wrapping_add(CHANNEL_MASK + 1);
        let guard = Guard::new(&route.security, self.epoch, cid);
        let names = (self.epoch, cid);
        let mut connection = Connection::new(Side::Client, route.address, names, route.service, guard, now);
        connection.route = Some(id);
        // The way is the same.
        let other = route.connections.iter().rev().find_map(|other| self.connections.get(other));
        other.into_iter().for_each(|other| connection.rtt = other.rtt);
        let connection_id = ConnectionId(self.next_id());
        self.outgoing.insert(cid, connection_id);
        self.connections.insert(connection_id, connection);
        self.names_changed = true;
        if let Some(route) = self.routes.get_mut(&id) {
            route.connections.push(connection_id);
        }
        Some(connection_id)
    }
}
