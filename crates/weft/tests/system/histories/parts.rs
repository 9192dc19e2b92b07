//! Histories of files that are read in parts and kept open, while their sources change them, break off and answer as they like.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock, RwLockWriteGuard};

use rustix::io::Errno;

use super::answers::Served;
use super::{Stop, seeds};
use crate::support::{Chance, Liar, Mount, Setup, answer};

/// What those who read are told, and tell.
#[derive(Default)]
struct Beside {
    done: AtomicBool,
    /// Held shared by those who read: whoever has it alone is in nobody's way.
    busy: RwLock<()>,
    /// They close what they have open, for the mount is taken away.
    leave: AtomicBool,
    open: AtomicUsize,
    /// How often the site was taken off the network, where what is held serves, and put back: an odd number while it is off.
    moves: AtomicUsize,
}

/// Somebody who reads.
struct Reader<'a> {
    beside: &'a Beside,
    chance: Chance,
    site: PathBuf,
    files: &'a [Served],
    /// The newest version of each that somebody has read.
    read: &'a [AtomicUsize],
    /// Whether an open gets what the source has, or newer.
    asks: bool,
    held: Vec<Held>,
    /// How many of these the others know of.
    counted: usize,
}

/// A file that is open.
struct Held {
    nth: usize,
    file: File,
    /// Its version is none of before.
    oldest: usize,
    /// Which one it is, once that is known.
    version: Option<usize>,
}

impl Beside {
    /// Nobody reads, or has a file open, while this is held.
    fn nobody(&self) -> RwLockWriteGuard<'_, ()> {
        self.leave.store(true, Ordering::SeqCst);
        loop {
            let nobody = self.busy.write().expect("no panic");
            if self.open.load(Ordering::SeqCst) == 0 {
                self.leave.store(false, Ordering::SeqCst);
                return nobody;
            }
        }
    }
}

impl Reader<'_> {
    fn run(mut self) {
        let beside = self.beside;
        while !beside.done.load(Ordering::Relaxed) {
            let _busy = beside.busy.read();
            match beside.leave.load(Ordering::SeqCst) {
                true => self.held.clear(),
                false => self.go_on(),
            }
            beside.open.fetch_add(self.held.len(), Ordering::SeqCst);
            beside.open.fetch_sub(std::mem::replace(&mut self.counted, self.held.len()), Ordering::SeqCst);
        }
    }

    fn go_on(&mut self) {
        match self.chance.below(10) {
            0..3 => self.open(),
            3..9 if !self.held.is_empty() => {
                let nth = self.chance.below(self.held.len() as u64) as usize;
                self.read(nth);
            }
            _ if !self.held.is_empty() => drop(self.held.remove(0)),
            _ => self.open(),
        }
    }

    fn open(&mut self) {
        let nth = self.chance.below(self.files.len() as u64) as usize;
        let read = self.read[nth].load(Ordering::SeqCst);
        let newest = self.files[nth].newest();
        let moves = || self.beside.moves.load(Ordering::SeqCst);
        let before = moves();
        match File::open(self.site.join(nth.to_string())) {
            Ok(file) => {
                let asked = self.asks && before % 2 == 0 && moves() == before;
                let oldest = if asked { newest.max(read) } else { read };
                self.held.push(Held { nth, file, oldest, version: None });
            }
            Err(error) => expected(&error),
        }
        if self.held.len() > HELD_MAX {
            self.held.remove(0);
        }
    }

    fn read(&mut self, nth: usize) {
        let held = &mut self.held[nth];
        let source = &self.files[held.nth];
        let length = source.length(source.newest()) as u64;
        let offset = *self.chance.pick(&[0, 0, length / 2, length.saturating_sub(3000), length]) as usize;
        let most = *self.chance.pick(&[1, 100, 4096, 70_000, 1 << 20]);
        let mut bytes = vec![0; most];
        let count = match held.file.read_at(&mut bytes, offset as u64) {
            Ok(count) => count,
            Err(error) => return expected(&error),
        };
        bytes.truncate(count);
        let told = || format!("{source:?}\n{count} bytes of {most} at {offset}, opened as {}", held.oldest);
        let which = source.which(offset, &bytes);
        assert!(count == 0 || !which.is_empty(), "of no version: {}\n{:?}", told(), &bytes[..count.min(64)]);
        match held.version {
            Some(version) => {
                let there = source.length(version).saturating_sub(offset).min(most);
                // What comes after did not come at once, and does now or not: that is no end.
                let is_end = || matches!(held.file.read_at(&mut [0], (offset + count) as u64), Ok(0));
                assert!(count == there || (count < there && !is_end()), "{version}: {}", told());
                assert!(count == 0 || which.contains(&version), "{version}, then one of {which:?}: {}", told());
            }
            None if which.len() == 1 => {
                assert!(which[0] >= held.oldest, "{}, an old one: {}", which[0], told());
                held.version = Some(which[0]);
                self.read[held.nth].fetch_max(which[0], Ordering::SeqCst);
            }
            None => {}
        }
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        self.beside.open.fetch_sub(self.counted, Ordering::SeqCst);
    }
}

/// What may happen to somebody who reads in the middle of all that.
fn expected(error: &std::io::Error) {
    let expected = [Errno::IO, Errno::STALE, Errno::TXTBSY, Errno::NETDOWN, Errno::HOSTUNREACH];
    assert!(expected.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error())), "{error:?}");
}

/// What happens to the site and to the mount.
fn trouble(chance: &mut Chance, mount: &Mount, files: &[Served], site: &str, beside: &Beside) {
    let nth = chance.below(files.len() as u64) as usize;
    let verb = |words: &str| {
        let done = mount.verb(words, [mount.at(site).join(nth.to_string())]);
        // It was never looked at, or its body broke off just now.
        let is_well = matches!(done.code, Some(0 | 4)) || done.err.contains("broke off");
        assert!(is_well, "{words}: {done:?}");
    };
    match chance.below(30) {
        0..16 => files[nth].change(chance),
        16..20 => files[nth].break_off(),
        20..23 => verb("reload"),
        23..26 => verb("rm -w"),
        26 => mount.kill_daemon(),
        27 => {
            let _nobody = beside.nobody();
            mount.remount();
        }
        28 => {
            beside.moves.fetch_add(1, Ordering::SeqCst);
            verb("offline");
            verb("online");
            beside.moves.fetch_add(1, Ordering::SeqCst);
        }
        _ => {
            // With nobody in its way it is what the source has.
            let _nobody = beside.busy.write();
            files[nth].change(chance);
            verb("reload");
            let look = || std::fs::read(mount.at(site).join(nth.to_string()));
            // The one body that breaks off may be the first.
            let newest = files[nth].newest();
            let bytes = look().or_else(|_| look()).unwrap_or_else(|error| panic!("{error}: {:?}", files[nth]));
            let right = bytes == files[nth].bytes(newest, 0, usize::MAX);
            assert!(right, "{} bytes, not {newest} of {:?}", bytes.len(), files[nth]);
        }
    }
}

/// Goal: whatever a source tells of versions and lengths, and whatever happens to it and to the mount, who has a file open reads
/// one version of it, whole, and none that is older than what was asked for or read before.
#[test]
fn of_files_that_are_read_in_parts() {
    for seed in seeds(3) {
        let mut chance = Chance::of(seed);
        let files: Arc<Vec<Served>> = Arc::new((0..5).map(|_| Served::by(&mut chance)).collect());
        let of_liar = files.clone();
        let liar = Liar::talking(move |asked, stream| match asked.path[1..].parse::<usize>().ok() {
            Some(nth) if nth < of_liar.len() => of_liar[nth].answer(asked, stream),
            _ => std::io::Write::write_all(stream, &answer("404 Not Found", &[], "")).unwrap_or_default(),
        });
        let asks = chance.below(2) == 0;
        let setup = if asks { Setup::default().option("freshness=always") } else { Setup::default() };
        let bounds = if chance.below(3) == 0 { "[cache]\nclass = \"scratch\"\nscratch_max = \"4M\"\n" } else { "" };
        let Some(mount) = Mount::with(setup.config(bounds)) else { return };
        let read: Vec<AtomicUsize> = files.iter().map(|_| AtomicUsize::new(0)).collect();
        let beside = Beside::default();
        let (beside, files, read) = (&beside, &files, &read);
        std::thread::scope(|scope| {
            let _stop = Stop(&beside.done);
            for nth in 0..3 {
                let (site, chance) = (mount.at(liar.site()), Chance::of(!seed - nth));
                let reader = Reader { beside, chance, site, files, read, asks, held: Vec::new(), counted: 0 };
                scope.spawn(move || reader.run());
            }
            for _ in 0..TURNS {
                trouble(&mut chance, &mount, files, &liar.site(), beside);
            }
        });
    }
}

/// Files that a reader has open at most.
const HELD_MAX: usize = 5;
/// Turns of one history.
const TURNS: usize = 150;
