//! How a verb ends: the fixed exit codes, and the sentence that goes with each failure.

use std::fmt;

use weft_control::{Code, ControlError};

/// The exit codes of every verb. They never change their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Anything that has no code of its own.
    Failed = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// The path is in no weft mount, or its daemon is gone.
    NoMount = 3,
    /// There is no such name.
    NotFound = 4,
    /// Not allowed for this user.
    Denied = 5,
    /// The remote cannot be reached.
    Unreachable = 6,
    /// Some of what was asked for is done, some is not.
    Partly = 7,
}

/// Why a verb has failed.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What, why, and what to do where there is something.
    pub sentence: String,
}

/// What a verb comes to.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// A failure with its sentence.
    pub fn new(exit: Exit, sentence: impl fmt::Display) -> Failure {
        Failure { exit, sentence: sentence.to_string() }
    }

    /// A failure without a code of its own.
    pub fn failed(sentence: impl fmt::Display) -> Failure {
        Failure::new(Exit::Failed, sentence)
    }

    /// A wrong command line.
    pub fn usage(sentence: impl fmt::Display) -> Failure {
        Failure::new(Exit::Usage, sentence)
    }
}

impl Exit {
    /// A word for programs, in `--json`.
    pub fn word(self) -> &'static str {
        match self {
            Exit::Failed => "failed",
            Exit::Usage => "usage",
            Exit::NoMount => "no_mount",
            Exit::NotFound => "not_found",
            Exit::Denied => "denied",
            Exit::Unreachable => "unreachable",
            Exit::Partly => "partly",
        }
    }
}

impl From<ControlError> for Failure {
    fn from(error: ControlError) -> Failure {
        let exit = match &error {
            ControlError::NotAMount { .. } | ControlError::NoDaemon { .. } => Exit::NoMount,
            ControlError::Refused(refusal) => match refusal.code {
                Code::NotFound => Exit::NotFound,
                Code::Denied => Exit::Denied,
                Code::Unreachable => Exit::Unreachable,
                Code::Busy | Code::Invalid | Code::Failed => Exit::Failed,
            },
            ControlError::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => Exit::Denied,
            ControlError::Ended
            | ControlError::UnsafeFolder { .. }
            | ControlError::Protocol { .. }
            | ControlError::Io { .. } => Exit::Failed,
        };
        Failure::new(exit, error)
    }
}

/// The part of `--help` that tells the exit codes.
pub const HELP: &str = "Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 not a weft mount or no \
daemon, 4 not found, 5 denied, 6 unreachable, 7 partly done.";
