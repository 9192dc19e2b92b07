//! One use of a file is one question.
//!
//! A program that looks a file up, stats it, opens it and stats it again uses it once. Where a source offers no
//! validator each of these would fetch the whole file anew, so what came for the first of them serves the others: for
//! the same thread of the same program, for a short time, and for one open.

use std::time::{Duration, Instant};

use weft_remote::{Call, Version};

use crate::inode::Inode;

/// For whom content without a validator came last.
pub(crate) struct SameUse {
    pid: u32,
    at: Instant,
    opened: bool,
}

impl Inode {
    /// Content came for this call.
    pub(crate) fn came_for(&self, call: &Call) {
        self.content.lock().same_use = Some(SameUse { pid: call.caller.pid, at: Instant::now(), opened: false });
    }

    /// What came for this call came for an open: the next one is another use.
    pub(crate) fn opened_for(&self, call: &Call) {
        let mut content = self.content.lock();
        if let Some(same) = content.same_use.as_mut().filter(|same| same.covers(call)) {
            same.opened = true;
        }
    }

    /// Whether what is known came just now for the same use, and cannot be confirmed but by fetching it again.
    pub(crate) fn is_same_use(&self, call: &Call) -> bool {
        let unconfirmable = self.record.read().version == Version::None;
        unconfirmable && self.content.lock().same_use.as_ref().is_some_and(|same| same.covers(call))
    }

    /// The same for an open, of which a use has one.
    pub(crate) fn opens_same_use(&self, call: &Call) -> bool {
        if !self.is_same_use(call) {
            return false;
        }
        let mut content = self.content.lock();
        content.same_use.as_mut().is_some_and(|same| !std::mem::replace(&mut same.opened, true))
    }
}

impl SameUse {
    fn covers(&self, call: &Call) -> bool {
        // The daemon's own calls, such as `weft reload`, are no use of a file.
        self.pid != 0 && self.pid == call.caller.pid && self.at.elapsed() < SAME_USE_TIME
    }
}

/// Longest time between the first and the last question of one use.
const SAME_USE_TIME: Duration = Duration::from_secs(2);
