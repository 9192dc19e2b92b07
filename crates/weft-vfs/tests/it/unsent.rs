//! What was written and could not be sent: each decision about it, and what is tried again by itself.

use std::time::{Duration, Instant};

use weft_remote::fake::{Fault, Gate, Operation, Order};
use weft_remote::{Call, RemoteError};
use weft_vfs::{HandleId, Mode, Over, Removal, SetStat, Unsent, UnsentError, VfsError};

use crate::bench::{Bench, USER, names};
use crate::writing::{EMPTYING, HELLO, WRITING};

impl Bench {
    /// A file whose written bytes ("J" over "hello") are in conflict with what the source has ("theirs, longer").
    async fn conflicting() -> Bench {
        let bench = Bench::writable();
        let handle = bench.open_for(HELLO, WRITING).await.unwrap();
        bench.write(handle, 0, b"J").await.unwrap();
        bench.fake.set("a/b/hello.txt", "theirs, longer");
        assert!(matches!(bench.flush(handle).await, Err(VfsError::Changed)));
        bench.vfs.close(handle);
        bench
    }

    fn one(&self) -> Unsent {
        let mut all = self.vfs.unsent(&[]);
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    async fn send_unsent(&self, over: Over) -> Result<u64, UnsentError> {
        self.vfs.send_unsent(&names(HELLO), over, USER).await
    }

    /// A write that its source refuses so often, closed.
    async fn refused(&self, error: RemoteError, times: u32) {
        self.fake.order(Order::of(Fault::Error(error)).on(Operation::Apply).times(times));
        let handle = self.open_for(HELLO, WRITING).await.unwrap();
        self.write(handle, 0, b"J").await.unwrap();
        self.flush(handle).await.unwrap_err();
        self.vfs.close(handle);
    }

    async fn theirs(&self) -> Result<Vec<u8>, UnsentError> {
        let (mut theirs, mut source) = (Vec::new(), self.vfs.at_source(&names(HELLO), USER).await?);
        loop {
            let bytes = source.next().await?;
            if bytes.is_empty() {
                return Ok(theirs);
            }
            theirs.extend_from_slice(&bytes);
        }
    }

    async fn saved(&self) -> Result<Vec<u8>, UnsentError> {
        let mut saved = Vec::new();
        loop {
            let bytes = self.vfs.read_unsent(&names(HELLO), USER, saved.len() as u64, 3).await?;
            if bytes.is_empty() {
                return Ok(saved);
            }
            saved.extend_from_slice(&bytes);
        }
    }
}

fn full() -> RemoteError {
    RemoteError::NoSpace { detail: "a/b/hello.txt".to_owned() }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_unsent_is_listed_with_its_reason() {
    let bench = Bench::conflicting().await;
    let unsent = bench.one();
    assert_eq!((unsent.path, unsent.bytes, unsent.length), (names(HELLO), 1, 5));
    assert!(unsent.why.is_some_and(|why| why.contains("changed at its source")));
    assert!(!unsent.is_open && !unsent.tried_again && unsent.kept.exists());
    assert_eq!(bench.vfs.unsent_sum(), (1, 1));
    assert_eq!(bench.vfs.unsent(&names("fake/a")).len(), 1);
    assert!(bench.vfs.unsent(&names("fake/other")).is_empty());
    let why = bench.vfs.why(&names(HELLO)).unwrap();
    let (_, told) = why.facts.iter().find(|(key, _)| key == "written here").expect("told");
    assert!(told.contains("1 bytes not at the source since") && told.contains("changed"), "{told}");
    let node = bench.walk(HELLO).await.unwrap().node;
    assert_eq!(bench.vfs.extended(node, b"user.weft.unsent").unwrap().as_deref(), Some(&b"1"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_is_listed_before_it_is_closed() {
    let bench = Bench::writable();
    let handle = bench.open_for(HELLO, WRITING).await.unwrap();
    bench.write(handle, 0, b"J").await.unwrap();
    let unsent = bench.one();
    assert!(unsent.is_open && unsent.why.is_none() && !unsent.is_stuck());
    assert!(matches!(bench.vfs.discard_unsent(&names(HELLO), USER).await, Err(UnsentError::Open)));
    assert!(matches!(bench.send_unsent(Over::Another).await, Err(UnsentError::Open)));
    assert_eq!(bench.send_unsent(Over::Nothing).await.unwrap(), 1, "it may be sent earlier than by itself");
    assert_eq!(bench.at_source("a/b/hello.txt"), b"Jello");
    assert!(bench.vfs.unsent(&[]).is_empty());
    let nothing = bench.vfs.discard_unsent(&names(HELLO), USER).await;
    assert!(matches!(nothing, Err(UnsentError::NotUnsent)));
    bench.vfs.close(handle);
}

/// Goal: what the source has can be read before anything is decided, whole or not at all. Method: the answer ends too early
/// once, and nobody is asked about a tree that is offline.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_source_has_is_read_beside_what_was_written() {
    let bench = Bench::conflicting().await;
    assert_eq!(bench.theirs().await.unwrap(), b"theirs, longer");
    bench.fake.order(Order::of(Fault::CutShort { after: 3 }).on(Operation::Fetch).times(1));
    bench.theirs().await.unwrap_err();
    assert_eq!((bench.one().bytes, bench.saved().await.unwrap()), (1, b"Jello".to_vec()));
    bench.vfs.take_offline(&names("fake"), Mode::Offline).unwrap();
    assert!(matches!(bench.theirs().await, Err(UnsentError::Failed(VfsError::Offline))));
    bench.vfs.bring_online(&names("fake")).unwrap();
    bench.fake.remove("a/b/hello.txt");
    assert!(matches!(bench.theirs().await, Err(UnsentError::Absent)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_being_sent_is_told_as_that() {
    let bench = Bench::writable();
    let answered = Gate::new();
    bench.fake.order(Order::of(Fault::Delay(answered.clone())).on(Operation::ApplyAnswer).times(1));
    let handle = bench.open_for(HELLO, WRITING).await.unwrap();
    bench.write(handle, 0, b"J").await.unwrap();
    let sending = tokio::spawn(bench.vfs.clone().flush(bench.call(), handle));
    answered.arrived(1).await;
    bench.vfs.close(handle);

    let unsent = bench.one();
    assert!(unsent.is_sending && unsent.why.is_none() && !unsent.is_stuck(), "{unsent:?}");
    let why = bench.vfs.why(&names(HELLO)).unwrap();
    let (_, told) = why.facts.iter().find(|(key, _)| key == "written here").expect("told");
    assert!(told.contains("being sent"), "{told}");

    let vfs = bench.vfs.clone();
    let giving_up = tokio::spawn(async move { vfs.discard_unsent(&names(HELLO), USER).await });
    answered.open();
    sending.await.unwrap().unwrap();
    let outcome = giving_up.await.unwrap();
    // The second where it came after all was done.
    assert!(matches!(outcome, Err(UnsentError::Sent | UnsentError::NotUnsent)), "{outcome:?}");
    assert_eq!(bench.at_source("a/b/hello.txt"), b"Jello");
}

/// Goal: what is removed from here while it is being sent is as any file that is removed while it is open: its close succeeds.
/// Method: the source has removed it, and nobody has heard of that yet when it is sent.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_removed_while_it_is_sent_is_closed_without_an_error() {
    let bench = Bench::writable();
    let dir = bench.walk("fake/a/b").await.unwrap().node;
    let handle = bench.open_for(HELLO, WRITING).await.unwrap();
    bench.write(handle, 0, b"J").await.unwrap();
    let answered = Gate::new();
    bench.fake.order(Order::of(Fault::Delay(answered.clone())).on(Operation::ApplyAnswer).times(1));
    let name = b"hello.txt".to_vec();
    let removing = tokio::spawn(bench.vfs.clone().remove_name(bench.call(), dir, name, Removal::File));
    answered.arrived(1).await;
    bench.fake.reset_counts();
    let sending = tokio::spawn(bench.vfs.clone().flush(bench.call(), handle));
    while bench.fake.counts().apply == 0 && !sending.is_finished() {
        tokio::task::yield_now().await;
    }
    answered.open();
    removing.await.unwrap().unwrap();
    sending.await.unwrap().unwrap();
    assert_eq!(bench.read_at(handle, 0, 100).await.unwrap().as_ref(), b"Jello");
    bench.vfs.close(handle);
    assert!(bench.vfs.unsent(&[]).is_empty());
}

/// Goal: who changes a file that is being sent waits for that, however long there is to be sent, and has its own time for what
/// comes then. Method: a change has no time left when the file has been sent.
#[tokio::test(flavor = "multi_thread")]
async fn changes_of_a_file_wait_until_it_is_sent() {
    let bench = Bench::writable();
    let node = bench.walk(HELLO).await.unwrap().node;
    let answered = Gate::new();
    bench.fake.order(Order::of(Fault::Delay(answered.clone())).on(Operation::ApplyAnswer).times(1));
    let handle = bench.open_for(HELLO, WRITING).await.unwrap();
    bench.write(handle, 0, b"J").await.unwrap();
    let sending = tokio::spawn(bench.vfs.clone().flush(bench.call(), handle));
    answered.arrived(1).await;
    assert!(bench.vfs.is_unsent(node));

    let call = Call { deadline: Instant::now() + Duration::from_millis(1), ..bench.call() };
    let mode = SetStat { mode: Some(0o600), ..SetStat::default() };
    let changed = tokio::spawn(bench.vfs.clone().set_stat(call, node, None, mode));
    tokio::time::sleep_until(call.deadline.into()).await;
    answered.open();
    sending.await.unwrap().unwrap();
    assert_eq!(changed.await.unwrap().unwrap().mode, 0o600);
    bench.vfs.close(handle);
    assert!(!bench.vfs.is_unsent(node));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_version_is_written_over_only_by_the_users_word() {
    let bench = Bench::conflicting().await;
    assert!(matches!(bench.send_unsent(Over::Nothing).await, Err(UnsentError::Changed)));
    assert_eq!(bench.at_source("a/b/hello.txt"), b"theirs, longer");
    assert_eq!(bench.send_unsent(Over::Another).await.unwrap(), 5);
    assert_eq!(bench.at_source("a/b/hello.txt"), b"Jello", "the whole file as it was here, not a mixture");
    bench.retired().await;
    assert_eq!(bench.cat(HELLO).await.unwrap(), b"Jello");
}

/// Goal: who has written the very same as others have meanwhile is in no conflict with them, be it all of the file or a part of
/// what was read before; who has written something else is, also where it is a part of theirs.
#[tokio::test(flavor = "multi_thread")]
async fn the_very_same_is_no_conflict() {
    let cases = [(EMPTYING, &b"made"[..], "made", true), (WRITING, b"J", "Jello", true)];
    let others = [(EMPTYING, &b"made"[..], "made by others", false), (WRITING, b"J", "hello", false)];
    for (how, text, theirs, is_same) in cases.into_iter().chain(others) {
        let bench = Bench::writable();
        bench.cat(HELLO).await.unwrap();
        let handle = bench.open_for(HELLO, how).await.unwrap();
        bench.write(handle, 0, text).await.unwrap();
        bench.fake.set("a/b/hello.txt", theirs);
        let sent = bench.flush(handle).await;
        assert_eq!(sent.is_ok(), is_same, "{theirs}: {sent:?}");
        bench.vfs.close(handle);
        assert_eq!(bench.at_source("a/b/hello.txt"), theirs.as_bytes());
        assert_eq!(bench.vfs.unsent(&[]).is_empty(), is_same, "{theirs}");
        if is_same {
            bench.retired().await;
            assert_eq!(bench.cat(HELLO).await.unwrap(), theirs.as_bytes());
        }
    }
}

/// Goal: who writes on after attempts to send of which nobody heard what came is in conflict with nobody but others. Method:
/// the source makes the change and its answer is lost, twice; then something else is written in place of that, or in place of
/// what was there before.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_sent_unheard_is_written_over() {
    let over_all = ([(0, &b"first attempt"[..]), (0, b"second longer")], b"third", &b"thirdd longer"[..]);
    let beside = ([(10, &b"x"[..]), (7, b"y")], b"THIRD", &b"THIRD\0\0y\0\0x"[..]);
    for ((attempts, last, result), of_others) in [(over_all, false), (over_all, true), (beside, false), (beside, true)]
    {
        let bench = Bench::writable();
        bench.cat(HELLO).await.unwrap();
        let lost = RemoteError::TimedOut { detail: "a/b/hello.txt".to_owned() };
        let handle = bench.open_for(HELLO, WRITING).await.unwrap();
        for (at, text) in attempts {
            bench.write(handle, at, text).await.unwrap();
            let is_there =
                || bench.at_source("a/b/hello.txt").get(at as usize..).is_some_and(|there| there.starts_with(text));
            // Ranges are sent side by side: it may be another one that was made, and after which no more was.
            let mut tries = 0;
            while !is_there() {
                assert!(tries < 50, "{text:?} does not come");
                bench.fake.order(Order::of(Fault::Error(lost.clone())).on(Operation::ApplyAnswer).times(1));
                bench.flush(handle).await.unwrap_err();
                tries += 1;
            }
        }
        if of_others {
            bench.fake.set("a/b/hello.txt", "of others");
        }
        bench.write(handle, 0, last).await.unwrap();
        let sent = bench.flush(handle).await;
        let there = bench.at_source("a/b/hello.txt");
        match of_others {
            false => assert!(sent.is_ok() && there == result, "{sent:?} {there:?}"),
            true => assert!(matches!(sent, Err(VfsError::Changed)) && there == b"of others", "{sent:?}"),
        }
        bench.vfs.close(handle);
    }
}

/// Goal: where the source cannot be asked just then what it has of an attempt that nobody heard of, that may pass, and is no
/// conflict.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_compared_just_then_is_no_conflict() {
    let bench = Bench::writable();
    bench.cat(HELLO).await.unwrap();
    let lost = RemoteError::TimedOut { detail: "a/b/hello.txt".to_owned() };
    let handle = bench.open_for(HELLO, WRITING).await.unwrap();
    bench.fake.order(Order::of(Fault::Error(lost.clone())).on(Operation::ApplyAnswer).times(1));
    bench.write(handle, 0, b"first attempt").await.unwrap();
    bench.flush(handle).await.unwrap_err();
    bench.fake.order(Order::of(Fault::Error(lost)).on(Operation::Fetch).times(1));
    bench.write(handle, 0, b"second").await.unwrap();
    let refused = bench.flush(handle).await;
    assert!(matches!(refused, Err(VfsError::Remote(RemoteError::TimedOut { .. }))), "{refused:?}");
    assert!(bench.one().why.is_some_and(|why| !why.contains("changed at its source")));
    bench.flush(handle).await.unwrap();
    assert_eq!(bench.at_source("a/b/hello.txt"), b"secondattempt");
    bench.vfs.close(handle);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_source_has_no_more_is_made_again_by_the_users_word() {
    let bench = Bench::writable();
    let handle = bench.open_for(HELLO, WRITING).await.unwrap();
    bench.write(handle, 0, b"J").await.unwrap();
    bench.fake.remove("a/b/hello.txt");
    bench.flush(handle).await.unwrap_err();
    bench.vfs.close(handle);
    assert!(bench.one().why.is_some());
    bench.send_unsent(Over::Nothing).await.unwrap_err();
    bench.send_unsent(Over::Another).await.unwrap();
    assert_eq!(bench.at_source("a/b/hello.txt"), b"Jello");
    bench.retired().await;
    assert_eq!(bench.cat(HELLO).await.unwrap(), b"Jello");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_given_up_is_what_the_source_has() {
    let bench = Bench::conflicting().await;
    let before = bench.one().kept;
    let reader = bench.open(HELLO).await.unwrap().handle;
    assert_eq!(bench.drain(reader).await.unwrap(), b"Jello");
    assert_eq!(bench.vfs.discard_unsent(&names(HELLO), USER).await.unwrap(), 1);
    assert!(bench.vfs.unsent(&[]).is_empty());
    assert_eq!(std::fs::metadata(before).map_or(0, |file| file.len()), 0, "nothing of it is kept");
    assert_eq!(bench.walk(HELLO).await.unwrap().size, 14);
    assert_eq!(bench.cat(HELLO).await.unwrap(), b"theirs, longer");
    bench.vfs.close(reader);
    assert_eq!(bench.at_source("a/b/hello.txt"), b"theirs, longer");
}

/// Goal: what was written and cannot be read again is told, and stays where it is.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_taken_up_is_told() {
    let bench = Bench::conflicting().await;
    let log = bench.one().kept.with_extension("log");
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[5] ^= 1;
    std::fs::write(&log, bytes).unwrap();
    let bench = bench.remount();
    let told = bench.vfs.troubles();
    assert!(told.iter().any(|trouble| trouble.text.contains(&log.display().to_string())), "{told:?}");
    assert!(log.exists() && bench.vfs.unsent(&[]).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_all_of_the_file_also_after_a_restart() {
    let bench = Bench::conflicting().await;
    assert_eq!(bench.saved().await.unwrap(), b"Jello");
    // What is held of the file is the source's by then.
    bench.vfs.reload(&names(HELLO), false, USER).await.unwrap();
    let bench = bench.remount();
    assert_eq!(bench.saved().await.unwrap(), b"Jello");
    assert!(bench.one().why.is_none(), "it was not tried since");
    assert!(matches!(bench.send_unsent(Over::Nothing).await, Err(UnsentError::Changed)));
    bench.send_unsent(Over::Another).await.unwrap();
    assert_eq!(bench.at_source("a/b/hello.txt"), b"Jello");
}

#[tokio::test(start_paused = true)]
async fn what_may_pass_is_tried_again_by_itself() {
    let bench = Bench::writable();
    // The close, the last close, and three of the tries.
    bench.refused(full(), 5).await;
    assert!(bench.one().tried_again && !bench.one().is_refused);
    // By the paused clock: 1 + 2 + 4 + 8 s.
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert_eq!(bench.at_source("a/b/hello.txt"), b"hello", "not so soon");
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(bench.at_source("a/b/hello.txt"), b"Jello");
    bench.retired().await;
    assert!(bench.vfs.unsent(&[]).is_empty());
    assert_eq!(bench.cat(HELLO).await.unwrap(), b"Jello");
}

/// Goal: what was refused to whoever wrote it is sent when that user has logged in anew, and else tried rarely.
#[tokio::test(start_paused = true)]
async fn what_was_refused_is_tried_again_after_a_login() {
    let bench = Bench::writable();
    let denied = || RemoteError::Denied { detail: "a/b/hello.txt".to_owned() };
    bench.refused(denied(), 2).await;
    assert!(bench.one().tried_again && bench.one().is_refused);
    bench.fake.reset_counts();
    tokio::time::sleep(Duration::from_secs(250)).await;
    assert_eq!(bench.fake.counts().apply, 0, "nothing has changed");
    bench.fake.adjust(|terms| terms.login = 1);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(bench.at_source("a/b/hello.txt"), b"Jello");
    bench.retired().await;
    assert!(bench.vfs.unsent(&[]).is_empty());

    bench.refused(denied(), 4).await;
    bench.fake.reset_counts();
    bench.fake.adjust(|terms| terms.login = 2);
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(bench.fake.counts().apply, 1, "once for one login");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(bench.fake.counts().apply, 3, "a right may have been given");
    bench.retired().await;
    assert!(bench.vfs.unsent(&[]).is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_does_not_pass_is_left_to_people() {
    let bench = Bench::writable();
    // The close and the last close.
    bench.refused(RemoteError::VersionChanged { detail: "a/b/hello.txt".to_owned() }, 2).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(bench.at_source("a/b/hello.txt"), b"hello");
    assert!(!bench.one().tried_again);
    bench.send_unsent(Over::Nothing).await.unwrap();
    assert_eq!(bench.at_source("a/b/hello.txt"), b"Jello");
}

#[tokio::test(start_paused = true)]
async fn what_is_open_for_writing_is_not_sent_behind_its_back() {
    let bench = Bench::writable();
    bench.fake.order(Order::of(Fault::Error(full())).on(Operation::Apply).times(1));
    let handle: HandleId = bench.open_for(HELLO, WRITING).await.unwrap();
    bench.write(handle, 0, b"J").await.unwrap();
    bench.flush(handle).await.unwrap_err();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(bench.at_source("a/b/hello.txt"), b"hello");
    bench.vfs.close(handle);
    bench.retired().await;
    assert_eq!(bench.at_source("a/b/hello.txt"), b"Jello");
}

/// Goal: the same by a file that is open; what was written before is not refused with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_length_that_is_refused_to_an_open_file_is_not_kept() {
    let bench = Bench::writable();
    let node = bench.walk(HELLO).await.unwrap().node;
    let handle: HandleId = bench.open_for(HELLO, WRITING).await.unwrap();
    bench.write(handle, 0, b"J").await.unwrap();
    let too_much = RemoteError::TooMuch { detail: HELLO.to_owned() };
    bench.fake.order(Order::of(Fault::Error(too_much)).on(Operation::Apply).after(1).times(1));
    let new = SetStat { size: Some(1 << 40), ..SetStat::default() };
    bench.vfs.clone().set_stat(bench.call(), node, Some(handle), new).await.unwrap_err();
    assert_eq!(bench.vfs.clone().stat(bench.call(), node, Some(handle)).await.unwrap().size, 5);
    bench.flush(handle).await.unwrap();
    bench.vfs.close(handle);
    bench.retired().await;
    assert_eq!(bench.at_source("a/b/hello.txt"), b"Jello");
}

/// Goal: a length that is set by the file's name and refused for good changes nothing; one that may pass is kept, and so is what
/// somebody had written before.
#[tokio::test(flavor = "multi_thread")]
async fn a_length_that_is_refused_is_not_kept() {
    let too_much = || RemoteError::TooMuch { detail: HELLO.to_owned() };
    for (error, has_written, kept) in [(too_much(), false, 0), (full(), false, 1), (too_much(), true, 1)] {
        let bench = Bench::writable();
        let node = bench.walk(HELLO).await.unwrap().node;
        if has_written {
            bench.refused(too_much(), 9).await;
        }
        bench.fake.order(Order::of(Fault::Error(error)).on(Operation::Apply).times(9));
        let new = SetStat { size: Some(1 << 40), ..SetStat::default() };
        bench.vfs.clone().set_stat(bench.call(), node, None, new).await.unwrap_err();
        assert_eq!(bench.vfs.unsent(&[]).len(), kept, "{has_written}");
        let length = bench.vfs.clone().stat(bench.call(), node, None).await.unwrap().size;
        assert_eq!(length == 5, kept == 0, "{length}");
    }
}
