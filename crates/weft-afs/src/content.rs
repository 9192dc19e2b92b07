//! Content of files, in pieces: each piece is one call, whose reply says of which version it is before it is handed on.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::stream::{BoxStream, FuturesOrdered};
use futures_util::{StreamExt, stream};
use weft_remote::{Answer, Body, Call, Fetched, Piece, RemoteError, Result, Span, Version};

use crate::afs::Shared;
use crate::facts::{self, Made, Stamp, Told};
use crate::identity::{Identity, Spot};
use crate::look::{Seen, shown};
use crate::pace::Pace;
use crate::releases::Release;
use crate::retimed::Written;
use crate::rotate::Teller;
use crate::servers::ServerId;
use crate::wire::fileserver::{FetchData64, FetchedData};

impl Shared {
    /// Bytes of a file, as the contract has it.
    pub async fn fetch(
        self: &Arc<Self>,
        call: &Call,
        spot: &Spot,
        expected: &Version,
        span: Span,
    ) -> Result<Answer<Fetched>> {
        let (start, asked) = (span.start, span.length.unwrap_or(u64::MAX));
        let since = Instant::now();
        let wanted = (*expected != Version::None).then_some(expected);
        let (bytes, seen) =
            self.piece(call, spot, start..start.saturating_add(asked.min(FIRST_PIECE_BYTES)), wanted).await?;
        let (status, worth) = (&seen.status, seen.worth(Told::Content));
        let stamp = self.stamp(spot, status, Made::of(status, &seen.teller));
        if *expected != Version::None && !stamp.is_version(expected) {
            return Err(RemoteError::VersionChanged { detail: shown(spot) });
        }
        // What is gone on with is of the version that it was begun with, also where that was told by a former daemon.
        let made = Stamp::of(expected).map_or(stamp.made, |expected| expected.made);
        let stamp = Stamp { made, ..stamp };
        let version = stamp.version();
        let end = status.length.min(start.saturating_add(asked));
        let got = start + bytes.len() as u64;
        // A server may give less than was asked for; the rest is asked for as any other piece.
        let server = seen.teller.server;
        let (first, way) = ((bytes.len() as u64, since.elapsed()), self.files.servers.way(server));
        let pace = self.paces.begin(server, first, way, Instant::now());
        let rest = self.clone().pieces(*call, spot.clone(), version.clone(), got.min(end)..end, (server, pace));
        let first = (!bytes.is_empty()).then_some(Ok(Piece::Bytes(bytes)));
        let file = Identity::File(spot.clone()).file_id();
        let attributes = facts::attributes(status, self.options.modes);
        self.told.is_again(&file, &attributes);
        let body = Body {
            file,
            version: version.clone(),
            start,
            file_length: Some(status.length),
            resumable: true,
            stream: Box::pin(stream::iter(first).chain(rest)),
        };
        let fetched = Fetched { attributes, body };
        Ok(Answer { audience: worth.audience, ..Answer::new(fetched, version, worth.lease) })
    }

    /// The pieces of a range, several under way at once, in order. A piece of another version ends it with an error.
    fn pieces(
        self: Arc<Self>,
        call: Call,
        spot: Spot,
        version: Version,
        range: Range<u64>,
        (server, pace): (ServerId, Pace),
    ) -> BoxStream<'static, Result<Piece>> {
        let (whole, under_way) = (range.end - range.start, FuturesOrdered::new());
        let begun = (range, pace, under_way);
        Box::pin(stream::unfold(begun, move |(mut range, mut pace, mut under_way)| {
            let (shared, spot, version) = (self.clone(), spot.clone(), version.clone());
            async move {
                let step = pace.step(whole);
                while !range.is_empty() && under_way.len() < step.at_once {
                    let (start, length) = (range.start, step.bytes.min(range.end - range.start));
                    range.start += length;
                    let (shared, spot, version, round) = (shared.clone(), spot.clone(), version.clone(), pace.round());
                    pace.asked(Instant::now());
                    under_way.push_back(async move {
                        (round, shared.whole_piece(call, &spot, &version, start, length).await)
                    });
                }
                let (round, piece) = under_way.next().await?;
                let now = Instant::now();
                if pace.came(round, piece.as_ref().map_or(0, |bytes| bytes.len() as u64), now) {
                    shared.paces.note(server, &pace, now);
                }
                Some((piece.map(Piece::Bytes), (range, pace, under_way)))
            }
        }))
    }

    /// All bytes of a range of a version.
    async fn whole_piece(&self, call: Call, spot: &Spot, version: &Version, start: u64, length: u64) -> Result<Bytes> {
        let call = Call { deadline: Instant::now() + self.options.piece_time, ..call };
        let (mut whole, mut at) = (Vec::new(), start);
        loop {
            let (bytes, Seen { status, teller, .. }) =
                self.piece(&call, spot, at..start + length, Some(version)).await?;
            if !self.stamp(spot, &status, Made::of(&status, &teller)).is_version(version) {
                return Err(RemoteError::VersionChanged { detail: shown(spot) });
            }
            at += bytes.len() as u64;
            if at - start == length && whole.is_empty() {
                return Ok(bytes);
            }
            if bytes.is_empty() {
                let detail = format!("{}: the server has no bytes at {at} of {}", shown(spot), status.length);
                return Err(RemoteError::Damaged { detail });
            }
            whole.extend_from_slice(&bytes);
            if at - start == length {
                return Ok(whole.into());
            }
        }
    }

    /// One call: some bytes, and the status that they were read under. Bytes of a version that is wanted also come of a site that
    /// is at an older release, where the others have another version.
    async fn piece(
        &self,
        call: &Call,
        spot: &Spot,
        range: Range<u64>,
        wanted: Option<&Version>,
    ) -> Result<(Bytes, Seen)> {
        let start = range.start;
        if start >= END_MAX {
            // No file of AFS reaches so far.
            return Ok((Bytes::new(), self.status(call, spot).await?));
        }
        let length = range.end.min(END_MAX - 1) - start;
        let ticket = self.promises.ticket();
        let question = FetchData64 { fid: spot.fid, position: start.cast_signed(), length: length.cast_signed() };
        let (reply, teller) = match wanted {
            None => self.ask_newest(call, spot, &question, Release::of_content).await?,
            Some(wanted) => self.ask_wanted(call, spot, &question, wanted).await?,
        };
        if reply.bytes.len() as u64 > length {
            return Err(RemoteError::Damaged { detail: format!("{}: more bytes than were asked for", shown(spot)) });
        }
        self.files.servers.received(teller.server, reply.bytes.len());
        let written = Written::of(&reply.end.status);
        let lease = self.promises.enter_of(ticket, teller.clone(), spot, reply.end.promise, written);
        Ok((reply.bytes.into(), Seen { status: reply.end.status, lease, teller }))
    }

    /// Asks for bytes of a version, of a site that has it.
    async fn ask_wanted(
        &self,
        call: &Call,
        spot: &Spot,
        question: &FetchData64,
        wanted: &Version,
    ) -> Result<(FetchedData, Teller)> {
        let (cell, volume) = (&spot.cell, spot.fid.volume);
        let is_of_copy = matches!(Stamp::of(wanted), Some(Stamp { made: Some(Made::File(_)), .. }));
        let fits = |server, reply: &FetchedData| {
            if let Release::Made(created_s) = Release::of_content(reply) {
                // Whoever is behind is to be known.
                let _ = self.promises.releases.is_outdated(cell, volume, (server, created_s));
            }
            // Which sites there are is a question of copies alone.
            let made = Some(Made::File(reply.end.status.changed_s)).filter(|_| is_of_copy);
            self.stamp(spot, &reply.end.status, made).is_version(wanted)
        };
        // Without an answer that fits, who has the file open gets an error: whoever may have one is waited for.
        let told = self
            .files
            .ask_fitting(call, (cell, volume), &shown(spot), (question, Release::of_content as _), (&fits, None))
            .await?;
        if let Release::Made(created_s) = Release::of_content(&told.reply) {
            self.note_release(spot, created_s);
        }
        Ok((told.reply, told.teller))
    }

    /// What a symbolic link says.
    pub async fn read_link(&self, call: &Call, spot: &Spot) -> Result<Answer<Vec<u8>>> {
        let (bytes, seen) = self.piece(call, spot, 0..LINK_BYTES_MAX, None).await?;
        let worth = seen.worth(Told::Content);
        let version = self.stamp(spot, &seen.status, Made::of(&seen.status, &seen.teller)).version();
        let answer = Answer::new(bytes.to_vec(), version, worth.lease);
        Ok(Answer { audience: worth.audience, ..answer })
    }
}

/// Bytes that the first call asks for: the others wait for what it says of the file. Most files have no more.
const FIRST_PIECE_BYTES: u64 = 64 << 10;
/// Where a range has to end before (OpenAFS `src/viced/afsfileprocs.c`, `common_FetchData64`).
const END_MAX: u64 = i64::MAX.cast_unsigned();
/// Longest content of a symbolic link (OpenAFS `src/fsint/common.xg`, `AFSPATHMAX`).
const LINK_BYTES_MAX: u64 = 1024;
