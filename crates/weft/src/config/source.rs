//! What is mounted.

use std::fmt;

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
}

impl Source {
    /// Reads `` (or `weft`, `none`, as fstab lines have it), `web`, or `web:host[:port][/path]`.
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
            ("afs" | "dir" | "peer" | "replica", _) => {
                Err(format!("`{kind}` trees are not in this version of weft yet; there is `web`"))
            }
            _ => {
                let hint = nearest(kind, ["web"]).map(|kind| format!("; did you mean `{kind}`?")).unwrap_or_default();
                Err(format!("`{text}` is no source: write nothing for everything, web, or web:HOST/PATH{hint}"))
            }
        }
    }

    fn parse_tree(text: &str, tree: &str) -> Result<Source, String> {
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_read_and_written_alike() {
        for text in ["", "web", "web:example.org", "web:example.org:8080/a b/c", "web:[::1]:80/x"] {
            assert_eq!(Source::parse(text).expect("a source").to_string(), text);
        }
        assert_eq!(Source::parse("weft"), Ok(Source::Everything));
        assert_eq!(Source::parse("web:Example.ORG/Docs/").expect("a source").to_string(), "web:example.org/Docs");
    }

    #[test]
    fn bad_sources_say_what_is_allowed() {
        let cases = [
            ("webb", "did you mean `web`"),
            ("https://example.org/x", "write it as web:example.org/x"),
            ("afs", "not in this version"),
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
