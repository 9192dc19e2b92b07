//! The names of a directory with what they stand for, many of which one question is about.

use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use weft_remote::{Attributes, Call, Entry, FileKind, Lease, Name, Purpose, Result, Version};
use xxhash_rust::xxh3::Xxh3Default;

use crate::afs::Shared;
use crate::facts::{self, Made, Told};
use crate::fid::Fid;
use crate::identity::{Identity, Spot};
use crate::look::{Worth, damaged, shown};
use crate::own_changes::Moment;
use crate::promises::Ticket;
use crate::releases::Release;
use crate::retimed::Written;
use crate::rotate::Teller;
use crate::rows::{Access, Asker, Row, Standing, StatusTold, ToldRows};
use crate::wire::List;
use crate::wire::fileserver::InlineBulkStatus;
use crate::wire::status::{FIDS_MAX, Promise, Status};

/// A directory's names with what they stand for.
pub(crate) struct Listed {
    pub entries: Vec<Entry>,
    /// Those that were told before and stand ([`Listing::Changes`](weft_remote::Listing::Changes)).
    pub standing: Vec<Arc<Entry>>,
    /// Whether some of the others had been told before, and were promised no more.
    pub is_renewed: bool,
    /// Of all that the entries tell.
    pub version: Version,
    pub worth: Worth,
}

impl Shared {
    /// All names of a directory with what they stand for.
    pub async fn list(&self, call: &Call, dir: &Spot) -> Result<Listed> {
        let token = self.files.logins.token(call, &dir.cell).await.map(|token| token.id);
        let begun = self.promises.ticket();
        let (content, of_names) = self.directory(call, dir).await?;
        let left_out = |error| tracing::warn!(%error, directory = shown(dir), "an entry is left out");
        let names = content.all(left_out).map_err(|error| damaged(dir, &error))?;
        let asker = Asker { dir: dir.clone(), token };
        let access = if ToldRows::holds(names.len()) { self.access(call, &asker).await } else { None };
        let Standing { rows: standing, asked, until, is_renewed } = match call.purpose {
            Purpose::Anew => Standing { asked: names, ..Standing::default() },
            Purpose::Use | Purpose::Ahead => self.standing_rows(&asker, access, names),
        };
        let told = self.ask_rows(call, dir, asked).await?;
        for Row { entry, .. } in &told {
            self.told.is_again(&entry.id, &entry.attributes);
        }
        let stamp = content.stamp.version();
        let (version, worth) = of_all(stamp.token().unwrap_or_default(), of_names, standing.iter().chain(&told));
        if let (Some(access), Lease::UntilBroken(ends)) = (access, worth.lease)
            // What is given in it is the same since before the first of them was asked about.
            && self.promises.lease_since(begun, &dir.cell, dir.fid).is_some()
        {
            self.told_rows.hold(asker, access, (until, ends), standing.iter().chain(&told));
        }
        let standing = standing.into_iter().map(|row| row.entry).collect();
        let entries = told.into_iter().map(|row| Arc::unwrap_or_clone(row.entry)).collect();
        Ok(Listed { entries, standing, is_renewed, version, worth })
    }

    /// What an asker may do in a directory for as long as its promise holds: also where somebody else has had it fetched.
    async fn access(&self, call: &Call, Asker { dir, token }: &Asker) -> Option<Access> {
        if let Some(access) = self.access_promised(dir, *token) {
            return Some(access);
        }
        // What keeps its server from telling is told by the questions about the names.
        self.status(call, dir).await.ok()?;
        self.access_promised(dir, *token)
    }

    /// Asks what names of a directory stand for, a few questions at once.
    async fn ask_rows(&self, call: &Call, dir: &Spot, names: Vec<(Name, Fid)>) -> Result<Vec<Row>> {
        let groups: Vec<Vec<(Name, Fid)>> = names.chunks(FIDS_MAX).map(<[_]>::to_vec).collect();
        let rows = stream::iter(groups).map(|group| self.ask_few(call, dir, group)).buffered(BULK_AT_ONCE);
        let rows: Vec<Vec<Row>> = rows.try_collect().await?;
        Ok(rows.into_iter().flatten().collect())
    }

    /// Asks what so many names stand for as one question can be about.
    async fn ask_few(&self, call: &Call, dir: &Spot, names: Vec<(Name, Fid)>) -> Result<Vec<Row>> {
        let before = (self.promises.ticket(), self.own_changes.moment());
        let fids: Vec<Fid> = names.iter().map(|(_, fid)| *fid).collect();
        let question = InlineBulkStatus { fids: List(fids.clone()) };
        let (reply, teller) = self.ask_newest(call, dir, &question, Release::of_several).await?;
        let answers = reply.answers(&fids).map_err(|error| damaged(dir, &error))?;
        let rows = names.into_iter().zip(answers).map(|((name, fid), (_, row, promise))| {
            let spot = dir.beside(fid);
            match row.0 {
                Ok(status) => self.row(before, (name, spot), (&status, promise), &teller),
                Err(code) => {
                    tracing::debug!(code, %fid, "the status of a name in a listing is not told");
                    untold(name, spot)
                }
            }
        });
        Ok(rows.collect())
    }

    /// A name with what its server has told, asked after that moment.
    fn row(
        &self,
        (ticket, moment): (Ticket, Moment),
        (name, spot): (Name, Spot),
        (status, promise): (&Status, Promise),
        teller: &Teller,
    ) -> Row {
        let (fid, written) = (spot.fid, Written::of(status));
        let lease = self.promises.enter_of(ticket, teller.clone(), &spot, promise, written);
        let stamp = self.stamp(&spot, status, Made::of(status, teller));
        if fid.is_directory() {
            self.directories.keep_only(&spot.cell, fid, stamp);
        }
        let audience = facts::audience(Told::Status, status, teller);
        let token = teller.token.as_ref().map(|token| token.id);
        let told = Some(StatusTold { written, audience, lease, token, ticket, moment });
        Row {
            fid,
            entry: Arc::new(facts::entry(name, spot, status, self.options.modes, stamp)),
            hash: hash_of(fid, status),
            told,
        }
    }
}

/// The version of a listing, and what it is worth.
fn of_all<'a>(of_names: &[u8], names: Worth, rows: impl Iterator<Item = &'a Row>) -> (Version, Worth) {
    // Which of them were asked about makes no difference.
    let (sum, worth) = rows.fold((0_u64, names), |(sum, worth), row| {
        let of_row = row.told.map(|StatusTold { lease, audience, .. }| Worth { lease, audience });
        (sum.wrapping_add(row.hash), of_row.map_or(worth, |of_row| worth.and(of_row)))
    });
    let mut hasher = Xxh3Default::new();
    hasher.update(of_names);
    hasher.update(&sum.to_be_bytes());
    (Version::strong(format!("{:016x}", hasher.digest())), worth)
}

/// A name of which only the number of its file is known.
fn untold(name: Name, spot: Spot) -> Row {
    let kind = if spot.fid.is_directory() { FileKind::Directory } else { FileKind::Unknown };
    let fid = spot.fid;
    let attributes = Attributes::of_kind(kind);
    let entry = Entry { name, id: Identity::File(spot).file_id(), attributes, version: Version::None };
    let mut hasher = of_fid(fid);
    hasher.update(b"?");
    Row { fid, entry: Arc::new(entry), hash: hasher.digest(), told: None }
}

fn hash_of(fid: Fid, status: &Status) -> u64 {
    let mut hasher = of_fid(fid);
    for word in [status.mode, status.modified_s, status.changed_s, status.links] {
        hasher.update(&word.to_be_bytes());
    }
    hasher.update(&status.data_version.to_be_bytes());
    hasher.update(&status.length.to_be_bytes());
    hasher.digest()
}

fn of_fid(fid: Fid) -> Xxh3Default {
    let mut hasher = Xxh3Default::new();
    hasher.update(&fid.vnode.to_be_bytes());
    hasher.update(&fid.unique.to_be_bytes());
    hasher
}

/// Questions for the status of many files that are under way at once, for one listing.
const BULK_AT_ONCE: usize = 8;
