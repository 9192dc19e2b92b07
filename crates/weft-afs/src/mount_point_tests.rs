//! Tests of mount points.

use proptest::prelude::*;

use super::*;
use crate::wire::vl::Operations;

const READ_WRITE: VolumeId = VolumeId(536_870_918);
const READ_ONLY: VolumeId = VolumeId(536_870_919);
const BACKUP: VolumeId = VolumeId(536_870_920);

fn read(text: &str) -> MountPoint {
    MountPoint::read(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn name(text: &str) -> VolumeName {
    VolumeName::new(text.as_bytes()).expect("a name")
}

fn entry(volumes: [Option<VolumeId>; 3]) -> Entry {
    Entry { name: name("user.anna"), sites: Vec::new(), volumes, clone: None, operations: Operations::default() }
}

fn full() -> Entry {
    entry([Some(READ_WRITE), Some(READ_ONLY), Some(BACKUP)])
}

#[test]
fn mount_points_are_read_and_written() {
    let cell = CellName::new(b"example.org").expect("a name");
    let number = |place| MountedVolume::Number { volume: READ_WRITE, place };
    let cases = [
        ("#root.cell.", MountKind::Regular, None, MountedVolume::Name(name("root.cell"))),
        ("%root.cell.", MountKind::ReadWrite, None, MountedVolume::Name(name("root.cell"))),
        ("#example.org:root.cell.", MountKind::Regular, Some(&cell), MountedVolume::Name(name("root.cell"))),
        ("%example.org:a.readonly.", MountKind::ReadWrite, Some(&cell), MountedVolume::Name(name("a.readonly"))),
        ("#536870918.", MountKind::Regular, None, number(None)),
        ("%example.org:536870918.", MountKind::ReadWrite, Some(&cell), number(None)),
        ("#example.org:536870918:3:77.", MountKind::Regular, Some(&cell), number(Some((3, 77)))),
    ];
    for (text, kind, cell, volume) in cases {
        let wanted = MountPoint { kind, cell: cell.cloned(), volume };
        assert_eq!(MountPoint::read(text.as_bytes()), Ok(wanted.clone()), "{text}");
        assert_eq!(wanted.write().as_deref(), Ok(text.as_bytes()));
    }
    assert_eq!(read("#Example.ORG:root.cell.").write().as_deref(), Ok(&b"#example.org:root.cell."[..]));
    let lost = MountPoint { cell: None, ..read("#example.org:536870918:3:77.") };
    assert_eq!(lost.write(), Err(MountPointError::PlaceWithoutCell));
    assert_eq!(read("#536870918.").asked(), "536870918");
    assert_eq!(read("#example.org:root.cell.").asked(), "root.cell");
}

#[test]
fn what_is_no_mount_point_is_refused() {
    let cases = [
        ("", MountPointError::Kind),
        ("root.cell.", MountPointError::Kind),
        ("$root.cell.", MountPointError::Kind),
        ("#", MountPointError::End),
        ("#root.cell", MountPointError::End),
        ("#.", MountPointError::Volume(BadVolumeName::Empty)),
        ("#a/b.", MountPointError::Volume(BadVolumeName::ForbiddenByte)),
        ("#example.org:.", MountPointError::Volume(BadVolumeName::Empty)),
        ("#:root.cell.", MountPointError::Cell(BadCellName::Empty)),
        ("#a b:root.cell.", MountPointError::Cell(BadCellName::ForbiddenByte)),
        ("#0.", MountPointError::Number),
        ("#4294967296.", MountPointError::Number),
        ("#example.org:7:1.", MountPointError::Number),
        ("#example.org:7:1:1:1.", MountPointError::Number),
        ("#example.org:7:1:x.", MountPointError::Number),
        ("#example.org:7:+1:1.", MountPointError::Number),
        ("#example.org:7::1.", MountPointError::Number),
        ("#example.org:root.cell:1:1.", MountPointError::Number),
    ];
    for (text, wanted) in cases {
        assert_eq!(MountPoint::read(text.as_bytes()), Err(wanted), "{text}");
    }
    let long = [&b"#"[..], &[b'a'; MOUNT_POINT_BYTES_MAX], b"."].concat();
    assert_eq!(MountPoint::read(&long), Err(MountPointError::TooLong));
}

#[test]
fn the_copy_is_chosen_by_kind_place_and_cell() {
    use Crossing::{OtherCell, SameCell};
    use VolumeType::{Backup, ReadOnly, ReadWrite};
    let no_read_only = entry([Some(READ_WRITE), None, Some(BACKUP)]);
    let no_read_write = entry([None, Some(READ_ONLY), None]);
    let (rw, ro, bk) = (Ok((ReadWrite, READ_WRITE)), Ok((ReadOnly, READ_ONLY)), Ok((Backup, BACKUP)));
    let (missing, twice) = (Err(MountPointError::NoSuchCopy), Err(MountPointError::BackupInBackup));
    let cases = [
        ("#user.anna.", ReadWrite, SameCell, full(), rw),
        ("#user.anna.", ReadOnly, SameCell, full(), ro),
        ("#user.anna.", Backup, SameCell, full(), rw),
        ("#user.anna.", ReadWrite, OtherCell, full(), ro),
        ("#user.anna.", Backup, OtherCell, full(), ro),
        ("#user.anna.", ReadOnly, SameCell, no_read_only.clone(), rw),
        ("#user.anna.", ReadWrite, OtherCell, no_read_only.clone(), rw),
        ("#user.anna.", ReadOnly, SameCell, no_read_write.clone(), ro),
        ("#user.anna.", ReadWrite, SameCell, no_read_write.clone(), missing),
        ("%user.anna.", ReadOnly, OtherCell, full(), rw),
        ("%user.anna.", ReadOnly, OtherCell, no_read_write.clone(), missing),
        ("#user.anna.readonly.", ReadWrite, SameCell, full(), ro),
        ("%user.anna.readonly.", ReadWrite, SameCell, full(), ro),
        ("#user.anna.readonly.", ReadWrite, SameCell, no_read_only, missing),
        ("#user.anna.backup.", ReadWrite, SameCell, full(), bk),
        ("#user.anna.backup.", ReadOnly, OtherCell, full(), bk),
        ("#user.anna.backup.", Backup, SameCell, full(), twice),
        ("#536870918.", ReadWrite, SameCell, full(), rw),
        ("#536870918.", ReadOnly, SameCell, full(), ro),
        ("%536870918.", ReadOnly, SameCell, full(), rw),
        ("#536870919.", ReadWrite, SameCell, full(), ro),
        ("%536870919.", ReadWrite, SameCell, full(), ro),
        ("%536870920.", Backup, SameCell, full(), twice),
        ("#536870920.", ReadWrite, SameCell, full(), bk),
    ];
    for (text, own, crossing, entry, wanted) in cases {
        let chosen = read(text).choose(own, crossing, &entry);
        assert_eq!(chosen, wanted, "{text} in {own:?}, {crossing:?}, {:?}", entry.volumes);
    }
}

#[test]
fn the_target_is_the_root_or_the_place_that_is_named() {
    assert_eq!(read("#user.anna.").target(READ_ONLY), Fid::root_of(READ_ONLY));
    assert_eq!(read("#536870918.").target(READ_ONLY), Fid::root_of(READ_ONLY));
    let place = Fid { volume: READ_ONLY, vnode: 3, unique: 77 };
    assert_eq!(read("#example.org:536870918:3:77.").target(READ_ONLY), place);
}

proptest! {
    #[test]
    fn what_is_read_is_written_the_same(text in "[#%][a-c0-9:.-]{0,20}\\.") {
        if let Ok(mount_point) = MountPoint::read(text.as_bytes()) {
            let written = mount_point.write().expect("what is read can be written");
            prop_assert_eq!(MountPoint::read(&written), Ok(mount_point));
        }
    }

    #[test]
    fn any_content_is_read_or_refused(content in prop::collection::vec(any::<u8>(), 0..60)) {
        if let Ok(mount_point) = MountPoint::read(&content) {
            let written = mount_point.write().expect("what is read can be written");
            prop_assert_eq!(MountPoint::read(&written), Ok(mount_point));
        }
    }
}
