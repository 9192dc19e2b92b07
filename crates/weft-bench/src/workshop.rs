//! The workshop: folders, the server, and the programs that are there.

use std::cell::Cell;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::contender::{Contender, Mounted};
use crate::machine::said;
use crate::process;
use crate::sample::Sample;
use crate::server::{Server, Site, nginx};

/// Where everything is measured.
#[derive(Debug)]
pub struct Workshop {
    weft: PathBuf,
    dir: PathBuf,
    /// The trees on disk.
    pub sample: Sample,
    /// The server of all of them.
    pub server: Server,
    /// The tree of small files, served.
    pub small: Site,
    /// The large file, served.
    pub large: Site,
    /// Many names in one folder, served.
    pub flat: Site,
    /// Many names in folders, served.
    pub folders: Site,
    /// The rivals that are installed.
    pub rivals: Vec<Contender>,
    places: Cell<usize>,
}

impl Workshop {
    /// Starts the server; the trees are made by the tables that need them.
    pub fn set_up(weft: &Path, dir: &Path) -> Result<Workshop> {
        let weft = weft.canonicalize().with_context(|| format!("{}: not built?", weft.display()))?;
        let dir = dir.canonicalize().with_context(|| dir.display().to_string())?;
        ensure!(dir.read_dir()?.next().is_none(), "{}: not empty", dir.display());
        let sample = Sample::below(&dir.join("sample"));
        let served = [&sample.small, &sample.large, &sample.flat, &sample.folders].map(PathBuf::as_path);
        let (server, sites) = Server::start(&dir.join("server"), &served)?;
        let [small, large, flat, folders] = sites[..] else { unreachable!("a site for each of four folders") };
        let rivals = [Contender::Rclone, Contender::Httpdirfs];
        let rivals = rivals.into_iter().filter(|rival| installed(rival.name())).collect();
        Ok(Workshop { weft, dir, sample, server, small, large, flat, folders, rivals, places: Cell::new(0) })
    }

    /// Mounts with a cache of its own name below the workshop.
    ///
    /// Small files are not deleted between rounds: ext4 is slow for a while after many deletions.
    pub fn mount(&self, contender: Contender, site: Site, cache: &Path) -> Result<Mounted> {
        self.mount_with(contender, site, cache, &[])
    }

    /// The same with further options of weft's.
    pub fn mount_with(&self, contender: Contender, site: Site, cache: &Path, options: &[&str]) -> Result<Mounted> {
        self.settle_disk()?;
        contender.mount(&self.weft, site, &self.fresh("mount"), cache, options)
    }

    /// Mounts a directory of this machine.
    pub fn mount_directory(&self, top: &Path, options: &[&str]) -> Result<Mounted> {
        self.settle_disk()?;
        Mounted::of_directory(&self.weft, top, &self.fresh("mount"), &self.fresh("cache"), options)
    }

    /// A path that nothing has had before.
    pub fn fresh(&self, what: &str) -> PathBuf {
        self.places.set(self.places.get() + 1);
        self.dir.join(format!("{what}-{}", self.places.get()))
    }

    /// Writes back what was written before, so that one contender does not pay for another.
    pub fn settle_disk(&self) -> Result<()> {
        rustix::fs::syncfs(File::open(&self.dir)?).context("syncfs")
    }

    /// Takes memory from the machine and gives it back.
    ///
    /// A virtual machine is slow to get memory that it has never touched: without this the first to fill the page
    /// cache would pay for all.
    pub fn touch_memory(&self) -> Result<()> {
        let path = self.fresh("touched");
        let mut file = File::create(&path)?;
        let block = vec![1; 1 << 20];
        for _ in 0..TOUCHED_MIB {
            file.write_all(&block)?;
        }
        Ok(std::fs::remove_file(path)?)
    }

    /// Whether a rival is there.
    pub fn has(&self, rival: Contender) -> bool {
        self.rivals.contains(&rival)
    }

    /// Lets a daemon finish what it does behind its reader's back, so that its cost is counted whole.
    pub fn settle_daemon(&self) {
        std::thread::sleep(AFTERWARDS);
    }

    /// What is measured, for the report.
    pub fn versions(&self) -> Vec<String> {
        let mut versions = vec![
            said(Command::new(&self.weft).arg("--version")),
            nginx().map_or_else(|_| "no nginx".to_owned(), |nginx| said(Command::new(nginx).arg("-v"))),
            said(Command::new("curl").arg("--version")).split(" (").next().unwrap_or_default().to_owned(),
        ];
        if self.has(Contender::Rclone) {
            versions.push(said(Command::new("rclone").arg("version")));
        }
        if self.has(Contender::Httpdirfs) {
            let text = process::output(Command::new("httpdirfs").arg("--version")).unwrap_or_default();
            versions.extend(text.lines().find(|line| line.starts_with("HTTPDirFS")).map(str::to_owned));
        }
        versions
    }
}

fn installed(program: &str) -> bool {
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&on_path).any(|place| place.join(program).is_file())
}

/// What one round of the large file fills.
const TOUCHED_MIB: usize = 2500;
/// Counted as part of a run, for every daemon alike; in no time that is shown.
const AFTERWARDS: Duration = Duration::from_millis(300);
