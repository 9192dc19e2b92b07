//! When objects were last used: exact in memory, durable but coarse.
//!
//! A use costs one look at an atomic number of the object. Once per interval and object it is also put on a list,
//! which is written with the next flush that somebody asks for, eviction or the end of the store. So the order in which
//! objects were used survives a restart as far as the interval tells it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use crate::object::Object;
use crate::shelf::Shelf;
use crate::stage::Change;
use crate::{NodeId, Result, key, value};

/// When one object was last used, in milliseconds since 1970.
#[derive(Debug)]
pub(crate) struct Use {
    at_ms: AtomicU64,
    /// The use that is durable, or about to be.
    noted_ms: AtomicU64,
}

impl Use {
    /// A new object, whose first use is noted when it is committed.
    pub(crate) fn now() -> Use {
        Use::noted(millis(SystemTime::now()))
    }

    /// An object that was last used then, as is durable.
    pub(crate) fn noted(at_ms: u64) -> Use {
        Use { at_ms: AtomicU64::new(at_ms), noted_ms: AtomicU64::new(at_ms) }
    }

    pub(crate) fn at_ms(&self) -> u64 {
        self.at_ms.load(Ordering::Relaxed)
    }
}

impl Shelf {
    /// See [`Object::touch`].
    pub(crate) fn touch(&self, object: &Object, now: SystemTime) {
        let now = millis(now);
        let last = &object.last_use;
        last.at_ms.fetch_max(now, Ordering::Relaxed);
        let noted = last.noted_ms.load(Ordering::Relaxed);
        if now.saturating_sub(noted) < self.use_interval_ms {
            return;
        }
        let ours = last.noted_ms.compare_exchange(noted, now, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if ours {
            let mut uses = self.uses.lock();
            // One that finds no place is noted with its next use.
            if uses.len() < USES_MAX {
                uses.push((object.node, now));
            } else {
                last.noted_ms.store(noted, Ordering::Relaxed);
            }
        }
    }

    /// Puts the uses on the list into the ledger and the index.
    pub(crate) fn note_uses(&self) -> Result<()> {
        let uses = std::mem::take(&mut *self.uses.lock());
        if uses.is_empty() {
            return Ok(());
        }
        // Held so that no object is removed between the look at its line and the note of its use.
        let _changes = self.changes.lock();
        let held = uses.into_iter().filter(|(node, _)| self.ledger.line(*node).is_some());
        let changes = held.map(|(node, at_ms)| {
            self.ledger.used(node, at_ms);
            use_noted(node, at_ms)
        });
        self.index.apply(changes.collect::<Result<Vec<_>>>()?, None)
    }

    /// The last use of a node's object that is durable; 0 when none is.
    pub(crate) fn noted_use(&self, node: NodeId) -> Result<u64> {
        let key = key::used(node);
        let value = self.index.get(&key)?;
        Ok(value.and_then(|value| value::decode(&key, &value).ok()).unwrap_or(0))
    }
}

/// The change that notes a use.
pub(crate) fn use_noted(node: NodeId, at_ms: u64) -> Result<Change> {
    let key = key::used(node);
    let value = value::encode(&key, &at_ms)?;
    Ok((key, Some(value)))
}

/// Milliseconds since 1970; 0 before.
pub(crate) fn millis(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Most uses that wait to be made durable.
const USES_MAX: usize = 4096;
