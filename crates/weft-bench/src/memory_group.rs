//! A group of processes that may have so much memory together, files that the system keeps for them counted in: a
//! memory cgroup, of either version.
//!
//! Whoever touches a page of a file first has it counted; what was there before costs the group nothing. So caches are
//! dropped when a group has been made.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

/// A group; its processes are ended with it.
#[derive(Debug)]
pub struct MemoryGroup {
    dir: PathBuf,
}

/// How the system has memory groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Version {
    fn of_this_system() -> Option<Version> {
        if Path::new(TOP_OF_ONE).join(LIMIT_OF_ONE).exists() {
            return Some(Version::One);
        }
        let controllers = std::fs::read_to_string(Path::new(TOP_OF_TWO).join("cgroup.controllers")).ok()?;
        controllers.split_whitespace().any(|name| name == "memory").then_some(Version::Two)
    }

    fn top(self) -> &'static Path {
        Path::new(if self == Version::One { TOP_OF_ONE } else { TOP_OF_TWO })
    }
}

impl MemoryGroup {
    /// Why there can be none here; `None` when there can.
    pub fn missing() -> Option<String> {
        MemoryGroup::new(64 << 20).err().map(|error| format!("{error:#}"))
    }

    /// One of so much memory.
    pub fn new(bytes: u64) -> Result<MemoryGroup> {
        let version = Version::of_this_system().context("the system has no memory cgroups")?;
        if version == Version::Two {
            // Refused where the top is no real top and has processes of its own.
            let control = version.top().join("cgroup.subtree_control");
            std::fs::write(&control, "+memory").with_context(|| control.display().to_string())?;
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = version.top().join(format!("weft-bench-{}-{number}", std::process::id()));
        std::fs::create_dir(&dir).with_context(|| dir.display().to_string())?;
        let group = MemoryGroup { dir };
        let limit = group.dir.join(if version == Version::One { LIMIT_OF_ONE } else { "memory.max" });
        std::fs::write(&limit, bytes.to_string()).with_context(|| limit.display().to_string())?;
        Ok(group)
    }

    /// Where the system shows it.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A program that is in the group before it begins; arguments may be added.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(self.members_file()).arg(program);
        command
    }

    fn members_file(&self) -> PathBuf {
        self.dir.join("cgroup.procs")
    }

    fn members(&self) -> Vec<Pid> {
        let text = std::fs::read_to_string(self.members_file()).unwrap_or_default();
        text.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)).collect()
    }

    /// Waits until nobody is left, and takes the group away.
    pub fn end(self) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while !self.members().is_empty() {
            ensure!(Instant::now() < end, "{}: processes are left: {:?}", self.dir.display(), self.members());
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let end = Instant::now() + PATIENCE;
        // Whoever is in it was started by this program, or by such a one.
        while !self.members().is_empty() && Instant::now() < end {
            for pid in self.members() {
                let _ = kill_process(pid, Signal::KILL);
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        let _ = std::fs::remove_dir(&self.dir);
    }
}

static COUNT: AtomicU32 = AtomicU32::new(0);
const TOP_OF_ONE: &str = "/sys/fs/cgroup/memory";
const TOP_OF_TWO: &str = "/sys/fs/cgroup";
const LIMIT_OF_ONE: &str = "memory.limit_in_bytes";
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
