//! Mount points: links of AFS that lead to a volume.
//!
//! A mount point is a symbolic link that nobody may execute. Its content is `#` or `%`, the name of a cell and `:` if
//! it leads to another one, the name or number of a volume, `:vnode:unique` if it leads elsewhere than to the
//! volume's root (only after a number), and a dot at the end. (OpenAFS `src/afs/VNOPS/afs_vnop_lookup.c`,
//! `EvalMountData`.)
//!
//! Which copy of the volume that is, [`MountPoint::choose`] says:
//!
//! * A name with an ending, or after `#` the number of a read-only or backup volume, is that one, and after `%` so is
//!   any number.
//! * Another `%` is the read-write volume.
//! * Another `#` is the read-only volume, if the mount point is in one or leads to another cell, and if there is a
//!   read-only volume. Else it is the read-write volume. So a way that began in a read-only volume goes on in read-only
//!   ones, as far as there are any.
//! * From a backup no way leads into a backup.

use std::fmt;

use crate::cell::{BadCellName, CellName};
use crate::fid::{Fid, VolumeId};
use crate::volume_name::{BadVolumeName, VolumeName, VolumeType};
use crate::wire::vl::Entry;

/// Mode bits of a link that is a mount point.
pub const MOUNT_POINT_MODE: u32 = 0o644;
/// Longest content of a mount point, in bytes.
pub const MOUNT_POINT_BYTES_MAX: usize = 1024;

/// Where a mount point leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountPoint {
    /// Whether it may lead to a read-only volume.
    pub kind: MountKind,
    /// The cell, if it is named.
    pub cell: Option<CellName>,
    /// The volume.
    pub volume: MountedVolume,
}

/// What a mount point begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountKind {
    /// `#`.
    Regular,
    /// `%`.
    ReadWrite,
}

/// The volume that a mount point names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountedVolume {
    /// By name.
    Name(VolumeName),
    /// By number.
    Number {
        /// The number.
        volume: VolumeId,
        /// Vnode and uniquifier of what is shown there, if it is not the volume's root.
        place: Option<(u32, u32)>,
    },
}

/// The cell that a mount point leads to, seen from its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crossing {
    /// The same.
    SameCell,
    /// Another.
    OtherCell,
}

/// Why a mount point leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MountPointError {
    /// It begins with neither `#` nor `%`.
    #[error("a mount point begins with # or %")]
    Kind,
    /// It does not end in a dot, so it is not whole.
    #[error("a mount point ends in a dot")]
    End,
    /// It is longer than [`MOUNT_POINT_BYTES_MAX`] bytes.
    #[error("a mount point has at most {MOUNT_POINT_BYTES_MAX} bytes")]
    TooLong,
    /// The cell has no name that a cell can have.
    #[error(transparent)]
    Cell(#[from] BadCellName),
    /// The volume has no name that a volume can have.
    #[error(transparent)]
    Volume(#[from] BadVolumeName),
    /// The number of the volume, or what follows it, is no number.
    #[error("a volume's number, its vnode and uniquifier are decimal numbers above 0 and below 2^32")]
    Number,
    /// A place in a volume is named, and no cell: nobody would read it so.
    #[error("a mount point that leads into a volume names the cell too")]
    PlaceWithoutCell,
    /// The cell has the volume, but not the copy that is meant.
    #[error("the volume has no such copy")]
    NoSuchCopy,
    /// It leads from a backup into a backup.
    #[error("from a backup no way leads into a backup")]
    BackupInBackup,
}

impl MountPoint {
    /// Reads the content of a mount point.
    ///
    /// # Errors
    /// What of [`MountPointError`] its bytes deserve.
    pub fn read(content: &[u8]) -> Result<MountPoint, MountPointError> {
        if content.len() > MOUNT_POINT_BYTES_MAX {
            return Err(MountPointError::TooLong);
        }
        let (kind, rest) = match content {
            [b'#', rest @ ..] => (MountKind::Regular, rest),
            [b'%', rest @ ..] => (MountKind::ReadWrite, rest),
            _ => return Err(MountPointError::Kind),
        };
        let rest = rest.strip_suffix(b".").ok_or(MountPointError::End)?;
        let parts: Vec<&[u8]> = rest.split(|byte| *byte == b':').collect();
        let (cell, volume, place) = match parts[..] {
            [volume] => (None, volume, None),
            [cell, volume] => (Some(cell), volume, None),
            [cell, volume, vnode, unique] => (Some(cell), volume, Some((number(vnode)?, number(unique)?))),
            _ => return Err(MountPointError::Number),
        };
        let cell = cell.map(CellName::new).transpose()?;
        let volume = match (VolumeName::new(volume), place) {
            (Err(BadVolumeName::Number), place) => MountedVolume::Number { volume: VolumeId(number(volume)?), place },
            (Ok(_), Some(_)) => return Err(MountPointError::Number),
            (name, None) => MountedVolume::Name(name?),
            (Err(error), Some(_)) => return Err(error.into()),
        };
        Ok(MountPoint { kind, cell, volume })
    }

    /// The content of the link that is this mount point.
    ///
    /// # Errors
    /// `PlaceWithoutCell`.
    pub fn write(&self) -> Result<Vec<u8>, MountPointError> {
        match (&self.cell, &self.volume) {
            (None, MountedVolume::Number { place: Some(_), .. }) => Err(MountPointError::PlaceWithoutCell),
            _ => Ok(self.to_string().into_bytes()),
        }
    }

    /// What the VLDB is asked for: the name of the volume, or its number in digits.
    #[must_use]
    pub fn asked(&self) -> String {
        match &self.volume {
            MountedVolume::Name(name) => name.to_string(),
            MountedVolume::Number { volume, .. } => volume.to_string(),
        }
    }

    /// The copy that is shown there. `own` is the copy of the volume that the mount point is in, `entry` what the
    /// VLDB has for [`Self::asked`].
    ///
    /// # Errors
    /// `NoSuchCopy`, `BackupInBackup`.
    pub fn choose(
        &self,
        own: VolumeType,
        crossing: Crossing,
        entry: &Entry,
    ) -> Result<(VolumeType, VolumeId), MountPointError> {
        let read_only_way = own == VolumeType::ReadOnly || crossing == Crossing::OtherCell;
        let copy = match self.named_copy(entry) {
            Some(kind) => kind,
            None if self.kind == MountKind::ReadWrite => VolumeType::ReadWrite,
            None if read_only_way && entry.volume(VolumeType::ReadOnly).is_some() => VolumeType::ReadOnly,
            None => VolumeType::ReadWrite,
        };
        if own == VolumeType::Backup && copy == VolumeType::Backup {
            return Err(MountPointError::BackupInBackup);
        }
        entry.volume(copy).map(|volume| (copy, volume)).ok_or(MountPointError::NoSuchCopy)
    }

    /// The directory that is shown there, in the volume that was chosen.
    #[must_use]
    pub fn target(&self, volume: VolumeId) -> Fid {
        match self.volume {
            MountedVolume::Number { place: Some((vnode, unique)), .. } => Fid { volume, vnode, unique },
            _ => Fid::root_of(volume),
        }
    }

    /// The copy that the mount point itself names.
    fn named_copy(&self, entry: &Entry) -> Option<VolumeType> {
        match &self.volume {
            MountedVolume::Name(name) => name.ending(),
            MountedVolume::Number { volume, .. } => entry
                .kind_of(*volume)
                .filter(|kind| self.kind == MountKind::ReadWrite || *kind != VolumeType::ReadWrite),
        }
    }
}

/// Its content.
impl fmt::Display for MountPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            MountKind::Regular => '#',
            MountKind::ReadWrite => '%',
        };
        write!(f, "{kind}")?;
        if let Some(cell) = &self.cell {
            write!(f, "{cell}:")?;
        }
        match &self.volume {
            MountedVolume::Name(name) => write!(f, "{name}."),
            MountedVolume::Number { volume, place: Some((vnode, unique)) } => write!(f, "{volume}:{vnode}:{unique}."),
            MountedVolume::Number { volume, place: None } => write!(f, "{volume}."),
        }
    }
}

/// A number above 0.
fn number(digits: &[u8]) -> Result<u32, MountPointError> {
    let text = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    text.and_then(|text| text.parse().ok()).filter(|number| *number != 0).ok_or(MountPointError::Number)
}

#[cfg(test)]
#[path = "mount_point_tests.rs"]
mod tests;
