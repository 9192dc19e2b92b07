//! What the kernel says of a file, and what the contract is told of that.

use std::os::fd::BorrowedFd;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, FileType, Statx, StatxFlags, StatxTimestamp, statx};
use weft_remote::{Attributes, Figure, FileKind, Owner, Version};

/// What matters of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// `None` for what is not shown: fifos, sockets, devices.
    pub kind: Option<FileKind>,
    device: (u32, u32),
    inode: u64,
    /// Length in bytes.
    pub length: u64,
    modified: Stamp,
    changed: Stamp,
    /// Permission bits with set-id bits and the sticky bit.
    pub mode: u16,
    /// Owner.
    pub owner: Owner,
    /// How many names it has.
    pub links: u32,
}

/// A time of a file: seconds since 1970 and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    seconds: i64,
    nanoseconds: u32,
}

/// What an open file is, and the mount it is in.
pub(crate) fn facts(fd: BorrowedFd<'_>) -> rustix::io::Result<(Facts, u64)> {
    told(statx(fd, "", AtFlags::EMPTY_PATH, MASK)?)
}

/// What `name` in an open directory is, and the mount it is in. Never follows a link.
pub(crate) fn facts_of(dir: BorrowedFd<'_>, name: &std::ffi::CStr) -> rustix::io::Result<(Facts, u64)> {
    told(statx(dir, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, MASK)?)
}

fn told(told: Statx) -> rustix::io::Result<(Facts, u64)> {
    let kind = match FileType::from_raw_mode(u32::from(told.stx_mode)) {
        FileType::RegularFile => Some(FileKind::File),
        FileType::Directory => Some(FileKind::Directory),
        FileType::Symlink => Some(FileKind::Symlink),
        _ => None,
    };
    let facts = Facts {
        kind,
        device: (told.stx_dev_major, told.stx_dev_minor),
        inode: told.stx_ino,
        length: told.stx_size,
        modified: Stamp::of(&told.stx_mtime),
        changed: Stamp::of(&told.stx_ctime),
        mode: told.stx_mode & 0o7777,
        owner: Owner { uid: told.stx_uid, gid: told.stx_gid },
        links: told.stx_nlink,
    };
    // Before Linux 5.8 a mount has no number; its device stands for it.
    let device = (u64::from(told.stx_dev_major) << 32) | u64::from(told.stx_dev_minor);
    let numbered = StatxFlags::from_bits_retain(told.stx_mask).contains(StatxFlags::MNT_ID);
    Ok((facts, if numbered { told.stx_mnt_id } else { device }))
}

impl Facts {
    /// Which content this is: device, inode, length, and the times of the last modification and change.
    pub fn version(&self) -> Version {
        let Facts { device: (major, minor), inode, length, modified, changed, .. } = self;
        Version::strong(format!("{major}:{minor}-{inode}-{length}-{modified}-{changed}"))
    }

    /// Whether both are the same file, whatever became of it.
    pub fn is_same_file(&self, other: &Facts) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// Whether both are the same file with the same content.
    pub fn is_same_version(&self, other: &Facts) -> bool {
        self.is_same_file(other)
            && (self.length, self.modified, self.changed) == (other.length, other.modified, other.changed)
    }

    /// What the contract is told; `None` for what is not shown.
    pub fn attributes(&self) -> Option<Attributes> {
        let kind = self.kind?;
        let size = match kind {
            FileKind::File | FileKind::Symlink => Figure::Exact(self.length),
            _ => Figure::Unknown,
        };
        let modified = self.modified.time().map_or(Figure::Unknown, Figure::Exact);
        Some(Attributes {
            size,
            modified,
            mode: Some(self.mode & SHOWN_MODE),
            owner: Some(self.owner),
            ..Attributes::of_kind(kind)
        })
    }

    /// How long after `now` another change can be told from the last one by its time.
    pub fn settles_in(&self, now: SystemTime) -> Duration {
        let grain = if self.changed.nanoseconds == 0 { WHOLE_SECONDS_GRAIN } else { GRAIN };
        let Some(changed) = self.changed.time() else { return Duration::ZERO };
        match now.duration_since(changed) {
            Ok(age) => grain.saturating_sub(age),
            // A clock that was set back: the next change has another time than this.
            Err(ahead) if ahead.duration() > grain => Duration::ZERO,
            Err(ahead) => grain + ahead.duration(),
        }
    }
}

impl Stamp {
    fn of(told: &StatxTimestamp) -> Stamp {
        Stamp { seconds: told.tv_sec, nanoseconds: told.tv_nsec }
    }

    fn time(self) -> Option<SystemTime> {
        let whole = Duration::from_secs(self.seconds.unsigned_abs());
        let second = match self.seconds < 0 {
            true => SystemTime::UNIX_EPOCH.checked_sub(whole),
            false => SystemTime::UNIX_EPOCH.checked_add(whole),
        };
        second?.checked_add(Duration::from_nanos(u64::from(self.nanoseconds)))
    }
}

impl std::fmt::Display for Stamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:09}", self.seconds, self.nanoseconds)
    }
}

/// Permission bits that are told and taken: never set-id; the sticky bit says who may remove names.
pub(crate) const SHOWN_MODE: u16 = 0o1777;
/// How far apart changes have to be for their times to differ: the kernel's clock for files moves in ticks of up to
/// 10 ms.
const GRAIN: Duration = Duration::from_millis(20);
/// The same on a file system that keeps whole seconds, as a time without a fraction suggests; FAT keeps every second one.
const WHOLE_SECONDS_GRAIN: Duration = Duration::from_millis(2020);
const MASK: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::MNT_ID);

#[cfg(test)]
mod tests {
    use super::*;

    fn changed_at(seconds: i64, nanoseconds: u32) -> Facts {
        let stamp = Stamp { seconds, nanoseconds };
        Facts {
            kind: Some(FileKind::File),
            device: (8, 1),
            inode: 2,
            length: 3,
            modified: stamp,
            changed: stamp,
            mode: 0o6755,
            owner: Owner { uid: 0, gid: 0 },
            links: 1,
        }
    }

    #[test]
    fn a_change_settles_when_another_would_have_another_time() {
        let facts = changed_at(1000, 5_000_000);
        let after = |ms: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(1000) + Duration::from_millis(5 + ms);
        assert_eq!(facts.settles_in(after(0)), Duration::from_millis(20));
        assert_eq!(facts.settles_in(after(15)), Duration::from_millis(5));
        assert_eq!(facts.settles_in(after(20)), Duration::ZERO);
        let before = after(0) - Duration::from_millis(3);
        assert_eq!(facts.settles_in(before), Duration::from_millis(23), "two clocks that differ a little");
        assert_eq!(facts.settles_in(after(0) - Duration::from_secs(9)), Duration::ZERO, "a clock that was set back");
        let whole = changed_at(1000, 0);
        assert_eq!(whole.settles_in(after(15)), Duration::from_millis(2000));
    }

    #[test]
    fn times_before_1970_and_set_id_bits() {
        let facts = changed_at(-1, 500_000_000);
        let attributes = facts.attributes().unwrap();
        assert_eq!(attributes.modified, Figure::Exact(SystemTime::UNIX_EPOCH - Duration::from_millis(500)));
        assert_eq!(attributes.mode, Some(0o755));
        assert_ne!(facts.version(), changed_at(-1, 500_000_001).version());
        for (seconds, nanoseconds) in [(i64::MIN, 0), (i64::MIN, u32::MAX), (i64::MAX, u32::MAX)] {
            let far = changed_at(seconds, nanoseconds);
            // A disk may hold any time: it is told or not, and never a panic.
            let _ = (far.attributes(), far.settles_in(SystemTime::now()));
        }
    }
}
