//! Mounts that outlive their daemons.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use rustix::process::{Pid, Signal, kill_process};

use crate::interrupts::{cat, has_left, wait_until};
use crate::support::{
    Exit, Liar, Mount, Program, Server, Setup, answer, compare, find_program, noise, page, supervisor_of, weft_program,
    without, write_aged,
};

/// A site of small and large files, and a folder of many names.
pub struct Site {
    server: Server,
    files: Vec<(PathBuf, Vec<u8>)>,
}

impl Site {
    pub fn new() -> Option<Site> {
        let server = Server::nginx("")?;
        let whole = noise(3 << 20);
        let sizes = (0..48).map(|nth| 100 + nth * 3571).chain([300_000, 900_000, 1_500_000, 3 << 20]);
        let files: Vec<(PathBuf, Vec<u8>)> =
            Site::paths().zip(sizes).map(|(path, size)| (path, whole[whole.len() - size..].to_vec())).collect();
        for (nth, (path, bytes)) in files.iter().enumerate() {
            write_aged(&server.root().join(path), bytes, nth as u64);
        }
        for nth in 0..MANY {
            write_aged(&server.root().join(format!("many/name-{nth:05}.txt")), b"x\n", 7);
        }
        Some(Site { server, files })
    }

    /// Where the files are, from the smallest to the largest.
    pub fn paths() -> impl Iterator<Item = PathBuf> {
        (0..52).map(|nth| PathBuf::from(format!("d{}/f{nth}.bin", nth % 4)))
    }

    pub fn server(&self) -> &Server {
        &self.server
    }

    pub fn files(&self) -> &[(PathBuf, Vec<u8>)] {
        &self.files
    }

    /// Lists the folder of many names below `top`, which takes several requests of the kernel.
    #[track_caller]
    pub fn check_names(top: &Path) {
        let mut names: Vec<_> = std::fs::read_dir(top.join("many"))
            .expect("opened")
            .map(|name| name.expect("a name").file_name().into_string().expect("UTF-8"))
            .collect();
        names.sort_unstable();
        assert!(names.iter().enumerate().all(|(nth, name)| *name == format!("name-{nth:05}.txt")));
        assert_eq!(names.len(), MANY);
    }
}

/// Ends the readers when one of them, or the killer, fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn read_something(site: &Site, top: &Path, round: usize) {
    let (path, bytes) = &site.files[(round * 5) % site.files.len()];
    let path = top.join(path);
    match round / READERS % 5 {
        4 => Site::check_names(top),
        // Pieces of a file that is kept open: kills come between them.
        kind @ (2 | 3) => {
            let file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let step = if kind == 2 { 65_536 } else { 4096 };
            let mut piece = vec![0; step];
            for nth in 0..24 {
                let at = (nth * 7919 * 31) % bytes.len();
                let count = piece.len().min(bytes.len() - at);
                let read = file.read_exact_at(&mut piece[..count], at as u64);
                read.unwrap_or_else(|error| panic!("{} at {at}: {error}", path.display()));
                assert!(piece[..count] == bytes[at..at + count], "{} at {at}", path.display());
            }
            assert_eq!(file.metadata().expect("told").len(), bytes.len() as u64);
        }
        _ => {
            let read = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            assert!(read == *bytes, "{}", path.display());
        }
    }
}

const READERS: usize = 8;
/// Names in one folder: more than one request of the kernel brings.
const MANY: usize = 1500;

#[test]
fn a_handle_keeps_its_version_across_a_kill_and_is_an_error_when_that_is_gone() {
    let version = Arc::new(AtomicU64::new(1));
    let served = version.clone();
    let text = |nth: u64| format!("version {nth} ").repeat(30_000);
    let liar = Liar::answering(move |asked| match asked.path.as_str() {
        "/a.txt" => {
            let now = served.load(Ordering::SeqCst);
            answer("200 OK", &[&format!("etag: \"{now}\""), "cache-control: no-cache"], text(now))
        }
        _ => page("<a href='a.txt'>a</a>"),
    });
    let Some(mount) = Mount::with(Setup::default().option("no_passthrough")) else { return };
    let path = mount.at(liar.site()).join("a.txt");
    let first = File::open(&path).expect("opened");
    let read = |file: &File, at: u64| {
        let mut bytes = [0; 8];
        // Past the pages that the kernel holds already, each time at another place.
        file.read_exact_at(&mut bytes, at).map(|()| bytes)
    };
    assert_eq!(&read(&first, 0).expect("read"), b"version ");
    mount.kill_daemon();
    assert_eq!(&read(&first, 10 * 20_000).expect("read"), b"version ");
    version.store(2, Ordering::SeqCst);
    let second = File::open(&path).expect("opened");
    let mut all = vec![0; 10 * 30_000];
    second.read_exact_at(&mut all, 0).expect("read");
    assert!(all == text(2).as_bytes());
    // Its bytes are in no file that has a name any more.
    mount.kill_daemon();
    all.fill(0);
    second.read_exact_at(&mut all, 0).expect("read");
    assert!(all == text(2).as_bytes());
    rustix::fs::fadvise(&first, 0, None, rustix::fs::Advice::DontNeed).expect("the pages may go");
    match first.read_exact_at(&mut all, 0) {
        Err(error) => assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error())),
        // Pages that the kernel kept are of the first version.
        Ok(()) => assert!(all == text(1).as_bytes()),
    }
}

/// Goal: what is open stays of one piece. Method: a directory half read, a large file that the kernel may read by itself
/// and one that it may not are held open over kills; after each, both are read on and opened a second time.
#[test]
fn open_directories_and_backing_files_are_taken_over() {
    let Some((site, mount)) = Site::new().zip(Mount::new()) else { return };
    let top = mount.at(site.server.site());
    let (large, bytes) = site.files.last().expect("there are files");
    let (small, few) = &site.files[3];
    let (large, small) = (top.join(large), top.join(small));
    // From the second open on the kernel reads the large one by itself, where it may.
    assert!(std::fs::read(&large).expect("read") == *bytes);
    let held = File::open(&large).expect("opened");
    let other = File::open(&small).expect("opened");
    let mut names = std::fs::read_dir(top.join("many")).expect("opened");
    let mut seen = vec![names.next().expect("the first").expect("a name").file_name()];
    for round in 0..3 {
        mount.kill_daemon();
        for (path, open, whole) in [(&large, &held, bytes), (&small, &other, few)] {
            let again = File::open(path).unwrap_or_else(|error| panic!("round {round}: {}: {error}", path.display()));
            for file in [open, &again] {
                let mut all = vec![0; whole.len()];
                file.read_exact_at(&mut all, 0).expect("read");
                assert!(all == *whole, "round {round}: {}", path.display());
            }
        }
    }
    seen.extend(names.map(|name| name.expect("a name").file_name()));
    seen.sort_unstable();
    let expected: Vec<_> = (0..MANY).map(|nth| std::ffi::OsString::from(format!("name-{nth:05}.txt"))).collect();
    assert!(seen == expected, "{} names, each once", seen.len());
    drop((held, other));
    mount.umount();
}

/// Goal: a daemon that is killed while the kernel is being told to forget a name ends, although the directory is locked by a
/// lookup that only the next daemon answers. Method: a program looks up a name for which the host has no answer yet;
/// another name of the directory is found to be gone, and a thread waits for the directory.
#[test]
fn a_daemon_ends_while_the_kernel_is_being_told_to_forget() {
    let (gone, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (is_gone, may_answer) = (gone.clone(), answers.clone());
    let liar = Liar::talking(move |asked, stream| {
        let answer = match asked.path.as_str() {
            "/" => page("<a href='a.txt'>a</a>"),
            "/a.txt" if !is_gone.load(Ordering::SeqCst) => answer("200 OK", &["cache-control: max-age=9999"], "text"),
            "/late.txt" => {
                while !may_answer.load(Ordering::SeqCst) && !has_left(stream) {}
                answer("200 OK", &["cache-control: max-age=9999"], "late")
            }
            _ => answer("404 Not Found", &[], ""),
        };
        let _ = stream.write_all(&answer);
    });
    let Some(mount) = Mount::with(Setup::default().option("deadline=60s")) else { return };
    let top = mount.at(liar.site());
    assert_eq!(std::fs::read(top.join("a.txt")).expect("read"), b"text");
    let (mut child, mut out) = cat(&top.join("late.txt"));
    wait_until("a lookup", || liar.times("/late.txt") > 0);
    gone.store(true, Ordering::SeqCst);
    let reloaded = mount.verb("reload", [top.join("a.txt")]);
    assert!(reloaded.err.contains("a.txt") || reloaded.code == Some(0), "{reloaded:?}");
    let daemon = mount.daemon();
    let supervisor = supervisor_of(daemon).expect("it has one");
    wait_until("a thread that waits for the directory", || {
        [daemon, supervisor].into_iter().any(has_a_thread_that_waits)
    });
    let ended = Exit::of(daemon);
    kill_process(daemon, Signal::KILL).expect("killed");
    assert!(ended.wait(), "nobody survives SIGKILL");
    answers.store(true, Ordering::SeqCst);
    let mut bytes = Vec::new();
    out.read_to_end(&mut bytes).expect("read");
    assert!(child.wait().expect("a child of ours").success() && bytes == b"late");
    wait_until("the end of the name", || std::fs::metadata(top.join("a.txt")).is_err());
    mount.umount();
}

/// Whether a thread waits for something that no signal disturbs.
fn has_a_thread_that_waits(process: Pid) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero())).expect("it lives");
    let mut states = threads.flatten().map(|thread| std::fs::read_to_string(thread.path().join("status")));
    states.any(|status| status.is_ok_and(|status| status.contains("State:\tD")))
}

#[test]
fn tar_and_rsync_do_not_notice_kills() {
    let Some((site, mount)) = Site::new().zip(Mount::new()) else { return };
    let disk = site.server.root();
    let copies = ["tar", "rsync"].map(|name| mount.beside(name));
    for (name, copy) in ["tar", "rsync"].iter().zip(&copies) {
        if find_program(name).is_none() {
            without(&format!("{name} is missing: not tried across kills"));
            continue;
        }
        std::fs::create_dir(copy).expect("made");
        let done = AtomicBool::new(false);
        let kills = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) && kills.load(Ordering::SeqCst) < 8 {
                    mount.kill_daemon();
                    kills.fetch_add(1, Ordering::SeqCst);
                }
            });
            let _stop = Stop(&done);
            let top = mount.at(site.server.site());
            let script = match *name {
                "tar" => r#"tar -C "$0" -cf - d0 d1 d2 d3 many | tar -C "$1" -xf -"#,
                _ => r#"rsync -a "$0/" "$1/""#,
            };
            Program::new("bash").args(["-o", "pipefail", "-c", script]).arg(&top).arg(copy).good();
        });
        assert!(kills.load(Ordering::SeqCst) > 0);
        compare(&disk, copy);
        assert_eq!(mount.verb("rm -w -r", [mount.at(site.server.site())]).code, Some(0));
    }
}

/// Goal: `weft upgrade` starts the program that is at the installed place by then, and readers do not notice. Method: a
/// copy of the program mounts; it is replaced on disk, and the mount upgraded, again and again under load; in the end
/// what is installed does not run, and the program of before goes on.
#[test]
fn readers_do_not_notice_upgrades() {
    let Some((site, mut mount)) = Site::new().zip(Mount::prepare(Setup::default())) else { return };
    mount.use_copy();
    mount.mount();
    let top = mount.at(site.server.site());
    let done = AtomicBool::new(false);
    let (told, progress) = mpsc::channel();
    std::thread::scope(|scope| {
        let _stop = Stop(&done);
        for thread in 0..4 {
            let (site, top, done, told) = (&site, &top, &done, told.clone());
            scope.spawn(move || {
                let _stop = Stop(done);
                let mut round = thread;
                while !done.load(Ordering::SeqCst) {
                    read_something(site, top, round);
                    round += READERS;
                    let _ = told.send(());
                }
            });
        }
        drop(told);
        let program = mount.beside("weft");
        let install = |bytes: &[u8]| {
            // As an installer does it: a new file in place of the old one.
            let new = mount.beside("weft.new");
            std::fs::write(&new, bytes).expect("written");
            std::fs::set_permissions(&new, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("set");
            std::fs::rename(&new, &program).expect("renamed");
        };
        let own = std::fs::read(&program).expect("the program");
        for _ in 0..3 {
            assert_eq!(progress.iter().take(100).count(), 100, "the readers go on");
            install(&own);
            let upgraded = mount.json("upgrade", [mount.dir()]);
            let pid = upgraded["to"]["daemon_pid"].as_u64().expect("a number");
            assert_ne!(upgraded["from"]["daemon_pid"].as_u64(), Some(pid));
            let runs = std::fs::metadata(format!("/proc/{pid}/exe")).expect("it runs");
            let installed = std::fs::metadata(&program).expect("installed");
            assert_eq!(std::os::unix::fs::MetadataExt::ino(&runs), std::os::unix::fs::MetadataExt::ino(&installed));
        }
        install(b"#!/bin/sh\nexit 1\n");
        let upgraded = weft_of(&mount, &["upgrade"]).run();
        assert_eq!(upgraded.code, Some(0), "{upgraded:?}");
        assert_eq!(progress.iter().take(100).count(), 100, "the program of before goes on");
        install(&own);
    });
    mount.umount();
}

/// The program that was built, where the copy that is installed does not run.
fn weft_of(mount: &Mount, words: &[&str]) -> Program {
    let environment = [("HOME", "home"), ("XDG_RUNTIME_DIR", "run")];
    let program = Program::new(weft_program()).args(words).arg(mount.dir()).dir(Path::new("/"));
    environment.into_iter().fold(program, |program, (name, folder)| program.env(name, mount.beside(folder)))
}

#[test]
fn a_daemon_that_dies_at_once_is_not_started_for_ever() {
    let Some(mount) = Mount::with(Setup::default()) else { return };
    let daemon = mount.daemon();
    let supervisor = supervisor_of(daemon).expect("it has one");
    let ended = Exit::of(supervisor);
    // From now on no daemon comes as far as to serve.
    std::fs::write(mount.beside("weft.toml"), "[mount]\ndeadline = \"never\"\n").expect("written");
    kill_process(daemon, Signal::KILL).expect("killed");
    assert!(ended.wait(), "the supervisor gives up");
    let log = std::fs::read_to_string(mount.cache().join("weft.log")).expect("the log");
    assert!(log.contains("too often: the mount is given up"), "{log}");
    assert_eq!(log.matches("another one takes the mount over").count(), 3, "{log}");
    let refused = std::fs::read_dir(mount.dir()).expect_err("nobody serves");
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::NOTCONN.raw_os_error()));
}
