//! Names that are made, moved and taken away.

use std::sync::Arc;

use weft_remote::{Call, RenameTarget};
use weft_store::NodeId;

use crate::ask::{NewNode, Removal};
use crate::lookup::Looked;
use crate::open::Opened;
use crate::vfs::Vfs;
use crate::{Result, VfsError};

impl Vfs {
    /// Makes a file, a directory or a special file.
    ///
    /// # Errors
    /// `ReadOnly` where the tree takes no changes; what the remote says.
    pub async fn create(self: Arc<Self>, _call: Call, _dir: NodeId, _name: Vec<u8>, _new: NewNode) -> Result<Looked> {
        Err(VfsError::ReadOnly)
    }

    /// Makes a file and opens it for reading and writing.
    ///
    /// # Errors
    /// As of [`Vfs::create`].
    pub async fn create_open(
        self: Arc<Self>,
        _call: Call,
        _dir: NodeId,
        _name: Vec<u8>,
        _mode: u16,
    ) -> Result<(Looked, Opened)> {
        Err(VfsError::ReadOnly)
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// As of [`Vfs::create`].
    pub async fn symlink(
        self: Arc<Self>,
        _call: Call,
        _dir: NodeId,
        _name: Vec<u8>,
        _target: Vec<u8>,
    ) -> Result<Looked> {
        Err(VfsError::ReadOnly)
    }

    /// Gives a file one more name.
    ///
    /// # Errors
    /// As of [`Vfs::create`].
    pub async fn link(self: Arc<Self>, _call: Call, _node: NodeId, _dir: NodeId, _name: Vec<u8>) -> Result<Looked> {
        Err(VfsError::ReadOnly)
    }

    /// Takes a name away.
    ///
    /// # Errors
    /// As of [`Vfs::create`]; `IsADirectory` or `NotADirectory` when it is not what the removal is for.
    pub async fn remove_name(self: Arc<Self>, _call: Call, _dir: NodeId, _name: Vec<u8>, _of: Removal) -> Result<()> {
        Err(VfsError::ReadOnly)
    }

    /// Moves a name.
    ///
    /// # Errors
    /// As of [`Vfs::create`]; `OtherTree` when the two directories are not of one tree.
    pub async fn rename(
        self: Arc<Self>,
        _call: Call,
        _from: (NodeId, Vec<u8>),
        _to: (NodeId, Vec<u8>),
        _target: RenameTarget,
    ) -> Result<()> {
        Err(VfsError::ReadOnly)
    }
}
