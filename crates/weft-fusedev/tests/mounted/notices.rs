//! What the kernel is told unasked, each seen by what it does then.

use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use rustix::fs::{FlockOperation, fcntl_lock, flock, inotify};
use weft_fusedev::{LockFamily, RingLimits, Told, Transport, send_for};

use super::crowd::waiter;
use super::served::{FILE, Mounted, NOTE, OTHER, ROOT, byte_at};
use super::{can_mount, over_both};

/// A mount whose names and attributes the kernel keeps.
fn lasting(transport: Transport) -> Mounted {
    let mounted = Mounted::new(transport, RingLimits::default());
    mounted.memory.lasting.store(true, Ordering::Relaxed);
    mounted
}

impl Mounted {
    /// How many names are looked up when this one is used.
    fn lookups_of(&self, name: &str) -> u64 {
        let before = self.memory.lookups.load(Ordering::Relaxed);
        std::fs::metadata(self.path(name)).expect("there is one");
        self.memory.lookups.load(Ordering::Relaxed) - before
    }
}

#[test]
fn names_are_looked_up_again_when_they_are_invalid_expired_or_of_another_epoch() {
    over_both(|transport| {
        let mounted = lasting(transport);
        let notifier = &mounted.notifier;
        assert_eq!((mounted.lookups_of("file"), mounted.lookups_of("file")), (1, 0), "{transport}: it is kept");
        assert_eq!(notifier.invalidate_entry(ROOT, b"file").expect("told"), Told::Done);
        assert_eq!((mounted.lookups_of("file"), mounted.lookups_of("file")), (1, 0));
        assert_eq!(notifier.expire_entry(ROOT, b"file").expect("told"), Told::Done);
        assert_eq!((mounted.lookups_of("file"), mounted.lookups_of("file")), (1, 0));
        assert_eq!(notifier.invalidate_entry(ROOT, b"never seen").expect("told"), Told::Unknown);

        mounted.lookups_of("other");
        match notifier.next_epoch() {
            Ok(told) => {
                assert_eq!(told, Told::Done);
                assert_eq!((mounted.lookups_of("file"), mounted.lookups_of("other")), (1, 1));
                assert_eq!((mounted.lookups_of("file"), mounted.lookups_of("other")), (0, 0));
            }
            Err(why) => eprintln!("skipped: {why}"),
        }
    });
}

#[test]
fn bytes_that_are_stored_are_read_until_they_are_invalid() {
    over_both(|transport| {
        let mounted = lasting(transport);
        let file = std::fs::File::open(mounted.path("file")).expect("opened");
        let read = || {
            let mut bytes = [0; 9];
            file.read_exact_at(&mut bytes, 4090).expect("read");
            bytes
        };
        let own: [u8; 9] = std::array::from_fn(|at| byte_at(4090 + at as u64));
        let mut page = [b'-'; 4096];
        page[4090..].copy_from_slice(b"stored");
        assert_eq!(mounted.notifier.store(FILE, 0, &page).expect("told"), Told::Done);
        assert_eq!(read(), [&b"stored"[..], &own[6..]].concat()[..], "{transport}: a page of each");
        assert_eq!(mounted.notifier.store(FILE, 4096, &[b'x'; 4096]).expect("told"), Told::Done);
        assert_eq!(&read(), b"storedxxx");
        assert_eq!(mounted.notifier.invalidate_content(FILE, 0, 0).expect("told"), Told::Done);
        assert_eq!(read(), own);
        assert_eq!(mounted.notifier.store(FILE + 1000, 0, b"x").expect("told"), Told::Unknown);
    });
}

#[test]
fn attributes_are_asked_for_again_when_they_are_invalid() {
    over_both(|transport| {
        let mounted = lasting(transport);
        let length = || std::fs::metadata(mounted.path("note")).expect("told").len();
        assert_eq!(length(), 0);
        mounted.memory.write_behind(b"twelve bytes");
        assert_eq!(length(), 0, "{transport}: what is kept");
        assert_eq!(mounted.notifier.invalidate_attributes(NOTE).expect("told"), Told::Done);
        assert_eq!(length(), 12);
    });
}

/// Goal: a name that was removed elsewhere goes from the kernel as by unlink(2), if it still leads where it was said to.
#[test]
fn a_deleted_name_is_gone_for_those_who_watch() {
    use inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch};
    over_both(|transport| {
        let mounted = lasting(transport);
        mounted.lookups_of("other");
        assert_eq!(
            mounted.notifier.delete(ROOT, FILE, b"other").expect("told"),
            Told::Unknown,
            "it is another inode's"
        );
        let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).expect("a watch");
        add_watch(&watch, mounted.path("other"), WatchFlags::DELETE_SELF).expect("watched");
        assert_eq!(mounted.notifier.delete(ROOT, OTHER, b"other").expect("told"), Told::Done);
        let mut space = [std::mem::MaybeUninit::uninit(); 512];
        let mut events = Reader::new(&watch, &mut space);
        let event = events.next().expect("it is told at once");
        assert!(event.events().contains(ReadFlags::DELETE_SELF), "{transport}: {event:?}");
        assert_eq!(mounted.lookups_of("other"), 1);
    });
}

/// Goal: a notice that another process sends has the same effect, at the latest when a fence after it has passed, and whoever
/// sends ends with those who tell it; when nobody sends any more, notices go by themselves.
#[test]
fn notices_are_sent_by_another() {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    over_both(|transport| {
        let mounted = lasting(transport);
        assert_eq!((mounted.lookups_of("file"), mounted.lookups_of("file")), (1, 0), "{transport}: it is kept");
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a pair");
        let device = mounted.serving().as_fd().try_clone_to_owned().expect("a descriptor");
        let sender = std::thread::spawn(move || send_for(theirs, device));
        let notifier = mounted.notifier.clone().sent_by(ours);
        assert_eq!(notifier.invalidate_entry(ROOT, b"never seen").expect("told"), Told::Done, "nobody knows here");
        for _ in 0..50 {
            assert_eq!(notifier.invalidate_entry(ROOT, b"file").expect("told"), Told::Done);
            notifier.fence();
            assert_eq!(
                (mounted.lookups_of("file"), mounted.lookups_of("file")),
                (1, 0),
                "{transport}: it was forgotten"
            );
        }
        drop(notifier);
        sender.join().expect("it ends");

        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a pair");
        drop(theirs);
        let notifier = mounted.notifier.clone().sent_by(ours);
        notifier.fence();
        assert_eq!(notifier.invalidate_entry(ROOT, b"never seen").expect("told"), Told::Unknown, "it is known here");
        assert_eq!(notifier.invalidate_entry(ROOT, b"file").expect("told"), Told::Done);
        assert_eq!((mounted.lookups_of("file"), mounted.lookups_of("file")), (1, 0), "{transport}: it was forgotten");
    });
}

/// Goal: what was read and not answered comes again, with a mark, and either answer is one.
#[test]
fn requests_that_wait_come_again() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(Transport::Classic, RingLimits::default());
    let mut child = waiter(&mounted, 1);
    mounted.memory.wait_for_waiting(1);
    let told = mounted.notifier.resend();
    if let Err(why) = told {
        mounted.memory.release();
        let _ = child.wait();
        return eprintln!("skipped: {why}");
    }
    mounted.memory.wait_for_waiting(2);
    assert_eq!((mounted.memory.release(), mounted.serving().counts().resent), (2, 1));
    assert_eq!(child.wait().expect("a child of ours").code(), Some(1), "the name is not there");
    assert_eq!(mounted.serving().counts().gone, 1, "the answer to the number of before");
}

/// Goal: locks of the two families are told apart.
#[test]
fn locks_come_as_what_they_are() {
    over_both(|transport| {
        let mounted = Mounted::new(transport, RingLimits::default());
        let file = std::fs::File::options().read(true).write(true).open(mounted.path("note")).expect("opened");
        flock(&file, FlockOperation::NonBlockingLockShared).expect("locked");
        fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).expect("locked");
        let asked = mounted.memory.locks.lock().expect("no panic in there").clone();
        assert_eq!(asked, [(LockFamily::Flock, READ_LOCK), (LockFamily::Posix, WRITE_LOCK)], "{transport}");
    });
}

/// Goal: what this crate refuses is counted, and refused in a way that the kernel does without.
#[test]
fn what_is_refused_is_counted() {
    over_both(|transport| {
        let mounted = Mounted::new(transport, RingLimits::default());
        let file = std::fs::File::open(mounted.path("file")).expect("opened");
        let mut fds = [rustix::event::PollFd::new(&file, rustix::event::PollFlags::IN)];
        for _ in 0..2 {
            assert_eq!(rustix::event::poll(&mut fds, None), Ok(1), "what is refused can be read at any time");
        }
        assert_eq!(mounted.serving().counts().unknown, 1, "{transport}: it is asked once");
    });
}

/// `F_RDLCK`.
const READ_LOCK: u32 = 0;
/// `F_WRLCK`.
const WRITE_LOCK: u32 = 1;
