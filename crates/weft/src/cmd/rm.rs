//! `weft rm -w`, also as `rmw`: drops content from the cache.

use std::path::PathBuf;

use serde_json::json;
use weft_control::{Depth, OfPinned, Removed};

use super::{find, for_each, show_bytes};
use crate::exit::{Failure, Outcome};
use crate::output::say;

/// Drops what the cache holds of each of `paths`.
///
/// # Errors
/// The first failure; the other paths are dealt with all the same.
pub fn run(weft: bool, recursive: bool, pinned: bool, paths: &[PathBuf], json: bool) -> Outcome {
    if !weft {
        let hint = "`weft rm -w` (or `rmw`) drops content from the cache";
        return Err(Failure::usage(format!("weft removes nothing remotely; {hint}")));
    }
    let depth = if recursive { Depth::Below } else { Depth::This };
    let of_pinned = if pinned { OfPinned::Goes } else { OfPinned::Stays };
    let (removed, outcome) = for_each(paths, |path| {
        let mut located = find(path)?;
        Ok(located.client.remove(&located.path.0, depth, of_pinned)?)
    });
    let sum = removed.iter().fold(Removed::default(), |sum, removed| Removed {
        files: sum.files + removed.files,
        bytes: sum.bytes + removed.bytes,
    });
    match json {
        _ if removed.is_empty() => {}
        true => say!("{}", json!(sum)),
        false => say!("{} files, {} dropped from the cache", sum.files, show_bytes(sum.bytes)),
    }
    outcome
}
