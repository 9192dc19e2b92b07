//! What was being sent when that was cut short, by the end of a daemon or by a failure: the source may have some of it, all
//! of it, or nothing, and has another version than the one that it was written on. Where every byte there is ours, of now or
//! of an attempt before, or was there before, nobody else's is lost when it is sent again. So it is where others have written
//! the very same, as two machines do that compile the same.

use std::sync::Arc;

use futures_util::StreamExt;
use weft_remote::{Body, Call, Piece, Sameness, Span, Version};
use weft_store::{Object, Origin};

use crate::Result;
use crate::attempt::Attempt;
use crate::draft::{Before, Draft};
use crate::inode::Inode;
use crate::vfs::Vfs;

/// What the source's bytes are held against.
struct Sides<'a> {
    draft: &'a Draft,
    before: Before,
    attempts: Vec<Arc<Attempt>>,
    /// What is there may be what was there before.
    may_be_before: bool,
}

impl Vfs {
    /// The version that the source has, if its file is nothing but what was written here and, where that may have been sent in
    /// part, what it was written over.
    pub(crate) async fn half_sent(
        self: &Arc<Self>,
        call: &Call,
        inode: &Arc<Inode>,
        draft: &Draft,
    ) -> Result<Option<Version>> {
        let (remote, file) = (self.remote_of(inode)?.clone(), inode.record().file);
        let fetch = || remote.fetch(call, &file, &Version::None, Span::WHOLE);
        let Body { version, start, file_length, mut stream, .. } = self.ask_of(call, inode, fetch).await?.value.body;
        let attempts = draft.attempts();
        let attempted = attempts.iter().map(|attempt| attempt.length).max().unwrap_or(0);
        let held = draft.base().or(self.held_content(inode)?.map(|current| current.object));
        let is_base = |object: &Arc<Object>| {
            object.is_complete() && object.version().compare(&draft.dirty.version()) == Sameness::Same
        };
        let before = draft
            .before()
            .unwrap_or_else(|| Before { content: held.filter(is_base), length: draft.dirty.source_length() });
        let may_be_before = draft.was_cut_short();
        let fits = |length: u64| match may_be_before {
            true => length <= draft.dirty.length().max(before.length).max(attempted),
            false => length == draft.dirty.length(),
        };
        if start != 0 || !file_length.is_some_and(fits) || version == Version::None {
            return Ok(None);
        }
        let sides = Sides { draft, before, attempts, may_be_before };
        let mut at = 0;
        while let Some(piece) = stream.next().await {
            let Piece::Bytes(theirs) = piece? else { continue };
            if !sides.account_for(at, &theirs)? {
                return Ok(None);
            }
            at += theirs.len() as u64;
        }
        if may_be_before {
            draft.note_half_sent(sides.before, version.clone());
        }
        Ok(Some(version))
    }
}

impl Sides<'_> {
    /// Whether each of the source's bytes from `at` on is ours, or was there before where it may be that.
    fn account_for(&self, at: u64, theirs: &[u8]) -> Result<bool> {
        let before = self.before(at, theirs.len())?;
        let ours = self.ours(at, theirs.len(), before.as_deref())?;
        let was_before = |index: usize| before.as_ref().filter(|_| self.may_be_before).map(|before| before[index]);
        let is_known =
            |(index, byte): (usize, &u8)| ours.get(index) == Some(&Some(*byte)) || was_before(index) == Some(*byte);
        let mut known: Vec<bool> = theirs.iter().enumerate().map(is_known).collect();
        self.attempts.iter().for_each(|attempt| attempt.account_for(at, theirs, &mut known));
        Ok(known.into_iter().all(|known| known))
    }

    /// What was there before: zeros after its end; `None` where it is not known.
    fn before(&self, at: u64, length: usize) -> Result<Option<Vec<u8>>> {
        let had = usize::try_from(self.before.length.saturating_sub(at)).unwrap_or(usize::MAX).min(length);
        let mut bytes = match &self.before.content {
            _ if had == 0 => Vec::new(),
            Some(content) => content.read(at, had)?.to_vec(),
            None => return Ok(None),
        };
        bytes.resize(length, 0);
        Ok(Some(bytes))
    }

    /// What is to be there; `None` for a byte that is not known here.
    fn ours(&self, at: u64, length: usize, before: Option<&[u8]>) -> Result<Vec<Option<u8>>> {
        let mut bytes = vec![None; length];
        for (range, origin) in self.draft.dirty.parts(at, length) {
            let (start, size) = ((range.start - at) as usize, (range.end - range.start) as usize);
            let part = match origin {
                Origin::Written => self.draft.dirty.read(range.start, size)?.to_vec(),
                Origin::Zeros => vec![0; size],
                Origin::Base => match before {
                    Some(before) => before[start..start + size].to_vec(),
                    None => continue,
                },
            };
            bytes[start..start + size].iter_mut().zip(part).for_each(|(byte, part)| *byte = Some(part));
        }
        Ok(bytes)
    }
}
