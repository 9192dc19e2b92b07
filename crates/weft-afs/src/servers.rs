//! The file servers that are known: their addresses, which of them were silent, and whose word counts.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use weft_remote::{Source, SourceState};

use crate::cell::CellName;
use crate::uuid::Uuid;

/// A file server, whatever its addresses are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ServerId {
    /// By the UUID that the VLDB has of it.
    Uuid(Uuid),
    /// By its only known address.
    Address(IpAddr),
}

/// All that were told of.
#[derive(Debug)]
pub(crate) struct Servers {
    down_time: Duration,
    /// Held for one look or one change.
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    servers: HashMap<ServerId, Server>,
    by_address: HashMap<IpAddr, ServerId>,
}

#[derive(Debug)]
struct Server {
    cell: CellName,
    /// By the time that answers took, the quickest first; what has not answered yet is last.
    addresses: Vec<Address>,
    /// Which state of the addresses this is.
    unique: Option<i32>,
    /// When it answered last.
    heard: Option<Instant>,
    facts: Facts,
}

#[derive(Clone, Copy, Debug)]
struct Address {
    at: SocketAddr,
    /// How long calls take, smoothed.
    took: Option<Duration>,
    /// How long the shortest took, of late: about as long as the way there and back.
    least: Option<Duration>,
    silent_since: Option<Instant>,
}

#[derive(Debug)]
struct Facts {
    since: SystemTime,
    last_contact: Option<SystemTime>,
    last_error: Option<(SystemTime, String)>,
    requests: u64,
    received_bytes: u64,
}

impl Servers {
    pub fn new(down_time: Duration) -> Servers {
        Servers { down_time, known: Mutex::default() }
    }

    /// Enters a server, or other addresses of it.
    pub fn learn(&self, cell: &CellName, id: ServerId, unique: Option<i32>, addresses: &[SocketAddr]) {
        let mut known = self.known.lock();
        for address in addresses {
            known.by_address.insert(address.ip(), id);
        }
        let facts =
            || Facts { since: SystemTime::now(), last_contact: None, last_error: None, requests: 0, received_bytes: 0 };
        let server = known.servers.entry(id).or_insert_with(|| Server {
            cell: cell.clone(),
            addresses: Vec::new(),
            unique: None,
            heard: None,
            facts: facts(),
        });
        server.unique = unique;
        let former = std::mem::take(&mut server.addresses);
        let again = |at: &SocketAddr| former.iter().find(|former| former.at == *at).copied();
        let fresh = |at: SocketAddr| Address { at, took: None, least: None, silent_since: None };
        server.addresses = addresses.iter().map(|at| again(at).unwrap_or_else(|| fresh(*at))).collect();
    }

    /// Whether the addresses of a server are known in this state.
    pub fn knows(&self, id: ServerId, unique: Option<i32>) -> bool {
        self.known.lock().servers.get(&id).is_some_and(|server| server.unique == unique)
    }

    /// The addresses of some servers in the order in which they are to be asked: those that answered last, the quickest
    /// first; then those of which nothing is known; then those that were silent lately.
    pub fn in_order(&self, ids: &[ServerId]) -> Vec<(ServerId, SocketAddr)> {
        let known = self.known.lock();
        let mut all: Vec<(bool, Duration, ServerId, SocketAddr)> = Vec::new();
        for id in ids {
            for address in known.servers.get(id).iter().flat_map(|server| &server.addresses) {
                let silent = address.silent_since.is_some_and(|since| since.elapsed() < self.down_time);
                all.push((silent, address.took.unwrap_or(UNKNOWN_TOOK), *id, address.at));
            }
        }
        // Stable: what is equal stays in the order of the VLDB.
        all.sort_by_key(|(silent, took, ..)| (*silent, *took));
        all.into_iter().map(|(_, _, id, at)| (id, at)).collect()
    }

    /// A call was answered, with an abort or a reply.
    pub fn answered(&self, at: SocketAddr, took: Duration) {
        self.note(at, |server, address| {
            let before = address.took.unwrap_or(took);
            address.took = Some((before * 7 + took) / 8);
            // A way may become longer.
            address.least = Some(address.least.map_or(took, |least| took.min(least + least / LEAST_GROWS)));
            address.silent_since = None;
            server.heard = Some(Instant::now());
            server.facts.requests += 1;
            server.facts.last_contact = Some(SystemTime::now());
        });
    }

    /// Bytes of content came.
    pub fn received(&self, id: ServerId, bytes: usize) {
        if let Some(server) = self.known.lock().servers.get_mut(&id) {
            server.facts.received_bytes += bytes as u64;
        }
    }

    /// How long the way to a server and back takes at most, if anything was asked of it.
    pub fn way(&self, id: ServerId) -> Option<Duration> {
        let known = self.known.lock();
        known.servers.get(&id)?.addresses.iter().filter_map(|address| address.least).min()
    }

    /// A call was not answered.
    pub fn was_silent(&self, at: SocketAddr, why: &str) {
        self.note(at, |server, address| {
            address.silent_since = Some(Instant::now());
            server.facts.requests += 1;
            server.facts.last_error = Some((SystemTime::now(), why.to_owned()));
        });
    }

    fn note(&self, at: SocketAddr, note: impl FnOnce(&mut Server, &mut Address)) {
        let mut known = self.known.lock();
        let Some(id) = known.by_address.get(&at.ip()).copied() else { return };
        let Some(server) = known.servers.get_mut(&id) else { return };
        if let Some(nth) = server.addresses.iter().position(|address| address.at == at) {
            let mut address = server.addresses[nth];
            note(server, &mut address);
            server.addresses[nth] = address;
        }
    }

    /// Those that have not answered anything for so long, or ever.
    pub fn quiet_for(&self, long: Duration) -> HashSet<ServerId> {
        let known = self.known.lock();
        let is_quiet = |server: &Server| server.heard.is_none_or(|heard| heard.elapsed() >= long);
        known.servers.iter().filter(|(_, server)| is_quiet(server)).map(|(id, _)| *id).collect()
    }

    /// The addresses that have answered.
    pub fn that_answered(&self) -> Vec<SocketAddr> {
        let known = self.known.lock();
        let addresses = known.servers.values().flat_map(|server| &server.addresses);
        addresses.filter(|address| address.took.is_some()).map(|address| address.at).collect()
    }

    /// Which server speaks from an address, and of which cell it is; `None` for a stranger.
    pub fn who(&self, from: IpAddr) -> Option<(ServerId, CellName)> {
        let known = self.known.lock();
        let id = known.by_address.get(&from)?;
        Some((*id, known.servers.get(id)?.cell.clone()))
    }

    /// Forgets that servers of a cell were silent. Says whether any was.
    pub fn try_again(&self, cell: Option<&CellName>) -> bool {
        let mut known = self.known.lock();
        let of_cell = |server: &&mut Server| cell.is_none_or(|cell| server.cell == *cell);
        let addresses = known.servers.values_mut().filter(of_cell).flat_map(|server| &mut server.addresses);
        addresses.filter_map(|address| address.silent_since.take()).count() > 0
    }

    /// Each cell of which servers were asked, as the contract tells of sources.
    pub fn sources(&self) -> Vec<Source> {
        let known = self.known.lock();
        let mut cells: Vec<&CellName> = known.servers.values().map(|server| &server.cell).collect();
        cells.sort_unstable();
        cells.dedup();
        cells.into_iter().map(|cell| known.source(cell, self.down_time)).collect()
    }

    /// One of them.
    pub fn source(&self, cell: &CellName) -> Option<Source> {
        let known = self.known.lock();
        let is_known = known.servers.values().any(|server| server.cell == *cell);
        is_known.then(|| known.source(cell, self.down_time))
    }
}

impl Known {
    /// A cell is reached while any of its servers is.
    fn source(&self, cell: &CellName, down_time: Duration) -> Source {
        let servers: Vec<&Server> = self.servers.values().filter(|server| server.cell == *cell).collect();
        let is_silent = |address: &Address| address.silent_since.is_some_and(|since| since.elapsed() < down_time);
        let all_silent = servers.iter().flat_map(|server| &server.addresses).all(is_silent);
        let facts = || servers.iter().map(|server| &server.facts);
        Source {
            name: cell.to_string(),
            state: if all_silent { SourceState::Disconnected } else { SourceState::Connected },
            since: facts().map(|facts| facts.since).min().unwrap_or(SystemTime::UNIX_EPOCH),
            last_contact: facts().filter_map(|facts| facts.last_contact).max(),
            last_error: facts().filter_map(|facts| facts.last_error.clone()).max_by_key(|(when, _)| *when),
            requests: facts().map(|facts| facts.requests).sum(),
            received_bytes: facts().map(|facts| facts.received_bytes).sum(),
        }
    }
}

/// Where an address that has not answered yet stands among those that have.
const UNKNOWN_TOOK: Duration = Duration::from_millis(100);

/// With each call that takes longer the shortest time grows by this part.
const LEAST_GROWS: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(last: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], 7000))
    }

    #[test]
    fn the_quickest_is_asked_first_and_who_was_silent_last() {
        let (servers, cell) = (Servers::new(Duration::from_secs(20)), CellName::new(b"example.org").expect("a name"));
        let ids: Vec<ServerId> = (1..=3).map(|last| ServerId::Address(at(last).ip())).collect();
        for (id, last) in ids.iter().zip(1..) {
            servers.learn(&cell, *id, None, &[at(last)]);
        }
        let order = || servers.in_order(&ids).into_iter().map(|(_, at)| at).collect::<Vec<_>>();
        assert_eq!(order(), [at(1), at(2), at(3)], "as the VLDB has it");
        servers.answered(at(3), Duration::from_millis(3));
        servers.answered(at(1), Duration::from_millis(300));
        assert_eq!(order(), [at(3), at(2), at(1)]);
        servers.was_silent(at(3), "silent");
        assert_eq!(order(), [at(2), at(1), at(3)]);
        assert_eq!(servers.source(&cell).expect("known").state, SourceState::Connected);
        servers.was_silent(at(1), "silent");
        servers.was_silent(at(2), "silent");
        assert_eq!(servers.sources()[0].state, SourceState::Disconnected);
        assert!(servers.try_again(Some(&cell)) && !servers.try_again(None));
        assert_eq!(servers.quiet_for(Duration::from_secs(60)), HashSet::from([ids[1]]), "it has never answered");
        assert_eq!(servers.quiet_for(Duration::ZERO).len(), 3);
        assert_eq!(servers.sources()[0].state, SourceState::Connected);
    }

    #[test]
    fn only_who_is_known_has_a_word() {
        let (servers, cell) = (Servers::new(Duration::from_secs(20)), CellName::new(b"example.org").expect("a name"));
        let id = ServerId::Uuid(Uuid([7; 16]));
        servers.learn(&cell, id, Some(1), &[at(1), at(2)]);
        assert_eq!(servers.who(at(2).ip()), Some((id, cell)));
        assert_eq!(servers.who(at(3).ip()), None);
        assert!(servers.knows(id, Some(1)) && !servers.knows(id, Some(2)));
    }
}
