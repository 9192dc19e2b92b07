//! One use of a file is one question.
//!
//! A program that looks a file up, stats it, opens it and stats it again uses it once. Where a source offers no
//! validator each of these would fetch the whole file anew, so what came for the first of them serves the others: for
//! the same thread of the same program, for a short time, and for one open. Where it offers one, each of these would be a
//! question of its own when the answer is trusted for one use alone, and the kernel has one more, before each open: so what was
//! said of the file a moment ago serves looks, one open, and looks at what is open. And who has had a directory listed is
//! shown by that list what is in it.

use std::time::{Duration, Instant, SystemTime};

use weft_remote::{Call, Version};

use crate::Result;
use crate::freshness::Freshness;
use crate::inode::{Current, Inode};
use crate::vfs::Vfs;

/// For whom an answer about a file, or a directory's list, came last.
pub(crate) struct SameUse {
    pid: u32,
    at: Instant,
    opened: bool,
    /// The object that the answer has confirmed or brought.
    confirmed: Option<u64>,
}

impl Inode {
    /// An answer, with content or a list perhaps, came for this call.
    pub(crate) fn came_for(&self, call: &Call) {
        let (pid, at) = (call.caller.pid, Instant::now());
        self.content.lock().same_use = Some(SameUse { pid, at, opened: false, confirmed: None });
    }

    /// The same, and what opens get now is what the source has, by that answer.
    pub(crate) fn confirmed_for(&self, call: &Call) {
        self.came_for(call);
        let mut content = self.content.lock();
        let confirmed = content.current.as_ref().map(|current| current.object.generation());
        if let Some(same) = &mut content.same_use {
            same.confirmed = confirmed;
        }
    }

    /// What came for this call came for an open: the next one is another use.
    pub(crate) fn opened_for(&self, call: &Call) {
        let mut content = self.content.lock();
        if let Some(same) = content.same_use.as_mut().filter(|same| same.covers(call, SAME_USE_TIME)) {
            same.opened = true;
        }
    }

    /// Whether what is known came just now for the same use, and cannot be confirmed but by fetching it again.
    pub(crate) fn is_same_use(&self, call: &Call) -> bool {
        let unconfirmable = self.record.read().version == Version::None;
        unconfirmable && self.came_within(call, SAME_USE_TIME)
    }

    /// The same for an open, of which a use has one.
    pub(crate) fn opens_same_use(&self, call: &Call) -> bool {
        self.is_same_use(call) && self.is_first_open(call)
    }

    /// Whether an answer came for this thread so short a time ago.
    fn came_within(&self, call: &Call, time: Duration) -> bool {
        self.content.lock().same_use.as_ref().is_some_and(|same| same.covers(call, time))
    }

    fn is_first_open(&self, call: &Call) -> bool {
        let mut content = self.content.lock();
        let same = content.same_use.as_mut().filter(|same| same.covers(call, SAME_USE_TIME));
        same.is_some_and(|same| !std::mem::replace(&mut same.opened, true))
    }

    /// Whether this thread was answered just now, and has not opened and closed the file since.
    fn is_looked_at(&self, call: &Call) -> bool {
        let content = self.content.lock();
        let is_going_on = |same: &SameUse| !same.opened || !content.is_closed();
        content.same_use.as_ref().is_some_and(|same| same.covers(call, JUST_NOW) && is_going_on(same))
    }
}

impl Vfs {
    /// Whether content with a validator was said to be right just now, for this use, of which it is the open.
    pub(crate) fn opens_confirmed(&self, call: &Call, inode: &Inode, current: &Current) -> bool {
        let generation = Some(current.object.generation());
        let is_confirmed = {
            let content = inode.content.lock();
            let is_it = |same: &SameUse| same.confirmed == generation && same.covers(call, JUST_NOW);
            content.same_use.as_ref().is_some_and(is_it)
        };
        let is_doubted = [current.checked, inode.record.read().learnt].contains(&SystemTime::UNIX_EPOCH);
        is_confirmed && !is_doubted && self.takes_moments(inode) && inode.is_first_open(call)
    }

    /// Whether what is known of a file came just now, for the same use as this look at it.
    pub(crate) fn was_told_just_now(&self, call: &Call, inode: &Inode) -> Result<bool> {
        if inode.is_same_use(call) {
            return Ok(true);
        }
        let record = inode.record();
        if !self.takes_moments(inode) || record.learnt == SystemTime::UNIX_EPOCH {
            return Ok(false);
        }
        if inode.is_looked_at(call) {
            return Ok(true);
        }
        let dir = self.inodes.peek(record.parent);
        if !dir.is_some_and(|dir| dir.came_within(call, SAME_USE_TIME)) {
            return Ok(false);
        }
        let listing = self.described(&record, inode.id)?;
        Ok(listing.is_some_and(|listing| listing.learnt != SystemTime::UNIX_EPOCH))
    }

    /// Whether moments count for nothing: not where the user wants each question asked, nor where sources tell of changes.
    fn takes_moments(&self, inode: &Inode) -> bool {
        let asks_always = inode.freshness == Freshness::Always || inode.shows_newest();
        !asks_always && !self.is_breakable(inode.record.read().binding)
    }
}

impl SameUse {
    fn covers(&self, call: &Call, time: Duration) -> bool {
        // The daemon's own calls, such as `weft reload`, are no use of a file.
        self.pid != 0 && self.pid == call.caller.pid && self.at.elapsed() < time
    }
}

/// Longest time between the first and the last question of one use.
const SAME_USE_TIME: Duration = Duration::from_secs(2);
/// The same where asking again costs little: as long as a program takes from a look at a file to its open.
const JUST_NOW: Duration = Duration::from_millis(250);
