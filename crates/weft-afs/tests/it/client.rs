//! A client of the cell: a tree on a node, what it is told, and changes made through it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use weft_afs::{Afs, AfsOptions};
use weft_remote::{
    Answer, Call, Caller, Change, Content, Entry, Event, Extent, FileId, FileKind, Lease, Listing, MemoryNotes,
    Mutation, Name, Notes, Outcome, Piece, Remote, RemoteError, Result, Span, Version,
};

use crate::cell::AfsCell;
use crate::network::Network;

/// A tree on a node, under a UUID of its own.
pub struct Client {
    pub afs: Arc<Afs>,
    /// The port that it speaks from.
    pub port: u16,
    events: Mutex<BoxStream<'static, Event>>,
    _network: Network,
}

/// What a tree is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tree {
    /// The cell.
    Cell,
    /// All cells.
    Cells,
}

impl Client {
    /// As anybody sees it.
    pub async fn on(cell: &AfsCell, node: &str, tree: Tree) -> Client {
        Client::with_ccache(cell, node, tree, cell.no_ccache()).await
    }

    /// As the user sees it whose ticket is in a credential cache.
    pub async fn with_ccache(cell: &AfsCell, node: &str, tree: Tree, ccache: String) -> Client {
        let network = Network::of(cell, node);
        let known = cell.known();
        let tree = (tree == Tree::Cell).then(|| known.name.clone());
        let options = AfsOptions { cells: vec![known], tree, ccache: Some(ccache), ..AfsOptions::default() };
        let (afs, port) = network
            .run(move || {
                // One at a time, so that the port that is new is the one of this tree.
                static OPENING: Mutex<()> = Mutex::new(());
                let _opening = OPENING.lock().expect("no test panics here");
                let before = ports();
                let notes: Arc<dyn Notes> = Arc::new(MemoryNotes::default());
                let afs = Afs::open(options, &notes).expect("the tree opens");
                let new: Vec<u16> = ports().difference(&before).copied().collect();
                assert_eq!(new.len(), 1, "one socket: {new:?}");
                (afs, new[0])
            })
            .await;
        let events = Mutex::new(afs.events());
        let client = Client { afs, port, events, _network: network };
        assert_eq!(client.told(), [Event::AllBroken], "what was promised to a former process is void");
        client
    }

    /// What was told since this was asked last.
    pub fn told(&self) -> Vec<Event> {
        let mut events = self.events.lock().expect("no test panics here");
        std::iter::from_fn(|| events.next().now_or_never().flatten()).collect()
    }

    /// Takes in whatever is told, as long as the test runs: nobody who tells is kept waiting.
    pub fn listen(&self) {
        let mut events = std::mem::replace(
            &mut *self.events.lock().expect("no test panics here"),
            futures_util::stream::pending().boxed(),
        );
        tokio::spawn(async move { while events.next().await.is_some() {} });
    }

    /// What is at a path, looked up name by name; with the lease on the last name.
    pub async fn find(&self, path: &[u8]) -> Result<(Option<Entry>, Lease)> {
        let mut at = self.afs.root();
        let mut last = None;
        for part in path.split(|byte| *byte == b'/') {
            let Answer { value, lease, .. } = self.afs.lookup(&call(), &at, &name(part)).await?;
            let Some(found) = value else { return Ok((None, lease)) };
            at = found.entry.id.clone();
            last = Some((Some(found.entry), lease));
        }
        Ok(last.expect("a path has a name"))
    }

    /// The identity of what is there.
    #[track_caller]
    pub fn id(&self, path: &str) -> impl Future<Output = FileId> {
        let found = self.find(path.as_bytes());
        async move { found.await.expect("looked up").0.expect("it is there").id }
    }

    /// All bytes of a file.
    pub async fn read(&self, file: &FileId) -> Result<Vec<u8>> {
        let mut body = self.afs.fetch(&call(), file, &Version::None, Span::WHOLE).await?.value.body;
        let mut bytes = Vec::new();
        while let Some(piece) = body.stream.next().await {
            match piece? {
                Piece::Bytes(piece) => bytes.extend_from_slice(&piece),
                Piece::Known(known) => panic!("content of AFS tells no names: {known:?}"),
            }
        }
        Ok(bytes)
    }

    /// The names in a directory.
    pub async fn names(&self, dir: &FileId) -> Vec<String> {
        let (told, standing) = self.list(dir, &call()).await;
        let mut names: Vec<String> = told.iter().chain(&standing).map(|entry| entry.name.to_string()).collect();
        names.sort_unstable();
        names
    }

    /// What a listing tells, and what it says stands of what was told before.
    pub async fn list(&self, dir: &FileId, call: &Call) -> (Vec<Entry>, Vec<Entry>) {
        match self.afs.entries(call, dir, &Version::None, None).await.expect("listed").value {
            Listing::Page(page, None) => (page.entries, Vec::new()),
            Listing::Changes(page, standing) => {
                (page.entries, standing.iter().map(|entry| Entry::clone(entry)).collect())
            }
            listing => panic!("{listing:?}"),
        }
    }

    /// How many questions were put to servers.
    pub fn asked(&self) -> u64 {
        self.afs.sources().iter().map(|source| source.requests).sum()
    }

    pub async fn apply(&self, change: Change) -> Result<Outcome> {
        let mutation = Mutation { change, made: SystemTime::now() };
        self.afs.apply(&call(), &mutation, &Version::None).await.map(|answer| answer.value)
    }

    /// Makes a file or directory.
    pub async fn create(&self, path: &[u8], kind: FileKind) -> FileId {
        let (dir, name) = self.place(path).await;
        let mode = if kind == FileKind::Directory { 0o755 } else { 0o644 };
        let made = self.apply(Change::Create { dir, name, kind, mode: mode.into(), device: 0 }).await;
        made.unwrap_or_else(|error| panic!("{}: {error}", path.escape_ascii())).entry.expect("it is new").id
    }

    /// Makes a directory of a test in the volume `scratch`; its path in a cell.
    pub async fn folder(&self, name: &str) -> String {
        let path = format!("scratch/{name}");
        self.create(path.as_bytes(), FileKind::Directory).await;
        path
    }

    /// Gives a file these bytes.
    pub async fn write(&self, file: &FileId, bytes: &[u8]) {
        let length = bytes.len() as u64;
        let extents = if bytes.is_empty() { Vec::new() } else { vec![Extent { offset: 0, length }] };
        let content = Arc::new(InMemory(Bytes::copy_from_slice(bytes)));
        self.apply(Change::Write { file: file.clone(), extents, length, content }).await.expect("written");
    }

    /// Takes a name away.
    pub async fn remove(&self, path: &[u8]) {
        let (dir, name) = self.place(path).await;
        self.apply(Change::Remove { dir, name }).await.expect("removed");
    }

    /// The directory that a path ends in, and the name in it.
    async fn place(&self, path: &[u8]) -> (FileId, Name) {
        let at = path.iter().rposition(|byte| *byte == b'/').expect("a directory and a name");
        let (dir, _) = self.find(&path[..at]).await.expect("looked up");
        (dir.expect("the directory is there").id, name(&path[at + 1..]))
    }
}

/// Bytes to be written.
struct InMemory(Bytes);

impl Content for InMemory {
    fn read(&self, offset: u64, length: usize) -> std::io::Result<Bytes> {
        let start = self.0.len().min(offset as usize);
        Ok(self.0.slice(start..self.0.len().min(start + length)))
    }
}

pub fn call() -> Call {
    Call::within(Caller::DAEMON, PATIENCE)
}

pub fn name(bytes: impl AsRef<[u8]>) -> Name {
    Name::new(bytes.as_ref()).expect("a name")
}

pub fn is_unsupported<T>(result: &Result<T>) -> bool {
    matches!(result, Err(RemoteError::Unsupported { .. }))
}

/// The ports of UDP that are open in this thread's network (proc(5): the second column, in hexadecimal after a colon).
fn ports() -> BTreeSet<u16> {
    let table = std::fs::read_to_string("/proc/thread-self/net/udp").expect("Linux has it");
    let local = table.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)?.rsplit_once(':'));
    local.filter_map(|(_, port)| u16::from_str_radix(port, 16).ok()).collect()
}

/// Longer than anything here takes; it ends tests that fail.
pub const PATIENCE: Duration = Duration::from_secs(30);
