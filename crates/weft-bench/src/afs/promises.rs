//! Callback promises in memory: their table is private to its crate, whose tests measure it when they are asked to.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::{Scale, Table};
use crate::book::Book;
use crate::process;
use crate::report::{Bound, Section, Unit};

/// Measures the table with that program; each round is a process of its own.
pub fn measure(program: &Path, scale: Scale) -> Result<Section> {
    let mut book = Book::default();
    for _ in 0..scale.rounds {
        let said = process::output(Command::new(program).args(["--ignored", "--exact", "--nocapture", TEST]))?;
        for (label, what) in
            [("memory_bytes ", "memory"), ("breaks_per_second ", "breaks"), ("entered_per_second ", "entered")]
        {
            let value = said.lines().find_map(|line| line.strip_prefix(label));
            let value: f64 = value.and_then(|value| value.trim().parse().ok()).with_context(|| said.clone())?;
            book.note("weft", what, if what == "memory" { value / 1e6 } else { value });
        }
    }
    let rows = [
        book.alone("memory of the promises", Unit::Megabytes, "memory", Some(Bound::AtMost(200.0))),
        book.alone("breaks, while all others are held", Unit::PerSecond, "breaks", Some(Bound::AtLeast(100_000.0))),
        book.alone("entered", Unit::PerSecond, "entered", None),
    ];
    let notes = vec![
        "The table of promises alone, without network or files: 1,000,000 files of 100 volumes of one cell. Memory is what \
         the process has resident beyond what it had before. Then 200,000 of them are broken, 50 in a call as file servers \
         do, and each is told of."
            .to_owned(),
    ];
    Ok(Table::Promises.section(rows, notes))
}

/// In the crate weft-afs.
const TEST: &str = "promises_cost::a_million_promises";
