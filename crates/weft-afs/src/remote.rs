//! The tree as the contract has it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use weft_remote::{
    Answer, Attributes, Audience, Call, Capabilities, Checked, Completeness, Cursor, Entry, Event, Fetched, FileId,
    FileKind, Found, Lease, Listing, LockMode, Mutation, Name, Neighbourhood, Origin, Outcome, Page, Remote,
    RemoteError, Result, Source, Space, Span, Version,
};

use crate::afs::{Afs, Shared};
use crate::cell::CellName;
use crate::doors::mount_of_cell;
use crate::facts::{self, Stamp, Told};
use crate::identity::{Identity, Spot};
use crate::listing::Listed;
use crate::look::{Worth, shown};
use crate::rotate::FileServers;

#[async_trait]
impl Remote for Afs {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            writable: true,
            ranges: true,
            stable_ids: true,
            breakable_leases: true,
            links: true,
            locks: true,
            symlinks: true,
            special_files: false,
            extended: false,
            access_lists: false,
            rights: true,
        }
    }

    fn root(&self) -> FileId {
        match &self.shared.options.tree {
            Some(cell) => Identity::Cell { cell: cell.clone(), writable: false }.file_id(),
            None => Identity::Top.file_id(),
        }
    }

    fn neighbourhood(&self, file: &FileId) -> Option<Neighbourhood> {
        match Identity::of(file)? {
            Identity::Mount(spot) | Identity::File(spot) => Some(spot.neighbourhood()),
            Identity::Top | Identity::Cell { .. } => None,
        }
    }

    async fn lookup(&self, call: &Call, dir: &FileId, name: &Name) -> Result<Answer<Option<Found>>> {
        let shared = &self.shared;
        let dir = of(dir)?;
        if dir == Identity::Top {
            let (entry, lasts) = shared.cell_entry(call, name).await?;
            let found = entry.map(|entry| Found { entry, along: None });
            return Ok(Answer::new(found, Version::None, Lease::lasting(lasts)));
        }
        let dir = shared.inside(call, &dir).await?;
        let (found, Worth { lease, audience }) = shared.find_read(call, &dir, name).await?;
        let Some((spot, seen)) = found else {
            return Ok(Answer { audience, ..Answer::new(None, Version::None, lease) });
        };
        let origin = Some(shared.origin(&spot));
        let entry = shared.entry_told(name.clone(), spot, &seen.status, &seen.teller);
        let version = entry.version.clone();
        Ok(Answer { audience, origin, ..Answer::new(Some(Found { entry, along: None }), version, lease) })
    }

    async fn attributes(&self, call: &Call, file: &FileId, known: &Version) -> Result<Answer<Checked>> {
        let identity = of(file)?;
        let (entry, Worth { lease, audience }) = self.shared.look(call, &identity).await?;
        let version = entry.version.clone();
        let again = self.shared.told.is_again(&entry.id, &entry.attributes);
        let checked = match again && known.still_holds(&version) {
            true => Checked::Unchanged,
            false => Checked::Is(Box::new(Found { entry, along: None })),
        };
        Ok(Answer { audience, ..Answer::new(checked, version, lease) })
    }

    async fn entries(
        &self,
        call: &Call,
        dir: &FileId,
        known: &Version,
        _cursor: Option<&Cursor>,
    ) -> Result<Answer<Listing>> {
        let dir = of(dir)?;
        let page = |entries| Page { entries, completeness: Completeness::CompleteButAtSys, next: None };
        if dir == Identity::Top {
            // There are more names than are listed: aliases, and what DNS knows.
            let page = Page { completeness: Completeness::Partial, ..page(self.shared.cell_entries()) };
            return Ok(Answer::new(Listing::Page(page, None), Version::None, Lease::lasting(TOP_LEASE)));
        }
        let dir = self.shared.inside(call, &dir).await?;
        let Listed { entries, standing, is_renewed, version, worth } = self.shared.list(call, &dir).await?;
        let listing = match known.still_holds(&version) {
            // Whoever was told of names whose promises have ended since asks about each by itself.
            true if !is_renewed => Listing::Unchanged,
            _ if standing.is_empty() => Listing::Page(page(entries), None),
            _ => Listing::Changes(page(entries), standing),
        };
        let Worth { lease, audience } = worth;
        Ok(Answer { audience, ..Answer::new(listing, version, lease) })
    }

    async fn fetch(&self, call: &Call, file: &FileId, expected: &Version, span: Span) -> Result<Answer<Fetched>> {
        match of(file)? {
            Identity::File(spot) if !spot.fid.is_directory() => self.shared.fetch(call, &spot, expected, span).await,
            identity => Err(RemoteError::IsADirectory { detail: self.shared.words(&identity) }),
        }
    }

    async fn read_link(&self, call: &Call, file: &FileId) -> Result<Answer<Vec<u8>>> {
        match of(file)? {
            Identity::File(spot) if !spot.fid.is_directory() => self.shared.read_link(call, &spot).await,
            identity => {
                Err(RemoteError::Unsupported { detail: format!("{}: not a link", self.shared.words(&identity)) })
            }
        }
    }

    async fn login(&self, call: &Call) -> u64 {
        self.shared.files.logins.mark(call).await
    }

    async fn apply(&self, call: &Call, mutation: &Mutation, expected: &Version) -> Result<Answer<Outcome>> {
        self.shared.apply(call, mutation, expected).await
    }

    async fn sync(&self, call: &Call, file: &FileId) -> Result<()> {
        self.shared.sync(call, file).await
    }

    fn is_looked_at(&self, told: &Version, known: &Version) -> bool {
        Stamp::is_looked_at(told, known)
    }

    async fn may_write(&self, call: &Call, file: &FileId, dir: Option<&FileId>, _appends: bool) -> Result<()> {
        let dir = dir.and_then(Identity::of);
        match of(file)? {
            Identity::File(spot) if !spot.fid.is_directory() => self.shared.may_write(call, &spot, dir.as_ref()).await,
            _ => Ok(()),
        }
    }

    async fn lock(&self, call: &Call, file: &FileId, from: LockMode, to: LockMode) -> Result<()> {
        match of(file)? {
            Identity::File(spot) if !spot.fid.is_directory() => self.shared.lock(call, &spot, from, to).await,
            identity => Err(RemoteError::IsADirectory { detail: self.shared.words(&identity) }),
        }
    }

    async fn locked_by_others(&self, call: &Call, file: &FileId) -> Result<LockMode> {
        match of(file)? {
            Identity::File(spot) if !spot.fid.is_directory() => self.shared.locked_by_others(call, &spot).await,
            _ => Ok(LockMode::Unlocked),
        }
    }

    async fn space(&self, call: &Call, file: &FileId) -> Result<Option<Space>> {
        self.shared.space(call, &of(file)?).await
    }

    fn events(&self) -> BoxStream<'static, Event> {
        self.shared.news.stream()
    }

    fn about(&self, file: &FileId) -> Vec<(String, String)> {
        let Some(identity) = Identity::of(file) else { return Vec::new() };
        let mut told = Vec::new();
        let mut tell = |what: &str, text: String| told.push((what.to_owned(), text));
        match &identity {
            Identity::Top => tell("cells", self.shared.files.vldb.cells.written().len().to_string()),
            Identity::Cell { cell, .. } => tell("cell", cell.to_string()),
            Identity::Mount(spot) | Identity::File(spot) => {
                tell("cell", spot.cell.to_string());
                tell("fid", spot.fid.to_string());
            }
        }
        let led = self.shared.led_before(&identity);
        match (&identity, &led) {
            (Identity::Cell { writable, .. }, _) => tell("mount point", mount_of_cell(*writable).to_string()),
            (Identity::Mount(_), Some(led)) => tell("mount point", led.words.clone()),
            (Identity::Mount(_), None) => tell("mount point", "not followed yet".to_owned()),
            (Identity::Top | Identity::File(_), _) => {}
        }
        if let Some(led) = led {
            tell("volume root", led.root.fid.to_string());
        }
        if let Some(cell) = cell_of(&identity) {
            tell("asked as", self.shared.files.logins.shown(&cell));
        }
        told
    }

    fn sources(&self) -> Vec<Source> {
        let FileServers { servers, vldb, .. } = &self.shared.files;
        let mut sources = servers.sources();
        for known in vldb.cells.all_at_hand() {
            if sources.iter().all(|source| source.name != known.name.to_string()) {
                sources.extend(vldb.silent(&known.name));
            }
        }
        sources
    }

    fn forget(&self, file: &FileId) {
        if let Some(Identity::File(spot)) = Identity::of(file) {
            self.shared.promises.forget(&spot.cell, spot.fid);
            self.shared.directories.forget(&spot.cell, spot.fid);
        }
    }

    fn source(&self, file: &FileId) -> Option<Source> {
        let (cell, files) = (cell_of(&Identity::of(file)?)?, &self.shared.files);
        files.servers.source(&cell).or_else(|| files.vldb.silent(&cell))
    }

    fn try_again(&self, file: &FileId) -> bool {
        let cell = Identity::of(file).and_then(|identity| cell_of(&identity));
        // Also where volumes are is found out again.
        self.shared.files.vldb.forget(cell.as_ref());
        self.shared.forget_all_doors();
        let was_given_up = self.shared.files.rpc.silences.forget();
        self.shared.files.servers.try_again(cell.as_ref()) | was_given_up
    }
}

impl Shared {
    /// What something is, and what that is worth where it confirms what is held of its content.
    async fn look(self: &Arc<Self>, call: &Call, identity: &Identity) -> Result<(Entry, Worth)> {
        match identity {
            Identity::Top => {
                let name = Name::new(TOP_NAME).expect("a fixed name");
                let attributes = Attributes::of_kind(FileKind::Directory);
                let entry = Entry { name, id: identity.file_id(), attributes, version: Version::None };
                Ok((entry, Worth { lease: Lease::lasting(TOP_LEASE), audience: Audience::Everyone }))
            }
            Identity::Cell { .. } | Identity::Mount(_) => {
                let root = self.inside(call, identity).await?;
                let seen = self.status(call, &root).await?;
                let entry = self.entry_of(facts::nameless(&root), root, &seen.status, &seen.teller);
                Ok((Entry { id: identity.file_id(), ..entry }, seen.worth(Told::Content)))
            }
            Identity::File(spot) => {
                let seen = self.status(call, spot).await?;
                let entry = self.entry_of(facts::nameless(spot), spot.clone(), &seen.status, &seen.teller);
                Ok((entry, seen.worth(Told::Content)))
            }
        }
    }

    /// A name in the directory of cells, which is that of a cell or after a dot of its read-write side, and how long it is so.
    async fn cell_entry(&self, call: &Call, name: &Name) -> Result<(Option<Entry>, Duration)> {
        let (cell, writable) = match name.as_bytes().strip_prefix(b".") {
            Some(cell) => (self.cell(cell), true),
            None => (self.cell(name.as_bytes()), false),
        };
        let Some(cell) = cell else { return Ok((None, TOP_LEASE)) };
        let (known, lasts) = self.files.vldb.cells.find(call, &cell).await?;
        let entry = known.map(|_| door_entry(name.clone(), &Identity::Cell { cell, writable }));
        Ok((entry, lasts.map_or(TOP_LEASE, |lasts| lasts.min(TOP_LEASE))))
    }

    /// Those that are written down.
    fn cell_entries(&self) -> Vec<Entry> {
        let sides = |cell: &CellName| {
            [(cell.to_string(), false), (format!(".{cell}"), true)].map(|(name, writable)| {
                let door = Identity::Cell { cell: cell.clone(), writable };
                Name::new(name).ok().map(|name| door_entry(name, &door))
            })
        };
        self.files.vldb.cells.written().into_iter().flat_map(sides).flatten().collect()
    }

    /// Where a file is, for people.
    fn origin(&self, spot: &Spot) -> Origin {
        Origin { source: shown(spot), how: "AFS".to_owned(), redirects: Vec::new() }
    }

    fn words(&self, identity: &Identity) -> String {
        match identity {
            Identity::Top => "the directory of cells".to_owned(),
            Identity::Cell { cell, .. } => cell.to_string(),
            Identity::Mount(spot) | Identity::File(spot) => shown(spot),
        }
    }
}

/// A directory of which nobody was asked.
fn door_entry(name: Name, door: &Identity) -> Entry {
    let attributes = Attributes { mode: Some(0o755), ..Attributes::of_kind(FileKind::Directory) };
    Entry { name, id: door.file_id(), attributes, version: Version::None }
}

fn of(file: &FileId) -> Result<Identity> {
    Identity::of(file).ok_or_else(|| RemoteError::NotFound { detail: format!("{file:?}: no identity of AFS") })
}

fn cell_of(identity: &Identity) -> Option<CellName> {
    match identity {
        Identity::Top => None,
        Identity::Cell { cell, .. } => Some(cell.clone()),
        Identity::Mount(spot) | Identity::File(spot) => Some(spot.cell.clone()),
    }
}

/// How long the directory of cells is as it is: it changes with the configuration, and so with the daemon.
const TOP_LEASE: Duration = Duration::from_secs(3600);
const TOP_NAME: &str = "afs";
