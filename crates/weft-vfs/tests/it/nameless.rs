//! Files that lost their names while they were open, or never had one, over a fake.

use weft_remote::{FileKind, RenameTarget};
use weft_vfs::{Looked, NewNode, OpenFor, OpenRecord, ReadBy, Removal, SetStat, VfsError};

use crate::bench::Bench;
use crate::writing::{HELLO, WRITING};

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_open_outlives_its_name() {
    let bench = Bench::writable();
    let bytes: Vec<u8> = (0..3_000_000u32).map(|at| (at / 7) as u8).collect();
    bench.fake.file("large", bytes.clone());
    let handle = bench.open_for("fake/large", WRITING).await.unwrap();
    let root = bench.dir("fake").await;
    bench.vfs.clone().remove_name(bench.call(), root, b"large".to_vec(), Removal::File).await.unwrap();
    assert!(bench.fake.content("large").is_none());
    bench.write(handle, 0, b"first").await.unwrap();
    let read = bench.drain(handle).await.unwrap();
    assert!(read[..5] == *b"first" && read[5..] == bytes[5..]);
    bench.flush(handle).await.unwrap();
    bench.vfs.close(handle);
    bench.retired().await;
    assert!(bench.fake.content("large").is_none(), "nothing brings it back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_without_a_name_is_here_alone_until_it_gets_one() {
    let bench = Bench::writable();
    let root = bench.dir("fake").await;
    let (made, opened) = bench.vfs.clone().create_nameless(bench.call(), root, 0o640.into()).await.unwrap();
    let Looked::Entry { stat, .. } = made else { panic!("{made:?}") };
    assert_eq!((stat.links, stat.size, stat.mode), (0, 0, 0o640));
    bench.write(opened.handle, 0, b"nameless").await.unwrap();
    let set = SetStat { mode: Some(0o600), ..SetStat::default() };
    bench.vfs.clone().set_stat(bench.call(), stat.node, Some(opened.handle), set).await.unwrap();
    bench.flush(opened.handle).await.unwrap();
    assert_eq!(bench.fake.counts().apply, 0, "nobody is told");
    let again = bench.vfs.clone().open(bench.call(), stat.node, WRITING).await.unwrap().handle;
    assert_eq!(bench.drain(again).await.unwrap(), b"nameless");
    bench.vfs.close(again);
    bench.vfs.clone().link(bench.call(), stat.node, root, b"named".to_vec()).await.unwrap();
    assert_eq!(bench.at_source("named"), b"nameless", "all that was written before");
    bench.write(opened.handle, 8, b" once").await.unwrap();
    bench.flush(opened.handle).await.unwrap();
    bench.vfs.close(opened.handle);
    assert_eq!(bench.at_source("named"), b"nameless once");
    bench.retired().await;
    assert_eq!(bench.cat("fake/named").await.unwrap(), b"nameless once");
    let (_, opened) = bench.vfs.clone().create_nameless(bench.call(), root, 0o640.into()).await.unwrap();
    bench.write(opened.handle, 0, b"never").await.unwrap();
    bench.vfs.close(opened.handle);
    bench.retired().await;
    assert_eq!(bench.list("fake").await.unwrap(), ["a", "named"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_made_a_file_without_a_name_and_who_opens_it_by_its_name_are_in_one_version() {
    let bench = Bench::writable();
    let root = bench.dir("fake").await;
    let (made, opened) = bench.vfs.clone().create_nameless(bench.call(), root, 0o640.into()).await.unwrap();
    let Looked::Entry { stat, .. } = made else { panic!("{made:?}") };
    // Nothing was written before.
    bench.vfs.clone().link(bench.call(), stat.node, root, b"named".to_vec()).await.unwrap();
    let by_name = bench.open_for("fake/named", WRITING).await.unwrap();
    bench.write(by_name, 0, b"by its name").await.unwrap();
    assert_eq!(bench.drain(opened.handle).await.unwrap(), b"by its name");
    bench.write(opened.handle, 11, b", and without").await.unwrap();
    assert_eq!(bench.drain(by_name).await.unwrap(), b"by its name, and without");
    bench.flush(opened.handle).await.unwrap();
    bench.vfs.close(opened.handle);
    bench.vfs.close(by_name);
    bench.retired().await;
    assert_eq!(bench.at_source("named"), b"by its name, and without");
    assert_eq!(bench.cat("fake/named").await.unwrap(), b"by its name, and without");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_removed_while_open_is_still_gone_after_a_restart() {
    let bench = Bench::writable();
    let handle = bench.open_for(HELLO, WRITING).await.unwrap();
    bench.write(handle, 5, b"!").await.unwrap();
    let dir = bench.dir("fake/a/b").await;
    let node = bench.walk(HELLO).await.unwrap().node;
    bench.vfs.clone().remove_name(bench.call(), dir, b"hello.txt".to_vec(), Removal::File).await.unwrap();
    let record = OpenRecord { generation: Some(1), writing: true, ..OpenRecord::default() };
    // The daemon dies, and the kernel still has the file open.
    let bench = bench.remount();
    bench.vfs.reopen(node, handle, &record, ReadBy::Daemon).unwrap();
    assert_eq!(bench.vfs.clone().stat(bench.call(), node, Some(handle)).await.unwrap().links, 0);
    let read = bench.read_at(handle, 5, 10).await.unwrap();
    assert_eq!(&read[..], b"!");
    bench.vfs.close(handle);
    bench.retired().await;
    assert!(bench.fake.content("a/b/hello.txt").is_none());
}

/// Goal: what was written, sent and then removed, or replaced, while it is open is there for the next daemon as well, with what
/// lies below it. Method: it is sent before it loses its name, and between the two halves of what is written.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_sent_and_lost_its_name_is_there_after_a_restart() {
    for (is_replaced, writes_on) in [(false, false), (false, true), (true, false), (true, true)] {
        let bench = Bench::writable();
        let handle = bench.open_for(HELLO, WRITING).await.unwrap();
        bench.write(handle, 1, b"E").await.unwrap();
        bench.flush(handle).await.unwrap();
        assert_eq!(bench.at_source("a/b/hello.txt"), b"hEllo");
        if writes_on {
            bench.write(handle, 5, b"!").await.unwrap();
        }
        let wanted: &[u8] = if writes_on { b"hEllo!" } else { b"hEllo" };
        let dir = bench.dir("fake/a/b").await;
        let node = bench.walk(HELLO).await.unwrap().node;
        let (call, name) = (bench.call(), b"hello.txt".to_vec());
        match is_replaced {
            true => {
                let new = NewNode { kind: FileKind::File, mode: 0o600.into(), device: 0 };
                bench.vfs.clone().create(call, dir, b"new".to_vec(), new).await.unwrap();
                let (from, to) = ((dir, b"new".to_vec()), (dir, name));
                bench.vfs.clone().rename(call, from, to, RenameTarget::Replaced).await.unwrap();
            }
            false => bench.vfs.clone().remove_name(call, dir, name, Removal::File).await.unwrap(),
        }
        let record = OpenRecord { generation: Some(1), writing: true, ..OpenRecord::default() };
        // The daemon dies twice, and the kernel still has the file open.
        let mut bench = bench;
        for _ in 0..2 {
            bench = bench.remount();
            bench.vfs.reopen(node, handle, &record, ReadBy::Daemon).unwrap();
            assert_eq!(bench.drain(handle).await.unwrap(), wanted, "{is_replaced} {writes_on}");
        }
        bench.write(handle, 0, b"H").await.unwrap();
        bench.flush(handle).await.unwrap();
        assert_eq!(bench.drain(handle).await.unwrap()[..5], *b"HEllo");
        bench.vfs.close(handle);
        bench.retired().await;
        assert_eq!(bench.vfs.drafts(), 0);
        let left = bench.fake.content("a/b/hello.txt").map(|bytes| bytes.len());
        assert_eq!(left, is_replaced.then_some(0));
    }
}

/// Goal: who opens what has just lost its last name here, and looked it up before, gets what it held, or is told to look again:
/// never a file that is empty and was not. Method: nobody has it open; it was read or not.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_removed_before_it_is_opened_is_not_empty() {
    for was_read in [false, true] {
        for how in [OpenFor::default(), WRITING] {
            let bench = Bench::writable();
            let dir = bench.dir("fake/a/b").await;
            let node = bench.walk(HELLO).await.unwrap().node;
            if was_read {
                assert_eq!(bench.cat(HELLO).await.unwrap(), b"hello");
            }
            bench.vfs.clone().remove_name(bench.call(), dir, b"hello.txt".to_vec(), Removal::File).await.unwrap();
            for _ in 0..3 {
                match bench.vfs.clone().open(bench.call(), node, how).await {
                    Ok(opened) => {
                        let read = bench.drain(opened.handle).await;
                        bench.vfs.close(opened.handle);
                        assert_eq!(read.unwrap(), b"hello", "was read: {was_read}");
                    }
                    Err(error) => assert!(matches!(error, VfsError::Stale), "{error}"),
                }
                bench.retired().await;
            }
        }
    }
}
