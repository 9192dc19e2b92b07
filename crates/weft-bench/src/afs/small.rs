//! Many small files: read cold and warm, written; and the same files as a web site.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use super::client::{Client, Place};
use super::tree::{SMALL, SMALL_FILES};
use super::{Bench, Table, shell};
use crate::book::Book;
use crate::contender::Contender;
use crate::report::{Bound, Section, Unit};
use crate::server::{Server, Site};
use crate::tables::in_turn;

/// Who takes part in a round.
#[derive(Clone, Copy)]
enum Turn {
    Cell(Client),
    Web,
}

/// Measures the table.
pub fn measure(bench: &Bench) -> Result<Section> {
    let folder = bench.trees.at(SMALL);
    let (_server, sites) = Server::start(&bench.fresh("server"), &[&folder])?;
    let mut book = Book::default();
    for round in 0..bench.scale.rounds {
        for turn in in_turn(&[Turn::Cell(Client::Weft), Turn::Cell(Client::Afsd), Turn::Web], round) {
            match turn {
                Turn::Cell(client) => of_cell(bench, client, &mut book)?,
                Turn::Web => of_web(bench, sites[0], &mut book)?,
            }
        }
        let disk = Client::Ext4.start(bench)?;
        let warm = disk.cost(&mut read(&folder))?;
        book.note("ext4", "warm", warm.wall);
        written(bench, &disk, Client::Ext4, &mut book)?;
    }
    Ok(Table::Small.section(rows(&book), notes()))
}

fn of_cell(bench: &Bench, client: Client, book: &mut Book) -> Result<()> {
    let who = client.name();
    let place = client.start(bench)?;
    let folder = place.top.join(SMALL);
    let cold = place.cost(&mut read(&folder))?;
    book.note(who, "cold", cold.wall);
    book.note(who, "cold cpu", cold.cpu);
    book.note(who, "cold client cpu", cold.client_cpu);
    let warm = place.cost(&mut read(&folder))?;
    book.note(who, "warm", warm.wall);
    book.note(who, "warm cpu", warm.cpu);
    verify(bench, &folder)?;
    written(bench, &place, client, book)?;
    place.end()
}

fn written(bench: &Bench, place: &Place<'_>, client: Client, book: &mut Book) -> Result<()> {
    let target = place.top.join(bench.fresh("written").file_name().unwrap_or_default());
    let cost = place.cost(&mut shell("mkdir \"$1\" && cp \"$0\"/* \"$1\"/", &[&bench.trees.at(SMALL), &target]))?;
    book.note(client.name(), "written", cost.wall);
    book.note(client.name(), "written cpu", cost.cpu);
    verify(bench, &target)
}

fn of_web(bench: &Bench, site: Site, book: &mut Book) -> Result<()> {
    let mounted = Contender::Weft.mount(&bench.weft, site, &bench.fresh("mount"), &bench.fresh("cache"), &[])?;
    let cold = bench.cost(Some(mounted.pid), &mut read(&mounted.root))?;
    book.note("weft", "web cold", cold.wall);
    book.note("weft", "web cold cpu", cold.cpu);
    verify(bench, &mounted.root)?;
    mounted.unmount()
}

/// Lists the folder and reads each of its files.
fn read(folder: &Path) -> std::process::Command {
    shell("cat \"$0\"/*", &[folder])
}

/// A figure of wrong bytes is no figure.
fn verify(bench: &Bench, folder: &Path) -> Result<()> {
    let whole = |folder: PathBuf| -> Result<Vec<u8>> { Ok(read(&folder).output()?.stdout) };
    ensure!(whole(folder.to_owned())? == whole(bench.trees.at(SMALL))?, "{}: wrong bytes", folder.display());
    Ok(())
}

fn rows(book: &Book) -> [Option<crate::report::Row>; 12] {
    let s = Unit::Seconds;
    let most = |most| Some(Bound::AtMost(most));
    let beside = |title, what, who, bound| book.compare(title, s, what, (who, what), bound);
    [
        beside("cold, time", "cold", "afsd.fuse", most(0.5)),
        beside("cold, CPU of client and reader", "cold cpu", "afsd.fuse", most(0.5)),
        beside("cold, CPU of the client alone", "cold client cpu", "afsd.fuse", None),
        beside("warm, time", "warm", "afsd.fuse", None),
        beside("warm, CPU of client and reader", "warm cpu", "afsd.fuse", None),
        beside("warm, time", "warm", "ext4", None),
        beside("written, time", "written", "afsd.fuse", None),
        beside("written, CPU of client and writer", "written cpu", "afsd.fuse", None),
        beside("written, time", "written", "ext4", None),
        book.compare("as a web site, cold, time", s, "web cold", ("afsd.fuse", "cold"), most(0.7)),
        book.compare("as a web site, cold, CPU", s, "web cold cpu", ("afsd.fuse", "cold cpu"), None),
        book.compare("as a web site, cold, time", s, "web cold", ("weft", "cold"), None),
    ]
}

fn notes() -> Vec<String> {
    vec![format!(
        "{SMALL_FILES} files in one folder, read by one `cat` after the shell has listed the folder; written by one `cp`. \
         Cold: a client with an empty cache. CPU is user and system time of the client's process and of the programs, \
         counted until 0.3 s after the last of them. As a web site: the same folder, served by nginx on 127.0.0.1 and read \
         through weft's `web`, beside afsd.fuse and weft (`afs`) on the cell."
    )]
}
