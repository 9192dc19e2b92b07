//! What a failed call means: codes of abort, in the words of the contract, and what whoever goes through the sites of
//! a volume does next.
//!
//! A call that fails ends with one number. Whose it is, its range tells: below 0 Rx, to 100 an error of the server's
//! system, above that the volumes, then tables of 256 codes each whose first number is made of the table's name. The
//! universal table (UAE) is what servers send to clients that asked for it, in place of their system's own numbers,
//! which differ from system to system; those that come all the same are read as Linux's.
//!
//! Sources: OpenAFS `src/util/errors.h`, `src/rx/rx.h`, `src/rxgen`, `src/fsint/afsint.xg`, `src/ubik/uerrors.et`,
//! `src/ptserver/pterror.et`, `src/vlserver/vl_errors.et`, `src/rxkad/rxkad_errs.et`, `src/volser/volerr.et`,
//! `src/afs/unified_afs.et`; what follows from them, `src/afs/afs_analyze.c` and Linux `fs/afs/rotate.c`.
//!
//! `NotFound` is told only by who knows: a volume that a server does not have, or has offline, may be elsewhere or come
//! back, and what is held of it shall not be given up. So that is silence, as if the server were not there.

mod tables;

use std::fmt;

use weft_remote::RemoteError;

use tables::{ERRNOS, Row, TABLES, VOLUMES};

/// The code of an abort, of whatever server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AbortCode(pub i32);

/// What to do after an abort. Each can be done only so often, and not at all for a change that may have been made; then
/// [`AbortCode::error`] is the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing: the code is the answer.
    GiveUp,
    /// Ask an older call for the same.
    OlderCall,
    /// Open another connection to the same server, and ask again.
    Reconnect,
    /// The server cannot be talked to at this address: another of its addresses, then another site.
    NextAddress,
    /// Another site, or another database server.
    NextSite,
    /// Ask the VLDB where the volume is, and go there; else another site.
    AskVldb,
    /// Another site of a read-only volume; else wait, and ask again.
    Wait,
    /// The token is of no use any more: ask again without it, or tell its owner.
    DropToken,
    /// The token is not understood, or a packet was changed on its way (`doubt.rs`).
    DoubtToken,
}

/// Kinds of [`RemoteError`], without their words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    NotFound,
    Denied,
    NotADirectory,
    IsADirectory,
    BadName,
    Exists,
    NotEmpty,
    NoSpace,
    OverQuota,
    OtherTree,
    TooMuch,
    Invalid,
    ReadOnly,
    Unsupported,
    Loop,
    Unreachable,
    TimedOut,
    Busy,
    Damaged,
    Failed,
}

impl AbortCode {
    /// What to do next.
    #[must_use]
    pub fn next(self) -> Next {
        self.look_up().next
    }

    /// The contract's error. `what` names the thing and who was asked for it.
    #[must_use]
    pub fn error(self, what: &str) -> RemoteError {
        let detail = format!("{what}: {self}");
        match self.look_up().means {
            Means::NotFound => RemoteError::NotFound { detail },
            Means::Denied => RemoteError::Denied { detail },
            Means::NotADirectory => RemoteError::NotADirectory { detail },
            Means::IsADirectory => RemoteError::IsADirectory { detail },
            Means::BadName => RemoteError::BadName { detail },
            Means::Exists => RemoteError::Exists { detail },
            Means::NotEmpty => RemoteError::NotEmpty { detail },
            Means::NoSpace => RemoteError::NoSpace { detail },
            Means::OverQuota => RemoteError::OverQuota { detail },
            Means::OtherTree => RemoteError::OtherTree { detail },
            Means::TooMuch => RemoteError::TooMuch { detail },
            Means::Invalid => RemoteError::Invalid { detail },
            Means::ReadOnly => RemoteError::ReadOnly { detail },
            Means::Unsupported => RemoteError::Unsupported { detail },
            Means::Loop => RemoteError::Loop { detail },
            Means::Unreachable => RemoteError::Unreachable { detail },
            Means::TimedOut => RemoteError::TimedOut { detail },
            Means::Busy => RemoteError::Busy { detail, retry_after: None },
            Means::Damaged => RemoteError::Damaged { detail },
            Means::Failed => RemoteError::Failed { detail },
        }
    }

    /// The row of this code, or the one for others of its range.
    fn look_up(self) -> &'static Row {
        let code = self.0;
        if let Some(row) = VOLUMES.iter().chain(ERRNOS).find(|row| row.code == code) {
            return row;
        }
        if code < 0 {
            return &tables::OTHER_RX;
        }
        let table = TABLES.iter().find(|table| table.holds(code));
        table.map_or(&tables::OTHER, |table| table.row(code))
    }
}

/// The code's name, its words, and the number.
impl fmt::Display for AbortCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Row { name, words, .. } = self.look_up();
        match *words {
            "" => write!(f, "the server says {name} (abort {})", self.0),
            words => write!(f, "{words} ({name}, abort {})", self.0),
        }
    }
}

#[cfg(test)]
#[path = "abort_tests.rs"]
mod tests;
