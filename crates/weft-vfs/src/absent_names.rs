//! Names that the store knows to be absent, of directories that were gone through: with each change in a directory those are
//! forgotten, and to look at all its names for that would make a change the slower the more names there are.

use std::collections::HashMap;

use parking_lot::Mutex;
use weft_remote::Name;
use weft_store::NodeId;

/// The names of some directories that were put as absent since all their names were gone through.
#[derive(Debug, Default)]
pub(crate) struct AbsentNames(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    of: HashMap<NodeId, Vec<Name>>,
    /// How many names there are in all.
    count: usize,
}

impl AbsentNames {
    /// All names of a directory are about to be gone through, and what is absent of them forgotten.
    pub(crate) fn begin(&self, dir: NodeId) {
        let mut noted = self.0.lock();
        if noted.of.len() >= DIRECTORIES_MAX {
            *noted = Noted::default();
        }
        if let Some(before) = noted.of.insert(dir, Vec::new()) {
            noted.count -= before.len();
        }
    }

    /// They were not all gone through.
    pub(crate) fn give_up(&self, dir: NodeId) {
        let mut noted = self.0.lock();
        if let Some(names) = noted.of.remove(&dir) {
            noted.count -= names.len();
        }
    }

    /// A name is being put as absent. The names are locked, from before this until it is.
    pub(crate) fn note(&self, dir: NodeId, name: &Name) {
        let mut noted = self.0.lock();
        if noted.count >= NAMES_MAX {
            *noted = Noted::default();
        }
        if let Some(names) = noted.of.get_mut(&dir) {
            names.push(name.clone());
            noted.count += 1;
        }
    }

    /// Those that were noted since, once; `None` where all names have to be gone through.
    pub(crate) fn take(&self, dir: NodeId) -> Option<Vec<Name>> {
        let mut noted = self.0.lock();
        let names = std::mem::take(noted.of.get_mut(&dir)?);
        noted.count -= names.len();
        Some(names)
    }
}

/// Directories of which they are known.
const DIRECTORIES_MAX: usize = 4096;
/// Names that are remembered in all.
const NAMES_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> Name {
        Name::new(format!("{number}")).expect("a name")
    }

    #[test]
    fn what_was_put_since_a_directory_was_gone_through_is_known_once() {
        let (absent, dir) = (AbsentNames::default(), NodeId(7));
        absent.note(dir, &name(1));
        assert_eq!(absent.take(dir), None);
        absent.begin(dir);
        assert_eq!(absent.take(dir), Some(Vec::new()));
        absent.note(dir, &name(2));
        absent.note(NodeId(8), &name(3));
        assert_eq!(absent.take(dir), Some(vec![name(2)]));
        assert_eq!(absent.take(dir), Some(Vec::new()));
        absent.note(dir, &name(4));
        absent.give_up(dir);
        assert_eq!(absent.take(dir), None);
        assert_eq!(absent.0.lock().count, 0);
    }

    #[test]
    fn no_more_are_remembered_than_there_is_room_for() {
        let absent = AbsentNames::default();
        (0..DIRECTORIES_MAX).for_each(|dir| absent.begin(NodeId(dir as u64)));
        absent.begin(NodeId(1 << 40));
        assert_eq!((absent.take(NodeId(0)), absent.take(NodeId(1 << 40))), (None, Some(Vec::new())));
        (0..=NAMES_MAX).for_each(|number| absent.note(NodeId(1 << 40), &name(number)));
        assert_eq!((absent.take(NodeId(1 << 40)), absent.0.lock().count), (None, 0));
    }
}
