use super::*;
use crate::disk::Disk;

fn folder(dir: &Path) -> Arc<DraftFiles> {
    DraftFiles::new(&Disk::default(), dir.to_owned())
}

fn begin(dir: &Path) -> Dirty {
    Dirty::begin(&folder(dir), NodeId(7), (Version::strong("1"), 10), Some(3)).unwrap()
}

/// What the next daemon takes up.
fn again(dir: &Path) -> Result<Option<Dirty>> {
    let folder = folder(dir);
    let mut left = folder.left().unwrap().nodes;
    assert!(left.len() <= 1 && left.iter().all(|(node, _)| *node == NodeId(7)), "{left:?}");
    left.pop().map_or(Ok(None), |left| Dirty::again(&folder, left))
}

#[test]
fn what_was_written_outlives_the_daemon_and_a_torn_end_of_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let dirty = begin(dir.path());
    dirty.write(4, b"four").unwrap();
    dirty.resize(20).unwrap();
    let (log, extents) = (dirty.files().paths().log.clone(), dirty.state.lock().extents.clone());
    drop(dirty);
    let mut torn = std::fs::read(&log).unwrap();
    torn.extend_from_slice(&[9, 0, 0, 0, 1, 2, 3]);
    std::fs::write(&log, &torn).unwrap();
    let second = again(dir.path()).unwrap().unwrap();
    assert_eq!(second.state.lock().extents, extents);
    assert_eq!((second.version(), second.read(4, 6).unwrap()), (Version::strong("1"), Bytes::from("four\0\0")));
    assert_eq!(second.readers(), Some(3));
    second.write(0, b"zero").unwrap();
    let extents = second.state.lock().extents.clone();
    let third = again(dir.path()).unwrap().unwrap();
    assert_eq!(third.state.lock().extents, extents, "the torn record was written over");
    third.discard();
    assert!(again(dir.path()).unwrap().is_none());
}

#[test]
fn what_says_nothing_is_removed_and_what_is_damaged_stays() {
    let dir = tempfile::tempdir().unwrap();
    let dirty = begin(dir.path());
    dirty.write(4, b"four").unwrap();
    let (bytes, log) = (dirty.files().paths().bytes.clone(), dirty.files().paths().log.clone());
    drop(dirty);
    let sound = std::fs::read(&log).unwrap();
    let damage = |at: usize| {
        let mut damaged = sound.clone();
        damaged[at] ^= 1;
        std::fs::write(&log, &damaged).unwrap();
    };
    let first = 12 + usize::from(sound[0]);
    damage(first + 5);
    assert!(matches!(again(dir.path()), Err(StoreError::Io { .. })), "it says whose it is, and not what");
    damage(5);
    let left = folder(dir.path()).left().unwrap();
    assert!(left.nodes.is_empty() && left.damaged.len() == 1, "{left:?}");
    assert!(left.damaged[0].to_string().contains(&log.display().to_string()), "{left:?}");
    assert!(log.exists() && bytes.exists());
    for silent in [&b""[..], &[0; 12], &[&[0; 12], &sound[12..]].concat()] {
        std::fs::write(&log, silent).unwrap();
        std::fs::write(&bytes, b"four").unwrap();
        assert!(again(dir.path()).unwrap().is_none());
        assert!(!log.exists() && !bytes.exists());
    }
}

/// Goal: one log that cannot be read keeps no other from being taken up.
#[test]
fn what_cannot_be_read_hides_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    begin(dir.path()).write(4, b"four").unwrap();
    std::fs::create_dir(dir.path().join("draft-99.log")).unwrap();
    let left = folder(dir.path()).left().unwrap();
    assert_eq!((left.nodes.len(), left.damaged.len()), (1, 1));
    assert!(left.damaged[0].to_string().contains("draft-99.log"), "{left:?}");
    assert_eq!(again(dir.path()).unwrap().unwrap().bytes_away(), Some(4));
}

/// Goal: what an earlier weft left, whose logs had no record of whose they are, is taken up, goes on, and is used again.
#[test]
fn what_was_left_in_the_former_way_is_taken_up() {
    let dir = tempfile::tempdir().unwrap();
    // Longer than what is read to learn whose a log is.
    let version = Version::strong("former".repeat(20));
    let records = [Logged::Base { version: version.clone(), length: 10 }, Logged::Wrote(4..8)];
    let log: Vec<u8> = records.iter().flat_map(|record| record.encoded(0).unwrap()).collect();
    std::fs::write(dir.path().join("0000000000000007.log"), log).unwrap();
    std::fs::write(dir.path().join("0000000000000007"), b"\0\0\0\0four").unwrap();
    std::fs::write(dir.path().join("spare-3"), b"").unwrap();
    let second = again(dir.path()).unwrap().unwrap();
    assert!(!dir.path().join("spare-3").exists());
    assert_eq!((second.version(), second.read(4, 4).unwrap()), (version, Bytes::from("four")));
    second.write(0, b"zero").unwrap();
    drop(second);
    let third = again(dir.path()).unwrap().unwrap();
    assert_eq!((third.bytes_away(), third.read(0, 8).unwrap()), (Some(8), Bytes::from("zerofour")));
    third.take().unwrap();
    third.sent(Version::strong("2")).unwrap();
    third.write(9, b"!").unwrap();
    let fourth = again(dir.path()).unwrap().unwrap();
    assert_eq!((fourth.bytes_away(), fourth.version()), (Some(1), Version::strong("2")));
    let folder = fourth.folder.clone();
    fourth.discard();
    drop(fourth);
    let other = Dirty::begin(&folder, NodeId(8), (Version::strong("1"), 0), None).unwrap();
    assert_eq!(other.path(), dir.path().join("0000000000000007"), "the same files");
    let left: Vec<NodeId> = folder.left().unwrap().nodes.into_iter().map(|(node, _)| node).collect();
    assert_eq!(left, [NodeId(8)]);
}

/// Goal: records of a former life of the same file are not taken for those of this one.
#[test]
fn what_lies_behind_a_log_that_began_anew_counts_for_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let dirty = begin(dir.path());
    (0..20).for_each(|at| dirty.write(at, b"x").unwrap());
    dirty.take().unwrap();
    dirty.sent(Version::strong("2")).unwrap();
    let log = std::fs::read(&dirty.files().paths().log).unwrap();
    assert!(log.len() as u64 > dirty.state.lock().log_end, "it is not cut");
    let second = again(dir.path()).unwrap().unwrap();
    assert_eq!((second.bytes_away(), second.version()), (None, Version::strong("2")));
    dirty.write(3, b"y").unwrap();
    assert_eq!(again(dir.path()).unwrap().unwrap().bytes_away(), Some(1));
}

#[test]
fn when_all_is_sent_nothing_is_left_to_send_after_a_start() {
    let dir = tempfile::tempdir().unwrap();
    let dirty = begin(dir.path());
    dirty.write(4, b"four").unwrap();
    let batch = dirty.take().unwrap();
    dirty.write(0, b"meanwhile").unwrap();
    dirty.sent(Version::strong("2")).unwrap();
    let again = || again(dir.path()).unwrap().unwrap();
    assert!(again().is_unsent() && again().version() == Version::strong("2"));
    assert_eq!((batch.extents().len(), batch.length()), (1, 10));
    dirty.take().unwrap();
    dirty.sent(Version::strong("3")).unwrap();
    assert!(!again().is_unsent() && again().version() == Version::strong("3"));
    assert_eq!(again().parts(0, 99), [(0..10, Origin::Base)]);
}

/// Goal: what was sent of a file is there for the next daemon where all of it is here; of one that its source will not have any
/// more, whatever becomes of it after that.
#[test]
fn what_was_sent_is_kept_where_the_source_loses_it() {
    let dir = tempfile::tempdir().unwrap();
    let dirty = begin(dir.path());
    dirty.write(4, b"four").unwrap();
    assert!(!dirty.keep_all().unwrap(), "bytes are missing");
    dirty.fill(0, b"0123456789").unwrap();
    dirty.resize(12).unwrap();
    dirty.take().unwrap();
    dirty.sent(Version::strong("2")).unwrap();
    let again = || again(dir.path()).unwrap().unwrap();
    assert!(!again().needs_base() && !again().is_unsent() && again().was_filled());
    assert!(dirty.keep_all().unwrap());
    let is_here = |wanted: &'static [u8]| {
        for there in [&again(), &dirty] {
            assert_eq!((there.bytes_away(), there.version()), (dirty.bytes_away(), dirty.version()));
            assert_eq!(there.parts(0, 99), [(0..wanted.len() as u64, Origin::Written)]);
            assert_eq!(there.read(0, wanted.len()).unwrap(), Bytes::from(wanted));
        }
        assert!(again().was_filled() && !dirty.was_filled());
    };
    is_here(b"0123four89\0\0");
    dirty.write(12, b"more").unwrap();
    is_here(b"0123four89\0\0more");
    dirty.take().unwrap();
    dirty.sent(Version::strong("3")).unwrap();
    is_here(b"0123four89\0\0more");
    dirty.resize(2).unwrap();
    is_here(b"01");
    let next = again();
    assert!(next.over(Version::strong("4"), 1).unwrap() && !next.was_filled());
    assert!(!again().was_filled());
}

/// Goal: also where all of it was sent, and where it is empty.
#[test]
fn what_is_kept_needs_nothing_of_before() {
    let dir = tempfile::tempdir().unwrap();
    let dirty = begin(dir.path());
    dirty.resize(0).unwrap();
    dirty.take().unwrap();
    dirty.sent(Version::strong("2")).unwrap();
    assert!(dirty.keep_all().unwrap() && dirty.keep_all().unwrap());
    let again = || again(dir.path()).unwrap().unwrap();
    assert_eq!((again().length(), again().was_filled()), (0, false));
    dirty.write(3, b"x").unwrap();
    assert_eq!(again().read(0, 4).unwrap(), Bytes::from("\0\0\0x"));
    assert!(!again().needs_base());
}

#[test]
fn what_is_to_be_sent_over_another_version_is_all_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let dirty = begin(dir.path());
    dirty.write(4, b"four").unwrap();
    assert!(!dirty.over(Version::strong("2"), 99).unwrap(), "bytes are missing");
    dirty.fill(0, b"0123456789").unwrap();
    assert_eq!(dirty.bytes_away(), Some(4), "what was filled is not told by itself");
    assert_eq!(dirty.read(0, 10).unwrap(), Bytes::from("0123four89"));
    assert!(dirty.over(Version::strong("2"), 99).unwrap());
    for dirty in [again(dir.path()).unwrap().unwrap(), dirty] {
        assert_eq!((dirty.version(), dirty.source_length()), (Version::strong("2"), 99));
        assert_eq!((dirty.bytes_away(), dirty.length()), (Some(10), 10));
        let batch = dirty.take().unwrap();
        assert_eq!((batch.extents()[0].length, batch.length()), (10, 10));
        assert_eq!(dirty.bytes_away(), Some(10), "what is on its way is not there");
        dirty.sent(Version::strong("3")).unwrap();
        assert_eq!(dirty.bytes_away(), None);
    }
}

/// Goal: who closed it last is known to the next daemon, whatever is logged before and after that, and hides nothing of it from
/// one that does not know such a record. Method: all ends of the log are looked at that such a one takes for the end.
#[test]
fn who_closed_it_last_outlives_the_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let dirty = begin(dir.path());
    let writer = |uid| Caller { uid, gid: uid + 1, pid: 0 };
    let is_known = |dirty: &Dirty, uid, away| {
        let next = again(dir.path()).unwrap().unwrap();
        assert_eq!((next.writer(), next.bytes_away(), next.length()), (Some(writer(uid)), away, dirty.length()));
        let log = std::fs::read(&dirty.files().paths().log).unwrap();
        let former = draft_log::replay(&log[..dirty.state.lock().log_end as usize]).unwrap();
        assert_eq!(
            (former.extents, former.writer),
            (next.state.lock().extents.clone(), None),
            "all but the last record"
        );
    };
    dirty.write(4, b"four").unwrap();
    assert_eq!(again(dir.path()).unwrap().unwrap().writer(), None);
    dirty.note_writer(Caller { pid: 9, ..writer(1) }).unwrap();
    is_known(&dirty, 1, Some(4));
    dirty.note_writer(writer(70_000)).unwrap();
    dirty.note_writer(writer(2)).unwrap();
    is_known(&dirty, 2, Some(4));
    dirty.write(8, b"more").unwrap();
    dirty.resize(1 << 40).unwrap();
    is_known(&dirty, 2, Some(8));
    dirty.take().unwrap();
    dirty.sent(Version::strong("2")).unwrap();
    is_known(&dirty, 2, None);
    dirty.write(0, b"x").unwrap();
    is_known(&dirty, 2, Some(1));
    drop(dirty);
    let third = again(dir.path()).unwrap().unwrap();
    third.write(1, b"y").unwrap();
    is_known(&third, 2, Some(2));
}
