//! AFS cells that are written through the mount. What the servers have then, OpenAFS's own client says.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, CWD, RenameFlags, StatxFlags, statx};
use rustix::io::Errno;

use crate::afs::{mounted, mounted_on, read};
use crate::interrupts::wait_until;
use crate::posix::{FSX, suite};
use crate::support::{AfsCell, Afsd, Mount, Program, compare, fails_with, names_if_there, names_in, noise, run};

/// A folder of one test in the volume that anybody may write, as the mount shows it and as another client does.
struct Folder {
    mount: Mount,
    other: Afsd,
    name: &'static str,
}

impl Folder {
    fn new(cell: &AfsCell, name: &'static str) -> Option<Folder> {
        let folder = Folder { mount: mounted(cell, "afs", &[])?, other: Afsd::mount(cell, "c2")?, name };
        std::fs::create_dir(folder.at("")).expect("made");
        Some(folder)
    }

    fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        self.mount.at("weft.test/scratch").join(self.name).join(path)
    }

    fn there(&self, path: impl AsRef<Path>) -> PathBuf {
        self.other.dir().join("weft.test/scratch").join(self.name).join(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.at(""));
    }
}

/// Goal: names, content and attributes that are changed through the mount are so at the servers.
#[test]
fn what_is_changed_here_is_so_at_the_servers() {
    let Some(cell) = AfsCell::up() else { return };
    let Some(folder) = Folder::new(cell, "changes") else { return };
    std::fs::write(folder.at("file"), "first").expect("written");
    assert_eq!(read(&folder.there("file")), "first");
    std::fs::write(folder.at("file"), "another, longer").expect("written");
    std::fs::rename(folder.at("file"), folder.at("moved")).expect("moved");
    std::fs::create_dir_all(folder.at("dir/deep")).expect("made");
    std::fs::rename(folder.at("dir/deep"), folder.at("deep")).expect("moved to another directory");
    std::fs::hard_link(folder.at("moved"), folder.at("second")).expect("linked");
    symlink("moved", folder.at("link")).expect("made");
    let long = noise((5 << 20) + 17);
    std::fs::write(folder.at("deep/long"), &long).expect("written");
    let times = std::fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1 << 30));
    std::fs::File::options().write(true).open(folder.at("deep/long")).expect("opened").set_times(times).expect("set");
    std::fs::set_permissions(folder.at("moved"), std::fs::Permissions::from_mode(0o640)).expect("set");
    assert_eq!(folder.at("moved").metadata().expect("stat").nlink(), 2);

    let Some(fresh) = Afsd::mount(cell, "c2") else { return };
    let there = |name: &str| fresh.dir().join("weft.test/scratch/changes").join(name);
    assert_eq!(names_in(&there("")), ["deep", "dir", "link", "moved", "second"]);
    assert_eq!(
        (read(&there("moved")), read(&there("second"))),
        (read(&folder.at("moved")), "another, longer".to_owned())
    );
    assert!(std::fs::read(there("deep/long")).expect("read") == long);
    assert_eq!(std::fs::read_link(there("link")).expect("a link"), PathBuf::from("moved"));
    let stat = there("deep/long").metadata().expect("stat");
    assert_eq!(stat.mtime(), 1 << 30);
    assert_eq!(there("moved").metadata().expect("stat").permissions().mode() & 0o777, 0o640);

    let file = std::fs::File::options().write(true).open(folder.at("deep/long")).expect("opened");
    file.set_len(1000).expect("cut");
    file.set_len(3000).expect("longer");
    file.sync_all().expect("synced");
    let mut wanted = long[..1000].to_vec();
    wanted.resize(3000, 0);
    assert!(std::fs::read(folder.at("deep/long")).expect("read") == wanted);
    let Some(fresh) = Afsd::mount(cell, "c2") else { return };
    assert!(std::fs::read(fresh.dir().join("weft.test/scratch/changes/deep/long")).expect("read") == wanted);
}

/// Goal: what is changed on one of two ways to a volume is seen on the other long before any lease ends; a server calls nobody
/// for what he does himself. Method: the volume by the read-only and by the read-write root of its cell, each looked at before
/// every change.
#[test]
fn what_is_changed_on_one_way_is_seen_on_the_other() {
    let Some(cell) = AfsCell::up() else { return };
    let Some(mount) = mounted(cell, "afs", &[]) else { return };
    let ways = ["weft.test/scratch/two-ways", ".weft.test/scratch/two-ways"].map(|way| mount.at(way));
    std::fs::create_dir(&ways[0]).expect("made");
    for turn in 0..6 {
        let (one, other) = (&ways[turn % 2], &ways[(turn + 1) % 2]);
        let links = |way: &Path| way.join("file").metadata().map_or(0, |stat| stat.nlink());
        // The kernel is told before the change is answered, unless it takes more than a moment.
        wait_until("both are empty", || names_in(one).is_empty() && names_in(other).is_empty());
        for text in [format!("first {turn}"), format!("second, longer {turn}")] {
            std::fs::write(one.join("file"), &text).expect("written");
            wait_until("the text", || std::fs::read_to_string(other.join("file")).is_ok_and(|read| read == text));
        }
        std::fs::hard_link(other.join("file"), other.join("linked")).expect("linked");
        wait_until("the second name", || (names_in(one).len(), links(one)) == (2, 2));
        std::fs::rename(one.join("linked"), one.join("moved")).expect("moved");
        wait_until("the new name", || other.join("moved").exists() && !other.join("linked").exists());
        std::fs::remove_file(one.join("moved")).expect("removed");
        wait_until("one name", || (names_in(other).len(), links(other)) == (1, 1));
        std::fs::set_permissions(other.join("file"), std::fs::Permissions::from_mode(0o600)).expect("set");
        let mode = || one.join("file").metadata().map_or(0, |stat| stat.permissions().mode() & 0o777);
        wait_until("the bits", || mode() == 0o600);
        std::fs::remove_file(other.join("file")).expect("removed");
        wait_until("no file", || !one.join("file").exists());
    }
    std::fs::remove_dir(&ways[1]).expect("removed");
    wait_until("no directory", || !ways[0].exists());
}

/// Goal: the names of directories that are changed here are known without asking, and those that others change are not taken
/// for known.
#[test]
fn what_is_made_here_is_listed_without_asking() {
    let Some(cell) = AfsCell::up() else { return };
    let Some(folder) = Folder::new(cell, "listed") else { return };
    let asked = || {
        let text = folder.mount.verb("stats --prometheus", [folder.mount.dir()]).out;
        let row = |line: &str| line.strip_prefix("weft_listings_total{from=\"source\"} ")?.parse::<u64>().ok();
        text.lines().find_map(row).expect("the figure")
    };
    let before = asked();
    std::fs::create_dir_all(folder.at("dir/deep")).expect("made");
    assert_eq!(names_in(&folder.at("dir/deep")), [""; 0]);
    for name in ["a", "b", "c", "deep/d"] {
        std::fs::write(folder.at("dir").join(name), name).expect("written");
    }
    std::fs::rename(folder.at("dir/a"), folder.at("dir/deep/a")).expect("moved");
    std::fs::remove_file(folder.at("dir/b")).expect("removed");
    symlink("c", folder.at("dir/link")).expect("made");
    assert_eq!(names_in(&folder.at("")), ["dir"]);
    assert_eq!(names_in(&folder.at("dir")), ["c", "deep", "link"]);
    assert_eq!(names_in(&folder.at("dir/deep")), ["a", "d"]);
    assert_eq!(asked(), before, "nothing is asked");
    let both = |dir: &str, wanted: &[&str]| {
        assert_eq!(names_in(&folder.there(dir)), wanted, "there");
        wait_until("the names of both", || names_in(&folder.at(dir)) == wanted);
    };
    std::fs::write(folder.there("dir/theirs"), "x").expect("written");
    both("dir", &["c", "deep", "link", "theirs"]);
    std::fs::write(folder.at("dir/ours"), "x").expect("written");
    both("dir", &["c", "deep", "link", "ours", "theirs"]);
    for turn in 0..10 {
        let (one, other) = (folder.there("dir/deep"), folder.at("dir/deep"));
        std::fs::write(one.join(format!("theirs-{turn}")), "x").expect("written");
        std::fs::write(other.join(format!("ours-{turn}")), "x").expect("written");
        wait_until("the names of both", || names_in(&other) == names_in(&one));
    }
}

/// Goal: what AFS does not have is refused with an error of its own, and leaves things as they are.
#[test]
fn what_afs_does_not_have_is_refused() {
    let Some(cell) = AfsCell::up() else { return };
    let Some(folder) = Folder::new(cell, "refused") else { return };
    let top = folder.mount.at("weft.test");
    for name in ["a", "b"] {
        std::fs::write(folder.at(name), name).expect("written");
    }
    std::fs::create_dir(folder.at("dir")).expect("made");
    std::fs::write(folder.at("dir/in"), "in").expect("written");
    let exchanged = rustix::fs::renameat_with(CWD, folder.at("a"), CWD, folder.at("b"), RenameFlags::EXCHANGE);
    assert_eq!(exchanged, Err(Errno::OPNOTSUPP));
    let kept = rustix::fs::renameat_with(CWD, folder.at("a"), CWD, folder.at("b"), RenameFlags::NOREPLACE);
    assert_eq!(kept, Err(Errno::EXIST));
    fails_with(std::fs::hard_link(folder.at("a"), folder.at("dir/a")), Errno::XDEV);
    fails_with(std::fs::remove_dir(folder.at("dir")), Errno::NOTEMPTY);
    fails_with(std::fs::rename(folder.at("a"), top.join("user/alice/a")), Errno::XDEV);
    fails_with(std::fs::write(top.join("pub/new"), "x"), Errno::ACCESS);
    fails_with(std::fs::remove_file(top.join("pub/empty")), Errno::ACCESS);
    fails_with(std::fs::write(folder.mount.at("new"), "x"), Errno::ROFS);
    fails_with(std::fs::write(top.join("replicated/new"), "x"), Errno::ROFS);
    fails_with(std::os::unix::fs::chown(folder.at("a"), Some(12345), None), Errno::PERM);
    symlink("a", folder.at("symlink")).expect("made");
    fails_with(std::fs::hard_link(folder.at("symlink"), folder.at("second")), Errno::PERM);
    std::fs::remove_file(folder.at("symlink")).expect("removed");
    let fifo = rustix::fs::mknodat(CWD, folder.at("fifo"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0);
    assert_eq!(fifo, Err(Errno::OPNOTSUPP));
    assert_eq!(names_in(&folder.at("")), ["a", "b", "dir"]);
    assert_eq!((read(&folder.at("a")), read(&folder.at("b"))), ("a".to_owned(), "b".to_owned()));
}

/// Goal: after any row of writes, cuts, maps and holes the bytes are those of a file of a local disk, here and at the server.
#[test]
fn fsx_finds_nothing_on_afs() {
    let Some(suite) = suite("fsx") else { return };
    let Some(cell) = AfsCell::up() else { return };
    let Some(folder) = Folder::new(cell, "fsx") else { return };
    let config = folder.mount.beside("fsx.toml");
    // To allocate room ahead is for local disks.
    std::fs::write(&config, FSX.replace("posix_fallocate = 3\n", "")).expect("written");
    let file = folder.at("file");
    let outcome = Program::new(&suite).args(["-q", "-N", "4000", "-S", "7"]).arg("-f").arg(&config);
    let outcome = outcome.arg("-P").arg(folder.mount.beside("")).arg(&file).run();
    let last: Vec<&str> = outcome.err.lines().rev().take(20).collect();
    assert_eq!(outcome.code, Some(0), "the last first: {last:#?}");
    assert!(std::fs::read(folder.there("file")).expect("read") == std::fs::read(&file).expect("read"));
}

/// Goal: programs that people use work on it, and the server has what they wrote. Method: tar, rsync, git and cp.
#[test]
fn programs_work_on_a_cell() {
    let Some(cell) = AfsCell::up() else { return };
    let Some(folder) = Folder::new(cell, "programs") else { return };
    let source = cell.content("pub").join("d00");
    let quoted = |path: &Path| format!("'{}'", path.display());
    let sh = |script: String| run("sh", ["-ec", &script]);
    sh(format!(
        "tar -C {} -cf - . | (mkdir {to} && tar -C {to} -xf -)",
        quoted(&source),
        to = quoted(&folder.at("tar"))
    ));
    sh(format!("rsync -rlt {}/ {}", quoted(&source), quoted(&folder.at("rsync"))));
    let again = sh(format!("rsync -rlt --itemize-changes {}/ {}", quoted(&source), quoted(&folder.at("rsync"))));
    assert!(!again.lines().any(|line| line.starts_with(">f")), "{again}");
    sh(format!("cp -r {} {}", quoted(&source), quoted(&folder.at("cp"))));
    sh(format!(
        "cp -r {} {at} && cd {at} && git init -q && git add . && git -c user.name=n -c user.email=e commit -qm one && \
         git fsck --strict 2>&1 && git gc -q && git status --porcelain && git clone -q . ../clone",
        quoted(&source),
        at = quoted(&folder.at("git"))
    ));
    let Some(fresh) = Afsd::mount(cell, "c2") else { return };
    for name in ["tar", "rsync", "cp"] {
        compare(&source, &folder.at(name));
        compare(&source, &fresh.dir().join("weft.test/scratch/programs").join(name));
    }
}

/// Goal: a program is compiled, linked, run and made anew on a cell as on a local disk. Method: make(1) on several files at a
/// time; the program says what its parts are, and runs from the mount.
#[test]
fn a_program_is_made_on_a_cell() {
    let Some(cell) = AfsCell::up() else { return };
    let Some(folder) = Folder::new(cell, "compile") else { return };
    for nth in 0..12 {
        let text = format!("#include \"all.h\"\nint part_{nth}(void) {{ return EACH * {nth}; }}\n");
        std::fs::write(folder.at(format!("part_{nth}.c")), text).expect("written");
    }
    let parts: Vec<String> = (0..12).map(|nth| format!("part_{nth}()")).collect();
    let declared: String = parts.iter().map(|part| format!("int {part};\n")).collect();
    let main =
        format!("#include <stdio.h>\n{declared}int main(void) {{ printf(\"%d\\n\", {}); }}\n", parts.join(" + "));
    std::fs::write(folder.at("main.c"), main).expect("written");
    let makefile = "objects = $(patsubst %.c,%.o,$(wildcard *.c))\nprogram: $(objects)\n\tcc -o $@ $^\n\
        %.o: %.c all.h\n\tcc -c -g -o $@ $<\n";
    std::fs::write(folder.at("Makefile"), makefile).expect("written");
    let make = |each: &str| {
        std::fs::write(folder.at("all.h"), format!("#define EACH {each}\n")).expect("written");
        // Times are whole seconds: what was made in the second of the change is older than it.
        let old = std::time::SystemTime::now() - std::time::Duration::from_secs(10);
        let made = names_in(&folder.at(""));
        for name in made.iter().filter(|name| name.ends_with(".o") || *name == "program") {
            let file = std::fs::File::options().append(true).open(folder.at(name)).expect("opened");
            file.set_times(std::fs::FileTimes::new().set_modified(old)).expect("set");
        }
        Program::new("make").args(["-j4", "program"]).dir(&folder.at("")).good();
        Program::new(folder.at("program")).good()
    };
    assert_eq!(make("1"), "66\n");
    assert_eq!(make("10"), "660\n");
    let again = Program::new("make").args(["-q", "program"]).dir(&folder.at("")).run();
    assert_eq!(again.code, Some(0), "all is made: {again:?}");
    assert!(
        std::fs::read(folder.there("program")).expect("read") == std::fs::read(folder.at("program")).expect("read")
    );
}

/// Goal: a file whose time is set has the bytes that it had: nothing is fetched again for it, and who has it open reads and
/// writes on, also when somebody else has set the time.
#[test]
fn a_time_that_is_set_changes_no_bytes() {
    use std::io::Write;
    let Some(cell) = AfsCell::up() else { return };
    let Some(folder) = Folder::new(cell, "times") else { return };
    let Some(other) = mounted_on(cell, "c2", "afs", &[]) else { return };
    let at = |seconds| std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    let set = |path: &Path, seconds| {
        // By its name, as utimensat(2) has it.
        let time = rustix::fs::Timespec { tv_sec: seconds, tv_nsec: 0 };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, path, &times, AtFlags::empty()).expect("set");
    };
    let (bytes, path) = (noise(3 << 20), folder.at("file"));
    std::fs::write(&path, &bytes).expect("written");
    set(&path, 1 << 30);
    assert!(std::fs::read(&path).expect("read") == bytes);
    assert_eq!(folder.mount.figure("received_bytes"), 0, "it is what was written here");
    let mut file = std::fs::File::options().write(true).open(&path).expect("opened");
    set(&path, 1 << 29);
    file.write_all(b"first").expect("taken");
    file.sync_all().expect("sent");
    let there = other.at("weft.test/scratch/times/file");
    set(&there, 1 << 28);
    file.write_all(b", second").expect("taken");
    file.sync_all().expect("sent over the same bytes");
    drop(file);
    set(&path, 1 << 27);
    let now = [b"first, second".as_slice(), &bytes[13..]].concat();
    assert!(std::fs::read(&there).expect("read") == now);
    let reader = std::fs::File::open(&there).expect("opened");
    set(&there, 1 << 26);
    let mut last = [0; 4096];
    std::os::unix::fs::FileExt::read_exact_at(&reader, &mut last, (3 << 20) - 4096).expect("read on");
    assert!(last == now[(3 << 20) - 4096..]);
    assert!(std::fs::read(&path).expect("read") == now);
    assert_eq!(std::fs::metadata(&path).expect("looked at").modified().expect("told"), at(1 << 26));
}

/// Goal: what somebody else has written meanwhile is not written over: the close fails, what was written here is kept, and
/// somebody decides.
#[test]
fn what_changed_meanwhile_is_not_written_over() {
    use std::io::Write;
    let Some(cell) = AfsCell::up() else { return };
    let Some(folder) = Folder::new(cell, "meanwhile") else { return };
    std::fs::write(folder.at("file"), "as it was").expect("written");
    let Some(other) = mounted_on(cell, "c2", "afs", &[]) else { return };
    let there = other.at("weft.test/scratch/meanwhile/file");
    let mut file = std::fs::File::options().write(true).open(folder.at("file")).expect("opened");
    file.write_all(b"ours").expect("taken");
    std::fs::write(&there, "theirs").expect("written");
    // Whenever another test begins a program, copies of this test's files are closed, and what was written is sent.
    file.write_all(b"!").expect("taken");
    fails_with(file.sync_all(), Errno::IO);
    drop(file);
    assert_eq!(read(&there), "theirs");
    let told = folder.mount.json("unsent", [folder.mount.dir()]);
    assert_eq!(told["unsent"].as_array().map(Vec::len), Some(1), "{told}");
    let discarded = folder.mount.verb("unsent --discard", [folder.at("file")]);
    assert_eq!(discarded.code, Some(0), "{discarded:?}");
    assert_eq!(read(&folder.at("file")), "theirs");
}

/// Goal: a volume that is full says so at the close, what was written is kept, and it is sent when there is room.
#[test]
fn what_finds_no_room_is_kept() {
    let Some(cell) = AfsCell::own() else { return };
    let Some(folder) = Folder::new(&cell, "full") else { return };
    let quota = |kib: &str| cell.on("fs1", ["vos", "setfields", "scratch", "-maxquota", kib, "-localauth"]).good();
    quota("20000");
    let df =
        || rustix::fs::statvfs(folder.at("")).map(|told| (told.f_blocks * told.f_frsize, told.f_bavail)).expect("df");
    assert!(df().0 == 20_000 << 10 && df().1 > 0, "{:?}", df());
    // Two stores and a half: the first has room, the second has not.
    let long = noise(40 << 20);
    let copied = std::fs::write(folder.at("file"), &long);
    let file = std::fs::File::open(folder.at("file")).expect("opened");
    // write(2) was taken; fs::write does not look at what close(2) says.
    fails_with(copied.and_then(|()| file.sync_all()), Errno::DQUOT);
    drop(file);
    let told = folder.mount.json("unsent", [folder.mount.dir()]);
    let unsent = told["unsent"][0]["bytes"].as_u64().expect("a number");
    // What had room is there already, if it was tried again meanwhile.
    assert!((20 << 20..=40 << 20).contains(&unsent) && told["unsent"][0]["length"] == 40 << 20, "{told}");
    quota("0");
    let sent = folder.mount.verb("unsent --send", [folder.at("file")]);
    // It may have been tried again just then.
    assert!(sent.code == Some(0) || sent.err.contains("nothing that was written to it is unsent"), "{sent:?}");
    let Some(fresh) = Afsd::mount(&cell, "c2") else { return };
    assert!(std::fs::read(fresh.dir().join("weft.test/scratch/full/file")).expect("read") == long);
}

/// Goal: a daemon that is killed while a cell is written loses nothing, and nobody notices.
#[test]
fn a_daemon_that_is_killed_loses_nothing() {
    use std::io::Write;
    let Some(cell) = AfsCell::up() else { return };
    let Some(folder) = Folder::new(cell, "killed") else { return };
    let mut file = std::fs::File::create(folder.at("file")).expect("made");
    let mut wanted = Vec::new();
    for turn in 0..3 {
        let bytes = noise(100_000 + turn);
        file.write_all(&bytes).expect("taken");
        wanted.extend_from_slice(&bytes);
        folder.mount.kill_daemon();
    }
    std::fs::write(folder.at("after"), "after").expect("written");
    file.sync_all().expect("sent");
    drop(file);
    assert!(std::fs::read(folder.there("file")).expect("read") == wanted);
    assert_eq!(read(&folder.there("after")), "after");
}

/// Goal: who makes and removes names sees at once what came of it, in the directory's own facts as well, though others look
/// at the same directory all the time and what they were told is of before.
#[test]
fn what_others_are_told_meanwhile_is_not_of_before() {
    let Some(cell) = AfsCell::up() else { return };
    let Some(folder) = Folder::new(cell, "meanwhile") else { return };
    let dir = folder.at("dir");
    std::fs::create_dir(&dir).expect("made");
    let (links, done) = (|| std::fs::metadata(&dir).expect("there").nlink(), AtomicBool::new(false));
    let none = links();
    std::thread::scope(|scope| {
        let _done = Done(&done);
        for way in 0..3 {
            let (dir, top, done) = (&dir, folder.at(""), &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    match way {
                        0 => drop(statx(CWD, dir, AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS).expect("there")),
                        1 => drop(names_in(&top)),
                        _ => drop(std::fs::metadata(dir.join("b"))),
                    }
                }
            });
        }
        for round in 0..ROUNDS {
            std::fs::create_dir(dir.join("a")).expect("made");
            assert_eq!(links(), none + 1, "made, round {round}");
            std::fs::rename(dir.join("a"), dir.join("b")).expect("moved");
            std::fs::remove_dir(dir.join("b")).expect("removed");
            assert_eq!(links(), none, "removed, round {round}");
        }
    });
}

/// Goal: a directory that is not empty stays, and one that another machine has emptied goes. Method: more of them than a server
/// refuses at once, which this machine has not seen before.
#[test]
fn a_directory_that_is_not_empty_stays() {
    let Some(cell) = AfsCell::up() else { return };
    let Some(folder) = Folder::new(cell, "full") else { return };
    for number in 0..FULL {
        let dir = folder.there(format!("d{number}"));
        std::fs::create_dir(&dir).expect("made");
        std::fs::write(dir.join("f"), "x").expect("written");
    }
    let dir = |number: usize| folder.at(format!("d{number}"));
    for number in 0..FULL {
        fails_with(std::fs::remove_dir(dir(number)), Errno::NOTEMPTY);
    }
    for number in 0..FULL {
        std::fs::remove_file(folder.there(format!("d{number}/f"))).expect("removed");
        std::fs::remove_dir(dir(number)).expect("it is empty");
    }
    assert_eq!(names_in(&folder.at("")), [""; 0]);
}

/// Goal: what a program that is killed was just having made is seen here as soon as elsewhere, if it was made: its server
/// tells the others alone. Method: shells that make and remove directories and are killed at any moment of that.
#[test]
fn what_a_killed_program_has_changed_is_seen() {
    let Some(cell) = AfsCell::up() else { return };
    let Some(folder) = Folder::new(cell, "left") else { return };
    let script =
        "n=0; while :; do n=$((n+1)); mkdir $1-$n; mkdir $1-$n/in; mv $1-$n moved-$1-$n; rmdir moved-$1-$n/in; done";
    for round in 0..KILLS {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", script, "sh", &round.to_string()]).current_dir(folder.at("")).process_group(0);
        let mut shell = shell.spawn().expect("sh runs");
        let group = rustix::process::Pid::from_child(&shell);
        wait_until("something is made", || {
            names_in(&folder.at("")).iter().any(|name| name.ends_with(&format!("{round}-2")))
        });
        std::thread::sleep(std::time::Duration::from_micros(317 * round));
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).expect("killed");
        shell.wait().expect("ended");
        // What its server was told it may be doing still: a name that was there may be gone.
        let alike = |dir: &str| match (names_if_there(&folder.at(dir)), names_if_there(&folder.there(dir))) {
            (Some(here), Some(there)) => here == there,
            _ => false,
        };
        wait_until("the same", || alike("") && names_in(&folder.there("")).iter().all(|dir| alike(dir)));
    }
}

/// Ends those who look, also when the test fails.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Rounds of a test of what happens at the same time.
const ROUNDS: usize = 200;
/// Directories that are not empty.
const FULL: usize = 30;
/// Programs that are killed.
const KILLS: u64 = 20;
