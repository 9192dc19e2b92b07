//! Looking at everything that is held.

mod common;

use std::sync::Arc;

use common::{Place, bytes_of, object_files, whole};
use weft_store::{Check, Damage, Found, NodeId, PIECE_BYTES, Store};

const PIECE: usize = PIECE_BYTES as usize;
const LARGE: NodeId = NodeId(7);
const SMALL: NodeId = NodeId(8);

/// A store with a large content in a file and a small one in a segment, after a start.
fn filled() -> (Place, Arc<Store>) {
    let place = Place::new();
    let store = place.open();
    drop(whole(&store, LARGE, &bytes_of(2 * PIECE + 10)));
    drop(whole(&store, SMALL, &bytes_of(3000)));
    store.flush().unwrap();
    drop(store);
    let store = place.open();
    (place, store)
}

fn all(mut check: Check) -> (Found, Vec<Damage>) {
    let mut damages = Vec::new();
    loop {
        let more = check.step().unwrap();
        damages.extend(check.damages());
        if !more {
            return (check.found(), damages);
        }
    }
}

#[test]
fn what_is_as_it_was_written_is_sound() {
    let (_place, store) = filled();
    let (found, damages) = all(store.check(false));
    let bytes = 2 * PIECE_BYTES + 10 + 3000;
    assert_eq!(found, Found { objects: 2, bytes, ..Found::default() });
    assert_eq!(damages, []);
    assert!(store.object(LARGE).unwrap().unwrap().is_complete());
}

/// A check tells what is damaged and changes nothing; a repair gives up the piece, and the rest stays.
#[test]
fn damage_is_told_and_given_up_when_asked() {
    let (place, store) = filled();
    let path = object_files(&place).remove(0);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[PIECE + 9] ^= 0x10;
    std::fs::write(&path, bytes).unwrap();
    for repair in [false, false, true] {
        let (found, damages) = all(store.check(repair));
        assert_eq!((found.damaged_objects, found.damaged_bytes), (1, PIECE_BYTES));
        assert!(matches!(&damages[..], [Damage::Piece { node: LARGE, offset: PIECE_BYTES, length: PIECE_BYTES, .. }]));
        let object = store.object(LARGE).unwrap().unwrap();
        assert_eq!(object.missing_from(0), repair.then_some(PIECE_BYTES));
    }
    let (found, damages) = all(store.check(true));
    assert_eq!((found.damaged_objects, found.objects, damages.len()), (0, 2, 0));
}

#[test]
fn a_small_content_that_is_damaged_in_its_segment_is_found() {
    let (place, store) = filled();
    drop(store);
    let volume = place.dir().join("segments/volume-0000");
    let mut bytes = std::fs::read(&volume).unwrap();
    let content = bytes_of(3000);
    let places: Vec<usize> =
        bytes.windows(64).enumerate().filter(|(_, part)| *part == &content[..64]).map(|(at, _)| at).collect();
    assert!(!places.is_empty(), "the content is there");
    places.into_iter().for_each(|at| bytes[at + 9] ^= 0x10);
    std::fs::write(&volume, bytes).unwrap();
    let store = place.open();
    let (found, damages) = all(store.check(true));
    assert_eq!(found.damaged_objects, 1);
    assert!(damages.iter().any(|damage| matches!(damage, Damage::Piece { node: SMALL, offset: 0, length: 3000, .. })));
    let (found, _) = all(store.check(false));
    assert_eq!((found.damaged_objects, found.damaged_volumes), (0, 0), "it is given up");
}
