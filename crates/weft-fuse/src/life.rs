//! What lets a mount outlive the daemon that serves it.
//!
//! Somebody keeps the descriptor of the connection and a [roll](crate::roll) of what the kernel holds. A new daemon that
//! is given both goes on: it knows what was agreed on, opens again what was open, and has the kernel send again what
//! was in flight.

use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use weft_fusedev::{InitFlags, Notifier, Session};
use weft_remote::Caller;
use weft_vfs::{HandleId, NodeId, ReadBy};

use crate::backed::Backed;
use crate::backing::KernelInode;
use crate::directory::Directories;
use crate::door::Door;
use crate::handler::Handler;
use crate::roll::{Entry, Roll, RollError};

/// What a daemon has of whoever outlives it.
pub struct Life {
    /// The roll: a file in memory, empty before the first daemon.
    pub roll: File,
    /// The connection of a mount that a former daemon had; `None` for the first.
    pub device: Option<OwnedFd>,
    /// Gives the connection of a new mount into keeping.
    pub entrust: Entrust,
    /// To whoever sends notices in place of the daemon ([`weft_fusedev::send_for`]): one that waits for a request keeps
    /// its process from ending, and the request waits for the next daemon.
    pub notices: Option<OwnedFd>,
}

/// See [`Life::entrust`].
pub type Entrust = Box<dyn FnOnce(BorrowedFd<'_>) -> io::Result<()> + Send>;

/// Begins the roll of a new mount and gives it into keeping, if this kernel can send requests again (6.9 and newer), and
/// not over io_uring: what a dead daemon had taken from a ring stays with that ring's queue (fs/fuse/dev_uring.c), where
/// `FUSE_NOTIFY_RESEND` does not look (fuse_resend in fs/fuse/dev.c goes through the connection's devices alone).
pub(crate) fn entrust(session: &Session, roll: File, entrust: Entrust) -> Result<Roll, RollError> {
    if !session.negotiated().has(InitFlags::HAS_RESEND) {
        tracing::warn!("this kernel (older than 6.9) cannot send requests again: the mount ends with its daemon");
        return Ok(Roll::nowhere());
    }
    if session.negotiated().has(InitFlags::OVER_IO_URING) {
        tracing::warn!("requests that were taken from a ring cannot be sent again: the mount ends with its daemon");
        return Ok(Roll::nowhere());
    }
    let roll = Roll::begin(roll, *session.negotiated())?;
    entrust(std::os::fd::AsFd::as_fd(session))?;
    Ok(roll)
}

/// What is open, files and directories, each once.
pub(crate) fn nodes(entries: &[Entry]) -> Vec<NodeId> {
    let open = |entry: &Entry| match entry {
        Entry::File { node, .. } | Entry::Directory { node, .. } => Some(NodeId(*node)),
        Entry::Backing { .. } | Entry::Change { .. } | Entry::Locks { .. } => None,
    };
    let mut nodes: Vec<NodeId> = entries.iter().filter_map(open).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

/// Has the kernel ask again for what may have changed while nobody served: names, and the attributes of what is open, for
/// that is not looked up; of directories also the list of their names.
pub(crate) fn ask_anew(notifier: &Notifier, open: &[NodeId], directories: &Directories) {
    if let Err(error) = notifier.next_epoch() {
        // Names that changed when the former daemon ended are looked up when their time is over.
        tracing::debug!(%error, "names are not looked up anew");
    }
    for node in open {
        let told = match directories.keeps_names(*node) {
            true => notifier.invalidate_content(node.0, 0, 0),
            false => notifier.invalidate_attributes(node.0),
        };
        if let Err(error) = told {
            tracing::debug!(%error, ?node, "attributes are not asked for anew");
        }
    }
}

/// Has sources hear from now on where what is open is moved to. Whoever hears that the mount is served again may move something
/// and rely on that: so it is waited for, a while.
pub(crate) fn place<H: Handler>(handler: &H, open: Vec<NodeId>, runtime: &tokio::runtime::Handle) {
    let placed = handler.place_reopened(open);
    if runtime.block_on(async { tokio::time::timeout(PLACES_PATIENCE, placed).await }).is_err() {
        tracing::debug!("where all is that is open is not known");
    }
}

/// Opens again what the kernel holds.
pub(crate) fn restore<H: Handler>(door: &Door<H>, session: &Session, roll: &Arc<Roll>, entries: &[Entry]) {
    // What the kernel reads by itself comes last, so that of two backing files of an inode the one in use stays.
    let used_by = |of: u64, made: u64| {
        entries.iter().find_map(|other| match other {
            Entry::File { node, read_by: ReadBy::Kernel, record, .. }
                if *node == of && record.generation == Some(made) =>
            {
                Some(record.node_generation)
            }
            _ => None,
        })
    };
    let in_use = |entry: &Entry| match entry {
        Entry::Backing { node, generation, .. } => used_by(*node, *generation).is_some(),
        _ => true,
    };
    let (locks, others): (Vec<&Entry>, Vec<&Entry>) =
        entries.iter().partition(|entry| matches!(entry, Entry::Locks { .. }));
    let (used, idle): (Vec<&Entry>, Vec<&Entry>) = others.into_iter().partition(|entry| in_use(entry));
    // Whose files are open again by then.
    for entry in idle.into_iter().chain(used).chain(locks) {
        match entry {
            Entry::Backing { id, node, generation } => {
                let backing = Backed::new(session.backings().adopt(*id), roll.clone());
                let inode = KernelInode { node: NodeId(*node), generation: used_by(*node, *generation).unwrap_or(0) };
                door.modes().restore(inode, *generation, backing);
            }
            Entry::File { handle, node, read_by, record, .. } => {
                let (node, handle) = (NodeId(*node), HandleId(*handle));
                if *read_by == ReadBy::Kernel || !record.bypass_pages {
                    let inode = KernelInode { node, generation: record.node_generation };
                    door.modes().restore_open(inode, handle, *read_by);
                }
                if let Err(errno) = door.handler().reopen(node, handle, record, *read_by) {
                    tracing::warn!(?errno, ?node, "an open file is lost: the store does not know it");
                }
            }
            // Only whether it was begun is of use, and that the roll knows.
            Entry::Change { .. } => {}
            Entry::Locks { node, held, .. } => door.locks().restore(NodeId(*node), held),
            Entry::Directory { handle, node, uid, gid, .. } => {
                let caller = Caller { uid: *uid, gid: *gid, pid: 0 };
                door.directories().restore(*handle, NodeId(*node), caller);
            }
        }
    }
    door.locks().keep_restored();
    tracing::warn!(entries = entries.len(), "a mount was taken over from a daemon that ended");
}

/// Longest wait for sources that look where what is open is.
const PLACES_PATIENCE: Duration = Duration::from_secs(2);
