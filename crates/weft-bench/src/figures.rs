//! The generated part of a document: between two markers, what stands around them stays.

use std::path::Path;

use anyhow::{Context, Result};

const BEGIN: &str = "<!-- bench:begin: written by `make bench`, do not edit -->";
const END: &str = "<!-- bench:end -->";

/// Puts the text between the markers of a file.
pub fn write(file: &Path, text: &str) -> Result<()> {
    let shown = file.display();
    let document = std::fs::read_to_string(file).with_context(|| format!("{shown}"))?;
    let document = replaced(&document, text).with_context(|| format!("{shown}: the markers are missing"))?;
    std::fs::write(file, document).with_context(|| format!("{shown}"))
}

fn replaced(document: &str, text: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_around_the_markers_stays() {
        let old = format!("# A\n\n{BEGIN}\nold\n{END}\n\nB\n");
        let new = replaced(&old, "new\n").unwrap();
        assert_eq!(new, format!("# A\n\n{BEGIN}\n\nnew\n\n{END}\n\nB\n"));
        assert_eq!(replaced(&new, "new").unwrap(), new);
        assert_eq!(replaced("no markers", "new"), None);
    }
}
