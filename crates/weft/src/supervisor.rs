//! The process that outlives the daemons of a mount.
//!
//! It holds the connection to the kernel and what the next daemon must know, and sends the daemon's notices, on a thread:
//! one that waits for a request in flight keeps its process from ending, and the request may wait for the next daemon. It
//! does nothing else: no runtime, no cache. A daemon that dies by a signal or a panic is followed by another, a bounded
//! number of times; one that ends by itself ends the mount. Signals are passed on to the daemon.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, kill_process};

use crate::handover::{Kept, Kernel, Line, Word};

/// The supervisor of one mount.
pub struct Supervisor {
    /// What each daemon is called with.
    args: Vec<OsString>,
    /// Where it was started: arguments may count from there.
    folder: PathBuf,
    /// Where the program was installed when this one began.
    installed: Option<PathBuf>,
    kept: Kept,
    mount: Option<Kernel>,
    signals: SignalFd,
    ends: Ends,
    /// The last signal that was passed on: a daemon that is only about to serve may have died of it.
    asked: Option<rustix::process::Signal>,
}

/// One daemon.
struct Life {
    child: Child,
    line: Line,
    /// Whether it has come as far as to serve.
    serves: bool,
    /// Whether the program that is installed is to follow.
    replace: bool,
    /// Where notices come from, until there is a connection to send them on.
    notices: Option<OwnedFd>,
}

/// What to do when a daemon has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// End with this exit code.
    End(u8),
    /// Start the program that is installed.
    Installed,
    /// Start the program that this process runs.
    Own,
    /// There were too many ends.
    GiveUp,
}

impl Supervisor {
    /// Supervises daemons that are called with `args`.
    ///
    /// # Errors
    /// What the system says when it refuses files in memory or the reading of signals.
    pub fn new(args: Vec<OsString>) -> io::Result<Supervisor> {
        let mut set = SigSet::empty();
        [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().for_each(|each| set.add(each));
        set.thread_block()?;
        let signals = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let folder = std::env::current_dir()?;
        // This process must not keep the folder busy.
        std::env::set_current_dir("/")?;
        let installed = std::env::current_exe().ok();
        let ends = Ends::default();
        Ok(Supervisor { args, folder, installed, kept: Kept::new()?, mount: None, signals, ends, asked: None })
    }

    /// Starts daemons until the mount is gone; the exit code of the last one.
    ///
    /// # Errors
    /// What the system says when no process can be started.
    pub fn run(mut self) -> io::Result<u8> {
        let mut program = PathBuf::from(OWN);
        loop {
            let mut life = match self.start(&program) {
                Ok(life) => life,
                Err(error) if program != Path::new(OWN) => {
                    tell(&format!("{}: {error}; the program that ran before goes on", program.display()));
                    program = OWN.into();
                    continue;
                }
                Err(error) => return Err(error),
            };
            let status = self.watch(&mut life)?;
            match self.next(&life, status, &program) {
                Next::End(code) => return Ok(code),
                Next::GiveUp => {
                    tell(&format!("the daemon ended again ({status}), too often: the mount is given up"));
                    return Ok(1);
                }
                Next::Installed => program = self.installed.clone().unwrap_or(OWN.into()),
                Next::Own => {
                    tell(&format!("the daemon ended ({status}); another one takes the mount over"));
                    program = OWN.into();
                }
            }
        }
    }

    fn start(&self, program: &Path) -> io::Result<Life> {
        let (line, theirs) = Line::pair()?;
        let flags = SocketFlags::CLOEXEC;
        let (notices, of_daemon) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let mut command = Command::new(program);
        command.arg0("weft").args(&self.args).current_dir(&self.folder).stdin(theirs);
        let child = command.spawn()?;
        // It may be dead already: then its end is seen soon.
        let _ = line.start(&self.kept, self.mount.as_ref(), of_daemon.as_fd());
        let mut life = Life { child, line, serves: false, replace: false, notices: Some(notices) };
        self.send_notices(&mut life);
        Ok(life)
    }

    /// Begins to send a daemon's notices, if there is a connection. The thread ends some time after the daemon. Where
    /// there can be none, the daemon finds that nobody listens, and sends them itself.
    fn send_notices(&self, life: &mut Life) {
        let (Some(mount), Some(notices)) = (&self.mount, life.notices.take_if(|_| self.mount.is_some())) else {
            return;
        };
        let started = mount.device.try_clone().and_then(|device| {
            let work = move || weft_fuse::send_notices_for(notices, device);
            std::thread::Builder::new().name("weft-notices".to_owned()).spawn(work)
        });
        if let Err(error) = started {
            tell(&format!("notices to the kernel are the daemon's own ({error}): should it be killed, it may not end"));
        }
    }

    /// Waits for the end of a daemon and does meanwhile what it says, and what is signalled.
    fn watch(&mut self, life: &mut Life) -> io::Result<ExitStatus> {
        let mut speaks = true;
        loop {
            let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
            if speaks {
                fds.push(PollFd::new(&life.line, PollFlags::IN));
            }
            match poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            while let Some(signal) = self.signals.read_signal()? {
                self.pass_on(signal.ssi_signo, &life.child);
            }
            // What it said last counts: its end comes after all its words.
            let ended = life.child.try_wait()?;
            while speaks && self.device_comes(life, &mut speaks) {}
            if let Some(status) = ended {
                return Ok(status);
            }
        }
    }

    /// Hears one word; whether there may be more.
    fn device_comes(&mut self, life: &mut Life, speaks: &mut bool) -> bool {
        match life.line.hear_now() {
            Ok(Some((Word::Mounted { connection }, files))) => {
                self.mount = files.into_iter().next().map(|device| Kernel { device, connection });
                self.send_notices(life);
            }
            Ok(Some((Word::Cells, files))) => self.kept.cells = files.into_iter().next(),
            Ok(Some((Word::Serving, _))) => {
                life.serves = true;
                if let Some(signal) = self.asked {
                    let _ = kill_process(Pid::from_child(&life.child), signal);
                }
            }
            Ok(Some((Word::Replace, _))) => life.replace = true,
            Ok(Some((Word::Start { .. } | Word::Unknown, _))) => {}
            Ok(None) => {
                // Nothing now, or nothing ever: an end that is gone is always ready to be read.
                *speaks = is_there(&life.line);
                return false;
            }
            Err(error) => {
                tell(&format!("a daemon could not be understood: {error}"));
                *speaks = is_there(&life.line);
                return false;
            }
        }
        true
    }

    fn pass_on(&mut self, number: u32, child: &Child) {
        let number = i32::try_from(number).ok();
        let signal = number.and_then(rustix::process::Signal::from_named_raw);
        if let Some(signal) = signal.filter(|signal| *signal != rustix::process::Signal::CHILD) {
            self.asked = Some(signal);
            // Fails when it has just ended.
            let _ = kill_process(Pid::from_child(child), signal);
        }
    }

    /// What follows a daemon that has ended.
    fn next(&mut self, life: &Life, status: ExitStatus, program: &Path) -> Next {
        let code = status.code().map_or(1, |code| u8::try_from(code).unwrap_or(1));
        if self.mount.is_none() {
            return Next::End(code);
        }
        if life.replace && (status.success() || life.serves) {
            return Next::Installed;
        }
        let died = status.signal().is_some() || status.code() == Some(PANIC_CODE);
        // A daemon that could not take over has not ended by itself.
        if !died && life.serves {
            return Next::End(code);
        }
        match self.ends.one_more(Instant::now(), life.serves) {
            true if life.serves && program != Path::new(OWN) => Next::Installed,
            true => Next::Own,
            false => Next::GiveUp,
        }
    }
}

/// In a daemon, before it has threads: hears the signals that its supervisor reads, for a process begins with the mask of
/// the one that started it.
///
/// # Errors
/// What the system says.
pub fn hear_signals() -> io::Result<()> {
    Ok(SigSet::all().thread_unblock()?)
}

/// When daemons died, to know when it is too often.
#[derive(Debug, Default)]
struct Ends {
    at: VecDeque<Instant>,
    /// How many in a row did not come as far as to serve.
    at_start: u32,
}

impl Ends {
    /// Notes one; whether another daemon may be started.
    fn one_more(&mut self, now: Instant, had_served: bool) -> bool {
        self.at_start = if had_served { 0 } else { self.at_start + 1 };
        self.at.push_back(now);
        while self.at.front().is_some_and(|first| now.duration_since(*first) > ENDS_TIME) {
            self.at.pop_front();
        }
        self.at_start < STARTS_MAX && self.at.len() <= ENDS_MAX
    }
}

fn is_there(line: &Line) -> bool {
    let mut fds = [PollFd::new(line, PollFlags::IN)];
    let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: 0 };
    !poll(&mut fds, Some(&now)).is_ok_and(|_| fds[0].revents().contains(PollFlags::HUP))
}

/// Standard error is the log, where there is one.
fn tell(sentence: &str) {
    use std::io::Write;
    let _ = writeln!(io::stderr(), "weft: {sentence}");
}

/// The program that this process runs, also when it has been replaced on disk.
const OWN: &str = "/proc/self/exe";
/// What a Rust program whose main thread panicked ends with.
const PANIC_CODE: i32 = 101;
/// Most deaths of daemons within [`ENDS_TIME`].
const ENDS_MAX: usize = 30;
const ENDS_TIME: Duration = Duration::from_secs(60);
/// Most daemons in a row that did not come as far as to serve.
const STARTS_MAX: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deaths_are_bounded_in_time_and_starts_in_a_row() {
        let begin = Instant::now();
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        let mut ends = Ends::default();
        assert!((0..ENDS_MAX as u64).all(|nth| ends.one_more(at(nth), true)));
        assert!(!ends.one_more(at(40), true), "one too many within the time");
        assert!(ends.one_more(at(200), true), "the others are long ago");
        assert!(ends.one_more(at(300), false) && ends.one_more(at(400), false));
        assert!(!ends.one_more(at(500), false), "none came to serve");
    }
}
