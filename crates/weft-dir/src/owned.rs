//! Who may write a file: asked when it is opened, and files that whoever opened them may write and we may not.
//!
//! Whether a file may be written is asked when it is opened: who made it without that right, or took the right away later,
//! writes on (open(2): "the mode ... only applies to future accesses of the newly created file"). What is written comes here
//! long after the open, and an ordinary user's daemon is refused then. NFS has the same: "the server should allow the owner
//! of the file to access it no matter what the permission setting" (RFC 1813 section 4.4).

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, StatxAttributes, StatxFlags, accessat, statx};
use rustix::io::Errno;
use weft_remote::{FileId, FileKind, Result};

use crate::copy::reopen;
use crate::create::is_our_own;
use crate::directory::Shared;
use crate::error::failed;
use crate::facts::{SHOWN_MODE, facts};
use crate::resolve::At;
use crate::top::held;

impl Shared {
    /// Refuses who opens a file to write it where that could not be written: its file system is read-only, it is immutable, or
    /// can only be appended to (ioctl_iflags(2)), or is another's.
    ///
    /// # Errors
    /// `ReadOnly`, `NotPermitted`, `Denied`; whatever keeps the file from being found.
    pub(crate) fn may_write(&self, file: &FileId, appends: bool) -> Result<()> {
        self.usable()?;
        let at = self.find(file)?;
        if at.facts.kind != FileKind::File {
            return Ok(());
        }
        let said = |errno| failed(&self.top.shown(&at.path), "open for writing", errno);
        match accessat(CWD, held(&at.fd), Access::WRITE_OK, AtFlags::empty()) {
            // Of our own the kernel goes by the mode that is shown, and has let the caller in.
            Err(Errno::ACCESS) if is_our_own(&at.facts) => {}
            allowed => allowed.map_err(said)?,
        }
        match !appends && only_grows(&at.fd) {
            true => Err(said(Errno::PERM)),
            false => Ok(()),
        }
    }

    /// Opens a file that somebody has open here already. Where its mode keeps us from that and it is our own, the mode lets us
    /// in for as long as that takes.
    pub(crate) fn reopen_ours(&self, at: &At, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        match reopen(&at.fd, flags) {
            Err(Errno::ACCESS) if is_our_own(&at.facts) => {}
            opened => return opened,
        }
        let _alone = self.letting_in.lock();
        let _noted = self.ours.begin();
        // What it is right now: somebody may set its mode meanwhile.
        let mode = facts(at.fd.as_fd())?.0.mode & SHOWN_MODE;
        let set =
            |mode: u16| rustix::fs::chmodat(CWD, held(&at.fd), Mode::from_raw_mode(u32::from(mode)), AtFlags::empty());
        set(mode | OURS)?;
        let opened = reopen(&at.fd, flags);
        let back = set(mode);
        self.note(at);
        self.watches.changed_file(&at.path);
        back.and(opened)
    }
}

/// Whether a file can only be appended to, as far as its file system tells.
pub(crate) fn only_grows(file: &OwnedFd) -> bool {
    let told = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::TYPE);
    told.is_ok_and(|told| told.stx_attributes.contains(StatxAttributes::APPEND))
}

/// The rights of a file's owner to its bytes.
const OURS: u16 = 0o600;
