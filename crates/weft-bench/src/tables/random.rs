//! A file of 10 GB read here and there: what it costs in memory and bytes.

use std::fs::File;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::book::Book;
use crate::contender::Contender;
use crate::report::{Bound, Section, Unit};
use crate::workshop::Workshop;
use crate::{process, reader};

/// Measures the table: once, for memory does not depend on luck.
pub fn measure(workshop: &Workshop) -> Result<Section> {
    std::fs::create_dir_all(&workshop.sample.large)?;
    let path = workshop.sample.large.join(NAME);
    // Without bytes of its own: what is read is zeros, and counted, not compared.
    File::create(&path)?.set_len(BYTES)?;
    let mut book = Book::default();
    let mut contenders = vec![Contender::Weft];
    contenders.extend(workshop.rivals.iter().copied().filter(|rival| *rival == Contender::Rclone));
    for contender in contenders {
        let mounted = workshop.mount(contender, workshop.large, &workshop.fresh("cache"))?;
        let reading = reader::random(&mounted.root.join(NAME), READS, LIMIT)?;
        ensure!(reading.bytes == READS as u64 * reader::RANDOM_BYTES as u64, "{} bytes", reading.bytes);
        book.note(contender.name(), "time", reading.wall.as_secs_f64());
        book.note(contender.name(), "memory", process::memory_peak_bytes(mounted.pid)? as f64 / 1e6);
        mounted.unmount()?;
    }
    let rows = [
        book.compare("time", Unit::Seconds, "time", ("rclone", "time"), None),
        book.compare("memory of the daemon, peak", Unit::Megabytes, "memory", ("rclone", "memory"), None),
        book.alone("memory of the daemon, peak", Unit::Megabytes, "memory", Some(Bound::AtMost(128.0))),
    ];
    let notes = vec![format!("{READS} reads of 64 KiB at random places, by four threads at a time.")];
    Ok(Section { title: super::Table::Random.title().to_owned(), rows: rows.into_iter().flatten().collect(), notes })
}

const NAME: &str = "sparse.bin";
const BYTES: u64 = 10_000_000_000;
const READS: usize = 2000;
/// No contender may stop the run.
const LIMIT: Duration = Duration::from_secs(240);
