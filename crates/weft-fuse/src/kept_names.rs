//! Which names of directories the kernel keeps (`FOPEN_CACHE_DIR`).
//!
//! The kernel has one list of a directory's names, in pages of its inode, which whoever reads the directory fills in its
//! turn. So of those who have it open at a time only those may fill it, or read from it, who were told the same names: the
//! others ask here. It drops its list when the directory is opened without `FOPEN_KEEP_CACHE` (fuse_dir_open in
//! fs/fuse/dir.c), and by itself when the directory's time changes or names come or go by way of the mount
//! (fuse_readdir_cached in fs/fuse/readdir.c).

use std::collections::HashMap;
use std::time::{Duration, Instant};

use weft_vfs::{AsOf, NodeId};

/// The directories whose names the kernel keeps or is about to.
#[derive(Debug, Default)]
pub(crate) struct KeptNames(HashMap<NodeId, Kept>);

#[derive(Debug)]
struct Kept {
    /// What the kernel has, or gets from those who have it open, is as of this; `None` where that is not known.
    mark: Option<u64>,
    /// What was told along with the names holds until then. Later they are better told again, all at once.
    until: Instant,
    /// How many have it open and may fill the list.
    open: u32,
    /// Whether the list of before is dropped for sure: whoever opened it anew has the answer.
    dropped: bool,
    /// Whether some were told alone, without what they lead to.
    bare: bool,
    /// Whether the same names were so the time before as well: who reads them does not ask for more.
    bare_before: bool,
}

impl KeptNames {
    /// Counts one more who has a directory open and may read the kernel's list; false if that does not have these names.
    pub(crate) fn open_kept(&mut self, node: NodeId, mark: u64, now: Instant) -> bool {
        let kept = self.0.get_mut(&node).filter(|kept| kept.dropped && kept.mark == Some(mark) && now < kept.until);
        kept.filter(|kept| !kept.bare || kept.bare_before).map(|kept| kept.open += 1).is_some()
    }

    /// Counts one more who has a directory open and may fill the kernel's list, which is dropped before; false if others
    /// fill it, or it is not worth it. Nobody else reads the list before [`KeptNames::dropped`].
    pub(crate) fn open_anew(&mut self, node: NodeId, as_of: &AsOf, now: Instant) -> bool {
        if as_of.trusted.is_zero() || self.0.get(&node).is_some_and(|kept| kept.open > 0) {
            return false;
        }
        if self.0.len() >= DIRECTORIES_MAX {
            self.0.retain(|_, kept| kept.open > 0);
        }
        let until = now + as_of.trusted.min(KEPT_MAX);
        let before = self.0.get(&node).filter(|kept| kept.mark == Some(as_of.mark));
        let bare_before = before.is_some_and(|kept| kept.bare);
        let kept = Kept { mark: Some(as_of.mark), until, open: 1, dropped: false, bare: false, bare_before };
        self.0.insert(node, kept);
        true
    }

    /// Whether somebody has a directory open who may fill the kernel's list, or read it.
    pub(crate) fn is_open(&self, node: NodeId) -> bool {
        self.0.get(&node).is_some_and(|kept| kept.open > 0)
    }

    /// Some names are told alone to one that was counted. The kernel asks for more in the first of its reads, and in others
    /// when somebody has looked at what it was told by then (fuse_use_readdirplus in fs/fuse/readdir.c). From its list it
    /// has nothing but names, and whoever wants more of them then costs a lookup of each: so the next one is told them again.
    pub(crate) fn bare(&mut self, node: NodeId) {
        if let Some(kept) = self.0.get_mut(&node) {
            kept.bare = true;
        }
    }

    /// Who opened it anew goes on: the kernel has dropped its list.
    pub(crate) fn dropped(&mut self, node: NodeId) {
        if let Some(kept) = self.0.get_mut(&node) {
            kept.dropped = true;
        }
    }

    /// Counts one that a former daemon had open: it may fill the list with names that nobody knows any more.
    pub(crate) fn restore(&mut self, node: NodeId) {
        let unknown = || {
            let (mark, until) = (None, Instant::now());
            Kept { mark, until, open: 0, dropped: true, bare: false, bare_before: false }
        };
        let kept = self.0.entry(node).or_insert_with(unknown);
        kept.mark = None;
        kept.open += 1;
    }

    /// One of those that were counted was never told so: what the kernel has of the directory is not known.
    pub(crate) fn untold(&mut self, node: NodeId) {
        if let Some(kept) = self.0.get_mut(&node) {
            kept.mark = None;
        }
        self.close(node);
    }

    /// One of those that were counted is closed.
    pub(crate) fn close(&mut self, node: NodeId) {
        if let Some(kept) = self.0.get_mut(&node) {
            kept.open = kept.open.saturating_sub(1);
        }
    }
}

/// Longest time that names are kept: attributes that are told along with them last for twice of that at the most.
const KEPT_MAX: Duration = Duration::from_secs(1800);
/// How many directories are remembered; of those that are forgotten the kernel drops its list when they are opened again.
const DIRECTORIES_MAX: usize = 1 << 14;

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: NodeId = NodeId(7);

    fn as_of(mark: u64) -> AsOf {
        AsOf { mark, trusted: Duration::from_secs(10) }
    }

    #[test]
    fn the_same_names_are_kept_and_others_are_told_again() {
        let (mut kept, now) = (KeptNames::default(), Instant::now());
        assert!(!kept.open_kept(DIR, 1, now), "nothing was told yet");
        assert!(kept.open_anew(DIR, &as_of(1), now));
        assert!(!kept.open_kept(DIR, 1, now), "the kernel may have the list of before for another moment");
        kept.dropped(DIR);
        assert!(kept.open_kept(DIR, 1, now), "also while it is filled");
        kept.close(DIR);
        kept.close(DIR);
        assert!(!kept.open_kept(DIR, 2, now));
        assert!(kept.open_anew(DIR, &as_of(2), now));
        kept.dropped(DIR);
        kept.close(DIR);
        assert!(kept.open_kept(DIR, 2, now));
        kept.untold(DIR);
        assert!(!kept.open_kept(DIR, 2, now), "it is not known what the kernel made of that");
        assert!(kept.open_anew(DIR, &as_of(2), now));
        kept.dropped(DIR);
        kept.close(DIR);
        assert!(!kept.open_kept(DIR, 1, now), "names that it had before");
        assert!(!kept.open_kept(DIR, 2, now + Duration::from_secs(10)), "what came with them has ended");
    }

    #[test]
    fn names_that_were_told_alone_are_told_once_more() {
        let (mut kept, now) = (KeptNames::default(), Instant::now());
        let read = |kept: &mut KeptNames, mark, bare: bool| {
            assert!(!kept.open_kept(DIR, mark, now) && kept.open_anew(DIR, &as_of(mark), now));
            kept.dropped(DIR);
            if bare {
                kept.bare(DIR);
            }
            kept.close(DIR);
        };
        read(&mut kept, 1, true);
        read(&mut kept, 1, false);
        assert!(kept.open_kept(DIR, 1, now), "the second time all was told");
        kept.close(DIR);
        read(&mut kept, 2, true);
        read(&mut kept, 2, true);
        assert!(kept.open_kept(DIR, 2, now), "nobody asks for more");
        kept.close(DIR);
        read(&mut kept, 3, true);
        assert!(!kept.open_kept(DIR, 3, now), "of other names somebody may");
    }

    #[test]
    fn who_has_other_names_does_not_fill_the_list_of_those_who_have_it_open() {
        let (mut kept, now) = (KeptNames::default(), Instant::now());
        assert!(kept.open_anew(DIR, &as_of(1), now));
        assert!(!kept.open_anew(DIR, &as_of(2), now));
        assert!(!kept.open_kept(DIR, 2, now), "the first may fill it with the old ones");
        kept.close(DIR);
        assert!(kept.open_anew(DIR, &as_of(2), now));
    }

    #[test]
    fn what_a_former_daemon_had_open_may_fill_the_list_with_anything() {
        let (mut kept, now) = (KeptNames::default(), Instant::now());
        kept.restore(DIR);
        assert!(!kept.open_anew(DIR, &as_of(1), now));
        kept.close(DIR);
        assert!(kept.open_anew(DIR, &as_of(1), now));
        kept.dropped(DIR);
        assert!(kept.open_kept(DIR, 1, now));
    }

    #[test]
    fn what_is_not_trusted_is_not_kept_and_not_everything_is_remembered() {
        let (mut kept, now) = (KeptNames::default(), Instant::now());
        assert!(!kept.open_anew(DIR, &AsOf { mark: 1, trusted: Duration::ZERO }, now));
        assert!(kept.open_anew(DIR, &as_of(1), now));
        kept.dropped(DIR);
        for number in 0..2 * DIRECTORIES_MAX as u64 {
            assert!(kept.open_anew(NodeId(100 + number), &as_of(1), now));
            kept.close(NodeId(100 + number));
        }
        assert!(kept.0.len() <= DIRECTORIES_MAX + 1);
        assert!(kept.open_kept(DIR, 1, now), "one that is open stays");
    }
}
