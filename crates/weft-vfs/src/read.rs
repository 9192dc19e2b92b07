//! Reading open files.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use weft_remote::{Answer, Call, RemoteError, Span, Version};
use weft_store::{Object, PIECE_BYTES, StoreError};

use crate::arrival::{Delivery, State};
use crate::changes::ChangeKind;
use crate::data::Data;
use crate::figures::{add, count};
use crate::handle::{Handle, HandleId, Held};
use crate::inode::Inode;
use crate::through::Through;
use crate::vfs::Vfs;
use crate::{Result, VfsError};

impl Vfs {
    /// Reads up to `size` bytes at `offset` of an open file; fewer only at its end.
    ///
    /// # Errors
    /// `Changed` when bytes that are not held have changed at the source since the file was opened; whatever keeps
    /// the remote from answering.
    pub async fn read(self: Arc<Self>, call: Call, handle: HandleId, offset: u64, size: usize) -> Result<Data> {
        let handle = self.handle(handle)?;
        handle.note_read();
        if handle.timed_out.is_asked_again(offset) {
            return Err(VfsError::TimedOut);
        }
        let reading = handle.timed_out.begin(call.deadline, offset..offset.saturating_add(size as u64));
        let outcome = self.read_as_sent(&call, &handle, offset, size).await;
        if outcome.is_ok() {
            handle.note_answered();
        }
        let is_late = matches!(outcome, Err(VfsError::TimedOut | VfsError::Remote(RemoteError::TimedOut { .. })));
        if !is_late {
            reading.over();
        }
        outcome
    }

    /// Reads, and again where what is written here has been sent meanwhile.
    async fn read_as_sent(
        self: &Arc<Self>,
        call: &Call,
        handle: &Arc<Handle>,
        offset: u64,
        size: usize,
    ) -> Result<Data> {
        self.catch_up(call, handle).await?;
        for _ in 0..SENT_ROUNDS_MAX {
            if handle.is_over() {
                Box::pin(self.go_on(call, handle)).await?;
            }
            let before = version_read(handle);
            match self.read_now(call, handle, offset, size).await {
                // The kernel may have another length by now than what was read has.
                Ok(_) if handle.is_over() => {}
                Err(error) if self.is_sent_over(call, handle, &before, &error).await => {}
                Err(VfsError::Changed) if handle.draft().is_none() && handle.goes_on() => {
                    Box::pin(self.go_on(call, handle)).await?;
                }
                // Nothing was said of it as long as it could be our own doing.
                Err(VfsError::Changed) if handle.inode.draft().is_some() => {
                    return Err(self.changed_under(&handle.inode));
                }
                outcome => return outcome,
            }
        }
        Err(VfsError::Changed)
    }

    /// Whether what was sent from here has replaced the version that was read, so that a read that failed is to be made again.
    /// While it is on its way that is not known: it is waited for. What was cut short is sent now, by whoever may write it.
    async fn is_sent_over(
        self: &Arc<Self>,
        call: &Call,
        handle: &Handle,
        before: &Option<Version>,
        error: &VfsError,
    ) -> bool {
        if matches!(error, VfsError::Changed)
            && let Some(draft) = handle.draft()
        {
            if handle.writing
                && draft.is_cut_short_yet()
                && let Err(error) = self.send(call, &handle.inode).await
            {
                tracing::debug!(%error, node = handle.inode.id.0, "what a reader waits for cannot be sent");
            } else if draft.dirty.is_being_sent() {
                drop(handle.inode.gate.lock().await);
            }
        }
        version_read(handle) != *before
    }

    async fn read_now(self: &Arc<Self>, call: &Call, handle: &Arc<Handle>, offset: u64, size: usize) -> Result<Data> {
        if let Some(draft) = handle.draft() {
            let data = Box::pin(self.read_draft(call, handle, &draft, offset, size)).await?;
            add(&self.figures.bytes_served, data.len() as u64);
            return Ok(data);
        }
        let mut held = handle.content.lock().clone();
        if let Held::Lost(lost) = &held {
            Box::pin(self.find_again(call, handle, lost)).await?;
            held = handle.content.lock().clone();
        }
        let data = match held {
            Held::Object(object) => match self.read_object(call, handle, &object, offset, size).await {
                Err(error) if error.is_full() => {
                    Box::pin(self.turn_through(call, handle, offset, size, error)).await?.into()
                }
                outcome => outcome?,
            },
            Held::Through(through) => Box::pin(through.read(self, call, &handle.inode, offset, size)).await?.into(),
            Held::Empty(_) => Bytes::new().into(),
            // It was found or there was an error.
            Held::Lost(_) => return Err(VfsError::Changed),
        };
        add(&self.figures.bytes_served, data.len() as u64);
        Ok(data)
    }

    pub(crate) async fn read_object(
        self: &Arc<Self>,
        call: &Call,
        handle: &Arc<Handle>,
        object: &Arc<Object>,
        offset: u64,
        size: usize,
    ) -> Result<Data> {
        let mut waited = Duration::ZERO;
        let ahead = handle.pace.lock().note(offset, size as u64);
        let (mut rounds_left, mut most) = (READ_ROUNDS_MAX, 0);
        while rounds_left > 0 {
            let wanted = match object.length() {
                Some(length) => length.saturating_sub(offset).min(size as u64),
                None => size as u64,
            };
            if wanted == 0 {
                return Ok(Bytes::new().into());
            }
            let available = object.available(offset);
            // A body that broke off half way has brought the read forward all the same.
            match available > most {
                true => most = available,
                false => rounds_left -= 1,
            }
            if available >= wanted {
                match held(object, offset, size) {
                    Err(error @ StoreError::Damaged { .. }) => {
                        self.tell_damaged(handle, object, &error);
                        continue;
                    }
                    Err(StoreError::Missing { .. }) => continue,
                    outcome => {
                        self.keep_ahead(call, handle, object, offset + wanted, (wanted, waited));
                        return Ok(outcome?);
                    }
                }
            }
            let since = Instant::now();
            Box::pin(self.bring(call, handle, object, offset, wanted, ahead)).await?;
            waited += since.elapsed();
        }
        let detail = format!("{}: bytes at {offset} do not arrive", self.path_text(handle.inode.id));
        Err(RemoteError::Failed { detail }.into())
    }

    /// What came back from the disk is not what was written, and is held no more.
    pub(crate) fn tell_damaged(&self, handle: &Handle, object: &Object, error: &StoreError) {
        self.troubles.tell(self.path_text(handle.inode.id), format!("{error}; fetched again"));
        let version = object.version().clone();
        self.tell_of_node(ChangeKind::Damaged, handle.inode.id, version.clone(), version);
    }

    /// Gets bytes that are not held: waits for a body that is bringing them, or has a range fetched.
    async fn bring(
        self: &Arc<Self>,
        call: &Call,
        handle: &Handle,
        object: &Arc<Object>,
        offset: u64,
        wanted: u64,
        ahead: u64,
    ) -> Result<()> {
        let inode = &handle.inode;
        // The first byte that is not here decides: what lies before it was brought by another body.
        let mut missing = offset + object.available(offset);
        // Bytes without a validator cannot be fetched from the middle: their one body is waited for, however far.
        let only_whole = *object.version() == Version::None;
        let bringing = |arrival: &crate::arrival::Arrival, missing: u64| {
            Arc::ptr_eq(&arrival.object, object) && (only_whole || arrival.will_bring(missing))
        };
        let arrival = match inode.arrival(|arrival| bringing(arrival, missing)) {
            Some(arrival) => arrival,
            // It has just come: who waits for a range that is asked for elsewhere in the file is not waited for.
            None if object.available(missing) > 0 => return Ok(()),
            None => {
                let _gate = inode.gate.lock().await;
                if handle.draft().is_some_and(|draft| draft.replaces(object.version())) {
                    // What was sent has come before this.
                    return Err(VfsError::Changed);
                }
                self.refuse_spoilt(handle, object)?;
                if object.available(offset) >= wanted {
                    return Ok(());
                }
                missing = offset + object.available(offset);
                match inode.arrival(|arrival| bringing(arrival, missing)) {
                    Some(arrival) => arrival,
                    None => {
                        // Not a byte that is on its way already.
                        let start = missing - missing % PIECE_BYTES;
                        let room = inode.next_arrival(object, missing).map_or(u64::MAX, |next| next - start);
                        let ahead = ahead.min(room);
                        self.fetch_range(call, handle, object, missing, Some(ahead)).await?
                    }
                }
            }
        };
        arrival.claim();
        arrival.want(offset + wanted);
        match arrival.reach(call, offset + wanted).await? {
            State::Failed(error) => Err(to_reader(error)),
            State::Running | State::Done | State::Stopped => Ok(()),
        }
    }

    /// A body that was not what it announced is not pieced together from further answers.
    pub(crate) fn refuse_spoilt(&self, handle: &Handle, object: &Object) -> Result<()> {
        match &handle.inode.content.lock().spoilt {
            Some((generation, error)) if *generation == object.generation() => Err(to_reader(error.clone())),
            _ => Ok(()),
        }
    }

    /// Fetches a range of the version that a handle has open: so many bytes, or to the end of the file as far as it is
    /// read. The caller holds the inode's gate.
    pub(crate) async fn fetch_range(
        self: &Arc<Self>,
        call: &Call,
        handle: &Handle,
        object: &Arc<Object>,
        offset: u64,
        length: Option<u64>,
    ) -> Result<Arc<crate::arrival::Arrival>> {
        let inode = &handle.inode;
        let start = offset - offset % PIECE_BYTES;
        // Not behind the end of the file: there are servers that refuse a range which ends there (webfs).
        let left = object.length().and_then(|whole| whole.checked_sub(start)).filter(|left| *left > 0);
        let length = length.map(|length| length.max(PIECE_BYTES).min(left.unwrap_or(u64::MAX)));
        let record = inode.record();
        let version = object.version().clone();
        if version == Version::None {
            // Without a validator nothing tells whether the source still has this version.
            return Err(VfsError::Changed);
        }
        count(&self.figures.ranges_fetched);
        let remote = self.remote_of(inode)?.clone();
        let span = Span { start, length };
        let since = Instant::now();
        let asked = self.ask_of(call, inode, || remote.fetch(call, &record.file, &version, span)).await;
        inode.content.lock().latency = since.elapsed();
        let answer = match asked {
            Err(error) if is_of_another(&error) => return Err(self.changed_below(handle, &version)),
            answer => answer?,
        };
        let Answer { value, lease, audience, asked: asked_at, .. } = answer;
        let body = value.body;
        // Two lengths are two files, whatever their tags say.
        let lengths_differ = matches!((body.file_length, object.length()), (Some(told), Some(held)) if told != held);
        if lengths_differ || !body.version.still_holds(&version) {
            return Err(self.changed_below(handle, &version));
        }
        if body.start % PIECE_BYTES != 0 || body.start > start {
            let detail = format!("{}: a range from {} instead of {start}", self.path_text(inode.id), body.start);
            return Err(RemoteError::Damaged { detail }.into());
        }
        let delivery = Delivery {
            node: inode.id,
            binding: record.binding,
            body,
            lease,
            audience,
            owner_uid: call.caller.uid,
            lists: None,
            asked: asked_at,
            checked: asked_at,
        };
        // A source without ranges begins at the beginning and is let go on to the end.
        let end = length.filter(|_| delivery.body.start == start).map(|length| start + length);
        let arrival = self.receive_range(object, delivery, end)?;
        inode.content.lock().arrivals.push(arrival.clone());
        Ok(arrival)
    }

    /// The source has another version than this, which a handle reads. That may be our own doing.
    fn changed_below(&self, handle: &Handle, version: &Version) -> VfsError {
        match handle.draft().is_some_and(|draft| draft.may_have_replaced(version)) {
            true => VfsError::Changed,
            false => self.changed_under(&handle.inode),
        }
    }

    /// The source has another version than the one that is held and open. Whatever it had promised, the next open asks: who
    /// had only what is held of the old one would come back to this for as long as that promise lasts.
    pub(crate) fn changed_under(&self, inode: &Inode) -> VfsError {
        let text = "changed at its source while it was open".to_string();
        self.troubles.tell(self.path_text(inode.id), text);
        self.distrust(inode).err().unwrap_or(VfsError::Changed)
    }

    /// The store is full: the handle goes on without it.
    async fn turn_through(
        self: &Arc<Self>,
        call: &Call,
        handle: &Handle,
        offset: u64,
        size: usize,
        error: VfsError,
    ) -> Result<Bytes> {
        self.tell_unstored(handle.inode.id, &error);
        let shows_newest = handle.inode.shows_newest();
        let through = {
            let mut of_inode = handle.inode.content.lock();
            let held = handle.content.lock().clone();
            match held {
                Held::Through(through) => through,
                Held::Lost(_) | Held::Empty(_) => return Err(error),
                // Without a validator nothing tells that what comes now goes on where the object ended.
                Held::Object(object) if *object.version() == Version::None && offset > 0 && !shows_newest => {
                    return Err(error);
                }
                Held::Object(object) => {
                    let through = Arc::new(Through::of_version(object.version().clone(), object.length(), self));
                    handle.turn_past_store(&mut of_inode, through.clone());
                    through
                }
            }
        };
        through.read(self, call, &handle.inode, offset, size).await
    }
}

/// The version that a handle reads where nothing was written over it.
fn version_read(handle: &Handle) -> Option<Version> {
    match handle.draft() {
        Some(draft) => Some(draft.dirty.version()),
        None => match &*handle.content.lock() {
            Held::Object(object) => Some(object.version().clone()),
            Held::Empty(_) | Held::Lost(_) | Held::Through(_) => None,
        },
    }
}

/// What whoever reads an open file is told: what it has open is there no more, whether another has its name or none.
pub(crate) fn to_reader(error: VfsError) -> VfsError {
    if is_of_another(&error) { VfsError::Changed } else { error }
}

/// Whether a source refuses bytes of a version since there is another by that name, a directory maybe, or none.
fn is_of_another(error: &VfsError) -> bool {
    use RemoteError::{IsADirectory, NotADirectory, NotFound, VersionChanged};
    let VfsError::Remote(error) = error else { return false };
    matches!(error, VersionChanged { .. } | NotFound { .. } | IsADirectory { .. } | NotADirectory { .. })
}

/// Bytes that an object has: from its file if there are many, for it is then that a copy saved is worth the calls.
fn held(object: &Arc<Object>, offset: u64, size: usize) -> std::result::Result<Data, StoreError> {
    if size >= STRETCH_BYTES_MIN
        && let Some(stretch) = object.stretch(offset, size)?
    {
        return Ok(Data::Stored(stretch));
    }
    object.read(offset, size).map(Data::Bytes)
}

/// Reads of so many bytes take them from the file itself.
const STRETCH_BYTES_MIN: usize = 16 << 10;
/// How often a read is made again because what was written to the file was sent meanwhile.
const SENT_ROUNDS_MAX: usize = 100;
/// How often a read looks for its bytes in vain before it gives up.
const READ_ROUNDS_MAX: usize = 6;
