//! 500 small files of 2,000: cold, warm on the same mount, and after a remount with the cache kept.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::in_turn;
use crate::access_log::Requests;
use crate::book::Book;
use crate::contender::{Contender, Mounted};
use crate::report::{Bound, Section, Unit};
use crate::sample::{FOLDERS, READ_PER_FOLDER, Sample, file_name, files_to_read, folder_name};
use crate::server::Site;
use crate::workshop::Workshop;
use crate::{process, reader};

/// Who takes part in a round.
#[derive(Clone, Copy)]
enum Turn {
    Curl,
    Disk,
    Mount(Contender),
}

/// Measures the table.
pub fn measure(workshop: &Workshop, rounds: usize) -> Result<Section> {
    workshop.sample.make_small()?;
    let mut book = Book::default();
    let mut asked = Asked::default();
    let mut turns = vec![Turn::Curl, Turn::Disk, Turn::Mount(Contender::Weft)];
    if workshop.has(Contender::Rclone) {
        turns.push(Turn::Mount(Contender::Rclone));
    }
    // Not measured: the server's files and the programs themselves are in memory after that.
    curl(workshop, workshop.small)?;
    read(&workshop.sample.small, READ_PER_FOLDER)?;
    for round in 0..rounds {
        for turn in in_turn(&turns, round) {
            match turn {
                Turn::Curl => book.note("curl", "wall", curl(workshop, workshop.small)?.as_secs_f64()),
                Turn::Disk => {
                    let reading = read(&workshop.sample.small, READ_PER_FOLDER)?;
                    book.note("disk", "warm wall", reading.inner_wall.as_secs_f64());
                }
                Turn::Mount(contender) => three_reads(workshop, contender, READ_PER_FOLDER, &mut book, &mut asked)?,
            }
        }
    }
    if workshop.has(Contender::Httpdirfs) {
        three_reads(workshop, Contender::Httpdirfs, HTTPDIRFS_PER_FOLDER, &mut book, &mut asked)?;
    }
    Ok(section(&book, &asked))
}

/// Requests of the latest round, for the notes.
#[derive(Default)]
struct Asked(Vec<String>);

/// Cold, warm, and again after a remount.
fn three_reads(
    workshop: &Workshop,
    contender: Contender,
    per_folder: usize,
    book: &mut Book,
    asked: &mut Asked,
) -> Result<()> {
    let cache = workshop.fresh("cache");
    let who = contender.name();
    let mounted = workshop.mount(contender, workshop.small, &cache)?;
    let (cold, requests) = measured_read(workshop, &mounted, per_folder)?;
    book.note(who, "cold wall", cold.wall);
    book.note(who, "cold cpu", cold.cpu);
    book.note(who, "cold daemon cpu", cold.daemon_cpu);
    note_requests(book, who, ["directories", "files", "heads", "others"], &requests);
    asked.0.push(format!("{who}, cold: {requests}"));
    let (warm, _) = measured_read(workshop, &mounted, per_folder)?;
    book.note(who, "warm wall", warm.inner_wall);
    workshop.sample.verify_small(&mounted.root, per_folder)?;
    book.note(who, "memory", process::memory_peak_bytes(mounted.pid)? as f64 / 1e6);
    mounted.unmount()?;

    let mounted = workshop.mount(contender, workshop.small, &cache)?;
    let (again, requests) = measured_read(workshop, &mounted, per_folder)?;
    book.note(who, "remount wall", again.inner_wall);
    book.note(who, "remount cpu", again.cpu);
    note_requests(book, who, ["directories again", "files again", "heads again", "others again"], &requests);
    asked.0.push(format!("{who}, after a remount: {requests}"));
    mounted.unmount()
}

/// One reading of a mount.
struct Cost {
    wall: f64,
    inner_wall: f64,
    /// Of daemon and reader.
    cpu: f64,
    daemon_cpu: f64,
}

fn measured_read(workshop: &Workshop, mounted: &Mounted, per_folder: usize) -> Result<(Cost, Requests)> {
    let mark = workshop.server.mark(workshop.small)?;
    let before = process::cpu(mounted.pid)?;
    let reading = read(&mounted.root, per_folder)?;
    workshop.settle_daemon();
    let daemon_cpu = (process::cpu(mounted.pid)? - before).as_secs_f64();
    let requests = workshop.server.requests_since(workshop.small, mark)?;
    let cost = Cost {
        wall: reading.wall.as_secs_f64(),
        inner_wall: reading.inner_wall.as_secs_f64(),
        cpu: daemon_cpu + reading.cpu.as_secs_f64(),
        daemon_cpu,
    };
    Ok((cost, requests))
}

fn read(root: &Path, per_folder: usize) -> Result<reader::Reading> {
    let reading = reader::tree(root, per_folder, LIMIT)?;
    let expected = Sample::small_bytes_read(per_folder);
    ensure!(reading.bytes == expected, "{}: {} bytes instead of {expected}", root.display(), reading.bytes);
    Ok(reading)
}

/// The same files by name over one connection, to nowhere.
pub(super) fn curl(workshop: &Workshop, site: Site) -> Result<Duration> {
    let mut list = String::new();
    for folder in 0..FOLDERS {
        for file in files_to_read(READ_PER_FOLDER) {
            let url = format!("{}/{}/{}", site.url(), folder_name(folder), file_name(file));
            list.push_str(&format!("url = \"{url}\"\noutput = \"/dev/null\"\n"));
        }
    }
    let config = workshop.fresh("curl");
    std::fs::write(&config, list)?;
    process::timed(Command::new("curl").args(["-q", "--silent", "--fail", "--config"]).arg(&config), LIMIT)
}

fn note_requests(book: &mut Book, who: &'static str, whats: [&'static str; 4], requests: &Requests) {
    let [directories, files, heads, others] = whats;
    book.note(who, directories, requests.directories as f64);
    book.note(who, files, requests.files as f64);
    book.note(who, heads, requests.heads as f64);
    book.note(who, others, requests.others.values().sum::<u64>() as f64);
}

fn section(book: &Book, asked: &Asked) -> Section {
    let (seconds, count) = (Unit::Seconds, Unit::Count);
    let most = |value| Some(Bound::AtMost(value));
    let folders = FOLDERS as f64 + 1.0;
    let files = (FOLDERS * READ_PER_FOLDER) as f64;
    let rows = [
        book.compare("cold, time", seconds, "cold wall", ("curl", "wall"), most(2.0)),
        book.compare("cold, time", seconds, "cold wall", ("rclone", "cold wall"), None),
        book.compare("cold, CPU of daemon and reader", seconds, "cold cpu", ("rclone", "cold cpu"), most(0.35)),
        book.alone("cold, CPU of the daemon alone", seconds, "cold daemon cpu", None),
        book.alone("cold, requests for directories", count, "directories", most(folders)),
        book.alone("cold, requests for files", count, "files", most(files)),
        book.alone("cold, HEAD requests", count, "heads", most(0.0)),
        book.alone("cold, other requests", count, "others", most(0.0)),
        book.compare("remount, time", seconds, "remount wall", ("rclone", "remount wall"), most(0.15)),
        book.compare("remount, CPU of daemon and reader", seconds, "remount cpu", ("rclone", "remount cpu"), None),
        book.alone("remount, requests for files", count, "files again", most(0.0)),
        book.alone("remount, HEAD requests", count, "heads again", most(0.0)),
        book.alone("remount, requests for directories", count, "directories again", None),
        book.compare("warm, time", seconds, "warm wall", ("disk", "warm wall"), None),
        book.compare("warm, time", seconds, "warm wall", ("rclone", "warm wall"), None),
        book.alone("memory of the daemon, peak", Unit::Megabytes, "memory", most(64.0)),
    ];
    let mut notes = vec![
        "2,000 files of 1 to 16 KiB in 20 folders, served by nginx with generated lists; each folder is listed, then \
         25 of its files are read by name. curl: one process, one connection, 500 URLs."
            .to_owned(),
        "CPU is user and system time, counted until 0.3 s after the last read. `remount`: a new daemon on the kept \
         cache, with no kernel cache. disk: the same files read directly, from the page cache."
            .to_owned(),
    ];
    notes.extend(httpdirfs_note(book));
    let mut asked = asked.0.clone();
    asked.sort();
    asked.dedup();
    notes.push(format!("requests: {}", asked.join("; ")));
    Section { title: super::Table::Small.title().to_owned(), rows: rows.into_iter().flatten().collect(), notes }
}

fn httpdirfs_note(book: &Book) -> Option<String> {
    let value = |what| book.values("httpdirfs", what).first().copied();
    Some(format!(
        "httpdirfs, once, {} files (it needs about a tenth of a second for each): cold {:.2} s, CPU {:.2} s, \
         warm {:.2} s, remount {:.2} s, memory {:.0} MB.",
        HTTPDIRFS_PER_FOLDER * FOLDERS,
        value("cold wall")?,
        value("cold cpu")?,
        value("warm wall")?,
        value("remount wall")?,
        value("memory")?,
    ))
}

/// 100 files: with 500 it takes more than a minute.
const HTTPDIRFS_PER_FOLDER: usize = 5;
/// No contender may stop the run.
const LIMIT: Duration = Duration::from_secs(180);
