//! Files that have another number here than their identity gives: they had none at their source when they got it, and keep it
//! for those who have them open ([`crate::nameless`]).
//!
//! What a source says of a file, it says of an identity: without this, the end of what it has promised would be that of a number
//! that nobody uses. An alias is noted when the file is given its name, and again when its record is read, for a record outlives
//! the daemon. What nobody has in memory may be forgotten; what was promised of it has ended by that.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use weft_remote::FileId;
use weft_store::{BindingId, NodeId, NodeRecord};

use crate::Result;
use crate::notice::Notice;
use crate::vfs::Vfs;

/// The numbers that such files have here, by those that their identities give.
#[derive(Debug, Default)]
pub(crate) struct Aliases {
    /// Held for one look or one change.
    of: Mutex<HashMap<NodeId, NodeId>>,
    /// How many there are: mostly none.
    count: AtomicUsize,
    /// So many were left when some were forgotten last.
    left: AtomicUsize,
}

impl Aliases {
    fn get(&self, number: NodeId) -> Option<NodeId> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.of.lock().get(&number).copied()
    }

    /// Notes one; says whether there are too many.
    fn note(&self, number: NodeId, alias: NodeId) -> bool {
        let mut of = self.of.lock();
        of.insert(number, alias);
        self.count.store(of.len(), Ordering::Release);
        of.len() >= ALIASES_MAX.max(2 * self.left.load(Ordering::Relaxed))
    }

    /// Forgets all but these; says which.
    fn keep(&self, is_kept: impl Fn(NodeId) -> bool) -> Vec<NodeId> {
        let mut of = self.of.lock();
        let forgotten = of.extract_if(|_, alias| !is_kept(*alias)).map(|(_, alias)| alias).collect();
        self.count.store(of.len(), Ordering::Release);
        self.left.store(of.len(), Ordering::Relaxed);
        forgotten
    }
}

impl Vfs {
    /// The other number that a file has here, whose identity gives this one.
    pub(crate) fn alias_of(&self, number: NodeId, binding: BindingId, file: &FileId) -> Result<Option<NodeId>> {
        let Some(alias) = self.aliases.get(number) else { return Ok(None) };
        let is_it = |record: &NodeRecord| record.binding == binding && record.file == *file;
        Ok(self.store.node(alias)?.is_some_and(|record| is_it(&record)).then_some(alias))
    }

    /// Notes the number that a file has, of which this record is there, where its identity gives another. What its source has
    /// ended of it since it was asked has ended.
    pub(crate) fn note_alias(&self, id: NodeId, record: &NodeRecord) -> Result<()> {
        let Some(breaks) = self.namespace.breaks(record.binding) else { return Ok(()) };
        let near = self.neighbourhood(record.binding, &record.file);
        if self.store.is_first_number(id, record.binding, &record.file, near) {
            return Ok(());
        }
        let number = self.store.identify(record.binding, &record.file, near)?;
        if number == id {
            return Ok(());
        }
        let are_too_many = self.aliases.note(number, id);
        if breaks.ended(number, record.learnt) {
            breaks.end(id);
        }
        if are_too_many {
            self.forget_aliases();
        }
        Ok(())
    }

    /// Forgets those of files that are not in memory: they are asked about when they are used again.
    fn forget_aliases(&self) {
        for id in self.aliases.keep(|id| self.inodes.peek(id).is_some()) {
            if let Ok(Some(record)) = self.store.node(id)
                && let Some(breaks) = self.namespace.breaks(record.binding)
            {
                breaks.end(id);
                self.notices.send_later(Notice::Attributes { node: self.namespace.shown(id) }, &self.runtime);
                self.forget_pages_unopened(id);
            }
        }
    }
}

/// So many are remembered, and twice those of files that are in memory.
const ALIASES_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_in_memory_stay_when_there_are_too_many() {
        let aliases = Aliases::default();
        assert_eq!(aliases.get(NodeId(0)), None);
        let note_until_full = |from: u64| (from..).find(|id| aliases.note(NodeId(*id), NodeId(id + 1))).expect("full");
        let last = note_until_full(0);
        assert_eq!(last, ALIASES_MAX as u64 - 1);
        let is_kept = |id: NodeId| id.0.is_multiple_of(4);
        assert_eq!(aliases.keep(is_kept).len(), ALIASES_MAX / 4 * 3);
        assert_eq!((aliases.get(NodeId(3)), aliases.get(NodeId(4))), (Some(NodeId(4)), None));
        aliases.keep(|_| false);
        assert_eq!(note_until_full(0), last);
        assert!(aliases.keep(|_| true).is_empty());
        assert_eq!(note_until_full(last), 2 * last + 1, "as many again, so that few are looked through often");
    }
}
