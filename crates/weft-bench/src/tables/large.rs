//! One large file: cold, and warm through what the kernel may read by itself.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::in_turn;
use crate::book::Book;
use crate::contender::Contender;
use crate::report::{Bound, Section, Unit};
use crate::sample::{LARGE_BYTES, LARGE_NAME};
use crate::workshop::Workshop;
use crate::{process, reader};

/// Who takes part in a round.
#[derive(Clone, Copy)]
enum Turn {
    CurlToNowhere,
    CurlToDisk,
    Disk,
    Mount(Contender),
}

/// Measures the table.
pub fn measure(workshop: &Workshop, rounds: usize) -> Result<Section> {
    workshop.sample.make_large()?;
    workshop.settle_disk()?;
    let mut book = Book::default();
    let mut notes = Vec::new();
    let mut turns = vec![Turn::CurlToNowhere, Turn::CurlToDisk, Turn::Disk, Turn::Mount(Contender::Weft)];
    if workshop.has(Contender::Rclone) {
        turns.push(Turn::Mount(Contender::Rclone));
    }
    workshop.touch_memory()?;
    // Not measured: the file is in the page cache after that.
    read(&workshop.sample.large_file())?;
    for round in 0..rounds {
        for turn in in_turn(&turns, round) {
            match turn {
                Turn::CurlToNowhere => book.note("curl", "nowhere", curl(workshop, Path::new("/dev/null"))?),
                Turn::CurlToDisk => {
                    let file = Removed(workshop.fresh("curl"));
                    book.note("curl to disk", "disk", curl(workshop, &file.0)?);
                }
                Turn::Disk => book.note("disk", "read", rate(read(&workshop.sample.large_file())?.inner_wall)),
                Turn::Mount(contender) => three_reads(workshop, contender, &mut book, &mut notes)?,
            }
        }
    }
    if workshop.has(Contender::Httpdirfs) {
        three_reads(workshop, Contender::Httpdirfs, &mut book, &mut notes)?;
    }
    notes.sort();
    notes.dedup();
    Ok(section(&book, notes))
}

/// A large copy that goes after its turn, so that the next finds memory that is in use by nobody.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        // All is removed after the run once more.
        let _ = if self.0.is_dir() { std::fs::remove_dir_all(&self.0) } else { std::fs::remove_file(&self.0) };
    }
}

/// Cold, warm, and warm after a remount.
fn three_reads(workshop: &Workshop, contender: Contender, book: &mut Book, notes: &mut Vec<String>) -> Result<()> {
    let cache = Removed(workshop.fresh("cache"));
    let who = contender.name();
    let mounted = workshop.mount(contender, workshop.large, &cache.0)?;
    let file = mounted.root.join(LARGE_NAME);
    let mark = workshop.server.mark(workshop.large)?;
    let before = process::cpu(mounted.pid)?;
    let cold = read(&file)?;
    workshop.settle_daemon();
    book.note(who, "cold", rate(cold.wall));
    book.note(who, "cold cpu", (process::cpu(mounted.pid)? - before + cold.cpu).as_secs_f64());
    let requests = workshop.server.requests_since(workshop.large, mark)?;
    notes.push(format!("requests, cold: {who}: {requests}"));
    // Written back before it is read again: the second reading is to be paid by nobody else.
    workshop.settle_disk()?;
    warm(workshop, &file, mounted.pid, who, ["warm", "warm cpu"], book)?;
    warm(workshop, &file, mounted.pid, who, ["later", "later cpu"], book)?;
    beside_disk(workshop, contender, &file, ["steady", "beside steady"], book)?;
    book.note(who, "memory", process::memory_peak_bytes(mounted.pid)? as f64 / 1e6);
    mounted.unmount()?;

    let mounted = workshop.mount(contender, workshop.large, &cache.0)?;
    let file = mounted.root.join(LARGE_NAME);
    warm(workshop, &file, mounted.pid, who, ["remount", "remount cpu"], book)?;
    warm(workshop, &file, mounted.pid, who, ["remount second", "remount second cpu"], book)?;
    beside_disk(workshop, contender, &file, ["remount steady", "beside remount"], book)?;
    mounted.unmount()?;

    if contender == Contender::Weft {
        // As an ordinary user's mount is: the kernel reads through the daemon and keeps the pages.
        let mounted = workshop.mount_with(contender, workshop.large, &cache.0, &["-o", "no_passthrough"])?;
        let file = mounted.root.join(LARGE_NAME);
        warm(workshop, &file, mounted.pid, who, ["read by weft", "read by weft cpu"], book)?;
        warm(workshop, &file, mounted.pid, who, ["pages", "pages cpu"], book)?;
        beside_disk(workshop, contender, &file, ["pages steady", "beside pages"], book)?;
        mounted.unmount()?;
    }
    Ok(())
}

/// Reads through the mount and from the disk in turn: what the machine does meanwhile, it does to both.
fn beside_disk(
    workshop: &Workshop,
    contender: Contender,
    file: &Path,
    whats: [&'static str; 2],
    book: &mut Book,
) -> Result<()> {
    if contender != Contender::Weft {
        return Ok(());
    }
    let (mut mount, mut disk) = (Vec::new(), Vec::new());
    for _ in 0..BESIDE {
        disk.push(rate(read(&workshop.sample.large_file())?.inner_wall));
        mount.push(rate(read(file)?.inner_wall));
    }
    book.note(contender.name(), whats[0], median(mount));
    book.note("disk", whats[1], median(disk));
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn warm(
    workshop: &Workshop,
    file: &Path,
    pid: u32,
    who: &'static str,
    whats: [&'static str; 2],
    book: &mut Book,
) -> Result<()> {
    let before = process::cpu(pid)?;
    let reading = read(file)?;
    workshop.settle_daemon();
    book.note(who, whats[0], rate(reading.inner_wall));
    book.note(who, whats[1], (process::cpu(pid)? - before).as_secs_f64());
    Ok(())
}

fn read(file: &Path) -> Result<reader::Reading> {
    let reading = reader::file(file, LIMIT)?;
    ensure!(reading.bytes == LARGE_BYTES, "{}: {} bytes", file.display(), reading.bytes);
    Ok(reading)
}

/// The same file by curl; the rate.
fn curl(workshop: &Workshop, to: &Path) -> Result<f64> {
    workshop.settle_disk()?;
    let url = format!("{}/{LARGE_NAME}", workshop.large.url());
    let mut command = Command::new("curl");
    command.args(["-q", "--silent", "--fail", "--output"]).arg(to).arg(url);
    Ok(rate(process::timed(&mut command, LIMIT)?))
}

/// MiB in a second.
fn rate(wall: Duration) -> f64 {
    LARGE_BYTES as f64 / f64::from(1 << 20) / wall.as_secs_f64()
}

fn section(book: &Book, mut notes: Vec<String>) -> Section {
    let (rate, seconds) = (Unit::MibPerSecond, Unit::Seconds);
    let least = |value| Some(Bound::AtLeast(value));
    // Passthrough needs CAP_SYS_ADMIN.
    let as_root = |value| if rustix::process::geteuid().is_root() { least(value) } else { None };
    let rows = [
        book.compare("cold, rate", rate, "cold", ("curl", "nowhere"), least(0.8)),
        book.compare("cold, rate", rate, "cold", ("curl to disk", "disk"), None),
        book.compare("cold, rate", rate, "cold", ("rclone", "cold"), None),
        book.compare("cold, rate", rate, "cold", ("httpdirfs", "cold"), None),
        book.compare("cold, CPU of daemon and reader", seconds, "cold cpu", ("rclone", "cold cpu"), None),
        book.compare("second reading, rate", rate, "warm", ("disk", "read"), None),
        book.compare("second reading, rate", rate, "warm", ("rclone", "warm"), None),
        book.compare("second reading, rate", rate, "warm", ("httpdirfs", "warm"), None),
        book.compare("warm, rate", rate, "steady", ("disk", "beside steady"), as_root(0.95)),
        book.alone("third reading, CPU of the daemon", seconds, "later cpu", None),
        book.compare("remount, first reading, rate", rate, "remount", ("disk", "read"), None),
        book.compare("remount, first reading, rate", rate, "remount", ("rclone", "remount"), None),
        book.compare("remount, first reading, rate", rate, "remount", ("httpdirfs", "remount"), None),
        book.compare("remount, second reading, rate", rate, "remount second", ("disk", "read"), None),
        book.compare("remount, warm, rate", rate, "remount steady", ("disk", "beside remount"), as_root(0.95)),
        book.compare("without passthrough, first reading, rate", rate, "read by weft", ("disk", "read"), None),
        book.compare("without passthrough, second reading, rate", rate, "pages", ("disk", "read"), None),
        book.compare("without passthrough, warm, rate", rate, "pages steady", ("disk", "beside pages"), least(0.7)),
        book.alone("memory of the daemon, peak", Unit::Megabytes, "memory", Some(Bound::AtMost(64.0))),
    ];
    notes.insert(
        0,
        "curl reads to /dev/null and `to disk` into a file beside weft's cache; disk is the same file read directly, \
         all of it in the page cache. A file whose first reading is complete is read by the kernel itself from then \
         on; the second reading pays once for the pages that the kernel kept of the first. The first reading after a \
         remount compares every byte with its checksum. `warm` is what every later reading is: the median of seven, \
         and of as many from the disk in turn with them; the second reading has the kernel sort its pages once more."
            .to_owned(),
    );
    let rows = rows.into_iter().flatten().collect();
    Section { title: super::Table::Large.title().to_owned(), rows, notes }
}

/// Readings beside as many from the disk.
const BESIDE: usize = 7;
/// No contender may stop the run.
const LIMIT: Duration = Duration::from_secs(60);
