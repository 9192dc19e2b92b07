//! What is asked of the file system when something is to be changed: the words of the kernel side.

use std::time::SystemTime;

use bytes::Bytes;
use weft_remote::{FileKind, NewMode};

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFor {
    /// It will be written.
    pub writing: bool,
    /// It loses its content at once.
    pub truncating: bool,
    /// It will be written at its end alone.
    pub appends: bool,
    /// A program is run from it.
    pub running: bool,
    /// Whoever empties it may not keep the set-id bits.
    pub kill_suidgid: bool,
}

/// What a new name is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// File, directory or special file.
    pub kind: FileKind,
    /// What it allows to whom.
    pub mode: NewMode,
    /// Of a device: which.
    pub device: u32,
}

/// A time to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The time at which it is set.
    Now,
    /// This one.
    At(SystemTime),
}

/// Attributes to be set; what is absent stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetStat {
    /// Permission bits with the set-id and sticky bits.
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length in bytes.
    pub size: Option<u64>,
    /// Last modification.
    pub modified: Option<SetTime>,
    /// Last use.
    pub accessed: Option<SetTime>,
    /// The set-id bits go as well, as after a write by somebody who may not keep them.
    pub kill_suidgid: bool,
}

/// What is written to an open file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Where it begins.
    pub offset: u64,
    /// The bytes.
    pub bytes: Bytes,
    /// The writer may not keep the set-id bits.
    pub kill_suidgid: bool,
    /// The kernel does not know that the file has other times and maybe another length now: it comes from pages that
    /// somebody has mapped, or from no program.
    pub unseen: bool,
    /// It is for the end of the file (`O_APPEND`), which the kernel takes to be at `offset`.
    pub appends: bool,
}

/// Which names a removal is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Of anything but a directory.
    File,
    /// Of an empty directory.
    Directory,
}

/// What is done to a range of a file (fallocate(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// Room is made; the file grows to the end of the range.
    Extend,
    /// Room is made; the length stays.
    Reserve,
    /// The range reads as zeros; the length stays.
    Punch,
    /// The range reads as zeros; the file grows to its end.
    Zero,
    /// The range reads as zeros; the length stays.
    ZeroWithin,
}
