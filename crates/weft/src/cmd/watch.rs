//! `weft watch`: changes as they are found.

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use weft_control::{Change, ControlError, Located, Watched, Watching};

use super::{find, hint_if_unknown, next_of};
use crate::exit::{Failure, Outcome};
use crate::output::{complain, say};
use crate::watching::check_pace;

/// Prints what changes at and below a path, until interrupted or unmounted; has it asked about `every` so often. Where the daemon
/// is replaced meanwhile, the next one goes on.
///
/// # Errors
/// When the path is in no mount; when the daemon goes without a word, and none follows it.
pub fn run(path: &Path, every: Option<Duration>, json: bool) -> Outcome {
    check_pace(every).map_err(Failure::usage)?;
    let mut asked = find(path)?;
    let Located { client, hello, mount, path: watched, .. } = find(path)?;
    let mut watching = Ok(client.watch(&watched.0, every)?);
    // For people, and for scripts that must not change anything before: on standard error, which is not the stream.
    complain!("weft: watching {}", path.display());
    let next = match every {
        Some(_) => "it is asked for, and told of when it is there",
        None => "it is told of when somebody finds it; `--validate` asks for it",
    };
    hint_if_unknown(&mut asked, next);
    while let Err(ended) = told_by(watching, json) {
        let ControlError::Ended = ended else { return Err(ended.into()) };
        watching = next_of(&mount, &hello).ok_or(ended)?.client.watch(&watched.0, every);
        if watching.is_ok() {
            show_replaced(json);
        }
    }
    complain!("weft: unmounted");
    Ok(())
}

/// Shows what one daemon tells, until the mount ends.
///
/// # Errors
/// `Ended` when the daemon ended before; what else keeps its words from being understood.
fn told_by(watching: Result<Watching, ControlError>, json: bool) -> Result<(), ControlError> {
    for line in watching? {
        match line? {
            line if json => say!("{}", serde_json::to_string(&line).expect("plain data")),
            Watched::Change(change) => say!("{}", words(&change)),
            Watched::Lost { lost } => say!("too slow: {lost} changes of the mount are not told"),
        }
    }
    Ok(())
}

/// Another daemon tells from now on. It knows what the former knew: what it finds changed since is told.
fn show_replaced(json: bool) {
    match json {
        true => say!("{}", json!({ "replaced": true })),
        false => say!("the daemon was replaced: the next one goes on; what was found in between may not be told"),
    }
}

/// `10:40:37Z changed  web/example.org/a.txt  12 bytes  "1" -> "2"`.
fn words(change: &Change) -> String {
    let second = change.at as u64 % 86_400;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let mut line = format!("{hour:02}:{minute:02}:{second:02}Z {:<8} {}", change.change.words(), change.path);
    if let Some(size) = change.size {
        line.push_str(&format!("  {size} bytes"));
    }
    match (&change.from, &change.to) {
        (None, None) => {}
        (from, to) if from == to => {}
        (from, to) => {
            let shown = |version: &Option<String>| version.clone().unwrap_or_else(|| "unknown".to_owned());
            line.push_str(&format!("  {} -> {}", shown(from), shown(to)));
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use weft_control::{ChangeKind, PathBytes};

    use super::*;

    #[test]
    fn a_change_is_one_line() {
        let change = Change {
            at: 1_700_000_000.5,
            path: PathBytes(b"web/a/b".to_vec()),
            change: ChangeKind::Changed,
            from: Some("\"1\"".to_owned()),
            to: None,
            size: Some(7),
        };
        assert_eq!(words(&change), "22:13:20Z changed  web/a/b  7 bytes  \"1\" -> unknown");
        let gone = Change { change: ChangeKind::Gone, from: None, size: None, ..change };
        assert_eq!(words(&gone), "22:13:20Z gone     web/a/b");
    }
}
