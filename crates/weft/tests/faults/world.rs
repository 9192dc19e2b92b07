//! The servers, the mount, and every row's way through the phases.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::row::{Look, REPEAT_BYTES_MAX, Reply, Row, See, Seen, Then, truth};
use crate::secure::{Secure, Speech, Telling};
use crate::support::{Asked, Certificate, Liar, Mount, Setup, answer};

/// What came of one row.
pub struct Told {
    /// The row.
    pub row: Arc<Row>,
    /// What was seen in each phase, in their order.
    pub seen: [Seen; PHASES.len()],
    /// Requests of the first two phases.
    pub requests: usize,
    /// What else went wrong.
    pub troubles: Vec<String>,
}

impl Told {
    /// What must be seen in a phase.
    pub fn see(&self, phase: usize) -> &See {
        [&self.row.cold, &self.row.warm, &self.row.gone, &self.row.healed][phase]
    }
}

/// The phases of every row.
pub const PHASES: [&str; 4] = ["cold", "warm", "gone", "healed"];

/// Takes all rows through one mount. `None` where nothing can be mounted.
pub fn run(rows: Vec<Row>) -> Option<Vec<Told>> {
    let world = World::new(rows.into_iter().map(Arc::new).collect());
    let mount = Mount::with(Setup::default().option("deadline=6s").config(&world.certificate.trusted()))?;
    world.enter(&mount);
    let first = world.each_row(|nth| {
        let cold = world.look(&mount, nth);
        let warm = world.look(&mount, nth);
        (cold, warm, world.is_alive(&mount, nth))
    });
    let requests = world.requests();
    let mut peaks = vec![memory_peak_bytes(&mount)];
    assert!(std::fs::read(mount.at("web/weft.example/docs/notes.txt")).is_ok(), "the mount lives");
    world.mode.store(GONE, Ordering::SeqCst);
    mount.remount();
    let gone = world.each_row(|nth| world.look(&mount, nth));
    world.mode.store(MENDED, Ordering::SeqCst);
    world.is_back(&mount);
    world.reload(&mount);
    let healed = world.each_row(|nth| world.look(&mount, nth));
    peaks.push(memory_peak_bytes(&mount));
    println!("most memory of the daemon, before and after the remount: {peaks:?} bytes");
    assert!(peaks.iter().all(|peak| *peak <= MEMORY_BYTES_MAX), "the daemon took {peaks:?} bytes");
    mount.umount();
    let log = std::fs::read_to_string(mount.cache().join("weft.log")).unwrap_or_default();
    assert!(!log.contains("panicked"), "the daemon panicked:\n{log}");
    let rows = world.rows.to_vec();
    let seen = first.into_iter().zip(gone).zip(healed);
    let all = rows.into_iter().zip(seen).zip(requests);
    let told = all.map(|((row, (((cold, warm, alive), gone), healed)), requests)| Told {
        row,
        seen: [cold, warm, gone, healed],
        requests,
        troubles: alive.err().into_iter().collect(),
    });
    Some(told.collect())
}

/// The most memory that the daemon has had resident (VmHWM, proc_pid_status(5)).
fn memory_peak_bytes(mount: &Mount) -> u64 {
    let status = format!("/proc/{}/status", mount.daemon().as_raw_nonzero());
    let status = std::fs::read_to_string(status).expect("the daemon lives");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
    peak.map_or(0, |kib: u64| kib * 1024)
}

struct World {
    rows: Arc<Vec<Arc<Row>>>,
    mode: Arc<AtomicUsize>,
    shared: Liar,
    /// The servers of the rows that have their own, by row.
    own: BTreeMap<usize, Server>,
    /// Of those that speak TLS.
    certificate: Certificate,
}

/// A row's own server.
enum Server {
    Plain(Liar),
    Secure(Secure),
}

impl World {
    fn new(rows: Vec<Arc<Row>>) -> World {
        let rows = Arc::new(rows);
        let mode = Arc::new(AtomicUsize::new(LYING));
        let liar = || {
            let (rows, mode) = (rows.clone(), mode.clone());
            Liar::talking(move |asked, stream| serve(&rows, mode.load(Ordering::SeqCst), asked, stream))
        };
        let certificate = Certificate::of("127.0.0.1");
        let server = |row: &Row| match row.speech {
            Speech::Plain => Server::Plain(liar()),
            speech => {
                let (count, mode) = (rows.len(), mode.clone());
                Server::Secure(Secure::new(speech, &certificate, move |path| {
                    tell(count, mode.load(Ordering::SeqCst), path)
                }))
            }
        };
        let own =
            rows.iter().enumerate().filter(|(_, row)| row.own_host).map(|(nth, row)| (nth, server(row))).collect();
        let shared = liar();
        World { rows, mode, shared, own, certificate }
    }

    /// The folder of a row's server in the mount.
    fn site(&self, nth: usize) -> String {
        self.own.get(&nth).map_or_else(|| self.shared.site(), Server::site)
    }

    /// All servers' folders.
    fn sites(&self) -> Vec<String> {
        self.own.values().map(Server::site).chain([self.shared.site()]).collect()
    }

    /// Runs `work` for each row, those that keep waiting beside the others; what it gave, in the rows' order.
    fn each_row<T: Send>(&self, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
        let done: Mutex<BTreeMap<usize, T>> = Mutex::default();
        let waits = |nth: &usize| self.rows[*nth].own_host && !self.rows[*nth].busy;
        let (slow, quick): (Vec<usize>, Vec<usize>) = (0..self.rows.len()).partition(waits);
        let next = AtomicUsize::new(0);
        let finish = |nth: usize| {
            let result = work(nth);
            done.lock().expect("nobody panics under this lock").insert(nth, result);
        };
        std::thread::scope(|scope| {
            for nth in slow {
                scope.spawn(move || finish(nth));
            }
            for _ in 0..THREADS {
                scope.spawn(|| {
                    while let Some(nth) = quick.get(next.fetch_add(1, Ordering::SeqCst)) {
                        finish(*nth);
                    }
                });
            }
        });
        done.into_inner().expect("nobody panicked").into_values().collect()
    }

    fn folder(&self, mount: &Mount, nth: usize) -> PathBuf {
        mount.at(self.site(nth)).join(format!("r{nth}"))
    }

    /// Makes the rows' folders known, so that their own requests alone are counted.
    fn enter(&self, mount: &Mount) {
        for site in self.sites() {
            let top = mount.at(site);
            let listed = std::fs::read_dir(&top).map(|names| names.count());
            assert!(listed.is_ok(), "{}: {listed:?}", top.display());
        }
    }

    fn look(&self, mount: &Mount, nth: usize) -> Seen {
        let look = &self.rows[nth].look;
        match look {
            Look::Host(_) => look_in(look, &mount.at("web")),
            Look::File(_) | Look::Span(..) | Look::List => look_in(look, &self.folder(mount, nth)),
        }
    }

    /// Whether another path of the same server still reads, one that nobody has read before.
    fn is_alive(&self, mount: &Mount, nth: usize) -> Result<(), String> {
        let file = mount.at(self.site(nth)).join(format!("alive-{nth}.txt"));
        match std::fs::read(&file) {
            Ok(bytes) if bytes == truth(&format!("alive-{nth}.txt")) => Ok(()),
            other => Err(format!("another path of the server gave {other:?}")),
        }
    }

    /// Reads from every server until it answers: for a moment after a failure nobody asks a host again.
    fn is_back(&self, mount: &Mount) {
        for site in self.sites() {
            let patience = Instant::now() + PATIENCE;
            let file = mount.at(&site).join("back.txt");
            while std::fs::read(&file).is_err() {
                assert!(Instant::now() < patience, "{site} answers again");
                std::thread::yield_now();
            }
        }
    }

    /// Requests below each row's folder.
    fn requests(&self) -> Vec<usize> {
        let mut counts = vec![0; self.rows.len()];
        let of_liar = |liar: &Liar| liar.asked().into_iter().map(|asked| asked.path).collect::<Vec<_>>();
        let of_own = self.own.values().flat_map(|server| match server {
            Server::Plain(liar) => of_liar(liar),
            Server::Secure(secure) => secure.asked(),
        });
        for path in of_own.chain(of_liar(&self.shared)) {
            if let Some((nth, _)) = row_of(&path) {
                counts[nth] += 1;
            }
        }
        counts
    }

    /// Has the mount ask again about every row's file.
    fn reload(&self, mount: &Mount) {
        let files = self.rows.iter().enumerate().filter_map(|(nth, row)| match &row.look {
            Look::File(name) | Look::Span(name, ..) => Some(self.folder(mount, nth).join(OsStr::from_bytes(name))),
            Look::List | Look::Host(_) => None,
        });
        let files: Vec<PathBuf> = files.collect();
        for some in files.chunks(100) {
            // What is not known at all cannot be reloaded, which the look afterwards judges.
            mount.verb("reload", some);
        }
    }
}

/// Does in a folder what a row's user does there.
pub fn look_in(look: &Look, folder: &Path) -> Seen {
    let seen = match look {
        Look::File(name) | Look::Host(name) => read(&folder.join(OsStr::from_bytes(name))),
        Look::Span(name, at, length) => read_span(&folder.join(OsStr::from_bytes(name)), *at, *length),
        Look::List => list(folder),
    };
    seen.unwrap_or_else(|error| Seen::Fails(error.raw_os_error().unwrap_or_default()))
}

fn read(file: &Path) -> std::io::Result<Seen> {
    std::fs::read(file).map(Seen::Bytes)
}

fn read_span(file: &Path, at: u64, length: usize) -> std::io::Result<Seen> {
    let mut bytes = vec![0; length];
    let file = std::fs::File::open(file)?;
    let mut filled = 0;
    while filled < length {
        match file.read_at(&mut bytes[filled..], at + filled as u64)? {
            0 => break,
            read => filled += read,
        }
    }
    bytes.truncate(filled);
    Ok(Seen::Bytes(bytes))
}

fn list(folder: &Path) -> std::io::Result<Seen> {
    let mut names = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let seen = match std::fs::metadata(&path) {
            Ok(about) if about.is_dir() => Seen::Folder,
            Ok(_) => read(&path).unwrap_or_else(|error| Seen::Fails(error.raw_os_error().unwrap_or_default())),
            Err(error) => Seen::Fails(error.raw_os_error().unwrap_or_default()),
        };
        // The page itself is the same in all rows.
        if entry.file_name() != "index.html" {
            names.insert(without_hash(entry.file_name().as_bytes()).to_vec(), seen);
        }
    }
    Ok(Seen::Names(names))
}

/// A name without the digits that keep shortened names apart.
fn without_hash(name: &[u8]) -> &[u8] {
    let end = name.len().saturating_sub(16);
    let marked = name.len() > 200 && name[..end].ends_with(b"%~") && name[end..].iter().all(u8::is_ascii_hexdigit);
    if marked { &name[..end] } else { name }
}

impl Server {
    fn site(&self) -> String {
        match self {
            Server::Plain(liar) => liar.site(),
            Server::Secure(secure) => format!("web/{}", secure.host()),
        }
    }
}

/// What a server behind TLS has to say to a request.
fn tell(rows: usize, mode: usize, path: &str) -> Telling {
    match (mode, row_of(path)) {
        (GONE, _) => Telling::Nothing,
        (LYING, Some((_, rest))) => Telling::Lie(truth(rest)),
        (_, Some((_, rest))) => Telling::Truth(truth(rest)),
        (_, None) if path == "/" => {
            Telling::Truth((0..rows).map(|nth| format!("<a href='r{nth}/'>{nth}</a>")).collect::<String>().into_bytes())
        }
        (_, None) => Telling::Truth(truth(path.trim_start_matches('/'))),
    }
}

/// Answers one request as the row or the mode wants it.
fn serve(rows: &[Arc<Row>], mode: usize, asked: &Asked, stream: &mut TcpStream) {
    let reply = match (mode, row_of(&asked.path)) {
        (GONE, _) => Reply::close([]),
        (_, Some((nth, rest))) if nth < rows.len() && (mode == LYING || matches!(rows[nth].look, Look::List)) => {
            (rows[nth].lie)(asked, rest, &format!("/r{nth}/"))
        }
        (_, Some((_, rest))) => Reply::keep(answer("200 OK", &["etag: \"mended\""], truth(rest))),
        (_, None) if asked.path == "/" => {
            let links: String = (0..rows.len()).map(|nth| format!("<a href='r{nth}/'>{nth}</a>")).collect();
            Reply::keep(answer("200 OK", &["content-type: text/html", "cache-control: max-age=9999"], links))
        }
        // A folder's URL without its slash.
        (_, None) if asked.path.starts_with("/r") => Reply::keep(answer("404 Not Found", &[], "")),
        (_, None) => Reply::keep(answer("200 OK", &[], truth(asked.path.trim_start_matches('/')))),
    };
    // Whoever hangs up early does not want the answer.
    let _ = send(&reply, stream);
}

/// Sends an answer and does what comes after it.
pub fn send(reply: &Reply, stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(&reply.bytes)?;
    match &reply.then {
        Then::Keep => Ok(()),
        Then::Close => stream.shutdown(std::net::Shutdown::Both),
        Then::Hold => stream.read(&mut [0]).map(drop),
        Then::Repeat(bytes) => {
            for _ in 0..REPEAT_BYTES_MAX / bytes.len().max(1) {
                stream.write_all(bytes)?;
            }
            stream.shutdown(std::net::Shutdown::Both)
        }
        Then::Drip(bytes) => {
            stream.set_read_timeout(Some(DRIP_PAUSE))?;
            for byte in bytes {
                stream.write_all(&[*byte])?;
                match stream.read(&mut [0]) {
                    Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                    _ => break,
                }
            }
            stream.shutdown(std::net::Shutdown::Both)
        }
    }
}

/// Which row a path belongs to, and what it has below that row's folder.
fn row_of(path: &str) -> Option<(usize, &str)> {
    let (number, rest) = path.strip_prefix("/r")?.split_once('/')?;
    Some((number.parse().ok()?, rest))
}

/// Most memory of a daemon that has seen all rows, many of them at once.
const MEMORY_BYTES_MAX: u64 = 320 << 20;
const LYING: usize = 0;
const GONE: usize = 1;
const MENDED: usize = 2;
const THREADS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(30);
const DRIP_PAUSE: Duration = Duration::from_millis(200);
