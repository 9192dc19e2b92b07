//! What was written in a mount and is not at its source: what is told of it, and what may be decided.

use serde::{Deserialize, Serialize};

use crate::client::{LONG, MIDDLE, Streamed, unexpected};
use crate::protocol::{Reply, Verb};
use crate::{Client, ControlError, LINE_BYTES_MAX, PathBytes};

/// A file of which something is not at its source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnsentFile {
    /// Where it is, relative to the mount's root.
    pub path: PathBytes,
    /// Bytes that the source has not been told; 0 when only the length is another.
    pub bytes: u64,
    /// The file's length here, in bytes.
    pub length: u64,
    /// Since when, in seconds since 1970.
    pub since_unix_s: u64,
    /// Why it could not be sent; nothing when that was not tried yet.
    pub why: Option<String>,
    /// Whether it is tried again by itself.
    pub tried_again: bool,
    /// Whether it was refused to who wrote it: then that is after the next login, and else seldom.
    #[serde(default)]
    pub is_refused: bool,
    /// Whether it is being sent now.
    #[serde(default)]
    pub is_sending: bool,
    /// Whether it is open for writing: then it is sent at the close.
    pub is_open: bool,
    /// Where the written bytes lie on this machine.
    pub kept: PathBytes,
}

/// What is unsent, as far as it fits into an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnsentReport {
    /// In the order of their paths.
    pub files: Vec<UnsentFile>,
    /// How many more there are.
    pub more: u64,
}

impl UnsentReport {
    /// Most files that are told in one answer.
    pub const FILES_MAX: usize = 1000;

    /// Leaves out what would not fit into one line.
    pub(crate) fn fitting(mut self) -> UnsentReport {
        let mut left = LINE_BYTES_MAX / 2;
        let fits = |file: &UnsentFile| {
            let length = serde_json::to_vec(file).map_or(usize::MAX, |line| line.len() + 1);
            left = left.checked_sub(length)?;
            Some(())
        };
        let count = self.files.iter().map_while(fits).take(UnsentReport::FILES_MAX).count();
        self.more += (self.files.len() - count) as u64;
        self.files.truncate(count);
        self
    }
}

/// What is to become of what was written and not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// It is sent, unless the source has another version by now.
    Send,
    /// It is sent, over whatever the source has by now.
    SendOver,
    /// It is given up: the file is what the source has.
    Discard,
}

/// One line of a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Copied {
    /// The next bytes; in JSON as a path is.
    Bytes(PathBytes),
    /// That was all.
    Done {
        /// How many bytes.
        bytes: u64,
    },
}

impl Copied {
    /// Most bytes in one line: in JSON a byte takes at most six.
    pub const BYTES_MAX: usize = LINE_BYTES_MAX / 8;
}

/// The lines of `weft unsent --save-as`.
pub type Copying = Streamed<Copied>;

impl Client {
    /// What is unsent at and below a path.
    ///
    /// # Errors
    /// As for every call.
    pub fn unsent(&mut self, path: &[u8]) -> Result<UnsentReport, ControlError> {
        match self.ask(Verb::Unsent { path: path.into() }, MIDDLE)? {
            Reply::Unsent(report) => Ok(report),
            other => Err(unexpected(&other)),
        }
    }

    /// Has it decided what becomes of an unsent file, and tells how many bytes that was about.
    ///
    /// # Errors
    /// As for every call.
    pub fn decide(&mut self, path: &[u8], decision: Decision) -> Result<u64, ControlError> {
        match self.ask(Verb::Decide { path: path.into(), decision }, LONG)? {
            Reply::Decided { bytes } => Ok(bytes),
            other => Err(unexpected(&other)),
        }
    }

    /// An unsent file as it is in the mount, without sending it. It is whole when the last line says so.
    ///
    /// # Errors
    /// As for every call.
    pub fn copy_unsent(self, path: &[u8]) -> Result<Copying, ControlError> {
        self.stream(Verb::CopyUnsent { path: path.into() }, copied)
    }

    /// What the source has under the name of an unsent file, which stays unsent. It is whole when the last line says so.
    ///
    /// # Errors
    /// As for every call.
    pub fn copy_source(self, path: &[u8]) -> Result<Copying, ControlError> {
        self.stream(Verb::CopySource { path: path.into() }, copied)
    }
}

fn copied(reply: Reply) -> Result<Copied, ControlError> {
    match reply {
        Reply::Copied(copied) => Ok(copied),
        other => Err(unexpected(&other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_counted() {
        let file = UnsentFile { path: PathBytes(vec![b'x'; 4000]), ..UnsentFile::default() };
        let report = UnsentReport { files: vec![file; 300], more: 2 }.fitting();
        assert!(report.files.len() > 100 && report.files.len() as u64 + report.more == 302);
        assert!(serde_json::to_vec(&report).expect("plain data").len() < LINE_BYTES_MAX);
    }
}
