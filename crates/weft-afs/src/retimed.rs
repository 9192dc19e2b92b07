//! Files whose time of modification was set here while their bytes stayed: a version names the time that the last writer gave,
//! and so stays what it was. Otherwise whoever copies a file with its times (cp -p, tar, rsync) would have what was written
//! fetched again, and who has it open could neither read on nor send what is written.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;

use crate::cell::CellName;
use crate::fid::Fid;
use crate::identity::Spot;
use crate::wire::status::Status;

/// Which bytes a file has, as a status tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub data_version: u64,
    /// The time of modification, in seconds since 1970.
    pub modified_s: u32,
}

impl Written {
    pub fn of(status: &Status) -> Written {
        Written { data_version: status.data_version, modified_s: status.modified_s }
    }
}

/// By file; what is forgotten is another version by its new time. Held for one look or one change.
#[derive(Debug, Default)]
pub(crate) struct Retimed(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    files: HashMap<(CellName, Fid), Times>,
    /// The files, oldest first.
    order: VecDeque<(CellName, Fid)>,
}

/// Of the bytes of one data version.
#[derive(Clone, Copy, Debug)]
struct Times {
    data_version: u64,
    /// The time that the version names.
    written_s: u32,
    /// The time that the file has by our doing.
    set_s: u32,
}

impl Retimed {
    /// The time by which the version of these bytes goes.
    pub fn written_s(&self, spot: &Spot, now: Written) -> u32 {
        let table = self.0.lock();
        if table.files.is_empty() {
            return now.modified_s;
        }
        let times = table.files.get(&(spot.cell.clone(), spot.fid));
        match times {
            Some(times) if (times.data_version, times.set_s) == (now.data_version, now.modified_s) => times.written_s,
            _ => now.modified_s,
        }
    }

    /// We have set a time, and the server had promised to tell of anybody who would have written the file before.
    pub fn note(&self, spot: &Spot, before: Written, after: Written) {
        if before.data_version != after.data_version || before.modified_s == after.modified_s {
            return;
        }
        let written_s = self.written_s(spot, before);
        let key = (spot.cell.clone(), spot.fid);
        let times = Times { data_version: after.data_version, written_s, set_s: after.modified_s };
        let mut table = self.0.lock();
        if table.files.insert(key.clone(), times).is_none() {
            table.order.push_back(key);
        }
        if table.order.len() > REMEMBERED_MAX
            && let Some(oldest) = table.order.pop_front()
        {
            table.files.remove(&oldest);
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

    fn spot(vnode: u32) -> Spot {
        let cell = CellName::new(b"weft.test").expect("a name");
        Spot { cell, fid: Fid { volume: VolumeId(1), vnode, unique: 1 }, way: Identity::Top.way_in() }
    }

    #[test]
    fn a_version_keeps_the_time_that_its_writer_gave() {
        let (retimed, spot) = (Retimed::default(), spot(2));
        let at = |data_version, modified_s| Written { data_version, modified_s };
        retimed.note(&spot, at(4, 100), at(4, 50));
        assert_eq!(retimed.written_s(&spot, at(4, 50)), 100);
        retimed.note(&spot, at(4, 50), at(4, 70));
        assert_eq!(retimed.written_s(&spot, at(4, 70)), 100);
        assert_eq!(
            retimed.written_s(&spot, at(4, 50)),
            50,
            "somebody else has set it back, or has restored the volume"
        );
        assert_eq!(retimed.written_s(&spot, at(5, 70)), 70, "somebody has written it");
        retimed.note(&spot, at(5, 70), at(6, 80));
        assert_eq!(retimed.written_s(&spot, at(6, 80)), 80, "written in between");
        assert_eq!(retimed.written_s(&super::tests::spot(4), at(4, 70)), 70, "another file");
    }
}
