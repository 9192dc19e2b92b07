//! Memory of the daemon when it knows many names.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::book::Book;
use crate::contender::Contender;
use crate::process;
use crate::report::{Bound, Section, Unit};
use crate::server::Site;
use crate::workshop::Workshop;

/// Measures the table: once, for memory does not depend on luck.
pub fn measure(workshop: &Workshop) -> Result<Section> {
    workshop.sample.make_names()?;
    let mut book = Book::default();
    let mut notes = Vec::new();
    let mut contenders = vec![Contender::Weft];
    contenders.extend(workshop.rivals.iter().copied().filter(|rival| *rival == Contender::Rclone));
    for contender in contenders {
        // rclone asks once for every name: the folders alone are enough to see it.
        many_names(workshop, contender, workshop.folders, "-fR", IN_FOLDERS, &mut book)?;
        if contender == Contender::Weft {
            many_names(workshop, contender, workshop.flat, "-f", IN_ONE, &mut book)?;
        }
    }
    let megabytes = Unit::Megabytes;
    let bound = Some(Bound::AtMost(64.0));
    let mut rows = Vec::new();
    for (shape, [names, names_time, long, long_time, now]) in
        [("100 folders of 1,000", IN_FOLDERS), ("one folder", IN_ONE)]
    {
        rows.push(book.alone(&format!("{shape}: peak after `ls -f`"), megabytes, names, bound));
        rows.push(book.alone(&format!("{shape}: peak after `ls -l` too"), megabytes, long, bound));
        rows.push(book.compare(&format!("{shape}: the same"), megabytes, long, ("rclone", long), None));
        rows.push(book.alone(&format!("{shape}: resident in the end"), megabytes, now, None));
        rows.push(book.alone(&format!("{shape}: time of `ls -f`"), Unit::Seconds, names_time, None));
        rows.push(book.compare(&format!("{shape}: the same"), Unit::Seconds, names_time, ("rclone", names_time), None));
        rows.push(book.alone(&format!("{shape}: time of `ls -l`"), Unit::Seconds, long_time, None));
        rows.push(book.compare(&format!("{shape}: the same"), Unit::Seconds, long_time, ("rclone", long_time), None));
    }
    notes.push("100,000 names of empty files; measured once. `peak` is VmHWM of the daemon.".to_owned());
    let rows = rows.into_iter().flatten().collect();
    Ok(Section { title: super::Table::Memory.title().to_owned(), rows, notes })
}

fn many_names(
    workshop: &Workshop,
    contender: Contender,
    site: Site,
    short: &str,
    whats: [&'static str; 5],
    book: &mut Book,
) -> Result<()> {
    let mounted = workshop.mount(contender, site, &workshop.fresh("cache"))?;
    let who = contender.name();
    let [names, names_time, long, long_time, now] = whats;
    let ls = |how: &str| process::timed(Command::new("ls").arg(how).arg(&mounted.root), LIMIT);
    book.note(who, names_time, ls(short)?.as_secs_f64());
    book.note(who, names, process::memory_peak_bytes(mounted.pid)? as f64 / 1e6);
    book.note(who, long_time, ls("-lR")?.as_secs_f64());
    book.note(who, long, process::memory_peak_bytes(mounted.pid)? as f64 / 1e6);
    workshop.settle_daemon();
    book.note(who, now, process::memory_bytes(mounted.pid)? as f64 / 1e6);
    mounted.unmount()
}

const IN_FOLDERS: [&str; 5] = ["f names", "f names time", "f long", "f long time", "f now"];
const IN_ONE: [&str; 5] = ["o names", "o names time", "o long", "o long time", "o now"];
/// No contender may stop the run.
const LIMIT: Duration = Duration::from_secs(240);
