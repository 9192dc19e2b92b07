//! What is done through a mount of a directory right after something else was done in the directory itself, and the other
//! way round: both are one.

use std::fs::{File, FileTimes, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::UNIX_EPOCH;

use rustix::fs::{CWD, RenameFlags, XattrFlags};

use crate::full_disk::SmallDisk;
use crate::interrupts::wait_until;
use crate::support::{Pair, Program, is_root, without};

/// Goal: a name that was taken away, moved, exchanged or given to another file through the mount, and has another file beside it
/// right after, leads to that. Nobody has promised to tell of it: what was promised was of another name, or has ended by
/// the change.
#[test]
fn what_is_made_beside_under_a_name_that_was_changed_here_is_there() {
    type Change = fn(&Pair);
    let changes: [(&str, Change); 5] = [
        ("removed", |pair| std::fs::remove_file(pair.at("name")).expect("removed")),
        ("moved", |pair| std::fs::rename(pair.at("name"), pair.at("other")).expect("moved")),
        ("moved to another directory", |pair| std::fs::rename(pair.at("name"), pair.at("dir/name")).expect("moved")),
        ("exchanged", |pair| {
            std::fs::write(pair.at("other"), "of the other").expect("written");
            let exchange = RenameFlags::EXCHANGE;
            rustix::fs::renameat_with(CWD, pair.at("name"), CWD, pair.at("other"), exchange).expect("exchanged");
        }),
        ("linked", |pair| {
            let _ = std::fs::remove_file(pair.there("linked"));
            std::fs::hard_link(pair.at("name"), pair.at("linked")).expect("linked");
        }),
    ];
    let Some(pair) = Pair::new() else { return };
    std::fs::create_dir(pair.there("dir")).expect("made");
    for (how, change) in changes {
        for round in 0..ROUNDS {
            replace(&pair, "name", "before");
            assert_eq!(std::fs::read_to_string(pair.at("name")).expect("read"), "before");
            change(&pair);
            let text = format!("made anew in round {round}");
            replace(&pair, "name", &text);
            assert_eq!(std::fs::read_to_string(pair.at("name")).expect("it is there"), text, "{how}, round {round}");
        }
    }
}

/// Goal: what lies in the lower layer of an overlay is written, set and held open as any file: that overlayfs copies it then, and
/// tells another time of birth, makes no other file of it. A directory of that layer mv(1) copies where overlayfs does not move it.
#[test]
fn a_file_of_a_lower_layer_stays_that_when_it_is_written() {
    let Some(disk) = SmallDisk::of("16m") else { return };
    let at = |name: &str| disk.path().join(name);
    for name in ["lower", "upper", "work", "all"] {
        std::fs::create_dir(at(name)).expect("made");
    }
    std::fs::create_dir(at("lower/dir")).expect("made");
    for name in ["appended", "set", "beside", "dir/file"] {
        std::fs::write(at("lower").join(name), "lower\n").expect("written");
    }
    let layers = ["lower", "upper", "work"].map(|name| format!("{name}dir={}", at(name).display())).join(",");
    let overlay = Program::new("mount").args(["-t", "overlay", "-o", &layers, "none"]).arg(at("all")).run();
    if overlay.code != Some(0) {
        return without("overlayfs is missing");
    }
    {
        let Some(pair) = Pair::over(&at("all"), &[]) else { return };
        pair.script("mv dir moved && cat moved/file");
        let mut kept = OpenOptions::new().append(true).open(pair.at("beside")).expect("opened");
        std::fs::set_permissions(pair.at("set"), Permissions::from_mode(0o600)).expect("set");
        for name in ["appended", "set"] {
            let mut file = OpenOptions::new().append(true).open(pair.at(name)).expect("opened");
            file.write_all(b"more\n").and_then(|()| file.sync_all()).expect("written");
        }
        std::fs::set_permissions(pair.there("beside"), Permissions::from_mode(0o600)).expect("set");
        kept.write_all(b"more\n").and_then(|()| kept.sync_all()).expect("written");
        for path in ["appended", "set", "beside"].iter().flat_map(|name| [pair.at(name), pair.there(name)]) {
            assert_eq!(std::fs::read_to_string(&path).expect("read"), "lower\nmore\n", "{path:?}");
        }
        assert!(pair.mount.status()["unsent"]["files"].as_array().is_none_or(Vec::is_empty));
    }
    let _ = Program::new("umount").arg("-l").arg(at("all")).run();
}

/// Goal: whoever writes a file that is moved in the directory itself, as logs are when they are rotated, goes on writing it where
/// it is then, in its directory or another one; what has its name since is another file.
#[test]
fn a_file_that_is_moved_beside_is_written_on_where_it_is() {
    let Some(pair) = Pair::new() else { return };
    std::fs::create_dir(pair.there("old")).expect("made");
    for round in 0..ROUNDS {
        // Both directories are looked at.
        assert!(std::fs::read_dir(pair.at("old")).expect("listed").count() <= 1);
        std::fs::write(pair.there("log"), "begun\n").expect("written");
        let mut log = OpenOptions::new().append(true).open(pair.at("log")).expect("opened");
        log.write_all(b"before\n").and_then(|()| log.sync_all()).expect("written");
        let moved = if round.is_multiple_of(2) { "log.1" } else { "old/log" };
        std::fs::rename(pair.there("log"), pair.there(moved)).expect("moved");
        std::fs::write(pair.there("log"), "of the next\n").expect("written");
        log.write_all(b"after\n").and_then(|()| log.sync_all()).expect("written where it is");
        assert_eq!(log.metadata().expect("it is there").len(), 19);
        drop(log);
        for (name, text) in [(moved, "begun\nbefore\nafter\n"), ("log", "of the next\n")] {
            for place in [pair.there(name), pair.at(name)] {
                assert_eq!(std::fs::read_to_string(place).expect("read"), text, "{name}, round {round}");
            }
        }
    }
    assert!(pair.mount.status()["unsent"]["files"].as_array().is_none_or(Vec::is_empty));
}

/// Goal: so it is when the daemon is another than the one that opened it, was replaced or killed, and nobody has looked the file
/// up since. A directory that is open is followed as well.
#[test]
fn what_is_moved_beside_after_another_daemon_has_followed_is_written_on_where_it_is() {
    let Some(pair) = Pair::new() else { return };
    std::fs::create_dir(pair.there("dir")).expect("made");
    for (round, is_killed) in [false, true, false, true].into_iter().enumerate() {
        std::fs::write(pair.there("dir/log"), "begun\n").expect("written");
        let mut log = OpenOptions::new().append(true).open(pair.at("dir/log")).expect("opened");
        let mut idle = OpenOptions::new().append(true).open(pair.at("dir/log")).expect("opened");
        log.write_all(b"before\n").expect("written");
        match is_killed {
            true => pair.mount.kill_daemon(),
            false => assert_eq!(pair.mount.verb("upgrade", [pair.mount.dir()]).code, Some(0)),
        }
        let moved = if round < 2 { "dir/log.1" } else { "else/log" };
        if round >= 2 {
            std::fs::rename(pair.there("dir"), pair.there("else")).expect("moved");
        } else {
            std::fs::rename(pair.there("dir/log"), pair.there(moved)).expect("moved");
            std::fs::write(pair.there("dir/log"), "of the next\n").expect("written");
        }
        log.write_all(b"after\n").and_then(|()| log.sync_all()).expect("written where it is");
        idle.write_all(b"last\n").and_then(|()| idle.sync_all()).expect("written where it is");
        assert_eq!(log.metadata().expect("it is there").len(), 24, "round {round}");
        drop((log, idle));
        for place in [pair.there(moved), pair.at(moved)] {
            assert_eq!(std::fs::read_to_string(place).expect("read"), "begun\nbefore\nafter\nlast\n", "round {round}");
        }
        if round >= 2 {
            std::fs::rename(pair.there("else"), pair.there("dir")).expect("moved back");
        }
    }
    assert!(pair.mount.status()["unsent"]["files"].as_array().is_none_or(Vec::is_empty));
    pair.agree();
}

/// Goal: a file with several names that was changed in the directory itself just now is emptied by somebody who may not keep its
/// set-id bits: the kernel follows the path again once, and is not told to do so again.
#[test]
fn a_file_with_several_names_is_emptied_right_after_it_was_changed() {
    if !is_root() {
        return without("only root can become other users");
    }
    let Some(pair) = Pair::new() else { return };
    std::fs::create_dir(pair.there("work")).expect("made");
    std::fs::write(pair.there("work/name"), "before").expect("written");
    std::fs::hard_link(pair.there("work/name"), pair.there("other")).expect("linked");
    for round in 0..ROUNDS {
        std::fs::write(pair.there("work/name"), format!("round {round}")).expect("written");
        std::fs::set_permissions(pair.there("work/name"), Permissions::from_mode(0o4777)).expect("set");
        wait_until("what was written", || std::fs::metadata(pair.at("work/name")).is_ok_and(|told| told.len() > 0));
        pair.script("cd work; setpriv --reuid=1001 --regid=1001 --clear-groups sh -c ': > name'");
        let told = std::fs::metadata(pair.there("other")).expect("it is there");
        assert_eq!((told.len(), told.mode() & 0o7777), (0, 0o777), "round {round}");
    }
}

/// Goal: whose something in a sticky directory has become in the directory itself removes it: the kernel goes by the owner that
/// it is told with the name, and asks nobody else.
#[test]
fn who_has_become_the_owner_removes_from_a_sticky_directory() {
    if !is_root() {
        return without("only root can become other users");
    }
    let Some(pair) = Pair::new() else { return };
    pair.script("mkdir work; chmod 1777 work");
    // These ask for nothing but that.
    for (name, make, how) in [("file", "echo text >work/file", "unlink"), ("dir", "mkdir work/dir", "rmdir")] {
        pair.script(&format!("{make}; ls -l work"));
        let remove = format!("cd work; setpriv --reuid=1001 --regid=1001 --clear-groups {how} {name}");
        assert_ne!(pair.try_script(&remove).code, Some(0), "{name}: it is root's");
        std::os::unix::fs::chown(pair.there("work").join(name), Some(1001), None).expect("given away");
        wait_until("a name that is removed", || pair.try_script(&remove).code == Some(0));
        assert!(!pair.there("work").join(name).exists());
    }
}

/// Goal: who has a file open sets its mode and times when it was moved, removed or replaced in the directory itself, once the
/// kernel has been told of that: of that file, and not of what has its name since.
#[test]
fn who_has_a_file_open_sets_its_mode_wherever_it_is() {
    let Some(pair) = Pair::new() else { return };
    std::fs::create_dir(pair.there("old")).expect("made");
    assert_eq!(std::fs::read_dir(pair.at("old")).expect("listed").count(), 0);
    let mode_of = |path: &Path| path.metadata().map(|told| told.permissions().mode() & 0o7777).ok();
    for how in ["moved", "removed", "replaced"] {
        replace(&pair, "name", "before");
        std::fs::set_permissions(pair.there("name"), Permissions::from_mode(0o644)).expect("set");
        // The kernel may know for a moment that there is no such name.
        wait_until("a name", || pair.at("name").exists());
        let open = File::open(pair.at("name")).expect("opened");
        match how {
            "moved" => std::fs::rename(pair.there("name"), pair.there("old/name")).expect("moved"),
            "removed" => std::fs::remove_file(pair.there("name")).expect("removed"),
            _ => {
                replace(&pair, "name", "another");
                std::fs::set_permissions(pair.there("name"), Permissions::from_mode(0o644)).expect("set");
            }
        }
        let times = FileTimes::new().set_modified(UNIX_EPOCH);
        let set = || open.set_permissions(Permissions::from_mode(0o600)).and_then(|()| open.set_times(times));
        wait_until("mode and times that are set", || set().is_ok());
        let told = open.metadata().unwrap_or_else(|error| panic!("{how}: {error}"));
        assert_eq!((told.permissions().mode() & 0o7777, told.mtime()), (0o600, 0), "{how}");
        let (here, there) = (mode_of(&pair.at("name")), mode_of(&pair.there("name")));
        let of_name = (how == "replaced").then_some(0o644);
        assert_eq!((here, there), (of_name, of_name), "{how}: what has its name");
        if how == "moved" {
            assert_eq!(mode_of(&pair.there("old/name")), Some(0o600));
        }
    }
}

/// Goal: a name that was given to another file in the directory itself leads to that at the next open, also while something that
/// was written here to the former file is not sent.
#[test]
fn what_takes_the_place_of_a_file_that_is_being_written_is_opened() {
    let Some(pair) = Pair::new() else { return };
    for round in 0..ROUNDS {
        std::fs::write(pair.there("name"), "before").expect("written");
        let mut open = OpenOptions::new().write(true).open(pair.at("name")).expect("opened");
        open.write_all(b"MINE").expect("written");
        let text = format!("put there in round {round}");
        replace(&pair, "name", &text);
        assert_eq!(std::fs::read_to_string(pair.at("name")).expect("it is there"), text);
        open.sync_all().expect_err("it has no name any more");
        drop(open);
        assert_eq!(std::fs::read_to_string(pair.there("name")).expect("read"), text, "nothing is written over it");
        pair.mount.verb("unsent --discard", [pair.at("name")]);
    }
}

/// Goal: whoever writes a file goes on although somebody changes its mode, or gives it one more name, in the directory itself,
/// and others open it then: its bytes are the same. Also of what was written and sent before.
#[test]
fn what_is_open_for_writing_bears_other_modes_and_names() {
    let Some(pair) = Pair::new() else { return };
    type Change = fn(&Path);
    let changes: [(&str, Change); 2] = [
        ("mode", |file| std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o640)).expect("set")),
        ("name", |file| std::fs::hard_link(file, file.with_extension("linked")).expect("linked")),
    ];
    for (what, change) in changes {
        for is_written in [false, true] {
            let name = format!("{what}-{is_written}");
            let (there, here) = (pair.there(&name), pair.at(&name));
            std::fs::write(&there, "as it was before").expect("written");
            // What has not come yet cannot be compared. A name is known when it was looked up after all that was told of it.
            wait_until("a whole copy", || {
                assert_eq!(std::fs::read_to_string(&here).expect("read"), "as it was before");
                pair.mount.verb("why", [&here]).out.contains("whole")
            });
            let mut open = OpenOptions::new().write(true).open(&here).expect("opened");
            if is_written {
                open.write_all(b"AS").and_then(|()| open.sync_all()).expect("written");
            }
            change(&there);
            let read = std::fs::read_to_string(&here).expect("read");
            assert_eq!(read.to_lowercase(), "as it was before", "{name}");
            open.write_all(b" IT").and_then(|()| open.sync_all()).unwrap_or_else(|error| panic!("{name}: {error}"));
            let wanted = if is_written { "AS ITt was before" } else { " ITit was before" };
            for place in [there, here] {
                assert_eq!(std::fs::read_to_string(place).expect("read")[..5], wanted[..5], "{name}");
            }
        }
    }
    // What has other bytes is not taken for the same because of its time and length.
    std::fs::write(pair.there("other"), "as it was before").expect("written");
    let modified = std::fs::metadata(pair.there("other")).expect("there").modified().expect("a time");
    let mut open = OpenOptions::new().write(true).open(pair.at("other")).expect("opened");
    std::fs::write(pair.there("other"), "IS IT WAS BEFORE").expect("written");
    File::options().write(true).open(pair.there("other")).and_then(|it| it.set_modified(modified)).expect("set");
    assert_eq!(std::fs::read_to_string(pair.at("other")).expect("read"), "IS IT WAS BEFORE");
    open.write_all(b"MINE").and_then(|()| open.sync_all()).expect_err("somebody else has written it");
    assert_eq!(std::fs::read_to_string(pair.there("other")).expect("read"), "IS IT WAS BEFORE");
}

/// Goal: what is moved through the mount is what has the name at its source, though another was put in its place right
/// before.
#[test]
fn what_is_moved_is_what_was_put_in_its_place_beside() {
    let Some(pair) = Pair::new() else { return };
    for round in 0..ROUNDS {
        std::fs::write(pair.there("name"), "before").expect("written");
        assert_eq!(std::fs::read_to_string(pair.at("name")).expect("read"), "before");
        let text = format!("put there in round {round}");
        replace(&pair, "name", &text);
        std::fs::rename(pair.at("name"), pair.at("moved")).expect("moved");
        assert_eq!(std::fs::read_to_string(pair.there("moved")).expect("read"), text, "round {round}");
        assert_eq!(std::fs::read_to_string(pair.at("moved")).expect("read"), text, "round {round}");
    }
}

/// Goal: a file that the kernel still knows, and that was removed or replaced beside right before, is made or opened, emptied,
/// added to or given an attribute as if that had been seen.
#[test]
fn what_was_removed_beside_is_made_and_what_was_replaced_is_changed() {
    let Some(pair) = Pair::new() else { return };
    let written = |how: &OpenOptions, round| {
        let mut file = how.open(pair.at("name")).unwrap_or_else(|error| panic!("round {round}: {error}"));
        file.write_all(b"here").expect("written");
        drop(file);
        std::fs::read_to_string(pair.there("name")).expect("read")
    };
    let known = || {
        replace(&pair, "name", "before");
        assert_eq!(std::fs::read_to_string(pair.at("name")).expect("read"), "before");
    };
    let made = |options: &mut OpenOptions| options.create(true).write(true).clone();
    for round in 0..ROUNDS {
        for how in [made(OpenOptions::new().truncate(true)), made(OpenOptions::new().append(true))] {
            known();
            std::fs::remove_file(pair.there("name")).expect("removed");
            assert_eq!(written(&how, round), "here", "round {round}");
        }
        known();
        replace(&pair, "name", "replaced");
        assert_eq!(written(OpenOptions::new().append(true), round), "replacedhere", "round {round}");
        known();
        replace(&pair, "name", "replaced");
        assert_eq!(written(OpenOptions::new().write(true).truncate(true), round), "here", "round {round}");
        known();
        replace(&pair, "name", "replaced");
        match rustix::fs::setxattr(pair.at("name"), "user.told", b"here", XattrFlags::empty()) {
            Err(rustix::io::Errno::OPNOTSUPP) => {}
            set => set.unwrap_or_else(|error| panic!("round {round}: {error}")),
        }
    }
}

/// Goal: what is added to a file, and what is copied of it within the kernel, goes by the length that it has, though the kernel
/// has not looked at it since somebody made it longer beside.
#[test]
fn what_is_added_and_copied_goes_by_the_length_that_a_file_has() {
    let Some(pair) = Pair::new() else { return };
    let line = |path: &Path, text: &str| {
        let mut file = OpenOptions::new().append(true).open(path).expect("opened");
        writeln!(file, "{text}").expect("written");
    };
    std::fs::write(pair.there("log"), "").expect("written");
    let mut all = String::new();
    for round in 0..ROUNDS {
        for (whose, path) in [("beside", pair.there("log")), ("here", pair.at("log"))] {
            let text = format!("{whose}, round {round}");
            line(&path, &text);
            all = format!("{all}{text}\n");
        }
        assert_eq!(std::fs::read_to_string(pair.there("log")).expect("read"), all, "round {round}");
        line(&pair.there("log"), "and one more");
        all.push_str("and one more\n");
        let (from, to) = (File::open(pair.at("log")).expect("opened"), tempfile::tempfile().expect("a file"));
        let sent = rustix::fs::sendfile(&to, &from, None, 1 << 20).expect("sent");
        assert_eq!(sent, all.len(), "round {round}");
    }
}

/// Writes a file and puts it in the place of another, in the directory.
fn replace(pair: &Pair, name: &str, text: &str) {
    std::fs::write(pair.there(".saved"), text).expect("written");
    std::fs::rename(pair.there(".saved"), pair.there(name)).expect("renamed");
}

/// How often each is tried: which of the two is faster, the program or what the kernel tells, is chance.
const ROUNDS: usize = 40;
