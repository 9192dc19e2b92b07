//! The generated part of a document: between two markers, what stands around them stays.

use std::path::Path;

use anyhow::{Context, Result};

use crate::report::Report;

const END: &str = "<!-- bench:end -->";

/// Puts a report between the markers of a file, which name the command that writes it. Of a report that is not whole
/// each table takes the place of the former one and says when it was measured; the others stay as they are.
pub fn write(file: &Path, command: &str, report: &mut Report, is_whole: bool) -> Result<()> {
    if is_whole {
        write_text(file, command, &report.markdown())?;
    } else {
        for section in &mut report.sections {
            section.notes.push(format!("Measured by itself; {}.", report.heading.join("; ")));
            write_section(file, command, &section.heading(), &section.markdown())?;
        }
    }
    eprintln!("written to {}", file.display());
    Ok(())
}

fn write_text(file: &Path, command: &str, text: &str) -> Result<()> {
    let shown = file.display();
    let document = std::fs::read_to_string(file).with_context(|| format!("{shown}"))?;
    let document = replaced(&document, command, text).with_context(|| format!("{shown}: the markers are missing"))?;
    std::fs::write(file, document).with_context(|| format!("{shown}"))
}

/// Puts one section between the markers, in the place of the one with its heading, or behind all others.
fn write_section(file: &Path, command: &str, heading: &str, section: &str) -> Result<()> {
    let document = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let (_, rest) = document.split_once(&begin(command)).context("the markers are missing")?;
    let (text, _) = rest.split_once(END).context("the markers are missing")?;
    write_text(file, command, &with_section(text, heading, section))
}

fn with_section(text: &str, heading: &str, section: &str) -> String {
    let start = text.find(&format!("\n{heading}\n")).map_or(text.len(), |at| at + 1);
    let (before, rest) = text.split_at(start);
    let after = rest.get(heading.len()..).and_then(|rest| rest.split_once("\n### "));
    let after = after.map(|(_, after)| format!("\n\n### {}", after.trim())).unwrap_or_default();
    format!("{}\n\n{}{after}", before.trim(), section.trim())
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

    #[test]
    fn a_section_takes_the_place_of_its_like_or_comes_last() {
        let text = "* a\n\n### A\n\n1\n\n### B\n\n2\n";
        assert_eq!(with_section(text, "### A", "### A\n\n3\n"), "* a\n\n### A\n\n3\n\n### B\n\n2");
        assert_eq!(with_section(text, "### B", "### B\n\n3\n"), "* a\n\n### A\n\n1\n\n### B\n\n3");
        assert_eq!(with_section(text, "### C", "### C\n\n3\n"), format!("{}\n\n### C\n\n3", text.trim()));
    }
}
