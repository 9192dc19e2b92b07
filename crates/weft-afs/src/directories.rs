//! Directories that were fetched of late, in memory: a name is found without asking while the directory's promise holds.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::cell::CellName;
use crate::fid::Fid;

/// The content of one directory, checked.
#[derive(Clone, Debug)]
pub(crate) struct Content {
    /// The data version that it is of.
    pub data_version: u64,
    /// As it was fetched.
    pub bytes: Bytes,
}

/// As many of them as there is room for.
#[derive(Debug)]
pub(crate) struct Directories {
    bytes_max: usize,
    /// Held for one look or one change.
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    by_fid: HashMap<(CellName, Fid), Kept>,
    bytes: usize,
    clock: u64,
}

#[derive(Debug)]
struct Kept {
    content: Content,
    used: u64,
}

impl Directories {
    pub fn new(bytes_max: usize) -> Directories {
        Directories { bytes_max, held: Mutex::default() }
    }

    /// What is held of a directory.
    pub fn get(&self, cell: &CellName, fid: Fid) -> Option<Content> {
        let mut held = self.held.lock();
        held.clock += 1;
        let now = held.clock;
        let kept = held.by_fid.get_mut(&(cell.clone(), fid))?;
        kept.used = now;
        Some(kept.content.clone())
    }

    /// What is held of a directory is of use only if it is of this data version.
    pub fn keep_only(&self, cell: &CellName, fid: Fid, data_version: u64) {
        let key = (cell.clone(), fid);
        let mut held = self.held.lock();
        if held.by_fid.get(&key).is_some_and(|kept| kept.content.data_version != data_version)
            && let Some(gone) = held.by_fid.remove(&key)
        {
            held.bytes -= gone.content.bytes.len();
        }
    }

    /// Keeps what was fetched; what was used longest ago goes.
    pub fn put(&self, cell: &CellName, fid: Fid, content: Content) {
        if content.bytes.len() > self.bytes_max {
            return;
        }
        let mut held = self.held.lock();
        held.clock += 1;
        let (used, length) = (held.clock, content.bytes.len());
        let former = held.by_fid.insert((cell.clone(), fid), Kept { content, used });
        held.bytes = held.bytes + length - former.map_or(0, |former| former.content.bytes.len());
        while held.bytes > self.bytes_max {
            let oldest = held.by_fid.iter().min_by_key(|(_, kept)| kept.used).map(|(key, _)| key.clone());
            let Some(gone) = oldest.and_then(|key| held.by_fid.remove(&key)) else { break };
            held.bytes -= gone.content.bytes.len();
        }
    }
}

/// Has only one at a time fetch a directory: others find it when their turn comes.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<HashMap<(CellName, Fid), Turn>>);

/// Whoever fetches a directory holds it.
type Turn = Arc<tokio::sync::Mutex<()>>;

impl Turns {
    /// The turn of a directory.
    pub fn of(&self, cell: &CellName, fid: Fid) -> Turn {
        let mut turns = self.0.lock();
        if turns.len() >= TURNS_KEPT {
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        }
        turns.entry((cell.clone(), fid)).or_default().clone()
    }
}

/// Turns that are kept though nobody waits.
const TURNS_KEPT: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fid::VolumeId;

    #[test]
    fn what_was_used_longest_ago_goes() {
        let cell = CellName::new(b"example.org").expect("a name");
        let fid = |vnode| Fid { volume: VolumeId(1), vnode, unique: 1 };
        let content = |length| Content { data_version: 1, bytes: vec![0; length].into() };
        let directories = Directories::new(100);
        let held = |vnode| directories.get(&cell, fid(vnode)).is_some();
        directories.put(&cell, fid(1), content(40));
        directories.put(&cell, fid(3), content(40));
        assert!(held(1) && held(3));
        assert!(held(1));
        directories.put(&cell, fid(5), content(40));
        assert!(held(1) && !held(3) && held(5));
        directories.put(&cell, fid(1), content(10));
        directories.put(&cell, fid(7), content(50));
        assert!(held(1) && held(5) && held(7), "another content of one takes the place of the former");
        directories.put(&cell, fid(9), content(101));
        assert!(!held(9) && held(7), "what is too long is not kept");
        directories.keep_only(&cell, fid(7), 1);
        assert!(held(7));
        directories.keep_only(&cell, fid(7), 2);
        assert!(!held(7), "another version");
    }
}
