//! `weft umount`.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::mount::UnmountFlags;
use serde_json::json;
use weft_control::{ControlError, Ending, Located, Mounts, find_for_path};

use crate::config::Environment;
use crate::elsewhere::{self, Place};
use crate::exit::{Exit, Failure, Outcome};
use crate::holders;
use crate::output::{complain, say};
use crate::users;

/// Takes the mount at `dir` away, by its daemon where that lives and by the system otherwise.
///
/// # Errors
/// When there is no mount at `dir`, or files are open.
pub fn run(dir: &Path, lazy: bool, json: bool) -> Outcome {
    let environment = Environment::of_this_process();
    let left = match find_for_path(&environment.socket_dir(), dir) {
        Ok(located) if !located.is_mount => {
            let root = located.mount.display();
            return Err(Failure::usage(format!("{}: inside the mount {root}; unmount that", dir.display())));
        }
        Ok(located) if located.mount == located.hello.mountpoint.as_path() => {
            let connection = located.hello.connection;
            left_behind(&located.client.unmount(lazy)?, connection, lazy)?
        }
        // A bind mount is the system's, and a mount whose daemon is gone is nobody's else.
        Ok(Located { mount, .. }) => {
            clear(&mount, if lazy { Manner::Lazy } else { Manner::Unused }, &environment)?;
            Vec::new()
        }
        Err(ControlError::NoDaemon { mountpoint: mount }) => {
            clear(&mount, manner(&mount, lazy)?, &environment)?;
            Vec::new()
        }
        Err(error) => return Err(error.into()),
    };
    told(dir, &left, json);
    Ok(())
}

/// Waits for the end of a daemon, and finds out what keeps it from ending: the places where its mount is still.
fn left_behind(ending: &Ending, connection: Option<u32>, lazy: bool) -> Outcome<Vec<Place>> {
    if ending.within(SOON)? || lazy {
        return Ok(Vec::new());
    }
    let until = Instant::now() + PATIENCE;
    loop {
        let left = connection.map(elsewhere::places_of).unwrap_or_default();
        if !left.is_empty() || ending.within(SOON)? {
            return Ok(left);
        }
        if Instant::now() > until {
            return Err(Failure::failed(format!(
                "unmounted, but the daemon has not ended within {} s; its log may say why",
                PATIENCE.as_secs()
            )));
        }
    }
}

fn told(dir: &Path, left: &[Place], json: bool) {
    if json {
        let places: Vec<_> = left.iter().map(|place| json!({ "path": place.path, "process": place.process })).collect();
        say!("{}", json!({ "unmounted": dir, "mounted_elsewhere": places }));
        return;
    }
    for place in left {
        complain!("weft: {}: unmounted; {place}", dir.display());
    }
}

/// How a mount that has no daemon is to be taken away. Nobody will ever answer by a connection that no process holds which
/// lives: then it is ended, for who waits for an answer could not even be killed, and without the mount there would be no way
/// to them. That is so where the supervisor was killed with its daemon while it told the kernel something that waited for a
/// request: the kernel takes the connection for held as long as that waits.
fn manner(mountpoint: &Path, lazy: bool) -> Outcome<Manner> {
    let connection = Mounts::of_this_process()?.connection_at(mountpoint);
    Ok(match connection.filter(|connection| lazy && holders::one_lives(*connection) == Some(false)) {
        Some(connection) => Manner::Ended { connection },
        None if lazy => Manner::Lazy,
        None => Manner::Unused,
    })
}

/// How a mount is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// If nobody uses it.
    Unused,
    /// At once; what is open works on.
    Lazy,
    /// At once, and what waits for it ends with an error.
    Ended {
        /// The number of its connection.
        connection: u32,
    },
}

/// Takes a mount away without its daemon. `-o intr` of nobody: this asks the kernel only.
fn clear(mountpoint: &Path, manner: Manner, environment: &Environment) -> Outcome {
    if environment.uid == 0 {
        let flags = match manner {
            Manner::Unused => UnmountFlags::empty(),
            Manner::Lazy => UnmountFlags::DETACH,
            Manner::Ended { .. } => UnmountFlags::DETACH | UnmountFlags::FORCE,
        };
        return rustix::mount::unmount(mountpoint, flags).map_err(|error| match error {
            rustix::io::Errno::BUSY => Failure::failed(users::sentence(mountpoint)),
            error => Failure::failed(format!("{}: {error}", mountpoint.display())),
        });
    }
    if let Manner::Ended { connection } = manner {
        // Whoever mounted may (Linux Documentation/filesystems/fuse/fuse.rst), where the control file system is there.
        let _ = std::fs::write(format!("/sys/fs/fuse/connections/{connection}/abort"), "1");
    }
    let mut command = Command::new("fusermount3");
    command.arg("-u");
    if manner != Manner::Unused {
        command.arg("-z");
    }
    let output = command.arg("--").arg(mountpoint).output();
    let output = output.map_err(|error| Failure::failed(format!("fusermount3: {error}; install the package fuse3")))?;
    let still_there = Mounts::of_this_process()?.has(mountpoint);
    if output.status.success() && !still_there {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if words.contains("busy") {
        return Err(Failure::failed(users::sentence(mountpoint)));
    }
    Err(Failure::new(Exit::Failed, format!("{}: {words}", mountpoint.display())))
}

/// How long a daemon takes to end at most times.
const SOON: Duration = Duration::from_secs(2);
/// How long it may take.
const PATIENCE: Duration = Duration::from_secs(60);
