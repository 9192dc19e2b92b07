//! What is done with an open file.

use std::fs::{self, File};
use std::io::Result;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::{FallocateFlags, SeekFrom};

use super::deed::Without;
use crate::support::Chance;
use crate::writing_processes::python;

/// One use of an open file.
#[derive(Clone, Debug)]
pub enum Step {
    WriteAt(u64, usize, u8),
    Cut(u64),
    Reserve(u64, u64),
    Punch(u64, u64),
    ReadAt(u64, usize),
    Hole(u64),
    /// Read whole through memory that is the file, and written there as far as it goes.
    Map(u64, usize, u8),
    Sync,
    /// It loses its name while it is open.
    Remove,
}

impl Step {
    /// The next few.
    pub fn some(chance: &mut Chance, without: Without) -> Vec<Step> {
        (0..1 + chance.below(6)).map(|_| Step::chosen(chance, without.what_afs_lacks)).collect()
    }

    /// Does them one after the other with a file that was opened by this path; what was read.
    pub fn all(steps: &[Step], file: &File, path: &Path) -> Result<Vec<u8>> {
        let mut read = Vec::new();
        for step in steps {
            step.do_with(file, path, &mut read)?;
        }
        Ok(read)
    }

    fn chosen(chance: &mut Chance, lacks: bool) -> Step {
        let (at, length, byte) = (length(chance) as u64, length(chance), b'A' + chance.below(26) as u8);
        match chance.below(20) {
            0..6 => Step::WriteAt(at, length, byte),
            6..9 => Step::Cut(at),
            9 if !lacks => Step::Reserve(at, 1 + length as u64),
            10 if !lacks => Step::Punch(at, 1 + length as u64),
            11..16 => Step::ReadAt(at, length),
            16 if chance.below(3) == 0 => Step::Map(at, length, byte),
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
            Step::Map(at, length, byte) => {
                let words = [at.to_string(), length.to_string(), byte.to_string()];
                let Some(python) = python() else { return Ok(()) };
                let mapped = Command::new(python).args(["-c", MAP]).args(words).stdin(file.try_clone()?).output()?;
                match mapped.status.code() {
                    Some(0) => read.extend(mapped.stdout),
                    // An older version is open, and has the kernel's pages.
                    Some(NOT_MAPPED) if mapped.stderr.is_empty() => read_and_write(file, *at, *length, *byte, read)?,
                    _ => panic!("{}", String::from_utf8_lossy(&mapped.stderr)),
                }
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

/// What [`MAP`] does, with calls.
fn read_and_write(file: &File, at: u64, length: usize, byte: u8, read: &mut Vec<u8>) -> Result<()> {
    let mut held = vec![0; file.metadata()?.len() as usize];
    file.read_exact_at(&mut held, 0)?;
    let length = length.min(held.len().saturating_sub(at as usize));
    if length > 0 {
        file.write_all_at(&vec![byte; length], at)?;
    }
    read.extend(held);
    Ok(())
}

/// A length in bytes: short ones are likelier.
pub fn length(chance: &mut Chance) -> usize {
    let most = *chance.pick(&[1, 100, 5000, 20_000, 300_000]);
    chance.below(most) as usize
}

/// What the system says where it does not map a file.
const NOT_MAPPED: i32 = rustix::io::Errno::NODEV.raw_os_error();

/// Standard input is the file: what it held is printed, and what was asked for is written, as far as it is long. Ends with
/// what the system says where it cannot be mapped.
const MAP: &str = "
import mmap, os, sys
at, length, byte = map(int, sys.argv[1:])
size = os.fstat(0).st_size
if size:
    try:
        memory = mmap.mmap(0, size)
    except OSError as error:
        sys.exit(error.errno)
    sys.stdout.buffer.write(memory)
    length = max(0, min(length, size - at))
    memory[at:at + length] = bytes([byte]) * length
";
