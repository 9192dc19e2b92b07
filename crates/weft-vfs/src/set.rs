//! Setting attributes.

use std::sync::Arc;
use std::time::SystemTime;

use weft_remote::{Call, Caller, Change, Figure, NewAttributes, Version};
use weft_store::{NodeId, NodeRecord, Record};

use crate::ask::{OpenFor, SetStat, SetTime};
use crate::handle::{Handle, HandleId};
use crate::inode::Inode;
use crate::learn::Told;
use crate::stat::Stat;
use crate::vfs::{Vfs, is_gone};
use crate::{Result, VfsError};

/// How long a file can be on every file system, in bytes: FAT ends here.
const LENGTH_OF_ALL_MAX: u64 = u32::MAX as u64;

impl Vfs {
    /// Sets attributes, of an open file when a handle is given, and tells what they are then. A length that is set
    /// without a handle is sent at once; with one, it is sent as what is written is, unless it is one that not every file
    /// system has.
    ///
    /// # Errors
    /// `ReadOnly`; what the remote says.
    pub async fn set_stat(
        self: Arc<Self>,
        call: Call,
        node: NodeId,
        handle: Option<HandleId>,
        new: SetStat,
    ) -> Result<Stat> {
        if self.namespace.is_own(node) {
            return Err(VfsError::ReadOnly);
        }
        let inode = self.inode(node)?;
        self.refuse_read_only(&inode)?;
        self.admit_to_attributes(&call, &inode).await?;
        let mut new = new;
        // chown(2) that names neither owner nor group asks for nothing else: set-id bits go by it all the same.
        new.kill_suidgid |= new == SetStat::default() && owns(&inode, call.caller);
        if handle.is_none() {
            self.refuse_moved(&call, &inode).await?;
        }
        if let Some(size) = new.size {
            self.resize(&call, &inode, handle, size).await?;
        }
        if new.kill_suidgid {
            self.hear_of_mode(&call, &inode).await?;
        }
        let wanted = wanted(&inode, &new);
        if wanted != NewAttributes::default() {
            // Times that are set hold for what was written before.
            self.send(&call, &inode).await?;
            let _gate = inode.gate.lock().await;
            let call = call.renewed(self.options.deadline);
            self.set_attributes(&call, &inode, wanted).await?;
        }
        self.retries.forget(&call);
        let call = call.renewed(self.options.deadline);
        self.clone().stat(call, node, handle).await
    }

    async fn resize(
        self: &Arc<Self>,
        call: &Call,
        inode: &Arc<Inode>,
        handle: Option<HandleId>,
        size: u64,
    ) -> Result<()> {
        let writable = handle.and_then(|handle| self.handles.get(handle)).filter(|handle| handle.writing);
        if let Some(handle) = writable {
            return self.resize_open(call, &handle, size).await;
        }
        let was_unsent = inode.away().is_some();
        let how = OpenFor { writing: true, truncating: size == 0, ..OpenFor::default() };
        let opened = self.clone().open_here(*call, self.namespace.shown(inode.id), how).await?.handle;
        let resized = async {
            let handle = self.handle(opened)?;
            self.resize_here(&handle, size)?;
            self.send(call, inode).await
        };
        let outcome = resized.await;
        self.close(opened);
        if let Err(error) = &outcome
            && !error.may_pass()
            && !was_unsent
        {
            self.give_up_resize(call, inode).await;
        }
        outcome
    }

    /// The same by an open file. Whoever asks for a length that its source may not have hears so now: at the close there
    /// is no way back.
    async fn resize_open(self: &Arc<Self>, call: &Call, handle: &Handle, size: u64) -> Result<()> {
        if size <= LENGTH_OF_ALL_MAX || size <= self.draft_held(handle)?.dirty.length() {
            return self.resize_here(handle, size).map(drop);
        }
        // What was written before is not refused with it.
        self.send(call, &handle.inode).await?;
        let before = self.resize_here(handle, size)?;
        let call = call.renewed(self.options.deadline);
        let outcome = self.send(&call, &handle.inode).await;
        if let Err(error) = &outcome
            && !error.may_pass()
            && self.draft_held(handle)?.dirty.length() == size
        {
            self.resize_here(handle, before)?;
        }
        outcome
    }

    /// Sets the length of what is written here, and tells what it was.
    fn resize_here(&self, handle: &Handle, size: u64) -> Result<u64> {
        let draft = self.draft_held(handle)?;
        let before = draft.dirty.length();
        draft.dirty.resize(size)?;
        draft.touch();
        Ok(before)
    }

    /// A length that its source refuses for good has changed nothing, unless somebody writes the file.
    async fn give_up_resize(self: &Arc<Self>, call: &Call, inode: &Arc<Inode>) {
        let _gate = inode.gate.lock().await;
        let Some((draft, 0)) = inode.away() else { return };
        if let Err(error) = self.discard_held(inode, &draft, call.caller).await {
            tracing::debug!(%error, node = inode.id.0, "a length that could not be sent is kept");
        }
    }

    /// Sets attributes at the source. The caller holds the inode's gate.
    pub(crate) async fn set_attributes(
        self: &Arc<Self>,
        call: &Call,
        inode: &Arc<Inode>,
        new: NewAttributes,
    ) -> Result<()> {
        if inode.is_gone() {
            return self.set_here(inode, &new);
        }
        let change = Change::SetAttributes { file: inode.record().file, new };
        let answer = match self.apply(call, inode, change, SystemTime::now(), &Version::None).await {
            Err(error) if is_gone(&error) => {
                let error = Box::pin(self.learn_gone(call, inode)).await?;
                // Whoever has it open goes on in what it was.
                return if self.is_of_open(inode)? { self.set_here(inode, &new) } else { Err(error) };
            }
            outcome => outcome?,
        };
        let told = Told::of_change(&answer);
        if let Some(entry) = &answer.value.entry {
            self.learn_attributes(inode, entry.attributes, &told)?;
        }
        if new.modified.is_some() {
            // The bytes are the same; that is not to be seen from the version, which who writes it must have.
            self.distrust_content(inode.id)?;
            if let Err(error) = Box::pin(self.tell_retimed(call, inode, &told.version)).await {
                tracing::debug!(%error, node = inode.id.0, "the next daemon does not know that only times were set");
            }
        }
        self.rest_on(call, inode, &told.version).await
    }

    /// Sets attributes of what no source has any more, or not yet.
    fn set_here(&self, inode: &Inode, new: &NewAttributes) -> Result<()> {
        if let (Some(modified), Some(draft)) = (new.modified, inode.draft()) {
            // Instead of when it was written last.
            draft.note_modified(modified);
        }
        let _names = self.renames.lock();
        let record = inode.set_here(new);
        // What nobody has open is forgotten already.
        if self.store.node(inode.id)?.is_none() {
            return Ok(());
        }
        Ok(self.store.apply(vec![Record::Node(inode.id, Some(record))])?)
    }
}

impl Inode {
    fn set_here(&self, new: &NewAttributes) -> NodeRecord {
        let mut record = self.record.write();
        let attributes = &mut record.attributes;
        attributes.mode = new.mode.or(attributes.mode);
        if let Some(owner) = &mut attributes.owner {
            owner.uid = new.uid.unwrap_or(owner.uid);
            owner.gid = new.gid.unwrap_or(owner.gid);
        }
        let figure = |time: Option<SystemTime>, known| time.map_or(known, Figure::Exact);
        attributes.modified = figure(new.modified, attributes.modified);
        attributes.accessed = figure(new.accessed, attributes.accessed);
        attributes.changed = Figure::Exact(SystemTime::now());
        record.clone()
    }
}

/// Whether a caller may change the mode of a file.
fn owns(inode: &Inode, caller: Caller) -> bool {
    let owner = inode.record.read().attributes.owner;
    caller.uid == 0 || owner.is_some_and(|owner| owner.uid == caller.uid)
}

/// What a source is asked to set.
fn wanted(inode: &Inode, new: &SetStat) -> NewAttributes {
    let time = |time: SetTime| match time {
        SetTime::Now => SystemTime::now(),
        SetTime::At(time) => time,
    };
    let killed = || inode.mode_to_drop_to().filter(|_| new.kill_suidgid);
    NewAttributes {
        mode: new.mode.or_else(killed),
        uid: new.uid,
        gid: new.gid,
        modified: new.modified.map(time),
        accessed: new.accessed.map(time),
    }
}
