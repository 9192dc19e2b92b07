//! Reading files that nobody has opened: in mounts whose kernel does not ask to open them.

use std::sync::Arc;

use weft_remote::Call;
use weft_store::NodeId;

use crate::Result;
use crate::ask::OpenFor;
use crate::data::Data;
use crate::handle::HandleId;
use crate::vfs::Vfs;

/// An open file that is closed when this goes, also where a call is dropped, unless it is kept.
pub(crate) struct Guard(Option<Arc<Vfs>>, HandleId);

impl Guard {
    pub(crate) fn new(vfs: &Arc<Vfs>, handle: HandleId) -> Guard {
        Guard(Some(vfs.clone()), handle)
    }

    /// It stays open.
    pub(crate) fn keep(mut self) {
        self.0.take();
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.iter().for_each(|vfs| vfs.close(self.1));
    }
}

impl Vfs {
    /// Reads up to `size` bytes at `offset` of the version that an open would get now; fewer only at its end. Each call is
    /// of one version; two calls need not be of the same.
    ///
    /// # Errors
    /// As of [`Vfs::open`] and [`Vfs::read`].
    pub async fn read_unopened(self: Arc<Self>, call: Call, node: NodeId, offset: u64, size: usize) -> Result<Data> {
        let handle = self.clone().open_here(call, node, OpenFor::default()).await?.handle;
        let _guard = Guard::new(&self, handle);
        self.read(call, handle, offset, size).await
    }
}
