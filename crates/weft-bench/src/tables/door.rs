//! What a request costs: our own crate for the kernel's door beside fuser, libfuse and the disk.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anyhow::Result;

use super::in_turn;
use crate::book::Book;
use crate::door::{Door, DoorArgs, Opened, RingsOn};
use crate::knock::{Knock, knock};
use crate::report::{Bound, Section, Unit};
use crate::workshop::Workshop;

/// Measures the table.
pub fn measure(workshop: &Workshop, programs: &DoorArgs, rounds: usize) -> Result<Section> {
    let rings = RingsOn::now();
    let disk = workshop.fresh("door-disk");
    std::fs::create_dir(&disk)?;
    let (memory, backing) = (disk.join("memory"), disk.join("backing"));
    std::fs::write(&memory, [7; 4096])?;
    make(&backing)?;
    let mut doors = Vec::new();
    for door in [Door::Classic, Door::ClassicOnFirst, Door::Rings, Door::Fuser, Door::Libfuse] {
        if door == Door::Rings && rings.is_none() {
            continue;
        }
        let opened = door.open(programs, &workshop.fresh("door"), &disk, &backing)?;
        doors.extend(opened.map(|opened| (door, opened)));
    }
    let mut book = Book::default();
    for round in 0..rounds * TURNS {
        crowd(&doors, &memory, round, &mut book)?;
        alone(&doors, round, &mut book)?;
        {
            let _load = Load::on_first()?;
            loaded(&doors, round, &mut book)?;
        }
        passthrough(&doors, &backing, round, &mut book)?;
    }
    drop(doors);
    Ok(Section { title: super::Table::Door.title().to_owned(), rows: rows(&book), notes: notes() })
}

/// Four clients.
fn crowd(doors: &[(Door, Opened)], on_disk: &Path, round: usize, book: &mut Book) -> Result<()> {
    for (what, [rings, classic]) in [
        (Knock::Getattr, ["getattr, 4 clients, io_uring", "getattr, 4 clients, classic"]),
        (Knock::OpenReadClose, ["open, read, close, 4 clients, io_uring", "open, read, close, 4 clients, classic"]),
    ] {
        let mut places: Vec<(Option<Door>, PathBuf)> =
            doors.iter().map(|(door, opened)| (Some(*door), opened.file("memory"))).collect();
        places.retain(|(door, _)| *door != Some(Door::ClassicOnFirst));
        places.push((None, on_disk.to_owned()));
        let mut rates = BTreeMap::new();
        let order: Vec<usize> = (0..places.len()).collect();
        for at in in_turn(&order, round) {
            let (door, file) = &places[at];
            let rate = knock(what, file, 4, None)?;
            let (who, title) = match door {
                Some(Door::Rings) => ("weft", rings),
                Some(Door::Classic | Door::ClassicOnFirst) => ("weft", classic),
                Some(Door::Fuser) => ("fuser", classic),
                Some(Door::Libfuse) => ("libfuse", classic),
                None => ("ext4", classic),
            };
            book.note(who, title, rate);
            rates.insert((who, title == rings), rate);
        }
        let others = ["fuser", "libfuse"].iter().filter_map(|who| rates.get(&(*who, false)).copied());
        if let Some(better) = others.reduce(f64::max) {
            book.note("the better of fuser and libfuse", rings, better);
        }
    }
    Ok(())
}

/// One client on the first processor, and a daemon there.
fn alone(doors: &[(Door, Opened)], round: usize, book: &mut Book) -> Result<()> {
    for (what, title) in [
        (Knock::Getattr, "getattr, 1 client, io_uring"),
        (Knock::OpenReadClose, "open, read, close, 1 client, io_uring"),
    ] {
        one_client(doors, what, title, round, book)?;
    }
    Ok(())
}

/// The same while another program keeps that processor busy.
fn loaded(doors: &[(Door, Opened)], round: usize, book: &mut Book) -> Result<()> {
    one_client(doors, Knock::Getattr, "getattr, 1 client beside a busy program, io_uring", round, book)
}

fn one_client(doors: &[(Door, Opened)], what: Knock, title: &'static str, round: usize, book: &mut Book) -> Result<()> {
    for door in in_turn(&[Door::Rings, Door::ClassicOnFirst], round) {
        let Some((_, opened)) = doors.iter().find(|(other, _)| *other == door) else { continue };
        let who = if door == Door::Rings { "weft" } else { "classic, same CPU" };
        book.note(who, title, knock(what, &opened.file("memory"), 1, Some(0))?);
    }
    Ok(())
}

/// Files that the kernel reads by itself.
fn passthrough(doors: &[(Door, Opened)], on_disk: &Path, round: usize, book: &mut Book) -> Result<()> {
    let Some((_, opened)) = doors.iter().find(|(door, _)| *door == Door::Classic) else { return Ok(()) };
    for (what, title) in [(Knock::ReadSequential, SEQUENTIAL), (Knock::ReadRandom, RANDOM)] {
        for ours in in_turn(&[true, false], round) {
            let file = if ours { opened.file("kept") } else { on_disk.to_owned() };
            book.note(if ours { "weft" } else { "ext4" }, title, knock(what, &file, 1, None)?);
        }
    }
    let Some((_, opened)) = doors.iter().find(|(door, _)| *door == Door::ClassicOnFirst) else { return Ok(()) };
    for kept in in_turn(&[true, false], round) {
        let file = opened.file(if kept { "kept" } else { "new" });
        // By one client: an inode that is open twice can only have one id.
        book.note(if kept { "weft" } else { "a new id" }, OPENS, knock(Knock::OpenClose, &file, 1, Some(0))?);
    }
    Ok(())
}

fn rows(book: &Book) -> Vec<crate::report::Row> {
    let rate = |title: &'static str, who: &'static str, bound: Option<f64>| {
        book.compare(title, Unit::PerSecond, title, (who, title), bound.map(Bound::AtLeast))
    };
    let better = "the better of fuser and libfuse";
    let same = "classic, same CPU";
    let rows = [
        rate("getattr, 4 clients, io_uring", better, Some(1.8)),
        rate("getattr, 4 clients, classic", "fuser", Some(0.95)),
        rate("getattr, 4 clients, classic", "libfuse", None),
        rate("getattr, 4 clients, classic", "ext4", None),
        rate("open, read, close, 4 clients, io_uring", better, Some(1.8)),
        rate("open, read, close, 4 clients, classic", "fuser", Some(0.95)),
        rate("open, read, close, 4 clients, classic", "libfuse", None),
        rate("open, read, close, 4 clients, classic", "ext4", None),
        rate("getattr, 1 client, io_uring", same, Some(0.9)),
        rate("open, read, close, 1 client, io_uring", same, Some(0.9)),
        rate("getattr, 1 client beside a busy program, io_uring", same, Some(0.9)),
        rate(SEQUENTIAL, "ext4", Some(0.97)),
        rate(RANDOM, "ext4", Some(0.9)),
        rate(OPENS, "a new id", Some(1.2)),
    ];
    rows.into_iter().flatten().collect()
}

fn notes() -> Vec<String> {
    [
        "Operations per second. weft and fuser answer the same from memory, with one thread that reads requests; \
         libfuse is its example `passthrough_ll` from Debian, with its own threads, which looks at a folder of ext4 for \
         each answer and is asked to flush as well. Attributes are asked for each time (fstat); the pages of the file \
         that is opened, read and closed are kept.",
        "One client and `classic, same CPU` are both kept on the first processor: the price without a way between \
         processors. The threads of io_uring are where they always are.",
        "Passthrough: a file of 256 MiB in the page cache, read in pieces of 1 MiB, and of 4 KiB at random places.",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// A program that keeps the first processor busy, until this goes.
struct Load(Child);

impl Load {
    fn on_first() -> Result<Load> {
        Ok(Load(Command::new("taskset").args(["-c", "0", "sh", "-c", "while :; do :; done"]).spawn()?))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // It does nothing but this.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn make(path: &Path) -> Result<()> {
    let mut file = File::create(path)?;
    let block = vec![7; 1 << 20];
    for _ in 0..BACKING_MIB {
        file.write_all(&block)?;
    }
    Ok(file.sync_data()?)
}

const SEQUENTIAL: &str = "passthrough, read from the beginning to the end";
const RANDOM: &str = "passthrough, read at random places";
const OPENS: &str = "passthrough, open and close, one id kept";
const BACKING_MIB: usize = 256;
/// Readings in each round: they are short.
const TURNS: usize = 3;
