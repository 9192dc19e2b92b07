//! Processes that write one file at a time: appends, shared maps, locks.

use std::path::PathBuf;

use crate::support::{Pair, Program, find_program, without};

/// python3, without what stands before it on some machines.
pub fn python() -> Option<PathBuf> {
    let found = Some(PathBuf::from("/usr/bin/python3")).filter(|path| path.is_file()).or(find_program("python3"));
    if found.is_none() {
        without("python3 is missing; scripts/install-test-deps.sh installs it");
    }
    found
}

/// A program that works in the mount.
pub fn works(pair: &Pair, text: &str) -> Option<Program> {
    Some(Program::new(python()?).args(["-c", text]).dir(&pair.mount.dir()).env("source", pair.there("")))
}

/// Goal: of three processes that append to one file by small and large writes, each line is there once and whole.
#[test]
fn appended_lines_stay_whole() {
    let Some(pair) = Pair::new() else { return };
    pair.script(
        "line() { printf '%s-%04d-%s\\n' $1 $2 $(head -c $(($2 * 7 % 3000)) /dev/zero | tr '\\0' $1); }
        write() { for nth in $(seq 150); do line $1 $nth; line $1 $nth >> file; done >$beside/expected.$1; }
        write a & write b & write c & wait
        for of in a b c; do grep ^$of file | cmp - $beside/expected.$of; done
        test $(wc -l <file) = 450; cmp file $source/file
        (for nth in $(seq 400); do line d $nth; done >>kept) & (for nth in $(seq 400); do line e $nth; done >>kept) & wait
        for of in d e; do test $(grep -c ^$of kept) = 400; done
        test $(grep -cvE '^(d-[0-9]{4}-d*|e-[0-9]{4}-e*)$' kept) = 0; cmp kept $source/kept",
    );
    pair.agree();
}

/// Goal: what one process puts into a shared map another sees in its own, and the source gets it, also what came after the
/// descriptor was closed.
#[test]
fn a_shared_map_is_shared() {
    let Some(pair) = Pair::new() else { return };
    std::fs::write(pair.there("file"), vec![b'.'; 300_000]).expect("written");
    let text = r#"
import mmap, os
fd = os.open("file", os.O_RDWR)
ours = mmap.mmap(fd, 300000)
os.close(fd)
told, tell = os.pipe()
back, answer = os.pipe()
child = os.fork()
if child == 0:
    fd = os.open("file", os.O_RDWR)
    theirs = mmap.mmap(fd, 300000)
    os.close(fd)
    os.read(told, 1)
    assert theirs[123456:123461] == b"first", theirs[123456:123461]
    theirs[250000:250006] = b"second"
    os.write(answer, b"x")
    os._exit(0)
assert ours[123456] == ord(".")
ours[123456:123461] = b"first"
os.write(tell, b"x")
assert os.read(back, 1) == b"x", "the child has ended"
assert os.waitpid(child, 0)[1] == 0
assert ours[250000:250006] == b"second", ours[250000:250006]
with open("file", "rb") as file:
    assert file.read()[250000:250006] == b"second"
ours[0:4] = b"last"
ours.flush()
fd = os.open("file", os.O_RDWR)
os.fsync(fd)
os.close(fd)
with open(os.environ["source"] + "/file", "rb") as file:
    there = file.read()
assert there[:4] == b"last" and there[123456:123461] == b"first" and there[250000:250006] == b"second"
ours[299996:] = b"tail"
ours.close()
"#;
    let Some(program) = works(&pair, text) else { return };
    program.good();
    let mut wanted = vec![b'.'; 300_000];
    for (at, bytes) in [(0, "last"), (123_456, "first"), (250_000, "second"), (299_996, "tail")] {
        wanted[at..at + bytes.len()].copy_from_slice(bytes.as_bytes());
    }
    assert!(std::fs::read(pair.at("file")).expect("read") == wanted);
    pair.mount.umount();
    assert!(std::fs::read(pair.there("file")).expect("read") == wanted, "all is sent when the mount has ended");
}

/// Goal: what was written by a map is no hole, for whoever has it mapped and for who copies the file meanwhile; when nobody
/// writes any more, what was punched out is one.
#[test]
fn pages_that_only_the_kernel_has_are_no_holes() {
    let Some(pair) = Pair::new() else { return };
    let text = r#"
import errno, mmap, os, subprocess
def data(fd):
    try:
        return os.lseek(fd, 0, os.SEEK_DATA)
    except OSError as error:
        assert error.errno == errno.ENXIO, error
        return None
fd = os.open("file", os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 4 << 20)
ours = mmap.mmap(fd, 4 << 20)
ours[1 << 20 : (1 << 20) + 5] = b"hello"
assert data(fd) <= 1 << 20
subprocess.run(["cp", "--sparse=auto", "file", "copy"], check=True)
with open("copy", "rb") as copy:
    assert copy.read() == bytes(1 << 20) + b"hello" + bytes((3 << 20) - 5)
ours.close()
os.close(fd)
fd = os.open("file", os.O_RDONLY)
assert data(fd) == 1 << 20, data(fd)
os.close(fd)
subprocess.run(["fallocate", "-p", "-o", "0", "-l", str(4 << 20), "file"], check=True)
fd = os.open("file", os.O_RDONLY)
assert data(fd) is None, data(fd)
"#;
    let Some(program) = works(&pair, text) else { return };
    program.good();
    pair.agree();
}

/// Goal: locks of both kinds keep another process out, of the whole file and of parts, and go with their holder.
#[test]
fn locks_keep_other_processes_out() {
    let Some(pair) = Pair::new() else { return };
    let text = r#"
import errno, fcntl, os, struct
def child(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
    return pid
def done(pid):
    assert os.waitpid(pid, 0)[1] == 0
def refused(lock, *how):
    with open("file", "r+b") as file:
        try:
            lock(file, *how)
        except OSError as error:
            assert error.errno in (errno.EAGAIN, errno.EACCES), error
            return
        raise AssertionError("it is locked by another")
def free(lock, *how):
    with open("file", "r+b") as file:
        lock(file, *how)
open("file", "wb").write(b"." * 100)
NOW = fcntl.LOCK_EX | fcntl.LOCK_NB
SHARED = fcntl.LOCK_SH | fcntl.LOCK_NB
ours = open("file", "r+b")
fcntl.flock(ours, fcntl.LOCK_SH)
done(child(lambda: free(fcntl.flock, SHARED)))
done(child(lambda: refused(fcntl.flock, NOW)))
fcntl.flock(ours, fcntl.LOCK_EX)
done(child(lambda: refused(fcntl.flock, SHARED)))
waits = child(lambda: free(fcntl.flock, fcntl.LOCK_EX))
fcntl.flock(ours, fcntl.LOCK_UN)
done(waits)
fcntl.lockf(ours, fcntl.LOCK_EX, 10, 20)
done(child(lambda: refused(fcntl.lockf, NOW, 1, 29)))
done(child(lambda: free(fcntl.lockf, NOW, 20, 0)))
done(child(lambda: free(fcntl.lockf, NOW, 0, 30)))
def holder():
    with open("file", "r+b") as file:
        asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)
        found = struct.unpack("hhqqi4x", fcntl.fcntl(file, fcntl.F_GETLK, asked))
        assert found[0] == fcntl.F_WRLCK and found[2:5] == (20, 10, os.getppid()), found
done(child(holder))
waits = child(lambda: free(fcntl.lockf, fcntl.LOCK_EX, 0, 0))
# Any descriptor of the file that is closed frees them, as POSIX has it.
open("file").close()
done(waits)
"#;
    let Some(program) = works(&pair, text) else { return };
    program.good();
    pair.script("flock file sh -c 'flock -n file true && exit 1; exit 0'; flock -n file true");
}

/// Goal: whoever has a file open goes on writing it when another program has emptied it (as log rotation does), also where
/// the file was renamed, linked or given a mode since it was written.
#[test]
fn a_file_that_is_emptied_is_written_on() {
    let Some(pair) = Pair::new() else { return };
    for before in ["mv file.new file", "mv file.new file; ln file second", "mv file.new file; chmod 600 file"] {
        pair.script(&format!(
            "rm -f second; echo before > file.new; {before}; cat file > /dev/null; exec 3>>file 4<>file
            : > file; echo after >&3; echo x >&4
            exec 3>&- 4>&-; diff file $source/file"
        ));
        assert_eq!(std::fs::read_to_string(pair.there("file")).expect("read"), "x\nter\n", "{before}");
    }
    // What is known of the file is newer than what is known of the content that is open: it was looked at when its times could
    // be relied on again.
    pair.script(
        "echo before > file.new; mv file.new file; cat file; exec 3>>file; touch -d '1 hour ago' file
        until=$(($(date +%s%N) + 50000000)); while test $(date +%s%N) -lt $until; do stat file; done
        : > file; echo after >&3; exec 3>&-; diff file $source/file",
    );
    assert_eq!(std::fs::read_to_string(pair.there("file")).expect("read"), "after\n");
}

/// Goal: what is written to a file goes on to its source where we have set its times and somebody else has given it another
/// name since it was opened.
#[test]
fn a_file_that_is_moved_by_another_is_written_on() {
    let Some(pair) = Pair::new() else { return };
    pair.script(
        "echo before > file.new; mv file.new file; cat file; exec 3>>file; touch -d '1 hour ago' file
        mv $source/file $source/other; stat other; echo after >&3; exec 3>&-",
    );
    assert_eq!(std::fs::read_to_string(pair.there("other")).expect("read"), "before\nafter\n");
}
