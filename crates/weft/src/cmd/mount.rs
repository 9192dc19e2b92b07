//! `weft mount`: checks, starts the daemon, and waits until the tree is usable.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::json;
use weft_control::{Mounts, daemons, resolve_without_entering};

use super::remount;
use crate::cli::{MountArgs, ReadyOn};
use crate::config::{Environment, Given, MountOptions, Resolved, Source, parse_options, resolve};
use crate::exit::{Exit, Failure, Outcome};
use crate::handover::Handover;
use crate::output::say;
use crate::ready::{Line, Ready};
use crate::supervisor::{self, Supervisor};
use crate::wire_up;

/// Mounts.
///
/// # Errors
/// A sentence for everything that can be seen before the daemon starts, and for what the daemon reports.
pub fn run(args: &MountArgs, json: bool) -> Outcome {
    let options = parse_options(&args.options.join(",")).map_err(Failure::usage)?;
    if options.remount {
        return remount::run(args, &options, json);
    }
    if (args.foreground || options.foreground) && !args.supervised {
        return supervise(args, json);
    }
    if args.supervised {
        let handover = supervisor::hear_signals().and_then(|()| Handover::of_stdin());
        let handover = handover.map_err(|error| Failure::failed(format!("the supervisor: {error}")))?;
        let ready_on = args.ready;
        let mountpoint = PathBuf::from(args.source_and_dir.last().cloned().unwrap_or_default());
        let ready = Ready::new(ready_on, mountpoint);
        let begun = if handover.mount.is_some() { Begun::Before } else { Begun::Now };
        let ended = resolved(args, options, begun).and_then(|resolved| serve(resolved, &ready, ready_on, handover));
        return match ended {
            // Told through the pipe: `weft mount` prints it.
            Err(failure) if ready_on.is_some() && ready.failed(&failure.sentence) => Err(failure),
            ended => ended,
        };
    }
    let resolved = resolved(args, options, Begun::Now)?;
    let log = prepare_cache(&resolved)?;
    let pid = start(args, &resolved, &log)?;
    if json {
        let object = json!({
            "mounted": resolved.mountpoint,
            "source": resolved.source.to_string(),
            "daemon_pid": pid,
            "cache": resolved.cache_dir,
            "log": log,
        });
        say!("{object}");
    }
    Ok(())
}

/// Whether the mount is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begun {
    Before,
    Now,
}

/// Stays, and has daemons serve the mount.
fn supervise(args: &MountArgs, json: bool) -> Outcome {
    let failed = |what: &str, error: std::io::Error| Failure::failed(format!("{what}: {error}"));
    if args.ready.is_some() {
        rustix::process::setsid().map_err(|error| failed("setsid", error.into()))?;
    }
    let mut words: Vec<OsString> = ["mount", "--foreground", "--supervised"].map(OsString::from).into();
    words.extend(json.then(|| "--json".into()));
    words.extend(args.ready.into_iter().flat_map(|ReadyOn::Stdout| ["--ready".into(), "stdout".into()]));
    words.extend(args.cache.iter().flat_map(|dir| ["--cache".into(), dir.into()]));
    words.extend(args.config.iter().flat_map(|file| ["--config".into(), file.into()]));
    words.extend(args.options.iter().flat_map(|options| ["-o".into(), options.into()]));
    words.push("--".into());
    words.extend(args.source_and_dir.iter().cloned());
    let code = Supervisor::new(words).and_then(Supervisor::run).map_err(|error| failed("supervising", error))?;
    // What went wrong the daemon has told.
    std::process::exit(code.into());
}

/// Everything decided and checked.
fn resolved(args: &MountArgs, options: MountOptions, begun: Begun) -> Outcome<Resolved> {
    let (source, dir) = match args.source_and_dir.as_slice() {
        [dir] => ("", PathBuf::from(dir)),
        [source, dir] => {
            (source.to_str().ok_or_else(|| Failure::usage("the source is not UTF-8"))?, PathBuf::from(dir))
        }
        _ => return Err(Failure::usage("weft mount takes a source and a directory")),
    };
    let source = Source::parse(source).map_err(Failure::usage)?;
    let environment = Environment::of_this_process();
    let mountpoint = match begun {
        Begun::Now => check_mountpoint(&dir, &environment)?,
        // Whoever looked into it would wait for this process.
        Begun::Before => resolve_without_entering(&dir, &Mounts::of_this_process()?)?,
    };
    let given = Given { source, mountpoint, cache: args.cache.clone(), config: args.config.clone(), options };
    let resolved = resolve(given, &environment).map_err(Failure::usage)?;
    if resolved.cache_dir.starts_with(&resolved.mountpoint) {
        let sentence = format!(
            "{}: the cache cannot lie inside the mount point; give another folder with --cache",
            resolved.cache_dir.display()
        );
        return Err(Failure::usage(sentence));
    }
    if resolved.unopened && !matches!(resolved.source, Source::Dirs | Source::DirTree { .. }) {
        let sentence = "no_open is for `dir` and dir:/PATH alone: only there the source tells when files change";
        return Err(Failure::usage(sentence));
    }
    check_fuse(&environment)?;
    Ok(resolved)
}

/// The mount point's canonical path, or a plain sentence why nothing can be mounted there.
fn check_mountpoint(dir: &Path, environment: &Environment) -> Outcome<PathBuf> {
    let shown = dir.display();
    let live = daemons(&environment.socket_dir());
    let places = live.iter().map(|(_, hello)| hello.mountpoint.as_path().to_owned());
    let of_daemons = Mounts::at(places);
    let of_kernel = Mounts::of_this_process()?;
    let both = Mounts::at(of_daemons.iter().chain(of_kernel.iter()).map(Path::to_owned));
    let at = resolve_without_entering(dir, &both)?;
    // A daemon whose mount was taken away while files were open lives on and holds no place.
    if of_daemons.has(&at) && of_kernel.has(&at) {
        let hint = format!("`weft status {shown}` tells more, `weft umount {shown}` takes it away");
        return Err(Failure::failed(format!("{shown}: already a weft mount; {hint}")));
    }
    if of_kernel.has(&at) {
        let sentence =
            format!("{shown}: a weft mount whose daemon is gone; clear it with `weft umount --lazy {shown}`");
        return Err(Failure::new(Exit::NoMount, sentence));
    }
    let found = match std::fs::metadata(&at) {
        Ok(found) => found,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Failure::new(
                Exit::NotFound,
                format!("{shown}: no such directory; make it with `mkdir -p {shown}`"),
            ));
        }
        Err(error) => return Err(Failure::failed(format!("{shown}: {error}"))),
    };
    if !found.is_dir() {
        return Err(Failure::failed(format!("{shown}: not a directory; a mount point must be one")));
    }
    let mut names = std::fs::read_dir(&at).map_err(|error| Failure::failed(format!("{shown}: {error}")))?;
    if names.next().is_some() {
        let sentence = format!("{shown}: not empty; mount on an empty directory, or what is in it would be hidden");
        return Err(Failure::failed(sentence));
    }
    if environment.uid != 0 && found.uid() != environment.uid {
        let sentence = format!("{shown}: not yours; only root can mount on another user's directory");
        return Err(Failure::new(Exit::Denied, sentence));
    }
    Ok(at)
}

fn check_fuse(environment: &Environment) -> Outcome {
    if !Path::new("/dev/fuse").exists() {
        let hint = "load the kernel's module with `sudo modprobe fuse`; in a container pass the device, as in \
                    `docker run --device /dev/fuse --cap-add SYS_ADMIN`";
        return Err(Failure::failed(format!("/dev/fuse is missing: {hint}")));
    }
    if environment.uid != 0 && super::doctor::find_program("fusermount3").is_none() {
        return Err(Failure::failed("fusermount3 is missing: install it with `sudo apt install fuse3`"));
    }
    Ok(())
}

/// Makes the cache folder; the path of the log in it.
fn prepare_cache(resolved: &Resolved) -> Outcome<PathBuf> {
    let dir = &resolved.cache_dir;
    let failed =
        |error: std::io::Error| Failure::failed(format!("{}: {error}; --cache names another folder", dir.display()));
    let mut builder = std::fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(builder.recursive(true), 0o700).create(dir).map_err(failed)?;
    let log = dir.join("weft.log");
    if std::fs::metadata(&log).is_ok_and(|found| found.len() > LOG_BYTES_MAX) {
        std::fs::rename(&log, dir.join("weft.log.old")).map_err(failed)?;
    }
    Ok(log)
}

/// Starts the daemon and waits for its word; its process id.
fn start(args: &MountArgs, resolved: &Resolved, log: &Path) -> Outcome<u32> {
    let failed = |what: &Path, error: std::io::Error| Failure::failed(format!("{}: {error}", what.display()));
    let mut log_file = open_log(log).map_err(|error| failed(log, error))?;
    let log_start = log_file.seek(SeekFrom::End(0)).map_err(|error| failed(log, error))?;
    let program = std::env::current_exe().map_err(|error| failed(Path::new("/proc/self/exe"), error))?;
    let mut command = Command::new(&program);
    // By its own name: a copy installed as mount(8)'s helper would take its arguments for mount(8)'s.
    std::os::unix::process::CommandExt::arg0(&mut command, "weft");
    command.args(["mount", "--foreground", "--ready", "stdout"]);
    // The C library keeps a heap per thread and gives little of it back; two are enough for the daemon, and a
    // listing of 100,000 names then leaves 30 MiB less behind (mallopt(3)).
    command.env("MALLOC_ARENA_MAX", "2");
    command.arg("--cache").arg(&resolved.cache_dir);
    if let Some(config) = &args.config {
        command.arg("--config").arg(config);
    }
    for options in &args.options {
        command.arg("-o").arg(options);
    }
    command.arg("--").arg(resolved.source.to_string()).arg(&resolved.mountpoint);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::from(log_file));
    let mut child = command.spawn().map_err(|error| failed(&program, error))?;
    match first_line(&mut child) {
        Some(Line::Ready { pid, .. }) => Ok(pid),
        Some(Line::Error { error }) => {
            // It has said its last word; its end is only waited for so that no zombie stays.
            let _ = child.wait();
            Err(Failure::failed(error))
        }
        None => {
            end(&mut child);
            let end = child.wait().map(|status| status.to_string()).unwrap_or_default();
            let tail = since(log, log_start);
            let sentence = format!("the daemon did not come up ({end}); its log is {}\n{tail}", log.display());
            Err(Failure::failed(sentence.trim_end()))
        }
    }
}

/// Ends a supervisor and, through it, the daemon; after a while whatever they are at.
fn end(child: &mut Child) {
    let pid = rustix::process::Pid::from_child(child);
    let patience = rustix::fs::Timespec { tv_sec: END_PATIENCE_S, tv_nsec: 0 };
    let ended = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).and_then(|process| {
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        rustix::event::poll(&mut [rustix::event::PollFd::new(&process, rustix::event::PollFlags::IN)], Some(&patience))
    });
    if !matches!(ended, Ok(1)) {
        let _ = child.kill();
    }
}

/// The daemon's line; `None` when it ends, or takes too long, without one.
fn first_line(child: &mut Child) -> Option<Line> {
    let pipe = child.stdout.take()?;
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = BufReader::new(pipe.take(LINE_BYTES_MAX)).read_line(&mut line);
        // The other end may have stopped waiting.
        let _ = sender.send(read.map(|_| line));
    });
    let line = receiver.recv_timeout(PATIENCE).ok()?.ok()?;
    serde_json::from_str(&line).ok()
}

/// In the daemon: serves.
fn serve(resolved: Resolved, ready: &Ready, ready_on: Option<ReadyOn>, handover: Handover) -> Outcome {
    prepare_cache(&resolved)?;
    // The daemon must not keep the folder busy that it was started in.
    std::env::set_current_dir("/").map_err(|error| Failure::failed(format!("/: {error}")))?;
    let level = match std::env::var("WEFT_LOG") {
        Ok(level) => level.parse().map_err(|_| Failure::usage("WEFT_LOG is error, warn, info, debug or trace"))?,
        Err(_) => tracing::Level::WARN,
    };
    let to_file = ready_on.is_some();
    // A log that cannot be written (it lies on the cache's disk, which may be full) is no reason to end anything:
    // telling of it on standard error would panic, for that is the log.
    let log = tracing_subscriber::fmt().with_max_level(level).with_ansi(!to_file).log_internal_errors(false);
    log.with_writer(std::io::stderr).init();
    wire_up::run(resolved, ready.clone(), handover).map_err(|error| Failure::failed(sentence(&error)))
}

/// An error with its causes, each said once.
fn sentence(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

fn open_log(log: &Path) -> std::io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(log)
}

/// What the log has gained, as far as it fits.
fn since(log: &Path, start: u64) -> String {
    let mut text = Vec::new();
    let read = File::open(log).and_then(|mut file| {
        file.seek(SeekFrom::Start(start))?;
        file.take(LINE_BYTES_MAX).read_to_end(&mut text)
    });
    // The log is only a help: without it the sentence stands alone.
    read.map(|_| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default()
}

/// How long the daemon may take to come up. It waits for no remote, only for its own cache.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long it may take to end, in seconds.
const END_PATIENCE_S: i64 = 5;
/// Longest line of the hand-shake, and most of the log that is shown.
const LINE_BYTES_MAX: u64 = 16 * 1024;
/// A longer log is put aside at the next mount.
const LOG_BYTES_MAX: u64 = 1 << 20;
