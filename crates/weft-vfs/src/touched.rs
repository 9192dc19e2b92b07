//! Versions of a file that differ though its bytes are the same: somebody else has changed its mode, its owner or its names, of
//! which a version may tell no less than of a write.
//!
//! Whoever only reads such a file reads on in what was opened. Whoever has it open for writing could write it no more as soon
//! as somebody opens the newer version: so the bytes are compared first.

use std::sync::Arc;

use futures_util::StreamExt;
use weft_remote::{Answer, Body, Call, Checked, Found, Piece, Span, Version};
use weft_store::{Object, Origin};

use crate::Result;
use crate::draft::Draft;
use crate::inode::Inode;
use crate::vfs::Vfs;

impl Vfs {
    /// An answer to a question of what a file is that was known as `known`: where it has another version, is open for writing and
    /// has the bytes that are held, that it was touched.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) async fn compared(
        self: &Arc<Self>,
        call: &Call,
        inode: &Arc<Inode>,
        known: &Version,
        answer: Answer<Checked>,
    ) -> Result<Answer<Checked>> {
        let is_worth = |found: &Found| {
            found.entry.id == inode.record.read().file
                && self.is_open_for_writing(inode)
                && self.may_be_touched(inode, known, &answer.version)
        };
        let entry = match &answer.value {
            Checked::Is(found) if is_worth(found) => found.entry.clone(),
            _ => return Ok(answer),
        };
        let held = self.held_content(inode)?.map(|current| current.object);
        let Some(object) = held.filter(|object| object.version() == known) else { return Ok(answer) };
        if !is_all_here(call, inode, &object).await {
            return Ok(answer);
        }
        let read = |at: u64, size: usize| Ok(Some(object.read(at, size)?.to_vec()));
        match self.has_bytes(call, inode, (&answer.version, object.length()), read).await {
            Ok(true) => Ok(answer.map(|_| Checked::Touched(Box::new(entry)))),
            Ok(false) => Ok(answer),
            Err(error) => {
                tracing::debug!(%error, node = inode.id.0, "a file with other attributes is not compared");
                Ok(answer)
            }
        }
    }

    /// Whether the source has, under that version, what was written here and sent.
    pub(crate) async fn has_what_was_sent(
        self: &Arc<Self>,
        call: &Call,
        inode: &Arc<Inode>,
        draft: &Draft,
        told: &Version,
    ) -> Result<bool> {
        if draft.dirty.is_unsent() || !self.may_be_touched(inode, &draft.dirty.version(), told) {
            return Ok(false);
        }
        let base = match draft.base() {
            Some(base) if is_all_here(call, inode, &base).await => Some(base),
            _ => None,
        };
        let read = |at: u64, size: usize| {
            let mut bytes = Vec::with_capacity(size);
            for (range, origin) in draft.dirty.parts(at, size) {
                let size = (range.end - range.start) as usize;
                match (origin, &base) {
                    (Origin::Written, _) => bytes.extend_from_slice(&draft.dirty.read(range.start, size)?),
                    (Origin::Zeros, _) => bytes.resize(bytes.len() + size, 0),
                    (Origin::Base, Some(base)) => bytes.extend_from_slice(&base.read(range.start, size)?),
                    (Origin::Base, None) => return Ok(None),
                }
            }
            Ok(Some(bytes))
        };
        self.has_bytes(call, inode, (told, Some(draft.dirty.length())), read).await
    }

    fn may_be_touched(&self, inode: &Inode, known: &Version, told: &Version) -> bool {
        self.remote_of(inode).is_ok_and(|remote| remote.may_have_bytes_of(told, known))
    }

    /// Whether a file has, under that version, this length and these bytes; not where one of them is not known, or there are too
    /// many.
    async fn has_bytes(
        self: &Arc<Self>,
        call: &Call,
        inode: &Arc<Inode>,
        (version, length): (&Version, Option<u64>),
        read: impl Fn(u64, usize) -> Result<Option<Vec<u8>>>,
    ) -> Result<bool> {
        let Some(length) = length.filter(|length| *length <= COMPARED_BYTES_MAX) else { return Ok(false) };
        let (remote, file) = (self.remote_of(inode)?.clone(), inode.record().file);
        let fetch = || remote.fetch(call, &file, version, Span::WHOLE);
        let Body { version: there, start, mut stream, .. } = self.ask_of(call, inode, fetch).await?.value.body;
        if start != 0 || !version.still_holds(&there) {
            return Ok(false);
        }
        let mut at = 0;
        while let Some(piece) = stream.next().await {
            let Piece::Bytes(theirs) = piece? else { continue };
            if read(at, theirs.len())?.is_none_or(|ours| ours != theirs) {
                return Ok(false);
            }
            at += theirs.len() as u64;
        }
        Ok(at == length)
    }
}

/// Whether all of an object is here, if need be when it has come.
async fn is_all_here(call: &Call, inode: &Inode, object: &Arc<Object>) -> bool {
    if let Some(arrival) = inode.arrival(|arrival| Arc::ptr_eq(&arrival.object, object))
        && let Err(error) = arrival.whole(call).await
    {
        tracing::debug!(%error, node = inode.id.0, "a file with other attributes has not come whole");
    }
    object.is_complete()
}

/// Longest file that is compared.
const COMPARED_BYTES_MAX: u64 = 256 << 20;
