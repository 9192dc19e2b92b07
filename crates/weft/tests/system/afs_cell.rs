//! The AFS cell that other tests stand on: it is what it says, and nothing of it stays.

use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;

use crate::support::{AfsCell, Program, Running, compare, fails_with, find_program, names_in, run, without};

/// A mount by OpenAFS's own client on a node of a cell. It ends when this is dropped.
struct Afsd {
    folder: tempfile::TempDir,
    process: Option<Running>,
}

impl Afsd {
    fn mount(cell: &AfsCell, node: &str) -> Option<Afsd> {
        if find_program("afsd.fuse").is_none() || !Path::new("/dev/fuse").exists() {
            without("OpenAFS's own client needs openafs-fuse and /dev/fuse");
            return None;
        }
        let folder = tempfile::Builder::new().prefix("wt-afsd-").tempdir().expect("a temporary folder");
        for name in ["mnt", "cache"] {
            std::fs::create_dir(folder.path().join(name)).expect("made");
        }
        let (cache, dir) = (folder.path().join("cache"), folder.path().join("mnt"));
        let program = Program::words(&cell.words(node)).arg("afsd.fuse").arg("-confdir").arg(cell.client_config());
        let program = program.arg("-cachedir").arg(cache).arg("-mountdir").arg(&dir);
        let process = Some(program.args(["-dynroot", "-fakestat", "-f"]).start());
        let afsd = Afsd { folder, process };
        let device = |path: &Path| std::fs::metadata(path).expect("a folder").dev();
        for _ in 0..UP_TRIES_MAX {
            if device(&dir) != device(afsd.folder.path()) {
                return Some(afsd);
            }
            // Only between two looks at what nobody tells of.
            std::thread::park_timeout(Duration::from_millis(10));
        }
        panic!("OpenAFS's own client does not mount");
    }

    fn dir(&self) -> PathBuf {
        self.folder.path().join("mnt")
    }
}

impl Drop for Afsd {
    fn drop(&mut self) {
        let _ = Program::new("fusermount3").arg("-u").arg(self.dir()).run();
        // Until it has ended it writes to its cache.
        self.process.take().map(Running::end);
    }
}

const UP_TRIES_MAX: usize = 3000;

/// Goal: the content that tests compare with is what the servers give. Method: the client that the servers were made for.
#[test]
fn volumes_hold_the_trees_they_were_made_of() {
    let Some(cell) = AfsCell::up() else { return };
    let Some(afsd) = Afsd::mount(cell, "c1") else { return };
    let top = afsd.dir().join("weft.test");
    for volume in ["pub", "replicated", "scratch"] {
        assert!(names_in(&cell.content(volume)).len() > usize::from(volume != "scratch"));
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
