//! Ctrl-C: a program that waits for a host ends at once, and the host is not asked on for nobody.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Exit, Liar, Mount, Program, Setup, answer, noise, without};

/// A mount whose deadline is far away: what ends before it does not end by it.
fn patient() -> Option<Mount> {
    Mount::with(Setup::default().option("deadline=120s"))
}

/// What a script of a server tells the test.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    /// This path is asked for, and answered as far as it will be for now.
    Asked(String),
    /// The client hung up on it.
    Left(String),
}

fn tell(to: &Mutex<Sender<Event>>, event: Event) {
    // The test may be over.
    let _ = to.lock().expect("nobody panics under this lock").send(event);
}

/// A server that sends `first` of each path, and then falls silent until the client leaves, but for paths that it
/// answers whole.
fn silent(whole: fn(&str) -> Option<Vec<u8>>, first: fn(&str) -> Vec<u8>) -> (Liar, Receiver<Event>) {
    let (sender, events) = channel();
    let sender = Mutex::new(sender);
    let server = Liar::talking(move |asked, stream| {
        if let Some(answer) = whole(&asked.path) {
            let _ = stream.write_all(&answer);
            return;
        }
        let _ = stream.write_all(&first(&asked.path));
        tell(&sender, Event::Asked(asked.path.clone()));
        if until_left(stream) {
            tell(&sender, Event::Left(asked.path.clone()));
        }
    });
    (server, events)
}

fn until_left(stream: &mut TcpStream) -> bool {
    !matches!(stream.read(&mut [0]), Ok(1))
}

#[track_caller]
fn wait_for(events: &Receiver<Event>, event: &Event) {
    loop {
        match events.recv_timeout(PATIENCE) {
            Ok(found) if found == *event => return,
            Ok(_) => {}
            Err(mpsc::RecvTimeoutError::Timeout | mpsc::RecvTimeoutError::Disconnected) => panic!("{event:?} is due"),
        }
    }
}

/// A program that Ctrl-C ends, also where these tests were started by something that ignores it (which is inherited).
fn interruptible(program: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", program]);
    command
}

fn start(program: &str, path: &Path) -> Child {
    interruptible(program).arg(path).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs")
}

/// Ctrl-C at a program that waits; it must end by that.
#[track_caller]
pub fn stop(mut child: Child) {
    let pid = Pid::from_child(&child);
    let ended = Exit::of(pid);
    kill_process(pid, Signal::INT).expect("a child of ours");
    let has_ended = ended.wait();
    if !has_ended {
        let _ = child.kill();
    }
    let status = child.wait().expect("a child of ours");
    assert!(has_ended, "the program waits on");
    assert_eq!(status.signal(), Some(Signal::INT.as_raw()), "{status:?}");
}

/// Whether a program waits in openat(2) (proc_pid_syscall(5)); where its number is not known here, whether it waits at all.
fn is_opening(child: &Child) -> bool {
    let call = std::fs::read_to_string(format!("/proc/{}/syscall", child.id())).expect("a child of ours");
    match std::env::consts::ARCH {
        "x86_64" => call.starts_with("257 "),
        "aarch64" => call.starts_with("56 "),
        _ => !call.starts_with("running"),
    }
}

/// How many requests of one sort have been answered with EINTR.
fn interrupted(mount: &Mount, operation: &str) -> f64 {
    let row = format!("weft_kernel_errors_total{{operation=\"{operation}\",errno=\"EINTR\"}} ");
    let text = mount.verb("stats --prometheus", [mount.dir()]);
    assert_eq!(text.code, Some(0), "{text:?}");
    text.out.lines().find_map(|line| line.strip_prefix(&row)?.parse().ok()).unwrap_or(0.0)
}

/// With what requests of one sort have been answered that failed.
fn errors(mount: &Mount, operation: &str) -> Vec<String> {
    let begin = format!("weft_kernel_errors_total{{operation=\"{operation}\",errno=\"");
    let text = mount.verb("stats --prometheus", [mount.dir()]).out;
    let rows = text.lines().filter_map(|line| line.strip_prefix(&begin)?.split_once("\"} "));
    rows.filter(|(_, count)| *count != "0").map(|(errno, _)| errno.to_owned()).collect()
}

/// The root's page.
fn root(path: &str) -> Option<Vec<u8>> {
    (path == "/").then(|| answer("200 OK", &["content-type: text/html"], ""))
}

/// The beginning of a body that does not say how long it is.
fn beginning(kind: &str, text: &str) -> Vec<u8> {
    let length = text.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n{length:x}\r\n{text}\r\n")
        .into_bytes()
}

#[test]
fn a_lookup_that_nobody_answers_ends_with_its_program() {
    let (server, events) = silent(root, |_| Vec::new());
    let Some(mount) = patient() else { return };
    let child = start("stat", &mount.at(server.site()).join("never"));
    wait_for(&events, &Event::Asked("/never".to_owned()));
    stop(child);
    assert_eq!(interrupted(&mount, "lookup"), 1.0);
    wait_for(&events, &Event::Left("/never".to_owned()));
    assert_eq!(server.times("/never"), 1, "the host is not asked again");
}

/// Method: the name is trusted, its content was dropped, so the open has to fetch it.
#[test]
fn an_open_that_nobody_answers_ends_with_its_program() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let once = |path: &str| {
        if path == "/" {
            return root(path);
        }
        let first = path == "/f" && ASKED.fetch_add(1, Ordering::SeqCst) == 0;
        first.then(|| answer("200 OK", &["cache-control: max-age=3600", "etag: \"1\""], "text"))
    };
    let (server, events) = silent(once, |_| Vec::new());
    let Some(mount) = patient() else { return };
    let path = mount.at(server.site()).join("f");
    assert_eq!(std::fs::read(&path).expect("answered"), b"text");
    let dropped = mount.verb("rm -w", [&path]);
    assert_eq!(dropped.code, Some(0), "{dropped:?}");
    let child = start("cat", &path);
    wait_for(&events, &Event::Asked("/f".to_owned()));
    stop(child);
    assert_eq!(interrupted(&mount, "open"), 1.0);
    wait_for(&events, &Event::Left("/f".to_owned()));
    assert_eq!(server.times("/f"), 2, "the host is not asked again");
}

#[test]
fn a_directory_whose_page_does_not_end_ends_with_its_program() {
    let (server, events) = silent(|_| None, |_| beginning("text/html", "<a href=\"one\">x</a>"));
    let Some(mount) = patient() else { return };
    let child = start("ls", &mount.at(server.site()));
    wait_for(&events, &Event::Asked("/".to_owned()));
    wait_until_asked(&mount, "lookup", 2);
    // Its names are answered: until it opens the directory a signal ends it without a request.
    wait_until("it opens the directory", || is_opening(&child));
    stop(child);
    assert_eq!(interrupted(&mount, "opendir"), 1.0);
}

/// A host whose queue of connections is full: it neither takes one nor refuses one.
struct Full {
    address: SocketAddr,
    _queue: (rustix::fd::OwnedFd, Vec<TcpStream>),
}

impl Full {
    fn new() -> Full {
        use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};
        let listener = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        bind(&listener, &SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
        listen(&listener, 0).expect("it listens");
        let address = SocketAddr::try_from(getsockname(&listener).expect("bound")).expect("an address");
        let more = || TcpStream::connect_timeout(&address, Duration::from_millis(300)).ok();
        let queue: Vec<_> = std::iter::from_fn(more).take(QUEUE_MAX).collect();
        assert!(queue.len() < QUEUE_MAX, "its queue is never full");
        Full { address, _queue: (listener, queue) }
    }

    /// Whether somebody waits for a connection to it (`SYN_SENT` in proc_pid_net(5)).
    fn is_called(&self) -> bool {
        let port = format!("0100007F:{:04X} 02", self.address.port());
        std::fs::read_to_string("/proc/net/tcp").expect("connections").contains(&port)
    }
}

/// Asks again and again until it is so.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..LOOKS_MAX {
        if is_so() {
            return;
        }
        // Only between two looks at what tells nobody when it changes.
        std::thread::park_timeout(Duration::from_millis(5));
    }
    panic!("{what} is due");
}

/// Goal: a program that waits for a connection ends at once, and nobody goes on trying.
#[test]
fn a_host_that_takes_no_connection_ends_with_its_program() {
    let host = Full::new();
    let Some(mount) = patient() else { return };
    let child = start("cat", &mount.at(format!("web/{}/f", host.address)));
    wait_until("a call", || host.is_called());
    stop(child);
    assert_eq!(interrupted(&mount, "lookup"), 1.0);
    wait_until("the end of the call", || !host.is_called());
}

/// A server of `/f`, all but the first bytes of which it holds back until it is told to go on, or is left.
pub struct Halting {
    server: Liar,
    go_on: Arc<AtomicBool>,
    pub whole: Vec<u8>,
}

impl Halting {
    pub fn new() -> Halting {
        let (whole, go_on) = (noise(2_000_000), Arc::new(AtomicBool::new(false)));
        let (served, may_go) = (whole.clone(), go_on.clone());
        let server = Liar::talking(move |asked, stream| {
            if let Some(page) = root(&asked.path) {
                let _ = stream.write_all(&page);
                return;
            }
            let whole = answer("200 OK", &["etag: \"1\"", "cache-control: max-age=9999"], &served);
            let first = whole.len() - served.len() + FIRST_BYTES;
            let _ = stream.write_all(&whole[..first]);
            while !may_go.load(Ordering::SeqCst) {
                if has_left(stream) {
                    return;
                }
            }
            let _ = stream.write_all(&whole[first..]);
        });
        Halting { server, go_on, whole }
    }

    /// Sends the rest to all who wait for it, and all to those who come.
    pub fn go_on(&self) {
        self.go_on.store(true, Ordering::SeqCst);
    }

    pub fn path(&self, mount: &Mount) -> PathBuf {
        mount.at(self.server.site()).join("f")
    }
}

/// Whether the client has hung up: looked at for a moment.
pub fn has_left(stream: &mut TcpStream) -> bool {
    let _ = stream.set_read_timeout(Some(Duration::from_millis(5)));
    let read = stream.read(&mut [0]);
    let _ = stream.set_read_timeout(None);
    !matches!(&read, Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

/// Waits until a program that has a file open waits in a system call for pages that are not there, which nothing but a
/// signal that kills disturbs. (Before that it may wait for pages of its own program.)
#[track_caller]
pub fn wait_until_stuck(child: &Child, path: &Path) {
    let of = |name: &str| PathBuf::from(format!("/proc/{}/{name}", child.id()));
    let has = |name: &str, words: &str| std::fs::read_to_string(of(name)).is_ok_and(|text| text.contains(words));
    let has_opened = || {
        let mut files = std::fs::read_dir(of("fd")).into_iter().flatten().flatten();
        files.any(|file| std::fs::read_link(file.path()).is_ok_and(|target| target == path))
    };
    wait_until("a program that waits", || has_opened() && !has("syscall", "-1 ") && has("status", "State:\tD"));
}

/// cat(1), and what it writes.
pub fn cat(path: &Path) -> (Child, ChildStdout) {
    let mut child = interruptible("cat").arg(path).stdout(Stdio::piped()).spawn().expect("it runs");
    let out = child.stdout.take().expect("piped");
    (child, out)
}

/// Goal: a program that waits in read(2) for a body that stands still ends at once, and its reads with it: the kernel
/// tells nobody of signals of those who wait for its pages.
#[test]
fn a_read_of_a_body_that_stands_still_ends_with_its_program() {
    let halting = Halting::new();
    let Some(mount) = patient() else { return };
    let path = halting.path(&mount);
    let (child, _out) = cat(&path);
    wait_until_stuck(&child, &path);
    stop(child);
    wait_until("the end of its reads", || interrupted(&mount, "read") >= 1.0);
}

/// Goal: as before, of a program that catches the signal: its read comes back, with what it has or with EINTR.
#[test]
fn a_read_comes_back_to_a_program_that_catches_its_signal() {
    let script = r#"
use Fcntl; my $caught = 0; $SIG{INT} = sub { $caught = 1 };
sysopen(my $file, $ARGV[0], O_RDONLY) or die;
my $bytes;
while (sysread($file, $bytes, 65536)) { last if $caught; syswrite(STDOUT, $bytes) }
print "$caught ", $! + 0;"#;
    let halting = Halting::new();
    let Some(mount) = patient() else { return };
    let mut command = interruptible("perl");
    command.args(["-e", script]).arg(halting.path(&mount)).stdout(Stdio::piped());
    let Ok(mut child) = command.spawn() else { return without("perl does not run") };
    let mut out = child.stdout.take().expect("piped");
    wait_until_stuck(&child, &halting.path(&mount));
    kill_process(Pid::from_child(&child), Signal::INT).expect("a child of ours");
    let mut said = String::new();
    out.read_to_string(&mut said).expect("text");
    assert!(child.wait().expect("a child of ours").success());
    let interrupted = format!("1 {}", rustix::io::Errno::INTR.raw_os_error());
    assert!(said == "1 0" || said == interrupted, "{said}");
    // By the signal, and not because the body was given up in the end.
    assert_eq!(errors(&mount, "read"), ["EINTR"]);
}

/// Goal: of two that wait for the same pages, one that is stopped does not take the other along.
#[test]
fn another_reader_of_the_same_file_gets_its_bytes() {
    let halting = Halting::new();
    let Some(mount) = patient() else { return };
    let path = halting.path(&mount);
    let (first, _out) = cat(&path);
    wait_until_stuck(&first, &path);
    let (mut second, mut out) = cat(&path);
    wait_until_stuck(&second, &path);
    stop(first);
    wait_until("the end of the first one's reads", || interrupted(&mount, "read") >= 1.0);
    halting.go_on();
    let mut rest = Vec::new();
    out.read_to_end(&mut rest).expect("read");
    assert!(second.wait().expect("a child of ours").success());
    assert!(rest == halting.whole, "{} bytes", rest.len());
    assert_eq!(halting.server.times("/f"), 1, "nobody asked anew");
}

/// Goal: many that read from a host that stands still do not keep others from reading elsewhere. (The kernel has so many
/// reads into its pages under way and no more, whoever they are for.)
#[test]
fn a_host_that_stands_still_takes_no_reads_from_others() {
    let halting = Halting::new();
    let other = Liar::answering(|asked| answer("200 OK", &["content-type: text/plain"], asked.path.repeat(200_000)));
    let setup = Setup::default().option("deadline=120s").option("no_passthrough");
    let Some(mount) = Mount::with(setup.config("[web]\nconnections_per_host = 200\n")) else { return };
    let site = mount.at(halting.server.site());
    let paths: Vec<_> = (0..MANY).map(|nth| site.join(format!("f{nth}"))).collect();
    let mut readers: Vec<_> = paths.iter().map(|path| cat(path)).collect();
    readers.iter().zip(&paths).for_each(|((child, _), path)| wait_until_stuck(child, path));
    let elsewhere = mount.at(other.site()).join("f");
    let read = Program::new("cat").arg(&elsewhere).run();
    // While nobody has given up: the bodies would be, some time.
    assert_eq!(errors(&mount, "read"), [""; 0]);
    halting.go_on();
    assert_eq!(read.code, Some(0), "{}", read.err);
    assert!(read.out == "/f".repeat(200_000));
    for (child, out) in &mut readers {
        let mut bytes = Vec::new();
        out.read_to_end(&mut bytes).expect("read");
        assert!(child.wait().expect("a child of ours").success() && bytes == halting.whole);
    }
}

/// Waits until the daemon has answered so many requests of a sort.
#[track_caller]
fn wait_until_asked(mount: &Mount, operation: &str, count: u64) {
    let row = format!("weft_kernel_request_duration_seconds_count{{operation=\"{operation}\"}} ");
    for _ in 0..LOOKS_MAX {
        let text = mount.verb("stats --prometheus", [mount.dir()]).out;
        let answered = text.lines().find_map(|line| line.strip_prefix(&row)?.parse::<f64>().ok()).unwrap_or(0.0);
        if answered >= count as f64 {
            return;
        }
    }
    panic!("{count} requests of {operation} are due");
}

/// How often a figure is looked at before it is given up.
const LOOKS_MAX: usize = 1000;
/// Readers of a host that stands still.
const MANY: usize = 80;
/// How much of a body comes at first: less than a page, so that whoever reads waits at once.
const FIRST_BYTES: usize = 1000;
/// Most connections that a host may hold without taking them.
const QUEUE_MAX: usize = 16;
const PATIENCE: Duration = Duration::from_secs(20);
