//! Names of directories that the kernel keeps.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use crate::interrupts::wait_until;
use crate::support::{Exit, Mount, Server, Setup, names_in};

/// A directory of many names, and a mount of it.
fn mounted() -> Option<(tempfile::TempDir, Mount)> {
    let tree = tempfile::Builder::new().prefix("wt-dir-").tempdir().expect("a temporary folder");
    for name in ["many", "beside"] {
        std::fs::create_dir(tree.path().join(name)).expect("made");
    }
    beside(&tree, || {
        (0..NAMES).for_each(|nth| std::fs::write(tree.path().join(format!("many/{nth:04}")), "x").expect("written"));
    });
    let source: &str = format!("dir:{}", tree.path().display()).leak();
    let mount = Mount::with(Setup { source, ..Setup::default() })?;
    Some((tree, mount))
}

/// Makes changes beside the mount that the directory's time does not show, for by that the kernel itself sees many.
fn beside(tree: &tempfile::TempDir, change: impl FnOnce()) {
    change();
    let same = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let dir = std::fs::File::open(tree.path().join("many")).expect("opened");
    dir.set_times(std::fs::FileTimes::new().set_modified(same)).expect("set");
}

/// How often the kernel has asked for names.
fn asked(mount: &Mount) -> u64 {
    requests(mount, &["readdir", "readdirplus"])
}

/// How many requests of some kinds the kernel has sent.
pub fn requests(mount: &Mount, operations: &[&str]) -> u64 {
    let stats = mount.json("stats", [mount.dir()]);
    let of = |operation: &&str| {
        let figure = format!("weft_kernel_request_duration_seconds{{operation={operation}}}");
        stats["figures"][figure]["count"].as_u64().unwrap_or(0)
    };
    assert!(of(&"opendir") > 0, "{stats}");
    operations.iter().map(of).sum()
}

fn listed(dir: &Path) -> BTreeSet<String> {
    names_in(dir).into_iter().collect()
}

/// Goal: names that were read are not asked for again until they change, by whom ever; then the next reading has them.
#[test]
fn names_are_read_once_until_they_change() {
    let Some((tree, mount)) = mounted() else { return };
    let dir = mount.at("many");
    // Changes that were made just before the mount may still be heard of.
    wait_until("names that are kept", || {
        let before = (names_in(&dir).len(), asked(&mount)).1;
        (0..5).for_each(|_| assert_eq!(names_in(&dir).len(), NAMES));
        asked(&mount) == before
    });
    std::fs::write(dir.join("by the mount"), "x").expect("written");
    assert!(listed(&dir).contains("by the mount"));
    std::fs::rename(dir.join("by the mount"), dir.join("renamed")).expect("renamed");
    assert!(listed(&dir).contains("renamed") && !listed(&dir).contains("by the mount"));
    std::fs::remove_file(dir.join("renamed")).expect("removed");
    assert_eq!(names_in(&dir).len(), NAMES);
    beside(&tree, || std::fs::write(tree.path().join("many/beside it"), "x").expect("written"));
    wait_until("a name made beside the mount", || listed(&dir).contains("beside it"));
    beside(&tree, || std::fs::remove_file(tree.path().join("many/0007")).expect("removed"));
    wait_until("a name removed beside the mount", || !listed(&dir).contains("0007"));
}

/// Goal: the same of a directory that stays open and is read from its beginning each time: of a name that comes beside the mount
/// the kernel knows nothing but that list.
#[test]
fn names_of_what_stays_open_are_those_of_now() {
    let Some((tree, mount)) = mounted() else { return };
    let mut open = Open::new(&mount.at("many"));
    assert_eq!(open.names().len(), NAMES);
    for name in ["beside it", "and one more"] {
        beside(&tree, || std::fs::write(tree.path().join("many").join(name), "x").expect("written"));
        wait_until("a name made beside the mount", || open.names().contains(name));
    }
}

/// Goal: the same where it is asked whether there are others.
#[test]
fn names_of_what_stays_open_are_those_that_were_asked_for() {
    let Some(python) = Server::python() else { return };
    let Some(mount) = Mount::with(Setup::default().option("freshness=ttl=1h")) else { return };
    std::fs::write(python.root().join("a"), "x").expect("written");
    let top = mount.at(python.site());
    let mut open = Open::new(&top);
    let now = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>();
    assert_eq!(open.names(), now(&["a"]));
    std::fs::write(python.root().join("b"), "x").expect("written");
    assert_eq!(open.names(), now(&["a"]), "it is trusted");
    assert_eq!(mount.verb("reload", [&top]).code, Some(0));
    assert_eq!(open.names(), now(&["a", "b"]));
    std::fs::remove_file(python.root().join("a")).expect("removed");
    assert_eq!(mount.verb("reload", [&top]).code, Some(0));
    assert_eq!(open.names(), now(&["b"]));
}

/// A directory that stays open. Once: of several who have it open the kernel lets one read the list that it keeps.
struct Open(rustix::fs::Dir);

impl Open {
    fn new(dir: &Path) -> Open {
        Open(rustix::fs::Dir::new(std::fs::File::open(dir).expect("opened")).expect("a directory"))
    }

    fn names(&mut self) -> BTreeSet<String> {
        self.0.rewind();
        let names = self.0.by_ref().map(|entry| entry.expect("read").file_name().to_str().expect("text").to_owned());
        names.filter(|name| !name.starts_with('.')).collect()
    }
}

/// Goal: who looks at the files of a directory of which others have read the names alone, as `ls -l` does after `ls`, does not
/// ask for each: they are told once more, with what they lead to.
#[test]
fn names_that_were_read_alone_are_told_with_their_files_to_the_next() {
    let Some((_tree, mount)) = mounted() else { return };
    let dir = mount.at("many");
    let quiet = || {
        let before = (names_in(&dir).len(), asked(&mount)).1;
        (0..5).for_each(|_| assert_eq!(names_in(&dir).len(), NAMES));
        asked(&mount) == before
    };
    wait_until("names that are kept", quiet);
    // From here on they are others.
    std::fs::remove_file(dir.join("0000")).expect("removed");
    assert_eq!(names_in(&dir).len(), NAMES - 1);
    let before = requests(&mount, &["lookup"]);
    let lengths =
        std::fs::read_dir(&dir).expect("opened").map(|row| row.expect("a name").metadata().expect("stat").len());
    assert_eq!(lengths.sum::<u64>(), NAMES as u64 - 1);
    let looked_up = requests(&mount, &["lookup"]) - before;
    assert!(looked_up < NAMES as u64 / 10, "{looked_up} of {NAMES}");
}

/// Goal: of a name that is not there the kernel asks once, until it comes, by whom ever.
#[test]
fn absent_names_are_asked_for_once_until_they_come() {
    let Some((tree, mount)) = mounted() else { return };
    let dir = mount.at("many");
    names_in(&dir);
    let absent = |nth: usize| !dir.join(format!("absent {nth}")).exists();
    wait_until("absences that are kept", || {
        assert!((0..50).all(absent));
        let before = requests(&mount, &["lookup"]);
        assert!((0..50).all(absent) && (0..50).all(absent));
        requests(&mount, &["lookup"]) == before
    });
    std::fs::write(dir.join("absent 1"), "x").expect("written");
    std::fs::rename(dir.join("0001"), dir.join("absent 2")).expect("renamed");
    assert!(!absent(1) && !absent(2), "at once by the mount");
    for nth in 3..6 {
        beside(&tree, || std::fs::write(tree.path().join(format!("many/absent {nth}")), "x").expect("written"));
        wait_until("a name made beside the mount", || !absent(nth));
    }
    // Many at once, each of which was just asked for.
    for nth in 6..50 {
        assert!(absent(nth));
        beside(&tree, || std::fs::write(tree.path().join(format!("many/absent {nth}")), "x").expect("written"));
    }
    (6..50).for_each(|nth| wait_until("a name made beside the mount", || !absent(nth)));
}

/// Goal: who has opened a directory before a change, and reads it after that, hands old names to nobody.
#[test]
fn who_opened_it_before_hands_old_names_to_nobody() {
    let Some((tree, mount)) = mounted() else { return };
    let dir = mount.at("many");
    names_in(&dir);
    for nth in 0..20 {
        // Opened, and not read yet.
        let open = std::fs::read_dir(&dir).expect("opened");
        let name = format!("new {nth}");
        match nth % 2 {
            0 => std::fs::write(dir.join(&name), "x").expect("written"),
            _ => beside(&tree, || std::fs::write(tree.path().join("many").join(&name), "x").expect("written")),
        }
        wait_until("the new name, with the directory open", || listed(&dir).contains(&name));
        let old: Vec<_> = open.map(|entry| entry.expect("a name").file_name()).collect();
        assert!(old.len() >= NAMES + nth, "{} names that were there before", old.len());
        assert!(listed(&dir).contains(&name), "after the old ones were read");
        assert!(listed(&dir).contains(&name), "and kept");
    }
}

/// Goal: who makes or removes a name lists it so at once, however many others have the directory open, with names of
/// whenever. Method: readers that list all the time, some of them slowly, and one who changes and looks.
#[test]
fn changes_are_listed_at_once_beside_readers() {
    let Some((_tree, mount)) = mounted() else { return };
    let dir = mount.at("many");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for slow in [false, false, true] {
            let (dir, stop) = (&dir, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let rows = std::fs::read_dir(dir).expect("opened");
                    if slow {
                        (0..50).for_each(|_| std::thread::yield_now());
                    }
                    let names = rows.filter(|row| row.as_ref().is_ok_and(|row| row.file_name().len() == 4)).count();
                    assert_eq!(names, NAMES, "what nobody touches is always there, once");
                }
            });
        }
        let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for nth in 0..100 {
                let name = format!("made {nth}");
                std::fs::write(dir.join(&name), "x").expect("written");
                assert!(listed(&dir).contains(&name), "{name} was made");
                std::fs::remove_file(dir.join(&name)).expect("removed");
                assert!(!listed(&dir).contains(&name), "{name} was removed");
            }
        }));
        stop.store(true, Ordering::Relaxed);
        looked.expect("each change is listed");
    });
}

/// Goal: the next daemon knows nothing of what the kernel has kept, and says so. Method: a directory that is open, and
/// one that is read to its end, when the daemon is killed and names change.
#[test]
fn the_next_daemon_hands_out_no_old_names() {
    let Some((tree, mount)) = mounted() else { return };
    let dir = mount.at("many");
    (0..3).for_each(|_| assert_eq!(names_in(&dir).len(), NAMES));
    let open = std::fs::read_dir(&dir).expect("opened");
    let mut stays = Open::new(&mount.at("beside"));
    assert_eq!(stays.names().len(), 0);
    let daemon = mount.daemon();
    let gone = Exit::of(daemon);
    rustix::process::kill_process(daemon, rustix::process::Signal::KILL).expect("killed");
    assert!(gone.wait());
    beside(&tree, || std::fs::write(tree.path().join("many/since"), "x").expect("written"));
    std::fs::write(tree.path().join("beside/since"), "x").expect("written");
    wait_until("what was made without a daemon, in a directory that stays open", || stays.names().contains("since"));
    wait_until("what was made without a daemon", || listed(&dir).contains("since"));
    assert!(open.count() >= NAMES);
    assert!(listed(&dir).contains("since"));
}

const NAMES: usize = 300;
