//! Programs run by the tests, each with a bound on its time, and what they say.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::Running;

/// A program to run: it is ended when it takes longer than [`SECONDS_MAX`], so that a hanging mount fails one test
/// and not the whole run.
pub struct Program(Command);

/// How a program ended.
#[derive(Debug)]
pub struct Outcome {
    /// The exit code; `None` after a signal.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Program {
    /// A program that is on the PATH, or given by its path.
    pub fn new(program: impl AsRef<OsStr>) -> Program {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", SECONDS_MAX]).arg(program).stdin(Stdio::null()).env("LC_ALL", "C.UTF-8");
        // The logins of whoever runs the tests are none of theirs.
        command.env_remove("KRB5_CONFIG").env_remove("KRB5CCNAME");
        Program(command)
    }

    /// A program and its first arguments.
    pub fn words(words: &[String]) -> Program {
        Program::new(&words[0]).args(&words[1..])
    }

    /// Adds one argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Program {
        self.0.arg(arg);
        self
    }

    /// Adds arguments.
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Program {
        self.0.args(args);
        self
    }

    /// Runs in this directory.
    pub fn dir(mut self, dir: &Path) -> Program {
        self.0.current_dir(dir);
        self
    }

    /// Sets a variable of the environment.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Program {
        self.0.env(name, value);
        self
    }

    /// Runs it to its end.
    pub fn run(mut self) -> Outcome {
        let Output { status, stdout, stderr } = self.0.output().expect("timeout(1) runs");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Outcome { code: status.code(), out: text(stdout), err: text(stderr) }
    }

    /// Starts it and leaves it running.
    pub fn start(self) -> Running {
        Running::of(self.0)
    }

    /// Runs it to its end, which must be a success; what it printed.
    #[track_caller]
    pub fn good(self) -> String {
        let outcome = self.run();
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        outcome.out
    }
}

/// Runs a program that must succeed; what it printed.
#[track_caller]
pub fn run<A: AsRef<OsStr>>(program: &str, args: impl IntoIterator<Item = A>) -> String {
    Program::new(program).args(args).good()
}

/// Where a program is: on the PATH, or where Debian keeps servers.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Whether the tests run as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Says what a test does without, and why: `scripts/install-test-deps.sh` brings what can be brought.
pub fn without(what: &str) {
    println!("skipped: {what}");
}

const SECONDS_MAX: &str = "100";
