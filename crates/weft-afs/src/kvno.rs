//! Kerberos's own program `kvno`, which asks a realm for the ticket of a service: how it is found, run and understood.
//!
//! It is MIT Kerberos's (`src/clients/kvno/kvno.c`): `-q` has it say nothing but errors, `-c` names the credential cache that
//! the ticket is asked for with and put into. A principal with its realm is given, and not `-S afs CELL`: that would have the
//! name of the cell taken for one of a host, and changed into what DNS calls the host at that name.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use tokio::io::AsyncReadExt;

/// Where the program is, and what it is told of its environment; nothing else of ours is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kvno {
    /// Where programs are looked for, as `$PATH` has it.
    pub path: Option<OsString>,
    /// Kerberos's configuration, as `$KRB5_CONFIG` has it.
    pub config: Option<OsString>,
}

/// Why there is no ticket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoTicket {
    /// The program is not there.
    #[error(
        "the program `kvno`, which asks Kerberos for tickets, is not installed: in Debian it is in the package krb5-user, \
        in Fedora in krb5-workstation"
    )]
    NoProgram,
    /// It cannot be run.
    #[error("`kvno` cannot be run: {0}")]
    NotRun(String),
    /// No realm that was asked knows the service.
    #[error("{service}: {said}")]
    Unknown {
        /// For which ticket it was asked.
        service: String,
        /// The program's words.
        said: String,
    },
    /// Anything else that it said.
    #[error("{service}: {said}")]
    Failed {
        /// For which ticket it was asked.
        service: String,
        /// The program's words.
        said: String,
    },
    /// It took too long.
    #[error("{service}: no answer of Kerberos's servers in time")]
    Late {
        /// For which ticket it was asked.
        service: String,
    },
}

/// Another user, as whom it is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunAs {
    pub uid: u32,
    pub gid: u32,
}

impl Kvno {
    /// Gets one ticket into a cache, whose name is as `$KRB5CCNAME` has it; `input` is the program's standard input. It is
    /// ended when it takes too long, or when nobody waits for it any more. Only root can run it as another user, who is
    /// then in no further group.
    pub(crate) async fn get(
        &self,
        service: &str,
        (cache, input): (&OsStr, Stdio),
        run_as: Option<RunAs>,
        until: Instant,
    ) -> Result<(), NoTicket> {
        let program = self.find("kvno").ok_or(NoTicket::NoProgram)?;
        let mut command = match run_as {
            None => Command::new(program),
            // It must not have the terminal of this process, into which its user could type.
            Some(_) => {
                let setsid = self.find("setsid").ok_or_else(|| NoTicket::NotRun("there is no `setsid`".to_owned()))?;
                let mut command = Command::new(setsid);
                command.arg(program);
                command
            }
        };
        command.env_clear().env("LC_ALL", "C").current_dir("/").args(["-q", "-c"]).arg(cache).arg(service);
        command.stdin(input).stdout(Stdio::null()).stderr(Stdio::piped());
        let environment = [("PATH", &self.path), ("KRB5_CONFIG", &self.config)];
        command.envs(environment.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?))));
        if let Some(RunAs { uid, gid }) = run_as {
            // The further groups of this process are dropped with that, as the library has it for root.
            command.uid(uid).gid(gid);
        }
        let mut command = tokio::process::Command::from(command);
        let mut child = command.kill_on_drop(true).spawn().map_err(|error| NoTicket::NotRun(error.to_string()))?;
        let mut said = Vec::new();
        let stderr = child.stderr.take();
        let words = async {
            if let Some(stderr) = stderr {
                let _ = stderr.take(SAID_BYTES_MAX).read_to_end(&mut said).await;
            }
        };
        let ended = async { tokio::join!(words, child.wait()).1 };
        match tokio::time::timeout_at(until.into(), ended).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(_)) => Err(understood(service, &said)),
            Ok(Err(error)) => Err(NoTicket::NotRun(error.to_string())),
            Err(_) => Err(NoTicket::Late { service: service.to_owned() }),
        }
    }

    /// The first program of that name that may be executed.
    fn find(&self, name: &str) -> Option<PathBuf> {
        let folders = std::env::split_paths(self.path.as_ref()?).filter(|folder| folder.is_absolute());
        folders.map(|folder| folder.join(name)).find(|program| {
            std::fs::metadata(program).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        })
    }
}

/// `kvno: MESSAGE while getting credentials for SERVICE`, in the C locale.
fn understood(service: &str, said: &[u8]) -> NoTicket {
    let text = String::from_utf8_lossy(said);
    let line = text.lines().map(|line| line.trim_start_matches("kvno: ")).find(|line| !line.is_empty());
    let words = line.map_or("`kvno` failed without a word", |line| line.split(" while ").next().unwrap_or(line));
    let is_shown = |character: char| character == ' ' || character.is_ascii_graphic();
    let shown = |character: char| match is_shown(character) {
        true => character.to_string(),
        false => character.escape_default().to_string(),
    };
    let said: String = words.chars().take(SAID_CHARS_MAX).map(shown).collect();
    let service = service.to_owned();
    match words {
        // Of the service itself, or of the ticket for another realm.
        _ if words.contains("not found in Kerberos database") => NoTicket::Unknown { service, said },
        _ if words.contains("Cannot find KDC for realm") => NoTicket::Unknown { service, said },
        _ if words.contains("Cannot contact any KDC") => NoTicket::Late { service },
        _ => NoTicket::Failed { service, said },
    }
}

/// Most that is taken in of what it says.
const SAID_BYTES_MAX: u64 = 4096;
/// Most of it that is told.
const SAID_CHARS_MAX: usize = 300;

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;

    /// A program named `kvno` in a folder, as a shell script.
    pub(crate) fn stand_in(folder: &Path, script: &str) -> Kvno {
        // Written by another process: what a test of this one starts meanwhile could keep it open, and then it is not run.
        let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$0.new\" && chmod 755 \"$0.new\" && mv \"$0.new\" \"$0\"";
        let program = folder.join("kvno");
        let written = Command::new("sh").args(["-c", write]).arg(&program).arg(script).status();
        assert!(written.is_ok_and(|status| status.success()));
        let path = std::env::join_paths([folder, Path::new("/usr/bin"), Path::new("/bin")]).expect("no colon");
        Kvno { path: Some(path), config: Some("/nonexistent/krb5.conf".into()) }
    }

    async fn get(kvno: &Kvno, until: Duration) -> Result<(), NoTicket> {
        let cache = (OsStr::new("FILE:/nonexistent"), Stdio::null());
        kvno.get("afs/example.org@EXAMPLE.ORG", cache, None, Instant::now() + until).await
    }

    const LONG: Duration = Duration::from_secs(60);

    /// Goal: what the program is told is what it needs and no more.
    #[tokio::test]
    async fn it_is_told_the_cache_the_service_and_two_variables() {
        let folder = tempfile::tempdir().expect("a folder");
        let told = folder.path().join("told");
        let script = format!("{{ echo \"$@\"; pwd; env | sort; }} > {}", told.display());
        let kvno = stand_in(folder.path(), &script);
        assert_eq!(get(&kvno, LONG).await, Ok(()));
        let told = std::fs::read_to_string(told).expect("it ran");
        let path = kvno.path.as_ref().and_then(|path| path.to_str()).expect("text");
        let shells = |line: &&str| !["PWD=", "_=", "SHLVL=", "OLDPWD="].iter().any(|own| line.starts_with(own));
        let lines: Vec<&str> = told.lines().filter(shells).collect();
        let first = "-q -c FILE:/nonexistent afs/example.org@EXAMPLE.ORG";
        assert_eq!(lines, [first, "/", "KRB5_CONFIG=/nonexistent/krb5.conf", "LC_ALL=C", &format!("PATH={path}")]);
    }

    /// Goal: each way in which it fails is told apart, whatever it says.
    #[tokio::test]
    async fn its_failures_are_understood() {
        let folder = tempfile::tempdir().expect("a folder");
        let said = |words: &str| format!("echo 'kvno: {words} while getting credentials for x' >&2; exit 1");
        let unknown = stand_in(folder.path(), &said("Server afs/x not found in Kerberos database"));
        let error = get(&unknown, LONG).await.expect_err("unknown");
        assert!(matches!(&error, NoTicket::Unknown { .. }));
        assert_eq!(error.to_string(), "afs/example.org@EXAMPLE.ORG: Server afs/x not found in Kerberos database");
        let silent = stand_in(folder.path(), &said("Cannot contact any KDC for realm \"X\""));
        assert!(matches!(get(&silent, LONG).await, Err(NoTicket::Late { .. })));
        let other = stand_in(folder.path(), &said("KDC policy rejects request"));
        assert!(matches!(get(&other, LONG).await, Err(NoTicket::Failed { said, .. }) if said.contains("policy")));
        let quoting = stand_in(folder.path(), &said("Cannot find KDC for realm \"X\""));
        let error = get(&quoting, LONG).await.expect_err("unknown");
        assert!(error.to_string().ends_with(": Cannot find KDC for realm \"X\""), "{error}");
        let wordless = stand_in(folder.path(), "exit 7");
        assert!(matches!(get(&wordless, LONG).await, Err(NoTicket::Failed { said, .. }) if said.contains("a word")));
        let loud = stand_in(folder.path(), "trap '' PIPE; yes '\x1b[2J' | head -c 1000000 >&2; exit 1");
        let Err(NoTicket::Failed { said, .. }) = get(&loud, LONG).await else { panic!("it failed") };
        assert!(said.len() < 4096 && !said.contains('\x1b'), "{said}");
        let nowhere = Kvno { path: Some("relative:/nonexistent".into()), config: None };
        assert_eq!(get(&nowhere, LONG).await, Err(NoTicket::NoProgram));
        assert!(NoTicket::NoProgram.to_string().contains("krb5-user"));
    }

    /// Goal: one that never ends is ended, and one that leaves its output to others keeps nobody.
    #[tokio::test]
    async fn it_is_not_waited_for_without_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path().join("pid");
        let kvno = stand_in(folder.path(), &format!("echo $$ > {}; exec sleep 1000", at.display()));
        let late = get(&kvno, Duration::from_millis(300)).await;
        assert!(matches!(late, Err(NoTicket::Late { .. })), "{late:?}");
        if let Ok(pid) = std::fs::read_to_string(at) {
            let gone =
                || std::fs::read_to_string(format!("/proc/{}/comm", pid.trim())).map_or(true, |is| is != "sleep\n");
            let until = Instant::now() + LONG;
            while !gone() && Instant::now() < until {
                tokio::task::yield_now().await;
            }
            assert!(gone());
        }
    }
}
