//! Bodies: copies of files that are never a mix of two versions.
//!
//! 1. The last change must be older than the grain of the kernel's clock, so that any later one has another time. Until
//!    then the copy waits, unless whatever comes after a look at the times has another in any case
//!    ([`crate::top::Top::fine_times`]).
//! 2. A write moves the file's times first and its bytes then, under the inode's lock. Seeking for data takes the same
//!    lock (ext4, btrfs, tmpfs, f2fs; XFS takes its lock to read), so when the seek returns, no write that moved the
//!    times before is still moving bytes. When the times are the same after it as before, the copy begins.
//! 3. After every piece, and before it is handed on, length and times are compared. If anything differs, the body ends
//!    with `VersionChanged`.
//! 4. But where only the time of the last change differs, and the file's names, mode or owner have changed, which moves it
//!    (it was replaced by another, say), what was handed on is read once more from the settled file. If it is the same, the
//!    copy goes on.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use rustix::fs::{CWD, Mode, OFlags, SeekFrom, openat, seek};
use rustix::io::Errno;
use weft_remote::{
    Answer, Body, Call, Fetched, FileId, FileKind, Piece, RemoteError, Result, Sameness, Seek, Span, Version,
};
use xxhash_rust::xxh3::Xxh3;

use crate::access::attributes;
use crate::aside::PIECE_TIME_MAX;
use crate::directory::Shared;
use crate::error::failed;
use crate::facts::{Facts, facts};
use crate::identity::Identity;
use crate::promise::Promise;
use crate::resolve::At;
use crate::top::held;

/// A file opened to be copied.
struct Opened {
    fd: OwnedFd,
    id: Identity,
    path: Vec<u8>,
    facts: Facts,
    promise: Promise,
    /// How long to wait before the copy may begin; zero when it may.
    unsettled_for: Duration,
}

/// A copy under way.
struct Copy {
    shared: Arc<Shared>,
    id: Identity,
    shown: String,
    fd: Arc<OwnedFd>,
    facts: Facts,
    start: u64,
    at: u64,
    end: u64,
    /// The piece that was read before it was asked for: all of a short file.
    ahead: Option<Bytes>,
    /// Of the bytes that were handed on.
    told: Xxh3,
    /// How often what was handed on may be compared again.
    comparisons: usize,
    failed: bool,
}

/// A copy that has begun, and of what.
struct Begun {
    copy: Copy,
    facts: Facts,
    promise: Promise,
}

/// What reading a piece gave.
enum Read {
    Piece(Bytes),
    /// The file is this now, and what of it has changed need not have touched its bytes.
    Touched(Facts),
}

impl Shared {
    /// Begins to copy a file.
    ///
    /// # Errors
    /// `VersionChanged`, `IsADirectory`, `NotFound`; `Busy` when it is written all the time.
    pub async fn fetch(
        self: &Arc<Shared>,
        call: &Call,
        file: &FileId,
        expected: &Version,
        span: Span,
    ) -> Result<Answer<Fetched>> {
        let mut waited = None;
        for _ in 0..WAITS_MAX {
            let (shared, of, former) = (self.clone(), file.clone(), waited.take());
            let open = move || shared.open_settled(&of, former);
            let opened = self.aside.run_short(call.deadline, || self.shown(file), open).await?;
            let differs = opened.facts.version().compare(expected) == Sameness::Different;
            let is_ours = differs && self.ours.has_bytes_of(opened.id, &opened.facts, expected);
            if !is_ours {
                self.expect(&opened.path, &opened.facts.version(), expected)?;
            }
            if opened.unsettled_for.is_zero() {
                let version = if is_ours { expected.clone() } else { opened.facts.version() };
                match self.begin(opened, span).read_ahead().await {
                    Ok(begun) => return Ok(begun.answer(file, version)),
                    // It changes faster than a wait would have seen.
                    Err(RemoteError::VersionChanged { .. }) if Instant::now() + MOMENT < call.deadline => {
                        tokio::time::sleep(MOMENT).await;
                        continue;
                    }
                    Err(error) => return Err(error),
                }
            }
            let until = Instant::now() + opened.unsettled_for;
            if until >= call.deadline {
                let detail = format!("{}: it has only just changed", self.shown(file));
                return Err(RemoteError::TimedOut { detail });
            }
            tokio::time::sleep_until(until.into()).await;
            waited = Some(opened);
        }
        let detail = format!("{}: it is written all the time, so no copy would be of one version", self.shown(file));
        Err(RemoteError::Busy { detail, retry_after: None })
    }

    /// Where data or a hole begins in one version of a file.
    ///
    /// # Errors
    /// `VersionChanged`, also while it would be seen only later that it has changed; whatever keeps the disk from telling.
    pub fn seek(&self, file: &FileId, expected: &Version, offset: u64, what: Seek) -> Result<Option<u64>> {
        let opened = self.open_settled(file, None)?;
        let shown = self.top.shown(&opened.path);
        let is_it = opened.facts.version().compare(expected) == Sameness::Same
            || self.ours.has_bytes_of(opened.id, &opened.facts, expected);
        if !is_it || !opened.unsettled_for.is_zero() {
            return Err(changed(&shown));
        }
        let to = match what {
            Seek::Data => SeekFrom::Data(offset),
            Seek::Hole => SeekFrom::Hole(offset),
        };
        let found = match seek(&opened.fd, to) {
            Ok(place) => Some(place),
            Err(Errno::NXIO) => None,
            Err(errno) => return Err(failed(&shown, "lseek", errno)),
        };
        let now = self.facts(&opened.path, &opened.fd)?;
        if now.is_same_version(&opened.facts) { Ok(found) } else { Err(changed(&shown)) }
    }

    /// Opens a file to be copied. One that was opened and waited for, and has lost its name meanwhile to another, is read
    /// all the same: who opens a file that is replaced gets the former or the next, never nothing.
    fn open_settled(&self, file: &FileId, waited: Option<Opened>) -> Result<Opened> {
        self.usable()?;
        let (At { id, path, fd: found, facts: before, .. }, promise) = match (self.find_promised(file), waited) {
            (Err(RemoteError::NotFound { .. } | RemoteError::Unplaced { .. }), Some(waited)) => {
                return self.settled(Opened { facts: self.facts(&waited.path, &waited.fd)?, ..waited });
            }
            (found, _) => found?,
        };
        if before.kind != FileKind::File {
            return Err(no_bytes(before.kind, self.top.shown(&path)));
        }
        // Opened again through the descriptor: by name, something else could be there by now.
        let fd = reopen(&found, OFlags::RDONLY);
        let fd = fd.map_err(|errno| failed(&self.top.shown(&path), "open for reading", errno))?;
        self.settled(Opened { fd, id, path, facts: before, promise, unsettled_for: Duration::ZERO })
    }

    /// Finds out how long a copy has to wait.
    fn settled(&self, opened: Opened) -> Result<Opened> {
        let unsettled_for = opened.facts.settles_in(SystemTime::now(), self.top.fine_times);
        if !unsettled_for.is_zero() {
            return Ok(Opened { unsettled_for, ..opened });
        }
        // Where it goes does not matter, and a file without data gives an error.
        let _ = seek(&opened.fd, SeekFrom::Data(0));
        let facts = self.facts(&opened.path, &opened.fd)?;
        let unsettled_for = if facts.is_same_version(&opened.facts) {
            Duration::ZERO
        } else {
            facts.settles_in(SystemTime::now(), self.top.fine_times).max(MOMENT)
        };
        Ok(Opened { facts, unsettled_for, ..opened })
    }

    fn begin(self: &Arc<Shared>, opened: Opened, span: Span) -> Begun {
        let Opened { fd, id, path, facts, promise, .. } = opened;
        let shown = self.top.shown(&path);
        let start = span.start.min(facts.length);
        let end = start.saturating_add(span.length.unwrap_or(u64::MAX)).min(facts.length);
        let copy = Copy {
            shared: self.clone(),
            id,
            shown,
            fd: Arc::new(fd),
            facts,
            start,
            at: start,
            end,
            ahead: None,
            told: Xxh3::new(),
            comparisons: TOUCHED_MAX,
            failed: false,
        };
        Begun { copy, facts, promise }
    }
}

impl Begun {
    /// Reads a short file at once: where it changes meanwhile, nobody has been told of it.
    async fn read_ahead(mut self) -> Result<Begun> {
        if (1..=PIECE_BYTES).contains(&(self.copy.end - self.copy.start)) {
            self.copy.ahead = Some(self.copy.piece().await?);
        }
        if self.facts.length == 0 && self.copy.shared.top.blind.is_some() {
            self.copy.refuse_hidden_bytes().await?;
        }
        Ok(self)
    }

    fn answer(self, file: &FileId, version: Version) -> Answer<Fetched> {
        let Begun { copy, facts, promise } = self;
        let lease = copy.shared.limited(&facts, copy.shared.watches.lease(&[&promise]));
        let attributes = attributes(copy.fd.as_fd(), &facts);
        let body = Body {
            file: file.clone(),
            version: version.clone(),
            start: copy.start,
            file_length: Some(facts.length),
            resumable: true,
            stream: Box::pin(futures_util::stream::unfold(copy, async |mut copy| {
                let piece = copy.next().await?;
                Some((piece, copy))
            })),
        };
        Answer::new(Fetched { attributes, body }, version, lease)
    }
}

impl Shared {
    /// Whether a file differs from what it was only by what we did to its attributes and names. While we do more, what it
    /// is now may be out of date when it is compared.
    fn is_same_by_us(&self, id: Identity, fd: &OwnedFd, was: &Facts) -> bool {
        let compare = || facts(fd.as_fd()).is_ok_and(|(now, _)| self.ours.has_bytes_of(id, &now, &was.version()));
        (0..COMPARED_MAX).any(|_| compare())
    }
}

impl Copy {
    async fn next(&mut self) -> Option<Result<Piece>> {
        if self.failed || self.at >= self.end {
            return None;
        }
        let piece = match self.ahead.take() {
            Some(bytes) => Ok(bytes),
            None => self.piece().await,
        };
        match &piece {
            Ok(bytes) => {
                self.told.update(bytes);
                self.at += bytes.len() as u64;
            }
            Err(_) => self.failed = true,
        }
        Some(piece.map(Piece::Bytes))
    }

    async fn piece(&mut self) -> Result<Bytes> {
        loop {
            match self.read(self.at, self.end).await? {
                Read::Piece(bytes) => return Ok(bytes),
                Read::Touched(now) => self.go_on_with(now).await?,
            }
        }
    }

    /// Takes what a touched file is now for what it was, once its bytes have turned out to be the same as far as they were
    /// handed on.
    async fn go_on_with(&mut self, mut now: Facts) -> Result<()> {
        while self.comparisons > 0 && self.at - self.start <= COMPARED_BYTES_MAX {
            self.comparisons -= 1;
            tokio::time::sleep(now.settles_in(SystemTime::now(), self.shared.top.fine_times)).await;
            self.facts = now;
            match self.is_as_told().await? {
                Read::Piece(_) => return Ok(()),
                Read::Touched(again) => now = again,
            }
        }
        Err(self.changed())
    }

    /// Compares what was handed on with what the file holds.
    async fn is_as_told(&self) -> Result<Read> {
        let (mut at, mut held) = (self.start, Xxh3::new());
        while at < self.at {
            match self.read(at, self.at).await? {
                Read::Piece(bytes) => {
                    held.update(&bytes);
                    at += bytes.len() as u64;
                }
                touched @ Read::Touched(_) => return Ok(touched),
            }
        }
        if held.digest128() == self.told.digest128() { Ok(Read::Piece(Bytes::new())) } else { Err(self.changed()) }
    }

    /// Reads the piece from `at` on, up to `end` at most.
    async fn read(&self, at: u64, end: u64) -> Result<Read> {
        let length = (end - at).min(PIECE_BYTES) as usize;
        let (fd, was, shown) = (self.fd.clone(), self.facts, self.shown.clone());
        let (shared, id) = (self.shared.clone(), self.id);
        let work = move || {
            let bytes = piece(&fd, at, length, &shown)?;
            let (now, _) = facts(fd.as_fd()).map_err(|errno| failed(&shown, "statx", errno))?;
            if now.is_same_version(&was) || shared.is_same_by_us(id, &fd, &was) {
                return whole(bytes, at, length, &shown).map(Read::Piece);
            }
            if now.is_touched(&was) { Ok(Read::Touched(now)) } else { Err(changed(&shown)) }
        };
        self.shared.aside.run_short(Instant::now() + PIECE_TIME_MAX, || self.shown.clone(), work).await
    }

    /// A file that says that it is empty and is not, as those of /proc: to show it so would be wrong.
    async fn refuse_hidden_bytes(&self) -> Result<()> {
        let (fd, shown) = (self.fd.clone(), self.shown.clone());
        let work = move || {
            // Some of those wait for what is not there yet.
            let fd = reopen(&fd, OFlags::RDONLY | OFlags::NONBLOCK);
            let fd = fd.map_err(|errno| failed(&shown, "open for reading", errno))?;
            if piece(&fd, 0, 1, &shown)?.is_empty() {
                return Ok(());
            }
            // Others may have written it just now.
            let (now, _) = facts(fd.as_fd()).map_err(|errno| failed(&shown, "statx", errno))?;
            if now.length > 0 {
                return Err(changed(&shown));
            }
            let detail = format!("{shown}: it has bytes, and its length is told as 0: it can only be read where it is");
            Err(RemoteError::Damaged { detail })
        };
        self.shared.aside.run_short(Instant::now() + PIECE_TIME_MAX, || self.shown.clone(), work).await
    }

    fn changed(&self) -> RemoteError {
        changed(&self.shown)
    }
}

fn changed(shown: &str) -> RemoteError {
    RemoteError::VersionChanged { detail: format!("{shown}: while it was copied") }
}

/// Up to `length` bytes of a file.
fn piece(fd: &OwnedFd, at: u64, length: usize, shown: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        let from = at + bytes.len() as u64;
        match rustix::io::pread(fd, rustix::buffer::spare_capacity(&mut bytes), from) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(failed(shown, "read", errno)),
        }
    }
    Ok(bytes)
}

/// The bytes of a file that has not changed, of which the disk must have so many.
fn whole(mut bytes: Vec<u8>, at: u64, length: usize, shown: &str) -> Result<Bytes> {
    if bytes.len() < length {
        let detail = format!("{shown}: the disk gives {} bytes from {at} on, not {length}", bytes.len());
        return Err(RemoteError::Damaged { detail });
    }
    bytes.truncate(length);
    Ok(Bytes::from(bytes))
}

/// What is said of what has no bytes to be read or written.
pub(crate) fn no_bytes(kind: FileKind, shown: String) -> RemoteError {
    match kind {
        FileKind::Directory => RemoteError::IsADirectory { detail: shown },
        kind => RemoteError::Unsupported { detail: format!("{shown}: {kind:?} has no bytes") },
    }
}

/// Opens what a descriptor stands for, to be read or written.
pub(crate) fn reopen(fd: &OwnedFd, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    openat(CWD, held(fd), flags | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())
}

/// Bytes in one piece of a body.
const PIECE_BYTES: u64 = 256 * 1024;
/// How often in one copy what was handed on is compared with a file whose attributes or names have changed.
const TOUCHED_MAX: usize = 8;
/// Most bytes that are compared so.
const COMPARED_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// How often a file is compared with what we made of it.
const COMPARED_MAX: usize = 3;
/// How often a copy waits for a file that keeps changing.
const WAITS_MAX: usize = 50;
/// Waited when a file changed just as its copy was to begin.
const MOMENT: Duration = Duration::from_millis(1);
