//! A simulated world for endpoints: a network with faults, a clock that jumps, applications that call and serve.
//!
//! All chance comes from one seed, which a failing run prints.

mod application;
mod chance;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use weft_rx::{Config, Endpoint, Transmit};

pub use application::{Application, SERVICES, Wish};
pub use chance::Chance;

/// What the network does to datagrams, in percent and milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    pub lost_percent: u64,
    pub doubled_percent: u64,
    pub delay_ms_min: u64,
    pub delay_ms_max: u64,
    /// How often a datagram is preceded by itself with something changed.
    pub changed_percent: u64,
}

/// One host: an endpoint, and what runs over it.
pub struct Host {
    pub address: SocketAddr,
    pub endpoint: Endpoint,
    pub application: Application,
}

/// The hosts and what is under way between them.
pub struct World {
    pub now: Instant,
    pub start: Instant,
    pub chance: Chance,
    pub faults: Faults,
    /// From then on nothing arrives at the host with this index.
    pub silent_from: Option<(Instant, usize)>,
    pub hosts: Vec<Host>,
    pub datagrams: u64,
    under_way: BTreeMap<(Instant, u64), (usize, SocketAddr, Vec<u8>)>,
    numbered: u64,
}

/// Prints the seed of a run that fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the seed is {}", self.0);
        }
    }
}

impl World {
    pub fn new(seed: u64, faults: Faults, config: &Config) -> World {
        let mut chance = Chance::new(seed);
        let hosts = (0..2).map(|index| Host {
            address: SocketAddr::from(([10, 0, 0, index + 1], 7001)),
            endpoint: Endpoint::new(
                Config { services: SERVICES.into(), ..config.clone() },
                std::array::from_fn(|_| chance.next() as u8),
            ),
            application: Application::new(chance.next()),
        });
        let hosts = hosts.collect();
        let now = Instant::now();
        World {
            now,
            start: now,
            chance,
            faults,
            silent_from: None,
            hosts,
            datagrams: 0,
            under_way: BTreeMap::new(),
            numbered: 0,
        }
    }

    /// Lets time pass until nothing will ever happen again.
    pub fn run(&mut self, seed: u64) {
        const STEPS_MAX: u64 = 2_000_000;
        let _seed = Seed(seed);
        for _ in 0..STEPS_MAX {
            self.settle();
            let arrival = self.under_way.first_key_value().map(|((at, _), _)| *at);
            let wakes = self.hosts.iter().flat_map(|host| [host.endpoint.poll_timeout(), host.application.wake()]);
            let Some(next) = wakes.chain([arrival]).flatten().min() else {
                return;
            };
            self.now = self.now.max(next);
            while let Some(entry) = self.under_way.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let (to, from, datagram) = entry.remove();
                self.hosts[to].endpoint.handle_datagram(self.now, from, &datagram);
            }
            for host in &mut self.hosts {
                host.endpoint.handle_timeout(self.now);
            }
        }
        panic!("the world does not come to rest: {:?} passed", self.now - self.start);
    }

    /// How long the world has run.
    pub fn passed(&self) -> Duration {
        self.now - self.start
    }

    fn settle(&mut self) {
        for index in 0..self.hosts.len() {
            let host = &mut self.hosts[index];
            host.application.run(self.now, &mut host.endpoint);
            let from = host.address;
            while let Some(transmit) = self.hosts[index].endpoint.poll_transmit(self.now) {
                self.send(from, transmit);
                let host = &mut self.hosts[index];
                host.application.run(self.now, &mut host.endpoint);
            }
        }
    }

    fn send(&mut self, from: SocketAddr, transmit: Transmit) {
        self.datagrams += 1;
        assert!(transmit.payload.len() <= 1440, "{} bytes", transmit.payload.len());
        let Some(to) = self.hosts.iter().position(|host| host.address == transmit.to) else {
            return;
        };
        if self.silent_from.is_some_and(|(at, index)| at <= self.now && index == to) {
            return;
        }
        let copies = 1 + u64::from(self.chance.percent(self.faults.doubled_percent));
        for _ in 0..copies {
            if self.chance.percent(self.faults.lost_percent) {
                continue;
            }
            let delay = self.chance.between(self.faults.delay_ms_min * 1000, self.faults.delay_ms_max * 1000);
            self.numbered += 1;
            let at = self.now + Duration::from_micros(delay);
            self.under_way.insert((at, self.numbered), (to, from, transmit.payload.clone()));
        }
        if self.chance.percent(self.faults.changed_percent) {
            self.numbered += 1;
            let changed = self.change(transmit.payload);
            self.under_way.insert((self.now, self.numbered), (to, from, changed));
        }
    }

    /// A datagram with its header's fields, some of its bits or its length changed.
    fn change(&mut self, mut datagram: Vec<u8>) -> Vec<u8> {
        for _ in 0..self.chance.between(1, 3) {
            let last = datagram.len().saturating_sub(1) as u64;
            match self.chance.between(0, 5) {
                0 => datagram.truncate(self.chance.between(0, last) as usize),
                // Type and flags, most often such as there are.
                1 if last >= 28 => datagram[20] = self.chance.between(0, 14) as u8,
                2 if last >= 28 => datagram[21] = self.chance.next() as u8,
                // A word of the header or of an acknowledgement, by a little or to an extreme.
                3 if last >= 60 => {
                    let at = 4 * self.chance.between(1, 14) as usize;
                    let extreme = [0, 1, 2, 255, 1 << 31, u32::MAX][self.chance.between(0, 5) as usize];
                    datagram[at..at + 4].copy_from_slice(&extreme.to_be_bytes());
                }
                4 => datagram.extend((0..self.chance.between(1, 40)).map(|byte| byte as u8)),
                _ if datagram.is_empty() => {}
                _ => {
                    let at = self.chance.between(0, last.min(60)) as usize;
                    datagram[at] ^= 1 << self.chance.between(0, 7);
                }
            }
        }
        datagram
    }
}
