//! OpenAFS's own client, `afsd.fuse`: another cache that sees and makes changes.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Running;
use super::afs_cell::AfsCell;
use super::process::{Program, find_program, without};

/// A mount by OpenAFS's own client on a node of a cell. It ends when this is dropped.
pub struct Afsd {
    folder: tempfile::TempDir,
    process: Option<Running>,
}

impl Afsd {
    /// Mounts. `None`, with a line that says so, where that client is not here.
    #[track_caller]
    pub fn mount(cell: &AfsCell, node: &str) -> Option<Afsd> {
        if find_program("afsd.fuse").is_none() || !Path::new("/dev/fuse").exists() {
            without("OpenAFS's own client needs openafs-fuse and /dev/fuse");
            return None;
        }
        let folder = tempfile::Builder::new().prefix("wt-afsd-").tempdir().expect("a temporary folder");
        for name in ["mnt", "cache"] {
            std::fs::create_dir(folder.path().join(name)).expect("made");
        }
        let (cache, dir) = (folder.path().join("cache"), folder.path().join("mnt"));
        let program = Program::words(&cell.words(node)).arg("afsd.fuse").arg("-confdir").arg(cell.client_config());
        let program = program.arg("-cachedir").arg(cache).arg("-mountdir").arg(&dir);
        let process = Some(program.args(["-dynroot", "-fakestat", "-f"]).start());
        let afsd = Afsd { folder, process };
        let device = |path: &Path| std::fs::metadata(path).expect("a folder").dev();
        for _ in 0..UP_TRIES_MAX {
            if device(&dir) != device(afsd.folder.path()) {
                return Some(afsd);
            }
            // Only between two looks at what nobody tells of.
            std::thread::park_timeout(Duration::from_millis(10));
        }
        panic!("OpenAFS's own client does not mount");
    }

    /// The mount point.
    pub fn dir(&self) -> PathBuf {
        self.folder.path().join("mnt")
    }
}

impl Drop for Afsd {
    fn drop(&mut self) {
        let _ = Program::new("fusermount3").arg("-u").arg(self.dir()).run();
        // Until it has ended it writes to its cache.
        self.process.take().map(Running::end);
    }
}

const UP_TRIES_MAX: usize = 3000;
