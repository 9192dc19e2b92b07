//! New bytes for a file, in place.

use std::time::SystemTime;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use weft_remote::{Content, Extent, FileKind, RemoteError, Result, Version};

use crate::apply::times;
use crate::copy::reopen;
use crate::directory::Shared;
use crate::error::failed;
use crate::facts::SHOWN_MODE;

impl Shared {
    /// Writes the extents of `content` into a file and gives it its length. In place: who reads the directory itself
    /// meanwhile may see a part, and a full disk leaves what has been written.
    pub(crate) fn write(
        &self,
        path: &[u8],
        expected: &Version,
        extents: &[Extent],
        length: u64,
        content: &dyn Content,
        made: SystemTime,
    ) -> Result<()> {
        let shown = self.top.shown(path);
        let (found, facts) = self.open(path)?;
        match facts.kind {
            Some(FileKind::File) => {}
            Some(FileKind::Directory) => return Err(RemoteError::IsADirectory { detail: shown }),
            _ => return Err(RemoteError::Unsupported { detail: format!("{shown}: a link has no bytes") }),
        }
        if extents.iter().any(|extent| extent.offset.checked_add(extent.length).is_none_or(|end| end > length)) {
            return Err(RemoteError::Failed {
                detail: format!("{shown}: an extent past the length of {length} bytes"),
            });
        }
        let said = |doing| move |errno| failed(&self.top.shown(path), doing, errno);
        let fd = reopen(&found, OFlags::WRONLY).map_err(said("open for writing"))?;
        self.expect(path, &self.facts(path, &fd)?.version(), expected)?;
        let written = write_extents(&fd, extents, content, &shown)
            .and_then(|()| rustix::fs::ftruncate(&fd, length).map_err(said("set the length of")));
        // Whatever came of it, the file is another now.
        self.watches.changed(path, false);
        written?;
        if facts.mode & !SHOWN_MODE != 0 {
            // What the kernel does when anybody but root writes: a program that was changed runs with no one's rights.
            let mode = Mode::from_raw_mode(u32::from(facts.mode & SHOWN_MODE));
            rustix::fs::fchmod(&fd, mode).map_err(said("chmod"))?;
        }
        rustix::fs::futimens(&fd, &times(made)).map_err(said("set the time of"))
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
