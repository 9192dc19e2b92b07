//! Changes of names that the kernel asks for again, for a former daemon ended before it answered: that one may have made
//! them. What it had begun is on the roll, so that whoever serves next takes "it exists" or "it is not there" for done, where
//! what is there can be what the request was to make: somebody else may have been faster, and two must not be told that they
//! are the one who has made it. It looks also before it says that what the kernel knew is stale, for the kernel would follow the
//! path again and find that. A daemon that is replaced lets what it has begun come to its end, and begins no more. Two names
//! that were to be exchanged have been where each leads to what the other led to before.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::io::Errno as E;
use weft_fusedev::Header;
use weft_remote::{Caller, FileKind};
use weft_vfs::{NodeId, file_of};

use super::Door;
use crate::Errno;
use crate::changes::Changing;
use crate::handler::{Answer, Attributes, EntryReply, Handler};
use crate::roll::{Begun, Entry, Key, Roll};

/// A change that is on the roll until this is dropped: when it has been answered.
pub(super) struct Change {
    roll: Arc<Roll>,
    unique: u64,
    /// A former daemon had begun it.
    pub(super) before: bool,
    begun: Begun,
    /// When this daemon began to serve: the former one had ended by then.
    since: SystemTime,
    /// `None` where this daemon is about to end.
    changing: Option<Changing>,
}

/// What a name is to stand for.
#[derive(Clone, Debug)]
pub(super) enum Makes {
    /// Something new.
    New(FileKind),
    /// A file that has a name already.
    Link(NodeId),
    /// A symbolic link to this.
    Symlink(Vec<u8>),
}

/// Which change takes a name away.
#[derive(Clone, Debug)]
pub(super) enum Takes {
    /// It is removed.
    Away,
    /// It is moved to another, in this directory.
    To(NodeId, Vec<u8>),
    /// It is exchanged for another, in this directory.
    For(NodeId, Vec<u8>),
}

impl<H: Handler> Door<H> {
    /// Enters a change on the roll, before it is made.
    pub(super) fn begin_change(&self, header: &Header) -> Change {
        self.begin_change_as(header, Begun::default)
    }

    /// The same for one that takes a name away.
    pub(super) fn begin_taking(&self, header: &Header, name: &[u8], takes: &Takes) -> Change {
        self.begin_change_as(header, || {
            let Takes::For(other_dir, other) = takes else { return Begun::default() };
            let known = |dir, name: &[u8]| self.handler.known_at(dir, name).map(|node| node.0);
            Begun { exchanged: known(NodeId(header.node), name).zip(known(*other_dir, other)) }
        })
    }

    /// Enters a change as it was begun first, or as it is begun now.
    fn begin_change_as(&self, header: &Header, now: impl FnOnce() -> Begun) -> Change {
        let former = header.is_resent().then(|| self.roll.was_begun(header.unique)).flatten();
        let (before, begun) = (former.is_some(), former.unwrap_or_else(now));
        let changing = self.locks.changes().try_begin();
        // What is left to the next daemon has not been begun, unless it was by a former one.
        if before || changing.is_some() {
            self.roll.enter(&Entry::Change { unique: header.unique, begun });
        }
        Change { roll: self.roll.clone(), unique: header.unique, before, begun, since: self.since, changing }
    }
}

impl Change {
    /// Returns when it may be made: never where this daemon is about to end, for the next one is sent the request again.
    pub(super) fn may_be_made(&self) -> impl Future<Output = ()> + Send + use<> {
        let is_left = self.changing.is_none();
        async move {
            if is_left {
                std::future::pending::<()>().await;
            }
        }
    }

    /// What came of making a name: what is there, where a former daemon may have made it.
    pub(super) fn made<H: Handler>(
        &self,
        handler: &Arc<H>,
        (caller, dir, name): (Caller, NodeId, &[u8]),
        makes: Makes,
        made: impl Future<Output = Answer<EntryReply>> + Send + 'static,
    ) -> impl Future<Output = Answer<EntryReply>> + Send + 'static {
        let (handler, name, before, since) = (handler.clone(), name.to_vec(), self.before, self.since);
        let may_be_made = self.may_be_made();
        async move {
            may_be_made.await;
            match made.await {
                Err(Errno(errno @ (E::EXIST | E::STALE))) if before => {
                    let found = handler.lookup(caller, dir, name).await;
                    match found {
                        Ok(EntryReply::Found { attributes, ttl })
                            if may_be_it(&*handler, caller, &attributes, makes, since).await =>
                        {
                            Ok(EntryReply::Found { attributes, ttl })
                        }
                        _ => Err(Errno(errno)),
                    }
                }
                answer => answer,
            }
        }
    }

    /// Tells whether what has a name can be the new file that a former daemon was to make there.
    pub(super) fn to_be_made(&self) -> impl FnOnce(&Attributes) -> bool + Send + use<> {
        let (before, since) = (self.before, self.since);
        move |found| before && is_new(found, FileKind::File, since)
    }

    /// What came of taking a name away, or moving it. To where there was nothing before it is moved by then if nothing is where
    /// it was.
    pub(super) fn gone<H: Handler>(
        &self,
        handler: &Arc<H>,
        (caller, dir, name): (Caller, NodeId, &[u8]),
        takes: Takes,
        gone: impl Future<Output = Answer<()>> + Send + 'static,
    ) -> impl Future<Output = Answer<()>> + Send + 'static {
        let (handler, name, before) = (handler.clone(), name.to_vec(), self.before);
        let exchanged = self.begun.exchanged.filter(|_| before);
        // As far as is known by what the former daemon noted, and nobody has asked since.
        let moved = before.then(|| handler.known_at(dir, &name)).flatten();
        let may_be_made = self.may_be_made();
        async move {
            may_be_made.await;
            if let (Some(nodes), Takes::For(other_dir, other)) = (exchanged, &takes)
                && are_exchanged(&*handler, caller, [(dir, &name), (*other_dir, other)], nodes).await
            {
                return Ok(());
            }
            match gone.await {
                Err(Errno(E::NOENT)) if before && is_there(&*handler, caller, &takes, moved).await => Ok(()),
                Err(Errno(errno @ (E::EXIST | E::STALE))) if before => match handler.lookup(caller, dir, name).await {
                    Ok(EntryReply::Absent { .. }) | Err(Errno(E::NOENT))
                        if is_there(&*handler, caller, &takes, moved).await =>
                    {
                        Ok(())
                    }
                    _ => Err(Errno(errno)),
                },
                answer => answer,
            }
        }
    }
}

/// Whether what has a name can be what a request was to make there.
async fn may_be_it<H: Handler>(
    handler: &H,
    caller: Caller,
    found: &Attributes,
    makes: Makes,
    since: SystemTime,
) -> bool {
    match makes {
        Makes::New(kind) => is_new(found, kind, since),
        Makes::Link(node) => file_of(found.node) == file_of(node),
        Makes::Symlink(target) => {
            found.kind == FileKind::Symlink
                && handler.read_link(caller, found.node).await.is_ok_and(|there| there == target)
        }
    }
}

/// Whether something can have been made by a former daemon that had ended by this time, and that nobody was told of: it was
/// made shortly before, and nobody has written to it.
fn is_new(found: &Attributes, kind: FileKind, since: SystemTime) -> bool {
    let is_of_then = found.modified <= since && since.duration_since(found.modified).is_ok_and(|age| age <= TRIED_MAX);
    found.kind == kind && is_of_then && (kind != FileKind::File || found.size == 0)
}

/// Whether two names lead where the other one led before they were exchanged.
async fn are_exchanged<H: Handler>(
    handler: &H,
    caller: Caller,
    names: [(NodeId, &Vec<u8>); 2],
    (first, second): (u64, u64),
) -> bool {
    for ((dir, name), other) in names.into_iter().zip([second, first]) {
        match handler.lookup(caller, dir, name.clone()).await {
            Ok(EntryReply::Found { attributes, .. }) if file_of(attributes.node) == file_of(NodeId(other)) => {}
            _ => return false,
        }
    }
    first != second
}

/// Whether what a request was to move is where it was to be: what had its name, where that is known. What was to be removed is
/// nowhere.
async fn is_there<H: Handler>(handler: &H, caller: Caller, takes: &Takes, moved: Option<NodeId>) -> bool {
    let (dir, name) = match takes {
        Takes::To(dir, name) => (dir, name),
        Takes::Away => return true,
        // One of two names was missing: nothing was exchanged.
        Takes::For(..) => return false,
    };
    match handler.lookup(caller, *dir, name.clone()).await {
        Ok(EntryReply::Found { attributes, .. }) => {
            moved.is_none_or(|moved| file_of(attributes.node) == file_of(moved))
        }
        Ok(EntryReply::Absent { .. }) | Err(_) => false,
    }
}

/// Longer than a change of a name is tried.
const TRIED_MAX: Duration = Duration::from_secs(120);

impl Drop for Change {
    fn drop(&mut self) {
        self.roll.strike(Key::of_change(self.unique));
    }
}
