//! A list of paths for `weft warm`: one per line, relative to the mount or absolute within it, or URLs.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use weft_control::{Mounts, PathBytes, resolve_without_entering};
use weft_remote::Name;

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
    lines(list).find(|line| line.starts_with(b"/")).map(|line| PathBuf::from(OsStr::from_bytes(line)))
}

/// The paths of a list, relative to the mount's root. Empty lines and those that begin with `#` say nothing.
pub fn paths(list: &[u8], against: &Against<'_>) -> (Vec<PathBytes>, Vec<BadLine>) {
    let (mut paths, mut bad) = (Vec::new(), Vec::new());
    for (nth, line) in lines(list).enumerate() {
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

/// Without what editors of Windows put before the first and at the end of each.
fn lines(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let list = list.strip_prefix(BYTE_ORDER_MARK).unwrap_or(list);
    list.split(|byte| *byte == b'\n').map(|line| line.trim_ascii())
}

/// Whether a line is a URL of any kind, and no path.
fn is_url(line: &[u8]) -> bool {
    let scheme = line.windows(3).position(|part| part == b"://").map(|end| &line[..end]);
    scheme.is_some_and(|scheme| !scheme.is_empty() && scheme.iter().all(u8::is_ascii_alphanumeric))
}

impl Against<'_> {
    fn path(&self, line: &[u8]) -> Result<PathBytes, String> {
        let text = String::from_utf8_lossy(line);
        let shown: String = text.chars().take(SHOWN_MAX).collect();
        if is_url(line) {
            let names = weft_web::names_of_url(&text).ok_or_else(|| format!("{shown}: not a URL of a web page"))?;
            let names: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
            return self.below(&names).ok_or_else(|| format!("{shown}: not in what is mounted ({})", self.source));
        }
        let mounts = Mounts::at([self.mountpoint.to_owned()]);
        let path = self.mountpoint.join(OsStr::from_bytes(line));
        let resolved = resolve_without_entering(&path, &mounts).map_err(|error| error.to_string())?;
        let Ok(below) = resolved.strip_prefix(self.mountpoint) else {
            return Err(format!("{shown}: not in {}", self.mountpoint.display()));
        };
        // What the daemon would take for no path at all.
        let bad = below.iter().find_map(|name| Name::new(name.as_bytes()).err());
        bad.map_or_else(|| Ok(PathBytes::from(below)), |why| Err(format!("{shown}: {why}")))
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

/// U+FEFF in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// So much of a line is told, in characters.
const SHOWN_MAX: usize = 200;

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
        let long = "x".repeat(300);
        let list = format!(
            "\u{feff}# comment\nHTTP://h.org/a\nftp://h.org/a\n{long}\nh.org/a\0b\nh.org/{}\n",
            "y".repeat(255)
        );
        let (good, bad) = read(&Source::Web, &list);
        assert_eq!((good[0].as_str(), good.len()), ("h.org/a", 2));
        assert_eq!(bad, [3, 4, 5], "what is no path does not keep the others from being fetched");
        assert_eq!(first_absolute("\u{feff}/a\r\n/b".as_bytes()), Some(PathBuf::from("/a")));
        assert_eq!(read(&Source::Web, "https://h.org/docs/b").0, ["h.org/docs/b"]);
        assert_eq!(read(&tree, "https://h.org/docs/b\nhttps://h.org/other"), (vec!["b".to_owned()], vec![2]));
    }
}
