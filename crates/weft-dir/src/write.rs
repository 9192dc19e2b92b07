//! New bytes for a file, in place.

use std::time::SystemTime;

use rustix::fs::OFlags;
use rustix::io::Errno;
use weft_remote::{Content, Extent, FileId, FileKind, RemoteError, Result, Version};

use crate::copy::{no_bytes, reopen};
use crate::directory::Shared;
use crate::error::failed;
use crate::set::times;

impl Shared {
    /// Writes the extents of `content` into a file and gives it its length. In place: who reads the directory itself
    /// meanwhile may see a part, and a full disk leaves what has been written, over which the same may be tried again. Set-id bits stay or go as the kernel has
    /// it for whoever this process is.
    ///
    /// # Errors
    /// `VersionChanged`, `IsADirectory`; whatever the disk says.
    pub(crate) fn write(
        &self,
        file: &FileId,
        expected: &Version,
        extents: &[Extent],
        length: u64,
        content: &dyn Content,
        made: SystemTime,
    ) -> Result<()> {
        let mut at = self.find(file)?;
        let shown = self.top.shown(&at.path);
        if at.facts.kind != FileKind::File {
            return Err(no_bytes(at.facts.kind, shown));
        }
        if extents.iter().any(|extent| extent.offset.checked_add(extent.length).is_none_or(|end| end > length)) {
            return Err(RemoteError::Failed {
                detail: format!("{shown}: an extent past the length of {length} bytes"),
            });
        }
        let shown = shown.as_str();
        let said = |doing| move |errno| failed(shown, doing, errno);
        let fd = reopen(&at.fd, OFlags::WRONLY).map_err(said("open for writing"))?;
        at.facts = self.facts(&at.path, &fd)?;
        let cut_off = self.cut_off.as_deref();
        let is_torn = self.ours.is_torn(at.id, &at.facts, expected)
            || cut_off.is_some_and(|cut_off| cut_off.made(&at.facts, expected));
        if !is_torn {
            self.expect_bytes(&at, expected)?;
        }
        cut_off.inspect(|cut_off| cut_off.begin(expected));
        let written = write_extents(&fd, extents, content, shown)
            .and_then(|()| rustix::fs::ftruncate(&fd, length).map_err(said("set the length of")));
        // Whatever came of it, the file is another now.
        self.watches.changed_file(&at.path);
        let done =
            written.and_then(|()| rustix::fs::futimens(&fd, &times(Some(made), None)).map_err(said("set the time of")));
        if done.is_err()
            && let Ok(after) = self.facts(&at.path, &fd)
        {
            self.ours.torn(at.id, expected, &after);
        }
        done
    }
}

fn write_extents(fd: &std::os::fd::OwnedFd, extents: &[Extent], content: &dyn Content, shown: &str) -> Result<()> {
    for Extent { offset, length } in extents {
        let (mut at, end) = (*offset, offset + length);
        while at < end {
            let wanted = (end - at).min(PIECE_BYTES) as usize;
            let piece = content.read(at, wanted).map_err(|error| RemoteError::Failed {
                detail: format!("{shown}: reading what shall be written: {error}"),
            })?;
            if piece.is_empty() || piece.len() > wanted {
                let detail =
                    format!("{shown}: the content to be written has {} bytes at {at}, not {wanted}", piece.len());
                return Err(RemoteError::Failed { detail });
            }
            let mut rest = &piece[..];
            while !rest.is_empty() {
                match rustix::io::pwrite(fd, rest, at) {
                    Ok(0) => return Err(failed(shown, "write", Errno::IO)),
                    Ok(count) => {
                        rest = &rest[count..];
                        at += count as u64;
                    }
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(failed(shown, "write", errno)),
                }
            }
        }
    }
    Ok(())
}

/// Most bytes taken from the content at a time.
const PIECE_BYTES: u64 = 1024 * 1024;
