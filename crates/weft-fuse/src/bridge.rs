//! The handler over the file system.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weft_remote::Caller;
use weft_vfs::NodeId;
use weft_vfs::{Data, HandleId, Looked, OpenRecord, ReadBy, Snapshot, StatFs, Vfs};

use crate::Errno;
use crate::handler::{Answer, Attributes, EntryReply, Handler, OpenReply};

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
        let found = self.vfs.clone().lookup(self.vfs.call(caller), parent, name);
        async move {
            Ok(match found.await? {
                Looked::Entry { stat, ttl } => EntryReply::Found { attributes: stat, ttl },
                Looked::Absent { ttl } => EntryReply::Absent { ttl },
            })
        }
    }

    fn attributes(
        &self,
        caller: Caller,
        node: NodeId,
        handle: Option<HandleId>,
    ) -> impl Future<Output = Answer<Attributes>> + Send + 'static {
        let stat = self.vfs.clone().stat(self.vfs.call(caller), node, handle);
        async move { Ok(stat.await?) }
    }

    fn read_link(&self, caller: Caller, node: NodeId) -> impl Future<Output = Answer<Vec<u8>>> + Send + 'static {
        let said = self.vfs.clone().read_link(self.vfs.call(caller), node);
        async move { Ok(said.await?) }
    }

    fn open(&self, caller: Caller, node: NodeId) -> impl Future<Output = Answer<OpenReply>> + Send + 'static {
        let opened = self.vfs.clone().open(self.vfs.call(caller), node, weft_vfs::OpenFor::default());
        async move {
            let weft_vfs::Opened { handle, keep_pages, bypass_pages, backing, record } = opened.await?;
            Ok(OpenReply { handle, keep_pages, bypass_pages, backing, record })
        }
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

    fn close(&self, handle: HandleId) {
        self.vfs.close(handle);
    }

    fn open_directory(&self, caller: Caller, node: NodeId) -> impl Future<Output = Answer<Snapshot>> + Send + 'static {
        let listed = self.vfs.clone().open_directory(self.vfs.call(caller), node);
        async move { Ok(listed.await?) }
    }

    fn attributes_known(&self, node: NodeId) -> Option<Attributes> {
        // What the store cannot read now is asked when somebody uses the name.
        self.vfs.stat_known(node).ok().flatten()
    }

    fn extended(&self, node: NodeId, name: &[u8]) -> Answer<Option<Vec<u8>>> {
        self.vfs.extended(node, name).map_err(Errno::from)
    }

    fn reopen(&self, node: NodeId, handle: HandleId, record: &OpenRecord, read_by: ReadBy) -> Answer<()> {
        self.vfs.reopen(node, handle, record, read_by).map_err(Errno::from)
    }

    fn directory_again(&self, caller: Caller, node: NodeId) -> Answer<Snapshot> {
        self.vfs.directory_again(node, &caller).map_err(Errno::from)
    }

    fn space(&self) -> StatFs {
        self.vfs.stat_fs()
    }
}
