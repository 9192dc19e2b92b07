//! A site that is made up: pages and the objects that they are made of.
//!
//! * Lengths: log-normal, as the body of web files is (Barford and Crovella, SIGMETRICS 1998); median 7 KiB and sigma
//!   1.3 are the project's own, cut at 64 KiB, for longer objects do not lie in segments.
//! * Pages: an HTML object, 8 to 18 objects of its own and 2 to 4 shared ones, in the mean 17 objects. The shape is that
//!   of embedded references in the same paper, the numbers are nearer to pages of today.
//! * Shared objects (style sheets, logos): one for each 50 pages; which a page takes follows Zipf with exponent 1, so
//!   that a few are everywhere.

use super::zipf::Zipf;
use crate::random::Random;

/// How a site is made.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// How many pages.
    pub pages: usize,
    /// The same gives the same.
    pub seed: u64,
}

/// Pages and objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Of each page the objects: the HTML first, then the others in the order in which a client asks for them.
    pub pages: Vec<Vec<u32>>,
    /// Paths.
    pub names: Vec<String>,
    /// Bytes.
    pub lengths: Vec<u32>,
}

impl Site {
    /// The site of a shape.
    pub fn new(shape: Shape) -> Site {
        let mut random = Random::new(shape.seed);
        let mut site = Site { pages: Vec::with_capacity(shape.pages), names: Vec::new(), lengths: Vec::new() };
        let shared_count = (shape.pages / PAGES_OF_A_SHARED).max(SHARED_MAX);
        let shared: Vec<u32> =
            (0..shared_count).map(|number| site.add(format!("/shared/{number}"), &mut random)).collect();
        let popularity = Zipf::new(shared.len(), 1.0);
        for page in 0..shape.pages {
            let mut objects = vec![site.add(format!("/{page}/index.html"), &mut random)];
            let wanted = SHARED_MIN + random.place(SHARED_MAX - SHARED_MIN + 1);
            while objects.len() <= wanted {
                let one = shared[popularity.draw(&mut random)];
                if !objects.contains(&one) {
                    objects.push(one);
                }
            }
            let own = OWN_MIN + random.place(OWN_MAX - OWN_MIN + 1);
            objects.extend((0..own).map(|number| site.add(format!("/{page}/{number}"), &mut random)));
            site.pages.push(objects);
        }
        site
    }

    fn add(&mut self, name: String, random: &mut Random) -> u32 {
        let number = u32::try_from(self.names.len()).expect("sites are small");
        self.names.push(name);
        self.lengths.push(length(random));
        number
    }
}

/// The length of some object, in bytes.
pub fn length(random: &mut Random) -> u32 {
    ((MEDIAN * (SIGMA * random.normal()).exp()) as u32).clamp(LENGTH_MIN, LENGTH_MAX)
}

const MEDIAN: f64 = 7168.0;
const SIGMA: f64 = 1.3;
const LENGTH_MIN: u32 = 64;
/// Longer objects do not lie in segments.
pub const LENGTH_MAX: u32 = 64 << 10;
const PAGES_OF_A_SHARED: usize = 50;
const SHARED_MIN: usize = 2;
const SHARED_MAX: usize = 4;
const OWN_MIN: usize = 8;
const OWN_MAX: usize = 18;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn pages_have_what_the_shape_says() {
        let site = Site::new(Shape { pages: 500, seed: 3 });
        let objects: usize = site.pages.iter().map(Vec::len).sum();
        let mean = objects as f64 / 500.0;
        assert!((16.5..17.5).contains(&mean), "{mean}");
        let shared = |object: &&u32| site.names[**object as usize].starts_with("/shared/");
        for page in &site.pages {
            assert_eq!(page.iter().collect::<HashSet<_>>().len(), page.len());
            assert!((SHARED_MIN..=SHARED_MAX).contains(&page.iter().filter(shared).count()));
        }
        let mut lengths = site.lengths.clone();
        lengths.sort_unstable();
        let median = f64::from(lengths[lengths.len() / 2]);
        assert!((median / MEDIAN - 1.0).abs() < 0.1, "{median}");
        assert!(lengths.iter().all(|length| (LENGTH_MIN..=LENGTH_MAX).contains(length)));
    }

    #[test]
    fn the_seed_decides_everything() {
        let site = |seed| Site::new(Shape { pages: 50, seed });
        assert_eq!(site(1), site(1));
        assert_ne!(site(1), site(2));
    }
}
