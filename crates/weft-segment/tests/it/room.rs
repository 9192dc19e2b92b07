//! A volume that is full: by default the writer is told, with a policy the oldest goes.

use std::sync::Arc;

use weft_segment::device::MemoryDevice;
use weft_segment::{Class, Hints, Options, Packer, Policy, SegmentError, Shape, Volume};

use crate::meddling::Meddling;
use crate::sample::{VOLUME_BYTES, content, formatted, get, key, new_volume, open, options, put};

fn try_put(volume: &Volume, number: u64) -> Result<(), SegmentError> {
    volume.put(&key(number), &number.to_le_bytes(), content(number, 9000), Hints::default(), Class::Cache)
}

#[test]
fn keep_tells_the_writer_keeps_all_and_goes_on_when_something_was_removed() {
    let (device, volume) = new_volume(options());
    let held = (0..10_000).find(|number| try_put(&volume, *number).is_err()).expect("it is full some time");
    let refused = try_put(&volume, held).unwrap_err();
    assert!(refused.is_full());
    assert!(refused.to_string().contains("the volume is full (no free segment is left); remove objects"), "{refused}");
    let bytes = held * 9000;
    assert!(bytes > VOLUME_BYTES as u64 / 3, "{bytes} bytes fitted");
    volume.flush().unwrap();
    (0..held).for_each(|number| assert_eq!(get(&volume, number), Some(content(number, 9000)), "key {number}"));
    // What is removed makes room, once all of a segment is gone.
    (0..held / 2).for_each(|number| assert!(volume.remove(&key(number), Class::Cache).unwrap()));
    let more = (0..held / 4).map(|number| 20_000 + number);
    more.clone().for_each(|number| try_put(&volume, number).unwrap());
    drop(volume);
    let volume = open(&device, options());
    (held / 2..held).chain(more).for_each(|number| assert_eq!(get(&volume, number), Some(content(number, 9000))));
    assert!(volume.check().unwrap().is_sound());
}

#[test]
fn as_many_objects_as_it_was_made_for_are_the_most() {
    let device = Arc::new(MemoryDevice::new(VOLUME_BYTES));
    let shape = Shape { segment_bytes: 64 << 10, objects_max: Some(50), uuid: None };
    Volume::format(&*device, &shape).unwrap();
    let volume = open(&device, options());
    (0..50).for_each(|number| put(&volume, number, content(number, 10), Class::Cache));
    let refused = volume.put(b"one more", &[], content(1, 1), Hints::default(), Class::Cache).unwrap_err();
    assert!(refused.to_string().contains("as many objects as it was made for"), "{refused}");
    // Replacing is no more.
    put(&volume, 7, content(77, 10), Class::Cache);
    assert!(volume.remove(&key(0), Class::Cache).unwrap());
    put(&volume, 51, content(51, 10), Class::Cache);
}

#[test]
fn a_policy_makes_room_for_ever_and_keeps_what_is_pinned() {
    for policy in [Policy::Fifo, Policy::Clock, Policy::Sieve] {
        let options = Options { policy, ..options() };
        let (device, volume) = new_volume(options);
        (0..5).for_each(|number| put(&volume, number, content(number, 9000), Class::Cache));
        (0..5).for_each(|number| assert!(volume.pin(&key(number), true).unwrap()));
        for number in 100..1500 {
            try_put(&volume, number).unwrap();
        }
        let stats = volume.stats();
        assert!(stats.evicted > 500, "{policy:?}: {stats:?}");
        assert!(stats.live_bytes > VOLUME_BYTES as u64 / 4, "{policy:?} leaves room unused: {stats:?}");
        drop(volume);
        let volume = open(&device, options);
        (0..5).for_each(|number| assert_eq!(get(&volume, number), Some(content(number, 9000)), "{policy:?}"));
        assert_eq!(get(&volume, 1499), Some(content(1499, 9000)));
        // Those beside what is pinned may be there still.
        assert_eq!(get(&volume, 200), None, "{policy:?}");
        assert!(volume.check().unwrap().is_sound());
        // Let go, they go with the next.
        (0..5).for_each(|number| assert!(volume.pin(&key(number), false).unwrap()));
        (2000..3500).for_each(|number| try_put(&volume, number).unwrap());
        // They were used, so the hand of the sieve passes over them once more.
        let gone = policy != Policy::Sieve;
        (0..5).for_each(|number| assert_eq!(get(&volume, number).is_none(), gone, "{policy:?}"));
    }
}

#[test]
fn what_is_used_again_and_again_outlives_what_is_not_but_with_fifo() {
    for (policy, stays) in [(Policy::Fifo, false), (Policy::Clock, true)] {
        let (_device, volume) = new_volume(Options { policy, ..options() });
        let hot = [3, 150, 170];
        for number in 0..1500 {
            try_put(&volume, number).unwrap();
            hot.iter().filter(|hot| **hot <= number).for_each(|hot| drop(get(&volume, *hot)));
        }
        hot.iter().for_each(|hot| assert_eq!(get(&volume, *hot).is_some(), stays, "{policy:?}: {hot}"));
    }
}

#[test]
fn a_volume_full_of_pins_tells_the_writer() {
    let (_device, volume) = new_volume(Options { policy: Policy::Clock, ..options() });
    let refused = (0..10_000).find_map(|number| {
        let outcome = try_put(&volume, number);
        if outcome.is_ok() {
            volume.pin(&key(number), true).unwrap();
        }
        outcome.err()
    });
    assert!(refused.expect("it is full some time").is_full());
}

#[test]
fn little_is_lost_to_packing() {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    Volume::format(&*device, &Shape::default()).unwrap();
    let volume = open(&device, options());
    let mut bytes = 0;
    for number in 0..2500u64 {
        let length = 2000 + (number * 7919 % 30_000) as usize;
        put(&volume, number, content(number, length), Class::Cache);
        bytes += length;
    }
    volume.checkpoint().unwrap();
    let stats = volume.stats();
    let taken = u64::from(stats.segments - stats.free_segments) * u64::from(stats.segment_bytes);
    let overhead = taken as f64 / bytes as f64 - 1.0;
    assert!(overhead < 0.04, "{overhead}: {stats:?}");
}

/// A pin that was set before the object lay in a segment holds after a crash as well.
#[test]
fn a_pin_outlives_a_crash() {
    let device = Arc::new(MemoryDevice::of(crate::sample::formatted()));
    let volume = open(&device, options());
    for number in 0..20 {
        try_put(&volume, number).unwrap();
        volume.pin(&key(number), number % 2 == 0).unwrap();
    }
    volume.pin(&key(4), false).unwrap();
    // Pins of objects that wait, and of those that lie in a segment.
    volume.flush().unwrap();
    volume.pin(&key(5), true).unwrap();
    volume.flush().unwrap();
    let after = Arc::new(MemoryDevice::of(device.image()));
    let volume = open(&after, Options { policy: Policy::Fifo, ..options() });
    (100..1500).for_each(|number| try_put(&volume, number).unwrap());
    for number in 0..20 {
        let pinned = (number % 2 == 0 && number != 4) || number == 5;
        assert!(!pinned || get(&volume, number).is_some(), "key {number} was pinned");
    }
    assert!((0..20).filter(|number| get(&volume, *number).is_some()).count() < 20, "the others went");
}

/// An object that is replaced while it is being packed holds the log where it is until the next checkpoint, no longer.
#[test]
fn what_changes_while_it_is_packed_does_not_fill_the_log() {
    let options = Options { packer: Packer::Thread, ..options() };
    let device = Arc::new(Meddling::of(formatted()));
    let volume = Arc::new(open(&device, options));
    put(&volume, 1, content(1, 3000), Class::Durable);
    let meddler = Arc::downgrade(&volume);
    *device.after_write.lock() =
        Some(Box::new(move || put(&meddler.upgrade().unwrap(), 1, content(11, 3000), Class::Cache)));
    volume.checkpoint().unwrap();
    assert!(device.after_write.lock().is_none(), "it was replaced");
    // Each takes a block of the log at least, and all of them less than would be packed.
    (100..300).for_each(|number| put(&volume, number, content(number, 10), Class::Durable));
    assert_eq!(get(&volume, 1), Some(content(11, 3000)));
}
