//! Paths that the kernel follows once more.
//!
//! Where what a name led to is gone and the name leads to another file, the kernel is told so (`ESTALE`) and follows the
//! path again, from the source's mouth; when that ends so as well, the program gets the error (path_openat() and
//! user_path_at() with `LOOKUP_REVAL`, Linux fs/namei.c). What the kernel took the name to lead to may be older than the
//! program's call, so that one replacement in its course can meet both tries. Therefore what the second look-up finds is
//! held until that for which the path is followed has come: a file that is replaced between the two is given as it was when
//! it was found, which was in the course of the call. To open a file the kernel looks first what it is where it does not know
//! that (may_open()), and nobody is told whether it looks for that: so both are held, what it is and what is in it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use weft_remote::{Call, FileKind, Name, clock};
use weft_store::{NodeId, NodeRecord, Object};

use crate::inode::Inode;
use crate::lookup::Looked;
use crate::stat::Stat;
use crate::vfs::{Vfs, is_gone};
use crate::{Result, VfsError};

/// The paths that are being followed again, by the threads that follow them.
#[derive(Debug, Default)]
pub(crate) struct Retries {
    by_thread: Mutex<HashMap<u32, Retry>>,
    /// How many there are, for almost always there is none.
    count: AtomicUsize,
}

#[derive(Debug)]
struct Retry {
    dir: NodeId,
    name: Name,
    purpose: Purpose,
    again: Again,
    /// When that was, by the clock by which sources end what they have told.
    begun: SystemTime,
    /// What the name led to, and what was held of it.
    held: Option<(NodeId, Kept)>,
    /// What else may be asked of that in the same call: its content where it was looked at, what it is where it is opened.
    beside: Option<(NodeId, Kept)>,
    /// That has come; the path may go on with something else.
    has_come: bool,
}

/// For what a path is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To open a file for reading.
    Read,
    /// To see what it is.
    Stat,
    /// To see what a symbolic link says.
    Link,
    /// For what would have been done to another file, or as to one of another length, than the name leads to.
    Change,
}

/// That a path is followed again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Again {
    pub(crate) since: Instant,
    /// When the kernel had been told, before that, of all that had changed.
    pub(crate) quiet_since: Option<Instant>,
}

/// What is held of what a name led to.
#[derive(Clone, Debug)]
pub(crate) enum Kept {
    /// All of its content.
    Content(Arc<Object>),
    /// What it was.
    Stat(Stat),
    /// What it said.
    Link(Vec<u8>),
}

impl Retries {
    /// A look at the table, or a change. What is over goes with it, and not under the lock: with its content a file may go.
    fn with<T>(&self, act: impl FnOnce(&mut HashMap<u32, Retry>) -> T) -> T {
        let mut by_thread = self.by_thread.lock();
        let over: Vec<_> = by_thread.extract_if(|_, retry| retry.again.since.elapsed() >= RETRY_TIME).collect();
        let outcome = act(&mut by_thread);
        self.count.store(by_thread.len(), Ordering::Relaxed);
        drop(by_thread);
        drop(over);
        outcome
    }

    /// Notes that the kernel is about to be told to follow a thread's path again; false where that cannot be remembered.
    fn begin(&self, call: &Call, (dir, name): (NodeId, Name), purpose: Purpose, quiet_since: Option<Instant>) -> bool {
        let again = Again { since: Instant::now(), quiet_since };
        let retry = Retry { dir, name, purpose, again, begun: clock::now(), held: None, beside: None, has_come: false };
        let former = self.with(|by_thread| {
            let has_room = call.caller.pid != 0 && by_thread.len() < RETRIES_MAX;
            has_room.then(|| by_thread.insert(call.caller.pid, retry))
        });
        former.is_some()
    }

    /// Whether a thread's path that ends with this name is followed again. For a change it may end with another name of the same
    /// file.
    fn is_at(&self, call: &Call, dir: NodeId, name: &Name) -> bool {
        let is_it = |retry: &Retry| {
            !retry.has_come && (retry.purpose == Purpose::Change || (retry.dir == dir && retry.name == *name))
        };
        self.count.load(Ordering::Relaxed) > 0
            && self.with(|by_thread| by_thread.get(&call.caller.pid).is_some_and(is_it))
    }

    /// What a thread's path was followed for again has come, or cannot.
    pub(crate) fn forget(&self, call: &Call) {
        if self.count.load(Ordering::Relaxed) > 0 {
            let former = self.with(|by_thread| by_thread.remove(&call.caller.pid));
            drop(former);
        }
    }

    /// Whether somebody follows a path again that ends with this name.
    fn lead_to(&self, dir: NodeId, name: &Name) -> bool {
        let is_it = |retry: &Retry| !retry.has_come && retry.dir == dir && retry.name == *name;
        self.count.load(Ordering::Relaxed) > 0 && self.with(|by_thread| by_thread.values().any(is_it))
    }

    /// For what this thread follows a path again of which this name is the last; `None` where it does not.
    fn purpose(&self, call: &Call, dir: NodeId, name: &[u8]) -> Option<Purpose> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.with(|by_thread| {
            let retry = by_thread.get(&call.caller.pid)?;
            (!retry.has_come && retry.dir == dir && retry.name.as_bytes() == name).then_some(retry.purpose)
        })
    }

    /// Holds what the name led to until the thread asks for it.
    fn hold(&self, call: &Call, node: NodeId, kept: Kept) {
        let held = Some((node, kept));
        let former =
            self.with(|by_thread| Some(std::mem::replace(&mut by_thread.get_mut(&call.caller.pid)?.held, held)));
        drop(former);
    }

    /// Holds what else may be asked of it.
    fn hold_beside(&self, call: &Call, node: NodeId, kept: Kept) {
        let beside = Some((node, kept));
        let former =
            self.with(|by_thread| Some(std::mem::replace(&mut by_thread.get_mut(&call.caller.pid)?.beside, beside)));
        drop(former);
    }

    /// A thread looks a name up that is not followed again: what it asks next is of another call.
    pub(crate) fn let_beside_go(&self, call: &Call, dir: NodeId, name: &[u8]) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let former = self.with(|by_thread| {
            let retry = by_thread.get_mut(&call.caller.pid)?;
            (retry.dir == dir && retry.name.as_bytes() == name).then(|| retry.beside.take())
        });
        drop(former);
    }

    /// Whether something is held that may be asked of what this name leads to: then the kernel has to ask for the name at each
    /// call, for that is of one call alone.
    pub(crate) fn hold_at(&self, dir: NodeId, name: &[u8]) -> bool {
        let is_it = |retry: &Retry| retry.beside.is_some() && retry.dir == dir && retry.name.as_bytes() == name;
        self.count.load(Ordering::Relaxed) > 0 && self.with(|by_thread| by_thread.values().any(is_it))
    }

    /// What is held of this node for this thread, where it is that for which its path was followed again: that ends there.
    fn end(&self, call: &Call, node: NodeId, purpose: Purpose) -> Option<Kept> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        if let Some(kept) = self.end_beside(call, node, purpose) {
            return Some(kept);
        }
        // The directories on the way are looked at as well.
        let is_it = |retry: &Retry| retry.purpose == purpose && retry.held.as_ref().is_some_and(|(of, _)| *of == node);
        let held = self.with(|by_thread| {
            let retry = by_thread.get_mut(&call.caller.pid).filter(|retry| is_it(retry))?;
            retry.has_come = true;
            if purpose == Purpose::Read {
                // Nothing is looked at before that any more.
                retry.beside = None;
            }
            retry.held.take()
        })?;
        Some(held.1)
    }

    /// The same where the path was followed again for something else: to look at the file first, or to open it then.
    fn end_beside(&self, call: &Call, node: NodeId, purpose: Purpose) -> Option<Kept> {
        let is_it = |kept: &Kept| match purpose {
            Purpose::Read => matches!(kept, Kept::Content(_)),
            Purpose::Stat => matches!(kept, Kept::Stat(_)),
            Purpose::Link | Purpose::Change => false,
        };
        self.with(|by_thread| {
            let retry = by_thread.get_mut(&call.caller.pid)?;
            let (_, kept) = retry.beside.take_if(|(of, kept)| *of == node && is_it(kept))?;
            retry.has_come |= purpose == Purpose::Read;
            Some(kept)
        })
    }

    /// How, and since when, a thread's path with this end was followed again by which it has been told what is there: the kernel
    /// may have asked for that to see whether it may be opened.
    fn has_been_told(&self, call: &Call, dir: NodeId, name: &Name) -> Option<(Again, SystemTime)> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let is_it = |retry: &&Retry| {
            retry.has_come && retry.purpose == Purpose::Stat && retry.dir == dir && retry.name == *name
        };
        self.with(|by_thread| by_thread.get(&call.caller.pid).filter(is_it).map(|retry| (retry.again, retry.begun)))
    }

    /// How a thread's path is followed again, where it is.
    fn again(&self, call: &Call) -> Option<Again> {
        self.with(|by_thread| by_thread.get(&call.caller.pid).map(|retry| retry.again))
    }

    /// Whether a path was followed again for this thread just now.
    fn was_there(&self, call: &Call) -> bool {
        self.count.load(Ordering::Relaxed) > 0 && self.with(|by_thread| by_thread.contains_key(&call.caller.pid))
    }
}

impl Vfs {
    /// What becomes of an operation for which a path was followed: where the file is gone by now, what was held of it serves,
    /// or else the kernel follows the path again. `serve` makes an answer of what was held.
    pub(crate) fn followed<T>(
        &self,
        call: &Call,
        inode: &Inode,
        purpose: Purpose,
        outcome: Result<T>,
        serve: impl FnOnce(Kept) -> Option<T>,
    ) -> Result<T> {
        let kept = self.retries.end(call, inode.id, purpose);
        let Err(VfsError::Stale) = outcome else { return outcome };
        if let Some(served) = kept.and_then(serve) {
            return Ok(served);
        }
        self.retries.begin(call, place_of(inode), purpose, None);
        outcome
    }

    /// That the path that has led a thread to an inode is followed again already.
    pub(crate) fn followed_again(&self, call: &Call, inode: &Inode) -> Option<Again> {
        let (dir, name) = place_of(inode);
        if self.retries.is_at(call, dir, &name) {
            return self.retries.again(call);
        }
        // In one call the kernel follows a path again once, be it that it looks first what is there.
        let (again, begun) = self.retries.has_been_told(call, dir, &name)?;
        let breaks = self.namespace.breaks(inode.record.read().binding);
        breaks.is_none_or(|breaks| !breaks.name_ended(dir, &name, begun)).then_some(again)
    }

    /// Whether somebody follows the path to an inode again, and is about to be told what it is.
    pub(crate) fn is_followed_to(&self, record: &NodeRecord) -> bool {
        self.retries.lead_to(record.parent, &record.name)
    }

    /// Whether the kernel may follow a path again for this thread: it does so once in a call.
    pub(crate) fn may_follow_again(&self, call: &Call) -> bool {
        !self.retries.was_there(call)
    }

    /// Whether the kernel is to be told to follow a path again that has led a thread to an inode: so it is at the first try.
    pub(crate) fn begins_again(&self, call: &Call, inode: &Inode) -> bool {
        let (dir, name) = place_of(inode);
        self.begins_again_at(call, dir, &name)
    }

    /// The same, and the kernel is told before of all that has changed at the source up to now, if that does not take long: what
    /// it is told in the middle of that has it leave aside what it learns by it, such as a length.
    pub(crate) async fn begins_again_quietly(&self, call: &Call, inode: &Inode) -> bool {
        if self.followed_again(call, inode).is_some() {
            return false;
        }
        self.hear_all(inode).await;
        // What it is told from then on, it may be told at any time.
        let since = Instant::now();
        let quiet_since = self.kernel_is_told(QUIET_PATIENCE).await.then_some(since);
        self.notices.settled().await;
        self.retries.begin(call, place_of(inode), Purpose::Change, quiet_since)
    }

    /// The same of a path that ends with this name.
    pub(crate) fn begins_again_at(&self, call: &Call, dir: NodeId, name: &Name) -> bool {
        !self.retries.is_at(call, dir, name) && self.retries.begin(call, (dir, name.clone()), Purpose::Change, None)
    }

    /// For what a thread looks a name up again; `None` where it does not.
    pub(crate) fn follows_again(&self, call: &Call, dir: NodeId, name: &[u8]) -> Option<Purpose> {
        self.retries.purpose(call, dir, name)
    }

    /// Looks up a name of a path that is followed again, and holds what it leads to.
    pub(crate) async fn lookup_again(
        self: &Arc<Self>,
        call: &Call,
        dir: &Arc<Inode>,
        name: &Name,
        purpose: Purpose,
    ) -> Result<Looked> {
        for _ in 0..LOOKUPS_MAX {
            let looked = self.lookup_in(call, dir, name).await?;
            let Looked::Entry { stat, .. } = looked else {
                self.retries.forget(call);
                return Ok(looked);
            };
            let node = self.namespace.real(stat.node);
            match self.keep(call, &stat, purpose).await {
                Ok(Some(kept)) => self.retries.hold(call, node, kept),
                // It has been replaced again.
                Err(error) if is_gone(&error) || matches!(error, VfsError::Stale) => continue,
                // The operation itself meets what is in the way.
                Ok(None) | Err(_) => {}
            }
            let beside = match purpose {
                Purpose::Stat => self.keep(call, &stat, Purpose::Read).await,
                Purpose::Read => self.keep(call, &stat, Purpose::Stat).await,
                Purpose::Link | Purpose::Change => Ok(None),
            };
            match beside {
                Ok(Some(kept)) => self.retries.hold_beside(call, node, kept),
                Err(error) if is_gone(&error) || matches!(error, VfsError::Stale) => continue,
                Ok(None) | Err(_) => {}
            }
            return Ok(looked);
        }
        self.lookup_in(call, dir, name).await
    }

    /// Gets what serves an operation on a file although it goes right after; `None` where there is nothing that does.
    async fn keep(self: &Arc<Self>, call: &Call, stat: &Stat, purpose: Purpose) -> Result<Option<Kept>> {
        match (purpose, stat.kind) {
            (Purpose::Read, FileKind::File) if stat.size <= KEPT_BYTES_MAX => {
                let inode = self.inode(stat.node)?;
                if inode.draft().is_some() {
                    return Ok(None);
                }
                let object = self.content(call, &inode).await?;
                if let Some(arrival) = inode.arrival(|arrival| Arc::ptr_eq(&arrival.object, &object)) {
                    arrival.want(u64::MAX);
                    arrival.end(call).await?;
                }
                Ok(object.is_complete().then_some(Kept::Content(object)))
            }
            (Purpose::Stat, _) => Ok(Some(Kept::Stat(Stat { ttl: Duration::ZERO, ..*stat }))),
            (Purpose::Link, FileKind::Symlink) => self.read_link_of(call, stat.node).await.map(Kept::Link).map(Some),
            _ => Ok(None),
        }
    }
}

/// A name of an inode, and where it is.
fn place_of(inode: &Inode) -> (NodeId, Name) {
    let record = inode.record.read();
    (record.parent, record.name.clone())
}

/// Longest time from the first try to the end of the second.
pub(crate) const RETRY_TIME: Duration = Duration::from_secs(1);
/// How long a path waits to be followed again until the kernel has been told of what changed.
const QUIET_PATIENCE: Duration = Duration::from_millis(100);
/// Most paths that are followed again at a time.
const RETRIES_MAX: usize = 256;
/// How often a name is looked up whose file is gone each time before it is there.
const LOOKUPS_MAX: usize = 4;
/// Longest file that is fetched before it is opened.
const KEPT_BYTES_MAX: u64 = 4 << 20;
