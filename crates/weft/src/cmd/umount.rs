//! `weft umount`.

use std::path::Path;
use std::process::Command;

use rustix::mount::UnmountFlags;
use serde_json::json;
use weft_control::{ControlError, Mounts, find_for_path};

use crate::config::Environment;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::say;
use crate::users;

/// Takes the mount at `dir` away, by its daemon where that lives and by the system otherwise.
///
/// # Errors
/// When there is no mount at `dir`, or files are open.
pub fn run(dir: &Path, lazy: bool, json: bool) -> Outcome {
    let environment = Environment::of_this_process();
    match find_for_path(&environment.socket_dir(), dir) {
        Ok(located) => {
            if !located.path.0.is_empty() {
                let root = located.hello.mountpoint;
                return Err(Failure::usage(format!("{}: inside the mount {root}; unmount that", dir.display())));
            }
            located.client.unmount(lazy)?;
        }
        Err(ControlError::NoDaemon { mountpoint }) => clear(&mountpoint, lazy, &environment)?,
        Err(error) => return Err(error.into()),
    }
    if json {
        say!("{}", json!({ "unmounted": dir }));
    }
    Ok(())
}

/// Takes a mount away whose daemon is gone. `-o intr` of nobody: this asks the kernel only.
fn clear(mountpoint: &Path, lazy: bool, environment: &Environment) -> Outcome {
    if environment.uid == 0 {
        let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
        return rustix::mount::unmount(mountpoint, flags).map_err(|error| match error {
            rustix::io::Errno::BUSY => Failure::failed(users::sentence(mountpoint)),
            error => Failure::failed(format!("{}: {error}", mountpoint.display())),
        });
    }
    let mut command = Command::new("fusermount3");
    command.arg("-u");
    if lazy {
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
