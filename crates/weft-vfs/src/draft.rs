//! What was written to a file here, over the content that its source has.
//!
//! A draft begins with the first change of a file's content and lasts while any handle of the file is open and anything
//! of it is unsent. All handles of the version that it began on read it; nothing of it is seen by others before it is
//! sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use weft_remote::{Audience, Call, Content, Lease};
use weft_store::{Dirty, NewObject, Object, Origin, StoreError};

use crate::data::Data;
use crate::handle::{Handle, Held};
use crate::inode::Inode;
use crate::vfs::Vfs;
use crate::{Result, VfsError};

/// A file that is being written.
pub(crate) struct Draft {
    pub(crate) dirty: Dirty,
    /// What the handles that see it are counted under.
    generation: AtomicU64,
    /// The content below what was written, where some of it is needed and known.
    base: Mutex<Option<Arc<Object>>>,
    /// When the last byte was written.
    written: Mutex<SystemTime>,
}

impl Draft {
    pub(crate) fn over(dirty: Dirty, generation: u64, base: Option<Arc<Object>>) -> Draft {
        let generation = AtomicU64::new(generation);
        Draft { dirty, generation, base: Mutex::new(base), written: Mutex::new(SystemTime::now()) }
    }

    /// What the handles that see it are counted under.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// A handle that wrote it in a former life of the daemon is open again, and is counted under this.
    pub(crate) fn take_up(&self, generation: u64) {
        self.generation.store(generation, Ordering::Relaxed);
    }

    /// When it was changed last.
    pub(crate) fn written(&self) -> SystemTime {
        *self.written.lock()
    }

    /// It changes now.
    pub(crate) fn touch(&self) {
        *self.written.lock() = SystemTime::now();
    }

    /// The content below, if it is known.
    pub(crate) fn base(&self) -> Option<Arc<Object>> {
        self.base.lock().clone()
    }

    /// The source has what was written: what is below and not whole is asked for anew where it is needed.
    pub(crate) fn settle_base(&self) {
        let mut base = self.base.lock();
        if base.as_ref().is_some_and(|object| !object.is_complete()) {
            *base = None;
        }
    }
}

/// The bytes of a draft for whoever sends them.
pub(crate) struct DraftContent(pub(crate) Arc<Draft>);

impl Content for DraftContent {
    fn read(&self, offset: u64, length: usize) -> std::io::Result<Bytes> {
        let dirty = &self.0.dirty;
        let left = dirty.length().saturating_sub(offset).min(length as u64) as usize;
        dirty.read(offset, left).map_err(std::io::Error::other)
    }
}

impl Inode {
    /// What was written to it and is not all sent, or is still open.
    pub(crate) fn draft(&self) -> Option<Arc<Draft>> {
        self.draft.read().clone()
    }
}

impl Handle {
    /// The draft that this handle reads: the inode's, unless the handle was opened on another version.
    pub(crate) fn draft(&self) -> Option<Arc<Draft>> {
        self.inode.draft().filter(|draft| draft.generation() == self.counted)
    }
}

impl Vfs {
    /// The draft that a handle writes; begun where there is none.
    pub(crate) fn draft_of(&self, handle: &Handle) -> Result<Arc<Draft>> {
        let inode = &handle.inode;
        let mut slot = inode.draft.write();
        if let Some(draft) = &*slot {
            // One open file is one version: what was opened before the file changed is not written over it.
            return if draft.generation() == handle.counted { Ok(draft.clone()) } else { Err(VfsError::Changed) };
        }
        let (version, length, base) = match &*handle.content.lock() {
            Held::Object(object) => (object.version().clone(), object.length().unwrap_or(0), Some(object.clone())),
            Held::Empty(version) => (version.clone(), 0, None),
            Held::Lost(lost) => (lost.version.clone(), lost.length.unwrap_or(0), None),
            // There was no room for the content; there is none for what is written.
            Held::Through(_) => return Err(StoreError::Full { path: self.store.dir().into() }.into()),
        };
        let dirty = self.store.dirty(inode.id, version, length)?;
        let draft = Arc::new(Draft::over(dirty, handle.counted, base));
        *slot = Some(draft.clone());
        self.drafts.lock().insert(inode.id, inode.clone());
        Ok(draft)
    }

    /// Reads a draft.
    pub(crate) async fn read_draft(
        self: &Arc<Self>,
        call: &Call,
        handle: &Arc<Handle>,
        draft: &Arc<Draft>,
        offset: u64,
        size: usize,
    ) -> Result<Data> {
        let parts = draft.dirty.parts(offset, size);
        let mut whole = BytesMut::new();
        let count = parts.len();
        for (range, origin) in parts {
            let length = (range.end - range.start) as usize;
            let bytes = match origin {
                Origin::Written => draft.dirty.read(range.start, length)?,
                Origin::Zeros => Bytes::from(vec![0; length]),
                Origin::Base => {
                    let base = self.base_of(&handle.inode, draft)?;
                    let read = self.read_object(call, handle, &base, range.start, length).await?;
                    read.into_bytes()?
                }
            };
            if count == 1 {
                return Ok(bytes.into());
            }
            let short = bytes.len() < length;
            whole.extend_from_slice(&bytes);
            if short {
                break;
            }
        }
        Ok(whole.freeze().into())
    }

    /// The content below what was written: of the version that the source has, to be fetched as it is read.
    pub(crate) fn base_of(&self, inode: &Inode, draft: &Draft) -> Result<Arc<Object>> {
        let mut base = draft.base.lock();
        if let Some(object) = &*base {
            return Ok(object.clone());
        }
        let record = inode.record();
        let new = NewObject {
            version: draft.dirty.version(),
            length: Some(draft.dirty.source_length()),
            lease: Lease::Spent,
            audience: record.audience,
            owner_uid: match record.audience {
                Audience::Only { uid } => uid,
                Audience::Everyone => self.options.uid,
            },
            checked: SystemTime::now(),
            account: self.account_of(inode.id)?,
        };
        let object = self.store.create(inode.id, new)?;
        Ok(base.insert(object).clone())
    }

    /// Has all that is below what was written here, as far as it is needed: the source will not have it any more.
    pub(crate) async fn complete(self: &Arc<Self>, call: &Call, inode: &Arc<Inode>) -> Result<()> {
        let draft = inode.draft();
        let object = match &draft {
            Some(draft) if !draft.dirty.needs_base() => return Ok(()),
            Some(draft) => Some(self.base_of(inode, draft)?),
            None => inode.content.lock().current.as_ref().map(|current| current.object.clone()),
        };
        let Some(object) = object else { return Ok(()) };
        let Some(length) = object.length() else { return Ok(()) };
        let handle = Arc::new(Handle::new(inode.clone(), Held::Object(object.clone()), object.generation()));
        let mut at = 0;
        while let Some(missing) = object.missing_from(at).filter(|missing| *missing < length) {
            let size = usize::try_from((length - missing).min(COMPLETED_AT_ONCE)).unwrap_or(usize::MAX);
            self.read_object(call, &handle, &object, missing, size).await?;
            at = missing + size as u64;
        }
        Ok(())
    }
}

/// Bytes that are asked for at once when a file is made complete.
const COMPLETED_AT_ONCE: u64 = 1 << 20;
