//! Who is measured: two clients of the cell, and the disk.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use super::{Bench, Cost};
use crate::{contender, process};

/// Whoever gives programs their files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// Ours.
    Weft,
    /// OpenAFS's in user space.
    Afsd,
    /// The disk of this machine, without a cell.
    Ext4,
}

/// A place where files are, with its client. It is taken away with this value.
#[derive(Debug)]
pub struct Place<'a> {
    bench: &'a Bench,
    client: Client,
    /// The mount point.
    mount: PathBuf,
    /// The content: trees of the sample; anything may be made here.
    pub top: PathBuf,
    pid: Option<u32>,
    child: Option<Child>,
    up: bool,
}

impl Client {
    /// As it is called.
    pub fn name(self) -> &'static str {
        match self {
            Client::Weft => "weft",
            Client::Afsd => "afsd.fuse",
            Client::Ext4 => "ext4",
        }
    }

    /// The node of the cell that it has.
    fn node(self) -> &'static str {
        if self == Client::Weft { "c1" } else { "c2" }
    }

    /// Starts it with an empty cache, and finds the way to the volume, but nothing in it.
    pub fn start(self, bench: &Bench) -> Result<Place<'_>> {
        self.start_at(bench, self.node())
    }

    /// Somebody on another machine, for whom the same files are in another place.
    pub fn start_other(self, bench: &Bench) -> Result<Place<'_>> {
        match self {
            Client::Weft => Client::Weft.start_at(bench, Client::Afsd.node()),
            Client::Afsd => Client::Weft.start(bench),
            Client::Ext4 => Client::Ext4.start(bench),
        }
    }

    /// The same in the network of another node.
    pub fn start_at<'a>(self, bench: &'a Bench, node: &str) -> Result<Place<'a>> {
        let (mount, cache) = (bench.fresh("mount"), bench.fresh("cache"));
        std::fs::create_dir_all(&mount)?;
        let mut place =
            Place { bench, client: self, top: mount.join(VOLUME), mount, pid: None, child: None, up: false };
        match self {
            Client::Weft => place.start_weft(node, &cache)?,
            Client::Afsd => place.start_afsd(node, &cache)?,
            Client::Ext4 => {
                place.top = bench.trees.top.clone();
                return Ok(place);
            }
        }
        let names = std::fs::read_dir(&place.top).with_context(|| place.top.display().to_string())?;
        names.collect::<std::io::Result<Vec<_>>>()?;
        Ok(place)
    }
}

impl Place<'_> {
    fn start_weft(&mut self, node: &str, cache: &Path) -> Result<()> {
        let mut command = self.bench.cell.command_at(node, &self.bench.weft);
        command.args(["mount", "--json", "--cache"]).arg(cache).arg("--config").arg(&self.bench.config);
        self.pid = Some(contender::started(command.arg("afs").arg(&self.mount))?);
        self.up = true;
        Ok(())
    }

    fn start_afsd(&mut self, node: &str, cache: &Path) -> Result<()> {
        std::fs::create_dir_all(cache)?;
        let mut command = self.bench.cell.command_at(node, Path::new("afsd.fuse"));
        command.arg("-confdir").arg(self.bench.cell.client_configuration()).arg("-cachedir").arg(cache);
        command.arg("-mountdir").arg(&self.mount).args(["-dynroot", "-fakestat", "-blocks", CACHE_KIB, "-f"]);
        let log = std::fs::File::create(self.mount.with_extension("log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = self.child.insert(command.spawn().context("afsd.fuse")?);
        self.pid = Some(child.id());
        process::wait_for_mount(child, &self.mount, PATIENCE)?;
        self.up = true;
        Ok(())
    }

    /// What a step costs here.
    pub fn cost(&self, command: &mut Command) -> Result<Cost> {
        self.bench.cost(self.pid, command)
    }

    /// Ends it and waits until it has.
    pub fn end(mut self) -> Result<()> {
        match self.client {
            Client::Weft => process::output(Command::new(&self.bench.weft).arg("umount").arg(&self.mount))?,
            Client::Afsd => process::output(Command::new("fusermount3").arg("-u").arg(&self.mount))?,
            Client::Ext4 => return Ok(()),
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

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.up {
            // Already on the way out of a failure: this is the best that can be done.
            let _ = process::output(Command::new("fusermount3").arg("-uz").arg(&self.mount));
        }
        self.end_child();
    }
}

/// Where the volume of the sample is mounted.
const VOLUME: &str = "weft.test/scratch";
/// The cache that afsd.fuse may have: more than all that is read.
const CACHE_KIB: &str = "2000000";
/// Longest wait for a mount or its end.
const PATIENCE: Duration = Duration::from_secs(20);
