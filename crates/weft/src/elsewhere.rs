//! Other places of a mount: bind mounts of it, and mount namespaces of other processes, which have what was there when they
//! were made.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

use weft_control::Mounts;

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
    let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    let own = Mounts::of_this_process().unwrap_or_default().place_of(connection).map(PathBuf::from);
    let mut places: Vec<Place> =
        own.into_iter().map(|path| Place { path, process: None, name: String::new() }).collect();
    let mut seen: BTreeSet<PathBuf> = namespace("self").into_iter().collect();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    for process in processes {
        let is_new = namespace(&process.to_string()).is_some_and(|namespace| seen.insert(namespace));
        let Some(mounts) = is_new.then(|| Mounts::of_process(process).ok()).flatten() else { continue };
        if let Some(path) = mounts.place_of(connection) {
            let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
            let name = name.trim_end().escape_debug().to_string();
            places.push(Place { path: path.to_owned(), process: Some(process), name });
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
