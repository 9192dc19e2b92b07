//! Histories of a file that programs on two machines count in, each alone by a lock, while cables are pulled and daemons
//! crash.

use std::fs::File;
use std::io::{Error, Read, Seek, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use super::notes::Notes;
use super::seeds;
use super::troubled::{is_of_trouble, mounted_twice, trouble};
use crate::support::{AfsCell, Chance, Mount};

/// Programs that count in one file.
struct Counting {
    /// How often it was counted; changed by whoever has the lock.
    counted: AtomicUsize,
    /// Whether somebody has the lock.
    is_locked: AtomicBool,
    notes: Notes,
}

impl Counting {
    /// Counts a few times: what is seen under the lock is what was written under it.
    fn count(&self, nth: u64, mount: &Mount, path: &Path, chance: &mut Chance) {
        for _ in 0..TIMES {
            self.note(nth, "opens");
            let mut file = self.tried(|| File::options().read(true).write(true).open(path));
            self.note(nth, "locks");
            self.tried(|| file.lock().inspect_err(|error| self.note(nth, &format!("is refused: {error}"))));
            self.note(nth, "has it");
            let was_locked = self.is_locked.swap(true, Ordering::SeqCst);
            assert!(!was_locked, "two have the lock\n{}", self.notes.told());
            let (mut text, counted) = (String::new(), self.counted.load(Ordering::SeqCst));
            self.tried(|| {
                text.clear();
                file.rewind()?;
                file.read_to_string(&mut text)
            });
            assert_eq!(text.trim().parse(), Ok(counted), "by {nth}\n{}", self.notes.told());
            let more = format!("{}{}\n", counted + 1, " ".repeat(chance.below(9000) as usize));
            file.rewind().expect("a regular file");
            self.tried(|| file.set_len(0));
            file.write_all(more.as_bytes()).expect("kept here");
            self.send(nth, mount, (path, &file));
            self.counted.store(counted + 1, Ordering::SeqCst);
            self.is_locked.store(false, Ordering::SeqCst);
            self.note(nth, "has counted");
            if chance.below(2) == 0 {
                self.tried(|| file.unlock());
            }
        }
    }

    /// Until it is at the source: what was not sent is tried again.
    fn send(&self, nth: u64, mount: &Mount, (path, file): (&Path, &File)) {
        let Err(error) = file.sync_all() else { return };
        self.note(nth, &format!("is not sent: {error}"));
        assert!(is_of_trouble(&error), "{error:?}\n{}", self.notes.told());
        let until = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < until, "it is never sent\n{}", self.notes.told());
            mount.verb("unsent --send", [path]);
            let told = mount.verb("unsent", [path]);
            // Otherwise there is no daemon to ask just now.
            if told.code == Some(0) && told.out.contains("is at its source") {
                return;
            }
        }
    }

    /// Does something until no trouble is in its way.
    fn tried<T>(&self, mut act: impl FnMut() -> Result<T, Error>) -> T {
        let until = Instant::now() + PATIENCE;
        loop {
            match act() {
                Ok(done) => return done,
                Err(error) => {
                    assert!(is_of_trouble(&error) && Instant::now() < until, "{error:?}\n{}", self.notes.told());
                }
            }
        }
    }

    fn note(&self, nth: u64, what: &str) {
        self.notes.add(&format!("{nth} on {} {what}", nth % 2));
    }
}

/// Goal: who has a lock is alone, and sees what the one before wrote, whatever happens to cables and daemons.
#[test]
fn of_a_file_that_is_locked() {
    let range = seeds(0);
    if range.is_empty() {
        return;
    }
    let Some(cell) = AfsCell::own() else { return };
    for seed in range {
        let mut chance = Chance::of(seed);
        let Some([here, there]) = mounted_twice(&cell, &mut chance) else { return };
        let name = format!("weft.test/scratch/locked-{seed}");
        let (counted, is_locked) = Default::default();
        let counting = Counting { counted, is_locked, notes: Notes::of(seed) };
        counting.tried(|| std::fs::write(here.at(&name), "0\n"));
        let (over, is_over) = channel::<()>();
        std::thread::scope(|scope| {
            let (cell, mounts) = (&cell, [&here, &there]);
            let tell = |what: &str| counting.notes.add(what);
            scope.spawn(move || trouble(&mut chance, cell, mounts, false, &is_over, tell));
            let over = over;
            let workers: Vec<_> = (0..WORKERS)
                .map(|nth| {
                    let (mount, counting, name) = (mounts[nth as usize % 2], &counting, &name);
                    let mut chance = Chance::of(!seed - nth);
                    scope.spawn(move || counting.count(nth, mount, &mount.at(name), &mut chance))
                })
                .collect();
            let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
            drop(over);
            assert!(ended.iter().all(Result::is_ok), "seed {seed}");
        });
        println!("seed {seed}: {:?}", counting.notes.took());
        assert_eq!(counting.counted.load(Ordering::SeqCst), WORKERS as usize * TIMES);
        counting.tried(|| std::fs::remove_file(here.at(&name)));
    }
}

/// How many count, on one machine or the other, and how often each.
const WORKERS: u64 = 4;
const TIMES: usize = 60;
/// Longer than any trouble.
const PATIENCE: Duration = Duration::from_secs(180);
