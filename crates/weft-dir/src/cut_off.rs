//! Writes that a daemon did not come to the end of, for the next one to go on with.
//!
//! A file is written in place: from the first byte on it has another version, which the one who writes it has yet to hear of.
//! A daemon that is killed before that leaves what looks like somebody else's doing. So each write is noted, before it begins,
//! in a file in memory that outlives the daemon: over which version, and when. A file that was changed last between that and
//! the next daemon's beginning was changed by that write; what was changed after it, was by somebody else.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
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
    /// Guards the number of the next note, which says the slot that it takes; held for one write into memory.
    next: Mutex<u64>,
    /// Those of daemons before this one: over which version, from when, and until when the last of them was there.
    former: HashMap<Box<[u8]>, RangeInclusive<SystemTime>>,
}

/// A write that was begun.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Note {
    /// How many were begun before it, in all lives: its time may be that of one before.
    number: u64,
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
        let now_us = micros(SystemTime::now());
        let (mut next, mut former) = (0, HashMap::new());
        for mut note in bytes.chunks_exact(SLOT_BYTES).filter_map(Note::of) {
            next = next.max(note.number.wrapping_add(1));
            if note.ended_us == 0 {
                note.ended_us = now_us;
                note.put(&file)?;
            }
            let (begun, ended) = (time(note.begun_us), time(note.ended_us));
            let known = former.entry(note.over).or_insert(begun..=ended);
            // One that was begun again was so before anybody else had changed what had come of it.
            *known = begun.min(*known.start())..=ended.max(*known.end());
        }
        Ok(Arc::new(CutOff { file, next: Mutex::new(next), former }))
    }

    /// Notes that a file that has this version is about to be written. What cannot be noted is as it was without this.
    pub(crate) fn begin(&self, over: &Version) {
        let Some(over) = over.token().filter(|over| over.len() <= TOKEN_BYTES_MAX) else { return };
        // What the one before has written may be all that there is of it in the end.
        let begun = self.former.get(over).map_or_else(SystemTime::now, |former| *former.start());
        let mut next = self.next.lock();
        let note = Note { number: *next, over: over.into(), begun_us: micros(begun), ended_us: 0 };
        if note.put(&self.file).is_ok() {
            *next = next.wrapping_add(1);
        }
    }

    /// Whether a file has become what it is by a write over that version which a former daemon did not come to the end of.
    pub(crate) fn made(&self, now: &Facts, over: &Version) -> bool {
        let former = over.token().and_then(|over| self.former.get(over));
        former.is_some_and(|former| now.was_changed_within(*former.start() - GRAIN, *former.end()))
    }
}

impl Note {
    fn of(bytes: &[u8]) -> Option<Note> {
        let (number, rest) = bytes.split_first_chunk::<8>()?;
        let (begun, rest) = rest.split_first_chunk::<8>()?;
        let (ended, rest) = rest.split_first_chunk::<8>()?;
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let over = rest.get(..usize::from(u16::from_le_bytes(*length))).filter(|over| !over.is_empty())?;
        let (begun_us, ended_us) = (u64::from_le_bytes(*begun), u64::from_le_bytes(*ended));
        // Earlier or later than any clock: nothing of ours.
        let is_time = |us: u64| (TIME_US_MIN..=TIME_US_MAX).contains(&us);
        let number = u64::from_le_bytes(*number);
        let is_note = is_time(begun_us) && (ended_us == 0 || is_time(ended_us));
        is_note.then(|| Note { number, over: over.into(), begun_us, ended_us })
    }

    /// Puts it into its slot in one piece, which is there whole or not at all, whenever the daemon ends.
    fn put(&self, file: &File) -> io::Result<()> {
        file.write_all_at(&self.bytes(), self.number % SLOTS as u64 * SLOT_BYTES as u64)
    }

    fn bytes(&self) -> Vec<u8> {
        let length = u16::try_from(self.over.len()).unwrap_or(0);
        let mut bytes = Vec::with_capacity(SLOT_BYTES);
        bytes.extend_from_slice(&self.number.to_le_bytes());
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

fn time(us: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(us)
}

/// Writes that are noted.
const SLOTS: usize = 1024;
const SLOT_BYTES: usize = 256;
/// Longest version: what a slot has room for.
const TOKEN_BYTES_MAX: usize = SLOT_BYTES - 26;
/// How far the clock of files is behind at the most (Linux: a tick, 10 ms at `CONFIG_HZ=100`).
const GRAIN: Duration = Duration::from_millis(10);
const TIME_US_MIN: u64 = 1 << 32;
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
        first.begin(&Version::strong("of another file"));
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
        // What was begun again is no older than what else was.
        third.begin(&half.version());
        let until = |cut_off: &CutOff| *cut_off.former[over.token().expect("a token")].end();
        assert_eq!(until(&next(&memory)), until(&third));
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
        let former = &next(&memory).former;
        let has = |nth: usize| former.contains_key(nth.to_string().as_bytes());
        assert!(!has(4) && has(5) && has(SLOTS + 4));
        assert!(former.values().all(|former| former.start() <= former.end()));
        cut_off.begin(&Version::strong("x".repeat(TOKEN_BYTES_MAX + 1)));
        cut_off.begin(&Version::None);
        memory.write_all_at(&[0xff; SLOTS * SLOT_BYTES], 0).expect("written");
        assert!(next(&memory).former.is_empty());
    }
}
