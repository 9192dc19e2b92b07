//! Releases of volumes: of which one their sites tell.
//!
//! The sites of a read-only volume are brought up to date one after the other, and stay apart where that is broken off. With
//! each answer a site says when its copy was made. What an older one says of a file is not taken while a site with a newer one
//! answers: nobody sees a volume go back, nor the names of one release beside the files of another.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::cell::CellName;
use crate::fid::VolumeId;
use crate::rpc::NO_VNODE;
use crate::servers::ServerId;
use crate::wire::fileserver::{
    BulkReply, ChangeReply, CreateReply, FetchedData, LinkReply, RenameReply, StatusReply, SymlinkReply,
};
use crate::wire::status::VolumeSync;

/// What an answer is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// A copy that was made then, by the clock of its server.
    Made(u32),
    /// It says of no file of which copy it is, and that there is none: another copy may have it.
    Without,
    /// It does not say.
    Untold,
}

impl Release {
    /// Of an answer about one file.
    pub fn of_one(reply: &StatusReply) -> Release {
        Release::told(&reply.sync)
    }

    /// Of an answer with bytes of one.
    pub fn of_content(reply: &FetchedData) -> Release {
        Release::of_one(&reply.end)
    }

    /// Of an answer about several. What it says of the volume counts only with the status of a file.
    pub fn of_several(reply: &BulkReply) -> Release {
        let mut rows = reply.rows.0.iter();
        if rows.clone().any(|row| row.0.is_ok()) {
            return Release::told(&reply.sync);
        }
        match rows.all(|row| matches!(row.0, Err(NO_VNODE))) {
            true => Release::Without,
            false => Release::Untold,
        }
    }

    fn told(sync: &VolumeSync) -> Release {
        match sync.created_s {
            0 => Release::Untold,
            created_s => Release::Made(created_s),
        }
    }
}

/// The answer to a change, which says of its volume when it was made.
pub(crate) trait OfVolume {
    fn release(&self) -> Release;
}

macro_rules! of_volume {
    ($($reply:ty),*) => {
        $(impl OfVolume for $reply {
            fn release(&self) -> Release {
                Release::told(&self.sync)
            }
        })*
    };
}

of_volume!(ChangeReply, CreateReply, LinkReply, RenameReply, SymlinkReply);

/// The releases that were told of last.
#[derive(Debug, Default)]
pub(crate) struct Releases {
    /// Held for one look or one change.
    last: Mutex<HashMap<(CellName, VolumeId), Last>>,
    /// Who said of a volume that all of it has changed, and was not asked about it since. Held for one look or one change.
    heard: Mutex<HashMap<(CellName, VolumeId), ServerId>>,
}

#[derive(Debug)]
struct Last {
    /// When it was made, by the clock of its server.
    created_s: u32,
    /// Who had an older one, and when that was found.
    behind: Vec<(ServerId, Instant)>,
}

impl Releases {
    /// Whether what a server has, which was made then, is older than what was told of last. Where it is, this is remembered.
    pub fn is_outdated(&self, cell: &CellName, volume: VolumeId, (server, created_s): (ServerId, u32)) -> bool {
        let key = (cell.clone(), volume);
        let mut heard = self.heard.lock();
        if heard.get(&key) == Some(&server) {
            heard.remove(&key);
        }
        drop(heard);
        let mut last = self.last.lock();
        let Some(release) = last.get_mut(&key) else { return false };
        let is_outdated = created_s < release.created_s;
        release.behind.retain(|(behind, _)| *behind != server);
        if is_outdated {
            release.behind.push((server, Instant::now()));
        }
        is_outdated
    }

    /// Something is told of a release. Says whether it is a newer one than that before.
    pub fn is_newer(&self, cell: &CellName, volume: VolumeId, created_s: u32) -> bool {
        let (mut last, key) = (self.last.lock(), (cell.clone(), volume));
        let before = last.get(&key).map(|release| release.created_s);
        if before.is_some_and(|before| created_s <= before) {
            return false;
        }
        if last.len() >= VOLUMES_MAX {
            last.clear();
        }
        last.insert(key, Last { created_s, behind: Vec::new() });
        before.is_some()
    }

    /// When a volume was made, as was told last.
    pub fn made_s(&self, cell: &CellName, volume: VolumeId) -> Option<u32> {
        self.last.lock().get(&(cell.clone(), volume)).map(|release| release.created_s)
    }

    /// No site that answers has the one that was told of last: this one counts.
    pub fn went_back(&self, cell: &CellName, volume: VolumeId, created_s: u32) {
        let mut last = self.last.lock();
        if let Some(release) = last.get_mut(&(cell.clone(), volume)) {
            *release = Last { created_s, behind: Vec::new() };
        }
    }

    /// A server says that all of a volume has changed.
    pub fn heard_of(&self, cell: &CellName, volume: VolumeId, server: ServerId) {
        let mut heard = self.heard.lock();
        if heard.len() >= VOLUMES_MAX {
            heard.clear();
        }
        heard.insert((cell.clone(), volume), server);
    }

    /// In which order a server is asked: first who is known to have something new, last who was found behind.
    pub fn turn(&self, cell: &CellName, volume: VolumeId, server: ServerId) -> u8 {
        match self.is_behind(cell, volume, server) {
            true => 2,
            false => u8::from(self.heard.lock().get(&(cell.clone(), volume)) != Some(&server)),
        }
    }

    /// Whether a server was found lately to have an older one.
    pub fn is_behind(&self, cell: &CellName, volume: VolumeId, server: ServerId) -> bool {
        let last = self.last.lock();
        let behind = last.get(&(cell.clone(), volume)).map_or(&[][..], |release| &release.behind);
        behind.iter().any(|(behind, found)| *behind == server && found.elapsed() < BEHIND_TIME)
    }
}

/// Volumes of which that is remembered.
const VOLUMES_MAX: usize = 10_000;
/// How long a site that has an older release is asked after the others.
const BEHIND_TIME: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::wire::List;
    use crate::wire::status::StatusRow;
    use crate::wire::status::tests::{promise, status, volume_sync};

    const ONE: ServerId = ServerId::Address(std::net::IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)));
    const OTHER: ServerId = ServerId::Address(std::net::IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)));

    /// Goal: what an answer without the status of a file says of its volume does not count.
    #[test]
    fn only_who_tells_of_a_file_tells_of_a_release() {
        let sync = || VolumeSync { created_s: 7, ..volume_sync() };
        let several = |rows: Vec<StatusRow>| {
            Release::of_several(&BulkReply { rows: List(rows), promises: List(Vec::new()), sync: sync() })
        };
        assert_eq!(several(vec![StatusRow(Err(NO_VNODE)), StatusRow(Ok(status()))]), Release::Made(7));
        assert_eq!(several(vec![StatusRow(Err(NO_VNODE))]), Release::Without);
        assert_eq!(several(vec![StatusRow(Err(NO_VNODE)), StatusRow(Err(13))]), Release::Untold);
        let one = |sync| Release::of_one(&StatusReply { status: status(), promise: promise(), sync });
        assert_eq!(one(sync()), Release::Made(7));
        assert_eq!(one(VolumeSync { created_s: 0, ..volume_sync() }), Release::Untold);
    }

    /// Goal: the newest release counts until nobody has it any more, and who is behind is known until it is not.
    #[test]
    fn the_newest_counts() {
        let (releases, cell) = (Releases::default(), CellName::new(b"example.org").expect("a name"));
        let (volume, another) = (VolumeId(1), VolumeId(2));
        let is_outdated = |server, created_s| releases.is_outdated(&cell, volume, (server, created_s));
        let is_newer = |created_s| releases.is_newer(&cell, volume, created_s);
        assert!(!is_outdated(ONE, 10) && !is_newer(10), "the first");
        assert!(!is_newer(10) && is_newer(12));
        assert!(is_outdated(OTHER, 10) && !is_newer(10) && is_outdated(OTHER, 10) && !is_outdated(ONE, 12));
        assert!(releases.is_behind(&cell, volume, OTHER) && !releases.is_behind(&cell, volume, ONE));
        assert!(!releases.is_outdated(&cell, another, (OTHER, 10)), "another volume");
        assert!(!is_outdated(OTHER, 12) && !releases.is_behind(&cell, volume, OTHER), "it has followed");
        releases.heard_of(&cell, volume, OTHER);
        let turns = || [ONE, OTHER].map(|server| releases.turn(&cell, volume, server));
        assert_eq!(turns(), [1, 0], "who has something new is asked first");
        assert!(is_outdated(OTHER, 10));
        assert_eq!(turns(), [1, 2]);
        releases.went_back(&cell, volume, 10);
        assert!(!is_outdated(OTHER, 10) && is_newer(11));
    }
}
