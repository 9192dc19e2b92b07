//! The AFS cell that other tests stand on: it is what it says, and nothing of it stays.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use rustix::io::Errno;

use crate::support::{AfsCell, Afsd, compare, fails_with, names_in, run};

/// Goal: the content that tests compare with is what the servers give. Method: the client that the servers were made for.
#[test]
fn volumes_hold_the_trees_they_were_made_of() {
    let Some(cell) = AfsCell::up() else { return };
    let Some(afsd) = Afsd::mount(cell, "c1") else { return };
    let top = afsd.dir().join("weft.test");
    // What else is in `scratch` is other tests'.
    let readme = |top: PathBuf| std::fs::read(top.join("readme.txt")).expect("read");
    assert_eq!(readme(cell.content("scratch")), readme(top.join("scratch")));
    for volume in ["pub", "replicated"] {
        assert!(names_in(&cell.content(volume)).len() > 1);
        compare(&cell.content(volume), &top.join(volume));
    }
    assert_eq!(names_in(&top.join("pub/many")).len(), 3000);
    assert_eq!(names_in(&top.join("home")), ["notes.txt", "private"]);
    assert_eq!(std::fs::read_to_string(top.join("user/bob/notes.txt")).expect("read"), "notes of bob\n");
    let private = "weft.test/user/alice/private";
    fails_with(std::fs::read_dir(afsd.dir().join(private)), Errno::ACCESS);
    fails_with(std::fs::write(top.join("pub/new"), "x"), Errno::ACCESS);
    let Some(of_admin) = Afsd::mount(cell, "admin") else { return };
    assert_eq!(names_in(&of_admin.dir().join(private)), ["diary.txt"]);
}

/// Goal: the cell's users get tickets for its servers.
#[test]
fn users_get_tickets() {
    let Some(cell) = AfsCell::up() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let tickets = format!("FILE:{}", folder.path().join("tickets").display());
    for user in ["admin", "alice", "bob"] {
        let keytab = cell.keytab(user);
        let words = ["kinit", "-c", &tickets, "-k", "-t", keytab.to_str().expect("text"), user];
        cell.on("c2", words).good();
        let printed = cell.on("c2", ["kvno", "-c", &tickets, "afs/weft.test"]).good();
        assert_eq!(printed.trim(), "afs/weft.test@WEFT.TEST: kvno = 1");
    }
}

/// Goal: a read-only volume has its sites on both file servers.
#[test]
fn a_released_volume_is_on_both_servers() {
    let Some(cell) = AfsCell::up() else { return };
    for volume in ["root.cell", "replicated"] {
        let printed = cell.on("c1", ["vos", "examine", &format!("{volume}.readonly"), "-noauth"]).good();
        let online = printed.lines().filter(|line| line.contains("RO ") && line.contains("On-line")).count();
        assert_eq!(online, 2, "{printed}");
    }
}

/// Goal: two cells do not meet, a server of one can crash and come back, and nothing is left of a cell whose test panics.
#[test]
fn a_cell_of_ones_own_goes_with_its_test() {
    let (Some(shared), Some(cell)) = (AfsCell::up(), AfsCell::own()) else { return };
    let (dir, namespace) = (cell.dir().to_owned(), cell.namespace("fs1"));
    assert_ne!(namespace, shared.namespace("fs1"));
    assert!(run("ip", ["netns"]).contains(&namespace));
    cell.on("fs1", ["vos", "remove", "-id", "scratch", "-localauth"]).good();
    assert_ne!(cell.on("c1", ["vos", "examine", "scratch", "-noauth"]).run().code, Some(0));
    shared.on("c1", ["vos", "examine", "scratch", "-noauth"]).good();
    let asked = || cell.on("c1", ["udebug", "fs1", "7003"]).run().out;
    assert!(asked().contains("I am sync site"));
    cell.kill("fs1", "vlserver");
    assert!(!asked().contains("sync site"));
    cell.restart("fs1", "vlserver");
    let server = std::fs::read_to_string(dir.join("pids/fs1.vlserver")).expect("its process");
    let server = PathBuf::from(format!("/proc/{}/ns/net", server.trim()));
    assert!(server.read_link().is_ok());
    let panicked = catch_unwind(AssertUnwindSafe(move || {
        let _cell = cell;
        panic!("as a test that fails does");
    }));
    assert!(panicked.is_err());
    assert!(!dir.exists());
    assert!(server.read_link().is_err(), "a server goes on");
    assert!(!run("ip", ["netns"]).contains(&namespace));
}
