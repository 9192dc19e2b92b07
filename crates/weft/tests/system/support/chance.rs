//! Chance that can be had again.

/// A row of numbers that its seed decides (splitmix64).
#[derive(Debug)]
pub struct Chance(u64);

impl Chance {
    /// The row of a seed.
    pub fn of(seed: u64) -> Chance {
        Chance(seed)
    }

    /// The next number, from 0 to below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    /// One of several.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}
