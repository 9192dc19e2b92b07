//! The cells of AFS that are written down on this machine.

use std::path::{Path, PathBuf};

use anyhow::Context;
use weft_afs::cell::CellName;
use weft_afs::cell_server_db::{CellAlias, CellServerDb, read_aliases, read_this_cell};

use crate::config::AfsSettings;

/// What the folder of `[afs] config_dir` says; what is not there says nothing.
pub struct Cells {
    /// CellServDB.
    pub known: CellServerDb,
    /// CellAlias.
    pub aliases: Vec<CellAlias>,
    /// Whether there is a CellServDB, whatever is in it.
    pub are_written: bool,
    dir: PathBuf,
}

impl Cells {
    /// Reads CellServDB and CellAlias.
    ///
    /// # Errors
    /// What cannot be read, by file and line.
    pub fn read(afs: &AfsSettings) -> anyhow::Result<Cells> {
        let dir = afs.config_dir();
        let mut cells = Cells { known: CellServerDb::default(), aliases: Vec::new(), are_written: false, dir };
        if let Some((path, bytes)) = file(&cells.dir, "CellServDB")? {
            cells.are_written = true;
            cells.known = CellServerDb::read(&bytes).with_context(|| path.display().to_string())?;
        }
        if let Some((path, bytes)) = file(&cells.dir, "CellAlias")? {
            cells.aliases = read_aliases(&bytes).with_context(|| path.display().to_string())?;
        }
        Ok(cells)
    }

    /// Where the cells are written down.
    pub fn cell_server_db(&self) -> PathBuf {
        self.dir.join("CellServDB")
    }

    /// A cell by its own name, where that was an alias.
    pub fn unaliased(&self, name: CellName) -> CellName {
        let alias = self.aliases.iter().find(|alias| alias.alias == name);
        alias.map_or(name, |alias| alias.cell.clone())
    }
}

/// The own cell of this machine; `None` where nobody has said which that is.
///
/// # Errors
/// When ThisCell cannot be read, or names none.
pub fn this_cell(afs: &AfsSettings) -> anyhow::Result<Option<CellName>> {
    let Some((path, bytes)) = file(&afs.config_dir(), "ThisCell")? else { return Ok(None) };
    Ok(Some(read_this_cell(&bytes).with_context(|| path.display().to_string())?))
}

fn file(dir: &Path, name: &str) -> anyhow::Result<Option<(PathBuf, Vec<u8>)>> {
    let path = dir.join(name);
    match std::fs::read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        outcome => {
            let bytes = outcome.with_context(|| path.display().to_string())?;
            Ok(Some((path, bytes)))
        }
    }
}
