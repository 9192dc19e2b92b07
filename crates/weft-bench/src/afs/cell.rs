//! The cell: brought up and ended by scripts/afs-cell.sh, which tells what is in it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::process;

/// A running cell; it ends with this value.
#[derive(Debug)]
pub struct Cell {
    scripts: PathBuf,
    dir: PathBuf,
    id: String,
}

impl Cell {
    /// Brings one up; everything it keeps is in `dir`, which is made.
    pub fn up(scripts: &Path, dir: &Path) -> Result<Cell> {
        let scripts = scripts.canonicalize().with_context(|| scripts.display().to_string())?;
        // Made before: where it does not come up it is taken down as well.
        let mut cell = Cell { scripts, dir: dir.to_owned(), id: String::new() };
        process::output(cell.script("up").arg(dir))?;
        let id = dir.join("id");
        cell.id = std::fs::read_to_string(&id).with_context(|| id.display().to_string())?.trim().to_owned();
        Ok(cell)
    }

    /// The folder with a client's ThisCell and CellServDB.
    pub fn client_configuration(&self) -> PathBuf {
        self.dir.join("client")
    }

    /// The name of a node's network; also of one that is not of the cell itself.
    pub fn network(&self, node: &str) -> String {
        format!("weft-{}-{node}", self.id)
    }

    /// A program in the network of a node; arguments may be added. It is that process that the system starts.
    pub fn command_at(&self, node: &str, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.network(node))).arg(program);
        command
    }

    /// Gives a volume this content, for anybody to read and write. `dump` is a file to be made.
    pub fn fill(&self, volume: &str, content: &Path, dump: &Path) -> Result<()> {
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$1\" --name \"$2\" --acl \"$3\" >\"$4\""]);
        command.arg(self.scripts.join("afs-dump.py")).arg(content).args([volume, RIGHTS]).arg(dump);
        process::output(&mut command)?;
        let restore = ["vos", "restore", "fs1", "a", volume, "-overwrite", "full", "-localauth", "-file"];
        process::output(self.script("on").arg(&self.dir).arg("fs1").args(restore).arg(dump))?;
        Ok(std::fs::remove_file(dump)?)
    }

    fn script(&self, verb: &str) -> Command {
        let mut command = Command::new(self.scripts.join("afs-cell.sh"));
        command.arg(verb);
        command
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        if let Err(error) = process::output(self.script("down").arg(&self.dir)) {
            eprintln!("the cell in {} was not taken down: {error:#}", self.dir.display());
        }
    }
}

/// Everything but changing these rights.
const RIGHTS: &str = "anyuser:rlidwk,admins:rlidwka";
