//! The directory as the contract has it.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use rustix::fs::OFlags;
use weft_remote::{
    Answer, Attributes, Call, Capabilities, Change, Checked, Completeness, Cursor, Event, Fetched, FileId, FileKind,
    Found, Listing, Mutation, Name, Neighbourhood, Outcome, Page, Purpose, Remote, RemoteError, Result, Seek, Source,
    Space, Span, Version,
};

use crate::copy::reopen;
use crate::directory::{Directory, Shared};
use crate::error::failed;
use crate::facts::are_of_one_write;
use crate::identity::Identity;
use crate::resolve::At;
use crate::rows::Row;

#[async_trait]
impl Remote for Directory {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            writable: !self.is_read_only(),
            ranges: true,
            stable_ids: true,
            breakable_leases: true,
            links: true,
            locks: false,
            symlinks: true,
            special_files: true,
            extended: true,
            access_lists: true,
            rights: true,
        }
    }

    fn root(&self) -> FileId {
        Identity::TOP.file_id()
    }

    fn neighbourhood(&self, file: &FileId) -> Option<Neighbourhood> {
        Identity::of(file).map(Identity::neighbourhood)
    }

    async fn lookup(&self, call: &Call, dir: &FileId, name: &Name) -> Result<Answer<Option<Found>>> {
        let (of, name) = (dir.clone(), name.clone());
        self.shortly(call, dir, move |shared| shared.lookup(&of, &name)).await
    }

    async fn attributes(&self, call: &Call, file: &FileId, known: &Version) -> Result<Answer<Checked>> {
        let (of, held) = (file.clone(), known.clone());
        let look = move |shared: &Arc<Shared>| {
            let (at, entry, lease) = shared.look_where(&of)?;
            let is_ours = at.facts.kind == FileKind::File && shared.ours.is_same(at.id, &at.facts, &held);
            Ok((entry, lease, is_ours))
        };
        let (entry, lease, is_ours) = self.shortly(call, file, look).await?;
        let version = entry.version.clone();
        let checked = if known.still_holds(&version) {
            Checked::Unchanged
        } else if is_ours {
            Checked::Touched(Box::new(entry))
        } else {
            Checked::Is(Box::new(Found { entry, along: None }))
        };
        Ok(Answer::new(checked, version, lease))
    }

    async fn entries(
        &self,
        call: &Call,
        dir: &FileId,
        known: &Version,
        _cursor: Option<&Cursor>,
    ) -> Result<Answer<Listing>> {
        let (of, deadline) = (dir.clone(), call.deadline);
        let may_stand = call.purpose != Purpose::Anew;
        let listed = self.aside(call, dir, move |shared| shared.list(&of, deadline, may_stand)).await?;
        let listing = match known.still_holds(&listed.version) {
            true => Listing::Unchanged,
            false => {
                let (standing, told): (Vec<Row>, _) = listed.rows.into_iter().partition(|row| row.stands);
                let standing: Vec<_> = standing.into_iter().map(|row| row.entry).collect();
                let entries = told.into_iter().map(|row| Arc::unwrap_or_clone(row.entry)).collect();
                let page = Page { entries, completeness: Completeness::Complete, next: None };
                if standing.is_empty() { Listing::Page(page, None) } else { Listing::Changes(page, standing) }
            }
        };
        Ok(Answer::new(listing, listed.version, listed.lease))
    }

    async fn fetch(&self, call: &Call, file: &FileId, expected: &Version, span: Span) -> Result<Answer<Fetched>> {
        self.ready().await.fetch(call, file, expected, span).await
    }

    async fn seek(
        &self,
        call: &Call,
        file: &FileId,
        expected: &Version,
        offset: u64,
        what: Seek,
    ) -> Result<Option<u64>> {
        let (of, expected) = (file.clone(), expected.clone());
        self.shortly(call, file, move |shared| shared.seek(&of, &expected, offset, what)).await
    }

    async fn read_link(&self, call: &Call, file: &FileId) -> Result<Answer<Vec<u8>>> {
        let of = file.clone();
        self.shortly(call, file, move |shared| shared.read_link(&of)).await
    }

    async fn apply(&self, call: &Call, mutation: &Mutation, expected: &Version) -> Result<Answer<Outcome>> {
        if self.is_read_only() {
            return Err(RemoteError::ReadOnly { detail: self.now().top.shown(b"") });
        }
        let (caller, deadline) = (call.caller, call.deadline);
        let (mutation, expected) = (mutation.clone(), expected.clone());
        let takes = Takes::of(&mutation.change);
        let work = move |shared: &Arc<Shared>| shared.apply(&caller, &mutation, &expected, deadline);
        self.done(takes, call, &self.root(), work).await
    }

    async fn may_write(&self, call: &Call, file: &FileId, _dir: Option<&FileId>, appends: bool) -> Result<()> {
        let of = file.clone();
        self.shortly(call, file, move |shared| shared.may_write(&of, appends)).await
    }

    async fn sync(&self, call: &Call, file: &FileId) -> Result<()> {
        let of = file.clone();
        self.aside(call, file, move |shared| shared.sync(&of)).await
    }

    async fn extended(&self, call: &Call, file: &FileId, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let (of, name) = (file.clone(), name.to_vec());
        self.shortly(call, file, move |shared| shared.extended(&of, &name)).await
    }

    async fn extended_names(&self, call: &Call, file: &FileId) -> Result<Vec<Vec<u8>>> {
        let of = file.clone();
        self.shortly(call, file, move |shared| shared.extended_names(&of)).await
    }

    async fn space(&self, _call: &Call, _file: &FileId) -> Result<Option<Space>> {
        Ok(self.now().space())
    }

    fn events(&self) -> BoxStream<'static, Event> {
        self.now().watches.news.stream()
    }

    fn has_told_all(&self) -> bool {
        self.now().watches.have_told_all()
    }

    async fn told_all(&self) {
        self.now().watches.all_told().await;
    }

    fn may_have_bytes_of(&self, told: &Version, known: &Version) -> bool {
        are_of_one_write(told, known)
    }

    fn may_be_named(&self, file: &FileId, dir: &FileId, name: &Name) -> bool {
        let (Some(id), Some(dir)) = (Identity::of(file), Identity::of(dir)) else { return true };
        self.now().places.may_be_named(id, (dir.key(), name))
    }

    fn is_placed(&self, file: &FileId) -> bool {
        self.now().place_of(file).is_some()
    }

    fn about(&self, file: &FileId) -> Vec<(String, String)> {
        let now = self.now();
        let Shared { top, watches, places, .. } = &*now;
        let seen = Identity::of(file).map(|id| places.seen(id)).unwrap_or_default();
        let Some(newest) = seen.first() else { return vec![("path".to_owned(), "not known now".to_owned())] };
        let dir = crate::place::parted(&newest.path).map_or(&b""[..], |(dir, _)| dir);
        let watched = match (watches.is_watched(dir), top.blind) {
            (true, _) => "yes".to_owned(),
            (false, Some(why)) => format!("no: {why}"),
            (false, None) => "not now".to_owned(),
        };
        let paths = seen.iter().map(|seen| ("path".to_owned(), top.shown(&seen.path)));
        paths.chain([("watched".to_owned(), watched)]).collect()
    }

    /// A directory that is there is no news.
    fn sources(&self) -> Vec<Source> {
        self.now().away().into_iter().collect()
    }

    fn root_attributes(&self) -> Attributes {
        self.now().top.facts.attributes()
    }
}

/// How long system calls take, as a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    /// They are few, and move little.
    Short,
    /// As long as there is to be moved, or listed, or brought to the disk.
    Long,
}

impl Takes {
    /// Those by which a change is made.
    fn of(change: &Change) -> Takes {
        match change {
            Change::Write { extents, .. }
                if extents.iter().map(|extent| extent.length).sum::<u64>() > SHORT_BYTES_MAX =>
            {
                Takes::Long
            }
            _ => Takes::Short,
        }
    }
}

/// Most bytes that are written on a thread that others wait for.
const SHORT_BYTES_MAX: u64 = 256 * 1024;

impl Directory {
    /// Does the system calls of one call aside, within its deadline.
    async fn aside<T: Send + 'static>(
        &self,
        call: &Call,
        file: &FileId,
        work: impl FnOnce(&Arc<Shared>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.done(Takes::Long, call, file, work).await
    }

    /// Does system calls that are few and short as a rule, where they cost least.
    async fn shortly<T: Send + 'static>(
        &self,
        call: &Call,
        file: &FileId,
        work: impl FnOnce(&Arc<Shared>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.done(Takes::Short, call, file, work).await
    }

    async fn done<T: Send + 'static>(
        &self,
        takes: Takes,
        call: &Call,
        file: &FileId,
        work: impl FnOnce(&Arc<Shared>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let shared = self.ready().await;
        let doing = shared.clone();
        let (shown, work) = (|| shared.shown(file), move || work(&doing));
        match takes {
            Takes::Short => shared.aside.run_short(call.deadline, shown, work).await,
            Takes::Long => shared.aside.run(call.deadline, shown, work).await,
        }
    }
}

impl Shared {
    fn lookup(&self, dir: &FileId, name: &Name) -> Result<Answer<Option<Found>>> {
        self.usable()?;
        self.look_in(&self.find_directory(dir)?, name)
    }

    fn read_link(&self, file: &FileId) -> Result<Answer<Vec<u8>>> {
        self.usable()?;
        let (At { path, fd, facts, .. }, promise) = self.find_promised(file)?;
        if facts.kind != FileKind::Symlink {
            return Err(RemoteError::Unsupported { detail: format!("{}: not a link", self.top.shown(&path)) });
        }
        let target = rustix::fs::readlinkat(&fd, "", Vec::new());
        let target = target.map_err(|errno| failed(&self.top.shown(&path), "readlink", errno))?;
        let lease = self.limited(&facts, self.watches.lease(&[&promise]));
        Ok(Answer::new(target.into_bytes(), facts.version(), lease))
    }

    /// Has the disk hold what was written. Links and special files are names, which their directory's sync covers.
    fn sync(&self, file: &FileId) -> Result<()> {
        self.usable()?;
        let at = self.find(file)?;
        let open = match at.facts.kind {
            FileKind::File => reopen(&at.fd, OFlags::RDONLY).or_else(|_| self.reopen_ours(&at, OFlags::WRONLY)),
            FileKind::Directory => reopen(&at.fd, OFlags::RDONLY | OFlags::DIRECTORY),
            _ => return Ok(()),
        };
        let synced = open.and_then(|fd| rustix::fs::fsync(&fd));
        synced.map_err(|errno| failed(&self.top.shown(&at.path), "fsync", errno))
    }
}
