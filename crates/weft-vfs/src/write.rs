//! Writing open files.

use std::sync::Arc;

use bytes::Bytes;
use weft_remote::Call;
use weft_store::NodeId;

use crate::ask::{Allocate, Seek, SetStat};
use crate::handle::HandleId;
use crate::stat::Stat;
use crate::vfs::Vfs;
use crate::{Result, VfsError};

impl Vfs {
    /// Writes bytes at `offset` of an open file and returns how many. `kill_suidgid`: the writer may not keep set-id
    /// bits.
    ///
    /// # Errors
    /// `BadHandle` when it is not open for writing, `ReadOnly`, and `Store` with `Full` when there is no room.
    pub async fn write(
        self: Arc<Self>,
        _call: Call,
        _handle: HandleId,
        _offset: u64,
        _bytes: Bytes,
        _kill_suidgid: bool,
    ) -> Result<usize> {
        Err(VfsError::ReadOnly)
    }

    /// Sends what was written to the remote: at each close(2) of a descriptor.
    ///
    /// # Errors
    /// What the remote says; what was written stays here and is tried again at the next flush.
    pub async fn flush(self: Arc<Self>, _call: Call, _handle: HandleId) -> Result<()> {
        Err(VfsError::ReadOnly)
    }

    /// The same, and has it durable at the source.
    ///
    /// # Errors
    /// As of [`Vfs::flush`].
    pub async fn sync(self: Arc<Self>, _call: Call, _handle: HandleId) -> Result<()> {
        Err(VfsError::ReadOnly)
    }

    /// Has the names of a directory durable at the source.
    ///
    /// # Errors
    /// What the remote says.
    pub async fn sync_directory(self: Arc<Self>, _call: Call, _node: NodeId) -> Result<()> {
        Err(VfsError::ReadOnly)
    }

    /// fallocate(2).
    ///
    /// # Errors
    /// As of [`Vfs::write`].
    pub async fn allocate(
        self: Arc<Self>,
        _call: Call,
        _handle: HandleId,
        _offset: u64,
        _length: u64,
        _how: Allocate,
    ) -> Result<()> {
        Err(VfsError::ReadOnly)
    }

    /// Where data or a hole begins at or after `offset`; `None` past the end of the file.
    ///
    /// # Errors
    /// `BadHandle`.
    pub fn seek(&self, _handle: HandleId, _offset: u64, _what: Seek) -> Result<Option<u64>> {
        Err(VfsError::ReadOnly)
    }

    /// Sets attributes, of an open file when a handle is given, and tells what they are then.
    ///
    /// # Errors
    /// `ReadOnly`; what the remote says.
    pub async fn set_stat(
        self: Arc<Self>,
        _call: Call,
        _node: NodeId,
        _handle: Option<HandleId>,
        _new: SetStat,
    ) -> Result<Stat> {
        Err(VfsError::ReadOnly)
    }
}
