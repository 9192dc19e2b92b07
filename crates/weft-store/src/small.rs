//! Small contents: in segments on volumes of this cache, not in files of their own.
//!
//! A volume is a file in `segments/` whose room is reserved when it is made, before it is needed; the first is small, each
//! further one twice as large as the one before. Where the disk has little room left none is made. What finds no room in a
//! volume is a file like any other. A volume is full when its segments are, or when it holds as many objects as its
//! checkpoints have room for.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use weft_segment::device::Prepare;
use weft_segment::{Affinity, Class, Hints, Options, SegmentError, Shape, Stats, Volume};

use crate::disk::Disk;
use crate::parted::Parted;
use crate::staging::Staging;
use crate::troubles::Troubles;
use crate::{NodeId, Result, StoreError};

/// The volumes of one store.
#[derive(Debug)]
pub(crate) struct Small {
    dir: PathBuf,
    disk: Disk,
    troubles: Arc<Troubles>,
    /// Oldest first. Held for a look or to add one; for no I/O.
    volumes: RwLock<Vec<Arc<Volume>>>,
    /// Held while a volume is made, by who makes it; nobody waits for that.
    making: Mutex<Making>,
    staging: Staging,
    /// When what is staged was last brought to the volumes.
    settled: Mutex<Instant>,
    /// What is read part by part.
    parted: Parted,
}

#[derive(Debug, Default)]
struct Making {
    /// Number of the next volume's file.
    next: u32,
    /// When none could be made, it is tried again after this.
    not_before: Option<Instant>,
}

/// Which content: a generation of a node's object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SmallKey {
    pub(crate) node: NodeId,
    pub(crate) generation: u64,
}

impl SmallKey {
    fn bytes(self) -> [u8; 16] {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&self.node.0.to_be_bytes());
        key[8..].copy_from_slice(&self.generation.to_be_bytes());
        key
    }

    fn of_bytes(key: &[u8]) -> Option<SmallKey> {
        let (node, generation) = key.split_first_chunk::<8>()?;
        let generation = generation.try_into().ok()?;
        Some(SmallKey { node: NodeId(u64::from_be_bytes(*node)), generation: u64::from_be_bytes(generation) })
    }
}

impl Small {
    /// Longest content that is kept here, in bytes: half a segment.
    pub(crate) const CONTENT_BYTES_MAX: u64 = SEGMENT_BYTES as u64 / 2;

    /// Opens the volumes of a cache. One that cannot be used is left alone, and told.
    pub(crate) fn open(dir: PathBuf, disk: Disk, troubles: Arc<Troubles>) -> Result<Small> {
        let refused = |error| StoreError::from_io(&dir, error);
        disk.make_dir(&dir).map_err(refused)?;
        let staging = Staging::open(&disk, &dir).map_err(refused)?;
        let mut numbers: Vec<u32> = std::fs::read_dir(&dir)
            .map_err(refused)?
            .filter_map(|entry| number_of(&entry.ok()?.file_name().into_string().ok()?))
            .collect();
        numbers.sort_unstable();
        let next = numbers.last().map_or(0, |last| last + 1);
        let mut volumes = Vec::new();
        let count = numbers.len();
        for (at, number) in numbers.into_iter().enumerate() {
            let path = dir.join(name_of(number));
            match Volume::open(&path, options(BUFFER_BYTES / (count - at))) {
                Ok(volume) => volumes.push(Arc::new(volume)),
                Err(error) => {
                    troubles.tell(format!("{error}; what it holds will be fetched again"));
                    if matches!(error, SegmentError::NotAVolume { .. }) {
                        remove(&disk, &path, &troubles);
                    }
                }
            }
        }
        let small = Small {
            dir,
            disk,
            troubles,
            volumes: RwLock::new(volumes),
            making: Mutex::new(Making { next, not_before: None }),
            staging,
            settled: Mutex::new(Instant::now()),
            parted: Parted::default(),
        };
        small.make_room();
        Ok(small)
    }

    /// Brings what a former life had staged to the volumes, as far as `wanted` says so.
    pub(crate) fn replay(&self, mut wanted: impl FnMut(SmallKey) -> Result<bool>) -> Result<()> {
        let staged = self.staging.read().unwrap_or_else(|error| {
            let dir = self.dir.display();
            self.troubles.tell(format!("{dir}: what was staged cannot be read ({error}); it will be fetched again"));
            Vec::new()
        });
        for one in staged {
            let key = SmallKey { node: one.node, generation: one.generation };
            if !self.holds(key) && wanted(key)? {
                // What does not fit is missing, and told when it is read.
                self.put_in_volume(key, &one.content, 0);
            }
        }
        if self.flush() {
            for which in [0, 1] {
                self.staging.empty(which).map_err(|error| StoreError::from_io(&self.dir, error))?;
            }
        }
        Ok(())
    }

    /// Whether this content is held.
    pub(crate) fn holds(&self, key: SmallKey) -> bool {
        self.volumes.read().iter().any(|volume| volume.knows(&key.bytes()))
    }

    /// Keeps a content; whether there was room and all went well. `directory` is where its file lies.
    pub(crate) fn put(&self, key: SmallKey, content: &Bytes, directory: u64) -> bool {
        if content.len() as u64 > Small::CONTENT_BYTES_MAX || !self.put_in_volume(key, content, directory) {
            return false;
        }
        self.parted.forget(key);
        match self.staging.write(key.node, key.generation, content) {
            Ok(()) => true,
            Err(_) => {
                self.remove(key);
                false
            }
        }
    }

    /// A content, of which so much is read now; `None` when it is not held, or is damaged. Whoever reads all of it keeps
    /// it (the kernel has pages): it takes no memory here. Whoever reads a part comes for the next one soon.
    ///
    /// # Errors
    /// When the disk does not read.
    pub(crate) fn read(&self, key: SmallKey, offset: u64, length: usize) -> std::io::Result<Option<Bytes>> {
        self.parted.read(key, offset.saturating_add(length as u64), || self.get(key))
    }

    /// A content; `None` when it is not held, or is damaged. It takes no memory here after that.
    ///
    /// # Errors
    /// When the disk does not read.
    pub(crate) fn get(&self, key: SmallKey) -> std::io::Result<Option<Bytes>> {
        let volumes = self.volumes.read().clone();
        for volume in volumes.iter().rev() {
            let found = volume.take(&key.bytes()).map_err(|error| match error {
                SegmentError::Io { source, .. } => source,
                error => std::io::Error::other(error),
            })?;
            if let Some(held) = found {
                return Ok(Some(held.content));
            }
        }
        Ok(None)
    }

    /// Forgets a content; whether it was held.
    pub(crate) fn remove(&self, key: SmallKey) -> bool {
        self.parted.forget(key);
        let volumes = self.volumes.read().clone();
        // A volume that takes no changes any more forgets it with the others at the next start.
        volumes.iter().any(|volume| volume.remove(&key.bytes(), Class::Cache).unwrap_or(false))
    }

    /// Says that files are read together: their contents are laid side by side, also those that come later.
    pub(crate) fn group(&self, affinity: Affinity, nodes: &[NodeId]) {
        let keys: Vec<[u8; 16]> = nodes.iter().map(|node| SmallKey { node: *node, generation: 0 }.bytes()).collect();
        let keys: Vec<&[u8]> = keys.iter().map(<[u8; 16]>::as_slice).collect();
        for volume in self.volumes.read().iter() {
            volume.hint(affinity, &keys);
        }
    }

    /// Sees to it that there is a volume with room.
    fn make_room(&self) {
        let last = self.volumes.read().last().cloned();
        if last.is_none_or(|volume| is_nearly_full(&volume.stats())) {
            self.make();
        }
    }

    /// Brings what is staged to the volumes when it is much or old, and makes room for more.
    pub(crate) fn settle(&self) {
        self.make_room();
        let due = {
            let settled = self.settled.lock();
            let waiting = self.staging.waiting();
            waiting > 0 && (waiting >= STAGED_BYTES || settled.elapsed() >= STAGED_AGE)
        };
        if due {
            self.settle_now();
        }
    }

    /// Whether a volume has room for more: then a small content takes none of the disk.
    pub(crate) fn has_room(&self) -> bool {
        self.volumes.read().iter().any(|volume| has_room(&volume.stats()))
    }

    /// How many contents are held.
    pub(crate) fn count(&self) -> u64 {
        self.volumes.read().iter().map(|volume| volume.stats()).map(|stats| stats.objects + stats.waiting).sum()
    }

    /// Forgets the contents that nobody wants. Reads all of them.
    pub(crate) fn sweep(&self, mut wanted: impl FnMut(SmallKey) -> Result<bool>) -> Result<()> {
        let volumes = self.volumes.read().clone();
        for volume in volumes {
            let mut keys = Vec::new();
            let told = volume.for_each(&mut |key, _| keys.extend(SmallKey::of_bytes(key)));
            told.map_err(|error| StoreError::Index(Box::new(error)))?;
            for key in keys {
                if !wanted(key)? {
                    self.remove(key);
                }
            }
        }
        Ok(())
    }

    /// Looks at the volumes, and with `repair` writes their tables anew: how many are damaged, and how.
    pub(crate) fn check(&self, repair: bool) -> Result<(u64, Vec<String>)> {
        let volumes = self.volumes.read().clone();
        let (mut damaged, mut words) = (0, Vec::new());
        for volume in volumes {
            let findings = if repair { volume.repair() } else { volume.check() };
            let findings = findings.map_err(|error| StoreError::Index(Box::new(error)))?;
            damaged += u64::from(!findings.is_sound());
            words.extend(findings.damages);
        }
        Ok((damaged, words))
    }

    fn settle_now(&self) {
        let before = self.staging.turn();
        *self.settled.lock() = Instant::now();
        if self.flush()
            && let Err(error) = self.staging.empty(before)
        {
            tracing::warn!(%error, "contents that are in segments could not be taken out of the staging file");
        }
    }

    /// Whether all volumes have all that was put, durably.
    fn flush(&self) -> bool {
        let volumes = self.volumes.read().clone();
        let mut done = true;
        for volume in volumes {
            if let Err(error) = volume.flush() {
                self.troubles.tell(error.to_string());
                done = false;
            }
        }
        done
    }

    fn put_in_volume(&self, key: SmallKey, content: &Bytes, directory: u64) -> bool {
        let put_in = |volumes: &[Arc<Volume>]| {
            volumes.iter().rev().any(|volume| self.put_there(volume, key, content, directory))
        };
        let volumes = self.volumes.read().clone();
        if put_in(&volumes) {
            return true;
        }
        // More came at once than was reserved for.
        self.make_room();
        let made = self.volumes.read().get(volumes.len()..).map(<[_]>::to_vec).unwrap_or_default();
        put_in(&made)
    }

    fn put_there(&self, volume: &Volume, key: SmallKey, content: &Bytes, directory: u64) -> bool {
        let hints = Hints { directory, links: &[] };
        match volume.put(&key.bytes(), &[], content.clone(), hints, Class::Cache) {
            Ok(()) => true,
            Err(SegmentError::Full { .. }) => false,
            Err(error) => {
                self.troubles.tell(error.to_string());
                false
            }
        }
    }

    /// Makes one more volume, if the disk has room for one; nothing while another makes one, which may take the disk a moment.
    fn make(&self) {
        let Some(mut making) = self.making.try_lock() else { return };
        let (now, count) = (Instant::now(), self.volumes.read().len());
        if making.not_before.is_some_and(|time| now < time) || count >= VOLUMES_MAX {
            return;
        }
        making.not_before = Some(now + TRY_AGAIN);
        let (free, _) = self.disk.space(&self.dir).unwrap_or_default();
        let wanted = VOLUME_BYTES_FIRST << count.min(DOUBLINGS_MAX);
        let length = wanted.min(free / FREE_SHARE) / LENGTH_STEP * LENGTH_STEP;
        if length < VOLUME_BYTES_MIN {
            return;
        }
        let objects_max = Some(length / BYTES_PER_OBJECT);
        let shape = Shape { segment_bytes: SEGMENT_BYTES, objects_max, ..Shape::default() };
        let path = self.dir.join(name_of(making.next));
        match Volume::create(&path, length, Prepare::Allocated, &shape, options(BUFFER_BYTES)) {
            Ok(volume) => {
                *making = Making { next: making.next + 1, not_before: None };
                self.volumes.write().push(Arc::new(volume));
            }
            Err(error) => self.troubles.tell(format!("{error}; small contents are kept in files")),
        }
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        if self.staging.waiting() > 0 {
            self.settle_now();
        }
    }
}

fn options(buffer_bytes: usize) -> Options {
    Options { buffer_bytes, group_bytes: GROUP_BYTES, group_part: node_part, ..Options::default() }
}

/// Whether a further volume is to be made before this one is full.
fn is_nearly_full(stats: &Stats) -> bool {
    stats.free_segments < stats.segments / SPARE_SHARE
        || objects_left(stats) < stats.objects_max / u64::from(SPARE_SHARE)
}

/// Whether what waits in memory leaves room.
fn has_room(stats: &Stats) -> bool {
    stats.free_segments > FREE_SEGMENTS_MIN && objects_left(stats) > FREE_OBJECTS_MIN
}

/// How many objects more it may hold.
fn objects_left(stats: &Stats) -> u64 {
    stats.objects_max.saturating_sub(stats.objects + stats.waiting)
}

/// What groups go by: which files belong together is known before the generation of a content is.
fn node_part(key: &[u8]) -> &[u8] {
    key.split_at_checked(NODE_BYTES).map_or(key, |(node, _)| node)
}

fn remove(disk: &Disk, path: &Path, troubles: &Troubles) {
    if let Err(error) = disk.remove(path) {
        troubles.tell(format!("{}: could not be removed: {error}", path.display()));
    }
}

fn name_of(number: u32) -> String {
    format!("volume-{number:04}")
}

fn number_of(name: &str) -> Option<u32> {
    name.strip_prefix("volume-")?.parse().ok()
}

/// Bytes of a key that are its node.
const NODE_BYTES: usize = 8;
const SEGMENT_BYTES: u32 = 128 << 10;
/// Memory of the newest volume for contents that are in segments as well; the older a volume is, the less it has.
const BUFFER_BYTES: usize = 4 << 20;
/// Memory of one volume for contents that are not yet.
const GROUP_BYTES: usize = 2 << 20;
const VOLUME_BYTES_FIRST: u64 = 64 << 20;
/// After so many the volumes grow no more: 1 GiB each.
const DOUBLINGS_MAX: usize = 4;
/// What is less is not worth it.
const VOLUME_BYTES_MIN: u64 = 16 << 20;
const LENGTH_STEP: u64 = 1 << 20;
/// A volume may hold one object for so many bytes of its own: a folder of sources or of mail has files of about that length.
const BYTES_PER_OBJECT: u64 = 2048;
/// A further volume is made when the last one has less than this part free, of its segments or of its objects.
const SPARE_SHARE: u32 = 8;
/// With fewer a volume counts as full: what waits in memory takes them.
const FREE_SEGMENTS_MIN: u32 = 32;
/// With fewer a volume counts as full: as many may come at once.
const FREE_OBJECTS_MIN: u64 = 256;
/// A new volume takes at most this part of what is free on the disk.
const FREE_SHARE: u64 = 8;
const VOLUMES_MAX: usize = 1024;
/// How long to wait after there was no room for a volume.
const TRY_AGAIN: Duration = Duration::from_secs(10);
/// What is staged is brought to the volumes when it is so much or so old.
const STAGED_BYTES: u64 = 8 << 20;
const STAGED_AGE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    /// More contents than a volume may hold objects, of which all together would fill a tenth of it: a further volume takes
    /// the rest, at once.
    #[test]
    fn a_volume_that_holds_all_the_objects_it_may_is_followed_by_another() {
        let dir = tempfile::tempdir().unwrap();
        let small = Small::open(dir.path().join("segments"), Disk::default(), Arc::default()).unwrap();
        let objects_max = small.volumes.read()[0].stats().objects_max;
        let key = |number: u64| SmallKey { node: NodeId(number), generation: number };
        for number in 0..objects_max + 100 {
            assert!(small.put(key(number), &Bytes::copy_from_slice(&number.to_le_bytes()), 0), "{number}");
        }
        assert!(small.has_room());
        assert_eq!(small.volumes.read().len(), 2);
        for number in [0, objects_max - 1, objects_max, objects_max + 99] {
            assert_eq!(small.get(key(number)).unwrap().as_deref(), Some(&number.to_le_bytes()[..]), "{number}");
        }
    }

    /// Contents that come in turns, of files of which was told before that they belong together, come back with one read.
    #[test]
    fn what_refers_to_each_other_lies_together() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Small::open(dir.path().join("segments"), Disk::default(), Arc::default()).unwrap();
        let key = |page: u64, part: u64| SmallKey { node: NodeId(page * 100 + part), generation: page + part };
        let content = |page: u64, part: u64| Bytes::from(vec![(page * 16 + part) as u8; 21_100]);
        let small = open();
        for page in 1..=8 {
            let nodes: Vec<NodeId> = (0..6).map(|part| key(page, part).node).collect();
            small.group(Affinity::Linked, &nodes);
        }
        for (part, page) in (0..6).flat_map(|part| (1..=8).map(move |page| (part, page))) {
            assert!(small.put(key(page, part), &content(page, part), 0));
        }
        small.settle_now();
        drop(small);
        let small = open();
        for (page, part) in (1..=8).flat_map(|page| (0..6).map(move |part| (page, part))) {
            assert_eq!(small.get(key(page, part)).unwrap(), Some(content(page, part)));
        }
        let stats = small.volumes.read()[0].stats();
        // One read brings a page, which fills a segment. Now and then one object is read alone, to learn what that costs.
        assert!(stats.neighbour_reads + stats.object_reads <= 16, "{stats:?}");
        assert_eq!(stats.segments - stats.free_segments, 8, "a page fills a segment: {stats:?}");
    }
}
