//! Who uses a mount, as far as it can be told from `/proc`: nothing is asked of the mount itself.

use std::path::{Path, PathBuf};

/// A process that has something of a mount open, or stands in it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct User {
    name: String,
    pid: u32,
}

/// Why a mount cannot go yet, who uses it, and what to do.
pub fn sentence(mountpoint: &Path) -> String {
    let place = mountpoint.display();
    let hint = "close the files and leave the directories that are in use, or add --lazy";
    let users = users_of(mountpoint);
    if users.is_empty() {
        return format!("{place}: in use; {hint}");
    }
    let named: Vec<_> =
        users.iter().take(NAMED_MAX).map(|User { name, pid }| format!("{name} (process {pid})")).collect();
    let more = if users.len() > NAMED_MAX { " and others" } else { "" };
    format!("{place}: in use by {}{more}; {hint}", named.join(", "))
}

/// Those that this process may look at, one more at most than are named.
fn users_of(mountpoint: &Path) -> Vec<User> {
    let users = processes().filter(|(_, process)| uses(process, mountpoint));
    users.map(|(pid, process)| User { name: name_of(&process), pid }).take(NAMED_MAX + 1).collect()
}

/// All processes, each with its folder in `/proc`.
pub fn processes() -> impl Iterator<Item = (u32, PathBuf)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
}

/// The name of a process. It may be anything: what would move a terminal's cursor is shown as it is escaped.
pub fn name_of(process: &Path) -> String {
    let name = std::fs::read_to_string(process.join("comm")).unwrap_or_default();
    name.trim_end().escape_debug().to_string()
}

fn uses(process: &Path, mountpoint: &Path) -> bool {
    let leads_there = |link: PathBuf| std::fs::read_link(link).is_ok_and(|target| target.starts_with(mountpoint));
    if ["cwd", "root", "exe"].into_iter().any(|link| leads_there(process.join(link))) {
        return true;
    }
    let files = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    files.take(FILES_MAX).any(|file| leads_there(file.path()))
}

/// Most processes that are named.
const NAMED_MAX: usize = 5;
/// Most files of one process that are looked at.
const FILES_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a process is named while it has something open below a folder, and not before or after.
    #[test]
    fn who_has_a_file_open_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().canonicalize().expect("it is there");
        assert!(sentence(&place).contains("in use; close"), "{}", sentence(&place));
        let file = std::fs::File::create(place.join("file")).expect("made");
        let said = sentence(&place);
        assert!(said.contains(&format!("(process {})", std::process::id())) && said.contains("--lazy"), "{said}");
        assert_eq!(users_of(&place.join("fil")), [], "it is no part of a name");
        drop(file);
        assert!(!sentence(&place).contains(&format!("(process {})", std::process::id())));
    }
}
