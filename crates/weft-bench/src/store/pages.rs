//! The objects: pages of 11 to 22 objects with lengths as the web has them, the same in every run.

use bytes::Bytes;

use crate::random::Random;

/// An object: its number and its length in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    /// Tells it from all others.
    pub number: u64,
    /// Length in bytes.
    pub length: usize,
}

impl Object {
    /// What the store calls it.
    pub fn key(self) -> [u8; 16] {
        let mut key = *b"object/\0\0\0\0\0\0\0\0\0";
        key[8..].copy_from_slice(&self.number.to_be_bytes());
        key
    }

    /// Where its bytes begin in the source.
    pub fn start(self) -> usize {
        usize::try_from(self.number * 641 % (SOURCE_BYTES - LENGTH_MAX) as u64).expect("below")
    }

    /// Its bytes.
    pub fn content(self, source: &Bytes) -> Bytes {
        source.slice(self.start()..self.start() + self.length)
    }
}

/// Bytes that contents are cut from.
pub fn source() -> Bytes {
    let mut random = Random::new(3);
    (0..SOURCE_BYTES / 8).flat_map(|_| random.next().to_le_bytes()).collect::<Vec<u8>>().into()
}

/// So many pages.
pub fn pages(count: usize) -> Vec<Vec<Object>> {
    let mut random = Random::new(7);
    let mut number = 0;
    let mut object = |random: &mut Random| {
        number += 1;
        // Log-normal, median 7 KiB.
        let length = (MEDIAN * (SIGMA * random.normal()).exp()) as usize;
        Object { number, length: length.clamp(64, LENGTH_MAX) }
    };
    (0..count).map(|_| (0..11 + random.below(12)).map(|_| object(&mut random)).collect()).collect()
}

const MEDIAN: f64 = 7168.0;
const SIGMA: f64 = 1.3;
/// Larger files are not kept in segments.
const LENGTH_MAX: usize = 64 << 10;
const SOURCE_BYTES: usize = 4 << 20;
