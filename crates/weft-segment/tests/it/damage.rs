//! Bits that flip on the disk: whatever they hit, nothing wrong is served.

use std::sync::Arc;

use proptest::prelude::*;
use weft_segment::device::{Device, MemoryDevice};
use weft_segment::{Class, Options, Volume};

use crate::meddling::Meddling;
use crate::sample::{VOLUME_BYTES, content, get, key, new_volume, open, options, put};

const OBJECTS: u64 = 60;

/// A volume with objects in segments, some in the log alone, and two checkpoints.
fn filled() -> Vec<u8> {
    let (device, volume) = new_volume(options());
    for number in 0..OBJECTS {
        put(&volume, number, content(number, 5000 + number as usize), Class::Cache);
        if number == OBJECTS / 3 {
            volume.checkpoint().unwrap();
        }
    }
    volume.checkpoint().unwrap();
    (0..4).for_each(|number| put(&volume, number, content(number, 5000 + number as usize), Class::Durable));
    // As if the power went: nothing more is written.
    device.image()
}

fn verify(volume: &Volume) -> u64 {
    let mut held = 0;
    for number in 0..OBJECTS {
        if let Some(found) = get(volume, number) {
            assert_eq!(found, content(number, 5000 + number as usize), "key {number}");
            held += 1;
        }
    }
    held
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn a_flipped_bit_costs_at_most_what_it_hits(place in 0usize..1000, bit in 0u64..64) {
        static FILLED: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(filled);
        // Only where something was written, so that most flips hit.
        let written: Vec<usize> =
            FILLED.chunks(64).enumerate().filter(|(_, bytes)| bytes.iter().any(|byte| *byte != 0)).map(|(at, _)| at).collect();
        let at = written[place * 7919 % written.len()] as u64 * 64 * 8 + bit * 8 % 512 + bit % 8;
        let device = Arc::new(MemoryDevice::of(FILLED.clone()));
        device.flip(at);
        let Ok(volume) = Volume::open_on(Arc::clone(&device) as Arc<dyn Device>, options()) else {
            return Err(TestCaseError::fail("one bit must not cost the volume"));
        };
        volume.wait_for_scan();
        prop_assert!(verify(&volume) + 1 >= OBJECTS, "one bit costs one object at most");
        let findings = volume.repair().unwrap();
        prop_assert!(findings.damaged_objects <= 1);
        prop_assert!(volume.check().unwrap().is_sound());
        prop_assert!(verify(&volume) + 1 >= OBJECTS);
    }

    #[test]
    fn many_flipped_bits_serve_nothing_wrong(bits in proptest::collection::vec(0..VOLUME_BYTES as u64 * 8, 1..3000)) {
        static FILLED: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(filled);
        let device = Arc::new(MemoryDevice::of(FILLED.clone()));
        // One superblock is left: without both there is no volume, which is another test.
        bits.iter().filter(|bit| **bit >= 4096 * 8).for_each(|bit| device.flip(*bit));
        let volume = open(&device, options());
        volume.wait_for_scan();
        verify(&volume);
        volume.repair().unwrap();
        prop_assert!(volume.check().unwrap().is_sound());
        verify(&volume);
        put(&volume, 7, content(7, 5007), Class::Durable);
        drop(volume);
        let volume = open(&device, options());
        verify(&volume);
        prop_assert_eq!(get(&volume, 7), Some(content(7, 5007)));
    }
}

/// Both checkpoints are lost: everything is found again, while new objects come and old ones go.
#[test]
fn without_checkpoints_the_segments_tell_what_there_is() {
    let device = Arc::new(MemoryDevice::of(filled()));
    let image = device.image();
    let is_head = |at: &usize| image[*at..].starts_with(b"weftchk\n");
    let heads: Vec<usize> = (0..image.len()).step_by(4096).filter(is_head).collect();
    assert_eq!(heads.len(), 2);
    heads.iter().for_each(|at| device.flip((at + 24) as u64 * 8));
    let volume = open(&device, options());
    assert!(volume.stats().scanning);
    // Before anything was looked at, what is missing is a miss; what is new or removed stays so.
    assert_eq!(get(&volume, 30), None);
    volume.remove(&key(31), Class::Cache).unwrap();
    put(&volume, 32, content(9999, 100), Class::Cache);
    volume.wait_for_scan();
    assert!(!volume.stats().scanning);
    let expect = |volume: &Volume| {
        for number in 0..OBJECTS {
            let expected = match number {
                31 => None,
                32 => Some(content(9999, 100)),
                _ => Some(content(number, 5000 + number as usize)),
            };
            assert_eq!(get(volume, number), expected, "key {number}");
        }
    };
    expect(&volume);
    assert!(volume.check().unwrap().is_sound());
    drop(volume);
    let volume = open(&device, options());
    assert!(!volume.stats().scanning, "the scan ended with a checkpoint");
    expect(&volume);
}

/// A part of the log is damaged: what it told is lost, and nothing else.
#[test]
fn a_damaged_part_of_the_log_costs_what_it_told_alone() {
    let (device, volume) = new_volume(options());
    // Each in a batch of its own.
    (0..10).for_each(|number| put(&volume, number, content(number, 3000), Class::Durable));
    assert!(volume.remove(&key(8), Class::Durable).unwrap());
    let image = device.image();
    let is_batch = |at: &usize| image[*at..].starts_with(b"weftlog\n");
    let batches: Vec<usize> = (0..image.len()).step_by(4096).filter(is_batch).collect();
    assert_eq!(batches.len(), 11);
    let expect = |volume: &Volume| {
        for number in 0..10 {
            let expected = (number != 3 && number != 8).then(|| content(number, 3000));
            assert_eq!(get(volume, number), expected, "key {number}");
        }
    };
    let damaged = Arc::new(MemoryDevice::of(image.clone()));
    damaged.flip((batches[3] as u64 + 1000) * 8);
    let volume = open(&damaged, options());
    assert!(volume.stats().log_had_gap && !volume.stats().scanning);
    expect(&volume);
    // A crash before anything else was written finds the same; and what is put then is there the next time.
    let again = open(&Arc::new(MemoryDevice::of(damaged.image())), options());
    assert!(again.stats().log_had_gap);
    expect(&again);
    put(&volume, 20, content(20, 100), Class::Durable);
    let later = open(&Arc::new(MemoryDevice::of(damaged.image())), options());
    assert!(!later.stats().log_had_gap, "a checkpoint has taken its place");
    expect(&later);
    assert_eq!(get(&later, 20), Some(content(20, 100)));
}

/// A read is so slow that meanwhile the object is replaced and its segment used again, for the same key at the same
/// place: what the read brings is told to nobody else.
#[test]
fn a_read_that_was_overtaken_leaves_nothing_old_behind() {
    let options = Options { buffer_bytes: 1 << 20, ..options() };
    let (filled, volume) = new_volume(options);
    (0..12).for_each(|number| put(&volume, number, content(number, 5000), Class::Cache));
    drop(volume);
    let image = filled.image();
    let segment = (0..image.len()).step_by(4096).find(|at| image[*at..].starts_with(b"weftseg\n")).unwrap();
    let device = Arc::new(Meddling::of(image.clone()));
    let volume = Arc::new(open(&device, options));
    let (meddler, disk) = (Arc::downgrade(&volume), Arc::downgrade(&device));
    *device.after_read.lock() = Some(Box::new(move || {
        let (volume, disk) = (meddler.upgrade().unwrap(), disk.upgrade().unwrap());
        for round in 1.. {
            (0..12).for_each(|number| put(&volume, number, content(number + 100, 5000), Class::Cache));
            volume.checkpoint().unwrap();
            if disk.inner.image()[segment..segment + 64] != image[segment..segment + 64] {
                break;
            }
            assert!(round < 1000, "segments are used in turn");
        }
        // Nothing of it stays in memory.
        (1000..1200).for_each(|number| put(&volume, number, content(number, 9000), Class::Cache));
        volume.checkpoint().unwrap();
    }));
    let overtaken = get(&volume, 3);
    assert!(overtaken == Some(content(3, 5000)) || overtaken == Some(content(103, 5000)));
    for number in 0..12 {
        assert_eq!(get(&volume, number), Some(content(number + 100, 5000)), "key {number}");
    }
}

/// What a disk returns that lost a write: an older state of the same place.
#[test]
fn a_lost_write_is_a_miss() {
    let (device, volume) = new_volume(options());
    (0..12).for_each(|number| put(&volume, number, content(number, 5000), Class::Cache));
    volume.checkpoint().unwrap();
    let before = device.image();
    let segment = (0..before.len()).step_by(4096).find(|at| before[*at..].starts_with(b"weftseg\n")).unwrap();
    // The segment goes and is used again, for the same keys.
    (0..12).for_each(|number| assert!(volume.remove(&key(number), Class::Durable).unwrap()));
    for round in 0.. {
        (0..12).for_each(|number| put(&volume, number, content(number + 100, 5000), Class::Cache));
        volume.checkpoint().unwrap();
        if device.image()[segment..segment + 64] != before[segment..segment + 64] {
            break;
        }
        assert!(round < 1000, "segments are used in turn");
    }
    device.write_at(&before[segment..segment + (64 << 10)], segment as u64).unwrap();
    for number in 0..12 {
        let found = get(&volume, number);
        assert!(found.is_none_or(|found| found == content(number + 100, 5000)), "key {number} is of former times");
    }
    assert!(volume.stats().damaged > 0, "{:?}", volume.stats());
}
