//! Threads that are no queue's.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::sys::{self, Policy};

/// How threads run that serve no ring. A thread inherits this from whoever starts it, and the thread of a ring's queue is
/// kept on one processor and may be one of `SCHED_BATCH`: what it starts is to begin with [`OrdinaryThread::begin`].
#[derive(Clone, Copy, Debug)]
pub struct OrdinaryThread {
    cpus: Option<CpuSet>,
    is_other: bool,
}

impl OrdinaryThread {
    /// As the calling thread runs.
    pub fn like_this() -> OrdinaryThread {
        OrdinaryThread { cpus: sched_getaffinity(None).ok(), is_other: matches!(sys::policy(), Ok(Policy::Other)) }
    }

    /// The calling thread runs so from now on, as far as the system allows it.
    pub fn begin(&self) {
        if let Some(cpus) = &self.cpus {
            let _ = sched_setaffinity(None, cpus);
        }
        if self.is_other && matches!(sys::policy(), Ok(Policy::Batch)) {
            let _ = sys::set_policy(Policy::Other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_thread_of_a_queue_starts_is_ordinary() {
        let ordinary = OrdinaryThread::like_this();
        let (before, cpus) = (sys::policy().unwrap(), sched_getaffinity(None).unwrap());
        let first = (0..CpuSet::MAX_CPU).find(|cpu| cpus.is_set(*cpu)).unwrap();
        std::thread::spawn(move || {
            let mut one = CpuSet::new();
            one.set(first);
            sched_setaffinity(None, &one).unwrap();
            sys::set_policy(Policy::Batch).unwrap();
            let begun = std::thread::spawn(move || {
                assert_eq!(sys::policy().unwrap(), Policy::Batch, "it is inherited");
                ordinary.begin();
                (sys::policy().unwrap(), sched_getaffinity(None).unwrap())
            });
            assert!(begun.join().unwrap() == (before, cpus));
        })
        .join()
        .unwrap();
    }
}
