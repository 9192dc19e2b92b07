//! `weft-bench`: what weft costs, beside what others cost, measured in the same run.
//!
//! The program drives the built `weft` as a user would, and its rivals the same way; of the rooms it knows only the
//! segments, which `weft-bench store` measures alone. A real
//! nginx on 127.0.0.1 serves generated trees. Every figure is taken in interleaved rounds, the order of the
//! contenders changing from round to round; what is compared is the ratio within one round, and its median and spread
//! are shown. Nothing is asserted: the targets are a column.

mod access_log;
mod afs;
mod block;
mod book;
mod contender;
mod dead;
mod door;
mod figures;
mod knock;
mod machine;
mod memory_group;
mod page_server;
mod process;
mod random;
mod reader;
mod relay;
mod replay;
mod report;
mod sample;
mod server;
mod store;
mod tables;
mod viewers;
mod workload;
mod workshop;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::report::Report;
use crate::workshop::Workshop;

/// Measures weft against curl, rclone, httpdirfs and the disk.
#[derive(Debug, Parser)]
#[command(name = "weft-bench")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Measure and print
    Run(RunArgs),
    /// Measure the store of small objects alone, beside ext4, and print
    Store(store::StoreArgs),
    /// Measure weft on an AFS cell, beside afsd.fuse and ext4, and print; as root
    Afs(afs::AfsArgs),
    /// Hand on frames between two interfaces later (started by `afs`)
    AfsDistance(afs::DistanceArgs),
    /// Replay a server's log against the store, told and not told what belongs together, and print
    Replay(replay::ReplayArgs),
    /// Open a volume and print `open_ns first_ns memory_bytes objects` (started by `store`)
    StoreOpen(store::OpenArgs),
    /// Serve a file that is as slow as a disk that turns (started by `store`)
    TurningDisk(block::ServeArgs),
    /// Read files as a program of a user would, and print `wall_ns cpu_ns bytes` (started by `run`)
    Read(reader::ReadArgs),
    /// Read many files at once, a thread for each (started by `run`)
    Crowd(reader::CrowdArgs),
    /// Do one thing again and again, and print how often in a second (started by `run`)
    Knock(knock::KnockArgs),
    /// Stand before a server on this machine as if it were far away, until ended: for tries by hand
    Relay(relay::RelayArgs),
}

/// What `run` takes.
#[derive(clap::Args, Debug)]
struct RunArgs {
    /// The weft program to measure
    #[arg(long)]
    weft: PathBuf,
    /// An empty folder on a disk with 15 GB free; what is made there is left for the caller to remove
    #[arg(long)]
    dir: PathBuf,
    /// Write the result between the markers of this file; with `--only` these tables alone
    #[arg(long)]
    figures: Option<PathBuf>,
    /// One round of everything
    #[arg(long)]
    quick: bool,
    /// Only these tables
    #[arg(long, value_enum)]
    only: Vec<tables::Table>,
    #[command(flatten)]
    doors: door::DoorArgs,
}

/// Rounds of a full run: the middle one is shown.
const ROUNDS: usize = 5;

fn main() -> Result<()> {
    match Cli::parse().verb {
        Verb::Read(args) => reader::run(&args),
        Verb::Crowd(args) => reader::run_crowd(&args),
        Verb::Knock(args) => knock::run(&args),
        Verb::Relay(args) => relay::run(&args),
        Verb::Run(args) => run(&args),
        Verb::Store(args) => store::run(&args),
        Verb::Afs(args) => afs::run(&args),
        Verb::AfsDistance(args) => afs::run_distance(&args),
        Verb::TurningDisk(args) => block::run(&args),
        Verb::Replay(args) => replay::run(&args),
        Verb::StoreOpen(args) => store::open_and_tell(&args),
    }
}

fn run(args: &RunArgs) -> Result<()> {
    let rounds = if args.quick { 1 } else { ROUNDS };
    let workshop = Workshop::set_up(&args.weft, &args.dir)?;
    let mut report = Report::new(machine::describe(&args.dir, &workshop.versions()), rounds);
    for table in tables::Table::chosen(&args.only) {
        eprintln!("measuring: {}", table.title());
        report.sections.push(table.measure(&workshop, &args.doors, rounds)?);
    }
    println!("{}", report.markdown());
    if let Some(file) = &args.figures {
        figures::write(file, "make bench", &mut report, args.only.is_empty())?;
    }
    Ok(())
}
