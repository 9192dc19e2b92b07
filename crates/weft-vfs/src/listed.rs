//! Which answer about the names of a directory was asked for last. Several may be on their way at once: lists that
//! come along with other answers, look-ups of names, words that a file is gone. Whichever comes last, the one that was
//! asked for last says what is there.

use std::time::SystemTime;

use parking_lot::Mutex;
use weft_remote::{Name, clock};
use weft_store::{DentryRecord, DentryTarget, NodeId};

use crate::Result;
use crate::vfs::Vfs;

/// When the newest list of a directory was asked for, of those that came or are coming. Forgotten with its inode: whoever
/// waits for an answer holds that.
#[derive(Debug, Default)]
pub(crate) struct Listed(Mutex<Option<SystemTime>>);

impl Listed {
    /// A list begins to come, or was confirmed. Returns whether it is the newest.
    pub(crate) fn take(&self, asked: SystemTime) -> bool {
        let mut newest = self.0.lock();
        let is_newest = !is_after(*newest, asked);
        if is_newest {
            *newest = Some(asked);
        }
        is_newest
    }

    /// Whether a list came, or is coming, that was asked for after `asked`.
    pub(crate) fn is_after(&self, asked: SystemTime) -> bool {
        is_after(*self.0.lock(), asked)
    }
}

/// A time that is still to come is of before the clock was set back, and says nothing.
fn is_after(newest: Option<SystemTime>, asked: SystemTime) -> bool {
    newest.is_some_and(|newest| newest > asked && newest <= clock::now())
}

impl Vfs {
    /// Whether a directory was listed since `asked`.
    pub(crate) fn listed_since(&self, dir: NodeId, asked: SystemTime) -> bool {
        self.inodes.peek(dir).is_some_and(|dir| dir.listed.is_after(asked))
    }

    /// Whether it was, with a name of which this is known.
    pub(crate) fn is_listed_since(&self, dir: NodeId, known: Option<&DentryRecord>, asked: SystemTime) -> bool {
        let is_listed = |known: &DentryRecord| known.target != DentryTarget::Absent && known.is_by_list();
        known.is_some_and(is_listed) && self.listed_since(dir, asked)
    }

    /// Whether it was listed since `asked` by a list that leaves this name out for good.
    pub(crate) fn denied_since(&self, dir: NodeId, name: &Name, asked: SystemTime) -> Result<bool> {
        if !self.listed_since(dir, asked) {
            return Ok(false);
        }
        Ok(self.store.listing(dir)?.is_some_and(|listing| listing.completeness.denies(name)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Goal: of two lists the one that was asked for later counts, in whichever order they come; a clock that was set
    /// back does not make all that follow old ones.
    #[test]
    fn the_list_that_was_asked_for_last_counts() {
        let (newest, now) = (Listed::default(), SystemTime::now());
        let second = Duration::from_secs(1);
        assert!(newest.take(now - 2 * second) && newest.take(now - second));
        assert!(!newest.take(now - 2 * second) && newest.is_after(now - 2 * second));
        assert!(newest.take(now - second), "the same, confirmed");
        assert!(newest.take(now + 1000 * second));
        assert!(!newest.is_after(now) && newest.take(now), "the clock was set back");
    }
}
