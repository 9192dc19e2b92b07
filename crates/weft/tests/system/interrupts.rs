//! Ctrl-C: a program that waits for a host ends at once, and the host is not asked on for nobody.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Exit, Liar, Mount, Setup, page};

/// A mount whose deadline is far away: what ends before it does not end by it.
fn patient() -> Option<Mount> {
    Mount::with(Setup::default().option("deadline=600s"))
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

/// A server whose pages are one; `first` is what it sends of everything else before it falls silent.
fn silent(first: fn(&str) -> Vec<u8>) -> (Liar, Receiver<Event>) {
    let (sender, events) = channel();
    let sender = Mutex::new(sender);
    let server = Liar::talking(move |asked, stream| {
        if asked.path == "/" {
            let _ = stream.write_all(&page("<a href=\"slow\">x</a>"));
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

#[test]
fn a_lookup_that_nobody_answers_ends_with_its_program() {
    let (server, events) = silent(|_| Vec::new());
    let Some(mount) = patient() else { return };
    let child = start("stat", &mount.at(server.site()).join("never"));
    wait_for(&events, &Event::Asked("/never".to_owned()));
    stop(child);
    assert_eq!(interrupted(&mount, "lookup"), 1.0);
    wait_for(&events, &Event::Left("/never".to_owned()));
    assert_eq!(server.times("/never"), 1, "the host is not asked again");
}

const PATIENCE: Duration = Duration::from_secs(20);
