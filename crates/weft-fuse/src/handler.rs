//! What a door to the kernel serves: a trait written for what weft needs, not for what a FUSE library offers.
//!
//! Answers are futures. A door polls each once on the thread that read the request and replies at once when it is
//! ready; otherwise the future goes to the runtime with its reply. Dropping a future is how a request is cancelled.
//! Inode numbers are durable node ids, so a handler keeps no lookup counts.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weft_remote::{Caller, LockMode, NewMode, RenameTarget, Seek, Space};
use weft_vfs::{Allocate, NewNode, OpenFor, Removal, SetStat, Write};
use weft_vfs::{AsOf, Data, HandleId, OnTurned, OpenRecord, ReadBy, Snapshot, Stat};
use weft_vfs::{DirectoryName, LockChange, NodeId, Object};

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

/// The sources' side of locks.
pub trait SourceLocks: Send + Sync + 'static {
    /// Changes the lock that the mount has on a file at its source. `EAGAIN` when somebody else's is in the way, `ESTALE`
    /// when there is none any more. Tells which open files are in another version now. `changes` is told what the source has
    /// from then on: before it is asked to take something back, and as soon as more is had there.
    fn lock(
        &self,
        caller: Caller,
        node: NodeId,
        change: LockChange,
        changes: impl FnMut(LockMode) + Send + 'static,
    ) -> impl Future<Output = Answer<Vec<(HandleId, OpenRecord)>>> + Send + 'static;

    /// The strongest lock that others than this mount have on a file at its source.
    fn locked_by_others(&self, caller: Caller, node: NodeId)
    -> impl Future<Output = Answer<LockMode>> + Send + 'static;
}

/// A file system as a door sees it.
pub trait Handler: SourceLocks {
    /// Longest that a request may take before it is answered with `ETIMEDOUT`.
    fn deadline(&self) -> Duration;

    /// Finds a name.
    fn lookup(
        &self,
        caller: Caller,
        parent: NodeId,
        name: Vec<u8>,
    ) -> impl Future<Output = Answer<EntryReply>> + Send + 'static;

    /// Whether the mode of a file allows all of `wanted`, in the bits of access(2): asked where the kernel does not see to it.
    fn modes_allow(&self, caller: Caller, node: NodeId, wanted: u32) -> bool;

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
    fn open(
        &self,
        caller: Caller,
        node: NodeId,
        how: OpenFor,
    ) -> impl Future<Output = Answer<OpenReply>> + Send + 'static;

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

    /// Closes a file that the kernel gives back, which so had the answer to its open.
    fn released(&self, handle: HandleId) {
        self.close(handle);
    }

    /// Has the names of a directory known, for one open of it.
    fn open_directory(&self, caller: Caller, node: NodeId) -> impl Future<Output = Answer<AsOf>> + Send + 'static;

    /// The names of a directory that was opened, as they are known now; never waits.
    fn directory_names(&self, caller: Caller, node: NodeId) -> Answer<Snapshot>;

    /// While this is the same, so are the names of a directory; never waits.
    fn names_mark(&self, node: NodeId) -> u64;

    /// Which inode a name led to when that was noted last; never waits, and asks nobody.
    fn known_at(&self, dir: NodeId, name: &[u8]) -> Option<NodeId>;

    /// Attributes of names that were listed in a directory as far as they are known and trusted, and for how long the name
    /// itself is; never waits. What the name no longer leads to is not known.
    fn entries_known(&self, dir: NodeId) -> impl Fn(&DirectoryName<'_>) -> Option<(Attributes, Duration)>;

    /// Makes a file, a directory or a special file.
    fn create(
        &self,
        caller: Caller,
        dir: NodeId,
        name: Vec<u8>,
        new: NewNode,
    ) -> impl Future<Output = Answer<EntryReply>> + Send + 'static;

    /// Makes a file and opens it for reading and writing; `EEXIST` when the name is taken.
    fn create_open(
        &self,
        caller: Caller,
        dir: NodeId,
        name: Vec<u8>,
        mode: NewMode,
    ) -> impl Future<Output = Answer<(EntryReply, OpenReply)>> + Send + 'static;

    /// Makes a file without a name and opens it for reading and writing.
    fn create_nameless(
        &self,
        caller: Caller,
        dir: NodeId,
        mode: NewMode,
    ) -> impl Future<Output = Answer<(EntryReply, OpenReply)>> + Send + 'static;

    /// Makes a symbolic link.
    fn symlink(
        &self,
        caller: Caller,
        dir: NodeId,
        name: Vec<u8>,
        target: Vec<u8>,
    ) -> impl Future<Output = Answer<EntryReply>> + Send + 'static;

    /// Gives a file one more name.
    fn link(
        &self,
        caller: Caller,
        node: NodeId,
        dir: NodeId,
        name: Vec<u8>,
    ) -> impl Future<Output = Answer<EntryReply>> + Send + 'static;

    /// Takes a name away.
    fn remove_name(
        &self,
        caller: Caller,
        dir: NodeId,
        name: Vec<u8>,
        of: Removal,
    ) -> impl Future<Output = Answer<()>> + Send + 'static;

    /// Moves a name.
    fn rename(
        &self,
        caller: Caller,
        from: (NodeId, Vec<u8>),
        to: (NodeId, Vec<u8>),
        target: RenameTarget,
    ) -> impl Future<Output = Answer<()>> + Send + 'static;

    /// Sets attributes, of an open file when a handle is given, and tells what they are then.
    fn set_stat(
        &self,
        caller: Caller,
        node: NodeId,
        handle: Option<HandleId>,
        new: SetStat,
    ) -> impl Future<Output = Answer<Attributes>> + Send + 'static;

    /// Writes bytes of an open file and tells how many.
    fn write(
        &self,
        caller: Caller,
        handle: HandleId,
        write: Write,
    ) -> impl Future<Output = Answer<usize>> + Send + 'static;

    /// A descriptor of an open file is closed: what was written goes to its source.
    fn flush(&self, caller: Caller, handle: HandleId) -> impl Future<Output = Answer<()>> + Send + 'static;

    /// The same, and it is durable there.
    fn sync(&self, caller: Caller, handle: HandleId) -> impl Future<Output = Answer<()>> + Send + 'static;

    /// Makes the names of a directory durable.
    fn sync_directory(&self, caller: Caller, node: NodeId) -> impl Future<Output = Answer<()>> + Send + 'static;

    /// fallocate(2).
    fn allocate(
        &self,
        caller: Caller,
        handle: HandleId,
        offset: u64,
        length: u64,
        how: Allocate,
    ) -> impl Future<Output = Answer<()>> + Send + 'static;

    /// Where data or a hole begins at or after `offset`; `None` past the end of the file.
    fn seek(
        &self,
        caller: Caller,
        handle: HandleId,
        offset: u64,
        what: Seek,
    ) -> impl Future<Output = Answer<Option<u64>>> + Send + 'static;

    /// An extended attribute; `None` when the file has none of that name.
    fn extended(
        &self,
        caller: Caller,
        node: NodeId,
        name: Vec<u8>,
    ) -> impl Future<Output = Answer<Option<Vec<u8>>>> + Send + 'static;

    /// The names of a file's extended attributes, without those that are weft's own.
    fn extended_names(
        &self,
        caller: Caller,
        node: NodeId,
    ) -> impl Future<Output = Answer<Vec<Vec<u8>>>> + Send + 'static;

    /// Sets an extended attribute, or takes it away when there is no value. `must_exist`: whether it must be there
    /// already, or must not.
    fn set_extended(
        &self,
        caller: Caller,
        node: NodeId,
        name: Vec<u8>,
        value: Option<Vec<u8>>,
        must_exist: Option<bool>,
    ) -> impl Future<Output = Answer<()>> + Send + 'static;

    /// Whether the tree of a file takes changes.
    fn is_writable(&self, node: NodeId) -> bool;

    /// Whether something of what was written to a file is not sent, or is being sent.
    fn is_unsent(&self, node: NodeId) -> bool;

    /// Which use of its number a file is in now (`generation` of `fuse_entry_out`).
    fn generation(&self, node: NodeId) -> u64;

    /// Whether a program is run from a file.
    fn is_running(&self, node: NodeId) -> bool;

    /// Opens a file that was open under this handle when a former daemon ended; asks no remote.
    fn reopen(&self, node: NodeId, handle: HandleId, record: &OpenRecord, read_by: ReadBy) -> Answer<()>;

    /// Has sources hear from now on where what a former daemon had open is moved to, as far as they have to.
    fn place_reopened(&self, nodes: Vec<NodeId>) -> impl Future<Output = ()> + Send + 'static;

    /// Has whoever keeps the roll told of open files that are of another version by what becomes of them, and not by a lock.
    fn on_turned(&self, renew: OnTurned);

    /// Whether any source has locks: then those of programs are asked for here, otherwise the kernel keeps them by itself.
    fn has_locks(&self) -> bool;

    /// Whether any source has access lists: then the kernel asks for them, and says what the umask is of who makes something.
    fn has_access_lists(&self) -> bool;

    /// Figures for `df` of what holds a file.
    fn space(&self, caller: Caller, node: NodeId) -> impl Future<Output = Answer<Space>> + Send + 'static;
}
