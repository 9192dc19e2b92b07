//! Changes, each one call or a few, made before they are answered. Those of a file's bytes are in `store.rs`.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weft_remote::{
    Answer, Audience, Call, Change, Changed, Completeness, Entry, FileId, FileKind, Lease, Mutation, Name, NamesNow,
    NewAttributes, Outcome, RemoteError, RenameTarget, Result, Version,
};

use crate::access::Operation;
use crate::afs::{Shared, TOLD_PATIENCE};
use crate::facts::{self, Made, Told};
use crate::fid::Fid;
use crate::identity::{Identity, Spot};
use crate::look::{damaged, shorter, shown};
use crate::promises::Promises;
use crate::releases::OfVolume;
use crate::retimed::Written;
use crate::rotate::Teller;
use crate::wire::fileserver::{CreateFile, Link, MakeDir, RemoveDir, RemoveFile, Rename, StoreStatus, Symlink};
use crate::wire::status::{FileName, PATH_BYTES_MAX, Status, StatusChange, Sync};
use crate::wire::{Call as WireCall, Text};

/// A directory that is to change, and a name in it.
struct Place {
    /// What the file system knows the directory by.
    id: FileId,
    dir: Spot,
    name: Name,
}

impl Place {
    fn shown(&self) -> String {
        format!("{}: {}", shown(&self.dir), self.name)
    }

    fn file_name(&self) -> FileName {
        Text(self.name.as_bytes().to_vec())
    }
}

/// A change of these of which it is not known yet what came of it.
struct Unheard<'a> {
    promises: &'a Promises,
    spots: &'a [&'a Spot],
}

impl Drop for Unheard<'_> {
    fn drop(&mut self) {
        self.spots.iter().for_each(|spot| self.promises.doubt(&spot.cell, spot.fid));
    }
}

impl Shared {
    /// Makes a change and tells what is there now.
    ///
    /// # Errors
    /// `VersionChanged` when it is not the expected version that would change, or when somebody else changed it meanwhile;
    /// what the server says.
    pub async fn apply(
        self: &Arc<Self>,
        call: &Call,
        mutation: &Mutation,
        expected: &Version,
    ) -> Result<Answer<Outcome>> {
        let mut spots = Vec::new();
        for (file, operation) in needs_of(&mutation.change) {
            let spot = self.spot(call, file).await?;
            if let Change::SetAttributes { new, .. } = &mutation.change {
                leave_owner(&spot, new)?;
            }
            spots.push((spot, operation));
        }
        let needs: Vec<(&Spot, Operation)> = spots.iter().map(|(spot, operation)| (spot, *operation)).collect();
        self.ask_if_allowed(call, &needs, self.make(call, mutation, expected)).await
    }

    async fn make(self: &Arc<Self>, call: &Call, mutation: &Mutation, expected: &Version) -> Result<Answer<Outcome>> {
        let made = mutation.made;
        match &mutation.change {
            Change::Create { dir, name, kind, mode, .. } => {
                let place = self.place(call, dir, name).await?;
                self.create(call, &place, *kind, mode.masked(), made).await
            }
            Change::Symlink { dir, name, target } => {
                let place = self.place(call, dir, name).await?;
                self.symlink(call, &place, target, made).await
            }
            Change::Link { file, dir, name } => {
                let place = self.place(call, dir, name).await?;
                self.link(call, &file_spot(file).map_err(files_alone)?, &place).await
            }
            Change::Remove { dir, name } => {
                let place = self.place(call, dir, name).await?;
                let dirs = vec![self.remove(call, &place).await?];
                Ok(Answer::new(Outcome { entry: None, dirs }, Version::None, self.lease_of(&place.dir)))
            }
            Change::Rename { from, name, to, new_name, target } => {
                let (from, to) = (self.place(call, from, name).await?, self.place(call, to, new_name).await?);
                self.rename(call, &from, &to, *target).await
            }
            Change::Write { file, extents, length, content } => {
                let spot = file_spot(file)?;
                let written = self.write(call, &spot, expected, (extents, *length), content.as_ref(), made).await;
                // Also what was not written to its end.
                self.tell_of(&spot, &[]).await;
                written
            }
            Change::SetAttributes { file, new } => self.set_attributes(call, &self.spot(call, file).await?, new).await,
            Change::SetExtended { .. } => {
                Err(RemoteError::Unsupported { detail: "AFS: extended attributes".to_owned() })
            }
        }
    }

    /// Has a file on its server's disk.
    pub async fn sync(&self, call: &Call, file: &FileId) -> Result<()> {
        let spot = self.spot(call, file).await?;
        if spot.fid.is_directory() {
            // A server has changes of names on its disk before it answers.
            return Ok(());
        }
        let change = StatusChange { sync: Sync::Now, ..StatusChange::default() };
        self.tell(call, &[&spot], &shown(&spot), &StoreStatus { fid: spot.fid, change }).await.map(drop)
    }

    async fn place(&self, call: &Call, dir: &FileId, name: &Name) -> Result<Place> {
        Ok(Place { id: dir.clone(), dir: self.spot(call, dir).await?, name: name.clone() })
    }

    /// What an identity stands for in a volume.
    async fn spot(&self, call: &Call, file: &FileId) -> Result<Spot> {
        match Identity::of(file) {
            Some(Identity::File(spot)) => Ok(spot),
            Some(Identity::Top) => Err(RemoteError::ReadOnly { detail: "the directory of cells".to_owned() }),
            Some(door) => self.inside(call, &door).await,
            None => Err(RemoteError::NotFound { detail: format!("{file:?}: no identity of AFS") }),
        }
    }

    /// Has a change made to these, of one volume. What is told of it, and to whom. When that is not heard, the change may have
    /// been made all the same, and nobody tells of it: then nothing that was promised of these counts any more.
    async fn tell<C: WireCall + std::marker::Sync>(
        &self,
        call: &Call,
        spots: &[&Spot],
        what: &str,
        question: &C,
    ) -> Result<(C::Reply, Teller)>
    where
        C::Reply: OfVolume,
    {
        let place = (&spots[0].cell, spots[0].fid.volume);
        let _changing = self.own_changes.begin(spots);
        let mut unheard = Unheard { promises: &self.promises, spots };
        let outcome =
            self.files.change(call, place, what, (question, C::Reply::release), &|| Box::new(std::iter::empty())).await;
        if outcome.as_ref().map_or_else(|error| !error.may_pass(), |_| true) {
            unheard.spots = &[];
        }
        outcome
    }

    fn lease_of(&self, spot: &Spot) -> Lease {
        self.promises.lease(&spot.cell, spot.fid).unwrap_or(Lease::Spent)
    }

    /// Names of a directory stand for something else now, by our doing; and whether by ours alone, since its server has
    /// promised to tell of others.
    async fn changed(
        &self,
        dir: &Spot,
        (status, teller): (&Status, &Teller),
        changes: &[(&Name, Option<Fid>)],
    ) -> NamesNow {
        let Spot { cell, fid, .. } = dir;
        self.promises.made(cell, *fid, status.data_version);
        self.directories.change(cell, *fid, self.stamp(dir, status, Made::of(status, teller)), changes);
        let before = self.promises.written(cell, *fid).map(|written| written.data_version);
        let before = before.filter(|before| before.checked_add(1) == Some(status.data_version));
        if let Some(before) = before {
            self.promises.stored(cell, *fid, before, Written::of(status));
        }
        let readings: Vec<Name> = changes.iter().flat_map(|(name, _)| self.readings_of(name)).collect();
        self.tell_of(dir, &readings).await;
        if before.is_some() { NamesNow::Followed } else { NamesNow::Unknown }
    }

    /// What servers tell of what others do, where we have done it: see [`Promises::changed_here`].
    ///
    /// [`Promises::changed_here`]: crate::promises::Promises::changed_here
    async fn tell_of(&self, spot: &Spot, names: &[Name]) {
        if let Some(told) = self.promises.changed_here(spot, names)
            && tokio::time::timeout(TOLD_PATIENCE, self.news.heard(told)).await.is_err()
        {
            tracing::debug!(file = shown(spot), "what was changed is not told in time");
        }
    }

    async fn create(
        &self,
        call: &Call,
        place: &Place,
        kind: FileKind,
        mode: u16,
        made: SystemTime,
    ) -> Result<Answer<Outcome>> {
        let (dir, name, what) = (place.dir.fid, place.file_name(), place.shown());
        let status = StatusChange { modified_s: Some(seconds(made)), mode: Some(mode.into()), ..Default::default() };
        let ticket = self.promises.ticket();
        let told = match kind {
            FileKind::File => self.tell(call, &[&place.dir], &what, &CreateFile { dir, name, status }).await,
            FileKind::Directory => self.tell(call, &[&place.dir], &what, &MakeDir { dir, name, status }).await,
            kind => return Err(RemoteError::Unsupported { detail: format!("{what}: {kind:?} in AFS") }),
        };
        let (reply, teller) = told.map_err(no_room_for_name)?;
        let names = self.changed(&place.dir, (&reply.dir, &teller), &[(&place.name, Some(reply.fid))]).await;
        let spot = place.dir.beside(reply.fid);
        let written = Written::of(&reply.status);
        let lease = self.promises.enter_of(ticket, teller.clone(), &spot, reply.promise, written);
        let mut dirs = vec![self.directory_now(place, (&reply.dir, names), &teller)];
        if kind == FileKind::Directory {
            let entry = self.entry_of(place.name.clone(), spot.clone(), &reply.status, &teller);
            let audience = facts::audience(Told::Content, &reply.status, &teller);
            dirs.push(Changed { entry, lease, audience, names: NamesNow::Empty(Completeness::CompleteButAtSys) });
        }
        Ok(self.outcome(place, (spot, &reply.status, &teller), lease, dirs))
    }

    async fn symlink(&self, call: &Call, place: &Place, target: &[u8], made: SystemTime) -> Result<Answer<Outcome>> {
        if target.len() > PATH_BYTES_MAX {
            let detail = format!("{}: a link that says {} bytes, of {PATH_BYTES_MAX}", place.shown(), target.len());
            return Err(RemoteError::TooMuch { detail });
        }
        // With a bit to execute it is no mount point.
        let status = StatusChange { modified_s: Some(seconds(made)), mode: Some(LINK_MODE), ..Default::default() };
        let (dir, name) = (place.dir.fid, place.file_name());
        let question = Symlink { dir, name, content: Text(target.to_vec()), status };
        let told = self.tell(call, &[&place.dir], &place.shown(), &question).await;
        let (reply, teller) = told.map_err(no_room_for_name)?;
        let names = self.changed(&place.dir, (&reply.dir, &teller), &[(&place.name, Some(reply.fid))]).await;
        let now = self.directory_now(place, (&reply.dir, names), &teller);
        let made = (place.dir.beside(reply.fid), &reply.status, &teller);
        Ok(self.outcome(place, made, Lease::Spent, vec![now]))
    }

    async fn link(&self, call: &Call, file: &Spot, place: &Place) -> Result<Answer<Outcome>> {
        if (&file.cell, file.fid.volume) != (&place.dir.cell, place.dir.fid.volume) {
            return Err(RemoteError::OtherTree { detail: place.shown() });
        }
        let question = Link { dir: place.dir.fid, name: place.file_name(), fid: file.fid };
        let linked = self.tell(call, &[&place.dir, file], &place.shown(), &question).await;
        let (reply, teller) = linked.map_err(files_alone).map_err(no_room_for_name)?;
        let names = self.changed(&place.dir, (&reply.dir, &teller), &[(&place.name, Some(file.fid))]).await;
        self.tell_of(file, &[]).await;
        let lease = self.lease_of(file);
        let now = self.directory_now(place, (&reply.dir, names), &teller);
        Ok(self.outcome(place, (place.dir.beside(file.fid), &reply.status, &teller), lease, vec![now]))
    }

    async fn remove(&self, call: &Call, place: &Place) -> Result<Changed> {
        let (dir, name) = (place.dir.fid, place.file_name());
        let removed = self.entry(call, place).await?;
        let gone = removed.map(|fid| place.dir.beside(fid));
        let spots: Vec<&Spot> = [&place.dir].into_iter().chain(&gone).collect();
        if let Some(dir) = gone.as_ref().filter(|gone| gone.fid.is_directory())
            && self.has_names(call, dir).await
        {
            return Err(RemoteError::NotEmpty { detail: place.shown() });
        }
        let (reply, teller) = match removed.is_some_and(Fid::is_directory) {
            true => self.tell(call, &spots, &place.shown(), &RemoveDir { dir, name }).await.map_err(full)?,
            false => self.tell(call, &spots, &place.shown(), &RemoveFile { dir, name }).await?,
        };
        let names = self.changed(&place.dir, (&reply.status, &teller), &[(&place.name, None)]).await;
        if let Some(gone) = gone {
            self.tell_of(&gone, &[]).await;
        }
        Ok(self.directory_now(place, (&reply.status, names), &teller))
    }

    /// Whether a directory is known to have names; whoever is refused often has it fetched for that.
    async fn has_names(&self, call: &Call, dir: &Spot) -> bool {
        let content = match self.is_refused_often(call, &dir.cell).await {
            true => self.directory(call, dir).await.ok().map(|(content, _)| content),
            false => self.directory_promised(call, dir).await,
        };
        content.is_some_and(|content| content.all(|_| {}).is_ok_and(|names| !names.is_empty()))
    }

    /// What a name stands for, as far as its directory tells.
    async fn entry(&self, call: &Call, place: &Place) -> Result<Option<Fid>> {
        let (content, _) = self.directory(call, &place.dir).await?;
        content.find(&place.name).map_err(|error| damaged(&place.dir, &error))
    }

    async fn rename(&self, call: &Call, from: &Place, to: &Place, target: RenameTarget) -> Result<Answer<Outcome>> {
        let what = format!("{} to {}", from.shown(), to.name);
        if (&from.dir.cell, from.dir.fid.volume) != (&to.dir.cell, to.dir.fid.volume) {
            return Err(RemoteError::OtherTree { detail: what });
        }
        match target {
            RenameTarget::Replaced => {}
            // The server would replace it: somebody else may make it in between.
            RenameTarget::Absent if self.entry(call, to).await?.is_some() => {
                return Err(RemoteError::Exists { detail: to.shown() });
            }
            RenameTarget::Absent => {}
            RenameTarget::Exchanged => {
                return Err(RemoteError::Unsupported { detail: format!("{what}: exchanging two names in AFS") });
            }
        }
        let moved = self.entry(call, from).await?;
        let question =
            Rename { from_dir: from.dir.fid, from_name: from.file_name(), to_dir: to.dir.fid, to_name: to.file_name() };
        let dirs = [&from.dir, &to.dir];
        let told = self.tell(call, &dirs, &what, &question).await;
        let (reply, teller) = told.map_err(full).map_err(no_room_for_name)?;
        let mut unheard = Unheard { promises: &self.promises, spots: &dirs };
        let (of_from, of_to) = match moved {
            Some(fid) if from.dir == to.dir => {
                let changes = [(&from.name, None), (&to.name, Some(fid))];
                (NamesNow::Unknown, self.changed(&to.dir, (&reply.to_dir, &teller), &changes).await)
            }
            Some(fid) => {
                let of_from = self.changed(&from.dir, (&reply.from_dir, &teller), &[(&from.name, None)]).await;
                (of_from, self.changed(&to.dir, (&reply.to_dir, &teller), &[(&to.name, Some(fid))]).await)
            }
            // Somebody else has made it meanwhile.
            None => {
                for (dir, now) in [(&from.dir, &reply.from_dir), (&to.dir, &reply.to_dir)] {
                    self.promises.made(&dir.cell, dir.fid, now.data_version);
                    self.directories.keep_only(&dir.cell, dir.fid, self.stamp(dir, now, Made::of(now, &teller)));
                }
                (NamesNow::Unknown, NamesNow::Unknown)
            }
        };
        let (found, worth) = self.find(call, &to.dir, &to.name).await?;
        let Some((spot, seen)) = found else { return Err(RemoteError::NotFound { detail: to.shown() }) };
        unheard.spots = &[];
        let mut dirs = vec![self.directory_now(to, (&reply.to_dir, of_to), &teller)];
        if from.dir != to.dir {
            dirs.push(self.directory_now(from, (&reply.from_dir, of_from), &teller));
        }
        Ok(self.outcome(to, (spot, &seen.status, &seen.teller), worth.lease, dirs))
    }

    async fn set_attributes(&self, call: &Call, spot: &Spot, new: &NewAttributes) -> Result<Answer<Outcome>> {
        let change = StatusChange {
            mode: new.mode.map(u32::from),
            modified_s: new.modified.map(seconds),
            ..StatusChange::default()
        };
        if change == StatusChange::default() {
            let seen = self.status(call, spot).await?;
            return Ok(self.outcome_of(spot, &seen.status, &seen.teller));
        }
        let question = StoreStatus { fid: spot.fid, change };
        let before = self.promises.written(&spot.cell, spot.fid);
        let (reply, teller) = self.tell(call, &[spot], &shown(spot), &question).await?;
        let after = Written::of(&reply.status);
        if let Some(before) = before {
            self.retimed.note(spot, before, after);
            self.promises.stored(&spot.cell, spot.fid, after.data_version, after);
        }
        self.tell_of(spot, &[]).await;
        Ok(self.outcome_of(spot, &reply.status, &teller))
    }

    fn outcome(
        &self,
        place: &Place,
        (spot, status, teller): (Spot, &Status, &Teller),
        lease: Lease,
        dirs: Vec<Changed>,
    ) -> Answer<Outcome> {
        let lease = shorter(lease, self.lease_of(&place.dir));
        let entry = self.entry_told(place.name.clone(), spot, status, teller);
        answer_of(entry, lease, facts::audience(Told::Content, status, teller), dirs)
    }

    pub fn outcome_of(&self, spot: &Spot, status: &Status, teller: &Teller) -> Answer<Outcome> {
        let entry = self.entry_told(facts::nameless(spot), spot.clone(), status, teller);
        answer_of(entry, self.lease_of(spot), facts::audience(Told::Content, status, teller), Vec::new())
    }

    /// What the reply to a change of a directory's names tells of it.
    fn directory_now(&self, place: &Place, (status, names): (&Status, NamesNow), teller: &Teller) -> Changed {
        let entry = self.entry_of(facts::nameless(&place.dir), place.dir.clone(), status, teller);
        let entry = Entry { id: place.id.clone(), ..entry };
        self.told.is_again(&entry.id, &entry.attributes);
        let audience = facts::audience(Told::Content, status, teller);
        Changed { entry, lease: self.lease_of(&place.dir), audience, names }
    }
}

/// Owners are numbers of the cell and not of this machine: every file is shown as that of whoever mounted, and may be given to
/// no one else. That is no refusal of a server's. `cp -p` of a user who may give files to another group leaves the group at this
/// error (coreutils `src/copy.c`, `chown_failure_ok`), and fails at others.
fn leave_owner(spot: &Spot, new: &NewAttributes) -> Result<()> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if new.uid.is_none_or(|new| new == uid) && new.gid.is_none_or(|new| new == gid) {
        return Ok(());
    }
    let detail = format!("{}: owners of AFS are not users of this machine and cannot be set here", shown(spot));
    Err(RemoteError::NotPermitted { detail })
}

/// What has to be allowed for a change.
fn needs_of(change: &Change) -> Vec<(&FileId, Operation)> {
    match change {
        Change::Create { dir, .. } | Change::Symlink { dir, .. } | Change::Link { dir, .. } => {
            vec![(dir, Operation::Insert)]
        }
        Change::Remove { dir, .. } => vec![(dir, Operation::Delete)],
        Change::Rename { from, to, .. } => vec![(from, Operation::Delete), (to, Operation::Insert)],
        Change::Write { file, .. } => vec![(file, Operation::Write)],
        Change::SetAttributes { file, .. } => vec![(file, Operation::SetAttributes)],
        Change::SetExtended { .. } => Vec::new(),
    }
}

/// What was written is shown from here to whom the server would give it.
fn answer_of(entry: Entry, lease: Lease, audience: Audience, dirs: Vec<Changed>) -> Answer<Outcome> {
    let version = entry.version.clone();
    Answer { audience, ..Answer::new(Outcome { entry: Some(entry), dirs }, version, lease) }
}

/// What servers say of a second name for anything but a file, EISDIR also of a symbolic link, in the words of link(2) (OpenAFS
/// `src/viced/afsfileprocs.c`, `SAFSS_Link`).
fn files_alone(error: RemoteError) -> RemoteError {
    match error {
        RemoteError::IsADirectory { detail } => {
            RemoteError::NotPermitted { detail: format!("{detail}: only a file has several names in AFS; copy it") }
        }
        error => error,
    }
}

/// What servers say of a directory that is to go and has names in it, EEXIST, in the usual words.
fn full(error: RemoteError) -> RemoteError {
    match error {
        RemoteError::Exists { detail } => RemoteError::NotEmpty { detail },
        error => error,
    }
}

/// What servers say of a directory that takes no further name, EFBIG (OpenAFS `src/dir/dir.c`, `afs_dir_Create`: it has 1,023
/// pages), in the words of open(2), mkdir(2), rename(2): it cannot be extended.
fn no_room_for_name(error: RemoteError) -> RemoteError {
    match error {
        RemoteError::TooMuch { detail } => {
            RemoteError::NoSpace { detail: format!("{detail}: the directory has as many names as it can have") }
        }
        error => error,
    }
}

fn file_spot(file: &FileId) -> Result<Spot> {
    match Identity::of(file) {
        Some(Identity::File(spot)) if !spot.fid.is_directory() => Ok(spot),
        _ => Err(RemoteError::IsADirectory { detail: format!("{file:?}") }),
    }
}

/// A time as AFS has it: whole seconds, from 1970 to 2106.
pub(crate) fn seconds(time: SystemTime) -> u32 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
}

/// Mode bits of symbolic links.
const LINK_MODE: u32 = 0o755;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_outside_of_afs_are_the_nearest() {
        assert_eq!(seconds(UNIX_EPOCH - Duration::from_secs(1)), 0);
        assert_eq!(seconds(UNIX_EPOCH + Duration::from_millis(1999)), 1);
        assert_eq!(seconds(UNIX_EPOCH + Duration::from_secs(1 << 40)), u32::MAX);
    }
}
