//! `ls -l` of a large directory.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::client::Client;
use super::tree::MANY;
use super::{Bench, Table};
use crate::book::Book;
use crate::report::{Bound, Section, Unit};
use crate::tables::in_turn;

/// Measures the table.
pub fn measure(bench: &Bench) -> Result<Section> {
    let mut book = Book::default();
    for round in 0..bench.scale.rounds {
        for client in in_turn(&[Client::Weft, Client::Afsd, Client::Ext4], round) {
            let place = client.start(bench)?;
            let mut list = |what, what_cpu| -> Result<()> {
                let cost = place.cost(Command::new("ls").arg("-l").arg(place.top.join(MANY)))?;
                book.note(client.name(), what, cost.wall);
                book.note(client.name(), what_cpu, cost.client_cpu);
                Ok(())
            };
            list("cold", "cold cpu")?;
            list("warm", "warm cpu")?;
            let other = client.start_other(bench)?;
            let new = other.top.join(MANY).join("new");
            std::fs::write(&new, "").with_context(|| new.display().to_string())?;
            std::thread::sleep(TOLD_BY_AFSD);
            list("changed", "changed cpu")?;
            std::fs::remove_file(&new).with_context(|| new.display().to_string())?;
            other.end()?;
            place.end()?;
        }
    }
    let most = || Some(Bound::AtMost(0.2));
    let beside = |title, what, who, bound| book.compare(title, Unit::Seconds, what, (who, what), bound);
    let rows = [
        beside("cold, time", "cold", "afsd.fuse", most()),
        beside("cold, CPU of the client", "cold cpu", "afsd.fuse", None),
        beside("warm, time", "warm", "afsd.fuse", most()),
        beside("warm, CPU of the client", "warm cpu", "afsd.fuse", None),
        beside("warm, time", "warm", "ext4", None),
        beside("one more, time", "changed", "afsd.fuse", most()),
        beside("one more, CPU of the client", "changed cpu", "afsd.fuse", None),
    ];
    let cold = "Cold: a client with an empty cache, whose way to the volume is known; warm: once more.";
    let changed = "One more: once more after a client on another machine has made a name in the directory, more than a second after \
                   the last list, which is how long the kernel trusts what afsd.fuse has told it, whatever changes.";
    let notes = vec![format!("{cold} {changed}")];
    Ok(Table::Listing.section(rows, notes))
}

/// For longer than that the kernel trusts nothing of what afsd.fuse has told it (1 s, as libfuse has it unless told otherwise): in
/// between it lists names, and asks for none of them.
const TOLD_BY_AFSD: Duration = Duration::from_millis(1200);
