//! POSIX access lists: whether there are any, and what a directory's default one leaves of the mode of what is made in it.

use std::ffi::{CStr, OsStr};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{getxattr, lgetxattr};
use rustix::io::Errno;
use weft_remote::{ACCESS_LIST, Attributes, DEFAULT_ACCESS_LIST, FileKind, NewMode};

use crate::facts::Facts;
use crate::top::held;

/// What the contract is told of an open file that is this, with whether it has an access list.
pub(crate) fn attributes(fd: BorrowedFd<'_>, facts: &Facts) -> Attributes {
    Attributes { has_access_list: has_list(fd, facts.kind), ..facts.attributes() }
}

/// Whether an open file has an access list, or a default one; `None` where the kernel does not say. The descriptor may be one
/// that is open for no more than its path.
pub(crate) fn has_list(fd: BorrowedFd<'_>, kind: FileKind) -> Option<bool> {
    let path = held(&fd);
    told(kind, |name| getxattr(&path, name, &mut [0; 0][..]))
}

/// The same of what has a name in an open directory, and is itself none.
pub(crate) fn has_list_in(dir: BorrowedFd<'_>, name: &CStr, kind: FileKind) -> Option<bool> {
    let path = Path::new(&held(&dir)).join(OsStr::from_bytes(name.to_bytes()));
    told(kind, |name| lgetxattr(&path, name, &mut [0; 0][..]))
}

fn told(kind: FileKind, ask: impl Fn(&[u8]) -> rustix::io::Result<usize>) -> Option<bool> {
    let has = |name| match ask(name) {
        Ok(_) => Some(true),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Some(false),
        Err(_) => None,
    };
    match kind {
        FileKind::Symlink => Some(false),
        FileKind::Directory => Some(has(ACCESS_LIST)? || has(DEFAULT_ACCESS_LIST)?),
        _ => has(ACCESS_LIST),
    }
}

/// The mode that something new in a directory gets: what is asked for, as far as the directory's default access list allows
/// it, or where there is none the umask (acl(5), "Object creation and default ACLs"). The directory's descriptor may be one that
/// is open for no more than its path.
pub(crate) fn mode_in(dir: BorrowedFd<'_>, mode: NewMode) -> rustix::io::Result<u16> {
    let mut list = Vec::with_capacity(LIST_BYTES_MAX);
    match getxattr(held(&dir), DEFAULT_ACCESS_LIST, rustix::buffer::spare_capacity(&mut list)) {
        Ok(_) => Ok(allowed_by(&list).map_or(mode.masked(), |allowed| mode.asked & (allowed | !0o777))),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(mode.masked()),
        Err(errno) => Err(errno),
    }
}

/// The permission bits that stand for an access list in a mode: those of the owner, of the mask or else of the group, and of
/// others. `None` for what is no access list (linux/posix_acl_xattr.h: a version, then a tag, bits and an id each).
fn allowed_by(list: &[u8]) -> Option<u16> {
    let (version, entries) = list.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*version) != VERSION || !entries.len().is_multiple_of(ENTRY_BYTES) {
        return None;
    }
    let bits_of = |wanted: u16| {
        entries.chunks_exact(ENTRY_BYTES).find_map(|entry| {
            let (tag, bits) = (u16::from_le_bytes([entry[0], entry[1]]), u16::from_le_bytes([entry[2], entry[3]]));
            (tag == wanted).then_some(bits & 0o7)
        })
    };
    let group = bits_of(MASK).or_else(|| bits_of(GROUP))?;
    Some(bits_of(OWNER)? << 6 | group << 3 | bits_of(OTHERS)?)
}

/// Tags and version of linux/posix_acl.h and linux/posix_acl_xattr.h.
const VERSION: u32 = 2;
const OWNER: u16 = 0x01;
const GROUP: u16 = 0x04;
const MASK: u16 = 0x10;
const OTHERS: u16 = 0x20;
const ENTRY_BYTES: usize = 8;
/// Longest value of an attribute (limits.h: XATTR_SIZE_MAX).
const LIST_BYTES_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for (tag, bits, id) in entries {
            bytes.extend([tag.to_le_bytes(), bits.to_le_bytes()].concat());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn the_mask_stands_for_the_group_and_what_is_no_list_for_nothing() {
        let none = u32::MAX;
        let short = list(&[(OWNER, 7, none), (GROUP, 5, none), (OTHERS, 0, none)]);
        assert_eq!(allowed_by(&short), Some(0o750));
        let named = list(&[(OWNER, 6, none), (2, 7, 1000), (GROUP, 0, none), (MASK, 6, none), (OTHERS, 4, none)]);
        assert_eq!(allowed_by(&named), Some(0o664));
        for broken in [&[][..], &short[..3], &short[..short.len() - 1], &short[..12], &[9; 28]] {
            assert_eq!(allowed_by(broken), None, "{broken:?}");
        }
    }
}
