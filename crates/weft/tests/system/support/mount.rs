//! A real mount, made and taken away by the program as a user would.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::Value;

use super::Running;
use super::process::{Outcome, Program};

/// What a mount is to be like.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// What is mounted; empty for everything.
    pub source: &'static str,
    /// Mount options (`-o`).
    pub options: Vec<String>,
    /// The text of the configuration file.
    pub config: String,
    /// The cache folder; otherwise one in the mount's own temporary folder.
    pub cache: Option<PathBuf>,
    /// The user who mounts; otherwise the one that runs the tests.
    pub uid: Option<u32>,
}

/// A mount in a temporary folder. It is taken away when this is dropped, whatever state it is in.
pub struct Mount {
    folder: tempfile::TempDir,
    setup: Setup,
    program: PathBuf,
    /// Words that run a program where the daemon is to live.
    place: Vec<String>,
}

/// The program under test.
pub fn weft_program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_weft"))
}

impl Setup {
    /// With one mount option.
    pub fn option(mut self, option: &str) -> Setup {
        self.options.push(option.to_owned());
        self
    }

    /// With this configuration file.
    pub fn config(mut self, text: &str) -> Setup {
        self.config = text.to_owned();
        self
    }
}

impl Mount {
    /// Mounts everything with the defaults. `None`, with a line that says so, where there is no FUSE.
    pub fn new() -> Option<Mount> {
        Mount::with(Setup::default())
    }

    /// Mounts.
    pub fn with(setup: Setup) -> Option<Mount> {
        let mount = Mount::prepare(setup)?;
        mount.mount();
        Some(mount)
    }

    /// Makes the folders and does not mount.
    pub fn prepare(setup: Setup) -> Option<Mount> {
        if !Path::new("/dev/fuse").exists() {
            super::without("/dev/fuse is missing: nothing can be mounted here");
            return None;
        }
        let folder = tempfile::Builder::new().prefix("wt-").tempdir().expect("a temporary folder");
        let mut program = weft_program().to_owned();
        for name in ["mnt", "home", "run"] {
            std::fs::create_dir(folder.path().join(name)).expect("made");
        }
        // The machine's own cells are none of a test's business.
        let cells = if setup.config.contains("[afs]") { "" } else { "\n[afs]\nconfig_dir = \"/nonexistent\"\n" };
        std::fs::write(folder.path().join("weft.toml"), setup.config.clone() + cells).expect("written");
        if let Some(uid) = setup.uid {
            // Where the program was built need not be open to that user.
            let copy = folder.path().join("weft");
            std::fs::copy(&program, &copy).expect("copied");
            program = copy;
            for name in ["", "mnt", "home", "run", "weft.toml"] {
                let path = folder.path().join(name);
                std::os::unix::fs::chown(&path, Some(uid), Some(uid)).expect("root may give files away");
            }
            std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).expect("set");
        }
        Some(Mount { folder, setup, program, place: Vec::new() })
    }

    /// Has a copy of the program, beside the mount, do what follows: as `beside("weft")`.
    pub fn use_copy(&mut self) {
        let copy = self.beside("weft");
        std::fs::copy(weft_program(), &copy).expect("copied");
        self.program = copy;
    }

    /// The mount point.
    pub fn dir(&self) -> PathBuf {
        self.folder.path().join("mnt")
    }

    /// From the next mount on the daemon, and the verbs, live where these words run a program: in a network of their own.
    pub fn move_to(&mut self, words: Vec<String>) {
        self.place = words;
    }

    /// A path in the mount.
    pub fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        self.dir().join(path)
    }

    /// A scratch path beside the mount.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The cache folder.
    pub fn cache(&self) -> PathBuf {
        self.setup.cache.clone().unwrap_or_else(|| self.folder.path().join("cache"))
    }

    /// The program with this mount's environment, to be run by the user who mounts.
    pub fn weft(&self) -> Program {
        let program = match self.setup.uid {
            Some(uid) => Program::new("setpriv")
                .args([format!("--reuid={uid}"), format!("--regid={uid}"), "--clear-groups".to_owned()])
                .arg(&self.program),
            None if !self.place.is_empty() => Program::words(&self.place).arg(&self.program),
            None => Program::new(&self.program),
        };
        program
            .dir(Path::new("/"))
            .env("HOME", self.beside("home"))
            .env("XDG_RUNTIME_DIR", self.beside("run"))
            .env("XDG_CACHE_HOME", self.beside("home/cache"))
            .env("XDG_CONFIG_HOME", self.beside("home/config"))
    }

    /// Runs a verb with these arguments.
    pub fn verb<A: AsRef<std::ffi::OsStr>>(&self, words: &str, args: impl IntoIterator<Item = A>) -> Outcome {
        self.weft().args(words.split(' ')).args(args).run()
    }

    /// Runs a verb with `--json` that must succeed; what it printed.
    #[track_caller]
    pub fn json<A: AsRef<std::ffi::OsStr>>(&self, words: &str, args: impl IntoIterator<Item = A>) -> Value {
        let outcome = self.verb(&format!("{words} --json"), args);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        serde_json::from_str(&outcome.out).unwrap_or_else(|error| panic!("{error}: {}", outcome.out))
    }

    /// What `weft why` says under `fact` about a path; empty when it says nothing.
    #[track_caller]
    pub fn why(&self, path: &Path, fact: &str) -> String {
        let why = self.json("why", [path]);
        let facts = why["facts"].as_array().expect("a list of facts");
        let found = facts.iter().find(|found| found["name"] == fact);
        found.map(|found| found["value"].as_str().expect("a text").to_owned()).unwrap_or_default()
    }

    /// What `weft status` says.
    #[track_caller]
    pub fn status(&self) -> Value {
        self.json("status", [self.dir()])
    }

    /// One of the figures of `weft status`.
    #[track_caller]
    pub fn figure(&self, name: &str) -> u64 {
        self.status()["figures"][name].as_u64().unwrap_or_else(|| panic!("the figure {name}"))
    }

    /// The daemon's process.
    #[track_caller]
    pub fn daemon(&self) -> Pid {
        let pid = self.status()["daemon_pid"].as_i64().expect("a number");
        Pid::from_raw(pid as i32).expect("a process")
    }

    /// Tries to mount.
    pub fn try_mount(&self) -> Outcome {
        self.mounting(&[]).run()
    }

    /// Mounts by a process that stays, and waits until it serves: the supervisor, which ends with the mount.
    #[track_caller]
    pub fn stay(&self) -> Running {
        let mut supervisor = self.mounting(&["--foreground", "--ready", "stdout"]).start();
        let line = supervisor.line();
        assert!(line.contains("\"ready\":true"), "{line}");
        supervisor
    }

    fn mounting(&self, words: &[&str]) -> Program {
        let program = self.weft().arg("mount").args(words).arg("--cache").arg(self.cache());
        let mut program = program.arg("--config").arg(self.beside("weft.toml"));
        if !self.setup.options.is_empty() {
            program = program.arg("-o").arg(self.setup.options.join(","));
        }
        program.arg("--").arg(self.setup.source).arg(self.dir())
    }

    /// Mounts.
    #[track_caller]
    pub fn mount(&self) {
        let outcome = self.try_mount();
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
    }

    /// Unmounts as a user would.
    #[track_caller]
    pub fn umount(&self) {
        let daemon = Exit::of(self.daemon());
        let outcome = self.verb("umount", [self.dir()]);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert!(daemon.wait(), "the daemon ends when its mount has gone");
    }

    /// Unmounts, and mounts the same again.
    #[track_caller]
    pub fn remount(&self) {
        self.umount();
        self.mount();
    }

    /// Kills the daemon and, before it, its supervisor, which leaves a dead mount behind.
    #[track_caller]
    pub fn kill9(&self) {
        let pid = self.daemon();
        let daemon = Exit::of(pid);
        if let Some(pid) = supervisor_of(pid) {
            let supervisor = Exit::of(pid);
            kill_process(pid, Signal::KILL).expect("killed");
            assert!(supervisor.wait(), "nobody survives SIGKILL");
        }
        kill_process(pid, Signal::KILL).expect("killed");
        assert!(daemon.wait(), "nobody survives SIGKILL");
    }

    /// Kills the daemon alone, and waits until another one serves.
    #[track_caller]
    pub fn kill_daemon(&self) {
        let pid = self.daemon();
        let daemon = Exit::of(pid);
        kill_process(pid, Signal::KILL).expect("killed");
        assert!(daemon.wait(), "nobody survives SIGKILL");
        // Answered by a daemon alone.
        rustix::fs::statvfs(self.dir()).expect("another daemon answers");
        assert_ne!(self.daemon(), pid);
    }

    /// Aborts the connection to the kernel through the control file system, which root alone may write.
    #[track_caller]
    pub fn abort(&self) {
        let table = std::fs::read_to_string("/proc/self/mountinfo").expect("the kernel's table of mounts");
        let dir = self.dir().canonicalize().expect("what is above it is there");
        let words = table.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let ours = words.into_iter().find(|words| Path::new(words[4]) == dir).expect("it is mounted");
        let minor = ours[2].split_once(':').expect("two numbers").1;
        let control = self.beside("control");
        std::fs::create_dir(&control).expect("made");
        Program::new("mount").args(["-t", "fusectl", "none"]).arg(&control).good();
        let aborted = std::fs::write(control.join(minor).join("abort"), "1");
        Program::new("umount").arg(&control).good();
        aborted.expect("root may");
    }

    /// Whether the kernel shows a mount here.
    pub fn is_mounted(&self) -> bool {
        mounted(&self.dir())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let daemon = self.verb("status --json", [self.dir()]);
        let pid = serde_json::from_str::<Value>(&daemon.out).ok().and_then(|status| status["daemon_pid"].as_i64());
        let daemon = pid.and_then(|pid| Pid::from_raw(pid as i32)).map(|pid| (pid, Exit::of(pid)));
        if self.is_mounted() {
            let _ = self.verb("umount --lazy", [self.dir()]);
        }
        if self.is_mounted() {
            let _ = Program::new("umount").arg("-l").arg(self.dir()).run();
        }
        if let Some((pid, exit)) = daemon
            && !exit.wait()
        {
            if let Some(supervisor) = supervisor_of(pid) {
                let _ = kill_process(supervisor, Signal::KILL);
            }
            let _ = kill_process(pid, Signal::KILL);
        }
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.cache().join("weft.log")).unwrap_or_default();
            eprintln!("the daemon's log of {}:\n{log}", self.dir().display());
        }
    }
}

/// The process that has started a daemon, if it is a supervisor.
pub fn supervisor_of(daemon: Pid) -> Option<Pid> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.as_raw_nonzero())).ok()?;
    let parent: i32 = status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()?;
    let words = std::fs::read(format!("/proc/{parent}/cmdline")).ok()?;
    let is_ours = words.windows(12).any(|at| at == b"--foreground");
    Pid::from_raw(parent).filter(|_| is_ours)
}

/// Whether the kernel shows a mount at `dir`, without asking anything of the mount itself.
pub fn mounted(dir: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").expect("the kernel's table of mounts");
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    table.lines().any(|line| line.split(' ').nth(4).is_some_and(|at| Path::new(at) == dir))
}

/// The end of a process that is not our child.
pub struct Exit(Option<rustix::fd::OwnedFd>);

impl Exit {
    /// Of this process.
    pub fn of(pid: Pid) -> Exit {
        Exit(pidfd_open(pid, PidfdFlags::empty()).ok())
    }

    /// Waits for it; whether it came.
    pub fn wait(&self) -> bool {
        let Some(fd) = &self.0 else { return true };
        let mut fds = [PollFd::new(fd, PollFlags::IN)];
        let patience = Timespec { tv_sec: 20, tv_nsec: 0 };
        matches!(poll(&mut fds, Some(&patience)), Ok(1))
    }
}
