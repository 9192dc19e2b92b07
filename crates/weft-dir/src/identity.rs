//! Identities: which file, whatever its names are.

use weft_remote::{FileId, Neighbourhood};
use xxhash_rust::xxh3::xxh3_64;

/// One file for as long as it exists: its inode with the time when that came to be, so that a file which gets the
/// inode of a removed one is another. On a file system that keeps no such time, or tells another one when the file is
/// written (overlayfs), the inode alone says which it is.
///
/// Format: nothing for the top; otherwise the byte 1, the inode and the time of birth in nanoseconds since 1970 (both
/// of 8 bytes, the low one first), and, where the file lies on another device than the top (a subvolume, whose inodes
/// have the same numbers), the device in 4 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    inode: u64,
    /// 0 where it is not known. It wraps: only sameness matters.
    born: u64,
    /// 0 for that of the top.
    device: u32,
}

/// A hash of an identity: small, to be held in numbers. Two files may have the same one, so whoever opens what was found
/// by it looks at the whole identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key(u64);

impl Identity {
    /// The top, wherever it is.
    pub const TOP: Identity = Identity { inode: 0, born: 0, device: 0 };

    pub fn new(inode: u64, born: u64, device: u32) -> Identity {
        Identity { inode, born, device }
    }

    /// The identity that these bytes are; `None` for bytes that this kind never gives out.
    pub fn of(file: &FileId) -> Option<Identity> {
        let bytes = file.as_bytes();
        if bytes.is_empty() {
            return Some(Identity::TOP);
        }
        let (format, rest) = bytes.split_first()?;
        let (inode, rest) = rest.split_first_chunk::<8>()?;
        let (born, rest) = rest.split_first_chunk::<8>()?;
        let device = match rest {
            [] => 0,
            rest => u32::from_le_bytes(rest.try_into().ok()?),
        };
        let identity = Identity::new(u64::from_le_bytes(*inode), u64::from_le_bytes(*born), device);
        // One identity has one form.
        (*format == FORMAT && identity.file_id() == *file).then_some(identity)
    }

    /// As the contract has it.
    pub fn file_id(self) -> FileId {
        if self == Identity::TOP {
            return FileId::new(b"");
        }
        let mut bytes = Vec::with_capacity(BYTES_MAX);
        bytes.push(FORMAT);
        bytes.extend(self.inode.to_le_bytes());
        bytes.extend(self.born.to_le_bytes());
        if self.device != 0 {
            bytes.extend(self.device.to_le_bytes());
        }
        FileId::new(bytes)
    }

    /// File systems give the files of a directory inodes that follow each other, where they can.
    pub fn neighbourhood(self) -> Neighbourhood {
        let [position, ..] = self.inode.to_le_bytes();
        Neighbourhood { area: self.inode >> u8::BITS ^ u64::from(self.device).rotate_left(32), position }
    }

    pub fn key(self) -> Key {
        if self == Identity::TOP {
            return Key::TOP;
        }
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&self.inode.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.born.to_le_bytes());
        bytes[16..].copy_from_slice(&self.device.to_le_bytes());
        Key(xxh3_64(&bytes).max(1))
    }
}

impl Key {
    /// The top.
    pub const TOP: Key = Key(0);
}

const FORMAT: u8 = 1;
/// The longest form.
const BYTES_MAX: usize = 21;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_become_bytes_and_back() {
        for (inode, born, device) in [(1, 0, 0), (2, 3, 0), (u64::MAX, u64::MAX, 1), (7, 1 << 60, u32::MAX)] {
            let identity = Identity::new(inode, born, device);
            assert_eq!(Identity::of(&identity.file_id()), Some(identity));
            assert_ne!(identity.key(), Key::TOP);
        }
        assert_eq!(Identity::of(&FileId::new(b"")), Some(Identity::TOP));
        assert_eq!(Identity::TOP.file_id(), FileId::new(b""));
        assert_eq!(Identity::TOP.key(), Key::TOP);
    }

    #[test]
    fn bytes_that_were_never_given_out_are_no_identity() {
        let good = Identity::new(5, 6, 7).file_id();
        let good = good.as_bytes();
        for length in (1..good.len()).filter(|length| *length != 17) {
            assert_eq!(Identity::of(&FileId::new(&good[..length])), None, "{length}");
        }
        assert_eq!(Identity::of(&FileId::new([good, b"x"].concat())), None);
        assert_eq!(Identity::of(&FileId::new([&[2], &good[1..]].concat())), None);
        assert_eq!(Identity::of(&FileId::new([&good[..17], &[0; 4]].concat())), None, "another form of the same");
        assert_eq!(Identity::of(&FileId::new(b"docs/readme")), None, "a path");
        assert_eq!(Identity::of(&FileId::new([[1].as_slice(), &[0; 16]].concat())), None, "another form of the top");
    }
}
