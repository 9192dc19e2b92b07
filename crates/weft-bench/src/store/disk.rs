//! What the disk is asked for, and making sure that nothing answers in its place.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{fstat, major, minor};

/// The disk below a folder.
#[derive(Debug)]
pub struct Disk {
    statistics: PathBuf,
    dir: PathBuf,
}

impl Disk {
    /// The disk that holds a folder.
    pub fn below(dir: &Path) -> Result<Disk> {
        let device = fstat(File::open(dir)?)?.st_dev;
        let statistics = PathBuf::from(format!("/sys/dev/block/{}:{}/stat", major(device), minor(device)));
        Ok(Disk { statistics, dir: dir.to_owned() })
    }

    /// Reads that the disk has done, for whomever; `None` where the system does not tell.
    pub fn reads(&self) -> Option<f64> {
        let text = std::fs::read_to_string(&self.statistics).ok()?;
        text.split_whitespace().next()?.parse().ok()
    }

    /// Writes back what was written.
    pub fn settle(&self) -> Result<()> {
        rustix::fs::syncfs(File::open(&self.dir)?).context("syncfs")
    }

    /// Empties the system's caches of files and names.
    pub fn forget(&self) -> Result<()> {
        self.settle()?;
        std::fs::write("/proc/sys/vm/drop_caches", "3").context("dropping caches takes root")
    }
}
