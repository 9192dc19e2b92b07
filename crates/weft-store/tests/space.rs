//! Who uses how much: accounts, uses and evictions through the door of the store.

mod common;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use common::{Place, bytes_of, new_object, object_files};
use weft_store::{Account, Bound, Bounds, Class, Evicted, NewObject, NodeId, Object, Store, StoreOptions};

const TREE: NodeId = NodeId(4096);

fn open(place: &Place, use_interval: Duration) -> Arc<Store> {
    Store::open(&place.dir(), StoreOptions { use_interval, ..StoreOptions::default() }).unwrap()
}

fn scratch() -> Account {
    Account { tree: TREE, rules: 0, class: Class::Scratch }
}

/// Commits an object of class scratch.
fn put(store: &Arc<Store>, node: u64, length: usize) -> Arc<Object> {
    let new = NewObject { account: scratch(), ..new_object(Some(length as u64)) };
    let object = store.create(NodeId(node), new).unwrap();
    object.reserve(length as u64).unwrap();
    let mut writer = object.writer(0).unwrap();
    writer.append(&bytes_of(length)).unwrap();
    writer.finish().unwrap();
    object.commit().unwrap();
    object
}

fn order(store: &Store) -> Vec<u64> {
    store.oldest(Bound::Scratch, None, 100).0.iter().map(|candidate| candidate.node.0).collect()
}

/// Enters all objects, as the vfs does after a start.
fn enter_all(store: &Store) {
    let mut after = None;
    loop {
        let nodes = store.objects(after, 2).unwrap();
        let Some(last) = nodes.last() else { return };
        after = Some(*last);
        nodes.iter().for_each(|node| store.enter(*node, scratch()).unwrap());
    }
}

/// Goal: the order of use survives a restart, as coarse as the interval says. Method: objects are used in another order
/// than they were made, once with an interval of nothing, once with a long one.
#[test]
fn the_order_of_use_survives_a_restart() {
    for (interval, expected) in [(Duration::ZERO, [5002, 5003, 5001]), (Duration::from_secs(3600), [5001, 5002, 5003])]
    {
        let place = Place::new();
        let store = open(&place, interval);
        let objects = [5001, 5002, 5003].map(|node| put(&store, node, 5000));
        objects[0].touch(SystemTime::now() + Duration::from_secs(60));
        drop(objects);
        assert_eq!(order(&store), [5002, 5003, 5001], "in memory it is exact");
        drop(store);
        let store = open(&place, interval);
        assert_eq!(order(&store), [] as [u64; 0]);
        enter_all(&store);
        assert_eq!(order(&store), expected, "{interval:?}");
        assert_eq!(store.filled(Bound::All).0, 3 * 8192);
        enter_all(&store);
        assert_eq!(store.filled(Bound::All).0, 3 * 8192, "entered once");
    }
}

#[test]
fn an_evicted_object_goes_with_its_file_and_its_use_and_readers_go_on() {
    let place = Place::new();
    let store = place.open();
    let object = put(&store, 5001, 5000);
    let used = store.refresh_use(NodeId(5001));
    assert_eq!(store.evict(NodeId(5001), used - 1).unwrap(), Evicted::InUse, "used since");
    let writer = object.writer(0).unwrap();
    assert_eq!(store.evict(NodeId(5001), used).unwrap(), Evicted::InUse, "being written");
    drop(writer);
    assert_eq!(store.evict(NodeId(5001), used).unwrap(), Evicted::Done { bytes: 8192 });
    assert_eq!(store.evict(NodeId(5001), used).unwrap(), Evicted::Gone);
    assert!(store.object(NodeId(5001)).unwrap().is_none());
    assert_eq!(object.read(0, 5000).unwrap(), bytes_of(5000), "who has it open keeps it");
    object.commit().unwrap();
    assert!(store.object(NodeId(5001)).unwrap().is_none(), "and does not bring it back");
    drop(object);
    store.flush().unwrap();
    assert!(object_files(&place).is_empty());
    assert_eq!((store.filled(Bound::All).0, store.usage().object_bytes), (0, 0));
    drop(store);
    let store = place.open();
    enter_all(&store);
    assert_eq!(order(&store), [] as [u64; 0]);
    assert_eq!(store.troubles(), Vec::<String>::new());
}

#[test]
fn what_is_on_its_way_counts_once() {
    let place = Place::new();
    let store = place.open();
    store.bind(Bounds { all: Some(20_000), ..Bounds::default() });
    let first = put(&store, 5001, 8192);
    assert_eq!(store.filled(Bound::Tree(TREE)), (8192, None), "not what was reserved as well");
    let draft = store.create(NodeId(5002), NewObject { account: scratch(), ..new_object(None) }).unwrap();
    draft.reserve(8192).unwrap();
    assert_eq!(store.filled(Bound::All), (16_384, Some(20_000)));
    assert_eq!(draft.reserve(8192), Err(Bound::All));
    drop(draft);
    assert_eq!(store.filled(Bound::All).0, 8192);
    store.remove_object(NodeId(5001)).unwrap();
    drop(first);
    assert_eq!(store.filled(Bound::All).0, 0);
    assert!(store.sums().is_empty());
}
