//! Which pieces of a file are held, and what their checksums are.

use std::collections::BTreeMap;

/// The pieces that are present. Memory follows what is present, not the length of the file, which a source may
/// claim to be anything.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    held: BTreeMap<u32, Held>,
    /// Runs of pieces without a gap: first piece to the one after the last; no two runs touch.
    runs: BTreeMap<u32, u32>,
    /// How many are known to be right in this life of the daemon.
    trusted: usize,
}

/// A piece that is present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// XXH3, 64 bits.
    pub(crate) sum: u64,
    pub(crate) trust: Trust,
}

/// Whether a piece has been seen to be right in this life of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Written by us, or read back and compared.
    Seen,
    /// Known from the index alone.
    Unseen,
}

impl Pieces {
    /// The pieces of a record.
    pub(crate) fn of_record(pieces: &[(u32, u64)]) -> Pieces {
        let mut all = Pieces::default();
        for (piece, sum) in pieces {
            all.insert(*piece, *sum, Trust::Unseen);
        }
        all
    }

    /// What a record says of the pieces.
    pub(crate) fn to_record(&self) -> Vec<(u32, u64)> {
        self.held.iter().map(|(piece, held)| (*piece, held.sum)).collect()
    }

    /// The piece, if it is present.
    pub(crate) fn get(&self, piece: u32) -> Option<Held> {
        self.held.get(&piece).copied()
    }

    /// Number of pieces that are present.
    pub(crate) fn count(&self) -> usize {
        self.held.len()
    }

    /// The last piece that is present.
    pub(crate) fn last(&self) -> Option<u32> {
        self.held.last_key_value().map(|(piece, _)| *piece)
    }

    /// Whether all that are present have been seen to be right.
    pub(crate) fn all_seen(&self) -> bool {
        self.trusted == self.held.len()
    }

    /// Adds a piece; one that is present stays as it is.
    pub(crate) fn insert(&mut self, piece: u32, sum: u64, trust: Trust) {
        if self.held.contains_key(&piece) {
            return;
        }
        self.held.insert(piece, Held { sum, trust });
        self.trusted += usize::from(trust == Trust::Seen);
        let end = self.runs.remove(&(piece + 1)).unwrap_or(piece + 1);
        match self.runs.range_mut(..piece).next_back() {
            Some((_, before)) if *before == piece => *before = end,
            _ => {
                self.runs.insert(piece, end);
            }
        }
    }

    /// Remembers that a piece with this checksum was read back and is right.
    pub(crate) fn trust(&mut self, piece: u32, sum: u64) {
        if let Some(held) = self.held.get_mut(&piece).filter(|held| held.sum == sum && held.trust == Trust::Unseen) {
            held.trust = Trust::Seen;
            self.trusted += 1;
        }
    }

    /// Remembers no longer that a piece is right.
    pub(crate) fn doubt(&mut self, piece: u32) {
        if let Some(held) = self.held.get_mut(&piece).filter(|held| held.trust == Trust::Seen) {
            held.trust = Trust::Unseen;
            self.trusted -= 1;
        }
    }

    /// Takes all that are present for right.
    pub(crate) fn trust_all(&mut self) {
        self.held.values_mut().for_each(|held| held.trust = Trust::Seen);
        self.trusted = self.held.len();
    }

    /// Forgets a piece; whether it was there.
    pub(crate) fn forget(&mut self, piece: u32) -> bool {
        let Some(held) = self.held.remove(&piece) else { return false };
        self.trusted -= usize::from(held.trust == Trust::Seen);
        let run = self.runs.range_mut(..=piece).next_back();
        let (start, end) = run.map(|(start, end)| (*start, std::mem::replace(end, piece))).expect("it is in a run");
        if start == piece {
            self.runs.remove(&start);
        }
        if piece + 1 < end {
            self.runs.insert(piece + 1, end);
        }
        true
    }

    /// The first piece at or after `piece` that is not present.
    pub(crate) fn first_gap(&self, piece: u32) -> u32 {
        match self.runs.range(..=piece).next_back() {
            Some((_, end)) if *end > piece => *end,
            _ => piece,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Random additions and removals against a plain set.
        #[test]
        fn gaps_are_where_a_plain_set_has_them(steps in proptest::collection::vec((0u32..24, any::<bool>()), 0..80)) {
            let mut pieces = Pieces::default();
            let mut model = BTreeSet::new();
            for (piece, add) in steps {
                if add {
                    pieces.insert(piece, piece.into(), Trust::Seen);
                    model.insert(piece);
                } else {
                    prop_assert_eq!(pieces.forget(piece), model.remove(&piece));
                }
                for from in 0..26 {
                    let gap = (from..).find(|piece| !model.contains(piece)).unwrap();
                    prop_assert_eq!(pieces.first_gap(from), gap);
                }
                prop_assert_eq!(pieces.count(), model.len());
                prop_assert!(pieces.all_seen());
            }
            let back = Pieces::of_record(&pieces.to_record());
            prop_assert_eq!(&back.runs, &pieces.runs);
            prop_assert_eq!(back.all_seen(), model.is_empty());
        }
    }
}
