//! Words about what the cache holds.

use serde::{Deserialize, Serialize};

use crate::LINE_BYTES_MAX;

/// What a removal does to pinned content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OfPinned {
    /// It stays, and the removal is refused.
    #[default]
    Stays,
    /// It is dropped like any other.
    Goes,
}

/// What a pin covers, or did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Covered {
    /// Files that are known.
    pub files: u64,
    /// Their bytes that are cached.
    pub bytes: u64,
    /// Files of which not all is cached yet.
    pub missing_files: u64,
    /// How many bytes of those are missing, as far as their lengths are known.
    pub missing_bytes: u64,
}

/// Files, bytes and uses of one part of the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Files that are cached, whole or in part.
    pub files: u64,
    /// What they take on disk.
    pub bytes: u64,
    /// Last use of the longest unused one, in seconds since 1970.
    pub oldest_use_unix_s: u64,
    /// Latest use.
    pub newest_use_unix_s: u64,
}

/// A host (or another top-level tree) in the cache, or the path that was asked about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeReport {
    /// The path below the mount's root, for people.
    pub path: String,
    /// `pinned`, `kept` or `scratch`: of the tree; parts of it may have others.
    pub class: String,
    /// What is held.
    #[serde(flatten)]
    pub held: Held,
    /// Of that, bytes that are pinned.
    pub pinned_bytes: u64,
    /// Of that, bytes that may be evicted.
    pub scratch_bytes: u64,
    /// Most bytes that it may have.
    pub max_bytes: Option<u64>,
}

/// A user whose reads filled the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserReport {
    /// The user.
    pub uid: u32,
    /// What is held.
    #[serde(flatten)]
    pub held: Held,
}

/// Who uses what of a cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheReport {
    /// The largest trees, at most [`CacheReport::ROWS_MAX`].
    pub trees: Vec<TreeReport>,
    /// How many more there are.
    pub more_trees: u64,
    /// The users with the most, at most [`CacheReport::ROWS_MAX`].
    pub users: Vec<UserReport>,
    /// In all.
    pub total: Held,
    /// Bytes that are pinned.
    pub pinned_bytes: u64,
    /// Bytes that may be evicted.
    pub scratch_bytes: u64,
    /// `[cache] max`.
    pub max_bytes: Option<u64>,
    /// `[cache] scratch_max`.
    pub scratch_max_bytes: Option<u64>,
    /// `[cache] max_per_host`.
    pub tree_max_bytes: Option<u64>,
    /// `[cache] keep_free`.
    pub keep_free_bytes: Option<u64>,
    /// Free bytes of the disk.
    pub disk_free_bytes: u64,
    /// Whether what earlier mounts left is counted; until then, a moment after the start, the figures are too small.
    pub counted: bool,
}

impl CacheReport {
    /// Most rows of each list.
    pub const ROWS_MAX: usize = 1000;
}

/// One eviction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eviction {
    /// When, in seconds since 1970.
    pub at_unix_s: u64,
    /// What, as its path below the mount's root read.
    pub path: String,
    /// Bytes freed on disk.
    pub bytes: u64,
    /// Its class.
    pub class: String,
    /// The bound that was met.
    pub reason: String,
}

impl Eviction {
    /// Most that one answer tells.
    pub const COUNT_MAX: usize = 10_000;
}

/// The newest of `evictions` that fit into one line, oldest first.
pub(crate) fn fitting(mut evictions: Vec<Eviction>) -> Vec<Eviction> {
    let room = LINE_BYTES_MAX / 2;
    let mut taken = 0;
    // What JSON adds for bytes that it escapes is at most as much again as this guess leaves.
    let size = |eviction: &Eviction| 160 + 2 * (eviction.path.len() + eviction.class.len() + eviction.reason.len());
    let fit = evictions.iter().rev().take_while(|eviction| {
        taken += size(eviction);
        taken <= room
    });
    let fit = fit.count();
    evictions.split_off(evictions.len() - fit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_evictions_fit_into_a_line() {
        let eviction = |nth: u64| Eviction {
            at_unix_s: nth,
            path: "\u{1}".repeat(2000),
            bytes: u64::MAX,
            class: "scratch".to_owned(),
            reason: "[cache] max".to_owned(),
        };
        let fit = fitting((0..5000).map(eviction).collect());
        assert!(fit.len() > 50 && fit.len() < 5000, "{}", fit.len());
        assert_eq!(fit.last().map(|eviction| eviction.at_unix_s), Some(4999));
    }
}
