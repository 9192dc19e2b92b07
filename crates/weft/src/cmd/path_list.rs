//! A list of paths for `weft warm`: one per line, relative to the mount or absolute within it, or URLs.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use weft_control::{Mounts, PathBytes, resolve_without_entering};

use crate::config::Source;

/// A line that names nothing in the mount.
#[derive(Debug, PartialEq, Eq)]
pub struct BadLine {
    /// Counted from one.
    pub number: usize,
    /// What is wrong with it.
    pub why: String,
}

/// What lines are read against.
pub struct Against<'a> {
    /// The mount's root.
    pub mountpoint: &'a Path,
    /// What is mounted, as `weft status` says.
    pub source: &'a Source,
}

/// Reads a file, or standard input for `-`.
///
/// # Errors
/// The system's.
pub fn read(file: &Path) -> std::io::Result<Vec<u8>> {
    if file == Path::new("-") {
        let mut all = Vec::new();
        std::io::stdin().lock().read_to_end(&mut all)?;
        return Ok(all);
    }
    std::fs::read(file)
}

/// The first line that is a path in some mount, for finding out which mount a list is about.
pub fn first_absolute(list: &[u8]) -> Option<PathBuf> {
    let lines = list.split(|byte| *byte == b'\n').map(|line| line.trim_ascii());
    lines.into_iter().find(|line| line.starts_with(b"/")).map(|line| PathBuf::from(OsStr::from_bytes(line)))
}

/// The paths of a list, relative to the mount's root. Empty lines and those that begin with `#` say nothing.
pub fn paths(list: &[u8], against: &Against<'_>) -> (Vec<PathBytes>, Vec<BadLine>) {
    let (mut paths, mut bad) = (Vec::new(), Vec::new());
    for (nth, line) in list.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        match against.path(line) {
            Ok(path) => paths.push(path),
            Err(why) => bad.push(BadLine { number: nth + 1, why }),
        }
    }
    (paths, bad)
}

impl Against<'_> {
    fn path(&self, line: &[u8]) -> Result<PathBytes, String> {
        let shown = String::from_utf8_lossy(line);
        if line.starts_with(b"http://") || line.starts_with(b"https://") {
            let names = weft_web::names_of_url(&shown).ok_or_else(|| format!("{shown}: not a URL of a web page"))?;
            let names: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
            return self.below(&names).ok_or_else(|| format!("{shown}: not in what is mounted ({})", self.source));
        }
        let mounts = Mounts::at([self.mountpoint.to_owned()]);
        let path = self.mountpoint.join(OsStr::from_bytes(line));
        let resolved = resolve_without_entering(&path, &mounts).map_err(|error| error.to_string())?;
        match resolved.strip_prefix(self.mountpoint) {
            Ok(below) => Ok(PathBytes::from(below)),
            Err(_) => Err(format!("{shown}: not in {}", self.mountpoint.display())),
        }
    }

    /// Where the mount shows what these names lead to from the directory of all hosts.
    fn below(&self, names: &[&[u8]]) -> Option<PathBytes> {
        let joined = |names: &[&[u8]]| PathBytes(names.join(&b'/'));
        match self.source {
            Source::Everything => Some(joined(&[&[b"web".as_slice()], names].concat())),
            Source::Web => Some(joined(names)),
            Source::WebTree { host, path } => {
                let above = [host.as_bytes()].into_iter().chain(path.split('/').map(str::as_bytes));
                let above: Vec<&[u8]> = above.filter(|name| !name.is_empty()).collect();
                names.strip_prefix(above.as_slice()).map(joined)
            }
            Source::Dirs | Source::DirTree { .. } | Source::Afs | Source::AfsCell { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_paths_or_are_told() {
        let tree = Source::WebTree { host: "h.org".to_owned(), path: "docs".to_owned() };
        let read = |source: &Source, list: &str| {
            let (paths, bad) = paths(list.as_bytes(), &Against { mountpoint: Path::new("/no/mnt"), source });
            let shown: Vec<String> = paths.iter().map(PathBytes::to_string).collect();
            (shown, bad.into_iter().map(|line| line.number).collect::<Vec<_>>())
        };
        let list = "# comment\n\nweb/h.org/a\n/no/mnt/web/x\n/etc/passwd\nhttps://h.org/docs/b%20c\r\nhttp://[\n../x\n";
        let (good, bad) = read(&Source::Everything, list);
        assert_eq!(good, ["web/h.org/a", "web/x", "web/h.org/docs/b c"]);
        assert_eq!(bad, [5, 7, 8]);
        assert_eq!(read(&Source::Web, "https://h.org/docs/b").0, ["h.org/docs/b"]);
        assert_eq!(read(&tree, "https://h.org/docs/b\nhttps://h.org/other"), (vec!["b".to_owned()], vec![2]));
    }
}
