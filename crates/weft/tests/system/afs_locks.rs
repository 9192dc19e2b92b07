//! Locks in AFS cells: among processes of one machine, and between machines by the server's lock of the whole file.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;

use rustix::fs::{FlockOperation as How, fcntl_lock, flock};
use rustix::io::Errno;
use rustix::process::{Flock, FlockOffsetType, FlockType, fcntl_getlk};

use crate::afs::{mounted_on, read};
use crate::interrupts::wait_until;
use crate::support::{AfsCell, Mount, Program};
use crate::writing_processes::python;

/// Two machines with a mount each, and a folder of one test in the volume that anybody may write.
struct Machines {
    mounts: [Mount; 2],
    name: &'static str,
}

impl Machines {
    fn new(cell: &AfsCell, name: &'static str) -> Option<Machines> {
        let mounts = [mounted_on(cell, "c1", "afs", &[])?, mounted_on(cell, "c2", "afs", &[])?];
        let machines = Machines { mounts, name };
        std::fs::create_dir(machines.at(0, "")).expect("made");
        Some(machines)
    }

    fn at(&self, machine: usize, path: impl AsRef<Path>) -> PathBuf {
        self.mounts[machine].at("weft.test/scratch").join(self.name).join(path)
    }

    fn open(&self, machine: usize, path: &str) -> File {
        File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.at(machine, path))
            .expect("opened")
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.at(0, ""));
    }
}

/// Goal: what one machine has locked another cannot have, until it is given back, also by the end of the process or of the
/// mount; one that waits gets it then.
#[test]
fn machines_keep_each_other_out() {
    let Some(cell) = AfsCell::up() else { return };
    let Some(machines) = Machines::new(cell, "locks") else { return };
    let (here, there) = (machines.open(0, "file"), machines.open(1, "file"));
    flock(&here, How::NonBlockingLockShared).expect("locked");
    flock(&there, How::NonBlockingLockShared).expect("shared");
    assert_eq!(flock(&there, How::NonBlockingLockExclusive), Err(Errno::AGAIN));
    flock(&here, How::Unlock).expect("unlocked");
    flock(&there, How::NonBlockingLockExclusive).expect("alone");
    assert_eq!(flock(&here, How::NonBlockingLockShared), Err(Errno::AGAIN));
    let second = machines.open(1, "file");
    assert_eq!(flock(&second, How::NonBlockingLockShared), Err(Errno::AGAIN), "on its own machine as well");
    let waits = std::thread::spawn(move || {
        flock(&here, How::LockExclusive).expect("locked in the end");
        here
    });
    drop(there);
    let here = waits.join().expect("no panic");
    assert_eq!(flock(&second, How::NonBlockingLockShared), Err(Errno::AGAIN));
    drop(here);
    wait_until("the server has no lock", || flock(&second, How::NonBlockingLockExclusive).is_ok());
    machines.mounts[1].kill9();
    drop(second);
}

/// Goal: who asks what is in the way of a lock is told what another machine has, and not what its own has.
#[test]
fn a_machine_is_told_what_another_has() {
    let Some(cell) = AfsCell::up() else { return };
    let Some(machines) = Machines::new(cell, "in-the-way") else { return };
    let (here, there) = (machines.open(0, "file"), machines.open(1, "file"));
    let in_the_way = |file: &File, typ| {
        let asked = Flock { start: 0, length: 0, pid: None, typ, offset_type: FlockOffsetType::Set };
        fcntl_getlk(file, &asked).expect("an answer").map(|found| found.typ)
    };
    let seen = |typ| [&here, &there].map(|file| in_the_way(file, typ));
    use FlockType::{ReadLock, WriteLock};
    assert_eq!((seen(ReadLock), seen(WriteLock)), ([None; 2], [None; 2]));
    // A process that asks is not told of its own; by flock(2), what it has is its own in neither family.
    flock(&here, How::NonBlockingLockShared).expect("locked");
    assert_eq!((seen(ReadLock), seen(WriteLock)), ([None; 2], [None, Some(ReadLock)]));
    flock(&there, How::NonBlockingLockShared).expect("shared");
    assert_eq!((seen(ReadLock), seen(WriteLock)), ([None; 2], [Some(ReadLock); 2]));
    flock(&here, How::Unlock).expect("unlocked");
    flock(&there, How::NonBlockingLockExclusive).expect("alone");
    assert_eq!((seen(ReadLock), seen(WriteLock)), ([Some(WriteLock), None], [Some(WriteLock), None]));
    flock(&there, How::Unlock).expect("unlocked");
    assert_eq!((seen(ReadLock), seen(WriteLock)), ([None; 2], [None; 2]));
}

/// Goal: who gets a lock sees what was written under it, also by a file that was opened long before. Method: processes on
/// two machines, and two on one of them, each add to a number in one file that they keep open.
#[test]
fn what_is_written_under_a_lock_is_seen_under_the_next() {
    let Some(cell) = AfsCell::up() else { return };
    let Some(machines) = Machines::new(cell, "counter") else { return };
    let Some(python) = python() else { return };
    std::fs::write(machines.at(0, "number"), "0").expect("written");
    let count = "
import fcntl, os, sys
file = os.open(sys.argv[1], os.O_RDWR)
for turn in range(40):
    fcntl.flock(file, fcntl.LOCK_EX)
    number = int(os.pread(file, 100, 0))
    os.pwrite(file, b'%d' % (number + 1), 0)
    fcntl.flock(file, fcntl.LOCK_UN)
";
    let start = |machine| Program::new(&python).args(["-c", count]).arg(machines.at(machine, "number")).start();
    let running = [start(0), start(1), start(1)];
    running.into_iter().for_each(|running| assert_eq!(running.end(), Some(0)));
    assert_eq!(read(&machines.at(0, "number")), "120");
    assert_eq!(read(&machines.at(1, "number")), "120");
}

/// Goal: what is appended under a lock stands after what other machines have appended, by a file that is opened for each line
/// and by one that is kept open, also after another machine has cut it. Method: processes on two machines, and two on one of
/// them, each append lines; one machine cuts a file that both have open.
#[test]
fn what_is_appended_under_a_lock_goes_to_the_end() {
    let Some(cell) = AfsCell::up() else { return };
    let Some(machines) = Machines::new(cell, "appended") else { return };
    let Some(python) = python() else { return };
    let append = "
import fcntl, os, sys
file = -1
for turn in range(25):
    if file < 0 or sys.argv[2] == 'anew':
        file = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
    fcntl.flock(file, fcntl.LOCK_EX)
    os.write(file, b'%s-%d\\n' % (sys.argv[3].encode(), turn))
    fcntl.flock(file, fcntl.LOCK_UN)
    if sys.argv[2] == 'anew':
        os.close(file)
";
    for how in ["anew", "held"] {
        std::fs::write(machines.at(0, how), "").expect("made");
        let start = |(machine, who)| {
            Program::new(&python).args(["-c", append]).arg(machines.at(machine, how)).args([how, who]).start()
        };
        let running = [(0, "one"), (1, "two"), (1, "three")].map(start);
        running.into_iter().for_each(|running| assert_eq!(running.end(), Some(0)));
        let whole = read(&machines.at(0, how));
        let mut lines: Vec<&str> = whole.lines().collect();
        lines.sort_unstable();
        let mut wanted: Vec<String> =
            ["one", "two", "three"].iter().flat_map(|who| (0..25).map(move |turn| format!("{who}-{turn}"))).collect();
        wanted.sort_unstable();
        assert_eq!(lines, wanted, "{how}");
        assert_eq!(read(&machines.at(1, how)), whole);
    }
    let open = |machine| File::options().append(true).open(machines.at(machine, "held")).expect("opened");
    let (mut here, mut there) = (open(0), open(1));
    for round in 0..3 {
        flock(&here, How::LockExclusive).expect("locked");
        here.set_len(0).expect("cut");
        writeln!(here, "first {round}").expect("written");
        flock(&here, How::Unlock).expect("unlocked");
        flock(&there, How::LockExclusive).expect("locked");
        ["second", "third"].iter().for_each(|line| writeln!(there, "{line}").expect("written"));
        flock(&there, How::Unlock).expect("unlocked");
        for machine in [0, 1] {
            assert_eq!(read(&machines.at(machine, "held")), format!("first {round}\nsecond\nthird\n"), "{machine}");
        }
    }
}

/// Goal: who bounds the wait for a lock by a clock of its own is not kept waiting longer, on the machine that has the lock
/// and on another. Method: flock(1), which counts on its alarm to end flock(2).
#[test]
fn a_clock_of_the_program_ends_its_wait() {
    let Some(cell) = AfsCell::up() else { return };
    let Some(machines) = Machines::new(cell, "clock") else { return };
    let here = machines.open(0, "file");
    flock(&here, How::NonBlockingLockExclusive).expect("locked");
    let wait = |machine| {
        let words = ["--wait", "1", "--conflict-exit-code", "7"];
        Program::new("flock").args(words).arg(machines.at(machine, "file")).arg("true").start().end()
    };
    assert_eq!((wait(0), wait(1)), (Some(7), Some(7)));
    flock(&here, How::Unlock).expect("unlocked");
    assert_eq!((wait(0), wait(1)), (Some(0), Some(0)), "nothing is left of who gave up");
}

/// Goal: a file that was removed is locked among those who have it open, as on a local disk, on the machine that removed it
/// and on another that did not know; so is one that never had a name. A lock that was had when it was removed is given back.
#[test]
fn what_was_removed_is_locked_as_before() {
    let Some(cell) = AfsCell::up() else { return };
    let Some(machines) = Machines::new(cell, "removed") else { return };
    let (here, second, there) = (machines.open(0, "file"), machines.open(0, "file"), machines.open(1, "file"));
    flock(&here, How::NonBlockingLockExclusive).expect("locked");
    assert_eq!(flock(&there, How::NonBlockingLockShared), Err(Errno::AGAIN));
    std::fs::remove_file(machines.at(0, "file")).expect("removed");
    assert_eq!(flock(&second, How::NonBlockingLockShared), Err(Errno::AGAIN), "it is had until it is given back");
    flock(&here, How::NonBlockingLockShared).expect("weaker");
    flock(&second, How::NonBlockingLockShared).expect("shared");
    assert_eq!(flock(&second, How::NonBlockingLockExclusive), Err(Errno::AGAIN));
    flock(&here, How::Unlock).expect("given back");
    flock(&second, How::NonBlockingLockExclusive).expect("alone");
    for how in [How::NonBlockingLockShared, How::NonBlockingLockExclusive, How::Unlock] {
        flock(&there, how).expect("a machine that did not know");
    }
    use rustix::fs::{Mode, OFlags};
    let nameless = rustix::fs::open(machines.at(0, ""), OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR).expect("made");
    flock(&nameless, How::NonBlockingLockExclusive).expect("never had a name");
    let asked = Flock { start: 0, length: 0, pid: None, typ: FlockType::WriteLock, offset_type: FlockOffsetType::Set };
    for file in [&here, &there] {
        assert!(fcntl_getlk(file, &asked).expect("an answer").is_none());
    }
}

/// Goal: a database that is written on two machines at a time is whole, and has what each has written.
#[test]
fn a_database_is_written_on_two_machines() {
    let Some(cell) = AfsCell::up() else { return };
    let Some(machines) = Machines::new(cell, "database") else { return };
    let Some(python) = python() else { return };
    let insert = "
import sqlite3, sys
base = sqlite3.connect(sys.argv[1], timeout=120, isolation_level=None)
for row in range(25):
    base.execute('begin immediate')
    base.execute('insert into rows values (?, ?, ?)', (sys.argv[2], row, 'x' * 500))
    base.execute('commit')
";
    let make = "
import sqlite3, sys
base = sqlite3.connect(sys.argv[1])
base.execute('create table rows (writer text, row integer, filling text)')
base.commit()
";
    let check = "
import sqlite3, sys
base = sqlite3.connect(sys.argv[1], timeout=120)
print(base.execute('pragma integrity_check').fetchall(), base.execute('select count(*), count(distinct writer || row) from rows').fetchall())
";
    let run = |script: &str, machine| Program::new(&python).args(["-c", script]).arg(machines.at(machine, "base"));
    run(make, 0).good();
    let running = [(0, "one"), (1, "two"), (1, "three")].map(|(machine, name)| run(insert, machine).arg(name).start());
    running.into_iter().for_each(|running| assert_eq!(running.end(), Some(0)));
    for machine in [0, 1] {
        assert_eq!(run(check, machine).good(), "[('ok',)] [(75, 75)]\n");
    }
}

/// Goal: locks outlive the daemon: nobody gets in while another one takes over.
#[test]
fn a_daemon_that_is_killed_loses_no_lock() {
    let Some(cell) = AfsCell::up() else { return };
    let Some(machines) = Machines::new(cell, "killed-locks") else { return };
    let (file, other) = (machines.open(0, "file"), machines.open(0, "file"));
    let there = machines.open(1, "file");
    flock(&file, How::NonBlockingLockExclusive).expect("locked");
    for _ in 0..3 {
        machines.mounts[0].kill_daemon();
        assert_eq!(flock(&other, How::NonBlockingLockShared), Err(Errno::AGAIN), "here");
        assert_eq!(flock(&there, How::NonBlockingLockShared), Err(Errno::AGAIN), "there");
    }
    flock(&file, How::Unlock).expect("unlocked");
    flock(&there, How::NonBlockingLockExclusive).expect("it was given back by the daemon that took over");
    assert_eq!(flock(&other, How::NonBlockingLockShared), Err(Errno::AGAIN));
}

/// Goal: a daemon that is replaced leaves no lock at its server that it was asking for, or giving back, just then: nobody
/// would have it, for five minutes. Method: four who lock and unlock a file each, and find it locked by nobody ever.
#[test]
fn who_locks_again_and_again_does_not_notice_upgrades() {
    let Some(cell) = AfsCell::up() else { return };
    let Some(machines) = Machines::new(cell, "upgraded-locks") else { return };
    let (ended, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
    let refused = std::thread::scope(|scope| {
        let lockers = ["a", "b", "c", "d"].map(|name| {
            let (machines, ended, rounds) = (&machines, &ended, &rounds);
            scope.spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    let file = machines.open(0, name);
                    fcntl_lock(&file, How::NonBlockingLockExclusive)?;
                    fcntl_lock(&file, How::Unlock)?;
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            })
        });
        let mount = &machines.mounts[0];
        let upgraded: Vec<Option<i32>> = (0..UPGRADES)
            .map(|_| {
                let before = rounds.load(Ordering::Relaxed);
                wait_until("they lock", || {
                    rounds.load(Ordering::Relaxed) > before || lockers.iter().all(ScopedJoinHandle::is_finished)
                });
                mount.verb("upgrade", [mount.dir()]).code
            })
            .collect();
        ended.store(true, Ordering::Relaxed);
        assert_eq!(upgraded, [Some(0); UPGRADES]);
        lockers.map(|locker| locker.join().expect("no panic"))
    });
    assert_eq!(refused, [Ok::<(), Errno>(()); 4]);
}

/// How often a mount is upgraded.
const UPGRADES: usize = 12;

/// Two machines, of which the first waits no longer than 2 s for a call.
fn impatient(cell: &AfsCell) -> Option<(Mount, Mount)> {
    Some((mounted_on(cell, "c1", "afs", &["deadline=2s"])?, mounted_on(cell, "c2", "afs", &[])?))
}

fn opened(mount: &Mount) -> File {
    File::options().write(true).open(mount.at("weft.test/scratch/readme.txt")).expect("opened")
}

/// Goal: nor does it take a lock for lost whose server is not reached just then. Method: the cable is out for longer than a
/// call may take.
#[test]
fn a_lock_outlives_its_daemon_while_its_server_is_not_reached() {
    let Some(cell) = AfsCell::own() else { return };
    let Some((here, there)) = impatient(&cell) else { return };
    let (file, other, of_others) = (opened(&here), opened(&here), opened(&there));
    flock(&file, How::NonBlockingLockExclusive).expect("locked");
    cell.connect("c1", false);
    here.kill_daemon();
    std::fs::read(here.at("weft.test/pub/large.bin")).expect_err("it was asked for later");
    cell.connect("c1", true);
    wait_until("the server is reached", || std::fs::read(here.at("weft.test/pub/d00/a/f000.txt")).is_ok());
    assert_eq!(flock(&other, How::NonBlockingLockExclusive), Err(Errno::AGAIN), "here");
    assert_eq!(flock(&of_others, How::NonBlockingLockExclusive), Err(Errno::AGAIN), "there");
    flock(&file, How::Unlock).expect("unlocked");
    flock(&of_others, How::NonBlockingLockExclusive).expect("it was given back by the daemon that took over");
}

/// Goal: a lock that comes after whoever asked for it has given up is given back, not left at its server for five minutes.
/// Method: the server is asked while it stands still, and its answer is lost with the cable.
#[test]
fn a_lock_that_comes_too_late_is_given_back() {
    let Some(cell) = AfsCell::own() else { return };
    let Some((here, there)) = impatient(&cell) else { return };
    let (file, of_others) = (opened(&here), opened(&there));
    // What its socket holds (proc_net(5): the fifth column is what waits to be sent, and to be read).
    let is_asked = || {
        let table = std::fs::read_to_string("/proc/thread-self/net/udp").expect("Linux has it");
        let mut rows = table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
        rows.any(|row| row[1].ends_with(":1B58") && !row[4].ends_with(":00000000"))
    };
    cell.freeze("fs1", "dafileserver", true);
    std::thread::scope(|scope| {
        let refused = scope.spawn(|| flock(&file, How::NonBlockingLockExclusive));
        wait_until("the server is asked", || cell.inside("fs1", is_asked));
        cell.connect("c1", false);
        assert_eq!(refused.join().expect("no panic"), Err(Errno::TIMEDOUT));
    });
    cell.freeze("fs1", "dafileserver", false);
    wait_until("the server has taken it", || !cell.inside("fs1", is_asked));
    cell.connect("c1", true);
    wait_until("it is given back", || flock(&of_others, How::NonBlockingLockExclusive).is_ok());
    flock(&of_others, How::Unlock).expect("unlocked");
    flock(&file, How::NonBlockingLockExclusive).expect("it works as before");
}

/// Goal: nor does it give anybody a lock that is only waited for. Method: what a program reads that has waited is what was
/// written by the one before it, after the daemon of who waits was killed.
#[test]
fn who_waits_when_a_daemon_is_killed_goes_on_waiting() {
    let Some(cell) = AfsCell::up() else { return };
    let Some(machines) = Machines::new(cell, "waiting-locks") else { return };
    let Some(python) = python() else { return };
    let text = "import fcntl, sys; f = open(sys.argv[1], 'r+'); print('waits', flush=True)\n\
                fcntl.flock(f, fcntl.LOCK_EX); print(f.read())";
    std::fs::write(machines.at(0, "file"), "before").expect("written");
    for round in 0..3 {
        let file = machines.open(0, "file");
        // What a process had that has ended is given back after that.
        wait_until("the server has no lock", || flock(&file, How::NonBlockingLockExclusive).is_ok());
        let path = machines.at(1, "file");
        let mut command = Command::new(&python);
        command.args(["-c", text]).arg(&path).stdout(Stdio::piped());
        let mut waits = command.spawn().expect("python3 runs");
        let mut out = BufReader::new(waits.stdout.take().expect("piped"));
        let mut line = String::new();
        out.read_line(&mut line).expect("a line");
        let status = format!("/proc/{}/status", waits.id());
        wait_until("it waits", || read(Path::new(&status)).contains("State:\tS"));
        machines.mounts[1].kill_daemon();
        // Twice, so that the one who took over has asked for it.
        for text in ["soon", &format!("round {round}")] {
            std::fs::write(machines.at(0, "file"), text).expect("written");
            wait_until("it is seen", || read(&path) == text);
        }
        flock(&file, How::Unlock).expect("unlocked");
        let mut told = String::new();
        out.read_to_string(&mut told).expect("text");
        assert!(waits.wait().expect("a child of ours").success());
        assert_eq!(told, format!("round {round}\n"));
    }
}

/// Goal: a file that nobody changes, or that its reader may not lock at the server, can be locked for reading all the same.
#[test]
fn who_only_reads_can_lock() {
    let Some(cell) = AfsCell::up() else { return };
    let Some(mount) = mounted_on(cell, "c1", "afs", &[]) else { return };
    for path in ["weft.test/replicated", "weft.test/pub"] {
        let names = std::fs::read_dir(mount.at(path)).expect("listed").flatten().map(|entry| entry.path());
        let name = names.into_iter().find(|path| path.is_file()).expect("there is a file");
        let (one, other) = (File::open(&name).expect("opened"), File::open(&name).expect("opened"));
        flock(&one, How::NonBlockingLockShared).expect("locked");
        flock(&other, How::NonBlockingLockShared).expect("shared");
        assert_eq!(flock(&other, How::NonBlockingLockExclusive), Err(Errno::AGAIN));
    }
}
