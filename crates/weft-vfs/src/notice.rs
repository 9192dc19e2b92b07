//! What the kernel must be told to forget.
//!
//! Notices are never sent to the kernel from a request's own thread: the kernel may hold a lock that the request
//! waits under. They go through a channel to a thread of the kernel side's own.

use std::sync::mpsc;

use tokio::sync::oneshot;
use weft_remote::Name;
use weft_store::NodeId;

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
    /// The attributes of a file changed; its pages, if any, are still right.
    Attributes {
        /// The file.
        node: NodeId,
        /// Told when the kernel has been told.
        done: Option<oneshot::Sender<()>>,
    },
    /// The content of a file changed.
    Content {
        /// The file.
        node: NodeId,
    },
}

/// Where notices go; without a kernel side they go nowhere.
///
/// Attributes have a channel of their own: forgetting them takes no lock in the kernel, while forgetting a name or
/// pages may wait for requests in flight, and nothing that a request waits for may stand behind that.
#[derive(Debug)]
pub struct Notices(Option<Senders>);

#[derive(Debug)]
struct Senders {
    attributes: mpsc::SyncSender<Notice>,
    others: mpsc::SyncSender<Notice>,
}

/// The ends that the kernel side listens at.
#[derive(Debug)]
pub struct NoticeReceivers {
    /// [`Notice::Attributes`] alone.
    pub attributes: mpsc::Receiver<Notice>,
    /// All other notices.
    pub others: mpsc::Receiver<Notice>,
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
        let receivers = NoticeReceivers { attributes: attributes_end, others: others_end };
        (Notices(Some(Senders { attributes, others })), receivers)
    }

    /// Passes a notice on. When more wait than the channel holds, the notice is dropped: the kernel then keeps what
    /// it has until its lease ends.
    pub(crate) fn send(&self, notice: Notice) {
        let Some(senders) = &self.0 else { return };
        let sender = match notice {
            Notice::Attributes { .. } => &senders.attributes,
            Notice::Entry { .. } | Notice::Content { .. } => &senders.others,
        };
        if sender.try_send(notice).is_err() {
            tracing::debug!("a notice to the kernel was dropped");
        }
    }

    /// Has the kernel forget a file's attributes and returns when it has.
    pub(crate) async fn attributes_now(&self, node: NodeId) {
        if self.0.is_some() {
            let (done, told) = oneshot::channel();
            self.send(Notice::Attributes { node, done: Some(done) });
            // An error means that the notice was dropped or the kernel side is gone: nothing to wait for.
            let _ = told.await;
        }
    }
}

/// How many notices may wait for the kernel side.
const NOTICES_WAITING_MAX: usize = 4096;
