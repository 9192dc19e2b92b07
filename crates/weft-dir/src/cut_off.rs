//! Writes that a daemon did not come to the end of, for the next one to go on with.
//!
//! A file is written in place: from the first byte on it has another version, which the one who writes it has yet to hear of.
//! A daemon that is killed before that leaves what looks like somebody else's doing. So each write is noted, before it begins,
//! in a file in memory that outlives the daemon: over which version, and when. A file that was changed last between that and
//! the next daemon's beginning was changed by that write; what was changed after it, was by somebody else.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use weft_remote::Version;

use crate::facts::Facts;

/// The latest writes of this daemon and of those before it, to whatever directory of one mount.
#[derive(Debug)]
pub struct CutOff {
    file: File,
    /// Guards what is noted; held for one write into memory.
    noted: Mutex<Noted>,
}

#[derive(Debug)]
struct Noted {
    slots: Vec<Option<Note>>,
    /// The slot that was taken longest ago.
    next: usize,
}

/// A write that was begun.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Note {
    /// The version over which, as the contract has it.
    over: Box<[u8]>,
    /// When, in microseconds since 1970.
    begun_us: u64,
    /// When the next daemon began; 0 while this one lives.
    ended_us: u64,
}

impl CutOff {
    /// What is noted in a file, which is empty at first.
    ///
    /// # Errors
    /// What the system says when it cannot be read or written.
    pub fn new(file: File) -> io::Result<Arc<CutOff>> {
        file.set_len((SLOTS * SLOT_BYTES) as u64)?;
        let mut bytes = vec![0; SLOTS * SLOT_BYTES];
        file.read_exact_at(&mut bytes, 0)?;
        let slots = bytes.chunks_exact(SLOT_BYTES).map(Note::of).collect();
        let cut_off = CutOff { file, noted: Mutex::new(Noted { slots, next: 0 }) };
        cut_off.end_those_of_before(micros(SystemTime::now()))?;
        Ok(Arc::new(cut_off))
    }

    fn end_those_of_before(&self, now_us: u64) -> io::Result<()> {
        let mut noted = self.noted.lock();
        let newest = (0..SLOTS).max_by_key(|slot| noted.slots[*slot].as_ref().map_or(0, |note| note.begun_us));
        noted.next = newest.map_or(0, |slot| (slot + 1) % SLOTS);
        for (slot, note) in noted.slots.iter_mut().enumerate() {
            if let Some(note) = note.as_mut().filter(|note| note.ended_us == 0) {
                note.ended_us = now_us;
                self.file.write_all_at(&note.bytes(), (slot * SLOT_BYTES) as u64)?;
            }
        }
        Ok(())
    }

    /// Notes that a file that has this version is about to be written. What cannot be noted is as it was without this.
    pub(crate) fn begin(&self, over: &Version) {
        let Some(over) = over.token().filter(|over| over.len() <= TOKEN_BYTES_MAX) else { return };
        let mut noted = self.noted.lock();
        let again = noted.slots.iter().position(|note| note.as_ref().is_some_and(|note| *note.over == *over));
        let slot = again.unwrap_or(noted.next);
        if again.is_none() {
            noted.next = (slot + 1) % SLOTS;
        }
        // What the one before has written may be all that there is of it in the end.
        let before = again.and_then(|slot| noted.slots[slot].as_ref().map(|note| note.begun_us));
        let begun_us = before.unwrap_or_else(|| micros(SystemTime::now()));
        let note = Note { over: over.into(), begun_us, ended_us: 0 };
        if self.file.write_all_at(&note.bytes(), (slot * SLOT_BYTES) as u64).is_ok() {
            noted.slots[slot] = Some(note);
        }
    }

    /// Whether a file has become what it is by a write over that version which a former daemon did not come to the end of.
    pub(crate) fn made(&self, now: &Facts, over: &Version) -> bool {
        let Some(over) = over.token() else { return false };
        let noted = self.noted.lock();
        let note = noted.slots.iter().flatten().find(|note| *note.over == *over && note.ended_us != 0);
        note.is_some_and(|note| {
            let begun = UNIX_EPOCH + Duration::from_micros(note.begun_us).saturating_sub(GRAIN);
            now.was_changed_within(begun, UNIX_EPOCH + Duration::from_micros(note.ended_us))
        })
    }
}

impl Note {
    fn of(bytes: &[u8]) -> Option<Note> {
        let (begun, rest) = bytes.split_first_chunk::<8>()?;
        let (ended, rest) = rest.split_first_chunk::<8>()?;
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let over = rest.get(..usize::from(u16::from_le_bytes(*length))).filter(|over| !over.is_empty())?;
        let (begun_us, ended_us) = (u64::from_le_bytes(*begun), u64::from_le_bytes(*ended));
        // Later than any clock: nothing of ours.
        let is_time = |us: u64| us <= TIME_US_MAX;
        (is_time(begun_us) && is_time(ended_us)).then(|| Note { over: over.into(), begun_us, ended_us })
    }

    /// In one piece, which is there whole or not at all, whenever the daemon ends.
    fn bytes(&self) -> Vec<u8> {
        let length = u16::try_from(self.over.len()).unwrap_or(0);
        let mut bytes = Vec::with_capacity(SLOT_BYTES);
        bytes.extend_from_slice(&self.begun_us.to_le_bytes());
        bytes.extend_from_slice(&self.ended_us.to_le_bytes());
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&self.over);
        bytes
    }
}

fn micros(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(0))
}

/// Writes that are noted.
const SLOTS: usize = 1024;
const SLOT_BYTES: usize = 256;
/// Longest version: what a slot has room for.
const TOKEN_BYTES_MAX: usize = SLOT_BYTES - 18;
/// How far the clock of files is behind at the most (Linux: a tick, 10 ms at `CONFIG_HZ=100`).
const GRAIN: Duration = Duration::from_millis(10);
const TIME_US_MAX: u64 = 1 << 60;

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::facts::facts;

    fn memory() -> File {
        rustix::fs::memfd_create("cut-off", rustix::fs::MemfdFlags::CLOEXEC).expect("a file in memory").into()
    }

    fn now(file: &File) -> Facts {
        facts(file.as_fd()).expect("facts").0
    }

    /// As a kill has it: nothing of the daemon is left but the file in memory.
    fn next(memory: &File) -> Arc<CutOff> {
        CutOff::new(memory.try_clone().expect("the same file")).expect("read")
    }

    #[test]
    fn what_a_killed_daemon_was_writing_is_told_from_what_others_write() {
        let (memory, folder) = (memory(), tempfile::tempdir().expect("a folder"));
        let file = File::create(folder.path().join("f")).expect("made");
        file.write_all_at(b"before", 0).expect("written");
        let over = now(&file).version();
        let first = next(&memory);
        assert!(!first.made(&now(&file), &over), "nothing was begun");
        first.begin(&over);
        file.write_all_at(b"half", 0).expect("written");
        let half = now(&file);
        assert!(!first.made(&half, &over), "it is under way still");
        let second = next(&memory);
        assert!(second.made(&half, &over));
        assert!(!second.made(&half, &half.version()), "not over this one");
        // The next one is killed as well, when it has written nothing.
        second.begin(&over);
        let third = next(&memory);
        assert!(third.made(&half, &over));
        // Later than any tick of the clock of files after the third one's beginning.
        let changed = |facts: &Facts| facts.version() != half.version() && !third.made(facts, &over);
        let theirs = loop {
            file.write_all_at(b"theirs", 0).expect("written");
            if changed(&now(&file)) {
                break now(&file);
            }
        };
        assert!(!next(&memory).made(&theirs, &over), "what ended then has ended");
    }

    #[test]
    fn the_latest_are_noted_and_nonsense_is_nothing() {
        let memory = memory();
        let cut_off = next(&memory);
        let version = |nth: usize| Version::strong(format!("{nth}"));
        (0..SLOTS + 5).for_each(|nth| cut_off.begin(&version(nth)));
        let slots = next(&memory).noted.lock().slots.clone();
        let has = |nth: usize| slots.iter().flatten().any(|note| *note.over == *nth.to_string().as_bytes());
        assert!(!has(4) && has(5) && has(SLOTS + 4));
        assert!(slots.iter().flatten().all(|note| note.ended_us >= note.begun_us));
        cut_off.begin(&Version::strong("x".repeat(TOKEN_BYTES_MAX + 1)));
        cut_off.begin(&Version::None);
        memory.write_all_at(&[0xff; SLOTS * SLOT_BYTES], 0).expect("written");
        assert!(next(&memory).noted.lock().slots.iter().all(Option::is_none));
    }
}
