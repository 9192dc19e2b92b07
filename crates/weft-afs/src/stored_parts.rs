//! How far what is to be written to a long file is stored: a store that was cut short goes on where it was, if what has been
//! stored is still what is to be written. It is stored part by part, and each part that the server has confirmed is noted
//! with a sum of all bytes up to its end.

use weft_remote::{Content, Extent};
use xxhash_rust::xxh3::Xxh3;

/// What is stored of what is to be written over a data version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoredParts {
    /// How many of its parts, from the first one on.
    pub count: u64,
    /// The length of the file with which they were stored.
    pub file_length: u64,
    /// The data version that the last of them made.
    pub data_version: u64,
    /// XXH3 of 128 bits of the parts: of each its offset, its length and its own XXH3 of 128 bits, least significant byte first.
    pub sum: u128,
}

/// The sum of the parts that are stored, to be gone on with.
#[derive(Clone)]
pub(crate) struct Sum(Box<Xxh3>);

/// The sum of the bytes of one part.
pub(crate) struct PartSum(Box<Xxh3>);

impl PartSum {
    pub fn new() -> PartSum {
        PartSum(Box::new(Xxh3::new()))
    }

    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
}

impl Sum {
    pub fn new() -> Sum {
        Sum(Box::new(Xxh3::new()))
    }

    /// Goes on with a part.
    pub fn add(&mut self, part: Extent, bytes: &PartSum) {
        self.0.update(&part.offset.to_le_bytes());
        self.0.update(&part.length.to_le_bytes());
        self.0.update(&bytes.0.digest128().to_le_bytes());
    }

    pub fn value(&self) -> u128 {
        self.0.digest128()
    }
}

impl StoredParts {
    /// The sum of what is stored, if that is how all that is to be written now begins. It reads what is to be written up to
    /// there, and lets others work in between.
    pub async fn still_hold(
        &self,
        mut parts: impl Iterator<Item = Extent>,
        file_length: u64,
        content: &dyn Content,
    ) -> Option<Sum> {
        if self.count == 0 || self.file_length != file_length {
            return None;
        }
        let mut sum = Sum::new();
        for _ in 0..self.count {
            let part = parts.next()?;
            let mut bytes_of = PartSum::new();
            let (mut at, end) = (part.offset, part.offset + part.length);
            while at < end {
                let size = (end - at).min(READ_BYTES) as usize;
                let bytes = content.read(at, size).ok().filter(|bytes| bytes.len() == size)?;
                bytes_of.add(&bytes);
                at += size as u64;
            }
            sum.add(part, &bytes_of);
            tokio::task::yield_now().await;
        }
        (sum.value() == self.sum).then_some(sum)
    }

    /// As numbers, for a note.
    pub fn numbers(&self) -> [u64; 5] {
        let StoredParts { count, file_length, data_version, sum } = *self;
        [count, file_length, data_version, (sum >> 64) as u64, sum as u64]
    }

    /// What [`StoredParts::numbers`] gave.
    pub fn of_numbers([count, file_length, data_version, high, low]: [u64; 5]) -> StoredParts {
        StoredParts { count, file_length, data_version, sum: u128::from(high) << 64 | u128::from(low) }
    }
}

/// Bytes read at once of what is stored.
const READ_BYTES: u64 = 256 << 10;

#[cfg(test)]
mod tests {
    use std::io;

    use bytes::Bytes;

    use super::*;

    struct Bytewise(Vec<u8>);

    impl Content for Bytewise {
        fn read(&self, offset: u64, length: usize) -> io::Result<Bytes> {
            let rest = &self.0[(offset as usize).min(self.0.len())..];
            Ok(rest[..rest.len().min(length)].to_vec().into())
        }
    }

    /// Goal: a store goes on after what is stored only while that is how it begins: the same bytes at the same places of a file
    /// of the same length.
    #[tokio::test]
    async fn what_has_changed_since_is_stored_again() {
        let content = Bytewise((0..700_000_u32).map(|at| ((at * 7) >> 3) as u8).collect());
        let parts = [(0, 300_000), (300_000, 300_000), (600_000, 100_000)];
        let parts = parts.map(|(offset, length)| Extent { offset, length });
        let mut sum = Sum::new();
        for part in &parts[..2] {
            let mut bytes_of = PartSum::new();
            // In other pieces than it is read in.
            content.0[part.offset as usize..][..part.length as usize]
                .chunks(1000)
                .for_each(|bytes| bytes_of.add(bytes));
            sum.add(*part, &bytes_of);
        }
        let stored = StoredParts { count: 2, file_length: 700_000, data_version: 9, sum: sum.value() };
        let holds = async |stored: &StoredParts, parts: &[Extent], length: u64, content: &Bytewise| {
            stored.still_hold(parts.iter().copied(), length, content).await.is_some()
        };
        assert!(holds(&stored, &parts, 700_000, &content).await);
        let mut later = Bytewise(content.0.clone());
        later.0[600_000] ^= 1;
        assert!(holds(&stored, &parts, 700_000, &later).await, "what comes after it is to be stored yet");
        for changed in [0, 299_999, 300_000, 599_999] {
            let mut other = Bytewise(content.0.clone());
            other.0[changed] ^= 1;
            assert!(!holds(&stored, &parts, 700_000, &other).await, "{changed}");
        }
        assert!(!holds(&stored, &parts, 700_001, &content).await, "of another length");
        assert!(!holds(&stored, &parts[..1], 700_000, &content).await, "there is less to store");
        let elsewhere = [Extent { offset: 0, length: 600_000 }, parts[2]];
        assert!(!holds(&stored, &elsewhere, 700_000, &content).await, "other parts");
        assert!(!holds(&stored, &parts, 700_000, &Bytewise(content.0[..500_000].to_vec())).await, "not all is there");
        assert!(!holds(&StoredParts::default(), &parts, 0, &content).await, "nothing is stored");
        assert_eq!(StoredParts::of_numbers(stored.numbers()), stored);
    }
}
