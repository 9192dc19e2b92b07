//! Extended attributes: those of users (`user.`), and access lists. The others belong to this machine: what they allow here,
//! they must not allow to whoever is shown the file elsewhere.

use rustix::io::Errno;
use weft_remote::{FileId, FileKind, RemoteError, Result, is_access_list};

use crate::directory::Shared;
use crate::error::failed;
use crate::resolve::At;
use crate::top::held;

impl Shared {
    /// The value of an attribute, if the file has it.
    ///
    /// # Errors
    /// `Unsupported` for other attributes than the user's and access lists.
    pub fn extended(&self, file: &FileId, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.usable()?;
        let at = self.find(file)?;
        if !is_shown(name) {
            let detail = format!("{}: the attribute {}: {NOWHERE}", self.top.shown(&at.path), name.escape_ascii());
            return Err(RemoteError::Unsupported { detail });
        }
        if !may_have(&at, name) {
            return Ok(None);
        }
        let mut value = Vec::with_capacity(BYTES_MAX);
        match rustix::fs::getxattr(held(&at.fd), name, rustix::buffer::spare_capacity(&mut value)) {
            Ok(_) => Ok(Some(value)),
            Err(Errno::NODATA) => Ok(None),
            Err(Errno::OPNOTSUPP) if is_access_list(name) => Ok(None),
            Err(errno) => Err(failed(&self.top.shown(&at.path), "getxattr", errno)),
        }
    }

    /// The names of a file's attributes.
    ///
    /// # Errors
    /// `Unsupported` where the file system has none.
    pub fn extended_names(&self, file: &FileId) -> Result<Vec<Vec<u8>>> {
        self.usable()?;
        let at = self.find(file)?;
        if at.facts.kind == FileKind::Symlink {
            return Ok(Vec::new());
        }
        let mut names = Vec::with_capacity(BYTES_MAX);
        let told = rustix::fs::listxattr(held(&at.fd), rustix::buffer::spare_capacity(&mut names));
        told.map_err(|errno| failed(&self.top.shown(&at.path), "listxattr", errno))?;
        let is_one = |name: &&[u8]| is_shown(name) && may_have(&at, name);
        Ok(names.split(|byte| *byte == 0).filter(is_one).map(<[u8]>::to_vec).collect())
    }
}

/// Whether an attribute is one that is shown and set.
pub(crate) fn is_shown(name: &[u8]) -> bool {
    name.strip_prefix(b"user.").is_some_and(|rest| !rest.is_empty()) || is_access_list(name)
}

/// Links have no attributes that are shown, and special files none of users.
pub(crate) fn may_have(at: &At, name: &[u8]) -> bool {
    match at.facts.kind {
        FileKind::File | FileKind::Directory => true,
        FileKind::Symlink => false,
        _ => is_access_list(name),
    }
}

/// Why an attribute is neither shown nor set.
pub(crate) const NOWHERE: &str =
    "only user attributes (user.) of files and directories, and access lists, are shown and set";
/// Longest value, and longest list of names, that the kernel has (limits.h: XATTR_SIZE_MAX, XATTR_LIST_MAX).
const BYTES_MAX: usize = 65_536;
