//! Names of servers, and their addresses.

use std::cell::{Cell as Slot, RefCell};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::sync::mpsc;
use std::time::Duration;

use weft_afs::cell::Cell;

use crate::exit::{Exit, Failure, Outcome};

/// What is known of names.
pub struct Hosts {
    /// Names that the file of cells has.
    written: Vec<(Ipv4Addr, String)>,
    /// What was found. Whether anybody is asked.
    found: RefCell<HashMap<Ipv4Addr, String>>,
    asks: Slot<bool>,
}

impl Hosts {
    /// Of the servers in these cells, and of all that the system knows.
    pub fn new(cells: &[Cell]) -> Hosts {
        let servers = cells.iter().flat_map(|cell| &cell.servers).filter(|server| !server.host.is_empty());
        let written = servers.map(|server| (server.address, server.host.clone())).collect();
        Hosts { written, found: RefCell::default(), asks: Slot::new(true) }
    }

    /// From now on addresses are shown as they are.
    pub fn show_addresses(&self) {
        self.asks.set(false);
        self.found.borrow_mut().clear();
    }

    /// The name of an address: as the system knows it, else as the file of cells has it, else the address.
    pub fn name(&self, address: Ipv4Addr) -> String {
        if let Some(known) = self.found.borrow().get(&address) {
            return known.clone();
        }
        let name = match self.asks.get() {
            true => self.looked_up(address).or_else(|| self.written_down(address)),
            false => None,
        };
        let name = name.unwrap_or_else(|| address.to_string());
        self.found.borrow_mut().insert(address, name.clone());
        name
    }

    /// The address of a name.
    ///
    /// # Errors
    /// `NotFound` when nobody knows it.
    pub fn address(&self, name: &str) -> Outcome<Ipv4Addr> {
        if let Ok(address) = name.parse() {
            return Ok(address);
        }
        let is_named = |host: &str| host.eq_ignore_ascii_case(name);
        if let Some((address, _)) = self.written.iter().find(|(_, host)| is_named(host)) {
            return Ok(*address);
        }
        let found = (name, 0).to_socket_addrs().into_iter().flatten();
        let found = found.filter_map(|at| if let IpAddr::V4(address) = at.ip() { Some(address) } else { None }).next();
        found.ok_or_else(|| Failure::new(Exit::NotFound, format!("{name}: no host of this name is known")))
    }

    fn written_down(&self, address: Ipv4Addr) -> Option<String> {
        self.written.iter().find(|(written, _)| *written == address).map(|(_, host)| host.clone())
    }

    /// What the system says. A system that takes its time is not asked again.
    fn looked_up(&self, address: Ipv4Addr) -> Option<String> {
        let (say, said) = mpsc::channel();
        std::thread::spawn(move || {
            let _ = say.send(dns_lookup::lookup_addr(&IpAddr::V4(address)));
        });
        match said.recv_timeout(PATIENCE) {
            Ok(name) => name.ok().filter(|name| *name != address.to_string()),
            Err(_) => {
                self.asks.set(false);
                None
            }
        }
    }
}

/// How long the system may take to tell a name.
const PATIENCE: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use weft_afs::cell_server_db::CellServerDb;

    use super::*;

    fn hosts() -> Hosts {
        let text = b">example.org\n192.0.2.1 #db.example.org\n192.0.2.2\n";
        Hosts::new(&CellServerDb::read(text).expect("good").cells().cloned().collect::<Vec<_>>())
    }

    #[test]
    fn names_of_the_file_of_cells_are_known() {
        let hosts = hosts();
        assert_eq!(hosts.address("DB.example.org").ok(), Some(Ipv4Addr::new(192, 0, 2, 1)));
        assert_eq!(hosts.address("192.0.2.9").ok(), Some(Ipv4Addr::new(192, 0, 2, 9)));
        assert_eq!(hosts.written_down(Ipv4Addr::new(192, 0, 2, 1)).as_deref(), Some("db.example.org"));
        assert_eq!(hosts.written_down(Ipv4Addr::new(192, 0, 2, 2)), None);
        assert_eq!(hosts.address("no such host").map_err(|failure| failure.exit), Err(Exit::NotFound));
    }

    #[test]
    fn addresses_are_shown_where_that_is_wanted() {
        let hosts = hosts();
        hosts.show_addresses();
        assert_eq!(hosts.name(Ipv4Addr::new(192, 0, 2, 1)), "192.0.2.1");
    }
}
