//! A body on its way into the store.
//!
//! One task pumps the body's bytes into an object; readers take them from the object as they come. The pump runs
//! ahead of its readers by a bounded distance and then holds the source back; when nobody takes up the rest for a
//! while, a body that can be resumed is dropped and its object stays as a part. Names that the body reveals are
//! learnt on the way. The object is committed when every announced byte has come, never before.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use tokio::sync::watch;
use weft_remote::{Audience, Body, Call, FileId, FileKind, Lease, Piece, RemoteError, Version};
use weft_store::{Affinity, BindingId, NewObject, NodeId, Object, Writer};

use crate::ending::UnderWay;
use crate::figures::add;
use crate::inode::Inode;
use crate::learn::Told;
use crate::listing::ListingMerge;
use crate::room::Room;
use crate::vfs::Vfs;
use crate::{Result, VfsError};

/// A body on its way.
pub(crate) struct Arrival {
    pub(crate) object: Arc<Object>,
    /// First byte that this body brought.
    start: u64,
    /// Next byte that it will bring.
    position: AtomicU64,
    /// First byte that it will not bring; `u64::MAX` where that is not known.
    end: u64,
    /// Where it is cut short, for others bring what comes after.
    cut: AtomicU64,
    /// Whether it may be.
    resumable: bool,
    /// Byte up to which somebody wants it.
    demand: watch::Sender<u64>,
    /// Whether somebody has the file open or needs all of it.
    claimed: AtomicBool,
    /// Position at which the next reader wants to be woken.
    wake_at: AtomicU64,
    state: watch::Sender<State>,
}

/// How far an arrival is.
#[derive(Clone, Debug)]
pub(crate) enum State {
    /// Bytes are coming, or held back.
    Running,
    /// All came.
    Done,
    /// Nobody took up the rest.
    Stopped,
    /// It broke off.
    Failed(VfsError),
}

/// What a pump needs to know about the body it pumps.
pub(crate) struct Delivery {
    pub(crate) node: NodeId,
    pub(crate) binding: BindingId,
    pub(crate) body: Body,
    pub(crate) lease: Lease,
    pub(crate) audience: Audience,
    pub(crate) owner_uid: u32,
    /// The directory that the body lists, and its node.
    pub(crate) lists: Option<(FileId, NodeId)>,
    /// From when on the body's version counts as known.
    pub(crate) checked: SystemTime,
}

impl Arrival {
    fn new(object: Arc<Object>, span: Range<u64>, resumable: bool) -> Arc<Arrival> {
        let Range { start, end } = span;
        Arc::new(Arrival {
            object,
            start,
            position: AtomicU64::new(start),
            end,
            cut: AtomicU64::new(u64::MAX),
            resumable,
            demand: watch::Sender::new(start),
            claimed: AtomicBool::new(false),
            wake_at: AtomicU64::new(u64::MAX),
            state: watch::Sender::new(State::Running),
        })
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(*self.state.borrow(), State::Running)
    }

    /// Whether this body will bring the byte at `offset` before long. What it has passed already it does not bring:
    /// another was bringing that, or it was given up since.
    pub(crate) fn will_bring(&self, offset: u64) -> bool {
        let reached = self.reached();
        offset >= reached && offset <= reached.saturating_add(JUMP_BYTES) && offset < self.until()
    }

    /// Whether this body will bring the byte at `offset` in the end.
    pub(crate) fn covers(&self, offset: u64) -> bool {
        offset >= self.start && offset < self.until()
    }

    /// First byte that it has not brought yet.
    pub(crate) fn reached(&self) -> u64 {
        self.position.load(Ordering::SeqCst)
    }

    /// First byte that it will not bring.
    pub(crate) fn until(&self) -> u64 {
        self.end.min(self.cut.load(Ordering::SeqCst))
    }

    /// Has a body that can be taken up again end there, if it would go on: others bring what comes after.
    pub(crate) fn end_at(&self, cut: u64) {
        if self.resumable {
            self.cut.fetch_min(cut, Ordering::SeqCst);
        }
    }

    /// Whether what came of it is of use although the rest never comes.
    pub(crate) fn is_resumable(&self) -> bool {
        self.resumable
    }

    /// Asks for the bytes up to `end`.
    pub(crate) fn want(&self, end: u64) {
        self.demand.send_if_modified(|demand| {
            let more = end > *demand;
            *demand = (*demand).max(end);
            more
        });
    }

    /// Says that somebody has the file open: the body is not dropped early unless it can be taken up again.
    pub(crate) fn claim(&self) {
        self.claimed.store(true, Ordering::SeqCst);
        self.demand.send_modify(|_| ());
    }

    /// Waits until the bytes before `end` have come or the arrival is over, and says how it stands.
    pub(crate) async fn reach(&self, call: &Call, end: u64) -> Result<State> {
        let mut state = self.state.subscribe();
        let reached = async {
            loop {
                let now = state.borrow_and_update().clone();
                self.wake_at.fetch_min(end, Ordering::SeqCst);
                if !matches!(now, State::Running) || self.position.load(Ordering::SeqCst) >= end {
                    return now;
                }
                if state.changed().await.is_err() {
                    return State::Stopped;
                }
            }
        };
        tokio::time::timeout_at(call.deadline.into(), reached).await.map_err(|_| VfsError::TimedOut)
    }

    /// Waits until the arrival is over.
    pub(crate) async fn end(&self, call: &Call) -> Result<State> {
        self.reach(call, u64::MAX).await
    }

    fn advance(&self, bytes: u64) {
        let position = self.position.fetch_add(bytes, Ordering::SeqCst) + bytes;
        if position >= self.wake_at.load(Ordering::SeqCst) {
            self.wake_at.store(u64::MAX, Ordering::SeqCst);
            self.state.send_modify(|_| ());
        }
    }
}

impl Vfs {
    /// Has a body delivered into a new object, and returns the arrival at once. `register` makes it known before
    /// its first byte comes, so that a body that fails at once is taken back as well.
    ///
    /// # Errors
    /// When the store has no room to begin with.
    pub(crate) fn receive(
        self: &Arc<Self>,
        delivery: Delivery,
        register: impl FnOnce(&Arc<Arrival>),
    ) -> Result<Arc<Arrival>> {
        let new = NewObject {
            version: delivery.body.version.clone(),
            length: delivery.body.file_length,
            lease: delivery.lease,
            audience: delivery.audience,
            owner_uid: delivery.owner_uid,
            checked: delivery.checked,
            account: self.account_of(delivery.node)?,
        };
        let lists = delivery.lists.is_some();
        if !lists {
            self.refuse_too_large(delivery.node, &new.account, new.length)?;
        }
        let object = self.store.create(delivery.node, new)?;
        let room = Room::for_body(self, &object, 0, lists)?;
        let writer = object.writer(0)?;
        let end = delivery.body.file_length.unwrap_or(u64::MAX);
        let arrival = Arrival::new(object, 0..end, delivery.body.resumable && delivery.lists.is_none());
        register(&arrival);
        self.runtime.spawn(Pump::new(self.clone(), arrival.clone(), delivery, room, true).run(writer));
        Ok(arrival)
    }

    /// Has a body from the middle of a file delivered into the object that it belongs to: all of it where it is to end
    /// at `end`, otherwise as far as it is read.
    pub(crate) fn receive_range(
        self: &Arc<Self>,
        object: &Arc<Object>,
        delivery: Delivery,
        end: Option<u64>,
    ) -> Result<Arc<Arrival>> {
        let start = delivery.body.start;
        let room = Room::for_body(self, object, start, false)?;
        let writer = object.writer(start)?;
        let resumable = end.is_none() && delivery.body.resumable;
        let arrival = Arrival::new(object.clone(), start..end.unwrap_or(u64::MAX), resumable);
        arrival.claim();
        arrival.want(if end.is_some() { u64::MAX } else { start + 1 });
        self.runtime.spawn(Pump::new(self.clone(), arrival.clone(), delivery, room, false).run(writer));
        Ok(arrival)
    }
}

/// The task behind an arrival.
struct Pump {
    vfs: Arc<Vfs>,
    arrival: Arc<Arrival>,
    delivery: Delivery,
    /// Keeps the file's inode in memory, where whoever gives the content up finds this body's object.
    inode: Option<Arc<Inode>>,
    room: Room,
    listing: Option<ListingMerge>,
    /// Of a body whose part is of use when the mount ends.
    under_way: Option<UnderWay>,
    /// Whether the body is of the whole file; otherwise it is a range of one that is held in part.
    whole: bool,
    /// Whether the names that the body revealed include the body's own file.
    named: bool,
    /// The file and those that its body refers to.
    links: Vec<NodeId>,
}

impl Drop for Pump {
    /// A pump that did not come to its end (its task was cut off) leaves nobody waiting for it.
    fn drop(&mut self) {
        if self.arrival.is_running() {
            let detail = format!("{}: its body was given up half way", self.vfs.path_text(self.delivery.node));
            self.withdraw_whole();
            self.arrival.state.send_replace(State::Failed(RemoteError::Failed { detail }.into()));
        }
    }
}

/// Why a pump ended without an error.
enum Ended {
    AllCame,
    NobodyWants,
}

impl Pump {
    fn new(vfs: Arc<Vfs>, arrival: Arc<Arrival>, delivery: Delivery, room: Room, whole: bool) -> Pump {
        let named = delivery.lists.is_none();
        let inode = vfs.inode(delivery.node).ok();
        let keeps_part = !whole || delivery.body.resumable && delivery.lists.is_none();
        let under_way = keeps_part.then(|| vfs.ending.body());
        let links = vec![delivery.node];
        Pump { vfs, arrival, delivery, inode, room, listing: None, under_way, whole, named, links }
    }

    async fn run(mut self, mut writer: Writer) {
        let outcome = match self.pump(&mut writer).await {
            Ok(Ended::AllCame) => self.complete(writer).map(|()| State::Done),
            Ok(Ended::NobodyWants) => self.keep_part(writer).map(|()| State::Stopped),
            Err(error) => {
                drop(writer);
                Err(error)
            }
        };
        let state = outcome.unwrap_or_else(|error| {
            self.fail(&error);
            State::Failed(error)
        });
        self.arrival.state.send_replace(state);
        // The page of a directory is known there.
        let dir = self.delivery.lists.as_ref().and_then(|(_, dir)| self.vfs.inodes.get(*dir));
        for inode in self.inode.iter().chain(&dir) {
            // Kept until somebody comes by, an object that was given up would hold its space on a full disk.
            inode.content.lock().arrivals.retain(|arrival| arrival.is_running());
        }
    }

    async fn pump(&mut self, writer: &mut Writer) -> Result<Ended> {
        let patience = self.vfs.options.deadline;
        let unclaimed_bytes_max = self.vfs.options.unclaimed_bytes_max;
        let resumable = self.delivery.body.resumable;
        let arrival = self.arrival.clone();
        let ended = UnderWay::end_of(self.under_way.as_ref());
        tokio::pin!(ended);
        // The page that lists a directory is always taken whole.
        let is_page = self.delivery.lists.is_some();
        loop {
            let wanted = tokio::select! {
                biased;
                () = &mut ended => false,
                wanted = Pump::wanted(&arrival, resumable, unclaimed_bytes_max), if !is_page => wanted,
                () = std::future::ready(()), if is_page => true,
            };
            if !wanted || arrival.reached() >= arrival.cut.load(Ordering::SeqCst) {
                return Ok(Ended::NobodyWants);
            }
            let next = tokio::select! {
                biased;
                () = &mut ended => return Ok(Ended::NobodyWants),
                next = tokio::time::timeout(patience, self.delivery.body.stream.next()) => next,
            };
            match next.map_err(|_| VfsError::TimedOut)? {
                None => return Ok(Ended::AllCame),
                Some(Err(error)) => return Err(error.into()),
                Some(Ok(Piece::Bytes(mut bytes))) => {
                    // Not a byte of what others bring: a piece begun here would be finished by nobody.
                    let room = arrival.cut.load(Ordering::SeqCst).saturating_sub(arrival.reached());
                    bytes.truncate(usize::try_from(room).unwrap_or(usize::MAX));
                    self.check_bound(bytes.len())?;
                    self.room.cover(&self.vfs, &self.arrival.object, bytes.len() as u64)?;
                    writer.append(&bytes)?;
                    add(&self.vfs.figures.bytes_received, bytes.len() as u64);
                    self.arrival.advance(bytes.len() as u64);
                }
                Some(Ok(Piece::Known(known))) => self.learn(known)?,
            }
        }
    }

    /// A body that does not say how long it is might never end.
    fn check_bound(&self, more: usize) -> Result<()> {
        let position = self.arrival.position.load(Ordering::SeqCst);
        if self.delivery.body.file_length.is_some() || position + more as u64 <= UNANNOUNCED_BYTES_MAX {
            return Ok(());
        }
        let path = self.vfs.path_text(self.delivery.node);
        let detail = format!("{path}: a body of unannounced length passed {UNANNOUNCED_BYTES_MAX} bytes");
        Err(RemoteError::Damaged { detail }.into())
    }

    /// Holds the source back while the readers are far enough behind; says whether to go on.
    async fn wanted(arrival: &Arrival, resumable: bool, unclaimed_bytes_max: u64) -> bool {
        let mut demand = arrival.demand.subscribe();
        let position = arrival.position.load(Ordering::SeqCst);
        loop {
            let claimed = arrival.claimed.load(Ordering::SeqCst);
            let limit = match claimed {
                true if !resumable => u64::MAX,
                true => demand.borrow_and_update().saturating_add(AHEAD_BYTES),
                false => (*demand.borrow_and_update()).max(unclaimed_bytes_max),
            };
            if position < limit {
                return true;
            }
            match tokio::time::timeout(IDLE_PATIENCE, demand.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return false,
            }
        }
    }

    fn learn(&mut self, known: weft_remote::Known) -> Result<()> {
        let binding = self.delivery.binding;
        self.named |= known.page.value.entries.iter().any(|entry| entry.id == self.delivery.body.file);
        for entry in known.page.value.entries.iter().take(LINKS_MAX - self.links.len()) {
            let node = self.vfs.store.identify(binding, &entry.id)?;
            if entry.attributes.kind != FileKind::Directory && !self.links.contains(&node) {
                self.links.push(node);
            }
        }
        match &self.delivery.lists {
            Some((dir, node)) if *dir == known.dir => {
                let told = Told::by(&known.page);
                let merge = self.listing.get_or_insert_with(|| self.vfs.begin_listing(*node, binding, told));
                self.vfs.learn_page(merge, known.page.value)
            }
            _ => self.vfs.learn_linked(binding, &known.dir, known.page),
        }
    }

    fn complete(&mut self, writer: Writer) -> Result<()> {
        let node = self.delivery.node;
        let object = self.arrival.object.clone();
        writer.finish()?;
        if self.whole && !object.is_complete() {
            let detail = format!("{}: the body ended too early", self.vfs.path_text(node));
            return Err(RemoteError::Damaged { detail }.into());
        }
        // Whoever reads the list may open the page at once: it is there by then, if it can be.
        let kept = self.keep_whole();
        if let Some(merge) = self.listing.take() {
            self.vfs.finish_listing(merge)?;
        }
        if kept? && let Some(length) = object.length() {
            self.vfs.learn_length(node, length)?;
        }
        Ok(())
    }

    /// Has what came recorded, where it is to stay; whether that is a whole file.
    fn keep_whole(&self) -> Result<bool> {
        let object = &self.arrival.object;
        if !self.named || self.room.is_lent() {
            object.discard();
            return Ok(false);
        }
        if !self.whole {
            self.record_range()?;
            return Ok(false);
        }
        if self.links.len() > 1 {
            self.vfs.store.group(Affinity::Linked, &self.links);
        }
        object.commit()?;
        Ok(true)
    }

    /// Has pieces of a range recorded: now where nobody has the file open, otherwise at the last close.
    fn record_range(&self) -> Result<()> {
        let object = &self.arrival.object;
        if let Some(inode) = &self.inode {
            let mut content = inode.content.lock();
            // What a broken body brought is not made to last.
            if content.spoilt.as_ref().is_some_and(|(generation, _)| *generation == object.generation()) {
                return Ok(());
            }
            if content.is_open(object.generation()) && !self.vfs.ending.has_begun() {
                content.unrecorded = true;
                return Ok(());
            }
        }
        Ok(object.commit()?)
    }

    /// The readers lost interest: what came stays, if the rest can be fetched under the same version later.
    fn keep_part(&self, writer: Writer) -> Result<()> {
        drop(writer);
        let object = &self.arrival.object;
        if !self.whole {
            return self.record_range();
        }
        if self.delivery.body.resumable && object.length().is_some() {
            object.commit()?;
        } else {
            self.withdraw();
        }
        Ok(())
    }

    fn fail(&self, error: &VfsError) {
        let ahead = self.inode.as_ref().and_then(|inode| inode.content.lock().ahead.take());
        if ahead.is_some() {
            tracing::debug!(%error, "what was fetched ahead did not come");
        } else if error.is_full() {
            self.vfs.tell_unstored(self.delivery.node, error);
        } else {
            let text = self.vfs.path_text(self.delivery.node);
            self.vfs.troubles.tell(text, format!("{error}; what came of it was not kept"));
        }
        if let Some(inode) = self.vfs.inodes.get(self.delivery.node) {
            inode.note_error(error);
            // A range that broke off is asked for again: nothing of it is kept, and the rest has nothing to do with it.
            let broken = match error {
                VfsError::Remote(RemoteError::VersionChanged { .. }) => true,
                VfsError::Remote(RemoteError::Damaged { .. }) => self.whole,
                _ => false,
            };
            // Without a validator the rest can never be joined to what came.
            if broken || *self.arrival.object.version() == Version::None {
                inode.content.lock().spoilt = Some((self.arrival.object.generation(), error.clone()));
            }
        }
        if !self.whole {
            if matches!(error, VfsError::Remote(RemoteError::Damaged { .. })) {
                self.arrival.object.forget(self.arrival.start..self.arrival.reached());
            }
            if let Err(error) = self.record_range() {
                tracing::warn!(%error, "pieces of a partly held file were not recorded");
            }
        }
        self.withdraw_whole();
    }

    fn withdraw_whole(&self) {
        if self.whole {
            self.withdraw();
        }
    }

    /// Takes the object back from whoever would open it next.
    fn withdraw(&self) {
        let object = &self.arrival.object;
        object.discard();
        if let Some(inode) = self.vfs.inodes.get(self.delivery.node) {
            let mut content = inode.content.lock();
            if content.current.as_ref().is_some_and(|current| Arc::ptr_eq(&current.object, object)) {
                content.current = None;
            }
        }
    }
}

/// How far a body is let run ahead of the reader that wants it.
const AHEAD_BYTES: u64 = 8 << 20;
/// A reader this far ahead of a body waits for it; one further ahead has a range fetched.
const JUMP_BYTES: u64 = 2 << 20;
/// Most bytes of a body that does not announce its length.
const UNANNOUNCED_BYTES_MAX: u64 = 4 << 30;
/// Files that a page refers to of which is remembered that they belong with it.
const LINKS_MAX: usize = 64;
/// How long a body that nobody reads on is held before it is dropped.
const IDLE_PATIENCE: Duration = Duration::from_secs(2);
