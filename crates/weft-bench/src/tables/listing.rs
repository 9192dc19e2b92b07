//! `ls -lR` of a tree that nobody has seen before.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use super::in_turn;
use crate::book::Book;
use crate::contender::Contender;
use crate::process;
use crate::report::{Bound, Section, Unit};
use crate::sample::FOLDERS;
use crate::workshop::Workshop;

/// Measures the table.
pub fn measure(workshop: &Workshop, rounds: usize) -> Result<Section> {
    workshop.sample.make_small()?;
    let mut book = Book::default();
    let mut notes = Vec::new();
    let mut contenders = vec![Contender::Weft];
    contenders.extend(workshop.rivals.iter().copied().filter(|rival| *rival == Contender::Rclone));
    for round in 0..rounds {
        for contender in in_turn(&contenders, round) {
            list(workshop, contender, &mut book, &mut notes)?;
        }
    }
    if workshop.has(Contender::Httpdirfs) {
        list(workshop, Contender::Httpdirfs, &mut book, &mut notes)?;
    }
    notes.sort();
    notes.dedup();
    let seconds = Unit::Seconds;
    let folders = FOLDERS as f64 + 1.0;
    let rows = [
        book.compare("time", seconds, "wall", ("rclone", "wall"), Some(Bound::AtMost(0.5))),
        book.compare("time", seconds, "wall", ("httpdirfs", "wall"), None),
        book.compare("CPU of the daemon", seconds, "cpu", ("rclone", "cpu"), None),
        book.alone("requests", Unit::Count, "requests", Some(Bound::AtMost(folders))),
        book.compare("again, time", seconds, "again", ("rclone", "again"), None),
    ];
    let rows = rows.into_iter().flatten().collect();
    Ok(Section { title: super::Table::Listing.title().to_owned(), rows, notes })
}

fn list(workshop: &Workshop, contender: Contender, book: &mut Book, notes: &mut Vec<String>) -> Result<()> {
    let mounted = workshop.mount(contender, workshop.small, &workshop.fresh("cache"))?;
    let who = contender.name();
    let mark = workshop.server.mark(workshop.small)?;
    let before = process::cpu(mounted.pid)?;
    let ls = || process::timed(Command::new("ls").arg("-lR").arg(&mounted.root), LIMIT);
    book.note(who, "wall", ls()?.as_secs_f64());
    workshop.settle_daemon();
    book.note(who, "cpu", (process::cpu(mounted.pid)? - before).as_secs_f64());
    let requests = workshop.server.requests_since(workshop.small, mark)?;
    book.note(who, "requests", requests.total() as f64);
    notes.push(format!("requests: {who}: {requests}"));
    book.note(who, "again", ls()?.as_secs_f64());
    mounted.unmount()
}

/// No contender may stop the run.
const LIMIT: Duration = Duration::from_secs(120);
