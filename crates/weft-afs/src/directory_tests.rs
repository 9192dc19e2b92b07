//! Tests of the reader of directories, with directories made by the builder.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::directory_builder::{DirectoryBuilder, slots_of};

/// All entries, or the first error.
fn read(bytes: &[u8]) -> Result<Vec<(Vec<u8>, u32, u32)>, DirectoryError> {
    let entries = Directory::new(bytes)?.entries();
    entries.map(|entry| entry.map(|entry| (entry.name.to_vec(), entry.vnode, entry.unique))).collect()
}

fn set_word(bytes: &mut [u8], at: usize, word: u16) {
    bytes[at..at + 2].copy_from_slice(&word.to_be_bytes());
}

/// A directory of one page with `a`, which is in slot 15, after `.` and `..`.
fn with_a() -> Vec<u8> {
    DirectoryBuilder::new().insert(b"a", 2, 77).build()
}

const A_AT: usize = 15 * SLOT_BYTES;

#[test]
fn names_are_in_the_chains_that_the_server_puts_them_in() {
    let wanted: [(&[u8], usize); 7] = [
        (b".", 46),
        (b"..", 68),
        (b"README", 6),
        (b"a", 97),
        (b"hello.txt", 18),
        ("\u{e5}\u{e4}\u{f6}".as_bytes(), 12),
        (b"", 0),
    ];
    for (name, chain) in wanted {
        assert_eq!(chain_of(name), chain, "{name:?}");
    }
}

#[test]
fn names_take_the_slots_that_the_server_gives_them() {
    for (length, slots) in [(1, 1), (15, 1), (16, 2), (47, 2), (48, 3), (255, 9)] {
        assert_eq!(slots_of(&vec![b'x'; length]), slots, "{length}");
    }
}

#[test]
fn a_fresh_directory_has_dot_and_dot_dot() {
    let bytes = DirectoryBuilder::new().build();
    assert_eq!((bytes.len(), &bytes[..4]), (PAGE_BYTES, &[0, 1, 4, 210][..]), "1 page, tag 1234");
    assert_eq!((&bytes[5..7], bytes[32], bytes[33]), (&[0xff, 0x7f][..], 49, 64), "two more slots are used");
    assert_eq!(read(&bytes), Ok(vec![(b".".to_vec(), 1, 1), (b"..".to_vec(), 1, 1)]));
    let directory = Directory::new(&bytes).expect("fresh");
    assert_eq!(directory.find(b".."), Ok(Some(Entry { name: b"..", vnode: 1, unique: 1 })));
    assert_eq!(directory.find(b"..."), Ok(None));
    assert_eq!(directory.find(b""), Ok(None));
}

#[test]
fn names_of_every_length_in_many_pages_are_listed_and_found() {
    // The map tells nothing of pages past the first 128, so the directory is made to go beyond.
    let names: Vec<Vec<u8>> = (0..3_500u32)
        .map(|n| {
            let mut name = n.to_string().into_bytes();
            name.resize(name.len().max(n as usize % (NAME_BYTES_MAX + 1)), b'a' + (n % 26) as u8);
            name
        })
        .collect();
    let mut builder = DirectoryBuilder::new();
    for (n, name) in names.iter().enumerate() {
        builder.insert(name, 2 + n as u32, 1_000_000 - n as u32);
    }
    let bytes = builder.build();
    let pages = bytes.len() / PAGE_BYTES;
    assert!(pages > MAP_PAGES + 100, "{pages} pages");
    let listed = read(&bytes).expect("as a server makes it");
    assert_eq!(listed.len(), names.len() + 2);
    let directory = Directory::new(&bytes).expect("as a server makes it");
    for (n, name) in names.iter().enumerate() {
        let found = directory.find(name).expect("whole").map(|entry| (entry.vnode, entry.unique));
        assert_eq!(found, Some((2 + n as u32, 1_000_000 - n as u32)));
    }
    let distinct: BTreeSet<&[u8]> = listed.iter().map(|(name, ..)| &name[..]).collect();
    assert!(names.iter().all(|name| distinct.contains(&name[..])));
}

#[test]
fn the_largest_directory_can_be_read() {
    let mut builder = DirectoryBuilder::bare();
    builder.insert(b"first", 2, 3);
    let mut bytes = builder.build();
    bytes.resize(PAGES_MAX * PAGE_BYTES, 0);
    set_word(&mut bytes, 0, PAGES_MAX as u16);
    for page in 1..PAGES_MAX {
        set_word(&mut bytes, page * PAGE_BYTES + 2, TAG);
    }
    assert_eq!(read(&bytes), Ok(vec![(b"first".to_vec(), 2, 3)]));
    bytes.resize((PAGES_MAX + 1) * PAGE_BYTES, 0);
    assert_eq!(read(&bytes), Err(Error::Size { bytes: (PAGES_MAX + 1) * PAGE_BYTES }));
}

#[test]
fn a_directory_cut_at_any_byte_is_refused() {
    let mut builder = DirectoryBuilder::new();
    (0..200u32).for_each(|n| {
        builder.insert(format!("name-{n}").as_bytes(), n + 2, n);
    });
    let bytes = builder.build();
    assert_eq!(bytes.len(), 4 * PAGE_BYTES);
    for length in 0..bytes.len() {
        let wanted = match length % PAGE_BYTES {
            0 if length > 0 => Error::Pages { told: 4, pages: length / PAGE_BYTES },
            _ => Error::Size { bytes: length },
        };
        assert_eq!(read(&bytes[..length]), Err(wanted));
    }
}

#[test]
fn pages_of_old_directories_are_counted_by_their_map() {
    let mut builder = DirectoryBuilder::new();
    (0..100u32).for_each(|n| {
        builder.insert(format!("name-{n}").as_bytes(), n + 2, n);
    });
    let mut bytes = builder.build();
    let listed = read(&bytes);
    set_word(&mut bytes, 0, 0);
    assert_eq!(read(&bytes), listed);
    assert_eq!(read(&bytes[..PAGE_BYTES]), Err(Error::Pages { told: 2, pages: 1 }));
    bytes[MAP_AT..HEADS_AT].fill(PAGE_SLOTS as u8);
    assert_eq!(read(&bytes), Err(Error::Pages { told: 0, pages: 2 }));
}

#[test]
fn a_page_without_its_tag_is_refused() {
    let mut builder = DirectoryBuilder::new();
    (0..100u32).for_each(|n| {
        builder.insert(format!("name-{n}").as_bytes(), n + 2, n);
    });
    let mut bytes = builder.build();
    bytes[PAGE_BYTES + 3] ^= 1;
    assert_eq!(read(&bytes), Err(Error::Tag { page: 1 }));
}

#[test]
fn a_chain_that_leads_to_no_entry_is_refused() {
    // Into the header of page 0, to its last slot, past the end, and to slots in which none begins.
    for slot in [1, HEAD_SLOTS as u16 - 1, 16, 63, 64, 65, u16::MAX] {
        let mut bytes = with_a();
        set_word(&mut bytes, HEADS_AT + 2 * chain_of(b"a"), slot);
        let wanted = Error::Slot { slot: slot.into() };
        assert_eq!(read(&bytes).err(), Some(wanted));
        let directory = Directory::new(&bytes).expect("its pages are good");
        assert_eq!(directory.find(b"a"), Err(wanted));
        assert_eq!(directory.entries().filter(Result::is_err).count(), 1, "the listing ends there");
    }
}

#[test]
fn what_looks_like_an_entry_in_a_header_is_none() {
    // Method: a copy of a good entry in the last slot of page 0's header, and in the header of page 1, with its tag.
    let mut builder = DirectoryBuilder::new();
    builder.insert(b"a", 2, 77);
    (0..100u32).for_each(|n| {
        builder.insert(format!("name-{n}").as_bytes(), n + 2, n);
    });
    let bytes = builder.build();
    for slot in [HEAD_SLOTS - 1, PAGE_SLOTS] {
        let mut wrong = bytes.clone();
        wrong.copy_within(A_AT..A_AT + SLOT_BYTES, slot * SLOT_BYTES);
        set_word(&mut wrong, PAGE_BYTES + 2, TAG);
        set_word(&mut wrong, HEADS_AT + 2 * chain_of(b"a"), slot as u16);
        let directory = Directory::new(&wrong).expect("its pages are good");
        assert_eq!(directory.find(b"a"), Err(Error::Slot { slot }));
    }
}

#[test]
fn a_chain_that_comes_back_is_refused() {
    // One that comes back to itself, and one whose end is in another.
    let mut bytes = with_a();
    set_word(&mut bytes, A_AT + 2, 15);
    let directory = Directory::new(&bytes).expect("its pages are good");
    assert!(directory.entries().any(|entry| entry == Err(Error::Loop { slot: 15 })));
    assert_eq!(directory.find(b"a").map(|found| found.is_some()), Ok(true), "found before the chain comes back");
    let other = (0..u32::MAX).map(|n| format!("x{n}").into_bytes()).find(|name| chain_of(name) == chain_of(b"a"));
    let other = other.expect("one in 128");
    assert_eq!(directory.find(&other), Err(Error::Loop { slot: 15 }));

    let mut bytes = with_a();
    set_word(&mut bytes, A_AT + 2, 13);
    assert!(Directory::new(&bytes).expect("its pages are good").entries().any(|entry| entry.is_err()));
}

#[test]
fn an_entry_that_is_wrong_alone_leaves_the_others() {
    type Change = fn(&mut [u8]);
    let cases: [(Change, Error); 5] = [
        (|entry| entry[NAME_AT] = 0, Error::Name { slot: 15 }),
        (|entry| entry[NAME_AT] = b'/', Error::Name { slot: 15 }),
        (|entry| entry[NAME_AT..].fill(b'x'), Error::Name { slot: 15 }),
        (|entry| entry[NAME_AT] = b'b', Error::Chain { slot: 15 }),
        (|entry| entry[4..8].fill(0), Error::NoFile { slot: 15 }),
    ];
    for (change, wanted) in cases {
        let mut bytes = with_a();
        change(&mut bytes[A_AT..]);
        let directory = Directory::new(&bytes).expect("its pages are good");
        let (good, bad): (Vec<_>, Vec<_>) = directory.entries().partition(Result::is_ok);
        assert_eq!((good.len(), bad), (2, vec![Err(wanted)]));
        assert!(wanted.is_one_entry());
        assert_eq!(directory.find(b"a"), Ok(None));
    }
}

#[test]
fn a_name_that_does_not_end_in_its_page_is_refused() {
    // Method: the last entry of page 0 begins in its last slot and has no NUL; page 1 begins with zeroes.
    let mut builder = DirectoryBuilder::new();
    (0..60u32).for_each(|n| {
        builder.insert(format!("n{n}").as_bytes(), n + 2, n);
    });
    let mut bytes = builder.build();
    let last = (PAGE_SLOTS - 1) * SLOT_BYTES;
    bytes[last + NAME_AT..PAGE_BYTES].fill(b'x');
    let errors: Vec<_> =
        Directory::new(&bytes).expect("its pages are good").entries().filter_map(Result::err).collect();
    assert_eq!(errors, [Error::Name { slot: PAGE_SLOTS - 1 }]);
}

#[test]
fn the_longest_name_is_read_and_a_longer_one_is_not() {
    let longest = vec![b'y'; NAME_BYTES_MAX];
    let bytes = DirectoryBuilder::bare().insert(&longest, 4, 5).build();
    assert_eq!(read(&bytes), Ok(vec![(longest, 4, 5)]));
    let bytes = DirectoryBuilder::bare().insert(&[b'y'; NAME_BYTES_MAX + 1], 4, 5).build();
    assert_eq!(read(&bytes), Err(Error::Name { slot: HEAD_SLOTS }));
}

proptest! {
    #[test]
    fn what_was_put_in_is_listed_and_found(
        names in prop::collection::btree_set(
            prop::collection::vec((1u8..).prop_filter("slash", |byte| *byte != b'/'), 1..=NAME_BYTES_MAX), 0..120),
    ) {
        let mut builder = DirectoryBuilder::bare();
        let mut wanted = BTreeSet::new();
        for (n, name) in names.into_iter().enumerate() {
            builder.insert(&name, n as u32 + 1, !(n as u32));
            wanted.insert((name, n as u32 + 1, !(n as u32)));
        }
        let bytes = builder.build();
        let listed: BTreeSet<_> = read(&bytes).expect("as a server makes it").into_iter().collect();
        prop_assert_eq!(&listed, &wanted);
        let directory = Directory::new(&bytes).expect("as a server makes it");
        for (name, vnode, unique) in &wanted {
            prop_assert_eq!(directory.find(name), Ok(Some(Entry { name, vnode: *vnode, unique: *unique })));
        }
    }

    #[test]
    fn flips_are_borne(
        flips in prop::collection::vec((0usize..3 * PAGE_BYTES, any::<u8>()), 1..200), heads_only: bool,
    ) {
        let mut builder = DirectoryBuilder::new();
        (0..150u32).for_each(|n| {
            builder.insert(format!("name-{n}").as_bytes(), n + 2, n);
        });
        let mut bytes = builder.build();
        let length = bytes.len();
        for (at, value) in flips {
            let at = if heads_only { HEADS_AT + at % (2 * CHAINS) } else { at % length };
            bytes[at] = value;
        }
        let Ok(directory) = Directory::new(&bytes) else { return Ok(()) };
        let entries: Vec<_> = directory.entries().collect();
        prop_assert!(entries.len() <= length / SLOT_BYTES);
        for entry in entries.into_iter().flatten() {
            prop_assert!(!entry.name.is_empty() && !entry.name.contains(&b'/') && !entry.name.contains(&0));
            let found = directory.find(entry.name).map(|found| found.map(|found| found.name));
            prop_assert_eq!(found, Ok(Some(entry.name)));
        }
    }

    #[test]
    fn anything_is_read_or_refused(
        bytes in prop::collection::vec(prop_oneof![3 => Just(0u8), 1 => any::<u8>()], PAGE_BYTES),
        name in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let mut bytes = bytes;
        set_word(&mut bytes, 0, 1);
        set_word(&mut bytes, 2, TAG);
        let directory = Directory::new(&bytes).expect("one page");
        prop_assert!(directory.entries().count() <= PAGE_SLOTS);
        let _ = directory.find(&name);
    }
}
