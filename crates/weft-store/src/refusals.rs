//! Tests with a disk that refuses, and of the search for files left behind; both need a look inside.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use weft_remote::{Audience, Lease, Name, Version};

use crate::disk::Disk;
use crate::index::STAGE_BYTES_MAX;
use crate::{
    DentryRecord, DentrySource, DentryTarget, NewObject, NodeId, Object, PIECE_BYTES, Record, Result, Store,
    StoreError, StoreOptions,
};

const DIR: NodeId = NodeId(4096);
/// Too long for a segment, in bytes.
const LONG: usize = 70_000;
/// As good as never: in these tests only `flush` flushes.
const NEVER: Duration = Duration::from_secs(100_000);

struct Trial {
    disk: Disk,
    dir: tempfile::TempDir,
}

impl Trial {
    fn new() -> Trial {
        Trial { disk: Disk::default(), dir: tempfile::tempdir().unwrap() }
    }

    fn open(&self) -> Arc<Store> {
        let options = StoreOptions { flush_interval: NEVER, ..StoreOptions::default() };
        Store::open_on(self.disk.clone(), self.dir.path(), options).unwrap()
    }

    fn files(&self) -> Vec<std::path::PathBuf> {
        let list = |dir: &Path| std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
        list(&self.dir.path().join("objects")).iter().flat_map(|folder| list(folder)).collect()
    }
}

fn dentry(number: u64) -> Record {
    let lease = Lease::Forever;
    let (target, source) = (DentryTarget::Node(NodeId(number + 1)), DentrySource::Listed);
    let record = DentryRecord { target, lease, source, learnt: std::time::SystemTime::UNIX_EPOCH };
    Record::Dentry(DIR, Name::new(format!("{number:08}")).unwrap(), Some(record))
}

fn names(store: &Store) -> usize {
    store.dentries(DIR, None, usize::MAX).unwrap().len()
}

fn create(store: &Arc<Store>, node: u64, length: u64) -> Result<Arc<Object>> {
    let version = Version::strong("v");
    let new = NewObject {
        version,
        length: Some(length),
        lease: Lease::Spent,
        audience: Audience::Everyone,
        owner_uid: 0,
        checked: std::time::SystemTime::now(),
        account: crate::Account::default(),
    };
    store.create(NodeId(node), new)
}

fn whole(store: &Arc<Store>, node: u64, content: &[u8]) -> Result<Arc<Object>> {
    let object = create(store, node, content.len() as u64)?;
    let mut writer = object.writer(0)?;
    writer.append(content)?;
    writer.finish()?;
    object.commit()?;
    Ok(object)
}

/// A writer that meets a full disk keeps what it had, and can go on when there is room again.
#[test]
fn a_full_disk_refuses_content_and_keeps_what_is_there() {
    let trial = Trial::new();
    let store = trial.open();
    let object = create(&store, 5000, 2 * PIECE_BYTES).unwrap();
    let mut writer = object.writer(0).unwrap();
    let content = vec![7; 2 * PIECE_BYTES as usize];
    trial.disk.faults.full_after(1, u64::MAX);
    let outcome = writer.append(&content);
    assert!(matches!(outcome, Err(StoreError::Full { .. })), "{outcome:?}");
    assert_eq!(writer.position(), PIECE_BYTES);
    assert_eq!(object.available(0), PIECE_BYTES);
    trial.disk.faults.clear();
    writer.append(&content[PIECE_BYTES as usize..]).unwrap();
    writer.finish().unwrap();
    object.commit().unwrap();
    assert_eq!(object.read(0, content.len()).unwrap(), content);
}

/// The database meets a full disk at each of its writes in turn: the changes stay visible, are told to wait, and are
/// durable once there is room.
#[test]
fn a_full_disk_keeps_changes_in_memory() {
    for succeed in 0..12 {
        let trial = Trial::new();
        let store = trial.open();
        store.apply((0..50).map(dentry).collect()).unwrap();
        store.flush().unwrap();
        store.apply((50..100).map(dentry).collect()).unwrap();
        trial.disk.faults.full_after(succeed, u64::MAX);
        let failed = store.flush().is_err();
        assert_eq!(store.troubles().len(), usize::from(failed), "{:?}", store.troubles());
        assert_eq!(names(&store), 100);
        assert_eq!(store.flush().is_err(), failed);
        trial.disk.faults.clear();
        store.flush().unwrap();
        assert_eq!(names(&store), 100);
        assert_eq!(store.troubles().len(), usize::from(failed), "told once: {:?}", store.troubles());
        drop(store);
        assert_eq!(names(&trial.open()), 100);
    }
}

/// Goal: as long as the disk says that it is full nothing is written to the database, so that readers need not wait for it to be
/// opened again. Method: writes are refused once, and would be again.
#[test]
fn a_full_disk_is_not_written_before_it_has_room() {
    let trial = Trial::new();
    let store = trial.open();
    store.apply((0..50).map(dentry).collect()).unwrap();
    store.flush().unwrap();
    let faults = &trial.disk.faults;
    faults.no_room.store(true, Ordering::Relaxed);
    store.apply((50..100).map(dentry).collect()).unwrap();
    faults.full_after(0, 1);
    assert!(matches!(store.flush(), Err(StoreError::Full { .. })));
    assert!(faults.have_failed());
    faults.full_after(0, u64::MAX);
    for _ in 0..10 {
        assert!(matches!(store.flush(), Err(StoreError::Full { .. })));
        assert_eq!(names(&store), 100);
    }
    assert_eq!(faults.left_to_fail(), u64::MAX, "nothing was written");
    faults.clear();
    faults.no_room.store(false, Ordering::Relaxed);
    store.flush().unwrap();
    // What was missing then is not missed for ever: the next change may have room in what there is.
    faults.no_room.store(true, Ordering::Relaxed);
    store.apply(vec![dentry(100)]).unwrap();
    store.flush().unwrap();
    drop(store);
    assert_eq!(names(&trial.open()), 101);
}

/// With a disk that stays full, changes are refused at the maximum instead of waiting for ever.
#[test]
fn changes_are_refused_when_a_full_disk_leaves_no_room() {
    let trial = Trial::new();
    let store = trial.open();
    store.flush().unwrap();
    trial.disk.faults.full_after(0, u64::MAX);
    let mut applied = 0;
    let refusal = loop {
        match store.apply((applied..applied + 1000).map(dentry).collect()) {
            Ok(()) => applied += 1000,
            Err(error) => break error,
        }
        assert!(applied < 1 << 20, "there is a maximum");
    };
    assert!(matches!(refusal, StoreError::Full { .. }), "{refusal:?}");
    assert!(applied as usize * 32 > STAGE_BYTES_MAX / 8, "{applied}");
    assert_eq!(names(&store), applied as usize);
    assert!(matches!(whole(&store, 5000, b""), Err(StoreError::Full { .. })), "commits are refused as well");
    assert!(trial.files().is_empty(), "and leave nothing");
    trial.disk.faults.clear();
    store.flush().unwrap();
    store.apply(vec![dentry(applied)]).unwrap();
    drop(store);
    assert_eq!(names(&trial.open()), applied as usize + 1);
}

/// Closing a store that cannot write ends, and the next one has what was durable.
#[test]
fn closing_on_a_full_disk_ends() {
    let trial = Trial::new();
    let store = trial.open();
    store.apply(vec![dentry(0)]).unwrap();
    store.flush().unwrap();
    store.apply(vec![dentry(1)]).unwrap();
    trial.disk.faults.full_after(0, u64::MAX);
    drop(store);
    trial.disk.faults.clear();
    assert_eq!(names(&trial.open()), 1);
}

/// Until the new record is durable the old file stays, so that a kill leaves one or the other.
#[test]
fn a_replaced_file_stays_until_the_flush() {
    let trial = Trial::new();
    let store = trial.open();
    drop(whole(&store, 5000, &[1; LONG]).unwrap());
    store.flush().unwrap();
    drop(whole(&store, 5000, &[2; LONG]).unwrap());
    assert_eq!(trial.files().len(), 2);
    store.flush().unwrap();
    assert_eq!(trial.files().len(), 1);
}

/// The search removes what no record mentions, and neither a committed file, nor one of this life, nor a stranger's.
#[test]
fn files_left_behind_are_removed() {
    let trial = Trial::new();
    let store = trial.open();
    drop(whole(&store, 0x5000, &[7; LONG]).unwrap());
    let kept = trial.files().remove(0);
    drop(store);
    let folder = kept.parent().unwrap();
    let orphan = folder.join(format!("{:016x}-{:016x}", 0x5000, 1));
    let unknown = folder.join(format!("{:016x}-{:016x}", 0x6000, 1));
    let stranger = folder.join("notes.txt");
    for path in [&orphan, &unknown, &stranger] {
        std::fs::write(path, b"x").unwrap();
    }
    let store = trial.open();
    let draft = create(&store, 0x7000, LONG as u64).unwrap();
    store.wait_for_sweeper();
    assert!(!orphan.exists() && !unknown.exists());
    assert!(kept.exists() && stranger.exists());
    assert_eq!(trial.files().len(), 3, "the third is the draft");
    drop(draft);
    assert_eq!(store.object(NodeId(0x5000)).unwrap().unwrap().read(0, LONG).unwrap(), vec![7; LONG]);
    assert_eq!(store.troubles(), Vec::<String>::new());
}

/// Goal: a small content for which there is room nowhere is not taken for kept, and can be kept later. Method: the disk
/// refuses the staging file and the file of its own, then takes both.
#[test]
fn a_small_content_that_found_no_room_is_kept_later() {
    let trial = Trial::new();
    let store = trial.open();
    let object = create(&store, 5000, 300).unwrap();
    let mut writer = object.writer(0).unwrap();
    writer.append(&[7; 300]).unwrap();
    writer.finish().unwrap();
    trial.disk.faults.full_after(0, u64::MAX);
    for _ in 0..2 {
        assert!(matches!(object.commit(), Err(StoreError::Full { .. })));
        assert!(store.object(NodeId(5000)).unwrap().is_none());
        assert_eq!(object.read(0, 300).unwrap(), vec![7; 300], "it can be read meanwhile");
    }
    trial.disk.faults.clear();
    object.commit().unwrap();
    drop((object, store));
    let store = trial.open();
    assert_eq!(store.object(NodeId(5000)).unwrap().unwrap().read(0, 300).unwrap(), vec![7; 300]);
}

/// An object that outlives its store can be read, and changes nothing.
#[test]
fn an_object_outlives_its_store() {
    let trial = Trial::new();
    let store = trial.open();
    let object = whole(&store, 5000, b"kept").unwrap();
    drop(store);
    assert_eq!(object.read(0, 9).unwrap(), "kept");
    assert!(matches!(object.commit(), Err(StoreError::Index(_))));
    let again = Store::open(trial.dir.path(), StoreOptions::default());
    assert!(matches!(again, Err(StoreError::InUse { .. })), "the cache is in use as long as it can be read");
    drop(object);
    assert!(trial.open().object(NodeId(5000)).unwrap().is_some());
}
