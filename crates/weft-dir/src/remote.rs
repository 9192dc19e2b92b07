//! The directory as the contract has it.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use rustix::fs::OFlags;
use weft_remote::{
    Answer, Attributes, Call, Capabilities, Checked, Completeness, Cursor, Event, Fetched, FileId, FileKind, Found,
    Listing, Mutation, Name, Outcome, Page, Remote, RemoteError, Result, Space, Span, Version,
};

use crate::directory::{Directory, Shared};
use crate::error::failed;
use crate::place::path_of;

#[async_trait]
impl Remote for Directory {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            writable: true,
            ranges: true,
            stable_ids: false,
            breakable_leases: true,
            links: false,
            locks: false,
            symlinks: true,
            special_files: false,
            extended: false,
        }
    }

    fn root(&self) -> FileId {
        FileId::new(b"")
    }

    async fn lookup(&self, call: &Call, dir: &FileId, name: &Name) -> Result<Answer<Option<Found>>> {
        let (dir, name) = (path_of(dir)?.to_vec(), name.clone());
        self.aside(call, &dir.clone(), move |shared| shared.lookup(&dir, &name)).await
    }

    async fn attributes(&self, call: &Call, file: &FileId, known: &Version) -> Result<Answer<Checked>> {
        let path = path_of(file)?.to_vec();
        let (entry, lease) = self.aside(call, &path.clone(), move |shared| shared.look(&path)).await?;
        let version = entry.version.clone();
        let checked = match known.still_holds(&version) {
            true => Checked::Unchanged,
            false => Checked::Is(Box::new(Found { entry, along: None })),
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
        let (path, deadline) = (path_of(dir)?.to_vec(), call.deadline);
        let listed = self.aside(call, &path.clone(), move |shared| shared.list(&path, deadline)).await?;
        let listing = match known.still_holds(&listed.version) {
            true => Listing::Unchanged,
            false => {
                Listing::Page(Page { entries: listed.entries, completeness: Completeness::Complete, next: None }, None)
            }
        };
        Ok(Answer::new(listing, listed.version, listed.lease))
    }

    async fn fetch(&self, call: &Call, file: &FileId, expected: &Version, span: Span) -> Result<Answer<Fetched>> {
        self.ready().await.fetch(call, path_of(file)?, expected, span).await
    }

    async fn read_link(&self, call: &Call, file: &FileId) -> Result<Answer<Vec<u8>>> {
        let path = path_of(file)?.to_vec();
        self.aside(call, &path.clone(), move |shared| shared.read_link(&path)).await
    }

    async fn apply(&self, call: &Call, mutation: &Mutation, expected: &Version) -> Result<Answer<Outcome>> {
        let (caller, deadline) = (call.caller, call.deadline);
        let (mutation, expected) = (mutation.clone(), expected.clone());
        self.aside(call, b"", move |shared| shared.apply(&caller, &mutation, &expected, deadline)).await
    }

    fn space(&self) -> Option<Space> {
        self.now().space()
    }

    fn events(&self) -> BoxStream<'static, Event> {
        self.now().watches.news.stream()
    }

    fn about(&self, file: &FileId) -> Vec<(String, String)> {
        let Ok(path) = path_of(file) else { return Vec::new() };
        let now = self.now();
        let Shared { top, watches, .. } = &*now;
        let dir = crate::place::parted(path).map_or(path, |(dir, _)| dir);
        let watched = match (watches.is_watched(dir), top.blind) {
            (true, _) => "yes".to_owned(),
            (false, Some(why)) => format!("no: {why}"),
            (false, None) => "not now".to_owned(),
        };
        vec![("path".to_owned(), top.shown(path)), ("watched".to_owned(), watched)]
    }

    fn root_attributes(&self) -> Attributes {
        self.now().top.facts.attributes().unwrap_or_else(|| Attributes::of_kind(FileKind::Directory))
    }
}

impl Directory {
    /// Does the system calls of one call aside, within its deadline.
    async fn aside<T: Send + 'static>(
        &self,
        call: &Call,
        path: &[u8],
        work: impl FnOnce(&Arc<Shared>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let shared = self.ready().await;
        let shown = shared.top.shown(path);
        shared.clone().aside.run(call.deadline, &shown, move || work(&shared)).await
    }
}

impl Shared {
    fn lookup(&self, dir: &[u8], name: &Name) -> Result<Answer<Option<Found>>> {
        self.usable()?;
        let path = self.below(dir, name)?;
        let promise = self.watches.promise(&path);
        match self.look(&path) {
            Ok((entry, lease)) => {
                let version = entry.version.clone();
                Ok(Answer::new(Some(Found { entry, along: None }), version, lease))
            }
            // Absent, as long as its directory is there.
            Err(RemoteError::NotFound { .. } | RemoteError::NotADirectory { .. }) => {
                self.top.directory(dir, OFlags::PATH)?;
                Ok(Answer::new(None, Version::None, self.watches.lease(&[&promise])))
            }
            Err(error) => Err(error),
        }
    }

    fn read_link(&self, path: &[u8]) -> Result<Answer<Vec<u8>>> {
        self.usable()?;
        let promise = self.watches.promise(path);
        let (fd, facts) = self.open(path)?;
        if facts.kind != Some(FileKind::Symlink) {
            return Err(RemoteError::Unsupported { detail: format!("{}: not a link", self.top.shown(path)) });
        }
        let target = rustix::fs::readlinkat(&fd, "", Vec::new());
        let target = target.map_err(|errno| failed(&self.top.shown(path), "readlink", errno))?;
        let lease = self.limited(&facts, self.watches.lease(&[&promise]));
        Ok(Answer::new(target.into_bytes(), facts.version(), lease))
    }
}
