//! weft on a real AFS cell, beside `afsd.fuse` (the only other client in user space) and ext4.
//!
//! The cell is scripts/afs-cell.sh's: OpenAFS's own servers in network namespaces of this machine. Each client has a node of
//! its own. What is read lies in the volume `scratch`, restored from a dump, so that no client has ever seen it; anybody may
//! write there. Everybody is anonymous, for `afsd.fuse` knows no tokens.

mod andrew;
mod cell;
mod client;
mod distance;
mod large;
mod listing;
mod promises;
mod small;
mod tree;

use std::cell::Cell as Counter;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

pub use distance::{DistanceArgs, run as run_distance};

use crate::report::{Report, Section};
use crate::{figures, machine, process};
use cell::Cell;
use tree::Trees;

/// What `afs` takes.
#[derive(clap::Args, Debug)]
pub struct AfsArgs {
    /// The weft program to measure
    #[arg(long)]
    weft: PathBuf,
    /// An empty folder on a disk with 8 GB free; what is made there is left for the caller to remove
    #[arg(long)]
    dir: PathBuf,
    /// The folder of afs-cell.sh and afs-dump.py
    #[arg(long)]
    scripts: PathBuf,
    /// Write the result between the markers of this file
    #[arg(long)]
    figures: Option<PathBuf>,
    /// One round of everything, with a shorter large file
    #[arg(long)]
    quick: bool,
    /// Only these tables
    #[arg(long, value_enum)]
    only: Vec<Table>,
    /// The tests of weft-afs as a program: it measures callback promises; without it that table is left out
    #[arg(long)]
    promises: Option<PathBuf>,
}

/// A table that can be asked for by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Table {
    /// The phases of the Andrew benchmark
    Andrew,
    /// 500 small files
    Small,
    /// One large file, near and far
    Large,
    /// `ls -l` of a large directory
    Listing,
    /// A million callback promises
    Promises,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Scale {
    /// The middle one is shown.
    pub rounds: usize,
    /// Length of the large file, a multiple of eight.
    pub large_bytes: u64,
}

const FULL: Scale = Scale { rounds: 5, large_bytes: 256 << 20 };
const QUICK: Scale = Scale { rounds: 1, large_bytes: 64 << 20 };

/// Where everything is measured. What is mounted or running in it ends before it does.
#[derive(Debug)]
struct Bench {
    weft: PathBuf,
    dir: PathBuf,
    /// weft's configuration.
    config: PathBuf,
    cell: Cell,
    /// The same content as in the volume, on the disk.
    trees: Trees,
    scale: Scale,
    places: Counter<usize>,
}

/// What a step has cost, in seconds.
#[derive(Clone, Copy, Debug)]
struct Cost {
    pub wall: f64,
    /// Processor time of the programs that were run and of the client.
    pub cpu: f64,
    /// Of the client alone; nothing where there is none.
    pub client_cpu: f64,
}

/// Its name in the document.
const COMMAND: &str = "make bench-afs";

/// Measures and prints.
pub fn run(args: &AfsArgs) -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "a cell needs network namespaces: run this as root");
    let dir = args.dir.canonicalize().with_context(|| args.dir.display().to_string())?;
    ensure!(dir.read_dir()?.next().is_none(), "{}: not empty", dir.display());
    let scale = if args.quick { QUICK } else { FULL };
    let mut report = Report::new(machine::describe(&dir, &programs(&args.weft)), scale.rounds);
    let wanted = |table| args.only.is_empty() || args.only.contains(&table);
    let on_cell = [Table::Andrew, Table::Small, Table::Large, Table::Listing];
    // What was measured is shown, also where another table could not be.
    let mut failed = Ok(());
    if on_cell.into_iter().any(wanted) {
        eprintln!("bringing up a cell");
        let bench = Bench::set_up(args, &dir, scale)?;
        for table in on_cell.into_iter().filter(|table| wanted(*table)) {
            eprintln!("measuring: {}", table.title());
            match table.measure(&bench) {
                Ok(section) => report.sections.push(section),
                Err(error) => failed = failed.and(Err(error.context(table.title()))),
            }
        }
    }
    match &args.promises {
        Some(program) if wanted(Table::Promises) => {
            eprintln!("measuring: {}", Table::Promises.title());
            report.sections.push(promises::measure(program, scale)?);
        }
        _ => {}
    }
    println!("{}", report.markdown());
    failed?;
    if let Some(file) = &args.figures {
        figures::write(file, COMMAND, &mut report, args.only.is_empty())?;
    }
    Ok(())
}

fn programs(weft: &Path) -> Vec<String> {
    let package = ["-W", "-f", "openafs-fuse ${Version}", "openafs-fuse"];
    vec![
        machine::said(Command::new(weft).arg("--version")),
        machine::said(Command::new("dpkg-query").args(package)),
        machine::said(Command::new("cc").arg("--version")),
    ]
}

impl Table {
    fn title(self) -> &'static str {
        match self {
            Table::Andrew => "The Andrew benchmark's phases",
            Table::Small => "500 files of 2 KiB",
            Table::Large => "One large file",
            Table::Listing => "`ls -l` of 10,000 names",
            Table::Promises => "1,000,000 callback promises",
        }
    }

    fn measure(self, bench: &Bench) -> Result<Section> {
        match self {
            Table::Andrew => andrew::measure(bench),
            Table::Small => small::measure(bench),
            Table::Large => large::measure(bench),
            Table::Listing => listing::measure(bench),
            Table::Promises => unreachable!("needs no cell"),
        }
    }

    fn section(self, rows: impl IntoIterator<Item = Option<crate::report::Row>>, notes: Vec<String>) -> Section {
        Section { title: self.title().to_owned(), rows: rows.into_iter().flatten().collect(), notes }
    }
}

impl Bench {
    fn set_up(args: &AfsArgs, dir: &Path, scale: Scale) -> Result<Bench> {
        let weft = args.weft.canonicalize().with_context(|| format!("{}: not built?", args.weft.display()))?;
        let trees = Trees::make(&dir.join("sample"), scale.large_bytes)?;
        let cell = Cell::up(&args.scripts, &dir.join("cell"))?;
        cell.fill("scratch", &trees.top, &dir.join("dump"))?;
        let config = dir.join("weft.toml");
        std::fs::write(&config, format!("[afs]\nconfig_dir = \"{}\"\n", cell.client_configuration().display()))?;
        Ok(Bench { weft, dir: dir.to_owned(), config, cell, trees, scale, places: Counter::new(0) })
    }

    /// A path that nothing has had before.
    fn fresh(&self, what: &str) -> PathBuf {
        self.places.set(self.places.get() + 1);
        self.dir.join(format!("{what}-{}", self.places.get()))
    }

    /// Runs a program to its end, and gives its cost and that of the client that serves it.
    fn cost(&self, client: Option<u32>, command: &mut Command) -> Result<Cost> {
        // What was written before is on the disk: nobody pays for another.
        rustix::fs::syncfs(File::open(&self.dir)?).context("syncfs")?;
        let client_so_far = || client.map_or(Ok(Duration::ZERO), process::cpu);
        let (client_before, programs_before) = (client_so_far()?, cpu_of_children()?);
        let start = Instant::now();
        process::timed(command, LIMIT)?;
        let wall = start.elapsed().as_secs_f64();
        let programs = cpu_of_children()? - programs_before;
        if client.is_some() {
            // What it does behind its reader's back is counted.
            std::thread::sleep(AFTERWARDS);
        }
        let client_cpu = (client_so_far()? - client_before).as_secs_f64();
        Ok(Cost { wall, cpu: programs + client_cpu, client_cpu })
    }
}

/// Processor time of all programs that were started here and have ended, with what they have started; in seconds.
fn cpu_of_children() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("getrusage")?;
    Ok((usage.user_time() + usage.system_time()).num_microseconds() as f64 / 1e6)
}

/// A line for the shell; its words `$0` and on are given to the command as arguments.
fn shell(line: &str, words: &[&Path]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", line]).args(words);
    command
}

/// No contender may stop the run.
const LIMIT: Duration = Duration::from_secs(300);
/// Counted as part of a step, for every client alike; in no time that is shown.
const AFTERWARDS: Duration = Duration::from_millis(300);
