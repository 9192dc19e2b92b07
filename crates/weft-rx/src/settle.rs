//! After anything has happened to a call: what follows for the endpoint's tables, its timers and its events.

use std::time::Instant;

use crate::call::CallId;
use crate::call_state::{CallState, Cause};
use crate::connection::{ConnectionId, Side};
use crate::endpoint::Endpoint;
use crate::event::Event;

impl Endpoint {
    /// Changes the state of a call.
    pub(crate) fn change(&mut self, now: Instant, id: CallId, cause: Cause) {
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        call.change(cause);
        self.settle(now, id);
    }

    /// To be called after anything has been done to a call.
    pub(crate) fn settle(&mut self, now: Instant, id: CallId) {
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        let deadline = call.deadline();
        if call.scheduled != deadline {
            if let Some(at) = call.scheduled {
                self.timers.remove(&(at, id));
            }
            if let Some(at) = deadline {
                self.timers.insert((at, id));
            }
            call.scheduled = deadline;
        }
        match call.state() {
            CallState::Gone => {
                self.release(now, id);
                self.remove(id);
            }
            CallState::Over(how) => {
                if !std::mem::replace(&mut call.told.ended, true) {
                    self.events.push_back(Event::Ended(id, how));
                }
                self.release(now, id);
            }
            state => {
                let route = call.route.filter(|_| state == CallState::Dallying);
                self.tell(id);
                if let Some(route) = route {
                    // Another call may have the channel, which saves the acknowledgement.
                    self.fill(now, route);
                }
            }
        }
    }

    /// Nobody needs the call any more.
    pub(crate) fn remove(&mut self, id: CallId) {
        if self.calls.remove(&id).is_some_and(|call| call.side == Side::Server) {
            self.incoming_calls -= 1;
        }
    }

    /// What the application and the line of senders have to know of a call that runs.
    fn tell(&mut self, id: CallId) {
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        if call.state().needs_peer() && call.receiving.is_readable() && !call.told.readable {
            call.told.readable = true;
            self.events.push_back(Event::Readable(id));
        }
        if call.told.wants_room && call.sending.has_room() {
            call.told.wants_room = false;
            self.events.push_back(Event::Writable(id));
        }
        if !call.lined_up && call.wants_to_send() {
            call.lined_up = true;
            self.line.push_back(id);
        }
    }

    /// The call's channel, or its place in the line of those that wait, is for others.
    fn release(&mut self, now: Instant, id: CallId) {
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        let (place, route, remnant) = (call.place.take(), call.route, call.remnant());
        let Some(place) = place else {
            if let Some(route) = route.and_then(|route| self.routes.get_mut(&route)) {
                route.waiting.retain(|waiting| *waiting != id);
            }
            return;
        };
        if let Some(connection) = self.connections.get_mut(&place.connection) {
            let channel = &mut connection.channels[place.channel];
            if channel.call == Some(id) {
                channel.call = None;
                channel.remnant = channel.remnant.or(remnant);
            }
        }
        match route {
            Some(route) => {
                self.fill(now, route);
                if self.routes.get(&route).is_some_and(|route| route.forgotten) {
                    self.forget_if_unused(place.connection);
                }
            }
            None => self.rest(now, place.connection),
        }
    }

    /// A client's connection is idle from now on, unless it has other calls.
    pub(crate) fn rest(&mut self, now: Instant, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(&id)
            && !connection.has_calls()
            && connection.idle_since.is_none()
        {
            connection.idle_since = Some(now);
            self.idle.insert((now, id));
        }
    }

    /// Forgets a connection of a route that is forgotten, and the route with its last connection.
    pub(crate) fn forget_if_unused(&mut self, id: ConnectionId) {
        if self.connections.get(&id).is_some_and(|connection| !connection.has_calls()) {
            self.forget_connection(id);
        }
    }

    /// Nothing is known of a connection any more.
    pub(crate) fn forget_connection(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.remove(&id) else {
            return;
        };
        match connection.side {
            Side::Server => {
                self.incoming.remove(&(connection.epoch, connection.cid, connection.to));
                if let Some(since) = connection.idle_since {
                    self.idle.remove(&(since, id));
                }
            }
            Side::Client => {
                self.outgoing.remove(&connection.cid);
                self.names_changed = true;
                let Some(route_id) = connection.route else {
                    return;
                };
                if let Some(route) = self.routes.get_mut(&route_id) {
                    route.connections.retain(|other| *other != id);
                    if route.forgotten && route.connections.is_empty() {
                        self.routes.remove(&route_id);
                    }
                }
            }
        }
    }

    /// A connection failed: its calls end, and it is forgotten.
    pub(crate) fn fail_connection(&mut self, now: Instant, id: ConnectionId, cause: Cause) {
        let Some(connection) = self.connections.get(&id) else {
            return;
        };
        let calls: Vec<CallId> = connection.channels.iter().filter_map(|channel| channel.call).collect();
        // Forgotten first, so that no waiting call is put on it.
        self.forget_connection(id);
        calls.into_iter().for_each(|call| self.change(now, call, cause));
    }
}
