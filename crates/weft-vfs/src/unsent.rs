//! What was written here and is not at its source, and what people decide about it: to send it, over what the source
//! has by now if need be, to give it up, or to have a copy of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use weft_remote::{Call, Caller, Checked, FileKind, Name, RemoteError, Version};
use weft_store::Record;

use crate::ask::{OpenFor, Write};
use crate::draft::Draft;
use crate::handle::{Handle, Held};
use crate::inode::Inode;
use crate::lookup::Looked;
use crate::notice::Notice;
use crate::reopen::Lost;
use crate::send::is_away;
use crate::send_again::Again;
use crate::vfs::Vfs;
use crate::{Result, VfsError};

/// A file of which something is not at its source.
#[derive(Clone, Debug)]
pub struct Unsent {
    /// Where it is, below the mount's root.
    pub path: Vec<Name>,
    /// How many bytes the source has not been told; 0 when only the length is another.
    pub bytes: u64,
    /// The file's length here, in bytes.
    pub length: u64,
    /// Since when.
    pub since: SystemTime,
    /// Why it could not be sent; `None` when that was not tried yet.
    pub why: Option<String>,
    /// Whether it is tried again by itself.
    pub tried_again: bool,
    /// Whether it was refused to who wrote it: then that is after the next login, and else seldom.
    pub is_refused: bool,
    /// Whether it is being sent now.
    pub is_sending: bool,
    /// Whether somebody has it open for writing: then it is sent at the close.
    pub is_open: bool,
    /// Where the written bytes lie on this machine.
    pub kept: PathBuf,
}

impl Unsent {
    /// Whether somebody has to know: it could not be sent, or nobody is left who would.
    pub fn is_stuck(&self) -> bool {
        self.why.is_some() || !(self.is_open || self.is_sending)
    }
}

/// What may become of a version that the source has and this file was not written on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// It stays, and what was written is not sent.
    Nothing,
    /// It is written over, with all of the file as it is here.
    Another,
}

/// Why nothing was done about something unsent.
#[derive(Clone, Debug, thiserror::Error)]
pub enum UnsentError {
    /// Nothing of that path is unsent.
    #[error("nothing that was written to it is unsent; `weft unsent` lists what is")]
    NotUnsent,
    /// It was sent before anything else could be done about it.
    #[error("it was being sent, and is at its source now; nothing of it is left to give up")]
    Sent,
    /// It is being written.
    #[error("open for writing by a program; close it there first, which sends it")]
    Open,
    /// The source has another version than the one it was written on.
    #[error(
        "it changed at its source meanwhile; `weft unsent --send --over` sends it all the same, `--save-as FILE` copies \
         it, `--discard` gives it up"
    )]
    Changed,
    /// No file has its name at the source.
    #[error("its source has no file of this name any more; `weft unsent --save-as FILE` copies what was written")]
    Absent,
    /// Bytes that were not written are needed, and cannot be had.
    #[error("{cause}: what was not written of it is not all here; the bytes that were lie in {}", kept.display())]
    Incomplete {
        /// What keeps them away.
        cause: VfsError,
        /// Where the written bytes are.
        kept: PathBuf,
    },
    /// What else keeps it from being done.
    #[error(transparent)]
    Failed(#[from] VfsError),
}

impl Vfs {
    /// What is unsent at and below a path, in the order of the paths.
    pub fn unsent(&self, below: &[Name]) -> Vec<Unsent> {
        let mut all: Vec<Unsent> =
            self.drafted().iter().filter_map(|(inode, path)| self.unsent_of(inode, path.clone())).collect();
        all.retain(|unsent| unsent.path.starts_with(below));
        all.sort_by(|a, b| (&a.path, a.since).cmp(&(&b.path, b.since)));
        all
    }

    /// How many files have something unsent, and how many bytes.
    pub fn unsent_sum(&self) -> (u64, u64) {
        let inodes: Vec<_> = self.drafts.lock().values().cloned().collect();
        let away = inodes.iter().filter_map(|inode| inode.away());
        away.fold((0, 0), |(files, bytes), (_, away)| (files + 1, bytes + away))
    }

    pub(crate) fn unsent_of(&self, inode: &Inode, path: Vec<Name>) -> Option<Unsent> {
        let (draft, bytes) = inode.away()?;
        let failed = draft.failed();
        Some(Unsent {
            path,
            bytes,
            length: draft.dirty.length(),
            since: draft.since(),
            tried_again: failed.as_ref().is_some_and(|failed| failed.again != Again::Never),
            is_refused: failed.as_ref().is_some_and(|failed| matches!(failed.again, Again::Otherwise { .. })),
            why: failed.map(|failed| failed.why),
            is_sending: draft.dirty.is_being_sent(),
            is_open: self.is_open_for_writing(inode),
            kept: draft.dirty.path().to_owned(),
        })
    }

    /// Tries now to send a file, as who wrote it or, where that is refused, as the caller. Returns how many bytes that was about.
    ///
    /// # Errors
    /// [`UnsentError`]; `Open` only when something is to be written over.
    pub async fn send_unsent(
        self: &Arc<Self>,
        path: &[Name],
        over: Over,
        caller: Caller,
    ) -> std::result::Result<u64, UnsentError> {
        let (inode, draft) = self.unsent_at(path)?;
        if over == Over::Another {
            Box::pin(self.put_over(&inode, &draft, caller)).await?;
        }
        // Who has the gate may be sending it.
        let bytes = draft.dirty.bytes_away().unwrap_or(0);
        let _gate = inode.gate.lock().await;
        let mut outcome = self.send_for_writer(&inode).await;
        if let Err(VfsError::Remote(RemoteError::Denied { .. } | RemoteError::NotPermitted { .. })) = &outcome
            && draft.writer().uid != caller.uid
        {
            outcome = self.send_held(caller, &inode).await;
        }
        match outcome {
            Err(VfsError::Changed) => return Err(UnsentError::Changed),
            outcome => outcome?,
        }
        // Put away or not, it is sent.
        if let Err(error) = self.retire(&inode).await {
            tracing::warn!(%error, node = inode.id.0, "what was sent is not put away");
        }
        Ok(bytes)
    }

    /// Gives up what was written: the file is what its source has. Returns how many bytes are given up.
    ///
    /// # Errors
    /// `NotUnsent`, `Sent`, `Open`.
    pub async fn discard_unsent(
        self: &Arc<Self>,
        path: &[Name],
        caller: Caller,
    ) -> std::result::Result<u64, UnsentError> {
        let (inode, draft) = self.unsent_at(path)?;
        let _gate = inode.gate.lock().await;
        // Whoever had the gate may have sent it.
        let bytes = draft.dirty.bytes_away().ok_or(UnsentError::Sent)?;
        self.discard_held(&inode, &draft, caller).await?;
        tracing::info!(node = inode.id.0, bytes, "what was written and not sent is given up by the user's word");
        Ok(bytes)
    }

    /// The same. The caller holds the inode's gate.
    pub(crate) async fn discard_held(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        draft: &Arc<Draft>,
        caller: Caller,
    ) -> std::result::Result<(), UnsentError> {
        self.give_up(inode, draft)?;
        // What it is now, the source says, or the next use asks.
        self.distrust_quietly(inode)?;
        match self.check(&self.call(caller), inode).await {
            Err(error) if is_away(&error) => drop(self.learn_gone(&self.call(caller), inode).await?),
            Err(error) => tracing::debug!(%error, "the next use of what was given up asks the source"),
            Ok(_) => {}
        }
        let node = self.namespace.shown(inode.id);
        self.notices.send_later(Notice::Content { node }, &self.runtime);
        self.notices.send(Notice::Attributes { node });
        Ok(())
    }

    /// Some bytes of an unsent file as it is here, written or not; none at its end.
    ///
    /// # Errors
    /// `NotUnsent`; `Incomplete` when bytes that were not written cannot be had.
    pub async fn read_unsent(
        self: &Arc<Self>,
        path: &[Name],
        caller: Caller,
        offset: u64,
        size: usize,
    ) -> std::result::Result<Bytes, UnsentError> {
        let (inode, draft) = self.unsent_at(path)?;
        let handle = Handle::new(inode, Held::Empty(draft.dirty.version()), draft.generation());
        let read = self.read_draft(&self.call(caller), &Arc::new(handle), &draft, offset, size).await;
        let bytes = read.and_then(crate::data::Data::into_bytes);
        bytes.map_err(|cause| UnsentError::Incomplete { cause, kept: draft.dirty.path().to_owned() })
    }

    pub(crate) fn is_open_for_writing(&self, inode: &Inode) -> bool {
        self.handles.of(inode).iter().any(|handle| handle.writing)
    }

    /// What is being written, and where: under the names that the files had, where their sources have them no more.
    fn drafted(&self) -> Vec<(Arc<Inode>, Vec<Name>)> {
        let inodes: Vec<_> = self.drafts.lock().values().cloned().collect();
        let path = |inode: &Inode| self.path_of(inode.id).or_else(|_| self.path_of_record(&inode.record()));
        inodes
            .into_iter()
            .map(|inode| (path(&inode).unwrap_or_default(), inode))
            .map(|(path, inode)| (inode, path))
            .collect()
    }

    pub(crate) fn unsent_at(&self, path: &[Name]) -> std::result::Result<(Arc<Inode>, Arc<Draft>), UnsentError> {
        let of_path = self.drafted().into_iter().filter(|(_, of)| of == path);
        let found = of_path.filter_map(|(inode, _)| inode.away().map(|(draft, _)| (inode, draft)));
        // Of two that had one name after another, the older one.
        found.min_by_key(|(_, draft)| draft.since()).ok_or(UnsentError::NotUnsent)
    }

    /// Ends a draft that nobody writes. The caller holds the inode's gate.
    fn give_up(&self, inode: &Arc<Inode>, draft: &Arc<Draft>) -> std::result::Result<(), UnsentError> {
        {
            // Held over the look, so that nobody opens it for writing meanwhile.
            let mut slot = inode.draft.write();
            if !slot.as_ref().is_some_and(|there| Arc::ptr_eq(there, draft)) {
                return Err(UnsentError::NotUnsent);
            }
            let handles = self.handles.of(inode);
            if handles.iter().any(|handle| handle.writing) {
                return Err(UnsentError::Open);
            }
            let readers = handles.iter().filter(|handle| handle.counted() == draft.generation());
            for handle in readers {
                let mut held = handle.content.lock();
                if matches!(*held, Held::Empty(_)) {
                    let (version, length) = (draft.dirty.version(), Some(draft.dirty.source_length()));
                    *held = Held::Lost(Lost { generation: handle.counted(), version, length });
                }
            }
            self.drop_draft(inode.id, &mut slot);
        }
        inode.content.lock().pages_of = None;
        self.give_up_content(inode.id)?;
        Ok(())
    }

    /// Has all of a file be what is to be sent over whatever its source has now; where that has another file in its
    /// place, or none, it is sent there.
    async fn put_over(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        draft: &Arc<Draft>,
        caller: Caller,
    ) -> std::result::Result<(), UnsentError> {
        if self.is_open_for_writing(inode) {
            return Err(UnsentError::Open);
        }
        let call = self.call(caller);
        let filled = self.fill(&call, inode, draft).await;
        filled.map_err(|cause| UnsentError::Incomplete { cause, kept: draft.dirty.path().to_owned() })?;
        let gate = inode.gate.lock().await;
        let (remote, record) = (self.remote_of(inode)?.clone(), inode.record());
        let asked = self.ask_of(&call, inode, || remote.attributes(&call, &record.file, &Version::None)).await;
        let found = match asked {
            Ok(answer) => match answer.value {
                Checked::Is(found) if found.entry.id == record.file => {
                    Some((answer.version, found.entry.attributes.size.known().unwrap_or(0)))
                }
                // Nothing was said to be known.
                Checked::Is(_) | Checked::Unchanged | Checked::Touched(_) => None,
            },
            Err(error) if is_away(&error) => None,
            Err(error) => return Err(error.into()),
        };
        if let Some((version, length)) = found {
            // Somebody has begun to write it meanwhile.
            let is_over = draft.dirty.over(version, length).map_err(VfsError::from)?;
            return if is_over { Ok(()) } else { Err(UnsentError::Open) };
        }
        drop(gate);
        Box::pin(self.send_elsewhere(&call, inode, draft)).await?;
        let _gate = inode.gate.lock().await;
        self.give_up(inode, draft)
    }

    /// Sends all of a file to the one that has its name at the source now, or makes one.
    async fn send_elsewhere(self: &Arc<Self>, call: &Call, inode: &Arc<Inode>, draft: &Arc<Draft>) -> Result<()> {
        let record = inode.record();
        let (dir, name) = (self.namespace.shown(record.parent), record.name.clone());
        self.store.apply(vec![Record::Dentry(record.parent, name.clone(), None)])?;
        self.notices.send_later(Notice::Entry { parent: dir, name: name.clone() }, &self.runtime);
        let handle = match self.clone().lookup(*call, dir, name.as_bytes().to_vec()).await? {
            Looked::Absent { .. } => {
                let mode = record.attributes.mode.unwrap_or(0o600) & 0o777;
                self.clone().create_open(*call, dir, name.as_bytes().to_vec(), mode.into()).await?.1.handle
            }
            Looked::Entry { stat, .. } => {
                let taken =
                    |what: &str| RemoteError::Exists { detail: format!("{}: {what}", self.path_text(inode.id)) };
                let there = self.inode(stat.node)?;
                if stat.kind != FileKind::File {
                    return Err(taken("it is no file any more at its source").into());
                }
                if there.id == inode.id || there.draft().is_some() {
                    return Err(taken("it is being written under this name; try again later").into());
                }
                let how = OpenFor { writing: true, truncating: true, ..OpenFor::default() };
                self.clone().open_here(*call, stat.node, how).await?.handle
            }
        };
        if let Some(cut) = self.handle(handle)?.draft() {
            cut.note_unseen();
        }
        let written = async {
            let (length, mut at) = (draft.dirty.length(), 0);
            while at < length {
                let size = SENT_AT_ONCE.min(length - at) as usize;
                let bytes = draft.dirty.read(at, size)?;
                let write = Write { offset: at, bytes, kill_suidgid: false, unseen: true, appends: false };
                at += self.clone().write(*call, handle, write).await? as u64;
            }
            self.clone().flush(*call, handle).await
        };
        let outcome = written.await;
        if outcome.is_err() {
            // It is kept where it was: what was begun there is not a second copy that somebody has to decide about.
            if let Ok(handle) = self.handle(handle) {
                self.end_draft(&handle.inode);
            }
        }
        self.close(handle);
        outcome
    }
}

impl Inode {
    /// What the source does not have of it, and how many bytes that are.
    pub(crate) fn away(&self) -> Option<(Arc<Draft>, u64)> {
        // What has no name is nothing that its source could have.
        let draft = self.draft().filter(|_| !self.is_gone())?;
        let bytes = draft.dirty.bytes_away()?;
        Some((draft, bytes))
    }
}

/// Bytes copied at once.
const SENT_AT_ONCE: u64 = 1 << 20;
