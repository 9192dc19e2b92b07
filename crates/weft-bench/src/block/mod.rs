//! The model of a disk that turns as a block device, so that any file system can lie on it: the file that
//! [`serve`] serves, below a loop device with direct I/O.
//!
//! Nothing of it outlives the program, however that ends: the loop device is told to go with its last user, the server
//! ends with its standard input, and all mounts are made in a mount namespace of the program's own, which goes with its
//! last process.

mod serve;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

pub use serve::{ServeArgs, run};

use crate::process;

/// A block device as slow as a disk that turns.
#[derive(Debug)]
pub struct BlockDisk {
    /// Where the device is.
    pub device: PathBuf,
    /// The device has a user as long as this is open.
    opened: Option<File>,
    server: Server,
}

/// The process that serves the file.
#[derive(Debug)]
struct Server {
    child: Child,
    words: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    place: PathBuf,
}

/// How fast the disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As the model says.
    Turning,
    /// As fast as it can: to fill it.
    Free,
}

impl BlockDisk {
    /// Why there can be none here; `None` when there can.
    pub fn missing() -> Option<String> {
        if !rustix::process::geteuid().is_root() {
            return Some("block devices and mounts take root".to_owned());
        }
        let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
        if namespace("self").is_none() || namespace("self") == namespace("1") {
            let how = "start it with `unshare --mount --propagation private`";
            return Some(format!("mounts are made in a mount namespace of their own only: {how}"));
        }
        let there = |path: &&str| !Path::new(path).exists();
        let missing = ["/dev/fuse", "/dev/loop-control"].into_iter().find(there);
        missing.map(|path| format!("{path} is missing"))
    }

    /// One of `bytes` bytes, the first part of a disk of `disk_bytes`, whose bytes lie in a folder.
    pub fn new(dir: &Path, bytes: u64, disk_bytes: u64) -> Result<BlockDisk> {
        let mut server = Server::start(dir, bytes, disk_bytes)?;
        server.expect("ready")?;
        let mut losetup = Command::new("losetup");
        losetup.args(["--find", "--show", "--direct-io=on"]).arg(server.place.join("disk"));
        let device = PathBuf::from(process::output(&mut losetup)?.trim());
        // From here on it is this file alone that keeps it: losetup -d lets it go with its last user.
        let opened = File::open(&device).with_context(|| device.display().to_string());
        process::output(Command::new("losetup").arg("--detach").arg(&device))?;
        let disk = BlockDisk { opened: Some(opened?), server, device };
        let name = disk.device.file_name().and_then(|name| name.to_str()).context("a name in UTF-8")?;
        let direct = std::fs::read_to_string(format!("/sys/block/{name}/loop/dio"))?;
        ensure!(direct.trim() == "1", "{}: the system does no direct I/O here", disk.device.display());
        Ok(disk)
    }

    /// How fast it is from now on.
    pub fn set_pace(&mut self, pace: Pace) -> Result<()> {
        self.server.tell(if pace == Pace::Turning { "slow" } else { "fast" })?;
        self.server.expect("done")
    }

    /// Reads and writes of the disk since this was asked last.
    pub fn requests(&mut self) -> Result<(u64, u64)> {
        self.server.tell("requests")?;
        let line = self.server.answer()?;
        let (reads, writes) = line.split_once(' ').context("two numbers")?;
        Ok((reads.parse()?, writes.parse()?))
    }
}

impl Drop for BlockDisk {
    fn drop(&mut self) {
        drop(self.opened.take());
        // The server ends now; the device has gone by then, or fails whoever still uses it.
        drop(self.server.words.take());
        let _ = process::wait(&mut self.server.child, PATIENCE);
    }
}

impl Server {
    fn start(dir: &Path, bytes: u64, disk_bytes: u64) -> Result<Server> {
        let (file, place) = (dir.join("bytes"), dir.join("served"));
        std::fs::create_dir(&place)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("turning-disk").arg("--file").arg(&file).arg("--at").arg(&place);
        command.arg("--bytes").arg(bytes.to_string()).arg("--disk-bytes").arg(disk_bytes.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (words, answers) = (child.stdin.take(), child.stdout.take().context("an output")?);
        Ok(Server { child, words, answers: BufReader::new(answers), place })
    }

    fn tell(&mut self, word: &str) -> Result<()> {
        let words = self.words.as_mut().context("an input")?;
        Ok(writeln!(words, "{word}")?)
    }

    fn answer(&mut self) -> Result<String> {
        let mut line = String::new();
        let count = self.answers.read_line(&mut line)?;
        ensure!(count > 0, "the disk's server has ended");
        Ok(line.trim().to_owned())
    }

    fn expect(&mut self, word: &str) -> Result<()> {
        match self.answer()? {
            answer if answer == word => Ok(()),
            answer => bail!("the disk's server says {answer}"),
        }
    }
}

/// A file system that is mounted, until this is dropped.
#[derive(Debug)]
pub struct Mounted(PathBuf);

impl Mounted {
    /// Mounts a device on a folder.
    pub fn new(kind: &str, device: &Path, place: &Path) -> Result<Mounted> {
        process::output(Command::new("mount").args(["-t", kind, "-o", "noatime"]).arg(device).arg(place))?;
        Ok(Mounted(place.to_owned()))
    }

    /// Takes it away, with everything written.
    pub fn end(self) -> Result<()> {
        process::output(Command::new("umount").arg(&self.0))?;
        std::mem::forget(self);
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = process::output(Command::new("umount").arg("--lazy").arg(&self.0));
    }
}

/// How long the server may take to end.
const PATIENCE: Duration = Duration::from_secs(20);
