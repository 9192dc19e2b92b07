//! Changes to the index that are on their way to the database.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::PathBuf;
use std::time::Instant;

use crate::database::Pairs;
use crate::disk::Disk;
use crate::key::Key;
use crate::small::{Small, SmallKey};
use crate::troubles::Troubles;
use crate::value::Value;

/// The newest value of each key that changed; `None` takes a key away.
#[derive(Debug, Default)]
pub(crate) struct Stage {
    pub(crate) pairs: BTreeMap<Key, Option<Value>>,
    /// Memory in use, about.
    pub(crate) bytes: usize,
    /// Number of the last change in it.
    pub(crate) last: u64,
    /// When its first change came.
    pub(crate) since: Option<Instant>,
    /// When the first change came that is not in a hurry.
    pub(crate) later_since: Option<Instant>,
    /// Contents that nothing refers to once this stage is durable.
    pub(crate) doomed: Vec<Doomed>,
}

/// A content that nothing refers to: in a segment, or a file.
#[derive(Debug)]
pub(crate) struct Doomed {
    pub(crate) key: SmallKey,
    pub(crate) path: PathBuf,
}

impl Doomed {
    /// Removes it.
    pub(crate) fn remove(&self, small: &Small, disk: &Disk, troubles: &Troubles) {
        if small.remove(self.key) {
            return;
        }
        if let Err(error) = disk.remove(&self.path) {
            troubles.tell(format!("{}: could not be removed: {error}", self.path.display()));
        }
    }
}

/// When a change is to be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Within the flush interval.
    Soon,
    /// With the next that are: without it, no more is lost than that a source confirmed what is known.
    Later,
}

/// One change, encoded.
pub(crate) type Change = (Key, Option<Value>);

impl Stage {
    /// A stage that sets one key.
    pub(crate) fn of_pair(key: &[u8], value: &[u8]) -> Stage {
        let mut stage = Stage::default();
        stage.put((key.into(), Some(value.into())));
        stage
    }

    /// Adds a change; a later one for the same key replaces an earlier one.
    pub(crate) fn put(&mut self, (key, value): Change) {
        let size = |value: &Option<Value>| value.as_ref().map_or(0, |value| value.len());
        self.bytes += size(&value);
        let key_bytes = key.len();
        match self.pairs.insert(key, value) {
            Some(former) => self.bytes -= size(&former),
            None => self.bytes += key_bytes + PAIR_BYTES,
        }
    }

    /// Adds a content to remove once this stage is durable.
    pub(crate) fn doom(&mut self, doomed: Doomed) {
        self.bytes += doomed.path.as_os_str().len() + PAIR_BYTES;
        self.doomed.push(doomed);
    }

    /// Whether there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.pairs.is_empty() && self.doomed.is_empty()
    }
}

/// What the stages say about a range, taken out of them so that the database can be read without holding them.
#[derive(Debug, Default)]
pub(crate) struct Patch {
    /// In the order of their keys, each once.
    changes: Vec<(Key, Option<Value>)>,
    /// The range was cut off here, inclusively, since there are enough keys up to here.
    cut: Option<Key>,
}

impl Patch {
    /// Copies what `stages` (newest first) say about the keys between `from` and `end`, up to where they alone
    /// hold `limit` keys.
    pub(crate) fn take(stages: &[&Stage], from: Bound<&[u8]>, end: &[u8], limit: usize) -> Patch {
        let range = (from, Bound::Excluded(end));
        let mut iterators: Vec<_> = stages.iter().map(|stage| stage.pairs.range::<[u8], _>(range).peekable()).collect();
        let mut patch = Patch::default();
        let mut live = 0;
        while live < limit {
            let Some(key) = iterators.iter_mut().filter_map(|pairs| pairs.peek().map(|(key, _)| *key)).min() else {
                return patch;
            };
            let mut newest = None;
            for pairs in &mut iterators {
                let same = pairs.next_if(|(other, _)| *other == key);
                newest = newest.or(same);
            }
            let (_, value) = newest.expect("one of the stages gave the key");
            live += usize::from(value.is_some());
            patch.changes.push((key.clone(), value.clone()));
        }
        patch.cut = patch.changes.last().map(|(key, _)| key.clone());
        patch
    }

    /// Where the database has to be read to: `cut` when the patch holds enough by itself.
    pub(crate) fn cut(&self) -> Option<&Key> {
        self.cut.as_ref()
    }

    /// How many of the keys of the database may be hidden by the patch.
    pub(crate) fn hidden_max(&self) -> usize {
        self.changes.len()
    }

    /// The first `limit` pairs of the database's, which are in the order of their keys, with the patch laid over them.
    pub(crate) fn lay_over(self, below: Pairs, limit: usize) -> Pairs {
        let mut below = below.into_iter().peekable();
        let mut merged = Pairs::new();
        for (key, value) in self.changes {
            merged.extend(std::iter::from_fn(|| below.next_if(|(other, _)| *other < key)));
            below.next_if(|(other, _)| *other == key);
            merged.extend(value.map(|value| (key, value)));
        }
        merged.extend(below);
        merged.truncate(limit);
        merged
    }
}

/// What the maps need for each pair beyond its bytes.
const PAIR_BYTES: usize = 96;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Layer = BTreeMap<u8, Option<u8>>;

    fn layer() -> impl Strategy<Value = Layer> {
        proptest::collection::btree_map(0u8..16, proptest::option::of(any::<u8>()), 0..12)
    }

    fn key(name: u8) -> Key {
        vec![b'd', name].into()
    }

    fn stage(layer: &Layer) -> Stage {
        let mut stage = Stage::default();
        layer.iter().for_each(|(name, value)| stage.put((key(*name), value.map(|value| vec![value].into()))));
        stage
    }

    proptest! {
        /// Two stages over a database, with any start and limit, against all three laid over each other.
        #[test]
        fn stages_cover_the_database(
            current in layer(), flushing in layer(), database in layer(),
            after in proptest::option::of(0u8..16), limit in 0usize..20,
        ) {
            let mut model = database.clone();
            model.extend(flushing.clone());
            model.extend(current.clone());
            let live = |layer: &Layer| -> Vec<_> {
                let after = |name: &u8| after.is_none_or(|after| *name > after);
                layer.iter().filter(|(name, _)| after(name)).filter_map(|(name, value)| Some((*name, (*value)?))).collect()
            };
            let expected: Vec<_> = live(&model).into_iter().take(limit).collect();

            let start = after.map_or(vec![b'd'].into(), key);
            let from = if after.is_some() { Bound::Excluded(&*start) } else { Bound::Included(&*start) };
            let patch = Patch::take(&[&stage(&current), &stage(&flushing)], from, b"e", limit);
            let cut = patch.cut().map_or(u8::MAX, |cut| cut[1]);
            let room = limit + patch.hidden_max();
            let below = live(&database).into_iter().filter(|(name, _)| *name <= cut).take(room);
            let below = below.map(|(name, value)| (key(name), vec![value].into())).collect();
            let got: Vec<_> = patch.lay_over(below, limit).into_iter().map(|(key, value)| (key[1], value[0])).collect();
            prop_assert_eq!(got, expected);
        }
    }

    /// The count of memory goes up and down with what is held.
    #[test]
    fn replacing_a_value_counts_once() {
        let mut stage = Stage::of_pair(b"dx", b"12345678");
        let first = stage.bytes;
        stage.put((b"dx".as_slice().into(), Some(b"1234".as_slice().into())));
        assert_eq!(stage.bytes, first - 4);
        stage.put((b"dx".as_slice().into(), None));
        assert_eq!(stage.bytes, first - 8);
    }
}
