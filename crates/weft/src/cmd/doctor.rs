//! `weft doctor`: checks this machine and says what to type.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::config::{Environment, Given, MountOptions, Source, resolve};
use crate::exit::{Failure, Outcome};
use crate::output::say;

/// One thing looked at.
#[derive(Debug, Serialize)]
struct Finding {
    name: &'static str,
    state: State,
    /// What was seen, and what to type where something is to be done.
    sentence: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Good,
    /// Works, but less well.
    Lesser,
    Bad,
}

/// Looks at everything.
///
/// # Errors
/// When something keeps `weft mount` from working.
pub fn run(json: bool) -> Outcome {
    let environment = Environment::of_this_process();
    let findings = vec![
        device(),
        fusermount(&environment),
        allow_other(&environment),
        cache(&environment),
        passthrough(&environment),
        io_uring(),
        inotify(),
        indexer(),
    ];
    if json {
        say!("{}", serde_json::to_string(&findings).expect("plain data"));
    } else {
        for Finding { name, state, sentence } in &findings {
            let state = match state {
                State::Good => "good  ",
                State::Lesser => "lesser",
                State::Bad => "BAD   ",
            };
            say!("{state}  {name:<16}  {sentence}");
        }
    }
    match findings.iter().any(|finding| finding.state == State::Bad) {
        true => Err(Failure::failed("weft cannot mount on this machine yet; see the lines marked BAD")),
        false => Ok(()),
    }
}

/// The path of a program in `$PATH`, or where fuse3 puts it.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain(["/usr/bin", "/bin", "/usr/local/bin"].map(PathBuf::from));
    dirs.map(|dir| dir.join(name)).find(|program| program.is_file())
}

fn device() -> Finding {
    let name = "/dev/fuse";
    match OpenOptions::new().read(true).write(true).open(name) {
        Ok(_) => Finding { name, state: State::Good, sentence: "can be opened".to_owned() },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let sentence = "missing: type `sudo modprobe fuse`; a container needs `--device /dev/fuse`".to_owned();
            Finding { name, state: State::Bad, sentence }
        }
        Err(error) => {
            let sentence = format!("{error}: type `sudo chmod 666 /dev/fuse`, as Debian has it");
            Finding { name, state: State::Bad, sentence }
        }
    }
}

fn fusermount(environment: &Environment) -> Finding {
    let name = "fusermount3";
    match (find_program(name), environment.uid) {
        (Some(program), uid) if uid != 0 && !has_rights(&program) => {
            let sentence = format!("has not the rights to mount: type `sudo chmod u+s {}`", program.display());
            Finding { name, state: State::Bad, sentence }
        }
        (Some(program), _) => Finding { name, state: State::Good, sentence: format!("is {}", program.display()) },
        (None, 0) => Finding { name, state: State::Good, sentence: "missing, and not needed by root".to_owned() },
        (None, _) => Finding { name, state: State::Bad, sentence: "missing: type `sudo apt install fuse3`".to_owned() },
    }
}

/// Whether a program mounts for others: by its owner, or by capabilities of its own. Where that cannot be seen, it does.
fn has_rights(program: &Path) -> bool {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let by_owner = |found: std::fs::Metadata| found.uid() == 0 && found.permissions().mode() & 0o4000 != 0;
    std::fs::metadata(program).map_or(true, by_owner)
        || rustix::fs::getxattr(program, "security.capability", &mut [0u8; 64][..]).is_ok()
}

fn allow_other(environment: &Environment) -> Finding {
    let name = "user_allow_other";
    let text = std::fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    let set = text.lines().any(|line| line.trim() == "user_allow_other");
    let (state, sentence) = match (set, environment.uid) {
        (true, _) => (State::Good, "set: -o allow_other works for every user"),
        (false, 0) => (State::Good, "not set, and not needed by root"),
        (false, _) => (
            State::Lesser,
            "not set, so -o allow_other is root's alone: type `echo user_allow_other | sudo tee -a /etc/fuse.conf`",
        ),
    };
    Finding { name, state, sentence: sentence.to_owned() }
}

fn cache(environment: &Environment) -> Finding {
    let name = "cache folder";
    let given = Given {
        source: Source::Everything,
        mountpoint: PathBuf::from("/"),
        cache: None,
        config: None,
        options: MountOptions::default(),
    };
    let dir = match resolve(given, environment) {
        Ok(resolved) => resolved.cache_dir,
        Err(error) => {
            return Finding { name, state: State::Bad, sentence: format!("the configuration is wrong: {error}") };
        }
    };
    // What does not exist yet is made in the nearest folder above it that does.
    let there = dir.ancestors().find(|above| above.exists()).unwrap_or(Path::new("/"));
    match rustix::fs::access(there, rustix::fs::Access::WRITE_OK) {
        Ok(()) => Finding { name, state: State::Good, sentence: format!("{} can be written", dir.display()) },
        Err(error) => {
            let sentence = format!("{}: {error}; give another one with --cache", dir.display());
            Finding { name, state: State::Bad, sentence }
        }
    }
}

/// Several readers at once are answered faster over io_uring; only a mount that asks for it has it.
fn io_uring() -> Finding {
    let (state, sentence) = match weft_fuse::RingError::check() {
        Ok(()) => (State::Good, "mounts can have `-o transport=io_uring`; they then end with their daemon".to_owned()),
        Err(why) => (State::Lesser, format!("`-o transport=io_uring` cannot be had: {why}")),
    };
    Finding { name: "io_uring", state, sentence }
}

/// A mounted directory has each of its directories watched that was looked at; where no more may be, what changes there is
/// seen a second later.
fn inotify() -> Finding {
    let name = "inotify";
    let text = std::fs::read_to_string(INOTIFY_WATCHES).unwrap_or_default();
    let (state, sentence) = match text.trim().parse::<u64>() {
        Ok(watches) if watches >= WATCHES_WANTED => {
            (State::Good, format!("{watches} directories of `dir:` mounts can be watched for changes"))
        }
        Ok(watches) => {
            let more = "`sudo sysctl fs.inotify.max_user_watches=524288` allows more";
            let seen = "changes elsewhere are seen a second later";
            (State::Lesser, format!("only {watches} directories of `dir:` mounts can be watched, {seen}; {more}"))
        }
        Err(_) => (State::Lesser, format!("{INOTIFY_WATCHES} cannot be read: changes below `dir:` may be seen later")),
    };
    Finding { name, state, sentence }
}

const INOTIFY_WATCHES: &str = "/proc/sys/fs/inotify/max_user_watches";
/// As many as one mount may have.
const WATCHES_WANTED: u64 = 65_536;

/// The nightly index of file names (updatedb of plocate and mlocate) goes through every mount that it can enter and that is
/// not left out by its type, and would ask every host that was ever visited.
fn indexer() -> Finding {
    let (state, sentence) = match std::fs::read_to_string(UPDATEDB) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => (State::Good, format!("there is no {UPDATEDB}")),
        Err(error) => (State::Lesser, format!("{UPDATEDB}: {error}")),
        Ok(text) if leaves_out_weft(&text) => (State::Good, "leaves mounts of weft out".to_owned()),
        Ok(_) => {
            let enters = "goes through mounts that root can enter, and so asks every host each night";
            let fix = format!("`sudo sed -i 's/^PRUNEFS *= *\"/&fuse.weft /' {UPDATEDB}` leaves them out");
            (State::Lesser, format!("{enters}: type {fix}"))
        }
    };
    Finding { name: "updatedb", state, sentence }
}

/// Whether the file systems that updatedb leaves out (PRUNEFS, updatedb.conf(5)) have weft's type among them.
fn leaves_out_weft(text: &str) -> bool {
    let values = text.lines().filter_map(|line| line.trim().strip_prefix("PRUNEFS")?.trim_start().strip_prefix('='));
    let mut types = values.flat_map(|value| value.trim().trim_matches('"').split_whitespace());
    types.any(|kind| kind.eq_ignore_ascii_case("fuse.weft"))
}

const UPDATEDB: &str = "/etc/updatedb.conf";

/// Large cached files can be read past the daemon since Linux 6.9, by processes with CAP_SYS_ADMIN.
fn passthrough(environment: &Environment) -> Finding {
    let name = "passthrough";
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let (state, sentence) = match (version >= (6, 9), environment.uid) {
        (true, 0) => (State::Good, format!("Linux {release} has it, if built with CONFIG_FUSE_PASSTHROUGH")),
        (true, _) => (State::Lesser, format!("Linux {release} has it, for mounts made by root only")),
        (false, _) => (State::Lesser, format!("Linux {release} is too old (6.9 has it): large files are read slower")),
    };
    Finding { name, state, sentence }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updatedb_leaves_out_what_it_is_told() {
        for (text, left_out) in [
            ("", false),
            ("PRUNEFS=\"NFS nfs fuse.sshfs\"\n", false),
            ("PRUNE_BIND_MOUNTS=\"yes\"\nPRUNEFS = \"fuse.weft NFS\"\n", true),
            ("PRUNEFS=\"NFS fuse.weft\"", true),
            ("# PRUNEFS=\"fuse.weft\"\n", false),
            ("PRUNEPATHS=\"/tmp fuse.weft\"\n", false),
        ] {
            assert_eq!(leaves_out_weft(text), left_out, "{text}");
        }
    }
}
