//! How AFS names things: a volume has a number in its cell, a file has a fid.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use weft_rx::{Decoder, Encoder, XdrError};

use crate::wire::Xdr;

/// A volume's number, unique in its cell. A read-write volume, its read-only copy and its backup have one each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VolumeId(pub u32);

/// A file, directory or link: which volume, which place in it (`vnode`), and which of the things that have had that
/// place (`unique`). Another `unique` is another file. (OpenAFS `src/fsint/common.xg`, `AFSFid`.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fid {
    /// The volume.
    pub volume: VolumeId,
    /// The place in the volume: odd for directories, even for files and links.
    pub vnode: u32,
    /// Which of the things that have had this place.
    pub unique: u32,
}

/// Why some text is not a [`Fid`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFid {
    /// Not three parts.
    #[error("a fid is volume.vnode.unique")]
    Parts,
    /// A part is no number of 32 bits.
    #[error("a fid has three decimal numbers below 2^32: {0}")]
    Number(#[from] ParseIntError),
}

impl Fid {
    /// The root directory of a volume.
    #[must_use]
    pub const fn root_of(volume: VolumeId) -> Fid {
        Fid { volume, vnode: 1, unique: 1 }
    }

    /// Whether this is the root directory of its volume.
    #[must_use]
    pub const fn is_root(self) -> bool {
        self.vnode == 1 && self.unique == 1
    }

    /// Whether this is a directory: known without asking.
    #[must_use]
    pub const fn is_directory(self) -> bool {
        self.vnode % 2 == 1
    }

    /// Whether a callback that names this fid means the whole volume.
    #[must_use]
    pub const fn is_whole_volume(self) -> bool {
        self.vnode == 0
    }
}

impl Xdr for VolumeId {
    fn encode(&self, to: &mut Encoder) {
        to.u32(self.0);
    }

    fn decode(from: &mut Decoder<'_>) -> Result<VolumeId, XdrError> {
        from.u32().map(VolumeId)
    }
}

impl Xdr for Fid {
    fn encode(&self, to: &mut Encoder) {
        to.u32(self.volume.0).u32(self.vnode).u32(self.unique);
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Fid, XdrError> {
        Ok(Fid { volume: VolumeId::decode(from)?, vnode: from.u32()?, unique: from.u32()? })
    }
}

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for VolumeId {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<VolumeId, ParseIntError> {
        text.parse().map(VolumeId)
    }
}

/// `volume.vnode.unique` in decimal, as `fs getfid` prints it.
impl fmt::Display for Fid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.volume, self.vnode, self.unique)
    }
}

impl FromStr for Fid {
    type Err = BadFid;

    fn from_str(text: &str) -> Result<Fid, BadFid> {
        let mut parts = text.split('.');
        let (Some(volume), Some(vnode), Some(unique), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(BadFid::Parts);
        };
        Ok(Fid { volume: volume.parse()?, vnode: vnode.parse()?, unique: unique.parse()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_fid_leads_back_to_it() {
        let fid = Fid { volume: VolumeId(536_870_918), vnode: 42, unique: u32::MAX };
        assert_eq!(fid.to_string(), "536870918.42.4294967295");
        assert_eq!(fid.to_string().parse(), Ok(fid));
    }

    #[test]
    fn text_that_is_no_fid_is_refused() {
        for text in ["", "1", "1.2", "1.2.3.4"] {
            assert_eq!(text.parse::<Fid>(), Err(BadFid::Parts), "{text}");
        }
        for text in ["..", "1.2.", "1.2.x", "1.2.-3", "1.2.4294967296", " 1.2.3"] {
            assert!(matches!(text.parse::<Fid>(), Err(BadFid::Number(_))), "{text}");
        }
    }

    #[test]
    fn the_vnode_tells_what_it_is() {
        let volume = VolumeId(7);
        let root = Fid::root_of(volume);
        assert!(root.is_root() && root.is_directory() && !root.is_whole_volume());
        let file = Fid { volume, vnode: 2, unique: 1 };
        assert!(!file.is_root() && !file.is_directory());
        let later = Fid { volume, vnode: 1, unique: 2 };
        assert!(!later.is_root(), "another thing in the place of the root");
        assert!(Fid { volume, vnode: 0, unique: 0 }.is_whole_volume());
    }
}
