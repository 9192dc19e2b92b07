//! Several mounts at one place, and several places of one mount.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Exit, Mount, Outcome, Program, Setup, is_root, run, without};

const CONTENT: &str = "what was there first";

/// A directory with one file, mounted.
fn mounted() -> Option<(tempfile::TempDir, &'static str, Mount)> {
    let tree = tempfile::Builder::new().prefix("wt-dir-").tempdir().expect("a temporary folder");
    std::fs::write(tree.path().join("file"), CONTENT).expect("written");
    let source = format!("dir:{}", tree.path().display()).leak();
    let mount = Mount::with(Setup { source, ..Setup::default() })?;
    Some((tree, source, mount))
}

fn done(outcome: &Outcome) {
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}

/// Goal: where a mount was taken away while it was in use, and another one made, verbs reach the one that is there, and the
/// former goes on until it is let go, also when its daemon is followed by another.
#[test]
fn the_mount_that_is_there_is_the_one_that_is_asked() {
    let Some((_tree, source, mount)) = mounted() else { return };
    let mut held = File::open(mount.at("file")).expect("opened");
    let former = mount.daemon();
    done(&mount.verb("umount --lazy", [mount.dir()]));
    done(&mount.verb("mount --cache", [mount.beside("other").as_path(), Path::new(source), &mount.dir()]));
    let there = mount.daemon();
    assert_ne!(there, former);
    let end = Exit::of(former);
    kill_process(former, Signal::KILL).expect("killed");
    assert!(end.wait(), "nobody survives SIGKILL");
    // Answered by a daemon alone.
    rustix::fs::fstatvfs(&held).expect("another daemon answers");
    assert_eq!(mount.daemon(), there);
    // Mounts of others are listed as well.
    let title = format!(" on {}\n", mount.dir().display());
    let listed = mount.verb("status", [""; 0]).out;
    let of_place: Vec<&str> = listed.split("dir:").filter(|part| part.contains(&title)).collect();
    let not_here = of_place.iter().filter(|part| part.contains("not mounted here"));
    assert_eq!((of_place.len(), not_here.count()), (2, 1), "{listed}");
    let all = mount.json("status", [""; 0]);
    let is_follower = |status: &&Value| {
        status["mountpoint"] == mount.dir().to_str().expect("a plain path")
            && status["daemon_pid"] != there.as_raw_nonzero().get()
    };
    let follower = all.as_array().expect("a list").iter().find(is_follower).expect("it is listed");
    let follower = follower["daemon_pid"].as_i64().and_then(|pid| Pid::from_raw(pid as i32)).expect("a process");
    // A former daemon that is told to end takes nothing away that is another's.
    kill_process(follower, Signal::TERM).expect("told");
    rustix::fs::fstatvfs(&held).expect("in use, so it serves");
    assert!(mount.is_mounted());
    let ends = (Exit::of(there), Exit::of(follower));
    done(&mount.verb("umount", [mount.dir()]));
    assert!(ends.0.wait() && !mount.is_mounted());
    let mut content = String::new();
    held.read_to_string(&mut content).expect("read");
    assert_eq!(content, CONTENT);
    drop(held);
    assert!(ends.1.wait(), "nobody has anything of it any more");
}

/// Goal: a bind mount is of the mount that it shows; who takes that away is told where it still is, and the daemon ends with
/// the last of its places.
#[test]
fn a_bind_mount_is_a_place_of_its_mount() {
    if !is_root() {
        return without("only root makes bind mounts");
    }
    let Some((tree, _, mount)) = mounted() else { return };
    std::fs::create_dir(tree.path().join("sub")).expect("made");
    std::fs::write(tree.path().join("sub/deep"), CONTENT).expect("written");
    let daemon = Exit::of(mount.daemon());
    let (whole, part) = (mount.beside("whole"), mount.beside("part"));
    for (from, to) in [(mount.dir(), &whole), (mount.at("sub"), &part)] {
        std::fs::create_dir(to).expect("made");
        run("mount", ["--bind".as_ref(), from.as_os_str(), to.as_os_str()]);
    }
    assert_eq!(std::fs::read(part.join("deep")).expect("read"), CONTENT.as_bytes());
    assert_eq!(mount.why(&part.join("deep"), "path"), mount.why(&mount.at("sub/deep"), "path"));
    assert_eq!(mount.json("ls -w", [&part])["names"], mount.json("ls -w", [mount.at("sub")])["names"]);
    let inside = mount.verb("umount", [whole.join("sub")]);
    assert!(inside.code == Some(2) && inside.err.contains("inside the mount"), "{inside:?}");
    done(&mount.verb("umount", [&part]));
    assert!(mount.is_mounted());
    let taken = mount.verb("umount", [mount.dir()]);
    done(&taken);
    assert!(taken.err.contains(whole.to_str().expect("a plain path")), "{taken:?}");
    assert_eq!(std::fs::read(whole.join("file")).expect("read"), CONTENT.as_bytes());
    done(&mount.verb("umount", [&whole]));
    assert!(daemon.wait(), "it had no other place");
}

/// Goal: who takes a mount away is told of another mount namespace that has it, and does not wait for that.
#[test]
fn another_namespace_that_has_a_mount_is_told_of() {
    if !is_root() {
        return without("only root makes mount namespaces");
    }
    let Some((_tree, _, mount)) = mounted() else { return };
    let daemon = Exit::of(mount.daemon());
    // The mounts of others it lets go at once: they are to end.
    const SCRIPT: &str = r#"awk '$3 ~ /^fuse/ { print $2 }' /proc/self/mounts | grep -vxF "$0" | xargs -r umount --lazy
        echo ready; exec sleep 600"#;
    let words = ["-m", "--propagation", "private", "sh", "-c", SCRIPT];
    let mut other = Program::new("unshare").args(words).arg(mount.dir()).start();
    assert_eq!(other.line().trim(), "ready");
    let taken = mount.json("umount", [mount.dir()]);
    let places = taken["mounted_elsewhere"].as_array().expect("a list");
    assert!(places.len() == 1 && places[0]["process"].is_u64(), "{taken}");
    assert!(places[0]["path"] == mount.dir().to_str().expect("a plain path") && !mount.is_mounted());
    drop(other);
    assert!(daemon.wait(), "nobody has it any more");
}
