//! The task that brings a body into the store.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::runtime::RuntimeFlavor;
use weft_remote::{FileKind, Piece, RemoteError, Version};
use weft_store::{Affinity, NodeId, PIECE_BYTES, Writer};

use super::{Arrival, Delivery, State};
use crate::ending::UnderWay;
use crate::figures::add;
use crate::inode::Inode;
use crate::learn::Told;
use crate::listing::ListingMerge;
use crate::room::Room;
use crate::vfs::Vfs;
use crate::{Result, VfsError};

/// The task behind an arrival.
pub(super) struct Pump {
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
    /// The first piece that was missing from where it begins.
    missing_at_first: Option<u64>,
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
    pub(super) fn new(vfs: Arc<Vfs>, arrival: Arc<Arrival>, delivery: Delivery, room: Room, whole: bool) -> Pump {
        let named = delivery.lists.is_none();
        let inode = vfs.inode(delivery.node).ok();
        let keeps_part = !whole || delivery.body.resumable && delivery.lists.is_none();
        let under_way = keeps_part.then(|| vfs.ending.body());
        let links = vec![delivery.node];
        let missing_at_first = arrival.object.missing_from(arrival.start);
        Pump { vfs, arrival, delivery, inode, room, listing: None, under_way, whole, missing_at_first, named, links }
    }

    pub(super) async fn run(mut self, mut writer: Writer) {
        let outcome = match self.pump(&mut writer).await {
            Ok(Ended::AllCame) => self.complete(writer),
            Ok(Ended::NobodyWants) => {
                drop(writer);
                self.keep_part().map(|()| State::Stopped)
            }
            Err(error) => {
                drop(writer);
                match self.can_be_gone_on_with(&error) {
                    true => {
                        tracing::debug!(%error, node = self.delivery.node.0, "the rest is left to another body");
                        self.keep_part().map(|()| State::Stopped)
                    }
                    false => Err(error),
                }
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
        if self.brings_nothing() {
            return Ok(Ended::NobodyWants);
        }
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
                    self.append(writer, &bytes)?;
                    add(&self.vfs.figures.bytes_received, bytes.len() as u64);
                    self.arrival.advance(bytes.len() as u64);
                }
                Some(Ok(Piece::Known(known))) => self.learn(known)?,
            }
        }
    }

    /// Whether others have brought all of a range while it was asked for.
    fn brings_nothing(&self) -> bool {
        !self.whole && self.missing_at_first.is_none_or(|first| first >= self.arrival.until())
    }

    /// Puts bytes into the store. Many of them take long enough for what waits behind this task, above all the next bytes of
    /// the same body, to be better off on another thread.
    fn append(&self, writer: &mut Writer, bytes: &[u8]) -> Result<()> {
        let elsewhere = self.vfs.runtime.runtime_flavor() == RuntimeFlavor::MultiThread;
        match elsewhere && bytes.len() >= LONG_APPEND_BYTES {
            true => tokio::task::block_in_place(|| writer.append(bytes))?,
            false => writer.append(bytes)?,
        }
        Ok(())
    }

    /// A body that does not say how long it is might never end.
    fn check_bound(&self, more: usize) -> Result<()> {
        let position = self.arrival.position.load(Ordering::SeqCst);
        match self.delivery.body.file_length {
            Some(_) => Ok(()),
            None => refuse_unending(position + more as u64, || self.vfs.path_text(self.delivery.node)),
        }
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
            let node = self.vfs.identify(binding, &entry.id)?;
            if entry.attributes.kind != FileKind::Directory && !self.links.contains(&node) {
                self.links.push(node);
            }
        }
        // What the body tells on its way is as old as its beginning.
        let told = Told::asked_at(&known.page, self.delivery.asked);
        match &self.delivery.lists {
            Some((dir, node)) if *dir == known.dir => {
                let merge = self.listing.get_or_insert_with(|| self.vfs.begin_listing(*node, binding, told));
                self.vfs.learn_page(merge, known.page.value)
            }
            _ => self.vfs.learn_linked(binding, &known.dir, known.page.value, told),
        }
    }

    fn complete(&mut self, writer: Writer) -> Result<State> {
        let node = self.delivery.node;
        let object = self.arrival.object.clone();
        writer.finish()?;
        if self.whole && !object.is_complete() {
            // All has come; a piece that another range had begun is left to that, and not whole yet.
            if object.length() == Some(self.arrival.reached()) {
                return self.keep_part().map(|()| State::Stopped);
            }
            let detail = format!("{}: the body ended too early", self.vfs.path_text(node));
            return Err(RemoteError::Damaged { detail }.into());
        }
        // Whoever reads the list may open the page at once: it is there by then, if it can be.
        let kept = self.keep_whole();
        if let Some(merge) = self.listing.take() {
            self.vfs.finish_listing(merge)?;
        }
        if kept? && let Some(length) = object.length() {
            self.vfs.learn_length_of(node, &object, length)?;
        }
        Ok(State::Done)
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
        self.record_whole()
    }

    /// Has an object recorded that began with this body; whether it is, and was not given up for something newer meanwhile.
    fn record_whole(&self) -> Result<bool> {
        let object = &self.arrival.object;
        if !self.is_outdated() {
            object.commit()?;
            // What came in between may have found nothing to give up.
            if !self.is_outdated() {
                return Ok(true);
            }
            object.revoke()?;
        }
        self.withdraw();
        Ok(false)
    }

    /// Whether opens of the file got something newer than what this body brings, or were about to.
    fn is_outdated(&self) -> bool {
        let inode = self.vfs.inodes.get(self.delivery.node);
        inode.is_some_and(|inode| self.arrival.object.generation() < inode.content.lock().outdated_before)
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
    fn keep_part(&self) -> Result<()> {
        let object = &self.arrival.object;
        if !self.whole {
            return self.record_range();
        }
        // The beginning that a look brought does not take the place of a whole content.
        let is_of_use = self.arrival.is_wanted() || !self.vfs.is_superseded(self.delivery.node)?;
        if self.delivery.body.resumable && object.length().is_some() && is_of_use {
            self.record_whole()?;
        } else {
            self.withdraw();
        }
        Ok(())
    }

    /// Whether a body that ends with this error brought enough for the rest to be fetched from there. One that broke off and
    /// brought less ends whoever waits for it: so there is an end to a source whose bodies all break off.
    fn can_be_gone_on_with(&self, error: &VfsError) -> bool {
        let object = &self.arrival.object;
        let brought_enough = || {
            let (Some(length), Some(first)) = (object.length(), self.missing_at_first) else { return false };
            object.missing_from(self.arrival.start).unwrap_or(length) >= first + PIECE_BYTES
        };
        let is_cut = match error {
            // Its source gives the rest as soon as it is asked.
            VfsError::Remote(RemoteError::GaveWay { .. }) => true,
            VfsError::TimedOut | VfsError::Remote(RemoteError::CutShort { .. } | RemoteError::TimedOut { .. }) => {
                brought_enough()
            }
            _ => false,
        };
        is_cut && self.delivery.body.resumable && self.delivery.lists.is_none()
    }

    fn fail(&self, error: &VfsError) {
        // First: who reads it learns by what follows that it is spoilt, and the next open is to get another.
        match self.spoils(error) {
            true => self.spoil(error),
            false => self.withdraw_whole(),
        }
        let ahead = self.inode.as_ref().and_then(|inode| inode.content.lock().ahead.take());
        let is_changed = matches!(error, VfsError::Remote(RemoteError::VersionChanged { .. }));
        // If it is not, whoever sends is told so, and so is whoever reads.
        let is_ours = is_changed && self.inode.as_ref().is_some_and(|inode| self.is_replaced_from_here(inode));
        if ahead.is_some() {
            tracing::debug!(%error, "what was fetched ahead did not come");
        } else if error.is_full() {
            if let Err(error) = self.vfs.make_way(self.delivery.node) {
                tracing::warn!(%error, "a superseded content was not given up");
            }
            self.vfs.tell_unstored(self.delivery.node, error);
        } else if is_ours {
            tracing::debug!(%error, "what is sent from here has taken the place of what was fetched");
        } else {
            let text = self.vfs.path_text(self.delivery.node);
            self.vfs.troubles.tell(text, format!("{error}; what came of it was not kept"));
        }
        if let Some(inode) = self.vfs.inodes.get(self.delivery.node) {
            if !is_ours {
                inode.note_error(error);
            }
            if !self.whole && is_changed && !is_ours {
                let _ = self.vfs.changed_under(&inode);
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
    }

    /// Whether what is sent from here takes the place of what comes, or has: also where all of it is closed by now.
    fn is_replaced_from_here(&self, inode: &Inode) -> bool {
        let version = self.arrival.object.version();
        let by_draft = inode.draft().is_some_and(|draft| draft.may_have_replaced(version));
        by_draft || inode.content.lock().was_replaced_here(version)
    }

    /// Whether what is missing of the object is missing for good. A range that broke off is asked for again: nothing of it
    /// is kept, and the rest has nothing to do with it.
    fn spoils(&self, error: &VfsError) -> bool {
        let broken = match error {
            VfsError::Remote(RemoteError::VersionChanged { .. }) => true,
            VfsError::Remote(RemoteError::CutShort { .. }) => self.whole || self.goes_over_what_is_held(),
            VfsError::Remote(RemoteError::Damaged { .. }) => self.whole,
            _ => false,
        };
        // Without a validator the rest can never be joined to what came.
        broken || *self.arrival.object.version() == Version::None
    }

    /// Whether it is of a source that says it has ranges, and begins at the beginning all the same.
    fn goes_over_what_is_held(&self) -> bool {
        self.arrival.start == 0 && self.missing_at_first != Some(0)
    }

    /// What is missing of the object will not come. Had anybody made it last meanwhile, every open would get it again: a
    /// range that was begun because this body brings no more, or a fetch that notes from time to time how far it is.
    fn spoil(&self, error: &VfsError) {
        let is_lost = self.whole || self.goes_over_what_is_held();
        if is_lost && let Err(error) = self.arrival.object.revoke() {
            tracing::warn!(%error, "a body that was not what it announced is still recorded");
        }
        let Some(inode) = self.vfs.inodes.get(self.delivery.node) else { return };
        let mut content = inode.content.lock();
        content.spoilt = Some((self.arrival.object.generation(), error.clone()));
        if is_lost {
            content.forget(&self.arrival.object);
        }
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
            inode.content.lock().forget(object);
        }
    }
}

/// Refuses a body that announces no length and has brought too many bytes.
///
/// # Errors
/// `Damaged`, of the file at this path.
pub(crate) fn refuse_unending(bytes: u64, path: impl FnOnce() -> String) -> Result<()> {
    if bytes <= UNANNOUNCED_BYTES_MAX {
        return Ok(());
    }
    let detail = format!("{}: a body of unannounced length passed {UNANNOUNCED_BYTES_MAX} bytes", path());
    Err(RemoteError::Damaged { detail }.into())
}

/// How far a body is let run ahead of the reader that wants it.
const AHEAD_BYTES: u64 = 8 << 20;
/// Shorter appends are not worth another thread.
const LONG_APPEND_BYTES: usize = 256 << 10;
/// Most bytes of a body that does not announce its length.
const UNANNOUNCED_BYTES_MAX: u64 = 4 << 30;
/// Files that a page refers to of which is remembered that they belong with it.
const LINKS_MAX: usize = 64;
/// How long a body that nobody reads on is held before it is dropped.
const IDLE_PATIENCE: Duration = Duration::from_secs(2);
