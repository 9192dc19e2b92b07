//! Content through the door of the store: written, read while it arrives, committed, damaged, removed.

mod common;

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use common::{Place, bytes_of, new_object, object_files, whole};
use weft_remote::{Lease, Seek, Version};
use weft_store::{Dirty, NodeId, Object, PIECE_BYTES, Store, StoreError};

const NODE: NodeId = NodeId(5000);
const PIECE: usize = PIECE_BYTES as usize;

fn held(store: &Arc<Store>) -> Arc<Object> {
    store.object(NODE).unwrap().expect("the object is held")
}

/// Small contents are in segments, others have files that the kernel may read by itself.
#[test]
fn an_object_is_there_after_a_restart() {
    for (length, has_file) in [(1, false), (700, false), (65_536, false), (65_537, true), (300_000, true)] {
        let place = Place::new();
        let content = bytes_of(length);
        let store = place.open();
        let object = whole(&store, NODE, &content);
        assert!(Arc::ptr_eq(&object, &held(&store)), "all callers share one");
        assert_eq!(object.backing().is_some(), has_file);
        assert_eq!(object_files(&place).len(), usize::from(has_file));
        drop((object, store));
        let store = place.open();
        let object = held(&store);
        let end = length as u64;
        assert_eq!(object.length(), Some(end));
        assert_eq!(*object.version(), Version::strong("v"));
        assert_eq!(object.owner_uid(), 7);
        assert!(object.is_complete());
        assert!(object.backing().is_none(), "not compared with its checksum yet");
        assert_eq!(object.read(0, length + 99).unwrap(), content);
        assert_eq!(object.backing().is_some(), has_file);
        assert_eq!(object.read(end - 1, 100).unwrap(), content[length - 1..]);
        assert_eq!(object.read(end, 100).unwrap().len(), 0);
        assert_eq!(object.read(u64::MAX, 100).unwrap().len(), 0);
        assert_eq!(store.usage().objects, 1);
        assert_eq!(store.usage().object_bytes, end.next_multiple_of(4096));
        assert_eq!(store.troubles(), Vec::<String>::new());
    }
}

/// Goal: zeros take no room on the disk, are found as holes, and read as zeros, by several writers and after a restart.
#[test]
fn zeros_are_holes() {
    let place = Place::new();
    let store = place.open();
    let mut content = vec![0; 6 * PIECE + 5000];
    content[PIECE..PIECE + 10].fill(1);
    content[4 * PIECE..5 * PIECE].copy_from_slice(&bytes_of(PIECE));
    let length = content.len() as u64;
    let object = Arc::new(store.create(NODE, new_object(Some(length))).unwrap());
    assert!(matches!(object.seek(0, Seek::Data), Err(StoreError::Missing { offset: 0 })));
    // The later one first, so that the other must not cut it off.
    for (from, to) in [(3 * PIECE, content.len()), (0, 3 * PIECE)] {
        let mut writer = object.writer(from as u64).unwrap();
        content[from..to].chunks(70_001).for_each(|part| writer.append(part).unwrap());
        writer.finish().unwrap();
    }
    object.commit().unwrap();
    assert_eq!(object.read(0, content.len()).unwrap(), content);
    drop(object);
    store.flush().unwrap();
    let [file] = &object_files(&place)[..] else { panic!("one file") };
    let told = std::fs::metadata(file).unwrap();
    assert_eq!(told.len(), length);
    let piece = PIECE_BYTES;
    assert!(told.blocks() * 512 < 3 * piece, "{} blocks", told.blocks());
    drop(store);
    let store = place.open();
    let object = held(&store);
    let unsure = object.seek(0, Seek::Hole);
    assert!(matches!(unsure, Err(StoreError::Missing { .. })), "what a crash has lost would be one: {unsure:?}");
    assert_eq!(object.read(0, content.len()).unwrap(), content);
    let first = object.seek(0, Seek::Data).unwrap().unwrap();
    assert!((piece - 70_001..=piece).contains(&first), "{first}");
    assert_eq!(object.seek(0, Seek::Hole).unwrap(), Some(0));
    assert_eq!(object.seek(piece, Seek::Data).unwrap(), Some(piece));
    assert_eq!(object.seek(5 * piece + 80_000, Seek::Data).unwrap(), None);
    assert_eq!(object.seek(5 * piece + 80_000, Seek::Hole).unwrap(), Some(5 * piece + 80_000));
    for what in [Seek::Data, Seek::Hole] {
        assert_eq!(object.seek(length, what).unwrap(), None);
    }
    let small = whole(&store, NodeId(5001), &[0; 5000]);
    assert_eq!((small.seek(7, Seek::Data).unwrap(), small.seek(7, Seek::Hole).unwrap()), (Some(7), Some(5000)));
}

/// Goal: what was written becomes the content without a copy, with all that was added by a length, and is there after a
/// restart; what is not all sent, not whole or of another length stays a draft.
#[test]
fn what_was_written_is_taken_over() {
    let place = Place::new();
    let store = place.open();
    let drafts = || common::list(&place.dir().join("dirty"));
    let content = bytes_of(2 * PIECE + 100);
    let length = content.len() as u64 + 5;
    let dirty = store.dirty(NODE, Version::strong("u"), 7, 1).unwrap();
    let to_come = |length| store.create_to_come(NODE, new_object(Some(length)));
    let refused = |dirty: &Dirty, length: u64| {
        let sums = vec![0; length.div_ceil(PIECE_BYTES) as usize];
        assert!(!to_come(length).take_over(dirty, &sums).unwrap());
    };
    assert_eq!(dirty.sums(|| true).unwrap(), None, "it needs its base");
    refused(&dirty, 7);
    dirty.write(0, &content).unwrap();
    dirty.resize(length).unwrap();
    let changes = dirty.changes();
    refused(&dirty, length);
    let batch = dirty.take().expect("unsent");
    refused(&dirty, length);
    drop(batch);
    dirty.sent(Version::strong("v")).unwrap();
    assert_eq!(dirty.changes(), changes, "to send it changes nothing");
    refused(&dirty, length - 1);
    assert_eq!(dirty.sums(|| false).unwrap(), None, "nobody asks any more");
    let sums = dirty.sums(|| true).unwrap().expect("all of it is here");
    let object = to_come(length);
    assert!(!object.take_over(&dirty, &sums[..2]).unwrap());
    assert_eq!((drafts().len(), object_files(&place).len()), (2, 0));

    assert!(object.take_over(&dirty, &sums).unwrap());
    assert_eq!((drafts().len(), object_files(&place).len()), (0, 1));
    object.commit().unwrap();
    let wanted = [&content[..], &[0; 5]].concat();
    assert_eq!(object.read(0, wanted.len()).unwrap(), wanted);
    assert!(object.is_complete() && object.backing().is_some());
    refused(&dirty, length);
    dirty.discard();
    drop(dirty);
    assert_eq!(object.read(0, wanted.len()).unwrap(), wanted, "its file is no draft's any more");
    assert_eq!(store.usage().object_bytes, length.next_multiple_of(4096));
    // The next draft of the node is another's.
    let next = store.dirty(NODE, Version::strong("v"), length, 1).unwrap();
    next.write(0, b"other").unwrap();
    next.discard();
    drop((next, object, store));
    let store = place.open();
    let again = held(&store);
    assert_eq!(again.read(0, wanted.len()).unwrap(), wanted, "and its pieces are those of their checksums");
    assert_eq!(store.troubles(), Vec::<String>::new());
}

/// Goal: one that took over and was not committed goes, and is nobody's.
#[test]
fn what_was_taken_over_and_not_committed_goes() {
    let place = Place::new();
    let store = place.open();
    let content = bytes_of(PIECE + 1);
    let dirty = store.dirty(NODE, Version::None, 0, 0).unwrap();
    dirty.write(0, &content).unwrap();
    drop(dirty.take());
    dirty.sent(Version::strong("v")).unwrap();
    let sums = dirty.sums(|| true).unwrap().expect("all of it is here");
    let object = store.create_to_come(NODE, new_object(Some(content.len() as u64)));
    assert!(object.take_over(&dirty, &sums).unwrap());
    drop(object);
    assert_eq!(object_files(&place).len(), 0);
    drop((dirty, store));
    let store = place.open();
    assert!(store.object(NODE).unwrap().is_none() && store.left_dirty().is_empty());
}

/// Nobody tells how long it will be: it begins in memory and becomes a file when it is too long for a segment.
#[test]
fn a_content_of_unknown_length_grows_into_a_file() {
    let place = Place::new();
    let store = place.open();
    let content = bytes_of(200_000);
    let object = store.create(NODE, new_object(None)).unwrap();
    let mut writer = object.writer(0).unwrap();
    for (number, chunk) in content.chunks(9_999).enumerate() {
        writer.append(chunk).unwrap();
        let end = ((number + 1) * 9_999).min(content.len());
        assert_eq!(object.read(0, end).unwrap(), content[..end]);
        assert_eq!(object_files(&place).len(), usize::from(end > 65_536));
    }
    writer.finish().unwrap();
    object.commit().unwrap();
    drop((object, store));
    assert_eq!(held(&place.open()).read(0, 200_000).unwrap(), content);
}

#[test]
fn an_empty_object_is_complete_at_once() {
    let place = Place::new();
    let store = place.open();
    let object = store.create(NODE, new_object(Some(0))).unwrap();
    assert!(object.is_complete());
    object.commit().unwrap();
    assert_eq!(held(&store).read(0, 10).unwrap().len(), 0);
    assert_eq!(held(&store).missing_from(0), None);
}

#[test]
fn what_is_not_committed_is_not_seen_and_leaves_nothing() {
    let place = Place::new();
    let store = place.open();
    let object = store.create(NODE, new_object(None)).unwrap();
    let mut writer = object.writer(0).unwrap();
    writer.append(b"half").unwrap();
    assert!(store.object(NODE).unwrap().is_none());
    writer.append(&bytes_of(70_000)).unwrap();
    assert_eq!(object_files(&place).len(), 1);
    object.discard();
    assert_eq!(object_files(&place).len(), 0);
    writer.append(b" more").unwrap();
    writer.finish().unwrap();
    object.commit().unwrap();
    assert!(store.object(NODE).unwrap().is_none(), "discarded for good");
    let dropped = store.create(NODE, new_object(Some(70_000))).unwrap();
    assert_eq!(object_files(&place).len(), 1);
    drop(dropped);
    assert_eq!(object_files(&place).len(), 0);
}

/// Goal: what was revoked is held no more, was it committed or not, and cannot be committed again; whoever has it reads what
/// came of it, and what has replaced it stays.
#[test]
fn what_is_revoked_is_gone_although_it_was_committed() {
    let place = Place::new();
    let store = place.open();
    let part = || {
        let object = store.create(NODE, new_object(Some(3 * PIECE_BYTES))).unwrap();
        let mut writer = object.writer(0).unwrap();
        writer.append(&bytes_of(2 * PIECE)).unwrap();
        drop(writer);
        object
    };
    let object = part();
    object.commit().unwrap();
    assert!(store.object(NODE).unwrap().is_some());
    object.revoke().unwrap();
    assert!(store.object(NODE).unwrap().is_none());
    assert_eq!(object.read(0, 1000).unwrap(), bytes_of(2 * PIECE)[..1000]);
    object.commit().unwrap();
    assert!(store.object(NODE).unwrap().is_none(), "revoked for good");
    let draft = part();
    draft.revoke().unwrap();
    draft.commit().unwrap();
    assert!(store.object(NODE).unwrap().is_none());
    let next = part();
    next.commit().unwrap();
    object.revoke().unwrap();
    assert!(store.object(NODE).unwrap().is_some_and(|held| held.generation() == next.generation()));
    drop((object, draft, next));
    assert_eq!(object_files(&place).len(), 1);
}

#[test]
fn an_unknown_length_is_known_at_the_end_of_the_stream() {
    let place = Place::new();
    let store = place.open();
    let content = bytes_of(PIECE + 10);
    let object = store.create(NODE, new_object(None)).unwrap();
    let mut writer = object.writer(0).unwrap();
    writer.append(&content[..PIECE + 4]).unwrap();
    assert_eq!(object.length(), None);
    assert_eq!(object.available(2), PIECE_BYTES + 2);
    assert_eq!(object.read(PIECE_BYTES - 3, 7).unwrap(), content[PIECE - 3..PIECE + 4]);
    assert!(matches!(object.read(PIECE_BYTES, 5), Err(StoreError::Missing { offset }) if offset == PIECE_BYTES + 4));
    assert!(matches!(object.commit(), Err(StoreError::Missing { .. })));
    writer.append(&content[PIECE + 4..]).unwrap();
    assert_eq!(object.missing_from(0), Some(PIECE_BYTES));
    writer.finish().unwrap();
    assert_eq!(object.length(), Some(PIECE_BYTES + 10));
    assert!(object.is_complete());
    assert_eq!(object.missing_from(0), None);
    object.commit().unwrap();
    assert_eq!(held(&store).read(0, 2 * PIECE).unwrap(), content);
}

#[test]
fn a_stream_that_ends_early_keeps_whole_pieces_only() {
    let place = Place::new();
    let store = place.open();
    let content = bytes_of(2 * PIECE + 10);
    let object = store.create(NODE, new_object(Some(content.len() as u64))).unwrap();
    let mut writer = object.writer(0).unwrap();
    writer.append(&content[..PIECE + 100]).unwrap();
    assert_eq!(object.available(0), PIECE_BYTES + 100);
    writer.finish().unwrap();
    assert_eq!(object.available(0), PIECE_BYTES);
    assert_eq!(object.missing_from(0), Some(PIECE_BYTES));
    assert!(!object.is_complete());
    object.commit().unwrap();
    assert!(!store.object_record(NODE).unwrap().unwrap().is_complete());
    assert_eq!(store.object_record(NODE).unwrap().unwrap().held_bytes(), PIECE_BYTES);
}

#[test]
fn more_bytes_than_announced_are_refused() {
    let place = Place::new();
    let store = place.open();
    let object = store.create(NODE, new_object(Some(3))).unwrap();
    let mut writer = object.writer(0).unwrap();
    let outcome = writer.append(b"four");
    assert!(matches!(outcome, Err(StoreError::WrongLength { expected: 3, given: 4 })));
    assert!(matches!(object.writer(PIECE_BYTES), Err(StoreError::WrongLength { .. })));
    assert!(matches!(object.writer(1), Err(StoreError::Io { .. })));
}

/// A claimed length costs nothing until bytes come, and one that no object can have is refused.
#[test]
fn a_monstrous_length_is_harmless() {
    let place = Place::new();
    let store = place.open();
    assert!(matches!(store.create(NODE, new_object(Some(u64::MAX))), Err(StoreError::Io { .. })));
    let length = 1 << 42;
    let object = store.create(NODE, new_object(Some(length))).unwrap();
    let start = length - PIECE_BYTES;
    let mut writer = object.writer(start).unwrap();
    writer.append(&bytes_of(PIECE)).unwrap();
    writer.finish().unwrap();
    object.commit().unwrap();
    assert_eq!(object.available(start), PIECE_BYTES);
    assert_eq!(object.missing_from(0), Some(0));
    assert_eq!(object.missing_from(start), None);
    assert!(matches!(object.read(0, usize::MAX), Err(StoreError::Missing { offset: 0 })));
    assert_eq!(store.object_record(NODE).unwrap().unwrap().pieces.len(), 1);
}

#[test]
fn pieces_fetched_by_range_are_kept_over_a_restart() {
    let place = Place::new();
    let content = bytes_of(3 * PIECE + 5);
    let store = place.open();
    let object = store.create(NODE, new_object(Some(content.len() as u64))).unwrap();
    let mut writer = object.writer(2 * PIECE_BYTES).unwrap();
    writer.append(&content[2 * PIECE..]).unwrap();
    writer.finish().unwrap();
    object.commit().unwrap();
    drop((object, store));
    let store = place.open();
    let object = held(&store);
    assert_eq!(object.available(0), 0);
    assert_eq!(object.missing_from(0), Some(0));
    assert_eq!(object.missing_from(2 * PIECE_BYTES + 1), None);
    assert_eq!(object.read(2 * PIECE_BYTES + 1, 2 * PIECE).unwrap(), content[2 * PIECE + 1..]);
    let mut writer = object.writer(0).unwrap();
    writer.append(&content).unwrap();
    writer.finish().unwrap();
    assert!(object.is_complete());
    object.commit().unwrap();
    drop((object, store));
    let store = place.open();
    assert_eq!(held(&store).read(0, 4 * PIECE).unwrap(), content);
}

/// Without a version nobody can tell what a half belongs to.
#[test]
fn a_half_without_a_version_cannot_be_committed() {
    let place = Place::new();
    let store = place.open();
    let mut new = new_object(Some(2 * PIECE_BYTES));
    new.version = Version::None;
    let object = store.create(NODE, new).unwrap();
    let mut writer = object.writer(0).unwrap();
    writer.append(&bytes_of(PIECE)).unwrap();
    assert!(matches!(object.commit(), Err(StoreError::Missing { offset: PIECE_BYTES })));
    writer.append(&bytes_of(PIECE)).unwrap();
    object.commit().unwrap();
}

#[test]
fn two_writers_at_one_piece_do_not_mix() {
    let place = Place::new();
    let store = place.open();
    let object = store.create(NODE, new_object(Some(2 * PIECE_BYTES))).unwrap();
    let mut first = object.writer(0).unwrap();
    first.append(&[1; 10]).unwrap();
    let mut second = object.writer(0).unwrap();
    second.append(&vec![2; 2 * PIECE]).unwrap();
    assert_eq!(object.read(0, 10).unwrap(), [1u8; 10][..]);
    assert_eq!(object.available(0), 10, "the second passed over what the first is bringing");
    drop(first);
    assert_eq!(object.available(0), 0, "and nothing of an unfinished piece stays");
    assert_eq!(object.read(PIECE_BYTES, PIECE).unwrap(), vec![2; PIECE]);
    let mut third = object.writer(0).unwrap();
    third.append(&vec![3; PIECE]).unwrap();
    assert!(object.is_complete());
    assert_eq!(object.read(PIECE_BYTES - 1, 2).unwrap(), [3u8, 2][..]);
}

#[test]
fn a_new_generation_takes_the_place_of_the_old_one() {
    let place = Place::new();
    let store = place.open();
    let old = whole(&store, NODE, b"old");
    let new = store.create(NODE, new_object(Some(5))).unwrap();
    let mut writer = new.writer(0).unwrap();
    writer.append(b"newer").unwrap();
    writer.finish().unwrap();
    assert!(Arc::ptr_eq(&held(&store), &old), "not visible before its commit");
    new.commit().unwrap();
    assert!(Arc::ptr_eq(&held(&store), &new));
    store.flush().unwrap();
    assert_eq!(old.read(0, 10).unwrap(), "old", "an open handle keeps reading");
    old.commit().unwrap();
    assert!(Arc::ptr_eq(&held(&store), &new), "a late commit of the old one does not bring it back");
    drop((old, new, store));
    let store = place.open();
    assert_eq!(held(&store).read(0, 10).unwrap(), "newer");
    assert_eq!(store.usage().objects, 1);
}

#[test]
fn a_removed_object_is_gone_but_can_be_read_on() {
    let place = Place::new();
    let store = place.open();
    let object = whole(&store, NODE, &bytes_of(5000));
    assert_eq!(store.remove_object(NODE).unwrap(), 8192);
    assert_eq!(store.remove_object(NODE).unwrap(), 0);
    assert!(store.object(NODE).unwrap().is_none());
    assert_eq!(object_files(&place).len(), 0);
    assert_eq!(object.read(0, 5000).unwrap(), bytes_of(5000));
    assert_eq!((store.usage().objects, store.usage().object_bytes), (0, 0));
}

#[test]
fn renewing_changes_the_lease_only() {
    let place = Place::new();
    let store = place.open();
    let object = whole(&store, NODE, b"same");
    let checked = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    store.renew(NODE, Lease::Forever, checked).unwrap();
    store.renew(NodeId(1), Lease::Forever, checked).unwrap();
    assert_eq!((object.lease(), object.checked()), (Lease::Forever, checked));
    drop((object, store));
    let store = place.open();
    let record = store.object_record(NODE).unwrap().unwrap();
    assert_eq!((record.lease, record.checked), (Lease::Forever, checked));
    assert_eq!(held(&store).read(0, 4).unwrap(), "same");
}

#[test]
fn a_flipped_byte_is_damage_once_and_then_missing() {
    let place = Place::new();
    let content = bytes_of(3 * PIECE);
    let store = place.open();
    drop(whole(&store, NODE, &content));
    drop(store);
    let path = object_files(&place).remove(0);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[PIECE + 9] ^= 0x10;
    std::fs::write(&path, bytes).unwrap();
    let store = place.open();
    let object = held(&store);
    assert_eq!(object.read(10, 10).unwrap(), content[10..20]);
    let outcome = object.read(PIECE_BYTES - 1, 2);
    assert!(matches!(outcome, Err(StoreError::Damaged { offset: PIECE_BYTES, .. })), "{outcome:?}");
    assert!(matches!(object.read(PIECE_BYTES, 2), Err(StoreError::Missing { offset: PIECE_BYTES })));
    assert!(!object.is_complete());
    assert_eq!(object.missing_from(0), Some(PIECE_BYTES));
    assert_eq!(store.troubles().len(), 1);
    drop((object, store));
    let store = place.open();
    let object = held(&store);
    assert_eq!(object.missing_from(0), Some(PIECE_BYTES), "it is remembered");
    let mut writer = object.writer(PIECE_BYTES).unwrap();
    writer.append(&content[PIECE..2 * PIECE]).unwrap();
    writer.finish().unwrap();
    assert_eq!(object.read(0, 3 * PIECE).unwrap(), content);
    assert!(object.backing().is_some());
}

/// Bytes that were seen to be right are told where they lie, until they are doubted: then they are compared first.
#[test]
fn what_is_doubted_is_compared_before_it_is_used() {
    let place = Place::new();
    let store = place.open();
    let content = bytes_of(3 * PIECE);
    let object = whole(&store, NODE, &content);
    let stretch = object.stretch(PIECE_BYTES - 5, PIECE).unwrap().expect("it was written in this life");
    assert_eq!((stretch.offset(), stretch.len()), (PIECE_BYTES - 5, PIECE));
    assert_eq!(stretch.read().unwrap(), content[PIECE - 5..2 * PIECE - 5]);
    assert_eq!(object.stretch(PIECE_BYTES * 3 - 5, PIECE).unwrap().map(|stretch| stretch.len()), Some(5));
    assert!(object.stretch(PIECE_BYTES * 3, PIECE).unwrap().is_none(), "nothing is there");
    let mut bytes = std::fs::read(object_files(&place).remove(0)).unwrap();
    bytes[PIECE + 9] ^= 0x10;
    std::fs::write(object_files(&place).remove(0), bytes).unwrap();
    stretch.doubt();
    assert!(object.backing().is_none() && object.stretch(0, 5).unwrap().is_none());
    assert!(object.stretch(2 * PIECE_BYTES, PIECE).unwrap().is_some(), "the rest is as it was");
    assert_eq!(object.read(0, PIECE).unwrap(), content[..PIECE]);
    assert!(object.stretch(0, 5).unwrap().is_some(), "it was right");
    assert!(matches!(object.read(PIECE_BYTES, 5), Err(StoreError::Damaged { .. })));
    assert!(matches!(object.stretch(PIECE_BYTES, 5), Err(StoreError::Missing { .. })));
}

/// Of an object without a version the missing piece cannot be fetched alone, so all of it is given up.
#[test]
fn damage_without_a_version_gives_up_the_object() {
    let place = Place::new();
    let store = place.open();
    let mut new = new_object(Some(70_000));
    new.version = Version::None;
    let object = store.create(NODE, new).unwrap();
    let mut writer = object.writer(0).unwrap();
    writer.append(&bytes_of(70_000)).unwrap();
    writer.finish().unwrap();
    object.commit().unwrap();
    drop((object, store));
    std::fs::write(object_files(&place).remove(0), [b'e'; 70_000]).unwrap();
    let store = place.open();
    assert!(matches!(held(&store).read(0, 4), Err(StoreError::Damaged { offset: 0, .. })));
    assert!(store.object(NODE).unwrap().is_none());
    assert!(store.object_record(NODE).unwrap().is_none());
    assert_eq!(object_files(&place).len(), 0);
    assert_eq!(store.usage().objects, 0);
}

#[test]
fn a_shortened_or_missing_file_is_given_up() {
    let cut = |path: &Path| std::fs::write(path, b"x").unwrap();
    let remove = |path: &Path| std::fs::remove_file(path).unwrap();
    for harm in [&cut as &dyn Fn(&Path), &remove] {
        let place = Place::new();
        let store = place.open();
        drop(whole(&store, NODE, &bytes_of(90_000)));
        drop(store);
        harm(&object_files(&place).remove(0));
        let store = place.open();
        assert!(store.object(NODE).unwrap().is_none());
        assert!(store.object_record(NODE).unwrap().is_none());
        assert_eq!(store.troubles().len(), 1, "{:?}", store.troubles());
        drop(whole(&store, NODE, b"again"));
        assert_eq!(held(&store).read(0, 9).unwrap(), "again");
        assert_eq!(store.usage().objects, 1);
    }
}

#[test]
fn a_file_cut_while_it_is_open_is_noticed() {
    let place = Place::new();
    let store = place.open();
    let object = whole(&store, NODE, &bytes_of(90_000));
    std::fs::write(object_files(&place).remove(0), b"x").unwrap();
    assert!(matches!(object.read(0, 900), Err(StoreError::Damaged { .. })));
    assert!(matches!(object.read(0, 900), Err(StoreError::Missing { offset: 0 })));
}

/// Readers follow a writer and never see a byte that was not written.
#[test]
fn readers_follow_a_writer() {
    let place = Place::new();
    let store = place.open();
    let content = bytes_of(5 * PIECE + 77);
    let object = store.create(NODE, new_object(Some(content.len() as u64))).unwrap();
    std::thread::scope(|scope| {
        for reader in 0..3u64 {
            let (object, content) = (&object, &content);
            scope.spawn(move || {
                let mut at = 0u64;
                while at < content.len() as u64 {
                    let ready = object.available(at).min(10_000 + reader);
                    if ready == 0 {
                        std::thread::yield_now();
                        continue;
                    }
                    let got = object.read(at, ready as usize).unwrap();
                    assert_eq!(got, content[at as usize..(at + ready) as usize]);
                    at += ready;
                }
            });
        }
        let mut writer = object.writer(0).unwrap();
        for chunk in content.chunks(13_001) {
            writer.append(chunk).unwrap();
        }
        writer.finish().unwrap();
    });
    object.commit().unwrap();
    assert_eq!(held(&store).read(0, content.len()).unwrap(), content);
}

/// Many threads commit, open and remove the same few nodes; whatever is opened is whole.
#[test]
fn commits_removals_and_opens_at_the_same_time() {
    for length in [300, 70_000] {
        let place = Place::new();
        let store = place.open();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let store = &store;
                scope.spawn(move || {
                    for round in 0..150u64 {
                        let node = NodeId(6000 + round % 3);
                        match (thread + round) % 4 {
                            0 | 1 => drop(whole(store, node, &vec![thread as u8; length])),
                            2 => drop(store.remove_object(node).unwrap()),
                            _ => {
                                if let Some(object) = store.object(node).unwrap() {
                                    let got = object.read(0, 100_000).unwrap();
                                    assert_eq!(got.len(), length);
                                    assert!(got.iter().all(|byte| *byte == got[0]));
                                }
                            }
                        }
                    }
                });
            }
        });
        store.flush().unwrap();
        assert_eq!(store.troubles(), Vec::<String>::new());
        let left = (6000..6003).filter(|node| store.object(NodeId(*node)).unwrap().is_some()).count();
        let files = object_files(&place).len();
        assert_eq!(files, if length > 65_536 { left } else { 0 });
        assert_eq!(store.usage().objects, left as u64);
        assert_eq!(store.usage().object_bytes, (left * length.next_multiple_of(4096)) as u64);
    }
}

/// Goal: a kill at any moment after a commit loses no small content, flushed or not, and what was removed stays so.
/// Method: the folder is copied while the store has it open, as a kill would leave it.
#[test]
fn small_contents_outlive_a_kill() {
    let place = Place::new();
    let store = place.open();
    for number in 0..300u64 {
        drop(whole(&store, NodeId(6000 + number), &bytes_of(100 + 37 * number as usize)));
    }
    store.remove_object(NodeId(6007)).unwrap();
    drop(whole(&store, NodeId(6008), b"another"));
    store.flush().unwrap();
    let killed = Place::new();
    let copied = std::process::Command::new("cp").arg("-a").arg(place.dir()).arg(killed.dir()).status().unwrap();
    assert!(copied.success());
    for _ in 0..2 {
        let again = killed.open();
        for number in 0..300u64 {
            let expected = match number {
                7 => None,
                8 => Some(b"another".to_vec()),
                number => Some(bytes_of(100 + 37 * number as usize)),
            };
            let found = again.object(NodeId(6000 + number)).unwrap();
            let found = found.map(|object| object.read(0, 1 << 20).unwrap().to_vec());
            assert_eq!(found, expected, "{number}");
        }
        assert_eq!(again.troubles(), Vec::<String>::new());
    }
    drop(store);
}

/// A content that is damaged where it lies is given up, and comes again.
#[test]
fn a_damaged_segment_is_given_up() {
    let place = Place::new();
    let store = place.open();
    drop(whole(&store, NODE, &bytes_of(9000)));
    drop(store);
    let volume = place.dir().join("segments/volume-0000");
    let mut bytes = std::fs::read(&volume).unwrap();
    let content = bytes_of(9000);
    // Once in the log, maybe, and once in a segment.
    let windows = bytes.windows(64).enumerate();
    let places: Vec<usize> = windows.filter(|(_, window)| *window == &content[..64]).map(|(at, _)| at).collect();
    assert!(!places.is_empty(), "the content is there");
    places.iter().for_each(|at| bytes[at + 5] ^= 1);
    std::fs::write(&volume, &bytes).unwrap();
    let store = place.open();
    assert!(matches!(held(&store).read(0, 9000), Err(StoreError::Damaged { offset: 0, .. })));
    let object = store.create(NODE, new_object(Some(9000))).unwrap();
    let mut writer = object.writer(0).unwrap();
    writer.append(&content).unwrap();
    writer.finish().unwrap();
    object.commit().unwrap();
    drop((object, store));
    assert_eq!(held(&place.open()).read(0, 9000).unwrap(), content);
}
