//! The reader: a process of its own, so that it is started and paid for as a user's program is.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::time::{ClockId, clock_gettime};

use crate::{process, sample};

/// What to read.
#[derive(clap::Args, Debug)]
pub struct ReadArgs {
    /// The tree of small files, or one large file
    path: PathBuf,
    /// Files to read in each folder of the tree; none: the path is one file
    #[arg(long)]
    per_folder: Option<usize>,
}

/// What reading has cost.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// From starting the reader to its end, as a shell would see it.
    pub wall: Duration,
    /// The reading alone, without starting a process.
    pub inner_wall: Duration,
    /// Processor time of the reader.
    pub cpu: Duration,
    /// Bytes read.
    pub bytes: u64,
}

/// The reader itself.
pub fn run(args: &ReadArgs) -> Result<()> {
    let start = Instant::now();
    let mut memory = vec![0; BUFFER_BYTES + PAGE_BYTES];
    let skipped = memory.as_ptr().align_offset(PAGE_BYTES);
    let buffer = &mut memory[skipped..skipped + BUFFER_BYTES];
    let bytes = match args.per_folder {
        Some(per_folder) => read_tree(&args.path, per_folder, buffer)?,
        None => read_file(&args.path, buffer)?,
    };
    let wall = start.elapsed();
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    println!("{} {} {bytes}", wall.as_nanos(), cpu.tv_sec as i128 * 1_000_000_000 + i128::from(cpu.tv_nsec));
    Ok(())
}

/// Lists each folder, then reads some of its files by name.
fn read_tree(root: &Path, per_folder: usize, buffer: &mut [u8]) -> Result<u64> {
    let mut bytes = 0;
    for folder in 0..sample::FOLDERS {
        let folder = root.join(sample::folder_name(folder));
        let names = std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?.count();
        ensure!(names == sample::FILES_PER_FOLDER, "{}: {names} names", folder.display());
        for file in sample::files_to_read(per_folder) {
            bytes += read_file(&folder.join(sample::file_name(file)), buffer)?;
        }
    }
    Ok(bytes)
}

fn read_file(path: &Path, buffer: &mut [u8]) -> Result<u64> {
    let mut file = std::fs::File::open(path).with_context(|| path.display().to_string())?;
    let mut bytes = 0;
    loop {
        let count = file.read(buffer).with_context(|| path.display().to_string())?;
        if count == 0 {
            return Ok(bytes);
        }
        bytes += count as u64;
    }
}

/// Has the reader read `per_folder` small files of each folder.
pub fn tree(root: &Path, per_folder: usize, limit: Duration) -> Result<Reading> {
    start(root, Some(per_folder), limit)
}

/// Has the reader read one file.
pub fn file(path: &Path, limit: Duration) -> Result<Reading> {
    start(path, None, limit)
}

fn start(path: &Path, per_folder: Option<usize>, limit: Duration) -> Result<Reading> {
    let mut command = Command::new("/proc/self/exe");
    command.arg("read").arg(path);
    if let Some(count) = per_folder {
        command.arg("--per-folder").arg(count.to_string());
    }
    let start = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("the reader")?;
    let status = process::wait(&mut child, limit)?;
    let wall = start.elapsed();
    match status {
        Some(status) if status.success() => {}
        Some(status) => bail!("reading {}: {status}", path.display()),
        None => bail!("reading {} was not done within {limit:?}", path.display()),
    }
    let mut line = String::new();
    child.stdout.take().context("the reader's output")?.read_to_string(&mut line)?;
    let numbers: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let [inner_wall_ns, cpu_ns, bytes] = numbers[..] else { bail!("the reader said: {line}") };
    let (inner_wall, cpu) = (Duration::from_nanos(inner_wall_ns), Duration::from_nanos(cpu_ns));
    Ok(Reading { wall, inner_wall, cpu, bytes })
}

/// What `cat` and `cp` use.
const BUFFER_BYTES: usize = 128 * 1024;
/// The buffer begins with a page, as that of `cat` does: into others some processors copy five times as slowly.
const PAGE_BYTES: usize = 4096;
