//! A connection: four channels between two sides, each with one call at a time.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::ack::{Ack, Reason};
use crate::call::CallId;
use crate::endpoint::Transmit;
use crate::route::RouteId;
use crate::rtt::Rtt;
use crate::security::Guard;
use crate::wire::{CHANNELS, DATA_BYTES_MAX, DATAGRAM_BYTES_INVITED, HEADER_BYTES, Header, PacketType, flag};

/// How long a channel is left alone on which the server may still be at a call that was given up here.
const BUSY_FOR: Duration = Duration::from_secs(2);

/// A connection among those of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnectionId(pub(crate) u64);

/// Which end of a connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// What both sides call a connection, and how it goes.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) side: Side,
    pub(crate) to: SocketAddr,
    pub(crate) epoch: u32,
    /// With the channel's bits clear.
    pub(crate) cid: u32,
    pub(crate) service: u16,
    pub(crate) guard: Guard,
    pub(crate) channels: [Channel; CHANNELS],
    pub(crate) rtt: Rtt,
    /// The largest datagram to send, in bytes.
    pub(crate) datagram_bytes_max: u32,
    /// When the other side was heard last.
    pub(crate) heard: Instant,
    /// The route of a client's side.
    pub(crate) route: Option<RouteId>,
    /// Since when a server's side is in the endpoint's list of idle connections.
    pub(crate) idle_since: Option<Instant>,
    /// The serial number sent last.
    serial: u32,
}

/// One of the places for calls.
#[derive(Debug, Default)]
pub(crate) struct Channel {
    /// The number of the call that is or was here last; 0 before the first.
    pub(crate) number: u32,
    pub(crate) call: Option<CallId>,
    /// What to say to packets of the last call after it ended.
    pub(crate) remnant: Option<Remnant>,
    /// Until then the server may not be done with the last call.
    busy_until: Option<Instant>,
}

/// What is left of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remnant {
    /// It received all packets before this number.
    Complete { next: u32 },
    /// It was given up here with this code.
    Aborted(i32),
}

impl Channel {
    /// Whether a call may begin here.
    pub(crate) fn is_free(&self) -> bool {
        self.call.is_none() && self.number < u32::MAX
    }

    /// Whether the server is likely to take a call here at once.
    pub(crate) fn is_idle(&self, now: Instant) -> bool {
        self.is_free() && self.busy_until.is_none_or(|until| until <= now)
    }

    /// The server is not done with what is or was here.
    pub(crate) fn is_busy_there(&mut self, now: Instant) {
        self.busy_until = Some(now + BUSY_FOR);
    }
}

impl Connection {
    pub(crate) fn new(
        side: Side,
        to: SocketAddr,
        (epoch, cid): (u32, u32),
        service: u16,
        guard: Guard,
        now: Instant,
    ) -> Connection {
        Connection {
            side,
            to,
            epoch,
            cid,
            service,
            guard,
            channels: Default::default(),
            rtt: Rtt::default(),
            datagram_bytes_max: DATAGRAM_BYTES_INVITED,
            heard: now,
            route: None,
            idle_since: None,
            serial: 0,
        }
    }

    /// Bytes of an application's data that fit into a packet.
    pub(crate) fn data_bytes_max(&self) -> usize {
        let payload = (self.datagram_bytes_max as usize).saturating_sub(HEADER_BYTES).min(DATA_BYTES_MAX);
        self.guard.data_bytes_max(payload)
    }

    /// Whether there is a call on any channel.
    pub(crate) fn has_calls(&self) -> bool {
        self.channels.iter().any(|channel| channel.call.is_some())
    }

    /// The serial number that the next packet gets.
    pub(crate) fn next_serial(&self) -> u32 {
        self.serial.wrapping_add(1)
    }

    /// The header of the next packet, for the call that is or was last on the channel.
    pub(crate) fn header(&mut self, channel: usize, kind: PacketType, flags: u8) -> Header {
        Header { cid: self.cid | channel as u32, call: self.channels[channel].number, ..self.own_header(kind, flags) }
    }

    /// The header of the next packet, for the connection itself.
    pub(crate) fn own_header(&mut self, kind: PacketType, flags: u8) -> Header {
        self.serial = self.next_serial();
        let side = if self.side == Side::Client { flag::CLIENT_INITIATED } else { 0 };
        Header {
            epoch: self.epoch,
            cid: self.cid,
            call: 0,
            seq: 0,
            serial: self.serial,
            kind,
            flags: flags | side,
            user_status: 0,
            security: self.guard.index(),
            checksum: 0,
            service: self.service,
        }
    }

    /// An acknowledgement as a datagram.
    pub(crate) fn ack(&mut self, channel: usize, ack: &Ack) -> Transmit {
        let asks = if ack.reason == Reason::Ping { flag::REQUEST_ACK } else { 0 };
        let header = self.header(channel, PacketType::Ack, flag::SLOW_START_OK | asks);
        Transmit { to: self.to, payload: header.packet(&ack.encode()) }
    }

    /// The end of a call as a datagram.
    pub(crate) fn abort(&mut self, channel: usize, code: i32) -> Transmit {
        let header = self.header(channel, PacketType::Abort, 0);
        Transmit { to: self.to, payload: header.packet(&code.to_be_bytes()) }
    }

    /// What to say to a packet of the call that was last on its channel.
    pub(crate) fn answer_late(&mut self, header: &Header) -> Option<Transmit> {
        let asks = header.kind == PacketType::Data || (header.kind == PacketType::Ack && header.has(flag::REQUEST_ACK));
        if !asks {
            return None;
        }
        let channel = header.channel();
        Some(match self.channels[channel].remnant? {
            Remnant::Aborted(code) => self.abort(channel, code),
            Remnant::Complete { next } => {
                let reason = if header.kind == PacketType::Data { Reason::Duplicate } else { Reason::PingResponse };
                let ack = Ack {
                    first: next,
                    previous: next.wrapping_sub(1),
                    serial: header.serial,
                    reason,
                    received: Vec::new(),
                    window: 1,
                };
                self.ack(channel, &ack)
            }
        })
    }
}
