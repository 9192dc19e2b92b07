//! The doors: programs that mount a file system answered from memory, each through another library or transport.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::process;

/// Where the doors' programs are: built by scripts/bench.sh, but for those that are missing.
#[derive(clap::Args, Debug, Default, Clone)]
pub struct DoorArgs {
    /// The example `door` of weft-fusedev
    #[arg(long)]
    door: Option<PathBuf>,
    /// The same through fuser
    #[arg(long)]
    fuser_door: Option<PathBuf>,
    /// libfuse's example `passthrough_ll`
    #[arg(long = "passthrough_ll")]
    passthrough_ll: Option<PathBuf>,
}

/// A way through the kernel's door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// weft's own crate over `/dev/fuse`.
    Classic,
    /// The same, kept on the first processor.
    ClassicOnFirst,
    /// weft's own crate over io_uring.
    Rings,
    /// fuser.
    Fuser,
    /// libfuse, which looks at a real directory for each answer.
    Libfuse,
}

/// A door that is mounted; taken away again in any case.
#[derive(Debug)]
pub struct Opened {
    place: PathBuf,
    child: Child,
}

impl Door {
    /// Mounts at a folder to be made. `disk` is a folder that has a file `memory`, for those who need one; `backing`
    /// a file for the kernel to read by itself. `None` when its program is missing.
    pub fn open(self, programs: &DoorArgs, place: &Path, disk: &Path, backing: &Path) -> Result<Option<Opened>> {
        std::fs::create_dir(place)?;
        let Some(mut command) = self.command(programs, place, disk, backing) else { return Ok(None) };
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let child = command.spawn().with_context(|| format!("{command:?}"))?;
        let mut opened = Opened { place: place.to_owned(), child };
        if matches!(self, Door::Fuser | Door::Libfuse) {
            process::wait_for_mount(&mut opened.child, place, PATIENCE)?;
        } else {
            let mut line = String::new();
            BufReader::new(opened.child.stdout.take().context("output")?).read_line(&mut line)?;
            ensure!(line == "ready\n", "{command:?}: it said {line:?}");
        }
        Ok(Some(opened))
    }

    fn command(self, programs: &DoorArgs, place: &Path, disk: &Path, backing: &Path) -> Option<Command> {
        let own = |words: &[&str], program: Command| {
            let mut command = program;
            command.args(words).arg(place).arg(backing);
            command
        };
        let mut command = match self {
            Door::Classic => own(&["classic"], Command::new(programs.door.as_ref()?)),
            Door::Rings => own(&["io_uring"], Command::new(programs.door.as_ref()?)),
            Door::ClassicOnFirst => {
                let mut command = Command::new("taskset");
                command.args(["-c", "0"]).arg(programs.door.as_ref()?);
                own(&["classic"], command)
            }
            Door::Fuser => {
                let mut command = Command::new(programs.fuser_door.as_ref()?);
                command.arg(place);
                command
            }
            Door::Libfuse => {
                let mut command = Command::new(programs.passthrough_ll.as_ref()?);
                let source = disk.display();
                command.arg("-f").arg("-o").arg(format!("source={source},timeout=0,cache=always")).arg(place);
                command
            }
        };
        command.stderr(Stdio::inherit());
        Some(command)
    }
}

impl Opened {
    /// A file behind it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.place.join(name)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // On the way out, of a failure maybe: this is the best that can be done.
        let _ = process::output(Command::new("umount").arg(&self.place));
        let _ = process::wait(&mut self.child, PATIENCE);
    }
}

/// io_uring for FUSE is switched on, and as it was again in the end.
#[derive(Debug)]
pub struct RingsOn(Option<Vec<u8>>);

impl RingsOn {
    /// Switches it on; `None` when the kernel has no such switch or does not let us.
    pub fn now() -> Option<RingsOn> {
        let before = std::fs::read(SWITCH).ok()?;
        if before.starts_with(b"Y") {
            return Some(RingsOn(None));
        }
        std::fs::write(SWITCH, "Y").ok()?;
        Some(RingsOn(Some(before)))
    }
}

impl Drop for RingsOn {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // It could be written a while ago.
            let _ = std::fs::write(SWITCH, before);
        }
    }
}

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";
/// Longest wait for a mount or its end.
const PATIENCE: Duration = Duration::from_secs(20);
