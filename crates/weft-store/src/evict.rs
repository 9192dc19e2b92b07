//! Removing what may be removed: objects that nobody has open, and the lines of the ledger that say so.

use crate::ledger::{Account, Line};
use crate::shelf::Shelf;
use crate::{NodeId, Result, key};

/// What came of an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evicted {
    /// It is gone; so many bytes on disk are free once that is durable.
    Done {
        /// The bytes.
        bytes: u64,
    },
    /// Somebody brings bytes of it, or it was used since.
    InUse,
    /// There was none.
    Gone,
}

impl Shelf {
    /// Removes an object that nobody writes and that was not used since `used_us`. Its file goes when that is durable, so
    /// that a kill leaves the object or nothing. Who has it open keeps reading; that this is nobody, the caller sees to.
    pub(crate) fn evict(&self, node: NodeId, used_us: u64) -> Result<Evicted> {
        let mut totals = self.changes.lock();
        let writing = self.held(node).is_some_and(|object| !object.state.lock().appending.is_empty());
        if writing || self.refresh_use(node) > used_us {
            return Ok(Evicted::InUse);
        }
        let Some(record) = self.record(node)? else {
            self.ledger.put(node, None, None);
            return Ok(Evicted::Gone);
        };
        let doomed = self.doomed(node, record.generation);
        self.put(&mut totals, node, Some(&record), None, Some(doomed))?;
        self.detach(node);
        Ok(Evicted::Done { bytes: record.disk_bytes() })
    }

    /// Has the ledger know of the last use of an object that somebody holds; tells it.
    pub(crate) fn refresh_use(&self, node: NodeId) -> u64 {
        if let Some(object) = self.held(node) {
            self.ledger.used(node, object.last_use.at_us());
        }
        self.ledger.line(node).map_or(0, |line| line.used_us)
    }

    /// Enters an object of an earlier life into the ledger, unless it has a line.
    pub(crate) fn enter(&self, node: NodeId, account: Account) -> Result<()> {
        let _totals = self.changes.lock();
        if self.ledger.line(node).is_some() {
            return Ok(());
        }
        let Some(record) = self.record(node)? else { return Ok(()) };
        let used_us = match self.noted_use(node)? {
            0 => crate::uses::micros(record.checked),
            used_us => used_us,
        };
        let line = Line { account, bytes: record.disk_bytes(), owner_uid: record.owner_uid, used_us };
        self.ledger.put(node, Some(line), None);
        Ok(())
    }

    /// The nodes that have objects, at most `limit` after `after`, in the order of their numbers.
    pub(crate) fn nodes(&self, after: Option<NodeId>, limit: usize) -> Result<Vec<NodeId>> {
        let after = after.map(key::object);
        let pairs = self.index.scan(key::OBJECTS, after.as_deref(), limit)?;
        Ok(pairs.iter().filter_map(|(key, _)| key::node_of(key)).collect())
    }
}
