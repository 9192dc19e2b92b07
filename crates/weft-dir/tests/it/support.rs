//! A directory with a hand at it, and calls on it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use weft_dir::{Directory, DirectoryOptions};
use weft_remote::{
    Answer, Body, Call, Caller, Checked, Entry, Event, FileId, Found, Lease, Listing, Name, Page, Piece, Remote,
    RemoteError, Result, Span, Version,
};

/// A bound directory with its events.
pub struct Bed {
    pub folder: tempfile::TempDir,
    pub dir: Arc<Directory>,
    events: std::sync::Mutex<BoxStream<'static, Event>>,
    sentinels: AtomicU32,
}

impl Bed {
    /// A directory with these files in it (a path that ends with `/`: a directory), bound with the usual options.
    pub async fn new(paths: &[&str]) -> Bed {
        Bed::with(paths, |_| {}).await
    }

    /// The same with other options.
    pub async fn with(paths: &[&str], change: impl FnOnce(&mut DirectoryOptions)) -> Bed {
        let folder = tempfile::tempdir().unwrap();
        for path in paths {
            let full = folder.path().join(path);
            if path.ends_with('/') {
                std::fs::create_dir_all(full).unwrap();
                continue;
            }
            std::fs::create_dir_all(full.parent().unwrap()).unwrap();
            std::fs::write(full, path).unwrap();
        }
        let mut options = DirectoryOptions::new(folder.path());
        change(&mut options);
        let dir = Directory::open(options).unwrap();
        let mut events = dir.events();
        assert_eq!(events.next().await, Some(Event::AllBroken), "what another process promised is void");
        Bed { folder, dir, events: std::sync::Mutex::new(events), sentinels: AtomicU32::new(0) }
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    pub async fn lookup(&self, path: &str) -> Result<Answer<Option<Found>>> {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        self.dir.lookup(&call(), &id(dir), &Name::new(name).unwrap()).await
    }

    /// Looks a path up that is there.
    pub async fn entry(&self, path: &str) -> Entry {
        self.lookup(path).await.unwrap().value.unwrap_or_else(|| panic!("{path} is absent")).entry
    }

    /// Whether a path is absent.
    pub async fn is_absent(&self, path: &str) -> bool {
        self.lookup(path).await.unwrap().value.is_none()
    }

    pub async fn attributes(&self, path: &str) -> Result<Entry> {
        let answer = self.dir.attributes(&call(), &id(path), &Version::None).await?;
        match answer.value {
            Checked::Is(found) => Ok(found.entry),
            Checked::Unchanged => panic!("unchanged, though nothing was known"),
        }
    }

    pub async fn list(&self, path: &str) -> Result<(Page, Version, Lease)> {
        let answer = self.dir.entries(&call(), &id(path), &Version::None, None).await?;
        match answer.value {
            Listing::Page(page, None) => Ok((page, answer.version, answer.lease)),
            other => panic!("{other:?}"),
        }
    }

    pub async fn names(&self, path: &str) -> Vec<String> {
        let (page, ..) = self.list(path).await.unwrap();
        page.entries.iter().map(|entry| entry.name.to_string()).collect()
    }

    pub async fn read(&self, path: &str) -> Result<Bytes> {
        let answer = self.dir.fetch(&call(), &id(path), &Version::None, Span::WHOLE).await?;
        drain(answer.value.body).await
    }

    /// Takes a lease on a name: of what is there, or of its absence.
    pub async fn lease(&self, path: &str) {
        self.leased(path, async || self.lookup(path).await.unwrap().lease).await;
    }

    /// Takes a lease on a listing.
    pub async fn lease_listing(&self, path: &str) {
        self.leased(path, async || self.list(path).await.unwrap().2).await;
    }

    /// What the kernel still has to tell of earlier changes may overtake an answer: then it is asked for again.
    async fn leased(&self, path: &str, ask: impl AsyncFn() -> Lease) {
        let asked = async {
            loop {
                match ask().await {
                    Lease::UntilBroken(_) => return,
                    Lease::Spent => {}
                    other => panic!("{path}: {other:?}"),
                }
            }
        };
        tokio::time::timeout(PATIENCE, asked).await.expect("a lease is given");
    }

    /// Takes a lease on the absence of a name that nothing was ever told of. Once it is made, all that happened before
    /// has been told when it is told of.
    pub async fn sentinel(&self) -> String {
        let number = self.sentinels.fetch_add(1, Ordering::Relaxed);
        let path = format!("sentinel/{number}");
        self.lease(&path).await;
        path
    }

    /// Waits until each of these leases is broken; what was broken until then.
    pub async fn broken(&mut self, wanted: &[&str]) -> BTreeSet<String> {
        let mut seen = BTreeSet::new();
        let events = self.events.get_mut().unwrap();
        let wait = async {
            while !wanted.iter().all(|path| seen.contains(*path)) {
                match events.next().await {
                    Some(Event::Broken(file)) => seen.insert(String::from_utf8_lossy(file.as_bytes()).into_owned()),
                    Some(Event::AllBroken) => seen.insert(ALL.to_owned()),
                    other => panic!("{other:?}"),
                };
            }
        };
        let outcome = tokio::time::timeout(PATIENCE, wait).await;
        outcome.unwrap_or_else(|_| panic!("waited for {wanted:?}, came: {seen:?}"));
        seen
    }

    /// The events that are still to come, for somebody else.
    pub fn take_events(&self) -> BoxStream<'static, Event> {
        std::mem::replace(&mut *self.events.lock().unwrap(), Box::pin(futures_util::stream::pending()))
    }
}

/// How `broken` shows that every lease ended.
pub const ALL: &str = "(all)";

/// Longer than anything here takes; it ends tests that fail.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub fn call() -> Call {
    Call::within(Caller::DAEMON, PATIENCE)
}

pub fn id(path: &str) -> FileId {
    FileId::new(path)
}

pub async fn drain(mut body: Body) -> Result<Bytes> {
    let mut bytes = Vec::new();
    while let Some(piece) = body.stream.next().await {
        match piece? {
            Piece::Bytes(piece) => bytes.extend_from_slice(&piece),
            Piece::Known(known) => panic!("a directory's file tells no names: {known:?}"),
        }
    }
    Ok(Bytes::from(bytes))
}

pub fn is_not_found<T>(result: &Result<T>) -> bool {
    matches!(result, Err(RemoteError::NotFound { .. }))
}
