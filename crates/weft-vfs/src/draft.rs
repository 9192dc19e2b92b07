//! What was written to a file here, over the content that its source has.
//!
//! A draft begins with the first change of a file's content and lasts while any handle of the file is open and anything
//! of it is unsent. All handles of the version that it began on read it; nothing of it is seen by others before it is
//! sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use parking_lot::{MappedRwLockReadGuard, Mutex, RwLockReadGuard};
use weft_remote::{Audience, Call, Caller, Lease, Version, clock};
use weft_store::{Dirty, NewObject, Object, Origin, StoreError};

use crate::attempt::Attempt;
use crate::data::Data;
use crate::handle::{Handle, Held};
use crate::inode::{Current, Inode};
use crate::send_again::Again;
use crate::vfs::Vfs;
use crate::{Result, VfsError};

/// A file that is being written.
pub(crate) struct Draft {
    pub(crate) dirty: Dirty,
    /// What the handles that see it are counted under.
    generation: AtomicU64,
    /// The content below what was written, where some of it is needed and known.
    base: Mutex<Option<Arc<Object>>>,
    /// It was being sent, and nobody knows how much of that the source has: a former daemon ended, or the source did not
    /// take all of it.
    cut_short: AtomicBool,
    /// What the source may have of that, where it is kept. Held for one look or one change.
    attempts: Mutex<Vec<Arc<Attempt>>>,
    /// What the source had before all that, and the version that it has by that. Held for one look or one change.
    before: Mutex<Option<(Before, Version)>>,
    /// Of some of what was written the kernel does not know, or may not.
    unseen: AtomicBool,
    /// When it was changed. Held for one look or one change.
    times: Mutex<Times>,
    /// Why it could not be sent when that was tried last. Held for one look or one change.
    failed: Mutex<Option<Failed>>,
    /// Who closed or synced it last. Held for one look or one change.
    writer: Mutex<Option<Caller>>,
}

#[derive(Clone, Copy)]
struct Times {
    /// When the last byte was written.
    written: SystemTime,
    /// Since when the source does not have all of it.
    since: SystemTime,
}

/// What the source had before anything was sent.
#[derive(Clone)]
pub(crate) struct Before {
    /// Its content, if all of it is here.
    pub(crate) content: Option<Arc<Object>>,
    pub(crate) length: u64,
}

/// Why a draft could not be sent.
#[derive(Clone)]
pub(crate) struct Failed {
    /// In words.
    pub(crate) why: String,
    /// When it is tried again by itself.
    pub(crate) again: Again,
}

impl Draft {
    pub(crate) fn over(dirty: Dirty, generation: u64, base: Option<Arc<Object>>) -> Draft {
        let generation = AtomicU64::new(generation);
        let now = SystemTime::now();
        let times = Mutex::new(Times { written: now, since: now });
        Draft {
            dirty,
            generation,
            base: Mutex::new(base),
            cut_short: AtomicBool::new(false),
            attempts: Mutex::default(),
            before: Mutex::default(),
            unseen: AtomicBool::new(false),
            times,
            failed: Mutex::default(),
            writer: Mutex::default(),
        }
    }

    /// What a former daemon left.
    pub(crate) fn left(dirty: Dirty) -> Draft {
        let written = dirty.changed_at().unwrap_or_else(SystemTime::now);
        // Nobody, where it does not say so: whoever wrote it says so when that is opened again.
        let readers = dirty.readers().unwrap_or(u64::MAX);
        let draft = Draft {
            cut_short: AtomicBool::new(true),
            unseen: AtomicBool::new(true),
            ..Draft::over(dirty, readers, None)
        };
        *draft.writer.lock() = draft.dirty.writer();
        *draft.times.lock() = Times { written, since: written };
        draft
    }

    /// What the handles that see it are counted under.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// A handle that wrote it in a former life of the daemon is open again, and is counted under this.
    pub(crate) fn take_up(&self, generation: u64) {
        self.generation.store(generation, Ordering::Relaxed);
    }

    /// The source may have some of what was being sent.
    pub(crate) fn note_cut_short(&self, attempt: Option<Attempt>) {
        self.cut_short.store(true, Ordering::Relaxed);
        let mut attempts = self.attempts.lock();
        if attempts.len() < ATTEMPTS_MAX {
            attempts.extend(attempt.map(Arc::new));
        }
    }

    /// The source has all that was being sent.
    pub(crate) fn note_sent(&self) {
        self.cut_short.store(false, Ordering::Relaxed);
        self.attempts.lock().clear();
        self.before.lock().take();
    }

    /// The source has this version by what was being sent, over what it had before.
    pub(crate) fn note_half_sent(&self, before: Before, version: Version) {
        *self.before.lock() = Some((before, version));
    }

    /// What the source had before, if it has the version that came of that.
    pub(crate) fn before(&self) -> Option<Before> {
        let (before, version) = self.before.lock().clone()?;
        (version == self.dirty.version()).then_some(before)
    }

    /// What was being sent when that was cut short.
    pub(crate) fn attempts(&self) -> Vec<Arc<Attempt>> {
        self.attempts.lock().clone()
    }

    /// Whether the source may have some of what was being sent.
    pub(crate) fn was_cut_short(&self) -> bool {
        self.cut_short.load(Ordering::Relaxed)
    }

    /// The kernel does not know of something that is written.
    pub(crate) fn note_unseen(&self) {
        self.unseen.store(true, Ordering::Relaxed);
    }

    /// Whether the kernel may show a length or times of before the draft. Whoever writes has it forget them, as far as it
    /// knows of that, and of a draft it is told nothing that lasts.
    pub(crate) fn may_be_shown_as_before(&self) -> bool {
        self.unseen.load(Ordering::Relaxed)
    }

    /// When it was changed last.
    pub(crate) fn written(&self) -> SystemTime {
        self.times.lock().written
    }

    /// Since when the source does not have all of it.
    pub(crate) fn since(&self) -> SystemTime {
        self.times.lock().since
    }

    /// It changes now.
    pub(crate) fn touch(&self) {
        self.times.lock().written = SystemTime::now();
    }

    /// Somebody who writes it closes or syncs it. The process may be another by the time that this is of use. `is_own`: the
    /// daemon's own user, as whom the next one sends what does not say whose it is.
    pub(crate) fn note_writer(&self, caller: Caller, is_own: bool) {
        *self.writer.lock() = Some(Caller { pid: 0, ..caller });
        if is_own && self.dirty.writer().is_none() {
            return;
        }
        if let Err(error) = self.dirty.note_writer(caller) {
            tracing::warn!(%error, "who wrote is not noted beside what was written");
        }
    }

    /// As whom it is sent where nobody waits for that: as who has last had it sent, by whichever daemon, for others may not be
    /// allowed to; as the daemon where nobody has.
    pub(crate) fn writer(&self) -> Caller {
        self.writer.lock().unwrap_or(Caller::DAEMON)
    }

    /// Why it could not be sent when that was tried last.
    pub(crate) fn failed(&self) -> Option<Failed> {
        self.failed.lock().clone()
    }

    /// The time of its last change was set, unless it changes once more.
    pub(crate) fn note_modified(&self, modified: SystemTime) {
        self.times.lock().written = modified;
    }

    /// It could not be sent.
    pub(crate) fn fail(&self, failed: Failed) {
        *self.failed.lock() = Some(failed);
    }

    /// The source has what was written up to `sent`; returns whether it could not be told before.
    pub(crate) fn has_passed(&self, sent: SystemTime) -> bool {
        self.times.lock().since = sent;
        self.failed.lock().take().is_some()
    }

    /// The content below, if it is known.
    pub(crate) fn base(&self) -> Option<Arc<Object>> {
        self.base.lock().clone()
    }

    /// The source has another version by what was done here, which `note` notes: what is below and not whole is asked for
    /// anew where it is needed, of that version and no other.
    pub(crate) fn turn_to<T>(&self, note: impl FnOnce(&Dirty) -> T) -> T {
        let mut base = self.base.lock();
        let noted = note(&self.dirty);
        let is_of_it = |object: &Object| object.version().still_holds(&self.dirty.version());
        if base.as_ref().is_some_and(|object| !object.is_complete() && !is_of_it(object)) {
            *base = None;
        }
        noted
    }

    /// Whether a version that was below is so no more, or may soon not be: what is sent from here takes its place.
    pub(crate) fn replaces(&self, version: &Version) -> bool {
        // In this order: whoever has sent it notes the version first.
        self.dirty.is_being_sent() || !self.dirty.version().still_holds(version)
    }

    /// The same, or a send that was cut short may have done so.
    pub(crate) fn may_have_replaced(&self, version: &Version) -> bool {
        self.replaces(version) || self.is_cut_short_yet()
    }

    /// Whether what the source may have some of has not been sent since.
    pub(crate) fn is_cut_short_yet(&self) -> bool {
        self.was_cut_short() && self.dirty.is_unsent()
    }
}

impl Inode {
    /// What was written to it and is not all sent, or is still open.
    pub(crate) fn draft(&self) -> Option<Arc<Draft>> {
        // Not behind somebody who waits to begin one: who waits for the names that the caller may hold has it read as well.
        self.draft.read_recursive().clone()
    }
}

impl Handle {
    /// The draft that this handle reads: the inode's, unless the handle was opened on another version.
    pub(crate) fn draft(&self) -> Option<Arc<Draft>> {
        self.inode.draft().filter(|draft| draft.generation() == self.counted())
    }
}

impl Vfs {
    /// The draft that a handle writes; begun where there is none.
    pub(crate) fn draft_of(&self, handle: &Handle) -> Result<Arc<Draft>> {
        let inode = &handle.inode;
        let mut slot = inode.draft.write();
        if handle.is_over() {
            return Err(VfsError::Changed);
        }
        if let Some(draft) = &*slot {
            // One open file is one version: what was opened before the file changed is not written over it.
            return if draft.generation() == handle.counted() { Ok(draft.clone()) } else { Err(VfsError::Changed) };
        }
        let (version, length, base) = match &*handle.content.lock() {
            Held::Object(object) => (object.version().clone(), object.length().unwrap_or(0), Some(object.clone())),
            Held::Empty(version) => (version.clone(), 0, None),
            Held::Lost(lost) => (lost.version.clone(), lost.length.unwrap_or(0), None),
            // There was no room for the content; there is none for what is written.
            Held::Through(_) => return Err(StoreError::Full { path: self.store.dir().into() }.into()),
        };
        let (draft, has_ended) = self.begin_draft(inode, &mut slot, (version, length), (handle.counted(), base))?;
        drop(slot);
        if has_ended {
            self.tell_ended(inode);
        }
        Ok(draft)
    }

    /// Begins a draft over a version of this length, for those who have that open; and whether others' versions have ended by
    /// that. The inode's slot is held, and free.
    pub(crate) fn begin_draft(
        &self,
        inode: &Arc<Inode>,
        slot: &mut Option<Arc<Draft>>,
        (version, length): (Version, u64),
        (generation, base): (u64, Option<Arc<Object>>),
    ) -> Result<(Arc<Draft>, bool)> {
        let dirty = self.store.dirty(inode.id, version, length, generation)?;
        let has_ended = self.end_other_versions(inode, &dirty.version(), generation);
        let draft = Arc::new(Draft::over(dirty, generation, base));
        inode.content.lock().was_used = true;
        *slot = Some(draft.clone());
        self.drafts.lock().insert(inode.id, inode.clone());
        Ok((draft, has_ended))
    }

    /// The same, held so that it does not end before it is changed.
    pub(crate) fn draft_held<'a>(&self, handle: &'a Handle) -> Result<MappedRwLockReadGuard<'a, Arc<Draft>>> {
        loop {
            let draft = self.draft_of(handle)?;
            let is_it = |slot: &Option<Arc<Draft>>| slot.as_ref().is_some_and(|there| Arc::ptr_eq(there, &draft));
            let slot = handle.inode.draft.read();
            if let Ok(held) = RwLockReadGuard::try_map(slot, |slot| slot.as_ref().filter(|_| is_it(slot))) {
                return Ok(held);
            }
        }
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
    pub(crate) fn base_of(&self, inode: &Arc<Inode>, draft: &Draft) -> Result<Arc<Object>> {
        let mut base = draft.base.lock();
        let (version, length) = (draft.dirty.version(), draft.dirty.source_length());
        // What is not whole and of before what was sent cannot be had any more.
        if let Some(object) =
            base.as_ref().filter(|object| object.is_complete() || object.version().still_holds(&version))
        {
            return Ok(object.clone());
        }
        // After a restart: what is held may be it, and nobody else may have it any more.
        if let Some(Current { object, .. }) = self.held_content(inode)?
            && object.version().still_holds(&version)
            && object.length() == Some(length)
        {
            return Ok(base.insert(object).clone());
        }
        let object = self.new_content(inode, version, length, Lease::Spent, clock::now())?;
        Ok(base.insert(object).clone())
    }

    /// An empty object for content of a version, for those who may see the inode.
    pub(crate) fn new_content(
        &self,
        inode: &Inode,
        version: Version,
        length: u64,
        lease: Lease,
        checked: SystemTime,
    ) -> Result<Arc<Object>> {
        Ok(self.store.create(inode.id, self.new_of(inode, version, length, (lease, checked))?)?)
    }

    /// The same, of bytes that were written here and are to be taken over.
    pub(crate) fn content_to_come(&self, inode: &Inode, version: Version, length: u64) -> Result<Arc<Object>> {
        let known = inode.known_of(&version);
        Ok(self.store.create_to_come(inode.id, self.new_of(inode, version, length, known)?))
    }

    fn new_of(
        &self,
        inode: &Inode,
        version: Version,
        length: u64,
        (lease, checked): (Lease, SystemTime),
    ) -> Result<NewObject> {
        let audience = inode.record.read().audience;
        let owner_uid = match audience {
            Audience::Only { uid } => uid,
            Audience::Everyone => self.options.uid,
        };
        let account = self.account_of(inode.id)?;
        Ok(NewObject { version, length: Some(length), lease, audience, owner_uid, checked, account })
    }

    /// Has all of a file here, for the next daemon as well: the source will not have it any more.
    pub(crate) async fn complete(self: &Arc<Self>, call: &Call, inode: &Arc<Inode>) -> Result<()> {
        let draft = inode.draft();
        if let Some(draft) = &draft {
            // What is below is of the version before, if it was sent: whoever serves next finds it beside what was written.
            let mut filled = self.fill(call, inode, draft).await;
            if matches!(filled, Err(VfsError::Changed))
                && matches!(self.is_at_source_still(call, inode, draft).await, Ok(true))
            {
                // A copy that had begun before was stopped by what was sent.
                filled = self.fill(call, inode, draft).await;
            }
            match filled {
                Ok(()) => drop(draft.dirty.keep_all()?),
                Err(error) => {
                    tracing::warn!(%error, node = inode.id.0, "what was written is not kept with all that lies below it");
                }
            }
        }
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

    /// Keeps the bytes of the base beside what was written, for the source may not have them any more: then the draft
    /// is the whole file.
    pub(crate) async fn fill(self: &Arc<Self>, call: &Call, inode: &Arc<Inode>, draft: &Arc<Draft>) -> Result<()> {
        let mut at = 0;
        while draft.dirty.needs_base() {
            let size = COMPLETED_AT_ONCE.min(draft.dirty.length().saturating_sub(at)) as usize;
            if size == 0 {
                // It was cut, or grew, meanwhile: what is missing is before this.
                at = 0;
                continue;
            }
            for (range, _) in draft.dirty.parts(at, size).into_iter().filter(|(_, origin)| *origin == Origin::Base) {
                let base = self.base_of(inode, draft)?;
                let handle = Arc::new(Handle::new(inode.clone(), Held::Object(base.clone()), base.generation()));
                let mut from = range.start;
                while from < range.end {
                    let read = self.read_object(call, &handle, &base, from, (range.end - from) as usize).await?;
                    let bytes = read.into_bytes()?;
                    if bytes.is_empty() {
                        return Err(VfsError::Changed);
                    }
                    draft.dirty.fill(from, &bytes)?;
                    from += bytes.len() as u64;
                }
            }
            at += size as u64;
        }
        Ok(())
    }

    /// The same as far as it takes no question: of what is all here, or soon will be, and not large.
    pub(crate) async fn fill_from_held(&self, inode: &Arc<Inode>, draft: &Draft) -> Result<()> {
        if !draft.dirty.needs_base() || draft.dirty.length() > FILLED_BYTES_MAX {
            return Ok(());
        }
        let base = self.base_of(inode, draft)?;
        if base.length().is_some_and(|length| length <= FILLED_BYTES_MAX)
            && let Some(coming) = inode.arrival(|arrival| Arc::ptr_eq(&arrival.object, &base))
        {
            coming.want(u64::MAX);
            // What has not come by then is missing in a copy, which says so.
            let _ = coming.end(&Call::within(Caller::DAEMON, FILL_PATIENCE)).await;
        }
        if !base.is_complete() {
            return Ok(());
        }
        let parts = draft.dirty.parts(0, usize::MAX).into_iter();
        for (range, _) in parts.filter(|(_, origin)| *origin == Origin::Base) {
            draft.dirty.fill(range.start, &base.read(range.start, (range.end - range.start) as usize)?)?;
        }
        Ok(())
    }
}

/// Longest file of which all is kept when it cannot be sent, since its source has another version.
const FILLED_BYTES_MAX: u64 = 16 << 20;
/// Most attempts that are kept of one file.
const ATTEMPTS_MAX: usize = 8;
/// How long is waited for what is on its way of such a file.
const FILL_PATIENCE: Duration = Duration::from_secs(2);
/// Bytes that are asked for at once when a file is made complete.
const COMPLETED_AT_ONCE: u64 = 1 << 20;
