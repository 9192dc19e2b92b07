//! More requests at once than there are entries in a queue.

use std::process::{Child, Stdio};

use weft_fusedev::{RingLimits, Transport};

use super::served::{Mounted, check_bytes};
use super::{over_both, over_rings};

/// A process that reads a name that is never answered. (A thread of the server's own process would keep the device open
/// while it waits for an answer on it.)
pub fn waiter(mounted: &Mounted, number: usize) -> Child {
    let mut command = super::interrupts::interruptible("cat");
    command.arg(mounted.path(&format!("dead-{number}"))).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("a process")
}

/// Goal: with many times more requests waiting than the first entries of a queue, others are answered as ever, and each
/// that waits ends by itself or by a signal. Method: processes that read names that are never answered.
#[test]
fn many_that_wait_do_not_keep_others_from_being_answered() {
    over_both(|transport| {
        let mounted = Mounted::new(transport, RingLimits { entries: 64 });
        let mut waiters: Vec<_> = (0..40).map(|number| waiter(&mounted, number)).collect();
        mounted.memory.wait_for_waiting(40);
        check_bytes(&mounted.path("file"));
        assert!(std::fs::metadata(mounted.path("nothing")).is_err());

        for waiter in waiters.drain(..10) {
            interrupt(waiter);
        }
        assert_eq!(mounted.memory.interrupted(), 10);
        assert_eq!(mounted.memory.release(), 30);
        for mut waiter in waiters {
            assert_eq!(waiter.wait().expect("waited for").code(), Some(1), "the name is not there");
        }
        assert_eq!(mounted.serving().counts().rings_full, 0);
    });
}

/// Goal: a queue that may not grow goes on when one of those that hold it is answered, and none is lost.
#[test]
fn a_full_queue_goes_on_when_one_is_answered() {
    over_rings(|| {
        let mounted = Mounted::new(Transport::IoUring, RingLimits { entries: 2 });
        let waiters: Vec<_> = (0..12).map(|number| waiter(&mounted, number)).collect();
        let mut answered = 0;
        while answered < waiters.len() {
            mounted.memory.wait_for_waiting(1);
            answered += mounted.memory.release();
        }
        for mut waiter in waiters {
            assert_eq!(waiter.wait().expect("waited for").code(), Some(1));
        }
        check_bytes(&mounted.path("file"));
    });
}

fn interrupt(mut waiter: Child) {
    let pid = rustix::process::Pid::from_child(&waiter);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it lives");
    let ended = waiter.wait().expect("waited for");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(2));
}
