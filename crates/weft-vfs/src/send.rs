//! Sending what was written to its source, and what becomes of a draft then.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use weft_remote::{Answer, Call, Caller, Change, Figure, Lease, RemoteError, Version};
use weft_store::{Batch, NodeId, Record};

use crate::attempt::Sending;
use crate::draft::{Draft, Failed};
use crate::figures::count;
use crate::going_on::ToItsEnd;
use crate::handle::HandleId;
use crate::inode::Inode;
use crate::learn::Told;
use crate::send_again::Again;
use crate::vfs::{Vfs, is_gone};
use crate::{Result, VfsError};

/// What was taken out of a draft: it goes back unless it was sent, also when whoever sends it is dropped.
struct Taken<'a> {
    draft: &'a Draft,
    batch: Option<Batch>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if let Some(batch) = self.batch.take() {
            self.draft.dirty.put_back(batch);
        }
    }
}

impl Vfs {
    /// Sends what was written to the remote: at each close(2) of a descriptor by which it can be written. Who only reads a
    /// file that another writes has nothing to send, and maybe no right to. Who stops waiting does not stop it.
    ///
    /// # Errors
    /// What the remote says; what was written stays here and is tried again at the next flush. `Changed` when the file
    /// changed at its source since it was opened.
    pub async fn flush(self: Arc<Self>, call: Call, handle: HandleId) -> Result<()> {
        let handle = self.handle(handle)?;
        if !handle.writing {
            return Ok(());
        }
        self.note_writer(&handle.inode, call.caller);
        self.send(&call, &handle.inode).await
    }

    /// The same, and has it durable at the source.
    ///
    /// # Errors
    /// As of [`Vfs::flush`].
    pub async fn sync(self: Arc<Self>, call: Call, handle: HandleId) -> Result<()> {
        let handle = self.handle(handle)?;
        let inode = handle.inode.clone();
        if handle.writing {
            self.note_writer(&inode, call.caller);
        }
        self.send(&call, &inode).await?;
        // That took as long as there was to be sent.
        self.sync_source(&Call::within(call.caller, self.options.deadline), &inode).await
    }

    /// Somebody who may write a file closes or syncs it.
    fn note_writer(&self, inode: &Inode, caller: Caller) {
        if let Some(draft) = inode.draft().filter(|draft| draft.dirty.is_unsent()) {
            draft.note_writer(caller, caller.uid == self.options.uid);
        }
    }

    pub(crate) async fn sync_source(&self, call: &Call, inode: &Inode) -> Result<()> {
        if inode.is_gone() || !self.remote_of(inode)?.capabilities().writable {
            return Ok(());
        }
        let (remote, file) = (self.remote_of(inode)?.clone(), inode.record().file);
        let synced = || async { remote.sync(call, &file).await.map(|()| Answer::new((), Version::None, Lease::Spent)) };
        self.ask_of(call, inode, synced).await.map(|_| ())
    }

    /// Sends what is unsent of an inode.
    pub(crate) async fn send(self: &Arc<Self>, call: &Call, inode: &Arc<Inode>) -> Result<()> {
        if !inode.draft().is_some_and(|draft| draft.dirty.is_unsent()) {
            return Ok(());
        }
        let (vfs, inode, caller) = (self.clone(), inode.clone(), call.caller);
        // The mount's end waits for it a while: what is cut short has to be made out by the next daemon.
        let under_way = self.ending.body();
        let sending = ToItsEnd::new(&self.runtime, async move {
            let _under_way = under_way;
            let _gate = inode.gate.lock().await;
            vfs.send_held(caller, &inode).await
        });
        let outcome = sending.await;
        outcome.inspect_err(|error| self.tell_left_over(error))
    }

    /// The same where nobody waits for it.
    pub(crate) async fn send_for_writer(self: &Arc<Self>, inode: &Arc<Inode>) -> Result<()> {
        let writer = inode.draft().map_or(Caller::DAEMON, |draft| draft.writer());
        self.send_held(writer, inode).await
    }

    /// Sends what is unsent of an inode. The caller holds its gate.
    pub(crate) async fn send_held(self: &Arc<Self>, caller: Caller, inode: &Arc<Inode>) -> Result<()> {
        let Some(draft) = inode.draft() else { return Ok(()) };
        // Of before it is tried: whoever logs in meanwhile has logged in since.
        let login = self.login_of(caller, inode).await;
        for _ in 0..SEND_ROUNDS_MAX {
            if inode.is_gone() {
                // There is nobody to be told, unless it gets a name again.
                return Ok(());
            }
            let Some(batch) = draft.dirty.take() else { return Ok(()) };
            let Err(error) = self.send_batch(caller, inode, &draft, batch).await else { continue };
            let why = match self.sent_before(caller, inode, &draft, &error).await {
                Ok(Some(version)) => {
                    draft.turn_to(|dirty| dirty.rest_on(version))?;
                    continue;
                }
                Ok(None) => error,
                Err(error) => error,
            };
            if is_away(&why) && self.is_gone_by_now(inode).await {
                return Ok(());
            }
            return Err(self.keep_unsent(inode, &draft, why, login).await);
        }
        // Whoever goes on writing while it is sent has it sent again.
        Ok(())
    }

    /// Whether a file that its source has no more was removed from here: it is, as soon as whoever removes it has heard so.
    async fn is_gone_by_now(&self, inode: &Inode) -> bool {
        let parent = inode.record.read().parent;
        if let Some(dir) = self.inodes.peek(parent) {
            drop(dir.gate.lock().await);
        }
        inode.is_gone()
    }

    /// The version that the source has by what was being sent when that was cut short, if that is why it refuses, or by others
    /// who have written the very same.
    ///
    /// # Errors
    /// What keeps the source from telling, where that may pass: until then nobody knows whether it is so.
    async fn sent_before(
        self: &Arc<Self>,
        caller: Caller,
        inode: &Arc<Inode>,
        draft: &Draft,
        error: &VfsError,
    ) -> Result<Option<Version>> {
        let is_compared = draft.was_cut_short() || draft.dirty.length() <= COMPARED_BYTES_MAX;
        if !is_compared || !matches!(error, VfsError::Remote(RemoteError::VersionChanged { .. })) {
            return Ok(None);
        }
        let allowed = self.options.deadline + Duration::from_millis(draft.dirty.length() / BYTES_PER_MS_MIN);
        match self.half_sent(&Call::within(caller, allowed), inode, draft).await {
            Err(error) if !error.may_pass() => {
                tracing::debug!(%error, "what was being sent cannot be compared");
                Ok(None)
            }
            compared => compared,
        }
    }

    async fn send_batch(
        self: &Arc<Self>,
        caller: Caller,
        inode: &Arc<Inode>,
        draft: &Arc<Draft>,
        batch: Batch,
    ) -> Result<()> {
        let (extents, length) = (batch.extents(), batch.length());
        let mut taken = Taken { draft, batch: Some(batch) };
        let bytes: u64 = extents.iter().map(|extent| extent.length).sum();
        let content = Arc::new(Sending::of(draft.clone(), length, self.attempts.clone()));
        let begun = SystemTime::now();
        let change = Change::Write { file: inode.record().file, extents, length, content: content.clone() };
        let allowed = self.options.deadline + Duration::from_millis(bytes / BYTES_PER_MS_MIN);
        let call = Call::within(caller, allowed);
        let applied = self.apply(&call, inode, change, draft.written(), &draft.dirty.version()).await;
        let answer = applied.inspect_err(|error| {
            if !matches!(error, VfsError::Remote(RemoteError::VersionChanged { .. })) {
                draft.note_cut_short(content.attempt());
            }
        })?;
        taken.batch = None;
        draft.note_sent();
        count(&self.figures.writes_sent);
        let told = Told::of_change(&answer);
        inode.content.lock().note_replaced(draft.dirty.version());
        if draft.has_passed(begun) {
            tracing::info!(node = inode.id.0, bytes, "what could not be sent before is at the source now");
        }
        if let Err(error) = draft.turn_to(|dirty| dirty.sent(told.version.clone())) {
            // The source has the bytes all the same, which the next daemon finds by comparing them.
            tracing::warn!(%error, node = inode.id.0, "that it was sent is not noted beside what was written");
        }
        if let Some(entry) = &answer.value.entry {
            self.learn_attributes(inode, entry.attributes, &told)?;
        }
        Ok(())
    }

    /// What was written could not be sent: it stays, and people are told where.
    async fn keep_unsent(self: &Arc<Self>, inode: &Arc<Inode>, draft: &Draft, error: VfsError, login: u64) -> VfsError {
        inode.note_error(&error);
        let changed = matches!(error, VfsError::Changed | VfsError::Remote(RemoteError::VersionChanged { .. }));
        let why = match &error {
            _ if changed => "it changed at its source meanwhile".to_owned(),
            error if is_away(error) => "the source has it no more, or another file in its place".to_owned(),
            error => error.to_string(),
        };
        if (changed || is_away(&error))
            && let Err(error) = self.fill_from_held(inode, draft).await
        {
            tracing::warn!(%error, node = inode.id.0, "the rest of a file that cannot be sent is not kept with it");
        }
        let failed = Failed { why: why.clone(), again: Again::after(&error, login) };
        let told = draft.failed().is_some_and(|before| before.why == failed.why);
        draft.fail(failed);
        if !told {
            let kept = draft.dirty.path().display();
            let text = format!("what was written could not be sent to the source: {why}; it is kept in {kept}");
            self.troubles.tell(self.path_text(inode.id), text + "; `weft unsent` lists it and says what can be done");
        }
        if changed { VfsError::Changed } else { error }
    }

    /// A file has no name any more. What is open of it stays readable.
    pub(crate) fn mark_gone(self: &Arc<Self>, id: NodeId) -> Result<()> {
        self.overtaken.note(id);
        let Some(inode) = self.inodes.get(id) else {
            let record = self.store.node(id)?;
            self.store.remove_object(id)?;
            self.store.apply(vec![Record::Node(id, None)])?;
            return record.map_or(Ok(()), |record| self.forget_what_was_of(id, &record));
        };
        let names = self.renames.lock();
        let record = {
            let mut record = inode.record.write();
            record.attributes.links = Some(0);
            record.attributes.changed = Figure::Exact(SystemTime::now());
            record.clone()
        };
        inode.gone.store(true, Ordering::Release);
        // Whoever serves next knows it as well, and what was written of it.
        inode.keep_written();
        self.store.apply(vec![Record::Node(id, Some(record))])?;
        drop(names);
        if inode.content.lock().is_closed() {
            self.retire_later(&inode);
        }
        Ok(())
    }

    /// Takes up what a former daemon was about to send, or whoever has it open may write on.
    pub(crate) fn take_up_drafts(self: &Arc<Self>) {
        for dirty in self.store.left_dirty() {
            let Ok(inode) = self.inode(dirty.node()) else {
                if dirty.is_unsent() {
                    let text = format!("{}: written to a file that is not known any more", dirty.path().display());
                    self.troubles.tell(String::new(), text);
                } else {
                    dirty.discard();
                }
                continue;
            };
            // Also what is all sent: who has it open still writes over the version that came of it.
            let draft = Arc::new(Draft::left(dirty));
            *inode.draft.write() = Some(draft);
            self.drafts.lock().insert(inode.id, inode);
        }
    }

    /// Lets go of what a former daemon had sent: nobody has it open after that one's mount. The bytes were never synced here, and
    /// may be others where the machine failed; the source has them.
    pub fn let_sent_go(&self) {
        let inodes: Vec<_> = self.drafts.lock().values().cloned().collect();
        let is_sent = |inode: &Inode| inode.draft().is_some_and(|draft| !draft.dirty.is_unsent());
        inodes.iter().filter(|inode| is_sent(inode)).for_each(|inode| self.end_draft(inode));
    }

    /// Sends what a former daemon had not sent and nobody has open.
    pub fn send_left(self: &Arc<Self>) {
        let inodes: Vec<_> = self.drafts.lock().values().cloned().collect();
        inodes.iter().filter(|inode| inode.content.lock().is_closed()).for_each(|inode| self.retire_later(inode));
    }

    /// How many files are being written, or have something unsent.
    pub fn drafts(&self) -> usize {
        self.drafts.lock().len()
    }
}

impl Inode {
    /// The source does not have it any more: whoever has it open reads what was written, by whichever daemon.
    pub(crate) fn keep_written(&self) {
        if let Some(draft) = self.draft()
            && let Err(error) = draft.dirty.keep_all()
        {
            tracing::warn!(%error, node = self.id.0, "what was sent of a file that is gone is not kept for the next daemon");
        }
    }
}

/// Whether the source says that it does not have the file, or not under its name.
pub(crate) fn is_away(error: &VfsError) -> bool {
    is_gone(error) || matches!(error, VfsError::Stale)
}

/// How often what was written while it was sent is sent again, in one close.
const SEND_ROUNDS_MAX: usize = 4;
/// Longest file that is held against another version of it, in bytes: both may turn out to be the same.
const COMPARED_BYTES_MAX: u64 = 16 << 20;
/// The pace that a source is allowed at the least, in bytes per millisecond.
const BYTES_PER_MS_MIN: u64 = 1024;
