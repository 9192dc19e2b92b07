//! What a door to the kernel serves: a trait written for what weft needs, not for what a FUSE library offers.
//!
//! Answers are futures. A door polls each once on the thread that read the request and replies at once when it is
//! ready; otherwise the future goes to the runtime with its reply. Dropping a future is how a request is cancelled.
//! Inode numbers are durable node ids, so a handler keeps no lookup counts.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weft_remote::Caller;
use weft_vfs::{Data, HandleId, OpenRecord, ReadBy, Snapshot, Stat, StatFs};
use weft_vfs::{NodeId, Object};

use crate::Errno;

/// Attributes for the kernel, with the time that it may keep them.
pub type Attributes = Stat;

/// Answer to a lookup.
#[derive(Clone, Copy, Debug)]
pub enum EntryReply {
    /// The name leads there.
    Found {
        /// What it leads to.
        attributes: Attributes,
        /// How long the kernel may keep the name.
        ttl: Duration,
    },
    /// There is no such name, for this long.
    Absent {
        /// How long the kernel may keep that.
        ttl: Duration,
    },
}

/// Answer to an open.
pub struct OpenReply {
    /// The handle.
    pub handle: HandleId,
    /// Pages that the kernel holds stay.
    pub keep_pages: bool,
    /// The kernel must not cache pages of this handle.
    pub bypass_pages: bool,
    /// Complete content that the kernel may read itself.
    pub backing: Option<Arc<Object>>,
    /// What another daemon must know to open it again.
    pub record: OpenRecord,
}

/// What an operation gives back.
pub type Answer<T> = std::result::Result<T, Errno>;

/// A file system as a door sees it.
pub trait Handler: Send + Sync + 'static {
    /// Longest that a request may take before it is answered with `ETIMEDOUT`.
    fn deadline(&self) -> Duration;

    /// Finds a name.
    fn lookup(
        &self,
        caller: Caller,
        parent: NodeId,
        name: Vec<u8>,
    ) -> impl Future<Output = Answer<EntryReply>> + Send + 'static;

    /// Attributes of an inode, or of an open file.
    fn attributes(
        &self,
        caller: Caller,
        node: NodeId,
        handle: Option<HandleId>,
    ) -> impl Future<Output = Answer<Attributes>> + Send + 'static;

    /// What a symbolic link says.
    fn read_link(&self, caller: Caller, node: NodeId) -> impl Future<Output = Answer<Vec<u8>>> + Send + 'static;

    /// Opens a file.
    fn open(&self, caller: Caller, node: NodeId) -> impl Future<Output = Answer<OpenReply>> + Send + 'static;

    /// Reads an open file.
    fn read(
        &self,
        caller: Caller,
        handle: HandleId,
        offset: u64,
        size: usize,
    ) -> impl Future<Output = Answer<Data>> + Send + 'static;

    /// Reads a file that nobody has opened, for mounts in which nobody does.
    fn read_unopened(
        &self,
        caller: Caller,
        node: NodeId,
        offset: u64,
        size: usize,
    ) -> impl Future<Output = Answer<Data>> + Send + 'static;

    /// The whole content of an open file, if it is small and here, and this is its only handle; never waits.
    fn content_at_hand(&self, handle: HandleId) -> Option<Bytes>;

    /// Closes a file.
    fn close(&self, handle: HandleId);

    /// Lists a directory for one open of it.
    fn open_directory(&self, caller: Caller, node: NodeId) -> impl Future<Output = Answer<Snapshot>> + Send + 'static;

    /// Attributes of a listed name as far as they are known and trusted; never waits.
    fn attributes_known(&self, node: NodeId) -> Option<Attributes>;

    /// An extended attribute; `None` when the file has none of that name.
    fn extended(&self, node: NodeId, name: &[u8]) -> Answer<Option<Vec<u8>>>;

    /// Opens a file that was open under this handle when a former daemon ended; asks no remote.
    fn reopen(&self, node: NodeId, handle: HandleId, record: &OpenRecord, read_by: ReadBy) -> Answer<()>;

    /// The names of a directory that was open when a former daemon ended; asks no remote.
    fn directory_again(&self, caller: Caller, node: NodeId) -> Answer<Snapshot>;

    /// Figures for `df`; never waits.
    fn space(&self) -> StatFs;
}
