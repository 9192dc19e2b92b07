//! What the kernel goes on using when the daemon ends: open files, open directories, backing files.
//!
//! The roll is a file in memory that somebody who outlives the daemon keeps. It has slots of one size. The first says
//! what was agreed on with the kernel, each other one names a thing that the kernel holds. A slot is written with one
//! pwrite(2) before the kernel is answered, and struck out before an answer that ends the thing; so what the kernel
//! knows of is always on the roll. What was entered and not answered comes again, for requests without an answer are
//! sent again: such an entry is known by its request's number. Each slot has a checksum, so one whose writing broke off
//! is as good as empty.

use std::collections::HashMap;
use std::fs::File;
use std::io;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use weft_fusedev::Negotiated;
use weft_vfs::{OpenRecord, ReadBy};
use xxhash_rust::xxh3::xxh3_64;

use crate::locks::{Held, Owner};

/// The roll of one mount.
#[derive(Debug)]
pub(crate) struct Roll {
    /// `None` when nobody outlives the daemon.
    file: Option<File>,
    slots: Mutex<Slots>,
}

/// Which slots are in use. Held for one look and one change.
#[derive(Debug, Default)]
struct Slots {
    used: HashMap<Key, u32>,
    free: Vec<u32>,
    /// Slots up to here were used.
    count: u32,
    /// Things whose opening may never have been answered and their inodes, by the number of the request.
    opened_by: HashMap<u64, (Key, u64)>,
    /// Changes that a former daemon had begun and not answered, by the number of the request.
    begun: HashMap<u64, Begun>,
}

/// A thing that the kernel holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// An open file, by its handle.
    File(u64),
    /// An open directory, by its handle.
    Directory(u64),
    /// A backing file, by its id.
    Backing(i32),
    /// A change of names that is being made, by the number of its request.
    Change(u64),
    /// Some of an owner's locks on a file, by its inode.
    Locks(u64, Owner, u16),
}

/// What is on the roll about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Entry {
    /// An open file. `unique`: the number of the request that opened it.
    File { handle: u64, node: u64, unique: u64, read_by: ReadBy, record: OpenRecord },
    /// An open directory, and who opened it.
    Directory { handle: u64, node: u64, unique: u64, uid: u32, gid: u32 },
    /// A backing file of an inode: which generation of its content.
    Backing { id: i32, node: u64, generation: u64 },
    /// A change of names that is being made: by which request.
    Change {
        unique: u64,
        #[serde(skip)]
        begun: Begun,
    },
    /// Some of an owner's locks on a file: the `part`th few of them.
    Locks { node: u64, owner: Owner, part: u16, held: Vec<Held> },
}

/// A change of names as it was begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Begun {
    /// Of two names that are exchanged: the inodes that they led to, that of the first name first. What has been exchanged
    /// looks like what has not, but for these.
    pub exchanged: Option<(u64, u64)>,
}

/// The first slot.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Title {
    format: u32,
    negotiated: Negotiated,
}

/// Why a roll cannot be taken over.
#[derive(Debug, thiserror::Error)]
pub enum RollError {
    /// The system refused.
    #[error("the roll of open files cannot be read or written: {0}")]
    Io(#[from] io::Error),
    /// It is not as this version of weft writes it.
    #[error("the roll of open files is none of this version of weft (format {FORMAT})")]
    Unknown,
}

impl Roll {
    /// For a daemon that nobody outlives: nothing is written.
    pub(crate) fn nowhere() -> Roll {
        Roll { file: None, slots: Mutex::default() }
    }

    /// Whether somebody outlives the daemon.
    pub(crate) fn is_somewhere(&self) -> bool {
        self.file.is_some()
    }

    /// Begins the roll of a new mount.
    pub(crate) fn begin(file: File, negotiated: Negotiated) -> Result<Roll, RollError> {
        let title = encoded(&Title { format: FORMAT, negotiated }).ok_or(RollError::Unknown)?;
        file.set_len(0)?;
        write_at(&file, &title, 0)?;
        Ok(Roll { file: Some(file), slots: Mutex::default() })
    }

    /// Takes over the roll of a former daemon: what was agreed on, and what the kernel holds.
    pub(crate) fn take_over(file: File) -> Result<(Roll, Negotiated, Vec<Entry>), RollError> {
        let title: Title = decoded(&read_slot(&file, 0)?).ok_or(RollError::Unknown)?;
        if title.format != FORMAT {
            return Err(RollError::Unknown);
        }
        let end = (file.metadata()?.len().div_ceil(SLOT_BYTES as u64)).min(SLOTS_MAX.into());
        let mut slots = Slots { count: u32::try_from(end).unwrap_or(SLOTS_MAX).max(1) - 1, ..Slots::default() };
        let mut entries = Vec::new();
        for slot in 1..=slots.count {
            match Entry::decoded(&read_slot(&file, slot)?) {
                Some(Entry::Change { unique, begun }) => {
                    slots.begun.insert(number_of(unique), begun);
                    write_at(&file, &[0; HEAD_BYTES], slot)?;
                    slots.free.push(slot);
                }
                Some(entry) => {
                    slots.used.insert(entry.key(), slot);
                    if let Entry::File { unique, node, .. } | Entry::Directory { unique, node, .. } = entry {
                        slots.opened_by.insert(number_of(unique), (entry.key(), node));
                    }
                    entries.push(entry);
                }
                None => slots.free.push(slot),
            }
        }
        Ok((Roll { file: Some(file), slots: Mutex::new(slots) }, title.negotiated, entries))
    }

    /// Enters a thing that the kernel is about to be told of.
    pub(crate) fn enter(&self, entry: &Entry) {
        let Some(file) = &self.file else { return };
        let bytes = entry.encoded().or_else(|| entry.without_version().encoded());
        let slot = {
            let mut slots = self.slots.lock();
            let new = slots.count + 1;
            let used = slots.used.get(&entry.key()).copied();
            let slot = used.or_else(|| slots.free.pop()).or((new < SLOTS_MAX).then_some(new));
            if let Some(slot) = slot {
                slots.count = slots.count.max(slot);
                slots.used.insert(entry.key(), slot);
            }
            slot
        };
        let written = match (slot, bytes) {
            (Some(slot), Some(bytes)) => write_at(file, &bytes, slot),
            _ => Err(io::ErrorKind::QuotaExceeded.into()),
        };
        if let Err(error) = written {
            tracing::warn!(%error, ?entry, "not on the roll: it will not survive the daemon");
        }
    }

    /// Strikes out a thing that the kernel does not hold any more.
    pub(crate) fn strike(&self, key: Key) {
        let Some(file) = &self.file else { return };
        let Some(slot) = self.slots.lock().used.remove(&key) else { return };
        if let Err(error) = write_at(file, &[0; HEAD_BYTES], slot) {
            tracing::warn!(%error, ?key, "a closed file stays on the roll");
            return;
        }
        self.slots.lock().free.push(slot);
    }

    /// Enters that an open file is in another version now.
    pub(crate) fn renew_file(&self, handle: u64, now: &OpenRecord) {
        let Some(file) = &self.file else { return };
        let slot = self.slots.lock().used.get(&Key::File(handle)).copied();
        let entry = slot.and_then(|slot| Entry::decoded(&read_slot(file, slot).ok()?));
        if let Some(Entry::File { handle, node, unique, read_by, record }) = entry {
            let record = OpenRecord { node_generation: record.node_generation, ..now.clone() };
            self.enter(&Entry::File { handle, node, unique, read_by, record });
        }
    }

    /// Enters all that an owner has of a file now, in place of what it had of it.
    pub(crate) fn enter_locks(&self, node: u64, owner: Owner, held: &[Held]) {
        if self.file.is_none() {
            return;
        }
        // A part never has fewer bytes than before until its owner's request is answered: what is lost in between is on
        // its way again.
        let parts = held.chunks(LOCKS_OF_A_SLOT).zip(0..);
        for (held, part) in parts {
            self.enter(&Entry::Locks { node, owner, part, held: held.to_vec() });
        }
        let count = u16::try_from(held.len().div_ceil(LOCKS_OF_A_SLOT)).unwrap_or(u16::MAX);
        let more = (count..).map(|part| Key::Locks(node, owner, part));
        let more: Vec<Key> = more.take_while(|key| self.slots.lock().used.contains_key(key)).collect();
        more.into_iter().for_each(|key| self.strike(key));
    }

    /// The change that a request with this number asks for, where a former daemon had begun it.
    pub(crate) fn was_begun(&self, unique: u64) -> Option<Begun> {
        self.slots.lock().begun.remove(&number_of(unique))
    }

    /// What the request with this number had opened in a former life, and its inode: the kernel asks again, so it was
    /// never told.
    pub(crate) fn unanswered(&self, unique: u64) -> Option<(Key, u64)> {
        self.slots.lock().opened_by.remove(&number_of(unique))
    }
}

impl Key {
    /// Of a change, by its request's number, whether it came again or not.
    pub(crate) fn of_change(unique: u64) -> Key {
        Key::Change(number_of(unique))
    }
}

impl Entry {
    fn key(&self) -> Key {
        match self {
            Entry::File { handle, .. } => Key::File(*handle),
            Entry::Directory { handle, .. } => Key::Directory(*handle),
            Entry::Backing { id, .. } => Key::Backing(*id),
            Entry::Change { unique, .. } => Key::of_change(*unique),
            Entry::Locks { node, owner, part, .. } => Key::Locks(*node, *owner, *part),
        }
    }

    /// As it stands in a slot. What former versions did not have follows the rest, where they do not look.
    fn encoded(&self) -> Option<Vec<u8>> {
        match self {
            Entry::File { record, .. } if record.node_generation > 0 => encoded(&(self, record.node_generation)),
            Entry::Change { begun, .. } if *begun != Begun::default() => encoded(&(self, begun)),
            _ => encoded(self),
        }
    }

    fn decoded(slot: &[u8]) -> Option<Entry> {
        let (mut entry, rest): (Entry, &[u8]) = postcard::take_from_bytes(content(slot)?).ok()?;
        match &mut entry {
            Entry::File { record, .. } => record.node_generation = postcard::from_bytes(rest).unwrap_or(0),
            Entry::Change { begun, .. } => *begun = postcard::from_bytes(rest).unwrap_or_default(),
            Entry::Directory { .. } | Entry::Backing { .. } | Entry::Locks { .. } => {}
        }
        Some(entry)
    }

    /// The same with nothing that may be long: what the store holds of it can still be found by its generation.
    fn without_version(&self) -> Entry {
        let mut entry = self.clone();
        if let Entry::File { record, .. } = &mut entry {
            record.version = weft_remote::Version::None;
        }
        entry
    }
}

/// A request's number without the mark that it came again (`FUSE_UNIQUE_RESEND` in include/uapi/linux/fuse.h).
fn number_of(unique: u64) -> u64 {
    unique & !(1 << 63)
}

fn encoded<T: Serialize>(value: &T) -> Option<Vec<u8>> {
    let mut bytes = vec![0; SLOT_BYTES];
    let length = postcard::to_slice(value, &mut bytes[HEAD_BYTES..]).ok()?.len();
    bytes[8..HEAD_BYTES].copy_from_slice(&u16::try_from(length).ok()?.to_le_bytes());
    bytes.truncate(HEAD_BYTES + length);
    let sum = xxh3_64(&bytes[8..]);
    bytes[..8].copy_from_slice(&sum.to_le_bytes());
    Some(bytes)
}

fn decoded<T: for<'a> Deserialize<'a>>(slot: &[u8]) -> Option<T> {
    postcard::from_bytes(content(slot)?).ok()
}

/// What was written into a slot; `None` where that broke off.
fn content(slot: &[u8]) -> Option<&[u8]> {
    let (sum, rest) = slot.split_first_chunk::<8>()?;
    let (length, _) = rest.split_first_chunk::<2>()?;
    let content = rest.get(..2 + usize::from(u16::from_le_bytes(*length)))?;
    if u64::from_le_bytes(*sum) != xxh3_64(content) || content.len() == 2 {
        return None;
    }
    Some(&content[2..])
}

fn write_at(file: &File, bytes: &[u8], slot: u32) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, u64::from(slot) * SLOT_BYTES as u64)
}

fn read_slot(file: &File, slot: u32) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; SLOT_BYTES];
    let mut filled = 0;
    while filled < SLOT_BYTES {
        let at = u64::from(slot) * SLOT_BYTES as u64 + filled as u64;
        match std::os::unix::fs::FileExt::read_at(file, &mut bytes[filled..], at)? {
            0 => break,
            count => filled += count,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

const FORMAT: u32 = 3;
/// Room for one entry: a version longer than about 400 bytes is left out.
const SLOT_BYTES: usize = 512;
/// Most slots (32 MiB); a daemon runs out of files long before.
const SLOTS_MAX: u32 = 1 << 16;
/// Locks in a slot, each of at most 57 bytes as postcard writes them.
const LOCKS_OF_A_SLOT: usize = 8;
/// Checksum and length.
const HEAD_BYTES: usize = 10;

#[cfg(test)]
mod tests {
    use weft_remote::Version;

    use super::*;

    fn negotiated() -> Negotiated {
        Negotiated {
            minor: 45,
            flags: weft_fusedev::InitFlags::HAS_RESEND,
            max_readahead: 131_072,
            max_write: 1 << 20,
            max_pages: 256,
            max_background: 64,
            time_granularity_ns: 1,
            max_stack_depth: 1,
        }
    }

    fn file(handle: u64, version: Version) -> Entry {
        let record =
            OpenRecord { generation: Some(7), version, length: Some(3), writing: true, ..OpenRecord::default() };
        Entry::File { handle, node: 4096, unique: 2 * handle, read_by: ReadBy::Daemon, record }
    }

    fn again(roll: &Roll) -> (Roll, Vec<Entry>) {
        let file = roll.file.as_ref().expect("it is somewhere").try_clone().expect("cloned");
        let (roll, agreed, entries) = Roll::take_over(file).expect("taken over");
        assert_eq!(agreed, negotiated());
        (roll, entries)
    }

    #[test]
    fn what_is_entered_and_not_struck_is_found_by_the_next() {
        let roll = Roll::begin(tempfile::tempfile().expect("a file"), negotiated()).expect("begun");
        assert_eq!(again(&roll).1, []);
        let directory = Entry::Directory { handle: 1, node: 1, unique: 40, uid: 5, gid: 6 };
        let backing = Entry::Backing { id: 1, node: 4097, generation: 8 };
        for entry in [&file(1, Version::strong("a")), &file(2, Version::weak([7; 300])), &directory, &backing] {
            roll.enter(entry);
        }
        roll.strike(Key::File(1));
        let (roll, entries) = again(&roll);
        assert_eq!(entries, [file(2, Version::weak([7; 300])), directory.clone(), backing.clone()]);
        // An entry is written again in its place.
        let Entry::File { record, .. } = file(2, Version::strong("newer")) else { panic!("a file") };
        roll.renew_file(2, &record);
        roll.renew_file(9, &record);
        let (roll, entries) = again(&roll);
        assert_eq!(entries, [file(2, Version::strong("newer")), directory.clone(), backing.clone()]);
        // The slot that is free is used, and requests that come again are known.
        roll.enter(&file(3, Version::strong([1; 900])));
        assert_eq!(roll.unanswered(4 | 1 << 63), Some((Key::File(2), 4096)));
        assert_eq!(roll.unanswered(4), None);
        roll.strike(Key::Directory(1));
        roll.strike(Key::File(2));
        assert_eq!(again(&roll).1, [file(3, Version::None), backing.clone()]);
        // Changes that were begun are known once, and those that were answered are not.
        let exchange = Begun { exchanged: Some((4097, 4098)) };
        let changes = [(50, Begun::default()), (51, exchange), (52, exchange)];
        changes.iter().for_each(|&(unique, begun)| roll.enter(&Entry::Change { unique, begun }));
        let former: Entry =
            decoded(&Entry::Change { unique: 52, begun: exchange }.encoded().expect("it fits")).expect("read");
        assert_eq!(former, Entry::Change { unique: 52, begun: Begun::default() }, "as former versions read it");
        roll.strike(Key::of_change(51));
        let (roll, entries) = again(&roll);
        assert_eq!(entries, [file(3, Version::None), backing]);
        let known = [50, 51, 52, 52].map(|unique| roll.was_begun(unique | 1 << 63));
        assert_eq!(known, [Some(Begun::default()), None, Some(exchange), None]);
    }

    #[test]
    fn locks_are_there_as_their_owner_has_them_last() {
        use crate::locks::{END, Family};
        let owner = Owner { family: Family::Posix, number: u64::MAX };
        let locks = |count: u64| -> Vec<Held> {
            let lock = |at| Held {
                owner,
                start: END - at,
                end: END - at,
                exclusive: true,
                pid: u32::MAX,
                uid: u32::MAX,
                gid: u32::MAX,
                handle: u64::MAX,
            };
            (0..count).map(lock).collect()
        };
        let roll = Roll::begin(tempfile::tempfile().expect("a file"), negotiated()).expect("begun");
        for count in [25, 10, 31, 1, 0] {
            roll.enter_locks(4096, owner, &locks(count));
            let held: Vec<Held> = again(&roll)
                .1
                .into_iter()
                .flat_map(|entry| match entry {
                    Entry::Locks { node: 4096, owner: of, held, .. } if of == owner => held,
                    entry => panic!("{entry:?}"),
                })
                .collect();
            let mut held: Vec<u64> = held.iter().map(|held| END - held.start).collect();
            held.sort_unstable();
            assert_eq!(held, Vec::from_iter(0..count));
        }
        assert_eq!(roll.slots.lock().count, 4, "slots are used again");
    }

    /// Goal: which use of a number a file was opened by is on the roll, and does not keep former versions from reading the rest.
    #[test]
    fn which_use_of_a_number_it_is_stands_beside_the_rest() {
        let roll = Roll::begin(tempfile::tempfile().expect("a file"), negotiated()).expect("begun");
        let mut again_used = file(1, Version::strong("abc"));
        if let Entry::File { record, .. } = &mut again_used {
            record.node_generation = 300;
        }
        roll.enter(&again_used);
        roll.renew_file(1, &OpenRecord { length: Some(9), ..OpenRecord::default() });
        let [Entry::File { record, .. }] = &again(&roll).1[..] else { panic!("one file") };
        assert_eq!((record.node_generation, record.length), (300, Some(9)));
        let former: Entry = decoded(&again_used.encoded().expect("it fits")).expect("read as before");
        assert_eq!(former, file(1, Version::strong("abc")));
    }

    /// Whatever bytes of an entry were not written, it counts as empty and the others stand.
    #[test]
    fn an_entry_that_broke_off_is_none() {
        let whole = file(2, Version::strong("abc")).encoded().expect("it fits");
        for written in 0..whole.len() {
            let roll = Roll::begin(tempfile::tempfile().expect("a file"), negotiated()).expect("begun");
            roll.enter(&file(1, Version::None));
            let file_of = roll.file.as_ref().expect("a file");
            // The slot was used before: what is not written is of something else.
            write_at(file_of, &[0xff; SLOT_BYTES], 2).expect("written");
            write_at(file_of, &whole[..written], 2).expect("written");
            roll.slots.lock().count = 2;
            roll.enter(&file(3, Version::None));
            assert_eq!(again(&roll).1, [file(1, Version::None), file(3, Version::None)], "{written} bytes");
        }
    }

    #[test]
    fn bytes_of_something_else_are_refused() {
        let file = tempfile::tempfile().expect("a file");
        write_at(&file, &[1; 600], 0).expect("written");
        assert!(matches!(Roll::take_over(file), Err(RollError::Unknown)));
    }
}
