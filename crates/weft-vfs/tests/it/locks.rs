//! Locks of a source that has no way from a weaker one to a stronger one without a gap.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use weft_remote::fake::{Fake, Promise};
use weft_remote::{
    Answer, Call, Capabilities, Checked, Cursor, Fetched, FileId, Found, Listing, LockMode, Name, Remote, RemoteError,
    Result, Seek, Span, Version,
};
use weft_vfs::{LockChange, Notice, NoticeReceivers, Notices, VfsError, Write};

use crate::bench::Bench;
use crate::writing::{HELLO, WRITING};

/// A fake that lends locks.
struct Lending {
    fake: Fake,
    has: Mutex<LockMode>,
    /// What somebody else writes in the gap.
    in_the_gap: Mutex<Option<&'static str>>,
    /// Whether somebody else has the stronger lock: then the weaker one is had again.
    busy: Mutex<bool>,
}

#[async_trait]
impl Remote for Lending {
    fn capabilities(&self) -> Capabilities {
        Capabilities { locks: true, ..self.fake.capabilities() }
    }

    fn root(&self) -> FileId {
        self.fake.root()
    }

    async fn lookup(&self, call: &Call, dir: &FileId, name: &Name) -> Result<Answer<Option<Found>>> {
        self.fake.lookup(call, dir, name).await
    }

    async fn attributes(&self, call: &Call, file: &FileId, known: &Version) -> Result<Answer<Checked>> {
        self.fake.attributes(call, file, known).await
    }

    async fn entries(
        &self,
        call: &Call,
        dir: &FileId,
        known: &Version,
        cursor: Option<&Cursor>,
    ) -> Result<Answer<Listing>> {
        self.fake.entries(call, dir, known, cursor).await
    }

    async fn fetch(&self, call: &Call, file: &FileId, expected: &Version, span: Span) -> Result<Answer<Fetched>> {
        self.fake.fetch(call, file, expected, span).await
    }

    async fn lock(&self, _: &Call, _: &FileId, from: LockMode, to: LockMode) -> Result<()> {
        assert_eq!(*self.has.lock(), from);
        if from > LockMode::Unlocked
            && let Some(written) = self.in_the_gap.lock().take()
        {
            self.fake.set("a/b/hello.txt", written);
        }
        if to == LockMode::Exclusive && *self.busy.lock() {
            return Err(RemoteError::Busy { detail: "a/b/hello.txt".to_owned(), retry_after: None });
        }
        *self.has.lock() = to;
        Ok(())
    }
}

/// Goal: who has read under a shared lock and wants to write gets the exclusive one over what was read, or none: whatever
/// the source says of the exclusive one, what was written in the gap ends both.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_in_the_gap_ends_the_lock() {
    for busy in [false, true] {
        let fake = Fake::new();
        fake.file("a/b/hello.txt", "hello");
        fake.adjust(|terms| terms.promise = Promise::Spent);
        let (has, in_the_gap) = (Mutex::new(LockMode::Unlocked), Mutex::default());
        let lending = Arc::new(Lending { fake: fake.clone(), has, in_the_gap, busy: Mutex::new(busy) });
        let bench = Bench::over(fake, lending.clone());
        let handle = bench.open("fake/a/b/hello.txt").await.unwrap().handle;
        let node = bench.walk("fake/a/b/hello.txt").await.unwrap().node;
        let had_by = Vec::new;
        let lock =
            |from, to| bench.vfs.clone().lock(bench.call(), node, LockChange { from, to, had_by: had_by() }, |_| {});
        use LockMode::{Exclusive, Shared, Unlocked};

        lock(Unlocked, Shared).await.unwrap();
        assert_eq!(bench.drain(handle).await.unwrap(), b"hello");
        let stronger = lock(Shared, Exclusive).await;
        match busy {
            true => assert!(matches!(stronger, Err(VfsError::Remote(RemoteError::Busy { .. })))),
            false => assert!(stronger.is_ok()),
        }
        let as_before = if busy { Shared } else { Exclusive };
        assert_eq!(*lending.has.lock(), as_before, "nobody has written");
        lock(as_before, Unlocked).await.unwrap();

        lock(Unlocked, Shared).await.unwrap();
        *lending.in_the_gap.lock() = Some("other");
        assert!(matches!(lock(Shared, Exclusive).await, Err(VfsError::Stale)), "busy: {busy}");
        assert_eq!(*lending.has.lock(), Unlocked);
        assert_eq!(bench.drain(handle).await.unwrap(), b"hello", "what is open is still what was read");

        *lending.busy.lock() = false;
        lock(Unlocked, Exclusive).await.unwrap();
        assert_eq!(bench.drain(handle).await.unwrap(), b"other", "the next lock is for what is there");
        bench.vfs.close(handle);
    }
}

/// Goal: who reads a file without a lock that programs here lock goes on in what others have left, where an open file else ends
/// when somebody has it open for writing and it is of another length.
#[tokio::test(flavor = "multi_thread")]
async fn who_reads_without_a_lock_goes_on_where_others_take_locks() {
    for goes_by_locks in [false, true] {
        let fake = Fake::writable();
        fake.file("a/b/hello.txt", "hello");
        fake.adjust(|terms| terms.promise = Promise::Spent);
        let (has, in_the_gap, busy) = (Mutex::new(LockMode::Unlocked), Mutex::default(), Mutex::default());
        let lending = Arc::new(Lending { fake: fake.clone(), has, in_the_gap, busy });
        let bench = Bench::over(fake, lending);
        let node = bench.walk(HELLO).await.unwrap().node;
        let [first, second] =
            [bench.open_for(HELLO, WRITING).await.unwrap(), bench.open_for(HELLO, WRITING).await.unwrap()];
        let had_by = Vec::new;
        let lock =
            |from, to| bench.vfs.clone().lock(bench.call(), node, LockChange { from, to, had_by: had_by() }, |_| {});
        assert_eq!(bench.read_at(first, 0, 1).await.unwrap(), b"h"[..]);
        if goes_by_locks {
            lock(LockMode::Unlocked, LockMode::Exclusive).await.unwrap();
            lock(LockMode::Exclusive, LockMode::Unlocked).await.unwrap();
        }
        bench.fake.set("a/b/hello.txt", "hello, others");
        bench.walk(HELLO).await.unwrap();
        let length = bench.vfs.clone().stat(bench.call(), node, Some(first)).await;
        let (whole, places) =
            (bench.drain(first).await, bench.vfs.clone().seek(bench.call(), second, 0, Seek::Hole).await);
        if goes_by_locks {
            assert_eq!((length.unwrap().size, whole.unwrap()), (13, b"hello, others".to_vec()));
            assert_eq!(places.unwrap(), Some(13));
        } else {
            assert!(matches!(length, Err(VfsError::Changed)) && matches!(whole, Err(VfsError::Changed)));
            assert!(matches!(places, Err(VfsError::Changed)));
        }
        [first, second].into_iter().for_each(|handle| bench.vfs.close(handle));
    }
}

/// Goal: while somebody relies on what was read under a lock that was lost when it was to become stronger, it is read on, and
/// nothing that is open of the file goes on in what others wrote in the gap: that comes with the next lock. Who opens the file
/// waits for that.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_relied_on_goes_on_with_the_next_lock() {
    let fake = Fake::writable();
    fake.file("a/b/hello.txt", "hello");
    fake.adjust(|terms| terms.promise = Promise::Spent);
    let (has, in_the_gap) = (Mutex::new(LockMode::Unlocked), Mutex::new(Some("hello, others")));
    let lending = Arc::new(Lending { fake: fake.clone(), has, in_the_gap, busy: Mutex::default() });
    let bench = Bench::over(fake, lending);
    let node = bench.walk(HELLO).await.unwrap().node;
    let (with, without) =
        (bench.open_for(HELLO, WRITING).await.unwrap(), bench.open_for(HELLO, WRITING).await.unwrap());
    let lock = |from, to, had_by| bench.vfs.clone().lock(bench.call(), node, LockChange { from, to, had_by }, |_| {});
    lock(LockMode::Unlocked, LockMode::Shared, Vec::new()).await.unwrap();
    let stronger = lock(LockMode::Shared, LockMode::Exclusive, vec![with]).await;
    assert!(matches!(stronger, Err(VfsError::Stale)), "{stronger:?}");
    bench.walk(HELLO).await.unwrap();
    assert_eq!(bench.vfs.clone().stat(bench.call(), node, Some(with)).await.unwrap().size, 5);
    assert_eq!(bench.drain(with).await.unwrap(), b"hello");
    let (drained, opened, relied_on) = tokio::join!(biased; bench.drain(without), bench.cat(HELLO), async {
        let relied_on = bench.drain(with).await;
        lock(LockMode::Unlocked, LockMode::Shared, Vec::new()).await.unwrap();
        relied_on
    });
    assert_eq!(relied_on.unwrap(), b"hello");
    assert_eq!(opened.unwrap(), b"hello, others");
    assert_eq!(drained.unwrap(), b"hello, others");
    for handle in [with, without] {
        assert_eq!(bench.drain(handle).await.unwrap(), b"hello, others");
    }
    [with, without].into_iter().for_each(|handle| bench.vfs.close(handle));
}

/// Goal: what is appended by whoever has got a lock goes to the end of what there is then, by a file that was open before and
/// that the kernel takes to be as long as it was: it is told before the lock is answered where it is longer; where it is
/// shorter, the place that it has for what is appended does not count, nor what it keeps of that.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_appended_under_a_lock_goes_to_the_end_of_what_others_left() {
    for (there, wanted) in [("hello, others", "hello, others+1+2"), ("hi", "hi+1+2"), ("", "+1+2")] {
        let fake = Fake::writable();
        fake.file("a/b/hello.txt", "hello");
        fake.adjust(|terms| terms.promise = Promise::Spent);
        let (has, in_the_gap, busy) = (Mutex::new(LockMode::Unlocked), Mutex::default(), Mutex::default());
        let lending = Arc::new(Lending { fake: fake.clone(), has, in_the_gap, busy });
        let (notices, NoticeReceivers { attributes, others, told }) = Notices::channel();
        std::thread::spawn(move || attributes.iter().for_each(|_| told.send_modify(|count| *count += 1)));
        let kernel = Arc::new(Mutex::new(Vec::new()));
        let heard = kernel.clone();
        std::thread::spawn(move || {
            for notice in others.iter() {
                match notice {
                    Notice::Fence(passed) => passed.send(()).unwrap_or_default(),
                    notice => heard.lock().push(notice),
                }
            }
        });
        let bench = Bench::telling(fake, lending, notices);
        let stat = bench.walk(HELLO).await.unwrap();
        bench.vfs.note_told(&stat);
        let handle = bench.open_for(HELLO, WRITING).await.unwrap();
        bench.fake.set("a/b/hello.txt", there);
        kernel.lock().clear();
        let change = LockChange { from: LockMode::Unlocked, to: LockMode::Exclusive, had_by: Vec::new() };
        let locked = bench.vfs.clone().lock(bench.call(), stat.node, change, |_| {});
        assert_eq!(locked.await.unwrap().len(), 1);
        let is_longer = there.len() > 5;
        let mut at = if is_longer { there.len() as u64 } else { 5 };
        {
            let heard = std::mem::take(&mut *kernel.lock());
            let content = heard.iter().position(|notice| matches!(notice, Notice::Content { .. }));
            let grown = heard.iter().position(|notice| match notice {
                Notice::Grown { node, length, last } => {
                    (*node, *length, *last) == (stat.node, there.len() as u64, there.as_bytes()[there.len() - 1])
                }
                _ => false,
            });
            assert_eq!(grown.is_some(), !there.is_empty(), "{heard:?}");
            assert!(content.is_some() && (there.is_empty() || content < grown), "{heard:?}");
        }
        for bytes in ["+1", "+2"] {
            let bytes = Bytes::from_static(bytes.as_bytes());
            let write = Write { offset: at, bytes, kill_suidgid: false, unseen: false, appends: true };
            at += bench.vfs.clone().write(bench.call(), handle, write).await.unwrap() as u64;
        }
        assert_eq!(bench.drain(handle).await.unwrap(), wanted.as_bytes());
        bench.vfs.kernel_is_told(crate::writing::PATIENCE).await;
        let is_told = kernel.lock().iter().any(|notice| matches!(notice, Notice::Content { .. }));
        assert_eq!(is_told, !is_longer, "what the kernel keeps of what it took to be elsewhere goes");
        bench.vfs.close(handle);
    }
}
