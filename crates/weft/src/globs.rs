//! The globs of `weft warm`: of paths below the one that was asked for.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use weft_vfs::Choice;

/// Which files are wanted, and what is left out.
pub struct Globs {
    /// Empty for all.
    wanted: GlobSet,
    unwanted: GlobSet,
}

impl Globs {
    /// Files like one of `wanted`, or all if there is none, without what is like one of `unwanted`.
    ///
    /// # Errors
    /// A sentence that names the glob that is none.
    pub fn new(wanted: &[String], unwanted: &[String]) -> Result<Globs, String> {
        Ok(Globs { wanted: set_of(wanted)?, unwanted: set_of(unwanted)? })
    }
}

impl Choice for Globs {
    fn takes(&self, below: &[u8]) -> bool {
        let path = Path::new(OsStr::from_bytes(below));
        (self.wanted.is_empty() || self.wanted.is_match(path)) && !self.unwanted.is_match(path)
    }

    fn enters(&self, below: &[u8]) -> bool {
        !self.unwanted.is_match(Path::new(OsStr::from_bytes(below)))
    }
}

/// A glob of the command line, which is as it was written.
///
/// # Errors
/// A sentence that says why it is none.
pub fn parse_glob(text: &str) -> Result<String, String> {
    glob_of(text).map(|_| text.to_owned())
}

fn set_of(globs: &[String]) -> Result<GlobSet, String> {
    if globs.len() > GLOBS_MAX {
        return Err(format!("more than {GLOBS_MAX} globs"));
    }
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        set.add(glob_of(glob)?);
    }
    set.build().map_err(|error| error.to_string())
}

/// One without a slash is of a name at any depth.
fn glob_of(text: &str) -> Result<Glob, String> {
    let whole = match text.strip_prefix('/') {
        Some(from_top) => from_top.to_owned(),
        None if text.trim_end_matches('/').contains('/') => text.to_owned(),
        None => format!("**/{text}"),
    };
    let built = GlobBuilder::new(whole.trim_end_matches('/')).literal_separator(true).backslash_escape(true).build();
    built.map_err(|error| format!("`{text}`: {}", error.kind()))
}

/// Most globs of each sort.
const GLOBS_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_are_of_paths_below() {
        let globs = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
            set_of(&texts)
        };
        for (glob, path, matches) in [
            ("*.pdf", "a.pdf", true),
            ("*.pdf", "d/e/a.pdf", true),
            ("*.pdf", "a.pdf.gz", false),
            ("d/*.pdf", "d/a.pdf", true),
            ("d/*.pdf", "d/e/a.pdf", false),
            ("d/**", "d/e/a.pdf", true),
            ("/a", "d/a", false),
            ("/a", "a", true),
            ("d/", "d", true),
            ("[ab]?.txt", "x/b1.txt", true),
        ] {
            let set = globs(&[glob]).expect(glob);
            assert_eq!(set.is_match(path), matches, "{glob} {path}");
        }
        assert!(globs(&["[a"]).is_err_and(|sentence| sentence.contains("[a")));
    }
}
