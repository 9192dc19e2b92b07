//! The model of a disk that turns as a block device, so that any file system can lie on it: the file that
//! [`serve`] serves, below a loop device with direct I/O.
//!
//! Nothing of it outlives the program, however that ends: the loop device is told to go with its last user, the server
//! ends with its standard input, and all mounts are made in a mount namespace of the program's own, which goes with its
//! last process.

mod serve;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
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

/// What a disk was asked.
#[derive(Clone, Copy, Debug)]
pub struct Requests {
    /// Reads.
    pub reads: u64,
    /// Of these the reads of what is watched.
    pub watched_reads: u64,
    /// Writes.
    pub writes: u64,
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

    /// Counts the reads of a file on it, where that lies now, apart as well.
    pub fn watch(&mut self, file: &Path) -> Result<()> {
        let said = process::output(Command::new("filefrag").args(["-v", &format!("-b{BLOCK_BYTES}")]).arg(file))?;
        for extent in said.lines().filter_map(extent_of) {
            self.server.tell(&format!("watch {} {}", extent.start, extent.end - extent.start))?;
            self.server.expect("done")?;
        }
        Ok(())
    }

    /// What the disk was asked since this was called last.
    pub fn requests(&mut self) -> Result<Requests> {
        self.server.tell("requests")?;
        let line = self.server.answer()?;
        let numbers = line.split(' ').map(str::parse).collect::<Result<Vec<u64>, _>>()?;
        let [reads, writes, watched_reads] = numbers[..] else { bail!("not three numbers: {line}") };
        Ok(Requests { reads, watched_reads, writes })
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

/// Where on the device an extent lies, in bytes, of a line of `filefrag -v`: `0: 0.. 9: 1024.. 1033: 10: flags`.
fn extent_of(line: &str) -> Option<Range<u64>> {
    let mut fields = line.split(':');
    let _number: u64 = fields.next()?.trim().parse().ok()?;
    let (first, last) = fields.nth(1)?.split_once("..")?;
    let (first, last): (u64, u64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    Some(first * BLOCK_BYTES..(last + 1) * BLOCK_BYTES)
}

const BLOCK_BYTES: u64 = 4096;
/// How long the server may take to end.
const PATIENCE: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_are_read() {
        let said = " ext:     logical_offset:        physical_offset: length:   expected: flags:\n   \
                    0:        0..       1:       1000..      1001:      2:             last,eof\n\
                    /a: 1 extent found\n";
        let mut extents = said.lines().filter_map(extent_of);
        assert_eq!(extents.next(), Some(1000 * 4096..1002 * 4096));
        assert_eq!(extents.next(), None);
    }
}
