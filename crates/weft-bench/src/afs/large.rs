//! One large file, near and far.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use super::client::{Client, Place};
use super::distance::Distance;
use super::tree::{EIGHTH, HALVES, LARGE, SHORT, SHORT_BYTES};
use super::{Bench, Table, shell};
use crate::book::Book;
use crate::report::{Bound, Section, Unit};
use crate::tables::in_turn;

/// Ways that are longer: milliseconds of a round trip, and what they are called in the book.
const FAR: [(u64, &str); 2] = [(12, "12 ms"), (100, "100 ms")];
/// From that on less is read: it would take minutes.
const VERY_FAR_MS: u64 = 100;

/// Measures the table.
pub fn measure(bench: &Bench) -> Result<Section> {
    let mut book = Book::default();
    for round in 0..bench.scale.rounds {
        for client in in_turn(&[Client::Weft, Client::Afsd], round) {
            near(bench, client, &mut book)?;
        }
        for (round_trip_ms, what) in FAR {
            let _distance = Distance::make(&bench.cell, round_trip_ms)?;
            for client in in_turn(&[Client::Weft, Client::Afsd], round) {
                let place = client.start_at(bench, Distance::NODE)?;
                // One that is slow there is given less to read: what is compared is a rate.
                let (name, bytes) = match client {
                    Client::Weft if round_trip_ms < VERY_FAR_MS => (LARGE, bench.scale.large_bytes),
                    Client::Weft => (EIGHTH, bench.scale.large_bytes / 8),
                    _ => (SHORT, SHORT_BYTES),
                };
                book.note(client.name(), what, rate(&place, &[name], bytes)?.0);
                verify(bench, &place, name)?;
                place.end()?;
            }
        }
    }
    Ok(Table::Large.section(rows(&book), notes(bench, &book)))
}

fn near(bench: &Bench, client: Client, book: &mut Book) -> Result<()> {
    let place = client.start(bench)?;
    let (near, cpu) = rate(&place, &[LARGE], bench.scale.large_bytes)?;
    book.note(client.name(), "near", near);
    book.note(client.name(), "near cpu", cpu);
    verify(bench, &place, LARGE)?;
    place.end()?;
    two(bench, client, book)
}

/// Two files at once, again where a rival breaks down: `afsd.fuse` now and then does.
fn two(bench: &Bench, client: Client, book: &mut Book) -> Result<()> {
    for left in (0..TRIES).rev() {
        let place = client.start(bench)?;
        match rate(&place, &HALVES, bench.scale.large_bytes) {
            Ok((two, _)) => {
                book.note(client.name(), "two", two);
                return place.end();
            }
            Err(error) if client == Client::Weft || left == 0 => return Err(error),
            Err(error) => {
                eprintln!("{}: {error:#}; trying again", client.name());
                book.note(client.name(), BROKE_DOWN, 1.0);
            }
        }
    }
    Ok(())
}

/// MiB in a second of reading files at once, and the processor time of the client.
fn rate(place: &Place<'_>, names: &[&str], bytes: u64) -> Result<(f64, f64)> {
    let files: Vec<PathBuf> = names.iter().map(|name| place.top.join(name)).collect();
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    // The first word is no argument of the loop. One `cat` that fails fails all.
    let line = "pids=; for file in \"$0\" \"$@\"; do cat \"$file\" & pids=\"$pids $!\"; done; for pid in $pids; do wait $pid || exit; done";
    let cost = place.cost(&mut shell(line, &files))?;
    Ok((bytes as f64 / f64::from(1 << 20) / cost.wall, cost.client_cpu))
}

/// A figure of wrong bytes is no figure.
fn verify(bench: &Bench, place: &Place<'_>, name: &str) -> Result<()> {
    let compared = shell("cmp \"$0\" \"$1\"", &[&bench.trees.at(name), &place.top.join(name)]).output()?;
    ensure!(compared.status.success(), "{}", String::from_utf8_lossy(&compared.stdout));
    Ok(())
}

fn rows(book: &Book) -> Vec<Option<crate::report::Row>> {
    let unit = Unit::MibPerSecond;
    let one_call = Some(Bound::AtLeast(10.0));
    vec![
        book.compare("no delay, cold", unit, "near", ("afsd.fuse", "two"), Some(Bound::AtLeast(0.8))),
        book.compare("no delay, cold", unit, "near", ("afsd.fuse", "near"), None),
        book.compare("no delay, cold, CPU of the client", Unit::Seconds, "near cpu", ("afsd.fuse", "near cpu"), None),
        book.compare("no delay, two files at once", unit, "two", ("afsd.fuse", "two"), None),
        book.compare("12 ms of round trip", unit, "12 ms", ("afsd.fuse", "12 ms"), one_call),
        book.compare("100 ms of round trip", unit, "100 ms", ("afsd.fuse", "100 ms"), one_call),
    ]
}

fn notes(bench: &Bench, book: &Book) -> Vec<String> {
    let mib = |bytes: u64| bytes >> 20;
    let large = bench.scale.large_bytes;
    let broken = book.values(Client::Afsd.name(), BROKE_DOWN).len();
    let broken = (broken > 0)
        .then(|| format!("afsd.fuse ended {broken} times while it read two files; then it had another try."));
    let notes = [
        format!(
            "{} MiB, read by one `cat` of a client with an empty cache; the first row beside two `cat`s of afsd.fuse at once, \
             of {} MiB each, together. The file server has everything in memory. (`afsio read` ends with a segmentation fault \
             here.)",
            mib(large),
            mib(large / 2)
        ),
        format!(
            "With a round trip: each frame between the client and the cell is handed on half of it later, in both directions. \
             Beside: afsd.fuse, which has one call at a time for a file, of 256 KiB each. weft reads {} MiB, and {} MiB at 100 ms; afsd.fuse {} MiB.",
            mib(large),
            mib(large / 8),
            mib(SHORT_BYTES)
        ),
    ];
    notes.into_iter().chain(broken).collect()
}

/// How often a rival may begin anew in one round.
const TRIES: usize = 5;
/// In the book: once for each time that one ended.
const BROKE_DOWN: &str = "broke down";
