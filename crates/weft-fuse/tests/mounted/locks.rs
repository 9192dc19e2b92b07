//! Locks of programs over the mount.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::fs::{FlockOperation as How, fcntl_lock, flock};
use rustix::io::Errno as E;
use rustix::process::{Flock, FlockOffsetType, FlockType, fcntl_getlk};
use weft_remote::LockMode::{Exclusive, Shared, Unlocked};
use weft_vfs::NodeId;

use crate::memory::Memory;
use crate::{Place, over_both_of};

/// A file system whose source has locks.
fn locking() -> Memory {
    let memory = Memory::default();
    memory.files().has_locks = true;
    memory
}

fn opened(path: &Path) -> File {
    File::options().read(true).write(true).open(path).expect("opened")
}

impl Place {
    /// The modes that the source was asked for since this was called last.
    fn locked(&self) -> Vec<(weft_remote::LockMode, weft_remote::LockMode)> {
        let locked = std::mem::take(&mut self.memory.files().locked);
        locked.into_iter().map(|(_, from, to)| (from, to)).collect()
    }

    /// The same when the file has been unlocked at the source: nobody waits for that.
    fn locked_until_unlocked(&self) -> Vec<(weft_remote::LockMode, weft_remote::LockMode)> {
        let ends = |locked: &[(NodeId, _, _)]| locked.last().is_some_and(|(_, _, to)| *to == Unlocked);
        let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while !ends(&self.memory.files().locked) {
            assert!(std::time::Instant::now() < end, "it stays locked: {:?}", self.locked());
            std::thread::yield_now();
        }
        self.locked()
    }

    /// Somebody else is quicker than who has a lock made stronger.
    fn lose_locks(&self) {
        let mut files = self.memory.files();
        (files.locked_elsewhere, files.locks_get_lost, files.locks_lost) = (true, true, 0);
    }

    /// Returns when that has come about.
    fn until_lost(&self) {
        let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while self.memory.files().locks_lost == 0 {
            assert!(std::time::Instant::now() < end, "nothing is lost");
            std::thread::yield_now();
        }
    }
}

/// Another process with a lock of fcntl(2) on some bytes, which it has until its input ends. `None` when it cannot have it.
fn other_process(path: &Path, (start, length): (u64, u64), how: How) -> Option<Child> {
    let (flags, start, length) = ((how as u32).to_string(), start.to_string(), length.to_string());
    let mut python = Command::new("python3");
    python.args(["-c", HOLD]).arg(path).args([&flags, &start, &length]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = python.spawn().expect("python3 runs");
    let mut said = [0];
    let ready = std::io::Read::read(child.stdout.as_mut().expect("piped"), &mut said).expect("it speaks") == 1;
    if !ready {
        assert_eq!(child.wait().expect("it ends").code(), Some(E::AGAIN.raw_os_error()));
        return None;
    }
    Some(child)
}

fn end(mut child: Child) {
    drop(child.stdin.take());
    assert!(child.wait().expect("it ends").success());
}

/// Goal: locks of flock(2) keep other open files out, and the source has the strongest of them until the last is given back.
#[test]
fn open_files_keep_each_other_out() {
    over_both_of(locking, |place| {
        let path = place.path("file");
        fs::write(&path, "text").expect("written");
        let (one, other, third) = (opened(&path), opened(&path), opened(&path));
        flock(&one, How::NonBlockingLockShared).expect("locked");
        flock(&other, How::NonBlockingLockShared).expect("shared");
        assert_eq!(flock(&third, How::NonBlockingLockExclusive), Err(E::AGAIN));
        assert_eq!(place.locked(), [(Unlocked, Shared)]);
        flock(&one, How::Unlock).expect("unlocked");
        flock(&other, How::NonBlockingLockExclusive).expect("alone");
        assert_eq!(flock(&third, How::NonBlockingLockShared), Err(E::AGAIN));
        assert_eq!(place.locked(), [(Shared, Exclusive)]);
        flock(&other, How::NonBlockingLockShared).expect("weaker");
        flock(&third, How::NonBlockingLockShared).expect("shared");
        assert_eq!(place.locked(), [], "the source keeps the stronger one");
        drop(other);
        flock(&third, How::Unlock).expect("unlocked");
        assert_eq!(place.locked_until_unlocked(), [(Exclusive, Unlocked)]);
        flock(&one, How::NonBlockingLockExclusive).expect("locked");
        drop((one, third));
        assert_eq!(place.locked_until_unlocked(), [(Unlocked, Exclusive), (Exclusive, Unlocked)], "closed");
    });
}

/// Goal: processes lock bytes of a file apart from each other, and whoever closes any descriptor of it loses its own.
#[test]
fn processes_lock_bytes() {
    over_both_of(locking, |place| {
        let path = place.path("file");
        fs::write(&path, "text").expect("written");
        let first = other_process(&path, (10, 10), How::NonBlockingLockExclusive).expect("locked");
        assert!(other_process(&path, (15, 1), How::NonBlockingLockExclusive).is_none());
        end(other_process(&path, (0, 10), How::NonBlockingLockExclusive).expect("other bytes"));
        end(other_process(&path, (20, 0), How::NonBlockingLockExclusive).expect("other bytes, to the end"));
        let file = opened(&path);
        assert_eq!(fcntl_lock(&file, How::NonBlockingLockExclusive), Err(E::AGAIN), "the whole file");
        end(first);
        place.locked_until_unlocked();
        fcntl_lock(&file, How::NonBlockingLockExclusive).expect("locked");
        assert!(other_process(&path, (15, 1), How::NonBlockingLockExclusive).is_none());
        drop(File::open(&path).expect("opened"));
        end(other_process(&path, (15, 1), How::NonBlockingLockExclusive)
            .expect("a descriptor was closed, if one for reading"));
    });
}

/// Goal: who asks what is in the way of a lock is told of processes here, and else of other machines: of writers in any case, of
/// readers where all of the file is asked about. Whom the source does not answer is told so.
#[test]
fn it_is_told_what_is_in_the_way() {
    use FlockType::{ReadLock, WriteLock};
    over_both_of(locking, |place| {
        let path = place.path("file");
        fs::write(&path, "text").expect("written");
        let file = opened(&path);
        let asked = |typ, (start, length)| {
            let asked = Flock { start, length, pid: None, typ, offset_type: FlockOffsetType::Set };
            let found = fcntl_getlk(&file, &asked)?;
            Ok(found.map(|found| (found.typ, (found.start, found.length), found.pid)))
        };
        let (whole, part) = ((0, 0), (10, 10));
        let [readers, writer] = [ReadLock, WriteLock].map(|typ| Ok(Some((typ, whole, None))));
        for (others, found) in [
            (Unlocked, [Ok(None), Ok(None), Ok(None), Ok(None)]),
            (Shared, [Ok(None), Ok(None), readers, Ok(None)]),
            (Exclusive, [writer; 4]),
        ] {
            place.memory.files().others_have = others;
            let all = [(ReadLock, whole), (ReadLock, part), (WriteLock, whole), (WriteLock, part)];
            assert_eq!(all.map(|(typ, bytes)| asked(typ, bytes)), found, "{others:?}");
        }
        let here = other_process(&path, (15, 5), How::NonBlockingLockShared).expect("locked");
        let pid = rustix::process::Pid::from_child(&here);
        assert_eq!(asked(WriteLock, part), Ok(Some((ReadLock, (15, 5), Some(pid)))));
        end(here);
        place.memory.files().locks_fail = Some(E::TIMEDOUT);
        assert_eq!(asked(WriteLock, part), Err(E::TIMEDOUT));
        place.memory.files().locks_fail = None;
    });
}

/// Goal: who only reads a tree that takes no changes is not told of each close, and what was locked is given back all the
/// same, with the open file.
#[test]
fn a_tree_that_takes_no_changes_is_told_of_no_close() {
    over_both_of(locking, |place| {
        let path = place.path("file");
        fs::write(&path, "text").expect("written");
        place.asked_until_closed();
        drop(File::open(&path).expect("opened"));
        assert_eq!(place.asked_until_closed(), ["flush", "close"], "a lock may end with it");
        place.memory.files().writable = false;
        let file = File::open(&path).expect("opened");
        fcntl_lock(&file, How::NonBlockingLockShared).expect("locked");
        drop(file);
        assert_eq!(place.asked_until_closed(), ["close"]);
        assert_eq!(place.locked_until_unlocked(), [(Unlocked, Shared), (Shared, Unlocked)]);
    });
}

/// Goal: who waits for a lock gets it when it is given back, and a signal ends the wait.
#[test]
fn a_wait_ends_with_the_lock_or_a_signal() {
    over_both_of(locking, |place| {
        let path = place.path("file");
        fs::write(&path, "text").expect("written");
        let held = other_process(&path, (0, 0), How::NonBlockingLockExclusive).expect("locked");
        let waits = std::thread::spawn({
            let path = path.clone();
            move || other_process(&path, (0, 1), How::LockExclusive)
        });
        let mut stopped = Command::new("flock").arg("--exclusive").arg(&path).arg("true").spawn().expect("flock runs");
        assert!(stopped.wait().expect("it ends").success(), "the families do not know of each other");
        let script = "import sys\nfrom fcntl import *\nlockf(open(sys.argv[1], 'r+'), LOCK_EX)";
        let mut killed = Command::new("timeout");
        let outcome = killed.args(["0.3", "python3", "-c", script]).arg(&path).status().expect("timeout runs");
        assert_eq!(outcome.code(), Some(124), "SIGTERM ended it");
        assert!(!waits.is_finished());
        end(held);
        end(waits.join().expect("no panic").expect("it has the lock now"));
    });
}

/// Goal: what the source refuses nobody has, also nobody here after that; who waits gets it when the source gives it.
#[test]
fn what_the_source_refuses_nobody_has() {
    over_both_of(locking, |place| {
        let path = place.path("file");
        fs::write(&path, "text").expect("written");
        let (one, other) = (opened(&path), opened(&path));
        place.memory.files().locked_elsewhere = true;
        assert_eq!(flock(&one, How::NonBlockingLockExclusive), Err(E::AGAIN));
        assert_eq!(place.locked(), []);
        let waits = std::thread::spawn({
            let path = path.clone();
            move || flock(opened(&path), How::LockShared)
        });
        place.memory.files().locked_elsewhere = false;
        assert_eq!(waits.join().expect("no panic"), Ok(()));
        place.locked_until_unlocked();
        flock(&other, How::NonBlockingLockShared).expect("locked");
        place.memory.files().locked_elsewhere = true;
        assert_eq!(flock(&other, How::NonBlockingLockExclusive), Err(E::AGAIN), "it cannot be made stronger");
        flock(&one, How::NonBlockingLockShared).expect("what was there is still there");
    });
}

/// Goal: what the source has lost to somebody else counts for nothing, but until all who had any of it have given it back
/// nobody here gets more, for that would show them what somebody else has left. Then it is taken as if for the first time.
#[test]
fn what_is_lost_is_taken_anew() {
    over_both_of(locking, |place| {
        let path = place.path("file");
        fs::write(&path, "text").expect("written");
        let (one, other) = (opened(&path), opened(&path));
        flock(&other, How::NonBlockingLockShared).expect("locked");
        let read = other_process(&path, (0, 10), How::NonBlockingLockShared).expect("locked");
        place.lose_locks();
        assert!(other_process(&path, (20, 1), How::NonBlockingLockExclusive).is_none(), "it cannot be made stronger");
        assert_eq!(flock(&one, How::NonBlockingLockShared), Err(E::AGAIN), "somebody else has it");
        place.memory.files().locked_elsewhere = false;
        assert_eq!(flock(&one, How::NonBlockingLockShared), Err(E::AGAIN), "two rely on what is lost");
        assert_eq!(flock(&other, How::NonBlockingLockExclusive), Err(E::AGAIN), "one of them it is");
        flock(&other, How::Unlock).expect("unlocked");
        assert_eq!(flock(&one, How::NonBlockingLockShared), Err(E::AGAIN), "one relies on it still");
        assert_eq!(place.locked(), [(Unlocked, Shared)], "and the source is not asked");
        let waits = std::thread::spawn({
            let path = path.clone();
            move || other_process(&path, (20, 1), How::LockExclusive)
        });
        end(read);
        end(waits.join().expect("no panic").expect("nobody relies on it any more"));
        assert_eq!(place.locked_until_unlocked(), [(Unlocked, Exclusive), (Exclusive, Unlocked)]);
    });
}

/// Goal: a process that would wait with its lock lost is told at once; one of flock(2) begins anew.
#[test]
fn who_waits_with_a_lost_lock_is_told() {
    over_both_of(locking, |place| {
        let path = place.path("file");
        fs::write(&path, "text").expect("written");
        let file = opened(&path);
        fcntl_lock(&file, How::NonBlockingLockShared).expect("locked");
        place.lose_locks();
        assert_eq!(fcntl_lock(&file, How::LockExclusive), Err(E::DEADLK));
        place.memory.files().locked_elsewhere = false;
        assert_eq!(fcntl_lock(&file, How::LockExclusive), Err(E::DEADLK), "it has not given back what is lost");
        fcntl_lock(&file, How::Unlock).expect("unlocked");
        fcntl_lock(&file, How::LockExclusive).expect("anew");
        fcntl_lock(&file, How::Unlock).expect("unlocked");

        flock(&file, How::NonBlockingLockShared).expect("locked");
        place.lose_locks();
        let waits = std::thread::spawn(move || flock(&file, How::LockExclusive));
        place.until_lost();
        place.memory.files().locked_elsewhere = false;
        assert_eq!(waits.join().expect("no panic"), Ok(()));
    });
}

/// Goal: what can never be had is not waited for.
#[test]
fn nobody_waits_for_what_is_gone() {
    over_both_of(locking, |place| {
        let path = place.path("file");
        fs::write(&path, "text").expect("written");
        place.memory.files().locks_fail = Some(E::STALE);
        assert_eq!(flock(opened(&path), How::LockExclusive), Err(E::STALE));
    });
}

/// Goal: processes that would wait for each other are told.
#[test]
fn a_circle_of_waits_is_refused() {
    over_both_of(locking, |place| {
        let path = place.path("file");
        fs::write(&path, "text").expect("written");
        // Which of the two is refused depends on who waits first; the other has it then.
        let output =
            Command::new("timeout").args(["20", "python3", "-c", CIRCLE]).arg(&path).output().expect("python3 runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let deadlock = E::DEADLK.raw_os_error();
        assert!([format!("{deadlock} 0\n"), format!("0 {deadlock}\n")].contains(&said), "{output:?}");
    });
}

/// Locks bytes of a file with these flags of flock(2), says so, and has them until its input ends.
const HOLD: &str = "
import fcntl, sys
path, flags, start, length = sys.argv[1], *map(int, sys.argv[2:])
file = open(path, 'r+')
try:
    fcntl.lockf(file, flags, length, start)
except OSError as error:
    sys.exit(error.errno)
print(flush=True)
sys.stdin.read()
";

/// A process with byte 0 and its child with byte 1 each wait for what the other has. Says what became of each.
const CIRCLE: &str = "
import os, sys
from fcntl import *
file = open(sys.argv[1], 'r+')
ready, tell = os.pipe()
lockf(file, LOCK_EX, 1, 0)
child = os.fork()
if child == 0:
    lockf(file, LOCK_EX, 1, 1)
    os.write(tell, b'x')
    try:
        lockf(file, LOCK_EX, 1, 0)
        os._exit(0)
    except OSError as error:
        os._exit(error.errno)
os.read(ready, 1)
try:
    lockf(file, LOCK_EX, 1, 1)
    own = 0
except OSError as error:
    own = error.errno
lockf(file, LOCK_UN)
print(own, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
";
