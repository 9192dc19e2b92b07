//! `weft cache`: who uses what of the cache, and what was evicted from it.

use std::path::Path;
use std::time::SystemTime;

use weft_control::{CacheReport, Client, Eviction, Held, UserReport, daemons};

use super::status::show_time;
use super::{cache_check, find, show_bytes};
use crate::cli::{CacheAction, CacheArgs};
use crate::config::Environment;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::say;

/// Shows what `args` ask for.
///
/// # Errors
/// When the path is in no mount or not known there, or there are several mounts and none is named.
pub fn run(args: &CacheArgs, json: bool) -> Outcome {
    match &args.action {
        Some(CacheAction::Check { mount }) => return cache_check::run(mount.as_deref(), false, json),
        Some(CacheAction::Repair { mount }) => return cache_check::run(mount.as_deref(), true, json),
        None => {}
    }
    let (mut client, below) = match &args.path {
        Some(path) => located(path)?,
        None => (only_mount()?, Vec::new()),
    };
    if let Some(limit) = args.journal {
        let evictions = client.evictions(limit)?;
        match json {
            true => say!("{}", serde_json::to_string(&evictions).expect("plain data")),
            false => show_journal(&evictions),
        }
        return Ok(());
    }
    let report = client.cache(&below)?;
    match json {
        true => say!("{}", serde_json::to_string(&report).expect("plain data")),
        false => show(&report, args.users),
    }
    Ok(())
}

pub(super) fn located(path: &Path) -> Outcome<(Client, Vec<u8>)> {
    let located = find(path)?;
    Ok((located.client, located.path.0))
}

pub(super) fn only_mount() -> Outcome<Client> {
    let mut live = daemons(&Environment::of_this_process().socket_dir());
    match live.len() {
        0 => Err(Failure::new(Exit::NoMount, "no weft mounts; `weft mount DIR` makes one")),
        1 => Ok(live.remove(0).0),
        _ => Err(Failure::usage("there are several mounts: name one, as in `weft cache DIR`")),
    }
}

fn show(report: &CacheReport, users: bool) {
    let now = now();
    if users {
        let row =
            |user: &UserReport| std::iter::once(format!("user {}", user.uid)).chain(held(&user.held, now)).collect();
        table(&["", "files", "bytes", "oldest use", "newest use"], report.users.iter().map(row).collect());
    } else {
        let rows = report.trees.iter().map(|tree| {
            let max = tree.max_bytes.map_or_else(String::new, |max| format!("of {}", show_bytes(max)));
            let pinned = if tree.pinned_bytes > 0 { show_bytes(tree.pinned_bytes) } else { String::new() };
            let mut row = vec![tree.path.clone(), tree.class.clone()];
            row.extend(held(&tree.held, now));
            row.extend([pinned, max]);
            row
        });
        table(&["", "class", "files", "bytes", "oldest use", "newest use", "pinned", "bound"], rows.collect());
        if report.more_trees > 0 {
            say!("and {} more with less", report.more_trees);
        }
    }
    let bound = |max: Option<u64>| max.map_or_else(String::new, |max| format!(" of {}", show_bytes(max)));
    say!("total    {}{} in {} files", show_bytes(report.total.bytes), bound(report.max_bytes), report.total.files);
    say!("scratch  {}{}", show_bytes(report.scratch_bytes), bound(report.scratch_max_bytes));
    say!("pinned   {}", show_bytes(report.pinned_bytes));
    let keep = report.keep_free_bytes.map_or_else(String::new, |keep| format!(", {} of it kept so", show_bytes(keep)));
    say!("disk     {} free{keep}", show_bytes(report.disk_free_bytes));
    if !report.counted {
        say!("What earlier mounts left is still being counted: the figures will grow.");
    }
}

fn held(held: &Held, now: u64) -> Vec<String> {
    let ago =
        |at: u64| if held.files == 0 { String::new() } else { format!("{} ago", show_time(now.saturating_sub(at))) };
    let uses = [ago(held.oldest_use_unix_s), ago(held.newest_use_unix_s)];
    [held.files.to_string(), show_bytes(held.bytes)].into_iter().chain(uses).collect()
}

fn table(head: &[&str], rows: Vec<Vec<String>>) {
    if rows.is_empty() {
        return;
    }
    let head = head.iter().map(|word| (*word).to_owned()).collect();
    let all: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    let columns = all.iter().map(Vec::len).max().unwrap_or(0);
    let cell = |row: &Vec<String>, column: usize| row.get(column).cloned().unwrap_or_default();
    let width = |column| all.iter().map(|row| cell(row, column).chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in &all {
        let cells = widths.iter().enumerate().map(|(column, width)| format!("{:<width$}", cell(row, column)));
        say!("{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
}

fn show_journal(evictions: &[Eviction]) {
    let now = now();
    if evictions.is_empty() {
        say!("nothing was evicted");
    }
    for eviction in evictions {
        let ago = show_time(now.saturating_sub(eviction.at_unix_s));
        say!(
            "{ago} ago: {} ({}, {}) for {}",
            eviction.path,
            show_bytes(eviction.bytes),
            eviction.class,
            eviction.reason
        );
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}
