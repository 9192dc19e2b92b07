//! `weft pin` and `weft unpin`: what is never evicted.

use std::path::{Path, PathBuf};

use serde_json::json;
use weft_control::Covered;

use super::{find, for_each, hint_if_unknown, show_bytes};
use crate::exit::Outcome;
use crate::output::say;

/// Has everything at and below each of `paths` never evicted.
///
/// # Errors
/// The first failure; the other paths are dealt with all the same.
pub fn pin(paths: &[PathBuf], json: bool) -> Outcome {
    let (done, outcome) = for_each(paths, |path| {
        let mut located = find(path)?;
        let covered = located.client.pin(&located.path.0)?;
        hint_if_unknown(&mut located, "what comes there is pinned; `weft unpin` ends that");
        Ok((path.to_owned(), covered))
    });
    show("pinned", &done, json);
    outcome
}

/// Ends that for everything at and below each of `paths`.
///
/// # Errors
/// `NotFound` where nothing was pinned; the other paths are dealt with all the same.
pub fn unpin(paths: &[PathBuf], json: bool) -> Outcome {
    let (done, outcome) = for_each(paths, |path| {
        let mut located = find(path)?;
        Ok((path.to_owned(), located.client.unpin(&located.path.0)?))
    });
    show("unpinned", &done, json);
    outcome
}

fn show(word: &str, done: &[(PathBuf, Covered)], json: bool) {
    if json && !done.is_empty() {
        let rows = done.iter().map(|(path, covered)| json!({ "path": path, "covers": covered }));
        say!("{}", json!({ word: rows.collect::<Vec<_>>() }));
        return;
    }
    done.iter().for_each(|(path, covered)| say!("{}", line(word, path, covered)));
}

fn line(word: &str, path: &Path, covered: &Covered) -> String {
    let held = format!("{word} {}: {} files, {}", path.display(), covered.files, show_bytes(covered.bytes));
    match (covered.missing_files, covered.missing_bytes) {
        (0, _) => held,
        (files, 0) => format!("{held}; {files} of them not all cached yet"),
        (files, bytes) => format!("{held}; {files} of them not all cached yet, at least {} more", show_bytes(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told() {
        let line = |missing_files, missing_bytes| {
            line("pinned", Path::new("a"), &Covered { files: 3, bytes: 2048, missing_files, missing_bytes })
        };
        assert_eq!(line(0, 0), "pinned a: 3 files, 2.0 KiB");
        assert_eq!(line(2, 0), "pinned a: 3 files, 2.0 KiB; 2 of them not all cached yet");
        assert_eq!(line(2, 9), "pinned a: 3 files, 2.0 KiB; 2 of them not all cached yet, at least 9 B more");
    }
}
