//! What the kernel must be told to forget.
//!
//! Notices are never sent to the kernel from a request's own thread: the kernel may hold a lock that the request
//! waits under. They go through channels to threads of the kernel side's own. An answer that rests on changed
//! attributes waits until the kernel has been told ([`Notices::settled`]): a reader must not meet a new content with
//! an old length.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};
use weft_remote::Name;
use weft_store::NodeId;

use crate::going_on::go_on;
use crate::vfs::Vfs;

/// Something that the kernel may have cached and must not use any more.
#[derive(Debug)]
pub enum Notice {
    /// A name in a directory no longer leads where it led.
    Entry {
        /// The directory.
        parent: NodeId,
        /// The name.
        name: Name,
    },
    /// A name in a directory has to be looked up again; most likely it leads where it led.
    Expired {
        /// The directory.
        parent: NodeId,
        /// The name.
        name: Name,
    },
    /// The attributes of a file changed; its pages, if any, are still right.
    Attributes {
        /// The file.
        node: NodeId,
    },
    /// The content of a file changed.
    Content {
        /// The file.
        node: NodeId,
    },
    /// A file is this long, at least, and ends in this byte: who goes by what the kernel takes it for is yet to go on there.
    Grown {
        /// The file.
        node: NodeId,
        /// How many bytes it has; not 0.
        length: u64,
        /// The last of them.
        last: u8,
    },
    /// Every name that the kernel knows may lead elsewhere.
    Everything,
    /// Nothing: whoever waits at the other end hears that the kernel has been told of all before it.
    Fence(oneshot::Sender<()>),
}

/// Where notices go; without a kernel side they go nowhere.
///
/// Attributes have a channel of their own: forgetting them takes no lock in the kernel, while forgetting a name or
/// pages may wait for requests in flight, and nothing that a request waits for may stand behind that.
#[derive(Debug)]
pub struct Notices(Option<Arc<Senders>>);

#[derive(Debug)]
struct Senders {
    attributes: mpsc::SyncSender<Notice>,
    others: mpsc::SyncSender<Notice>,
    /// Attribute notices sent so far.
    sent: AtomicU64,
    /// Attribute notices that the kernel has been told so far.
    told: watch::Receiver<u64>,
    /// The last ones of them, and of content, and when they were sent, newest last. Held for a look or one change.
    last: Mutex<VecDeque<(Instant, NodeId)>>,
    /// Files whose attributes changed in a way that can wait for others. Held for one change.
    soon: Mutex<Vec<NodeId>>,
}

/// The ends that the kernel side listens at.
#[derive(Debug)]
pub struct NoticeReceivers {
    /// [`Notice::Attributes`] alone, in order.
    pub attributes: mpsc::Receiver<Notice>,
    /// All other notices.
    pub others: mpsc::Receiver<Notice>,
    /// How many of `attributes` the kernel has been told.
    pub told: watch::Sender<u64>,
}

impl Notices {
    /// Notices that nobody hears.
    pub fn nowhere() -> Notices {
        Notices(None)
    }

    /// Notices and the ends that the kernel side listens at.
    pub fn channel() -> (Notices, NoticeReceivers) {
        let (attributes, attributes_end) = mpsc::sync_channel(NOTICES_WAITING_MAX);
        let (others, others_end) = mpsc::sync_channel(NOTICES_WAITING_MAX);
        let (told_end, told) = watch::channel(0);
        let receivers = NoticeReceivers { attributes: attributes_end, others: others_end, told: told_end };
        let (sent, last, soon) = Default::default();
        (Notices(Some(Arc::new(Senders { attributes, others, sent, told, last, soon }))), receivers)
    }

    /// Passes a notice on. When more wait than the channel holds, the notice is dropped: the kernel then keeps what
    /// it has until its lease ends.
    pub(crate) fn send(&self, notice: Notice) {
        if let Some(senders) = &self.0 {
            senders.send(notice);
        }
    }

    /// Has the kernel told before long of attributes that became finer, together with others: who reads many files one
    /// after the other would have a thread woken for each. Nobody waits for these.
    pub(crate) fn send_soon(&self, node: NodeId, runtime: &tokio::runtime::Handle) {
        let Some(senders) = &self.0 else { return };
        let mut waiting = senders.soon.lock();
        waiting.push(node);
        if waiting.len() > 1 {
            return;
        }
        drop(waiting);
        let senders = senders.clone();
        go_on(runtime, async move {
            tokio::time::sleep(SOON).await;
            let nodes = std::mem::take(&mut *senders.soon.lock());
            nodes.into_iter().for_each(|node| senders.send(Notice::Attributes { node }));
        });
    }

    /// Passes a notice on, and waits where others wait before it. Not for a thread that a request needs.
    pub(crate) fn send_surely(&self, notice: Notice) {
        if let Some(senders) = &self.0 {
            senders.send_surely(notice);
        }
    }

    /// Passes a notice on: now, or on a thread of its own when others wait before it.
    pub(crate) fn send_later(&self, notice: Notice, runtime: &tokio::runtime::Handle) {
        let Some(senders) = &self.0 else { return };
        if let Err(notice) = senders.try_send(notice) {
            let senders = senders.clone();
            runtime.spawn_blocking(move || senders.send_surely(notice));
        }
    }

    /// Passes notices on when some time has passed.
    pub(crate) fn send_after(&self, pause: Duration, notices: Vec<Notice>, runtime: &tokio::runtime::Handle) {
        let Some(senders) = &self.0 else { return };
        let senders = senders.clone();
        runtime.spawn(async move {
            tokio::time::sleep(pause).await;
            let send = move || notices.into_iter().for_each(|notice| senders.send_surely(notice));
            drop(tokio::task::spawn_blocking(send));
        });
    }

    /// Returns when the kernel has been told of everything so far. What it is told of names may wait for requests: not for
    /// what a request waits for.
    pub(crate) async fn all_told(&self) {
        self.tell(Vec::new()).await;
    }

    /// Has the kernel told of these, also where others wait before them, and returns when it has been told of them and of
    /// everything so far. As [`Notices::all_told`].
    pub(crate) async fn tell(&self, notices: Vec<Notice>) {
        let Some(senders) = self.0.clone() else { return };
        let (fence, passed) = oneshot::channel();
        let mut notices = notices.into_iter().chain([Notice::Fence(fence)]);
        if let Some(first) = notices.by_ref().find_map(|notice| senders.try_send(notice).err()) {
            let others = move || std::iter::once(first).chain(notices).for_each(|notice| senders.send_surely(notice));
            // It fails when the file system ends.
            let _ = tokio::task::spawn_blocking(others).await;
        }
        self.settled().await;
        // An error means that the kernel side is gone.
        let _ = passed.await;
    }

    /// Whether the kernel was told since then that this inode changed, which ends its attributes, or is about to be; also where so
    /// much was told that this is not known.
    pub(crate) fn has_told(&self, node: NodeId, since: Instant) -> bool {
        let Some(senders) = &self.0 else { return false };
        let last = senders.last.lock();
        let is_since = |(at, _): &&(Instant, NodeId)| *at >= since;
        let is_full = last.len() >= LAST_MAX && last.front().as_ref().is_some_and(is_since);
        is_full || last.iter().rev().take_while(is_since).any(|(_, told)| *told == node)
    }

    /// Returns when the kernel has been told of every change of attributes so far.
    pub(crate) async fn settled(&self) {
        let Some(senders) = &self.0 else { return };
        let sent = senders.sent_so_far();
        if *senders.told.borrow() >= sent {
            return;
        }
        let mut told = senders.told.clone();
        // An error means that the kernel side is gone: nothing to wait for.
        let _ = told.wait_for(|told| *told >= sent).await;
    }
}

impl Senders {
    /// See [`Notices::send`].
    fn send(&self, notice: Notice) {
        if self.try_send(notice).is_err() {
            tracing::debug!("a notice to the kernel was dropped");
        }
    }

    /// Passes a notice on, or gives it back when more wait than its channel holds.
    fn try_send(&self, notice: Notice) -> Result<(), Notice> {
        let of = inode_of(&notice);
        // Held until it is counted: the kernel may be told of it at once.
        let mut last = self.last.lock();
        match self.channel_of(&notice).try_send(notice) {
            Ok(()) => self.count(&mut last, of),
            Err(mpsc::TrySendError::Full(notice)) => return Err(notice),
            // The kernel side is gone: nobody has cached anything.
            Err(mpsc::TrySendError::Disconnected(_)) => {}
        }
        Ok(())
    }

    /// See [`Notices::send_surely`].
    fn send_surely(&self, notice: Notice) {
        let Err(notice) = self.try_send(notice) else { return };
        self.count(&mut self.last.lock(), inode_of(&notice));
        // An error means that the kernel side is gone.
        let _ = self.channel_of(&notice).send(notice);
    }

    /// How many notices of attributes there were up to now: all whose moment in `last` is before.
    fn sent_so_far(&self) -> u64 {
        let _last = self.last.lock();
        self.sent.load(Ordering::SeqCst)
    }

    fn channel_of(&self, notice: &Notice) -> &mpsc::SyncSender<Notice> {
        match notice {
            Notice::Attributes { .. } => &self.attributes,
            Notice::Entry { .. }
            | Notice::Expired { .. }
            | Notice::Content { .. }
            | Notice::Grown { .. }
            | Notice::Everything
            | Notice::Fence(_) => &self.others,
        }
    }

    fn count(&self, last: &mut VecDeque<(Instant, NodeId)>, of: Option<(NodeId, What)>) {
        let Some((node, what)) = of else { return };
        if last.len() >= LAST_MAX {
            last.pop_front();
        }
        last.push_back((Instant::now(), node));
        if what == What::Attributes {
            self.sent.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// What of an inode changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Attributes,
    Content,
}

/// Of which inode a notice says that it changed.
fn inode_of(notice: &Notice) -> Option<(NodeId, What)> {
    match notice {
        Notice::Attributes { node } => Some((*node, What::Attributes)),
        Notice::Content { node } | Notice::Grown { node, .. } => Some((*node, What::Content)),
        Notice::Entry { .. } | Notice::Expired { .. } | Notice::Everything | Notice::Fence(_) => None,
    }
}

impl Vfs {
    /// Waits until the kernel has been told of everything so far, and says whether it was within that time: what it is told
    /// of names may wait for a request. Not for what a request waits for.
    pub async fn kernel_is_told(&self, patience: Duration) -> bool {
        // What a name leads to is learnt, and those who watch hear of it, while the names are locked: after that the kernel's
        // notice is on its way as well.
        drop(self.renames.lock());
        tokio::time::timeout(patience, self.notices.all_told()).await.is_ok()
    }
}

/// Changes of inodes of which it is remembered what they were of.
const LAST_MAX: usize = 4096;
/// How long notices that nobody waits for wait for others.
const SOON: Duration = Duration::from_millis(20);
/// How many notices may wait for the kernel side.
const NOTICES_WAITING_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// Goal: notices that can wait go together, and none is left behind.
    #[tokio::test(start_paused = true)]
    async fn what_can_wait_goes_together() {
        let (notices, receivers) = Notices::channel();
        let heard = || {
            let nodes = receivers.attributes.try_iter().map(|notice| match notice {
                Notice::Attributes { node } => node.0,
                other => panic!("{other:?}"),
            });
            nodes.collect::<Vec<_>>()
        };
        for round in 0..2 {
            (1..=3).for_each(|node| notices.send_soon(NodeId(node), &tokio::runtime::Handle::current()));
            tokio::time::sleep(SOON / 2).await;
            assert!(heard().is_empty(), "round {round}");
            notices.send_soon(NodeId(4), &tokio::runtime::Handle::current());
            tokio::time::sleep(SOON).await;
            assert_eq!(heard(), [1, 2, 3, 4], "round {round}");
        }
    }

    /// Goal: who waits for the kernel is not told that it has been told because too much waits before.
    #[tokio::test]
    async fn what_is_waited_for_is_told_after_all_before_it() {
        let (notices, receivers) = Notices::channel();
        (0..NOTICES_WAITING_MAX).for_each(|_| notices.send(Notice::Everything));
        let told = notices.tell(vec![Notice::Content { node: NodeId(1) }]);
        tokio::pin!(told);
        assert!(told.as_mut().now_or_never().is_none());
        let kernel = tokio::task::spawn_blocking(move || {
            let mut before = Vec::new();
            for notice in receivers.others.iter() {
                match notice {
                    Notice::Fence(passed) => return (before, passed),
                    notice => before.push(notice),
                }
            }
            panic!("no fence came");
        });
        tokio::select! {
            () = &mut told => panic!("the fence has not passed"),
            heard = kernel => {
                let (before, passed) = heard.expect("no panic");
                assert_eq!(before.len(), NOTICES_WAITING_MAX + 1);
                assert!(matches!(before.last(), Some(Notice::Content { node: NodeId(1) })));
                assert!(told.as_mut().now_or_never().is_none());
                passed.send(()).expect("it is waited for");
            }
        }
        told.await;
    }

    #[tokio::test]
    async fn what_must_not_be_left_out_waits_for_its_turn() {
        let (notices, receivers) = Notices::channel();
        (0..NOTICES_WAITING_MAX).for_each(|_| notices.send(Notice::Everything));
        notices.send(Notice::Content { node: NodeId(1) });
        notices.send_later(Notice::Content { node: NodeId(2) }, &tokio::runtime::Handle::current());
        let contents = tokio::task::spawn_blocking(move || {
            drop(notices);
            let contents = receivers.others.iter().filter_map(|notice| match notice {
                Notice::Content { node } => Some(node),
                _ => None,
            });
            contents.collect::<Vec<_>>()
        });
        assert_eq!(contents.await.expect("no panic"), [NodeId(2)], "the other found no room");
    }
}
