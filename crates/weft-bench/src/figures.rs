//! The generated part of a document: between two markers, what stands around them stays.

use std::path::Path;

use anyhow::{Context, Result};

const END: &str = "<!-- bench:end -->";

/// Puts the text between the markers of a file, which name the command that writes it.
pub fn write(file: &Path, command: &str, text: &str) -> Result<()> {
    let shown = file.display();
    let document = std::fs::read_to_string(file).with_context(|| format!("{shown}"))?;
    let document = replaced(&document, command, text).with_context(|| format!("{shown}: the markers are missing"))?;
    std::fs::write(file, document).with_context(|| format!("{shown}"))
}

fn replaced(document: &str, command: &str, text: &str) -> Option<String> {
    let begin = begin(command);
    let (before, rest) = document.split_once(&begin)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{begin}\n\n{}\n\n{END}{after}", text.trim()))
}

fn begin(command: &str) -> String {
    format!("<!-- bench:begin: written by `{command}`, do not edit -->")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_around_the_markers_stays() {
        let begin = begin("make bench");
        let old = format!("# A\n\n{begin}\nold\n{END}\n\nB\n");
        let new = replaced(&old, "make bench", "new\n").unwrap();
        assert_eq!(new, format!("# A\n\n{begin}\n\nnew\n\n{END}\n\nB\n"));
        assert_eq!(replaced(&new, "make bench", "new").unwrap(), new);
        assert_eq!(replaced(&new, "make other", "new"), None);
        assert_eq!(replaced("no markers", "make bench", "new"), None);
    }
}
