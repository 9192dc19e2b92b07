//! What is done to a tree.

use std::fs::{self, File, FileTimes, OpenOptions, Permissions};
use std::io::{Error, Result};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{CWD, RenameFlags, XattrFlags};

use super::step::{Step, length};
use crate::support::Chance;

/// One thing that a program does, at paths below the top of a tree.
#[derive(Clone, Debug)]
pub enum Deed {
    /// Written from its beginning: so many bytes.
    Write(Path_, usize, u8),
    Append(Path_, usize, u8),
    /// What a program does with a file that it has opened.
    Use(Path_, Vec<Step>),
    /// What it opens and keeps open, in the hand of this number; what that held is closed.
    Open(usize, Path_),
    /// What it does with what a hand holds.
    With(usize, Vec<Step>),
    Close(usize),
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

/// Which deeds a kind of tree does not have.
#[derive(Clone, Copy, Debug, Default)]
pub struct Without {
    /// Hard links between directories, also by a name of several that is moved there, exchanges, modes of directories,
    /// extended attributes, and room that is reserved or given back.
    pub what_afs_lacks: bool,
}

/// A tree, as a program uses it.
pub struct Tree {
    top: PathBuf,
    /// The files that it has open, and by which paths they were.
    hands: [Option<(File, PathBuf)>; HANDS],
}

impl Tree {
    /// With nothing open.
    pub fn at(top: &Path) -> Tree {
        Tree { top: top.to_owned(), hands: std::array::from_fn(|_| None) }
    }
}

impl Deed {
    /// The next one of a program that keeps files open.
    pub fn with_hands(chance: &mut Chance, without: Without) -> Deed {
        let (hand, path) = (chance.below(HANDS as u64) as usize, *chance.pick(PATHS));
        match chance.below(10) {
            0..2 => Deed::Open(hand, path),
            2..6 => Deed::With(hand, Step::some(chance, without)),
            6 => Deed::Close(hand),
            _ => Deed::chosen(chance, without),
        }
    }

    /// The next one.
    pub fn chosen(chance: &mut Chance, without: Without) -> Deed {
        let path = *chance.pick(PATHS);
        let other = *chance.pick(PATHS);
        let (length, byte) = (length(chance), b'a' + chance.below(26) as u8);
        let lacks = without.what_afs_lacks;
        match chance.below(100) {
            0..18 => Deed::Write(path, length, byte),
            18..24 => Deed::Append(path, length, byte),
            24..36 => Deed::Use(path, Step::some(chance, without)),
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

    /// Whether a kind of tree that has no hard links between directories refuses it, by what is in a tree like that.
    pub fn is_refused(&self, without: Without, tree: &Tree) -> bool {
        let Deed::Rename(from, to) = self else { return false };
        let is_of_several = |entry: fs::Metadata| !entry.is_dir() && entry.nlink() > 1;
        without.what_afs_lacks
            && dir_of(from) != dir_of(to)
            && fs::symlink_metadata(tree.top.join(from)).is_ok_and(is_of_several)
    }

    /// Does it in a tree; what was read meanwhile.
    pub fn do_in(&self, tree: &mut Tree) -> Result<Vec<u8>> {
        let top = tree.top.clone();
        let at = |path: &str| top.join(path);
        match self {
            Deed::Write(path, length, byte) => fs::write(at(path), vec![*byte; *length])?,
            Deed::Append(path, length, byte) => {
                let file = OpenOptions::new().append(true).create(true).open(at(path))?;
                std::io::Write::write_all(&mut &file, &vec![*byte; *length])?;
            }
            Deed::Use(path, steps) => {
                return Step::all(steps, &open(&at(path))?, &at(path));
            }
            Deed::Open(hand, path) => tree.hands[*hand] = Some((open(&at(path))?, at(path))),
            Deed::With(hand, steps) => {
                if let Some((file, path)) = &tree.hands[*hand] {
                    return Step::all(steps, file, path);
                }
            }
            Deed::Close(hand) => tree.hands[*hand] = None,
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

/// What an outcome is compared by.
pub fn outcome(done: Result<Vec<u8>>) -> std::result::Result<Vec<u8>, Option<i32>> {
    done.map_err(|error: Error| error.raw_os_error())
}

fn open(path: &Path) -> Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

fn dir_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

/// How many files a program has open at most.
const HANDS: usize = 2;
/// Few, so that they meet.
pub const PATHS: &[&str] =
    &["a", "b", "c", "d", "e", "d/a", "d/b", "d/d", "e/a", "e/b", "e/d", "d/d/a", "d/d/b", "e/d/a", "e/d/b"];
const ATTRIBUTE: &str = "user.test";
