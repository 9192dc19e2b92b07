//! What is mounted.

use std::fmt;
use std::path::{Path, PathBuf};

use weft_afs::cell::CellName;

use super::directory::plain;
use super::nearest;

/// The first argument of `weft mount`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Every kind, each in a directory of its own.
    Everything,
    /// All of the web: hosts are the directories.
    Web,
    /// One tree of the web: host, optional port, and a path without slashes at the ends.
    WebTree {
        /// Host, with `:port` where it is not the usual one.
        host: String,
        /// Directory on the host; empty for the whole host.
        path: String,
    },
    /// The directories of this machine that the configuration names.
    Dirs,
    /// One directory of this machine.
    DirTree {
        /// Where it is: absolute, without `.` and `..`.
        path: PathBuf,
    },
    /// All cells of AFS: they are the directories.
    Afs,
    /// One cell of AFS.
    AfsCell {
        /// Its name.
        cell: CellName,
    },
}

impl Source {
    /// Whether all of it is in AFS, where servers decide who may do what.
    pub fn is_afs(&self) -> bool {
        matches!(self, Source::Afs | Source::AfsCell { .. })
    }

    /// Reads `` (or `weft`, `none`, as fstab lines have it), `web`, `web:host[:port][/path]`, `dir`, `dir:/path`, `afs`, or
    /// `afs:cell`.
    ///
    /// # Errors
    /// A sentence that says what is allowed.
    pub fn parse(text: &str) -> Result<Source, String> {
        let (kind, tree) = match text.split_once(':') {
            Some((kind, tree)) => (kind, Some(tree)),
            None => (text, None),
        };
        match (kind, tree) {
            ("" | "weft" | "none", None) => Ok(Source::Everything),
            ("web", None) => Ok(Source::Web),
            ("web", Some(tree)) => Source::parse_tree(text, tree),
            ("http" | "https", Some(rest)) if rest.starts_with("//") => {
                Err(format!("`{text}`: write it as web:{}", rest.trim_start_matches('/')))
            }
            ("dir", None) => Ok(Source::Dirs),
            ("dir", Some(path)) => Source::parse_directory(text, path),
            ("afs", None) => Ok(Source::Afs),
            ("afs", Some(cell)) => match CellName::new(cell.as_bytes()) {
                Ok(cell) => Ok(Source::AfsCell { cell }),
                Err(why) => Err(format!("`{text}`: {why}; write it as in afs:example.org")),
            },
            ("peer" | "replica", _) => {
                Err(format!("`{kind}` trees are not in this version of weft yet; there are `web`, `dir` and `afs`"))
            }
            _ => {
                let near = nearest(kind, ["web", "dir", "afs"]);
                let hint = near.map(|kind| format!("; did you mean `{kind}`?")).unwrap_or_default();
                let allowed = "write nothing for everything, web, web:HOST/PATH, dir, dir:/PATH, afs, or afs:CELL";
                Err(format!("`{text}` is no source: {allowed}{hint}"))
            }
        }
    }

    fn parse_directory(text: &str, path: &str) -> Result<Source, String> {
        let path = Path::new(path);
        if !path.is_absolute() || path.components().any(|part| part.as_os_str() == "..") {
            return Err(format!("`{text}`: write the whole path of a directory without .., as in dir:/srv/www"));
        }
        Ok(Source::DirTree { path: plain(path) })
    }

    fn parse_tree(text: &str, tree: &str) -> Result<Source, String> {
        if let Some(bare) = tree.strip_prefix("https://").or_else(|| tree.strip_prefix("http://")) {
            let why = "whether a host speaks https or http is found out";
            return Err(format!("`{text}`: write it as web:{bare}; {why}"));
        }
        let tree = tree.trim_end_matches('/');
        let (host, path) = tree.split_once('/').unwrap_or((tree, ""));
        let host_fits =
            !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic() && !b"\\?#@".contains(&byte));
        if !host_fits {
            return Err(format!("`{text}` names no host: write web:HOST or web:HOST/PATH, as in web:example.org/docs"));
        }
        if !path.is_empty() && path.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(format!("`{text}`: a path has no empty part, . or .."));
        }
        Ok(Source::WebTree { host: host.to_ascii_lowercase(), path: path.to_owned() })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Everything => Ok(()),
            Source::Web => f.write_str("web"),
            Source::WebTree { host, path } if path.is_empty() => write!(f, "web:{host}"),
            Source::WebTree { host, path } => write!(f, "web:{host}/{path}"),
            Source::Dirs => f.write_str("dir"),
            Source::DirTree { path } => write!(f, "dir:{}", path.display()),
            Source::Afs => f.write_str("afs"),
            Source::AfsCell { cell } => write!(f, "afs:{cell}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_read_and_written_alike() {
        for text in [
            "",
            "web",
            "web:example.org",
            "web:example.org:8080/a b/c",
            "web:[::1]:80/x",
            "dir",
            "dir:/srv/a b",
            "afs",
            "afs:example.org",
        ] {
            assert_eq!(Source::parse(text).expect("a source").to_string(), text);
        }
        assert_eq!(Source::parse("weft"), Ok(Source::Everything));
        assert_eq!(Source::parse("dir:/srv//www/./x/").expect("a source").to_string(), "dir:/srv/www/x");
        assert_eq!(Source::parse("web:Example.ORG/Docs/").expect("a source").to_string(), "web:example.org/Docs");
    }

    #[test]
    fn bad_sources_say_what_is_allowed() {
        let cases = [
            ("webb", "did you mean `web`"),
            ("https://example.org/x", "write it as web:example.org/x"),
            ("web:http://example.org/x", "write it as web:example.org/x"),
            ("web:https://example.org/x", "write it as web:example.org/x"),
            ("peer", "not in this version"),
            ("afz", "did you mean `afs`"),
            ("afs:", "cannot be empty"),
            ("afs:.example.org", "cannot begin with a dot"),
            ("afs:example.org/usr", "letters, digits"),
            ("dri:/x", "did you mean `dir`"),
            ("dir:", "the whole path"),
            ("dir:www", "the whole path"),
            ("dir:/srv/../etc", "without .."),
            ("web:", "names no host"),
            ("web:a b", "names no host"),
            ("web:h/../x", "no empty part"),
        ];
        for (text, wanted) in cases {
            let error = Source::parse(text).expect_err(text);
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
