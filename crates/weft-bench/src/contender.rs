//! The contenders that mount: how each is started, found and stopped.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::memory_group::MemoryGroup;
use crate::process;
use crate::server::Site;

/// A program that mounts a web site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contender {
    /// Ours.
    Weft,
    /// `rclone mount` of its http backend, with a full cache.
    Rclone,
    /// httpdirfs with its cache.
    Httpdirfs,
}

/// A mount that is taken away again in any case.
#[derive(Debug)]
pub struct Mounted {
    contender: Contender,
    weft: PathBuf,
    place: PathBuf,
    /// The site's top directory.
    pub root: PathBuf,
    /// The daemon.
    pub pid: u32,
    child: Option<Child>,
    up: bool,
}

impl Contender {
    /// As it is called.
    pub fn name(self) -> &'static str {
        match self {
            Contender::Weft => "weft",
            Contender::Rclone => "rclone",
            Contender::Httpdirfs => "httpdirfs",
        }
    }

    /// Mounts a site at an empty folder, with its cache in another; `options` are for weft alone.
    pub fn mount(self, weft: &Path, site: Site, place: &Path, cache: &Path, options: &[&str]) -> Result<Mounted> {
        std::fs::create_dir_all(place)?;
        std::fs::create_dir_all(cache)?;
        let place = place.canonicalize()?;
        let mut mounted =
            Mounted { contender: self, weft: weft.into(), root: place.clone(), place, pid: 0, child: None, up: false };
        match self {
            Contender::Weft => mounted.start_weft(site, cache, options)?,
            Contender::Rclone => {
                let mut command = Command::new("rclone");
                command.args(["mount", "--config", "", "--http-url"]).arg(site.url()).arg(":http:");
                command.arg(&mounted.place).args(["--vfs-cache-mode", "full", "--cache-dir"]).arg(cache);
                mounted.start(command)?;
            }
            Contender::Httpdirfs => {
                let mut command = Command::new("httpdirfs");
                command.args(["-f", "--cache", "--no-range-check", "--cache-location"]).arg(cache);
                command.arg(site.url()).arg(&mounted.place);
                mounted.start(command)?;
            }
        }
        Ok(mounted)
    }
}

impl Mounted {
    /// Has weft mount a directory of this machine, at an empty folder.
    pub fn of_directory(weft: &Path, top: &Path, place: &Path, cache: &Path, options: &[&str]) -> Result<Mounted> {
        Mounted::of_directory_by(Command::new(weft), weft, [top, place, cache], options)
    }

    /// The same with its daemon in a memory group; `places` are the directory, the empty folder and the cache.
    pub fn of_directory_in(group: &MemoryGroup, weft: &Path, places: [&Path; 3], options: &[&str]) -> Result<Mounted> {
        Mounted::of_directory_by(group.command(weft), weft, places, options)
    }

    fn of_directory_by(
        mut command: Command,
        weft: &Path,
        [top, place, cache]: [&Path; 3],
        options: &[&str],
    ) -> Result<Mounted> {
        std::fs::create_dir_all(place)?;
        std::fs::create_dir_all(cache)?;
        let place = place.canonicalize()?;
        let contender = Contender::Weft;
        let mut mounted =
            Mounted { contender, weft: weft.into(), root: place.clone(), place, pid: 0, child: None, up: false };
        command.args(["mount", "--json", "--cache"]).arg(cache).args(options);
        command.arg(format!("dir:{}", top.display())).arg(&mounted.place);
        mounted.pid = started(&mut command)?;
        mounted.up = true;
        Ok(mounted)
    }

    fn start_weft(&mut self, site: Site, cache: &Path, options: &[&str]) -> Result<()> {
        let mut command = Command::new(&self.weft);
        command.args(["mount", "--json", "--cache"]).arg(cache).args(options).arg(&self.place);
        self.pid = started(&mut command)?;
        self.up = true;
        self.root = self.place.join("web").join(site.authority());
        Ok(())
    }

    /// Starts a daemon that stays in the foreground and waits for its mount.
    fn start(&mut self, mut command: Command) -> Result<()> {
        let log = std::fs::File::create(self.place.with_extension("log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = self.child.insert(command.spawn().with_context(|| format!("{command:?}"))?);
        self.pid = child.id();
        process::wait_for_mount(child, &self.place, PATIENCE)?;
        self.up = true;
        Ok(())
    }

    /// Takes the mount away and waits for the daemon's end.
    pub fn unmount(mut self) -> Result<()> {
        match self.contender {
            Contender::Weft => process::output(Command::new(&self.weft).arg("umount").arg(&self.place))?,
            _ => process::output(Command::new("fusermount3").arg("-u").arg(&self.place))?,
        };
        self.up = false;
        self.end_child();
        Ok(())
    }

    fn end_child(&mut self) {
        if let Some(mut child) = self.child.take() {
            // One that does not end by itself is killed there: nobody waits for its cache.
            let _ = process::wait(&mut child, PATIENCE);
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.up {
            // Already on the way out of a failure: this is the best that can be done.
            let _ = process::output(Command::new("fusermount3").arg("-uz").arg(&self.place));
        }
        self.end_child();
    }
}

/// Runs `weft mount`; the daemon.
pub fn started(command: &mut Command) -> Result<u32> {
    let said = process::output(command)?;
    let said: serde_json::Value = serde_json::from_str(&said).with_context(|| format!("weft said {said}"))?;
    Ok(u32::try_from(said["daemon_pid"].as_u64().context("daemon_pid")?)?)
}

/// Longest wait for a mount or its end.
const PATIENCE: Duration = Duration::from_secs(20);
