//! `weft reload`: asks the source now.

use std::path::PathBuf;

use serde_json::json;
use weft_control::{Depth, Reloaded};

use super::{find, for_each};
use crate::exit::{Exit, Failure, Outcome};
use crate::output::say;

/// Asks the source about each of `paths`.
///
/// # Errors
/// The first failure; the other paths are dealt with all the same. `Unreachable` when the source did not answer for
/// some of the files, or refused them.
pub fn run(recursive: bool, paths: &[PathBuf], json: bool) -> Outcome {
    let depth = if recursive { Depth::Below } else { Depth::This };
    let (reloaded, outcome) = for_each(paths, |path| {
        let mut located = find(path)?;
        Ok(located.client.reload(&located.path.0, depth)?)
    });
    let sum = reloaded.iter().fold(Reloaded::default(), |sum, reloaded| Reloaded {
        checked: sum.checked + reloaded.checked,
        changed: sum.changed + reloaded.changed,
        failed: sum.failed + reloaded.failed,
    });
    match json {
        _ if reloaded.is_empty() => {}
        true => say!("{}", json!(sum)),
        false => say!("{} checked, {} changed, {} without an answer", sum.checked, sum.changed, sum.failed),
    }
    if sum.failed > 0 && outcome.is_ok() {
        let sentence =
            format!("the source told nothing of {} of {}; `weft why` tells more", sum.failed, sum.checked + sum.failed);
        return Err(Failure::new(Exit::Unreachable, sentence));
    }
    outcome
}
