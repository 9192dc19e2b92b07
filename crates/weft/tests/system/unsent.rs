//! Writes that the source does not take, and what people decide about them.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use crate::interrupts::wait_until;
use crate::support::{Mount, Program, Setup, is_root, noise, without};

/// A directory, mounted.
struct Place {
    tree: tempfile::TempDir,
    mount: Mount,
}

impl Place {
    fn new() -> Option<Place> {
        let tree = tempfile::Builder::new().prefix("wt-unsent-").tempdir().expect("a temporary folder");
        Place::of(tree)
    }

    fn of(tree: tempfile::TempDir) -> Option<Place> {
        std::fs::write(tree.path().join("a.txt"), "as it was before").expect("written");
        let source = format!("dir:{}", tree.path().display()).leak();
        let mount = Mount::with(Setup { source, ..Setup::default() })?;
        Some(Place { tree, mount })
    }

    fn source(&self, name: &str) -> PathBuf {
        self.tree.path().join(name)
    }

    fn at_source(&self, name: &str) -> String {
        std::fs::read_to_string(self.source(name)).expect("read")
    }

    fn here(&self, name: &str) -> String {
        std::fs::read_to_string(self.mount.at(name)).expect("read")
    }

    /// "MINE" is written over the beginning of a file that is held, and has changed at its source since it was opened.
    fn conflict(&self, change: impl FnOnce(&Path)) {
        self.here("a.txt");
        wait_until("a whole copy", || self.mount.why(&self.mount.at("a.txt"), "cached").starts_with("whole"));
        let mut file = OpenOptions::new().write(true).open(self.mount.at("a.txt")).expect("opened");
        // In this order: whatever closes a copy of the descriptor, as a program that is started does, sends what was written.
        change(&self.source("a.txt"));
        file.write_all(b"MINE").expect("written");
        file.sync_all().expect_err("the source has another version");
    }

    fn rows(&self) -> Vec<serde_json::Value> {
        let told = self.mount.json("unsent", [self.mount.dir()]);
        told["unsent"].as_array().expect("a list").clone()
    }

    fn unsent(&self, words: &str) -> crate::support::Outcome {
        self.mount.verb(&format!("unsent {words}"), [self.mount.at("a.txt")])
    }
}

fn theirs(path: &Path) {
    std::fs::write(path, "theirs").expect("written");
}

const MINE: &str = "MINEt was before";

#[test]
fn a_conflict_is_told_and_kept_until_somebody_decides() {
    let Some(place) = Place::new() else { return };
    assert!(place.rows().is_empty());
    assert!(place.mount.verb("unsent", [place.mount.dir()]).out.contains("is at its source"));
    place.conflict(theirs);
    assert_eq!((place.here("a.txt").as_str(), place.at_source("a.txt").as_str()), (MINE, "theirs"));
    let rows = place.rows();
    assert_eq!((rows.len(), rows[0]["bytes"].as_u64()), (1, Some(4)), "{rows:?}");
    assert_eq!(rows[0]["path"].as_str(), place.mount.at("a.txt").to_str());
    assert!(
        Path::new(rows[0]["kept"].as_str().expect("a path")).starts_with(place.mount.cache().canonicalize().unwrap())
    );
    assert!(rows[0]["why"].to_string().contains("changed at its source"));
    assert!(place.mount.why(&place.mount.at("a.txt"), "written here").contains("4 bytes not at the source since"));
    let listed = place.mount.verb("unsent", [place.mount.dir()]);
    let words = ["it changed at its source", "--save-as FILE", "--discard", "--over"];
    assert!(words.iter().all(|word| listed.out.contains(word)), "{listed:?}");
    assert_eq!(place.mount.status()["unsent"]["files"][0]["path"], "a.txt");
    let status = place.mount.verb("status", [place.mount.dir()]);
    assert!(status.out.contains("unsent     a.txt: 4 B not at the source"), "{status:?}");
    let mut value = [0; 8];
    let length =
        rustix::fs::getxattr(place.mount.at("a.txt"), "user.weft.unsent", value.as_mut_slice()).expect("there");
    assert_eq!(&value[..length], b"4");
    let metrics = place.mount.verb("stats --prometheus", [place.mount.dir()]).out;
    assert!(metrics.contains("weft_unsent_files 1") && metrics.contains("weft_unsent_bytes 4"), "{metrics}");
    // A wrong path, or a daemon that ends, loses nothing.
    let wrong = place.mount.verb("unsent --discard", [place.mount.at("b.txt")]);
    assert_eq!(wrong.code, Some(4), "{wrong:?}");
    assert_eq!(place.mount.verb("unsent --discard", ["/etc/hostname"]).code, Some(3));
    assert_eq!(place.mount.verb("unsent --discard", ["--json"; 0]).code, Some(2));
    assert_eq!(place.unsent("--over").code, Some(2));
    place.mount.kill_daemon();
    assert_eq!(place.here("a.txt"), MINE);
    assert_eq!(place.rows().len(), 1);
    let again = place.unsent("--send");
    assert!(again.code == Some(1) && again.err.contains("--over"), "{again:?}");
    let all = place.mount.verb("unsent --send", [place.mount.dir()]);
    assert!(all.code == Some(1) && all.err.contains("a.txt: it changed at its source"), "{all:?}");
    assert_eq!(place.at_source("a.txt"), "theirs");
}

#[test]
fn mine_is_written_over_theirs() {
    let Some(place) = Place::new() else { return };
    for change in [theirs, |path: &Path| {
        // As editors do it: another file takes the name.
        let other = path.with_extension("new");
        std::fs::write(&other, "another file").expect("written");
        std::fs::rename(&other, path).expect("renamed");
    }] {
        std::fs::write(place.source("a.txt"), "as it was before").expect("written");
        wait_until("what is there", || place.here("a.txt") == "as it was before");
        place.conflict(change);
        let sent = place.unsent("--send --over");
        assert_eq!(sent.code, Some(0), "{sent:?}");
        assert_eq!(place.at_source("a.txt"), MINE);
        wait_until("what was sent", || place.here("a.txt") == MINE);
        assert!(place.rows().is_empty());
    }
    let nothing = place.mount.verb("unsent --send", [place.mount.dir()]);
    assert!(nothing.code == Some(4) && nothing.err.contains("nothing"), "{nothing:?}");
}

#[test]
fn theirs_is_taken() {
    let Some(place) = Place::new() else { return };
    place.conflict(theirs);
    let open = OpenOptions::new().append(true).open(place.mount.at("a.txt")).expect("opened");
    let refused = place.unsent("--discard");
    assert!(refused.code == Some(1) && refused.err.contains("open for writing"), "{refused:?}");
    assert_eq!(place.here("a.txt"), MINE);
    drop(open);
    wait_until("the close", || place.unsent("--discard").code == Some(0));
    assert_eq!((place.here("a.txt").as_str(), place.at_source("a.txt").as_str()), ("theirs", "theirs"));
    assert!(place.rows().is_empty());
    assert_eq!(place.unsent("--discard").code, Some(4));
}

#[test]
fn a_copy_is_saved_and_nothing_else_changes() {
    let Some(place) = Place::new() else { return };
    place.conflict(theirs);
    let copy = place.mount.beside("copy");
    let save = |file: &Path| place.unsent(&format!("--save-as {}", file.display()));
    let saved = save(&copy);
    assert_eq!(saved.code, Some(0), "{saved:?}");
    assert_eq!(std::fs::read_to_string(&copy).expect("read"), MINE);
    let taken = save(&copy);
    assert!(taken.code == Some(1) && taken.err.contains("exists already"), "{taken:?}");
    let inside = save(&place.mount.at("copy"));
    assert!(inside.code == Some(2) && inside.err.contains("outside"), "{inside:?}");
    assert_eq!((place.rows().len(), place.at_source("a.txt").as_str()), (1, "theirs"));
}

/// Goal: what the source has can be looked at before anything is decided, also where it is another file of that name. Method: a
/// file of several lines of the control socket, one that replaces it, none at all.
#[test]
fn what_the_source_has_is_copied_beside_what_was_written() {
    let Some(place) = Place::new() else { return };
    let content = noise(300_000);
    place.conflict(|path| std::fs::write(path, &content).expect("written"));
    let save = |name: &str| {
        let copy = place.mount.beside(name);
        let outcome = place.unsent(&format!("--theirs --save-as {}", copy.display()));
        (outcome, std::fs::read(copy).ok())
    };
    let (saved, copy) = save("first");
    assert_eq!((saved.code, copy.as_deref()), (Some(0), Some(&content[..])), "{}", saved.err);
    assert_eq!((place.rows().len(), place.here("a.txt").as_str()), (1, MINE), "nothing was decided");
    let beside = place.source("beside");
    theirs(&beside);
    std::fs::rename(&beside, place.source("a.txt")).expect("replaced");
    let (saved, copy) = save("second");
    assert_eq!((saved.code, copy.as_deref()), (Some(0), Some(&b"theirs"[..])), "{}", saved.err);
    std::fs::remove_file(place.source("a.txt")).expect("removed");
    let (refused, copy) = save("third");
    assert!(refused.code == Some(4) && refused.err.contains("no file of this name"), "{refused:?}");
    assert_eq!((copy, place.rows().len()), (None, 1));
    assert_eq!(place.unsent("--theirs").code, Some(2), "of what is copied alone");
}

/// Goal: what a full disk did not take is sent by itself when there is room, although a part of it was written.
#[test]
fn a_full_disk_is_tried_again() {
    if !is_root() {
        return without("only root can mount a small file system");
    }
    let tree = tempfile::Builder::new().prefix("wt-unsent-").tempdir().expect("a temporary folder");
    let small = Program::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(tree.path()).run();
    assert_eq!(small.code, Some(0), "{small:?}");
    let path = tree.path().to_owned();
    let full = |place: &Place| {
        std::fs::write(place.source("filler"), noise(600_000)).expect("there is room");
        let mut file = OpenOptions::new().write(true).open(place.mount.at("a.txt")).expect("opened");
        file.write_all(&noise(800_000)).expect("written here");
        let refused = file.sync_all().expect_err("no room");
        assert_eq!(refused.kind(), std::io::ErrorKind::StorageFull);
        drop(file);
        assert_eq!(place.rows()[0]["tried_again"], true);
        let mut here = Vec::new();
        std::fs::File::open(place.mount.at("a.txt")).and_then(|mut f| f.read_to_end(&mut here)).expect("read");
        assert!(here == noise(800_000));
        std::fs::remove_file(place.source("filler")).expect("removed");
        wait_until("another try", || place.rows().is_empty());
        assert!(std::fs::read(place.source("a.txt")).expect("read") == noise(800_000));
    };
    if let Some(place) = Place::of(tree) {
        full(&place);
        place.mount.umount();
    }
    let _ = Program::new("umount").arg("-l").arg(path).run();
}

#[test]
fn a_directory_is_read_only_by_the_configuration() {
    let trees = [(); 2].map(|()| tempfile::Builder::new().prefix("wt-unsent-").tempdir().expect("a temporary folder"));
    let [fixed, free] = &trees;
    let table = |name: &str, tree: &tempfile::TempDir, more: &str| {
        format!("[[dir]]\nname = \"{name}\"\npath = \"{}\"\n{more}", tree.path().display())
    };
    std::fs::write(fixed.path().join("a"), "a").expect("written");
    let config = table("fixed", fixed, "read_only = true\n") + &table("free", free, "");
    let Some(mount) = Mount::with(Setup { source: "dir", config, ..Setup::default() }) else { return };
    std::fs::write(mount.at("free/new"), "new").expect("written");
    assert_eq!(std::fs::read_to_string(free.path().join("new")).expect("read"), "new");
    let read_only = |outcome: std::io::Result<()>| {
        assert_eq!(outcome.expect_err("read-only").kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    };
    read_only(std::fs::write(mount.at("fixed/new"), "new"));
    read_only(std::fs::write(mount.at("fixed/a"), "new"));
    read_only(std::fs::remove_file(mount.at("fixed/a")));
    read_only(std::fs::rename(mount.at("fixed/a"), mount.at("fixed/b")));
    read_only(std::fs::create_dir(mount.at("fixed/d")));
    assert_eq!(std::fs::read_to_string(mount.at("fixed/a")).expect("read"), "a");
}
