//! Tests of the calls of the volume location database.

use proptest::prelude::*;

use super::*;
use crate::wire::check::{check, check_call};
use crate::wire::{Call, decode_whole, encode_whole};

fn uuid(first: u8) -> Uuid {
    Uuid([first, 1, 2, 3, 4, 5, 6, 7, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff])
}

fn site(first: u8, flags: u32) -> Site {
    let server = SiteServer::Uuid { uuid: uuid(first), unique: first.into() };
    Site { server, partition: first.into(), flags: SiteFlags(flags | SiteFlags::UUID.0) }
}

/// One read-write site, which also has a read-only copy, and two more read-only ones, the last by address.
fn entry() -> Entry {
    let by_address =
        Site { server: SiteServer::Address(Ipv4Addr::new(192, 0, 2, 3)), partition: 25, flags: SiteFlags::READ_ONLY };
    Entry {
        name: VolumeName::new(b"root.cell").expect("a name"),
        sites: vec![site(1, 0x04), site(1, 0x02), site(2, 0x02), by_address],
        volumes: [Some(VolumeId(536_870_918)), Some(VolumeId(536_870_919)), None],
        clone: Some(VolumeId(536_870_930)),
        operations: Operations::RELEASE,
    }
}

/// What [`GetEntryByNameN`] would tell of it.
fn numbered(mut entry: Entry) -> NumberedEntry {
    for site in &mut entry.sites {
        if let SiteServer::Uuid { uuid, .. } = site.server {
            site.server = SiteServer::Address(Ipv4Addr::from_bits(uuid.time_low()));
        }
    }
    NumberedEntry(entry)
}

#[test]
fn a_request_for_an_entry_is_as_in_the_golden_vector() {
    let call = GetEntryByNameU { volume: Asked::from("root.cell") };
    assert_eq!(check_call(&call, &entry()), "0000020f00000009726f6f742e63656c6c000000");
    let call = GetEntryByNameN { volume: Asked::from("root.cell") };
    assert_eq!(check_call(&call, &numbered(entry())), "0000020700000009726f6f742e63656c6c000000");
}

#[test]
fn the_entries_have_their_sizes() {
    assert_eq!(encode_whole(&entry()).map(|bytes| bytes.len()), Ok(262 * 4));
    assert_eq!(encode_whole(&numbered(entry())).map(|bytes| bytes.len()), Ok(119 * 4));
    let most = Entry { sites: vec![site(9, 2); SITES_MAX], ..entry() };
    check(&most);
    check(&numbered(most));
    check(&Entry { sites: Vec::new(), volumes: [None; 3], ..entry() });
}

#[test]
fn more_sites_than_a_volume_can_have_are_refused() {
    let bytes = encode_whole(&entry()).expect("no bounds");
    for sites in [SITES_MAX as u32 + 1, 1 << 31, u32::MAX] {
        let mut wrong = bytes.clone();
        wrong[NAME_WORDS * 4..NAME_WORDS * 4 + 4].copy_from_slice(&sites.to_be_bytes());
        assert!(matches!(decode_whole::<Entry>(&wrong), Err(XdrError::Invalid { .. })), "{sites}");
    }
}

#[test]
fn a_name_that_no_volume_has_is_refused() {
    let bytes = encode_whole(&entry()).expect("no bounds");
    let mut endless = bytes.clone();
    endless[..NAME_WORDS * 4].copy_from_slice(&[0, 0, 0, b'x'].repeat(NAME_WORDS));
    assert!(matches!(decode_whole::<Entry>(&endless), Err(XdrError::Invalid { .. })));
    let mut slash = bytes.clone();
    slash[3] = b'/';
    assert!(matches!(decode_whole::<Entry>(&slash), Err(XdrError::Invalid { .. })));
    let mut empty = bytes;
    empty[3] = 0;
    assert!(matches!(decode_whole::<Entry>(&empty), Err(XdrError::Invalid { .. })));
}

#[test]
fn a_volume_that_is_not_there_has_no_number() {
    // The numbers of copies that were never made are reserved, and told.
    let mut bytes = encode_whole(&entry()).expect("no bounds");
    let volumes_at = bytes.len() - (3 + 2 + SPARE_WORDS) * 4;
    bytes[volumes_at + 8..volumes_at + 12].copy_from_slice(&536_870_920u32.to_be_bytes());
    let read: Entry = decode_whole(&bytes).expect("an entry");
    assert_eq!(read.volume(VolumeType::Backup), None);
    assert_eq!(read.kind_of(VolumeId(536_870_919)), Some(VolumeType::ReadOnly));
    assert_eq!(read.kind_of(VolumeId(536_870_920)), None);
}

#[test]
fn addresses_are_asked_for_by_uuid_or_by_one_of_them() {
    let reply = Addresses {
        uuid: uuid(7),
        unique: -5,
        addresses: vec![Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 7)],
    };
    let request = check_call(&GetAddrsU::Of(uuid(7)), &reply);
    assert_eq!(request.len(), (1 + 15) * 8);
    assert!(request.starts_with("00000215000000040000000000000000000000000701"));
    let request = check_call(&GetAddrsU::With(Ipv4Addr::new(192, 0, 2, 1)), &reply);
    assert!(request.starts_with("0000021500000001c0000201"));
    let most = Addresses { addresses: vec![Ipv4Addr::LOCALHOST; ADDRESSES_MAX], ..reply };
    let bytes = encode_whole(&most).expect("within its bounds");
    assert_eq!(decode_whole(&bytes), Ok(most.clone()));
    let more = Addresses { addresses: vec![Ipv4Addr::LOCALHOST; ADDRESSES_MAX + 1], ..most };
    assert!(encode_whole(&more).is_err());
    assert_eq!(check_call(&ProbeServer {}, &()), "00000202");
}

/// Goal: each place of the database is asked for by number, and a list of servers is read.
#[test]
fn servers_are_asked_for_by_place() {
    let reply = Addresses { uuid: uuid(7), unique: 3, addresses: vec![Ipv4Addr::new(192, 0, 2, 1)] };
    let request = check_call(&GetAddrsU::At(5), &reply);
    assert!(request.starts_with("00000215000000020000000000000005"));
    let list = ServerList { promise: Unused, servers: 2, addresses: List(vec![0xc000_0201, 0xe000_0001]) };
    assert_eq!(check_call(&GetAddrs { handle: 0, spare: 0 }, &list), "000002030000000000000000");
}

/// Goal: volumes are asked for by what they are like, and lists of them are read.
#[test]
fn volumes_are_listed_by_attributes() {
    let like = |server, partition, operations| EntriesLike { server, partition, operations };
    let list = EntryList { count: 2, entries: List(vec![numbered(entry()), numbered(entry())]), next: -1 };
    let ask = |like| ListAttributesN2 { like, name: Asked::from(""), start: 7 };
    let request = check_call(&ask(like(Some(Ipv4Addr::new(192, 0, 2, 1)), Some(3), Some(Operations::ALL))), &list);
    assert_eq!(request, "0000021600000013c0000201000000030000000000000000000001f00000000000000007");
    let request = check_call(&ask(EntriesLike::default()), &EntryList { count: 0, entries: List(Vec::new()), next: 0 });
    assert_eq!(request, format!("00000216{}0000000000000007", "0".repeat(48)));
    check(&ask(like(None, Some(0), None)));
}

/// Goal: what is done with a volume is told, whatever else the word of its flags has.
#[test]
fn locks_are_told() {
    let all = [Operations::MOVE, Operations::RELEASE, Operations::BACKUP, Operations::DELETE, Operations::DUMP];
    for operations in all {
        let read: Entry = decode_whole(&check(&Entry { operations, ..entry() })).expect("it was read before");
        assert!(read.operations.has(operations) && Operations::ALL.has(read.operations));
        assert_eq!(read.volumes, entry().volumes);
    }
    assert_eq!(all.iter().map(|one| one.0).sum::<u32>(), Operations::ALL.0);
}

#[test]
fn fewer_addresses_than_came_may_count() {
    let reply = Addresses { uuid: uuid(7), unique: 1, addresses: vec![Ipv4Addr::LOCALHOST; 3] };
    let mut bytes = encode_whole(&reply).expect("within its bounds");
    bytes[48..52].copy_from_slice(&2u32.to_be_bytes());
    assert_eq!(GetAddrsU::reply(&bytes).map(|reply| reply.addresses.len()), Ok(2));
}

#[test]
fn sites_serve_what_they_have() {
    let entry = entry();
    assert_eq!(entry.sites_of(VolumeType::ReadWrite), entry.sites[..1]);
    assert_eq!(entry.sites_of(VolumeType::Backup), entry.sites[..1]);
    assert_eq!(entry.sites_of(VolumeType::ReadOnly), entry.sites[1..]);
    let unused = Entry { sites: vec![site(1, 0x22), site(2, 0x02)], ..entry };
    assert_eq!(unused.sites_of(VolumeType::ReadOnly), unused.sites[1..]);
}

#[test]
fn of_a_release_under_way_only_one_side_is_told() {
    let with = |flags: &[u32]| Entry {
        sites: flags.iter().zip(1..).map(|(flags, first)| site(first, *flags)).collect(),
        ..entry()
    };
    let told = |flags: &[u32]| -> Vec<u32> {
        with(flags).sites_of(VolumeType::ReadOnly).iter().map(|site| site.partition).collect()
    };
    assert_eq!(told(&[2, 2, 2]), [1, 2, 3]);
    assert_eq!(told(&[3, 2, 2]), [2, 3]);
    assert_eq!(told(&[3, 3, 2]), [1, 2]);
    assert_eq!(told(&[3, 2]), [1]);
    assert_eq!(told(&[3, 3]), [1, 2]);
}

proptest! {
    #[test]
    fn any_reply_is_borne(
        bytes in prop::collection::vec(prop_oneof![3 => Just(0u8), 1 => any::<u8>()], 0..1200),
    ) {
        let _ = GetEntryByNameU::reply(&bytes);
        let _ = GetEntryByNameN::reply(&bytes);
        let _ = GetAddrsU::reply(&bytes);
        let _ = GetAddrs::reply(&bytes);
        let _ = ListAttributesN2::reply(&bytes);
    }
}
