//! What was changed from here: a server calls nobody who changes something, so what was told of that before does not count any
//! more, though it is promised still.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::cell::CellName;
use crate::fid::Fid;
use crate::identity::Spot;

/// The last changes of files and directories, whatever of them was changed. Held for one look or one entry.
#[derive(Debug, Default)]
pub(crate) struct OwnChanges(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// How many there were.
    count: u64,
    /// The number of the last of each.
    last: HashMap<(CellName, Fid), u64>,
    /// Of those up to this number it is not remembered what they were of.
    forgotten: u64,
}

/// Between two changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment(u64);

/// A change of these that is being made. It counts when this is dropped: when it was answered, or nobody waits for that.
#[derive(Debug)]
pub(crate) struct Changing<'a> {
    changes: &'a OwnChanges,
    spots: &'a [&'a Spot],
}

impl OwnChanges {
    /// To be taken before a question is sent.
    pub fn moment(&self) -> Moment {
        Moment(self.0.lock().count)
    }

    /// Begins a change of these.
    #[must_use]
    pub fn begin<'a>(&'a self, spots: &'a [&'a Spot]) -> Changing<'a> {
        Changing { changes: self, spots }
    }

    /// Which of the files of a cell, each with the moment before what is known of it, may have been changed since.
    pub fn since(&self, cell: &CellName, files: impl Iterator<Item = (Fid, Moment)>) -> Vec<bool> {
        let table = self.0.lock();
        let changed = |(fid, Moment(moment))| {
            let last = || table.last.get(&(cell.clone(), fid)).copied().unwrap_or_default();
            moment < table.count && (moment < table.forgotten || moment < last())
        };
        files.map(changed).collect()
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let mut table = self.changes.0.lock();
        if table.last.len() + self.spots.len() > REMEMBERED_MAX {
            table.forgotten = table.count;
            table.last.clear();
        }
        for spot in self.spots {
            table.count += 1;
            let count = table.count;
            table.last.insert((spot.cell.clone(), spot.fid), count);
        }
    }
}

/// Files that are remembered.
const REMEMBERED_MAX: usize = 50_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fid::VolumeId;
    use crate::identity::Identity;

    #[test]
    fn a_change_counts_from_its_end() {
        let cell = CellName::new(b"weft.test").expect("a name");
        let fid = |vnode| Fid { volume: VolumeId(1), vnode, unique: 1 };
        let spot = |vnode| Spot { cell: cell.clone(), fid: fid(vnode), way: Identity::Top.way_in() };
        let changes = OwnChanges::default();
        let changed = |vnode, moment| changes.since(&cell, [(fid(vnode), moment)].into_iter()) == [true];
        let before = changes.moment();
        let spots = [&spot(2)];
        let changing = changes.begin(&spots);
        let meanwhile = changes.moment();
        assert!(!changed(2, before), "nothing came of it yet");
        drop(changing);
        let after = changes.moment();
        assert!(changed(2, before) && changed(2, meanwhile) && !changed(2, after) && !changed(4, before));
        (0..=REMEMBERED_MAX as u32).for_each(|at| drop(changes.begin(&[&spot(10 + 2 * at)])));
        assert!(changed(4, before) && changed(2, after), "more than are remembered");
        assert!(!changed(2, changes.moment()));
        let other = CellName::new(b"other.test").expect("a name");
        assert_eq!(changes.since(&other, [(fid(10), changes.moment())].into_iter()), [false]);
    }
}
