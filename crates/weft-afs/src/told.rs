//! What was told last of each file, so that who knows it can be told that nothing has changed: a version says nothing of
//! modes, owners and the number of names. An answer that is not given, of a listing that fails midway, tells nobody.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use weft_remote::{Attributes, FileId};
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

/// By identity. What is not remembered is told whole.
#[derive(Debug, Default)]
pub(crate) struct LastTold(Mutex<HashMap<u64, u64, RandomState>>);

impl LastTold {
    /// A file is told of; whether the same was told of it last.
    pub fn is_again(&self, file: &FileId, attributes: &Attributes) -> bool {
        let mut now = Xxh3Default::new();
        attributes.hash(&mut now);
        let mut told = self.0.lock();
        if told.len() >= REMEMBERED_MAX {
            told.clear();
        }
        told.insert(xxh3_64(file.as_bytes()), now.finish()) == Some(now.finish())
    }
}

/// Files that are remembered.
const REMEMBERED_MAX: usize = 200_000;

#[cfg(test)]
mod tests {
    use super::*;
    use weft_remote::FileKind;

    #[test]
    fn what_was_told_is_remembered() {
        let told = LastTold::default();
        let one = Attributes { mode: Some(0o644), ..Attributes::of_kind(FileKind::File) };
        let other = Attributes { mode: Some(0o600), ..one };
        let (a, b) = (FileId::new("a"), FileId::new("b"));
        assert!(!told.is_again(&a, &one) && told.is_again(&a, &one));
        assert!(!told.is_again(&b, &one) && !told.is_again(&a, &other) && !told.is_again(&a, &one));
    }
}
