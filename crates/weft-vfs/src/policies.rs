//! The policies of a mount: what is to hold in which tree. The rule with the longest matching path wins.

use std::fmt;
use std::time::Duration;

use weft_remote::Name;

use crate::freshness::Freshness;

/// What an open file shows when its source has another version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OpenFiles {
    /// The version that was opened, until it is closed.
    #[default]
    Version,
    /// The newest, from the next look on: a file that grows can be watched, and bytes of several versions be read one
    /// after the other, as on a local disk.
    Newest,
}

impl fmt::Display for OpenFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OpenFiles::Version => "version",
            OpenFiles::Newest => "newest",
        })
    }
}

/// What holds for a file.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// When what is held is checked with its source.
    pub freshness: Freshness,
    /// What is shown of it while it is open.
    pub open_files: OpenFiles,
}

/// The policies of a mount.
#[derive(Clone, Debug)]
pub struct Policies {
    freshness: Rules<Freshness>,
    open_files: Rules<OpenFiles>,
    /// How long after its lease what is held serves when the source answers with an error.
    stale: Rules<Option<Duration>>,
}

impl Policies {
    /// Policies with a default for everything that no rule names.
    pub fn new(default: Freshness, rules: Vec<(Vec<Name>, Freshness)>) -> Policies {
        let (open_files, stale) = (Rules::of(OpenFiles::default()), Rules::of(None));
        Policies { freshness: Rules { rules, default }, open_files, stale }
    }

    /// The same, with how long after its lease what is held serves when the source answers with an error.
    pub fn with_stale_if_error(self, default: Option<Duration>, rules: Vec<(Vec<Name>, Duration)>) -> Policies {
        let rules = rules.into_iter().map(|(path, time)| (path, Some(time))).collect();
        Policies { stale: Rules { rules, default }, ..self }
    }

    /// The same, with what open files show.
    pub fn with_open_files(self, default: OpenFiles, rules: Vec<(Vec<Name>, OpenFiles)>) -> Policies {
        Policies { open_files: Rules { rules, default }, ..self }
    }

    /// How long after its lease what is held at a path serves when the source answers with an error.
    pub fn stale_if_error(&self, path: &[Name]) -> Option<Duration> {
        self.stale.at(path)
    }

    /// The path of the rule that decides on the freshness of a path; `None` when that is the mount's own policy.
    pub fn rule_for(&self, path: &[Name]) -> Option<&[Name]> {
        self.freshness.matching(path).map(|(prefix, _)| prefix.as_slice())
    }

    /// Whether any rule on a file's own policy depends on the path.
    pub fn depend_on_path(&self) -> bool {
        !self.freshness.rules.is_empty() || !self.open_files.rules.is_empty()
    }

    /// The policy for a path below the mount's root.
    pub fn for_path(&self, path: &[Name]) -> Policy {
        Policy { freshness: self.freshness.at(path), open_files: self.open_files.at(path) }
    }
}

/// What is said of some trees, and of all others.
#[derive(Clone, Debug)]
struct Rules<T> {
    rules: Vec<(Vec<Name>, T)>,
    default: T,
}

impl<T: Copy> Rules<T> {
    fn of(default: T) -> Rules<T> {
        Rules { rules: Vec::new(), default }
    }

    /// Of equally long ones the first.
    fn matching(&self, path: &[Name]) -> Option<&(Vec<Name>, T)> {
        // `max_by_key` gives the last.
        let matching = self.rules.iter().rev().filter(|(prefix, _)| path.starts_with(prefix));
        matching.max_by_key(|(prefix, _)| prefix.len())
    }

    fn at(&self, path: &[Name]) -> T {
        self.matching(path).map_or(self.default, |(_, value)| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_wins() {
        let name = |n: &str| Name::new(n).expect("a good name");
        let rules = vec![
            (vec![name("web")], Freshness::Manual),
            (vec![name("web"), name("a.org"), name("live")], Freshness::Always),
            (vec![name("web")], Freshness::Always),
        ];
        let policies = Policies::new(Freshness::Http, rules);
        assert_eq!(policies.for_path(&[]).freshness, Freshness::Http);
        assert_eq!(policies.for_path(&[name("web"), name("a.org")]).freshness, Freshness::Manual);
        assert_eq!(
            policies.for_path(&[name("web"), name("a.org"), name("live"), name("x")]).freshness,
            Freshness::Always
        );
    }

    #[test]
    fn what_open_files_show_has_rules_of_its_own() {
        let name = |n: &str| Name::new(n).expect("a good name");
        let policies = Policies::new(Freshness::Http, vec![(vec![name("web")], Freshness::Always)])
            .with_open_files(OpenFiles::Version, vec![(vec![name("afs")], OpenFiles::Newest)]);
        let (afs, web) = (policies.for_path(&[name("afs")]), policies.for_path(&[name("web")]));
        assert_eq!((afs.freshness, afs.open_files), (Freshness::Http, OpenFiles::Newest));
        assert_eq!((web.freshness, web.open_files), (Freshness::Always, OpenFiles::Version));
        assert!(policies.depend_on_path());
    }
}
