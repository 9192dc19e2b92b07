//! The hand-shake between `weft mount` and the daemon that it has started.
//!
//! The daemon's standard output is a pipe to `weft mount`. The daemon writes one line, `{"ready":true,"pid":...}` or
//! `{"error":"..."}`; when it ends without a line it has failed without a word, and its log may tell.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use crate::cli::ReadyOn;
use crate::output::complain;

/// What `wire_up` calls once the tree is usable.
#[derive(Clone, Debug)]
pub struct Ready {
    on: Option<ReadyOn>,
    mountpoint: PathBuf,
    told: Arc<AtomicBool>,
}

/// The line.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Line {
    /// The tree is usable.
    Ready {
        /// Always true.
        ready: bool,
        /// Process id of the daemon.
        pid: u32,
    },
    /// It will not be.
    Error {
        /// Why, and what to do.
        error: String,
    },
}

impl Ready {
    /// For a daemon; `None` tells a person at the terminal.
    pub fn new(on: Option<ReadyOn>, mountpoint: PathBuf) -> Ready {
        Ready { on, mountpoint, told: Arc::default() }
    }

    /// Tells that the tree is usable. Only the first word counts.
    pub fn mounted(&self) {
        self.tell(&Line::Ready { ready: true, pid: std::process::id() });
    }

    /// Tells that the tree will not be usable; whether that still could be told.
    pub fn failed(&self, error: &str) -> bool {
        self.tell(&Line::Error { error: error.to_owned() })
    }

    fn tell(&self, line: &Line) -> bool {
        if self.told.swap(true, Ordering::SeqCst) {
            return false;
        }
        match (self.on, line) {
            (Some(ReadyOn::Stdout), line) => {
                let mut text = serde_json::to_string(line).expect("plain data");
                text.push('\n');
                let mut out = std::io::stdout();
                // Nobody there to be told: the daemon serves all the same.
                let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
                true
            }
            (None, Line::Ready { .. }) => {
                complain!("weft: mounted on {}; Ctrl-C unmounts", self.mountpoint.display());
                true
            }
            // A person sees it as the error of the verb.
            (None, Line::Error { .. }) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_documented() {
        let ready: Line = serde_json::from_str(r#"{"ready":true,"pid":7}"#).expect("parses");
        assert_eq!(ready, Line::Ready { ready: true, pid: 7 });
        let error: Line = serde_json::from_str(r#"{"error":"no"}"#).expect("parses");
        assert_eq!(error, Line::Error { error: "no".to_owned() });
    }

    #[test]
    fn only_the_first_word_counts() {
        let ready = Ready::new(None, PathBuf::from("/mnt"));
        ready.mounted();
        assert!(!ready.failed("too late"));
    }
}
