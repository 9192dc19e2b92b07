//! When objects were last used: exact in memory, durable but coarse.
//!
//! A use costs one look at an atomic number of the object. Once per interval and object it is also put on a list,
//! which is written with the next flush that somebody asks for, eviction or the end of the store. So the order in which
//! objects were used survives a restart as far as the interval tells it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use crate::object::Object;
use crate::shelf::Shelf;
use crate::stage::{Change, Due};
use crate::{NodeId, Result, key, value};

/// When one object was last used, in microseconds since 1970.
#[derive(Debug)]
pub(crate) struct Use {
    at_us: AtomicU64,
    /// The use that is durable, or about to be.
    noted_us: AtomicU64,
}

impl Use {
    /// A new object, whose first use is noted when it is committed.
    pub(crate) fn now() -> Use {
        Use::noted(micros(SystemTime::now()))
    }

    /// An object that was last used then, as is durable.
    pub(crate) fn noted(at_us: u64) -> Use {
        Use { at_us: AtomicU64::new(at_us), noted_us: AtomicU64::new(at_us) }
    }

    pub(crate) fn at_us(&self) -> u64 {
        self.at_us.load(Ordering::Relaxed)
    }
}

impl Shelf {
    /// See [`Object::touch`].
    pub(crate) fn touch(&self, object: &Object, now: SystemTime) {
        let now = micros(now);
        let last = &object.last_use;
        last.at_us.fetch_max(now, Ordering::Relaxed);
        let noted = last.noted_us.load(Ordering::Relaxed);
        if now.saturating_sub(noted) < self.use_interval_us {
            return;
        }
        let ours = last.noted_us.compare_exchange(noted, now, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if ours {
            let mut uses = self.uses.lock();
            // One that finds no place is noted with its next use.
            if uses.len() < USES_MAX {
                uses.push((object.node, now));
            } else {
                last.noted_us.store(noted, Ordering::Relaxed);
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
        let changes = held.map(|(node, at_us)| {
            self.ledger.used(node, at_us);
            use_noted(node, at_us)
        });
        self.index.apply(changes.collect::<Result<Vec<_>>>()?, None, Due::Soon)
    }

    /// The last use of a node's object that is durable; 0 when none is.
    pub(crate) fn noted_use(&self, node: NodeId) -> Result<u64> {
        let key = key::used(node);
        let value = self.index.get(&key)?;
        Ok(value.and_then(|value| value::decode(&key, &value).ok()).unwrap_or(0))
    }
}

/// The change that notes a use.
pub(crate) fn use_noted(node: NodeId, at_us: u64) -> Result<Change> {
    let key = key::used(node);
    let value = value::encode(&key, &at_us)?;
    Ok((key, Some(value)))
}

/// Microseconds since 1970; 0 before.
pub(crate) fn micros(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Most uses that wait to be made durable.
const USES_MAX: usize = 4096;
