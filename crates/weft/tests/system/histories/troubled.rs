//! Histories of a volume that two machines use, while cables are pulled and servers and daemons crash.
//!
//! What a program was told to have been done is so when all is well again; of what failed nobody knows, so any outcome is
//! right, as long as both machines show the same one. While there is trouble each path is one machine's to change: what two
//! write who do not hear of each other is a matter of conflicts, which have tests of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Error, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::notes::Notes;
use super::versions::{SHORT, Versions, runs};
use super::{Stop, look_somewhere, seeds};
use crate::afs::mounted_with;
use crate::support::{AfsCell, Chance, Mount, Program};

/// A folder on a volume, and what may be in it.
struct History<'a> {
    seed: u64,
    notes: &'a Notes,
    chance: Chance,
    cell: &'a AfsCell,
    mounts: [&'a Mount; 2],
    folder: String,
    versions: Versions,
    /// What may be at each path.
    may: BTreeMap<String, BTreeSet<Thing>>,
    /// Where something was not sent, or only half of it: until all is well again its bytes may be of no version.
    unsure: BTreeSet<String>,
}

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    Nothing,
    Empty,
    Version(usize),
    /// Bytes of no version.
    Wrong(Vec<(String, usize)>),
}

impl History<'_> {
    fn run(mut self) {
        let done = AtomicBool::new(false);
        for path in PATHS {
            self.may.insert((*path).to_owned(), BTreeSet::from([Thing::Nothing]));
        }
        let tops = self.mounts.map(|mount| mount.at(&self.folder));
        std::thread::scope(|scope| {
            let _stop = Stop(&done);
            for (nth, top) in tops.iter().enumerate() {
                let (mut chance, done) = (Chance::of(!self.seed - nth as u64), &done);
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        look_somewhere(top, &mut chance);
                    }
                });
            }
            for _ in 0..TURNS {
                self.turn();
            }
        });
        for mount in self.mounts {
            mount.remount();
        }
        self.check();
    }

    /// Some trouble, and some time without any.
    fn turn(&mut self) {
        let owners: Vec<usize> = PATHS.iter().map(|_| self.chance.below(2) as usize).collect();
        let (over, is_over) = channel::<()>();
        let (mut chance, cell, mounts) = (Chance::of(self.chance.below(u64::MAX)), self.cell, self.mounts);
        std::thread::scope(|scope| {
            let notes = self.notes;
            scope.spawn(move || trouble(&mut chance, cell, mounts, true, &is_over, |what| notes.add(what)));
            let over = over;
            for _ in 0..DEEDS {
                self.deed(Some(&owners));
            }
            drop(over);
        });
        self.settle();
        self.check();
        for _ in 0..DEEDS / 3 {
            self.deed(None);
        }
        self.check();
    }

    /// Something is done on one machine.
    fn deed(&mut self, owners: Option<&[usize]>) {
        let machine = self.chance.below(2) as usize;
        let its: Vec<&str> = (PATHS.iter().enumerate())
            .filter(|(nth, _)| owners.is_none_or(|owners| owners[*nth] == machine))
            .map(|(_, path)| *path)
            .collect();
        let is_trouble = owners.is_some();
        let what = self.chance.below(10);
        if its.is_empty() || what >= 7 {
            let path = *self.chance.pick(PATHS);
            return self.read(machine, path, is_trouble, its.contains(&path));
        }
        let (path, other) = (*self.chance.pick(&its), *self.chance.pick(&its));
        let was_unsure = self.unsure.contains(path) || self.unsure.contains(&format!("{path}.new"));
        let begun = Instant::now();
        let done = match what {
            0..3 => self.write(machine, path),
            3 => self.copy(machine, path),
            4 => self.replace(machine, path),
            5 => self.remove(machine, path),
            _ => self.rename(machine, path, other),
        };
        let took = begun.elapsed().as_millis();
        self.notes.add(&format!("{machine}: {what} {path} {other}: {done:?} in {took} ms, {:?}", self.may[path]));
        if let Err(error) = done {
            // What was opened may be replaced then by a change of which nobody heard.
            let is_replaced = was_unsure && error.kind() == std::io::ErrorKind::NotFound;
            let is_expected = is_trouble && (is_replaced || is_of_trouble(&error));
            assert!(is_expected, "{error:?}\n{}", self.notes.told());
        }
    }

    fn at(&self, machine: usize, path: &str) -> std::path::PathBuf {
        self.mounts[machine].at(&self.folder).join(path)
    }

    /// What an attempt to put something to a path has come to.
    fn put(&mut self, path: &str, thing: Thing, done: &Result<(), Error>) {
        let may = self.may.entry(path.to_owned()).or_insert_with(|| BTreeSet::from([Thing::Nothing]));
        if done.is_ok() {
            *may = BTreeSet::from([thing]);
            self.unsure.remove(path);
        } else {
            may.extend([thing]);
            self.unsure.insert(path.to_owned());
        }
    }

    fn written(&mut self, path: &str, number: usize, done: &Result<(), Error>) {
        if done.is_err() {
            self.put(path, Thing::Empty, done);
        }
        self.put(path, Thing::Version(number), done);
    }

    fn version(&mut self) -> usize {
        let most = *self.chance.pick(&[1, 5000, 80_000, 2_000_000]);
        self.versions.add(SHORT + self.chance.below(most) as usize)
    }

    fn write(&mut self, machine: usize, path: &str) -> Result<(), Error> {
        let number = self.version();
        let (at, content) = (self.at(machine, path), self.versions.content(number));
        let in_parts = self.chance.below(3) == 0;
        let done = match in_parts {
            true => write_in_parts(&at, &content, &mut self.chance),
            false => write_synced(&at, &content),
        };
        self.written(path, number, &done);
        if in_parts {
            // Who does not hear of the whole may have a part of it.
            self.unsure.insert(path.to_owned());
        }
        done
    }

    /// By a program that takes for done what was closed.
    fn copy(&mut self, machine: usize, path: &str) -> Result<(), Error> {
        let number = self.version();
        let plain = tempfile::NamedTempFile::new()?;
        fs::write(plain.path(), self.versions.content(number))?;
        let copied = Program::new("cp").arg(plain.path()).arg(self.at(machine, path)).run();
        let done = if copied.code == Some(0) { Ok(()) } else { Err(Error::new(OF_TROUBLE, copied.err)) };
        self.written(path, number, &done);
        done
    }

    fn replace(&mut self, machine: usize, path: &str) -> Result<(), Error> {
        let number = self.version();
        let new = format!("{path}.new");
        let done = write_synced(&self.at(machine, &new), &self.versions.content(number));
        self.written(&new, number, &done);
        done?;
        self.rename(machine, &new, path)
    }

    fn remove(&mut self, machine: usize, path: &str) -> Result<(), Error> {
        let done = fs::remove_file(self.at(machine, path));
        if self.was_absent(path, &done) {
            return Ok(());
        }
        self.put(path, Thing::Nothing, &done);
        done
    }

    fn rename(&mut self, machine: usize, from: &str, to: &str) -> Result<(), Error> {
        let done = fs::rename(self.at(machine, from), self.at(machine, to));
        if self.was_absent(from, &done) || from == to {
            return Ok(());
        }
        let mut moved = self.may[from].clone();
        moved.remove(&Thing::Nothing);
        let is_unsure = self.unsure.contains(from);
        self.put(from, Thing::Nothing, &done);
        if done.is_ok() {
            self.may.insert(to.to_owned(), moved);
            self.unsure.remove(to);
        } else {
            self.may.get_mut(to).expect("known").extend(moved);
        }
        if is_unsure || done.is_err() {
            self.unsure.insert(to.to_owned());
        }
        done
    }

    fn was_absent(&self, path: &str, done: &Result<(), Error>) -> bool {
        let is_said = done.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
        assert!(!is_said || self.may[path].contains(&Thing::Nothing), "{path} is not there\n{}", self.notes.told());
        is_said
    }

    /// Whoever has changed a file sees it as it is; others may, while there is trouble, see what was.
    fn read(&self, machine: usize, path: &str, is_trouble: bool, is_own: bool) {
        // What others have done comes in a moment.
        let until = Instant::now() + if is_trouble { Duration::ZERO } else { HEARD_MAX };
        let may = &self.may[path];
        loop {
            let seen = match self.look(machine, path) {
                Err(error) if is_trouble && is_of_trouble(&error) => return,
                seen => seen.unwrap_or_else(|error| panic!("{path} on {machine}: {error:?}\n{}", self.notes.told())),
            };
            let was_there = is_trouble && !is_own && !matches!(seen, Thing::Wrong(_));
            if self.unsure.contains(path) || may.contains(&seen) || was_there {
                return;
            }
            assert!(Instant::now() < until, "{path} on {machine} is {seen:?}, not {may:?}\n{}", self.notes.told());
        }
    }

    fn look(&self, machine: usize, path: &str) -> Result<Thing, Error> {
        let at = self.at(machine, path);
        match fs::read(&at) {
            Ok(bytes) if bytes.is_empty() => Ok(Thing::Empty),
            Ok(bytes) => Ok(self.versions.which(&bytes).map_or_else(|| Thing::Wrong(runs(&bytes)), Thing::Version)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Thing::Nothing),
            Err(error) => Err(error),
        }
    }

    /// Waits until the server serves, for one that has crashed looks its volumes over first, and until everything is there:
    /// nobody else has changed it.
    fn settle(&mut self) {
        for (machine, mount) in self.mounts.into_iter().enumerate() {
            let (begun, mut was_healed) = (Instant::now(), false);
            let until = begun + SETTLED_MAX;
            let trial = self.at(machine, "trial");
            while let Err(error) = fs::create_dir(&trial).and_then(|()| fs::remove_dir(&trial)) {
                assert!(Instant::now() < until, "on {machine}: {error:?}\n{}", self.notes.told());
                let _ = fs::remove_dir(&trial);
                if !was_healed && begun.elapsed() > LOOKED_OVER_MAX {
                    self.heal();
                    was_healed = true;
                }
            }
            loop {
                let told = mount.json("unsent", [mount.dir()]);
                let rows = told["unsent"].as_array().expect("a list");
                let Some(row) = rows.first() else { break };
                let how = match row["why"].as_str() {
                    // It was replaced in the end by a change that was not heard of.
                    Some(why) if why.contains("has it no more") => "unsent --discard",
                    _ => "unsent --send",
                };
                let sent = mount.verb(how, [row["path"].as_str().expect("a path")]);
                assert!(Instant::now() < until, "{told}\n{sent:?}\n{}", self.notes.told());
                if sent.code != Some(0) {
                    self.notes.add(&format!("unsent on {machine} was {row}: {sent:?}"));
                }
            }
        }
        self.unsure.clear();
    }

    /// A volume that comes back, in use, to a server that it was moved from is "salvaged too many times; forced offline"
    /// there (observed with OpenAFS 1.8.9, also when nobody asks for it for a while): what helps is another server process.
    fn heal(&self) {
        for server in SERVERS {
            let examined = self.cell.on("fs1", ["vos", "examine", "scratch", "-localauth"]).run();
            self.notes.add(&format!("{server} is started anew: {}", examined.out.lines().next().unwrap_or_default()));
            self.cell.kill(server, "dafileserver");
            self.cell.restart(server, "dafileserver");
        }
    }

    /// What both show is what may be there, if not at once then when what was not told has been heard of.
    fn check(&mut self) {
        let paths: Vec<String> = self.may.keys().cloned().collect();
        let until = Instant::now() + HEARD_MAX;
        for path in paths {
            let may = &self.may[&path];
            let seen = loop {
                let seen = [self.look(0, &path), self.look(1, &path)];
                if let [Ok(here), Ok(there)] = &seen
                    && here == there
                    && may.contains(here)
                {
                    break here.clone();
                }
                let why = || self.mounts.map(|mount| mount.verb("why", [mount.at(&self.folder).join(&path)]).out);
                assert!(Instant::now() < until, "{path}: {seen:?}, not {may:?}\n{:#?}\n{}", why(), self.notes.told());
            };
            self.may.insert(path, BTreeSet::from([seen]));
        }
        for machine in 0..2 {
            for dir in ["", "d"] {
                let listed = fs::read_dir(self.at(machine, dir)).expect("listed");
                let listed: BTreeSet<String> = listed
                    .map(|entry| entry.expect("a name").path())
                    .filter(|path| !path.is_dir())
                    .map(|path| path.strip_prefix(self.at(machine, "")).expect("below").display().to_string())
                    .collect();
                let are = self.may.iter().filter(|(path, may)| {
                    path.rsplit_once('/').map_or("", |(dir, _)| dir) == dir && !may.contains(&Thing::Nothing)
                });
                let are: BTreeSet<String> = are.map(|(path, _)| path.clone()).collect();
                assert_eq!(listed, are, "on {machine}\n{}", self.notes.told());
            }
        }
    }
}

fn write_synced(path: &std::path::Path, content: &[u8]) -> Result<(), Error> {
    let mut file = File::create(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Piece by piece, in any order, and each is sent or not: what counts is the last word.
fn write_in_parts(path: &std::path::Path, content: &[u8], chance: &mut Chance) -> Result<(), Error> {
    let file = File::create(path)?;
    let mut parts: Vec<(usize, &[u8])> = content.chunks(content.len().div_ceil(4)).enumerate().collect();
    while !parts.is_empty() {
        let (nth, part) = parts.swap_remove(chance.below(parts.len() as u64) as usize);
        file.write_all_at(part, (nth * content.len().div_ceil(4)) as u64)?;
        let _ = file.sync_all();
    }
    file.sync_all()
}

/// Pulls cables and ends daemons, and servers if it may, until it is told that this is over; all is well then. Tells
/// what it does.
pub fn trouble(
    chance: &mut Chance,
    cell: &AfsCell,
    mounts: [&Mount; 2],
    of_servers: bool,
    over: &Receiver<()>,
    mut tell: impl FnMut(&str),
) {
    let lasts = |most: u64| over.recv_timeout(Duration::from_millis(most)).is_err_and(is_late);
    while lasts(*chance.pick(&[0, 50, 400, 1500])) {
        let long = *chance.pick(&[20, 200, 1000, 5000]);
        let (node, server) = (*chance.pick(&["c1", "c2"]), *chance.pick(SERVERS));
        match chance.below(if of_servers { 8 } else { 6 }) {
            0..3 => {
                tell(&format!("{node} is cut off"));
                cell.connect(node, false);
                lasts(long);
                cell.connect(node, true);
                tell(&format!("{node} is connected"));
            }
            3 => {
                tell(&format!("the daemon of {node} is killed"));
                mounts[usize::from(node == "c2")].kill_daemon();
                tell(&format!("{node} has another daemon"));
            }
            4 => {
                tell(&format!("{server} stands still"));
                cell.freeze(server, "dafileserver", true);
                lasts(long);
                cell.freeze(server, "dafileserver", false);
                tell(&format!("{server} goes on"));
            }
            5 => {}
            6 => {
                tell(&format!("{server} is killed"));
                cell.kill(server, "dafileserver");
                lasts(long);
                cell.restart(server, "dafileserver");
                tell(&format!("{server} is started"));
            }
            _ => {
                tell("the volume is to move");
                tell(&moved(cell));
            }
        }
    }
}

/// Moves the volume to the other server; where it is, may not be known. It stays if its server has not looked it over.
fn moved(cell: &AfsCell) -> String {
    let mut said = String::new();
    for (from, to) in [("fs1", "fs2"), ("fs2", "fs1")] {
        let outcome = cell.on("fs1", ["vos", "move", "scratch", from, "a", to, "a", "-localauth"]).run();
        if outcome.code == Some(0) {
            return format!("it is on {to}");
        }
        said += &outcome.err;
    }
    said
}

fn is_late(error: std::sync::mpsc::RecvTimeoutError) -> bool {
    error == std::sync::mpsc::RecvTimeoutError::Timeout
}

/// Whether something failed because a server was not reached, or has not looked its volumes over.
pub fn is_of_trouble(error: &Error) -> bool {
    let errnos = [Errno::TIMEDOUT, Errno::HOSTUNREACH, Errno::AGAIN];
    error.kind() == OF_TROUBLE || errnos.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Two machines that hear of what they were not told within two seconds.
pub fn mounted_twice(cell: &AfsCell, chance: &mut Chance) -> Option<[Mount; 2]> {
    let options: &[&str] = if chance.below(2) == 0 { &["deadline=2s"] } else { &[] };
    let mounted = |node| mounted_with(cell, node, ("afs", "probe = \"1s\"\n"), options);
    Some([mounted("c1")?, mounted("c2")?])
}

/// Goal: whatever happens to a network, to servers and to daemons, what was said to be done is done, and all see the same.
#[test]
fn of_a_volume_in_trouble() {
    let range = seeds(0);
    if range.is_empty() {
        return;
    }
    let Some(cell) = AfsCell::own() else { return };
    for seed in range {
        let mut chance = Chance::of(seed);
        let Some([here, there]) = mounted_twice(&cell, &mut chance) else { return };
        let folder = format!("weft.test/scratch/trouble-{seed}");
        let top = here.at(&folder);
        fs::create_dir_all(top.join("d")).expect("made");
        let (mounts, versions) = ([&here, &there], Versions::default());
        let notes = &Notes::of(seed);
        let (cell, may, unsure) = (&cell, BTreeMap::new(), BTreeSet::new());
        History { seed, notes, chance, cell, mounts, folder, versions, may, unsure }.run();
        println!("seed {seed}: {:?}", notes.took());
        fs::remove_dir_all(top).expect("removed");
    }
}

/// The kind of an error that only a program's words tell of.
const OF_TROUBLE: std::io::ErrorKind = std::io::ErrorKind::NetworkDown;
/// Turns of one history, and what is done in each.
const TURNS: usize = 10;
const DEEDS: usize = 12;
/// How long it takes until all is well: servers that have crashed look their volumes over.
const SETTLED_MAX: Duration = Duration::from_secs(90);
/// How long a server takes to look over what it was serving when it crashed.
const LOOKED_OVER_MAX: Duration = Duration::from_secs(30);
const SERVERS: &[&str] = &["fs1", "fs2"];
/// How long it takes until a machine has heard of what another one has done.
const HEARD_MAX: Duration = Duration::from_secs(10);
/// Few, so that they meet.
const PATHS: &[&str] = &["a", "b", "c", "d/a", "d/b"];
