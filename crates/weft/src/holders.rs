//! Which processes hold a connection to the kernel, as far as it can be told from `/proc`.

use std::path::Path;

use crate::users;

/// Whether a process that lives holds the connection with this number; `None` where that cannot be told.
///
/// A process that was killed, and of which a thread waits in the kernel, holds it as well, and lives no more: nobody answers by
/// that.
pub fn one_lives(connection: u32) -> Option<bool> {
    let mut is_told = true;
    for (_, process) in users::processes().filter(|(_, process)| !has_ended(process)) {
        let files = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        for file in files.filter(|file| std::fs::read_link(file.path()).is_ok_and(|to| to == Path::new(DEVICE))) {
            let about = std::fs::read_to_string(process.join("fdinfo").join(file.file_name())).unwrap_or_default();
            match connection_in(&about) {
                Some(held) if held == connection => return Some(true),
                Some(_) => {}
                None => is_told = false,
            }
        }
    }
    is_told.then_some(false)
}

/// Whether a process is one whose end nobody has asked for yet (`Z` in the third field of proc_pid_stat(5); its name, which may
/// hold anything, ends with the last parenthesis).
fn has_ended(process: &Path) -> bool {
    let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
    stat.rsplit_once(')').is_none_or(|(_, fields)| fields.trim_start().starts_with(['Z', 'X']))
}

/// The connection of an open device, by its fdinfo (`fuse_connection` in Linux 6.18). A descriptor
/// that was never mounted has none, and nor has any of an older kernel.
fn connection_in(about: &str) -> Option<u32> {
    about.lines().find_map(|line| line.strip_prefix("fuse_connection:"))?.trim().parse().ok()
}

/// What a connection is opened by.
const DEVICE: &str = "/dev/fuse";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connection_of_a_descriptor_is_told() {
        assert_eq!(connection_in("pos:\t0\nflags:\t02100002\nmnt_id:\t24\nino:\t90\nfuse_connection:\t40\n"), Some(40));
        assert_eq!(connection_in("pos:\t0\nflags:\t02100002\n"), None);
        assert!(!has_ended(Path::new("/proc/self")) && has_ended(Path::new("/proc/none")));
    }
}
