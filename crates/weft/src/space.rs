//! The verbs' words about space, from the file system's.

use weft_control::{CacheReport, Covered, Eviction, Held, TreeReport, UserReport};
use weft_vfs::{CacheUsage, Sum};

/// What a pin covers.
pub fn covered(covered: weft_vfs::Covered) -> Covered {
    let weft_vfs::Covered { files, bytes, missing_files, missing_bytes } = covered;
    Covered { files, bytes, missing_files, missing_bytes }
}

/// Who uses what.
pub fn report(usage: CacheUsage) -> CacheReport {
    let more_trees = usage.trees.len().saturating_sub(CacheReport::ROWS_MAX) as u64;
    let trees = usage.trees.into_iter().take(CacheReport::ROWS_MAX).map(|tree| TreeReport {
        path: tree.path,
        class: tree.class,
        held: held(&tree.sum),
        pinned_bytes: tree.pinned_bytes,
        scratch_bytes: tree.scratch_bytes,
        max_bytes: tree.max,
    });
    let users = usage.users.iter().take(CacheReport::ROWS_MAX);
    CacheReport {
        trees: trees.collect(),
        more_trees,
        users: users.map(|user| UserReport { uid: user.uid, held: held(&user.sum) }).collect(),
        total: held(&usage.total),
        pinned_bytes: usage.pinned_bytes,
        scratch_bytes: usage.scratch_bytes,
        max_bytes: usage.max,
        scratch_max_bytes: usage.scratch_max,
        tree_max_bytes: usage.tree_max,
        keep_free_bytes: usage.keep_free,
        disk_free_bytes: usage.disk_free,
        counted: usage.counted,
    }
}

/// One eviction.
pub fn eviction(eviction: weft_vfs::Eviction) -> Eviction {
    let weft_vfs::Eviction { at_unix_s, path, bytes, class, reason } = eviction;
    Eviction { at_unix_s, path, bytes, class, reason }
}

fn held(sum: &Sum) -> Held {
    Held {
        files: sum.files,
        bytes: sum.bytes,
        oldest_use_unix_s: sum.oldest_us / 1_000_000,
        newest_use_unix_s: sum.newest_us / 1_000_000,
    }
}
