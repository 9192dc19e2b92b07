//! Files and directories that were open when a former daemon of this mount ended.
//!
//! The kernel goes on using their handles. A file is opened again at the version that it had: the object of that
//! generation, if the store has it; otherwise the bytes are asked for again when somebody reads, and only bytes of the
//! same version are taken. When that is gone the reader gets an error, never another version's bytes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use weft_remote::{Call, Checked, RemoteError, Sameness, Version};
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
        match inode.draft().filter(|_| record.writing) {
            Some(draft) => draft.take_up(counted),
            None => self.begin_again(&inode, record, &held)?,
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

    /// Has the kinds that find files by their names alone know where these files and directories are, which the kernel holds, and
    /// those of which something is unsent: from then on they hear where somebody else moves them. What is elsewhere already, or
    /// cannot be asked about now, is looked up when it is used.
    pub async fn place_reopened(self: Arc<Self>, call: Call, nodes: Vec<NodeId>) {
        let unsent: Vec<_> = self.drafts.lock().values().cloned().collect();
        let held =
            nodes.into_iter().filter(|node| !self.namespace.is_own(*node)).filter_map(|node| self.inode(node).ok());
        for inode in unsent.into_iter().chain(held) {
            if inode.is_gone() || self.remote_of(&inode).is_ok_and(|remote| remote.is_placed(&inode.record().file)) {
                continue;
            }
            if let Err(error) = self.place_again(&call, &inode).await {
                tracing::debug!(%error, node = inode.id.0, "where something is that is open is not known");
            }
        }
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

    /// Has who may write a file write over the version that its source has by what was done here, where that is not the one of
    /// its object: the bytes are the same ([`Vfs::tell_retimed`]).
    fn begin_again(&self, inode: &Arc<Inode>, record: &OpenRecord, held: &Held) -> Result<()> {
        let Held::Object(object) = held else { return Ok(()) };
        if !record.writing || object.version().compare(&record.version) != Sameness::Different {
            return Ok(());
        }
        let mut slot = inode.draft.write();
        if slot.is_none() {
            let of = (record.version.clone(), object.length().or(record.length).unwrap_or(0));
            self.begin_draft(inode, &mut slot, of, (object.generation(), Some(object.clone())))?;
        }
        Ok(())
    }

    /// Has the next daemon know of those who have a file open for writing, and have not written it, that its bytes are those of
    /// the version that came of times that were set here. Kinds may know that of what was done in their own life alone. The
    /// caller holds the inode's gate.
    pub(crate) async fn tell_retimed(self: &Arc<Self>, call: &Call, inode: &Arc<Inode>, told: &Version) -> Result<()> {
        let held = self.held_content(inode)?.map(|current| current.object);
        let is_other = |object: &Object| object.version().compare(told) == Sameness::Different;
        let Some(object) = held.filter(|object| inode.draft().is_none() && is_other(object)) else { return Ok(()) };
        let mut writers = Vec::new();
        self.handles.each_of(inode, |id, handle| {
            if handle.writing && handle.counted() == object.generation() {
                let length = object.length().unwrap_or(0);
                writers.push((id, handle.record_of((told, length), object.generation())));
            }
        });
        if writers.is_empty() {
            return Ok(());
        }
        // Somebody else may have written it before the times were set.
        let (remote, file) = (self.remote_of(inode)?.clone(), inode.record().file);
        let answer = self.ask_of(call, inode, || remote.attributes(call, &file, object.version())).await?;
        if matches!(answer.value, Checked::Touched(_)) && told.still_holds(&answer.version) {
            self.tell_handles_turned(&writers);
        }
        Ok(())
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
