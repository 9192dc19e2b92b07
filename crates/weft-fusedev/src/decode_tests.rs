use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::*;

/// A message as the kernel lays it out, from its arguments.
fn message(opcode: u32, arguments: &[&[u8]]) -> Vec<u8> {
    extended(opcode, arguments, &[])
}

fn extended(opcode: u32, arguments: &[&[u8]], extension: &[u8]) -> Vec<u8> {
    let rest = [&arguments.concat(), extension].concat();
    let header = abi::InHeader {
        len: (size_of::<abi::InHeader>() + rest.len()) as u32,
        opcode,
        unique: 8,
        nodeid: 3,
        uid: 1000,
        gid: 100,
        pid: 77,
        total_extlen: (extension.len() / 8) as u16,
        padding: 0,
    };
    [header.as_bytes(), &rest].concat()
}

#[track_caller]
fn operation_of(bytes: &[u8]) -> Operation<'_> {
    match decode(bytes) {
        Ok(Incoming::Request(request)) => request.operation,
        other => panic!("{other:?}"),
    }
}

/// A message on 64-bit Linux (little endian), byte by byte, as strace shows it.
#[test]
#[cfg(target_endian = "little")]
fn a_lookup_is_read_as_the_kernel_writes_it() {
    let bytes =
        b"\x2c\0\0\0\x01\0\0\0\x08\0\0\0\0\0\0\x80\x03\0\0\0\0\0\0\0\xe8\x03\0\0\x64\0\0\0\x4d\0\0\0\0\0\0\0abc\0";
    let Ok(Incoming::Request(request)) = decode(bytes) else { panic!("a request") };
    let header = Header { opcode: 1, unique: 8 | 1 << 63, node: 3, uid: 1000, gid: 100, pid: 77 };
    assert_eq!(request, Request { header, operation: Operation::Lookup(b"abc") });
    assert!(request.header.is_resent());
}

#[test]
fn a_read_and_a_lock_are_read_field_by_field() {
    let read = [7u64, 4096].as_bytes().to_vec();
    let read = [&read[..], [512u32, 2].as_bytes(), 9u64.as_bytes(), [0x8000u32, 0].as_bytes()].concat();
    let wanted = Read { handle: 7, offset: 4096, size: 512, flags: 0x8000, lock_owner: Some(9) };
    assert_eq!(operation_of(&message(opcode::READ, &[&read])), Operation::Read(wanted));
    assert_eq!(operation_of(&message(opcode::READDIRPLUS, &[&read])), Operation::Readdirplus(wanted));

    for (lk_flags, family) in [(0, LockFamily::Posix), (1, LockFamily::Flock)] {
        let lock = abi::FileLock { start: 1, end: 2, kind: 1, pid: 5 };
        let asked = abi::LkIn { fh: 7, owner: 8, lock, lk_flags, padding: 0 };
        let Operation::Setlkw(lock) = operation_of(&message(opcode::SETLKW, &[asked.as_bytes()])) else {
            panic!("a lock")
        };
        let range = LockRange { start: 1, end: 2, kind: 1, pid: 5 };
        assert_eq!(lock, Lock { handle: 7, owner: 8, family, range });
    }
}

#[test]
fn names_and_data_end_where_they_are_said_to() {
    let rename = abi::Rename2In { newdir: 9, flags: 1, padding: 0 };
    let bytes = message(opcode::RENAME2, &[rename.as_bytes(), b"old\0new\0"]);
    let wanted = Operation::Rename { name: b"old", new_parent: 9, new_name: b"new", flags: 1 };
    assert_eq!(operation_of(&bytes), wanted);

    for (write_flags, lock_owner, cached, kill_suidgid) in [(1, None, true, false), (6, Some(4), false, true)] {
        let write = abi::WriteIn { fh: 1, offset: 2, size: 3, write_flags, lock_owner: 4, flags: 5, padding: 0 };
        let bytes = message(opcode::WRITE, &[write.as_bytes(), b"abcdef"]);
        let data = b"abc";
        let wanted = Operation::Write { handle: 1, offset: 2, data, flags: 5, lock_owner, cached, kill_suidgid };
        assert_eq!(operation_of(&bytes), wanted);
    }
    for (open_flags, kill_suidgid) in [(0, false), (1, true)] {
        let open = abi::OpenIn { flags: 0o1001, open_flags };
        let bytes = message(opcode::OPEN, &[open.as_bytes()]);
        assert_eq!(operation_of(&bytes), Operation::Open { flags: 0o1001, kill_suidgid });
    }

    let mkdir = abi::MkdirIn { mode: 0o755, umask: 0o22 };
    let bytes = extended(opcode::MKDIR, &[mkdir.as_bytes(), b"new\0"], &[1; 16]);
    assert_eq!(operation_of(&bytes), Operation::Mkdir { name: b"new", mode: 0o755, umask: 0o22 });

    let set = abi::SetxattrIn { size: 2, flags: 1 };
    let bytes = message(opcode::SETXATTR, &[set.as_bytes(), b"user.a/b\0", b"xy"]);
    assert_eq!(operation_of(&bytes), Operation::Setxattr { name: b"user.a/b", value: b"xy", flags: 1 });
}

#[test]
fn changes_are_those_that_are_marked() {
    let raw =
        abi::SetattrIn { valid: 1 << 3 | 1 << 4 | 1 << 5 | 1 << 8, size: 10, atime: u64::MAX, ..Default::default() };
    let Operation::Setattr(changes) = operation_of(&message(opcode::SETATTR, &[raw.as_bytes()])) else {
        panic!("changes")
    };
    assert_eq!(changes.size, Some(10));
    assert_eq!(changes.accessed, Some(Moment::At { seconds: -1, nanoseconds: 0 }));
    assert_eq!(changes.modified, Some(Moment::Now));
    assert_eq!((changes.mode, changes.uid, changes.handle, changes.kill_suidgid), (None, None, None, false));
}

/// A ring has the first argument in a place of its own; a request without one has only the rest.
#[test]
fn pieces_of_a_ring_mean_the_same() {
    let whole = message(opcode::MKDIR, &[abi::MkdirIn { mode: 1, umask: 2 }.as_bytes(), b"new\0"]);
    let (header, _) = abi::InHeader::read_from_prefix(&whole).expect("long enough");
    let mut argument = [0xff; 128];
    argument[..8].copy_from_slice(abi::MkdirIn { mode: 1, umask: 2 }.as_bytes());
    let parts = Parts { header, argument: Some(&argument), rest: b"new\0" };
    assert_eq!(decode_parts(parts), decode(&whole));

    let whole = message(opcode::LOOKUP, &[b"abc\0"]);
    let (header, _) = abi::InHeader::read_from_prefix(&whole).expect("long enough");
    assert_eq!(decode_parts(Parts { header, argument: Some(&argument), rest: b"abc\0" }), decode(&whole));
}

#[test]
fn forgets_come_alone_and_together() {
    let collect = |bytes: &[u8]| {
        let Ok(Incoming::Forget(forgets)) = decode(bytes) else { panic!("forgets") };
        let mut told = Vec::new();
        forgets.each(|node, lookups| told.push((node, lookups)));
        told
    };
    assert_eq!(collect(&message(opcode::FORGET, &[5u64.as_bytes()])), [(3, 5)]);
    let many = [[1u64, 2], [3, 4]];
    assert_eq!(collect(&message(opcode::BATCH_FORGET, &[[2u32, 0].as_bytes(), many.as_bytes()])), [(1, 2), (3, 4)]);
    let short = message(opcode::BATCH_FORGET, &[[u32::MAX, 0].as_bytes(), many.as_bytes()]);
    assert!(matches!(decode(&short), Err(Malformed { unique: None, .. })), "not answered, and nothing forgotten");
}

#[test]
fn an_offer_is_read_in_both_lengths() {
    let of = |bytes: &[u8]| match decode(bytes) {
        Ok(Incoming::Init { offer, .. }) => offer,
        other => panic!("{other:?}"),
    };
    let short = message(opcode::INIT, &[[7u32, 31, 4096, 5].as_bytes()]);
    assert_eq!(of(&short), Offer { major: 7, minor: 31, max_readahead: 4096, flags: 5 });
    let long = message(opcode::INIT, &[[7u32, 45, 4096, 1 << 30, 1 << 5].as_bytes(), &[0; 44]]);
    assert_eq!(of(&long).flags, 1 << 30 | 1 << 37);
}

#[test]
fn what_is_wrong_is_answered_where_it_can_be() {
    let named = [b"".as_slice(), b"\0", b"abc", b"a/b\0"];
    for name in named {
        assert!(
            matches!(decode(&message(opcode::LOOKUP, &[name])), Err(Malformed { unique: Some(8), .. })),
            "{name:?}"
        );
    }
    assert!(matches!(decode(&[0; 39]), Err(Malformed { unique: None, .. })));
    let mut long = message(opcode::STATFS, &[]);
    long.push(0);
    assert!(matches!(decode(&long), Err(Malformed { unique: Some(8), .. })), "its length is not what came");
    for refused in [opcode::IOCTL, opcode::POLL, 7, 4096, u32::MAX] {
        assert!(matches!(decode(&message(refused, &[&[0; 64]])), Ok(Incoming::Unknown(_))), "{refused}");
    }
}

/// How many bytes a decoded message refers to.
fn bytes_in(incoming: &Incoming<'_>) -> usize {
    let Incoming::Request(request) = incoming else {
        let mut forgotten = 0;
        if let Incoming::Forget(forgets @ Forgets::Many(_)) = incoming {
            forgets.each(|_, _| forgotten += size_of::<abi::ForgetOne>());
        }
        return forgotten;
    };
    match request.operation {
        Operation::Lookup(name) | Operation::Unlink(name) | Operation::Rmdir(name) | Operation::Removexattr(name) => {
            name.len()
        }
        Operation::Symlink { name, target } => name.len() + target.len(),
        Operation::Rename { name, new_name, .. } => name.len() + new_name.len(),
        Operation::Setxattr { name, value, .. } => name.len() + value.len(),
        Operation::Write { data, .. } => data.len(),
        _ => 0,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// Goal: no bytes make the decoder panic, nor refer to more than came. Method: a header with any number of a
    /// request, whose length is mostly right, and any bytes after it.
    #[test]
    fn any_bytes_are_borne(
        opcode in 0u32..60,
        rest in proptest::collection::vec(prop_oneof![3 => Just(0u8), 1 => any::<u8>()], 0..200),
        right in prop::bool::weighted(0.9),
        extension in prop_oneof![4 => Just(0u16), 1 => any::<u16>()],
        unique in any::<u64>(),
    ) {
        let len = if right { 40 + rest.len() as u32 } else { unique as u32 };
        let header = abi::InHeader { len, opcode, unique, total_extlen: extension, ..Default::default() };
        let bytes = [header.as_bytes(), &rest].concat();
        if let Ok(incoming) = decode(&bytes) {
            prop_assert!(bytes_in(&incoming) <= rest.len());
        }
        let split = rest.len() / 2;
        let parts = Parts { header, argument: Some(&rest[..split]), rest: &rest[split..] };
        if let Ok(incoming) = decode_parts(parts) {
            prop_assert!(bytes_in(&incoming) <= rest.len() - split);
        }
    }

    #[test]
    fn bytes_without_a_header_are_borne(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let _ = decode(&bytes);
    }

    /// A message that is cut short is not taken for a whole one with less in it.
    #[test]
    fn what_is_cut_is_wrong(cut in 1usize..48) {
        let write = abi::WriteIn { fh: 1, size: 8, ..Default::default() };
        let mut bytes = message(opcode::WRITE, &[write.as_bytes(), b"abcdefgh"]);
        bytes.truncate(bytes.len() - cut);
        let len = bytes.len() as u32;
        bytes[..4].copy_from_slice(len.as_bytes());
        prop_assert!(decode(&bytes).is_err());
    }
}
