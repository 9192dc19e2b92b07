//! A program that goes on while the test does.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// A running program. It is ended when this is dropped.
pub struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
    err: BufReader<ChildStderr>,
    seen: String,
}

impl Running {
    /// Starts a command, which ends by itself after some time.
    pub fn of(mut command: Command) -> Running {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("timeout(1) runs");
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        let err = BufReader::new(child.stderr.take().expect("a pipe"));
        Running { child, out, err, seen: String::new() }
    }

    /// The next line of standard output.
    #[track_caller]
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        let read = self.out.read_line(&mut line).expect("UTF-8");
        assert!(read > 0, "it has ended; before that: {}", self.seen);
        self.seen.push_str(&line);
        line
    }

    /// The next line of standard error.
    pub fn error_line(&mut self) -> String {
        let mut line = String::new();
        self.err.read_line(&mut line).expect("UTF-8");
        line
    }

    /// Its process id, of timeout(1), which passes signals on.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// All lines of standard output so far.
    pub fn seen(&self) -> &str {
        &self.seen
    }

    /// Waits for its own end; its exit code.
    pub fn end(mut self) -> Option<i32> {
        self.child.wait().expect("waited for").code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // timeout(1) passes it on to the program.
        if let (Ok(None), Some(pid)) = (self.child.try_wait(), Pid::from_raw(self.child.id() as i32)) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.child.wait();
    }
}
