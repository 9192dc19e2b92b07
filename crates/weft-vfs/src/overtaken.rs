//! Answers that were overtaken: what was asked for before something was changed from here may tell of before that, and is
//! learnt after what came of the change. A source says nothing of it, for it tells of what others do.
//!
//! So each change is noted when it has been made, before what came of it is learnt, and an answer that was asked for
//! before then puts nothing in the place of what is known.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use weft_remote::{Change, FileId, Mutation, Name, clock};
use weft_store::{BindingId, NodeId};

use crate::breaks::hash_of;
use crate::vfs::Vfs;
use crate::{Result, VfsError};

/// When files and names were last changed from here.
#[derive(Debug, Default)]
pub(crate) struct Overtaken(Mutex<Changes>);

#[derive(Debug, Default)]
struct Changes {
    /// Of these files, and of these names by directory and the name's hash.
    of: HashMap<(NodeId, Option<u64>), SystemTime>,
    /// Of all others: no later.
    others: Option<SystemTime>,
}

impl Overtaken {
    /// A file was changed.
    pub(crate) fn note(&self, id: NodeId) {
        self.note_at((id, None));
    }

    fn note_at(&self, at: (NodeId, Option<u64>)) {
        let mut changes = self.0.lock();
        let now = clock::now();
        if changes.of.len() >= REMEMBERED_MAX {
            changes.of.clear();
            changes.others = Some(now);
        } else {
            changes.of.insert(at, now);
        }
    }

    /// Whether a file was changed since it was asked about at `asked`.
    pub(crate) fn is(&self, id: NodeId, asked: SystemTime) -> bool {
        self.is_at((id, None), asked)
    }

    /// Whether a name was.
    pub(crate) fn is_name(&self, dir: NodeId, name: &Name, asked: SystemTime) -> bool {
        self.is_at((dir, Some(hash_of(name))), asked)
    }

    fn is_at(&self, at: (NodeId, Option<u64>), asked: SystemTime) -> bool {
        let changes = self.0.lock();
        let changed = changes.of.get(&at).copied().or(changes.others);
        // A time that is still to come is of before the clock was set back, and says nothing.
        changed.is_some_and(|changed| asked <= changed && !clock::is_to_come(changed))
    }
}

/// A change that is being made. It is noted when that ends, however it does: also when nobody waits for it any more.
pub(crate) struct Making {
    pub(crate) vfs: Arc<Vfs>,
    pub(crate) binding: BindingId,
    pub(crate) mutation: Mutation,
}

impl Making {
    /// Nobody waited for the end, who would have learnt what came of it: what it was about is asked about again.
    pub(crate) fn ended_alone(self) {
        let (vfs, binding, change) = (self.vfs.clone(), self.binding, self.mutation.change.clone());
        // Noted first, so that no answer from before it is learnt once what it was about is asked about again.
        drop(self);
        let of_name = |dir: &FileId, name: &Name| {
            vfs.break_name(binding, dir, name, None)?;
            vfs.break_lease(binding, dir)
        };
        let asked_again = match &change {
            Change::Create { dir, name, .. } | Change::Symlink { dir, name, .. } | Change::Remove { dir, name } => {
                of_name(dir, name)
            }
            Change::Link { file, dir, name } => of_name(dir, name).and_then(|()| vfs.break_lease(binding, file)),
            Change::Rename { from, name, to, new_name, .. } => of_name(from, name).and_then(|()| of_name(to, new_name)),
            Change::Write { file, .. } | Change::SetAttributes { file, .. } | Change::SetExtended { file, .. } => {
                vfs.break_lease(binding, file)
            }
        };
        if let Err(error) = asked_again {
            tracing::warn!(%error, "what came of a change that nobody waited for may not be shown");
        }
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        if let Err(error) = self.vfs.note_change(self.binding, &self.mutation.change) {
            tracing::warn!(%error, "what an answer from before a change says may be shown after it");
        }
    }
}

impl Vfs {
    fn note_change(&self, binding: BindingId, change: &Change) -> Result<()> {
        let note = |file: &FileId| {
            self.overtaken.note(self.identify(binding, file)?);
            Ok::<_, VfsError>(())
        };
        let note_name = |dir: &FileId, name: &Name| {
            let dir = self.identify(binding, dir)?;
            self.overtaken.note_at((dir, Some(hash_of(name))));
            self.overtaken.note(dir);
            Ok::<_, VfsError>(())
        };
        match change {
            Change::Create { dir, name, .. } | Change::Symlink { dir, name, .. } | Change::Remove { dir, name } => {
                note_name(dir, name)
            }
            Change::Link { file, dir, name } => note(file).and_then(|()| note_name(dir, name)),
            Change::Rename { from, name, to, new_name, .. } => {
                note_name(from, name).and_then(|()| note_name(to, new_name))
            }
            Change::Write { file, .. } | Change::SetAttributes { file, .. } | Change::SetExtended { file, .. } => {
                note(file)
            }
        }
    }
}

/// Changes that are remembered.
const REMEMBERED_MAX: usize = 16_384;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Goal: what was asked for before a change is overtaken, what was asked for after it and what it was not about is not;
    /// when too many were made to remember each, all that was asked for before is.
    #[test]
    fn what_was_asked_for_before_a_change_is_overtaken() {
        let (overtaken, before) = (Overtaken::default(), SystemTime::now());
        let (file, other, name) = (NodeId(1), NodeId(2), Name::new("name").expect("a name"));
        overtaken.note(file);
        overtaken.note_at((other, Some(hash_of(&name))));
        let after = SystemTime::now() + Duration::from_nanos(1);
        assert!(overtaken.is(file, before) && overtaken.is_name(other, &name, before));
        assert!(!overtaken.is(file, after) && !overtaken.is_name(other, &name, after));
        assert!(!overtaken.is(other, before) && !overtaken.is_name(file, &name, before));
        (0..=REMEMBERED_MAX as u64).for_each(|id| overtaken.note(NodeId(100 + id)));
        assert!(overtaken.is(file, before) && overtaken.is(NodeId(3), before));
        assert!(!overtaken.is(NodeId(3), SystemTime::now() + Duration::from_nanos(1)));
    }

    /// Goal: when the clock is set back, what is asked for then is not overtaken by what was changed before.
    #[test]
    fn a_change_that_is_still_to_come_overtakes_nothing() {
        let overtaken = Overtaken::default();
        let later = SystemTime::now() + Duration::from_secs(1000);
        overtaken.0.lock().of.insert((NodeId(1), None), later);
        assert!(!overtaken.is(NodeId(1), SystemTime::now()));
    }
}
