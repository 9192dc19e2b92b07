//! `weft group`: tells a mount which files are read together, as the log of a web server knows it.

use std::io::BufReader;
use std::path::Path;

use serde_json::json;
use weft_control::{Client, Grouped, PathBytes};
use weft_log::{Hint, Log, LogFormat, Sessions, Trace};

use super::find;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::say;

/// Reads the log at `from` (`-` for standard input) of a server whose top directory is `top`, and tells the mount.
///
/// # Errors
/// When the log cannot be read or holds no request; when `top` is in no mount.
pub fn run(from: &Path, format: LogFormat, top: &Path, json: bool) -> Outcome {
    let located = find(top)?;
    let log = if from.as_os_str() == "-" {
        Log::of(BufReader::new(std::io::stdin()), format)
    } else {
        Log::read(from, format)
    };
    let log = log.map_err(|error| Failure::failed(format!("{}: {error}", from.display())))?;
    if log.trace.requests.is_empty() {
        let sentence =
            format!("{}: no request for a file in {} lines; is it an access log?", from.display(), log.lines);
        return Err(Failure::failed(sentence));
    }
    let learned = Sessions::learn(&log.trace.requests);
    let mut telling =
        Telling { client: located.client, top: &located.path.0, trace: &log.trace, done: Grouped::default() };
    telling.tell(&learned.pages, true)?;
    telling.tell(&learned.visits, false)?;
    let Telling { done, .. } = telling;
    if json {
        let told = json!({
            "lines": log.lines, "bad_lines": log.bad, "requests": log.trace.requests.len(), "cut": log.is_cut,
            "groups": done.groups, "files": done.files, "unknown": done.unknown,
        });
        say!("{told}");
    } else {
        say!(
            "{} requests in {} lines ({} of them make no sense): {} groups of {} files told, {} paths are not known here",
            log.trace.requests.len(),
            log.lines,
            log.bad,
            done.groups,
            done.files,
            done.unknown
        );
    }
    if done.groups == 0 {
        let hint = "is PATH what the server shows as /?";
        return Err(Failure::new(Exit::NotFound, format!("no two files of the log are known there; {hint}")));
    }
    Ok(())
}

/// Groups on their way to the daemon.
struct Telling<'t> {
    client: Client,
    top: &'t [u8],
    trace: &'t Trace,
    done: Grouped,
}

impl Telling<'_> {
    fn tell(&mut self, hints: &[Hint], linked: bool) -> Outcome {
        let (mut some, mut bytes) = (Vec::new(), 0);
        for hint in hints {
            let group: Vec<PathBytes> = hint
                .objects
                .iter()
                .filter_map(|object| path_of(self.top, &self.trace.names[*object as usize]))
                .collect();
            let length: usize = group.iter().map(|path| path.0.len() + ITEM_BYTES).sum::<usize>() + ITEM_BYTES;
            if length > Client::GROUP_BYTES_MAX || group.len() < 2 {
                continue;
            }
            if bytes + length > Client::GROUP_BYTES_MAX {
                self.send(std::mem::take(&mut some), linked)?;
                bytes = 0;
            }
            bytes += length;
            some.push(group);
        }
        self.send(some, linked)
    }

    fn send(&mut self, groups: Vec<Vec<PathBytes>>, linked: bool) -> Outcome {
        if groups.is_empty() {
            return Ok(());
        }
        let told = self.client.group(groups, linked)?;
        self.done.groups += told.groups;
        self.done.files += told.files;
        self.done.unknown += told.unknown;
        Ok(())
    }
}

/// The path below the mount of what a server calls `name`: without its query, and of a directory the page that servers
/// show for it. `None` for what is no path.
fn path_of(top: &[u8], name: &str) -> Option<PathBytes> {
    let path = name.split(['?', '#']).next()?.strip_prefix('/')?;
    let path = if path.is_empty() || path.ends_with('/') { format!("{path}index.html") } else { path.to_owned() };
    let mut parts = vec![];
    for part in path.split('/').filter(|part| !part.is_empty()) {
        let part: Vec<u8> = percent_encoding::percent_decode_str(part).collect();
        if part == b"." || part == b".." || part.iter().any(|byte| matches!(byte, b'/' | 0)) {
            return None;
        }
        parts.push(part);
    }
    let below = parts.join(&b'/');
    Some(PathBytes(if top.is_empty() { below } else { [top, &below].join(&b'/') }))
}

/// What a path takes of a request besides its bytes.
const ITEM_BYTES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_log_are_paths_below_the_top() {
        let of = |name: &str| path_of(b"dir/www", name).map(|path| String::from_utf8_lossy(&path.0).into_owned());
        assert_eq!(of("/a/b.png?x=1").as_deref(), Some("dir/www/a/b.png"));
        assert_eq!(of("/").as_deref(), Some("dir/www/index.html"));
        assert_eq!(of("/a%20b//c/").as_deref(), Some("dir/www/a b/c/index.html"));
        assert_eq!((of("/../x"), of("/a%2Fb"), of("http://x/y"), of("*")), (None, None, None, None));
        assert_eq!(path_of(b"", "/a").map(|path| path.0), Some(b"a".to_vec()));
    }
}
