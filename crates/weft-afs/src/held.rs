//! The promises that count, packed: a tree of a million files has one for each of them.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use foldhash::fast::RandomState;

use crate::cell::CellName;
use crate::fid::Fid;
use crate::retimed::Written;
use crate::servers::ServerId;

/// What a server has promised of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub server: ServerId,
    /// In whole seconds.
    pub ends: SystemTime,
    /// Which bytes the file had when it was made, where that was noted.
    pub written: Option<Written>,
}

/// By file.
#[derive(Debug, Default)]
pub(crate) struct AllHeld {
    packed: HashMap<(u32, Fid), Packed, RandomState>,
    cells: Numbers<CellName>,
    servers: Numbers<ServerId>,
}

#[derive(Clone, Copy, Debug)]
struct Packed {
    server: u32,
    /// In seconds since 1970.
    ends_s: u32,
    data_version: u64,
    modified_s: u32,
    is_noted: bool,
}

/// Numbers for what many promises have in common; as many as there are cells, or servers, that have promised something.
#[derive(Debug)]
struct Numbers<T> {
    of: HashMap<T, u32>,
    all: Vec<T>,
}

impl AllHeld {
    pub fn len(&self) -> usize {
        self.packed.len()
    }

    pub fn get(&self, cell: &CellName, fid: Fid) -> Option<Held> {
        let packed = self.packed.get(&(self.cells.find(cell)?, fid))?;
        Some(self.unpacked(packed))
    }

    pub fn insert(&mut self, cell: &CellName, fid: Fid, held: Held) {
        let key = (self.cells.number(cell), fid);
        let Held { server, ends, written } = held;
        let packed = Packed {
            server: self.servers.number(&server),
            ends_s: seconds_of(ends),
            data_version: written.map_or(0, |written| written.data_version),
            modified_s: written.map_or(0, |written| written.modified_s),
            is_noted: written.is_some(),
        };
        self.packed.insert(key, packed);
    }

    pub fn remove(&mut self, cell: &CellName, fid: Fid) {
        if let Some(cell) = self.cells.find(cell) {
            self.packed.remove(&(cell, fid));
        }
    }

    pub fn clear(&mut self) {
        *self = AllHeld::default();
    }

    /// Takes out those for which this holds; which they were.
    pub fn take_out(&mut self, mut which: impl FnMut(&CellName, Fid, &Held) -> bool) -> Vec<(CellName, Fid)> {
        let mut packed = std::mem::take(&mut self.packed);
        let mut out = Vec::new();
        packed.retain(|(cell, fid), held| {
            let cell = &self.cells.all[*cell as usize];
            let goes = which(cell, *fid, &self.unpacked(held));
            if goes {
                out.push((cell.clone(), *fid));
            }
            !goes
        });
        self.packed = packed;
        out
    }

    /// Forgets those that have ended by then.
    pub fn forget_ended(&mut self, now: SystemTime) {
        self.packed.retain(|_, held| time_of(held.ends_s) > now);
    }

    pub fn iter(&self) -> impl Iterator<Item = Held> + '_ {
        self.packed.values().map(|packed| self.unpacked(packed))
    }

    fn unpacked(&self, packed: &Packed) -> Held {
        let Packed { server, ends_s, data_version, modified_s, is_noted } = *packed;
        Held {
            server: self.servers.all[server as usize],
            ends: time_of(ends_s),
            written: is_noted.then_some(Written { data_version, modified_s }),
        }
    }
}

impl Held {
    /// A promise that ends at this time, or up to a second earlier.
    pub fn until(server: ServerId, ends: SystemTime, written: Option<Written>) -> Held {
        Held { server, ends: time_of(seconds_of(ends)), written }
    }
}

/// Whole seconds since 1970, as far as these go.
fn seconds_of(time: SystemTime) -> u32 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    u32::try_from(since).unwrap_or(u32::MAX)
}

fn time_of(seconds: u32) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds.into())
}

impl<T> Default for Numbers<T> {
    fn default() -> Numbers<T> {
        Numbers { of: HashMap::new(), all: Vec::new() }
    }
}

impl<T: Clone + Eq + Hash> Numbers<T> {
    fn find(&self, thing: &T) -> Option<u32> {
        self.of.get(thing).copied()
    }

    fn number(&mut self, thing: &T) -> u32 {
        self.find(thing).unwrap_or_else(|| {
            let number = u32::try_from(self.all.len()).expect("fewer than there are promises");
            self.all.push(thing.clone());
            self.of.insert(thing.clone(), number);
            number
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fid::VolumeId;

    fn fid(vnode: u32) -> Fid {
        Fid { volume: VolumeId(7), vnode, unique: 1 }
    }

    /// Goal: what is packed comes back as it was, of each file in each cell by itself.
    #[test]
    fn what_is_held_comes_back() {
        let cells = [&b"one.org"[..], b"two.org"].map(|name| CellName::new(name).expect("a name"));
        let servers = [1, 2].map(|last| ServerId::Address(std::net::IpAddr::from([192, 0, 2, last])));
        let written = Written { data_version: u64::MAX, modified_s: u32::MAX };
        let held = |nth: usize, written| {
            Held::until(servers[nth], UNIX_EPOCH + Duration::from_millis(5900 + nth as u64 * 1000), written)
        };
        assert_eq!(held(0, None).ends, UNIX_EPOCH + Duration::from_secs(5));
        let mut all = AllHeld::default();
        let entries = [(0, 2, held(0, None)), (0, 4, held(1, Some(written))), (1, 2, held(1, None))];
        entries.iter().for_each(|(cell, vnode, held)| all.insert(&cells[*cell], fid(*vnode), *held));
        entries.iter().for_each(|(cell, vnode, held)| assert_eq!(all.get(&cells[*cell], fid(*vnode)), Some(*held)));
        assert_eq!((all.len(), all.get(&cells[1], fid(4))), (3, None));
        let out = all.take_out(|cell, fid, held| {
            assert!(entries.iter().any(|(nth, vnode, known)| (&cells[*nth], *vnode, known) == (cell, fid.vnode, held)));
            fid.vnode == 4
        });
        assert_eq!(out, [(cells[0].clone(), fid(4))]);
        all.forget_ended(UNIX_EPOCH + Duration::from_secs(5));
        assert_eq!((all.len(), all.get(&cells[1], fid(2))), (1, Some(entries[2].2)));
        all.remove(&CellName::new(b"three.org").expect("a name"), fid(2));
        all.remove(&cells[1], fid(2));
        assert_eq!(all.iter().next(), None);
    }

    /// Goal: the promises of a large tree take as little memory as was set out: 200 bytes each, half of which is room that a
    /// table of its kind has left while it grows.
    #[test]
    fn a_promise_takes_few_bytes() {
        assert!(size_of::<((u32, Fid), Packed)>() <= 48);
    }
}
