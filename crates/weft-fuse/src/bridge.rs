//! The handler over the file system.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weft_remote::{Caller, LockMode, NewMode, RenameTarget, Seek, Space};
use weft_vfs::{Allocate, NewNode, NodeId, OpenFor, Opened, Removal, SetStat, Write};
use weft_vfs::{
    AsOf, Data, DirectoryName, HandleId, LockChange, Looked, OWN_ATTRIBUTES, OnTurned, OpenRecord, ReadBy, Snapshot,
    Vfs,
};

use crate::Errno;
use crate::handler::{Answer, Attributes, EntryReply, Handler, OpenReply, SourceLocks};

/// The file system as a door sees it.
pub struct Bridge {
    vfs: Arc<Vfs>,
    deadline: Duration,
}

impl Bridge {
    /// A handler over `vfs` whose requests may take `deadline`.
    pub fn new(vfs: Arc<Vfs>, deadline: Duration) -> Bridge {
        Bridge { vfs, deadline }
    }
}

impl SourceLocks for Bridge {
    fn lock(
        &self,
        caller: Caller,
        node: NodeId,
        change: LockChange,
        changes: impl FnMut(LockMode) + Send + 'static,
    ) -> impl Future<Output = Answer<Vec<(HandleId, OpenRecord)>>> + Send + 'static {
        let locked = self.vfs.clone().lock(self.vfs.call(caller), node, change, changes);
        async move { locked.await.map_err(Errno::from) }
    }

    fn locked_by_others(
        &self,
        caller: Caller,
        node: NodeId,
    ) -> impl Future<Output = Answer<LockMode>> + Send + 'static {
        let locked = self.vfs.clone().locked_by_others(self.vfs.call(caller), node);
        async move { locked.await.map_err(Errno::from) }
    }
}

impl Handler for Bridge {
    fn deadline(&self) -> Duration {
        self.deadline
    }

    fn lookup(
        &self,
        caller: Caller,
        parent: NodeId,
        name: Vec<u8>,
    ) -> impl Future<Output = Answer<EntryReply>> + Send + 'static {
        let (vfs, found) = (self.vfs.clone(), self.vfs.clone().lookup(self.vfs.call(caller), parent, name));
        async move { Ok(told_entry(&vfs, found.await?)) }
    }

    fn modes_allow(&self, caller: Caller, node: NodeId, wanted: u32) -> bool {
        self.vfs.modes_allow(caller, node, wanted)
    }

    fn attributes(
        &self,
        caller: Caller,
        node: NodeId,
        handle: Option<HandleId>,
    ) -> impl Future<Output = Answer<Attributes>> + Send + 'static {
        let (vfs, stat) = (self.vfs.clone(), self.vfs.clone().stat(self.vfs.call(caller), node, handle));
        async move { Ok(told(&vfs, stat.await?)) }
    }

    fn read_link(&self, caller: Caller, node: NodeId) -> impl Future<Output = Answer<Vec<u8>>> + Send + 'static {
        let said = self.vfs.clone().read_link(self.vfs.call(caller), node);
        async move { Ok(said.await?) }
    }

    fn open(
        &self,
        caller: Caller,
        node: NodeId,
        how: OpenFor,
    ) -> impl Future<Output = Answer<OpenReply>> + Send + 'static {
        let opened = self.vfs.clone().open(self.vfs.call(caller), node, how);
        async move { Ok(opened.await.map_err(Errno::of_content)?.into()) }
    }

    fn read(
        &self,
        caller: Caller,
        handle: HandleId,
        offset: u64,
        size: usize,
    ) -> impl Future<Output = Answer<Data>> + Send + 'static {
        let read = self.vfs.clone().read(self.vfs.call(caller), handle, offset, size);
        async move { Ok(read.await?) }
    }

    fn read_unopened(
        &self,
        caller: Caller,
        node: NodeId,
        offset: u64,
        size: usize,
    ) -> impl Future<Output = Answer<Data>> + Send + 'static {
        let read = self.vfs.clone().read_unopened(self.vfs.call(caller), node, offset, size);
        async move { Ok(read.await?) }
    }

    fn content_at_hand(&self, handle: HandleId) -> Option<Bytes> {
        self.vfs.content_at_hand(handle)
    }

    fn released(&self, handle: HandleId) {
        self.vfs.released(handle);
    }

    fn close(&self, handle: HandleId) {
        self.vfs.close(handle);
    }

    fn open_directory(&self, caller: Caller, node: NodeId) -> impl Future<Output = Answer<AsOf>> + Send + 'static {
        let listed = self.vfs.clone().open_directory(self.vfs.call(caller), node);
        async move { Ok(listed.await?) }
    }

    fn directory_names(&self, caller: Caller, node: NodeId) -> Answer<Snapshot> {
        self.vfs.directory_names(node, &caller).map_err(Errno::from)
    }

    fn names_mark(&self, node: NodeId) -> u64 {
        self.vfs.names_mark(node)
    }

    fn entries_known(&self, dir: NodeId) -> impl Fn(&DirectoryName<'_>) -> Option<(Attributes, Duration)> {
        // What the store cannot read now is asked when somebody uses the name.
        let known = self.vfs.entries_known(dir).ok();
        move |row| {
            let known = known.as_ref()?.get(row).ok().flatten();
            known.inspect(|(stat, _)| self.vfs.note_told(stat))
        }
    }

    fn create(
        &self,
        caller: Caller,
        dir: NodeId,
        name: Vec<u8>,
        new: NewNode,
    ) -> impl Future<Output = Answer<EntryReply>> + Send + 'static {
        let (vfs, made) = (self.vfs.clone(), self.vfs.clone().create(self.vfs.call(caller), dir, name, new));
        async move { Ok(told_entry(&vfs, made.await.map_err(Errno::of_new_name)?)) }
    }

    fn create_open(
        &self,
        caller: Caller,
        dir: NodeId,
        name: Vec<u8>,
        mode: NewMode,
    ) -> impl Future<Output = Answer<(EntryReply, OpenReply)>> + Send + 'static {
        let (vfs, made) = (self.vfs.clone(), self.vfs.clone().create_open(self.vfs.call(caller), dir, name, mode));
        async move {
            let (entry, opened) = made.await.map_err(Errno::of_new_name)?;
            Ok((told_entry(&vfs, entry), opened.into()))
        }
    }

    fn create_nameless(
        &self,
        caller: Caller,
        dir: NodeId,
        mode: NewMode,
    ) -> impl Future<Output = Answer<(EntryReply, OpenReply)>> + Send + 'static {
        let made = self.vfs.clone().create_nameless(self.vfs.call(caller), dir, mode);
        async move {
            let (entry, opened) = made.await?;
            Ok((entry.into(), opened.into()))
        }
    }

    fn symlink(
        &self,
        caller: Caller,
        dir: NodeId,
        name: Vec<u8>,
        target: Vec<u8>,
    ) -> impl Future<Output = Answer<EntryReply>> + Send + 'static {
        let (vfs, made) = (self.vfs.clone(), self.vfs.clone().symlink(self.vfs.call(caller), dir, name, target));
        async move { Ok(told_entry(&vfs, made.await.map_err(Errno::of_symlink)?)) }
    }

    fn link(
        &self,
        caller: Caller,
        node: NodeId,
        dir: NodeId,
        name: Vec<u8>,
    ) -> impl Future<Output = Answer<EntryReply>> + Send + 'static {
        let (vfs, made) = (self.vfs.clone(), self.vfs.clone().link(self.vfs.call(caller), node, dir, name));
        async move { Ok(told_entry(&vfs, made.await.map_err(Errno::of_new_name)?)) }
    }

    fn remove_name(
        &self,
        caller: Caller,
        dir: NodeId,
        name: Vec<u8>,
        of: Removal,
    ) -> impl Future<Output = Answer<()>> + Send + 'static {
        let removed = self.vfs.clone().remove_name(self.vfs.call(caller), dir, name, of);
        async move { Ok(removed.await?) }
    }

    fn rename(
        &self,
        caller: Caller,
        from: (NodeId, Vec<u8>),
        to: (NodeId, Vec<u8>),
        target: RenameTarget,
    ) -> impl Future<Output = Answer<()>> + Send + 'static {
        let moved = self.vfs.clone().rename(self.vfs.call(caller), from, to, target);
        async move { Box::pin(moved).await.map_err(Errno::of_new_name) }
    }

    fn set_stat(
        &self,
        caller: Caller,
        node: NodeId,
        handle: Option<HandleId>,
        new: SetStat,
    ) -> impl Future<Output = Answer<Attributes>> + Send + 'static {
        let (vfs, set) = (self.vfs.clone(), self.vfs.clone().set_stat(self.vfs.call(caller), node, handle, new));
        async move { Ok(told(&vfs, set.await.map_err(Errno::of_content)?)) }
    }

    fn write(
        &self,
        caller: Caller,
        handle: HandleId,
        write: Write,
    ) -> impl Future<Output = Answer<usize>> + Send + 'static {
        let written = self.vfs.clone().write(self.vfs.call(caller), handle, write);
        async move { written.await.map_err(Errno::of_content) }
    }

    fn flush(&self, caller: Caller, handle: HandleId) -> impl Future<Output = Answer<()>> + Send + 'static {
        let flushed = self.vfs.clone().flush(self.vfs.call(caller), handle);
        async move { flushed.await.map_err(Errno::of_content) }
    }

    fn sync(&self, caller: Caller, handle: HandleId) -> impl Future<Output = Answer<()>> + Send + 'static {
        let synced = self.vfs.clone().sync(self.vfs.call(caller), handle);
        async move { synced.await.map_err(Errno::of_content) }
    }

    fn sync_directory(&self, caller: Caller, node: NodeId) -> impl Future<Output = Answer<()>> + Send + 'static {
        let synced = self.vfs.clone().sync_directory(self.vfs.call(caller), node);
        async move { Ok(synced.await?) }
    }

    fn allocate(
        &self,
        caller: Caller,
        handle: HandleId,
        offset: u64,
        length: u64,
        how: Allocate,
    ) -> impl Future<Output = Answer<()>> + Send + 'static {
        let allocated = self.vfs.clone().allocate(self.vfs.call(caller), handle, offset, length, how);
        async move { allocated.await.map_err(Errno::of_content) }
    }

    fn seek(
        &self,
        caller: Caller,
        handle: HandleId,
        offset: u64,
        what: Seek,
    ) -> impl Future<Output = Answer<Option<u64>>> + Send + 'static {
        let found = self.vfs.clone().seek(self.vfs.call(caller), handle, offset, what);
        async move { found.await.map_err(Errno::from) }
    }

    fn extended(
        &self,
        caller: Caller,
        node: NodeId,
        name: Vec<u8>,
    ) -> impl Future<Output = Answer<Option<Vec<u8>>>> + Send + 'static {
        let (vfs, call) = (self.vfs.clone(), self.vfs.call(caller));
        async move {
            match name.starts_with(OWN_ATTRIBUTES) {
                true => Ok(vfs.extended(node, &name)?),
                false => Ok(vfs.extended_of(call, node, name).await?),
            }
        }
    }

    fn extended_names(
        &self,
        caller: Caller,
        node: NodeId,
    ) -> impl Future<Output = Answer<Vec<Vec<u8>>>> + Send + 'static {
        let names = self.vfs.clone().extended_names(self.vfs.call(caller), node);
        async move { Ok(names.await?) }
    }

    fn set_extended(
        &self,
        caller: Caller,
        node: NodeId,
        name: Vec<u8>,
        value: Option<Vec<u8>>,
        must_exist: Option<bool>,
    ) -> impl Future<Output = Answer<()>> + Send + 'static {
        let set = self.vfs.clone().set_extended(self.vfs.call(caller), node, name, value, must_exist);
        async move { set.await.map_err(Errno::of_attribute) }
    }

    fn known_at(&self, dir: NodeId, name: &[u8]) -> Option<NodeId> {
        self.vfs.known_at(dir, name)
    }

    fn is_writable(&self, node: NodeId) -> bool {
        self.vfs.is_writable(node)
    }

    fn is_unsent(&self, node: NodeId) -> bool {
        self.vfs.is_unsent(node)
    }

    fn generation(&self, node: NodeId) -> u64 {
        self.vfs.generation(node)
    }

    fn is_running(&self, node: NodeId) -> bool {
        self.vfs.is_running(node)
    }

    fn reopen(&self, node: NodeId, handle: HandleId, record: &OpenRecord, read_by: ReadBy) -> Answer<()> {
        self.vfs.reopen(node, handle, record, read_by).map_err(Errno::from)
    }

    fn place_reopened(&self, nodes: Vec<NodeId>) -> impl Future<Output = ()> + Send + 'static {
        self.vfs.clone().place_reopened(self.vfs.call(Caller::DAEMON), nodes)
    }

    fn on_turned(&self, renew: OnTurned) {
        self.vfs.on_turned(renew);
    }

    fn has_locks(&self) -> bool {
        self.vfs.has_locks()
    }

    fn has_access_lists(&self) -> bool {
        self.vfs.has_access_lists()
    }

    fn space(&self, caller: Caller, node: NodeId) -> impl Future<Output = Answer<Space>> + Send + 'static {
        let told = self.vfs.clone().stat_fs(self.vfs.call(caller), node);
        async move { Ok(told.await) }
    }
}

/// What the kernel is about to be told of an inode.
fn told(vfs: &Vfs, stat: Attributes) -> Attributes {
    vfs.note_told(&stat);
    stat
}

/// The same with a name.
fn told_entry(vfs: &Vfs, found: Looked) -> EntryReply {
    if let Looked::Entry { stat, .. } = &found {
        vfs.note_told(stat);
    }
    found.into()
}

impl From<Looked> for EntryReply {
    fn from(looked: Looked) -> EntryReply {
        match looked {
            Looked::Entry { stat, ttl } => EntryReply::Found { attributes: stat, ttl },
            Looked::Absent { ttl } => EntryReply::Absent { ttl },
        }
    }
}

impl From<Opened> for OpenReply {
    fn from(opened: Opened) -> OpenReply {
        let Opened { handle, keep_pages, bypass_pages, backing, record } = opened;
        OpenReply { handle, keep_pages, bypass_pages, backing, record }
    }
}
