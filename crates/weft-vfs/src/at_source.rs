//! What the source has of a file of which something is unsent: for whoever has to decide between the two.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use weft_remote::{Body, Caller, FileKind, Name, Piece, RemoteError, Span, Version};

use crate::VfsError;
use crate::figures::{add, count};
use crate::unsent::UnsentError;
use crate::vfs::Vfs;

/// One version of a file, read from its source past the store: nothing of it is kept or shown.
pub struct AtSource {
    vfs: Arc<Vfs>,
    path: String,
    body: Body,
    came: u64,
    patience: Duration,
}

impl Vfs {
    /// What has the name of an unsent file at its source: that file in another version, or another in its place.
    ///
    /// # Errors
    /// `NotUnsent`; `Absent` when no file has the name there; whatever keeps the source from answering.
    pub async fn at_source(self: &Arc<Self>, path: &[Name], caller: Caller) -> Result<AtSource, UnsentError> {
        let (inode, _) = self.unsent_at(path)?;
        let (call, record) = (self.call(caller), inode.record());
        let dir = self.inode(record.parent)?;
        let (remote, file) = (self.remote_of(&inode)?.clone(), dir.record().file);
        let found = self.ask_of(&call, &dir, || remote.lookup(&call, &file, &record.name)).await?;
        let entry = found.value.map(|found| found.entry).filter(|entry| entry.attributes.kind == FileKind::File);
        let entry = entry.ok_or(UnsentError::Absent)?;
        count(&self.figures.ranges_fetched);
        let fetched = self.ask(&call, remote.fetch(&call, &entry.id, &Version::None, Span::WHOLE)).await?;
        let (path, body) = (self.path_text(inode.id), fetched.value.body);
        Ok(AtSource { vfs: self.clone(), path, body, came: 0, patience: self.options.deadline })
    }
}

impl AtSource {
    /// The next bytes; none at its end.
    ///
    /// # Errors
    /// Whatever keeps the rest of this version away: what came so far is not all of it then.
    pub async fn next(&mut self) -> Result<Bytes, UnsentError> {
        loop {
            let next = tokio::time::timeout(self.patience, self.body.stream.next());
            let Some(piece) = next.await.map_err(|_| VfsError::TimedOut)? else {
                return self.ended().map(|()| Bytes::new());
            };
            if let Piece::Bytes(bytes) = piece.map_err(VfsError::from)?
                && !bytes.is_empty()
            {
                self.came += bytes.len() as u64;
                add(&self.vfs.figures.bytes_received, bytes.len() as u64);
                return Ok(bytes);
            }
        }
    }

    /// How many bytes have come.
    pub fn came(&self) -> u64 {
        self.came
    }

    fn ended(&self) -> Result<(), UnsentError> {
        match self.body.file_length {
            Some(length) if length != self.came => {
                let detail = format!("{}: {} bytes came of {length}", self.path, self.came);
                Err(VfsError::from(RemoteError::CutShort { detail }).into())
            }
            _ => Ok(()),
        }
    }
}
