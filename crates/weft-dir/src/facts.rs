//! What the kernel says of a file, and what the contract is told of that.

use std::os::fd::BorrowedFd;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, FileType, Statx, StatxAttributes, StatxFlags, StatxTimestamp, statx};
use weft_remote::{Attributes, Figure, FileKind, Owner, Sameness, Version};

use crate::identity::Identity;
use crate::places::Names;

/// What matters of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub kind: FileKind,
    device: (u32, u32),
    inode: u64,
    /// When the inode came to be, in nanoseconds; 0 where the file system does not keep that.
    born: u64,
    /// Length in bytes.
    pub length: u64,
    modified: Stamp,
    changed: Stamp,
    accessed: Stamp,
    /// Permission bits with set-id bits and the sticky bit.
    pub mode: u16,
    /// Owner.
    pub owner: Owner,
    /// How many names it has.
    pub links: u32,
    /// Of a device: which, as [`Attributes::device`] has it.
    stands_for: u32,
    /// Bytes that it takes on its disk.
    allocated: u64,
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

/// Whether an open directory is what something is mounted as: the root of a file system, or of a part of one that is bound.
pub(crate) fn is_mount_root(fd: BorrowedFd<'_>) -> rustix::io::Result<bool> {
    let told = statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::empty())?;
    Ok(told.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// What `name` in an open directory is, and the mount it is in. Never follows a link.
pub(crate) fn facts_of(dir: BorrowedFd<'_>, name: &std::ffi::CStr) -> rustix::io::Result<(Facts, u64)> {
    told(statx(dir, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, MASK)?)
}

fn told(told: Statx) -> rustix::io::Result<(Facts, u64)> {
    let has = |what| StatxFlags::from_bits_retain(told.stx_mask).contains(what);
    let born = if has(StatxFlags::BTIME) { Stamp::of(&told.stx_btime).wrapped() } else { 0 };
    let facts = Facts {
        kind: kind_of(FileType::from_raw_mode(u32::from(told.stx_mode))),
        device: (told.stx_dev_major, told.stx_dev_minor),
        inode: told.stx_ino,
        born,
        length: told.stx_size,
        modified: Stamp::of(&told.stx_mtime),
        changed: Stamp::of(&told.stx_ctime),
        accessed: Stamp::of(&told.stx_atime),
        mode: told.stx_mode & 0o7777,
        owner: Owner { uid: told.stx_uid, gid: told.stx_gid },
        links: told.stx_nlink,
        stands_for: device_number(told.stx_rdev_major, told.stx_rdev_minor),
        allocated: told.stx_blocks.saturating_mul(BLOCK_BYTES),
    };
    // Before Linux 5.8 a mount has no number; its device stands for it.
    let device = (u64::from(told.stx_dev_major) << 32) | u64::from(told.stx_dev_minor);
    Ok((facts, if has(StatxFlags::MNT_ID) { told.stx_mnt_id } else { device }))
}

/// Whether two versions are of one file, of the same length and time of modification: all but the time of change.
pub(crate) fn are_of_one_write(one: &Version, other: &Version) -> bool {
    let of_write = |version: &Version| {
        let token = version.token()?;
        let ends = token.iter().rposition(|byte| *byte == b'-')?;
        Some(token[..ends].to_vec())
    };
    of_write(one).is_some_and(|of_one| Some(of_one) == of_write(other))
}

/// What the contract calls a type of file.
pub(crate) fn kind_of(told: FileType) -> FileKind {
    match told {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::CharacterDevice => FileKind::CharDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::Unknown => FileKind::Unknown,
    }
}

/// A device in 32 bits, as the kernel gives it to programs: 20 bits of minor around 12 of major.
fn device_number(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & 0xfff00) << 12)
}

/// The major and minor number of a device in 32 bits.
pub(crate) fn parts_of_device(number: u32) -> (u32, u32) {
    ((number >> 8) & 0xfff, (number & 0xff) | ((number >> 12) & 0xfff00))
}

impl Facts {
    /// Which content this is: device, inode, length, and the times of the last modification and change.
    pub fn version(&self) -> Version {
        let Facts { device: (major, minor), inode, length, modified, changed, .. } = self;
        Version::strong(format!("{major}:{minor}-{inode}-{length}-{modified}-{changed}"))
    }

    /// Whether the bytes are those of an expected version: a change of the last change alone is one of attributes or
    /// names.
    pub fn has_bytes_of(&self, expected: &Version) -> bool {
        let Facts { inode, length, modified, .. } = self;
        match expected.token() {
            None => true,
            Some(_) if self.version().compare(expected) != Sameness::Different => true,
            Some(token) => {
                let bytes = format!("{inode}-{length}-{modified}-");
                let device = token.iter().position(|byte| *byte == b'-');
                device.is_some_and(|at| token[at + 1..].starts_with(bytes.as_bytes()))
            }
        }
    }

    /// The same of a file whose birth says nothing of which it is.
    pub fn without_birth(self) -> Facts {
        Facts { born: 0, ..self }
    }

    /// Which file this is, below this top.
    pub fn identity(&self, top: &Facts) -> Identity {
        if self.is_same_file(top) {
            return Identity::TOP;
        }
        let (major, minor) = self.device;
        let device = if self.device == top.device { 0 } else { device_number(major, minor) };
        Identity::new(self.inode, self.born, device)
    }

    /// How many names it has.
    pub fn names(&self) -> Names {
        match (self.kind, self.links) {
            (FileKind::Directory, _) => Names::Directory,
            (_, 0 | 1) => Names::One,
            _ => Names::Several,
        }
    }

    /// Whether both are the same file, whatever became of it.
    pub fn is_same_file(&self, other: &Facts) -> bool {
        (self.device, self.inode, self.born) == (other.device, other.inode, other.born)
    }

    /// Whether both are the same file with the same content.
    pub fn is_same_version(&self, other: &Facts) -> bool {
        self.is_same_file(other)
            && (self.length, self.modified, self.changed) == (other.length, other.modified, other.changed)
    }

    /// Whether this is what becomes of `was` by a change of its names, mode or owner; its bytes may have changed as well,
    /// if whoever wrote them set the time of modification back.
    pub fn is_touched(&self, was: &Facts) -> bool {
        self.is_same_file(was)
            && (self.length, self.modified) == (was.length, was.modified)
            && (self.links, self.mode, self.owner) != (was.links, was.mode, was.owner)
    }

    /// Whether both are told alike: the same version, and the same attributes but for the last use.
    pub fn is_told_alike(&self, other: &Facts) -> bool {
        self.is_same_version(other)
            && (self.kind, self.mode, self.owner, self.links) == (other.kind, other.mode, other.owner, other.links)
    }

    /// Whether the last write is so long before `now` that another would move its time.
    pub fn was_written_before(&self, now: SystemTime) -> bool {
        let grain = if self.modified.nanoseconds == 0 { WHOLE_SECONDS_GRAIN } else { GRAIN };
        let age = self.modified.time().and_then(|modified| now.duration_since(modified).ok());
        age.is_some_and(|age| age > grain)
    }

    /// Whether the last change lies within this time.
    pub fn was_changed_within(&self, begun: SystemTime, ended: SystemTime) -> bool {
        self.changed.time().is_some_and(|changed| (begun..=ended).contains(&changed))
    }

    /// What the contract is told.
    pub fn attributes(&self) -> Attributes {
        let size = match self.kind {
            FileKind::File | FileKind::Symlink => Figure::Exact(self.length),
            _ => Figure::Unknown,
        };
        let time = |stamp: Stamp| stamp.time().map_or(Figure::Unknown, Figure::Exact);
        let is_device = matches!(self.kind, FileKind::CharDevice | FileKind::BlockDevice);
        Attributes {
            kind: self.kind,
            size,
            modified: time(self.modified),
            mode: Some(self.mode & SHOWN_MODE),
            owner: Some(self.owner),
            changed: time(self.changed),
            accessed: time(self.accessed),
            // File systems that do not count names say 0 or 1.
            links: Some(self.links.max(1)),
            device: is_device.then_some(self.stands_for),
            allocated: Some(self.allocated),
            has_access_list: None,
        }
    }

    /// How long after `now` another file could be born at the same time as this one; `None` when none can.
    pub fn young_for(&self, now: SystemTime) -> Option<Duration> {
        let whole = self.born.is_multiple_of(NANOSECONDS);
        let grain = if whole { WHOLE_SECONDS_GRAIN } else { GRAIN };
        let now = now.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        let age = (u64::try_from(now.as_nanos()).ok()?).wrapping_sub(self.born) as i64;
        // A birth ahead of us by more than a grain is one of a clock that was set back.
        let is_near = self.born != 0 && age.unsigned_abs() < grain.as_nanos() as u64;
        let left = |age: i64| grain.saturating_sub(Duration::from_nanos(age.max(0) as u64));
        is_near.then(|| left(age) + Duration::from_nanos(age.min(0).unsigned_abs()))
    }

    /// How long after `now` another change can be told from the last one by its time: at once where times are `fine`.
    pub fn settles_in(&self, now: SystemTime, fine: bool) -> Duration {
        let grain = match self.changed.nanoseconds {
            0 => WHOLE_SECONDS_GRAIN,
            _ if fine => return Duration::ZERO,
            _ => GRAIN,
        };
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

    /// Nanoseconds since 1970, as far as they go into 64 bits.
    fn wrapped(self) -> u64 {
        self.seconds.wrapping_mul(1_000_000_000).wrapping_add(i64::from(self.nanoseconds)) as u64
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

/// Unit of `stx_blocks`, in bytes, whatever the file system's blocks are (statx(2)).
const BLOCK_BYTES: u64 = 512;
/// Permission bits that are told and taken, with the set-id and sticky bits.
pub(crate) const SHOWN_MODE: u16 = 0o7777;
/// How far apart changes have to be for their times to differ: the kernel's clock for files moves in ticks of up to
/// 10 ms.
const GRAIN: Duration = Duration::from_millis(20);
const NANOSECONDS: u64 = 1_000_000_000;
/// The same on a file system that keeps whole seconds, as a time without a fraction suggests; FAT keeps every second one.
const WHOLE_SECONDS_GRAIN: Duration = Duration::from_millis(2020);
const MASK: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::MNT_ID).union(StatxFlags::BTIME);

#[cfg(test)]
mod tests {
    use super::*;

    fn changed_at(seconds: i64, nanoseconds: u32) -> Facts {
        let stamp = Stamp { seconds, nanoseconds };
        Facts {
            kind: FileKind::File,
            device: (8, 1),
            inode: 2,
            born: 9,
            length: 3,
            modified: stamp,
            changed: stamp,
            accessed: stamp,
            mode: 0o6755,
            owner: Owner { uid: 0, gid: 0 },
            links: 1,
            stands_for: 0,
            allocated: 0,
        }
    }

    #[test]
    fn a_file_is_young_while_another_could_have_the_same_birth() {
        let at = |ms: u64| SystemTime::UNIX_EPOCH + Duration::from_millis(ms);
        let born = |ms: u64| Facts { born: ms * 1_000_000, ..changed_at(0, 0) };
        let file = born(1_000_500);
        assert_eq!(file.young_for(at(1_000_500)), Some(Duration::from_millis(20)));
        assert_eq!(file.young_for(at(1_000_515)), Some(Duration::from_millis(5)));
        assert_eq!(file.young_for(at(1_000_520)), None);
        assert_eq!(file.young_for(at(1_000_497)), Some(Duration::from_millis(23)), "two clocks that differ a little");
        assert_eq!(file.young_for(at(900_000)), None, "a clock that was set back");
        assert_eq!(born(1_000_000).young_for(at(1_000_500)), Some(Duration::from_millis(1520)), "whole seconds");
        assert_eq!(born(0).young_for(at(0)), None, "no birth is known");
    }

    #[test]
    fn devices_in_32_bits() {
        for (major, minor) in [(1, 3), (8, 0x12345), (0xfff, 0xfffff)] {
            assert_eq!(parts_of_device(device_number(major, minor)), (major, minor));
        }
        assert_eq!(device_number(1, 3), 0x103);
        assert_eq!(device_number(0xfff, 0xfffff), u32::MAX);
    }

    #[test]
    fn the_bytes_of_a_version_are_told_without_the_last_change() {
        let facts = changed_at(-7, 5);
        let renamed = Facts { changed: changed_at(9, 9).changed, ..facts };
        assert_ne!(facts.version(), renamed.version());
        assert!(renamed.has_bytes_of(&facts.version()) && renamed.has_bytes_of(&Version::None));
        for other in [Facts { length: 4, ..facts }, Facts { inode: 3, ..facts }, changed_at(-7, 6)] {
            assert!(!other.has_bytes_of(&facts.version()), "{other:?}");
        }
        for odd in ["names-2-3", "2-3-x", "", "-"] {
            assert!(!facts.has_bytes_of(&Version::strong(odd)), "{odd}");
        }
    }

    #[test]
    fn a_file_on_another_device_or_of_another_birth_is_another() {
        let (top, file) = (Facts { inode: 1, ..changed_at(0, 0) }, changed_at(0, 0));
        let others = [Facts { device: (0, 50), ..file }, Facts { born: 10, ..file }, Facts { inode: 3, ..file }];
        for other in others {
            assert_ne!(other.identity(&top), file.identity(&top));
        }
        assert_eq!(top.identity(&top), Identity::TOP);
        assert_eq!(Facts { length: 99, links: 7, ..file }.identity(&top), file.identity(&top));
    }

    #[test]
    fn a_change_settles_when_another_would_have_another_time() {
        let facts = changed_at(1000, 5_000_000);
        let after = |ms: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(1000) + Duration::from_millis(5 + ms);
        assert_eq!(facts.settles_in(after(0), false), Duration::from_millis(20));
        assert_eq!(facts.settles_in(after(15), false), Duration::from_millis(5));
        assert_eq!(facts.settles_in(after(20), false), Duration::ZERO);
        let before = after(0) - Duration::from_millis(3);
        assert_eq!(facts.settles_in(before, false), Duration::from_millis(23), "two clocks that differ a little");
        assert_eq!(
            facts.settles_in(after(0) - Duration::from_secs(9), false),
            Duration::ZERO,
            "a clock that was set back"
        );
        assert_eq!(facts.settles_in(after(0), true), Duration::ZERO);
        let whole = changed_at(1000, 0);
        assert_eq!(whole.settles_in(after(15), true), Duration::from_millis(2000));
    }

    #[test]
    fn times_before_1970_and_far_away() {
        let facts = changed_at(-1, 500_000_000);
        let attributes = facts.attributes();
        assert_eq!(attributes.modified, Figure::Exact(SystemTime::UNIX_EPOCH - Duration::from_millis(500)));
        assert_eq!(attributes.mode, Some(0o6755));
        assert_ne!(facts.version(), changed_at(-1, 500_000_001).version());
        for (seconds, nanoseconds) in [(i64::MIN, 0), (i64::MIN, u32::MAX), (i64::MAX, u32::MAX)] {
            let far = changed_at(seconds, nanoseconds);
            // A disk may hold any time: it is told or not, and never a panic.
            let _ = (far.attributes(), far.settles_in(SystemTime::now(), false));
        }
    }
}
