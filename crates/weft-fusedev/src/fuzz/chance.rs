//! Chance that can be had again, and what it does to bytes.

/// A row of numbers that its seed decides (xorshift64*).
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Chance {
        // Seeds that are near each other begin far apart.
        Chance(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`; 0 where there is none.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.number() >> 33) as usize % end.max(1)
    }

    pub(crate) fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// A number at which something may go wrong: an end of a range, a length that is nearly `length`, or any.
    pub(crate) fn extreme(&mut self, length: usize) -> u64 {
        let near = (length as u64).wrapping_add(self.number() % 5).wrapping_sub(2);
        let any = self.number() >> (self.number() % 64);
        *self.one_of(&[
            0,
            1,
            near,
            near.wrapping_sub(40),
            any,
            u64::from(u16::MAX),
            1 << 31,
            u64::from(u32::MAX),
            u64::from(u32::MAX) - 7,
            1 << 63,
            u64::MAX,
            u64::MAX - 39,
        ])
    }

    /// Makes bytes wrong in one place.
    pub(crate) fn spoil(&mut self, bytes: &mut Vec<u8>, others: &[Vec<u8>]) {
        let length = bytes.len();
        match self.below(9) {
            0 => bytes.truncate(self.below(length + 1)),
            1 => {
                let more = self.below(80);
                bytes.extend((0..more).map(|_| (self.number() >> 40) as u8));
            }
            2 if length > 0 => bytes[self.below(length)] = self.extreme(length) as u8,
            3 if length > 0 => bytes[self.below(length)] ^= 1 << self.below(8),
            4 => {
                let at = self.below(length / 4 + 1) * 4;
                let word = (self.extreme(length) as u32).to_ne_bytes();
                overwrite(bytes, at, &word);
            }
            5 => {
                let at = self.below(length / 8 + 1) * 8;
                let word = self.extreme(length).to_ne_bytes();
                overwrite(bytes, at, &word);
            }
            6 => drop(bytes.drain(self.piece(length))),
            7 => {
                let again = bytes[self.piece(length)].to_vec();
                let at = self.below(length + 1);
                bytes.splice(at..at, again);
            }
            _ => {
                let other = self.one_of(others);
                let (keep, from) = (self.below(length + 1), self.below(other.len() + 1));
                bytes.truncate(keep);
                bytes.extend_from_slice(&other[from..]);
            }
        }
    }

    fn piece(&mut self, length: usize) -> std::ops::Range<usize> {
        let (one, other) = (self.below(length + 1), self.below(length + 1));
        one.min(other)..one.max(other)
    }
}

fn overwrite(bytes: &mut [u8], at: usize, with: &[u8]) {
    bytes.iter_mut().skip(at).zip(with).for_each(|(byte, new)| *byte = *new);
}
