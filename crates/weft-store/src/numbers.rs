//! Numbers of files: which one a file is tried under first, and which after that.
//!
//! A number is made from the file's own identity by a keyed hash, so that nothing has to be looked up to find it again.
//! Where the kind says which files lie near each other, theirs do too: 26 bits of a hash of the area, 8 bits of the
//! position in it, and 29 of the identity. Records stand in the order of numbers, so what is known of a directory's files is
//! read from the disk at once.

use std::hash::{BuildHasher, RandomState};
use std::time::SystemTime;

use weft_remote::{FileId, Neighbourhood};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::index::Index;
use crate::{BindingId, NodeId, Result, key, value};

/// How this store makes numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    seed: u64,
    /// Whether neighbours have numbers near each other: not in stores of before that was so.
    near: bool,
}

impl Numbers {
    /// What the index says; for an empty one it is made up, and made to last.
    pub(crate) fn of(index: &Index) -> Result<Numbers> {
        if let Some(value) = index.get(key::SEED)?
            && let Ok(seed) = value::decode(key::SEED, &value)
        {
            index.remember(key::SEED.into(), value);
            let near = index.get(key::NEAR)?;
            if let Some(near) = near.clone() {
                index.remember(key::NEAR.into(), near);
            }
            return Ok(Numbers { seed, near: near.is_some() });
        }
        // The standard library's hash maps are seeded from the system's random source, and tell it this way.
        let seed = RandomState::new().hash_one(SystemTime::now());
        // Before the seed: numbers that were given out would mean other files with it.
        index.apply_lasting(key::NEAR.into(), value::encode(key::NEAR, &NEAR_FORMAT)?)?;
        index.apply_lasting(key::SEED.into(), value::encode(key::SEED, &seed)?)?;
        Ok(Numbers { seed, near: true })
    }

    /// The number that a file has, unless another one has it.
    pub(crate) fn first(self, binding: BindingId, file: &FileId, near: Option<Neighbourhood>) -> u64 {
        let seed = self.seed ^ u64::from(binding.0).rotate_left(32);
        let own = xxh3_64_with_seed(file.as_bytes(), seed);
        match near.filter(|_| self.near) {
            None => spread(own),
            Some(Neighbourhood { area, position }) => {
                let area = xxh3_64_with_seed(&area.to_le_bytes(), seed) >> (64 - AREA_BITS);
                let own = own >> (64 - OWN_BITS);
                spread(area << (POSITION_BITS + OWN_BITS) | u64::from(position) << OWN_BITS | own)
            }
        }
    }
}

/// The number tried after this one.
pub(crate) fn next(number: u64) -> u64 {
    if number < i64::MAX as u64 { number + 1 } else { NodeId::FIRST_OF_REMOTES }
}

/// Brings a hash into the range of numbers that files of remotes have, which is also that of positive `i64`. What was in
/// order stays so, but for the last few.
fn spread(hash: u64) -> u64 {
    NodeId::FIRST_OF_REMOTES + hash % (i64::MAX as u64 - NodeId::FIRST_OF_REMOTES)
}

/// Together as many as a positive `i64` has.
const AREA_BITS: u32 = 26;
const POSITION_BITS: u32 = u8::BITS;
const OWN_BITS: u32 = 29;
/// How numbers of neighbours are made.
const NEAR_FORMAT: u8 = 1;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn number(numbers: Numbers, file: u64, near: Option<Neighbourhood>) -> u64 {
        numbers.first(BindingId(3), &FileId::new(file.to_be_bytes()), near)
    }

    #[test]
    fn neighbours_have_numbers_near_each_other_in_their_order() {
        let numbers = Numbers { seed: 9, near: true };
        for area in 0..200 {
            let of = |position: u8| {
                number(numbers, area * 256 + u64::from(position), Some(Neighbourhood { area, position }))
            };
            let all: Vec<u64> = (0..=255).map(of).collect();
            assert!(all.is_sorted() && all[255] - all[0] < 1 << (POSITION_BITS + OWN_BITS), "{all:?}");
            assert!(all.iter().all(|number| (NodeId::FIRST_OF_REMOTES..1 << 63).contains(number)));
        }
    }

    #[test]
    fn as_many_as_a_directory_has_are_apart() {
        let numbers = Numbers { seed: 9, near: true };
        let of = |file: u64| number(numbers, file, Some(Neighbourhood { area: 1, position: (file % 7) as u8 }));
        let all: HashSet<u64> = (0..10_000).map(of).collect();
        assert!(all.len() > 9_990, "{}", all.len());
    }

    /// Numbers that are on disks already: when this fails, files are not found again.
    #[test]
    fn numbers_stay() {
        let near = Some(Neighbourhood { area: 5, position: 7 });
        let (old, new) = (Numbers { seed: 9, near: false }, Numbers { seed: 9, near: true });
        assert_eq!(number(old, 1, near), number(old, 1, None));
        assert_eq!(number(old, 1, None), number(new, 1, None));
        assert_eq!(number(new, 1, None), 5_087_799_731_268_988_483);
        assert_eq!(number(new, 1, near), 5_471_156_394_970_546_140);
    }
}
