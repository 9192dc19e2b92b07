//! The client of the door table: one operation again and again, by one thread or several.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::process;

/// What is done again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Knock {
    /// fstat(2) of a file that is open
    Getattr,
    /// open(2), pread(2) of 4 KiB, close(2)
    OpenReadClose,
    /// open(2), close(2)
    OpenClose,
    /// pread(2) of 4 KiB at random places
    ReadRandom,
    /// pread(2) of 1 MiB from the beginning to the end, and again
    ReadSequential,
}

/// What to do, where, for how long.
#[derive(clap::Args, Debug)]
pub struct KnockArgs {
    what: Knock,
    file: PathBuf,
    #[arg(long, default_value_t = 1)]
    threads: usize,
    #[arg(long, default_value_t = 300)]
    milliseconds: u64,
}

/// The client itself: prints operations per second.
pub fn run(args: &KnockArgs) -> Result<()> {
    let duration = Duration::from_millis(args.milliseconds);
    let start = Instant::now();
    let count = std::thread::scope(|scope| {
        let work = |thread: usize| scope.spawn(move || repeat(args.what, &args.file, thread, start, duration));
        let threads: Vec<_> = (0..args.threads).map(work).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<u64>>| {
            thread.join().map_err(|_| anyhow::anyhow!("a client panicked"))?
        };
        threads.into_iter().map(join).sum::<Result<u64>>()
    })?;
    println!("{}", count as f64 / start.elapsed().as_secs_f64());
    Ok(())
}

fn repeat(what: Knock, path: &Path, thread: usize, start: Instant, duration: Duration) -> Result<u64> {
    let open = || File::open(path).with_context(|| path.display().to_string());
    // Some files can be open in only one way at a time: who opens and closes has no other in hand.
    let file = if what == Knock::OpenClose { File::open("/dev/null")? } else { open()? };
    let length = file.metadata()?.len();
    let mut buffer = vec![0; if what == Knock::ReadSequential { LARGE_BYTES } else { SMALL_BYTES }];
    let mut state = thread as u64 * 977 + 1;
    let mut offset = 0;
    let mut count = 0;
    while start.elapsed() < duration {
        for _ in 0..BETWEEN_LOOKS {
            match what {
                Knock::Getattr => {
                    file.metadata()?;
                }
                Knock::OpenReadClose => {
                    open()?.read_at(&mut buffer, 0)?;
                }
                Knock::OpenClose => {
                    open()?;
                }
                Knock::ReadRandom => {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    file.read_exact_at(&mut buffer, state % (length / SMALL_BYTES as u64) * SMALL_BYTES as u64)?;
                }
                Knock::ReadSequential => {
                    file.read_exact_at(&mut buffer, offset)?;
                    offset = if offset + 2 * LARGE_BYTES as u64 <= length { offset + LARGE_BYTES as u64 } else { 0 };
                }
            }
            count += 1;
        }
    }
    Ok(count)
}

/// Has a client of its own process knock; `cpu` keeps it on one processor. Operations per second.
pub fn knock(what: Knock, file: &Path, threads: usize, cpu: Option<usize>) -> Result<f64> {
    let me = std::env::current_exe()?;
    let mut command = match cpu {
        Some(cpu) => {
            let mut command = Command::new("taskset");
            command.args(["-c", &cpu.to_string()]).arg(me);
            command
        }
        None => Command::new(me),
    };
    let what = what.to_possible_value().context("a name")?;
    command.args(["knock", what.get_name()]).arg(file).arg("--threads").arg(threads.to_string());
    let said = process::output(&mut command)?;
    said.trim().parse().with_context(|| format!("the client said: {said}"))
}

const SMALL_BYTES: usize = 4096;
const LARGE_BYTES: usize = 1 << 20;
/// Operations between two looks at the clock.
const BETWEEN_LOOKS: u32 = 16;
