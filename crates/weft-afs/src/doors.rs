//! Where cells and mount points lead: to the root of which volume.

use std::time::Instant;

use weft_remote::{Call, RemoteError, Result};

use crate::afs::Shared;
use crate::cell::CellName;
use crate::fid::Fid;
use crate::identity::{Identity, Spot};
use crate::look::{damaged, shown};
use crate::mount_point::{Crossing, MOUNT_POINT_BYTES_MAX, MountKind, MountPoint, MountPointError, MountedVolume};
use crate::releases::Release;
use crate::volume_name::{VolumeName, VolumeType};
use crate::wire::fileserver::FetchData64;

/// Where a door was found to lead.
#[derive(Clone, Debug)]
pub(crate) struct Led {
    /// The root of the volume.
    pub root: Spot,
    /// What the mount point says, in its own words.
    pub words: String,
    /// What the database was asked for.
    asked: String,
    until: Instant,
}

impl Shared {
    /// The directory in a volume that an identity stands for.
    ///
    /// # Errors
    /// `NotADirectory` for a file; for cells and mount points, what keeps the volume from being found.
    pub async fn inside(&self, call: &Call, identity: &Identity) -> Result<Spot> {
        match identity {
            Identity::File(spot) if spot.fid.is_directory() => Ok(spot.clone()),
            Identity::File(spot) => Err(RemoteError::NotADirectory { detail: shown(spot) }),
            Identity::Cell { .. } | Identity::Mount(_) => Ok(self.led(call, identity).await?.root),
            Identity::Top => Err(RemoteError::Invalid { detail: "the directory of cells is in no cell".to_owned() }),
        }
    }

    /// Where a cell or mount point was found to lead when that was needed last.
    pub fn led_before(&self, door: &Identity) -> Option<Led> {
        self.doors.lock().get(door).cloned()
    }

    /// What servers say of mount points ends what was read of them.
    pub fn forget_doors(&self, cell: &CellName, fids: &[Fid]) {
        let named = |spot: &Spot| {
            spot.cell == *cell
                && fids.iter().any(|fid| *fid == spot.fid || fid.is_whole_volume() && fid.volume == spot.fid.volume)
        };
        self.doors.lock().retain(|door, _| !matches!(door, Identity::Mount(spot) if named(spot)));
    }

    /// Has all of it found out anew at the next use.
    pub fn forget_all_doors(&self) {
        self.doors.lock().clear();
    }

    async fn led(&self, call: &Call, door: &Identity) -> Result<Led> {
        let counts = |led: &Led| led.until > Instant::now() && self.files.vldb.has(&led.root.cell, &led.asked);
        if let Some(led) = self.led_before(door).filter(counts) {
            return Ok(led);
        }
        let (own, cell, mount) = match door {
            Identity::Cell { cell, writable } => {
                // As from the read-only root of all cells.
                let own = if *writable { VolumeType::ReadWrite } else { VolumeType::ReadOnly };
                (own, cell.clone(), mount_of_cell(*writable))
            }
            Identity::Mount(spot) => {
                (self.copy_of(call, spot).await?, spot.cell.clone(), self.mount(call, spot).await?)
            }
            Identity::Top | Identity::File(_) => {
                return Err(RemoteError::Invalid { detail: "neither a cell nor a mount point".to_owned() });
            }
        };
        let target = mount.cell.clone().unwrap_or_else(|| cell.clone());
        let crossing = if target == cell { Crossing::SameCell } else { Crossing::OtherCell };
        let way = door.way_in();
        if way.depth > DEPTH_MAX {
            let detail = format!("{target}: {}: volumes are mounted in each other more than {DEPTH_MAX} deep", mount);
            return Err(RemoteError::Loop { detail });
        }
        let asked = mount.asked();
        let vldb = &self.files.vldb;
        let volume = vldb.find(call, &target, &asked).await?;
        let chosen = match mount.choose(own, crossing, &volume.entry) {
            // It may have been made since that was asked.
            Err(MountPointError::NoSuchCopy) => {
                mount.choose(own, crossing, &vldb.ask(call, &target, &asked).await?.entry)
            }
            chosen => chosen,
        };
        let (_, id) = chosen
            .map_err(|error| RemoteError::NotFound { detail: format!("{target}: mount point {mount}: {error}") })?;
        let root = Spot { cell: target, fid: mount.target(id), way };
        self.promises.note_door(door, &root.cell, root.fid);
        let led = Led { root, words: mount.to_string(), asked, until: Instant::now() + self.options.volume_time };
        let mut doors = self.doors.lock();
        if doors.len() >= DOORS_MAX {
            doors.clear();
        }
        doors.insert(door.clone(), led.clone());
        Ok(led)
    }

    /// Which copy of its volume something is in.
    async fn copy_of(&self, call: &Call, spot: &Spot) -> Result<VolumeType> {
        let volume = self.files.vldb.by_id(call, &spot.cell, spot.fid.volume).await?;
        Ok(volume.entry.kind_of(spot.fid.volume).unwrap_or(VolumeType::ReadWrite))
    }

    /// What a mount point says.
    pub async fn mount(&self, call: &Call, spot: &Spot) -> Result<MountPoint> {
        let ticket = self.promises.ticket();
        let question = FetchData64 { fid: spot.fid, position: 0, length: MOUNT_POINT_BYTES_MAX as i64 };
        let (reply, server) = self.ask_newest(call, spot, &question, Release::of_content).await?;
        // Whoever changes it ends what follows from it.
        self.promises.enter(ticket, server, spot, reply.end.promise);
        if !reply.end.status.is_mount_point() {
            let detail = format!("{}: it is no mount point any more; look its name up again", shown(spot));
            return Err(RemoteError::NotADirectory { detail });
        }
        MountPoint::read(&reply.bytes).map_err(|error| damaged(spot, &error))
    }
}

/// What the name of a cell in the directory of cells is a mount point for.
pub(crate) fn mount_of_cell(writable: bool) -> MountPoint {
    let kind = if writable { MountKind::ReadWrite } else { MountKind::Regular };
    let volume = MountedVolume::Name(VolumeName::new(ROOT_CELL).expect("a fixed name"));
    MountPoint { kind, cell: None, volume }
}

/// The volume that a cell's tree begins with.
const ROOT_CELL: &[u8] = b"root.cell";
/// Most volumes on one way, so that those that are mounted in each other come to an end.
const DEPTH_MAX: u8 = 40;
/// Cells and mount points of which it is remembered where they lead.
const DOORS_MAX: usize = 10_000;
