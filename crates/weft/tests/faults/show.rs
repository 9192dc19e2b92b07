//! The table as people read it, and the judgement.

use crate::world::{PHASES, Told};

/// Prints every row.
pub fn table(told: &[Told]) {
    println!("{:<22} {:<44} {:<26} {:<26} {:<26} {:<26} requests", "case", "input", "cold", "warm", "gone", "healed");
    for row in told {
        let input = cut(&row.row.input.escape_debug().to_string(), 44);
        let seen: Vec<String> = row.seen.iter().map(|seen| format!("{:<26}", cut(&seen.to_string(), 26))).collect();
        let bound = row.row.requests_max;
        println!("{:<22} {input:<44} {} {} of {bound}", row.row.case, seen.join(" "), row.requests);
    }
    println!("{} rows", told.len());
}

/// Fails with all that is wrong.
///
/// # Panics
/// When anything is.
pub fn assert_all(told: &[Told]) {
    let wrong: Vec<String> = told.iter().flat_map(wrong_in).collect();
    assert!(wrong.is_empty(), "{} of the table's assertions fail:\n{}", wrong.len(), wrong.join("\n"));
}

fn wrong_in(told: &Told) -> Vec<String> {
    let name = format!("{} ({})", told.row.case, cut(&told.row.input.escape_debug().to_string(), 80));
    let mut wrong: Vec<String> = told.troubles.iter().map(|trouble| format!("{name}: {trouble}")).collect();
    for (nth, phase) in PHASES.iter().enumerate() {
        if !told.see(nth).allows(&told.seen[nth]) {
            wrong.push(format!("{name}: {phase}: must be {}, is {}", told.see(nth), told.seen[nth]));
        }
    }
    if told.requests > told.row.requests_max {
        wrong.push(format!("{name}: {} requests, at most {}", told.requests, told.row.requests_max));
    }
    wrong
}

/// The beginning of a text that is too long for its place.
pub fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some(_) => text.chars().take(most - 2).chain("..".chars()).collect(),
        None => text.to_owned(),
    }
}
