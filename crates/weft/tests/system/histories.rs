//! Histories that chance makes: what is done on one of several ways to a tree is what all of them show then, and what a
//! plain directory shows to which the same was done.
//!
//! `WEFT_HISTORIES=FROM-TO` runs the histories of these seeds instead of the few that every run of the tests has.

mod answers;
mod deed;
mod locked;
mod notes;
mod parts;
mod seen;
mod site;
mod step;
mod troubled;
mod turns;
mod versions;

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

use self::deed::{Deed, PATHS, Tree, Without, outcome};
use self::seen::{Seen, difference, look_at};
use crate::afs::mounted_on;
use crate::interrupts::wait_until;
use crate::support::{AfsCell, Chance, Mount, Offered, Pair, without};

/// A tree that is used on several ways.
struct History<'a> {
    seed: u64,
    chance: Chance,
    /// Where the tree is, on each way: first those that are mounts.
    ways: Vec<PathBuf>,
    mounts: Vec<&'a Mount>,
    /// The first of those on which something is done: the others are read-only.
    acting: usize,
    /// Whether a mount goes on when its daemon is killed.
    survives: bool,
    without: Without,
    /// Where the same is done.
    plain: tempfile::TempDir,
    /// What a bystander has open on the mounts.
    kept: VecDeque<File>,
    lately: VecDeque<String>,
}

impl<'a> History<'a> {
    fn new(seed: u64, ways: Vec<PathBuf>, mounts: Vec<&'a Mount>, without: Without) -> History<'a> {
        let plain = tempfile::Builder::new().prefix("wt-plain-").tempdir().expect("a temporary folder");
        History {
            seed,
            chance: Chance::of(seed),
            ways,
            mounts,
            acting: 0,
            survives: true,
            without,
            plain,
            kept: VecDeque::new(),
            lately: VecDeque::new(),
        }
    }

    /// Goes through all of it, while others look at the mounted trees, whatever they see.
    fn run(mut self) {
        let done = AtomicBool::new(false);
        let mounted = self.ways[..self.mounts.len()].to_vec();
        std::thread::scope(|scope| {
            let _stop = Stop(&done);
            for (nth, way) in mounted.iter().enumerate() {
                let (mut chance, done) = (Chance::of(!self.seed - nth as u64), &done);
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        look_somewhere(way, &mut chance);
                    }
                });
            }
            for dir in ["d", "e", "d/d", "e/d"] {
                for top in [self.ways[self.acting].as_path(), self.plain.path()] {
                    std::fs::create_dir(top.join(dir)).expect("made");
                }
            }
            for _ in 0..TURNS {
                self.go_on();
            }
        });
    }

    fn go_on(&mut self) {
        if self.chance.below(4) == 0 {
            self.stand_by();
        }
        match self.chance.below(60) {
            0 if self.survives => {
                let mount = *self.chance.pick(&self.mounts);
                self.note("the daemon is killed".to_owned());
                mount.kill_daemon();
            }
            1 => {
                let nth = self.chance.below(self.mounts.len() as u64) as usize;
                self.note("reloaded".to_owned());
                let reloaded = self.mounts[nth].verb("reload", [&self.ways[nth]]);
                assert!(matches!(reloaded.code, Some(0 | 4)), "{reloaded:?}\n{}", self.told());
            }
            2 => {
                let nth = self.chance.below(self.mounts.len() as u64) as usize;
                self.note("dropped".to_owned());
                let dropped = self.mounts[nth].verb("rm -w -r", [&self.ways[nth]]);
                assert!(matches!(dropped.code, Some(0 | 4)), "{dropped:?}\n{}", self.told());
            }
            _ => {
                let way = self.acting + self.chance.below((self.ways.len() - self.acting) as u64) as usize;
                self.visit(way);
                self.check(way);
            }
        }
    }

    /// Somebody opens a file and keeps it open, whatever becomes of it, and looks into another one: that it is open may not
    /// show. What is read by it counts for nothing, for it may be of before.
    fn stand_by(&mut self) {
        let nth = self.chance.below(self.mounts.len() as u64) as usize;
        let path = self.ways[nth].join(self.chance.pick(PATHS));
        // Also for writing, which nobody does by it: on a way that takes changes.
        let writes = nth >= self.acting && self.chance.below(3) == 0;
        if let Ok(file) = File::options().read(true).write(writes).open(&path) {
            let how = if writes { " for writing" } else { "" };
            self.note(format!("way {nth}: {} is kept open{how}", path.display()));
            self.kept.push_back(file);
        }
        if self.kept.len() > KEPT_MAX || self.chance.below(5) == 0 {
            self.kept.pop_front();
        }
        if let Some(file) = self.kept.front()
            && let Err(error) = file.read_at(&mut [0; 100_000], self.chance.below(50_000))
        {
            // Where nobody opens files, one that is removed is gone.
            let expected = [Errno::IO, Errno::ISDIR, Errno::STALE, Errno::NOENT];
            let expected = expected.map(|errno| Some(errno.raw_os_error()));
            assert!(expected.contains(&error.raw_os_error()), "{error}\n{}", self.told());
        }
    }

    /// A program comes, does a few things, and ends.
    fn visit(&mut self, way: usize) {
        let (mut plain, mut tree) = (Tree::at(self.plain.path()), Tree::at(&self.ways[way]));
        let with_hands = self.chance.below(3) == 0;
        for _ in 0..=self.chance.below(if with_hands { 12 } else { 4 }) {
            let of = if with_hands { Deed::with_hands } else { Deed::chosen };
            let deed = of(&mut self.chance, self.without);
            self.act(way, &deed, &mut plain, &mut tree);
            if with_hands && self.chance.below(6) == 0 {
                self.check_here(way);
            }
            if with_hands && self.survives && way < self.mounts.len() && self.chance.below(100) == 0 {
                self.note("the daemon is killed".to_owned());
                self.mounts[way].kill_daemon();
            }
        }
    }

    fn act(&mut self, way: usize, deed: &Deed, plain: &mut Tree, tree: &mut Tree) {
        if deed.is_refused(self.without, plain) {
            return;
        }
        let plain = outcome(deed.do_in(plain));
        let done = outcome(deed.do_in(tree));
        let said = if let Err(errno) = &plain { format!(" ({errno:?})") } else { String::new() };
        self.note(format!("way {way}: {deed:?}{said}"));
        let told = |outcome: &Result<Vec<u8>, Option<i32>>| outcome.as_ref().map(Vec::len).map_err(|errno| *errno);
        assert!(plain == done, "{:?}, not {:?}\n{}", told(&done), told(&plain), self.told());
    }

    /// Who has done something sees it at once.
    fn check_here(&self, way: usize) -> Seen {
        let plain = look_at(self.plain.path()).expect("nobody else is there");
        let here = look_at(&self.ways[way]);
        let here = here.unwrap_or_else(|error| panic!("way {way}: {error}\n{}", self.told()));
        self.alike("the plain directory", &plain, way, &here, false);
        here
    }

    /// And the others as soon as they have heard of it.
    fn check(&self, way: usize) {
        let here = self.check_here(way);
        for (nth, top) in self.ways.iter().enumerate().filter(|(nth, _)| *nth != way) {
            let mut last = None;
            let is_same = || {
                last = Some(look_at(top));
                let seen = last.as_ref().and_then(|seen| seen.as_ref().ok());
                seen.is_some_and(|seen| difference(&here, seen, true).is_none())
            };
            let waits = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| wait_until("the same", is_same)));
            if waits.is_err() {
                match last.expect("looked at") {
                    Ok(seen) => {
                        let since = look_at(&self.ways[way]).map(|now| difference(&here, &now, true));
                        let first = difference(&here, &seen, true).unwrap_or_default();
                        let path = top.join(first.split(": ").next().unwrap_or_default());
                        let why = self.mounts.get(nth).map(|mount| mount.verb("why", [&path]).out);
                        let why = why.unwrap_or_default();
                        let asked = self.mounts.get(nth).map(|mount| {
                            mount.verb("reload", [top]);
                            look_at(top).map(|now| difference(&here, &now, true))
                        });
                        let what = format!("way {way} ({since:?} since; the other, asked anew: {asked:?}; {why})");
                        self.alike(&what, &here, nth, &seen, true);
                    }
                    Err(error) => panic!("way {nth}: {error}\n{}", self.told()),
                }
            }
        }
    }

    fn alike(&self, what: &str, one: &Seen, way: usize, other: &Seen, same_clock: bool) {
        if let Some(difference) = difference(one, other, same_clock) {
            panic!("{what} and way {way}:\n{difference}\n{}", self.told());
        }
    }

    fn note(&mut self, what: String) {
        self.lately.push_back(what);
        if self.lately.len() > TOLD {
            self.lately.pop_front();
        }
    }

    fn told(&self) -> String {
        let lately: Vec<&str> = self.lately.iter().map(String::as_str).collect();
        format!("seed {}, lately:\n{}", self.seed, lately.join("\n"))
    }
}

/// Ends those who look when the history has ended, or failed.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Reads something, if it is there: what is seen counts for nothing, for it is being changed.
fn look_somewhere(top: &std::path::Path, chance: &mut Chance) {
    let path = top.join(chance.pick(&["", "a", "b", "d", "d/a", "d/d", "e/d", "e/d/b", "no"]));
    let looked = match chance.below(4) {
        0 => std::fs::symlink_metadata(path).map(drop),
        1 => std::fs::read(path).map(drop),
        2 => std::fs::read_dir(path).map(|names| names.for_each(drop)),
        _ => look_at(&path).map(drop),
    };
    if let Err(error) = looked {
        // It has gone, is another thing by now, or changed while it was copied.
        let expected = [
            Errno::NOENT,
            Errno::INVAL,
            Errno::NOTDIR,
            Errno::ISDIR,
            Errno::STALE,
            Errno::IO,
            Errno::LOOP,
            Errno::ACCESS,
            // Its source is not reached.
            Errno::HOSTUNREACH,
            Errno::TIMEDOUT,
            Errno::AGAIN,
        ];
        assert!(expected.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error())), "{error:?}");
    }
}

fn seeds(few: u64) -> std::ops::Range<u64> {
    let Some(text) = std::env::var("WEFT_HISTORIES").ok() else {
        if few == 0 {
            without("these histories take their time and the machine: `make histories` runs them");
        }
        return 0..few;
    };
    let ends = text.split_once('-').map(|(from, to)| (from.parse(), to.parse()));
    let Some((Ok(from), Ok(to))) = ends else { panic!("WEFT_HISTORIES is FROM-TO: {text}") };
    from..to
}

/// What files show that are open: of one history in three the newest version.
fn open_files(seed: u64) -> &'static [&'static str] {
    if seed % 3 == 1 { &["open_files=newest"] } else { &[] }
}

/// Goal: a mounted directory is the directory, whatever is done, in the mount and beside it.
#[test]
fn of_a_directory_and_its_mount() {
    for seed in seeds(2) {
        let Some(pair) = Pair::with(open_files(seed)) else { return };
        History::new(seed, vec![pair.at(""), pair.there("")], vec![&pair.mount], Without::default()).run();
    }
}

/// Goal: the same, where the kernel opens and closes files without a word to the daemon.
#[test]
fn of_a_directory_whose_files_are_not_opened() {
    for seed in seeds(0) {
        let Some(pair) = Pair::with(&["no_open"]) else { return };
        let history = History::new(seed, vec![pair.at(""), pair.there("")], vec![&pair.mount], Without::default());
        // Such a mount is read-only.
        History { acting: 1, ..history }.run();
    }
}

/// Goal: the same over io_uring. Such a mount ends with its daemon.
#[test]
fn of_a_directory_that_is_mounted_over_io_uring() {
    for seed in seeds(0) {
        let Some(_offered) = Offered::now() else { return };
        let Some(pair) = Pair::with(&["transport=io_uring"]) else { return };
        let history = History::new(seed, vec![pair.at(""), pair.there("")], vec![&pair.mount], Without::default());
        History { survives: false, ..history }.run();
    }
}

/// Goal: two machines see each other's changes, whatever they do to a volume.
#[test]
fn of_a_volume_on_two_machines() {
    let Some(cell) = AfsCell::up() else { return };
    for seed in seeds(2) {
        let [Some(here), Some(there)] = ["c1", "c2"].map(|node| mounted_on(cell, node, "afs", open_files(seed))) else {
            return;
        };
        let folder = format!("weft.test/scratch/history-{seed}");
        std::fs::create_dir(here.at(&folder)).expect("made");
        let ways = [&here, &there].map(|mount| mount.at(&folder)).to_vec();
        let without = Without { what_afs_lacks: true };
        History::new(seed, ways, vec![&here, &there], without).run();
        std::fs::remove_dir_all(here.at(&folder)).expect("removed");
    }
}

/// How many files a bystander has open at most.
const KEPT_MAX: usize = 4;
/// Turns of one history.
const TURNS: usize = 100;
/// Deeds that are told when something is wrong.
const TOLD: usize = 40;
