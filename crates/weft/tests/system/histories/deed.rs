//! What is done to a tree.

use std::fs::{self, File, FileTimes, OpenOptions, Permissions};
use std::io::{Error, Result};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{CWD, FallocateFlags, RenameFlags, SeekFrom, XattrFlags};

use crate::support::Chance;

/// One thing that a program does, at paths below the top of a tree.
#[derive(Clone, Debug)]
pub enum Deed {
    /// Written from its beginning: so many bytes.
    Write(Path_, usize, u8),
    Append(Path_, usize, u8),
    /// What a program does with a file that it has opened.
    Use(Path_, Vec<Step>),
    /// Written under another name and renamed to its place.
    Replace(Path_, usize, u8),
    Rename(Path_, Path_),
    Exchange(Path_, Path_),
    Link(Path_, Path_),
    Symlink(Path_, &'static str),
    Remove(Path_),
    RemoveDir(Path_),
    MakeDir(Path_),
    /// Of a directory too where that means something.
    Mode(Path_, u32, bool),
    Times(Path_, u64),
    SetAttribute(Path_, u8),
    RemoveAttribute(Path_),
}

/// A path below the top.
type Path_ = &'static str;

/// One use of an open file.
#[derive(Clone, Debug)]
pub enum Step {
    WriteAt(u64, usize, u8),
    Cut(u64),
    Reserve(u64, u64),
    Punch(u64, u64),
    ReadAt(u64, usize),
    Hole(u64),
    Sync,
    /// It loses its name while it is open.
    Remove,
}

/// Which deeds a kind of tree does not have.
#[derive(Clone, Copy, Debug, Default)]
pub struct Without {
    /// Hard links between directories, exchanges, modes of directories, extended attributes, and room that is reserved or
    /// given back.
    pub what_afs_lacks: bool,
}

impl Deed {
    /// The next one.
    pub fn chosen(chance: &mut Chance, without: Without) -> Deed {
        let path = *chance.pick(PATHS);
        let other = *chance.pick(PATHS);
        let (length, byte) = (length(chance), b'a' + chance.below(26) as u8);
        let lacks = without.what_afs_lacks;
        match chance.below(100) {
            0..18 => Deed::Write(path, length, byte),
            18..24 => Deed::Append(path, length, byte),
            24..36 => Deed::Use(path, (0..1 + chance.below(6)).map(|_| Step::chosen(chance, lacks)).collect()),
            36..46 => Deed::Replace(path, length, byte),
            46..60 => Deed::Rename(path, other),
            60..62 if !lacks => Deed::Exchange(path, other),
            62..66 if !lacks || dir_of(path) == dir_of(other) => Deed::Link(path, other),
            66..69 => Deed::Symlink(path, PATHS[chance.below(6) as usize]),
            69..77 => Deed::Remove(path),
            77..80 => Deed::RemoveDir(path),
            80..92 => Deed::MakeDir(path),
            92..94 => Deed::Mode(path, *chance.pick(&[0o600, 0o640, 0o644, 0o700, 0o755]), !lacks),
            94..96 => Deed::Times(path, chance.below(1 << 31)),
            96..99 if !lacks => Deed::SetAttribute(path, byte),
            99.. if !lacks => Deed::RemoveAttribute(path),
            _ => Deed::MakeDir(path),
        }
    }

    /// Does it below `top`; what was read meanwhile.
    pub fn do_at(&self, top: &Path) -> Result<Vec<u8>> {
        let at = |path: &str| top.join(path);
        match self {
            Deed::Write(path, length, byte) => fs::write(at(path), vec![*byte; *length])?,
            Deed::Append(path, length, byte) => {
                let file = OpenOptions::new().append(true).create(true).open(at(path))?;
                std::io::Write::write_all(&mut &file, &vec![*byte; *length])?;
            }
            Deed::Use(path, steps) => {
                let file = OpenOptions::new().read(true).write(true).open(at(path))?;
                let mut read = Vec::new();
                for step in steps {
                    step.do_with(&file, &at(path), &mut read)?;
                }
                return Ok(read);
            }
            Deed::Replace(path, length, byte) => {
                let saved = at(&format!("{path}.new"));
                fs::write(&saved, vec![*byte; *length])?;
                if let Err(error) = fs::rename(&saved, at(path)) {
                    fs::remove_file(&saved)?;
                    return Err(error);
                }
            }
            Deed::Rename(from, to) => fs::rename(at(from), at(to))?,
            Deed::Exchange(one, other) => {
                rustix::fs::renameat_with(CWD, at(one), CWD, at(other), RenameFlags::EXCHANGE)?;
            }
            Deed::Link(from, to) => fs::hard_link(at(from), at(to))?,
            Deed::Symlink(path, target) => symlink(target, at(path))?,
            Deed::Remove(path) => fs::remove_file(at(path))?,
            Deed::RemoveDir(path) => fs::remove_dir(at(path))?,
            Deed::MakeDir(path) => fs::create_dir(at(path))?,
            Deed::Mode(path, mode, of_directories) => {
                let kind = fs::symlink_metadata(at(path))?.file_type();
                if kind.is_file() || (kind.is_dir() && *of_directories) {
                    fs::set_permissions(at(path), Permissions::from_mode(*mode))?;
                }
            }
            Deed::Times(path, seconds) => {
                let times = FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_secs(*seconds));
                File::open(at(path))?.set_times(times)?;
            }
            Deed::SetAttribute(path, byte) => {
                rustix::fs::lsetxattr(at(path), ATTRIBUTE, &[*byte; 9], XattrFlags::empty())?;
            }
            Deed::RemoveAttribute(path) => rustix::fs::lremovexattr(at(path), ATTRIBUTE)?,
        }
        Ok(Vec::new())
    }
}

impl Step {
    fn chosen(chance: &mut Chance, lacks: bool) -> Step {
        let (at, length, byte) = (length(chance) as u64, length(chance), b'A' + chance.below(26) as u8);
        match chance.below(20) {
            0..6 => Step::WriteAt(at, length, byte),
            6..9 => Step::Cut(at),
            9 if !lacks => Step::Reserve(at, 1 + length as u64),
            10 if !lacks => Step::Punch(at, 1 + length as u64),
            11..16 => Step::ReadAt(at, length),
            16 => Step::Hole(at),
            17 => Step::Remove,
            _ => Step::Sync,
        }
    }

    fn do_with(&self, file: &File, path: &Path, read: &mut Vec<u8>) -> Result<()> {
        match self {
            Step::WriteAt(at, length, byte) => file.write_all_at(&vec![*byte; *length], *at)?,
            Step::Cut(length) => file.set_len(*length)?,
            Step::Reserve(at, length) => rustix::fs::fallocate(file, FallocateFlags::empty(), *at, *length)?,
            Step::Punch(at, length) => {
                rustix::fs::fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, *at, *length)?;
            }
            Step::ReadAt(at, length) => {
                let mut bytes = vec![0; *length];
                let count = file.read_at(&mut bytes, *at)?;
                read.extend_from_slice(&bytes[..count]);
            }
            // Where holes are is a matter of the file system, but for the one at the end.
            Step::Hole(at) => {
                let found = rustix::fs::seek(file, SeekFrom::Hole(*at)).map(|hole| hole > *at);
                read.extend(format!("{:?} {}", found.err(), file.metadata()?.len()).into_bytes());
            }
            Step::Sync => file.sync_all()?,
            Step::Remove => match fs::remove_file(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            },
        }
        Ok(())
    }
}

/// What an outcome is compared by.
pub fn outcome(done: Result<Vec<u8>>) -> std::result::Result<Vec<u8>, Option<i32>> {
    done.map_err(|error: Error| error.raw_os_error())
}

fn dir_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

fn length(chance: &mut Chance) -> usize {
    let most = *chance.pick(&[1, 100, 5000, 20_000, 300_000]);
    chance.below(most) as usize
}

/// Few, so that they meet.
const PATHS: &[&str] =
    &["a", "b", "c", "d", "e", "d/a", "d/b", "d/d", "e/a", "e/b", "e/d", "d/d/a", "d/d/b", "e/d/a", "e/d/b"];
const ATTRIBUTE: &str = "user.test";
