//! What is where: status of files, content of directories, and what their promises make of it.

use std::time::Duration;

use bytes::Bytes;
use weft_remote::{Audience, Call, Entry, Lease, Name, RemoteError, Result, clock};

use crate::abort::{AbortCode, Next};
use crate::access::Operation;
use crate::afs::Shared;
use crate::cell::CellName;
use crate::directories::{Admission, Who};
use crate::directory::{PAGE_BYTES, PAGES_MAX};
use crate::facts::{self, Made, Stamp, Told};
use crate::fid::{Fid, VolumeId};
use crate::identity::Spot;
use crate::names::Content;
use crate::promises::Ticket;
use crate::releases::Release;
use crate::retimed::Written;
use crate::rotate::{Fit, Teller};
use crate::tokens::Token;
use crate::wire::fileserver::{FetchData64, FetchStatus, InlineBulkStatus};
use crate::wire::status::{Kind, Promise, Status, StatusRow};
use crate::wire::{Call as WireCall, List};

/// A file as its server has it, and how long that is so.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub status: Status,
    pub lease: Lease,
    pub teller: Teller,
}

impl Seen {
    /// Whether it is a directory whose names its asker may have.
    fn may_list(&self) -> bool {
        self.status.kind == Kind::Directory && facts::may(&self.status, Operation::Lookup, self.status.caller_access)
    }
}

/// How long something is so, and who may be told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Worth {
    pub lease: Lease,
    pub audience: Audience,
}

impl Worth {
    /// What both are worth together.
    pub fn and(self, other: Worth) -> Worth {
        let audience = facts::stricter(self.audience, other.audience);
        Worth { lease: shorter(self.lease, other.lease), audience }
    }
}

impl Seen {
    /// What it is worth, as far as it tells this.
    pub fn worth(&self, told: Told) -> Worth {
        Worth { lease: self.lease, audience: facts::audience(told, &self.status, &self.teller) }
    }
}

impl Shared {
    /// A name with what it stands for, for whoever asked.
    pub fn entry_told(&self, name: Name, spot: Spot, status: &Status, teller: &Teller) -> Entry {
        let entry = self.entry_of(name, spot, status, teller);
        self.told.is_again(&entry.id, &entry.attributes);
        entry
    }

    /// A name with what it stands for.
    pub fn entry_of(&self, name: Name, spot: Spot, status: &Status, teller: &Teller) -> Entry {
        let stamp = self.stamp(&spot, status, Made::of(status, teller));
        facts::entry(name, spot, status, self.options.modes, stamp)
    }

    /// Which content a file has by a status.
    pub fn stamp(&self, spot: &Spot, status: &Status, made: Option<Made>) -> Stamp {
        let written_s = self.retimed.written_s(spot, Written::of(status));
        Stamp { data_version: status.data_version, written_s, made }
    }

    /// Asks about a file: of the sites of its volume one that has the newest release. `about` says of which one an answer is.
    pub async fn ask_newest<C: WireCall + Sync>(
        &self,
        call: &Call,
        spot: &Spot,
        question: &C,
        about: fn(&C::Reply) -> Release,
    ) -> Result<(C::Reply, Teller)> {
        let (cell, volume, releases) = (&spot.cell, spot.fid.volume, &self.promises.releases);
        let fits = |server, reply: &C::Reply| match about(reply) {
            Release::Made(created_s) => !releases.is_outdated(cell, volume, (server, created_s)),
            Release::Without => false,
            Release::Untold => true,
        };
        let told = self
            .files
            .ask_fitting(call, (cell, volume), &shown(spot), (question, about), (&fits, Some(NEWEST_PATIENCE)))
            .await?;
        match (about(&told.reply), told.fit) {
            (Release::Made(created_s), Fit::Fits) => self.note_release(spot, created_s),
            (Release::Made(created_s), Fit::NoneFits) => {
                tracing::info!(%cell, %volume, "no site that answers has the release that was seen: an older one is shown");
                releases.went_back(cell, volume, created_s);
                self.end_promises_of(cell, volume);
            }
            // What does not fit is for this one use (`Promises::enter`).
            (Release::Made(_), Fit::NoneInTime) | (Release::Without | Release::Untold, _) => {}
        }
        Ok((told.reply, told.teller))
    }

    /// A site tells of a release of a volume: what was promised of an older one does not count any more.
    pub fn note_release(&self, spot: &Spot, created_s: u32) {
        let (cell, volume) = (&spot.cell, spot.fid.volume);
        if self.promises.releases.is_newer(cell, volume, created_s) {
            tracing::debug!(%cell, %volume, "the volume was released");
            self.end_promises_of(cell, volume);
        }
    }

    /// What was promised of a volume's files, by whichever server, was of another release.
    fn end_promises_of(&self, cell: &CellName, volume: VolumeId) {
        self.forget_doors(cell, &[Fid { volume, vnode: 0, unique: 0 }]);
        self.promises.released(cell, volume);
    }

    /// The status of something, now.
    pub async fn status(&self, call: &Call, spot: &Spot) -> Result<Seen> {
        let ticket = self.promises.ticket();
        let (status, promise, teller) = self.status_told(call, spot).await?;
        self.directories.keep_only(&spot.cell, spot.fid, self.stamp(spot, &status, Made::of(&status, &teller)));
        let lease = self.promises.enter_of(ticket, teller.clone(), spot, promise, Written::of(&status));
        let seen = Seen { status, lease, teller };
        self.note_rights(ticket, spot, &seen);
        if seen.may_list() {
            self.admit(ticket, spot, &seen);
        }
        Ok(seen)
    }

    /// Asks for one status as for several: there a refusal is a row of the answer. A server of OpenAFS answers who is told
    /// "no" by aborts more than ten times in a row after 3 s each (`fileserver -abortthreshold`), and the files of a directory
    /// that may only be listed, or those of one that somebody else has removed, are asked about one by one.
    async fn status_told(&self, call: &Call, spot: &Spot) -> Result<(Status, Promise, Teller)> {
        let (what, fids) = (shown(spot), vec![spot.fid]);
        let question = InlineBulkStatus { fids: List(fids.clone()) };
        match self.ask_newest(call, spot, &question, Release::of_several).await {
            Ok((reply, teller)) => {
                let answer = reply.answers(&fids).map_err(|error| damaged(spot, &error))?.pop();
                match answer {
                    Some((_, StatusRow(Ok(status)), promise)) => return Ok((status, promise, teller)),
                    Some((_, StatusRow(Err(code)), _)) if AbortCode(code).next() == Next::GiveUp => {
                        return Err(AbortCode(code).error(&what));
                    }
                    // Where the volume is now is for whoever goes through its sites.
                    _ => {}
                }
            }
            Err(RemoteError::Unsupported { .. }) => {}
            Err(error) => return Err(error),
        }
        let (reply, teller) = self.ask_newest(call, spot, &FetchStatus { fid: spot.fid }, Release::of_one).await?;
        Ok((reply.status, reply.promise, teller))
    }

    /// The content of a directory, from memory where its promise says that it is the same and the caller may have it.
    ///
    /// # Errors
    /// `NotADirectory`; whatever keeps its server from answering.
    pub async fn directory(&self, call: &Call, spot: &Spot) -> Result<(Content, Worth)> {
        let Spot { cell, fid, .. } = spot;
        if !fid.is_directory() {
            return Err(RemoteError::NotADirectory { detail: shown(spot) });
        }
        let token = self.files.logins.token(call, cell).await;
        if let Some(held) = self.directory_at_hand(spot, token.as_deref()) {
            return Ok(held);
        }
        let turn = self.turns.of(cell, *fid);
        let _turn = turn.lock().await;
        if let Some(held) = self.directory_at_hand(spot, token.as_deref()) {
            return Ok(held);
        }
        if self.directories.get(cell, *fid).is_some() {
            // Its promise has ended, or was made to others; its content may be the same, and this caller's as well.
            let seen = self.status(call, spot).await?;
            if seen.may_list()
                && let Some(content) = self.directories.get(cell, *fid)
            {
                return Ok((content, seen.worth(Told::Content)));
            }
        }
        self.fetch_directory(call, spot).await
    }

    /// What is held of a directory under a promise, if whoever asks was let in.
    pub async fn directory_promised(&self, call: &Call, spot: &Spot) -> Option<Content> {
        let token = self.files.logins.token(call, &spot.cell).await;
        self.directory_at_hand(spot, token.as_deref()).map(|(content, _)| content)
    }

    /// What is held of a directory, if whoever has this token was let in.
    fn directory_at_hand(&self, spot: &Spot, token: Option<&Token>) -> Option<(Content, Worth)> {
        let Spot { cell, fid, .. } = spot;
        let content = self.directories.get(cell, *fid)?;
        let admissions = self.directories.admissions(cell, *fid, token.map(|token| token.id));
        let counting = admissions.iter().filter(|admission| admission.until > clock::now());
        let worth = counting.filter_map(|admission| {
            let lease = self.promises.lease_since(admission.ticket, cell, *fid)?;
            let audience = match (admission.who, token) {
                (Who::Token(_), Some(token)) => Audience::Only { uid: token.uid },
                _ => Audience::Everyone,
            };
            Some(Worth { lease, audience })
        });
        // Best as anybody, for then it is everybody's.
        Some((content, worth.min_by_key(|worth| worth.audience != Audience::Everyone)?))
    }

    /// Remembers whom a server has let in to a directory.
    fn admit(&self, ticket: Ticket, spot: &Spot, seen: &Seen) {
        let Lease::UntilBroken(until) = seen.lease else { return };
        let who = match (seen.worth(Told::Content).audience, &seen.teller.token) {
            (Audience::Only { .. }, Some(token)) => Who::Token(token.id),
            _ => Who::Anybody,
        };
        let admission = Admission { who, ticket, until };
        let stamp = self.stamp(spot, &seen.status, Made::of(&seen.status, &seen.teller));
        self.directories.admit(&spot.cell, spot.fid, stamp, admission);
    }

    async fn fetch_directory(&self, call: &Call, spot: &Spot) -> Result<(Content, Worth)> {
        let ticket = self.promises.ticket();
        let question = FetchData64 { fid: spot.fid, position: 0, length: DIRECTORY_BYTES_MAX };
        let asking = self.ask_newest(call, spot, &question, Release::of_content);
        let (reply, teller) = self.ask_if_allowed(call, &[(spot, Operation::Lookup)], asking).await?;
        let bytes = Bytes::from(reply.bytes);
        let stamp = self.stamp(spot, &reply.end.status, Made::of(&reply.end.status, &teller));
        let content = Content::new(spot.fid.volume, stamp, bytes);
        let content = content.map_err(|error| damaged(spot, &error))?;
        self.directories.put(&spot.cell, spot.fid, content.clone());
        let written = Written::of(&reply.end.status);
        let lease = self.promises.enter_of(ticket, teller.clone(), spot, reply.end.promise, written);
        let seen = Seen { status: reply.end.status, lease, teller };
        self.note_rights(ticket, spot, &seen);
        self.admit(ticket, spot, &seen);
        Ok((content, seen.worth(Told::Content)))
    }

    /// What a name in a directory stands for, with the worth that the name and its file have in common; no file when there
    /// is no such name.
    pub async fn find(&self, call: &Call, dir: &Spot, name: &Name) -> Result<(Option<(Spot, Seen)>, Worth)> {
        for is_last in [false, true] {
            let (content, of_names) = self.directory(call, dir).await?;
            let found = content.find(name).map_err(|error| damaged(dir, &error))?;
            let Some(found) = found else { return Ok((None, of_names)) };
            let spot = dir.beside(found);
            match self.status(call, &spot).await {
                Ok(seen) => {
                    let worth = of_names.and(seen.worth(Told::Status));
                    return Ok((Some((spot, seen)), worth));
                }
                // It has gone since the directory was read.
                Err(RemoteError::NotFound { .. }) if is_last => {}
                Err(RemoteError::NotFound { .. }) => {
                    self.status(call, dir).await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok((None, Worth { lease: Lease::Spent, audience: Audience::Only { uid: call.caller.uid } }))
    }

    /// As [`Shared::find`]; a name that ends with `@sys` is read as that of this kind of machine.
    pub async fn find_read(&self, call: &Call, dir: &Spot, name: &Name) -> Result<(Option<(Spot, Seen)>, Worth)> {
        let Some(stem) = name.as_bytes().strip_suffix(AT_SYS) else { return self.find(call, dir, name).await };
        let mut absent: Option<Worth> = None;
        for sysname in &self.options.sysnames {
            let Ok(read) = Name::new([stem, sysname.as_bytes()].concat()) else { continue };
            match self.find(call, dir, &read).await? {
                (None, worth) => absent = Some(absent.map_or(worth, |absent| absent.and(worth))),
                found => return Ok(found),
            }
        }
        match absent {
            Some(worth) => Ok((None, worth)),
            None => self.find(call, dir, name).await,
        }
    }

    /// The names that are read as this one.
    pub fn readings_of(&self, name: &Name) -> impl Iterator<Item = Name> {
        let stems = self.options.sysnames.iter().filter_map(|sysname| name.as_bytes().strip_suffix(sysname.as_bytes()));
        stems.filter_map(|stem| Name::new([stem, AT_SYS].concat()).ok())
    }
}

/// The lease that holds while both do.
pub(crate) fn shorter(one: Lease, other: Lease) -> Lease {
    match (one, other) {
        (Lease::Spent, _) | (_, Lease::Spent) => Lease::Spent,
        (Lease::UntilBroken(one), Lease::UntilBroken(other)) => Lease::UntilBroken(one.min(other)),
        (lease @ Lease::UntilBroken(_), _) | (_, lease) => lease,
    }
}

/// A place for people: `example.org: 536870918.1.1`.
pub(crate) fn shown(spot: &Spot) -> String {
    format!("{}: {}", spot.cell, spot.fid)
}

pub(crate) fn damaged(spot: &Spot, error: &dyn std::error::Error) -> RemoteError {
    RemoteError::Damaged { detail: format!("{}: {error}", shown(spot)) }
}

/// What names end with that differ from machine to machine.
const AT_SYS: &[u8] = b"@sys";
/// Longest directory in bytes.
const DIRECTORY_BYTES_MAX: i64 = (PAGE_BYTES * PAGES_MAX) as i64;
/// How long sites with the newest release may take to answer before what an older one says is shown.
const NEWEST_PATIENCE: Duration = Duration::from_secs(1);
