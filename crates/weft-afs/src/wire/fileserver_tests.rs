//! Tests of the calls of file servers.

use proptest::prelude::*;

use super::*;
use crate::wire::Call;
use crate::wire::check::{check, check_call, hex};
use crate::wire::encode_whole;
use crate::wire::status::tests::{promise, status, volume_status, volume_sync};
use crate::wire::status::{FIDS_MAX, NAME_BYTES_MAX, OPAQUE_BYTES_MAX, PATH_BYTES_MAX, SET_QUOTA_MIN};

fn fid() -> Fid {
    Fid { volume: VolumeId(0x2000_0006), vnode: 3, unique: 0x1234 }
}

const FID: &str = "200000060000000300001234";

fn change() -> StatusChange {
    StatusChange { modified_s: Some(5), mode: Some(0o644), ..StatusChange::default() }
}

const CHANGE: &str = "000000090000000500000000000000000000 01a400000000";

fn status_reply() -> StatusReply {
    StatusReply { status: status(), promise: promise(), sync: volume_sync() }
}

fn change_reply() -> ChangeReply {
    ChangeReply { status: status(), sync: volume_sync() }
}

fn create_reply() -> CreateReply {
    CreateReply { fid: fid(), status: status(), dir: status(), promise: promise(), sync: volume_sync() }
}

/// The words of some parts.
fn words(parts: &[&str]) -> String {
    parts.concat().replace(' ', "")
}

const NAME_AB: &str = "00000002 61620000";

#[test]
fn a_request_for_a_status_is_as_in_the_golden_vector() {
    let call = FetchStatus { fid: Fid::root_of(VolumeId(536_870_918)) };
    let request = check_call(&call, &status_reply());
    assert_eq!(request, words(&["00000084 20000006 00000001 00000001"]));
    assert_eq!(encode_whole(&status_reply()).map(|reply| reply.len()), Ok(120), "30 words");
}

#[test]
fn calls_on_one_fid_are_written_and_read() {
    let acl = || Message::from("1\n0\nsystem:anyuser\t9\n");
    let reply = AclReply { acl: acl(), status: status(), sync: volume_sync() };
    assert_eq!(check_call(&FetchAcl { fid: fid() }, &reply), words(&["00000083", FID]));
    let stored = check_call(&StoreAcl { dir: fid(), acl: acl() }, &change_reply());
    assert_eq!(stored[..32], words(&["000000a4", FID]));
    let stored = check_call(&OldStoreAcl { dir: fid(), acl: acl() }, &change_reply());
    assert_eq!(stored[..32], words(&["00000086", FID]));
    let set = check_call(&StoreStatus { fid: fid(), change: change() }, &change_reply());
    assert_eq!(set, words(&["00000087", FID, CHANGE]));
    let lock = check_call(&SetLock { fid: fid(), kind: LOCK_WRITE }, &volume_sync());
    assert_eq!(lock, words(&["0000009c", FID, "00000001"]));
    assert_eq!(check_call(&ExtendLock { fid: fid() }, &volume_sync()), words(&["0000009d", FID]));
    assert_eq!(check_call(&ReleaseLock { fid: fid() }, &volume_sync()), words(&["0000009e", FID]));
}

#[test]
fn calls_on_names_are_written_and_read() {
    let name = || FileName::from("ab");
    let (dir, status) = (fid(), status);
    assert_eq!(check_call(&RemoveFile { dir, name: name() }, &change_reply()), words(&["00000088", FID, NAME_AB]));
    assert_eq!(check_call(&RemoveDir { dir, name: name() }, &change_reply()), words(&["0000008e", FID, NAME_AB]));
    let made = check_call(&CreateFile { dir, name: name(), status: change() }, &create_reply());
    assert_eq!(made, words(&["00000089", FID, NAME_AB, CHANGE]));
    let made = check_call(&MakeDir { dir, name: name(), status: change() }, &create_reply());
    assert_eq!(made, words(&["0000008d", FID, NAME_AB, CHANGE]));
    let reply = SymlinkReply { fid: fid(), status: status(), dir: status(), sync: volume_sync() };
    let made = check_call(&Symlink { dir, name: name(), content: Path::from("ab"), status: change() }, &reply);
    assert_eq!(made, words(&["0000008b", FID, NAME_AB, NAME_AB, CHANGE]));
    let reply = LinkReply { status: status(), dir: status(), sync: volume_sync() };
    let linked = check_call(&Link { dir, name: name(), fid: Fid::root_of(VolumeId(7)) }, &reply);
    assert_eq!(linked, words(&["0000008c", FID, NAME_AB, "00000007 00000001 00000001"]));
    let reply = RenameReply { from_dir: status(), to_dir: status(), sync: volume_sync() };
    let call = Rename { from_dir: dir, from_name: name(), to_dir: dir, to_name: FileName::from("c") };
    assert_eq!(check_call(&call, &reply), words(&["0000008a", FID, NAME_AB, FID, "00000001 63000000"]));
}

#[test]
fn calls_on_volumes_and_servers_are_written_and_read() {
    let reply = VolumeReply {
        status: volume_status(),
        name: FileName::from("root.cell"),
        offline: Message::from(""),
        motto: Message::from("hello"),
    };
    let asked = check_call(&GetVolumeStatus { volume: VolumeId(0x2000_0006) }, &reply);
    assert_eq!(asked, "0000009520000006");
    let set = SetVolumeStatus {
        volume: VolumeId(0x2000_0006),
        change: VolumeChange { mask: SET_QUOTA_MIN, quota_min_kib: 5, quota_max_kib: 0 },
        name: FileName::from(""),
        offline: Message::from(""),
        motto: Message::from("ab"),
    };
    let words_of_set = ["00000096 20000006 00000001 00000005 00000000 00000000 00000000", NAME_AB];
    assert_eq!(check_call(&set, &()), words(&words_of_set));
    assert_eq!(check_call(&GetRootVolume {}, &FileName::from("root.afs")), "00000097");
    assert_eq!(check_call(&GetTime {}, &TimeReply { seconds: 1, microseconds: 2 }), "00000099");
    assert_eq!(check_call(&GiveUpAllCallBacks {}, &()), "00010003");
    assert_eq!(check_call(&GetCapabilities {}, &List(vec![CAPABLE_ERRORS | CAPABLE_64_BITS])), "00010004");
    let given_up = GiveUpCallBacks { fids: List(vec![fid()]), promises: List(vec![promise()]) };
    let words_of_given_up = ["00000093 00000001", FID, "00000001 00000001 00001c20 00000002"];
    assert_eq!(check_call(&given_up, &()), words(&words_of_given_up));
}

#[test]
fn calls_for_many_are_written_and_read() {
    let reply = BulkReply {
        rows: List(vec![StatusRow(Ok(status())), StatusRow(Err(102))]),
        promises: List(vec![promise(), Promise::NONE]),
        sync: volume_sync(),
    };
    let other = Fid { vnode: 8, ..fid() };
    let fids = || List(vec![fid(), other]);
    let wanted = words(&["00000002", FID, "200000060000000800001234"]);
    assert_eq!(check_call(&InlineBulkStatus { fids: fids() }, &reply), format!("00010000{wanted}"));
    assert_eq!(check_call(&BulkStatus { fids: fids() }, &reply), format!("0000009b{wanted}"));
    let answers = reply.clone().answers(&[fid(), other]).expect("an answer for each");
    assert_eq!(answers[1], (other, StatusRow(Err(102)), Promise::NONE));
    assert!(reply.clone().answers(&[fid()]).is_err());
    assert!(BulkReply { promises: List(Vec::new()), ..reply }.answers(&[fid(), other]).is_err());
}

#[test]
fn calls_with_data_are_written_and_read() {
    let call = FetchData64 { fid: fid(), position: 1 << 33, length: 4096 };
    let request = check(&call);
    assert_eq!(hex(&request), words(&[FID, "0000000200000000 0000000000001000"]));
    let store = StoreData64 { fid: fid(), change: change(), position: 1, length: 3, file_length: 1 << 32 };
    let wanted = ["00010002", FID, CHANGE, "0000000000000001 0000000000000003 0000000100000000"];
    assert_eq!(check_call(&store, &change_reply()), words(&wanted));
    let fetched = FetchedData { bytes: b"abc".to_vec(), end: status_reply() };
    let bytes = encode_whole(&fetched).expect("no bounds");
    assert_eq!(bytes.len(), 8 + 3 + 120, "data is not padded");
    assert_eq!(FetchData64::reply(&bytes), Ok(fetched));
    for length in 0..bytes.len() {
        assert!(FetchData64::reply(&bytes[..length]).is_err(), "cut at {length}");
    }
    for length in [0, 4, 1 << 31, 1 << 32, u64::MAX] {
        let wrong = [&u64::to_be_bytes(length)[..], &bytes[8..]].concat();
        assert!(FetchData64::reply(&wrong).is_err(), "{length}");
    }
}

#[test]
fn what_is_longer_than_the_protocol_has_it_is_not_asked() {
    let too_long = |length: usize| vec![b'x'; length + 1];
    let name = FileName::from(&too_long(NAME_BYTES_MAX)[..]);
    assert!(matches!(RemoveFile { dir: fid(), name }.request(), Err(XdrError::TooLong { max: NAME_BYTES_MAX, .. })));
    let content = Path::from(&too_long(PATH_BYTES_MAX)[..]);
    let link = Symlink { dir: fid(), name: FileName::from("x"), content, status: change() };
    assert!(matches!(link.request(), Err(XdrError::TooLong { max: PATH_BYTES_MAX, .. })));
    let acl = Message::from(&too_long(OPAQUE_BYTES_MAX)[..]);
    assert!(matches!(StoreAcl { dir: fid(), acl }.request(), Err(XdrError::TooLong { max: OPAQUE_BYTES_MAX, .. })));
    let fids = List(vec![fid(); FIDS_MAX + 1]);
    assert!(matches!(InlineBulkStatus { fids }.request(), Err(XdrError::TooLong { max: FIDS_MAX, .. })));
    let most = InlineBulkStatus { fids: List(vec![fid(); FIDS_MAX]) };
    assert_eq!(most.request().map(|request| request.len()), Ok(8 + 12 * FIDS_MAX));
}

/// What a reader makes of a reply that comes in pieces.
fn read(reply: &[u8], asked: u64, piece_bytes: usize) -> Result<(Vec<u8>, StatusReply), XdrError> {
    let mut reader = FetchReader::new(asked);
    let mut data = Vec::new();
    for piece in reply.chunks(piece_bytes) {
        data.extend_from_slice(reader.take(piece)?);
    }
    assert!(reader.length().is_none_or(|length| length <= asked));
    reader.finish().map(|end| (data, end))
}

#[test]
fn more_data_than_was_asked_for_is_refused() {
    let reply = encode_whole(&FetchedData { bytes: vec![7; 5], end: status_reply() }).expect("no bounds");
    assert_eq!(read(&reply, 5, 3).map(|(data, _)| data), Ok(vec![7; 5]));
    assert!(matches!(read(&reply, 4, 3), Err(XdrError::Invalid { .. })));
    let longer = [&reply[..], &[0]].concat();
    assert!(matches!(read(&longer, 5, 1), Err(XdrError::Trailing { offset: 133, left: 1 })));
}

proptest! {
    #[test]
    fn a_reply_in_any_pieces_is_the_same(
        bytes in prop::collection::vec(any::<u8>(), 0..300), piece_bytes in 1usize..500, cut in 0usize..500,
    ) {
        let asked = bytes.len() as u64 + 10;
        let reply = encode_whole(&FetchedData { bytes: bytes.clone(), end: status_reply() }).expect("no bounds");
        prop_assert_eq!(read(&reply, asked, piece_bytes), Ok((bytes, status_reply())));
        if cut < reply.len() {
            prop_assert!(read(&reply[..cut], asked, piece_bytes).is_err());
        }
    }

    #[test]
    fn any_reply_is_borne(bytes in prop::collection::vec(any::<u8>(), 0..400), piece_bytes in 1usize..500) {
        let _ = read(&bytes, u64::MAX, piece_bytes);
        let _ = FetchData64::reply(&bytes);
        let _ = InlineBulkStatus::reply(&bytes);
        let _ = GetVolumeStatus::reply(&bytes);
        let _ = FetchAcl::reply(&bytes);
    }
}
