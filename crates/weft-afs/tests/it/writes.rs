//! Content that is stored in several parts, and is cut short.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use tokio::sync::watch;
use weft_remote::{
    Answer, Change, Content, Extent, FileId, FileKind, Mutation, Outcome, Remote, RemoteError, Result, Version,
};

use crate::cell::AfsCell;
use crate::client::{Client, PATIENCE, Tree, call};

/// Goal: what was cut short goes on after the parts that are stored, if they still are what is to be written; else all of it is
/// stored. Method: the content cannot be read from some place on, once; each part that is stored makes a data version.
#[tokio::test]
async fn a_store_that_was_cut_short_goes_on_where_it_was() {
    let Some(cell) = AfsCell::up() else { return };
    let (client, other) = (Client::on(cell, "c1", Tree::Cell).await, Client::on(cell, "c2", Tree::Cell).await);
    let folder = client.folder("cut").await;
    let first: Vec<u8> = (0..LONG as u64).map(|at| (at >> 7) as u8 ^ at as u8).collect();
    let mut second = first.clone();
    second[5] ^= 1;
    // The third of the parts is cut: of those that are the same afterwards the first two are not stored again.
    for (name, then, stored_again) in [("same", &first, 2), ("changed", &second, 4)] {
        let path = format!("{folder}/{name}");
        let file = client.create(path.as_bytes(), FileKind::File).await;
        let made = client.find(path.as_bytes()).await.expect("looked up").0.expect("it is there").version;
        let cut = write(&client, &file, &made, Arc::new(Cut(first.clone(), 2 * PART + PART / 2))).await;
        assert!(cut.is_err(), "{cut:?}");
        let is = other.find(path.as_bytes()).await.expect("looked up").0.expect("it is there").version;
        let after = write(&client, &file, &made, Arc::new(Cut(then.clone(), u64::MAX))).await;
        let after = after.expect("written").version;
        assert_eq!(data_version(&after) - data_version(&is), stored_again, "{name}: {is:?} {after:?}");
        let there = other.id(&path).await;
        assert!(other.read(&there).await.expect("read") == *then, "{name}");
    }
}

/// Goal: of what replaces all of a file the long holes are not sent, and read as zeros whatever was there. Method: the holes cannot
/// be read.
#[tokio::test]
async fn long_holes_are_not_sent() {
    let Some(cell) = AfsCell::up() else { return };
    let (client, other) = (Client::on(cell, "c1", Tree::Cell).await, Client::on(cell, "c2", Tree::Cell).await);
    let path = format!("{}/image", client.folder("holes").await);
    let file = client.create(path.as_bytes(), FileKind::File).await;
    let made = client.find(path.as_bytes()).await.expect("looked up").0.expect("it is there").version;
    let full = write(&client, &file, &made, Arc::new(Cut(vec![7; LONG], u64::MAX))).await.expect("written").version;
    let image = Arc::new(Holes(vec![MIB..20 * MIB, 21 * MIB..22 * MIB, 23 * MIB..LONG as u64]));
    let sparse = write(&client, &file, &full, image.clone()).await.expect("written").version;
    // It is cut off, stored before the first hole, between and behind the second, and gets its length.
    assert_eq!(data_version(&sparse) - data_version(&full), 5);
    let read = other.read(&other.id(&path).await).await.expect("read");
    let expected: Vec<u8> = (0..LONG as u64).map(|at| if image.is_hole(at) { 0 } else { 9 }).collect();
    assert!(read == expected);
    let again = write(&client, &file, &sparse, Arc::new(Cut(vec![3; LONG], u64::MAX))).await;
    assert_eq!(data_version(&again.expect("written").version) - data_version(&sparse), 4, "what has no holes");
}

/// Goal: what was written on a volume before it was restored is not stored over what has the same data version since; a version
/// that a former daemon told does not say of which volume it is. Method: the version is one of a volume that was made earlier.
#[tokio::test]
async fn what_was_written_before_a_restore_is_not_stored() {
    let Some(cell) = AfsCell::up() else { return };
    let client = Client::on(cell, "c1", Tree::Cell).await;
    let path = format!("{}/file", client.folder("restored").await);
    let file = client.create(path.as_bytes(), FileKind::File).await;
    let made = client.find(path.as_bytes()).await.expect("looked up").0.expect("it is there").version;
    let text = String::from_utf8(made.token().expect("a version").to_vec()).expect("digits");
    let (content, volume) = text.rsplit_once('.').expect("of a volume that is written to");
    let earlier = volume.parse::<u32>().expect("a time") - 1;
    let bytes = || Arc::new(Cut(vec![1; LONG], u64::MAX));
    let refused = write(&client, &file, &Version::strong(format!("{content}.{earlier}")), bytes()).await;
    assert!(matches!(refused, Err(RemoteError::VersionChanged { .. })), "{refused:?}");
    assert!(client.read(&file).await.expect("read").is_empty());
    write(&client, &file, &Version::strong(content), bytes()).await.expect("written");
}

/// Goal: short parts are on their way at once, and all of them are stored, over what was there. Method: the server stands still until
/// four of them were read to be sent.
#[tokio::test]
async fn short_parts_do_not_wait_for_each_other() {
    let Some(cell) = AfsCell::up() else { return };
    let (client, other) = (Client::on(cell, "c1", Tree::Cell).await, Client::on(cell, "c2", Tree::Cell).await);
    let path = format!("{}/pages", client.folder("at-once").await);
    let file = client.create(path.as_bytes(), FileKind::File).await;
    client.write(&file, &[1; 100_000]).await;
    let there = client.find(path.as_bytes()).await.expect("looked up").0.expect("it is there").version;
    let extents: Vec<Extent> = (0..9).map(|part| Extent { offset: part * 10_000, length: 1_000 }).collect();
    let (content, mut read) = Counted::new();
    let change = Change::Write { file, extents: extents.clone(), length: 90_000, content: Arc::new(content) };
    let frozen = cell.frozen();
    let mutation = Mutation { change, made: SystemTime::now() };
    let call = call();
    let written = client.afs.apply(&call, &mutation, &there);
    let thawed = async {
        let all_read = tokio::time::timeout(PATIENCE, read.wait_for(|count| *count == 4)).await;
        drop(frozen);
        assert!(all_read.is_ok(), "they wait for each other");
    };
    let (written, ()) = tokio::join!(written, thawed);
    let written = written.expect("written").version;
    assert_eq!(data_version(&written) - data_version(&there), 9);
    let is_written =
        |at: usize| extents.iter().any(|part| (part.offset..part.offset + part.length).contains(&(at as u64)));
    let expected: Vec<u8> = (0..90_000).map(|at| if is_written(at) { 2 } else { 1 }).collect();
    assert!(other.read(&other.id(&path).await).await.expect("read") == expected);
}

/// Bytes of 2, and how many times they were read.
struct Counted(watch::Sender<u64>);

impl Counted {
    fn new() -> (Counted, watch::Receiver<u64>) {
        let (count, seen) = watch::channel(0);
        (Counted(count), seen)
    }
}

impl Content for Counted {
    fn read(&self, _: u64, length: usize) -> std::io::Result<Bytes> {
        self.0.send_modify(|count| *count += 1);
        Ok(vec![2; length].into())
    }
}

/// Bytes of 9, and holes that cannot be read.
struct Holes(Vec<std::ops::Range<u64>>);

impl Holes {
    fn is_hole(&self, at: u64) -> bool {
        self.0.iter().any(|hole| hole.contains(&at))
    }
}

impl Content for Holes {
    fn read(&self, offset: u64, length: usize) -> std::io::Result<Bytes> {
        match self.is_hole(offset) || self.is_hole(offset + length as u64 - 1) {
            true => Err(std::io::Error::other("a hole was read")),
            false => Ok(vec![9; length].into()),
        }
    }

    fn hole(&self, bytes: std::ops::Range<u64>) -> Option<std::ops::Range<u64>> {
        let within = self.0.iter().map(|hole| hole.start.max(bytes.start)..hole.end.min(bytes.end));
        within.into_iter().find(|hole| hole.start < hole.end)
    }
}

async fn write(
    client: &Client,
    file: &FileId,
    expected: &Version,
    content: Arc<impl Content + 'static>,
) -> Result<Answer<Outcome>> {
    let length = LONG as u64;
    let extents = vec![Extent { offset: 0, length }];
    let change = Change::Write { file: file.clone(), extents, length, content };
    client.afs.apply(&call(), &Mutation { change, made: SystemTime::now() }, expected).await
}

/// The number before the point.
fn data_version(version: &Version) -> u64 {
    let Version::Strong(bytes) = version else { panic!("{version:?}") };
    let text = str::from_utf8(bytes).expect("digits");
    text.split('.').next().and_then(|number| number.parse().ok()).expect("a data version")
}

/// Bytes to be written, which cannot be read from some place on.
struct Cut(Vec<u8>, u64);

impl Content for Cut {
    fn read(&self, offset: u64, length: usize) -> std::io::Result<Bytes> {
        if offset >= self.1 {
            return Err(std::io::Error::other("the disk is broken"));
        }
        let start = self.0.len().min(offset as usize);
        Ok(Bytes::copy_from_slice(&self.0[start..self.0.len().min(start + length)]))
    }
}

/// Bytes of the parts, and of a file of four of them, the last of which is short.
const PART: u64 = 16 << 20;
const LONG: usize = (3 * PART + 1000) as usize;
const MIB: u64 = 1 << 20;
