//! `weft offline` and `weft online`: whether trees are on the network.

use std::path::PathBuf;

use serde_json::json;

use super::{find, for_each, hint_if_unknown};
use crate::exit::Outcome;
use crate::output::say;

/// Has everything below each of `paths` ask no remote, or only for what is missing.
///
/// # Errors
/// The first failure; the other paths are dealt with all the same.
pub fn take_offline(fetch_only: bool, paths: &[PathBuf], json: bool) -> Outcome {
    let done = match fetch_only {
        true => "what comes there is not checked from now on; `weft online` ends that",
        false => "nobody is asked for it from now on; `weft online` ends that",
    };
    let (done, outcome) = for_each(paths, |path| {
        let mut located = find(path)?;
        located.client.take_offline(&located.path.0, fetch_only)?;
        hint_if_unknown(&mut located, done);
        Ok(path.to_owned())
    });
    if json && !done.is_empty() {
        say!("{}", json!({ if fetch_only { "fetch_only" } else { "offline" }: done }));
    }
    outcome
}

/// Ends that.
///
/// # Errors
/// `NotFound` where nothing was offline; the other paths are dealt with all the same.
pub fn bring_online(paths: &[PathBuf], json: bool) -> Outcome {
    let (done, outcome) = for_each(paths, |path| {
        let mut located = find(path)?;
        located.client.bring_online(&located.path.0)?;
        Ok(path.to_owned())
    });
    if json && !done.is_empty() {
        say!("{}", json!({ "online": done }));
    }
    outcome
}
