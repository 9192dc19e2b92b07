//! Security classes: what is done to the data of a connection, and what its server is told.

mod fcrypt;
mod rxkad;

use bytes::Bytes;

use crate::wire::{CHANNELS, Header};

pub use rxkad::{Level, Rxkad};

use rxkad::Kad;

/// The first code of rxkad's error table (OpenAFS `src/rxkad/rxkad_errs.et`).
const RXKAD_ERRORS: i32 = 19_270_400;

/// Why a connection cannot be secured. Trying the same again does not help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecurityError {
    /// The server asks for what this security class does not have.
    #[error("the server asks for a proof that this security class does not give")]
    Unexpected,
    /// The server wants more protected than the route's level.
    #[error("the server asks for a higher level of protection")]
    LevelRefused,
    /// The ticket is longer than what servers take.
    #[error("the ticket is too long")]
    TicketTooLong,
    /// The key is of a kind that protects nobody, or none can be derived from it.
    #[error("the session key is too weak: the server's key in Kerberos has to be of a type newer than DES")]
    WeakKey,
}

impl SecurityError {
    /// What the server is told.
    pub(crate) fn code(self) -> i32 {
        match self {
            // RX_INVALID_OPERATION.
            SecurityError::Unexpected => -2,
            SecurityError::LevelRefused => RXKAD_ERRORS + 2,
            SecurityError::TicketTooLong => RXKAD_ERRORS + 3,
            SecurityError::WeakKey => RXKAD_ERRORS + 6,
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
    /// A Kerberos ticket, and old cryptography.
    Rxkad(Rxkad),
}

/// The security of one connection.
#[derive(Clone, Debug)]
pub(crate) enum Guard {
    None,
    Rxkad(Box<Kad>),
}

impl Guard {
    /// For a connection with this epoch and id.
    pub(crate) fn new(security: &Security, epoch: u32, cid: u32) -> Guard {
        match security {
            Security::None => Guard::None,
            Security::Rxkad(token) => Guard::Rxkad(Box::new(Kad::new(token, epoch, cid))),
        }
    }

    /// The class's number in headers.
    pub(crate) fn index(&self) -> u8 {
        match self {
            Guard::None => 0,
            Guard::Rxkad(_) => rxkad::INDEX,
        }
    }

    /// The most data that fits into so many bytes of a packet.
    pub(crate) fn data_bytes_max(&self, payload_bytes: usize) -> usize {
        match self {
            Guard::None => payload_bytes,
            Guard::Rxkad(kad) => kad.data_bytes_max(payload_bytes),
        }
    }

    /// The packet of DATA with this header, which gets its checksum.
    pub(crate) fn seal(&self, header: Header, data: &[u8]) -> Vec<u8> {
        match self {
            Guard::None => header.packet(data),
            Guard::Rxkad(kad) => {
                let (header, payload) = kad.seal(header, data);
                header.packet(&payload)
            }
        }
    }

    /// The data of a packet; `None` if it is not what the other side sealed.
    pub(crate) fn open(&self, header: &Header, payload: &[u8]) -> Option<Bytes> {
        match self {
            Guard::None => Some(Bytes::copy_from_slice(payload)),
            Guard::Rxkad(kad) => kad.open(header, payload),
        }
    }

    /// What to answer to a challenge, given the number of each channel's latest call.
    pub(crate) fn respond(&self, challenge: &[u8], calls: [u32; CHANNELS]) -> Result<Vec<u8>, SecurityError> {
        match self {
            Guard::None => Err(SecurityError::Unexpected),
            Guard::Rxkad(kad) => kad.respond(challenge, calls),
        }
    }
}
