//! `weft why`: where a file comes from.

use std::path::Path;

use super::find;
use crate::exit::Outcome;
use crate::output::say;

/// Prints what there is to know about a file.
///
/// # Errors
/// When the path is in no mount, or not known there.
pub fn run(path: &Path, json: bool) -> Outcome {
    let mut located = find(path)?;
    let why = located.client.why(&located.path.0)?;
    if json {
        say!("{}", serde_json::to_string(&why).expect("plain data"));
        return Ok(());
    }
    let widest = why.facts.iter().map(|fact| fact.name.chars().count()).max().unwrap_or(0);
    for fact in &why.facts {
        say!("{:<widest$}  {}", fact.name, fact.value);
    }
    Ok(())
}
