//! Names and attributes through the door of the store.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use common::{Place, dentry_to, listed, name, node_record};
use proptest::prelude::*;
use weft_remote::{Audience, Completeness, Figure, FileId, Lease, Name, Origin, Version};
use weft_store::{
    BindingId, DentryRecord, DentryTarget, ListingRecord, NodeId, Onward, Record, Store, StoreError, StoreOptions,
};

const DIR: NodeId = NodeId(4096);

#[test]
fn records_are_visible_at_once_and_there_after_a_restart() {
    let place = Place::new();
    let store = place.open();
    let file = FileId::new("//example.org/a");
    let node = store.identify(BindingId(1), &file, None).unwrap();
    let record = node_record(DIR, &name("a"), &file);
    let listing = ListingRecord {
        version: Version::weak("w"),
        lease: Lease::Forever,
        completeness: Completeness::Partial,
        audience: Audience::Only { uid: 5 },
        learnt: SystemTime::UNIX_EPOCH,
        origin: Some(Origin {
            source: "https://example.org/".into(),
            how: "links".into(),
            redirects: vec!["x".into()],
        }),
    };
    let records = vec![
        Record::Node(node, Some(record.clone())),
        Record::Dentry(DIR, name("a"), Some(dentry_to(node.0))),
        Record::Listing(DIR, Some(listing.clone())),
    ];
    store.apply(records).unwrap();
    let check = |store: &Store| {
        assert_eq!(store.node(node).unwrap(), Some(record.clone()));
        assert_eq!(store.dentry(DIR, &name("a")).unwrap(), Some(dentry_to(node.0)));
        assert_eq!(store.dentry(DIR, &name("b")).unwrap(), None);
        assert_eq!(store.listing(DIR).unwrap(), Some(listing.clone()));
        assert_eq!(store.identify(BindingId(1), &file, None).unwrap(), node);
    };
    check(&store);
    store.flush().unwrap();
    check(&store);
    assert_eq!(store.usage().nodes, 1);
    drop(store);
    let store = place.open();
    check(&store);
    store.apply(vec![Record::Node(node, None), Record::Listing(DIR, None)]).unwrap();
    assert_eq!((store.node(node).unwrap(), store.listing(DIR).unwrap()), (None, None));
    drop(store);
    let store = place.open();
    assert_eq!((store.node(node).unwrap(), store.listing(DIR).unwrap()), (None, None));
    assert_eq!(store.usage().nodes, 0);
    assert_eq!(store.troubles(), Vec::<String>::new());
}

/// Changes reach the disk by themselves: a copy of the database made later has them.
#[test]
fn changes_become_durable_without_a_flush() {
    let place = Place::new();
    let options = StoreOptions { flush_interval: Duration::from_millis(1), ..StoreOptions::default() };
    let store = Store::open(&place.dir(), options).unwrap();
    store.apply(listed(&store, DIR, 1)).unwrap();
    // The count of nodes is made when they are written; the test would hang if they never were.
    while store.usage().nodes == 0 {
        std::thread::yield_now();
    }
}

#[test]
fn numbers_of_files_are_apart_and_in_range() {
    let place = Place::new();
    let store = place.open();
    let numbers: Vec<_> = (0..500)
        .flat_map(|number| [(1, number), (2, number)])
        .map(|(binding, number)| {
            let file = FileId::new(format!("file {number}"));
            let node = store.identify(BindingId(binding), &file, None).unwrap();
            assert!(node.0 >= NodeId::FIRST_OF_REMOTES && node.0 < 1 << 63);
            node
        })
        .collect();
    assert_eq!(numbers.iter().collect::<std::collections::BTreeSet<_>>().len(), 1000);
    let file = FileId::new("file 0");
    // Somebody else sits on the number: the next one is taken, and found again.
    let other = node_record(DIR, &name("x"), &FileId::new("other"));
    store.apply(vec![Record::Node(numbers[0], Some(other))]).unwrap();
    let moved = store.identify(BindingId(1), &file, None).unwrap();
    assert_eq!(moved.0, numbers[0].0 + 1);
    store.apply(vec![Record::Node(moved, Some(node_record(DIR, &name("y"), &file)))]).unwrap();
    drop(store);
    assert_eq!(place.open().identify(BindingId(1), &file, None).unwrap(), moved);
}

#[test]
fn bindings_keep_their_numbers() {
    let place = Place::new();
    let store = place.open();
    let web = store.binding("web").unwrap();
    let afs = store.binding("afs").unwrap();
    assert_ne!(web, afs);
    assert_eq!(store.binding("web").unwrap(), web);
    drop(store);
    let store = place.open();
    assert_eq!((store.binding("afs").unwrap(), store.binding("web").unwrap()), (afs, web));
    let third = store.binding("dir").unwrap();
    assert!(third != afs && third != web);
}

#[test]
fn notes_of_kinds_are_apart() {
    let place = Place::new();
    let store = place.open();
    let (web, afs) = (store.notes("web"), store.notes("web2"));
    web.put(b"host/a", Some(b"https")).unwrap();
    web.put(b"host/b", Some(b"")).unwrap();
    web.put(b"other", Some(b"x")).unwrap();
    afs.put(b"host/c", Some(b"y")).unwrap();
    store.flush().unwrap();
    web.put(b"other", None).unwrap();
    assert_eq!(web.get(b"host/a").unwrap().as_deref(), Some(&b"https"[..]));
    assert_eq!(web.get(b"other").unwrap(), None);
    assert_eq!(afs.get(b"host/a").unwrap(), None);
    let expected = vec![(b"host/a".to_vec(), b"https".to_vec()), (b"host/b".to_vec(), b"".to_vec())];
    assert_eq!(web.list(b"host/").unwrap(), expected);
    assert_eq!(web.list(b"").unwrap(), expected);
    assert!(web.put(&vec![0; 1 << 20], Some(b"")).is_err());
    drop((web, afs, store));
    let store = place.open();
    assert_eq!(store.notes("web").list(b"").unwrap(), expected);
    assert_eq!(store.notes("web2").list(b"h").unwrap().len(), 1);
}

/// Goal: a file of before 1970 is that old after a restart as well; a lease that ended then is spent.
#[test]
fn times_before_1970_are_remembered() {
    let place = Place::new();
    let store = place.open();
    let early = SystemTime::UNIX_EPOCH - Duration::from_millis(1500);
    let mut record = node_record(DIR, &name("a"), &FileId::new("a"));
    let attributes = &mut record.attributes;
    for time in [&mut attributes.modified, &mut attributes.changed, &mut attributes.accessed] {
        *time = Figure::Exact(early);
    }
    record.lease = Lease::Until(early);
    let expected = (Lease::Spent, record.attributes);
    store.apply(vec![Record::Node(NodeId(5000), Some(record))]).unwrap();
    store.flush().unwrap();
    drop(store);
    let back = place.open().node(NodeId(5000)).unwrap().unwrap();
    assert_eq!((back.lease, back.attributes), expected);
}

#[test]
fn one_directory_holds_one_store() {
    let place = Place::new();
    let store = place.open();
    assert!(matches!(Store::open(&place.dir(), StoreOptions::default()), Err(StoreError::InUse { .. })));
    drop(store);
    place.open();
}

/// More than both stages hold goes through, and reads see all of it on the way.
#[test]
fn changes_wait_for_the_disk_when_there_are_too_many() {
    let place = Place::new();
    let store = place.open();
    for start in (0..40_000).step_by(500) {
        let records = (start..start + 500).flat_map(|number| listed(&store, DIR, number)).collect();
        store.apply(records).unwrap();
        let node =
            store.identify(BindingId(1), &FileId::new(format!("//example.org/folder/file-{start:06}.html")), None);
        assert!(store.node(node.unwrap()).unwrap().is_some());
    }
    assert_eq!(store.dentries(DIR, None, usize::MAX).unwrap().len(), 40_000);
    store.flush().unwrap();
    assert_eq!(store.usage().nodes, 40_000);
}

#[derive(Clone, Debug)]
enum Step {
    Set(u8, u8, u64),
    Remove(u8, u8),
    Flush,
    List(u8, Option<u8>, usize),
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0u8..2, 0u8..12, 1u64..99).prop_map(|(dir, name, node)| Step::Set(dir, name, node)),
        4 => (0u8..2, 0u8..12).prop_map(|(dir, name)| Step::Remove(dir, name)),
        2 => Just(Step::Flush),
        8 => (0u8..2, proptest::option::of(0u8..12), 0usize..9).prop_map(|(dir, after, limit)| Step::List(dir, after, limit)),
        1 => Just(Step::Reopen),
    ];
    proptest::collection::vec(step, 1..60)
}

fn nth(number: u8) -> Name {
    name(&format!("name{}", "x".repeat(number.into())))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Random changes against a plain map, with whatever the flusher does in between.
    #[test]
    fn names_are_those_of_a_plain_map(steps in steps()) {
        let place = Place::new();
        let open = || {
            let options = StoreOptions { flush_interval: Duration::from_micros(300), ..StoreOptions::default() };
            Store::open(&place.dir(), options).unwrap()
        };
        let mut store: Option<Arc<Store>> = Some(open());
        let mut model: BTreeMap<(u8, Name), u64> = BTreeMap::new();
        for step in steps {
            let now = store.as_ref().unwrap();
            let dir = |dir: u8| NodeId(u64::from(dir) + 1);
            match step {
                Step::Set(d, n, node) => {
                    model.insert((d, nth(n)), node);
                    now.apply(vec![Record::Dentry(dir(d), nth(n), Some(dentry_to(node)))]).unwrap();
                }
                Step::Remove(d, n) => {
                    model.remove(&(d, nth(n)));
                    now.apply(vec![Record::Dentry(dir(d), nth(n), None)]).unwrap();
                }
                Step::Flush => now.flush().unwrap(),
                Step::List(d, after, limit) => {
                    let after = after.map(nth);
                    let expected: Vec<_> = model
                        .iter()
                        .filter(|((other, name), _)| *other == d && after.as_ref().is_none_or(|after| name > after))
                        .take(limit)
                        .map(|((_, name), node)| (name.clone(), DentryTarget::Node(NodeId(*node))))
                        .collect();
                    let got = now.dentries(dir(d), after.as_ref(), limit).unwrap();
                    let got: Vec<_> = got.into_iter().map(|(name, record)| (name, record.target)).collect();
                    prop_assert_eq!(got, expected);
                }
                Step::Reopen => {
                    drop(store.take());
                    store = Some(open());
                }
            }
        }
    }
}

/// Goal: a walk meets each name, node and listing once, in whatever portions, those on the disk and those not yet there.
#[test]
fn a_walk_meets_all_that_is_known() {
    let place = Place::new();
    let store = place.open();
    let listing = || ListingRecord {
        version: Version::None,
        lease: Lease::Spent,
        completeness: Completeness::Complete,
        audience: Audience::Everyone,
        learnt: SystemTime::UNIX_EPOCH,
        origin: None,
    };
    let (mut names, mut nodes, mut listings) = (Vec::new(), Vec::new(), Vec::new());
    for nth in 0..60_u64 {
        let (dir, text) = (NodeId(5000 + nth / 7), format!("n{nth}"));
        let file = FileId::new(&text);
        let node = store.identify(BindingId(3), &file, None).unwrap();
        let target = (nth % 5 > 0).then_some(node);
        let dentry = match target {
            Some(node) => dentry_to(node.0),
            None => DentryRecord { target: DentryTarget::Absent, ..dentry_to(0) },
        };
        let mut records = vec![
            Record::Node(node, Some(node_record(dir, &name(&text), &file))),
            Record::Dentry(dir, name(&text), Some(dentry)),
        ];
        if nth % 7 == 0 {
            records.push(Record::Listing(dir, Some(listing())));
            listings.push(dir);
        }
        store.apply(records).unwrap();
        names.push((dir, name(&text), target));
        nodes.push((node, node_record(dir, &name(&text), &file).binding));
        if nth == 30 {
            store.flush().unwrap();
        }
    }
    nodes.sort_unstable_by_key(|(node, _)| *node);
    for limit in [1, 7, 1000] {
        fn all<T>(mut next: impl FnMut(&mut Onward) -> Vec<T>) -> Vec<T> {
            let mut onward = Onward::default();
            std::iter::repeat_with(|| next(&mut onward)).take_while(|portion| !portion.is_empty()).flatten().collect()
        }
        let met = all(|onward| store.names_onward(onward, limit).unwrap());
        let mut met: Vec<_> = met.into_iter().map(|(dir, name, dentry)| (dir, name, dentry.node())).collect();
        assert!(met.is_sorted_by_key(|(dir, ..)| *dir), "those of a directory come together");
        met.sort_unstable();
        names.sort_unstable();
        assert_eq!(met, names);
        assert_eq!(all(|onward| store.nodes_onward(onward, limit).unwrap()), nodes);
        assert_eq!(all(|onward| store.listings_onward(onward, limit).unwrap()), listings);
    }
}

/// Goal: a disk that is full refuses what the index grows by at once, not a page of it later on, after which it could be neither
/// read nor opened again. Method: the room that its file has on the disk, when it begins and when it has grown.
#[test]
fn the_index_has_room_for_all_of_its_length() {
    use std::os::unix::fs::MetadataExt;

    let place = Place::new();
    let store = place.open();
    let has_room = |least: u64| {
        let index = std::fs::metadata(place.index()).unwrap();
        assert!(
            index.len() > least && index.blocks() * 512 >= index.len(),
            "{} of {}",
            index.blocks() * 512,
            index.len()
        );
        index.len()
    };
    let begun = has_room(0);
    for part in 0..40 {
        let names = (0..500).map(|nth| name(&format!("{}{part}-{nth}", "x".repeat(100))));
        let records = names.map(|name| Record::Dentry(DIR, name, Some(dentry_to(5000)))).collect();
        store.apply(records).unwrap();
    }
    store.flush().unwrap();
    has_room(begun);
}
