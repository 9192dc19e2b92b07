//! The verbs, one file each.

pub mod cache;
mod cache_check;
pub mod config;
pub mod definition;
pub mod demo;
pub mod doctor;
pub mod group;
pub mod login;
pub mod ls;
pub mod mount;
pub mod offline;
pub mod path_list;
pub mod pin;
pub mod reload;
mod remount;
pub mod rm;
pub mod stats;
pub mod status;
pub mod umount;
pub mod unsent;
pub mod upgrade;
pub mod warm;
pub mod watch;
pub mod why;

use std::path::Path;
use std::time::{Duration, Instant};

use weft_control::{Code, ControlError, Hello, Located, Mounts, daemons, find_for_path};

use crate::config::Environment;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::complain;

/// The daemon whose mount `path` lies in. One that has just ended is followed by another, which is waited for: it is there when
/// its socket is, and of that nobody tells who may not ask the mount itself.
pub(crate) fn find(path: &Path) -> Outcome<Located> {
    let socket_dir = Environment::of_this_process().socket_dir();
    let end = Instant::now() + FOLLOWED_WITHIN;
    loop {
        match find_for_path(&socket_dir, path) {
            Err(ControlError::NoDaemon { .. }) if Instant::now() < end => std::thread::sleep(LOOKED_AGAIN_AFTER),
            found => return found.map_err(Failure::from),
        }
    }
}

/// The daemon that follows one of this mount that has ended; `None` when none does.
fn next_of(mount: &Path, ended: &Hello) -> Option<Located> {
    find(mount).ok().filter(|next| next.hello.connection == ended.connection)
}

/// The place of the only mount.
fn only_mount() -> Outcome<std::path::PathBuf> {
    let mut all = daemons(&Environment::of_this_process().socket_dir());
    let mounts = Mounts::of_this_process()?;
    let is_here = |hello: &Hello| hello.connection.is_none_or(|own| mounts.place_of(own).is_some());
    if all.iter().any(|(_, hello)| is_here(hello)) {
        // One that was unmounted while it was in use lives on.
        all.retain(|(_, hello)| is_here(hello));
    }
    match (all.pop(), all.len()) {
        (None, _) => Err(Failure::new(Exit::NoMount, "no weft mounts; `weft mount DIR` makes one")),
        (Some((_, hello)), 0) => Ok(hello.mountpoint.as_path().to_owned()),
        (Some(_), more) => {
            Err(Failure::usage(format!("there are {} mounts: name one of them (`weft status` lists them)", more + 1)))
        }
    }
}

/// One result for several paths: each is tried, and the first failure decides how the verb ends. The others are
/// told on standard error.
fn for_each<T>(paths: &[std::path::PathBuf], mut act: impl FnMut(&Path) -> Outcome<T>) -> (Vec<T>, Outcome) {
    let mut done = Vec::new();
    let mut first_failure = None;
    for path in paths {
        match act(path) {
            Ok(result) => done.push(result),
            Err(failure) => match first_failure {
                None => first_failure = Some(failure),
                Some(_) => complain!("weft: {}", failure.sentence),
            },
        }
    }
    (done, first_failure.map_or(Ok(()), Err))
}

/// Tells people, where nothing is known at a path, what the mount knows of that, and what becomes of `done` all the same:
/// it may be a path that is there later, or one that was mistyped.
fn hint_if_unknown(located: &mut Located, done: &str) {
    if let Err(ControlError::Refused(refusal)) = located.client.why(&located.path.0)
        && refusal.code == Code::NotFound
    {
        complain!("weft: {}; {done}", refusal.sentence);
    }
}

/// Bytes for people: `1.2 MiB`.
fn show_bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

/// How long a mount may be without a daemon before it is said to be.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(2);
const LOOKED_AGAIN_AFTER: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_in_a_fitting_unit() {
        assert_eq!(show_bytes(0), "0 B");
        assert_eq!(show_bytes(1023), "1023 B");
        assert_eq!(show_bytes(1536), "1.5 KiB");
        assert_eq!(show_bytes(1 << 30), "1.0 GiB");
        assert_eq!(show_bytes(u64::MAX), "16777216.0 TiB");
    }
}
