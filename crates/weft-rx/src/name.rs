//! How packets name a connection that was opened here: what is to be kept to end it also when whoever opened it was killed.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use crate::config::USER_ABORT;
use crate::connection::Side;
use crate::endpoint::{Endpoint, Transmit};
use crate::wire::{CHANNEL_MASK, Header, PacketType, flag};

/// A connection that was opened here, as its server knows it. As text it is five words: `10.0.0.1:7000`, its epoch and its id in
/// hexadecimal, and the numbers of the service and of the security class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionName {
    to: SocketAddr,
    epoch: u32,
    cid: u32,
    service: u16,
    security: u8,
}

/// A text is no [`ConnectionName`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the name of a connection is an address, an epoch, an id, a service and a security class")]
pub struct BadConnectionName;

impl Endpoint {
    /// Whether connections were opened or forgotten here since this was asked last.
    pub fn have_names_changed(&mut self) -> bool {
        std::mem::take(&mut self.names_changed)
    }

    /// The connections that are open from here.
    pub fn connection_names(&self) -> impl Iterator<Item = ConnectionName> {
        let own = self.connections.values().filter(|connection| connection.side == Side::Client);
        own.map(|connection| ConnectionName {
            to: connection.to,
            epoch: connection.epoch,
            cid: connection.cid,
            service: connection.service,
            security: connection.guard.index(),
        })
    }

    /// Ends a connection that somebody had opened who is no more. Its server ends all calls of it then (OpenAFS `src/rx/rx.c`,
    /// `rxi_ConnectionError`). It is said once, and may be lost.
    pub fn end_former(&mut self, name: &ConnectionName) {
        let ConnectionName { to, epoch, cid, service, security } = *name;
        let abort = Header {
            epoch,
            cid: cid & !CHANNEL_MASK,
            call: 0,
            seq: 0,
            serial: 0,
            kind: PacketType::Abort,
            flags: flag::CLIENT_INITIATED,
            user_status: 0,
            security,
            checksum: 0,
            service,
        };
        self.send(Transmit { to, payload: abort.packet(&USER_ABORT.to_be_bytes()) });
    }
}

impl fmt::Display for ConnectionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConnectionName { to, epoch, cid, service, security } = self;
        write!(f, "{to} {epoch:x} {cid:x} {service} {security}")
    }
}

impl FromStr for ConnectionName {
    type Err = BadConnectionName;

    fn from_str(text: &str) -> Result<ConnectionName, BadConnectionName> {
        let words: Vec<&str> = text.split(' ').collect();
        let [to, epoch, cid, service, security] = words[..] else { return Err(BadConnectionName) };
        let hexadecimal = |word| u32::from_str_radix(word, 16).map_err(|_| BadConnectionName);
        Ok(ConnectionName {
            to: to.parse().map_err(|_| BadConnectionName)?,
            epoch: hexadecimal(epoch)?,
            cid: hexadecimal(cid)?,
            service: service.parse().map_err(|_| BadConnectionName)?,
            security: security.parse().map_err(|_| BadConnectionName)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for text in ["10.0.0.1:7000 80000001 fffffffc 1 2", "[::1]:7003 0 0 52 0"] {
            assert_eq!(text.parse::<ConnectionName>().expect("a name").to_string(), text);
        }
        let bad = ["", "10.0.0.1 1 4 1 2", "10.0.0.1:7000 1 4 1", "10.0.0.1:7000 1 4 1 256", "10.0.0.1:7000 1 g 1 2"];
        for text in bad {
            assert_eq!(text.parse::<ConnectionName>(), Err(BadConnectionName), "{text}");
        }
    }
}
