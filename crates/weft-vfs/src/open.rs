//! Opening and closing files.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use bytes::Bytes;
use weft_remote::{Call, Figure, FileKind, Version};
use weft_store::{NodeId, Object, StoreError};

use crate::ask::OpenFor;
use crate::beside::Others;
use crate::content::Check;
use crate::draft::Draft;
use crate::figures::add;
use crate::handle::{Handle, HandleId, Held};
use crate::inode::{Current, Inode};
use crate::notice::Notice;
use crate::reopen::OpenRecord;
use crate::retry::{Kept, Purpose};
use crate::through::Through;
use crate::vfs::{Vfs, is_gone};
use crate::{Result, VfsError};

/// An open file, and how the kernel may treat it.
pub struct Opened {
    /// The handle.
    pub handle: HandleId,
    /// The pages that the kernel holds of this inode are of this version: they stay.
    pub keep_pages: bool,
    /// Another version of this inode is open: the kernel must not cache pages of this handle.
    pub bypass_pages: bool,
    /// The complete, checked content, if the kernel may read it itself. Two opens of one inode that both get this
    /// get the same content exactly when the generations are equal.
    pub backing: Option<Arc<Object>>,
    /// What another daemon of this mount must know of it.
    pub record: OpenRecord,
}

impl Vfs {
    /// Opens a file.
    ///
    /// # Errors
    /// `IsADirectory`, `Stale`, `Denied`, `NotFound`; whatever keeps the remote from answering.
    pub(crate) async fn open_here(self: Arc<Self>, call: Call, node: NodeId, how: OpenFor) -> Result<Opened> {
        let inode = self.inode(node)?;
        if inode.kind() == FileKind::Directory {
            return Err(VfsError::IsADirectory);
        }
        if how.writing || how.truncating {
            self.refuse_read_only(&inode)?;
            Box::pin(self.refuse_unwritable(&call, &inode, how.appends && !how.truncating)).await?;
        }
        self.after_reliance(&inode).await;
        for _ in 0..OPEN_ROUNDS_MAX {
            if let Some(mut opened) = self.open_followed(&call, &inode, how).await? {
                match self.note_face(&inode, node, opened.handle) {
                    Ok(true) => {}
                    again => {
                        self.close(opened.handle);
                        again?;
                        continue;
                    }
                }
                opened.record.running = how.running;
                opened.record.node_generation = self.namespace.generation(node);
                if let Some(handle) = self.handles.get(opened.handle) {
                    handle.running.store(how.running, Ordering::Relaxed);
                }
                return Ok(opened);
            }
        }
        Err(VfsError::Changed)
    }

    /// Opens a file to which a path has led.
    async fn open_followed(self: &Arc<Self>, call: &Call, inode: &Arc<Inode>, how: OpenFor) -> Result<Option<Opened>> {
        let opened = self.open_once(call, inode, how).await;
        if how.writing || how.truncating {
            return opened;
        }
        self.followed(call, inode, Purpose::Read, opened, |kept| {
            let Kept::Content(object) = kept else { return None };
            // Held until the handle is counted, so that a draft that begins then sees it.
            let slot = inode.draft.read();
            let length = object.length().map(Figure::Exact);
            if slot.is_some() || length != Some(inode.record.read().attributes.size) {
                return None;
            }
            let pages = inode.pages_for(object.generation(), object.length());
            Some(Some(self.open_object(inode.clone(), object, false, pages)))
        })
    }

    /// Opens a file; `None` when it was written and closed meanwhile, so that what was found is old.
    async fn open_once(self: &Arc<Self>, call: &Call, inode: &Arc<Inode>, how: OpenFor) -> Result<Option<Opened>> {
        if self.outdate_sent(call, inode).await? && !inode.is_gone() {
            // Those who have it open go on in it; its name may lead to another by now.
            return Err(Box::pin(self.learn_gone(call, inode)).await?);
        }
        // Also to what is written here, which is shown to whom the source shows the file.
        match inode.is_gone() {
            false => self.admit(call, inode).await?,
            true if self.admits(inode, call) => {}
            // There is nobody to ask.
            true => return Err(VfsError::Denied),
        }
        let ended = inode.drafts_ended.load(Ordering::Acquire);
        if let Some(opened) = self.open_draft(inode, how)? {
            return Ok(Some(opened));
        }
        if inode.is_gone() {
            return self.open_gone(inode.clone(), how).map(Some);
        }
        if how.truncating {
            return Box::pin(self.open_truncated(call, inode.clone())).await.map(Some);
        }
        let content = match self.content(call, inode).await {
            Ok(object) if object.length().is_none() => Box::pin(self.whole_content(call, inode, object)).await,
            content => content,
        };
        // Who has begun to write it meanwhile has newer content than was asked for.
        if let Some(opened) = self.open_draft(inode, how)? {
            return Ok(Some(opened));
        }
        if let Ok(object) = &content
            && let Some(length) = object.length()
            && inode.record.read().attributes.size != Figure::Exact(length)
        {
            // What is served may be older than what a list told since: the kernel must not pad it to that length. Held
            // until that is learnt: what is written and closed meanwhile is newer.
            let slot = inode.draft.read();
            if slot.is_some() || inode.drafts_ended.load(Ordering::Acquire) != ended {
                return Ok(None);
            }
            self.learn_length(inode.id, length)?;
        }
        let others = match &content {
            Ok(object) => Box::pin(self.compare_with_open(call, inode, object)).await,
            Err(_) => Others::default(),
        };
        self.notices.settled().await;
        match content {
            Ok(object) => {
                if let Some(arrival) = inode.arrival(|arrival| Arc::ptr_eq(&arrival.object, &object)) {
                    arrival.claim();
                }
                let pages = {
                    // Held until the handle is counted, so that a draft that begins then sees it.
                    let slot = inode.draft.read();
                    if slot.is_some() || inode.drafts_ended.load(Ordering::Acquire) != ended {
                        return Ok(None);
                    }
                    if self.may_follow_again(call) {
                        self.part_from_readers(inode, &object, &others);
                    }
                    inode.pages_for(object.generation(), object.length())
                };
                Ok(Some(self.open_object(inode.clone(), object, how.writing, pages)))
            }
            // It was written and closed while it was asked for.
            Err(_) if inode.drafts_ended.load(Ordering::Acquire) != ended => Ok(None),
            Err(error) if error.is_full() && !how.writing => {
                self.tell_unstored(inode.id, &error);
                Ok(Some(self.open_through(inode.clone())))
            }
            Err(error) => Err(error),
        }
    }

    /// An object whose source announces no length, when all of it has come: the kernel goes by a length from the first read on,
    /// and fills up what is shorter.
    async fn whole_content(&self, call: &Call, inode: &Inode, object: Arc<Object>) -> Result<Arc<Object>> {
        if let Some(arrival) = inode.arrival(|arrival| Arc::ptr_eq(&arrival.object, &object)) {
            arrival.whole(call).await?;
        }
        Ok(object)
    }

    /// Whether the tree of a file takes changes, also while it is offline; so it is for a file that is not known.
    pub fn is_writable(&self, node: NodeId) -> bool {
        let Some(inode) = self.inodes.get(self.namespace.real(node)) else { return true };
        let binding = inode.record.read().binding;
        self.remote(binding).map_or(true, |remote| remote.capabilities().writable)
    }

    /// Whether something of what was written to a file is not sent, or is being sent.
    pub fn is_unsent(&self, node: NodeId) -> bool {
        let inode = self.inodes.peek(self.namespace.real(node));
        inode.and_then(|inode| inode.draft()).is_some_and(|draft| draft.dirty.is_unsent())
    }

    /// Which use of this number of the kernel's it is now: [`crate::Stat::generation`].
    pub fn generation(&self, node: NodeId) -> u64 {
        self.namespace.generation(node)
    }

    /// Whether a program is run from a file.
    pub fn is_running(&self, node: NodeId) -> bool {
        let node = self.namespace.real(node);
        self.inodes
            .get(node)
            .is_some_and(|inode| self.handles.of(&inode).iter().any(|handle| handle.running.load(Ordering::Relaxed)))
    }

    /// The whole content of an open file, if it is small and complete, and no other handle of the file is open: what a
    /// first read will ask for.
    pub fn content_at_hand(&self, handle: HandleId) -> Option<Bytes> {
        let handle = self.handles.get(handle)?;
        let Held::Object(object) = handle.content.lock().clone() else { return None };
        if handle.writing || handle.draft().is_some() {
            return None;
        }
        let alone =
            matches!(handle.inode.content.lock().open[..], [(generation, 1)] if generation == object.generation());
        let length = object.length().filter(|length| (1..=AT_HAND_BYTES_MAX).contains(length))?;
        if !alone || !object.is_complete() {
            return None;
        }
        match object.read(0, length as usize) {
            Ok(bytes) => {
                add(&self.figures.bytes_served, length);
                handle.note_answered();
                Some(bytes)
            }
            // The read that the kernel then sends has it fetched again.
            Err(error @ StoreError::Damaged { .. }) => {
                self.tell_damaged(&handle, &object, &error);
                None
            }
            Err(_) => None,
        }
    }

    /// Closes a file that the kernel gives back: it has had the answer to its open, and done what that says.
    pub fn released(self: &Arc<Self>, handle: HandleId) {
        if let Some(handle) = self.handles.get(handle) {
            handle.note_released();
        }
        self.close(handle);
    }

    /// Closes a file.
    pub fn close(self: &Arc<Self>, handle: HandleId) {
        let Some(handle) = self.handles.remove(handle) else { return };
        if handle.relies.load(Ordering::Acquire) {
            self.reliance_ended.notify_waiters();
        }
        if std::mem::take(&mut handle.inode.content.lock().untold) {
            self.notices.send_soon(self.namespace.shown(handle.inode.id), &self.runtime);
        }
        let held = handle.content.lock().clone();
        handle.count_out(&mut handle.inode.content.lock());
        if let Held::Object(object) = held {
            let unrecorded = std::mem::take(&mut handle.inode.content.lock().unrecorded);
            self.drop_pages_for_passthrough(&handle, &object);
            if unrecorded && let Err(error) = object.commit() {
                tracing::warn!(%error, "pieces of a partly held file were not recorded");
            }
        }
        if handle.inode.content.lock().is_closed() {
            self.retire_later(&handle.inode);
        }
        self.inodes.closed();
    }

    /// Opens an object. The handle is counted already, and told how its pages are to be treated.
    fn open_object(
        &self,
        inode: Arc<Inode>,
        object: Arc<Object>,
        writing: bool,
        (keep_pages, bypass_pages): (bool, bool),
    ) -> Opened {
        object.touch(SystemTime::now());
        let generation = object.generation();
        if bypass_pages && !inode.shows_newest() {
            // The inode has one length in the kernel, and from now on readers of two versions: each asks at its end.
            self.notices.send(Notice::Attributes { node: self.namespace.shown(inode.id) });
        }
        let backing = (!writing && self.may_pass_through(&inode, &object)).then(|| object.clone());
        let (version, length) = (object.version().clone(), object.length());
        let record = OpenRecord {
            generation: Some(generation),
            version,
            length,
            bypass_pages,
            writing,
            ..OpenRecord::default()
        };
        let offered = backing.is_some();
        inode.content.lock().was_used |= offered;
        let held = Held::Object(object);
        let handle =
            Handle { offered, bypass_pages: bypass_pages.into(), writing, ..Handle::new(inode, held, generation) };
        Opened { handle: self.handles.add(handle), keep_pages, bypass_pages, backing, record }
    }

    /// Opens what is being written here: nobody is asked, for what is here is newer than what the source has.
    fn open_draft(&self, inode: &Arc<Inode>, how: OpenFor) -> Result<Option<Opened>> {
        // Held until the handle is counted, so that the draft does not end meanwhile.
        let slot = inode.draft.read();
        let Some(draft) = &*slot else { return Ok(None) };
        if how.truncating {
            draft.dirty.resize(0)?;
            draft.touch();
        }
        let (version, counted) = (draft.dirty.version(), draft.generation());
        let held = draft.base().map_or(Held::Empty(version.clone()), Held::Object);
        let writes = how.writing || how.truncating;
        Ok(Some(self.open_counted(inode.clone(), held, counted, (version, draft.dirty.length()), writes)))
    }

    /// Opens a file and empties it: what it was is not asked for.
    async fn open_truncated(self: &Arc<Self>, call: &Call, inode: Arc<Inode>) -> Result<Opened> {
        let gate = inode.gate.lock().await;
        let confirmed = self.confirm_to_truncate(call, &inode).await?;
        drop(gate);
        let mut slot = inode.draft.write();
        let draft = self.draft_over_nothing(&inode, &mut slot, confirmed.as_deref())?;
        draft.dirty.resize(0)?;
        draft.touch();
        Ok(self.open_fresh(&inode, &draft))
    }

    /// Sees to it that the version that is emptied is the one that the source has; returns the content that somebody has open
    /// and that the source has said to be of it. The caller holds the inode's gate.
    async fn confirm_to_truncate(self: &Arc<Self>, call: &Call, inode: &Arc<Inode>) -> Result<Option<Arc<Object>>> {
        let is_trusted = self.is_told_all(inode) && !self.attributes_remaining(inode)?.is_zero();
        let held = inode.content.lock().current.clone();
        if is_trusted {
            // A look at the file tells its version, and of the content that somebody has open not whether it is of that.
            let is_unsure =
                |held: &Current| !self.is_shared(inode, held) && inode.content.lock().is_open(held.object.generation());
            if !held.as_ref().is_some_and(is_unsure) {
                return Ok(None);
            }
        }
        match self.check(call, inode).await {
            Ok(Check::Unchanged) => Ok(held.map(|held| held.object)),
            Ok(Check::Changed) => Ok(None),
            Ok(Check::Elsewhere(_)) => Err(VfsError::Stale),
            Err(error) if is_gone(&error) => Err(self.learn_gone(call, inode).await?),
            Err(error) if is_trusted => {
                // Nobody had to be asked for the file itself.
                inode.note_error(&error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether who has this content open sees what is written over nothing: it is of the version that is known, or not doubted;
    /// a change of names or of the mode makes another version of it, and not another content.
    fn is_shared(&self, inode: &Inode, held: &Current) -> bool {
        *held.object.version() == inode.record.read().version || held.checked != SystemTime::UNIX_EPOCH
    }

    /// Opens a file that was just made, for writing. It is a draft at once: who opens it before the first write reads what
    /// is written.
    pub(crate) fn open_made(&self, inode: &Arc<Inode>) -> Result<Opened> {
        let mut slot = inode.draft.write();
        let draft = self.draft_over_nothing(inode, &mut slot, None)?;
        Ok(self.open_fresh(inode, &draft))
    }

    /// The draft of a file whose content is not asked for; begun where there is none. Who has the content open that opens get
    /// sees it, where that is not doubted, or `confirmed` just now.
    fn draft_over_nothing(
        &self,
        inode: &Arc<Inode>,
        slot: &mut Option<Arc<Draft>>,
        confirmed: Option<&Object>,
    ) -> Result<Arc<Draft>> {
        if let Some(draft) = slot {
            return Ok(draft.clone());
        }
        let (version, length) = {
            let record = inode.record.read();
            (record.version.clone(), record.attributes.size.known().unwrap_or(0))
        };
        let held = inode.content.lock().current.clone();
        let is_confirmed =
            |held: &Current| confirmed.is_some_and(|object| object.generation() == held.object.generation());
        let shared = held.filter(|held| is_confirmed(held) || self.is_shared(inode, held));
        // Else by nobody: who has what was written over another version open must not see what is written over this one.
        let counted = shared.map_or_else(|| self.store.new_generation(), |held| held.object.generation());
        self.begin_draft(inode, slot, (version, length), (counted, None)).map(|(draft, _)| draft)
    }

    fn open_fresh(&self, inode: &Arc<Inode>, draft: &Draft) -> Opened {
        let (version, length) = (draft.dirty.version(), draft.dirty.length());
        self.open_counted(inode.clone(), Held::Empty(version.clone()), draft.generation(), (version, length), true)
    }

    /// Opens what has no name any more: it is open still, or was looked up right before. Nobody is asked.
    ///
    /// # Errors
    /// `Stale` where not all of it is here: whoever looked it up does so again.
    fn open_gone(&self, inode: Arc<Inode>, how: OpenFor) -> Result<Opened> {
        let current = inode.content.lock().current.as_ref().map(|current| current.object.clone());
        let is_empty = inode.record.read().attributes.size == Figure::Exact(0);
        let opened = match current.filter(|object| object.is_complete()) {
            Some(object) => {
                let pages = inode.pages_for(object.generation(), object.length());
                self.open_object(inode, object, how.writing, pages)
            }
            None if is_empty || how.truncating => self.open_empty(inode, how.writing),
            None => return Err(VfsError::Stale),
        };
        if how.truncating
            && let Some(handle) = self.handles.get(opened.handle)
        {
            self.draft_held(&handle)?.dirty.resize(0)?;
        }
        Ok(opened)
    }

    /// Opens a file without a name of which nothing is held: it is empty.
    pub(crate) fn open_empty(&self, inode: Arc<Inode>, writing: bool) -> Opened {
        let version = inode.record.read().version.clone();
        self.open_counted(inode, Held::Empty(version.clone()), EMPTY, (version, 0), writing)
    }

    fn open_counted(
        &self,
        inode: Arc<Inode>,
        held: Held,
        counted: u64,
        (version, length): (Version, u64),
        writing: bool,
    ) -> Opened {
        let (keep_pages, bypass_pages) = inode.pages_for(counted, None);
        let record = OpenRecord {
            generation: Some(counted),
            version,
            length: Some(length),
            bypass_pages,
            writing,
            ..OpenRecord::default()
        };
        let handle = Handle { bypass_pages: bypass_pages.into(), writing, ..Handle::new(inode, held, counted) };
        Opened { handle: self.handles.add(handle), keep_pages, bypass_pages, backing: None, record }
    }

    /// Opens what the source said just now that the file is, and what there is no room for.
    fn open_through(&self, inode: Arc<Inode>) -> Opened {
        let (version, length) = {
            let record = inode.record.read();
            (record.version.clone(), record.attributes.size.exact())
        };
        let held = Held::Through(Arc::new(Through::of_version(version.clone(), length, self)));
        inode.content.lock().open_past_store += 1;
        let handle = Handle { bypass_pages: true.into(), ..Handle::new(inode, held, 0) };
        let record = OpenRecord { version, length, bypass_pages: true, ..OpenRecord::default() };
        Opened { handle: self.handles.add(handle), keep_pages: false, bypass_pages: true, backing: None, record }
    }

    /// What its source may change at any moment is not handed to the kernel: while that reads one version by itself, no
    /// other can be opened, but by the other face.
    fn may_pass_through(&self, inode: &Inode, object: &Object) -> bool {
        if inode.shows_newest() || self.is_breakable(inode.record.read().binding) {
            return false;
        }
        if !inode.content.lock().open_by_former.is_empty() {
            return false;
        }
        let large = object.length().is_some_and(|length| length >= self.options.passthrough_bytes_min);
        large && object.backing().is_some()
    }

    /// The last reader of a file that was still arriving when it was opened goes: from the next open on the kernel
    /// reads the cached file itself, so the pages it holds of this one are memory twice used, and dropping them would
    /// otherwise be paid by that open.
    fn drop_pages_for_passthrough(&self, handle: &Handle, object: &Object) {
        if handle.offered || !self.may_pass_through(&handle.inode, object) {
            return;
        }
        let mut content = handle.inode.content.lock();
        if content.open.is_empty() {
            content.pages_of = None;
            self.notices.send(Notice::Content { node: self.namespace.shown(handle.inode.id) });
        }
    }

    /// The handle behind an id.
    pub(crate) fn handle(&self, id: HandleId) -> Result<Arc<Handle>> {
        self.handles.get(id).ok_or(VfsError::BadHandle)
    }
}

/// How often a file is opened again that others write and close meanwhile.
const OPEN_ROUNDS_MAX: usize = 100;
/// Longest content that is handed out unasked, in bytes: what the kernel reads ahead at first.
pub(crate) const AT_HAND_BYTES_MAX: u64 = 128 << 10;
/// Under which generation those are counted who have a file open of which nothing is held.
pub(crate) const EMPTY: u64 = 0;
