//! What the configuration comes to for each room.

use anyhow::Context;
use weft_remote::Name;
use weft_vfs::{Policies, SpaceOptions, SpaceRule, VfsOptions};

use crate::config::{Resolved, Source, SpaceSettings};

/// How the vfs is to keep and show what is mounted.
///
/// # Errors
/// When a rule names no path, or too many bound the space of a tree.
pub fn vfs_options(resolved: &Resolved) -> anyhow::Result<VfsOptions> {
    let (mut rules, mut stale_rules, mut open_rules) = (Vec::new(), Vec::new(), Vec::new());
    let mut space = space_options(&resolved.space);
    for rule in &resolved.trees {
        let Some(path) = below_mount(&rule.path, resolved) else { continue };
        let names: Result<Vec<Name>, _> = path.split('/').filter(|part| !part.is_empty()).map(Name::new).collect();
        let names = names.with_context(|| format!("the rule for {}", rule.path))?;
        stale_rules.extend(rule.stale_if_error.map(|time| (names.clone(), time)));
        open_rules.extend(rule.open_files.map(|shown| (names.clone(), shown)));
        rules.extend(rule.freshness.map(|freshness| (names.clone(), freshness)));
        if rule.class.is_some() || rule.max.is_some() {
            space.rules.push(SpaceRule { path: names, class: rule.class, max: rule.max });
        }
    }
    let bounded_max = SpaceOptions::BOUNDED_RULES_MAX;
    if space.rules.iter().filter(|rule| rule.max.is_some()).count() > bounded_max {
        anyhow::bail!("more than {bounded_max} [[tree]] rules have a `max`");
    }
    let default = VfsOptions::default();
    let passes = resolved.passthrough && rustix::process::geteuid().is_root();
    Ok(VfsOptions {
        passthrough_bytes_min: if passes { default.passthrough_bytes_min } else { u64::MAX },
        shared: resolved.allow_other,
        deadline: resolved.deadline,
        policies: Policies::new(resolved.freshness, rules)
            .with_stale_if_error(resolved.stale_if_error, stale_rules)
            .with_open_files(resolved.open_files, open_rules),
        space,
        unopened: resolved.unopened,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        inodes_max: default.inodes_max.min(open_files_max() / FILES_PER_INODE),
        ..default
    })
}

/// What the cache may hold; the rules for trees are added by the caller.
fn space_options(settings: &SpaceSettings) -> SpaceOptions {
    SpaceOptions {
        class: settings.class.unwrap_or_default(),
        rules: Vec::new(),
        max: settings.max,
        scratch_max: settings.scratch_max,
        tree_max: settings.max_per_host,
        keep_free: settings.keep_free,
    }
}

/// How many files this process may have open, after asking for as many as it may ask for: a cached file that was read
/// of late stays open.
fn open_files_max() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let current = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::debug!(%error, "the limit of open files stays");
            limit.current
        }
    };
    current.and_then(|files| usize::try_from(files).ok()).unwrap_or(usize::MAX)
}

/// A rule's path, which is one below the mount of everything, below what is mounted: all of it when the rule is about
/// something above, `None` when it is about something else.
fn below_mount<'a>(rule: &'a str, resolved: &Resolved) -> Option<&'a str> {
    match &resolved.source {
        Source::Everything => Some(rule),
        Source::Web => rule_below(rule, "web"),
        Source::Dirs => rule_below(rule, "dir"),
        Source::Afs => rule_below(rule, "afs"),
        source @ (Source::WebTree { .. } | Source::AfsCell { .. }) => {
            rule_below(rule, &source.to_string().replacen(':', "/", 1))
        }
        Source::DirTree { path } => {
            let named = resolved.dirs.iter().filter(|table| table.path == *path);
            named.filter_map(|table| rule_below(rule, &format!("dir/{}", table.name))).next()
        }
    }
}

/// The part of a rule's path that lies inside a tree.
fn rule_below<'a>(rule: &'a str, tree: &str) -> Option<&'a str> {
    if tree == rule || tree.starts_with(&format!("{rule}/")) {
        return Some("");
    }
    rule.strip_prefix(&format!("{tree}/"))
}

/// How the kernel is to mount it.
pub fn mount_options(resolved: &Resolved, takes_changes: bool) -> weft_fuse::MountOptions {
    let source = resolved.source.to_string();
    weft_fuse::MountOptions {
        mountpoint: resolved.mountpoint.clone(),
        source: if source.is_empty() { "weft".to_owned() } else { source },
        allow_other: resolved.allow_other,
        checks_modes: !(resolved.allow_other && resolved.source.is_afs()),
        exec: !resolved.noexec,
        threads: resolved.threads.unwrap_or(READERS),
        transport: resolved.transport,
        unopened: resolved.unopened,
        // Of what shows the newest version the kernel keeps no pages for anybody.
        maps_unkept: resolved.shows_newest(),
        read_only: resolved.read_only || !takes_changes,
        sync: resolved.sync,
    }
}

/// Threads that read kernel requests, unless the configuration says otherwise.
const READERS: usize = 2;
/// Of the files that may be open, one in so many may belong to an inode that nobody uses.
const FILES_PER_INODE: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_count_from_the_root_of_the_mounted_tree() {
        assert_eq!(rule_below("web/example.org/docs/new", "web/example.org/docs"), Some("new"));
        assert_eq!(rule_below("web/example.org", "web/example.org/docs"), Some(""));
        assert_eq!(rule_below("web/example.org/docs", "web/example.org/docs"), Some(""));
        assert_eq!(rule_below("web/example.com", "web/example.org/docs"), None);
        assert_eq!(rule_below("web/example.org/docs2", "web/example.org/docs"), None);
        assert_eq!(
            (rule_below("web", "web"), rule_below("web/a", "web"), rule_below("dir", "web")),
            (Some(""), Some("a"), None)
        );
    }
}
