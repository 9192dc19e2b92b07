//! New bytes for a file, in place.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::time::SystemTime;

use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;
use weft_remote::{Content, Extent, FileId, FileKind, RemoteError, Result, Version};

use crate::copy::no_bytes;
use crate::directory::Shared;
use crate::error::failed;
use crate::owned::only_grows;
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
        let grows = only_grows(&at.fd);
        let how = if grows { OFlags::WRONLY | OFlags::APPEND } else { OFlags::WRONLY };
        let fd = self.reopen_ours(&at, how).map_err(said("open for writing"))?;
        let cut_off = self.cut_off.as_deref();
        // By the time of its last change, which is another when it was let be opened.
        let was_cut_off = cut_off.is_some_and(|cut_off| cut_off.made(&at.facts, expected));
        let found = std::mem::replace(&mut at.facts, self.facts(&at.path, &fd)?);
        let is_torn =
            self.ours.is_torn(at.id, &at.facts, expected) || was_cut_off && at.facts.has_bytes_of(&found.version());
        if !is_torn {
            self.expect_bytes(&at, expected)?;
        }
        // What a write that broke off has brought is there.
        let there = at.facts.length;
        if grows && !(is_torn && there <= length || is_appended(extents, there, length)) {
            return Err(said("write other bytes than new ones at the end")(Errno::PERM));
        }
        cut_off.inspect(|cut_off| cut_off.begin(expected));
        let written = match grows {
            true => write_bytes(&fd, there..length, content, shown),
            false => write_extents(&fd, extents, content, shown)
                .and_then(|()| rustix::fs::ftruncate(&fd, length).map_err(said("set the length of"))),
        };
        // Whatever came of it, the file is another now.
        self.watches.changed_file(&at.path);
        let done = written.and_then(|()| match grows {
            // Nor can its times be set.
            true => Ok(()),
            false => rustix::fs::futimens(&fd, &times(Some(made), None)).map_err(said("set the time of")),
        });
        if done.is_err()
            && let Ok(after) = self.facts(&at.path, &fd)
        {
            self.ours.torn(at.id, expected, &after);
        }
        done
    }
}

/// Whether extents are all that comes after the first `there` bytes of a file, up to its new length.
fn is_appended(extents: &[Extent], there: u64, length: u64) -> bool {
    let end = extents.iter().try_fold(there, |end, extent| (extent.offset == end).then(|| end + extent.length));
    end == Some(length)
}

fn write_extents(fd: &OwnedFd, extents: &[Extent], content: &dyn Content, shown: &str) -> Result<()> {
    extents.iter().try_for_each(|extent| write_extent(fd, extent.offset..extent.offset + extent.length, content, shown))
}

fn write_extent(fd: &OwnedFd, bytes: Range<u64>, content: &dyn Content, shown: &str) -> Result<()> {
    let Range { start: mut at, end } = bytes;
    while at < end {
        let hole = hole_in(at..end, content);
        if let Some(hole) = hole.as_ref().filter(|hole| hole.start == at)
            && make_hole(fd, hole.clone())
        {
            at = hole.end;
            continue;
        }
        let until = hole.map(|hole| hole.start).filter(|start| *start > at).unwrap_or(end);
        write_bytes(fd, at..until, content, shown)?;
        at = until;
    }
    Ok(())
}

fn write_bytes(fd: &OwnedFd, bytes: Range<u64>, content: &dyn Content, shown: &str) -> Result<()> {
    let Range { start: mut at, end } = bytes;
    while at < end {
        let wanted = (end - at).min(PIECE_BYTES) as usize;
        let piece = content.read(at, wanted).map_err(|error| RemoteError::Failed {
            detail: format!("{shown}: reading what shall be written: {error}"),
        })?;
        if piece.is_empty() || piece.len() > wanted {
            let detail = format!("{shown}: the content to be written has {} bytes at {at}, not {wanted}", piece.len());
            return Err(RemoteError::Failed { detail });
        }
        write_piece(fd, at, &piece, shown)?;
        at += piece.len() as u64;
    }
    Ok(())
}

fn write_piece(fd: &OwnedFd, mut at: u64, mut rest: &[u8], shown: &str) -> Result<()> {
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
    Ok(())
}

/// The first hole in a range of the content, where it is worth one.
fn hole_in(bytes: Range<u64>, content: &dyn Content) -> Option<Range<u64>> {
    let is_long = |bytes: &Range<u64>| bytes.end.saturating_sub(bytes.start) >= HOLE_BYTES_MIN;
    let hole = Some(bytes.clone()).filter(is_long).and_then(|bytes| content.hole(bytes))?;
    let hole = hole.start.max(bytes.start)..hole.end.min(bytes.end);
    is_long(&hole).then_some(hole)
}

/// Has a range of a file be a hole; what lies past its end is one when the file gets its length. False where its file system has
/// none.
fn make_hole(fd: &OwnedFd, range: Range<u64>) -> bool {
    let is_past_end =
        rustix::fs::fstat(fd).is_ok_and(|now| u64::try_from(now.st_size).is_ok_and(|size| size <= range.start));
    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    is_past_end || rustix::fs::fallocate(fd, how, range.start, range.end - range.start).is_ok()
}

/// Shorter holes are written as zeros.
const HOLE_BYTES_MIN: u64 = 64 << 10;
/// Most bytes taken from the content at a time.
const PIECE_BYTES: u64 = 1024 * 1024;
