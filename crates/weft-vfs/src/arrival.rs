//! A body on its way into the store.
//!
//! One task pumps the body's bytes into an object; readers take them from the object as they come. The pump runs
//! ahead of its readers by a bounded distance and then holds the source back; when nobody takes up the rest for a
//! while, a body that can be resumed is dropped and its object stays as a part. The same becomes of one that breaks off
//! after a piece or more: the rest is fetched by who wants it. Names that the body reveals are learnt on the way. The
//! object is committed when every announced byte has come, never before.

mod pump;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use tokio::sync::watch;
use weft_remote::{Audience, Body, Call, FileId, Lease};
use weft_store::{BindingId, NewObject, NodeId, Object};

use crate::room::Room;
use crate::vfs::Vfs;
use crate::{Result, VfsError};
use pump::Pump;
pub(crate) use pump::refuse_unending;

/// A body on its way.
pub(crate) struct Arrival {
    pub(crate) object: Arc<Object>,
    /// First byte that this body brought.
    pub(crate) start: u64,
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
    /// Nobody took up the rest, or it has to come by another body.
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
    /// When it was asked for.
    pub(crate) asked: SystemTime,
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

    /// Whether somebody has the file open, or has asked for more of it than comes with a look.
    pub(crate) fn is_wanted(&self) -> bool {
        self.claimed.load(Ordering::SeqCst) || *self.demand.borrow() > self.start
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

    /// Has all of it come, and waits for that.
    ///
    /// # Errors
    /// What broke it off.
    pub(crate) async fn whole(&self, call: &Call) -> Result<()> {
        self.claim();
        self.want(u64::MAX);
        match self.end(call).await? {
            State::Failed(error) => Err(error),
            State::Running | State::Done | State::Stopped => Ok(()),
        }
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
        let begun = match self.begin_object(delivery.node, new.clone(), lists) {
            Err(error) if error.is_full() && self.make_way(delivery.node)? => {
                self.begin_object(delivery.node, new, lists)
            }
            begun => begun,
        };
        let (object, room) = begun?;
        let writer = object.writer(0)?;
        let end = delivery.body.file_length.unwrap_or(u64::MAX);
        let arrival = Arrival::new(object, 0..end, delivery.body.resumable && delivery.lists.is_none());
        register(&arrival);
        self.runtime.spawn(Pump::new(self.clone(), arrival.clone(), delivery, room, true).run(writer));
        Ok(arrival)
    }

    /// A new object, and room for the beginning of its body.
    fn begin_object(self: &Arc<Self>, node: NodeId, new: NewObject, lists: bool) -> Result<(Arc<Object>, Room)> {
        if !lists {
            self.refuse_too_large(node, &new.account, new.length)?;
        }
        let object = self.store.create(node, new)?;
        let room = Room::for_body(self, &object, 0..u64::MAX, lists)?;
        Ok((object, room))
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
        let room = Room::for_body(self, object, start..end.unwrap_or(u64::MAX), false)?;
        let writer = object.writer(start)?;
        let resumable = end.is_none() && delivery.body.resumable;
        let arrival = Arrival::new(object.clone(), start..end.unwrap_or(u64::MAX), resumable);
        arrival.claim();
        arrival.want(if end.is_some() { u64::MAX } else { start + 1 });
        self.runtime.spawn(Pump::new(self.clone(), arrival.clone(), delivery, room, false).run(writer));
        Ok(arrival)
    }
}

/// A reader this far ahead of a body waits for it; one further ahead has a range fetched.
const JUMP_BYTES: u64 = 2 << 20;
