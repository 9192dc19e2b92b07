//! Whether what is held serves although its lease has ended.
//!
//! Four reasons, and none of them is silent: the figure `served_stale` counts, `why` and `user.weft.state` tell.
//!
//! * The user's word: `weft offline` (under every policy), `weft offline --fetch-only`.
//! * The source is fetch-only: for a while it has answered nothing but "not now" (not under `always`).
//! * The source is silent: not under `always`, and under `http` not where the answer itself forbids it
//!   (RFC 9111 section 4.2.4: `must-revalidate`, `no-cache`, `no-store`), unless `stale_if_error` says so.
//! * The source answers with an error that may pass: for as long as the stored answer allows (RFC 5861 section 4) or
//!   `stale_if_error` says, counted from the end of the lease.

use std::time::{Duration, SystemTime};

use weft_remote::{FileKind, Lease, Source, SourceState, Stale, clock};

use weft_store::NodeId;

use crate::VfsError;
use crate::breaks::BREAKABLE_TTL_MAX;
use crate::freshness::Freshness;
use crate::inode::Inode;
use crate::offline::Mode;
use crate::vfs::Vfs;

impl Vfs {
    /// How much longer something of an inode, with this lease and learnt then, is used without asking.
    pub(crate) fn trusted_for(&self, inode: &Inode, lease: &Lease, learnt: SystemTime, now: SystemTime) -> Duration {
        self.trusted_about(inode, inode.id, lease, learnt, now)
    }

    /// The same of something about another node of the same source, such as what a name leads to.
    pub(crate) fn trusted_about(
        &self,
        inode: &Inode,
        about: NodeId,
        lease: &Lease,
        learnt: SystemTime,
        now: SystemTime,
    ) -> Duration {
        let left = self.lease_left(inode, about, lease, learnt, now);
        if !left.is_zero() || learnt == SystemTime::UNIX_EPOCH || !self.is_fetch_only(inode) {
            return left;
        }
        crate::figures::count(&self.figures.served_stale);
        FETCH_ONLY_TTL
    }

    /// What is left of a lease on something about a node, in the tree of `inode`.
    pub(crate) fn lease_left(
        &self,
        inode: &Inode,
        about: NodeId,
        lease: &Lease,
        learnt: SystemTime,
        now: SystemTime,
    ) -> Duration {
        let left = inode.freshness.remaining(lease, learnt, now);
        let binding = inode.record.read().binding;
        if left.is_zero() || !self.is_breakable(binding) {
            return left;
        }
        if self.is_broken(binding, about, learnt) { Duration::ZERO } else { left.min(BREAKABLE_TTL_MAX) }
    }

    /// Whether what is held of an inode is used as if its lease lasted.
    pub(crate) fn is_fetch_only(&self, inode: &Inode) -> bool {
        match self.mode_of(inode) {
            Some(Mode::FetchOnly) => true,
            Some(Mode::Offline) => false,
            None => inode.freshness.serves_stale() && self.source_state(inode) == SourceState::FetchOnly,
        }
    }

    /// How the source of an inode is.
    pub(crate) fn source_state(&self, inode: &Inode) -> SourceState {
        self.source(inode).map_or(SourceState::Connected, |source| source.state)
    }

    /// The source that holds a file or directory, where its kind has several and this one was used.
    pub(crate) fn source(&self, inode: &Inode) -> Option<Source> {
        let (binding, file) = {
            let record = inode.record.read();
            (record.binding, record.file.clone())
        };
        self.remote(binding).ok().and_then(|remote| remote.source(&file))
    }

    /// Whether what is held of an inode under this lease, learnt then, serves although its source gave this error.
    pub(crate) fn serves_after(&self, inode: &Inode, lease: &Lease, learnt: SystemTime, error: &VfsError) -> bool {
        if matches!(error, VfsError::Offline) {
            return true;
        }
        if !inode.freshness.serves_stale() {
            return false;
        }
        let stale = lease.stale();
        let by_policy = || self.stale_if_error(inode).is_some_and(|time| within(lease, learnt, time));
        if error.is_silence() {
            let forbidden = inode.freshness == Freshness::Http && stale == Stale::Forbidden;
            return !forbidden || by_policy();
        }
        let VfsError::Remote(remote) = error else { return false };
        if !remote.may_pass() {
            return false;
        }
        match stale {
            Stale::Allowed { seconds } if within(lease, learnt, Duration::from_secs(u64::from(seconds))) => true,
            _ => by_policy(),
        }
    }

    /// The same for names and attributes: which there are, and how long they are, is told of a silent source even where
    /// the answer forbids to use its content unchecked.
    pub(crate) fn names_serve_after(&self, inode: &Inode, lease: &Lease, learnt: SystemTime, error: &VfsError) -> bool {
        (error.is_silence() && inode.freshness.serves_stale()) || self.serves_after(inode, lease, learnt, error)
    }

    /// The error of its source, and when it came, in spite of which what is held of an inode under this lease, learnt
    /// then, is used.
    pub(crate) fn served_since(
        &self,
        inode: &Inode,
        lease: &Lease,
        learnt: SystemTime,
    ) -> Option<(SystemTime, VfsError)> {
        let (at, error) = inode.content.lock().last_error.clone().filter(|(at, _)| *at > learnt)?;
        let serves = match inode.kind() {
            FileKind::Directory => self.names_serve_after(inode, lease, learnt, &error),
            _ => self.serves_after(inode, lease, learnt, &error),
        };
        serves.then_some((at, error))
    }

    /// What the configuration says for the path of an inode.
    pub(crate) fn stale_if_error(&self, inode: &Inode) -> Option<Duration> {
        let path = self.path_of(inode.id).unwrap_or_default();
        self.options.policies.stale_if_error(&path)
    }
}

/// Whether a lease ended at most `time` ago. One that promised nothing ended when it was given.
fn within(lease: &Lease, learnt: SystemTime, time: Duration) -> bool {
    let end = lease.end().unwrap_or(learnt);
    clock::now().duration_since(end).is_ok_and(|since| since <= time) || end > clock::now()
}

/// How long the kernel keeps what is used although nobody confirms it.
const FETCH_ONLY_TTL: Duration = Duration::from_secs(1);
