//! Threads that are lent to a request.
//!
//! Work that waits in the kernel is done beside the threads that ask for it, so that none of them waits. To hand it over and
//! to be woken when it is done costs more than most of it takes: a look at a name in a local directory is a few microseconds.
//! So where several threads do the same work, one of them at a time may be lent to what it does: it waits in the kernel
//! itself, and the others go on, with whatever comes meanwhile.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    /// What lends this thread to the work that it does now.
    static LENDER: Cell<Option<Arc<Lender>>> = const { Cell::new(None) };
}

/// Threads that do each other's work. At most one of them is lent at a time.
#[derive(Debug, Default)]
pub struct Lender {
    is_out: AtomicBool,
}

impl Lender {
    /// Does work that may borrow this thread.
    pub fn lend<T>(self: &Arc<Lender>, work: impl FnOnce() -> T) -> T {
        with(Some(self.clone()), work)
    }
}

/// Does work that may not borrow this thread, whoever lends it: others wait for what the thread does next.
pub fn unlent<T>(work: impl FnOnce() -> T) -> T {
    with(None, work)
}

/// Takes this thread for a system call that is short as a rule, for as long as what is given back lives. `None` where nobody
/// lends it, or another is lent already: then the call is to be made elsewhere.
pub fn borrow_thread() -> Option<Borrowed> {
    let lender = LENDER.take()?;
    LENDER.set(Some(lender.clone()));
    let is_free = lender.is_out.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    is_free.then(|| Borrowed { lender })
}

/// A thread that may wait in the kernel.
#[derive(Debug)]
#[must_use = "the thread is given back when this goes"]
pub struct Borrowed {
    lender: Arc<Lender>,
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        self.lender.is_out.store(false, Ordering::Release);
    }
}

fn with<T>(lender: Option<Arc<Lender>>, work: impl FnOnce() -> T) -> T {
    struct Former(Option<Arc<Lender>>);
    impl Drop for Former {
        fn drop(&mut self) {
            LENDER.set(self.0.take());
        }
    }
    let _former = Former(LENDER.replace(lender));
    work()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_is_lent_at_a_time_and_only_to_what_may_have_it() {
        assert!(borrow_thread().is_none(), "nobody lends it");
        let (lender, other) = (Arc::new(Lender::default()), Arc::new(Lender::default()));
        lender.lend(|| {
            let borrowed = borrow_thread();
            assert!(borrowed.is_some() && borrow_thread().is_none(), "it is out");
            let elsewhere = std::thread::scope(|threads| {
                let lend = || lender.lend(|| borrow_thread().is_some());
                threads.spawn(lend).join().expect("no panic")
            });
            assert!(!elsewhere, "another thread is");
            assert!(other.lend(|| borrow_thread().is_some()), "of others' threads one of their own");
            drop(borrowed);
            assert!(unlent(|| borrow_thread().is_none()));
            assert!(borrow_thread().is_some(), "it is back");
        });
        assert!(borrow_thread().is_none());
    }

    #[test]
    fn a_panic_gives_the_thread_back() {
        let lender = Arc::new(Lender::default());
        let panics = || {
            lender.lend(|| {
                let _borrowed = borrow_thread().expect("it is lent");
                panic!("on purpose")
            })
        };
        let caught: std::thread::Result<()> = std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics));
        assert!(caught.is_err() && borrow_thread().is_none());
        assert!(lender.lend(borrow_thread).is_some());
    }
}
