//! Changes of names that the kernel asks for again, for a former daemon ended before it answered: that one may have made
//! them. What it had begun is on the roll, so that whoever serves next takes "it exists" or "it is not there" for done; and
//! looks before it says that what the kernel knew is stale, for the kernel would follow the path again and find that.

use std::sync::Arc;

use rustix::io::Errno as E;
use weft_fusedev::Header;
use weft_remote::Caller;
use weft_vfs::NodeId;

use super::Door;
use crate::Errno;
use crate::handler::{Answer, EntryReply, Handler};
use crate::roll::{Entry, Key, Roll};

/// A change that is on the roll until this is dropped: when it has been answered.
pub(super) struct Change {
    roll: Arc<Roll>,
    unique: u64,
    /// A former daemon had begun it.
    pub(super) before: bool,
}

impl<H: Handler> Door<H> {
    /// Enters a change on the roll, before it is made.
    pub(super) fn begin_change(&self, header: &Header) -> Change {
        let before = header.is_resent() && self.roll.was_begun(header.unique);
        self.roll.enter(&Entry::Change { unique: header.unique });
        Change { roll: self.roll.clone(), unique: header.unique, before }
    }
}

impl Change {
    /// What came of making a name: what is there, where a former daemon may have made it.
    pub(super) fn made<H: Handler>(
        &self,
        handler: &Arc<H>,
        (caller, dir, name): (Caller, NodeId, &[u8]),
        made: impl Future<Output = Answer<EntryReply>> + Send + 'static,
    ) -> impl Future<Output = Answer<EntryReply>> + Send + 'static {
        let (handler, name, before) = (handler.clone(), name.to_vec(), self.before);
        async move {
            match made.await {
                Err(Errno(errno @ (E::EXIST | E::STALE))) if before => match handler.lookup(caller, dir, name).await {
                    Ok(found @ EntryReply::Found { .. }) => Ok(found),
                    Ok(EntryReply::Absent { .. }) | Err(_) => Err(Errno(errno)),
                },
                answer => answer,
            }
        }
    }

    /// What came of taking a name away, or moving it. To where there was nothing before it is moved by then if nothing is where
    /// it was.
    pub(super) fn gone<H: Handler>(
        &self,
        handler: &Arc<H>,
        (caller, dir, name): (Caller, NodeId, &[u8]),
        gone: impl Future<Output = Answer<()>> + Send + 'static,
    ) -> impl Future<Output = Answer<()>> + Send + 'static {
        let (handler, name, before) = (handler.clone(), name.to_vec(), self.before);
        async move {
            match gone.await {
                Err(Errno(E::NOENT)) if before => Ok(()),
                Err(Errno(errno @ (E::EXIST | E::STALE))) if before => match handler.lookup(caller, dir, name).await {
                    Ok(EntryReply::Absent { .. }) | Err(Errno(E::NOENT)) => Ok(()),
                    _ => Err(Errno(errno)),
                },
                answer => answer,
            }
        }
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        self.roll.strike(Key::of_change(self.unique));
    }
}
