//! Files that are open while others change them.

use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::io::Errno;

use crate::afs::{mounted_on, read};
use crate::interrupts::wait_until;
use crate::support::{AfsCell, Liar, Mount, Pair, Setup, answer, fails_with};
use crate::writing_processes::python;

/// `tail -f`, and what it prints.
struct Tail {
    program: Child,
    out: BufReader<ChildStdout>,
}

impl Tail {
    fn of(path: &Path) -> Tail {
        let mut command = Command::new("tail");
        command.args(["-n", "+1", "-s", "0.05", "-f"]).arg(path).stdout(Stdio::piped());
        let mut program = command.spawn().expect("tail runs");
        let out = BufReader::new(program.stdout.take().expect("piped"));
        Tail { program, out }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("a line");
        line.trim_end_matches('\n').to_owned()
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.program.kill().expect("a child of ours");
        self.program.wait().expect("it ends");
    }
}

fn append(path: &Path, line: &str) {
    let mut file = File::options().append(true).create(true).open(path).expect("opened");
    writeln!(file, "{line}").expect("written");
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).expect("told").len()
}

/// What a program that keeps a file open sees of it, with `open_files=newest`, while it grows on one side and the other, and
/// is cut and mapped.
fn is_followed(here: &Path, there: &Path) {
    append(there, "first");
    let mut tails = [Tail::of(here), Tail::of(here)];
    let held = File::open(here).expect("opened");
    for round in 0..10 {
        let long = "x".repeat(round * 3000);
        let (ours, theirs) = (format!("ours {round} {long}"), format!("theirs {round} {long}"));
        tails.iter_mut().for_each(|tail| assert!(round > 0 || tail.line() == "first"));
        append(here, &ours);
        tails.iter_mut().for_each(|tail| assert_eq!(tail.line(), ours));
        // Another machine that has not heard of it yet would write over it.
        wait_until("the other side has heard of it", || length(there) == length(here));
        append(there, &theirs);
        tails.iter_mut().for_each(|tail| assert_eq!(tail.line(), theirs));
        wait_until("it is as long by its descriptor", || held.metadata().expect("told").len() == length(there));
    }
    let (mut bytes, mut now) = (Vec::new(), held.try_clone().expect("a descriptor"));
    now.read_to_end(&mut bytes).expect("read");
    assert_eq!(bytes, fs::read(there).expect("read"));
    fs::write(there, "cut\n").expect("written");
    wait_until("it is cut", || held.metadata().expect("told").len() == 4);
    let mut start = [0; 16];
    assert_eq!(held.read_at(&mut start, 0).expect("read"), 4);
    assert_eq!(&start[..4], b"cut\n");
}

/// Goal: with `open_files=newest` a file of a directory that grows is followed by who has it open, whether it grows here or
/// in the directory; it is seen after its daemon was killed as well.
#[test]
fn a_file_that_grows_is_followed() {
    let Some(pair) = Pair::with(&["open_files=newest"]) else { return };
    is_followed(&pair.at("log"), &pair.there("log"));
    let mut tail = Tail::of(&pair.at("log"));
    assert_eq!(tail.line(), "cut");
    let held = File::open(pair.at("log")).expect("opened");
    assert_eq!(held.metadata().expect("told").len(), 4);
    pair.mount.kill_daemon();
    append(&pair.there("log"), "after");
    wait_until("it is longer by its descriptor", || held.metadata().expect("told").len() == 10);
    assert_eq!(tail.line(), "after");
    pair.agree();
}

/// Goal: the same of AFS, where another machine writes.
#[test]
fn a_file_that_grows_elsewhere_is_followed() {
    let Some(cell) = AfsCell::up() else { return };
    let Some(here) = mounted_on(cell, "c1", "afs", &["open_files=newest"]) else { return };
    let Some(there) = mounted_on(cell, "c2", "afs", &[]) else { return };
    let at = "weft.test/scratch/followed";
    is_followed(&here.at(at), &there.at(at));
    fs::remove_file(here.at(at)).expect("removed");
}

/// Goal: a copy that is fetched again is opened beside those that the kernel reads by itself, also where its source tells no
/// version, or the same.
#[test]
fn what_is_fetched_again_is_opened_beside_its_readers() {
    for validator in ["x-none: 1", "etag: \"one\""] {
        let body = "once more ".repeat(30_000);
        let bytes = answer("200 OK", &[validator, "cache-control: max-age=3600"], &body);
        let liar = Liar::answering(move |_| bytes.clone());
        let Some(mount) = Mount::new() else { return };
        let path = mount.at(liar.site()).join("file");
        let is_body = |mut file: &File| {
            let mut read = String::new();
            file.read_to_string(&mut read).expect("read");
            assert!(read == body, "{validator}: {} bytes", read.len());
        };
        is_body(&File::open(&path).expect("opened"));
        let held: Vec<File> = (0..3)
            .map(|_| {
                let held = File::open(&path).unwrap_or_else(|error| panic!("{validator}: {error}"));
                assert_eq!(mount.verb("rm -w", [&path]).code, Some(0));
                is_body(&File::open(&path).unwrap_or_else(|error| panic!("{validator}: {error}")));
                held
            })
            .collect();
        held.iter().for_each(is_body);
    }
}

/// What was written here, sent, and is still open, while it is changed there.
fn gives_way(here: &Path, there: &Path) {
    fs::write(here, "before").expect("written");
    let open = || File::options().read(true).write(true).open(here).expect("opened");
    let (reader, writer) = (File::open(here).expect("opened"), open());
    for round in 0..5 {
        let (ours, theirs) = (format!("ours {round}"), format!("theirs, which are longer: {round}"));
        fs::write(here, &ours).expect("written");
        let held = File::open(here).expect("opened");
        wait_until("the other side has heard of it", || read(there) == ours);
        fs::write(there, &theirs).expect("written");
        wait_until("it is looked at", || length(here) == theirs.len() as u64);
        assert_eq!(read(here), theirs);
        let mut start = [0; 64];
        // Or not at all, for the file is open to be written and is of another length by now.
        match held.read_at(&mut start, 0) {
            Ok(length) => assert_eq!(String::from_utf8_lossy(&start[..length]), ours, "as it was opened"),
            error => fails_with(error, Errno::IO),
        }
    }
    // It was opened five versions ago.
    let lost = writer.write_at(b"x", 0).and_then(|_| writer.sync_all());
    fails_with(lost, Errno::IO);
    drop((reader, writer));
    assert!(read(there).starts_with("theirs"));
}

/// Goal: that a program has a file open does not hide from others what became of it, also where it was written here before;
/// and it is not written over by who has not seen that.
#[test]
fn what_was_written_here_gives_way() {
    let Some(pair) = Pair::new() else { return };
    gives_way(&pair.at("file"), &pair.there("file"));
}

/// Goal: the same of AFS.
#[test]
fn what_was_written_here_gives_way_to_another_machine() {
    let Some(cell) = AfsCell::up() else { return };
    let Some(here) = mounted_on(cell, "c1", "afs", &[]) else { return };
    let Some(there) = mounted_on(cell, "c2", "afs", &[]) else { return };
    let at = "weft.test/scratch/gives-way";
    gives_way(&here.at(at), &there.at(at));
    fs::remove_file(here.at(at)).expect("removed");
}

/// Goal: a file that somebody reads while another machine writes it is the new one by all of its names, and not by that alone by
/// which it was looked up last.
#[test]
fn all_names_of_a_file_lead_to_what_another_machine_wrote() {
    let Some(cell) = AfsCell::up() else { return };
    let Some(here) = mounted_on(cell, "c1", "afs", &[]) else { return };
    let Some(there) = mounted_on(cell, "c2", "afs", &[]) else { return };
    let names = ["weft.test/scratch/one-of-two", "weft.test/scratch/other-of-two"];
    let [one, other] = names.map(|name| here.at(name));
    fs::write(&one, "first").expect("written");
    fs::hard_link(&one, &other).expect("linked");
    let mut open = Vec::new();
    for (round, text) in ["the second", "the third of them", "4"].into_iter().enumerate() {
        open.push(File::open(if round % 2 == 0 { &one } else { &other }).expect("opened"));
        fs::write(there.at(names[0]), text).expect("written");
        let by = if round % 2 == 0 { &other } else { &one };
        for name in [by, &one, &other] {
            wait_until("the new length", || length(name) == text.len() as u64);
            assert_eq!(read(name), text, "round {round}");
        }
    }
    assert_eq!(std::io::read_to_string(&open[2]).expect("read"), "the third of them");
    names.iter().for_each(|name| fs::remove_file(here.at(name)).expect("removed"));
}

/// What was written here, sent, and is still open for writing, while there its mode is changed.
fn is_written_on(here: &Path, there: &Path) {
    let file = File::options().read(true).write(true).create(true).truncate(true).open(here).expect("opened");
    for (round, mode) in [0o600, 0o640, 0o644, 0o604].into_iter().enumerate() {
        let line = [b'a' + round as u8; 1000];
        file.write_all_at(&line, 1000 * round as u64).expect("written");
        file.sync_all().expect("sent: nobody has written anything else");
        fs::set_permissions(there, Permissions::from_mode(mode)).expect("set");
        let has_mode = || fs::metadata(here).expect("told").mode() & 0o777 == mode;
        wait_until("it is seen", has_mode);
        wait_until("the other side has heard of it", || length(there) == length(here));
        assert_eq!(fs::read(here).expect("read"), fs::read(there).expect("read"));
    }
    drop(file);
    assert_eq!(length(there), 4000);
}

/// Goal: another mode is not another content: who has written the file goes on writing it.
#[test]
fn what_was_written_here_may_get_another_mode() {
    let Some(pair) = Pair::new() else { return };
    is_written_on(&pair.at("file"), &pair.there("file"));
    let Some(cell) = AfsCell::up() else { return };
    let Some(here) = mounted_on(cell, "c1", "afs", &[]) else { return };
    let Some(there) = mounted_on(cell, "c2", "afs", &[]) else { return };
    let at = "weft.test/scratch/another-mode";
    is_written_on(&here.at(at), &there.at(at));
    fs::remove_file(here.at(at)).expect("removed");
}

/// Goal: versions of a file that are as long are each what they are to those who have mapped them, privately or shared.
#[test]
fn versions_are_mapped_side_by_side() {
    const LENGTH: usize = 300_000;
    let Some(pair) = Pair::new() else { return };
    let Some(python) = python() else { return };
    let text = "import mmap, os, sys
held = []
for line in sys.stdin:
    file = open(sys.argv[1], 'rb')
    file.read()
    kind = mmap.MAP_SHARED if len(held) % 2 else mmap.MAP_PRIVATE
    held.append(mmap.mmap(file.fileno(), 0, flags=kind, prot=mmap.PROT_READ))
    print(''.join(chr(one) for version in held for one in sorted(set(version[:]))), flush=True)";
    let mut command = Command::new(python);
    command.args(["-c", text]).arg(pair.at("file")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = command.spawn().expect("python3 runs");
    let (mut input, output) = (program.stdin.take().expect("piped"), program.stdout.take().expect("piped"));
    let mut output = BufReader::new(output).lines();
    for (byte, expected) in [(b'a', "a"), (b'b', "ab")] {
        fs::write(pair.there("file"), vec![byte; LENGTH]).expect("written");
        wait_until("it is seen", || fs::read(pair.at("file")).is_ok_and(|bytes| bytes[0] == byte));
        input.write_all(b"\n").expect("it reads");
        assert_eq!(output.next().expect("a line").expect("text"), expected);
    }
    drop(input);
    assert!(program.wait().expect("it ends").success());
}

/// Goal: that somebody maps the newest version of a file privately, and copies of it within the kernel, gives nobody the bytes of
/// another version as long, neither who does that nor who has an older one open, be it that the source tells of no version; and
/// where nothing has changed all go on.
#[test]
fn the_newest_version_is_mapped_and_sent_beside_older_ones() {
    let (Some(pair), Some(web)) = (Pair::new(), Mount::with(Setup::default().option("freshness=always"))) else {
        return;
    };
    let served = Arc::new(AtomicU8::new(0));
    let serving = served.clone();
    let liar = Liar::answering(move |asked| match asked.path.as_str() {
        "/file.bin" => {
            answer("200 OK", &["content-type: application/x-bin"], [serving.load(Ordering::SeqCst); 300_000])
        }
        _ => answer("404 Not Found", &[], ""),
    });
    let (there, served_at) = (pair.there("file"), web.at(liar.site()).join("file.bin"));
    are_apart(&pair.at("file"), b"abc", |byte| fs::write(&there, [byte; 300_000]).expect("written"));
    are_apart(&served_at, b"abbbc", |byte| served.store(byte, Ordering::SeqCst));
}

/// Has the newest of these versions mapped and sent while older ones are open.
fn are_apart(path: &Path, versions: &[u8], set: impl Fn(u8)) {
    let Some(python) = python() else { return };
    let text = "import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
pipe = os.pipe()
os.splice(file, pipe[1], 1000)
sent = os.read(pipe[0], 1000)
print(''.join(chr(one) for one in sorted(set(sent) | set(mmap.mmap(file, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)[:]))))";
    let mut held: Vec<(u8, File)> = Vec::new();
    for byte in versions.iter().copied() {
        set(byte);
        let is_new = |file: &File| reads(file) == Ok(byte);
        wait_until("it is seen", || is_new(&File::open(path).expect("opened")));
        held.push((byte, File::open(path).expect("opened")));
        assert!(is_new(&held.last().expect("it is there").1));
        let mapped = Command::new(&python).args(["-c", text]).arg(path).output().expect("python3 runs");
        assert_eq!(String::from_utf8_lossy(&mapped.stdout).trim_end(), char::from(byte).to_string(), "{mapped:?}");
        for (of, file) in &held {
            match reads(file) {
                Err(Errno::IO) if (*of, byte) == (b'a', b'c') => {}
                read => assert_eq!(read.map(char::from), Ok(char::from(*of)), "when it is {}", char::from(byte)),
            }
        }
    }
}

/// The byte of which all is that is read of a file.
fn reads(file: &File) -> Result<u8, Errno> {
    let mut bytes = vec![0; 100_000];
    let length = rustix::io::pread(file, &mut bytes, 100_000)?;
    assert!(length > 0 && bytes[..length].iter().all(|byte| *byte == bytes[0]), "a mix");
    Ok(bytes[0])
}

/// Reads a file here while it becomes longer and shorter there, with a descriptor for writing open: each read is of the version
/// that was opened, or an error.
fn is_whole_or_an_error(here: &Path, there: &Path) {
    const LENGTHS: [usize; 5] = [4000, 9000, 50, 20_000, 5000];
    let content = |version: usize| format!("{version:04} ").repeat(4000)[..LENGTHS[version % 5]].to_owned();
    let open = |options: &mut fs::OpenOptions| options.read(true).open(here).expect("opened");
    fs::write(there, content(0)).expect("written");
    for version in 0..30 {
        let (reader, writer) = (open(&mut File::options()), open(File::options().write(true)));
        let (of_it, newer) = (content(version), content(version + 1));
        std::thread::scope(|scope| {
            let change = scope.spawn(|| fs::write(there, &newer).expect("written"));
            for round in 0..12 {
                let from = [0, of_it.len() - 20, of_it.len(), of_it.len() / 2][round % 4];
                let mut bytes = vec![0; 30_000];
                match [&reader, &writer][round % 2].read_at(&mut bytes, from as u64) {
                    Ok(length) => assert!(bytes[..length] == of_it.as_bytes()[from..], "version {version} from {from}"),
                    error => fails_with(error, Errno::IO),
                }
                if round % 3 == 0 {
                    length(here);
                }
            }
            change.join().expect("written");
        });
        wait_until("the newer one", || read(here) == newer);
    }
}

/// Goal: who has an older version open is not given the bytes of that up to the length of the newer one.
#[test]
fn an_older_version_is_neither_cut_off_nor_filled_up() {
    let Some(pair) = Pair::new() else { return };
    is_whole_or_an_error(&pair.at("file"), &pair.there("file"));
}

/// Goal: the same of AFS, where another machine writes.
#[test]
fn an_older_version_is_neither_cut_off_nor_filled_up_elsewhere() {
    let Some(cell) = AfsCell::up() else { return };
    let Some(here) = mounted_on(cell, "c1", "afs", &[]) else { return };
    let Some(there) = mounted_on(cell, "c2", "afs", &[]) else { return };
    let at = "weft.test/scratch/whole-or-error";
    is_whole_or_an_error(&here.at(at), &there.at(at));
    fs::remove_file(here.at(at)).expect("removed");
}
