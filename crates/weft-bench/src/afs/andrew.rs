//! The five phases of the Andrew benchmark (J. H. Howard and others, "Scale and Performance in a Distributed File System",
//! 1988), on a tree of C made for it: in a row on what was just written, and III to V on what nobody has read yet.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use super::client::{Client, Place};
use super::tree::{SOURCE, SOURCE_FILES, SOURCE_UNITS, source_folders};
use super::{Bench, Table, shell};
use crate::book::Book;
use crate::report::{Bound, Section, Unit};
use crate::tables::in_turn;

/// Measures the table.
pub fn measure(bench: &Bench) -> Result<Section> {
    let mut book = Book::default();
    // Not measured: the compiler and the disk's files are in memory after that.
    in_a_row(bench, Client::Ext4, &mut Book::default())?;
    for round in 0..bench.scale.rounds {
        for client in in_turn(&[Client::Weft, Client::Afsd, Client::Ext4], round) {
            in_a_row(bench, client, &mut book)?;
            if client != Client::Ext4 {
                cold(bench, client, &mut book)?;
            }
        }
    }
    Ok(Table::Andrew.section(rows(&book), notes()))
}

/// All phases one after the other, as the benchmark has it: the content of III to V was written by II.
fn in_a_row(bench: &Bench, client: Client, book: &mut Book) -> Result<()> {
    let place = client.start(bench)?;
    let who = client.name();
    let target = bench.fresh("andrew");
    let target = place.top.join(target.file_name().unwrap_or_default());
    let source = bench.trees.at(SOURCE);
    let mut step = |what, command: &mut Command| -> Result<()> {
        book.note(who, what, place.cost(command)?.wall);
        Ok(())
    };
    step("mkdir", &mut folders_below(&target))?;
    step("copy", &mut shell("cp -r \"$0\"/. \"$1\"/", &[&source, &target]))?;
    step("stat", &mut stat(&target))?;
    step("grep", &mut grep(&target))?;
    step("compile", &mut compile(&target, Path::new(".")))?;
    verify(&source, &target)?;
    place.end()
}

/// III and IV of a client that has just been started, then V of one again.
fn cold(bench: &Bench, client: Client, book: &mut Book) -> Result<()> {
    let who = client.name();
    let place = client.start(bench)?;
    let source = place.top.join(SOURCE);
    book.note(who, "cold stat", place.cost(&mut stat(&source))?.wall);
    book.note(who, "cold grep", place.cost(&mut grep(&source))?.wall);
    place.end()?;
    let place = client.start(bench)?;
    let objects = objects_of(&place, bench)?;
    book.note(who, "cold compile", place.cost(&mut compile(&place.top.join(SOURCE), &objects))?.wall);
    verify(&bench.trees.at(SOURCE), &place.top.join(SOURCE))?;
    place.end()
}

/// Folders for what is compiled, in the same volume.
fn objects_of(place: &Place<'_>, bench: &Bench) -> Result<std::path::PathBuf> {
    let objects = place.top.join(bench.fresh("objects").file_name().unwrap_or_default());
    source_folders().try_for_each(|folder| std::fs::create_dir_all(objects.join(folder)))?;
    Ok(objects)
}

fn folders_below(target: &Path) -> Command {
    let mut command = Command::new("mkdir");
    command.arg(target).args(source_folders().map(|folder| target.join(folder)));
    command
}

fn stat(tree: &Path) -> Command {
    shell("find \"$0\" -print0 | xargs -0 stat", &[tree])
}

/// Reads all files; the word is in one of them, so that a success tells that nothing went wrong.
fn grep(tree: &Path) -> Command {
    shell("grep -r 'int main' \"$0\"", &[tree])
}

fn compile(tree: &Path, objects: &Path) -> Command {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let mut command = Command::new("make");
    // Whoever runs the bench from make has settings of its own.
    command.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").env_remove("MFLAGS");
    command.args(["-s", &format!("-j{jobs}"), "-C"]).arg(tree).arg(format!("O={}", objects.display()));
    command
}

/// A figure of wrong bytes is no figure.
fn verify(source: &Path, target: &Path) -> Result<()> {
    let mut diff = Command::new("diff");
    diff.args(["-r", "--exclude=*.o", "--exclude=program"]).arg(source).arg(target);
    let output = diff.output()?;
    ensure!(output.status.success(), "{diff:?}: {}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}

fn rows(book: &Book) -> Vec<Option<crate::report::Row>> {
    let phases = [
        ("I mkdir", "mkdir", None),
        ("II copy", "copy", Some(Bound::AtMost(2.0))),
        ("III stat, warm", "stat", Some(Bound::AtMost(1.1))),
        ("IV grep, warm", "grep", Some(Bound::AtMost(1.1))),
        ("V compile, warm", "compile", Some(Bound::AtMost(1.1))),
    ];
    let beside = |who, bound: fn(Option<Bound>) -> Option<Bound>| {
        phases.map(|(title, what, most)| book.compare(title, Unit::Seconds, what, (who, what), bound(most)))
    };
    let cold = [("III stat, cold", "cold stat"), ("IV grep, cold", "cold grep"), ("V compile, cold", "cold compile")];
    let cold = cold.map(|(title, what)| book.compare(title, Unit::Seconds, what, ("afsd.fuse", what), None));
    beside("ext4", |most| most).into_iter().chain(beside("afsd.fuse", |_| None)).chain(cold).collect()
}

fn notes() -> Vec<String> {
    vec![
        format!(
            "{SOURCE_FILES} files of C, headers and text in {} folders, of which {SOURCE_UNITS} are compiled (`make`, a job \
             for each processor) and linked into one program. I to V in a row: a client with an empty cache makes the \
             folders, copies the tree from ext4, runs `find | xargs stat` and `grep -r` on it, and compiles it in place: \
             objects are written to the server as well. ext4: the same on the disk, nothing synced.",
            source_folders().count()
        ),
        "Cold: a client with an empty cache, on a copy that came with the volume; IV after III; V by another new client, with \
         its objects in other folders of the volume. The file server has everything in memory."
            .to_owned(),
        "Arla's own table (A. Westerlund, J. Danielsson: Arla, a free AFS client, 1998; seconds on a ThinkPad 560, its cell \
         over a network, beside UFS): I mkdir: UFS 2, Arla cold 2, Arla warm 3; II copy: 6, 18, 11; III stat: 2, 2, 3; IV \
         grep: 5, 5, 5; V compile: 34, 36, 34. So copying took three times as long as on UFS cold, 1.8 times warm, and what \
         follows as long as there."
            .to_owned(),
    ]
}
