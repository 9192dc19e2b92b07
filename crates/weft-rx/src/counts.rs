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
