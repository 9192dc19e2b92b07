//! A host 20 ms away: a tree that is listed, small files one after the other, and a large file over connections that carry
//! little at a time.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::{in_turn, small};
use crate::book::Book;
use crate::contender::Contender;
use crate::relay::{Distance, Relay};
use crate::report::{Bound, Section, Unit};
use crate::sample::{LARGE_BYTES, LARGE_NAME, READ_PER_FOLDER, Sample};
use crate::server::Site;
use crate::workshop::Workshop;
use crate::{process, reader};

/// Who takes part in a round.
#[derive(Clone, Copy)]
enum Turn {
    Curl,
    Mount(Contender),
}

/// Measures the table.
pub fn measure(workshop: &Workshop, rounds: usize) -> Result<Section> {
    workshop.sample.make_small()?;
    workshop.sample.make_large()?;
    let small_files = Relay::start(workshop.small, Distance { round_trip: ROUND_TRIP, in_flight: AMPLE_BYTES })?;
    let wide = Relay::start(workshop.large, Distance { round_trip: ROUND_TRIP, in_flight: AMPLE_BYTES })?;
    let narrow = Relay::start(workshop.large, Distance { round_trip: ROUND_TRIP, in_flight: NARROW_BYTES })?;
    let mut book = Book::default();
    let mut turns = vec![Turn::Curl, Turn::Mount(Contender::Weft)];
    if workshop.has(Contender::Rclone) {
        turns.push(Turn::Mount(Contender::Rclone));
    }
    for round in 0..rounds {
        for turn in in_turn(&turns, round) {
            match turn {
                Turn::Curl => {
                    book.note("curl", "small", small::curl(workshop, small_files.site())?.as_secs_f64());
                    book.note("curl", "wide", curl(wide.site())?);
                    book.note("curl", "narrow", curl(narrow.site())?);
                }
                Turn::Mount(contender) => {
                    all_names(workshop, contender, small_files.site(), &mut book)?;
                    many(workshop, contender, small_files.site(), &mut book)?;
                    one(workshop, contender, wide.site(), "wide", &mut book)?;
                    one(workshop, contender, narrow.site(), "narrow", &mut book)?;
                }
            }
        }
    }
    Ok(section(&book))
}

fn all_names(workshop: &Workshop, contender: Contender, site: Site, book: &mut Book) -> Result<()> {
    let mounted = workshop.mount(contender, site, &workshop.fresh("cache"))?;
    let mark = workshop.server.mark(workshop.small)?;
    let took = process::timed(Command::new("ls").arg("-lR").arg(&mounted.root), LIMIT)?;
    book.note(contender.name(), "names", took.as_secs_f64());
    workshop.settle_daemon();
    let requests = workshop.server.requests_since(workshop.small, mark)?;
    book.note(contender.name(), "names, requests", requests.total() as f64);
    mounted.unmount()
}

fn many(workshop: &Workshop, contender: Contender, site: Site, book: &mut Book) -> Result<()> {
    let mounted = workshop.mount(contender, site, &workshop.fresh("cache"))?;
    let mark = workshop.server.mark(workshop.small)?;
    let reading = reader::tree(&mounted.root, READ_PER_FOLDER, LIMIT)?;
    ensure!(reading.bytes == Sample::small_bytes_read(READ_PER_FOLDER), "{} bytes", reading.bytes);
    book.note(contender.name(), "small", reading.wall.as_secs_f64());
    workshop.settle_daemon();
    let requests = workshop.server.requests_since(workshop.small, mark)?;
    book.note(contender.name(), "small files", requests.files as f64);
    workshop.sample.verify_small(&mounted.root, READ_PER_FOLDER)?;
    mounted.unmount()
}

fn one(workshop: &Workshop, contender: Contender, site: Site, what: &'static str, book: &mut Book) -> Result<()> {
    let cache = workshop.fresh("cache");
    let mounted = workshop.mount(contender, site, &cache)?;
    let reading = reader::file(&mounted.root.join(LARGE_NAME), LIMIT)?;
    ensure!(reading.bytes == LARGE_BYTES, "{} bytes", reading.bytes);
    book.note(contender.name(), what, rate(reading.wall));
    mounted.unmount()?;
    Ok(std::fs::remove_dir_all(cache)?)
}

fn curl(site: Site) -> Result<f64> {
    let mut command = Command::new("curl");
    command.args(["-q", "--silent", "--fail", "--output"]).arg(Path::new("/dev/null"));
    command.arg(format!("{}/{LARGE_NAME}", site.url()));
    Ok(rate(process::timed(&mut command, LIMIT)?))
}

/// MiB in a second.
fn rate(wall: Duration) -> f64 {
    LARGE_BYTES as f64 / f64::from(1 << 20) / wall.as_secs_f64()
}

fn section(book: &Book) -> Section {
    let rate = Unit::MibPerSecond;
    let rows = [
        book.compare("`ls -lR` of 2,000 in 20 folders, cold", Unit::Seconds, "names", ("rclone", "names"), None),
        book.alone("the same, requests", Unit::Count, "names, requests", None),
        book.compare("500 small, cold", Unit::Seconds, "small", ("curl", "small"), Some(Bound::AtMost(0.5))),
        book.compare("500 small, cold", Unit::Seconds, "small", ("rclone", "small"), None),
        book.alone("500 small, requests for files", Unit::Count, "small files", None),
        book.compare("500 MiB, 16 MiB in flight", rate, "wide", ("curl", "wide"), None),
        book.compare("500 MiB, 16 MiB in flight", rate, "wide", ("rclone", "wide"), None),
        book.compare("500 MiB, 1 MiB in flight", rate, "narrow", ("curl", "narrow"), None),
        book.compare("500 MiB, 1 MiB in flight", rate, "narrow", ("rclone", "narrow"), None),
    ];
    let notes = vec![
        "A relay hands on each byte 10 ms later in each direction, and lets each connection have so many bytes on \
         their way. curl: one process, one connection, one file after the other."
            .to_owned(),
    ];
    Section { title: super::Table::Far.title().to_owned(), rows: rows.into_iter().flatten().collect(), notes }
}

/// Of every connection and request.
const ROUND_TRIP: Duration = Duration::from_millis(20);
/// A connection that is not what limits a transfer.
const AMPLE_BYTES: usize = 16 << 20;
/// One that is: 50 MiB in a second.
const NARROW_BYTES: usize = 1 << 20;
/// No contender may stop the run.
const LIMIT: Duration = Duration::from_secs(240);
