//! What a file of the tree is named by, for as long as it exists.
//!
//! A volume may be mounted in several places, and a directory has one place in a Linux tree; so an identity says also on
//! which way the volume was entered. Things of one volume that were reached on two ways are two files to the kernel.

use std::hash::Hasher;

use weft_remote::{FileId, Neighbourhood};
use xxhash_rust::xxh3::Xxh3Default;

use crate::cell::CellName;
use crate::fid::{Fid, VolumeId};

/// What a file is, across restarts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Identity {
    /// The directory of cells.
    Top,
    /// A cell in it: it leads to the cell's volume `root.cell`.
    Cell {
        /// Which.
        cell: CellName,
        /// To the read-write volume (`.cell`).
        writable: bool,
    },
    /// A mount point: a directory that leads to the root of another volume.
    Mount(Spot),
    /// Anything else in a volume.
    File(Spot),
}

/// Something in a volume.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Spot {
    /// The cell that the volume is of.
    pub cell: CellName,
    /// What it is there.
    pub fid: Fid,
    /// The way on which the volume was entered.
    pub way: Way,
}

/// A way into a volume: through which mount points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Way {
    /// Of the identity of the last mount point.
    hash: u64,
    /// How many mount points it has.
    pub depth: u8,
}

impl Identity {
    /// As the contract has it. One byte says what it is; of what lies in a volume the way (depth, hash) and the fid follow,
    /// big-endian; the cell's name ends it.
    pub fn file_id(&self) -> FileId {
        match self {
            Identity::Top => FileId::new([TOP]),
            Identity::Cell { cell, writable } => {
                FileId::new([&[if *writable { WRITABLE_CELL } else { CELL }][..], cell.as_str().as_bytes()].concat())
            }
            Identity::Mount(spot) => spot.file_id(MOUNT),
            Identity::File(spot) => spot.file_id(FILE),
        }
    }

    /// What an identity of this kind is; `None` for any other bytes.
    pub fn of(file: &FileId) -> Option<Identity> {
        let (what, rest) = file.as_bytes().split_first()?;
        let cell = |bytes: &[u8]| CellName::new(bytes).ok();
        Some(match *what {
            TOP if rest.is_empty() => Identity::Top,
            CELL | WRITABLE_CELL => Identity::Cell { cell: cell(rest)?, writable: *what == WRITABLE_CELL },
            MOUNT => Identity::Mount(Spot::of(rest)?),
            FILE => Identity::File(Spot::of(rest)?),
            _ => return None,
        })
    }

    /// The way into the volume that a mount point or cell leads to.
    pub fn way_in(&self) -> Way {
        let mut hasher = Xxh3Default::new();
        hasher.write(self.file_id().as_bytes());
        let depth = match self {
            Identity::Top | Identity::Cell { .. } => 0,
            Identity::Mount(spot) | Identity::File(spot) => spot.way.depth,
        };
        Way { hash: hasher.finish(), depth: depth.saturating_add(1) }
    }
}

impl Spot {
    fn file_id(&self, what: u8) -> FileId {
        let mut bytes = Vec::with_capacity(NUMBERS_BYTES + self.cell.as_str().len());
        bytes.extend_from_slice(&[what, self.way.depth]);
        bytes.extend_from_slice(&self.way.hash.to_be_bytes());
        for part in [self.fid.volume.0, self.fid.vnode, self.fid.unique] {
            bytes.extend_from_slice(&part.to_be_bytes());
        }
        bytes.extend_from_slice(self.cell.as_str().as_bytes());
        FileId::new(bytes)
    }

    fn of(bytes: &[u8]) -> Option<Spot> {
        let (depth, rest) = bytes.split_first()?;
        let (hash, rest) = rest.split_first_chunk::<8>()?;
        let (volume, rest) = rest.split_first_chunk::<4>()?;
        let (vnode, rest) = rest.split_first_chunk::<4>()?;
        let (unique, rest) = rest.split_first_chunk::<4>()?;
        let cell = CellName::new(rest).ok()?;
        let volume = VolumeId(u32::from_be_bytes(*volume));
        let fid = Fid { volume, vnode: u32::from_be_bytes(*vnode), unique: u32::from_be_bytes(*unique) };
        Some(Spot { cell, fid, way: Way { hash: u64::from_be_bytes(*hash), depth: *depth } })
    }

    /// File servers give out the vnodes of a volume in the order in which files are made, even ones to files and odd ones to
    /// directories (OpenAFS `src/vol/vnode.h`, `vnodeIdToBitNumber`).
    pub fn neighbourhood(&self) -> Neighbourhood {
        let Fid { volume, vnode, .. } = self.fid;
        let [position, ..] = (vnode >> 1).to_le_bytes();
        let of_volume = self.way.hash ^ u64::from(volume.0).rotate_left(32);
        Neighbourhood { area: of_volume ^ u64::from(vnode >> 9 << 1 | vnode & 1), position }
    }

    /// Something else in the same volume, reached on the same way.
    pub fn beside(&self, fid: Fid) -> Spot {
        Spot { cell: self.cell.clone(), fid, way: self.way }
    }
}

/// First bytes of identities.
const TOP: u8 = b't';
const CELL: u8 = b'c';
const WRITABLE_CELL: u8 = b'w';
const MOUNT: u8 = b'm';
const FILE: u8 = b'f';
/// What an identity begins with, before the cell: what it is, the way, and the fid.
const NUMBERS_BYTES: usize = 22;

#[cfg(test)]
mod tests {
    use super::*;

    fn spot() -> Spot {
        let cell = CellName::new(b"example.org").expect("a name");
        let way = Identity::Cell { cell: cell.clone(), writable: false }.way_in();
        Spot { cell, fid: Fid { volume: VolumeId(536_870_918), vnode: 3, unique: 99 }, way }
    }

    #[test]
    fn identities_are_read_as_they_were_written() {
        let cell = spot().cell;
        for identity in [
            Identity::Top,
            Identity::Cell { cell: cell.clone(), writable: false },
            Identity::Cell { cell, writable: true },
            Identity::Mount(spot()),
            Identity::File(spot()),
        ] {
            let file = identity.file_id();
            assert_eq!(Identity::of(&file), Some(identity));
            for end in 0..file.as_bytes().len() {
                let cut = Identity::of(&FileId::new(&file.as_bytes()[..end]));
                assert!(cut.is_none_or(|cut| cut.file_id() != file), "cut at {end}");
            }
        }
        assert_eq!(Identity::of(&FileId::new(b"")), None);
        assert_eq!(Identity::of(&FileId::new(b"?x")), None);
    }

    #[test]
    fn a_volume_that_is_entered_on_two_ways_is_two_trees() {
        let one = Identity::Mount(spot());
        let other = Identity::Mount(Spot { fid: Fid { vnode: 5, ..spot().fid }, ..spot() });
        assert_ne!(one.way_in(), other.way_in());
        assert_eq!((one.way_in(), one.way_in().depth), (one.way_in(), 2));
    }
}
