//! Popularity by rank.

use crate::random::Random;

/// Draws ranks: the one at place `r` (from 0) as often as `1 / (r + 1)^exponent` says.
#[derive(Debug)]
pub struct Zipf {
    /// Sums of the shares up to each rank.
    sums: Vec<f64>,
}

impl Zipf {
    /// Of so many ranks, at least one.
    pub fn new(count: usize, exponent: f64) -> Zipf {
        let mut sum = 0.0;
        let shares = (1..=count.max(1)).map(|rank| (rank as f64).powf(-exponent));
        let sums = shares.map(|share| {
            sum += share;
            sum
        });
        Zipf { sums: sums.collect() }
    }

    /// A rank, from 0.
    pub fn draw(&self, random: &mut Random) -> usize {
        let wanted = random.unit() * self.sums[self.sums.len() - 1];
        self.sums.partition_point(|sum| *sum <= wanted).min(self.sums.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_fall_as_the_exponent_says() {
        for exponent in [0.0, 0.8, 1.0] {
            let (zipf, mut random) = (Zipf::new(100, exponent), Random::new(1));
            let mut counts = [0f64; 100];
            (0..400_000).for_each(|_| counts[zipf.draw(&mut random)] += 1.0);
            let wanted = 10f64.powf(exponent);
            // The ranks 1 and 10: some thousands of draws each.
            let found = counts[0] / counts[9];
            assert!((found / wanted - 1.0).abs() < 0.1, "{exponent}: {found} instead of {wanted}");
        }
    }
}
