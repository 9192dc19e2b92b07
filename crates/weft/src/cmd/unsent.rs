//! `weft unsent`: what was written here and is not at its source, and what becomes of it.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::Args;
use serde_json::json;
use weft_control::{
    Client, ControlError, Copied, Decision, PathBytes, UnsentFile, UnsentReport, daemons, find_for_path,
};

use super::status::show_time;
use super::{find, for_each, show_bytes};
use crate::config::Environment;
use crate::exit::{Failure, Outcome};
use crate::output::{complain, say};

/// What `weft unsent` takes.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct UnsentArgs {
    /// Try again now to send what was written to each PATH, or to the files below it
    #[arg(long, requires = "paths")]
    pub send: bool,
    /// Send all of the file over whatever version the source has by now
    #[arg(long, requires = "send")]
    pub over: bool,
    /// Give up what was written to each PATH: the file is what the source has
    #[arg(long, requires = "paths", conflicts_with = "send")]
    pub discard: bool,
    /// Copy PATH, as it is in the mount, to FILE, which must not exist; it stays unsent
    #[arg(long, value_name = "FILE", requires = "paths", conflicts_with_all = ["send", "discard"])]
    pub save_as: Option<PathBuf>,
    /// Copy what its source has under the name of PATH by now, not what was written here
    #[arg(long, requires = "save_as")]
    pub theirs: bool,
    /// Files in a mount; to list, directories and mount points as well
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
}

/// Lists what is unsent, or does with it what `args` say.
///
/// # Errors
/// The first failure; the other paths are dealt with all the same.
pub fn run(args: &UnsentArgs, json: bool) -> Outcome {
    match (args, &args.save_as) {
        (_, Some(file)) => save_as(args, file, json),
        (UnsentArgs { send: true, over: false, .. }, _) => send(&args.paths, json),
        (UnsentArgs { send: true, .. }, _) => decide(&args.paths, Decision::SendOver, "sent", json),
        (UnsentArgs { discard: true, .. }, _) => decide(&args.paths, Decision::Discard, "given up", json),
        _ => list(&args.paths, json),
    }
}

fn list(paths: &[PathBuf], json: bool) -> Outcome {
    let (found, outcome) = if paths.is_empty() {
        let live = daemons(&Environment::of_this_process().socket_dir());
        // A daemon may end, or refuse another user, between the greeting and the question.
        let of =
            |(mut client, hello): (Client, weft_control::Hello)| Some((hello.mountpoint, client.unsent(b"").ok()?));
        (live.into_iter().filter_map(of).collect(), Ok(()))
    } else {
        for_each(paths, |path| {
            let mut located = find(path)?;
            Ok((located.hello.mountpoint, located.client.unsent(&located.path.0)?))
        })
    };
    if json {
        let row = |mount: &PathBytes, file: &UnsentFile| {
            let mut row = serde_json::to_value(file).expect("plain data");
            row["path"] = json!(absolute(mount, file));
            row
        };
        let rows = found.iter().flat_map(|(mount, report)| report.files.iter().map(move |file| row(mount, file)));
        let more: u64 = found.iter().map(|(_, report)| report.more).sum();
        say!("{}", json!({ "unsent": rows.collect::<Vec<_>>(), "more": more }));
        return outcome;
    }
    found.iter().for_each(|(mount, report)| show(mount, report));
    if found.iter().any(|(_, report)| report.files.iter().any(waits_for_a_decision)) {
        say!("{DECIDE}");
    }
    if outcome.is_ok() && found.iter().all(|(_, report)| report.files.is_empty()) {
        say!("all that was written is at its source");
    }
    outcome
}

fn show(mount: &PathBytes, report: &UnsentReport) {
    for file in &report.files {
        say!("{}: {}", absolute(mount, file), line(file));
        say!("  the written bytes lie in {}", file.kept);
    }
    if report.more > 0 {
        say!("and {} more; name a directory to see those below it", report.more);
    }
}

/// Whether nothing may be done about a file unless somebody says what.
fn waits_for_a_decision(file: &UnsentFile) -> bool {
    file.why.is_some() && (!file.tried_again || file.is_refused) && !file.is_sending
}

/// What is the matter with an unsent file, in one line.
pub(super) fn line(file: &UnsentFile) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let ago = show_time(now.saturating_sub(file.since_unix_s));
    let why = match (&file.why, file.is_open, file.tried_again) {
        _ if file.is_sending => "it is being sent".to_owned(),
        (Some(why), _, true) if file.is_refused => {
            format!("{why}; it is tried again after the next login of who wrote it, and else every 5 to 10 min")
        }
        (Some(why), _, true) => format!("{why}; it is tried again by itself"),
        (Some(why), ..) => why.clone(),
        (None, true, _) => "it is open for writing, and sent at the close".to_owned(),
        (None, false, _) => "it was not tried yet".to_owned(),
    };
    format!("{} not at the source for {ago}: {why}", show_bytes(file.bytes))
}

fn absolute(mount: &PathBytes, file: &UnsentFile) -> PathBytes {
    PathBytes::from(mount.as_path().join(file.path.as_path()).as_path())
}

fn decide(paths: &[PathBuf], decision: Decision, word: &str, json: bool) -> Outcome {
    let (done, outcome) = for_each(paths, |path| {
        let mut located = find(path)?;
        Ok((path.to_owned(), located.client.decide(&located.path.0, decision)?))
    });
    tell(&done, word, json);
    outcome
}

/// Tries to send each path, and what is unsent below it.
fn send(paths: &[PathBuf], json: bool) -> Outcome {
    let (found, outcome) = for_each(paths, |path| {
        let mut located = find(path)?;
        let report = located.client.unsent(&located.path.0)?;
        let files = report.files.iter().map(|file| absolute(&located.hello.mountpoint, file).as_path().to_owned());
        // Of a path of which nothing is unsent the daemon says so.
        let files: Vec<PathBuf> = if report.files.is_empty() { vec![path.to_owned()] } else { files.collect() };
        Ok((files, report.more))
    });
    let files: Vec<PathBuf> = found.iter().flat_map(|(files, _)| files.clone()).collect();
    let sent = decide(&files, Decision::Send, "sent", json);
    let more: u64 = found.iter().map(|(_, more)| more).sum();
    if more > 0 {
        complain!("weft: {more} more are below it; try again for those");
    }
    outcome.and(sent)
}

fn tell(done: &[(impl AsRef<Path>, u64)], word: &str, json: bool) {
    if json && !done.is_empty() {
        let rows = done.iter().map(|(path, bytes)| json!({ "path": path.as_ref(), "bytes": bytes }));
        say!("{}", json!({ word.replace(' ', "_"): rows.collect::<Vec<_>>() }));
        return;
    }
    done.iter().for_each(|(path, bytes)| say!("{word} {}: {}", path.as_ref().display(), show_bytes(*bytes)));
}

fn save_as(args: &UnsentArgs, file: &Path, json: bool) -> Outcome {
    let [path] = &args.paths[..] else {
        return Err(Failure::usage("`--save-as FILE` copies one file: name one PATH"));
    };
    // A mount would be asked to take what it is being asked for.
    match find_for_path(&Environment::of_this_process().socket_dir(), file) {
        Err(ControlError::NotAMount { .. }) => {}
        Err(error @ ControlError::Io { .. }) => return Err(error.into()),
        Ok(_) | Err(_) => {
            let sentence = format!("{}: lies in a weft mount; name a file outside of all mounts", file.display());
            return Err(Failure::usage(sentence));
        }
    }
    let located = find(path)?;
    let lines = match args.theirs {
        true => located.client.copy_source(&located.path.0)?,
        false => located.client.copy_unsent(&located.path.0)?,
    };
    let mut lines = lines.peekable();
    // Before anything is made: whether there is something to copy.
    if let Some(Err(_)) = lines.peek() {
        let refused = lines.next().and_then(Result::err);
        return refused.map_or(Ok(()), |error| Err(error.into()));
    }
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Failure::failed(format!("{}: exists already, and is left as it is; name another file", file.display()))
        }
        _ => Failure::from(ControlError::Io { path: file.to_owned(), source: error }),
    };
    let mut out = File::create_new(file).map_err(failed)?;
    let copied = copy(lines, &mut out, failed);
    if copied.is_err() {
        // A part of a copy is none.
        let _ = std::fs::remove_file(file);
    }
    tell(&[(file, copied?)], "saved as", json);
    Ok(())
}

/// Writes what comes; the bytes.
fn copy(
    lines: impl Iterator<Item = Result<Copied, ControlError>>,
    out: &mut File,
    failed: impl Fn(std::io::Error) -> Failure,
) -> Outcome<u64> {
    let mut written = 0;
    for line in lines {
        match line? {
            Copied::Bytes(bytes) => {
                out.write_all(&bytes.0).map_err(&failed)?;
                written += bytes.0.len() as u64;
            }
            Copied::Done { bytes } if bytes == written => {
                out.sync_all().map_err(&failed)?;
                return Ok(written);
            }
            Copied::Done { .. } => break,
        }
    }
    Err(Failure::failed("the daemon ended before all was copied; try again"))
}

/// What can be said about those.
const DECIDE: &str = "\
What is not tried again by itself, or is refused, waits for your word, which `weft unsent` takes with the PATH:
  --save-as FILE  copies what was written; the file stays unsent; with --theirs what the source has
  --discard       gives it up: the file is what the source has
  --send          tries once more; with --over it goes over whatever the source has by now";

const EXAMPLES: &str = "\
What is written in a mount goes to its source when the file is closed. What the source does not take then stays here, is
what the file is in the mount, and is tried again by itself where the reason may pass (a full disk, a login that has ended). Where the file has
changed at its source meanwhile, somebody has to decide.

Examples:
  weft unsent                                what is not at its source, of all mounts of yours
  weft unsent ~/www/docs                     at and below a path
  weft unsent --send ~/www/a.txt             try again now
  weft unsent --send ~/www                   all that is below it
  weft unsent --send --over ~/www/a.txt      mine, whatever the source has
  weft unsent --save-as /tmp/mine ~/www/a.txt
  weft unsent --save-as /tmp/theirs --theirs ~/www/a.txt   to compare the two
  weft unsent --discard ~/www/a.txt          theirs: what was written here is gone";
