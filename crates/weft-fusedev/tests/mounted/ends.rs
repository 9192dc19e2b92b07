//! Ways in which a connection ends.

use std::io::ErrorKind;

use weft_fusedev::{End, RingLimits, unmount};

use super::crowd::waiter;
use super::over_both;
use super::served::{Mounted, begin};

/// Goal: all threads end after each way to end a mount, also when all entries of all queues have requests that wait.
#[test]
fn an_unmount_ends_all_threads() {
    over_both(|transport| {
        let mounted = Mounted::new(transport, RingLimits::default());
        assert!(std::fs::metadata(mounted.path("file")).is_ok());
        let open = std::fs::File::open(mounted.path("file")).expect("opened");
        let busy = unmount(mounted.directory.path(), false).expect_err("a file is open");
        assert_eq!(busy.kind(), ErrorKind::ResourceBusy);
        unmount(mounted.directory.path(), true).expect("a lazy one does not mind");
        assert_eq!(open.metadata().expect("what is open works on").len(), super::served::FILE_BYTES);
        drop(open);
        assert_eq!(mounted.join().expect("it ends"), End::Unmounted);
    });
}

#[test]
fn an_abort_ends_all_threads_and_all_who_wait() {
    over_both(|transport| {
        let mounted = Mounted::new(transport, RingLimits { entries: 2 });
        let waiters: Vec<_> = (0..2).map(|number| waiter(&mounted, number)).collect();
        mounted.memory.wait_for_waiting(2);
        mounted.abort();
        for mut waiter in waiters {
            assert_eq!(waiter.wait().expect("waited for").code(), Some(1));
        }
        assert!(std::fs::metadata(mounted.path("file")).is_err());
        // Answers that come too late go nowhere.
        mounted.memory.release();
        assert_eq!(mounted.join().expect("it ends"), End::Aborted);
    });
}

#[test]
fn a_connection_that_is_dropped_is_gone() {
    over_both(|transport| {
        let (directory, session) = begin(transport, RingLimits::default());
        drop(session);
        let error = std::fs::metadata(directory.path().join("file")).expect_err("nobody serves it");
        unmount(directory.path(), true).expect("unmounted");
        // Whoever asked while a process that is being started still had the descriptor was let go of.
        assert!(matches!(error.kind(), ErrorKind::NotConnected | ErrorKind::ConnectionAborted), "{error}");
    });
}
