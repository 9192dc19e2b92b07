//! What comes from the network: whose packet it is, and what to say to those whose it is not.

use std::net::SocketAddr;
use std::time::Instant;

use crate::call::Place;
use crate::call_state::Cause;
use crate::config::{REQUEST_WINDOW_PACKETS, USER_ABORT};
use crate::connection::{Connection, ConnectionId, Side};
use crate::endpoint::{Endpoint, Transmit};
use crate::event::Event;
use crate::security::{Guard, Security};
use crate::wire::{CHANNEL_MASK, DATAGRAM_BYTES_TAKEN, Header, PacketType, distance, flag};

/// Said to a call of a service that is not offered, or not in this security class (RX_INVALID_OPERATION).
const INVALID_OPERATION: i32 = -2;

/// The code of an ABORT that does not say one (RX_PROTOCOL_ERROR).
const NO_CODE: i32 = -5;

impl Endpoint {
    /// A datagram came.
    pub fn handle_datagram(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) {
        let Some((header, payload)) = Header::decode(datagram).filter(|_| datagram.len() <= DATAGRAM_BYTES_TAKEN)
        else {
            self.counts.datagrams_unknown += 1;
            return;
        };
        match header.kind {
            // Both would be answered with more bytes than they have.
            PacketType::Version | PacketType::Debug => self.counts.datagrams_unknown += 1,
            // Several packets in one datagram: not invited.
            PacketType::Data if header.has(flag::JUMBO_PACKET) => self.counts.datagrams_unknown += 1,
            _ if header.has(flag::CLIENT_INITIATED) => self.take_from_client(now, from, &header, payload),
            _ => self.take_from_server(now, from, &header, payload),
        }
    }

    /// Something about a connection that was opened here.
    fn take_from_server(&mut self, now: Instant, from: SocketAddr, header: &Header, payload: &[u8]) {
        let id = self.outgoing.get(&(header.cid & !CHANNEL_MASK)).copied().filter(|_| header.epoch == self.epoch);
        let known = |it: &&mut Connection| it.to.port() == from.port() && it.guard.index() == header.security;
        let Some((id, connection)) = id.and_then(|id| Some((id, self.connections.get_mut(&id).filter(known)?))) else {
            return self.disown(from, header);
        };
        if header.call != 0 {
            return self.pass_to_call(now, id, header, payload);
        }
        match header.kind {
            PacketType::Abort => {
                let code = payload.first_chunk().map_or(NO_CODE, |code| i32::from_be_bytes(*code));
                self.fail_connection(now, id, Cause::PeerAborted(code));
            }
            // Who is asked for a proof while nothing is called is asked by somebody else.
            PacketType::Challenge if connection.has_calls() => {
                let calls = connection.channels.each_ref().map(|channel| channel.number);
                match connection.guard.respond(payload, calls) {
                    Ok(response) => {
                        let header = connection.own_header(PacketType::Response, 0);
                        let transmit = Transmit { to: connection.to, payload: header.packet(&response) };
                        self.send(transmit);
                    }
                    Err(error) => {
                        let header = connection.own_header(PacketType::Abort, 0);
                        let payload = header.packet(&error.code().to_be_bytes());
                        let transmit = Transmit { to: connection.to, payload };
                        self.send(transmit);
                        self.fail_connection(now, id, Cause::SecurityFailed(error));
                    }
                }
            }
            _ => self.counts.packets_stray += 1,
        }
    }

    /// A server goes on with a call that nobody here knows: of whoever had this port before, or one that was given up while
    /// the server could not be told. Unless it hears that, it has a hold on what the call is about until it takes the caller
    /// for dead: OpenAFS's file servers hold a file that is being stored for 30 s, and say that they are there each 5 s
    /// (OpenAFS `src/viced/viced.c`, `rx_SetRxDeadTime`; `src/rx/rx.c`, `rxi_KeepAliveEvent`).
    fn disown(&mut self, from: SocketAddr, header: &Header) {
        self.counts.packets_stray += 1;
        if matches!(header.kind, PacketType::Ack | PacketType::Data) && header.call != 0 {
            let flags = flag::CLIENT_INITIATED;
            let abort = Header { kind: PacketType::Abort, flags, seq: 0, serial: 0, user_status: 0, ..*header };
            self.send(Transmit { to: from, payload: abort.packet(&USER_ABORT.to_be_bytes()) });
        }
    }

    /// Something about a connection that the sender opened, or opens with it.
    fn take_from_client(&mut self, now: Instant, from: SocketAddr, header: &Header, payload: &[u8]) {
        let key = (header.epoch, header.cid & !CHANNEL_MASK, from);
        let known = self.incoming.get(&key).copied();
        if known.is_none() && (header.kind != PacketType::Data || header.call == 0) {
            self.counts.packets_stray += 1;
            return;
        }
        let offered = self.config.services.contains(&header.service) && header.security == 0;
        if known.is_none() && !offered {
            self.counts.services_unknown += 1;
            let abort = Header { kind: PacketType::Abort, flags: 0, seq: 0, serial: 0, user_status: 0, ..*header };
            self.send(Transmit { to: from, payload: abort.packet(&INVALID_OPERATION.to_be_bytes()) });
            return;
        }
        let id = known.unwrap_or_else(|| self.accept(now, key, header.service));
        let Some(connection) = self.connections.get(&id) else {
            return;
        };
        if header.service != connection.service || header.security != connection.guard.index() {
            self.counts.packets_stray += 1;
            return;
        }
        match header.call {
            0 if header.kind == PacketType::Abort => {
                let code = payload.first_chunk().map_or(NO_CODE, |code| i32::from_be_bytes(*code));
                self.fail_connection(now, id, Cause::PeerAborted(code));
            }
            0 => self.counts.packets_stray += 1,
            _ if self.admit(now, id, from, header) => self.pass_to_call(now, id, header, payload),
            _ => {}
        }
    }

    /// Makes place for the call of a packet, if it is a new one. False if it is of no call that runs or may run.
    fn admit(&mut self, now: Instant, id: ConnectionId, from: SocketAddr, header: &Header) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else {
            return false;
        };
        let channel = &connection.channels[header.channel()];
        if header.call <= channel.number {
            return true;
        }
        // Nothing but the first packets of a request begins a call: the rest is of one that ran before a start of ours.
        let begins = (1..=i32::from(REQUEST_WINDOW_PACKETS)).contains(&distance(0, header.seq));
        if header.kind != PacketType::Data || !begins {
            self.counts.packets_stray += 1;
            return false;
        }
        let before = channel.call;
        if self.incoming_calls >= self.config.incoming_calls_max {
            self.counts.incoming_calls_refused += 1;
            let busy = connection.own_header(PacketType::Busy, 0);
            let busy = Header { cid: header.cid, call: header.call, ..busy };
            let transmit = Transmit { to: connection.to, payload: busy.packet(&[]) };
            self.send(transmit);
            if let Some(before) = before {
                self.change(now, before, Cause::ChannelReused);
            }
            return false;
        }
        let service = connection.service;
        if let Some(since) = connection.idle_since.take() {
            self.idle.remove(&(since, id));
        }
        let call = self.of_client(now, Place { connection: id, channel: header.channel() });
        if let Some(connection) = self.connections.get_mut(&id) {
            let channel = &mut connection.channels[header.channel()];
            (channel.number, channel.call, channel.remnant) = (header.call, Some(call), None);
        }
        if let Some(before) = before {
            self.change(now, before, Cause::ChannelReused);
        }
        self.events.push_back(Event::Incoming { call, from, service });
        true
    }

    /// A packet of a call that runs, or of the last one of its channel.
    fn pass_to_call(&mut self, now: Instant, id: ConnectionId, header: &Header, payload: &[u8]) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let channel = &connection.channels[header.channel()];
        if header.call != channel.number {
            self.counts.packets_stray += 1;
            return;
        }
        let Some(call_id) = channel.call else {
            let answer = connection.answer_late(header);
            self.counts.packets_stray += u64::from(answer.is_none());
            if let Some(answer) = answer {
                self.send(answer);
            }
            return;
        };
        if let Some(call) = self.calls.get_mut(&call_id) {
            self.counts.packets_forged += u64::from(!call.handle(now, header, payload, connection));
            self.settle(now, call_id);
        }
    }

    /// A connection for a client that is not known; the one that is idle for the longest time may have to go for it.
    fn accept(&mut self, now: Instant, key: (u32, u32, SocketAddr), service: u16) -> ConnectionId {
        // Every connection without calls is idle, so there is one when there are more connections than calls.
        let most = self.config.incoming_connections_max.max(self.config.incoming_calls_max + 1);
        while self.incoming.len() >= most {
            let Some((_, oldest)) = self.idle.first().copied() else {
                break;
            };
            self.counts.incoming_connections_dropped += 1;
            self.forget_connection(oldest);
        }
        let (epoch, cid, from) = key;
        let id = ConnectionId(self.next_id());
        let guard = Guard::new(&Security::None, epoch, cid);
        self.connections.insert(id, Connection::new(Side::Server, from, (epoch, cid), service, guard, now));
        self.incoming.insert(key, id);
        self.rest(now, id);
        id
    }
}
