//! `weft-bench replay`: a server's log, replayed against the store.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::machine;
use crate::report::Report;
use crate::store::grouping;
use weft_log::{Log, LogFormat};

/// What `replay` takes.
#[derive(clap::Args, Debug)]
pub struct ReplayArgs {
    /// The log
    #[arg(long)]
    log: PathBuf,
    /// How it is written
    #[arg(long, default_value = "lines")]
    log_format: LogFormat,
}

/// Replays and prints.
pub fn run(args: &ReplayArgs) -> Result<()> {
    let log = Log::read(&args.log, args.log_format).with_context(|| args.log.display().to_string())?;
    let mut report = Report::new(machine::describe(Path::new("."), &["weft-segment".to_owned()]), 1);
    report.sections.push(grouping::of_log(&log)?);
    println!("{}", report.markdown());
    Ok(())
}
