//! What an ACK packet says: which packets came, which of them the application has, and what else may be sent.
//!
//! Source: OpenAFS `src/rx/rx_packet.h` (`struct rx_ackPacket`), `rxi_ReceiveAckPacket` and `rxi_SendAck` in
//! `src/rx/rx.c`. The trailer stands on no word boundary, and older programs leave out its end. What it says is not
//! protected by any security class: each value is clamped to what does no harm.

use crate::wire::DATAGRAM_BYTES_INVITED;

/// Bytes before the bytes that each stand for a packet.
const FIXED_BYTES: usize = 18;

/// Zeroes between those bytes and the trailer.
const PADDING_BYTES: usize = 3;

/// Packets of one datagram that we take: no jumbograms.
const JUMBOGRAM_PACKETS: u32 = 1;

/// The window of those who do not tell theirs, in packets.
const WINDOW_UNTOLD: u8 = 15;

/// The smallest datagram that anybody has to take, in bytes: what IPv4 promises, without its own header and UDP's.
const DATAGRAM_BYTES_MIN: u32 = 576 - 28;

/// The bit of a packet's byte that says that it came.
const RECEIVED: u8 = 1;

/// Why an acknowledgement is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Reason {
    /// The packet asked for it.
    Requested = 1,
    /// The packet had come before.
    Duplicate = 2,
    /// A packet before this one is missing.
    OutOfSequence = 3,
    /// The packet lies beyond the window and was dropped.
    ExceedsWindow = 4,
    /// There was no room for the packet.
    NoSpace = 5,
    /// Whoever gets this is asked whether it is there.
    Ping = 6,
    /// It is.
    PingResponse = 7,
    /// Some time after the packet came: of no use to measure the way.
    Delay = 8,
    /// Nothing that asked for it.
    Idle = 9,
}

/// An acknowledgement to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ack {
    /// The lowest number that the application does not have yet.
    pub(crate) first: u32,
    /// The highest number that came. Not the last: a peer drops acknowledgements in which this goes back.
    pub(crate) previous: u32,
    /// The packet that this answers, or 0.
    pub(crate) serial: u32,
    pub(crate) reason: Reason,
    /// From `first`, at most 255: whether each came.
    pub(crate) received: Vec<bool>,
    /// How many packets from `first` may be sent.
    pub(crate) window: u8,
}

impl Ack {
    /// The payload of the packet.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let count = u8::try_from(self.received.len()).unwrap_or(u8::MAX);
        let mut out = vec![0; 4];
        for word in [self.first, self.previous, self.serial] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        out.extend_from_slice(&[self.reason as u8, count]);
        out.extend(self.received.iter().take(count.into()).map(|came| u8::from(*came) * RECEIVED));
        out.extend_from_slice(&[0; PADDING_BYTES]);
        let trailer = [DATAGRAM_BYTES_INVITED, DATAGRAM_BYTES_INVITED, self.window.into(), JUMBOGRAM_PACKETS];
        for word in trailer {
            out.extend_from_slice(&word.to_be_bytes());
        }
        out
    }
}

/// An acknowledgement that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Acked<'a> {
    pub(crate) first: u32,
    pub(crate) previous: u32,
    pub(crate) serial: u32,
    /// A [`Reason`], or something newer.
    pub(crate) reason: u8,
    bytes: &'a [u8],
    /// The largest datagram to send, in bytes.
    pub(crate) datagram_bytes_max: u32,
    /// How many packets from `first` may be sent; at least 1.
    pub(crate) window: u8,
}

impl<'a> Acked<'a> {
    /// What a payload says; `None` if it ends before what it announces.
    pub(crate) fn decode(payload: &'a [u8]) -> Option<Acked<'a>> {
        let (fixed, rest) = payload.split_first_chunk::<FIXED_BYTES>()?;
        let word = |at: usize| u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
        let (bytes, rest) = rest.split_at_checked(fixed[17].into())?;
        let trailer = rest.get(PADDING_BYTES..).unwrap_or_default();
        let mut trailer = trailer.as_chunks::<4>().0.iter().map(|word| u32::from_be_bytes(*word));
        let (largest, recommended, window) = (trailer.next(), trailer.next(), trailer.next());
        let told = [largest, recommended].into_iter().flatten().min().unwrap_or(DATAGRAM_BYTES_INVITED);
        let window = window.map_or(WINDOW_UNTOLD, |window| u8::try_from(window).unwrap_or(u8::MAX).max(1));
        Some(Acked {
            first: word(4),
            previous: word(8),
            serial: word(12),
            reason: fixed[16],
            bytes,
            datagram_bytes_max: told.clamp(DATAGRAM_BYTES_MIN, DATAGRAM_BYTES_INVITED),
            window,
        })
    }

    /// From `first`: whether each came.
    pub(crate) fn received(&self) -> impl ExactSizeIterator<Item = bool> + use<'a> {
        self.bytes.iter().map(|byte| byte & RECEIVED != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hex::unhex;
    use crate::wire::{HEADER_BYTES, Header, PacketType, flag};

    const GOLDEN: &str = "8000000112345670000000010000000000000002022100000000000100000000000000030000000400000009\
        03020001000000000005a4000005a40000002000000001";

    fn golden() -> Ack {
        let received = vec![false, true];
        Ack { first: 3, previous: 4, serial: 9, reason: Reason::OutOfSequence, received, window: 32 }
    }

    #[test]
    fn an_acknowledgement_is_as_the_specification_has_it() {
        let datagram = unhex(GOLDEN);
        let (header, payload) = Header::decode(&datagram).expect("a packet");
        assert_eq!(header.kind, PacketType::Ack);
        assert_eq!(header.flags, flag::CLIENT_INITIATED | flag::SLOW_START_OK);
        assert_eq!(golden().encode(), payload);
        assert_eq!(header.packet(&golden().encode()), datagram);
        let acked = Acked::decode(payload).expect("whole");
        assert_eq!((acked.first, acked.previous, acked.serial, acked.reason), (3, 4, 9, 3));
        assert!(acked.received().eq([false, true]));
        assert_eq!((acked.datagram_bytes_max, acked.window), (1444, 32));
    }

    #[test]
    fn a_trailer_may_lack_its_end() {
        // Method: the golden vector cut at every byte; what each length of the trailer tells.
        let datagram = unhex(GOLDEN);
        let payload = &datagram[HEADER_BYTES..];
        for length in 0..payload.len() {
            let acked = Acked::decode(&payload[..length]);
            let Some(acked) = acked else {
                assert!(length < FIXED_BYTES + 2, "cut at {length}");
                continue;
            };
            assert!(length >= FIXED_BYTES + 2, "cut at {length}");
            let window = if length >= FIXED_BYTES + 2 + PADDING_BYTES + 12 { 32 } else { 15 };
            assert_eq!((acked.datagram_bytes_max, acked.window), (1444, window), "cut at {length}");
        }
    }

    #[test]
    fn what_a_trailer_tells_is_clamped() {
        let told = |sizes: [u32; 2], window: u32| {
            let mut payload = golden().encode();
            let at = payload.len() - 16;
            payload[at..at + 4].copy_from_slice(&sizes[0].to_be_bytes());
            payload[at + 4..at + 8].copy_from_slice(&sizes[1].to_be_bytes());
            payload[at + 8..at + 12].copy_from_slice(&window.to_be_bytes());
            let acked = Acked::decode(&payload).expect("whole");
            (acked.datagram_bytes_max, acked.window)
        };
        assert_eq!(told([0, 0], 0), (548, 1));
        assert_eq!(told([u32::MAX, u32::MAX], u32::MAX), (1444, 255));
        assert_eq!(told([1444, 1000], 256), (1000, 255));
        assert_eq!(told([1 << 31, 1443], 1 << 31), (1443, 255));
    }

    #[test]
    fn more_packets_than_can_be_told_are_not_told() {
        let mut ack = golden();
        ack.received = vec![true; 300];
        let payload = ack.encode();
        let acked = Acked::decode(&payload).expect("whole");
        assert_eq!((acked.received().len(), acked.window), (255, 32));
    }
}
