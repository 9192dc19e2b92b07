//! A directory of AFS that has as many names as it can have.

use std::fs::{File, create_dir, hard_link, remove_file, rename, write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::afs::{mounted, read};
use crate::support::{AfsCell, fails_with, names_in, run};

/// Goal: whoever makes one name more is told that there is no room for it, by whichever call, and nothing has changed; a name that
/// goes makes room for another. Method: the volume is restored from a dump in which all the names are one file's.
#[test]
fn a_directory_that_is_full_takes_no_name() {
    let Some(cell) = AfsCell::own() else { return };
    restore(&cell, |tree| {
        create_dir(tree.join("full")).expect("made");
        write(tree.join("beside"), "beside").expect("written");
        write(tree.join("full").join(name("0")), "one").expect("written");
        (1..NAMES).for_each(|nth| {
            hard_link(tree.join("full").join(name("0")), tree.join("full").join(name(&nth.to_string())))
                .expect("linked");
        });
    });
    let Some(mount) = mounted(&cell, "afs", &[]) else { return };
    let (beside, full) = (mount.at("weft.test/scratch/beside"), mount.at("weft.test/scratch/full"));
    let (first, new) = (full.join(name("0")), full.join(name("new")));
    let names = names_in(&full);
    assert_eq!(names.len(), NAMES);
    fails_with(File::create_new(&new), Errno::NOSPC);
    fails_with(create_dir(&new), Errno::NOSPC);
    fails_with(symlink("target", &new), Errno::NOSPC);
    fails_with(hard_link(&first, &new), Errno::NOSPC);
    fails_with(rename(&beside, &new), Errno::NOSPC);
    // That is another thing.
    fails_with(symlink("x".repeat(1025), &new), Errno::NAMETOOLONG);
    assert!(names_in(&full) == names && read(&beside) == "beside");
    write(&first, "two").expect("its files are as any others");
    remove_file(&first).expect("removed");
    rename(&beside, &new).expect("there is room for it");
    assert_eq!(read(&new), "beside");
    assert_eq!(read(&full.join(name("1"))), "two");
}

/// Puts a tree in the place of the volume `scratch`.
fn restore(cell: &AfsCell, make: impl Fn(&Path)) {
    let (tree, dump): (PathBuf, PathBuf) = (cell.dir().join("tree"), cell.dir().join("dump"));
    create_dir(&tree).expect("made");
    make(&tree);
    let words = r#"python3 "$0" "$1" --name scratch --acl anyuser:rlidwk >"$2""#;
    run("bash", ["-c".as_ref(), words.as_ref(), DUMP.as_ref(), tree.as_os_str(), dump.as_os_str()]);
    let words = ["vos", "restore", "fs1", "a", "scratch", "-overwrite", "full", "-localauth", "-file"];
    cell.on("fs1", words).arg(&dump).good();
}

/// A name that is as long as can be, and has as much of a page as that takes.
fn name(begin: &str) -> String {
    format!("{begin:n<255}")
}

/// What 1,023 pages have room for: seven names each, the first one five.
const NAMES: usize = 7 * 1022 + 5;
const DUMP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/afs-dump.py");
