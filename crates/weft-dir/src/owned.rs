//! Files that whoever opened them may write and we may not.
//!
//! Whether a file may be written is asked when it is opened: who made it without that right, or took the right away later,
//! writes on (open(2): "the mode ... only applies to future accesses of the newly created file"). What is written comes here
//! long after the open, and an ordinary user's daemon is refused then. NFS has the same: "the server should allow the owner
//! of the file to access it no matter what the permission setting" (RFC 1813 section 4.4).

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::copy::reopen;
use crate::create::is_our_own;
use crate::directory::Shared;
use crate::facts::{SHOWN_MODE, facts};
use crate::resolve::At;
use crate::top::held;

impl Shared {
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

/// The rights of a file's owner to its bytes.
const OURS: u16 = 0o600;
