//! What others that mount a web site make of the same lies: one server and one mount for each row.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;
use rustix::io::Errno;

use crate::cases::ranges::LENGTH;
use crate::row::{FILE_PATH, Look, Reply, Row, See, Seen, truth};
use crate::support::{Asked, Liar, answer, find_program, page};
use crate::verdict::Verdict;
use crate::world::{look_in, send};

/// A program that mounts a web site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rival {
    /// `rclone mount` of its http backend.
    Rclone,
    /// httpdirfs.
    Httpdirfs,
}

/// What it did with one row.
#[derive(Clone, Debug)]
pub struct Did {
    /// At the first look.
    pub cold: Verdict,
    /// The same again.
    pub warm: Verdict,
    /// How it stood afterwards.
    pub end: End,
}

/// How a mount stands after the looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It serves another file.
    Serves,
    /// It lives, and another file of the same server is not served in time, or not rightly.
    Ails,
    /// Its daemon has ended.
    Died,
}

impl Rival {
    /// All of them.
    pub const ALL: [Rival; 2] = [Rival::Rclone, Rival::Httpdirfs];

    /// As it is called.
    pub fn name(self) -> &'static str {
        match self {
            Rival::Rclone => "rclone",
            Rival::Httpdirfs => "httpdirfs",
        }
    }

    /// What it says of its version; `None` where it is not installed.
    pub fn version(self) -> Option<String> {
        find_program(self.name())?;
        let output = Command::new(self.name()).arg("--version").stdin(Stdio::null()).output().ok()?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        said.lines().find(|line| line.to_lowercase().contains(self.name())).map(str::to_owned)
    }

    fn command(self, url: &str, place: &Path, cache: &Path) -> Command {
        let mut command = Command::new(self.name());
        match self {
            Rival::Rclone => {
                command.args(["mount", "--config", "", "--timeout", "3s", "--contimeout", "3s"]);
                command.args(["--low-level-retries", "2", "--http-url"]);
                command.arg(url).arg(":http:").arg(place);
                command.args(["--vfs-cache-mode", "full", "--cache-dir"]).arg(cache);
            }
            Rival::Httpdirfs => {
                command.args(["-f", "--cache", "--no-range-check", "--retry-wait", "1", "--cache-location"]);
                command.arg(cache).arg(url).arg(place);
            }
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

/// Which rows the rivals are given: those that make sense for one site, of each case up to so many, evenly chosen.
pub fn chosen(rows: &[&Arc<Row>]) -> Vec<usize> {
    let mut by_case: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (nth, row) in rows.iter().enumerate() {
        let fits = match (&row.look, row.case) {
            // The rivals' backends here speak plain text, and read pages alone.
            (Look::Host(_), _) | (_, "name, typed" | "HTTP/2" | "TLS" | "WebDAV" | "S3") => false,
            (_, "status") => STATUSES.contains(&row.input.as_str()),
            _ => true,
        };
        if fits {
            by_case.entry(row.case).or_default().push(nth);
        }
    }
    let some = |(case, all): (&str, Vec<usize>)| {
        let most = if matches!(case, "status" | "range" | "stall") { usize::MAX } else { OF_A_CASE };
        let step = all.len().div_ceil(most.min(all.len()).max(1)).max(1);
        all.into_iter().step_by(step)
    };
    let mut chosen: Vec<usize> = by_case.into_iter().flat_map(some).collect();
    chosen.sort_unstable();
    chosen
}

/// Gives one rival all these rows, a few at a time.
pub fn run(rival: Rival, rows: &[Arc<Row>]) -> Vec<Did> {
    let next = AtomicUsize::new(0);
    let done: Mutex<BTreeMap<usize, Did>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let nth = next.fetch_add(1, Ordering::SeqCst);
                    let Some(row) = rows.get(nth) else { return };
                    let did = try_row(rival, row);
                    done.lock().expect("nobody panics under this lock").insert(nth, did);
                }
            });
        }
    });
    done.into_inner().expect("nobody panicked").into_values().collect()
}

/// A mount that is taken away in any case, its daemon ended by its own process id.
struct Mounted {
    child: Child,
    folder: tempfile::TempDir,
}

impl Mounted {
    fn has_died(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends the daemon, which ends every call that waits for it.
    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = Command::new("umount").arg("-l").arg(self.folder.path().join("mnt")).stderr(Stdio::null()).status();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.end();
    }
}

fn try_row(rival: Rival, row: &Arc<Row>) -> Did {
    let until = Instant::now() + ROW_TIME_MAX;
    let of_server = row.clone();
    let liar = Liar::talking(move |asked, stream| serve(&of_server, asked, stream));
    let folder = tempfile::Builder::new().prefix("rival-").tempdir().expect("a temporary folder");
    let (place, cache) = (folder.path().join("mnt"), folder.path().join("cache"));
    for dir in [&place, &cache] {
        std::fs::create_dir(dir).expect("made");
    }
    let url = format!("http://{}/", liar.host());
    let child = rival.command(&url, &place, &cache).spawn().expect("it is installed");
    let mut mounted = Mounted { child, folder };
    if !comes_up(&mut mounted.child, &place, until) {
        return Did { cold: Verdict::NoMount, warm: Verdict::NoMount, end: End::Died };
    }
    let mut looks = [Verdict::Hang, Verdict::Hang];
    for look in &mut looks {
        let (row, place) = (row.clone(), place.clone());
        let seen = within(until, move || (look_in(&row.look, &place), row));
        *look = seen.map_or(Verdict::Hang, |(seen, row)| Verdict::of(&row, &without_alive(seen)));
        if *look == Verdict::Hang {
            break;
        }
    }
    let [cold, warm] = looks;
    let end = match mounted.has_died() {
        true => End::Died,
        false => {
            let alive = place.join(ALIVE);
            // What looked at a row without a file to stay alive by is known by its folder.
            let served = within(until.max(Instant::now() + ALIVE_TIME), move || match std::fs::read(&alive) {
                Ok(bytes) => Ok(bytes == truth(ALIVE)),
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::NOENT) => Ok(std::fs::metadata(alive.parent().expect("it has one")).is_ok()),
                    other => Err(other.unwrap_or(Errno::IO)),
                },
            });
            match served {
                Some(Ok(true)) => End::Serves,
                _ if mounted.has_died() => End::Died,
                // Its daemon has closed the mount's device and is about to end.
                Some(Err(errno)) if errno == Errno::NOTCONN || errno == Errno::CONNABORTED => End::Died,
                _ => End::Ails,
            }
        }
    };
    mounted.end();
    Did { cold, warm, end }
}

/// Does something that may hang; `None` when it does. It ends with the mount.
fn within<T: Send + 'static>(until: Instant, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        // Nobody waits for what comes too late.
        let _ = sender.send(work());
    });
    receiver.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
}

fn without_alive(seen: Seen) -> Seen {
    match seen {
        Seen::Names(mut names) => {
            names.remove(ALIVE.as_bytes());
            Seen::Names(names)
        }
        seen => seen,
    }
}

/// Waits until a file system is mounted there or the child that should do it has ended.
fn comes_up(child: &mut Child, place: &Path, until: Instant) -> bool {
    let table = std::fs::File::open("/proc/self/mounts").expect("the kernel's table of mounts");
    let at = format!(" {} ", place.display());
    loop {
        if std::fs::read_to_string("/proc/self/mounts").is_ok_and(|mounts| mounts.contains(&at)) {
            return true;
        }
        if !matches!(child.try_wait(), Ok(None)) {
            return false;
        }
        // The table of mounts reports a change as an exceptional condition (proc_pid_mounts(5)); the end of the child
        // is looked for now and then.
        let left = until.saturating_duration_since(Instant::now()).min(Duration::from_millis(200));
        let left = Timespec::try_from(left).expect("less than a second");
        let mut waited_for = [PollFd::from_borrowed_fd(table.as_fd(), PollFlags::PRI)];
        if poll(&mut waited_for, Some(&left)).is_err() || Instant::now() >= until {
            return false;
        }
    }
}

/// The row's site: its file or its page, and a file that is there in any case. What is asked by HEAD is told the truth:
/// the lie is in the content.
fn serve(row: &Row, asked: &Asked, stream: &mut TcpStream) {
    let path = asked.path.trim_start_matches('/');
    let is_list = matches!(row.look, Look::List);
    let reply = match (asked.method.as_str(), path) {
        (_, ALIVE) => whole(asked, &truth(ALIVE)),
        ("HEAD", "") => whole(asked, b""),
        ("HEAD", _) if row.case == "endless" => Reply::keep(ENDLESS_HEAD),
        ("HEAD", path) => whole(asked, &content_of(row, path)),
        (_, "") if !is_list => Reply::keep(page(&format!("<a href='{FILE_PATH}'>x</a><a href='{ALIVE}'>x</a>"))),
        (_, path) => (row.lie)(asked, path, "/"),
    };
    // Whoever hangs up early does not want the answer.
    let _ = send(&reply, stream);
}

/// A true answer; to HEAD without its body.
fn whole(asked: &Asked, body: &[u8]) -> Reply {
    let kind = if asked.path == "/" { "content-type: text/html" } else { "content-type: application/octet-stream" };
    let mut bytes = answer("200 OK", &[kind, "accept-ranges: bytes", "etag: \"one\""], body);
    if asked.method == "HEAD" {
        bytes.truncate(bytes.len() - body.len());
    }
    Reply::keep(bytes)
}

/// What the site has at a path by right.
fn content_of(row: &Row, path: &str) -> Vec<u8> {
    match (&row.look, &row.cold) {
        (Look::Span(_, at, _), _) if *at > 0 => vec![0; LENGTH],
        (Look::File(_), See::This(Seen::Bytes(bytes)) | See::Either(Seen::Bytes(bytes), _)) => bytes.clone(),
        _ => truth(path),
    }
}

/// The file that never ends, as far as it says how long it is.
const ENDLESS_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\naccept-ranges: bytes\r\ncontent-length: 9000000000000\r\n\r\n";
const ALIVE: &str = "alive.txt";
const STATUSES: [&str; 22] = [
    "200", "201", "203", "204", "206", "226", "300", "304", "400", "401", "403", "404", "405", "408", "410", "416",
    "418", "429", "451", "500", "502", "503",
];
/// Rows of a case, where there are many.
const OF_A_CASE: usize = 6;
const AT_A_TIME: usize = 4;
/// A row takes no longer than this.
const ROW_TIME_MAX: Duration = Duration::from_secs(10);
/// What is left at least for the file that shows that a mount serves.
const ALIVE_TIME: Duration = Duration::from_secs(2);
