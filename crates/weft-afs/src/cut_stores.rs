//! Stores of which nobody heard what came, for their server broke off: it may have done them, or begun them. A server of
//! OpenAFS that stops in the middle of one keeps the bytes that came, with the time that the writer gave and one more data
//! version (`StoreData_RXStyle` and `Update_TargetVnodeStatus` of OpenAFS `src/viced/afsfileprocs.c`). When what was written is
//! sent again, such a version is no work of somebody else.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::cell::CellName;
use crate::fid::Fid;
use crate::identity::Spot;
use crate::retimed::Written;

/// By file; what is forgotten is somebody else's. Held for one look or one change.
#[derive(Debug, Default)]
pub(crate) struct CutStores(Mutex<HashMap<(CellName, Fid), Cut>>);

/// What was tried over one data version.
#[derive(Debug)]
struct Cut {
    over: u64,
    tries: Vec<Try>,
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Try {
    /// The data version that its stores had made when one was not heard of.
    heard: u64,
    /// The highest that it may have made.
    most: u64,
    /// The time of modification that it gave, in seconds since 1970.
    modified_s: u32,
}

impl CutStores {
    /// What was to be written over data version `over` had made the file `heard` when a store was not heard of, which was
    /// tried so many times.
    pub fn note(&self, spot: &Spot, over: u64, heard: Written, times: u32) {
        let mut cuts = self.0.lock();
        if cuts.len() >= FILES_MAX {
            cuts.clear();
        }
        let cut = cuts.entry((spot.cell.clone(), spot.fid)).or_insert_with(|| Cut { over, tries: Vec::new() });
        if cut.over != over || cut.tries.len() >= TRIES_MAX {
            *cut = Cut { over, tries: Vec::new() };
        }
        let most = heard.data_version.saturating_add(times.into());
        let one = Try { heard: heard.data_version, most, modified_s: heard.modified_s };
        if !cut.tries.contains(&one) {
            cut.tries.push(one);
        }
    }

    /// Whether what a file is now came of what was to be written over `over`.
    pub fn are_of(&self, spot: &Spot, over: u64, now: Written) -> bool {
        let cuts = self.0.lock();
        let cut = cuts.get(&(spot.cell.clone(), spot.fid)).filter(|cut| cut.over == over);
        let is_of = |one: &Try| {
            let is_heard = one.heard > over && one.heard == now.data_version;
            is_heard
                || (one.heard < now.data_version && now.data_version <= one.most && one.modified_s == now.modified_s)
        };
        cut.is_some_and(|cut| cut.tries.iter().any(is_of))
    }

    /// It is written, or it is somebody else's.
    pub fn forget(&self, spot: &Spot) {
        self.0.lock().remove(&(spot.cell.clone(), spot.fid));
    }
}

/// Files that are remembered.
const FILES_MAX: usize = 10_000;
/// Tries at one that are remembered.
const TRIES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fid::VolumeId;
    use crate::identity::Identity;

    fn spot(vnode: u32) -> Spot {
        let cell = CellName::new(b"example.org").expect("a name");
        Spot { cell, fid: Fid { volume: VolumeId(1), vnode, unique: 1 }, way: Identity::Top.way_in() }
    }

    fn at(data_version: u64, modified_s: u32) -> Written {
        Written { data_version, modified_s }
    }

    /// Goal: what may have come of what was tried is ours, of each try, and nothing else.
    #[test]
    fn what_may_have_come_of_a_store_is_ours() {
        let (cuts, file) = (CutStores::default(), spot(2));
        cuts.note(&file, 5, at(5, 100), 1);
        assert!(cuts.are_of(&file, 5, at(6, 100)));
        for now in [at(5, 100), at(6, 101), at(7, 100)] {
            assert!(!cuts.are_of(&file, 5, now), "{now:?}");
        }
        assert!(!cuts.are_of(&file, 6, at(6, 100)) && !cuts.are_of(&spot(4), 5, at(6, 100)));
        // Over what came of the first: one part was stored, another was tried twice.
        cuts.note(&file, 5, at(7, 200), 2);
        let ours = [at(6, 100), at(7, 1), at(8, 200), at(9, 200)];
        assert!(ours.into_iter().all(|now| cuts.are_of(&file, 5, now)));
        assert!(!cuts.are_of(&file, 5, at(10, 200)) && !cuts.are_of(&file, 5, at(8, 100)));
        cuts.note(&file, 9, at(9, 300), 1);
        assert!(!cuts.are_of(&file, 5, at(6, 100)), "over another");
        cuts.forget(&file);
        assert!(!cuts.are_of(&file, 9, at(10, 300)));
    }
}
