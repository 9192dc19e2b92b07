//! What the tests of the store share.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use weft_remote::{Attributes, Audience, FileId, FileKind, Lease, Name, Version};
use weft_store::{
    Account, BindingId, DentryRecord, DentrySource, DentryTarget, NewObject, NodeId, NodeRecord, Object, Record, Store,
    StoreOptions,
};

/// A folder for one store, removed at the end.
pub struct Place(tempfile::TempDir);

impl Place {
    pub fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    pub fn dir(&self) -> PathBuf {
        self.0.path().join("cache")
    }

    pub fn open(&self) -> Arc<Store> {
        Store::open(&self.dir(), StoreOptions::default()).unwrap()
    }

    pub fn index(&self) -> PathBuf {
        self.dir().join("index.redb")
    }
}

/// Bytes that differ from piece to piece and from place to place.
pub fn bytes_of(length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

pub fn new_object(length: Option<u64>) -> NewObject {
    NewObject {
        version: Version::strong("v"),
        length,
        lease: Lease::Spent,
        audience: Audience::Everyone,
        owner_uid: 7,
        checked: std::time::SystemTime::now(),
        account: Account::default(),
    }
}

/// Writes and commits an object.
pub fn whole(store: &Arc<Store>, node: NodeId, content: &[u8]) -> Arc<Object> {
    let object = store.create(node, new_object(Some(content.len() as u64))).unwrap();
    let mut writer = object.writer(0).unwrap();
    writer.append(content).unwrap();
    writer.finish().unwrap();
    object.commit().unwrap();
    object
}

/// The files of objects in a store.
pub fn object_files(place: &Place) -> Vec<PathBuf> {
    let folders = list(&place.dir().join("objects"));
    folders.iter().flat_map(|folder| list(folder)).collect()
}

pub fn list(dir: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub fn node_record(parent: NodeId, name: &Name, file: &FileId) -> NodeRecord {
    NodeRecord {
        binding: BindingId(1),
        file: file.clone(),
        parent,
        name: name.clone(),
        attributes: Attributes::of_kind(FileKind::File),
        version: Version::strong("\"etag\""),
        lease: Lease::Until(SystemTime::UNIX_EPOCH + Duration::from_secs(2_000_000_000)),
        audience: Audience::Everyone,
        learnt: SystemTime::UNIX_EPOCH + Duration::from_secs(1_900_000_000),
        origin: None,
    }
}

pub fn dentry_to(node: u64) -> DentryRecord {
    DentryRecord {
        target: DentryTarget::Node(NodeId(node)),
        lease: Lease::Forever,
        source: DentrySource::Listed,
        learnt: SystemTime::UNIX_EPOCH + Duration::from_secs(1_900_000_000),
    }
}

/// The records that a listing of one more file brings.
pub fn listed(store: &Store, dir: NodeId, number: u64) -> Vec<Record> {
    let file = FileId::new(format!("//example.org/folder/file-{number:06}.html"));
    let name = name(&format!("file-{number:06}.html"));
    let node = store.identify(BindingId(1), &file, None).unwrap();
    let record = node_record(dir, &name, &file);
    vec![Record::Node(node, Some(record)), Record::Dentry(dir, name, Some(dentry_to(node.0)))]
}
