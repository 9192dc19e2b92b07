//! `weft mount -o remount`: what mount(8) asks of a mount that is there.
//!
//! That is the kernel's to do, at the place alone (`MS_REMOUNT | MS_BIND` of mount(2)): the daemon, who else has the tree bound
//! somewhere, and what the daemon's successors do, stay as they are.

use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount_remount};
use serde_json::json;
use weft_control::{Mounts, resolve_without_entering};

use crate::cli::MountArgs;
use crate::config::MountOptions;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::say;

/// Changes whether files can be changed and programs be run at a mount point.
///
/// # Errors
/// `NoMount` where there is no mount of weft's, `Denied` without root's rights, `Failed` where it is in use, or was read-only from
/// the start.
pub fn run(args: &MountArgs, options: &MountOptions, json: bool) -> Outcome {
    let dir = args.source_and_dir.last().map(PathBuf::from).unwrap_or_default();
    let shown = dir.display();
    let mounts = Mounts::of_this_process()?;
    let at = resolve_without_entering(&dir, &mounts)?;
    let Some((now, is_read_only)) = mounts.flags_at(&at) else {
        let sentence = format!("{shown}: not a mount of weft, so there is nothing to remount");
        return Err(Failure::new(Exit::NoMount, sentence));
    };
    let noexec = options.exec.map_or(now.noexec, |exec| !exec);
    // mount(8) says `rw` where nobody has said anything.
    if is_read_only && options.read_only == Some(false) && noexec == now.noexec {
        return Err(Failure::failed(format!("{shown}: {READ_ONLY}")));
    }
    let read_only = is_read_only || options.read_only.unwrap_or(now.read_only);
    let mut flags = MountFlags::BIND | MountFlags::NOSUID | MountFlags::NODEV;
    flags.set(MountFlags::RDONLY, read_only);
    flags.set(MountFlags::NOEXEC, noexec);
    flags.set(MountFlags::NOATIME, now.noatime);
    mount_remount(&at, flags, c"").map_err(|error| failure(&dir, error))?;
    if json {
        say!("{}", json!({ "remounted": at, "read_only": read_only, "exec": !noexec }));
    }
    Ok(())
}

fn failure(dir: &Path, error: Errno) -> Failure {
    let shown = dir.display();
    match error {
        Errno::PERM | Errno::ACCESS => {
            Failure::new(Exit::Denied, format!("{shown}: only root can change what a mount allows; try `sudo`"))
        }
        Errno::BUSY => {
            let hint = format!("`fuser -vm {shown}` tells who; when they are closed, try again");
            Failure::failed(format!("{shown}: files are open to be written; {hint}"))
        }
        error => Failure::failed(format!("{shown}: {}", std::io::Error::from(error))),
    }
}

const READ_ONLY: &str = "nothing can be changed here, for it was mounted with `ro` or `no_open`, or no source in it takes changes; \
                         unmount it and mount it again without them";
