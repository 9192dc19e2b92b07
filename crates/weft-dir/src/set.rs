//! Attributes that are set: of the file itself, never of what a link leads to.

use std::os::fd::AsFd;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, Gid, Mode, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags};
use rustix::io::Errno;
use weft_remote::{ACCESS_LIST, Caller, FileId, FileKind, NewAttributes, RemoteError, Result, Version, is_access_list};

use crate::create::SET_GROUP_ID;
use crate::directory::Shared;
use crate::error::failed;
use crate::extended::{NOWHERE, is_shown, may_have};
use crate::facts::{SHOWN_MODE, facts};
use crate::resolve::At;
use crate::top::held;

impl Shared {
    /// Sets owner, mode and times.
    ///
    /// # Errors
    /// `VersionChanged`; `Unsupported` for the mode of a link; whatever the disk says.
    pub(crate) fn set_attributes(&self, file: &FileId, expected: &Version, new: &NewAttributes) -> Result<()> {
        let _noted = self.ours.begin();
        let at = self.find(file)?;
        self.expect_bytes(&at, expected)?;
        let path = &at.path;
        let said = |doing| move |errno| failed(&self.top.shown(path), doing, errno);
        if new.mode.is_some() && at.facts.kind == FileKind::Symlink {
            let detail = format!("{}: a link has no mode", self.top.shown(&at.path));
            return Err(RemoteError::Unsupported { detail });
        }
        let fd = &at.fd;
        // The owner first: a change of it takes set-id bits away, and the mode that is wanted comes after.
        if new.uid.is_some() || new.gid.is_some() {
            let (uid, gid) = (new.uid.map(Uid::from_raw), new.gid.map(Gid::from_raw));
            rustix::fs::chownat(fd, "", uid, gid, AtFlags::EMPTY_PATH).map_err(said("chown"))?;
        }
        // From here on something may have changed, whatever comes of the rest.
        let set = || {
            if let Some(mode) = new.mode {
                let mode = Mode::from_raw_mode(u32::from(mode & SHOWN_MODE));
                rustix::fs::chmodat(CWD, held(fd), mode, AtFlags::empty()).map_err(said("chmod"))?;
            }
            if new.modified.is_some() || new.accessed.is_some() {
                let times = times(new.modified, new.accessed);
                rustix::fs::utimensat(fd, "", &times, AtFlags::EMPTY_PATH).map_err(said("set the times of"))?;
            }
            Ok(())
        };
        let outcome = set();
        self.note_set(&at, new.modified.is_some());
        self.watches.changed_file(&at.path);
        outcome
    }

    /// Sets an extended attribute, or takes it away.
    ///
    /// # Errors
    /// `Unsupported` for other attributes than the user's and access lists, and where there can be none; `Exists` and
    /// `NotFound` by `must_exist`.
    pub(crate) fn set_extended(
        &self,
        file: &FileId,
        expected: &Version,
        (name, value): (&[u8], Option<&[u8]>),
        must_exist: Option<bool>,
        caller: &Caller,
    ) -> Result<()> {
        let _noted = self.ours.begin();
        let at = self.find(file)?;
        let shown = || format!("{}: the attribute {}", self.top.shown(&at.path), name.escape_ascii());
        if !is_shown(name) || !may_have(&at, name) {
            return Err(RemoteError::Unsupported { detail: format!("{}: {NOWHERE}", shown()) });
        }
        self.expect_bytes(&at, expected)?;
        let flags = match must_exist {
            None => XattrFlags::empty(),
            Some(true) => XattrFlags::REPLACE,
            Some(false) => XattrFlags::CREATE,
        };
        let set = match value {
            Some(value) => rustix::fs::setxattr(held(&at.fd), name, value, flags),
            None => rustix::fs::removexattr(held(&at.fd), name),
        };
        let outcome = match set {
            Ok(()) if name == ACCESS_LIST && value.is_some() => self.end_group_id(&at, caller),
            Ok(()) => Ok(()),
            Err(Errno::NODATA) if is_access_list(name) => Ok(()),
            Err(Errno::NODATA) => return Err(RemoteError::NotFound { detail: shown() }),
            Err(errno) => return Err(failed(&shown(), "set", errno)),
        };
        // It is set, whatever comes of the rest.
        self.note(&at);
        self.watches.changed_file(&at.path);
        outcome
    }

    /// Takes the set-group-id bit of a file or directory whose access list was set by somebody who may not keep it: who is not in
    /// its group (`posix_acl_update_mode` of Linux fs/posix_acl.c).
    fn end_group_id(&self, at: &At, caller: &Caller) -> Result<()> {
        if at.facts.mode & SET_GROUP_ID == 0 || caller.uid == 0 || caller.is_in(at.facts.owner.gid) {
            return Ok(());
        }
        let said = |errno| failed(&self.top.shown(&at.path), "chmod", errno);
        let now = facts(at.fd.as_fd()).map_err(said)?.0.mode & SHOWN_MODE;
        let mode = Mode::from_raw_mode(u32::from(now & !SET_GROUP_ID));
        rustix::fs::chmodat(CWD, held(&at.fd), mode, AtFlags::empty()).map_err(said)
    }
}

/// Times to set; one that is absent is left alone.
pub(crate) fn times(modified: Option<SystemTime>, accessed: Option<SystemTime>) -> Timestamps {
    let stamp = |time: Option<SystemTime>| time.map_or(Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }, timespec);
    Timestamps { last_access: stamp(accessed), last_modification: stamp(modified) }
}

fn timespec(time: SystemTime) -> Timespec {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => Timespec { tv_sec: since.as_secs() as i64, tv_nsec: i64::from(since.subsec_nanos()) },
        Err(before) => {
            // Nanoseconds count forward from the second before.
            let before = before.duration();
            let (seconds, nanoseconds) = (before.as_secs() as i64, i64::from(before.subsec_nanos()));
            match nanoseconds {
                0 => Timespec { tv_sec: -seconds, tv_nsec: 0 },
                _ => Timespec { tv_sec: -seconds - 1, tv_nsec: NANOSECONDS - nanoseconds },
            }
        }
    }
}

const NANOSECONDS: i64 = 1_000_000_000;
