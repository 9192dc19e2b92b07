//! Hosts that do not answer.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::Result;
use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};

/// Addresses of this machine behind which nobody is: every other one takes connections and says nothing, the rest do
/// not even take them.
#[derive(Debug)]
pub struct Dead {
    hosts: Vec<SocketAddr>,
    _listening: Vec<OwnedFd>,
    _waiting: Vec<TcpStream>,
}

impl Dead {
    /// So many of them.
    pub fn hosts(count: u8) -> Result<Dead> {
        let mut dead = Dead { hosts: Vec::new(), _listening: Vec::new(), _waiting: Vec::new() };
        for host in 1..=count {
            let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
            bind(&socket, &SocketAddrV4::new(Ipv4Addr::new(127, 0, 2, host), 0))?;
            let takes = host % 2 == 0;
            listen(&socket, if takes { 128 } else { 0 })?;
            let address = SocketAddr::try_from(getsockname(&socket)?)?;
            if !takes {
                dead.fill(address);
            }
            dead.hosts.push(address);
            dead._listening.push(socket);
        }
        Ok(dead)
    }

    /// `ADDRESS:PORT` of each.
    pub fn authorities(&self) -> impl Iterator<Item = String> {
        self.hosts.iter().map(SocketAddr::to_string)
    }

    /// Connects until no more is taken: what comes then is not answered.
    fn fill(&mut self, address: SocketAddr) {
        while let Ok(stream) = TcpStream::connect_timeout(&address, PATIENCE) {
            self._waiting.push(stream);
        }
    }
}

/// On this machine a connection that is taken is taken at once.
const PATIENCE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_take_connections_and_some_do_not() {
        let dead = Dead::hosts(2).unwrap();
        let taken: Vec<bool> =
            dead.hosts.iter().map(|host| TcpStream::connect_timeout(host, PATIENCE).is_ok()).collect();
        assert_eq!(taken, [false, true]);
    }
}
