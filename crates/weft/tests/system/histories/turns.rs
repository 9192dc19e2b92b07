//! Histories of files that are changed through a mount and in the directory itself by turns, with no pause between: what is read
//! on either side, and in whatever way, is what was written last, and what is added is added to that.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::{open_files, seeds};
use crate::support::{Chance, Pair};

/// What is done to a file.
#[derive(Clone, Copy, Debug)]
enum Turn {
    /// So many bytes more, by so many writes.
    Append(usize, usize),
    /// Written from its beginning: so many bytes.
    Write(usize),
    /// So many bytes in its middle.
    Overwrite(usize, usize),
    Resize(usize),
    /// Written under another name and renamed to its place.
    Replace(usize),
    Read(How),
}

/// How a file is read.
#[derive(Clone, Copy, Debug)]
enum How {
    Called,
    /// By sendfile(2), which goes by the length that the kernel takes it to have.
    Sent,
    /// From its end, which the kernel is asked for.
    Sought,
}

impl Turn {
    fn chosen(chance: &mut Chance, length: usize) -> Turn {
        let many = *chance.pick(&[0, 1, 13, 100, 4095, 4096, 4097, 9000, 70_000]);
        match chance.below(20) {
            0..5 => Turn::Append(many, 1 + chance.below(2) as usize),
            5..7 => Turn::Write(many),
            7..9 => Turn::Overwrite(chance.below(length as u64 + 6) as usize, many.min(5000)),
            9 => Turn::Resize(*chance.pick(&[0, 1, 5, 4096, length / 2, length + 7])),
            10..12 => Turn::Replace(many),
            _ => Turn::Read(*chance.pick(&[How::Called, How::Sent, How::Sought])),
        }
    }

    /// Takes it with a file; what was read. `bytes` is what there is to write.
    fn take(self, path: &Path, bytes: &[u8]) -> std::io::Result<Option<Vec<u8>>> {
        match self {
            Turn::Append(_, writes) => {
                let mut file = OpenOptions::new().append(true).open(path)?;
                let size = bytes.len().div_ceil(writes).max(1);
                bytes.chunks(size).try_for_each(|part| file.write_all(part))?;
            }
            Turn::Write(_) => std::fs::write(path, bytes)?,
            Turn::Overwrite(at, _) => OpenOptions::new().write(true).open(path)?.write_all_at(bytes, at as u64)?,
            Turn::Resize(length) => OpenOptions::new().write(true).open(path)?.set_len(length as u64)?,
            Turn::Replace(_) => {
                let beside = path.with_extension("new");
                std::fs::write(&beside, bytes)?;
                std::fs::rename(&beside, path)?;
            }
            Turn::Read(how) => return how.read(path).map(Some),
        }
        Ok(None)
    }

    /// What becomes of a file's content by that.
    fn taken(self, content: &mut Vec<u8>, bytes: &[u8]) {
        match self {
            Turn::Append(..) => content.extend_from_slice(bytes),
            Turn::Write(_) | Turn::Replace(_) => *content = bytes.to_vec(),
            Turn::Overwrite(at, _) if !bytes.is_empty() => {
                content.resize(content.len().max(at + bytes.len()), 0);
                content[at..at + bytes.len()].copy_from_slice(bytes);
            }
            Turn::Resize(length) => content.resize(length, 0),
            Turn::Overwrite(..) | Turn::Read(_) => {}
        }
    }

    /// How many bytes it writes.
    fn bytes(self) -> usize {
        match self {
            Turn::Append(many, _) | Turn::Write(many) | Turn::Overwrite(_, many) | Turn::Replace(many) => many,
            Turn::Resize(_) | Turn::Read(_) => 0,
        }
    }
}

impl How {
    fn read(self, path: &Path) -> std::io::Result<Vec<u8>> {
        let file = File::open(path)?;
        let mut read = Vec::new();
        match self {
            How::Called => drop((&file).read_to_end(&mut read)?),
            How::Sent => {
                let to = tempfile::tempfile()?;
                while rustix::fs::sendfile(&to, &file, None, 1 << 20)? > 0 {}
                read.resize(to.metadata()?.len() as usize, 0);
                to.read_exact_at(&mut read, 0)?;
            }
            How::Sought => {
                let end = std::io::Seek::seek(&mut &file, std::io::SeekFrom::End(0))?;
                read.resize(end as usize, 0);
                file.read_exact_at(&mut read, 0)?;
            }
        }
        Ok(read)
    }
}

/// Goal: what is done in a directory and through its mount by turns is done to the same files, however fast the one follows the
/// other.
#[test]
fn of_files_that_are_changed_here_and_beside_by_turns() {
    for seed in seeds(3) {
        let Some(pair) = Pair::with(open_files(seed)) else { return };
        let mut chance = Chance::of(seed);
        let mut files: [_; FILES] = std::array::from_fn(|nth| (nth.to_string(), Vec::new()));
        files.iter().for_each(|(name, _)| std::fs::write(pair.there(name), "").expect("written"));
        let mut told = Vec::new();
        for number in 0..TURNS {
            let (name, content) = &mut files[chance.below(FILES as u64) as usize];
            let turn = Turn::chosen(&mut chance, content.len());
            let [here, beside] = [("here", pair.at(&*name)), ("beside", pair.there(&*name))];
            let (side, path) = if chance.below(2) == 0 { here } else { beside };
            // Which piece comes from where can be seen.
            let piece = format!("{number:05}.");
            let bytes: Vec<u8> = piece.bytes().cycle().take(turn.bytes()).collect();
            told.push(format!("{number}: {side}, {name}: {turn:?}"));
            let lately = || format!("seed {seed}, lately:\n{}", told[told.len().saturating_sub(20)..].join("\n"));
            let read = turn.take(&path, &bytes).unwrap_or_else(|error| panic!("{error}; {}", lately()));
            turn.taken(content, &bytes);
            if let Some(read) = read {
                let first = read.iter().zip(content.iter()).position(|(is, was)| is != was);
                assert!(
                    read == *content,
                    "{} of {} bytes, other from {first:?}; {}",
                    read.len(),
                    content.len(),
                    lately()
                );
            }
        }
    }
}

/// Files of one history.
const FILES: usize = 3;
/// Turns of it.
const TURNS: usize = 300;
