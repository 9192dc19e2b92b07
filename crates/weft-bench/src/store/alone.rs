//! Reading an object at a time, with a memory for objects.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weft_segment::device::Device;

/// A device on which a volume finds that a long read costs out of all proportion, so that it reads each object alone.
/// What it really takes the inner device knows.
#[derive(Debug)]
pub struct Alone<D> {
    inner: D,
    told_ns: AtomicU64,
}

impl<D> Alone<D> {
    /// In front of a device.
    pub fn new(inner: D) -> Alone<D> {
        Alone { inner, told_ns: AtomicU64::new(0) }
    }

    /// The device behind it.
    pub fn inner(&self) -> &D {
        &self.inner
    }
}

impl<D: Device> Device for Alone<D> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let blocks = buffer.len() as u64 / 4096;
        self.told_ns.fetch_add(blocks * blocks * blocks * 1000, Ordering::Relaxed);
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.inner.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn length(&self) -> io::Result<u64> {
        self.inner.length()
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    fn clock(&self) -> Duration {
        Duration::from_nanos(self.told_ns.load(Ordering::Relaxed))
    }
}

/// A memory for objects from which the one goes that was not used for longest.
#[derive(Debug)]
pub struct OldestGoes {
    bytes_max: usize,
    bytes: usize,
    now: u64,
    /// When each was used last, and what it takes.
    held: HashMap<u32, (u64, usize)>,
    by_use: BTreeMap<u64, u32>,
}

impl OldestGoes {
    /// For so many bytes.
    pub fn new(bytes_max: usize) -> OldestGoes {
        OldestGoes { bytes_max, bytes: 0, now: 0, held: HashMap::new(), by_use: BTreeMap::new() }
    }

    /// Uses an object that takes so many bytes, which is held from then on; whether it was held before.
    pub fn use_one(&mut self, object: u32, cost: usize) -> bool {
        self.now += 1;
        let former = self.held.remove(&object);
        if let Some((used, cost)) = former {
            self.by_use.remove(&used);
            self.bytes -= cost;
        }
        if cost <= self.bytes_max {
            self.held.insert(object, (self.now, cost));
            self.by_use.insert(self.now, object);
            self.bytes += cost;
        }
        while self.bytes > self.bytes_max {
            let Some((_, oldest)) = self.by_use.pop_first() else { break };
            self.bytes -= self.held.remove(&oldest).map_or(0, |(_, cost)| cost);
        }
        former.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_when_there_is_no_room() {
        let mut memory = OldestGoes::new(30);
        assert!(!memory.use_one(1, 10) && !memory.use_one(2, 10) && !memory.use_one(3, 10));
        assert!(memory.use_one(1, 10));
        assert!(!memory.use_one(4, 10));
        assert!(!memory.use_one(2, 10), "it was the oldest");
        assert!(memory.use_one(1, 30), "it has grown, and the others are gone");
        assert!(!memory.use_one(4, 10));
        assert!(!memory.use_one(5, 31) && !memory.use_one(5, 31), "it does not fit");
    }
}
