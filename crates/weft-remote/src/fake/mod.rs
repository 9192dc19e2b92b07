//! An in-memory remote with faults to order.
//!
//! A [`Fake`] serves a tree that a test builds by calls, under terms that a test sets ([`Terms`]), counts what it is
//! asked ([`Counts`]) and fails as ordered ([`Fault`]). It never sleeps: what shall take time waits at a [`Gate`]
//! that the test opens.

mod apply;
mod fault;
mod serve;
mod stream;
mod tree;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::stream::BoxStream;
use parking_lot::{Condvar, Mutex};
use tokio::sync::mpsc;

pub use self::fault::{Fault, Gate, Operation, Order};
use self::tree::{Tree, What};
use crate::{Audience, Completeness, Entry, Event, FileId, FileKind, Lease, Name};

/// A remote in memory. Clones share one tree.
///
/// The calls that build the tree panic on paths that make no sense: they are the test's own. Paths are bytes,
/// relative to the root, with `/` between names; the empty path is the root.
#[derive(Clone)]
pub struct Fake {
    shared: Arc<Shared>,
}

/// How a [`Fake`] answers.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The lease on every answer.
    pub promise: Promise,
    /// Who may see the answers.
    pub audience: Audience,
    /// What sort of version the answers carry.
    pub validator: Validator,
    /// How exactly listings tell sizes and times.
    pub listing: Quality,
    /// Bytes in one piece of a body; at least 1.
    pub piece_bytes: usize,
    /// Names on one page of a listing; at least 1.
    pub page_entries: usize,
    /// Whether files can be fetched from the middle.
    pub ranges: bool,
    /// Whether the body comes along when a file is looked up or found changed.
    pub along: bool,
    /// Whether files are said to stay themselves under other names.
    pub stable_ids: bool,
    /// Whether each name in the root is a source of its own.
    pub hosts: bool,
    /// Whether all that has changed is told.
    pub told_all: bool,
    /// Whether rows that were told before and are the same are told to stand ([`Listing::Changes`](crate::Listing::Changes)).
    pub standing: bool,
    /// Whether there are access lists, and no other extended attributes.
    pub access_lists: bool,
    /// The mark of everybody's login.
    pub login: u64,
}

/// The lease that a [`Fake`] gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// [`Lease::Spent`].
    Spent,
    /// [`Lease::Until`] this long from the answer.
    Lasting(Duration),
    /// [`Lease::UntilBroken`] this long from the answer; changes send [`Event::Broken`].
    Breakable(Duration),
    /// [`Lease::Forever`].
    Forever,
}

/// The sort of version that a [`Fake`] gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validator {
    /// [`Version::Strong`](crate::Version::Strong).
    Strong,
    /// [`Version::Weak`](crate::Version::Weak).
    Weak,
    /// [`Version::None`](crate::Version::None).
    None,
}

/// How exactly a size or time is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quality {
    /// As it is.
    Exact,
    /// To whole KiB or minutes.
    Rounded,
    /// Not at all.
    Unknown,
}

/// What a [`Fake`] has been asked so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls of `lookup`.
    pub lookup: u64,
    /// Calls of `attributes`.
    pub attributes: u64,
    /// Calls of `entries`, one for each page.
    pub entries: u64,
    /// Calls of `fetch`.
    pub fetch: u64,
    /// Calls of `read_link`.
    pub read_link: u64,
    /// Calls of `apply`.
    pub apply: u64,
    /// Calls of `extended`.
    pub extended: u64,
    /// Bytes of content handed out.
    pub content_bytes: u64,
    /// Calls of `forget`, which asks for nothing.
    pub forget: u64,
}

impl Counts {
    /// All calls.
    pub fn calls(&self) -> u64 {
        self.lookup + self.attributes + self.entries + self.fetch + self.read_link + self.apply + self.extended
    }
}

/// Everything behind a [`Fake`]. Each lock is held for a few instructions and never across a wait; `terms` may be
/// taken under `tree`, and no other two are held at once; who waits for an event to be heard gives its lock back meanwhile.
struct Shared {
    writable: bool,
    /// Guards the tree.
    tree: Mutex<Tree>,
    /// Guards how answers are made.
    terms: Mutex<Terms>,
    /// Guards the faults that are still to happen.
    orders: Mutex<Vec<Order>>,
    /// Guards the counters.
    counts: Mutex<Counts>,
    /// Where events go.
    events: mpsc::Sender<Event>,
    /// Guards the other end, until `events()` takes it.
    receiver: Mutex<Option<mpsc::Receiver<Event>>>,
    /// Guards the event that is to be told when it is asked whether all is told.
    late: Mutex<Option<Event>>,
    /// Guards what the last listing of each directory told.
    rows: Mutex<HashMap<u64, Vec<Entry>>>,
    hearing: Hearing,
}

/// Who listens to a [`Fake`], and how far they are.
#[derive(Debug, Default)]
struct Hearing {
    /// Guards how many events were sent, and how often one was asked for: those before that are heard.
    counted: Mutex<(u64, u64)>,
    asked: Condvar,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms {
            promise: Promise::Spent,
            audience: Audience::Everyone,
            validator: Validator::Strong,
            listing: Quality::Exact,
            piece_bytes: 16 * 1024,
            page_entries: 100,
            ranges: true,
            along: false,
            stable_ids: true,
            hosts: false,
            told_all: true,
            standing: false,
            access_lists: false,
            login: 0,
        }
    }
}

impl Fake {
    /// An empty tree that answers every mutation with `ReadOnly`.
    pub fn new() -> Fake {
        Fake::build(false)
    }

    /// An empty tree that takes mutations.
    pub fn writable() -> Fake {
        Fake::build(true)
    }

    fn build(writable: bool) -> Fake {
        let (events, receiver) = mpsc::channel(EVENTS_MAX);
        Fake {
            shared: Arc::new(Shared {
                writable,
                tree: Mutex::new(Tree::new()),
                terms: Mutex::new(Terms::default()),
                orders: Mutex::new(Vec::new()),
                counts: Mutex::new(Counts::default()),
                events,
                receiver: Mutex::new(Some(receiver)),
                late: Mutex::new(None),
                rows: Mutex::default(),
                hearing: Hearing::default(),
            }),
        }
    }

    /// Makes a directory, with those above it.
    pub fn dir(&self, path: impl AsRef<[u8]>) -> FileId {
        let number = self.shared.tree.lock().make_dir(path.as_ref());
        tree::file_id(number)
    }

    /// Makes a file, with the directories above it; an existing file gets these bytes and a new version.
    pub fn file(&self, path: impl AsRef<[u8]>, bytes: impl Into<Bytes>) -> FileId {
        let path = path.as_ref();
        let known = self.shared.tree.lock().find(path);
        if known.is_some() {
            return self.set(path, bytes);
        }
        let (number, dir) = self.shared.tree.lock().make(path, What::File(bytes.into()));
        self.broken(dir);
        tree::file_id(number)
    }

    /// Makes a symbolic link, with the directories above it.
    pub fn symlink(&self, path: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> FileId {
        let (number, dir) = self.shared.tree.lock().make(path.as_ref(), What::Symlink(target.as_ref().to_vec()));
        self.broken(dir);
        tree::file_id(number)
    }

    /// Gives a file other bytes and a new version.
    pub fn set(&self, path: impl AsRef<[u8]>, bytes: impl Into<Bytes>) -> FileId {
        let number = self.number(path.as_ref());
        self.shared.tree.lock().set(number, bytes.into());
        self.broken(number);
        tree::file_id(number)
    }

    /// Gives a file or directory a new version and leaves it as it is otherwise.
    pub fn touch(&self, path: impl AsRef<[u8]>) {
        let number = self.number(path.as_ref());
        self.shared.tree.lock().touch(number);
        self.broken(number);
    }

    /// Gives a file or directory other permission bits, and a new version with the same bytes.
    pub fn mode(&self, path: impl AsRef<[u8]>, mode: u16) {
        let number = self.number(path.as_ref());
        self.shared.tree.lock().change(number).mode = Some(mode);
        self.broken(number);
    }

    /// Gives a file or directory an access list, or takes it away, and gives it a new version with the same bytes.
    pub fn access_list(&self, path: impl AsRef<[u8]>, list: Option<&[u8]>) {
        let number = self.number(path.as_ref());
        self.shared.tree.lock().change(number).access_list = list.map(<[u8]>::to_vec);
        self.broken(number);
    }

    /// The number of a file's or directory's version.
    pub fn version(&self, path: impl AsRef<[u8]>) -> u64 {
        let number = self.number(path.as_ref());
        self.shared.tree.lock().node(number).map_or(0, |node| node.version)
    }

    /// Gives a file or directory, which is as it was before, the version of then.
    pub fn go_back(&self, path: impl AsRef<[u8]>, version: u64) {
        let number = self.number(path.as_ref());
        self.shared.tree.lock().node_mut(number).version = version;
        self.broken(number);
    }

    /// Takes a file, or a directory with all below it, away.
    pub fn remove(&self, path: impl AsRef<[u8]>) {
        let number = self.number(path.as_ref());
        let dir = self.shared.tree.lock().remove(number);
        self.broken(number);
        self.broken(dir);
    }

    /// Says whether a directory's listing is all there is.
    pub fn completeness(&self, path: impl AsRef<[u8]>, completeness: Completeness) {
        let number = self.number(path.as_ref());
        self.shared.tree.lock().node_mut(number).completeness = completeness;
    }

    /// Leaves a file out of listings; it still answers when it is asked for by name. Its directory becomes
    /// [`Completeness::Partial`].
    pub fn hide(&self, path: impl AsRef<[u8]>) {
        let number = self.number(path.as_ref());
        let mut tree = self.shared.tree.lock();
        let node = tree.node_mut(number);
        node.hidden = true;
        let dir = node.parent;
        tree.node_mut(dir).completeness = Completeness::Partial;
    }

    /// How exactly this file's size is told wherever it is told. A length that is not exact is not announced with
    /// the body either.
    pub fn quality(&self, path: impl AsRef<[u8]>, quality: Quality) {
        let number = self.number(path.as_ref());
        self.shared.tree.lock().node_mut(number).quality = quality;
    }

    /// From now on listings name this file without saying what it is.
    pub fn unknown_kind(&self, path: impl AsRef<[u8]>) {
        let number = self.number(path.as_ref());
        self.shared.tree.lock().node_mut(number).listed_kind = Some(FileKind::Unknown);
    }

    /// Makes the file `name` the page of `dir`: when `dir` is looked up or listed, the page's body comes along,
    /// and the listing is delivered in its stream.
    pub fn page(&self, dir: impl AsRef<[u8]>, name: &Name) {
        let number = self.number(dir.as_ref());
        self.shared.tree.lock().node_mut(number).page = Some(name.clone());
    }

    /// Changes how answers are made from now on.
    pub fn adjust(&self, change: impl FnOnce(&mut Terms)) {
        change(&mut self.shared.terms.lock());
    }

    /// Orders a fault; see [`Order`] for limiting it to an operation, a path and a number of times.
    pub fn order(&self, order: impl Into<Order>) {
        let mut orders = self.shared.orders.lock();
        assert!(orders.len() < ORDERS_MAX, "a test orders at most {ORDERS_MAX} faults");
        orders.push(order.into());
    }

    /// Takes back every fault that has not happened yet.
    pub fn heal(&self) {
        self.shared.orders.lock().clear();
    }

    /// What has been asked so far.
    pub fn counts(&self) -> Counts {
        *self.shared.counts.lock()
    }

    /// Counts from zero again.
    pub fn reset_counts(&self) {
        *self.shared.counts.lock() = Counts::default();
    }

    /// Sends an event to whoever called `events()`.
    pub fn send(&self, event: Event) {
        assert!(self.tell(event), "a test sends fewer events than the queue holds");
    }

    /// Has an event come, and be heard, when it is next asked whether all is told: in the middle of a question. Whoever listens
    /// needs another thread than who asks.
    pub fn send_late(&self, event: Event) {
        *self.shared.late.lock() = Some(event);
    }

    /// The identity of what is at `path`.
    pub fn id(&self, path: impl AsRef<[u8]>) -> FileId {
        tree::file_id(self.number(path.as_ref()))
    }

    /// What the file at `path` holds now; `None` when there is no such file.
    pub fn content(&self, path: impl AsRef<[u8]>) -> Option<Bytes> {
        let tree = self.shared.tree.lock();
        match &tree.node(tree.find(path.as_ref())?)?.what {
            What::File(bytes) => Some(bytes.clone()),
            What::Dir(_) | What::Symlink(_) => None,
        }
    }

    fn number(&self, path: &[u8]) -> u64 {
        let found = self.shared.tree.lock().find(path);
        found.unwrap_or_else(|| panic!("the test's tree has no {}", path.escape_ascii()))
    }

    fn terms(&self) -> Terms {
        self.shared.terms.lock().clone()
    }

    /// Tells that the lease on `number` has ended, where leases are of that sort.
    fn broken(&self, number: u64) {
        if matches!(self.terms().promise, Promise::Breakable(_)) {
            // Nobody may be listening: then the queue fills up, and what does not fit is of no use to anyone.
            self.tell(Event::Broken(tree::file_id(number)));
        }
    }

    /// Sends an event, if there is room.
    fn tell(&self, event: Event) -> bool {
        let mut counted = self.shared.hearing.counted.lock();
        let is_sent = self.shared.events.try_send(event).is_ok();
        counted.0 += u64::from(is_sent);
        is_sent
    }

    fn has_told_all(&self) -> bool {
        let late = self.shared.late.lock().take();
        if let Some(event) = late {
            self.send(event);
            let Hearing { counted, asked } = &self.shared.hearing;
            asked.wait_while(&mut counted.lock(), |(sent, asked)| *asked <= *sent);
        }
        self.terms().told_all
    }

    fn event_stream(&self) -> BoxStream<'static, Event> {
        match self.shared.receiver.lock().take() {
            Some(receiver) => {
                let next = async |(shared, mut receiver): (Arc<Shared>, mpsc::Receiver<Event>)| {
                    shared.hearing.counted.lock().1 += 1;
                    shared.hearing.asked.notify_all();
                    receiver.recv().await.map(|event| (event, (shared, receiver)))
                };
                Box::pin(futures_util::stream::unfold((self.shared.clone(), receiver), next))
            }
            None => Box::pin(futures_util::stream::pending()),
        }
    }
}

impl Default for Fake {
    fn default() -> Fake {
        Fake::new()
    }
}

impl Promise {
    fn lease(self) -> Lease {
        match self {
            Promise::Spent => Lease::Spent,
            Promise::Lasting(time) => Lease::lasting(time),
            Promise::Breakable(time) => Lease::UntilBroken(SystemTime::now() + time),
            Promise::Forever => Lease::Forever,
        }
    }
}

/// Most events that wait to be read.
const EVENTS_MAX: usize = 1024;
/// Most faults on order at one time.
const ORDERS_MAX: usize = 1024;
