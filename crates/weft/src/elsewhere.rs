//! Other places of a mount: bind mounts of it, and mount namespaces of other processes, which have what was there when they
//! were made.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use weft_control::Mounts;

use crate::users;

/// Where a mount can still be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The mount point.
    pub path: PathBuf,
    /// A process that sees it there; `None` when this one does.
    pub process: Option<u32>,
    /// Its name.
    name: String,
}

/// The places of the mount with this connection, as far as this process may look: its own, and one in each other namespace.
pub fn places_of(connection: u32) -> Vec<Place> {
    let namespace = |process: &Path| std::fs::read_link(process.join("ns/mnt")).ok();
    let own = Mounts::of_this_process().unwrap_or_default().place_of(connection).map(PathBuf::from);
    let mut places: Vec<Place> =
        own.into_iter().map(|path| Place { path, process: None, name: String::new() }).collect();
    let mut seen: BTreeSet<PathBuf> = namespace(Path::new("/proc/self")).into_iter().collect();
    for (pid, process) in users::processes() {
        let is_new = namespace(&process).is_some_and(|namespace| seen.insert(namespace));
        let Some(mounts) = is_new.then(|| Mounts::of_process(pid).ok()).flatten() else { continue };
        if let Some(path) = mounts.place_of(connection) {
            places.push(Place { path: path.to_owned(), process: Some(pid), name: users::name_of(&process) });
        }
    }
    places
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match self.process {
            None => write!(f, "it is mounted on {path} as well, and its daemon serves on: `umount {path}`"),
            Some(process) => write!(
                f,
                "{} (process {process}) has it in a mount namespace of its own, and its daemon serves on: \
                 `nsenter --mount --target {process} umount {path}`",
                self.name
            ),
        }
    }
}
