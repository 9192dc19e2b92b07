//! The header that every packet begins with, and how numbers of packets compare.
//!
//! Source: OpenAFS `doc/txt/rx-spec.txt` and `src/rx/rx_packet.h`; Linux `net/rxrpc/protocol.h`.

/// The length of a header, in bytes.
pub(crate) const HEADER_BYTES: usize = 28;

/// Data bytes of a packet that pass every path that Rx is known to pass (1440 with the header, 1468 with UDP and IPv4).
pub(crate) const DATA_BYTES_MAX: usize = 1412;

/// The largest datagram that is invited, in bytes: what OpenAFS sends over an Ethernet.
pub(crate) const DATAGRAM_BYTES_INVITED: u32 = 1444;

/// The largest datagram that is taken, in bytes: a server on the same machine may begin with packets of this size.
pub(crate) const DATAGRAM_BYTES_TAKEN: usize = 16 * 1024;

/// Calls of one connection that can run at once; the low bits of the connection's id say which.
pub(crate) const CHANNELS: usize = 4;

/// The bits of a connection's id that are the channel.
pub(crate) const CHANNEL_MASK: u32 = 3;

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum PacketType {
    Data = 1,
    Ack = 2,
    Busy = 3,
    Abort = 4,
    AckAll = 5,
    Challenge = 6,
    Response = 7,
    Debug = 8,
    Version = 13,
}

impl PacketType {
    /// The type with this number; `None` for those that are not known or never came to be used (9 to 12).
    fn from_wire(byte: u8) -> Option<PacketType> {
        Some(match byte {
            1 => PacketType::Data,
            2 => PacketType::Ack,
            3 => PacketType::Busy,
            4 => PacketType::Abort,
            5 => PacketType::AckAll,
            6 => PacketType::Challenge,
            7 => PacketType::Response,
            8 => PacketType::Debug,
            13 => PacketType::Version,
            _ => return None,
        })
    }
}

/// Bits of the header's flags.
pub(crate) mod flag {
    /// Set on all that the client's side of a connection sends.
    pub(crate) const CLIENT_INITIATED: u8 = 0x01;
    /// An acknowledgement is wanted at once.
    pub(crate) const REQUEST_ACK: u8 = 0x02;
    /// The last of its direction; on DATA.
    pub(crate) const LAST_PACKET: u8 = 0x04;
    /// Several packets in one datagram; on DATA. Neither sent nor invited.
    pub(crate) const JUMBO_PACKET: u8 = 0x20;
    /// The sender's windows begin small and grow; on ACK.
    pub(crate) const SLOW_START_OK: u8 = 0x20;
}

/// What the first 28 bytes of a packet say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) epoch: u32,
    /// The connection's id and, in its low two bits, the channel.
    pub(crate) cid: u32,
    /// 0: the packet concerns the connection.
    pub(crate) call: u32,
    /// The place of the data in its direction of the call, from 1; 0 on all but DATA.
    pub(crate) seq: u32,
    /// New for each packet of a connection's side, also for those sent again.
    pub(crate) serial: u32,
    pub(crate) kind: PacketType,
    pub(crate) flags: u8,
    /// 0 in all that is sent: 1 would ask an AuriStor server for another protocol.
    pub(crate) user_status: u8,
    /// The security class.
    pub(crate) security: u8,
    /// The security class's checksum; 0 is none.
    pub(crate) checksum: u16,
    pub(crate) service: u16,
}

impl Header {
    /// The header of a datagram and what follows it; `None` for what is too short or of a type that is not known.
    pub(crate) fn decode(datagram: &[u8]) -> Option<(Header, &[u8])> {
        let (header, payload) = datagram.split_first_chunk::<HEADER_BYTES>()?;
        let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let header = Header {
            epoch: word(0),
            cid: word(4),
            call: word(8),
            seq: word(12),
            serial: word(16),
            kind: PacketType::from_wire(header[20])?,
            flags: header[21],
            user_status: header[22],
            security: header[23],
            checksum: half(24),
            service: half(26),
        };
        Some((header, payload))
    }

    /// The packet with this header.
    pub(crate) fn packet(&self, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES + payload.len());
        for word in [self.epoch, self.cid, self.call, self.seq, self.serial] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        out.extend_from_slice(&[self.kind as u8, self.flags, self.user_status, self.security]);
        out.extend_from_slice(&self.checksum.to_be_bytes());
        out.extend_from_slice(&self.service.to_be_bytes());
        out.extend_from_slice(payload);
        out
    }

    /// Whether all the bits are set.
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag == flag
    }

    /// Which of the connection's calls the packet concerns.
    pub(crate) fn channel(&self) -> usize {
        (self.cid & CHANNEL_MASK) as usize
    }
}

/// How far `later` is after `earlier`, for numbers that wrap.
pub(crate) fn distance(earlier: u32, later: u32) -> i32 {
    later.wrapping_sub(earlier).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hex::unhex;

    /// A call of the volume location server: GetEntryByNameU("root.cell").
    const GET_ENTRY: &str = "8000000112345670000000010000000100000001\
        01050000000000340000020f00000009726f6f742e63656c6c000000";

    #[test]
    fn a_header_is_as_the_specification_has_it() {
        let datagram = unhex(GET_ENTRY);
        let (header, payload) = Header::decode(&datagram).expect("a packet");
        let wanted = Header {
            epoch: 0x8000_0001,
            cid: 0x1234_5670,
            call: 1,
            seq: 1,
            serial: 1,
            kind: PacketType::Data,
            flags: flag::CLIENT_INITIATED | flag::LAST_PACKET,
            user_status: 0,
            security: 0,
            checksum: 0,
            service: 52,
        };
        assert_eq!(header, wanted);
        assert_eq!(payload, unhex("0000020f00000009726f6f742e63656c6c000000"));
        assert_eq!(header.packet(payload), datagram);
        // RXAFS FetchStatus of a root vnode, on channel 1.
        let fetch = unhex(
            "8000000112345671000000010000000100000003\
            010500000000000100000084200000060000000100000001",
        );
        let (header, payload) = Header::decode(&fetch).expect("a packet");
        assert_eq!((header.channel(), header.serial, header.service, payload.len()), (1, 3, 1, 16));
        assert_eq!(header.packet(payload), fetch);
    }

    #[test]
    fn a_header_that_is_cut_is_none() {
        let datagram = unhex(GET_ENTRY);
        for length in 0..HEADER_BYTES {
            assert_eq!(Header::decode(&datagram[..length]), None, "cut at {length}");
        }
        assert!(Header::decode(&datagram[..HEADER_BYTES]).is_some_and(|(_, payload)| payload.is_empty()));
    }

    #[test]
    fn types_that_are_not_known_are_none() {
        let mut datagram = unhex(GET_ENTRY);
        for byte in 0..=255 {
            datagram[20] = byte;
            let known = Header::decode(&datagram).map(|(header, _)| header.kind as u8);
            assert_eq!(known, Some(byte).filter(|byte| matches!(byte, 1..=8 | 13)));
        }
    }

    #[test]
    fn numbers_compare_over_their_end() {
        assert_eq!(distance(u32::MAX, 2), 3);
        assert_eq!(distance(2, u32::MAX), -3);
    }
}
