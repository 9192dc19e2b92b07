//! Mounting and unmounting in every way there is.

use std::io::BufRead;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{
    Liar, Mount, Pair, Program, Setup, answer, find_program, is_root, names_in, page, run, weft_program, without,
};

const NOBODY: u32 = 65534;
const PAGE: &str = "web/weft.example/index.html";

#[test]
fn a_second_mount_on_the_same_place_is_refused() {
    let Some(mount) = Mount::new() else { return };
    let outcome = mount.try_mount();
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.err.contains("already a weft mount"), "{outcome:?}");
    std::fs::read(mount.at(PAGE)).expect("the first mount goes on");
}

#[test]
fn a_cache_serves_one_mount_at_a_time() {
    let Some(mount) = Mount::new() else { return };
    let Some(second) = Mount::prepare(Setup { cache: Some(mount.cache()), ..Default::default() }) else { return };
    let outcome = second.try_mount();
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.err.contains("use"), "{outcome:?}");
    assert!(!second.is_mounted());
    std::fs::read(mount.at(PAGE)).expect("the first mount goes on");
}

#[test]
fn a_cache_inside_a_mount_is_refused() {
    let Some(outer) = Mount::new() else { return };
    let Some(own) = Mount::prepare(Setup::default()) else { return };
    let inside = Mount::prepare(Setup { cache: Some(own.dir().join("cache")), ..Default::default() });
    let Some(inside) = inside else { return };
    let outcome = own.weft().arg("mount").arg("--cache").arg(own.at("cache")).arg(own.dir()).run();
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert!(outcome.err.contains("inside the mount point"), "{outcome:?}");
    drop(inside);
    let elsewhere = own.weft().arg("mount").arg("--cache").arg(outer.at("web/cache")).arg(own.dir()).run();
    assert_ne!(elsewhere.code, Some(0), "another mount cannot hold a cache either: {elsewhere:?}");
    assert!(!own.is_mounted());
}

#[test]
fn a_bad_place_gets_a_plain_sentence() {
    let Some(mount) = Mount::prepare(Setup::default()) else { return };
    std::fs::write(mount.beside("file"), "").expect("written");
    for (place, words) in [("absent", "make it with"), ("file", "not a directory"), ("", "not empty")] {
        let outcome = mount.weft().arg("mount").arg("--cache").arg(mount.cache()).arg(mount.beside(place)).run();
        assert!(outcome.code != Some(0) && outcome.err.contains(words), "{place}: {outcome:?}");
    }
}

#[test]
fn a_busy_mount_stays_until_it_may_go() {
    let Some(mount) = Mount::new() else { return };
    let mut open = std::fs::File::open(mount.at(PAGE)).expect("opened");
    let outcome = mount.verb("umount", [mount.dir()]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.err.contains("in use") && outcome.err.contains("--lazy"), "{outcome:?}");
    assert!(mount.is_mounted());
    let outcome = mount.verb("umount --lazy", [mount.dir()]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(!mount.is_mounted());
    let mut text = String::new();
    std::io::Read::read_to_string(&mut open, &mut text).expect("an open file is read to its end");
    assert!(text.contains("<html"));
}

#[test]
fn a_dead_mount_is_told_and_cleared() {
    let Some(mount) = Mount::new() else { return };
    mount.kill9();
    assert!(mount.is_mounted());
    let outcome = mount.try_mount();
    assert_eq!(outcome.code, Some(3), "{outcome:?}");
    assert!(outcome.err.contains("weft umount --lazy"), "{outcome:?}");
    assert_eq!(mount.verb("why", [mount.at(PAGE)]).code, Some(3));
    let outcome = mount.verb("umount --lazy", [mount.dir()]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(!mount.is_mounted());
    mount.mount();
    std::fs::read(mount.at(PAGE)).expect("read");
}

#[test]
fn an_interrupt_ends_a_mount_in_the_foreground() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let Some(mount) = Mount::prepare(Setup::default()) else { return };
        let mut command = Command::new(weft_program());
        command.args(["mount", "--foreground", "--ready", "stdout", "--cache"]).arg(mount.cache()).arg(mount.dir());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the program runs");
        let mut line = String::new();
        let pipe = child.stdout.take().expect("a pipe");
        std::io::BufReader::new(pipe).read_line(&mut line).expect("the hand-shake");
        assert!(line.contains("\"ready\":true"), "{line}");
        std::fs::read(mount.at(PAGE)).expect("read");
        kill_process(Pid::from_child(&child), signal).expect("signalled");
        let ended = child.wait().expect("our child");
        assert!(ended.success(), "{signal:?}: {ended}");
        assert!(!mount.is_mounted(), "{signal:?}");
    }
}

/// Goal: an ordinary user mounts, reads, asks and unmounts. Method: in a mount namespace of its own, where /dev/fuse
/// is open to everybody, as Debian has it: the machine's own may be closed.
#[test]
fn an_ordinary_user_mounts_through_fusermount() {
    if !is_root() {
        return without("only root can become another user; the other tests have mounted as an ordinary one");
    }
    if find_program("fusermount3").is_none() {
        return without("fusermount3 is missing; scripts/install-test-deps.sh installs it");
    }
    let Some(mount) = Mount::prepare(Setup { uid: Some(NOBODY), ..Default::default() }) else { return };
    std::fs::create_dir(mount.beside("dev")).expect("made");
    let script = format!(
        "set -e
        mount -t tmpfs -o dev,mode=755 none '{top}/dev'
        mknod -m 666 '{top}/dev/fuse' c 10 229
        mount --bind '{top}/dev/fuse' /dev/fuse
        cd '{top}'
        export HOME='{top}/home' XDG_RUNTIME_DIR='{top}/run' XDG_CACHE_HOME='{top}/home/cache'
        nobody() {{ setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\"; }}
        trap 'nobody ./weft umount --lazy mnt 2>/dev/null || true' EXIT
        nobody ./weft mount mnt
        nobody grep -c '<html' 'mnt/{PAGE}'
        nobody stat -c 'owner %u' 'mnt/{PAGE}'
        nobody ls mnt/web
        nobody ./weft why 'mnt/{PAGE}' >/dev/null
        nobody ./weft status mnt
        nobody grep ' fuse.weft ' /proc/self/mountinfo
        nobody ./weft umount mnt
        ! mountpoint mnt",
        top = mount.beside("").display(),
    );
    let outcome = Program::new("unshare").args(["-m", "--propagation", "private", "sh", "-c", &script]).run();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.out.contains("owner 65534") && outcome.out.contains("weft.example"), "{outcome:?}");
}

#[test]
fn an_ordinary_user_mounts_on_their_own_directories_alone() {
    if !is_root() {
        return without("only root can become another user");
    }
    let Some(mount) = Mount::prepare(Setup { uid: Some(NOBODY), ..Default::default() }) else { return };
    std::os::unix::fs::chown(mount.dir(), Some(0), Some(0)).expect("root may");
    let outcome = mount.try_mount();
    assert_eq!(outcome.code, Some(5), "{outcome:?}");
    assert!(outcome.err.contains("not yours"), "{outcome:?}");
}

#[test]
fn the_helper_of_mount_takes_what_mount_gives_it() {
    if !is_root() {
        return without("mount(8) calls its helper as root");
    }
    let Some(mount) = Mount::prepare(Setup::default()) else { return };
    let helper = mount.beside("mount.fuse.weft");
    std::os::unix::fs::symlink(weft_program(), &helper).expect("linked");
    let options = format!("rw,noauto,_netdev,cache={}", mount.cache().display());
    let call = || Program::new(&helper).arg("weft").arg(mount.dir()).args(["-o", &options, "-t", "fuse.weft"]);
    let checked = call().arg("-f").run();
    assert_eq!(checked.code, Some(0), "{checked:?}");
    assert!(!mount.is_mounted(), "-f only looks whether it would work");
    call().good();
    assert!(mount.is_mounted());
    std::fs::read(mount.at(PAGE)).expect("read");
    mount.umount();
}

#[test]
fn mount_itself_finds_the_helper() {
    if !is_root() {
        return without("mount(8) is root's");
    }
    let Some(mount) = Mount::prepare(Setup::default()) else { return };
    // In a mount namespace of its own /sbin can have a helper that nobody else sees; the mount ends with it.
    let sbin = mount.beside("sbin");
    std::fs::create_dir(&sbin).expect("made");
    let script = format!(
        "set -e
        cp -a \"$(readlink -f /sbin)/.\" '{sbin}' 2>/dev/null || true
        cp --remove-destination '{weft}' '{sbin}/mount.fuse.weft'
        mount --bind '{sbin}' \"$(readlink -f /sbin)\"
        mount -t fuse.weft -o cache='{cache}' weft '{dir}'
        grep -c '<html' '{dir}/{PAGE}'
        umount '{dir}'
        ! mountpoint -q '{dir}'
        mount -t fuse.weft -o cache='{cache}',freshness=manual web:weft.example/docs '{dir}'
        ls '{dir}'
        mount -o remount,noexec '{dir}'
        grep \"$(readlink -f '{dir}') \" /proc/self/mountinfo | grep -c noexec
        ! mount -o remount,rw '{dir}'
        umount '{dir}'",
        sbin = sbin.display(),
        weft = weft_program().display(),
        cache = mount.cache().display(),
        dir = mount.dir().display(),
    );
    let outcome = Program::new("unshare").args(["-m", "--propagation", "private", "sh", "-c", &script]).run();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.out.contains("notes.txt") && outcome.err.contains("no source in it takes"), "{outcome:?}");
    assert!(!mount.is_mounted());
}

/// Goal: what is mounted can be closed to changes and opened again, not while somebody writes; all else stays as it is, and with
/// `sync` a write is at the source when it returns.
#[test]
fn a_mount_is_closed_to_changes_and_opened_again() {
    if !is_root() {
        return without("what a mount allows is changed by root");
    }
    let Some(pair) = Pair::with(&["sync"]) else { return };
    let remount = |options: &str| pair.mount.weft().args(["mount", "-o", options]).arg(pair.mount.dir()).run();
    let mut file = std::fs::File::create(pair.at("log")).expect("made");
    std::io::Write::write_all(&mut file, b"one").expect("written");
    assert_eq!(std::fs::read(pair.there("log")).expect("read"), b"one", "before it is closed");
    let busy = remount("remount,ro");
    assert!(busy.code == Some(1) && busy.err.contains("open to be written"), "{busy:?}");
    drop(file);
    for (options, fails) in [("remount,ro", true), ("remount,noexec", true), ("remount,rw", false)] {
        let outcome = remount(options);
        assert_eq!(outcome.code, Some(0), "{options}: {outcome:?}");
        let written = std::fs::write(pair.at("log"), options).map_err(|error| error.kind());
        let expected = if fails { Err(std::io::ErrorKind::ReadOnlyFilesystem) } else { Ok(()) };
        assert_eq!(written, expected, "{options}");
    }
    let elsewhere = pair.mount.weft().args(["mount", "-o", "remount,ro"]).arg(pair.there("")).run();
    assert!(elsewhere.code == Some(3) && elsewhere.err.contains("not a mount of weft"), "{elsewhere:?}");
}

/// Goal: a tree of the web that is not there, or is a file, is not mounted, and the sentence says where that was asked and
/// what came; where nobody answers, it is mounted, for there may be no network.
#[test]
fn a_tree_that_is_not_there_is_not_mounted() {
    let liar = Liar::answering(|asked| match asked.path.as_str() {
        "/docs/" => page("<a href='a.txt'>a</a>"),
        "/docs" => answer("301 Moved Permanently", &["location: /docs/"], ""),
        "/file.txt" => answer("200 OK", &["content-type: text/plain"], "text"),
        _ => answer("404 Not Found", &[], ""),
    });
    let prepare = |path: &str| {
        let source: &'static str = format!("web:{}/{path}", liar.host()).leak();
        Mount::prepare(Setup { source, ..Default::default() })
    };
    for (path, why) in [("nothere", "/nothere/: 404"), ("file.txt", "/file.txt: a file")] {
        let Some(mount) = prepare(path) else { return };
        let outcome = mount.try_mount();
        let url = format!("http://{}", liar.host());
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        assert!(outcome.err.contains(&url) && outcome.err.contains(why), "{outcome:?}");
        assert!(!mount.is_mounted(), "{path}");
    }
    let (Some(there), Some(unknown)) = (prepare("docs"), prepare("nothere")) else { return };
    assert_eq!(there.try_mount().code, Some(0));
    assert_eq!(names_in(&there.dir()), ["a.txt", "index.html"]);
    drop(liar);
    assert_eq!(unknown.try_mount().code, Some(0), "nobody says that it is not there");
}

#[test]
fn df_and_the_root_ask_nobody() {
    let Some(mount) = Mount::new() else { return };
    run("df", [mount.dir()]);
    assert_eq!(names_in(&mount.dir()), ["web"]);
    run("stat", [mount.dir(), mount.at("web")]);
    assert_eq!(mount.figure("requests"), 0);
    assert!(Path::new("/proc/self").exists());
}
