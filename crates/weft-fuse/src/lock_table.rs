//! The locks of all files, and what their sources have of them.
//!
//! What programs of this machine have of a file decides among them; its source has the strongest of it, for the whole file,
//! so that other machines are kept out. The source is asked when more is needed than it has, and told when nobody here has
//! anything any more: what it has is not made weaker before, for that could not be done without a gap.
//!
//! When more was needed, what the source had may be lost to somebody else, who may have written. Those who had any of it go
//! on with what they have read, and nobody here gets anything more until all of them have given it back: a lock that was
//! had anew would show a file of another version to who relies on the first.
//!
//! A lock is entered before its source is asked, so that nobody here gets in between, and taken back when the source refuses
//! or nobody waits any more. What owners have is on the [roll](crate::roll), so that locks outlive the daemon: from when the
//! source has it until right before that is asked to give it back, and nothing that they only wait for. For a source that
//! knows no owners would let the next daemon keep what is somebody else's.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno as E;
use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedMutexGuard};
use weft_remote::{Caller, LockMode};
use weft_vfs::{HandleId, LockChange, NodeId, OpenRecord};

use crate::Errno;
use crate::changes::Changes;
use crate::handler::{Answer, SourceLocks};
use crate::lock_waits::{Blocked, Waiting};
use crate::locks::{END, Family, FileLocks, Held, Owner};
use crate::roll::Roll;

/// The locks of a mount.
pub(crate) struct LockTable<S> {
    sources: Arc<S>,
    roll: Arc<Roll>,
    runtime: Handle,
    /// Files with locks. Held for one look or one change.
    files: Mutex<HashMap<NodeId, Arc<File>>>,
    /// Requests that wait for others' locks.
    waiting: AtomicUsize,
    /// Which owner of POSIX locks waits for which. Held for one look or one change.
    blocked: Mutex<HashMap<u64, u64>>,
    /// What sources are asked to change.
    changes: Changes,
}

/// A file with locks.
struct File {
    node: NodeId,
    /// Held for one look or one change.
    state: Mutex<State>,
    /// Only one at a time changes what the source has.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Some lock was given back.
    given_back: Notify,
}

#[derive(Default)]
struct State {
    locks: FileLocks,
    /// What the source has, and in whose name.
    at_source: Option<(LockMode, Caller)>,
    /// Whose locks are on the roll.
    on_roll: HashSet<Owner>,
}

impl State {
    /// What an owner has, also at the source.
    fn had_by(&self, owner: Owner) -> Vec<Held> {
        let strongest = self.at_source.map_or(LockMode::Unlocked, |(mode, _)| mode);
        let mut had = self.locks.of(owner);
        had.retain(|held| held.mode() <= strongest);
        had
    }
}

/// How long somebody waits for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Not at all.
    None,
    /// Until it can be had.
    Endless,
}

impl<S: SourceLocks> LockTable<S> {
    pub fn new(sources: Arc<S>, roll: Arc<Roll>, runtime: Handle) -> LockTable<S> {
        LockTable {
            sources,
            roll,
            runtime,
            files: Mutex::default(),
            waiting: AtomicUsize::default(),
            blocked: Mutex::default(),
            changes: Changes::default(),
        }
    }

    /// What sources are asked to change, for who is to wait for that.
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// What keeps somebody from having these bytes, as far as this machine knows.
    pub fn in_the_way(&self, node: NodeId, wanted: &Held) -> Option<Held> {
        let file = self.files.lock().get(&node).cloned()?;
        let state = file.state.lock();
        state.locks.in_the_way(wanted)
    }

    /// What other machines have in the way of these bytes, by the word of the source. That knows of whole files alone, and so
    /// it is not told of readers where part of a file is asked about: they may have read another, and a database that is told
    /// that somebody has a byte takes that for work that goes on.
    ///
    /// # Errors
    /// What the source says.
    pub async fn in_the_way_elsewhere(
        self: Arc<Self>,
        caller: Caller,
        node: NodeId,
        wanted: Held,
    ) -> Answer<Option<LockMode>> {
        let file = self.files.lock().get(&node).cloned();
        // What is ours is not to be taken for another's while it changes.
        let _turn = match &file {
            Some(file) => Some(file.turn.lock().await),
            None => None,
        };
        let others = self.sources.locked_by_others(caller, node).await?;
        let is_in_the_way = match others {
            LockMode::Unlocked => false,
            LockMode::Shared => wanted.exclusive && (wanted.start, wanted.end) == WHOLE,
            LockMode::Exclusive => true,
        };
        Ok(is_in_the_way.then_some(others))
    }

    /// Gives somebody these bytes.
    ///
    /// # Errors
    /// `EAGAIN` when somebody has them and there is no patience; `EDEADLK` when those whom it would wait for wait for it, or
    /// when what its process has of the file is lost; `ENOLCK` when there are too many; what the source says.
    pub async fn take(self: Arc<Self>, caller: Caller, node: NodeId, wanted: Held, patience: Patience) -> Answer<()> {
        let file = self.file(node);
        let _waiting = match patience {
            Patience::None => None,
            Patience::Endless => Some(Waiting::enter(&self.waiting)?),
        };
        let mut entered = self.enter(&file, wanted, patience).await?;
        let mut pause = SOURCE_PAUSE_MIN;
        loop {
            match self.clone().settle(file.clone(), caller).await {
                Err(Errno(E::AGAIN)) if patience == Patience::Endless => {
                    entered.may_wait()?;
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(SOURCE_PAUSE_MAX);
                }
                Err(errno) => return Err(errno),
                Ok(()) => break,
            }
        }
        self.enter_on_roll(&file, &[wanted.owner]);
        entered.stays();
        Ok(())
    }

    /// Takes these bytes from somebody. What was written under the lock is at the source when this returns, as far as that
    /// takes it.
    pub async fn give_back(self: Arc<Self>, caller: Caller, node: NodeId, bytes: Held) {
        let Some(file) = self.files.lock().get(&node).cloned() else { return };
        if file.state.lock().locks.give_back(&bytes) {
            self.gave_back(file, caller, &[bytes.owner]).await;
        }
    }

    /// A process closes a descriptor of a file: it loses what it has of it by fcntl(2).
    pub async fn closed_by(self: Arc<Self>, caller: Caller, node: NodeId, process: u64) {
        let owner = Owner { family: Family::Posix, number: process };
        self.give_back_where(caller, node, |held| held.owner == owner).await;
    }

    /// Nobody has an open file any more: what was taken by it is given back.
    pub async fn released(self: Arc<Self>, caller: Caller, node: NodeId, handle: u64) {
        self.give_back_where(caller, node, |held| held.handle == handle).await;
    }

    /// Whether there are locks on a file.
    pub fn has(&self, node: NodeId) -> bool {
        self.files.lock().contains_key(&node)
    }

    /// What an owner had when a former daemon ended. After the last of these comes [`LockTable::keep_restored`].
    pub fn restore(&self, node: NodeId, held: &[Held]) {
        let Some(first) = held.first() else { return };
        let file = self.file(node);
        let mut state = file.state.lock();
        held.iter().for_each(|held| state.locks.take(*held));
        state.on_roll.extend(held.iter().map(|held| held.owner));
        let mode = state.locks.strongest();
        let caller = state.at_source.map_or(Caller { uid: first.uid, gid: first.gid, pid: first.pid }, |(_, by)| by);
        state.at_source = Some((mode, caller));
    }

    /// Asks the sources to keep what they have for what was restored. Before anything else is asked for: a source is told
    /// first of all that it has a lock of this mount, or would have nothing to take back.
    pub fn keep_restored(self: &Arc<Self>) {
        for file in self.files.lock().values() {
            let turn = file.turn.clone().try_lock_owned().ok();
            self.runtime.spawn(self.clone().keep(file.clone(), turn));
        }
    }

    /// Has the source keep what a former daemon had. While it is not reached, it has it.
    async fn keep(self: Arc<Self>, file: Arc<File>, mut first: Option<OwnedMutexGuard<()>>) {
        let Some((mode, caller)) = file.state.lock().at_source else { return };
        let again = LockChange { from: mode, to: mode, had_by: Vec::new() };
        loop {
            let turn = match first.take() {
                Some(turn) => turn,
                None => file.turn.clone().lock_owned().await,
            };
            let changing = self.changes.begin().await;
            if file.state.lock().at_source != Some((mode, caller)) {
                return;
            }
            match self.sources.lock(caller, file.node, again.clone(), |_| {}).await {
                Ok(turned) => return self.renew(&turned),
                Err(Errno(E::TIMEDOUT | E::HOSTUNREACH | E::NETDOWN)) => {}
                Err(errno) => {
                    self.lose(&file);
                    tracing::warn!(?errno, node = ?file.node, "a lock that a former daemon had is lost at the source");
                    return;
                }
            }
            drop((turn, changing));
            tokio::time::sleep(SOURCE_PAUSE_MAX).await;
        }
    }

    async fn give_back_where(self: Arc<Self>, caller: Caller, node: NodeId, ends: impl Fn(&Held) -> bool) {
        let Some(file) = self.files.lock().get(&node).cloned() else { return };
        let owners = file.state.lock().locks.give_back_all(ends);
        if !owners.is_empty() {
            self.gave_back(file, caller, &owners).await;
        }
    }

    async fn gave_back(self: Arc<Self>, file: Arc<File>, caller: Caller, owners: &[Owner]) {
        file.given_back.notify_waiters();
        if let Err(errno) = self.clone().settle(file.clone(), caller).await {
            tracing::debug!(?errno, "a lock is not given back at the source");
        }
        self.enter_on_roll(&file, owners);
        self.forget(&file);
    }

    /// Enters a lock as soon as nothing here is in its way.
    async fn enter(self: &Arc<Self>, file: &Arc<File>, wanted: Held, patience: Patience) -> Answer<Entered<S>> {
        loop {
            let given_back = file.given_back.notified();
            tokio::pin!(given_back);
            given_back.as_mut().enable();
            let blocking = {
                let mut state = file.state.lock();
                if state.locks.count() >= LOCKS_OF_A_FILE_MAX {
                    return Err(Errno(E::NOLCK));
                }
                let Some(blocking) = state.locks.in_the_way(&wanted) else {
                    let had = state.locks.of(wanted.owner);
                    state.locks.take(wanted);
                    return Ok(Entered {
                        table: self.clone(),
                        file: file.clone(),
                        owner: wanted.owner,
                        had: Some(had),
                    });
                };
                // Who waits to change a lock of flock(2) has none meanwhile: two who share would wait for each other.
                if patience == Patience::Endless
                    && wanted.owner.family == Family::Flock
                    && state.locks.give_back(&wanted)
                {
                    drop(state);
                    self.enter_on_roll(file, &[wanted.owner]);
                    file.given_back.notify_waiters();
                }
                blocking
            };
            if patience == Patience::None {
                return Err(Errno(E::AGAIN));
            }
            let _blocked = match wanted.owner.family {
                Family::Posix => Some(Blocked::enter(&self.blocked, wanted.owner.number, blocking.owner.number)?),
                Family::Flock => None,
            };
            given_back.await;
        }
    }

    /// Has the source have what is needed. Goes on to its end also when nobody waits.
    async fn settle(self: Arc<Self>, file: Arc<File>, caller: Caller) -> Answer<()> {
        let runtime = self.runtime.clone();
        let settled = runtime.spawn(async move {
            let _turn = file.turn.lock().await;
            let _changing = self.changes.begin().await;
            let (has, needed, had_by) = {
                let state = file.state.lock();
                if state.locks.has_lost() {
                    return Err(Errno(E::AGAIN));
                }
                (state.at_source, state.locks.strongest(), state.locks.handles())
            };
            let from = has.map_or(LockMode::Unlocked, |(mode, _)| mode);
            if needed <= from && (needed > LockMode::Unlocked || from == LockMode::Unlocked) {
                self.forget(&file);
                return Ok(());
            }
            let caller = has.map_or(caller, |(_, caller)| caller);
            let changes = {
                let (table, file) = (self.clone(), file.clone());
                move |has: LockMode| table.has_at_source(&file, (has > LockMode::Unlocked).then_some((has, caller)))
            };
            let change = LockChange { from, to: needed, had_by: had_by.into_iter().map(HandleId).collect() };
            let settled = match self.sources.lock(caller, file.node, change, changes).await {
                // Somebody else was quicker, and may have changed it.
                Err(Errno(E::STALE)) if from > LockMode::Unlocked => {
                    self.lose(&file);
                    Err(Errno(E::AGAIN))
                }
                Err(errno) if from == LockMode::Unlocked || needed == LockMode::Unlocked => {
                    self.has_at_source(&file, None);
                    Err(errno)
                }
                settled => settled,
            };
            self.forget(&file);
            settled.map(|turned| self.renew(&turned))
        });
        settled.await.unwrap_or(Err(Errno(E::IO)))
    }

    /// The source has nothing any more of what is had here: the next daemon must not have it kept there.
    fn lose(&self, file: &File) {
        file.state.lock().locks.lose();
        self.has_at_source(file, None);
    }

    /// The source has this from now on.
    fn has_at_source(&self, file: &File, has: Option<(LockMode, Caller)>) {
        let owners: Vec<Owner> = {
            let mut state = file.state.lock();
            state.at_source = has;
            let mut owners = state.on_roll.clone();
            owners.extend(state.locks.owners());
            owners.into_iter().collect()
        };
        self.enter_on_roll(file, &owners);
    }

    /// Enters on the roll what these owners have at the source.
    fn enter_on_roll(&self, file: &File, owners: &[Owner]) {
        let mut state = file.state.lock();
        for owner in owners {
            let had = state.had_by(*owner);
            let was_there = match had.is_empty() {
                true => state.on_roll.remove(owner),
                false => !state.on_roll.insert(*owner),
            };
            if was_there || !had.is_empty() {
                self.roll.enter_locks(file.node.0, *owner, &had);
            }
        }
    }

    fn renew(&self, turned: &[(HandleId, OpenRecord)]) {
        turned.iter().for_each(|(handle, record)| self.roll.renew_file(handle.0, record));
    }

    fn file(&self, node: NodeId) -> Arc<File> {
        let new = || {
            let (state, turn, given_back) = Default::default();
            Arc::new(File { node, state, turn, given_back })
        };
        self.files.lock().entry(node).or_insert_with(new).clone()
    }

    /// Forgets a file that nobody has locked.
    fn forget(&self, file: &Arc<File>) {
        let mut files = self.files.lock();
        let is_idle = {
            let state = file.state.lock();
            state.locks.count() == 0 && state.at_source.is_none()
        };
        // Who else has it from the table may be about to lock it.
        if is_idle && Arc::strong_count(file) <= 2 {
            files.remove(&file.node);
        }
    }
}

/// A lock that is entered, and taken back unless it stays.
struct Entered<S: SourceLocks> {
    table: Arc<LockTable<S>>,
    file: Arc<File>,
    owner: Owner,
    /// What the owner had before.
    had: Option<Vec<Held>>,
}

impl<S: SourceLocks> Entered<S> {
    fn stays(mut self) {
        self.had = None;
    }

    /// Whether its owner may wait until the source has it: `EDEADLK` when that relies on what is lost, for it would wait for
    /// itself to give that back. Who changes a lock of flock(2) relies on nothing.
    fn may_wait(&mut self) -> Answer<()> {
        let mut state = self.file.state.lock();
        if !state.locks.is_lost(self.owner) {
            return Ok(());
        }
        if self.owner.family == Family::Posix && self.had.as_ref().is_some_and(|had| !had.is_empty()) {
            return Err(Errno(E::DEADLK));
        }
        state.locks.begin_anew(self.owner);
        self.had = Some(Vec::new());
        Ok(())
    }
}

impl<S: SourceLocks> Drop for Entered<S> {
    fn drop(&mut self) {
        let Some(had) = self.had.take() else { return };
        self.file.state.lock().locks.restore(self.owner, &had);
        let (table, file, owner) = (self.table.clone(), self.file.clone(), self.owner);
        self.table.runtime.spawn(async move { table.gave_back(file, DAEMON, &[owner]).await });
    }
}

/// The whole file, as flock(2) locks it.
pub(crate) const WHOLE: (u64, u64) = (0, END);
/// Nobody who asks: what is done for those who have gone.
const DAEMON: Caller = Caller::DAEMON;
/// Locks of one file; more are refused.
const LOCKS_OF_A_FILE_MAX: usize = 4096;
/// How long is waited before a source is asked again for a lock that somebody else has.
const SOURCE_PAUSE_MIN: Duration = Duration::from_millis(50);
const SOURCE_PAUSE_MAX: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    /// A source that grants what it is asked for, and what that was.
    #[derive(Default)]
    struct Asked(Mutex<Vec<(LockMode, LockMode)>>);

    impl SourceLocks for Asked {
        fn lock(
            &self,
            _: Caller,
            _: NodeId,
            LockChange { from, to, .. }: LockChange,
            mut changes: impl FnMut(LockMode) + Send + 'static,
        ) -> impl Future<Output = Answer<Vec<(HandleId, OpenRecord)>>> + Send + 'static {
            self.0.lock().push((from, to));
            changes(to);
            ready(Ok(Vec::new()))
        }

        fn locked_by_others(&self, _: Caller, _: NodeId) -> impl Future<Output = Answer<LockMode>> + Send + 'static {
            ready(Ok(LockMode::Unlocked))
        }
    }

    /// Goal: what a former daemon had is kept before it is given back: a source would not take back what it does not know
    /// this mount to have. Method: before anything else can run, it is nobody else's turn.
    #[tokio::test]
    async fn what_was_restored_is_kept_before_it_is_given_back() {
        let sources = Arc::<Asked>::default();
        let table = Arc::new(LockTable::new(sources.clone(), Arc::new(Roll::nowhere()), Handle::current()));
        let owner = Owner { family: Family::Flock, number: 1 };
        let (start, end) = WHOLE;
        let held = Held { owner, start, end, exclusive: true, pid: 1, uid: 0, gid: 0, handle: 7 };
        table.restore(NodeId(5), &[held]);
        table.keep_restored();
        assert!(table.file(NodeId(5)).turn.try_lock().is_err(), "somebody could come before");
        table.give_back(DAEMON, NodeId(5), held).await;
        let (had, none) = (LockMode::Exclusive, LockMode::Unlocked);
        assert_eq!(*sources.0.lock(), [(had, had), (had, none)]);
    }
}
