//! The length that the kernel takes a file to have.
//!
//! The answer to an open tells none, and the kernel goes by the one that it has: for where to append (generic_write_checks()
//! of Linux mm/filemap.c) and for how much there is to copy or to send within the kernel (generic_copy_file_checks() of
//! fs/read_write.c, filemap_splice_read()). Where what is opened is of another length than it was told last, it is told to
//! follow the path again (`ESTALE`), and is told the length with what the name leads to.
//!
//! Who gets a lock goes on in another version by what is open already: the kernel, which asks nothing before it appends to that,
//! is told that it is longer by a byte that it is given (fuse_notify_store() of fs/fuse/dev.c), before the lock is answered. That
//! it is shorter it cannot be told: then what is appended goes to the end of what there is, whatever place the kernel has for it.
//!
//! The same where a path was followed again in vain, and the file is opened past the pages of the kernel: sendfile(2) ends at the
//! length that it has for all that.
//!
//! What it was told it may have left aside: an answer to a question that it asked before it was told to forget what it knew
//! (fuse_change_attributes_i() and fuse_reverse_inval_inode() of fs/fuse/inode.c, by `attr_version`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use weft_remote::{Call, FileKind};
use weft_store::{NodeId, Object};

use crate::handle::{Handle, Held};
use crate::inode::Inode;
use crate::notice::Notice;
use crate::retry::Again;
use crate::stat::Stat;
use crate::vfs::Vfs;

/// The length of a file that the kernel was told.
#[derive(Debug, Default)]
pub(crate) struct ToldLength {
    /// If any was. Held for one look or one change.
    word: Mutex<Option<Word>>,
    /// Somebody may write the file whom the kernel could not be told it.
    amiss: AtomicBool,
}

/// A length in bytes that was told.
#[derive(Clone, Copy, Debug)]
struct Word {
    length: u64,
    /// When; `None` where it surely has that length.
    told: Option<Instant>,
}

impl ToldLength {
    /// The kernel has made the file this long itself.
    pub(crate) fn note(&self, length: u64) {
        *self.word.lock() = Some(Word { length, told: None });
    }

    /// The kernel is told this length, which is no news where it has that, and is not left aside where it has none.
    fn note_word(&self, length: u64) {
        let mut word = self.word.lock();
        match &*word {
            None => *word = Some(Word { length, told: None }),
            Some(known) if known.length == length && known.told.is_none() => {}
            Some(_) => *word = Some(Word { length, told: Some(Instant::now()) }),
        }
    }

    /// It has learnt what it was told.
    fn settle(&self) {
        if let Some(word) = &mut *self.word.lock() {
            word.told = None;
        }
    }

    /// It goes by a length of its own from now on, by somebody who writes: what is appended goes to the end of the file, wherever
    /// the kernel takes that to be.
    pub(crate) fn go_amiss(&self) {
        self.amiss.store(true, Ordering::Release);
    }

    /// Whether the kernel may go by a length of its own.
    pub(crate) fn is_amiss(&self) -> bool {
        self.amiss.load(Ordering::Acquire)
    }

    /// What was written is all there is, of this length; whatever the kernel took it for. Where it is still open to be written,
    /// that may go on.
    pub(crate) fn note_written(&self, length: u64, is_open: bool) {
        match self.is_amiss() {
            true => self.note_word(length),
            false => self.note(length),
        }
        self.amiss.fetch_and(is_open, Ordering::AcqRel);
    }

    /// The kernel has another inode for the file, and was told nothing of it.
    pub(crate) fn forget(&self) {
        *self.word.lock() = None;
        self.amiss.store(false, Ordering::Release);
    }
}

/// What the kernel takes a length to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Length(u64),
    /// That is not known.
    Nothing,
    /// It may have left aside what it was told.
    Unsurely,
}

impl Vfs {
    /// Notes what the kernel is about to be told of an inode.
    pub fn note_told(&self, stat: &Stat) {
        if stat.kind != FileKind::File {
            return;
        }
        // What is told by a former face is another inode's.
        let inode = self.inodes.peek(self.namespace.real(stat.node));
        if let Some(inode) = inode.filter(|inode| self.namespace.shown(inode.id) == stat.node) {
            inode.told_length.note_word(stat.size);
        }
    }

    /// What the kernel, which is about to open it and has maybe followed the path `again`, takes a file's length to be; where
    /// that is not remembered, what was known last.
    pub(crate) fn told_length(&self, inode: &Inode, again: Option<Again>) -> Told {
        let word = *inode.told_length.word.lock();
        let Some(Word { length, told }) = word else {
            return inode.record.read().attributes.size.exact().map_or(Told::Nothing, Told::Length);
        };
        let quiet_since =
            again.filter(|again| told.is_some_and(|told| again.since <= told)).and_then(|again| again.quiet_since);
        let asked = told.map(|told| quiet_since.unwrap_or(told.checked_sub(ASKED_BEFORE_MAX).unwrap_or(told)));
        match asked.is_some_and(|asked| self.notices.has_told(self.namespace.shown(inode.id), asked)) {
            true => Told::Unsurely,
            false => {
                inode.told_length.settle();
                Told::Length(length)
            }
        }
    }

    /// What the kernel is to be told, so that what somebody appends who has got a lock comes after all that the content of a file
    /// has. Where it cannot be told, that goes there whatever the kernel takes for the end.
    pub(crate) async fn length_to_tell(
        self: &Arc<Self>,
        call: &Call,
        inode: &Arc<Inode>,
        object: &Arc<Object>,
        faces: &[NodeId],
    ) -> Vec<Notice> {
        let Some(length) = object.length().filter(|_| self.is_open_to_be_written(inode)) else { return Vec::new() };
        let is_sure = !inode.told_length.is_amiss() && matches!(faces, [_]);
        let told = self.told_length(inode, None);
        if is_sure && told == Told::Length(length) {
            return Vec::new();
        }
        let last = match length.checked_sub(1) {
            Some(at) => self.byte_at(call, inode, object, at).await,
            None => None,
        };
        match (told, last) {
            (Told::Length(told), Some(_)) if is_sure && told < length => inode.told_length.note(length),
            _ => inode.told_length.go_amiss(),
        }
        let grown = |last| faces.iter().map(move |node| Notice::Grown { node: *node, length, last });
        last.into_iter().flat_map(grown).collect()
    }

    /// Has the kernel told that what is opened past its pages is as long as it is, before that is answered: what it sends or copies
    /// by itself it counts by the length that it has, whatever the pages. Not where a former version is read by that length, and
    /// not for longer than a moment. That it is shorter than it was `told` cannot be told.
    pub(crate) async fn tell_growth(self: &Arc<Self>, call: &Call, inode: &Arc<Inode>, handle: &Handle, told: Told) {
        let held = handle.content.lock().clone();
        let Held::Object(object) = held else { return };
        let is_alone = self.handles.of(inode).iter().all(|other| other.counted() == handle.counted());
        let has_grown = |length: &u64| match told {
            Told::Length(told) => *length > told,
            Told::Nothing | Told::Unsurely => *length > 0,
        };
        let Some(length) = object.length().filter(|length| is_alone && has_grown(length)) else { return };
        let tell = async {
            let Some(last) = self.byte_at(call, inode, &object, length - 1).await else { return };
            let node = self.namespace.shown(inode.id);
            self.notices.tell(vec![Notice::Content { node }, Notice::Grown { node, length, last }]).await;
        };
        if tokio::time::timeout(TELL_PATIENCE, tell).await.is_err() {
            tracing::debug!(node = inode.id.0, "the kernel could not be told in time how long a file has become");
        }
    }

    async fn byte_at(self: &Arc<Self>, call: &Call, inode: &Arc<Inode>, object: &Arc<Object>, at: u64) -> Option<u8> {
        let handle = Arc::new(Handle::new(inode.clone(), Held::Object(object.clone()), object.generation()));
        let read = async { self.read_object(call, &handle, object, at, 1).await?.into_bytes() };
        let read =
            read.await.inspect_err(|error| tracing::debug!(%error, node = inode.id.0, "how a file ends is not known"));
        read.ok()?.first().copied()
    }

    pub(crate) fn is_open_to_be_written(&self, inode: &Inode) -> bool {
        self.handles.of(inode).iter().any(|handle| handle.writing)
    }

    /// Whether an open file may be of another length than the kernel takes it to be. What is written here is as long as it
    /// takes it to be, for it was written by it.
    pub(crate) fn is_length_untold(&self, handle: &Handle, told: Told) -> bool {
        let is_other = match (told, handle.length()) {
            (Told::Length(told), Some(length)) => told != length,
            (Told::Unsurely, Some(_)) => true,
            (Told::Nothing, _) | (_, None) => false,
        };
        is_other && handle.draft().is_none() && !handle.inode.is_gone()
    }
}

/// How long before it is answered the kernel has asked, at most.
const ASKED_BEFORE_MAX: Duration = Duration::from_secs(1);
/// How long an open waits for the kernel to be told of a length.
const TELL_PATIENCE: Duration = Duration::from_millis(100);
