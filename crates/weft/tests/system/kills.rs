//! Processes that read while one daemon after the other is killed.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::life::Site;
use crate::support::{Asked, Chance, Exit, Liar, Mount, Setup, answer, noise};

/// Goal: no reader sees an error or a wrong byte while daemons are killed. Method: eight processes make 10,000 reads of
/// known files (small and large ones, whole and by pieces, through handles that stay open over kills, files that the
/// kernel reads by itself, lists of names, bodies on their way from a slow host), while the daemon is killed twenty times,
/// each time when a number of reads is done that chance gives.
#[test]
fn eight_processes_do_not_notice_twenty_kills() {
    let Some((site, mount)) = Site::new().zip(Mount::with(Setup::default().option("deadline=60s"))) else { return };
    let gate = Arc::new(Gate::default());
    let slow = slow_server(gate.clone());
    let (told, progress) = mpsc::channel();
    let readers: Vec<Reader> = (0..READERS).map(|nth| Reader::start(nth, &site, &slow, &mount, told.clone())).collect();
    drop(told);
    let mut chance = Chance::of(SEED);
    let mut moments: Vec<u64> = (0..KILLS).map(|_| 50 + chance.below(READS - 150)).collect();
    moments.sort_unstable();
    println!("kills after {moments:?} reads");
    let (mut reads, mut ends) = (0, 0);
    let mut restarts = Vec::new();
    for moment in moments.into_iter().chain([READS]) {
        while reads < moment {
            match progress.recv_timeout(PATIENCE).expect("the readers go on") {
                Progress::Read => reads += 1,
                Progress::End => ends += 1,
            }
            gate.tell(|state| (state.reads, state.ends) = (reads, ends));
        }
        if reads < READS {
            // What the kernel reads by itself is not dropped: while it is open, what replaces it cannot be opened.
            let dropped = &site.files()[chance.below(SMALL_FILES) as usize].0;
            let dropped = mount.verb("rm -w", [mount.at(site.server().site()).join(dropped)]);
            assert!(matches!(dropped.code, Some(0 | 4)), "{dropped:?}");
            let begun = Instant::now();
            mount.kill_daemon();
            restarts.push(begun.elapsed());
            gate.tell(|state| state.kills += 1);
        }
    }
    for reader in readers {
        reader.end();
    }
    assert_eq!((reads, restarts.len() as u64), (READS, KILLS));
    println!(
        "a mount answers again after {:?} at most, {:?} together",
        restarts.iter().max(),
        restarts.iter().sum::<Duration>()
    );
    mount.umount();
}

/// What a slow answer waits for.
#[derive(Default)]
struct Gate {
    state: Mutex<Seen>,
    changed: Condvar,
}

/// What has happened so far.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    reads: u64,
    ends: u64,
    kills: u64,
}

impl Gate {
    fn tell(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.state.lock().expect("nobody panics in here"));
        self.changed.notify_all();
    }

    /// Waits for the next kill, or until so much was read by others, or somebody has no more to read.
    fn wait(&self) {
        let state = self.state.lock().expect("nobody panics in here");
        let begun = *state;
        let waits = |now: &mut Seen| now.kills == begun.kills && now.reads < begun.reads + SLOW_READS && now.ends == 0;
        drop(self.changed.wait_while(state, waits).expect("nobody panics in here"));
    }
}

/// A host that sends the second half of each file late, when it is asked for it for the first time.
fn slow_server(gate: Arc<Gate>) -> Liar {
    let asked_before = Mutex::new(HashMap::new());
    Liar::talking(move |asked: &Asked, stream: &mut TcpStream| {
        let Some(nth) = asked.path.strip_prefix("/slow-").and_then(|name| name.strip_suffix(".bin")?.parse().ok())
        else {
            let _ = stream.write_all(&answer("200 OK", &["content-type: text/html"], ""));
            return;
        };
        let body = slow_body(nth);
        let times = *asked_before.lock().expect("no panic").entry(nth).and_modify(|times| *times += 1).or_insert(1);
        let range =
            asked.header("range").and_then(|range| range.strip_prefix("bytes=")?.split('-').next()?.parse().ok());
        let tag = format!("etag: \"{nth}\"");
        let sent = match range {
            Some(start) if start < body.len() => {
                let range = format!("content-range: bytes {start}-{}/{}", body.len() - 1, body.len());
                answer("206 Partial Content", &[&tag, &range], &body[start..])
            }
            _ => answer("200 OK", &[&tag, "accept-ranges: bytes", "cache-control: max-age=9999"], &body),
        };
        // Whoever asked may be dead by then.
        let half = sent.len() / 2;
        let _ = stream.write_all(&sent[..half]);
        if times == 1 {
            gate.wait();
        }
        let _ = stream.write_all(&sent[half..]);
    })
}

fn slow_body(nth: usize) -> Vec<u8> {
    noise(SLOW_BYTES + 8 * nth).split_off(8 * nth)
}

/// What a reader says.
enum Progress {
    Read,
    End,
}

/// A process that reads.
struct Reader {
    child: Child,
    listener: Option<std::thread::JoinHandle<()>>,
}

impl Reader {
    /// Starts this program again for [`a_reader`] alone.
    fn start(nth: u64, site: &Site, slow: &Liar, mount: &Mount, told: mpsc::Sender<Progress>) -> Reader {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "kills::a_reader", "--ignored", "--nocapture", "--test-threads=1"]);
        command.env("WEFT_READER", nth.to_string()).env("WEFT_READER_DISK", site.server().root());
        command.env("WEFT_READER_SITE", mount.at(site.server().site()));
        command.env("WEFT_READER_SLOW", mount.at(slow.site()));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it runs");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let listener = std::thread::spawn(move || {
            let said = out.lines().map_while(Result::ok).filter(|line| line.ends_with(READ));
            said.for_each(|_| drop(told.send(Progress::Read)));
            let _ = told.send(Progress::End);
        });
        Reader { child, listener: Some(listener) }
    }

    #[track_caller]
    fn end(mut self) {
        assert!(self.child.wait().expect("a child of ours").success(), "a reader saw an error");
        self.listener.take().map(std::thread::JoinHandle::join).expect("once").expect("no panic");
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // Ends it when the test has failed; otherwise it has ended. What waits for a mount that hangs does not end.
        let _ = self.child.kill();
        if Exit::of(Pid::from_child(&self.child)).wait() {
            let _ = self.child.wait();
        }
    }
}

/// One of the processes. It says a word for each read.
#[test]
#[ignore = "is started by another test, as a process of its own"]
fn a_reader() {
    let variable = |name: &str| std::env::var_os(name).unwrap_or_else(|| panic!("{name} is not set"));
    let number: u64 = variable("WEFT_READER").to_str().and_then(|text| text.parse().ok()).expect("a number");
    let (disk, top) = (PathBuf::from(variable("WEFT_READER_DISK")), PathBuf::from(variable("WEFT_READER_SITE")));
    let slow = PathBuf::from(variable("WEFT_READER_SLOW"));
    let files: Vec<(PathBuf, Vec<u8>)> =
        Site::paths().map(|path| (top.join(&path), std::fs::read(disk.join(&path)).expect("there is one"))).collect();
    let mut chance = Chance::of(SEED + 1 + number);
    let mut kept: Vec<(usize, File)> = Vec::new();
    for nth in 0..READS / READERS {
        let which = chance.below(files.len() as u64) as usize;
        let (path, bytes) = &files[which];
        match chance.below(100) {
            0..3 if number < SLOW_READERS => {
                let nth = (number * READS + nth) as usize;
                read_whole(&slow.join(format!("slow-{nth}.bin")), &slow_body(nth));
            }
            0..6 => Site::check_names(&top),
            6..56 => read_whole(path, bytes),
            56..60 => read_whole(&files[files.len() - 1].0, &files[files.len() - 1].1),
            60..70 => {
                kept.truncate(KEPT - 1);
                kept.insert(0, (which, opened(path)));
            }
            _ => match kept.get(chance.below(KEPT as u64) as usize) {
                Some((which, file)) => read_pieces(file, &files[*which], &mut chance),
                None => read_pieces(&opened(path), &files[which], &mut chance),
            },
        }
        println!("{READ}");
    }
}

fn opened(path: &Path) -> File {
    File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn read_whole(path: &Path, bytes: &[u8]) {
    let read = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(read == bytes, "{}: {} of {} bytes", path.display(), read.len(), bytes.len());
}

/// Reads some pieces, past what the kernel holds of the file as far as it lets its pages go.
fn read_pieces(file: &File, (path, bytes): &(PathBuf, Vec<u8>), chance: &mut Chance) {
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
    for _ in 0..4 {
        let at = chance.below(bytes.len() as u64) as usize;
        let mut piece = vec![0; (bytes.len() - at).min(1 + chance.below(100_000) as usize)];
        let read = file.read_exact_at(&mut piece, at as u64);
        read.unwrap_or_else(|error| panic!("{} at {at}: {error}", path.display()));
        assert!(piece == bytes[at..at + piece.len()], "{} at {at}: {} bytes", path.display(), piece.len());
    }
    assert_eq!(file.metadata().expect("told").len(), bytes.len() as u64);
}

const SEED: u64 = 4;
const READERS: u64 = 8;
const READS: u64 = 10_000;
const KILLS: u64 = 20;
/// Readers that read from the slow host.
const SLOW_READERS: u64 = 2;
const SLOW_BYTES: usize = 150_000;
/// So many reads by others are as good as a kill for who waits for the slow host.
const SLOW_READS: u64 = 300;
/// Files below the length from which the kernel reads them by itself.
const SMALL_FILES: u64 = 36;
/// Files that a reader keeps open.
const KEPT: usize = 6;
/// What a reader says after each read.
const READ: &str = "read.";
/// How long no reader may say anything.
const PATIENCE: Duration = Duration::from_secs(60);
