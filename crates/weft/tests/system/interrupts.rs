//! Ctrl-C: a program that waits for a host ends at once, and the host is not asked on for nobody.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Exit, Liar, Mount, Setup, answer};

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

fn start(program: &str, path: &Path) -> Child {
    Command::new(program).arg(path).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it runs")
}

/// Ctrl-C at a program that waits; it must end by that.
#[track_caller]
fn stop(mut child: Child) {
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

/// How many requests of one sort have been answered with EINTR.
fn interrupted(mount: &Mount, operation: &str) -> f64 {
    let row = format!("weft_kernel_errors_total{{operation=\"{operation}\",errno=\"EINTR\"}} ");
    let text = mount.verb("stats --prometheus", [mount.dir()]);
    assert_eq!(text.code, Some(0), "{text:?}");
    text.out.lines().find_map(|line| line.strip_prefix(&row)?.parse().ok()).unwrap_or(0.0)
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
    stop(child);
    assert_eq!(interrupted(&mount, "opendir"), 1.0);
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
const PATIENCE: Duration = Duration::from_secs(20);
