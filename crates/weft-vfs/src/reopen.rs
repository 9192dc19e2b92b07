//! Files and directories that were open when a former daemon of this mount ended.
//!
//! The kernel goes on using their handles. A file is opened again at the version that it had: the object of that
//! generation, if the store has it; otherwise the bytes are asked for again when somebody reads, and only bytes of the
//! same version are taken. When that is gone the reader gets an error, never another version's bytes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use weft_remote::{Call, RemoteError, Version};
use weft_store::{NodeId, Object};

use crate::handle::{Handle, HandleId, Held};
use crate::inode::Inode;
use crate::through::Through;
use crate::vfs::Vfs;
use crate::{Result, VfsError};

/// What must be known of an open file to open it again in another life of the daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenRecord {
    /// The generation of its object; `None` when it is read past the store.
    pub generation: Option<u64>,
    /// Its version.
    pub version: Version,
    /// Its length in bytes, where that was known.
    pub length: Option<u64>,
    /// The kernel keeps no pages of it, for another version was open.
    pub bypass_pages: bool,
    /// It may be written.
    pub writing: bool,
    /// A program is run from it.
    pub running: bool,
    /// Which use of its inode's number it is ([`crate::Stat::generation`]). Kept beside the rest, which former versions read.
    #[serde(skip)]
    pub node_generation: u64,
}

/// Takes in what another daemon of this mount must know of an open file from now on.
pub struct OnTurned(Box<Renew>);

type Renew = dyn Fn(HandleId, &OpenRecord) + Send + Sync;

impl OnTurned {
    /// By this function, which does not wait.
    pub fn new(renew: impl Fn(HandleId, &OpenRecord) + Send + Sync + 'static) -> OnTurned {
        OnTurned(Box::new(renew))
    }
}

/// Who reads the bytes of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReadBy {
    /// This file system.
    Daemon,
    /// The kernel, from a backing file.
    Kernel,
}

/// The content of an open file that is not here any more.
#[derive(Clone, Debug)]
pub(crate) struct Lost {
    pub(crate) generation: u64,
    pub(crate) version: Version,
    pub(crate) length: Option<u64>,
}

impl Handle {
    /// What must be known of it where it is of this version and length from now on.
    pub(crate) fn record_of(&self, (version, length): (&Version, u64), generation: u64) -> OpenRecord {
        OpenRecord {
            generation: Some(generation),
            version: version.clone(),
            length: Some(length),
            bypass_pages: self.bypass_pages.load(Ordering::Relaxed),
            writing: self.writing,
            running: self.running.load(Ordering::Relaxed),
            // Its number stays what it is.
            node_generation: 0,
        }
    }
}

impl Vfs {
    /// Has each open file told of that is of another version than when it was opened, by what becomes of it here. The first who
    /// asks for that is told.
    pub fn on_turned(&self, renew: OnTurned) {
        // There is one kernel side.
        let _ = self.on_turned.set(renew);
    }

    /// Tells of open files that are of another version now.
    pub(crate) fn tell_handles_turned(&self, turned: &[(HandleId, OpenRecord)]) {
        if let Some(OnTurned(renew)) = self.on_turned.get() {
            turned.iter().for_each(|(handle, record)| renew(*handle, record));
        }
    }

    /// Opens a file that a former daemon had open under this handle. Asks no remote. To be called before any other
    /// use of this file system.
    ///
    /// # Errors
    /// `Stale` when the store does not know the node, and what the store says.
    pub fn reopen(&self, node: NodeId, id: HandleId, record: &OpenRecord, read_by: ReadBy) -> Result<()> {
        let inode = self.inode(node)?;
        let held = match record.generation {
            Some(generation) => self.held_again(&inode, generation, record, read_by)?,
            None => Held::Through(Arc::new(Through::again(record.version.clone(), record.length, self))),
        };
        let counted = record.generation.unwrap_or(0);
        if let Some(draft) = inode.draft().filter(|_| record.writing) {
            draft.take_up(counted);
        }
        let offered = read_by == ReadBy::Kernel;
        let (bypass_pages, writing) = (record.bypass_pages.into(), record.writing);
        let handle = Handle { offered, bypass_pages, writing, ..Handle::new(inode.clone(), held, counted) };
        handle.running.store(record.running, Ordering::Relaxed);
        {
            let mut content = inode.content.lock();
            content.was_used = true;
            content.open_past_store += u32::from(record.generation.is_none());
        }
        handle.face.store(node.0, Ordering::Release);
        self.namespace.take_up_generation(node, record.node_generation);
        self.handles.add_at(id, handle);
        self.take_up_faces(&inode);
        self.compare_reopened(&inode);
        Ok(())
    }

    fn held_again(&self, inode: &Arc<Inode>, generation: u64, record: &OpenRecord, read_by: ReadBy) -> Result<Held> {
        match self.store.object(inode.id)? {
            Some(object) if object.generation() == generation => {
                if read_by == ReadBy::Kernel {
                    // It had been compared when the kernel was given it, which reads it meanwhile: another open must
                    // be given the same.
                    object.vouch();
                }
                Ok(Held::Object(object))
            }
            Some(_) | None => {
                Ok(Held::Lost(Lost { generation, version: record.version.clone(), length: record.length }))
            }
        }
    }

    /// Gets back the content of a handle that lost it.
    ///
    /// # Errors
    /// `Changed` when its version cannot be had any more; whatever keeps the remote from answering.
    pub(crate) async fn find_again(self: &Arc<Self>, call: &Call, handle: &Handle, lost: &Lost) -> Result<()> {
        let inode = &handle.inode;
        let _gate = inode.gate.lock().await;
        if !matches!(*handle.content.lock(), Held::Lost(_)) {
            return Ok(());
        }
        let object = match self.bytes_again(call, inode, lost).await {
            Ok(object) => object,
            Err(VfsError::Changed) => {
                let text = "the daemon was replaced while it was open, and its version cannot be had any more";
                self.troubles.tell(self.path_text(inode.id), text.to_owned());
                return Err(VfsError::Changed);
            }
            Err(error) => return Err(error),
        };
        let mut content = inode.content.lock();
        if content.pages_of == Some(lost.generation) {
            content.pages_of = Some(object.generation());
        }
        handle.turn_to(&mut content, &object);
        Ok(())
    }

    /// What is held of the version by now, or comes on its way.
    async fn bytes_again(self: &Arc<Self>, call: &Call, inode: &Arc<Inode>, lost: &Lost) -> Result<Arc<Object>> {
        let is_same = |object: &Object| {
            let lengths = object.length().zip(lost.length);
            object.version().still_holds(&lost.version) && lengths.is_none_or(|(held, told)| held == told)
        };
        if let Some(current) = self.held_content(inode)?
            && is_same(&current.object)
        {
            return Ok(current.object);
        }
        if lost.version == Version::None {
            // Nothing tells whether another body would be the same.
            return Err(VfsError::Changed);
        }
        let arrival = self.fetch_version(call, inode, &lost.version).await.map_err(|error| match error {
            VfsError::NotFound | VfsError::Remote(RemoteError::VersionChanged { .. }) => VfsError::Changed,
            error => error,
        })?;
        arrival.claim();
        match is_same(&arrival.object) {
            true => Ok(arrival.object.clone()),
            false => Err(VfsError::Changed),
        }
    }
}
