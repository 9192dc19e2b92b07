//! A directory of this machine: what its files cost that were read before, with weft between and without.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};

use super::in_turn;
use crate::book::Book;
use crate::report::{Bound, Section, Unit};
use crate::sample;
use crate::workshop::Workshop;

/// Measures the table.
pub fn measure(workshop: &Workshop, rounds: usize) -> Result<Section> {
    workshop.sample.make_small()?;
    let top = &workshop.sample.small;
    let asking = workshop.mount_directory(top, &[])?;
    let unopened = workshop.mount_directory(top, &["-o", "no_open"])?;
    let places = [("disk", top.clone()), ("opened", asking.root.clone()), ("not opened", unopened.root.clone())];
    let mut book = Book::default();
    for (who, place) in &places {
        let files = files(place);
        let cold = read_all(&files, 1)?;
        // Once more, so that every page is where it stays.
        read_all(&files, 1)?;
        match *who {
            "opened" => book.note("weft", "cold", cold),
            "disk" => {}
            _ => book.note("weft", "cold, not opened", cold),
        }
    }
    for round in 0..rounds * TURNS {
        for at in in_turn(&[0, 1, 2], round) {
            let (who, place) = &places[at];
            let rate = read_all(&files(place), PASSES)?;
            let (who, what) = match *who {
                "disk" => ("disk", "warm"),
                "opened" => ("weft", "warm"),
                _ => ("weft", "warm, not opened"),
            };
            book.note(who, what, rate);
        }
    }
    asking.unmount()?;
    unopened.unmount()?;
    let disk = ("disk", "warm");
    let rows = [
        book.compare("open, read, close", Unit::PerSecond, "warm", disk, Some(Bound::AtLeast(1.0 / 3.5))),
        book.compare(
            "the same with `no_open`",
            Unit::PerSecond,
            "warm, not opened",
            disk,
            Some(Bound::AtLeast(1.0 / 1.2)),
        ),
        book.alone("the first time", Unit::PerSecond, "cold", None),
    ];
    let notes = vec![format!(
        "{} files of 1 to 16 KiB, each in turn, by one thread; all were read before. `no_open`: the kernel opens and \
         closes files without asking weft. disk: the same files in the directory itself.",
        sample::FOLDERS * sample::READ_PER_FOLDER
    )];
    Ok(Section { title: super::Table::Directory.title().to_owned(), rows: rows.into_iter().flatten().collect(), notes })
}

fn files(top: &Path) -> Vec<PathBuf> {
    let of = |folder| (0..sample::READ_PER_FOLDER).map(move |file| (folder, file));
    let name = |(folder, file)| top.join(sample::folder_name(folder)).join(sample::file_name(file));
    (0..sample::FOLDERS).flat_map(of).map(name).collect()
}

/// Opens, reads and closes each file so often; how many in a second.
fn read_all(files: &[PathBuf], passes: usize) -> Result<f64> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let since = Instant::now();
    for file in (0..passes).flat_map(|_| files) {
        let mut open = File::open(file).with_context(|| file.display().to_string())?;
        while open.read(&mut buffer)? == BUFFER_BYTES {}
    }
    Ok((files.len() * passes) as f64 / since.elapsed().as_secs_f64())
}

const BUFFER_BYTES: usize = 64 << 10;
const PASSES: usize = 10;
/// In each round of the report.
const TURNS: usize = 3;
