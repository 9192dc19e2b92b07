//! Changes of contents and names, over a fake.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryFutureExt;
use proptest::prelude::*;
use weft_remote::fake::{Fake, Fault, Gate, Operation, Order, Promise};
use weft_remote::{Call, Caller, FileKind, RenameTarget};
use weft_store::PIECE_BYTES;
use weft_vfs::{HandleId, Looked, NewNode, NodeId, Notice, OpenFor, ReadBy, Removal, SetStat, VfsError, Write};

use crate::bench::{Bench, pattern};

impl Bench {
    pub async fn open_for(&self, path: &str, how: OpenFor) -> Result<HandleId, VfsError> {
        let node = self.walk(path).await?.node;
        Ok(self.vfs.clone().open(self.call(), node, how).await?.handle)
    }

    pub async fn write(&self, handle: HandleId, offset: u64, bytes: &'static [u8]) -> Result<usize, VfsError> {
        self.write_by(handle, offset, bytes, false).await
    }

    /// The same, whether or not the kernel knows of it.
    pub async fn write_by(
        &self,
        handle: HandleId,
        offset: u64,
        bytes: &'static [u8],
        unseen: bool,
    ) -> Result<usize, VfsError> {
        let write = Write { offset, bytes: Bytes::from_static(bytes), kill_suidgid: false, unseen, appends: false };
        self.vfs.clone().write(self.call(), handle, write).await
    }

    pub async fn flush(&self, handle: HandleId) -> Result<(), VfsError> {
        self.vfs.clone().flush(self.call(), handle).await
    }

    pub async fn dir(&self, path: &str) -> NodeId {
        self.walk(path).await.expect("a directory").node
    }

    /// Waits until what was written is put away.
    pub async fn retired(&self) {
        let retired = async {
            while self.vfs.drafts() > 0 {
                tokio::task::yield_now().await;
            }
        };
        let told = || format!("unsent: {:?}, troubles: {:?}", self.vfs.unsent(&[]), self.vfs.troubles());
        tokio::time::timeout(PATIENCE, retired).await.unwrap_or_else(|_| panic!("not put away; {}", told()));
    }

    /// What the source has.
    pub fn at_source(&self, path: &str) -> Vec<u8> {
        self.fake.content(path).expect("a file at the source").to_vec()
    }
}

/// How long a test waits before it fails instead of hanging.
pub const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);
pub const WRITING: OpenFor =
    OpenFor { writing: true, truncating: false, appends: false, running: false, kill_suidgid: false };
pub const EMPTYING: OpenFor =
    OpenFor { writing: true, truncating: true, appends: false, running: false, kill_suidgid: false };
pub const HELLO: &str = "fake/a/b/hello.txt";

/// Goal: what is appended goes to the end of a file, also where the kernel, which follows a path once more in a call and not
/// twice, takes that to be elsewhere: the file has become longer, or shorter, at both tries.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_appended_goes_to_the_end_wherever_the_kernel_takes_that_to_be() {
    for lengths in [["0123456789", "more than that", "and more than that again"], ["0123456789", "less", "-"]] {
        let bench = Bench::writable();
        bench.fake.adjust(|terms| terms.promise = Promise::Lasting(Duration::ZERO));
        bench.fake.file("f", lengths[0]);
        let mut node = bench.walk("fake/f").await.unwrap().node;
        let open = async |node| bench.vfs.clone().open(bench.call(), node, WRITING).await;
        bench.fake.set("f", lengths[1]);
        assert!(matches!(open(node).await.map(|opened| opened.handle), Err(VfsError::Stale)));
        node = bench.walk("fake/f").await.unwrap().node;
        bench.fake.set("f", lengths[2]);
        let opened = open(node).await.unwrap();
        assert!(opened.bypass_pages && !opened.keep_pages);
        let mut at = lengths[1].len() as u64;
        for bytes in ["+1", "+2"] {
            let bytes = Bytes::from_static(bytes.as_bytes());
            let write = Write { offset: at, bytes, kill_suidgid: false, unseen: false, appends: true };
            at += bench.vfs.clone().write(bench.call(), opened.handle, write).await.unwrap() as u64;
        }
        bench.write(opened.handle, 0, b"!").await.unwrap();
        bench.flush(opened.handle).await.unwrap();
        let wanted = format!("!{}+1+2", &lengths[2][1..]);
        assert_eq!(bench.at_source("f"), wanted.as_bytes());
        bench.vfs.released(opened.handle);
        bench.retired().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_is_seen_at_once_here_and_at_close_at_the_source() {
    let bench = Bench::writable();
    let reader = bench.open(HELLO).await.unwrap().handle;
    bench.settled(HELLO).await;
    let handle = bench.open_for(HELLO, WRITING).await.unwrap();
    assert_eq!(bench.write(handle, 5, b", world").await.unwrap(), 7);
    assert_eq!(bench.walk(HELLO).await.unwrap().size, 12);
    assert_eq!(bench.drain(handle).await.unwrap(), b"hello, world");
    assert_eq!(bench.drain(reader).await.unwrap(), b"hello, world", "who had it open before sees it as well");
    assert_eq!(bench.at_source("a/b/hello.txt"), b"hello", "not sent before the close");
    bench.flush(handle).await.unwrap();
    assert_eq!(bench.at_source("a/b/hello.txt"), b"hello, world");
    bench.vfs.close(handle);
    bench.vfs.close(reader);
    bench.retired().await;
    let fetched = bench.vfs.figures().opens_remote;
    assert_eq!(bench.cat(HELLO).await.unwrap(), b"hello, world");
    assert_eq!(bench.vfs.figures().opens_remote, fetched, "what was written is what is held");
}

/// Goal: a long file is held as it was written, also when it was opened again while it was put away; it has the bytes that the
/// source has. Method: written anew and in its middle, over what was held, and read by somebody who opens it at any moment.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_file_is_held_as_it_was_written() {
    let bench = Bench::writable();
    let mut content: Vec<u8> = (0..20u32 << 20).map(|at| (at / 7) as u8).collect();
    for round in 0..4 {
        let handle = bench.open_for(HELLO, if round == 0 { EMPTYING } else { WRITING }).await.unwrap();
        if round == 0 {
            for at in (0..content.len()).step_by(1 << 20) {
                let bytes = content[at..at + (1 << 20)].to_vec().into();
                let write = Write { offset: at as u64, bytes, kill_suidgid: false, unseen: false, appends: false };
                bench.vfs.clone().write(bench.call(), handle, write).await.unwrap();
            }
        }
        let at = 5_000_000 + round * 1000;
        content[at..at + 3].copy_from_slice(b"new");
        bench.write(handle, at as u64, b"new").await.unwrap();
        if round == 3 {
            content.resize((20 << 20) + 5, 0);
            let longer = SetStat { size: Some(content.len() as u64), ..SetStat::default() };
            let node = bench.walk(HELLO).await.unwrap().node;
            bench.vfs.clone().set_stat(bench.call(), node, Some(handle), longer).await.unwrap();
        }
        bench.flush(handle).await.unwrap();
        bench.vfs.close(handle);
        if round == 2 {
            assert!(bench.cat(HELLO).await.unwrap() == content, "while it is put away");
        }
        bench.retired().await;
        assert!(bench.at_source("a/b/hello.txt") == content);
        let fetched = bench.fake.counts().fetch;
        assert!(bench.cat(HELLO).await.unwrap() == content);
        // Written in part, over what was fetched or taken over, it has a base.
        if round == 0 {
            assert_eq!(bench.fake.counts().fetch, fetched, "what was written is what is held");
        }
    }
}

/// Goal: the kernel is told of other times and lengths when what was written is sent, but only where it cannot know itself.
#[tokio::test(flavor = "multi_thread")]
async fn the_kernel_is_told_of_what_it_did_not_see_written() {
    let (bench, heard) = Bench::writable().heard();
    let handle = bench.open_for(HELLO, WRITING).await.unwrap();
    bench.write(handle, 0, b"J").await.unwrap();
    bench.flush(handle).await.unwrap();
    bench.write(handle, 4, b"y!").await.unwrap();
    assert!(bench.walk(HELLO).await.unwrap().ttl.is_zero(), "what the kernel is told of a draft does not last");
    bench.flush(handle).await.unwrap();
    assert!(heard.attributes.try_recv().is_err(), "by write(2) alone");
    bench.write_by(handle, 0, b"h", true).await.unwrap();
    bench.flush(handle).await.unwrap();
    let node = bench.walk(HELLO).await.unwrap().node;
    assert!(matches!(heard.attributes.try_recv(), Ok(Notice::Attributes { node: of }) if of == node));
    assert!(heard.attributes.try_recv().is_err());
    assert_eq!(bench.at_source("a/b/hello.txt"), b"helly!");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_emptied_is_not_fetched() {
    let bench = Bench::writable();
    bench.fake.file("large", vec![7; 1 << 20]);
    let handle = bench.open_for("fake/large", EMPTYING).await.unwrap();
    assert_eq!(bench.walk("fake/large").await.unwrap().size, 0);
    bench.write(handle, 2, b"x").await.unwrap();
    bench.flush(handle).await.unwrap();
    bench.vfs.close(handle);
    assert_eq!(bench.at_source("large"), b"\0\0x");
    assert_eq!(bench.vfs.figures().bytes_received, 0);
    bench.retired().await;
    assert_eq!(bench.cat("fake/large").await.unwrap(), b"\0\0x");
}

/// Goal: who reads a file that was written here, and is all at its source, reads that also after the daemon was replaced.
#[tokio::test(flavor = "multi_thread")]
async fn who_reads_what_was_written_does_so_after_a_restart() {
    for writer_is_open in [true, false] {
        let bench = Bench::writable();
        let node = bench.walk(HELLO).await.unwrap().node;
        let reader = bench.open(HELLO).await.unwrap();
        let writer = bench.open_for(HELLO, WRITING).await.unwrap();
        assert_eq!(bench.drain(reader.handle).await.unwrap(), b"hello");
        bench.write(writer, 0, b"J").await.unwrap();
        if !writer_is_open {
            bench.flush(writer).await.unwrap();
            bench.vfs.close(writer);
        }
        assert_eq!(bench.drain(reader.handle).await.unwrap(), b"Jello");
        let bench = bench.remount();
        bench.vfs.reopen(node, reader.handle, &reader.record, ReadBy::Daemon).unwrap();
        assert_eq!(bench.drain(reader.handle).await.unwrap(), b"Jello", "{writer_is_open}");
    }
}

/// Goal: what was sent is read from its source where the mount is a new one: what lies here was never synced, and may be other
/// bytes after the machine has failed. Method: they are overwritten.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_sent_is_its_sources_after_a_new_start() {
    let bench = Bench::writable();
    let handle = bench.open_for(HELLO, EMPTYING).await.unwrap();
    bench.write(handle, 0, b"Jello").await.unwrap();
    bench.flush(handle).await.unwrap();
    let bench = bench.remount();
    let drafts = std::fs::read_dir(bench.vfs.store().dir().join("dirty")).unwrap();
    let drafts: Vec<_> = drafts.map(|draft| draft.unwrap().path()).filter(|path| path.extension().is_none()).collect();
    assert_eq!(drafts.len(), 1);
    std::fs::write(&drafts[0], "zzzzz").unwrap();
    bench.vfs.let_sent_go();
    assert_eq!(bench.cat(HELLO).await.unwrap(), b"Jello");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_sent_is_sent_after_a_restart() {
    let bench = Bench::writable();
    let handle = bench.open_for(HELLO, WRITING).await.unwrap();
    bench.write(handle, 0, b"J").await.unwrap();
    // The daemon dies: nothing is closed.
    let bench = bench.remount();
    assert_eq!(bench.vfs.unsent(&[]).len(), 1);
    assert_eq!(bench.cat(HELLO).await.unwrap(), b"Jello");
    bench.vfs.send_left();
    bench.retired().await;
    assert_eq!(bench.at_source("a/b/hello.txt"), b"Jello");
    assert_eq!(bench.cat(HELLO).await.unwrap(), b"Jello");
}

/// The daemon dies while it sends: what the source has by then is ours in part, and is no conflict. Somebody else's byte is.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_being_sent_when_the_daemon_died_is_sent_again() {
    for (at_source, is_ours) in [("Jello", true), ("Jelly", true), ("Jully", true), ("hully!", true), ("Jelxy", false)]
    {
        let bench = Bench::writable();
        bench.cat(HELLO).await.unwrap();
        let handle = bench.open_for(HELLO, WRITING).await.unwrap();
        bench.write(handle, 0, b"Jully!").await.unwrap();
        bench.fake.set("a/b/hello.txt", at_source);
        let bench = bench.remount();
        bench.vfs.send_left();
        if is_ours {
            bench.retired().await;
            assert_eq!(bench.at_source("a/b/hello.txt"), b"Jully!", "over {at_source}");
            continue;
        }
        let refused = async {
            while !bench.vfs.troubles().iter().any(|trouble| trouble.text.contains("could not be sent")) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, refused).await.expect("it is told");
        assert_eq!(bench.at_source("a/b/hello.txt"), at_source.as_bytes());
    }
}

/// Goal: who reads what is not held of a file, while what was written to it is sent, reads on, and nobody is told of a change
/// at the source. Method: a body that ends with the change when that has been made and not yet answered.
#[tokio::test(flavor = "multi_thread")]
async fn who_reads_a_file_while_it_is_sent_reads_on() {
    let bench = Bench::writable();
    let mut content = pattern(8 * PIECE_BYTES as usize);
    bench.fake.file("large", content.clone());
    let (begins, answered) = (Gate::new(), Gate::new());
    bench
        .fake
        .order(Order::of(Fault::Stall { after: PIECE_BYTES, gate: begins.clone() }).on(Operation::Fetch).times(1));
    bench.fake.order(Order::of(Fault::Outdated { after: PIECE_BYTES }).on(Operation::Fetch).times(1));
    let handle = bench.open_for("fake/large", WRITING).await.unwrap();
    bench.write(handle, 0, b"written").await.unwrap();
    content[..7].copy_from_slice(b"written");

    bench.fake.order(Order::of(Fault::Delay(answered.clone())).on(Operation::ApplyAnswer).times(1));
    let offset = 4 * PIECE_BYTES;
    let reading = tokio::spawn(bench.vfs.clone().read(bench.call(), handle, offset, 100));
    begins.arrived(1).await;
    let sending = tokio::spawn(bench.vfs.clone().flush(bench.call(), handle));
    answered.arrived(1).await;
    begins.open();
    // Nobody can say yet whose doing it is.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert!(!reading.is_finished());
    answered.open();
    sending.await.unwrap().unwrap();
    let read = reading.await.unwrap().expect("it reads on").into_bytes().unwrap();
    assert_eq!(read, content[offset as usize..][..100]);
    assert!(bench.vfs.troubles().is_empty(), "{:?}", bench.vfs.troubles());
    assert_eq!(bench.at_source("large"), content);
}

/// Goal: a body of the version before, that ends because what was sent from here has come in its place, is no change by others,
/// also when all is closed by then.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_what_was_sent_has_made_void_is_no_trouble() {
    let bench = Bench::writable();
    bench.fake.file("large", pattern(8 * PIECE_BYTES as usize));
    let begins = Gate::new();
    bench
        .fake
        .order(Order::of(Fault::Stall { after: PIECE_BYTES, gate: begins.clone() }).on(Operation::Fetch).times(1));
    bench.fake.order(Order::of(Fault::Outdated { after: PIECE_BYTES }).on(Operation::Fetch).times(1));
    let handle = bench.open_for("fake/large", WRITING).await.unwrap();
    let reading = tokio::spawn(bench.vfs.clone().read(bench.call(), handle, 0, 100));
    begins.arrived(1).await;
    reading.await.unwrap().unwrap();
    bench.write(handle, 0, b"written").await.unwrap();
    bench.flush(handle).await.unwrap();
    bench.vfs.close(handle);
    bench.retired().await;

    begins.open();
    for _ in 0..10_000 {
        tokio::task::yield_now().await;
        assert!(bench.vfs.troubles().is_empty(), "{:?}", bench.vfs.troubles());
    }
    assert_eq!(bench.at_source("large")[..10], [&b"written"[..], &pattern(10)[7..]].concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_made_moved_and_taken_away() {
    let bench = Bench::writable();
    let dir = bench.dir("fake/a").await;
    let new = NewNode { kind: FileKind::Directory, mode: 0o750.into(), device: 0 };
    let made = bench.vfs.clone().create(bench.call(), dir, b"made".to_vec(), new).await.unwrap();
    assert!(matches!(made, Looked::Entry { stat, .. } if stat.kind == FileKind::Directory && stat.mode == 0o750));
    let inner = bench.dir("fake/a/made").await;
    let (_, opened) = bench.vfs.clone().create_open(bench.call(), inner, b"f".to_vec(), 0o600.into()).await.unwrap();
    bench.write(opened.handle, 0, b"new").await.unwrap();
    let moved = (inner, b"f".to_vec());
    bench.vfs.clone().rename(bench.call(), moved, (dir, b"g".to_vec()), RenameTarget::Absent).await.unwrap();
    bench.write(opened.handle, 3, b"er").await.unwrap();
    bench.flush(opened.handle).await.unwrap();
    bench.vfs.close(opened.handle);
    assert_eq!(bench.at_source("a/g"), b"newer");
    assert_eq!(bench.list("fake/a").await.unwrap(), ["b", "g", "made"]);
    assert!(matches!(bench.walk("fake/a/made/f").await, Err(VfsError::NotFound)));
    let again = bench.vfs.clone().create(bench.call(), dir, b"made".to_vec(), new).await;
    assert!(again.is_err_and(|error| error.to_string().contains("exists")));
    let of_file = bench.vfs.clone().remove_name(bench.call(), dir, b"made".to_vec(), Removal::File).await;
    assert!(matches!(of_file, Err(VfsError::IsADirectory)));
    bench.vfs.clone().remove_name(bench.call(), dir, b"made".to_vec(), Removal::Directory).await.unwrap();
    assert_eq!(bench.list("fake/a").await.unwrap(), ["b", "g"]);
}

/// Goal: what was said before a change that was made here does not take the place of what came of it. Method: the answer to a
/// look-up is held back while the file is written, or removed, by somebody who has looked it up since.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_from_before_a_change_here_is_not_shown_after_it() {
    for removed in [false, true] {
        let bench = Bench::writable();
        let dir = bench.dir("fake/a/b").await;
        let gate = Gate::new();
        let held = Order::of(Fault::Delay(gate.clone())).on(Operation::LookupAnswer).at("a/b/hello.txt").times(1);
        bench.fake.order(held);
        let asking = tokio::spawn(bench.vfs.clone().lookup(bench.call(), dir, b"hello.txt".to_vec()));
        gate.arrived(1).await;
        let handle = bench.open_for(HELLO, WRITING).await.unwrap();
        bench.write(handle, 5, b", and more").await.unwrap();
        bench.flush(handle).await.unwrap();
        bench.vfs.close(handle);
        bench.retired().await;
        if removed {
            bench.vfs.clone().remove_name(bench.call(), dir, b"hello.txt".to_vec(), Removal::File).await.unwrap();
        }
        gate.open();
        // What it says to whoever asked then is of that moment, and is not kept.
        let told = asking.await.expect("no panic").expect("an answer");
        assert!(!matches!(told, Looked::Entry { ttl, .. } if !ttl.is_zero()), "{told:?}");
        match bench.walk(HELLO).await {
            Ok(stat) => assert_eq!((stat.size, removed), (15, false)),
            Err(error) => assert!(removed && matches!(error, VfsError::NotFound), "{error}"),
        }
    }
}

/// Goal: a change whose caller goes away is made all the same, and is seen then. Method: its source holds it back until then.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_nobody_waits_for_is_seen() {
    let fake = Fake::writable();
    fake.file("a/b/hello.txt", "hello");
    // It tells of what others do, not of this.
    fake.adjust(|terms| terms.promise = Promise::Breakable(Duration::from_secs(3600)));
    let bench = Bench::over(fake.clone(), Arc::new(fake));
    let dir = bench.dir("fake/a/b").await;
    assert_eq!(bench.list("fake/a/b").await.unwrap(), ["hello.txt"]);
    let gate = Gate::new();
    bench.fake.order(Order::of(Fault::Delay(gate.clone())).on(Operation::Apply).times(1));
    let removing = tokio::spawn(bench.vfs.clone().remove_name(bench.call(), dir, b"hello.txt".to_vec(), Removal::File));
    gate.arrived(1).await;
    removing.abort();
    assert!(removing.await.expect_err("nobody waits").is_cancelled());
    assert!(bench.walk(HELLO).await.is_ok());
    gate.open();
    while bench.walk(HELLO).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(bench.fake.content("a/b/hello.txt").is_none());
    assert_eq!(bench.list("fake/a/b").await.unwrap(), [""; 0]);
}

/// Goal: a listing that comes while a change is made that nobody waits for shows what came of it. Method: the move is made, its
/// answer is held back; the listing of after it is asked for, and comes when the move has ended, or about then: many times.
#[tokio::test(flavor = "multi_thread")]
async fn a_listing_beside_a_change_that_nobody_waits_for_leaves_nothing_out() {
    for _ in 0..20 {
        let fake = Fake::writable();
        fake.file("a/b/hello.txt", "hello");
        fake.adjust(|terms| terms.promise = Promise::Breakable(Duration::from_secs(3600)));
        let bench = Arc::new(Bench::over(fake.clone(), Arc::new(fake)));
        let dir = bench.dir("fake/a/b").await;
        let (of_move, of_list) = (Gate::new(), Gate::new());
        bench.fake.order(Order::of(Fault::Delay(of_move.clone())).on(Operation::ApplyAnswer).times(1));
        bench.fake.order(Order::of(Fault::Delay(of_list.clone())).on(Operation::EntriesAnswer).times(1));
        let (from, to) = ((dir, b"hello.txt".to_vec()), (dir, b"moved".to_vec()));
        let moving = tokio::spawn(bench.vfs.clone().rename(bench.call(), from, to, RenameTarget::Absent));
        of_move.arrived(1).await;
        moving.abort();
        assert!(moving.await.expect_err("nobody waits").is_cancelled());
        let there = bench.clone();
        let listing = tokio::spawn(async move { there.list("fake/a/b").await });
        of_list.arrived(1).await;
        of_move.open();
        while bench.walk(HELLO).await.is_ok() {
            tokio::task::yield_now().await;
        }
        of_list.open();
        listing.await.expect("no panic").unwrap();
        assert_eq!(bench.list("fake/a/b").await.unwrap(), ["moved"]);
    }
}

/// Goal: the kernel is told to look up again what was made for a program that was killed before the kernel was answered.
/// Method: answers from before wait to be outdated, which no kernel here ever does.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_kernel_has_not_heard_of_it_looks_up_again() {
    let (bench, heard) = Bench::writable().heard();
    let dir = bench.dir("fake/a/b").await;
    let vfs = &bench.vfs;
    let new = NewNode { kind: FileKind::File, mode: 0o644.into(), device: 0 };
    for step in ["made", "moved", "removed"] {
        // Somebody else asks what the directory is.
        let other = Call { caller: Caller { pid: 2, ..bench.call().caller }, ..bench.call() };
        vfs.clone().stat(other, dir, None).await.unwrap();
        let name = |name: &str| name.as_bytes().to_vec();
        let changing = match step {
            "made" => tokio::spawn(vfs.clone().create(bench.call(), dir, name("made"), new).map_ok(drop)),
            "moved" => {
                let (from, to) = ((dir, name("made")), (dir, name("moved")));
                tokio::spawn(vfs.clone().rename(bench.call(), from, to, RenameTarget::Absent))
            }
            _ => tokio::spawn(vfs.clone().remove_name(bench.call(), dir, name("moved"), Removal::File)),
        };
        while !matches!(heard.attributes.try_recv(), Ok(Notice::Attributes { node }) if node == dir) {
            tokio::task::yield_now().await;
        }
        changing.abort();
        assert!(changing.await.expect_err("nobody waits").is_cancelled());
        let told: Vec<Notice> = heard.others.try_iter().collect();
        let wanted = if step == "removed" { "moved" } else { step };
        let is_wanted = |notice: &Notice| match notice {
            Notice::Expired { parent, name } => *parent == dir && name.as_bytes() == wanted.as_bytes(),
            _ => false,
        };
        assert!(told.iter().any(is_wanted), "{step}: {told:?}");
    }
}

/// Goal: whoever opened a directory before a name went is told by its list what the name led to only while it does.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_has_gone_leads_nowhere_in_a_list_from_before() {
    let bench = Bench::writable();
    let dir = bench.dir("fake/a/b").await;
    let first = bench.walk(HELLO).await.unwrap().node;
    assert_eq!(bench.list("fake/a/b").await.unwrap(), ["hello.txt"]);
    let snapshot = bench.vfs.directory_names(dir, &bench.call().caller).unwrap();
    let row = snapshot.get(0).expect("a name");
    let known = || bench.vfs.entries_known(dir).unwrap().get(&row).unwrap().map(|(stat, _)| stat.node);
    assert_eq!(known(), Some(first));
    bench.vfs.clone().remove_name(bench.call(), dir, b"hello.txt".to_vec(), Removal::File).await.unwrap();
    assert_eq!(known(), None, "it is gone");
    let (_, opened) =
        bench.vfs.clone().create_open(bench.call(), dir, b"hello.txt".to_vec(), 0o600.into()).await.unwrap();
    assert_eq!(known(), None, "it is another");
    bench.vfs.close(opened.handle);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_that_takes_no_changes_says_so() {
    let bench = Bench::new();
    let dir = bench.dir("fake/a").await;
    let new = NewNode { kind: FileKind::File, mode: 0o600.into(), device: 0 };
    let made = bench.vfs.clone().create(bench.call(), dir, b"x".to_vec(), new).await;
    assert!(matches!(made, Err(VfsError::ReadOnly)));
    assert!(matches!(bench.open_for(HELLO, WRITING).await, Err(VfsError::ReadOnly)));
    let node = bench.walk(HELLO).await.unwrap().node;
    let set = SetStat { mode: Some(0o600), ..SetStat::default() };
    assert!(matches!(bench.vfs.clone().set_stat(bench.call(), node, None, set).await, Err(VfsError::ReadOnly)));
}

#[derive(Clone, Debug)]
enum Step {
    Write(u64, usize),
    Resize(u64),
    ResizePath(u64),
    Flush,
    Reopen,
    Read(u64, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let offset = || 0..300_000u64;
    let step = prop_oneof![
        4 => (offset(), 1..90_000usize).prop_map(|(offset, length)| Step::Write(offset, length)),
        2 => offset().prop_map(Step::Resize),
        1 => offset().prop_map(Step::ResizePath),
        2 => Just(Step::Flush),
        2 => Just(Step::Reopen),
        3 => (offset(), 1..200_000usize).prop_map(|(offset, length)| Step::Read(offset, length)),
    ];
    prop::collection::vec(step, 1..25)
}

async fn agrees(length: usize, steps: Vec<Step>) {
    let bench = Bench::writable();
    let mut model: Vec<u8> = (0..length).map(|at| (at / 3) as u8).collect();
    bench.fake.file("f", model.clone());
    let mut handle = bench.open_for("fake/f", WRITING).await.unwrap();
    let node = bench.walk("fake/f").await.unwrap().node;
    for (number, step) in steps.into_iter().enumerate() {
        match step {
            Step::Write(offset, length) => {
                let bytes = Bytes::from(vec![number as u8 + 100; length]);
                let end = offset as usize + length;
                model.resize(model.len().max(end), 0);
                model[offset as usize..end].copy_from_slice(&bytes);
                let write = Write { offset, bytes, kill_suidgid: false, unseen: false, appends: false };
                bench.vfs.clone().write(bench.call(), handle, write).await.unwrap();
            }
            Step::Resize(length) | Step::ResizePath(length) => {
                model.resize(length as usize, 0);
                let through = matches!(step, Step::Resize(_)).then_some(handle);
                let set = SetStat { size: Some(length), ..SetStat::default() };
                let stat = bench.vfs.clone().set_stat(bench.call(), node, through, set).await.unwrap();
                assert_eq!(stat.size, length, "step {number}");
            }
            Step::Flush => {
                bench.flush(handle).await.unwrap();
                let (source, step) = (bench.at_source("f"), format!("at the source after step {number}"));
                assert_eq!(source.len(), model.len(), "{step}");
                let other = source.iter().zip(&model).position(|(source, model)| source != model);
                assert_eq!(other, None, "{step}: the first byte that is not what was written");
            }
            Step::Reopen => {
                bench.flush(handle).await.unwrap();
                bench.vfs.close(handle);
                if number % 2 == 0 {
                    bench.retired().await;
                }
                handle = bench.open_for("fake/f", WRITING).await.unwrap();
            }
            Step::Read(offset, length) => {
                let end = model.len().min(offset as usize + length);
                let expected = &model[(offset as usize).min(end)..end];
                let mut read = Vec::new();
                while read.len() < expected.len() {
                    let at = offset + read.len() as u64;
                    let bytes = bench.read_at(handle, at, expected.len() - read.len()).await.unwrap();
                    assert!(!bytes.is_empty(), "nothing at {at} in step {number}");
                    read.extend_from_slice(&bytes);
                }
                assert!(read == expected, "read in step {number}");
            }
        }
        assert_eq!(bench.walk("fake/f").await.unwrap().size, model.len() as u64, "step {number}");
    }
    assert!(bench.drain(handle).await.unwrap() == model);
    bench.flush(handle).await.unwrap();
    bench.vfs.close(handle);
    bench.retired().await;
    assert!(bench.at_source("f") == model && bench.cat("fake/f").await.unwrap() == model);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn a_file_is_what_was_written_to_it(length in 0..400_000usize, steps in steps()) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(agrees(length, steps));
    }
}
