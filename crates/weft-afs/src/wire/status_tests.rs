//! Tests of the structures of file servers, and samples of them.

use super::*;
use crate::wire::check::check;
use crate::wire::{decode_whole, encode_whole};

/// A file of 5 GiB.
pub(crate) fn status() -> Status {
    Status {
        kind: Kind::File,
        links: 1,
        length: 5 << 30,
        data_version: 7 << 32 | 9,
        author: 1001,
        owner: -204,
        caller_access: Rights(0x4b),
        anonymous_access: Rights(8),
        mode: 0o644,
        parent_vnode: 3,
        parent_unique: 4,
        modified_s: u32::MAX,
        changed_s: 12,
        group: 13,
        lock_count: -1,
    }
}

pub(crate) fn promise() -> Promise {
    Promise { version: 1, expires_s: 7200, kind: 2 }
}

pub(crate) fn volume_sync() -> VolumeSync {
    VolumeSync { created_s: 1_700_000_000, spares: Spares }
}

pub(crate) fn volume_status() -> VolumeStatus {
    VolumeStatus {
        volume: VolumeId(536_870_918),
        parent: VolumeId(536_870_917),
        online: Char(1),
        in_service: Char(1),
        blessed: Char(0xff),
        needs_salvage: Char(0),
        kind: 1,
        quota_min_kib: 0,
        quota_max_kib: 5000,
        used_kib: 77,
        partition_free_kib: i32::MAX,
        partition_kib: i32::MAX,
    }
}

#[test]
fn each_word_of_a_status_is_in_its_place() {
    let bytes = check(&status());
    let words: Vec<u32> = bytes.chunks(4).map(|word| u32::from_be_bytes(word.try_into().expect("four"))).collect();
    let wanted =
        [1, 1, 1, 0x4000_0000, 9, 1001, 0xffff_ff34, 0x4b, 8, 0o644, 3, 4, 0, u32::MAX, 12, 13, 0, 7, u32::MAX, 1, 0];
    assert_eq!(words, wanted);
}

#[test]
fn a_status_of_another_version_or_of_no_kind_is_refused() {
    let bytes = encode_whole(&status()).expect("no bounds");
    for (at, byte) in [(3, 0), (3, 2), (7, 0), (7, 4), (4, 0xff)] {
        let mut wrong = bytes.clone();
        wrong[at] = byte;
        assert!(matches!(decode_whole::<Status>(&wrong), Err(XdrError::Invalid { .. })), "{byte} at {at}");
        assert!(matches!(decode_whole::<StatusRow>(&wrong), Err(XdrError::Invalid { .. })), "{byte} at {at}");
    }
}

#[test]
fn a_row_without_a_status_says_why() {
    check(&StatusRow(Ok(status())));
    let bytes = check(&StatusRow(Err(102)));
    assert_eq!(bytes.len(), 84);
    let nothing_else = [&[0; 80][..], &[0xff, 0xff, 0xff, 0x9c]].concat();
    assert_eq!(decode_whole(&nothing_else), Ok(StatusRow(Err(-100))));
}

#[test]
fn only_what_is_set_is_set() {
    let everything =
        StatusChange { modified_s: Some(1), owner: Some(-2), group: Some(3), mode: Some(0o755), sync: Sync::Now };
    let bytes = check(&everything);
    assert_eq!(&bytes[..4], &[0, 0, 4, 15]);
    assert_eq!(check(&StatusChange::default()), [0; 24]);
    check(&StatusChange { mode: Some(0), ..StatusChange::default() });
}

#[test]
fn the_other_structures_have_their_sizes() {
    assert_eq!(check(&promise()).len(), 12);
    assert_eq!(check(&volume_sync()).len(), 24);
    assert_eq!(check(&volume_status()).len(), 48);
    assert_eq!(check(&VolumeChange { mask: SET_QUOTA_MAX, quota_min_kib: 0, quota_max_kib: 9 }).len(), 12);
}

#[test]
fn a_promise_has_a_time_and_is_not_dropped() {
    assert!(promise().is_promise());
    assert!(!Promise::NONE.is_promise());
    assert!(!Promise { expires_s: 0, ..promise() }.is_promise());
    assert!(!Promise { kind: DROPPED, ..promise() }.is_promise());
}

#[test]
fn a_link_that_nobody_may_execute_is_a_mount_point() {
    let link = Status { kind: Kind::Symlink, mode: 0o644, ..status() };
    assert!(link.is_mount_point());
    assert!(!Status { mode: 0o755, ..link.clone() }.is_mount_point());
    assert!(!Status { kind: Kind::File, ..link }.is_mount_point());
}
