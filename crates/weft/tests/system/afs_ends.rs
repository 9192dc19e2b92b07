//! What is left of promises when a mount, a file server or the way between them ends.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::{JoinHandle, ScopedJoinHandle};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, open};
use rustix::process::Pid;

use crate::afs::{mounted_on, mounted_with, read};
use crate::interrupts::wait_until;
use crate::support::{AfsCell, Mount, Program, names_in, noise};

/// The only socket of UDP that a daemon has: its number and its port (proc(5): of a row in its network's table the second column
/// is the address, and the tenth the socket's number).
fn socket_of(daemon: Pid) -> (String, u16) {
    let of = |name: &str| Path::new("/proc").join(daemon.as_raw_nonzero().to_string()).join(name);
    let files = std::fs::read_dir(of("fd")).expect("it runs").flatten();
    let sockets: Vec<String> = files
        .filter_map(|file| std::fs::read_link(file.path()).ok()?.to_str().map(str::to_owned))
        .filter_map(|target| Some(target.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let table = std::fs::read_to_string(of("net/udp")).expect("Linux has it");
    let its = table.lines().skip(1).filter_map(|row| {
        let columns: Vec<&str> = row.split_whitespace().collect();
        let number = sockets.iter().find(|socket| columns.get(9) == Some(&socket.as_str()))?;
        Some((number.clone(), u16::from_str_radix(columns[1].rsplit_once(':')?.1, 16).ok()?))
    });
    let its: Vec<_> = its.collect();
    let [its] = &its[..] else { panic!("{its:?}") };
    its.clone()
}

/// Goal: after a kill of the daemon, or an upgrade, what others change is seen as before, and nobody waits for that: what a server
/// tells meanwhile is in the socket that the next daemon has. Method: what the next one has read is changed by another client. (A
/// server that still knows the one of before tries that for ten seconds.)
#[test]
fn what_others_do_is_seen_at_once_by_the_next_daemon() {
    let Some(cell) = AfsCell::own() else { return };
    let Some(other) = mounted_on(&cell, "c2", "afs", &[]) else { return };
    let Some(mount) = mounted_on(&cell, "c1", "afs", &[]) else { return };
    let name = "weft.test/scratch/readme.txt";
    let upgrade = || assert_eq!(mount.verb("upgrade", [mount.dir()]).code, Some(0));
    for (round, next) in
        [&(|| mount.kill_daemon()) as &dyn Fn(), &upgrade, &(|| mount.kill_daemon())].iter().enumerate()
    {
        assert!(!read(&mount.at(name)).is_empty());
        let socket = socket_of(mount.daemon());
        next();
        assert!(!read(&mount.at(name)).is_empty());
        assert_eq!(socket_of(mount.daemon()), socket, "it is what it was");
        let content = format!("after {round} ends");
        std::fs::write(other.at(name), &content).expect("written");
        assert_eq!(read(&mount.at(name)), content);
    }
}

/// Goal: what others change is seen soon, though the server that had promised to tell was started anew, or could not reach us
/// when it did. Method: whoever has the promise asks that server for nothing else.
#[test]
fn what_could_not_be_told_is_heard_of() {
    let Some(cell) = AfsCell::own() else { return };
    let Some(other) = mounted_on(&cell, "c2", "afs", &[]) else { return };
    let Some(mount) = mounted_with(&cell, "c1", ("afs", "probe = \"1s\"\n"), &[]) else { return };
    let name = "weft.test/scratch/readme.txt";
    for trouble in ["the server", "the cable"] {
        assert!(!read(&mount.at(name)).is_empty());
        match trouble {
            "the server" => {
                cell.kill("fs1", "dafileserver");
                cell.restart("fs1", "dafileserver");
            }
            _ => cell.connect("c1", false),
        }
        // Soon after its start the server has not yet looked its volumes over.
        wait_until("it is written", || {
            std::fs::write(other.at(name), trouble).is_ok() && read(&other.at(name)) == trouble
        });
        cell.connect("c1", true);
        wait_until("it is seen", || read(&mount.at(name)) == trouble);
    }
}

/// Goal: what is written while a file server crashes is sent when it is there again: what it had of that is nobody else's.
/// Method: the server is killed while files that were just made are open, and at another moment of a long store each time.
#[test]
fn what_is_written_outlives_a_crash_of_its_server() {
    let Some(cell) = AfsCell::own() else { return };
    let Some(other) = mounted_on(&cell, "c2", "afs", &[]) else { return };
    let Some(mount) = mounted_on(&cell, "c1", "afs", &[]) else { return };
    let at = |name: &str| format!("weft.test/scratch/{name}");
    let crash = || {
        cell.kill("fs1", "dafileserver");
        cell.restart("fs1", "dafileserver");
    };
    let made = ["a", "b", "c", "d"].map(|name| (name, File::create(mount.at(at(name))).expect("made")));
    crash();
    wait_until("it answers", || std::fs::write(other.at(at("z")), "z").is_ok());
    for (name, mut file) in made {
        file.write_all(name.as_bytes()).expect("written");
        file.sync_all().expect("it is as empty as it was made");
    }
    let (name, content) = (at("long"), noise(LONG));
    let (here, there) = (mount.at(&name), other.at(&name));
    for round in 0..CRASHES {
        // Of another length each time; what was there before is written over where it lies, and is not known then.
        std::fs::write(&here, &content[round..LONG - round % 3 * (LONG / 4)]).expect("written");
        let changed = &content[100 + round..LONG - (round + 1) % 3 * (LONG / 4)];
        std::thread::scope(|scope| {
            let storing = scope.spawn(|| std::fs::write(&here, changed));
            // At another moment of it.
            std::thread::park_timeout(Duration::from_millis(31 * round as u64));
            crash();
            if storing.join().expect("no panic").is_err() {
                wait_until("it is opened", || std::fs::write(&here, changed).is_ok());
            }
        });
        let sent = || File::options().write(true).open(&here).is_ok_and(|file| file.sync_all().is_ok());
        wait_until("it is sent", sent);
        let is_it = |path: &Path| std::fs::read(path).is_ok_and(|bytes| bytes == changed);
        assert!(is_it(&here) && is_it(&there), "round {round}");
    }
    assert_eq!(read(&other.at(at("d"))), "d");
}

/// Goal: whoever writes does not notice that the daemon is killed, nor is anything refused as somebody else's: what the former
/// one had begun to store the next one knows. Method: it is killed at another moment of a long store each time.
#[test]
fn what_is_written_outlives_its_daemon() {
    let Some(cell) = AfsCell::up() else { return };
    let Some(other) = mounted_on(cell, "c2", "afs", &[]) else { return };
    let Some(mount) = mounted_on(cell, "c1", "afs", &[]) else { return };
    let name = "weft.test/scratch/killed";
    let content = noise(LONG + 2 * KILLS);
    let (here, there) = (mount.at(name), other.at(name));
    std::fs::write(&here, &content[..LONG]).expect("written");
    for round in 0..KILLS {
        // Anew, or over what is there.
        let file = File::options().write(true).truncate(round % 2 == 0).open(&here).expect("opened");
        let changed = &content[2 * round + 1..][..LONG];
        file.write_all_at(&content[2 * round..][..LONG], 0).expect("written");
        std::thread::scope(|scope| {
            let storing = scope.spawn(|| file.sync_all());
            // At another moment of it.
            std::thread::park_timeout(Duration::from_millis(23 * round as u64));
            mount.kill_daemon();
            file.write_all_at(changed, 0).expect("written over what may have been sent");
            let stored = storing.join().expect("no panic").and_then(|()| file.sync_all());
            stored.unwrap_or_else(|error| panic!("round {round}: {error}"));
        });
        let is_it = |path: &Path| std::fs::read(path).is_ok_and(|bytes| bytes == changed);
        assert!(is_it(&here) && is_it(&there), "round {round}");
    }
    std::fs::remove_file(here).expect("removed");
}

/// Goal: where nobody answers, what is held is shown at once, and what is not fails at once: only the first who asks waits. When
/// they answer again that is found out. Method: the cable is pulled while nothing is mounted; each of the reads would wait for
/// the databases and the file servers in turn.
#[test]
fn who_does_not_answer_is_waited_for_once() {
    let Some(cell) = AfsCell::own() else { return };
    let Some(mount) = mounted_on(&cell, "c1", "afs", &["deadline=10s"]) else { return };
    let folder = mount.at("weft.test/pub/d00/a");
    let [held, missing] = ["f000.txt", "f006.txt"].map(|name| folder.join(name));
    let text = read(&held);
    assert!(std::fs::metadata(&missing).is_ok(), "its name is known");
    cell.connect("c1", false);
    mount.remount();
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (held, missing) = (held, missing);
        let seen: Vec<_> = (0..100).map(|_| (std::fs::read_to_string(&held), std::fs::read(&missing))).collect();
        let _ = done.send((seen, missing));
    });
    let (seen, missing) = is_done.recv_timeout(Duration::from_secs(90)).expect("only the first reads wait");
    for (held, missing) in seen {
        assert_eq!(held.expect("held"), text);
        assert_ne!(missing.expect_err("nobody answers").kind(), ErrorKind::NotFound);
    }
    cell.connect("c1", true);
    wait_until("they answer", || std::fs::read(&missing).is_ok());
}

/// Goal: a file server that comes back under another address is found by the first who asks.
#[test]
fn a_file_server_is_found_at_another_address() {
    let Some(cell) = AfsCell::own() else { return };
    let Some(mount) = mounted_on(&cell, "c1", "afs", &[]) else { return };
    let bob = mount.at("weft.test/user/bob");
    assert!(names_in(&bob).contains(&"notes.txt".to_owned()));
    cell.kill("fs2", "dafileserver");
    let device = |verb: &str, address: &str| {
        let words = ["-n", &cell.namespace("fs2"), "address", verb, address, "dev", "eth0"];
        Program::new("ip").args(words).good();
    };
    device("del", "10.77.0.2/24");
    device("add", "10.77.0.22/24");
    cell.restart("fs2", "dafileserver");
    let known = || cell.on("c1", ["vos", "listaddrs", "-noresolve", "-noauth"]).run().out;
    wait_until("the database knows the address", || known().contains("10.77.0.22"));
    assert_eq!(read(&bob.join("notes.txt")), "notes of bob\n");
}

/// Goal: after an unmount file servers do not call the mount that was; one that was killed is called. Method: somebody takes
/// the port that the daemon had, and another client changes what had been read: that returns when all who were promised to be
/// called have been called, or were silent.
#[test]
fn file_servers_forget_a_mount_that_has_ended() {
    let Some(cell) = AfsCell::own() else { return };
    let Some(other) = mounted_on(&cell, "c2", "afs", &[]) else { return };
    let Some(mount) = mounted_on(&cell, "c1", "afs", &[]) else { return };
    let name = "weft.test/scratch/readme.txt";
    for (ends, is_called) in [("unmounted", false), ("killed", true)] {
        assert!(!read(&mount.at(name)).is_empty());
        let (_, port) = socket_of(mount.daemon());
        match ends {
            "unmounted" => mount.umount(),
            _ => mount.kill9(),
        }
        let socket = cell.inside("c1", || UdpSocket::bind(("0.0.0.0", port)).expect("it is free again"));
        socket.set_nonblocking(true).expect("set");
        std::fs::write(other.at(name), ends).expect("written");
        let called = match socket.recv(&mut [0; 2048]) {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => panic!("{error}"),
        };
        assert_eq!(called, is_called, "{ends}");
        drop(socket);
        if ends == "unmounted" {
            mount.mount();
        }
    }
}

/// How often a server crashes, and a daemon is killed, while a file is stored, and the longest length of that.
const CRASHES: usize = 3;
const KILLS: usize = 8;
const LONG: usize = 32 << 20;

/// Goal: of two machines that make, move or take the same name one alone is told that it has, though the daemon of the other is
/// killed meanwhile. Method: one asks while its cable is out, and its daemon is killed; the other does the same, and the cable
/// is put in.
#[test]
fn who_is_killed_while_another_is_faster_is_not_told_that_it_was_first() {
    let Some(cell) = AfsCell::own() else { return };
    let Some((here, there)) = mounted_on(&cell, "c1", "afs", &[]).zip(mounted_on(&cell, "c2", "afs", &[])) else {
        return;
    };
    let dir = |mount: &Mount| mount.at("weft.test/scratch/first");
    std::fs::create_dir(dir(&there)).expect("made");
    for name in ["job", "a", "b"] {
        std::fs::write(dir(&there).join(name), name).expect("written");
    }
    let mut first = Vec::new();
    let all: [(&str, Does); 4] = [
        ("new", |dir, by| File::create_new(dir.join("new"))?.write_all(by.as_bytes())),
        ("link", |dir, by| std::fs::hard_link(dir.join(by), dir.join("link"))),
        ("symlink", |dir, by| std::os::unix::fs::symlink(by, dir.join("symlink"))),
        ("moved", |dir, by| std::fs::rename(dir.join("job"), dir.join(format!("job.{by}")))),
    ];
    for (what, does) in all {
        // That there is no such name is known, and promised.
        let names = |mount: &Mount| std::fs::read_dir(dir(mount)).expect("listed").count();
        assert_eq!(names(&here), names(&there));
        cell.connect("c1", false);
        let slower = asks(dir(&here), "a", does);
        here.kill_daemon();
        // Servers tell times in seconds.
        let second = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("later").as_secs();
        let killed = second();
        wait_until("the next second", || second() > killed);
        // Its server tells the other machine, which it does not reach, before it answers.
        let faster = asks(dir(&there), "b", does);
        cell.connect("c1", true);
        let [slower, faster] = [slower, faster].map(|asks| asks.join().expect("no panic"));
        let refused = if what == "moved" { ErrorKind::NotFound } else { ErrorKind::AlreadyExists };
        match (&slower, &faster) {
            (Err(error), Ok(())) | (Ok(()), Err(error)) => assert_eq!(error.kind(), refused, "{what}"),
            both => panic!("{what}: {both:?}"),
        }
        first.push(if faster.is_ok() { "b" } else { "a" });
    }
    let is = |name: &str| std::fs::read_to_string(dir(&there).join(name)).unwrap_or_default();
    assert_eq!([is("new"), is("link")], [first[0], first[1]]);
    assert_eq!(std::fs::read_link(dir(&there).join("symlink")).expect("a link"), Path::new(first[2]));
    assert_eq!(
        ["a", "b"].map(|by| is(&format!("job.{by}"))),
        ["a", "b"].map(|by| if by == first[3] { "job" } else { "" })
    );
}

type Does = fn(&Path, &str) -> std::io::Result<()>;

/// Has something done, and waits until the kernel has asked for it.
fn asks(dir: PathBuf, by: &'static str, does: Does) -> JoinHandle<std::io::Result<()>> {
    let (tell, told) = mpsc::channel();
    let asks = std::thread::spawn(move || {
        tell.send(rustix::thread::gettid()).expect("the test listens");
        does(&dir, by)
    });
    let thread = told.recv().expect("it runs").as_raw_nonzero();
    let stack = || std::fs::read_to_string(format!("/proc/self/task/{thread}/stack")).unwrap_or_default();
    let is_asked = || stack().contains("request_wait_answer") && !stack().contains("fuse_lookup");
    wait_until("it is asked", || asks.is_finished() || is_asked());
    asks
}

/// Goal: who makes names does not notice that the program of the mount is exchanged: of two machines that make the same name one
/// is told that it has, and a file that had none gets the one that it is given. Method: both again and again, while one
/// machine's mount is upgraded.
#[test]
fn who_makes_names_again_and_again_does_not_notice_upgrades() {
    let Some(cell) = AfsCell::up() else { return };
    let [Some(here), Some(there)] = ["c1", "c2"].map(|node| mounted_on(cell, node, "afs", &[])) else { return };
    let folder = "weft.test/scratch/upgraded-names";
    std::fs::create_dir(here.at(folder)).expect("made");
    let (ended, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
    let until_ended = |act: &(dyn Fn(usize) + Sync)| {
        for round in (0..).take_while(|_| !ended.load(Ordering::Relaxed)) {
            act(round);
            rounds.fetch_add(1, Ordering::Relaxed);
        }
    };
    let makes = |mount: &Mount, name: &str| std::fs::create_dir(mount.at(folder).join(name)).is_ok();
    let both_make = |round| {
        let name = format!("dir {round}");
        let made = std::thread::scope(|scope| {
            let other = scope.spawn(|| makes(&there, &name));
            [makes(&here, &name), other.join().expect("no panic")]
        });
        assert_eq!(made.iter().filter(|made| **made).count(), 1, "{name}: {made:?}");
    };
    let gives_a_name = |round| {
        let dir = here.at(folder);
        let nameless = open(&dir, OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR | Mode::WUSR).expect("made");
        rustix::io::write(&nameless, b"content").expect("written");
        let (held, name) = (format!("/proc/self/fd/{}", nameless.as_raw_fd()), dir.join(format!("file {round}")));
        linkat(CWD, held, CWD, &name, AtFlags::SYMLINK_FOLLOW).unwrap_or_else(|errno| panic!("{errno}: {name:?}"));
    };
    std::thread::scope(|scope| {
        let makers = [scope.spawn(|| until_ended(&both_make)), scope.spawn(|| until_ended(&gives_a_name))];
        let upgraded: Vec<Option<i32>> = (0..UPGRADES)
            .map(|_| {
                let (before, until) = (rounds.load(Ordering::Relaxed), Instant::now() + PATIENCE);
                // A server may wait for what it has asked the former daemon.
                while rounds.load(Ordering::Relaxed) <= before + 2
                    && Instant::now() < until
                    && !makers.iter().any(ScopedJoinHandle::is_finished)
                {
                    std::thread::park_timeout(Duration::from_millis(5));
                }
                here.verb("upgrade", [here.dir()]).code
            })
            .collect();
        ended.store(true, Ordering::Relaxed);
        assert_eq!(upgraded, [Some(0); UPGRADES]);
    });
    std::fs::remove_dir_all(here.at(folder)).expect("removed");
}

/// How often a mount is upgraded.
const UPGRADES: usize = 5;
/// Longer than a server waits for a daemon that has ended.
const PATIENCE: Duration = Duration::from_secs(60);
