//! Histories of a web site that changes while it is read, under daemons that end and networks that go.

use std::collections::BTreeMap;
use std::fs::{self, FileTimes};
use std::io::Result;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use rustix::io::Errno;

use super::Stop;
use super::seeds;
use super::versions::{Versions, runs};
use crate::support::{Chance, Mount, Server, Setup};

/// A site, and a mount of it.
struct History<'a> {
    seed: u64,
    chance: Chance,
    server: Server,
    mount: &'a Mount,
    /// Whether the mount asks each time; otherwise it is told to before its user looks.
    asks: bool,
    /// Held shared by those who read beside: a mount in use is not taken away.
    busy: &'a RwLock<()>,
    versions: &'a Versions,
    lately: Vec<String>,
}

/// What a tree shows: of a file its time in seconds, and its content.
type Shown = BTreeMap<String, Option<(i64, Vec<u8>)>>;

impl History<'_> {
    fn run(mut self) {
        let (done, top) = (AtomicBool::new(false), self.mount.at(self.server.site()));
        let (versions, busy) = (self.versions, self.busy);
        std::thread::scope(|scope| {
            let _stop = Stop(&done);
            for nth in 0..2 {
                let (mut chance, done, top) = (Chance::of(!self.seed - nth), &done, &top);
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        let _busy = busy.read();
                        read_somewhere(top, &mut chance, versions);
                    }
                });
            }
            for _ in 0..TURNS {
                for _ in 0..=self.chance.below(4) {
                    self.change();
                }
                self.trouble();
                self.check();
            }
        });
    }

    /// Something is different at the source.
    fn change(&mut self) {
        let path = *self.chance.pick(PATHS);
        let (at, other) = (self.server.root().join(path), self.server.root().join(*self.chance.pick(PATHS)));
        let what = match self.chance.below(20) {
            0..9 => ("written", self.write(&at)),
            9..11 => ("removed", fs::remove_file(&at)),
            11..13 => ("removed with all below", fs::remove_dir_all(&at)),
            13..17 => ("made a directory", fs::create_dir(&at)),
            17..19 => ("renamed", fs::rename(&at, &other)),
            _ => ("replaced by a directory", fs::remove_file(&at).and_then(|()| fs::create_dir(&at))),
        };
        if what.1.is_ok() {
            self.lately.push(format!("{path} {} ({})", what.0, other.display()));
        }
    }

    /// Writes the next version of a file and puts it in place. No two versions have the same time, and each has a whole minute, for some lists tell no more.
    fn write(&mut self, at: &Path) -> Result<()> {
        let most = *self.chance.pick(&[1, 100, 5000, 80_000, 1_000_000]);
        let number = self.versions.add(self.chance.below(most) as usize);
        let new = self.server.root().join(".new");
        fs::write(&new, self.versions.content(number))?;
        let modified = UNIX_EPOCH + Duration::from_secs(1_600_000_000 + 80 + 60 * number as u64);
        fs::File::open(&new)?.set_times(FileTimes::new().set_modified(modified))?;
        fs::rename(&new, at).inspect_err(|_| fs::remove_file(&new).expect("removed"))
    }

    /// What happens to a mount and to its network.
    fn trouble(&mut self) {
        let site = self.mount.at(self.server.site());
        let verb = |words: &str| {
            let done = self.mount.verb(words, [&site]);
            // Some of it could not be done: it has gone by now.
            assert!(matches!(done.code, Some(0 | 4)), "{words}: {done:?}");
        };
        let what = self.chance.below(30);
        match what {
            0 => self.mount.kill_daemon(),
            1 => {
                let _nobody = self.busy.write();
                self.mount.remount();
            }
            2 => verb("reload -r"),
            3 => verb("rm -w -r"),
            4 => verb("warm --depth 3"),
            5 => {
                verb("offline");
                self.read_all();
                verb("online");
            }
            6 => {
                self.server.stop();
                self.read_all();
                // An attempt of before must not fail after that.
                let _nobody = self.busy.write();
                self.server.restart();
                verb("online");
            }
            _ => return,
        }
        self.lately.push(format!("trouble {what}"));
    }

    /// Whatever is shown, it is no wrong byte.
    fn read_all(&self) {
        for path in PATHS {
            let _ = read_whole(&self.mount.at(self.server.site()).join(path), self.versions);
        }
    }

    fn check(&self) {
        let site = self.mount.at(self.server.site());
        if !self.asks {
            let reloaded = self.mount.verb("reload -r", [&site]);
            assert!(matches!(reloaded.code, Some(0 | 4)), "{reloaded:?}\n{}", self.told());
        }
        let source = shown(&self.server.root()).expect("nobody else is there");
        let here = shown(&site).unwrap_or_else(|error| panic!("{error}\n{}", self.told()));
        if source == here {
            return;
        }
        let all: std::collections::BTreeSet<_> = source.keys().chain(here.keys()).collect();
        let short = |thing: Option<&Option<(i64, Vec<u8>)>>| match thing {
            None => "absent".to_owned(),
            Some(None) => "a directory".to_owned(),
            Some(Some((time, bytes))) => {
                format!("{time}, {} bytes, {}", bytes.len(), String::from_utf8_lossy(&bytes[..bytes.len().min(12)]))
            }
        };
        let Some(path) = all.into_iter().find(|path| source.get(*path) != here.get(*path)) else { return };
        let why = self.mount.verb("why", [site.join(path)]).out;
        let again = shown(&site).map(|again| short(again.get(path)));
        let (is, shown) = (short(source.get(path)), short(here.get(path)));
        panic!("{path}: {is}\nshown as {shown}, later {again:?}\n{why}\n{}", self.told());
    }

    fn told(&self) -> String {
        let lately = self.lately.iter().rev().take(TOLD).rev().cloned().collect::<Vec<_>>();
        let hits = self.server.logged();
        let hits: Vec<_> = hits
            .iter()
            .rev()
            .take(TOLD)
            .rev()
            .map(|hit| format!("{} {} {}", hit.method, hit.target, hit.status))
            .collect();
        format!("seed {}, lately:\n{}\nand asked for:\n{}", self.seed, lately.join("\n"), hits.join("\n"))
    }
}

/// Reads a file to its end: what is read is a version that there was.
fn read_whole(path: &Path, versions: &Versions) -> Result<Vec<u8>> {
    let bytes = fs::read(path)?;
    assert!(versions.has(&bytes), "{}: {} bytes are of no version: {:?}", path.display(), bytes.len(), runs(&bytes));
    Ok(bytes)
}

/// Reads something, if it is there.
fn read_somewhere(top: &Path, chance: &mut Chance, versions: &Versions) {
    let path = top.join(chance.pick(PATHS));
    let looked = match chance.below(4) {
        0 => fs::metadata(path).map(drop),
        1 => fs::read_dir(path).map(|names| names.for_each(drop)),
        _ => read_whole(&path, versions).map(drop),
    };
    let expected = [
        Errno::NOENT,
        Errno::NOTDIR,
        Errno::ISDIR,
        Errno::STALE,
        Errno::IO,
        Errno::INVAL,
        Errno::NETDOWN,
        Errno::HOSTUNREACH,
    ];
    if let Err(error) = looked {
        assert!(expected.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error())), "{error:?}");
    }
}

/// All there is below a folder.
fn shown(top: &Path) -> Result<Shown> {
    let mut shown = Shown::new();
    let mut dirs = vec![PathBuf::new()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(top.join(&dir))? {
            let entry = entry?;
            let path = dir.join(entry.file_name());
            let told = |error: std::io::Error| std::io::Error::other(format!("{}: {error}", entry.path().display()));
            let facts = fs::metadata(entry.path()).map_err(told)?;
            assert_eq!(facts.is_dir(), entry.file_type()?.is_dir(), "{}", path.display());
            let name = path.display().to_string();
            if facts.is_dir() {
                dirs.push(path);
                shown.insert(name, None);
            } else {
                let bytes = fs::read(entry.path()).map_err(told)?;
                if facts.len() != bytes.len() as u64 {
                    let start = String::from_utf8_lossy(&bytes[..bytes.len().min(8)]).into_owned();
                    let (path, length) = (path.display(), facts.len());
                    let what = format!("{path} is {length} long, {} bytes are read: {start}", bytes.len());
                    return Err(std::io::Error::other(what));
                }
                shown.insert(name, Some((facts.mtime(), bytes)));
            }
        }
    }
    Ok(shown)
}

/// Goal: whatever a site does, nobody reads what it never served, and who asks sees it as it is.
#[test]
fn of_a_web_site() {
    for seed in seeds(1) {
        let mut chance = Chance::of(seed);
        let Some(server) = Server::nginx(LISTINGS[chance.below(3) as usize]) else { return };
        let asks = chance.below(2) == 0;
        let setup = if asks { Setup::default().option("freshness=always") } else { Setup::default() };
        let Some(mount) = Mount::with(setup) else { return };
        let (versions, busy) = (Versions::default(), RwLock::default());
        let (mount, versions, busy) = (&mount, &versions, &busy);
        History { seed, chance, server, mount, asks, busy, versions, lately: Vec::new() }.run();
    }
}

/// How nginx lists.
const LISTINGS: [&str; 3] = ["autoindex_format json;", "autoindex_format html;", "autoindex_exact_size off;"];
/// Turns of one history.
const TURNS: usize = 60;
/// Changes that are told when something is wrong.
const TOLD: usize = 30;
/// Few, so that they meet.
const PATHS: &[&str] = &["a", "b.txt", "c.bin", "d", "e", "d/a", "d/b.txt", "d/d", "e/a", "d/d/a", "d/d/b.txt", "e/d"];
