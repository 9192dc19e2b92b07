//! Tests of what an endpoint says to single packets: the other side is played by the test, packet by packet.
#![allow(clippy::disallowed_methods, reason = "some time has to be the first")]

mod client;
mod routes;
mod secured;
mod server;
mod silence;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::ack::{Ack, Acked, Reason};
use crate::wire::{Header, PacketType, flag};
use crate::{CallId, Config, Endpoint, Event, Read, Security};

/// Where the other side is.
const THERE: ([u8; 4], u16) = ([10, 0, 0, 2], 7000);

/// An endpoint, and the time.
struct Dialogue {
    now: Instant,
    endpoint: Endpoint,
    /// The serial number of the other side's last packet.
    serial: u32,
}

/// A packet that the endpoint sent.
#[derive(Clone, Debug)]
struct Said {
    header: Header,
    payload: Vec<u8>,
}

impl Said {
    fn kind(&self) -> PacketType {
        self.header.kind
    }

    fn has(&self, flag: u8) -> bool {
        self.header.has(flag)
    }

    /// Of an acknowledgement: the lowest number that is not passed on, the reason, and what came.
    fn ack(&self) -> (u32, u8, Vec<bool>) {
        assert_eq!(self.kind(), PacketType::Ack);
        let acked = Acked::decode(&self.payload).expect("whole");
        (acked.first, acked.reason, acked.received().collect())
    }

    /// Of an abort.
    fn code(&self) -> i32 {
        assert_eq!(self.kind(), PacketType::Abort);
        i32::from_be_bytes(*self.payload.first_chunk().expect("a code"))
    }
}

impl Dialogue {
    fn new() -> Dialogue {
        let config = Config { services: [1].into(), connections_per_route_max: 1, ..Config::default() };
        Dialogue { now: Instant::now(), endpoint: Endpoint::new(config, [0x5a; 32]), serial: 0 }
    }

    /// A call of ours with a request of so many bytes.
    fn call(&mut self, security: Security, request_bytes: usize) -> CallId {
        let route = self.endpoint.route(THERE.into(), 1, security);
        let call = self.endpoint.call(self.now, route);
        assert_eq!(self.endpoint.write(self.now, call, &vec![7; request_bytes]), Ok(request_bytes));
        self.endpoint.finish(self.now, call);
        call
    }

    /// All that the endpoint has to say now.
    fn said(&mut self) -> Vec<Said> {
        let said = std::iter::from_fn(|| self.endpoint.poll_transmit(self.now));
        let said = said.map(|transmit| {
            assert_eq!(transmit.to, SocketAddr::from(THERE));
            let (header, payload) = Header::decode(&transmit.payload).expect("a packet");
            assert_eq!(header.user_status, 0);
            Said { header, payload: payload.to_vec() }
        });
        said.collect()
    }

    /// The one thing it has to say.
    fn says(&mut self) -> Said {
        let mut said = self.said();
        assert_eq!(said.len(), 1, "{said:?}");
        said.remove(0)
    }

    /// The other side says something, with a serial number of its own.
    fn hear(&mut self, header: Header, payload: &[u8]) {
        self.serial += 1;
        let packet = Header { serial: self.serial, ..header }.packet(payload);
        self.endpoint.handle_datagram(self.now, THERE.into(), &packet);
    }

    /// The other side acknowledges.
    fn hear_ack(&mut self, to: Header, flags: u8, ack: &Ack) {
        let header = Header { kind: PacketType::Ack, flags, seq: 0, ..to };
        self.hear(header, &ack.encode());
    }

    /// Time passes until something is due; tells how much.
    fn wait(&mut self) -> Duration {
        let next = self.endpoint.poll_timeout().expect("something is due");
        let passed = next.saturating_duration_since(self.now);
        self.now = next;
        self.endpoint.handle_timeout(next);
        passed
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.endpoint.poll_event()).collect()
    }

    /// All that can be read.
    fn read(&mut self, call: CallId) -> (Vec<u8>, Read) {
        let mut bytes = Vec::new();
        loop {
            match self.endpoint.read(self.now, call, 10_000).expect("it runs") {
                Read::Bytes(more) => bytes.extend_from_slice(&more),
                end => return (bytes, end),
            }
        }
    }
}

/// The header of a packet that answers on the same call.
fn reply(to: Header, kind: PacketType, seq: u32, flags: u8) -> Header {
    Header { kind, seq, flags, ..to }
}

/// An acknowledgement that says this much.
fn ack(first: u32, previous: u32, reason: Reason, received: &[bool]) -> Ack {
    Ack { first, previous, serial: 0, reason, received: received.to_vec(), window: 32 }
}

/// Flags of a packet with which a reply ends.
const LAST: u8 = flag::LAST_PACKET;

/// Flags of a packet with which a request ends.
const REQUEST_LAST: u8 = flag::LAST_PACKET | flag::CLIENT_INITIATED;
