//! On whose behalf a remote is asked, and until when an answer is of use.

use std::time::{Duration, Instant, SystemTime};

/// The local user behind a request, as the kernel names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Caller {
    /// User id that the file system calls were made with.
    pub uid: u32,
    /// Group id that the file system calls were made with.
    pub gid: u32,
    /// Process id; 0 where there is none (work of the daemon's own).
    pub pid: u32,
}

impl Caller {
    /// The daemon itself: prefetch, revalidation, tests.
    pub const DAEMON: Caller = Caller { uid: 0, gid: 0, pid: 0 };
}

/// What an answer is wanted for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// A program waits for it.
    #[default]
    Use,
    /// It is fetched ahead, by a program that goes through a tree. A remote that is told to come back later says so at
    /// once instead of waiting.
    Ahead,
}

/// The frame of one call to a remote.
///
/// A remote gives up at the deadline with [`RemoteError::TimedOut`](crate::RemoteError::TimedOut); dropping the
/// call's future cancels the work.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Who asks.
    pub caller: Caller,
    /// When it began: no answer to it is of before then.
    pub begun: SystemTime,
    /// When the answer is no longer of use.
    pub deadline: Instant,
    /// What for.
    pub purpose: Purpose,
}

impl Call {
    /// A call that may take `limit` from now.
    pub fn within(caller: Caller, limit: Duration) -> Call {
        Call { caller, begun: SystemTime::now(), deadline: Instant::now() + limit, purpose: Purpose::Use }
    }

    /// The same call, made ahead of any use.
    pub fn ahead(self) -> Call {
        Call { purpose: Purpose::Ahead, ..self }
    }

    /// Time left, zero when the deadline has passed.
    pub fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}
