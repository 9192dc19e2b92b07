//! The store of small objects alone, beside files of ext4: as a tree with a folder for each page, in the order of the
//! pages (the best that ext4 can have), and as a cache has them, in folders named by a hash. Beside foyer, a cache of
//! others, too, and on a model of a disk that turns beside xfs and btrfs as well.

mod accelerator;
mod alone;
mod cold;
mod disk;
mod fill;
mod foyer;
pub mod grouping;
mod looking;
mod on_block;
mod pages;
mod start;
mod turning;

use std::path::PathBuf;
use std::process::Command;

pub use start::{OpenArgs, open_and_tell};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use crate::report::{Report, Section};
use crate::{figures, machine, server};
use weft_log::{Log, LogFormat};

/// What `store` takes.
#[derive(clap::Args, Debug)]
pub struct StoreArgs {
    /// An empty folder on a disk with 18 GB free; what is made there is left for the caller to remove
    #[arg(long)]
    dir: PathBuf,
    /// Write the result between the markers of this file; with `--only` in the place of these tables alone
    #[arg(long)]
    figures: Option<PathBuf>,
    /// One round of everything, with few objects
    #[arg(long)]
    quick: bool,
    /// Only these tables
    #[arg(long, value_enum)]
    only: Vec<Table>,
    /// A web server's log that is replayed as well
    #[arg(long)]
    log: Option<PathBuf>,
    /// How it is written
    #[arg(long, default_value = "lines")]
    log_format: LogFormat,
    /// The weft program that a web server reads through; without it that table is left out
    #[arg(long)]
    weft: Option<PathBuf>,
    /// The program that keeps objects in foyer; without it foyer is left out
    #[arg(long)]
    foyer_store: Option<PathBuf>,
}

/// A table that can be asked for by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Table {
    /// Storing many objects, and storing them durably
    Fill,
    /// Reading pages and single objects that no memory holds
    Cold,
    /// The same on a model of a disk that turns
    Turning,
    /// The same on that disk as a block device, beside ext4, xfs, btrfs and foyer
    Block,
    /// nginx on that disk with little memory, on ext4 and on weft's mount
    Nginx,
    /// Replaying requests, told and not told what belongs together
    Grouping,
    /// Memory for each object, and how long a start takes
    Start,
    /// Looking at every segment
    Looking,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Scale {
    rounds: usize,
    /// Pages of 16.5 objects in the mean.
    pages: usize,
    /// Pages that a round reads.
    pages_read: usize,
    /// Objects that a round reads one by one.
    objects_read: usize,
    /// Objects that are stored durably in a round.
    durable: usize,
    /// Objects of the table of starts.
    held: u64,
    /// Pages of the site whose views are replayed.
    pages_replayed: usize,
    /// Rounds on the disk that turns as a block device, and the pages that each reads: that takes its time.
    rounds_on_block: usize,
    pages_on_block: usize,
    /// Rounds of the web server on that disk, the pages of its site, and the objects that are asked for in each turn.
    rounds_served: usize,
    pages_served: usize,
    urls_served: usize,
}

const FULL: Scale = Scale {
    rounds: 5,
    pages: 2400,
    pages_read: 400,
    objects_read: 3000,
    durable: 1500,
    held: 10_000_000,
    pages_replayed: 1000,
    rounds_on_block: 2,
    pages_on_block: 120,
    rounds_served: 3,
    pages_served: 2400,
    urls_served: 1500,
};
const QUICK: Scale = Scale {
    rounds: 1,
    pages: 300,
    pages_read: 100,
    objects_read: 800,
    durable: 300,
    held: 500_000,
    pages_replayed: 300,
    rounds_on_block: 1,
    pages_on_block: 40,
    rounds_served: 1,
    pages_served: 2000,
    urls_served: 300,
};

fn programs(args: &StoreArgs) -> Vec<String> {
    let mut programs = vec!["weft-segment, release build".to_owned()];
    if let Some(weft) = &args.weft {
        programs.push(machine::said(Command::new(weft).arg("--version")));
    }
    programs.extend(server::nginx().ok().map(|nginx| machine::said(Command::new(nginx).arg("-v"))));
    programs
}

/// Its name in the document.
const COMMAND: &str = "make bench-store";

/// Measures and prints.
pub fn run(args: &StoreArgs) -> Result<()> {
    let dir = args.dir.canonicalize().with_context(|| args.dir.display().to_string())?;
    ensure!(dir.read_dir()?.next().is_none(), "{}: not empty", dir.display());
    let scale = if args.quick { QUICK } else { FULL };
    let mut report = Report::new(machine::describe(&dir, &programs(args)), scale.rounds);
    let wanted = |table| args.only.is_empty() || args.only.contains(&table);
    let mut add = |section: Result<Section>| section.map(|section| report.sections.push(section));
    if wanted(Table::Fill) || wanted(Table::Cold) {
        eprintln!("measuring: storing");
        let (section, filled) = fill::measure(&dir, args.foyer_store.as_deref(), scale)?;
        if wanted(Table::Fill) {
            add(Ok(section))?;
        }
        if wanted(Table::Cold) {
            eprintln!("measuring: cold reads");
            add(cold::measure(&filled, scale))?;
        }
    }
    if wanted(Table::Turning) {
        eprintln!("measuring: a disk that turns");
        add(turning::measure(scale))?;
    }
    if wanted(Table::Block) {
        eprintln!("measuring: a disk that turns, as a block device");
        on_block::measure(&dir, args.foyer_store.as_deref(), scale)?
            .into_iter()
            .try_for_each(|section| add(Ok(section)))?;
    }
    if wanted(Table::Nginx) {
        eprintln!("measuring: nginx on a disk that turns");
        accelerator::measure(&dir, args.weft.as_deref(), scale)?
            .into_iter()
            .try_for_each(|section| add(Ok(section)))?;
    }
    if wanted(Table::Grouping) {
        eprintln!("measuring: grouping");
        grouping::made_up(scale.pages_replayed)?.into_iter().try_for_each(|section| add(Ok(section)))?;
        match &args.log {
            Some(path) => {
                let log = Log::read(path, args.log_format).with_context(|| path.display().to_string())?;
                add(grouping::of_log(&log))?
            }
            None => eprintln!("skipped: no log to replay; name one with --log"),
        }
    }
    if wanted(Table::Start) {
        eprintln!("measuring: starts");
        add(start::measure(&dir, scale))?;
    }
    if wanted(Table::Looking) {
        eprintln!("measuring: looking at everything");
        add(looking::measure(&dir, scale))?;
    }
    println!("{}", report.markdown());
    if let Some(file) = &args.figures {
        figures::write(file, COMMAND, &mut report, args.only.is_empty())?;
    }
    Ok(())
}
