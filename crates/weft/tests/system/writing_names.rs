//! Names that come, move and go while files under them are open.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, XattrFlags, linkat};
use rustix::io::Errno;

use crate::interrupts::wait_until;
use crate::support::{Pair, fails_with, names_in, noise};

fn both(path: &std::path::Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Goal: a file that has lost its name is read, written, cut and stays alone with who has it open; what was never read of
/// it is there too.
#[test]
fn an_open_file_without_a_name_goes_on() {
    let Some(pair) = Pair::new() else { return };
    std::fs::write(pair.there("old"), noise(3_000_000)).expect("written");
    let mut old = both(&pair.at("old"));
    let mut new = File::create_new(pair.at("new")).expect("made");
    new.write_all(b"before").expect("written");
    for name in ["old", "new"] {
        std::fs::remove_file(pair.at(name)).expect("removed");
        fails_with(File::open(pair.at(name)), Errno::NOENT);
        assert!(!pair.there(name).exists());
    }
    new.write_all(b", after").expect("written");
    new.sync_all().expect("there is nothing to send");
    let mut bytes = [0; 13];
    assert_eq!(both_ends(&new, &mut bytes), b"before, after");
    old.write_all_at(b"here", 1_000_000).expect("written");
    let mut wanted = noise(3_000_000);
    wanted[1_000_000..1_000_004].copy_from_slice(b"here");
    let mut read = Vec::new();
    old.read_to_end(&mut read).expect("read");
    assert!(read == wanted);
    old.set_len(10).expect("cut");
    let facts = old.metadata().expect("told");
    assert_eq!((facts.len(), std::os::unix::fs::MetadataExt::nlink(&facts)), (10, 0));
    std::fs::write(pair.at("old"), "another").expect("a new file of the name");
    old.seek(SeekFrom::Start(0)).expect("set");
    read.clear();
    old.read_to_end(&mut read).expect("read");
    assert!(read == wanted[..10]);
    drop((old, new));
    assert_eq!(names_in(&pair.there("")), ["old"]);
    assert_eq!(std::fs::read_to_string(pair.there("old")).expect("read"), "another");
    pair.agree();
}

fn both_ends<'a>(file: &File, bytes: &'a mut [u8]) -> &'a [u8] {
    assert_eq!(File::try_clone(file).expect("a second").metadata().expect("told").len(), bytes.len() as u64);
    let other = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
    File::open(other).expect("opened by its descriptor").read_exact(bytes).expect("read");
    bytes
}

/// Goal: a file that another was renamed over is read and written on by who has it open; under the name is the other.
#[test]
fn an_open_file_that_was_replaced_goes_on() {
    let Some(pair) = Pair::new() else { return };
    std::fs::write(pair.at("config"), noise(400_000)).expect("written");
    let open = both(&pair.at("config"));
    for round in 0..20 {
        std::fs::write(pair.at("config.new"), format!("round {round}")).expect("written");
        std::fs::rename(pair.at("config.new"), pair.at("config")).expect("renamed");
        assert_eq!(std::fs::read_to_string(pair.at("config")).expect("read"), format!("round {round}"));
        assert_eq!(std::fs::read_to_string(pair.there("config")).expect("read"), format!("round {round}"));
        open.write_all_at(&[round; 9], 40 * u64::from(round)).expect("written");
    }
    let mut wanted = noise(400_000);
    (0..20).for_each(|round| wanted[40 * round..40 * round + 9].fill(round as u8));
    let mut read = vec![0; 400_000];
    open.read_exact_at(&mut read, 0).expect("read");
    assert!(read == wanted);
    drop(open);
    assert_eq!(std::fs::read_to_string(pair.there("config")).expect("read"), "round 19");
    pair.agree();
}

/// Goal: a file that is open below a directory that is moved is written on; the bytes are at the new place.
#[test]
fn a_moved_directory_takes_open_files_with_it() {
    let Some(pair) = Pair::new() else { return };
    std::fs::create_dir_all(pair.at("one/deep/er")).expect("made");
    std::fs::create_dir(pair.at("other")).expect("made");
    let mut file = File::create(pair.at("one/deep/er/file")).expect("made");
    file.write_all(b"first ").expect("written");
    std::fs::rename(pair.at("one/deep"), pair.at("other/place")).expect("renamed");
    file.write_all(b"second ").expect("written");
    file.sync_all().expect("sent");
    assert_eq!(std::fs::read_to_string(pair.there("other/place/er/file")).expect("read"), "first second ");
    std::fs::rename(pair.at("other/place/er/file"), pair.at("one/file")).expect("renamed");
    file.write_all(b"third").expect("written");
    let here = rustix::fs::open(pair.at("other"), OFlags::DIRECTORY, Mode::empty()).expect("opened");
    std::fs::rename(pair.at("other"), pair.at("one/other")).expect("renamed");
    rustix::fs::mkdirat(&here, "made", Mode::RWXU).expect("in a directory that was moved while it was open");
    drop(file);
    assert_eq!(std::fs::read_to_string(pair.there("one/file")).expect("read"), "first second third");
    assert!(pair.there("one/other/made").is_dir());
    fails_with(std::fs::rename(pair.at("one"), pair.at("one/other/one")), Errno::INVAL);
    pair.agree();
}

/// Goal: names are exchanged, kept from being replaced, given to a file without one, and shared by hard links, as the
/// kernel's calls say.
#[test]
fn names_are_exchanged_kept_and_shared() {
    let Some(pair) = Pair::new() else { return };
    let read = |name: &str| std::fs::read_to_string(pair.at(name)).expect("read");
    std::fs::write(pair.at("a"), "of a").expect("written");
    std::fs::write(pair.at("b"), "of b").expect("written");
    let rename = |from: &str, to: &str, how| rustix::fs::renameat_with(CWD, pair.at(from), CWD, pair.at(to), how);
    rename("a", "b", RenameFlags::EXCHANGE).expect("exchanged");
    assert_eq!((read("a").as_str(), read("b").as_str()), ("of b", "of a"));
    assert_eq!(rename("a", "b", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    rename("a", "c", RenameFlags::NOREPLACE).expect("renamed");
    std::fs::hard_link(pair.at("c"), pair.at("d")).expect("linked");
    let mut open = OpenOptions::new().append(true).open(pair.at("c")).expect("opened");
    open.write_all(b" and more").expect("written");
    std::fs::remove_file(pair.at("c")).expect("removed");
    open.write_all(b" and yet more").expect("written");
    drop(open);
    assert_eq!(read("d"), "of b and more and yet more");
    match rustix::fs::open(pair.mount.dir(), OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR | Mode::WUSR) {
        Err(errno) => assert_eq!(errno, Errno::OPNOTSUPP, "no such files, and it says so"),
        Ok(file) => {
            let mut file = File::from(file);
            file.write_all(b"without a name").expect("written");
            let then = UNIX_EPOCH + Duration::from_secs(2);
            file.set_modified(then).expect("set");
            let modified = |path: &Path| path.metadata().and_then(|now| now.modified()).expect("there");
            assert_eq!(file.metadata().and_then(|now| now.modified()).expect("it is open"), then);
            let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
            rustix::fs::linkat(CWD, path, CWD, pair.at("e"), AtFlags::SYMLINK_FOLLOW).expect("linked");
            drop(file);
            assert_eq!((modified(&pair.at("e")), modified(&pair.there("e"))), (then, then));
        }
    }
    pair.agree();
}

/// Goal: a file that gets its first name before anything was written to it is one file to who made it and to who opens it by
/// that name, also when it has lost the name again, and when the daemon is killed in between.
#[test]
fn a_file_that_gets_its_first_name_empty_is_one_file() {
    let Some(pair) = Pair::new() else { return };
    for (name, is_killed) in [("a", false), ("b", true)] {
        let made = rustix::fs::open(pair.mount.dir(), OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR | Mode::WUSR);
        let made = File::from(made.expect("made"));
        let path = format!("/proc/self/fd/{}", made.as_raw_fd());
        linkat(CWD, path, CWD, pair.at(name), AtFlags::SYMLINK_FOLLOW).expect("linked");
        let named = both(&pair.at(name));
        if is_killed {
            pair.mount.kill_daemon();
        }
        named.write_all_at(b"by its name", 0).expect("written");
        let mut read = [0; 11];
        made.read_exact_at(&mut read, 0).expect("read");
        assert_eq!(&read, b"by its name");
        made.write_all_at(b", and without", 11).expect("written");
        made.sync_all().expect("sent");
        assert_eq!(std::fs::read(pair.there(name)).expect("read"), b"by its name, and without");
        std::fs::remove_file(pair.at(name)).expect("removed");
        made.set_len(5).expect("cut");
        named.write_all_at(b"!", 5).expect("written");
        let mut read = String::new();
        (&made).read_to_string(&mut read).expect("read");
        assert_eq!(read, "by it!");
    }
    pair.agree();
}

/// Goal: who reads an open directory from its beginning once more finds the names of now, whoever has changed them.
#[test]
fn a_directory_that_is_rewound_has_the_names_of_now() {
    let Some(pair) = Pair::new() else { return };
    for name in ["a", "b"] {
        std::fs::write(pair.there(name), name).expect("written");
    }
    let mut dir = rustix::fs::Dir::read_from(File::open(pair.at("")).expect("opened")).expect("a directory");
    let mut names = || {
        dir.rewind();
        let names = dir.by_ref().map(|entry| entry.expect("read").file_name().to_str().expect("text").to_owned());
        let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
        names.sort();
        names
    };
    std::fs::write(pair.at("early"), "made before anything was read").expect("written");
    assert_eq!(names(), ["a", "b", "early"]);
    std::fs::remove_file(pair.at("early")).expect("removed");
    std::fs::write(pair.at("c"), "c").expect("written");
    std::fs::remove_file(pair.at("a")).expect("removed");
    assert_eq!(names(), ["b", "c"], "changed here");
    std::fs::write(pair.there("d"), "d").expect("written");
    std::fs::remove_file(pair.there("b")).expect("removed");
    wait_until("what others change is seen", || names() == ["c", "d"]);
    pair.mount.kill_daemon();
    std::fs::remove_file(pair.at("d")).expect("removed");
    assert_eq!(names(), ["c"], "after a kill");
}

/// Goal: extended attributes of a file without a name are set, told, listed and taken away as on a disk, daemons are killed and
/// followed by others meanwhile, and the file has them when it gets a name.
#[test]
fn what_has_no_name_has_attributes() {
    use rustix::fs::{fgetxattr, flistxattr, fremovexattr, fsetxattr};
    let Some(pair) = Pair::new() else { return };
    let create = || {
        let made = rustix::fs::open(pair.mount.dir(), OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR | Mode::WUSR);
        made.expect("made")
    };
    let value = |file: &OwnedFd, name: &str| {
        let mut bytes = [0; 256];
        fgetxattr(file, name, &mut bytes).map(|length| bytes[..length].to_vec())
    };
    let names = |file: &OwnedFd| {
        let mut bytes = [0; 256];
        let length = flistxattr(file, &mut bytes).expect("told");
        let mut names: Vec<_> = bytes[..length].split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
        names.retain(|name| !name.is_empty() && !name.starts_with(b"user.weft."));
        names.sort();
        names
    };
    let (file, other) = (create(), create());
    assert_eq!(value(&file, "user.one"), Err(Errno::NODATA));
    assert!(names(&file).is_empty());
    rustix::io::write(&file, b"content").expect("written");
    let set = |name: &str, value: &[u8], how| fsetxattr(&file, name, value, how);
    set("user.one", b"1", XattrFlags::empty()).expect("set");
    set("user.two", b"2", XattrFlags::CREATE).expect("set");
    set("user.three", b"", XattrFlags::empty()).expect("set");
    assert_eq!(set("user.two", b"3", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(set("user.four", b"4", XattrFlags::REPLACE), Err(Errno::NODATA));
    assert_eq!(fremovexattr(&file, "user.four"), Err(Errno::NODATA));
    pair.mount.kill_daemon();
    set("user.two", b"second", XattrFlags::REPLACE).expect("set");
    fremovexattr(&file, "user.one").expect("taken away");
    assert_eq!(pair.mount.verb("upgrade", [pair.mount.dir()]).code, Some(0));
    let has_them = |file: &OwnedFd| {
        assert_eq!(names(file), [b"user.three".to_vec(), b"user.two".to_vec()]);
        assert_eq!(value(file, "user.two"), Ok(b"second".to_vec()));
        assert_eq!(value(file, "user.three"), Ok(Vec::new()));
        assert_eq!(value(file, "user.one"), Err(Errno::NODATA));
    };
    has_them(&file);
    assert!(names(&other).is_empty(), "it is another file");
    let held = format!("/proc/self/fd/{}", file.as_raw_fd());
    linkat(CWD, held, CWD, pair.at("named"), AtFlags::SYMLINK_FOLLOW).expect("named");
    let open = |path: &Path| rustix::fs::open(path, OFlags::RDONLY, Mode::empty()).expect("opened");
    for file in [&file, &open(&pair.there("named")), &open(&pair.at("named"))] {
        has_them(file);
    }
    set("user.one", b"once more", XattrFlags::empty()).expect("set");
    assert_eq!(value(&open(&pair.there("named")), "user.one"), Ok(b"once more".to_vec()));
    assert_eq!(std::fs::read(pair.there("named")).expect("read"), b"content");
    drop((file, other));
    pair.agree();
}
