//! A directory and a mount of it that can be written: what is done to the one is seen in the other.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::process::{Outcome, Program, is_root};
use super::{Mount, Setup};

/// A mount and the directory that it shows, both open to all users where root runs the tests.
pub struct Pair {
    /// The mount.
    pub mount: Mount,
    // Goes after the mount.
    source: Source,
}

/// The directory.
enum Source {
    Own(tempfile::TempDir),
    Given(PathBuf),
}

impl Pair {
    /// A mount of an empty directory. `None`, with a line that says so, where there is no FUSE.
    pub fn new() -> Option<Pair> {
        Pair::with(&[])
    }

    /// With these mount options.
    pub fn with(options: &[&str]) -> Option<Pair> {
        let own = tempfile::Builder::new().prefix("wt-source-").tempdir().expect("a temporary folder");
        open_to_all(own.path());
        Pair::of(Source::Own(own), options)
    }

    /// A mount of this directory.
    pub fn over(source: &Path, options: &[&str]) -> Option<Pair> {
        Pair::of(Source::Given(source.to_owned()), options)
    }

    fn of(source: Source, options: &[&str]) -> Option<Pair> {
        let text = format!("dir:{}", source.path().display()).leak();
        let mut setup = Setup { source: text, ..Setup::default() };
        if is_root() {
            setup = setup.option("allow_other");
        }
        let setup = options.iter().fold(setup, |setup, option| setup.option(option));
        let mount = Mount::prepare(setup)?;
        open_to_all(&mount.beside(""));
        mount.mount();
        Some(Pair { mount, source })
    }

    /// A path in the mount.
    pub fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        self.mount.at(path)
    }

    /// The same in the directory.
    pub fn there(&self, path: impl AsRef<Path>) -> PathBuf {
        self.source.path().join(path)
    }

    /// Runs a script in the mount, which must succeed; what it printed. `$source` is the directory, `$beside` a folder
    /// outside of both.
    #[track_caller]
    pub fn script(&self, text: &str) -> String {
        let outcome = self.try_script(text);
        assert_eq!(outcome.code, Some(0), "{text}\n{}\n{}", outcome.out, outcome.err);
        outcome.out
    }

    /// The same, and how it ended.
    pub fn try_script(&self, text: &str) -> Outcome {
        self.shell(text).run()
    }

    /// The same, not yet run.
    pub fn shell(&self, text: &str) -> Program {
        let shell = Program::new("bash").args(["-euo", "pipefail", "-c", text]).dir(&self.mount.dir());
        shell.env("source", self.there("")).env("beside", self.mount.beside("")).env("HOME", self.mount.beside("home"))
    }

    /// Asserts that both are the same: names, kinds, modes, owners, numbers of links, lengths, times, targets, bytes.
    #[track_caller]
    pub fn agree(&self) {
        same_trees(&self.there(""), &self.mount.dir());
    }
}

impl Source {
    fn path(&self) -> &Path {
        match self {
            Source::Own(own) => own.path(),
            Source::Given(path) => path,
        }
    }
}

/// Asserts that two trees are the same, by the tools that people use.
#[track_caller]
pub fn same_trees(one: &Path, other: &Path) {
    let (here, there) = (facts(one), facts(other));
    let missing: Vec<_> = here.iter().filter(|fact| !there.contains(fact)).collect();
    let more: Vec<_> = there.iter().filter(|fact| !here.contains(fact)).collect();
    assert!(here == there, "{}: {missing:#?}\n{}: {more:#?}", one.display(), other.display());
    let sums = |top: &Path| {
        let script = "find . -type f -print0 | LC_ALL=C sort -z | xargs -0 -r sha256sum";
        Program::new("sh").args(["-c", script]).dir(top).good()
    };
    assert_eq!(sums(one), sums(other), "{} and {}", one.display(), other.display());
}

/// What find(1) says of everything below a folder. A directory's length means nothing.
#[track_caller]
fn facts(top: &Path) -> Vec<String> {
    let of = |kind: &[&str], form: &str| {
        let found = Program::new("find").arg(top).args(["-mindepth", "1"]).args(kind).args(["-printf", form]).run();
        assert!(found.code == Some(0) && found.err.is_empty(), "{}", found.err);
        found.out
    };
    let directories = of(&["-type", "d"], "%P %y %m %n %T@ %U %G\n");
    let others = of(&["!", "-type", "d"], "%P %y %m %n %s %T@ %l %U %G\n");
    let mut lines: Vec<String> = directories.lines().chain(others.lines()).map(str::to_owned).collect();
    lines.sort();
    lines
}

fn open_to_all(folder: &Path) {
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).expect("set");
}
