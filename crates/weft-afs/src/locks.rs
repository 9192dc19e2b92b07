//! Locks of whole files at their servers: for all users of this mount together, kept alive until they are given back.
//!
//! A server lends a lock for 300 s and does not know whose it is (a count of readers, or one writer), so none may be given back
//! that is not held. Nobody waits at a server: what is in the way is told at once. There is no way from one kind of lock to
//! the other: what is held is given back before, and taken again when the other cannot be had.

use std::collections::HashMap;
use std::sync::Weak;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use weft_remote::{Call, Caller, LockMode, RemoteError, Result};

use crate::access::Operation;
use crate::afs::Shared;
use crate::identity::Spot;
use crate::look::shown;
use crate::releases::Release;
use crate::volume_name::VolumeType;
use crate::wire::fileserver::{ExtendLock, LOCK_READ, LOCK_S, LOCK_WRITE, ReleaseLock, SetLock};

/// The locks that are held, each for one way to its file. Held for one look or one change.
pub(crate) type Locks = Mutex<HashMap<Spot, Lent>>;

/// A lock that a server has lent.
#[derive(Clone, Debug)]
pub(crate) struct Lent {
    mode: LockMode,
    /// For whom.
    caller: Caller,
    since: Instant,
}

/// Extends locks for as long as there is a tree.
pub(crate) async fn keep(tree: Weak<Shared>) {
    loop {
        tokio::time::sleep(EXTEND_PAUSE).await;
        let Some(shared) = tree.upgrade() else { return };
        shared.keep_due().await;
    }
}

impl Shared {
    /// See [`Remote::lock`](weft_remote::Remote::lock).
    pub async fn lock(&self, call: &Call, spot: &Spot, from: LockMode, to: LockMode) -> Result<()> {
        if from == to {
            // Whatever comes of asking: what a former daemon has taken is given back in the end.
            self.note_lent(call.caller, spot, to);
        }
        if self.is_of_a_copy(call, spot).await? {
            self.forget_lent(spot);
            return Ok(());
        }
        if from == to {
            return self.keep(call, spot, to).await;
        }
        let was_lent = from > LockMode::Unlocked && self.forget_lent(spot);
        if was_lent {
            self.give_back(call, spot).await?;
        }
        if to == LockMode::Unlocked {
            return Ok(());
        }
        match self.take(call, spot, to).await {
            Err(RemoteError::Denied { .. }) if to == LockMode::Shared => {
                tracing::debug!(file = shown(spot), "without the right to lock it there, a file is locked here alone");
                Ok(())
            }
            // Nobody has a lock of it any more.
            Err(error @ RemoteError::NotFound { .. }) => Err(error),
            Err(error) => {
                if was_lent && let Err(error) = self.take(call, spot, from).await {
                    tracing::debug!(%error, file = shown(spot), "a lock is lost: somebody else was quicker");
                    return Err(RemoteError::VersionChanged { detail: format!("{}: the lock is lost", shown(spot)) });
                }
                Err(error)
            }
            Ok(()) => Ok(()),
        }
    }

    /// See [`Remote::locked_by_others`](weft_remote::Remote::locked_by_others). A server counts its locks in the status of a
    /// file (`lockCount`: readers, or -1 for a writer; `GetStatus` of OpenAFS's file server), those as well that nobody has
    /// given back in time and that it would lend anew.
    pub async fn locked_by_others(&self, call: &Call, spot: &Spot) -> Result<LockMode> {
        if self.is_of_a_copy(call, spot).await? {
            return Ok(LockMode::Unlocked);
        }
        let count = self.status(call, spot).await?.status.lock_count;
        let lent = self.locks.lock().get(spot).map_or(LockMode::Unlocked, |lent| lent.mode);
        Ok(match (count, lent) {
            (0, _) | (..0, LockMode::Exclusive) | (1, LockMode::Shared) => LockMode::Unlocked,
            (..0, _) => LockMode::Exclusive,
            (1.., _) => LockMode::Shared,
        })
    }

    /// Whether a file is of a read-only copy of a volume: nobody changes that, or locks it.
    async fn is_of_a_copy(&self, call: &Call, spot: &Spot) -> Result<bool> {
        let volume = self.files.vldb.by_id(call, &spot.cell, spot.fid.volume).await?;
        Ok(volume.entry.kind_of(spot.fid.volume).is_some_and(|kind| kind != VolumeType::ReadWrite))
    }

    /// Extends the locks that are due.
    async fn keep_due(&self) {
        let due: Vec<(Spot, Lent)> = {
            let locks = self.locks.lock();
            let due = locks.iter().filter(|(_, lent)| lent.since.elapsed() >= EXTEND_AFTER);
            due.map(|(spot, lent)| (spot.clone(), lent.clone())).collect()
        };
        for (spot, Lent { mode, caller, .. }) in due {
            let call = Call::within(caller, EXTEND_PATIENCE);
            if let Err(error) = self.keep(&call, &spot, mode).await {
                tracing::warn!(%error, file = shown(&spot), "a lock may be lost: it could not be extended");
            }
        }
    }

    async fn take(&self, call: &Call, spot: &Spot, mode: LockMode) -> Result<()> {
        let kind = if mode == LockMode::Exclusive { LOCK_WRITE } else { LOCK_READ };
        let question = SetLock { fid: spot.fid, kind };
        let needs = if mode == LockMode::Exclusive { Operation::LockWrite } else { Operation::LockRead };
        // Taken twice, a reader's lock would be counted twice.
        self.ask_if_allowed(call, &[(spot, needs)], self.tell_lock(call, spot, &question)).await?;
        self.note_lent(call.caller, spot, mode);
        // Who had it before has stored what was written, and its server has told us: that counts before anybody here goes
        // on. A call that waits for that longer than it may has the lock all the same, and whoever asks is told late.
        if tokio::time::timeout_at(call.deadline.into(), self.news.all_heard()).await.is_err() {
            tracing::warn!(file = shown(spot), "a lock is taken before all is heard that came before it");
        }
        Ok(())
    }

    async fn give_back(&self, call: &Call, spot: &Spot) -> Result<()> {
        match self.tell_lock(call, spot, &ReleaseLock { fid: spot.fid }).await {
            // It has ended by its time, or with its file.
            Err(RemoteError::NotFound { .. } | RemoteError::Invalid { .. } | RemoteError::Busy { .. }) => Ok(()),
            outcome => outcome,
        }
    }

    /// Has a lock that is held last for another while; takes it anew where its server has forgotten it.
    async fn keep(&self, call: &Call, spot: &Spot, mode: LockMode) -> Result<()> {
        match self.tell_lock(call, spot, &ExtendLock { fid: spot.fid }).await {
            Ok(()) => {
                if let Some(lent) = self.locks.lock().get_mut(spot) {
                    lent.since = Instant::now();
                }
                Ok(())
            }
            Err(error @ (RemoteError::Unreachable { .. } | RemoteError::TimedOut { .. })) => Err(error),
            // Its file was removed, and nobody elsewhere can have a lock of that.
            Err(RemoteError::NotFound { .. }) => {
                self.forget_lent(spot);
                Ok(())
            }
            // Anything else says that there is no such lock: its server began anew, or the volume is on another.
            Err(_) => {
                self.forget_lent(spot);
                self.take(call, spot, mode).await
            }
        }
    }

    async fn tell_lock<C>(&self, call: &Call, spot: &Spot, question: &C) -> Result<()>
    where
        C: crate::wire::Call + Sync,
    {
        let place = (&spot.cell, spot.fid.volume);
        self.files
            .change(call, place, &shown(spot), (question, |_| Release::Untold), &|| Box::new(std::iter::empty()))
            .await
            .map(drop)
    }

    fn note_lent(&self, caller: Caller, spot: &Spot, mode: LockMode) {
        self.locks.lock().insert(spot.clone(), Lent { mode, caller, since: Instant::now() });
    }

    fn forget_lent(&self, spot: &Spot) -> bool {
        self.locks.lock().remove(spot).is_some()
    }
}

/// How old a lock is when it is extended: servers lend it for 300 s.
const EXTEND_AFTER: Duration = Duration::from_secs(LOCK_S / 3);
/// How often is looked for such.
const EXTEND_PAUSE: Duration = Duration::from_secs(10);
/// How long a server may take to extend one.
const EXTEND_PATIENCE: Duration = Duration::from_secs(30);
