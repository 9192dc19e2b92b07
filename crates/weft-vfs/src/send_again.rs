//! Trying again by itself what could not be sent for a reason that may pass: a full disk, a source that is away.
//!
//! One task for the whole file system sleeps until something is left over, and then tries with growing pauses until
//! nothing is left over any more. What the source refuses for good, as a file that it has in another version, is left to
//! people; so is what is open for writing, which is sent when it is closed.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use crate::VfsError;
use crate::inode::Inode;
use crate::vfs::Vfs;

impl Vfs {
    /// Starts the task. It ends with the file system, at the latest when the runtime does.
    pub(crate) fn send_again(self: &Arc<Self>) {
        let (vfs, left_over) = (Arc::downgrade(self), self.left_over.clone());
        self.runtime.spawn(async move {
            while vfs.strong_count() > 0 {
                left_over.notified().await;
                let mut pause = PAUSE_MIN;
                loop {
                    if tokio::time::timeout(pause, left_over.notified()).await.is_ok() {
                        // Something else is left over, maybe of another source.
                        pause = PAUSE_MIN;
                        continue;
                    }
                    let Some(vfs) = vfs.upgrade().filter(|vfs| !vfs.ending.has_begun()) else { return };
                    if vfs.send_left_over().await == 0 {
                        break;
                    }
                    pause = longer(pause);
                }
            }
        });
    }

    /// Something could not be sent, for this reason.
    pub(crate) fn tell_left_over(&self, error: &VfsError) {
        if error.may_pass() {
            self.left_over.notify_one();
        }
    }

    /// Tries each that is left over once; returns how many are then.
    async fn send_left_over(self: &Arc<Self>) -> usize {
        let mut silent = HashSet::new();
        let inodes: Vec<_> = self.drafts.lock().values().cloned().collect();
        for inode in inodes.iter().filter(|inode| self.is_left_over(inode)) {
            let binding = inode.record.read().binding;
            if silent.contains(&binding) {
                continue;
            }
            let _gate = inode.gate.lock().await;
            let outcome = match self.send_for_writer(inode).await {
                Ok(()) => self.retire(inode).await,
                failed => failed,
            };
            if outcome.is_err_and(|error| error.is_silence()) {
                // Each of its files would wait as long.
                silent.insert(binding);
            }
        }
        inodes.iter().filter(|inode| self.is_left_over(inode)).count()
    }

    fn is_left_over(&self, inode: &Inode) -> bool {
        let failed = inode.draft().filter(|draft| draft.dirty.is_unsent()).and_then(|draft| draft.failed());
        failed.is_some_and(|failed| failed.may_pass) && !self.is_open_for_writing(inode)
    }
}

fn longer(pause: Duration) -> Duration {
    (pause * 2).min(PAUSE_MAX)
}

/// Before the first try.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Between two tries at most.
const PAUSE_MAX: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_bound() {
        let pauses: Vec<_> = std::iter::successors(Some(PAUSE_MIN), |pause| Some(longer(*pause))).take(12).collect();
        assert_eq!(pauses[..3].iter().map(Duration::as_secs).collect::<Vec<_>>(), [1, 2, 4]);
        assert_eq!(pauses[11], PAUSE_MAX);
    }
}
