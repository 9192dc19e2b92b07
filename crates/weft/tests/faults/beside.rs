//! weft and its rivals beside each other, as a document.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::rivals::{self, Did, End, Rival};
use crate::row::Row;
use crate::show::cut;
use crate::support::without;
use crate::verdict::Verdict;
use crate::world::Told;

/// Gives the rivals that are installed a part of the rows, prints what came of it and writes it down.
///
/// # Panics
/// When the document cannot be written.
pub fn compare(told: &[Told]) {
    let all: Vec<&Arc<Row>> = told.iter().map(|told| &told.row).collect();
    let chosen: Vec<&Told> = rivals::chosen(&all).into_iter().map(|nth| &told[nth]).collect();
    let rows: Vec<Arc<Row>> = chosen.iter().map(|told| told.row.clone()).collect();
    let ours = chosen.iter().map(|told| {
        let [cold, warm] = [0, 1].map(|phase| Verdict::of(&told.row, &told.seen[phase]));
        Did { cold, warm, end: End::Serves }
    });
    let mut columns = vec![Column { name: "weft", did: ours.collect() }];
    let mut versions = vec![format!("weft {}", env!("CARGO_PKG_VERSION"))];
    for rival in Rival::ALL {
        match rival.version() {
            Some(version) => {
                columns.push(Column { name: rival.name(), did: rivals::run(rival, &rows) });
                versions.push(version);
            }
            None => without(&format!("{} is not installed: its column is left out", rival.name())),
        }
    }
    let text = document(told, &rows, &columns, &versions);
    println!("{text}");
    if columns.len() > Rival::ALL.len() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/faults.md");
        let old = std::fs::read_to_string(&file).expect("docs/faults.md is there");
        std::fs::write(&file, replaced(&old, &text).expect("docs/faults.md has its markers")).expect("written");
    }
}

/// What one of them did, row by row.
struct Column {
    name: &'static str,
    did: Vec<Did>,
}

fn document(told: &[Told], rows: &[Arc<Row>], columns: &[Column], versions: &[String]) -> String {
    let date = Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]).output().map(|said| said.stdout);
    let mut text = String::new();
    let _ = writeln!(text, "* date: {}", String::from_utf8_lossy(&date.unwrap_or_default()).trim());
    let _ = writeln!(text, "* programs: {}", versions.join("; "));
    let _ = writeln!(text, "* rows of the whole suite: {}, of which {} are shown here\n", told.len(), rows.len());
    totals(&mut text, columns);
    let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
    let _ = writeln!(text, "\n| case | input | {} |\n|---|---|{}", names.join(" | "), "---|".repeat(names.len()));
    for (nth, row) in rows.iter().enumerate() {
        let cells: Vec<String> = columns.iter().map(|column| cell(&column.did[nth])).collect();
        let input = cut(&row.input.escape_debug().to_string(), 44).replace('|', "\\|").replace('`', "'");
        let _ = writeln!(text, "| {} | `{input}` | {} |", row.case, cells.join(" | "));
    }
    text
}

fn totals(text: &mut String, columns: &[Column]) {
    type Counts = fn(&Did) -> bool;
    let kinds: [(&str, Counts); 8] = [
        ("right", |did| did.cold == Verdict::Right && did.warm == Verdict::Right),
        ("an error", |did| matches!(did.cold, Verdict::Error(_))),
        ("accepted, right by luck", |did| did.cold == Verdict::Accepted),
        ("other names", |did| matches!(did.cold, Verdict::Names { .. })),
        ("wrong bytes with success", |did| did.cold == Verdict::Wrong || did.warm == Verdict::Wrong),
        ("hang (nothing in 10 s)", |did| did.cold == Verdict::Hang || did.warm == Verdict::Hang),
        ("could not be mounted", |did| did.cold == Verdict::NoMount),
        ("daemon ended, mount dead", |did| did.end == End::Died && did.cold != Verdict::NoMount),
    ];
    let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
    let _ = writeln!(text, "| rows | {} |\n|---|{}", names.join(" | "), "---|".repeat(names.len()));
    for (what, counts) in kinds {
        let sums: Vec<String> =
            columns.iter().map(|column| column.did.iter().filter(|did| counts(did)).count().to_string()).collect();
        let _ = writeln!(text, "| {what} | {} |", sums.join(" | "));
    }
}

fn cell(did: &Did) -> String {
    let mut text = did.cold.to_string();
    if did.warm != did.cold && did.cold != Verdict::Hang {
        let _ = write!(text, ", again: {}", did.warm);
    }
    match did.end {
        End::Serves => {}
        End::Ails => text.push_str(", then serves nothing else"),
        End::Died if did.cold == Verdict::NoMount => {}
        End::Died => text.push_str(", **daemon died**"),
    }
    text
}

fn replaced(document: &str, text: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", text.trim()))
}

const BEGIN: &str = "<!-- faults:begin: written by `make faults`, do not edit -->";
const END: &str = "<!-- faults:end -->";
