//! AFS cells, mounted: real file servers, and OpenAFS's own client as somebody else.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;

use crate::support::{AfsCell, Afsd, Mount, Setup, compare, fails_with, names_in, run};

/// Mounts AFS on the node `c1` of a cell.
pub fn mounted(cell: &AfsCell, source: &'static str, options: &[&str]) -> Option<Mount> {
    mounted_on(cell, "c1", source, options)
}

pub fn mounted_on(cell: &AfsCell, node: &str, source: &'static str, options: &[&str]) -> Option<Mount> {
    mounted_with(cell, node, (source, ""), options)
}

/// With more lines in the configuration's `[afs]`.
pub fn mounted_with(
    cell: &AfsCell,
    node: &str,
    (source, more): (&'static str, &str),
    options: &[&str],
) -> Option<Mount> {
    // The machine's name servers are none of a test's business.
    let config = format!("[afs]\nconfig_dir = \"{}\"\ndns = false\n{more}", cell.client_config().display());
    let options = options.iter().map(|option| (*option).to_owned()).collect();
    let mut mount = Mount::prepare(Setup { source, config, options, ..Setup::default() })?;
    mount.move_to(cell.words(node));
    mount.mount();
    Some(mount)
}

pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Goal: what is shown is what the volumes were made of: names, kinds, bytes, links. Method: find and diff, cold, warm, and
/// after a remount; a directory of 3,000 names and files of several pieces are in it.
#[test]
fn volumes_are_shown_as_they_are() {
    let Some(cell) = AfsCell::up() else { return };
    let Some(mount) = mounted(cell, "afs", &[]) else { return };
    for turn in ["cold", "warm", "after a remount"] {
        if turn == "after a remount" {
            mount.remount();
        }
        for volume in ["pub", "replicated"] {
            let at = mount.at("weft.test").join(volume);
            compare(&cell.content(volume), &at);
            run("diff", ["-r".as_ref(), "--no-dereference".as_ref(), cell.content(volume).as_os_str(), at.as_os_str()]);
        }
    }
    assert_eq!(names_in(&mount.at("weft.test/pub/many")).len(), 3000);
    assert_eq!(read(&mount.at("weft.test/home/notes.txt")), "notes of alice\n");
    assert!(names_in(&mount.at(".weft.test")).contains(&"pub".to_owned()), "the read-write side");
    assert_eq!(names_in(&mount.dir()), [".weft.test", "weft.test"], "the directory of cells");
}

/// Goal: attributes are the server's.
#[test]
fn attributes_are_the_servers() {
    let Some(cell) = AfsCell::up() else { return };
    let Some(mount) = mounted(cell, "afs:weft.test", &[]) else { return };
    for name in ["large.bin", "empty", "program", "link", "d00/a/f000.txt"] {
        let (there, here) = (cell.content("pub").join(name), mount.at("pub").join(name));
        let told = |path: &Path| {
            let stat = std::fs::symlink_metadata(path).expect("stat");
            (stat.len(), stat.permissions().mode() & 0o777, stat.modified().expect("a time"))
        };
        let ((length, mode, time), (length_here, mode_here, time_here)) = (told(&there), told(&here));
        assert_eq!((length, time), (length_here, time_here), "{name}");
        // The system gives every link all bits, AFS those without which it would be a mount point.
        assert!(mode == mode_here || name == "link", "{name}: {mode:o} {mode_here:o}");
    }
    let told = mount.why(&mount.at("pub/large.bin"), "fid");
    assert_eq!(told.split('.').count(), 3, "{told}");
}

/// Goal: what another client does is seen by the next look, whatever the kernel and the cache hold. Method: another mount of
/// weft makes, writes, moves, changes and removes files; after each the first is looked at once, without waiting.
#[test]
fn what_others_do_is_seen_at_once() {
    let Some(cell) = AfsCell::up() else { return };
    let (Some(mount), Some(other)) = (mounted(cell, "afs", &[]), mounted_on(cell, "c2", "afs", &[])) else { return };
    let (there, here) = (other.at("weft.test/scratch/seen"), mount.at("weft.test/scratch/seen"));
    std::fs::create_dir(&there).expect("made");
    for turn in 0..40 {
        let (old, new) = (format!("old{turn}"), format!("new{turn}"));
        assert!(!here.join(&old).exists());
        std::fs::write(there.join(&old), "first").expect("written");
        assert_eq!(read(&here.join(&old)), "first");
        std::fs::rename(there.join(&old), there.join(&new)).expect("moved");
        assert!(!here.join(&old).exists(), "turn {turn}: the old name");
        assert_eq!(read(&here.join(&new)), "first");
        std::fs::write(there.join(&new), "the second").expect("written");
        assert_eq!(read(&here.join(&new)), "the second", "turn {turn}");
        std::fs::set_permissions(there.join(&new), std::fs::Permissions::from_mode(0o600)).expect("set");
        let mode = here.join(&new).metadata().expect("stat").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "turn {turn}");
        std::fs::remove_file(there.join(&new)).expect("removed");
        assert!(names_in(&here).is_empty(), "turn {turn}");
    }
    std::fs::remove_dir(&there).expect("removed");
    assert!(!here.exists());
}

/// Goal: a file that was made without a name, and was given one, is as any other to who made it: what others write of it is
/// seen at once and written over, while it is open still, afterwards, and by the next daemon.
#[test]
fn what_others_do_to_a_file_that_was_made_without_a_name_is_seen_at_once() {
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{FileExt, MetadataExt};

    use rustix::fs::{AtFlags, CWD, Mode, OFlags};
    let Some(cell) = AfsCell::up() else { return };
    let (Some(mount), Some(other)) = (mounted(cell, "afs", &[]), mounted_on(cell, "c2", "afs", &[])) else { return };
    let (there, here) = (other.at("weft.test/scratch/nameless"), mount.at("weft.test/scratch/nameless"));
    std::fs::create_dir(&here).expect("made");
    let nameless = rustix::fs::open(&here, OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR | Mode::WUSR).expect("made");
    let mut file = std::fs::File::from(nameless);
    file.write_all(b"0, here").expect("written");
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, path, CWD, here.join("file"), AtFlags::SYMLINK_FOLLOW).expect("linked");
    let number = file.metadata().expect("stat").ino();
    let mut made = Some(file);
    let open = |dir: &Path| std::fs::File::options().write(true).open(dir.join("file")).expect("opened");
    for turn in 1..=8 {
        open(&there).write_all_at(format!("{turn}, oh").as_bytes(), 0).expect("written");
        assert_eq!(read(&here.join("file")), format!("{turn}, ohre"));
        open(&here).write_all_at(b"we", 3).expect("written");
        assert_eq!(read(&there.join("file")), format!("{turn}, were"));
        if turn <= 4 {
            assert_eq!(here.join("file").metadata().expect("stat").ino(), number, "turn {turn}");
        }
        match turn {
            2 | 6 => mount.kill_daemon(),
            4 => drop(made.take()),
            _ => {}
        }
    }
    std::fs::remove_dir_all(&here).expect("removed");
}

/// Goal: the same of OpenAFS's own client, and the other way round. What it writes it sends some time after close(2).
#[test]
fn the_other_client_and_we_see_each_other() {
    let Some(cell) = AfsCell::up() else { return };
    let (Some(mount), Some(other)) = (mounted(cell, "afs", &[]), Afsd::mount(cell, "c2")) else { return };
    let (there, here) = (other.dir().join("weft.test/scratch/both"), mount.at("weft.test/scratch/both"));
    std::fs::create_dir(&there).expect("made");
    let comes = |path: &Path, text: &str| {
        let is_so = || std::fs::read_to_string(path).is_ok_and(|now| now == text);
        crate::interrupts::wait_until("what was written has come", is_so);
    };
    for turn in 0..5 {
        std::fs::write(there.join("file"), format!("theirs {turn}")).expect("written");
        comes(&here.join("file"), &format!("theirs {turn}"));
        std::fs::rename(there.join("file"), there.join("moved")).expect("moved");
        assert!(!here.join("file").exists(), "turn {turn}");
        std::fs::set_permissions(there.join("moved"), std::fs::Permissions::from_mode(0o600)).expect("set");
        let mode = here.join("moved").metadata().expect("stat").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "turn {turn}");
        std::fs::write(here.join("moved"), format!("ours {turn}")).expect("written");
        comes(&there.join("moved"), &format!("ours {turn}"));
        std::fs::remove_file(here.join("moved")).expect("removed");
        assert!(names_in(&there).is_empty(), "turn {turn}");
    }
    std::fs::remove_dir(&here).expect("removed");
}

/// Goal: a file that is open is one version: what another client writes meanwhile is not mixed in.
#[test]
fn an_open_file_is_one_version() {
    use std::os::unix::fs::FileExt;
    const LENGTH: usize = 5 << 20;
    let Some(cell) = AfsCell::up() else { return };
    let (Some(mount), Some(other)) = (mounted(cell, "afs", &[]), mounted_on(cell, "c2", "afs", &[])) else { return };
    let (there, here) = (other.at("weft.test/scratch/long"), mount.at("weft.test/scratch/long"));
    std::fs::write(&there, vec![b'a'; LENGTH]).expect("written");
    let file = std::fs::File::open(&here).expect("opened");
    let mut first = vec![0; 4096];
    file.read_exact_at(&mut first, 0).expect("read");
    std::fs::write(&there, vec![b'b'; LENGTH]).expect("written");
    let mut last = vec![0; 4096];
    match file.read_exact_at(&mut last, (LENGTH - 4096) as u64) {
        Ok(()) => assert!(last.iter().all(|byte| *byte == b'a'), "bytes of two versions"),
        Err(error) => assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error())),
    }
    assert!(std::fs::read(&here).expect("read").iter().all(|byte| *byte == b'b'));
    std::fs::remove_file(&there).expect("removed");
}

/// Goal: what nobody may see is refused, what is not there is not there, and a cell that is not known says so.
#[test]
fn refusals_are_errors_of_their_own() {
    let Some(cell) = AfsCell::up() else { return };
    let Some(mount) = mounted(cell, "afs", &[]) else { return };
    let top = mount.at("weft.test");
    fails_with(std::fs::read_dir(top.join("user/alice/private")), Errno::ACCESS);
    fails_with(std::fs::read(top.join("user/alice/private/diary.txt")), Errno::ACCESS);
    fails_with(std::fs::read(top.join("nothing")), Errno::NOENT);
    fails_with(std::fs::read(top.join("pub/nothing")), Errno::NOENT);
    fails_with(std::fs::read(top.join("pub/empty/below")), Errno::NOTDIR);
    fails_with(std::fs::read_dir(mount.at("no.such.cell")), Errno::NOENT);
    fails_with(std::fs::read_dir(mount.at("not a cell")), Errno::NOENT);
    fails_with(std::fs::read_link(top.join("pub/empty")), Errno::INVAL);
    assert_eq!(std::fs::read_link(top.join("pub/dangling")).expect("a link"), PathBuf::from("not/there"));
    fails_with(std::fs::read(top.join("pub/dangling")), Errno::NOENT);

    // The machine's name servers are none of a test's business.
    let config = format!("[afs]\nconfig_dir = \"{}\"\ndns = false\n", cell.client_config().display());
    let refused = |source: &'static str, config: &str, wanted: &str| {
        let setup = Setup { source, config: config.to_owned(), ..Setup::default() };
        let Some(mount) = Mount::prepare(setup) else { return };
        let outcome = mount.try_mount();
        assert!(outcome.code != Some(0) && outcome.err.contains(wanted), "{source}: {outcome:?}");
    };
    refused("afs:no.such.cell", &config, "no cell of this name is known");
    refused("afs:not/a/cell", &config, "letters, digits");
    refused("afs", "[afs]\nconfig_dir = \"/nonexistent\"\ndns = false\n", "no cell is written down there");
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("CellServDB"), ">weft.test\n10.77.0.300 #fs1\n").expect("written");
    let bad = format!("[afs]\nconfig_dir = \"{}\"\n", folder.path().display());
    refused("afs", &bad, "line 2");
}

/// Goal: a server that is killed is missed only by those who need it: what is held under a promise is read on, a volume that
/// is elsewhere as well is read there, the rest fails in time; and all of it is well when the server is back.
#[test]
fn a_server_that_is_gone_is_missed_only_where_it_is_needed() {
    let Some(cell) = AfsCell::own() else { return };
    let Some(mount) = mounted(&cell, "afs", &["deadline=4s"]) else { return };
    let top = mount.at("weft.test");
    let held = read(&top.join("pub/d00/a/f000.txt"));
    assert!(!held.is_empty());
    names_in(&top.join("replicated"));
    names_in(&top.join("user/bob"));
    cell.kill("fs1", "dafileserver");
    assert_eq!(read(&top.join("pub/d00/a/f000.txt")), held, "under its promise");
    compare(&cell.content("replicated"), &top.join("replicated"));
    assert_eq!(read(&top.join("user/bob/notes.txt")), "notes of bob\n", "on the other server");
    let begun = std::time::Instant::now();
    let error = std::fs::read(top.join("pub/d01/b/f001.txt")).expect_err("nobody has it");
    let errno = Errno::from_io_error(&error).expect("an errno");
    assert!([Errno::TIMEDOUT, Errno::HOSTUNREACH, Errno::IO].contains(&errno), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    cell.restart("fs1", "dafileserver");
    let again = || std::fs::read(top.join("pub/d01/b/f001.txt"));
    let there = std::fs::read(cell.content("pub").join("d01/b/f001.txt")).expect("read");
    crate::interrupts::wait_until("the server is back", || again().is_ok_and(|here| here == there));
}

/// Goal: with a short deadline, too, a program waits once for a server that is silent, not for each request. Method: after the
/// first who has waited nobody is told of a deadline, though what makes a call dead is far off.
#[test]
fn a_silent_server_is_waited_for_once() {
    let Some(cell) = AfsCell::own() else { return };
    let Some(mount) = mounted(&cell, "afs", &["deadline=5s"]) else { return };
    let top = mount.at("weft.test/pub");
    assert!(!names_in(&top.join("d00")).is_empty());
    cell.freeze("fs1", "dafileserver", true);
    std::fs::read(top.join("d01/b/f001.txt")).expect_err("it is asked for");
    for name in ["d01/b/f001.txt", "d02", "d00/a/f006.txt"] {
        let error = std::fs::metadata(top.join(name)).and_then(|_| std::fs::read(top.join(name))).expect_err("away");
        assert_eq!(Errno::from_io_error(&error), Some(Errno::HOSTUNREACH), "{name}: {error}");
    }
    cell.freeze("fs1", "dafileserver", false);
    let there = std::fs::read(cell.content("pub").join("d01/b/f001.txt")).expect("read");
    crate::interrupts::wait_until("it is heard again", || {
        std::fs::read(top.join("d01/b/f001.txt")).is_ok_and(|here| here == there)
    });
}

/// Goal: a volume that moves to another server is followed, one that is busy is waited for, one that is offline is an error
/// and not an absence.
#[test]
fn a_volume_is_followed_where_it_goes() {
    let Some(cell) = AfsCell::own() else { return };
    let Some(mount) = mounted(&cell, "afs", &["deadline=10s"]) else { return };
    let (at, other) = (mount.at("weft.test/pub/d00/a/f000.txt"), mount.at("weft.test/pub/d00/a/f006.txt"));
    let text = read(&at);
    let vos = |words: &str| cell.on("fs1", ["vos"].into_iter().chain(words.split(' ')).chain(["-localauth"])).good();
    vos("move pub fs1 a fs2 a");
    assert_eq!(read(&at), text);
    mount.remount();
    assert_eq!(read(&at), text);
    vos("offline fs2 a pub");
    mount.remount();
    assert_eq!(read(&at), text, "what is held serves while the volume is away");
    let error = std::fs::read(&other).expect_err("it is offline");
    assert_ne!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
    vos("online fs2 a pub");
    let there = read(&cell.content("pub").join("d00/a/f006.txt"));
    crate::interrupts::wait_until("the volume is online", || {
        std::fs::read_to_string(&other).is_ok_and(|now| now == there)
    });
}

/// Goal: `@sys` in a name is the kind of machine that is set, the first of which there is such a name; it is not listed.
#[test]
fn at_sys_is_the_kind_of_machine() {
    let Some(cell) = AfsCell::up() else { return };
    let sysname = "sysname = [\"nosuch_os\", \"amd64_linux26\"]\n";
    let Some(mount) = mounted_with(cell, "c1", ("afs", sysname), &[]) else { return };
    let top = mount.at("weft.test/scratch/at-sys");
    std::fs::create_dir_all(top.join("amd64_linux26/bin")).expect("made");
    std::fs::create_dir_all(top.join("lib.amd64_linux26")).expect("made");
    std::fs::write(top.join("amd64_linux26/bin/tool"), "of this machine").expect("written");
    std::os::unix::fs::symlink("@sys/bin", top.join("bin")).expect("made");
    let names = ["amd64_linux26", "bin", "lib.amd64_linux26"];
    assert_eq!(names_in(&top), names);
    assert_eq!(read(&top.join("bin/tool")), "of this machine");
    assert_eq!(read(&top.join("@sys/bin/tool")), "of this machine");
    assert!(top.join("lib.@sys").is_dir() && !top.join("etc.@sys").exists() && !top.join("@system").exists());
    assert_eq!(names_in(&top), names);
    // What becomes of the name becomes of what it stands for.
    std::fs::rename(top.join("amd64_linux26"), top.join("gone")).expect("moved");
    assert!(!top.join("@sys").exists());
    std::fs::create_dir_all(top.join("nosuch_os/bin")).expect("made");
    std::fs::write(top.join("nosuch_os/bin/tool"), "of another").expect("written");
    assert_eq!(read(&top.join("bin/tool")), "of another");
    std::fs::remove_dir_all(&top).expect("removed");
}
