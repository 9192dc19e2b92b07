//! The objects: pages of 11 to 22 objects with lengths as the web has them, the same in every run.

use bytes::Bytes;

/// A sequence of numbers from a seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Below a bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Puts a list into an order that is none.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for at in (1..list.len()).rev() {
            let other = usize::try_from(self.below(at as u64 + 1)).expect("below a length");
            list.swap(at, other);
        }
    }
}

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

    /// Its bytes.
    pub fn content(self, source: &Bytes) -> Bytes {
        let start = usize::try_from(self.number * 641 % (SOURCE_BYTES - LENGTH_MAX) as u64).expect("below");
        source.slice(start..start + self.length)
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
        // The sum of twelve is as good as normal: the lengths are log-normal, median 7 KiB.
        let normal = (0..12).map(|_| random.unit()).sum::<f64>() - 6.0;
        let length = (MEDIAN * (SIGMA * normal).exp()) as usize;
        Object { number, length: length.clamp(64, LENGTH_MAX) }
    };
    (0..count).map(|_| (0..11 + random.below(12)).map(|_| object(&mut random)).collect()).collect()
}

const MEDIAN: f64 = 7168.0;
const SIGMA: f64 = 1.3;
/// Larger files are not kept in segments.
const LENGTH_MAX: usize = 64 << 10;
const SOURCE_BYTES: usize = 4 << 20;
