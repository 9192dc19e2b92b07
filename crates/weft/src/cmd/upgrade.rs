//! `weft upgrade`: a mount goes on with the program that is installed now.

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use serde_json::json;

use super::{find, only_mount};
use crate::exit::{Failure, Outcome};
use crate::output::say;

/// Has the daemon of the mount at `dir` (or of the only one) replaced, and waits until the new one serves. Open files
/// and directories stay open.
///
/// # Errors
/// When there is no mount, its daemon has no supervisor, or no other daemon comes.
pub fn run(dir: Option<&Path>, json: bool) -> Outcome {
    let dir = match dir {
        Some(dir) => dir.to_owned(),
        None => only_mount()?,
    };
    let mut former = find(&dir)?;
    let mountpoint = former.hello.mountpoint.as_path().to_owned();
    former.client.replace()?;
    let (sender, receiver) = mpsc::channel();
    let place = mountpoint.clone();
    // Answered by a daemon alone: this waits until there is one, or the mount is given up.
    std::thread::spawn(move || sender.send(rustix::fs::statvfs(&place).map(drop)));
    let shown = mountpoint.display();
    match receiver.recv_timeout(PATIENCE) {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            let sentence = format!("{shown}: no other daemon took the mount over ({error}); its log says why");
            return Err(Failure::failed(sentence));
        }
        Err(_) => {
            return Err(Failure::failed(format!("{shown}: no other daemon serves yet; `weft status` tells more")));
        }
    }
    let now = find(&mountpoint)?.hello;
    if json {
        let (from, to) = (&former.hello, &now);
        say!(
            "{}",
            json!({
                "upgraded": mountpoint,
                "from": { "version": from.version, "daemon_pid": from.daemon_pid },
                "to": { "version": to.version, "daemon_pid": to.daemon_pid },
            })
        );
    } else {
        say!("{shown}: weft {} (was {})", now.version, former.hello.version);
    }
    Ok(())
}

/// How long a daemon may take to come up: as long as for `weft mount`.
const PATIENCE: Duration = Duration::from_secs(60);
