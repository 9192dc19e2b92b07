//! Opening a version of a file beside another that is as long, and is open by the same face ([`crate::faces`]).
//!
//! The kernel has one set of pages by a face. What it is told to keep no pages of is read past them by read(2) alone: what is
//! mapped privately, and what is copied or sent within the kernel, goes by those pages all the same (fuse_file_mmap() and
//! fuse_splice_read() of Linux fs/fuse/file.c), and leaves its own there for whoever reads the other version. So another version
//! is opened by the other face, and where both are in use the oldest version ends.
//!
//! What came without a validator may be what is open, fetched again. Then the two are compared, and who has the same open goes on
//! in the newer copy of it: it has the same pages. What is too long for that, or does not come to its end in time, is opened by
//! the other face while that is free, ends nobody, and is read past the pages otherwise.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_remote::{Call, Sameness, Version};
use weft_store::Object;

use crate::Result;
use crate::handle::{Handle, Held};
use crate::inode::Inode;
use crate::vfs::Vfs;

/// Copies of a file that are open and of which nothing but their bytes tells whether they are what is about to be opened: the
/// generations of those that turned out to be something else.
#[derive(Default)]
pub(crate) struct Others(Vec<u64>);

impl Vfs {
    /// Holds what is about to be opened against what is open and may be the same, which then is that from now on.
    pub(crate) async fn compare_with_open(&self, call: &Call, inode: &Inode, object: &Arc<Object>) -> Others {
        let mut others = Others::default();
        if inode.shows_newest() || inode.is_gone() || !inode.content.lock().is_open_beside(object.generation()) {
            return others;
        }
        let length = object.length().filter(|length| *length <= COMPARED_BYTES_MAX);
        let copies = copies_of(&self.handles.of(inode), object);
        let Some(length) = length.filter(|_| !copies.is_empty()) else { return others };
        let soon = Call { deadline: call.deadline.min(Instant::now() + COMPARED_PATIENCE), ..*call };
        for copy in copies.iter().chain([object]) {
            if let Some(arrival) = inode.arrival(|arrival| Arc::ptr_eq(&arrival.object, copy)) {
                // What does not come is not compared.
                let _ = arrival.whole(&soon).await;
            }
        }
        for copy in copies.iter().filter(|copy| copy.is_complete() && object.is_complete()) {
            match are_same(copy, object, length) {
                Ok(true) => self.go_on_in(inode, copy, object),
                Ok(false) => others.0.push(copy.generation()),
                Err(error) => tracing::debug!(%error, node = inode.id.0, "two copies cannot be compared"),
            }
        }
        others
    }

    /// Has those who have a copy open go on in this one, which has the same bytes.
    fn go_on_in(&self, inode: &Inode, copy: &Object, object: &Arc<Object>) {
        let (length, mut turned) = (object.length().unwrap_or(0), Vec::new());
        let handles = self.handles.of(inode);
        let mut content = inode.content.lock();
        let is_it = |handle: &Handle| handle.counted() == copy.generation() && !handle.offered && !handle.writing;
        for handle in handles.iter().filter(|handle| is_it(handle)) {
            handle.turn_to(&mut content, object);
        }
        if content.pages_of == Some(copy.generation()) {
            content.pages_of = Some(object.generation());
        }
        drop(content);
        self.handles.each_of(inode, |id, handle| {
            if handle.counted() == object.generation() {
                turned.push((id, handle.record_of((object.version(), length), object.generation())));
            }
        });
        self.tell_handles_turned(&turned);
    }

    /// Has an object that is about to be opened opened by the other face, where another version as long is open by this one:
    /// each has pages of its own then, and may be mapped. Of what the kernel reads by itself no second copy can be opened.
    pub(crate) fn part_from_readers(&self, inode: &Inode, object: &Object, others: &Others) {
        if inode.shows_newest() || inode.is_gone() {
            return;
        }
        let handles = self.handles.of(inode);
        let mut content = inode.content.lock();
        if !content.is_open_beside(object.generation()) {
            return;
        }
        let record = inode.record();
        let is_another = |handle: &Handle| {
            let is_differing = handle.sameness_of(object.version()) == Sameness::Different;
            is_differing || others.0.contains(&handle.counted())
        };
        let may_be_another = |handle: &Handle| {
            let is_other = handle.counted() != object.generation();
            is_other && (handle.offered || handle.sameness_of(object.version()) == Sameness::CannotTell)
        };
        // Only who is known to read something else makes the oldest end.
        let is_shown = |handle: &Handle| !handle.by_former() && !handle.is_over();
        let may_end = handles.iter().any(|handle| is_shown(handle) && is_another(handle));
        let is_other = |handle: &Handle| is_another(handle) || may_be_another(handle);
        let turned = self.turn_from(inode, &mut content, &handles, &record, (is_other, may_end));
        let has_version = *object.version() != Version::None;
        let has_ended = !turned && has_version && self.end_beside(inode, &mut content, &handles, object);
        drop(content);
        if turned {
            self.tell_turned(inode.id, &[&record]);
        }
        if has_ended {
            self.tell_ended(inode);
        }
    }
}

/// What is open, is as long as an object, and neither known to be the same nor to be another.
fn copies_of(handles: &[Arc<Handle>], object: &Object) -> Vec<Arc<Object>> {
    let mut copies: Vec<Arc<Object>> = Vec::new();
    for handle in handles.iter().filter(|handle| !handle.is_over()) {
        let Held::Object(held) = handle.content.lock().clone() else { continue };
        let is_unsure = held.version().compare(object.version()) == Sameness::CannotTell;
        let is_new = held.generation() != object.generation() && held.length() == object.length();
        if is_unsure && is_new && !copies.iter().any(|copy| copy.generation() == held.generation()) {
            copies.push(held);
        }
    }
    copies
}

fn are_same(one: &Object, other: &Object, length: u64) -> Result<bool> {
    let mut at = 0;
    while at < length {
        let piece = (length - at).min(PIECE_BYTES) as usize;
        let (ours, theirs) = (one.read(at, piece)?, other.read(at, piece)?);
        if ours != theirs || ours.len() != piece {
            return Ok(false);
        }
        at += piece as u64;
    }
    Ok(true)
}

/// Longest content that is compared while somebody waits for its open.
const COMPARED_BYTES_MAX: u64 = 4 << 20;
/// Longest wait for its end.
const COMPARED_PATIENCE: Duration = Duration::from_secs(2);
/// How much of it is looked at at once.
const PIECE_BYTES: u64 = 256 << 10;
