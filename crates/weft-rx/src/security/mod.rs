//! Security classes: what is done to the data of a connection, and what its server is told.

use bytes::Bytes;

use crate::wire::{CHANNELS, Header};

/// Why a connection cannot be secured. Trying the same again does not help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecurityError {
    /// The server asks for what this security class does not have.
    #[error("the server asks for a proof that this security class does not give")]
    Unexpected,
}

impl SecurityError {
    /// What the server is told.
    pub(crate) fn code(self) -> i32 {
        match self {
            // RX_INVALID_OPERATION.
            SecurityError::Unexpected => -2,
        }
    }
}

/// How calls of a route are secured.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Security {
    /// Nobody is anybody, and everything can be read and changed on the way.
    #[default]
    None,
}

impl Security {
    /// Bytes that it adds to the data of a packet, at most.
    pub(crate) fn overhead_bytes(&self) -> usize {
        match self {
            Security::None => 0,
        }
    }
}

/// The security of one connection.
#[derive(Clone, Debug)]
pub(crate) enum Guard {
    None,
}

impl Guard {
    /// For a connection of ours with this epoch and id.
    pub(crate) fn new(security: &Security, _epoch: u32, _cid: u32) -> Guard {
        match security {
            Security::None => Guard::None,
        }
    }

    /// The class's number in headers.
    pub(crate) fn index(&self) -> u8 {
        match self {
            Guard::None => 0,
        }
    }

    /// Bytes that it adds to the data of a packet, at most.
    pub(crate) fn overhead_bytes(&self) -> usize {
        match self {
            Guard::None => 0,
        }
    }

    /// The packet of DATA with this header, which gets its checksum.
    pub(crate) fn seal(&self, header: Header, data: &[u8]) -> Vec<u8> {
        match self {
            Guard::None => header.packet(data),
        }
    }

    /// The data of a packet; `None` if it is not what the other side sealed.
    pub(crate) fn open(&self, _header: &Header, payload: &[u8]) -> Option<Bytes> {
        match self {
            Guard::None => Some(Bytes::copy_from_slice(payload)),
        }
    }

    /// What to answer to a challenge, given the number of each channel's latest call.
    pub(crate) fn respond(&self, _challenge: &[u8], _calls: [u32; CHANNELS]) -> Result<Vec<u8>, SecurityError> {
        match self {
            Guard::None => Err(SecurityError::Unexpected),
        }
    }
}
