//! Whether what the kernel has to tell of changes is taken in, and waiting until it is.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::watches::Watches;

impl Watches {
    /// Whether all that the kernel had to tell up to now is told and heard. (It has it to be read before a change returns:
    /// fsnotify() of Linux fs/notify/fsnotify.c.)
    pub fn have_told_all(&self) -> bool {
        self.have_taken_in_all() && self.news.is_heard()
    }

    /// Whether all that the kernel had to tell up to now is told.
    fn have_taken_in_all(&self) -> bool {
        let Some(inotify) = &self.inotify else { return true };
        // In this order: what is no longer there to be read is being taken in since before that, or is told.
        rustix::io::ioctl_fionread(inotify).is_ok_and(|bytes| bytes == 0) && !self.hearing.load(Ordering::SeqCst)
    }

    /// Returns when [`Watches::have_told_all`] was so.
    pub async fn all_told(&self) {
        let mut taken_in = self.taken_in.subscribe();
        while !self.have_taken_in_all() {
            // The sender is ours: it is there.
            let _ = taken_in.changed().await;
        }
        self.news.all_heard().await;
    }

    /// Waits until all that the kernel had to tell up to now is taken in; not for ever. Whether it is. Not on the thread that
    /// takes it in.
    pub fn wait_taken_in(&self) -> bool {
        if self.have_taken_in_all() {
            return true;
        }
        let (nothing, taken_in) = &self.taking;
        let end = Instant::now() + TAKEN_IN_PATIENCE;
        // What is being read may have been read to its end before this; what is read after that has all of it.
        let all = *self.taken_in.borrow() + 2;
        let mut nothing = nothing.lock();
        loop {
            if self.have_taken_in_all() || *self.taken_in.borrow() >= all {
                return true;
            }
            if taken_in.wait_until(&mut nothing, end).timed_out() {
                return false;
            }
        }
    }
}

/// How long somebody who is no task waits for that: longer than it takes where many things are done at once.
const TAKEN_IN_PATIENCE: Duration = Duration::from_secs(1);
