//! Bearer tokens (RFC 6750) that a program of the user's prints.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::header::HeaderValue;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal};
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::time::timeout;

/// As whom a daemon of root's runs a user's program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunAs {
    /// The user's id.
    pub uid: u32,
    /// The user's own group; the program has no others.
    pub gid: u32,
    /// The user's name, for `USER` and `LOGNAME`.
    pub name: String,
    /// The user's home, for `HOME`.
    pub home: PathBuf,
}

/// A program that prints a token, and the token that it printed last.
pub(crate) struct BearerCommand {
    command: Vec<String>,
    run_as: Option<RunAs>,
    lifetime: Duration,
    /// Held for one look or one change.
    kept: Mutex<Option<Token>>,
    /// Held by the one who runs the program; others wait and find its token.
    running: tokio::sync::Mutex<()>,
}

/// A token.
#[derive(Clone)]
pub(crate) struct Token {
    pub header: HeaderValue,
    printed: Instant,
    /// A server has taken it.
    worked: bool,
}

impl BearerCommand {
    pub fn new(command: Vec<String>, run_as: Option<RunAs>, lifetime: Duration) -> BearerCommand {
        BearerCommand { command, run_as, lifetime, kept: Mutex::new(None), running: tokio::sync::Mutex::new(()) }
    }

    /// The program's name, for people.
    pub fn program(&self) -> &str {
        self.command.first().map_or("", String::as_str)
    }

    /// The token that is kept, or a new one.
    ///
    /// # Errors
    /// Why there is none, as a sentence; nothing of what the program printed.
    pub async fn token(self: &Arc<Self>) -> Result<Token, String> {
        if let Some(token) = self.kept() {
            return Ok(token);
        }
        // Whoever stops waiting leaves the program to those who still do.
        let command = self.clone();
        let running = tokio::spawn(async move {
            let _running = command.running.lock().await;
            if let Some(token) = command.kept() {
                return Ok(token);
            }
            let header = command.run().await?;
            let token = Token { header, printed: Instant::now(), worked: false };
            *command.kept.lock() = Some(token.clone());
            Ok(token)
        });
        running.await.map_err(|e| e.to_string())?
    }

    /// A server took the token.
    pub fn worked(&self, token: &Token) {
        if let Some(kept) = &mut *self.kept.lock()
            && kept.header == token.header
        {
            kept.worked = true;
        }
    }

    /// A server refused the token: whether another is worth a try. One that was only just printed is what there is.
    pub fn refused(&self, token: &Token) -> bool {
        let mut kept = self.kept.lock();
        match &*kept {
            Some(same) if same.header == token.header => {
                let stale = same.worked || same.printed.elapsed() > REFUSED_PAUSE;
                if stale {
                    *kept = None;
                }
                stale
            }
            // Somebody else has renewed it meanwhile.
            _ => true,
        }
    }

    fn kept(&self) -> Option<Token> {
        self.kept.lock().clone().filter(|token| token.printed.elapsed() < self.lifetime)
    }

    async fn run(&self) -> Result<HeaderValue, String> {
        let shown = self.program();
        let failed =
            |why: String| format!("the bearer_command `{shown}` {why}; run it by hand as that user to see why");
        let mut command = Command::new(shown);
        command.args(self.command.iter().skip(1)).current_dir("/").stdin(Stdio::null()).stderr(Stdio::null());
        command.stdout(Stdio::piped()).process_group(0).kill_on_drop(true);
        if let Some(user) = &self.run_as {
            // Without root's groups as well: the standard library gives them up with the user id.
            command.uid(user.uid).gid(user.gid).env_clear();
            command.env("PATH", SAFE_PATH).env("HOME", &user.home).env("USER", &user.name).env("LOGNAME", &user.name);
        }
        let mut child = command.spawn().map_err(|e| failed(format!("cannot be started: {e}")))?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let mut printed = Vec::new();
        let work = async {
            if let Some(stdout) = child.stdout.take() {
                stdout.take(OUTPUT_BYTES_MAX + 1).read_to_end(&mut printed).await?;
            }
            if printed.len() as u64 > OUTPUT_BYTES_MAX {
                return Ok(None);
            }
            child.wait().await.map(Some)
        };
        let ended = timeout(COMMAND_TIME_MAX, work).await;
        let unfinished = !matches!(ended, Ok(Ok(Some(_))));
        if unfinished && let Some(group) = group {
            // What it has started as well; nothing is lost when they are gone already.
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
        match ended {
            Err(_) => Err(failed(format!("gave no token within {} s", COMMAND_TIME_MAX.as_secs()))),
            Ok(Err(e)) => Err(failed(format!("could not be read: {e}"))),
            Ok(Ok(None)) => Err(failed(format!("printed more than {OUTPUT_BYTES_MAX} bytes"))),
            Ok(Ok(Some(status))) if !status.success() => Err(failed(format!("ended with {status}"))),
            Ok(Ok(Some(_))) => header_of(&printed).map_err(|why| failed(format!("printed {why}"))),
        }
    }
}

/// The header for a token as a file or a program gives it: its first line.
///
/// # Errors
/// What is wrong with it; nothing of the text.
pub(crate) fn header_of(text: &[u8]) -> Result<HeaderValue, String> {
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii();
    if line.is_empty() {
        return Err("no token in the first line".to_owned());
    }
    // RFC 6750 section 2.1 allows less; issuers are not always so strict.
    if line.len() > TOKEN_BYTES_MAX || !line.iter().all(|byte| matches!(byte, b'!'..=b'~')) {
        return Err("what can be no token: one word of printable ASCII is needed".to_owned());
    }
    let mut header = HeaderValue::from_bytes(&[b"Bearer ", line].concat()).map_err(|e| e.to_string())?;
    header.set_sensitive(true);
    Ok(header)
}

/// How long the program may take.
const COMMAND_TIME_MAX: Duration = Duration::from_secs(20);
const OUTPUT_BYTES_MAX: u64 = 64 << 10;
/// Longer ones do not fit into the headers that servers take.
const TOKEN_BYTES_MAX: usize = 16 << 10;
/// A token that no server has taken yet is not replaced before so long.
const REFUSED_PAUSE: Duration = Duration::from_secs(10);
/// Where the program is sought when root runs it for somebody else.
const SAFE_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

#[cfg(test)]
mod tests {
    use super::*;

    fn command(script: &str) -> Arc<BearerCommand> {
        let words = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        Arc::new(BearerCommand::new(words, None, Duration::from_secs(3600)))
    }

    #[tokio::test]
    async fn a_token_is_kept_until_it_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().display();
        let bearer = command(&format!("echo x >> {path}; echo token$(wc -l < {path})"));
        let first = bearer.token().await.unwrap();
        assert_eq!(first.header, "Bearer token1");
        assert_eq!(bearer.token().await.unwrap().header, "Bearer token1");
        assert!(!bearer.refused(&first), "it was only just printed");
        bearer.worked(&first);
        assert!(bearer.refused(&first));
        let tokens = tokio::join!(bearer.token(), bearer.token(), bearer.token());
        assert_eq!([tokens.0, tokens.1, tokens.2].map(|token| token.unwrap().header), ["Bearer token2"; 3]);
        assert!(bearer.refused(&first), "another is there by now");
        assert_eq!(bearer.token().await.unwrap().header, "Bearer token2");
    }

    #[tokio::test]
    async fn a_program_that_fails_tells_nothing_of_its_output() {
        for (script, words) in [
            ("echo secret; exit 3", "exit status: 3"),
            ("echo; echo secret", "no token"),
            ("echo sec ret", "no token:"),
            ("yes secret | head -c 100000", "more than"),
            ("printf 'secret\\007\\n'", "no token:"),
        ] {
            let why = command(script).token().await.err().unwrap_or_else(|| panic!("{script} gives no token"));
            assert!(why.contains(words) && !why.replace("bearer_command", "").contains("secret"), "{script}: {why}");
        }
        let missing = Arc::new(BearerCommand::new(vec!["/nowhere/x".to_owned()], None, Duration::from_secs(1)));
        assert!(missing.token().await.err().unwrap().contains("cannot be started"));
    }
}
