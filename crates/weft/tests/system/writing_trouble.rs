//! A source that does not take what is written: full, or changed by somebody else.

use std::fs::File;
use std::io::{ErrorKind, Write};

use crate::full_disk::SmallDisk;
use crate::interrupts::wait_until;
use crate::support::{Pair, names_in, noise};
use crate::writing_processes::works;

/// Goal: whoever writes hears that the source is full, loses nothing of what is open, and goes on when there is room.
#[test]
fn a_full_source_is_told_to_who_writes() {
    let Some(disk) = SmallDisk::of("4m") else { return };
    let Some(pair) = Pair::over(disk.path(), &[]) else { return };
    std::fs::write(pair.there("ballast"), noise(3 << 20)).expect("written");
    let mut file = File::create(pair.at("file")).expect("made");
    let bytes = noise(2 << 20);
    let full = file.write_all(&bytes).and_then(|()| file.sync_all()).expect_err("there is no room");
    assert_eq!(full.kind(), ErrorKind::StorageFull);
    assert!(pair.there("file").metadata().is_ok_and(|facts| facts.len() < 2 << 20));
    std::fs::remove_file(pair.at("ballast")).expect("removed");
    file.sync_all().expect("there is room");
    assert!(std::fs::read(pair.there("file")).expect("read") == bytes, "nothing was lost meanwhile");
    drop(file);

    let outcome = pair.try_script("head -c 3M /dev/urandom >$beside/more; cp $beside/more more");
    assert!(outcome.code == Some(1) && outcome.err.contains("No space left"), "{outcome:?}");
    pair.script("rm file; cp $beside/more more; cmp more $beside/more; cmp $source/more $beside/more");
    pair.script("echo more >>more; cmp more $source/more");
    pair.agree();
}

/// Goal: a file that somebody else changes at the source while it is written here stays theirs: who closes it is told, and
/// so are people; the next who opens it has theirs.
#[test]
fn what_others_changed_is_not_written_over() {
    let Some(pair) = Pair::new() else { return };
    let text = r#"
import errno, os
there = os.environ["source"] + "/file"
def closes(how):
    open(there, "w").write("as it was")
    assert open("file").read() == "as it was"
    fd = os.open("file", os.O_RDWR | how)
    os.write(fd, b"ours")
    open(there, "w").write("theirs, longer")
    try:
        os.close(fd)
    except OSError as error:
        assert error.errno == errno.EIO, error
    else:
        raise AssertionError("it was changed meanwhile")
    assert open(there).read() == "theirs, longer"
closes(os.O_APPEND)
"#;
    let Some(program) = works(&pair, text) else { return };
    program.good();
    let troubles = pair.mount.status()["troubles"].to_string();
    assert!(troubles.contains("file") && troubles.contains("changed at its source"), "{troubles}");
    assert_eq!(std::fs::read_to_string(pair.there("file")).expect("read"), "theirs, longer");
}

/// Goal: where weft may open no further file, who opens one is told that, and what was open before is as it was. Method: the
/// limit of a daemon that runs is set a little above what it has open.
#[test]
fn a_limit_of_open_files_is_told_to_who_opens_one() {
    use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
    let Some(pair) = Pair::new() else { return };
    pair.script("echo first >first");
    let daemon = pair.mount.daemon();
    let open = std::fs::read_dir(format!("/proc/{}/fd", daemon.as_raw_nonzero())).expect("listed").count() as u64;
    let limit = |files| prlimit(Some(daemon), Resource::Nofile, files).expect("it is ours");
    let before = limit(Rlimit { current: Some(open + 40), maximum: getrlimit(Resource::Nofile).maximum });
    let mut files = Vec::new();
    let refused = loop {
        assert!(files.len() < 100, "the limit is not reached");
        match File::create(pair.at(format!("file{}", files.len()))) {
            Ok(file) => files.push(file),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::NFILE.raw_os_error()), "{refused}");
    assert!(files.len() >= 5, "only {} were opened", files.len());
    for file in &mut files {
        file.write_all(b"text").expect("it was open before");
    }
    limit(before);
    drop(files);
    pair.script("test $(cat $source/file4) = text; echo more >more; cat first");
    pair.agree();
}

/// Goal: where people have as many files open as weft may, all that needs one for a moment goes on, and once they are closed
/// others are opened. Method: files that are too large for a segment, under a limit that is a fraction of them.
#[test]
fn what_comes_and_goes_has_files_left_when_people_hold_all_that_weft_may_open() {
    let Some(mut pair) = Pair::new() else { return };
    let content = |number: usize| format!("{number}").repeat(100_000);
    for number in 0..FILES {
        std::fs::write(pair.there(number.to_string()), content(number)).expect("written");
    }
    pair.mount.umount();
    pair.mount.move_to(vec!["prlimit".to_owned(), "--nofile=200:200".to_owned()]);
    pair.mount.mount();
    let open = |number: usize| File::open(pair.at(number.to_string()));
    let (held, refused): (Vec<_>, Vec<_>) = (0..FILES).map(open).partition(Result::is_ok);
    let is_told = |refused: Result<File, std::io::Error>| refused.map_err(|error| error.raw_os_error());
    assert!(!refused.is_empty() && held.len() > 100, "{} were opened", held.len());
    for refused in refused {
        assert_eq!(is_told(refused).err(), Some(Some(rustix::io::Errno::NFILE.raw_os_error())));
    }
    assert_eq!(names_in(&pair.mount.dir()).len(), FILES);
    assert!(pair.mount.status()["troubles"].as_array().is_some_and(Vec::is_empty));
    drop(held);
    for number in (0..FILES).rev() {
        // The kernel tells of what was closed a moment after close(2).
        let mut file = None;
        wait_until("room for a file", || {
            file = open(number).ok();
            file.is_some()
        });
        let read = std::io::read_to_string(file.expect("opened")).expect("read");
        assert!(read == content(number), "{number}");
    }
    pair.mount.umount();
}

/// More than the limit of the test above.
const FILES: usize = 300;
