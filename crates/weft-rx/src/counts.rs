//! What an endpoint counts.

/// Things that happened since the endpoint was made, of which no event tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Datagrams that are no packet of Rx, or of a kind that is not served.
    pub datagrams_unknown: u64,
    /// Packets of connections or calls that are not known, or that belong to nothing any more.
    pub packets_stray: u64,
    /// Packets whose data is not what the other side sealed.
    pub packets_forged: u64,
    /// Packets for services that are not offered.
    pub services_unknown: u64,
    /// Calls of clients that were put off, for too many ran.
    pub incoming_calls_refused: u64,
    /// Connections of clients that were forgotten for new ones.
    pub incoming_connections_dropped: u64,
    /// Calls of ours that were refused, for too many waited.
    pub calls_refused: u64,
    /// Packets that were not sent, for too many waited.
    pub control_dropped: u64,
}

/// What an endpoint has to do with now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Calls in both roles, until the application has heard of their end.
    pub calls: usize,
    /// Those of them that clients make.
    pub incoming_calls: usize,
    /// Connections in both roles.
    pub connections: usize,
    /// Those of them that clients opened.
    pub incoming_connections: usize,
    /// Bytes that came and were not read.
    pub received_bytes: usize,
    /// Packets that wait to be sent and concern no running call.
    pub control_packets: usize,
    /// Events that were not polled for.
    pub events: usize,
}
