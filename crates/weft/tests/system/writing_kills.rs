//! Writers while one daemon after the other is killed.

use std::fs::{File, FileTimes, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Signal, kill_process};

use crate::interrupts::wait_until;
use crate::support::{
    Exit, Pair, Running, fails_with, find_program, noise, same_trees, supervisor_of, without, write_aged,
};
use crate::writing_processes::works;

/// Goal: where a daemon is killed together with its supervisor, whoever waits for the mount is freed when that is taken away.
/// Method: programs that make and move names in one directory; the kernel may be about to be told of one of these by then, which
/// waits for a request that nobody answers.
#[test]
fn who_waits_for_a_mount_that_nobody_serves_is_freed_with_it() {
    let Some(pair) = Pair::new() else { return };
    let (mount, shell) = (&pair.mount, "while : > new-$nth && mv new-$nth moved-$nth; do :; done 2> /dev/null");
    let programs: Vec<Running> = (0..4).map(|nth| pair.shell(&format!("nth={nth}; {shell}")).start()).collect();
    wait_until("all are at work", || (0..4).all(|nth| pair.there(format!("moved-{nth}")).exists()));
    let daemon = mount.daemon();
    let supervisor = supervisor_of(daemon).expect("it has one");
    let ended = Exit::of(daemon);
    for pid in [supervisor, daemon] {
        kill_process(pid, Signal::KILL).expect("killed");
    }
    assert!(ended.wait(), "nobody survives SIGKILL");
    let taken = mount.verb("umount --lazy", [mount.dir()]);
    assert_eq!(taken.code, Some(0), "{taken:?}");
    for program in programs {
        let pid = rustix::process::Pid::from_raw(program.id() as i32).expect("it runs");
        assert!(Exit::of(pid).wait(), "it ends by itself");
    }
}

/// Goal: programs that copy see no error while daemons are killed, and the source has each byte. Method: cp and rsync copy
/// a few hundred files and say each, dd writes a large one in small pieces with the file open all along; the daemon is
/// killed each time when so many files were said.
#[test]
fn writers_do_not_notice_ten_kills() {
    if find_program("rsync").is_none() {
        return without("rsync is missing; scripts/install-test-deps.sh installs it");
    }
    let Some(pair) = Pair::new() else { return };
    let tree = pair.mount.beside("tree");
    for nth in 0..FILES {
        let path = tree.join(format!("d{}/{nth}", nth % 7));
        write_aged(&path, &noise(1 + (nth * 7919) % 60_000)[..], nth as u64);
    }
    std::fs::write(pair.mount.beside("large"), noise(50 << 20)).expect("written");
    let large = pair.shell("dd if=$beside/large of=large bs=5000 status=none").start();
    let mut files = pair
        .shell(
            "exec 2>&1; stdbuf -oL cp -av $beside/tree copy
            rsync --outbuf=L --modify-window=-1 -av $beside/tree/ second/; echo all",
        )
        .start();
    let mut said = 0;
    for kill in 1..=KILLS {
        while said < kill * 2 * FILES / (KILLS + 1) {
            files.line();
            said += 1;
        }
        pair.mount.kill_daemon();
    }
    while files.line() != "all\n" {}
    ended(files);
    ended(large);
    let bytes = std::fs::read(pair.there("large")).expect("read");
    assert!(bytes == noise(50 << 20), "{} bytes of the large file", bytes.len());
    for copy in ["copy", "second"] {
        same_trees(&tree, &pair.there(copy));
    }
    pair.agree();
}

#[track_caller]
fn ended(mut program: Running) {
    let error = program.error_line();
    let seen = program.seen().to_owned();
    assert_eq!((program.end(), error.as_str()), (Some(0), ""), "{seen}");
}

/// Goal: two names that were exchanged are not exchanged back by a request that the kernel asks again, whose daemon ended
/// between the change and the answer. Method: programs exchange names of their own and look each time which is which; daemons
/// are killed meanwhile, and each program goes on until the last kill is over.
#[test]
fn exchanges_are_made_once_across_kills() {
    let Some(pair) = Pair::new() else { return };
    let text = r#"
import ctypes, os, sys
libc, nth = ctypes.CDLL(None, use_errno=True), sys.argv[1]
names = [f"{nth}-{which}" for which in "ab"]
for name in names:
    open(name, "w").write(name)
os.mkdir(f"{nth}-other")
os.rename(names[1], f"{nth}-other/b")
places = [names[0], f"{nth}-other/b"]
count = 0
while not os.path.exists("over"):
    if libc.renameat2(-100, places[0].encode(), -100, places[1].encode(), 2) != 0:
        sys.exit("exchange %d: %s" % (count, os.strerror(ctypes.get_errno())))
    count += 1
    there = [open(place).read() for place in places]
    if there != [names[count % 2], names[1 - count % 2]]:
        sys.exit("after %d exchanges: %s" % (count, there))
    print(count, flush=True)
print("all", flush=True)
"#;
    let mut programs = Vec::new();
    for nth in 0..4 {
        let Some(program) = works(&pair, text) else { return };
        programs.push(program.arg(nth.to_string()).start());
    }
    for _ in 0..KILLS {
        programs.iter_mut().for_each(|program| drop(program.line()));
        pair.mount.kill_daemon();
    }
    std::fs::write(pair.at("over"), "").expect("made");
    for mut program in programs {
        while !matches!(&*program.line(), "all\n" | "") {}
        ended(program);
    }
    pair.agree();
}

/// Goal: a large file that is written in small pieces, and is open all along, has each of them although daemons are killed
/// meanwhile.
#[test]
fn a_writer_of_small_pieces_does_not_notice_ten_kills() {
    let Some(pair) = Pair::new() else { return };
    std::fs::write(pair.mount.beside("pieces"), noise(50 << 20)).expect("written");
    let go = pair.mount.beside("go");
    pair.script("mkfifo $beside/go");
    let text = r#"
import os, sys
bytes = open(sys.argv[1] + "/pieces", "rb").read()
fd = os.open("large", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
for at in range(0, len(bytes), 5000):
    assert os.write(fd, bytes[at:at + 5000]) == len(bytes[at:at + 5000])
    if at % 1000000 == 0:
        print(at, flush=True)
# The kills are over.
open(sys.argv[1] + "/go").read()
os.close(fd)
print("closed", flush=True)
"#;
    let Some(program) = works(&pair, text) else { return };
    let mut writer = program.arg(pair.mount.beside("")).start();
    for _ in 0..KILLS {
        (0..4).for_each(|_| drop(writer.line()));
        pair.mount.kill_daemon();
    }
    std::fs::write(&go, "").expect("it waits");
    while writer.line() != "closed\n" {}
    ended(writer);
    assert!(std::fs::read(pair.there("large")).expect("read") == noise(50 << 20));
    pair.agree();
}

/// Goal: what write(2) took is there after daemons were killed before close(2), in order, by every way of writing.
#[test]
fn what_was_written_before_a_kill_is_sent_after_it() {
    let Some(pair) = Pair::new() else { return };
    std::fs::write(pair.there("old"), noise(200_000)).expect("written");
    let mut made = File::create_new(pair.at("made")).expect("made");
    let mut appended = OpenOptions::new().append(true).open(pair.at("old")).expect("opened");
    let renamed = File::create_new(pair.at("before")).expect("made");
    let mut wanted = noise(200_000);
    let mut all: Vec<u8> = Vec::new();
    for round in 0..4_u8 {
        let piece = vec![b'a' + round; 3000];
        made.write_all(&piece).expect("written");
        appended.write_all(&piece).expect("written");
        std::os::unix::fs::FileExt::write_all_at(&renamed, &piece, 3000 * u64::from(round)).expect("written");
        if round == 1 {
            std::fs::rename(pair.at("before"), pair.at("after")).expect("renamed");
        }
        all.extend(&piece);
        wanted.extend(&piece);
        pair.mount.kill_daemon();
    }
    made.sync_all().expect("sent");
    assert!(std::fs::read(pair.there("made")).expect("read") == all);
    drop((made, appended, renamed));
    assert!(std::fs::read(pair.there("made")).expect("read") == all);
    assert!(std::fs::read(pair.there("old")).expect("read") == wanted);
    assert!(std::fs::read(pair.there("after")).expect("read") == all);
    pair.agree();
}

/// Goal: who has a file open for writing, and has not written it when its times are set here, writes it after the daemon was
/// killed: its bytes are what they were. What somebody else has written meanwhile is not written over.
#[test]
fn what_had_its_times_set_before_a_kill_is_written_after_it() {
    let Some(pair) = Pair::new() else { return };
    let times = FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000_000));
    for (name, is_changed) in [("by its handle", false), ("by its name", false), ("changed beside", true)] {
        std::fs::write(pair.at(name), "0123456789").expect("written");
        assert_eq!(std::fs::read(pair.at(name)).expect("read"), b"0123456789");
        let open = OpenOptions::new().read(true).write(true).open(pair.at(name)).expect("opened");
        match name {
            "by its name" => File::open(pair.at(name)).expect("opened").set_times(times).expect("set"),
            _ => open.set_times(times).expect("set"),
        }
        pair.mount.kill_daemon();
        if is_changed {
            std::fs::write(pair.there(name), "abcdefghij").expect("written");
        }
        open.write_all_at(b"XY", 3).expect("written");
        let synced = rustix::fs::fsync(&open);
        let there = std::fs::read_to_string(pair.there(name)).expect("read");
        match is_changed {
            true => assert_eq!((synced, &*there), (Err(Errno::IO), "abcdefghij")),
            false => assert_eq!((synced, &*there), (Ok(()), "012XY56789"), "{name}"),
        }
    }
}

/// Goal: who has a file open that was written and synced before a kill goes on in it after that, although somebody else has
/// changed its mode since, and another has opened it then. What was written beside in between ends it.
#[test]
fn what_was_synced_before_a_kill_is_written_on_when_its_mode_is_another() {
    let Some(pair) = Pair::new() else { return };
    for (name, is_changed) in [("its mode", false), ("its bytes", true)] {
        let mut open = File::create_new(pair.at(name)).expect("made");
        open.write_all(b"0123456789").expect("written");
        open.sync_all().expect("synced");
        pair.mount.kill_daemon();
        if is_changed {
            std::fs::write(pair.there(name), "abcdefghij").expect("written");
        }
        std::fs::set_permissions(pair.there(name), Permissions::from_mode(0o600)).expect("set");
        let there = std::fs::read(pair.there(name)).expect("read");
        assert!(std::fs::read(pair.at(name)).expect("read") == there);
        let written = open.write_all(b"more").and_then(|()| open.sync_all());
        match is_changed {
            true => assert!(written.is_err_and(|error| error.raw_os_error() == Some(Errno::IO.raw_os_error()))),
            false => written.unwrap_or_else(|error| panic!("{name}: {error}")),
        }
        let more: &[u8] = if is_changed { b"" } else { b"more" };
        assert_eq!(std::fs::read(pair.there(name)).expect("read"), [&there, more].concat(), "{name}");
    }
}

/// Goal: what was written and not closed when all of weft was killed is sent by the next mount.
#[test]
fn what_was_written_before_all_was_killed_is_sent_by_the_next_mount() {
    let Some(pair) = Pair::new() else { return };
    std::fs::write(pair.there("old"), "before, ").expect("written");
    let mut made = File::create_new(pair.at("made")).expect("made");
    made.write_all(&noise(700_000)).expect("written");
    let mut old = OpenOptions::new().append(true).open(pair.at("old")).expect("opened");
    old.write_all(b"after").expect("written");
    pair.mount.kill9();
    drop((made, old));
    assert_eq!(pair.mount.verb("umount --lazy", [pair.mount.dir()]).code, Some(0));
    pair.mount.mount();
    wait_until("what was written", || {
        std::fs::read(pair.there("made")).is_ok_and(|bytes| bytes == noise(700_000))
            && std::fs::read_to_string(pair.there("old")).is_ok_and(|text| text == "before, after")
    });
    pair.agree();
}

/// Goal: what is being sent when the daemon is killed arrives all the same, though the source has some of it by then, and nobody
/// knows what was there before. Method: a long file that was never read here is written in many places; the daemon is killed
/// as soon as the file in the directory has changed.
#[test]
fn what_is_being_sent_at_a_kill_is_sent_to_its_end() {
    let Some(pair) = Pair::new() else { return };
    for round in 0..4 {
        let name = format!("long{round}");
        let mut wanted = noise(24 << 20);
        write_aged(&pair.there(&name), &wanted[..], 1000);
        let file = OpenOptions::new().write(true).open(pair.at(&name)).expect("opened");
        let piece = vec![b'a' + round; 8192];
        for place in (0..wanted.len()).step_by(2 * piece.len()) {
            wanted[place..place + piece.len()].copy_from_slice(&piece);
            file.write_all_at(&piece, place as u64).expect("written");
        }
        let changed = || std::fs::metadata(pair.there(&name)).and_then(|now| now.modified()).expect("there");
        let (before, pid) = (changed(), pair.mount.daemon());
        std::thread::scope(|scope| {
            let sent = scope.spawn(|| file.sync_all());
            while changed() == before {
                std::hint::spin_loop();
            }
            kill_process(pid, Signal::KILL).expect("killed");
            sent.join().expect("no panic").expect("sent");
        });
        assert!(std::fs::read(pair.there(&name)).expect("read") == wanted, "round {round}");
        drop(file);
        assert!(std::fs::read(pair.at(&name)).expect("read") == wanted, "round {round}");
    }
}

/// Goal: a long write(2) that is handed over while the daemon is being killed waits for the next one.
#[test]
fn a_long_write_at_the_moment_of_a_kill_waits() {
    let Some(pair) = Pair::new() else { return };
    let wanted = noise(300_000);
    for round in 0..10 {
        let name = format!("file{round}");
        std::fs::write(pair.at(&name), "at first").expect("written");
        let file = OpenOptions::new().write(true).open(pair.at(&name)).expect("opened");
        kill_process(pair.mount.daemon(), Signal::KILL).expect("killed");
        file.write_all_at(&wanted, 0).expect("written");
        drop(file);
        assert!(std::fs::read(pair.there(&name)).expect("read") == wanted, "round {round}");
    }
}

/// Goal: a program that writes and syncs a file again and again does not notice that the program of the mount is exchanged.
#[test]
fn who_syncs_again_and_again_does_not_notice_upgrades() {
    let Some(pair) = Pair::new() else { return };
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(pair.at("file")).expect("made");
    file.write_all_at(&noise(SYNCED), 0).expect("written");
    let over = AtomicBool::new(false);
    let wanted = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut wanted = noise(SYNCED);
            for turn in 0_usize.. {
                let (place, piece) = (turn * 7919 % (SYNCED - 5000), vec![turn as u8; 1 + turn * 31 % 5000]);
                file.write_all_at(&piece, place as u64).expect("written");
                wanted[place..place + piece.len()].copy_from_slice(&piece);
                file.sync_data().expect("sent");
                if over.load(Ordering::Relaxed) {
                    break;
                }
            }
            wanted
        });
        for _ in 0..UPGRADES {
            assert_eq!(pair.mount.verb("upgrade", [pair.mount.dir()]).code, Some(0));
        }
        over.store(true, Ordering::Relaxed);
        writer.join().expect("no error")
    });
    assert!(std::fs::read(pair.there("file")).expect("read") == wanted);
    drop(file);
    assert!(std::fs::read(pair.at("file")).expect("read") == wanted);
}

const FILES: usize = 300;
const UPGRADES: usize = 12;
const SYNCED: usize = 64 << 10;
const KILLS: usize = 10;

/// Goal: who has a file open that was written here, and that others have written since, reads what was written here, or gets an
/// error, also when the daemon was killed: never as much of it as another version is long.
#[test]
fn what_gave_way_is_whole_after_kills() {
    let Some(pair) = Pair::new() else { return };
    for kills in [0, 1, 2] {
        std::fs::write(pair.there("file"), "at first").expect("written");
        let held = File::open(pair.at("file")).expect("opened");
        let ours = "what was written here, ".repeat(100);
        std::fs::write(pair.at("file"), &ours).expect("written");
        let read = || {
            let mut bytes = vec![0; 8000];
            held.read_at(&mut bytes, 0).map(|length| String::from_utf8_lossy(&bytes[..length]).into_owned())
        };
        assert_eq!(read().expect("read"), ours, "it is of the version that was written over");
        (0..kills / 2).for_each(|_| pair.mount.kill_daemon());
        std::fs::write(pair.there("file"), "what others have written").expect("written");
        wait_until("the newest", || {
            std::fs::read_to_string(pair.at("file")).is_ok_and(|text| text == "what others have written")
        });
        (0..kills.min(1)).for_each(|_| pair.mount.kill_daemon());
        match read() {
            Ok(text) => assert_eq!(text, ours, "{kills} kills"),
            error => fails_with(error, Errno::IO),
        }
    }
}

/// Goal: what is open, was written and synced, and then lost its name or had another file put in its place, is read and written
/// on after the daemon was killed, or another took its place. Method: short and long files, written whole or in part, of which
/// something is unsent or nothing; the kernel's pages are dropped before each read.
#[test]
fn what_was_synced_and_lost_its_name_is_there_after_kills_and_upgrades() {
    let Some(pair) = Pair::new() else { return };
    let upgrade = || assert_eq!(pair.mount.verb("upgrade", [pair.mount.dir()]).code, Some(0));
    let mut held = Vec::new();
    for (nth, length) in [5000, 100_000, 20 << 20].into_iter().enumerate() {
        for how in ["made", "changed", "changed again", "longer"] {
            for is_replaced in [false, true] {
                let name = format!("{nth} {how} {is_replaced}");
                let mut wanted = noise(length);
                if how != "made" {
                    write_aged(&pair.there(&name), &wanted[..], 1000);
                }
                let made = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(pair.at(&name));
                let file = made.expect("opened");
                let mut write = |at: usize, bytes: &[u8]| {
                    file.write_all_at(bytes, at as u64).expect("written");
                    wanted.resize(wanted.len().max(at + bytes.len()), 0);
                    wanted[at..at + bytes.len()].copy_from_slice(bytes);
                };
                match how {
                    "made" => write(0, &noise(length)),
                    _ => write(3000, b"changed"),
                }
                file.sync_all().expect("sent");
                match how {
                    "changed again" => write(4000, b"again"),
                    // What lies between is a hole.
                    "longer" => write(length + 10_000, b"longer"),
                    _ => {}
                }
                if how == "longer" {
                    file.sync_all().expect("sent");
                }
                match is_replaced {
                    true => {
                        std::fs::write(pair.at("other"), "other").expect("written");
                        std::fs::rename(pair.at("other"), pair.at(&name)).expect("replaced");
                    }
                    false => std::fs::remove_file(pair.at(&name)).expect("removed"),
                }
                held.push((name, file, wanted));
            }
        }
    }
    let nameless = rustix::fs::open(pair.mount.dir(), OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR | Mode::WUSR);
    let nameless = File::from(nameless.expect("made"));
    nameless.write_all_at(&noise(100_000), 0).expect("written");
    nameless.sync_all().expect("nobody is told");
    held.push(("nameless".to_owned(), nameless, noise(100_000)));
    for round in 0..4_u8 {
        match round % 2 {
            0 => pair.mount.kill_daemon(),
            _ => upgrade(),
        }
        for (name, file, wanted) in &mut held {
            rustix::fs::fadvise(&*file, 0, None, rustix::fs::Advice::DontNeed).expect("told");
            let mut bytes = vec![0; wanted.len() + 1];
            let mut length = 0;
            while length < bytes.len() {
                match file
                    .read_at(&mut bytes[length..], length as u64)
                    .unwrap_or_else(|error| panic!("{name}: {error}"))
                {
                    0 => break,
                    more => length += more,
                }
            }
            assert!(bytes[..length] == wanted[..], "{name}, round {round}: {length} of {} bytes", wanted.len());
            assert_eq!(file.metadata().expect("told").len(), wanted.len() as u64);
            file.write_all_at(&[round], 7).expect("written");
            wanted[7] = round;
            file.sync_all().expect("nobody is told");
        }
    }
    drop(held);
    pair.agree();
}
