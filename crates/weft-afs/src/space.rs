//! How full volumes are: their quota, and what is left of the disk that they lie on.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use weft_remote::{Call, Result, Space};

use crate::afs::Shared;
use crate::cell::CellName;
use crate::fid::VolumeId;
use crate::identity::Identity;
use crate::wire::fileserver::GetVolumeStatus;
use crate::wire::status::VolumeStatus;

/// What was told lately, and to which user. Held for one look or one change.
pub(crate) type Spaces = Mutex<HashMap<(CellName, VolumeId, u32), (Instant, Space)>>;

impl Shared {
    /// How full the volume of a file is, at most a few seconds old; none for the directory of cells.
    ///
    /// # Errors
    /// What keeps the volume's server from answering; `Denied` for those who may not read the root of the volume.
    pub async fn space(&self, call: &Call, of: &Identity) -> Result<Option<Space>> {
        let root = match of {
            Identity::Top => return Ok(None),
            Identity::Cell { .. } | Identity::Mount(_) => self.inside(call, of).await?,
            Identity::File(spot) => spot.clone(),
        };
        let (cell, volume) = (root.cell, root.fid.volume);
        let key = (cell.clone(), volume, call.caller.uid);
        let held = self.spaces.lock().get(&key).copied();
        if let Some((_, space)) = held.filter(|(asked, _)| asked.elapsed() < SPACE_AGE_MAX) {
            return Ok(Some(space));
        }
        let what = format!("how full volume {volume} of {cell} is");
        let (reply, _) = self.files.ask(call, (&cell, volume), &what, &GetVolumeStatus { volume }).await?;
        let space = space_of(&reply.status);
        let mut spaces = self.spaces.lock();
        if spaces.len() >= SPACES_MAX {
            spaces.clear();
        }
        spaces.insert(key, (Instant::now(), space));
        Ok(Some(space))
    }
}

/// The quota, or the partition where there is none; of either no more is free than of both.
fn space_of(status: &VolumeStatus) -> Space {
    let bytes = |kib: i32| u64::try_from(kib).unwrap_or(0) << 10;
    let (partition, left) = (bytes(status.partition_kib), bytes(status.partition_free_kib));
    let (quota, used) = (bytes(status.quota_max_kib), bytes(status.used_kib));
    match quota {
        0 => Space::of_bytes(partition, left.min(partition)),
        quota => Space::of_bytes(quota, quota.saturating_sub(used).min(left)),
    }
}

/// How long figures serve: `df` and file managers ask often.
const SPACE_AGE_MAX: Duration = Duration::from_secs(3);
/// Volumes of which they are kept.
const SPACES_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::status::Char;

    #[test]
    fn the_quota_and_the_partition_both_count() {
        let status = |quota_max_kib, used_kib, partition_free_kib| VolumeStatus {
            volume: VolumeId(1),
            parent: VolumeId(1),
            online: Char(1),
            in_service: Char(1),
            blessed: Char(1),
            needs_salvage: Char(0),
            kind: 1,
            quota_min_kib: 0,
            quota_max_kib,
            used_kib,
            partition_free_kib,
            partition_kib: 1000,
        };
        let space = |total: u64, free: u64| Space::of_bytes(total << 10, free << 10);
        assert_eq!(space_of(&status(100, 30, 900)), space(100, 70));
        assert_eq!(space_of(&status(100, 30, 20)), space(100, 20), "the disk is fuller than the volume");
        assert_eq!(space_of(&status(100, 130, 900)), space(100, 0), "over its quota");
        assert_eq!(space_of(&status(0, 30, 900)), space(1000, 900), "no quota");
        assert_eq!(space_of(&status(0, 30, 2000)), space(1000, 1000), "figures that do not fit");
        assert_eq!(space_of(&status(-1, -1, -1)), space(1000, 0), "figures of no sense");
    }
}
