//! Tests of rights and access control lists.

use proptest::prelude::*;

use super::*;

fn rights(text: &str) -> Rights {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn entry(who: &str, text: &str) -> AclEntry {
    AclEntry { who: Principal::new(who.as_bytes()).expect("a name"), rights: rights(text) }
}

#[test]
fn rights_are_letters() {
    assert_eq!(rights("rlidwka"), Rights::ALL);
    assert_eq!(Rights::ALL.to_string(), "rlidwka");
    assert_eq!(Rights(0).to_string(), "none");
    assert_eq!(rights("awkdilr"), Rights::ALL, "in any order");
    assert_eq!(rights("read").to_string(), "rl");
    assert_eq!(rights("write").to_string(), "rlidwk");
    assert_eq!(rights("all"), Rights::ALL);
    assert_eq!(rights("none"), Rights(0));
    assert_eq!(rights("rlAH"), Rights(9 | 1 << 24 | 1 << 31));
    assert_eq!(Rights(9 | 1 << 24 | 1 << 31).to_string(), "rlAH");
    for text in ["", "x", "rl x", "R", "readl", "-r"] {
        assert_eq!(text.parse::<Rights>(), Err(BadRights { text: text.to_owned() }), "{text}");
    }
}

#[test]
fn what_one_may_do_is_as_the_server_has_it() {
    // Method: on each kind with each set of rights in turn, what is allowed is listed by its first letters.
    let all = [
        ("Lookup", Operation::Lookup),
        ("Read", Operation::Read),
        ("Write", Operation::Write),
        ("SetAttributes", Operation::SetAttributes),
        ("Insert", Operation::Insert),
        ("InsertMountPoint", Operation::InsertMountPoint),
        ("Delete", Operation::Delete),
        ("Replace", Operation::Replace),
        ("LockRead", Operation::LockRead),
        ("LockWrite", Operation::LockWrite),
        ("SetAcl", Operation::SetAcl),
    ];
    let allowed = |kind, text, mode| -> String {
        let on = Subject { kind, rights: rights(text), mode };
        let names: Vec<&str> = all.iter().filter(|(_, wanted)| wanted.is_allowed(on)).map(|(name, _)| *name).collect();
        names.join(" ")
    };
    let cases = [
        (Kind::Directory, "none", 0o777, ""),
        (Kind::Directory, "l", 0, "Lookup Read"),
        (Kind::Directory, "i", 0, "SetAttributes Insert"),
        (Kind::Directory, "d", 0, "SetAttributes Delete"),
        (Kind::Directory, "id", 0, "SetAttributes Insert Delete Replace"),
        (Kind::Directory, "ia", 0, "SetAttributes Insert InsertMountPoint SetAcl"),
        (Kind::Directory, "rw", 0o777, "LockRead LockWrite"),
        (Kind::File, "r", 0o400, "Read"),
        (Kind::File, "r", 0o100, "Read"),
        (Kind::File, "r", 0o277, ""),
        (Kind::File, "ra", 0o000, "Read"),
        (Kind::File, "w", 0o200, "Write SetAttributes LockRead LockWrite"),
        (Kind::File, "w", 0o577, "SetAttributes LockRead LockWrite"),
        (Kind::File, "k", 0o777, "LockRead"),
        (Kind::File, "a", 0o777, ""),
        (Kind::Symlink, "l", 0o755, "Lookup Read"),
        (Kind::Symlink, "r", 0o755, ""),
        (Kind::Symlink, "w", 0o755, "SetAttributes LockRead LockWrite"),
    ];
    for (kind, text, mode, wanted) in cases {
        assert_eq!(allowed(kind, text, mode), wanted, "{text} on {kind:?} {mode:o}");
    }
    // A file of one's own in a directory where one may only put things.
    let own = Subject { kind: Kind::File, rights: rights("ia"), mode: 0 };
    for wanted in
        [Operation::Read, Operation::Write, Operation::SetAttributes, Operation::LockRead, Operation::LockWrite]
    {
        assert!(wanted.is_allowed(own), "{wanted:?}");
    }
}

#[test]
fn lists_are_read_and_written() {
    let text = b"2\n1\nsystem:administrators\t127\nanna\t-2147483639\nbob\t2\n\0";
    let acl = Acl {
        positive: vec![entry("system:administrators", "all"), entry("anna", "rlH")],
        negative: vec![entry("bob", "w")],
    };
    assert_eq!(Acl::read(text), Ok(acl.clone()));
    assert_eq!(acl.write().as_deref(), Ok(&text[..]));
    assert_eq!(Acl::read(&text[..text.len() - 1]), Ok(acl.clone()), "the NUL may be missing");
    assert_eq!(Acl::read(&[&text[..], b"garbage"].concat()), Ok(acl), "what follows it does not count");
    assert_eq!(Acl::read(b"0\n0\n"), Ok(Acl::default()));
    assert_eq!(Acl::read(b"1\n0\nanna\t2147483657"), Acl::read(b"1\n0\nanna\t-2147483639\n"), "a sign or none");
}

#[test]
fn texts_that_are_no_list_are_refused() {
    let cases: [(&[u8], AclError); 14] = [
        (b"", AclError::Counts),
        (b"1", AclError::Counts),
        (b"x\n0\n", AclError::Counts),
        (b"-1\n0\n", AclError::Counts),
        (b"21\n0\n", AclError::TooMany),
        (b"10\n11\n", AclError::TooMany),
        (b"9223372036854775807\n9223372036854775807\n", AclError::TooMany),
        (b"1\n0\n", AclError::Lines),
        (b"0\n0\nanna\t1\n", AclError::Lines),
        (b"1\n0\nanna 1\n", AclError::Entry { entry: 0 }),
        (b"1\n0\n\t1\n", AclError::Entry { entry: 0 }),
        (b"1\n0\nanna\tx\n", AclError::Entry { entry: 0 }),
        (b"1\n0\nanna\t4294967296\n", AclError::Entry { entry: 0 }),
        (b"1\n1\nanna\t1\nbob\n", AclError::Entry { entry: 1 }),
    ];
    for (text, wanted) in cases {
        assert_eq!(Acl::read(text), Err(wanted), "{}", text.escape_ascii());
    }
    let long = [&b"1\n0\n"[..], &[b'a'; ACL_BYTES_MAX]].concat();
    assert_eq!(Acl::read(&long), Err(AclError::TooLong));
}

#[test]
fn a_list_that_a_server_would_not_read_is_not_written() {
    let many = Acl { positive: vec![entry("a", "r"); 11], negative: vec![entry("a", "r"); 10] };
    assert_eq!(many.write(), Err(AclError::TooMany));
    let name = "x".repeat(63);
    let long = Acl { positive: vec![entry(&name, "r"); 16], negative: Vec::new() };
    assert_eq!(long.write(), Err(AclError::TooLong));
    let space = Acl { positive: vec![entry("a", "r"), entry("a b", "r")], negative: Vec::new() };
    assert_eq!(space.write(), Err(AclError::Entry { entry: 1 }));
}

proptest! {
    #[test]
    fn rights_lead_through_their_text(bits: u32) {
        let known = Rights(bits & 0xff00_007f);
        prop_assert_eq!(known.to_string().parse(), Ok(known));
    }

    #[test]
    fn what_is_written_is_read(
        positive in prop::collection::vec(("[a-z0-9:.@]{1,20}", any::<u32>()), 0..10),
        negative in prop::collection::vec(("[a-z0-9:.@]{1,20}", any::<u32>()), 0..10),
    ) {
        let entries = |list: Vec<(String, u32)>| -> Vec<AclEntry> {
            let who = |name: String| Principal::new(name.as_bytes()).expect("a name");
            list.into_iter().map(|(name, rights)| AclEntry { who: who(name), rights: Rights(rights) }).collect()
        };
        let acl = Acl { positive: entries(positive), negative: entries(negative) };
        let text = acl.write().expect("within its bounds");
        prop_assert_eq!(Acl::read(&text), Ok(acl));
    }

    #[test]
    fn any_text_is_read_or_refused(text in prop::collection::vec(prop_oneof![
        Just(b'\n'), Just(b'\t'), Just(b'1'), Just(b'0'), any::<u8>()], 0..60)) {
        let _ = Acl::read(&text);
    }
}
