//! On whose behalf a remote is asked, and until when an answer is of use.

use std::time::{Duration, Instant, SystemTime};

use crate::clock;

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

    /// Whether the caller is in a group: a request names one of the groups that somebody is in, and its thread the others, as long
    /// as it is there to be asked (proc_pid_status(5): `Groups`).
    pub fn is_in(&self, group: u32) -> bool {
        self.gid == group || (self.pid != 0 && self.others().contains(&group))
    }

    fn others(&self) -> Vec<u32> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
        groups.split_ascii_whitespace().filter_map(|group| group.parse().ok()).collect()
    }
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
    /// Somebody wants to see what is there now, whatever was told of changes.
    Anew,
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
        Call { caller, begun: clock::now(), deadline: Instant::now() + limit, purpose: Purpose::Use }
    }

    /// The same call, made ahead of any use.
    pub fn ahead(self) -> Call {
        Call { purpose: Purpose::Ahead, ..self }
    }

    /// The same call, by somebody who wants to see what is there now.
    pub fn anew(self) -> Call {
        Call { purpose: Purpose::Anew, ..self }
    }

    /// The same call, which may take `limit` from now: what it waited for had deadlines of its own.
    pub fn renewed(self, limit: Duration) -> Call {
        Call { deadline: Instant::now() + limit, ..self }
    }

    /// Time left, zero when the deadline has passed.
    pub fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_asks_is_in_the_groups_of_its_thread() {
        let (gid, pid) = (u32::MAX - 1, std::process::id());
        let caller = Caller { uid: 1, gid, pid };
        let own = std::fs::read_to_string("/proc/self/status").expect("there is /proc");
        let told = own.lines().find_map(|line| line.strip_prefix("Groups:")).expect("it is told");
        let groups: Vec<u32> = told.split_whitespace().map(|group| group.parse().expect("a number")).collect();
        assert!(caller.is_in(gid) && groups.iter().all(|group| caller.is_in(*group)));
        let foreign = (0..).find(|group| !groups.contains(group)).expect("there is one");
        assert!(!caller.is_in(foreign));
        assert!(groups.iter().all(|group| !Caller { pid: 0, ..caller }.is_in(*group)), "nobody is there to be asked");
    }
}
