//! Stores of which nobody heard what came, for their server broke off: it may have done them, or begun them. A server of
//! OpenAFS that stops in the middle of one keeps the bytes that came, with the time that the writer gave and one more data
//! version (`StoreData_RXStyle` and `Update_TargetVnodeStatus` of OpenAFS `src/viced/afsfileprocs.c`). When what was written is
//! sent again, such a version is no work of somebody else.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use weft_remote::Notes;

use crate::cell::CellName;
use crate::fid::{Fid, VolumeId};
use crate::identity::Spot;
use crate::retimed::Written;
use crate::stored_parts::StoredParts;

/// By file; what is forgotten is somebody else's. A store is noted before it is sent, so that a daemon that follows a killed one
/// knows what that had begun.
pub(crate) struct CutStores {
    /// Held for one look or one change.
    table: Mutex<Table>,
    notes: Arc<dyn Notes>,
}

#[derive(Debug, Default)]
struct Table {
    cuts: HashMap<File, Cut>,
    /// The files by the order in which they came.
    order: BTreeMap<u64, File>,
    came: u64,
    /// Those that were written, oldest first.
    written: VecDeque<File>,
}

type File = (CellName, Fid);

/// What was tried over one data version.
#[derive(Debug)]
struct Cut {
    over: u64,
    tries: Vec<Try>,
    stored: StoredParts,
    is_written: bool,
    /// Its place in the order.
    came: u64,
}

/// What one attempt to write a file may have made of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Try {
    /// The data version over which it was begun.
    begun: u64,
    /// The data version that its stores had made when the last one was sent.
    heard: u64,
    /// The highest that it may have made.
    most: u64,
    /// The time of modification that it gave, in seconds since 1970.
    modified_s: u32,
}

impl CutStores {
    /// What former daemons have noted is known.
    pub fn noted(notes: Arc<dyn Notes>) -> CutStores {
        let noted = notes.list(NOTE_PREFIX).unwrap_or_else(|error| {
            tracing::warn!(%error, "what was being stored before cannot be read");
            Vec::new()
        });
        let mut table = Table::default();
        for (key, value) in noted {
            if let (Some(file), Some((over, stored, tries))) = (file_of(&key), tried(&value)) {
                let cut = table.of(&file, over);
                (cut.stored, cut.tries) = (stored, tries);
            }
        }
        CutStores { table: Mutex::new(table), notes }
    }

    /// A store is sent of what is to be written over data version `over`. What was heard of has made the file `heard`; this one
    /// is tried so many times by now, after these parts.
    pub fn sent(&self, spot: &Spot, over: u64, heard: Written, times: u32, stored: StoredParts) {
        let file = (spot.cell.clone(), spot.fid);
        let mut table = self.table.lock();
        let cut = table.of(&file, over);
        cut.is_written = false;
        cut.stored = stored;
        cut.add(heard, times);
        let value = bytes_of(over, &stored, &cut.tries);
        let too_many = if table.cuts.len() > FILES_MAX { table.order.pop_first() } else { None };
        let oldest = too_many.map(|(_, oldest)| oldest).inspect(|oldest| drop(table.cuts.remove(oldest)));
        drop(table);
        self.note(&file, Some(&value));
        self.note_gone(oldest);
    }

    /// Whether what a file is now came of what was to be written over `over`.
    pub fn are_of(&self, spot: &Spot, over: u64, now: Written) -> bool {
        let table = self.table.lock();
        table.over(spot, over).is_some_and(|cut| cut.tries.iter().any(|one| one.may_have_made(over, now)))
    }

    /// What is stored of what is to be written over `over`, where the file is what may have come of that.
    pub fn stored(&self, spot: &Spot, over: u64, now: u64) -> Option<StoredParts> {
        let table = self.table.lock();
        let stored = table.over(spot, over)?.stored;
        Some(stored).filter(|stored| stored.count > 0 && now >= stored.data_version)
    }

    /// It is written, and whoever writes over what was before is somebody else. To the next daemon it stays known for some time:
    /// one that was killed before this was put down has all of it sent again.
    pub fn written(&self, spot: &Spot) {
        let file = (spot.cell.clone(), spot.fid);
        let mut table = self.table.lock();
        let Some(cut) = table.cuts.get_mut(&file) else { return };
        cut.is_written = true;
        table.written.push_back(file);
        let too_many = if table.written.len() > WRITTEN_MAX { table.written.pop_front() } else { None };
        let is_written = |oldest: &File| table.cuts.get(oldest).is_some_and(|cut| cut.is_written);
        let oldest = too_many.filter(is_written).filter(|oldest| table.forget(oldest));
        drop(table);
        self.note_gone(oldest);
    }

    /// It is somebody else's.
    pub fn refused(&self, spot: &Spot) {
        let file = (spot.cell.clone(), spot.fid);
        let is_gone = self.table.lock().forget(&file);
        self.note_gone(Some(file).filter(|_| is_gone));
    }

    fn note_gone(&self, file: Option<File>) {
        if let Some(file) = file {
            self.note(&file, None);
        }
    }

    /// Without the table, for it may take a disk's time.
    fn note(&self, file: &File, value: Option<&[u8]>) {
        if let Err(error) = self.notes.put(&key_of(file), value) {
            tracing::warn!(%error, "what is being stored cannot be noted");
        }
    }
}

impl Table {
    /// What was tried over a data version; what was over another one is forgotten.
    fn of(&mut self, file: &File, over: u64) -> &mut Cut {
        let came = self.came;
        let cut = self.cuts.entry(file.clone()).or_insert_with(|| {
            self.order.insert(came, file.clone());
            self.came += 1;
            Cut { over, tries: Vec::new(), stored: StoredParts::default(), is_written: false, came }
        });
        if cut.over != over || cut.tries.len() >= TRIES_MAX {
            (cut.over, cut.tries, cut.stored) = (over, Vec::new(), StoredParts::default());
        }
        cut
    }

    /// What was tried over this data version, and was not written.
    fn over(&self, spot: &Spot, over: u64) -> Option<&Cut> {
        self.cuts.get(&(spot.cell.clone(), spot.fid)).filter(|cut| cut.over == over && !cut.is_written)
    }

    /// Whether it was known.
    fn forget(&mut self, file: &File) -> bool {
        let cut = self.cuts.remove(file);
        cut.is_some_and(|cut| self.order.remove(&cut.came).is_some())
    }
}

impl Cut {
    /// An attempt goes on, or another is begun.
    fn add(&mut self, heard: Written, times: u32) {
        let Written { data_version, modified_s } = heard;
        let most = data_version.saturating_add(times.into());
        match self.tries.last_mut() {
            // What the attempt before had made was heard of, or this one was begun over what may have come of it.
            Some(last) if last.modified_s == modified_s && (last.begun..=last.most).contains(&data_version) => {
                (last.heard, last.most) = (last.heard.max(data_version), last.most.max(most));
            }
            _ => self.tries.push(Try { begun: data_version, heard: data_version, most, modified_s }),
        }
    }
}

impl Try {
    fn may_have_made(&self, over: u64, now: Written) -> bool {
        let is_heard = self.heard > over && self.heard == now.data_version;
        let may_be = self.begun < now.data_version && now.data_version <= self.most;
        is_heard || (may_be && self.modified_s == now.modified_s)
    }
}

/// Under [`NOTE_PREFIX`] the volume, vnode and unique, 4 bytes each, most significant first, and the name of the cell.
fn key_of((cell, fid): &File) -> Vec<u8> {
    let fid = [fid.volume.0, fid.vnode, fid.unique].map(u32::to_be_bytes);
    [NOTE_PREFIX, fid.as_flattened(), cell.as_str().as_bytes()].concat()
}

fn file_of(key: &[u8]) -> Option<File> {
    let (fid, cell) = key.strip_prefix(NOTE_PREFIX)?.split_at_checked(12)?;
    let (fid, _) = fid.as_chunks::<4>();
    let [volume, vnode, unique] = <[_; 3]>::try_from(fid).ok()?.map(u32::from_be_bytes);
    Some((CellName::new(cell).ok()?, Fid { volume: VolumeId(volume), vnode, unique }))
}

/// The data version over which it is written, what is stored of it, and of each attempt `begun`, `heard`, `most` and
/// `modified_s`: 8 bytes each, most significant first.
fn bytes_of(over: u64, stored: &StoredParts, tries: &[Try]) -> Vec<u8> {
    let numbers = |one: &Try| [one.begun, one.heard, one.most, one.modified_s.into()];
    let before = std::iter::once(over).chain(stored.numbers());
    before.chain(tries.iter().flat_map(numbers)).flat_map(u64::to_be_bytes).collect()
}

fn tried(bytes: &[u8]) -> Option<(u64, StoredParts, Vec<Try>)> {
    let (numbers, []) = bytes.as_chunks::<8>() else { return None };
    let numbers: Vec<u64> = numbers.iter().map(|number| u64::from_be_bytes(*number)).collect();
    let (over, rest) = numbers.split_first()?;
    let (stored, tries) = rest.split_first_chunk::<5>()?;
    let (tries, []) = tries.as_chunks::<4>() else { return None };
    let read = |[begun, heard, most, modified_s]: &[u64; 4]| {
        Some(Try { begun: *begun, heard: *heard, most: *most, modified_s: u32::try_from(*modified_s).ok()? })
    };
    Some((*over, StoredParts::of_numbers(*stored), tries.iter().map(read).collect::<Option<_>>()?))
}

/// Where they are in the notes.
const NOTE_PREFIX: &[u8] = b"store/";
/// Files that are remembered.
const FILES_MAX: usize = 10_000;
/// Those of them that were written.
const WRITTEN_MAX: usize = 256;
/// Attempts at one that are remembered.
const TRIES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use weft_remote::MemoryNotes;

    use super::*;
    use crate::identity::Identity;

    fn spot(vnode: u32) -> Spot {
        let cell = CellName::new(b"example.org").expect("a name");
        Spot { cell, fid: Fid { volume: VolumeId(1), vnode, unique: 1 }, way: Identity::Top.way_in() }
    }

    fn at(data_version: u64, modified_s: u32) -> Written {
        Written { data_version, modified_s }
    }

    fn none_stored() -> StoredParts {
        StoredParts::default()
    }

    fn none() -> CutStores {
        CutStores::noted(Arc::new(MemoryNotes::default()))
    }

    /// Goal: what may have come of what was tried is ours, of each try, and nothing else.
    #[test]
    fn what_may_have_come_of_a_store_is_ours() {
        let (cuts, file) = (none(), spot(2));
        cuts.sent(&file, 5, at(5, 100), 1, none_stored());
        assert!(cuts.are_of(&file, 5, at(6, 100)));
        for now in [at(5, 100), at(6, 101), at(7, 100)] {
            assert!(!cuts.are_of(&file, 5, now), "{now:?}");
        }
        assert!(!cuts.are_of(&file, 6, at(6, 100)) && !cuts.are_of(&spot(4), 5, at(6, 100)));
        // Over what came of the first: one part was stored, another was tried twice.
        cuts.sent(&file, 5, at(6, 200), 1, none_stored());
        cuts.sent(&file, 5, at(7, 200), 2, none_stored());
        let ours = [at(6, 100), at(7, 1), at(7, 200), at(8, 200), at(9, 200)];
        assert!(ours.into_iter().all(|now| cuts.are_of(&file, 5, now)));
        assert!(!cuts.are_of(&file, 5, at(10, 200)) && !cuts.are_of(&file, 5, at(8, 100)));
        cuts.sent(&file, 9, at(9, 300), 1, none_stored());
        assert!(!cuts.are_of(&file, 5, at(6, 100)), "over another");
        cuts.refused(&file);
        assert!(!cuts.are_of(&file, 9, at(10, 300)));
    }

    /// Goal: also the daemon after the next knows what one had begun, until it is written or refused; of what is written only
    /// the last ones are kept.
    #[test]
    fn what_was_begun_outlives_the_daemon() {
        let notes: Arc<dyn Notes> = Arc::new(MemoryNotes::default());
        let begun = CutStores::noted(notes.clone());
        begun.sent(&spot(2), 5, at(5, 100), 2, none_stored());
        begun.sent(&spot(2), 5, at(6, u32::MAX), 1, none_stored());
        begun.sent(&spot(4), 0, at(u64::MAX, 7), 3, none_stored());
        for _ in 0..2 {
            let next = CutStores::noted(notes.clone());
            assert!([at(6, 100), at(7, 100), at(7, u32::MAX)].into_iter().all(|now| next.are_of(&spot(2), 5, now)));
            assert!(next.are_of(&spot(4), 0, at(u64::MAX, 8)) && !next.are_of(&spot(2), 5, at(8, 100)));
        }
        let next = CutStores::noted(notes.clone());
        next.refused(&spot(4));
        next.written(&spot(2));
        assert!(
            !next.are_of(&spot(2), 5, at(7, 100)),
            "who was told that it is written does not write it over the same again"
        );
        assert!(CutStores::noted(notes.clone()).are_of(&spot(2), 5, at(7, 100)));
        for vnode in 0..WRITTEN_MAX as u32 {
            let other = spot(100 + 2 * vnode);
            next.sent(&other, 1, at(1, 1), 1, none_stored());
            next.written(&other);
        }
        assert_eq!(notes.list(b"").expect("listed").len(), WRITTEN_MAX);
        let last = CutStores::noted(notes);
        assert!(!last.are_of(&spot(2), 5, at(7, 100)) && !last.are_of(&spot(4), 0, at(u64::MAX, 8)));
        assert!(last.are_of(&spot(100), 1, at(2, 1)));
    }

    /// Goal: what is stored of a file is known to who goes on with it, here and in the next daemon, while the file may be what
    /// came of that.
    #[test]
    fn parts_that_are_stored_are_known() {
        let notes: Arc<dyn Notes> = Arc::new(MemoryNotes::default());
        let cuts = CutStores::noted(notes.clone());
        let parts = StoredParts { count: 3, file_length: 1 << 40, data_version: 8, sum: 1 << 100 | 7 };
        cuts.sent(&spot(2), 5, at(8, 100), 1, parts);
        for known in [&cuts, &CutStores::noted(notes)] {
            assert_eq!([8, 9].map(|now| known.stored(&spot(2), 5, now)), [Some(parts); 2]);
            assert_eq!(known.stored(&spot(2), 5, 7), None, "before it was stored");
            assert_eq!((known.stored(&spot(2), 6, 9), known.stored(&spot(4), 5, 9)), (None, None));
        }
        cuts.sent(&spot(2), 5, at(9, 100), 1, none_stored());
        assert_eq!(cuts.stored(&spot(2), 5, 9), None, "it is stored anew");
        cuts.sent(&spot(2), 5, at(10, 100), 1, parts);
        cuts.written(&spot(2));
        assert_eq!(cuts.stored(&spot(2), 5, 11), None, "all of it is stored");
    }

    /// Goal: what was written once and is being written again is not forgotten for being written.
    #[test]
    fn what_is_written_again_stays_known() {
        let cuts = none();
        cuts.sent(&spot(2), 1, at(1, 1), 1, none_stored());
        cuts.written(&spot(2));
        cuts.sent(&spot(2), 2, at(2, 2), 1, none_stored());
        for vnode in 0..WRITTEN_MAX as u32 {
            let other = spot(100 + 2 * vnode);
            cuts.sent(&other, 1, at(1, 1), 1, none_stored());
            cuts.written(&other);
        }
        assert!(cuts.are_of(&spot(2), 2, at(3, 2)));
    }

    /// Goal: whatever is found in the notes is read or passed over; their number is bounded.
    #[test]
    fn notes_that_make_no_sense_are_passed_over() {
        let notes: Arc<dyn Notes> = Arc::new(MemoryNotes::default());
        for bytes in [&b""[..], &[1; 7], &[0; 8], &[0; 40], &[0xff; 40], &[0; 41]] {
            notes.put(&key_of(&(spot(2).cell, spot(2).fid)), Some(bytes)).expect("noted");
            notes.put(&[NOTE_PREFIX, &[0; 12][..bytes.len().min(12)]].concat(), Some(bytes)).expect("noted");
            assert!(!CutStores::noted(notes.clone()).are_of(&spot(2), 1, at(2, 1)));
        }
        let cuts = none();
        for vnode in 0..=FILES_MAX as u32 {
            cuts.sent(&spot(2 * vnode), 1, at(1, 1), 1, none_stored());
        }
        assert_eq!(cuts.notes.list(b"").expect("listed").len(), FILES_MAX);
        assert!(!cuts.are_of(&spot(0), 1, at(2, 1)) && cuts.are_of(&spot(2), 1, at(2, 1)));
    }
}
