//! What is there after a kill, and after the database was harmed.

mod common;

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;

use common::{Place, bytes_of, dentry_to, list, listed, name, whole};
use weft_store::{BindingId, Journal, NodeId, Record, Store, StoreOptions};

const DIR: NodeId = NodeId(4096);
const CHILD_DIR: &str = "WEFT_STORE_TEST_DIR";
const CHILD_FIRST: &str = "WEFT_STORE_TEST_FIRST";
/// How many nodes the child writes over and over.
const NODES: u64 = 20;

/// Runs as a process of its own, and is killed: changes, flushes, and tells what is confirmed.
#[test]
#[ignore = "started by a_kill_loses_nothing_confirmed"]
fn child_that_is_killed() {
    let (Ok(dir), Ok(first)) = (std::env::var(CHILD_DIR), std::env::var(CHILD_FIRST)) else {
        panic!("only for a_kill_loses_nothing_confirmed");
    };
    let store = Store::open(dir.as_ref(), StoreOptions::default()).unwrap();
    for number in first.parse::<u64>().unwrap().. {
        let node = NodeId(10_000 + number % NODES);
        drop(whole(&store, node, &content(number)));
        let dentry = Record::Dentry(DIR, name(&format!("{number:09}")), Some(dentry_to(node.0)));
        store.apply(vec![dentry]).unwrap();
        if number.is_multiple_of(3) {
            store.flush().unwrap();
            println!("confirmed {number}");
        }
    }
}

/// The content that the given round writes: tells the round, and is longer than a piece at times.
fn content(number: u64) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend(bytes_of(if number.is_multiple_of(5) { 300_000 } else { 2000 }));
    bytes
}

/// Goal: with a journal nothing that was applied is lost, flushed or not. Method: a store that does not flush by itself is
/// copied as it lies on the disk, as a kill would leave it, and the copy opened with the same journal.
#[test]
fn a_journal_has_what_the_database_has_not() {
    let (place, copy) = (Place::new(), Place::new());
    let files = [tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap()];
    let options = || StoreOptions {
        flush_interval: std::time::Duration::from_secs(86_400),
        journal: Some(Journal::new([&files[0], &files[1]].map(|file| file.try_clone().unwrap())).unwrap()),
        ..StoreOptions::default()
    };
    let store = Store::open(&place.dir(), options()).unwrap();
    let dentry = |text: &str, node| Record::Dentry(DIR, name(text), node);
    store.apply(vec![dentry("flushed", Some(dentry_to(5000))), dentry("removed", Some(dentry_to(5001)))]).unwrap();
    store.flush().unwrap();
    store.apply(vec![dentry("removed", None), dentry("new", Some(dentry_to(5002)))]).unwrap();
    std::fs::create_dir_all(copy.dir()).unwrap();
    std::fs::copy(place.index(), copy.index()).unwrap();
    let seed = |store: &Store| store.identify(BindingId(1), &weft_remote::FileId::new([1]), None).unwrap();
    let again = Store::open(&copy.dir(), options()).unwrap();
    let names = |store: &Store| -> Vec<_> {
        store.dentries(DIR, None, 10).unwrap().into_iter().map(|(name, _)| name.to_string()).collect()
    };
    assert_eq!(names(&again), ["flushed", "new"]);
    assert_eq!(seed(&again), seed(&store), "and the numbers of files are the same");
    assert!(files.iter().all(|file| file.metadata().unwrap().len() == 0), "it is in the database now");
}

#[test]
fn a_kill_loses_nothing_confirmed() {
    let place = Place::new();
    drop(place.open());
    let mut first = 0;
    for round in 0..6u64 {
        let confirmed = run_and_kill(&place, first, 1 + round * 7);
        let store = place.open();
        assert_eq!(store.troubles(), Vec::<String>::new());
        let names = store.dentries(DIR, None, usize::MAX).unwrap();
        for number in 0..=confirmed {
            assert_eq!(*names[number as usize].0.as_bytes(), *format!("{number:09}").as_bytes());
        }
        let mut objects = 0;
        for node in 0..NODES {
            let Some(object) = store.object(NodeId(10_000 + node)).unwrap() else {
                assert!(confirmed < node, "object {node} was confirmed");
                continue;
            };
            let bytes = object.read(0, 1 << 20).unwrap();
            let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            assert_eq!(bytes, content(number));
            let last_confirmed = (0..=confirmed).rev().find(|number| number % NODES == node);
            assert!(last_confirmed.is_none_or(|last| number >= last), "{number} is older than what was confirmed");
            objects += 1;
        }
        assert_eq!(store.usage().objects, objects);
        first = names.len() as u64;
    }
}

/// Starts the child, kills it after so many confirmations, and tells the last one.
fn run_and_kill(place: &Place, first: u64, confirmations: u64) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_is_killed", "--ignored", "--nocapture"])
        .env(CHILD_DIR, place.dir())
        .env(CHILD_FIRST, first.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut numbers = lines.by_ref().map_while(Result::ok).filter_map(|line| confirmed(&line));
    let mut last = numbers.nth(confirmations as usize).expect("the child confirms");
    child.kill().unwrap();
    // What it had told before the kill reached it counts as well.
    last = numbers.last().unwrap_or(last);
    child.wait().unwrap();
    last
}

fn confirmed(line: &str) -> Option<u64> {
    line.split_once("confirmed ")?.1.parse().ok()
}

/// A store with names, an object, a note and a binding, closed again.
fn filled(place: &Place) -> BindingId {
    let store = place.open();
    store.apply((0..2000).flat_map(|number| listed(&store, DIR, number)).collect()).unwrap();
    drop(whole(&store, NodeId(9), b"content"));
    store.notes("web").put(b"key", Some(b"value")).unwrap();
    store.binding("web").unwrap()
}

/// A directory of its own.
const ELSEWHERE: NodeId = NodeId(77);

fn works(store: &Arc<Store>) {
    // Apart from what the damage is looked for in: with another seed, the same file has another number.
    store.apply(listed(store, ELSEWHERE, 1)).unwrap();
    drop(whole(store, NodeId(10), b"new"));
    store.flush().unwrap();
    assert!(!store.dentries(ELSEWHERE, None, 10).unwrap().is_empty());
    assert_eq!(store.object(NodeId(10)).unwrap().unwrap().read(0, 10).unwrap(), "new");
}

#[test]
fn a_database_that_cannot_be_read_is_set_aside() {
    let place = Place::new();
    let harms: [(&str, &dyn Fn()); 4] = [
        ("garbage", &|| std::fs::write(place.index(), bytes_of(50_000)).unwrap()),
        ("a short file", &|| std::fs::write(place.index(), b"redb").unwrap()),
        ("half", &|| cut(&place, std::fs::metadata(place.index()).unwrap().len() / 2)),
        ("one byte", &|| cut(&place, 1)),
    ];
    for (what, harm) in harms {
        filled(&place);
        harm();
        let store = place.open();
        assert_eq!(store.troubles().len(), 1, "{what}: {:?}", store.troubles());
        assert!(store.troubles()[0].contains("set aside"), "{what}");
        assert!(store.dentries(DIR, None, 10).unwrap().is_empty(), "{what}");
        assert_eq!(store.usage().objects, 0, "{what}");
        works(&store);
    }
    let aside = list(&place.dir()).iter().filter(|path| path.to_string_lossy().contains("damaged")).count();
    assert_eq!(aside, 3, "a few are kept, not all");
}

#[test]
fn an_empty_database_file_is_a_new_one() {
    let place = Place::new();
    filled(&place);
    std::fs::write(place.index(), b"").unwrap();
    works(&place.open());
}

fn cut(place: &Place, length: u64) {
    std::fs::OpenOptions::new().write(true).open(place.index()).unwrap().set_len(length).unwrap();
}

/// Bytes flipped anywhere in a database that was closed in order: nothing wrong is told, nothing panics, and the
/// store works, before and after another start. What the damage hits may be lost.
#[test]
fn a_database_with_flipped_bytes_tells_nothing_wrong() {
    let pristine = Place::new();
    filled(&pristine);
    let bytes = std::fs::read(pristine.index()).unwrap();
    let expected: HashMap<_, _> = {
        let store = pristine.open();
        store.dentries(DIR, None, usize::MAX).unwrap().into_iter().collect()
    };
    for round in 0..60u64 {
        let place = Place::new();
        drop(place.open());
        let mut harmed = bytes.clone();
        for flip in 0..1 + round % 8 {
            let at = (round * 8 + flip + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) % harmed.len() as u64;
            harmed[at as usize] ^= 0x5a;
        }
        std::fs::write(place.index(), harmed).unwrap();
        for _ in 0..2 {
            let store = place.open();
            for (name, record) in store.dentries(DIR, None, usize::MAX).unwrap() {
                assert_eq!(expected.get(&name), Some(&record), "round {round}");
            }
            for name in expected.keys() {
                store.dentry(DIR, name).unwrap();
            }
            works(&store);
        }
    }
}

/// Damage that shows while the store is in use: the bindings and the seed outlive it, so numbers stay.
#[test]
fn numbers_outlive_a_database_lost_in_use() {
    let place = Place::new();
    let web = filled(&place);
    // Without a cache, so that reads meet the disk.
    let options = StoreOptions { index_cache_bytes: 0, ..StoreOptions::default() };
    let store = Store::open(&place.dir(), options).unwrap();
    let afs = store.binding("afs").unwrap();
    store.flush().unwrap();
    let file = weft_remote::FileId::new("new");
    let node = store.identify(web, &file, None).unwrap();
    let length = std::fs::metadata(place.index()).unwrap().len();
    std::fs::write(place.index(), vec![0x77; length as usize]).unwrap();
    assert_eq!(store.dentries(DIR, None, usize::MAX).unwrap(), []);
    assert_eq!(store.troubles().len(), 1, "{:?}", store.troubles());
    works(&store);
    assert_eq!(store.usage().objects, 1);
    drop(store);
    let store = place.open();
    assert_eq!((store.binding("web").unwrap(), store.binding("afs").unwrap()), (web, afs));
    assert_eq!(store.identify(web, &file, None).unwrap(), node);
    works(&store);
}
