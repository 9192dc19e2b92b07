//! Putting, removing and pinning objects.

use bytes::Bytes;
use parking_lot::MutexGuard;

use crate::affinity::Affinity;
use crate::core::{Core, Shared};
use crate::group::{Waiting, short};
use crate::log::{Ring, batch_bytes};
use crate::options::{Class, Packer, Policy};
use crate::volume::Hints;
use crate::{Result, SegmentError, record, segment};

impl Shared {
    /// See [`crate::Volume::put`].
    pub(crate) fn put(
        &self,
        key: &[u8],
        attributes: &[u8],
        content: Bytes,
        hints: Hints<'_>,
        class: Class,
    ) -> Result<()> {
        self.check_lengths(key, attributes, &content)?;
        let hash = self.hash(key);
        if !hints.links.is_empty() {
            let links = hints.links.iter().map(|link| self.name_of(link));
            let group: Vec<u64> = std::iter::once(self.name_of(key)).chain(links).collect();
            self.groups.lock().add(Affinity::Linked, &group);
        }
        let mut object = Waiting {
            hash,
            key: Bytes::copy_from_slice(key),
            attributes: Bytes::copy_from_slice(attributes),
            content,
            directory: hints.directory,
            name: self.name_of(key),
            pinned: false,
            ticket: None,
            former_ticket: None,
            sequence: 0,
            since: self.now(),
            arrival: 0,
        };
        let cost = object.cost();
        let record_bytes = key.len() + attributes.len() + object.content.len() + RECORD_BYTES;
        let mut core = self.admit(short(hash), cost, if class == Class::Durable { record_bytes } else { 0 })?;
        object.sequence = core.sequence;
        object.pinned = core.group.get(short(hash)).is_some_and(|former| former.pinned);
        if class == Class::Durable {
            let Waiting { sequence, pinned, ref content, .. } = object;
            object.ticket = Some(core.log(|log| record::put(log, sequence, pinned, key, attributes, content)));
        }
        let ticket = object.ticket;
        core.group.insert(object);
        // What it held before must not be read any more.
        self.buffer.lock().remove(short(hash));
        if let Some(scan) = &mut core.scan {
            scan.removed.remove(&short(hash));
        }
        let has_work = core.group.cost() >= self.pack_at();
        drop(core);
        if let Some(ticket) = ticket {
            self.commit(ticket)?;
        }
        match self.options.packer {
            Packer::Thread if has_work => {
                self.work.notify_one();
            }
            Packer::Caller => self.step()?,
            Packer::Thread => {}
        }
        Ok(())
    }

    /// See [`crate::Volume::remove`].
    pub(crate) fn remove(&self, key: &[u8], class: Class) -> Result<bool> {
        let hash = short(self.hash(key));
        let mut core = self.room_in_log(RECORD_BYTES + 8)?;
        let waited = core.group.get(hash).is_some_and(|object| object.key == key);
        let waiting = if waited { core.group.remove(hash) } else { None };
        let placed = self.take_out(&mut core, hash).is_some();
        core.log_stays_long &= waiting.is_none();
        self.buffer.lock().remove(hash);
        if let Some(scan) = &mut core.scan {
            scan.forget(hash);
        }
        // One that only waits and is in no record leaves no trace; one that is being packed has its row called dead.
        let is_on_disk =
            placed || core.scan.is_some() || waiting.as_ref().is_some_and(|object| object.first_ticket().is_some());
        let sequence = core.sequence;
        if is_on_disk {
            core.log(|log| record::removed(log, sequence, &[hash]));
        }
        // It may have been removed before, by a record that is not durable yet.
        let ticket = core.queue.last;
        drop(core);
        if class == Class::Durable {
            self.commit(ticket)?;
        }
        Ok(waiting.is_some() || placed)
    }

    /// See [`crate::Volume::pin`].
    pub(crate) fn pin(&self, key: &[u8], pinned: bool) -> Result<bool> {
        let hash = short(self.hash(key));
        let mut core = self.room_in_log(RECORD_BYTES + 8)?;
        let waiting = core.group.get_mut(hash).filter(|object| object.key == key);
        let waits = waiting.map(|object| object.pinned = pinned).is_some();
        let placed = self.index.change(hash, |place| place.with_pin(pinned)).is_some();
        if waits || placed {
            core.log(|log| record::pinned(log, pinned, &[hash]));
            core.nothing_may_go &= pinned;
        }
        Ok(waits || placed)
    }

    /// What packing begins at.
    pub(crate) fn pack_at(&self) -> usize {
        self.group_max() / 2
    }

    /// Most that may wait. Packing leaves less than six segments of it behind, and begins at eight or more; and twice as
    /// much is free when the policy is to evict.
    pub(crate) fn group_max(&self) -> usize {
        let room = segment::room(self.block.segment_bytes);
        let segments = usize::try_from(self.block.segments).expect("32 bits fit");
        self.options.group_bytes.min(segments / 4 * room).max(GROUP_SEGMENTS_MIN * room)
    }

    fn check_lengths(&self, key: &[u8], attributes: &[u8], content: &[u8]) -> Result<()> {
        let half = usize::try_from(self.block.segment_bytes / 2).expect("a segment is short");
        let limits = [
            ("a key", key.len(), KEY_BYTES_MAX),
            ("a set of attributes", attributes.len(), ATTRIBUTES_BYTES_MAX),
            ("a content", content.len(), half),
        ];
        for (what, given, most) in limits {
            if given > most {
                return Err(SegmentError::TooLarge { volume: self.name.clone(), what, given, most });
            }
        }
        Ok(())
    }

    /// Waits until there is room for an object: in memory, in the log for `record_bytes`, and on the volume.
    fn admit(&self, hash: u64, cost: usize, record_bytes: usize) -> Result<MutexGuard<'_, Core>> {
        let mut core = self.core.lock();
        let mut is_packed = false;
        loop {
            self.check_failed(&core)?;
            if self.is_full_of_objects(&core) && self.index.get(hash).is_none() && core.group.get(hash).is_none() {
                if !self.may_evict() || core.nothing_may_go {
                    return Err(self.full("as many objects as it was made for"));
                }
            } else if self.has_space(&core, cost) {
                let fits_memory = core.group.len() == 0 || core.group.cost() + cost <= self.group_max();
                if fits_memory && (record_bytes == 0 || self.log_has_room(&core, record_bytes)) {
                    return Ok(core);
                }
            } else if core.scan.is_none() && (!self.may_evict() || core.nothing_may_go) {
                if is_packed {
                    return Err(self.full(core.stuck.unwrap_or("no free segment is left")));
                }
                // What waits was counted at the worst; packed, it takes less.
                drop(core);
                match self.flush() {
                    Ok(()) | Err(SegmentError::Full { .. }) => is_packed = true,
                    Err(error) => return Err(error),
                }
                core = self.core.lock();
                continue;
            }
            core = self.wait_for_packer(core)?;
        }
    }

    /// Waits until there is room in the log.
    fn room_in_log(&self, record_bytes: usize) -> Result<MutexGuard<'_, Core>> {
        let mut core = self.core.lock();
        loop {
            self.check_failed(&core)?;
            if self.log_has_room(&core, record_bytes) {
                return Ok(core);
            }
            core = self.wait_for_packer(core)?;
        }
    }

    fn wait_for_packer<'c>(&'c self, mut core: MutexGuard<'c, Core>) -> Result<MutexGuard<'c, Core>> {
        // Whatever there can be no room for makes something due; without that the wait would have no end.
        if !self.is_due(&core) {
            return Err(self.full(core.stuck.unwrap_or("nothing that waits can be written")));
        }
        match self.options.packer {
            Packer::Thread => {
                self.work.notify_one();
                self.done.wait(&mut core);
            }
            Packer::Caller => {
                drop(core);
                self.step()?;
                core = self.core.lock();
            }
        }
        Ok(core)
    }

    pub(crate) fn check_failed(&self, core: &Core) -> Result<()> {
        match &core.failed {
            Some(cause) => Err(SegmentError::Failed { volume: self.name.clone(), cause: cause.clone() }),
            None => Ok(()),
        }
    }

    pub(crate) fn log_has_room(&self, core: &Core, record_bytes: usize) -> bool {
        core.log_used + batch_bytes(record_bytes) <= Ring::of(&self.block).open_to_callers()
    }

    pub(crate) fn is_full_of_objects(&self, core: &Core) -> bool {
        self.index.len() + core.group.len() as u64 >= self.block.objects_max
    }

    /// Whether all that waits, and one object more, is sure to find room: segments are more than half full at worst.
    pub(crate) fn has_space(&self, core: &Core, cost: usize) -> bool {
        let free = (u64::from(core.table.free()) + core.table.dying() as u64).saturating_sub(RESERVE);
        let room = segment::room(self.block.segment_bytes) as u64;
        free * room / 2 >= (core.group.cost() + cost) as u64
    }

    fn may_evict(&self) -> bool {
        self.options.policy != Policy::Keep
    }
}

impl crate::core::Scan {
    /// Remembers that an object was removed.
    fn forget(&mut self, hash: u64) {
        self.removed.insert(hash);
        self.gives_up |= self.removed.len() > REMOVED_MAX;
    }
}

/// Longest key, in bytes.
const KEY_BYTES_MAX: usize = 1024;
/// Longest attributes, in bytes.
const ATTRIBUTES_BYTES_MAX: usize = 1024;
/// What a record has besides its bytes.
const RECORD_BYTES: usize = 24;
/// Packing fills segments well only from among so many.
const GROUP_SEGMENTS_MIN: usize = 16;
/// Segments that stay free, so that packing never stands still.
const RESERVE: u64 = 2;
/// Removals that a scan remembers.
const REMOVED_MAX: usize = 1 << 20;
