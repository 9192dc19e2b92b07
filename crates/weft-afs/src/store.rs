//! What is written to a file, stored in one part after the other, short ones a few at once.
//!
//! AFS-3 has no store that compares: what is to be written over is looked at right before, and the data version after each
//! store has to be the next one. Whoever writes in between is found out, and told of, but not kept from it. What was cut short
//! goes on after the last part that is known to be stored.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::future::try_join_all;
use parking_lot::Mutex;
use weft_remote::{Answer, Call, Content, Extent, Outcome, RemoteError, Result, Version};

use crate::afs::Shared;
use crate::apply::seconds;
use crate::facts::{Made, Stamp};
use crate::identity::Spot;
use crate::look::{Seen, shown};
use crate::parts::{Part, at_once, parts};
use crate::releases::OfVolume;
use crate::retimed::Written;
use crate::rotate::Teller;
use crate::stored_parts::{PartSum, StoredParts, Sum};
use crate::wire::fileserver::{ChangeReply, StoreData64};
use crate::wire::status::{Status, StatusChange};

/// How far what is to be written is stored.
struct Progress {
    /// The data version over which it was to be written.
    over: u64,
    /// The file after the stores that were heard of, with the time that the writer gave.
    heard: Written,
    /// How many times those that are under way were tried, together.
    tries: AtomicU32,
    /// The parts that are stored.
    stored: StoredParts,
    /// Their sum; none where there is one part, which is stored or not.
    sum: Option<Sum>,
}

impl Shared {
    /// Writes to a file, over the version that is expected.
    ///
    /// # Errors
    /// As of [`Shared::apply`].
    pub async fn write(
        self: &Arc<Self>,
        call: &Call,
        spot: &Spot,
        expected: &Version,
        what: (&[Extent], u64),
        content: &dyn Content,
        made: SystemTime,
    ) -> Result<Answer<Outcome>> {
        let spots = [spot];
        let _changing = self.own_changes.begin(&spots);
        let begun = self.version_to_write(call, spot, expected).await?;
        let over = Stamp::of(expected).map_or(begun, |expected| expected.data_version);
        let heard = Written { data_version: begun, modified_s: seconds(made) };
        let (parts, length) = (parts(what.0, what.1, content), what.1);
        let (sum, stored) = match parts.len() {
            0 | 1 => (None, StoredParts::default()),
            _ => self.stored_before(spot, (over, begun), (&parts, length), content).await,
        };
        let mut progress = Progress { over, heard, tries: AtomicU32::new(0), stored, sum };
        let outcome = self.store_all(call, spot, &mut progress, (&parts, length), content).await;
        match &outcome {
            Ok(_) => self.cut_stores.written(spot),
            Err(RemoteError::VersionChanged { .. }) => self.cut_stores.refused(spot),
            Err(_) => {}
        }
        outcome
    }

    /// What an attempt before has stored of what is to be written in several parts, with the sum of that; `begun` is the data
    /// version that the file has now.
    async fn stored_before(
        &self,
        spot: &Spot,
        (over, begun): (u64, u64),
        (parts, length): (&[Part], u64),
        content: &dyn Content,
    ) -> (Option<Sum>, StoredParts) {
        let extents = parts.iter().map(|part| part.at);
        if let Some(stored) = self.cut_stores.stored(spot, over, begun)
            && let Some(sum) = stored.still_hold(extents, length, content).await
        {
            tracing::debug!(file = shown(spot), parts = stored.count, "the rest of it is stored");
            return (Some(sum), stored);
        }
        (Some(Sum::new()), StoredParts::default())
    }

    /// Stores what is not stored yet of what is to be written, in one part after the other, or a few at once.
    async fn store_all(
        self: &Arc<Self>,
        call: &Call,
        spot: &Spot,
        progress: &mut Progress,
        (parts, length): (&[Part], u64),
        content: &dyn Content,
    ) -> Result<Answer<Outcome>> {
        let end = [Part { at: Extent { offset: length, length: 0 }, file_length: length }];
        let stored = usize::try_from(progress.stored.count).unwrap_or(usize::MAX);
        let mut rest = parts.get(stored..).unwrap_or_default();
        let mut heard = None;
        while !rest.is_empty() {
            let (next, later) = rest.split_at(at_once(rest));
            heard = Some(self.store(call, spot, progress, (next, length), content).await?);
            rest = later;
        }
        let (status, teller) = match heard {
            Some((status, teller)) if status.length == length => (status, teller),
            _ => self.store(call, spot, progress, (&end, length), content).await?,
        };
        Ok(self.outcome_of(spot, &status, &teller))
    }

    /// The data version over which a file is written. It is looked at right before, unless its server has promised to tell of
    /// changes and has told of none: then it is the one that is expected. So is one that may have come of the same, when a
    /// server broke off.
    async fn version_to_write(&self, call: &Call, spot: &Spot, expected: &Version) -> Result<u64> {
        let stamp = Stamp::of(expected);
        let is_of = |volume_s: Option<u32>| stamp.is_none_or(|stamp| stamp.may_be_of(volume_s.map(Made::Volume)));
        let over = stamp.map(|stamp| stamp.data_version);
        let promised = self.promises.written(&spot.cell, spot.fid).map(|written| written.data_version);
        if let Some(data_version) = promised.filter(|promised| over == Some(*promised))
            && is_of(self.promises.releases.made_s(&spot.cell, spot.fid.volume))
        {
            return Ok(data_version);
        }
        let Seen { status, teller, .. } = self.status(call, spot).await?;
        // Whose bytes they are the data version tells: another time alone, set by somebody else, is no reason to refuse. Of a
        // volume that was restored since it tells nothing.
        let is_expected = *expected == Version::None
            || over == Some(status.data_version)
            || over.is_some_and(|over| self.cut_stores.are_of(spot, over, Written::of(&status)))
            // A volume that is repaired after a crash takes over what `Alloc_NewVnode` gave the inode of what was just made, 1
            // (OpenAFS `src/viced/afsfileprocs.c`, `src/vol/vol-salvage.c`; observed with 1.8.9): it is as empty as it was.
            || (over == Some(0) && status.length == 0);
        if !is_expected || !is_of(teller.volume_s) {
            tracing::debug!(file = shown(spot), ?expected, now = ?Written::of(&status), "written meanwhile");
            return Err(RemoteError::VersionChanged { detail: shown(spot) });
        }
        Ok(status.data_version)
    }

    /// Stores parts at once. The data version after them has to be as many further as they are; where a server had one tried
    /// again, each try may have made one.
    async fn store(
        &self,
        call: &Call,
        spot: &Spot,
        progress: &mut Progress,
        (parts, whole_length): (&[Part], u64),
        content: &dyn Content,
    ) -> Result<(Status, Teller)> {
        *progress.tries.get_mut() = 0;
        let ticket = self.promises.ticket();
        let under_way = parts.iter().map(|part| self.store_part(call, spot, progress, *part, content));
        let stored = try_join_all(under_way).await?;
        let mut last: Option<(Status, Teller)> = None;
        for (part, One { status, teller, sum }) in parts.iter().zip(stored) {
            if let (Some(of_all), Some(sum)) = (&mut progress.sum, sum) {
                of_all.add(part.at, &sum);
            }
            if last.as_ref().is_none_or(|(last, _)| last.data_version < status.data_version) {
                last = Some((status, teller));
            }
        }
        let meanwhile = || RemoteError::VersionChanged { detail: format!("{}: meanwhile", shown(spot)) };
        let (status, teller) = last.ok_or_else(meanwhile)?;
        // As in `version_to_write`: there it is found out, but for one who had a promise of before the crash.
        let before = progress.heard.data_version;
        let is_repaired = before == 0 && self.promises.was_forgotten_since(ticket, teller.server);
        let most = u64::from(*progress.tries.get_mut()) + u64::from(is_repaired);
        let made = status.data_version.checked_sub(before);
        if !made.is_some_and(|made| (parts.len() as u64..=most).contains(&made)) {
            return Err(meanwhile());
        }
        self.promises.stored(&spot.cell, spot.fid, before, Written::of(&status));
        if let Some(sum) = &progress.sum {
            let (count, data_version) = (progress.stored.count + parts.len() as u64, status.data_version);
            progress.stored = StoredParts { count, file_length: whole_length, data_version, sum: sum.value() };
        }
        progress.heard.data_version = status.data_version;
        Ok((status, teller))
    }

    /// One store.
    async fn store_part(
        &self,
        call: &Call,
        spot: &Spot,
        progress: &Progress,
        part: Part,
        content: &dyn Content,
    ) -> Result<One> {
        let Progress { over, heard, tries, stored, sum } = progress;
        let Part { at: Extent { offset: position, length }, file_length } = part;
        let change = StatusChange { modified_s: Some(heard.modified_s), ..StatusChange::default() };
        let question = StoreData64 { fid: spot.fid, change, position, length, file_length };
        let (failed, summed) = (Mutex::new(None), Mutex::new(None));
        let more = || -> Box<dyn Iterator<Item = Bytes> + Send + '_> {
            let before = tries.fetch_add(1, Ordering::Relaxed);
            self.cut_stores.sent(spot, *over, *heard, before + 1, *stored);
            *summed.lock() = sum.as_ref().map(|_| PartSum::new());
            Box::new(Pieces { content, at: position, end: position + length, failed: &failed, summed: &summed })
        };
        let place = (&spot.cell, spot.fid.volume);
        let outcome = self.files.change(call, place, &shown(spot), (&question, ChangeReply::release), &more).await;
        if let Some(error) = failed.lock().take() {
            return Err(RemoteError::Failed { detail: format!("{}: what is to be written: {error}", shown(spot)) });
        }
        let (reply, teller) = outcome?;
        Ok(One { status: reply.status, teller, sum: summed.into_inner() })
    }
}

/// What came of one store.
struct One {
    status: Status,
    teller: Teller,
    /// The sum of its bytes, if one is made.
    sum: Option<PartSum>,
}

/// The bytes of a range, piece by piece. Where they cannot be read it ends too soon, and says why.
struct Pieces<'a> {
    content: &'a dyn Content,
    at: u64,
    end: u64,
    failed: &'a Mutex<Option<io::Error>>,
    /// Their sum, if one is made.
    summed: &'a Mutex<Option<PartSum>>,
}

impl Iterator for Pieces<'_> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let size = (self.end - self.at).min(PIECE_BYTES) as usize;
        if size == 0 {
            return None;
        }
        let read = match self.content.read(self.at, size) {
            Ok(bytes) if bytes.len() == size => bytes,
            Ok(_) => return self.fail(io::ErrorKind::UnexpectedEof.into()),
            Err(error) => return self.fail(error),
        };
        self.at += size as u64;
        self.summed.lock().iter_mut().for_each(|sum| sum.add(&read));
        Some(read)
    }
}

impl Pieces<'_> {
    fn fail(&mut self, error: io::Error) -> Option<Bytes> {
        *self.failed.lock() = Some(error);
        self.end = self.at;
        None
    }
}

/// Bytes read at once of what is stored.
const PIECE_BYTES: u64 = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_that_cannot_be_read_ends_the_store_with_its_reason() {
        struct Short;
        impl Content for Short {
            fn read(&self, offset: u64, length: usize) -> io::Result<Bytes> {
                Ok(vec![1; length.min(300_000_usize.saturating_sub(offset as usize))].into())
            }
        }
        let (failed, summed) = (Mutex::new(None), Mutex::new(None));
        let pieces = Pieces { content: &Short, at: 0, end: 400_000, failed: &failed, summed: &summed };
        assert_eq!(pieces.map(|piece| piece.len()).sum::<usize>(), PIECE_BYTES as usize);
        assert!(failed.lock().is_some());
    }
}
