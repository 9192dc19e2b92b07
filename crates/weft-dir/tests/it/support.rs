//! A directory with a hand at it, and calls on it.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use weft_dir::{Directory, DirectoryOptions};
use weft_remote::{
    Answer, Body, Call, Caller, Checked, Entry, Event, FileId, Found, Lease, Listing, Name, Page, Piece, Remote,
    RemoteError, Result, Span, Version,
};

/// Waits until another top is found in the place of one that has gone, with this name in it.
pub async fn found_again(dir: &Directory, file: &str) {
    let found = async {
        loop {
            match dir.lookup(&call(), &dir.root(), &name(file)).await {
                Ok(answer) => return answer.value.is_some(),
                Err(RemoteError::Failed { .. } | RemoteError::Unreachable { .. }) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        }
    };
    assert!(tokio::time::timeout(PATIENCE, found).await.expect("it is found"), "{file} is absent");
}

/// A bound directory with its events.
pub struct Bed {
    pub folder: tempfile::TempDir,
    pub dir: Arc<Directory>,
    events: Mutex<BoxStream<'static, Event>>,
    /// Where each directory was seen last.
    seen: Seen,
    sentinels: AtomicU32,
}

type Seen = Arc<Mutex<HashMap<FileId, String>>>;

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
        Bed::at(folder, change).await
    }

    /// One that is there already.
    pub async fn at(folder: tempfile::TempDir, change: impl FnOnce(&mut DirectoryOptions)) -> Bed {
        let mut options = DirectoryOptions::new(folder.path());
        change(&mut options);
        let dir = Directory::open(options).unwrap();
        let mut events = dir.events();
        assert_eq!(events.next().await, Some(Event::AllBroken), "what another process promised is void");
        Bed { folder, dir, events: Mutex::new(events), seen: Seen::default(), sentinels: AtomicU32::new(0) }
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// The identity of what is at a path: looked up name by name.
    pub async fn find(&self, path: &str) -> Result<FileId> {
        let mut at = self.dir.root();
        let mut walked = String::new();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            let found = self.dir.lookup(&call(), &at, &name(part)).await?.value;
            let found = found.ok_or_else(|| RemoteError::NotFound { detail: path.to_owned() })?;
            at = found.entry.id;
            walked = if walked.is_empty() { part.to_owned() } else { format!("{walked}/{part}") };
            self.seen.lock().unwrap().insert(at.clone(), walked.clone());
        }
        Ok(at)
    }

    /// The same of what is there.
    pub async fn id(&self, path: &str) -> FileId {
        self.find(path).await.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    pub async fn lookup(&self, path: &str) -> Result<Answer<Option<Found>>> {
        let (dir, last) = path.rsplit_once('/').unwrap_or(("", path));
        self.dir.lookup(&call(), &self.find(dir).await?, &name(last)).await
    }

    /// Looks a path up that is there.
    pub async fn entry(&self, path: &str) -> Entry {
        self.lookup(path).await.unwrap().value.unwrap_or_else(|| panic!("{path} is absent")).entry
    }

    /// Whether a path is absent.
    pub async fn is_absent(&self, path: &str) -> bool {
        self.lookup(path).await.unwrap().value.is_none()
    }

    /// See [`found_again`].
    pub async fn found_again(&self, file: &str) {
        found_again(&self.dir, file).await;
    }

    pub async fn attributes(&self, path: &str) -> Result<Entry> {
        self.attributes_of(&self.find(path).await?).await
    }

    pub async fn attributes_of(&self, file: &FileId) -> Result<Entry> {
        let answer = self.dir.attributes(&call(), file, &Version::None).await?;
        match answer.value {
            Checked::Is(found) => Ok(found.entry),
            Checked::Unchanged | Checked::Touched(_) => panic!("unchanged, though nothing was known"),
        }
    }

    pub async fn list(&self, path: &str) -> Result<(Page, Version, Lease)> {
        self.list_of(&self.find(path).await?).await
    }

    pub async fn list_of(&self, dir: &FileId) -> Result<(Page, Version, Lease)> {
        let answer = self.dir.entries(&call(), dir, &Version::None, None).await?;
        match answer.value {
            Listing::Page(page, None) => Ok((page, answer.version, answer.lease)),
            Listing::Changes(mut page, standing) => {
                page.entries.extend(standing.iter().map(|entry| Entry::clone(entry)));
                page.entries.sort_by(|a, b| a.name.cmp(&b.name));
                Ok((page, answer.version, answer.lease))
            }
            other => panic!("{other:?}"),
        }
    }

    pub async fn names(&self, path: &str) -> Vec<String> {
        let (page, ..) = self.list(path).await.unwrap();
        page.entries.iter().map(|entry| entry.name.to_string()).collect()
    }

    pub async fn read(&self, path: &str) -> Result<Bytes> {
        self.read_of(&self.find(path).await?).await
    }

    pub async fn read_of(&self, file: &FileId) -> Result<Bytes> {
        let answer = self.dir.fetch(&call(), file, &Version::None, Span::WHOLE).await?;
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
        let paths = self.paths();
        self.told(wanted).await.iter().map(|event| paths.of(event)).collect()
    }

    /// The same; the events as they came.
    pub async fn told(&mut self, wanted: &[&str]) -> Vec<Event> {
        let (mut seen, mut told) = (BTreeSet::new(), Vec::new());
        let paths = self.paths();
        let events = self.events.get_mut().unwrap();
        let wait = async {
            while !wanted.iter().all(|path| seen.contains(*path)) {
                let event = events.next().await.expect("the directory is open");
                seen.insert(paths.of(&event));
                told.push(event);
            }
        };
        let outcome = tokio::time::timeout(PATIENCE, wait).await;
        outcome.unwrap_or_else(|_| panic!("waited for {wanted:?}, came: {seen:?}"));
        told
    }

    /// What tells the paths of events.
    pub fn paths(&self) -> Paths {
        Paths(self.seen.clone())
    }

    /// The events that are still to come, for somebody else.
    pub fn take_events(&self) -> BoxStream<'static, Event> {
        std::mem::replace(&mut *self.events.lock().unwrap(), Box::pin(futures_util::stream::pending()))
    }
}

/// Tells the paths of events.
pub struct Paths(Seen);

impl Paths {
    /// The path that an event is of, as far as the directories in it were looked up.
    pub fn of(&self, event: &Event) -> String {
        let path = |dir: &FileId| match dir.as_bytes() {
            [] => String::new(),
            _ => self.0.lock().unwrap().get(dir).unwrap_or_else(|| panic!("{dir:?} was never looked up")).clone(),
        };
        match event {
            Event::Broken(dir) => path(dir),
            Event::NameBroken { dir, name, .. } => format!("{}/{name}", path(dir)).trim_start_matches('/').to_owned(),
            Event::AllBroken => ALL.to_owned(),
            other => panic!("{other:?}"),
        }
    }
}

/// How `broken` shows that every lease ended.
pub const ALL: &str = "(all)";

/// Longer than anything here takes; it ends tests that fail.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub fn call() -> Call {
    Call::within(Caller::DAEMON, PATIENCE)
}

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
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
