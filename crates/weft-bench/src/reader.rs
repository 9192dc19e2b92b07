//! The reader: a process of its own, so that it is started and paid for as a user's program is.

use std::io::Read;
use std::os::unix::fs::FileExt;
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
    /// Read the one file at so many random places
    #[arg(long, conflicts_with = "per_folder")]
    random: Option<usize>,
}

/// What a crowd reads.
#[derive(clap::Args, Debug)]
pub struct CrowdArgs {
    /// A file with a path on each line; those behind an empty line are read as well and not waited for
    list: PathBuf,
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
    let bytes = match (args.per_folder, args.random) {
        (Some(per_folder), _) => read_tree(&args.path, per_folder, buffer)?,
        (None, Some(count)) => read_at_random(&args.path, count)?,
        (None, None) => read_file(&args.path, buffer)?,
    };
    say(start.elapsed(), bytes);
    Ok(())
}

fn say(wall: Duration, bytes: u64) {
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    println!("{} {} {bytes}", wall.as_nanos(), cpu.tv_sec as i128 * 1_000_000_000 + i128::from(cpu.tv_nsec));
}

/// The crowd itself.
pub fn run_crowd(args: &CrowdArgs) -> Result<()> {
    let list = std::fs::read_to_string(&args.list)?;
    let (waited_for, others) = list.split_once("\n\n").unwrap_or((&list, ""));
    let reading = |path: &str| {
        let path = PathBuf::from(path);
        std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || std::fs::read(path))
    };
    let start = Instant::now();
    // The dead first: whoever comes later must not stand behind them.
    let _unheeded: Vec<_> = others.lines().map(reading).collect::<std::io::Result<_>>()?;
    let threads: Vec<_> = waited_for.lines().map(reading).collect::<std::io::Result<_>>()?;
    let mut bytes = 0;
    for (thread, path) in threads.into_iter().zip(waited_for.lines()) {
        let read = thread.join().map_err(|_| anyhow::anyhow!("{path}: a reader panicked"))?;
        bytes += read.with_context(|| path.to_owned())?.len() as u64;
    }
    say(start.elapsed(), bytes);
    Ok(())
}

/// Reads at places that a simple generator chooses, by a few threads.
fn read_at_random(path: &Path, count: usize) -> Result<u64> {
    let file = std::fs::File::open(path).with_context(|| path.display().to_string())?;
    let places = file.metadata()?.len() / RANDOM_BYTES as u64;
    let read = |thread: usize| -> Result<u64> {
        let mut buffer = vec![0; RANDOM_BYTES];
        let mut state = thread as u64 * 977 + 1;
        let mut bytes = 0;
        for _ in 0..count / RANDOM_THREADS {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            file.read_exact_at(&mut buffer, state % places * RANDOM_BYTES as u64)?;
            bytes += buffer.len() as u64;
        }
        Ok(bytes)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..RANDOM_THREADS).map(|thread| scope.spawn(move || read(thread))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<u64>>| {
            thread.join().map_err(|_| anyhow::anyhow!("a reader panicked"))?
        };
        threads.into_iter().map(join).sum()
    })
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
    start(command("read", root).arg("--per-folder").arg(per_folder.to_string()), limit)
}

/// Has the reader read one file.
pub fn file(path: &Path, limit: Duration) -> Result<Reading> {
    start(&mut command("read", path), limit)
}

/// Has the reader read a file at random places.
pub fn random(path: &Path, count: usize, limit: Duration) -> Result<Reading> {
    start(command("read", path).arg("--random").arg(count.to_string()), limit)
}

/// Has a crowd read these at once, and others that nobody waits for. `list` is a file to be made.
pub fn crowd(list: &Path, waited_for: &[PathBuf], others: &[PathBuf], limit: Duration) -> Result<Reading> {
    let lines = |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join("\n");
    std::fs::write(list, format!("{}\n\n{}", lines(waited_for), lines(others)))?;
    start(&mut command("crowd", list), limit)
}

fn command(verb: &str, path: &Path) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg(verb).arg(path);
    command
}

fn start(command: &mut Command, limit: Duration) -> Result<Reading> {
    let start = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("the reader")?;
    let status = process::wait(&mut child, limit)?;
    let wall = start.elapsed();
    match status {
        Some(status) if status.success() => {}
        Some(status) => bail!("{command:?}: {status}"),
        None => bail!("{command:?}: not done within {limit:?}"),
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
/// Bytes of one read at a random place.
pub const RANDOM_BYTES: usize = 64 << 10;
/// Threads that read at random places.
const RANDOM_THREADS: usize = 4;
/// Of each thread of a crowd.
const STACK_BYTES: usize = 128 << 10;
