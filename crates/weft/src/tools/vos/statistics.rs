//! What a volume server counts of a volume, in tables.

use serde_json::{Value, json};
use weft_afs::wire::volser::{CountedInfo, Counts};

/// The tables of `vos examine -extended`.
pub fn tables(counted: &CountedInfo) -> String {
    let row4 = |title: &str, [a, b, c, d]: [i32; 4]| format!("{title:<10}| {a:>8} | {b:>8} | {c:>8} | {d:>8} |");
    let mut lines = vec![
        String::new(),
        "                      Raw Read/Write Stats".to_owned(),
        WHOLE.to_owned(),
        "          |    Same Network     |    Diff Network     |".to_owned(),
        PARTS.to_owned(),
        "          |  Total   |   Auth   |   Total  |   Auth   |".to_owned(),
        PARTS.to_owned(),
        row4("Reads", counted.reads.0),
        row4("Writes", counted.writes.0),
        WHOLE.to_owned(),
        String::new(),
        "                   Writes Affecting Authorship".to_owned(),
        WHOLE.to_owned(),
        "          |   File Authorship   | Directory Authorship|".to_owned(),
        PARTS.to_owned(),
        "          |   Same   |   Diff   |    Same  |   Diff   |".to_owned(),
        PARTS.to_owned(),
    ];
    for (at, title) in AGES.iter().enumerate() {
        let of = |counts: &Counts<6>| counts.0[at];
        let (files, dirs) = (&counted.files_same_author, &counted.dirs_same_author);
        let row = [of(files), of(&counted.files_other_author), of(dirs), of(&counted.dirs_other_author)];
        lines.push(row4(title, row));
    }
    lines.push(WHOLE.to_owned());
    lines.join("\n")
}

/// For programs.
pub fn fields(counted: &CountedInfo) -> Value {
    json!({
        "reads": counted.reads.0,
        "writes": counted.writes.0,
        "files_same_author": counted.files_same_author.0,
        "files_other_author": counted.files_other_author.0,
        "dirs_same_author": counted.dirs_same_author.0,
        "dirs_other_author": counted.dirs_other_author.0,
    })
}

const WHOLE: &str = "          |-------------------------------------------|";
const PARTS: &str = "          |----------|----------|----------|----------|";
const AGES: [&str; 6] = ["0-60 sec", "1-10 min", "10min-1hr", "1hr-1day", "1day-1wk", "> 1wk"];
