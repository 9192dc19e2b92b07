//! What is put can be read: at once, from segments, after a remount, under every call there is.

use std::sync::Arc;
use std::time::Duration;

use weft_segment::{Affinity, Class, Hints, Options, Packer, SegmentError};

use crate::sample::{content, formatted, get, key, new_volume, open, options, put};
use weft_segment::device::{MemoryDevice, Rotating};

#[test]
fn an_object_can_be_read_at_once_from_its_segment_and_after_a_remount() {
    let (device, volume) = new_volume(options());
    for number in 0..200 {
        put(&volume, number, content(number, 500 + number as usize * 40), Class::Cache);
        assert_eq!(get(&volume, number), Some(content(number, 500 + number as usize * 40)));
    }
    volume.flush().unwrap();
    assert!(volume.stats().segments_written > 5, "{:?}", volume.stats());
    for round in 0..3 {
        for number in 0..200 {
            assert_eq!(get(&volume, number), Some(content(number, 500 + number as usize * 40)), "{round}");
        }
    }
    assert!(volume.stats().object_reads + volume.stats().neighbour_reads > 0, "the device was read");
    drop(volume);
    let volume = open(&device, options());
    for number in 0..200 {
        assert_eq!(get(&volume, number), Some(content(number, 500 + number as usize * 40)));
    }
    assert_eq!(get(&volume, 200), None);
    assert!(volume.check().unwrap().is_sound());
    assert_eq!(volume.stats().objects, 200);
}

/// What a caller keeps takes no memory here; what lies beside it does.
#[test]
fn what_is_taken_is_not_kept_and_its_neighbours_are() {
    let (device, volume) = new_volume(options());
    let all = || (0..8).map(|number| content(number, 4000));
    (0..8).zip(all()).for_each(|(number, content)| put(&volume, number, content, Class::Cache));
    drop(volume);
    let volume = open(&device, Options { buffer_bytes: 1 << 20, ..options() });
    let reads = |volume: &weft_segment::Volume| volume.stats().object_reads + volume.stats().neighbour_reads;
    assert_eq!(get(&volume, 0), Some(content(0, 4000)));
    let before = reads(&volume);
    let take = |number| volume.take(&key(number)).unwrap().map(|held| held.content);
    assert_eq!(take(0), Some(content(0, 4000)));
    assert_eq!(reads(&volume), before, "it was here");
    assert_eq!(take(0), Some(content(0, 4000)));
    assert_eq!(reads(&volume), before + 1, "and is not any more");
    assert_eq!(take(99), None);
    (0..8).zip(all()).for_each(|(number, content)| assert_eq!(get(&volume, number), Some(content)));
    let (held, before) = (volume.stats().buffer_bytes, reads(&volume));
    (0..8).zip(all()).for_each(|(number, content)| assert_eq!(get(&volume, number), Some(content)));
    assert_eq!((volume.stats().buffer_bytes, reads(&volume)), (held, before), "what is got stays");
}

#[test]
fn replacing_and_removing_leaves_the_last_state() {
    let (device, volume) = new_volume(options());
    for round in 0..20u64 {
        for number in 0..20 {
            put(&volume, number, content(round * 100 + number, 3000), Class::Cache);
        }
        volume.remove(&key(round), Class::Cache).unwrap();
        assert_eq!(get(&volume, round), None);
        assert!(!volume.remove(&key(round), Class::Cache).unwrap());
        if round % 3 == 0 {
            volume.flush().unwrap();
        }
    }
    let expected = |number| (number != 19).then(|| content(1900 + number, 3000));
    (0..20).for_each(|number| assert_eq!(get(&volume, number), expected(number)));
    drop(volume);
    let volume = open(&device, options());
    (0..20).for_each(|number| assert_eq!(get(&volume, number), expected(number)));
}

#[test]
fn empty_and_largest_contents_fit_and_larger_ones_are_refused_with_the_limit() {
    let (_device, volume) = new_volume(options());
    let most = volume.content_bytes_max();
    assert_eq!(most, 32 << 10);
    put(&volume, 1, content(1, 0), Class::Durable);
    put(&volume, 2, content(2, most), Class::Durable);
    volume.checkpoint().unwrap();
    assert_eq!(get(&volume, 1), Some(content(1, 0)));
    assert_eq!(get(&volume, 2), Some(content(2, most)));
    let refused = volume.put(&key(3), &[], content(3, most + 1), Hints::default(), Class::Cache).unwrap_err();
    assert_eq!(refused.to_string(), "memory: a content has 32769 bytes, at most 32768 fit; store it elsewhere");
    let long = vec![b'k'; 1025];
    assert!(matches!(
        volume.put(&long, &[], content(3, 1), Hints::default(), Class::Cache),
        Err(SegmentError::TooLarge { what: "a key", .. })
    ));
}

#[test]
fn friends_come_with_one_read() {
    let (device, volume) = new_volume(Options { buffer_bytes: 1 << 20, ..options() });
    // Eight pages of six objects, put in turns.
    for page in 0..8u64 {
        let keys: Vec<Vec<u8>> = (0..6).map(|object| key(page * 10 + object)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        volume.hint(Affinity::Told, &keys);
    }
    for object in 0..6 {
        (0..8u64).for_each(|page| put(&volume, page * 10 + object, content(page * 10 + object, 10_000), Class::Cache));
    }
    drop(volume);
    // What is read together is decided by the clock: by that of the disk, and not of this machine.
    let disk = Arc::new(Rotating::new(MemoryDevice::of(device.image()), 250 << 30));
    let volume = open(&disk, Options { buffer_bytes: 1 << 20, ..options() });
    for page in 0..8u64 {
        for object in 0..6 {
            assert_eq!(get(&volume, page * 10 + object), Some(content(page * 10 + object, 10_000)));
        }
    }
    let stats = volume.stats();
    assert_eq!(stats.neighbour_reads + stats.object_reads, 8, "{stats:?}");
    assert_eq!(stats.neighbours_used, 40);
}

#[test]
fn the_same_calls_write_the_same_bytes() {
    // The seed is random: both begin from one formatted image.
    let base = formatted();
    let run = || {
        let device = Arc::new(MemoryDevice::of(base.clone()));
        let volume = open(&device, options());
        for number in 0..300u64 {
            let links = [key(number * 7 % 50), key(number * 11 % 50)];
            let links: Vec<&[u8]> = links.iter().map(Vec::as_slice).collect();
            let hints = Hints { directory: 1 + number % 4, links: &links };
            volume.put(&key(number), &[], content(number, 1000 + number as usize), hints, Class::Cache).unwrap();
        }
        volume.checkpoint().unwrap();
        device.image()
    };
    assert!(run() == run());
}

#[test]
fn many_threads_read_and_write_at_once() {
    let options = Options { packer: Packer::Thread, age: Duration::from_millis(20), ..options() };
    let (device, volume) = new_volume(options);
    std::thread::scope(|scope| {
        for writer in 0..4u64 {
            let volume = &volume;
            scope.spawn(move || {
                for round in 0..60 {
                    for number in 0..8 {
                        let number = writer * 100 + number;
                        let class = if round % 7 == 0 { Class::Durable } else { Class::Cache };
                        put(volume, number, content(number * 1000 + round, 2000), class);
                        // This thread alone writes this key.
                        assert_eq!(get(volume, number), Some(content(number * 1000 + round, 2000)));
                    }
                    if round % 16 == 0 {
                        volume.flush().unwrap();
                    }
                }
            });
        }
        for _ in 0..2 {
            let volume = &volume;
            scope.spawn(move || {
                for round in 0..400u64 {
                    let number = round % 4 * 100 + round % 8;
                    if let Some(found) = get(volume, number) {
                        let is_some_state = (0..60).any(|round| found == content(number * 1000 + round, 2000));
                        assert!(is_some_state, "key {number} was never like that");
                    }
                }
            });
        }
    });
    let check = |volume: &weft_segment::Volume| {
        for number in (0..4u64).flat_map(|writer| (0..8).map(move |number| writer * 100 + number)) {
            assert_eq!(get(volume, number), Some(content(number * 1000 + 59, 2000)));
        }
    };
    check(&volume);
    drop(volume);
    let volume = open(&device, options);
    check(&volume);
    assert!(volume.check().unwrap().is_sound());
}

/// What nobody asks to be durable is on the disk all the same when it has waited long enough.
#[test]
fn what_has_waited_is_written_unasked() {
    let (device, volume) = new_volume(Options { age: Duration::ZERO, ..options() });
    (0..20).for_each(|number| put(&volume, number, content(number, 3000), Class::Cache));
    let after = Arc::new(MemoryDevice::of(device.image()));
    let after = open(&after, options());
    (0..20).for_each(|number| assert_eq!(get(&after, number), Some(content(number, 3000))));
    drop(volume);
}

/// An object that is removed a second time, durably now, is gone for good: the first time it was not durable.
#[test]
fn a_durable_removal_covers_one_before_that_was_not() {
    let (device, volume) = new_volume(options());
    put(&volume, 1, content(1, 3000), Class::Durable);
    assert!(volume.remove(&key(1), Class::Cache).unwrap());
    let undone = open(&Arc::new(MemoryDevice::of(device.image())), options());
    assert!(get(&undone, 1).is_some(), "nothing has asked for it to be durable");
    assert!(!volume.remove(&key(1), Class::Durable).unwrap());
    let done = open(&Arc::new(MemoryDevice::of(device.image())), options());
    assert_eq!(get(&done, 1), None);
}

/// Groups may go by a part of the keys: what is told before the rest of them is known brings the objects together.
#[test]
fn groups_go_by_the_part_of_the_keys_that_they_are_to_go_by() {
    let options = Options { buffer_bytes: 1 << 20, group_part: |key| &key[..key.len().min(4)], ..options() };
    let (device, volume) = new_volume(options);
    let part = |number: u64| format!("{number:04}").into_bytes();
    let whole = |number: u64| format!("{number:04}, version {}", number * 7919).into_bytes();
    for page in 0..8u64 {
        let parts: Vec<Vec<u8>> = (0..6).map(|object| part(page * 10 + object)).collect();
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        volume.hint(Affinity::Linked, &parts);
    }
    for object in 0..6 {
        for number in (0..8u64).map(|page| page * 10 + object) {
            volume.put(&whole(number), &[], content(number, 10_000), Hints::default(), Class::Cache).unwrap();
        }
    }
    drop(volume);
    let disk = Arc::new(Rotating::new(MemoryDevice::of(device.image()), 250 << 30));
    let volume = open(&disk, options);
    for number in (0..8u64).flat_map(|page| (0..6).map(move |object| page * 10 + object)) {
        assert_eq!(volume.get(&whole(number)).unwrap().map(|held| held.content), Some(content(number, 10_000)));
    }
    let stats = volume.stats();
    assert_eq!(stats.neighbour_reads + stats.object_reads, 8, "{stats:?}");
}

/// Far more goes through the log than it holds, while everything is replaced over and over.
#[test]
fn many_durable_writers_never_run_out_of_log_or_segments() {
    let options = Options { packer: Packer::Thread, ..options() };
    let (device, volume) = new_volume(options);
    // Longer each time or shorter, also while the state before is being packed.
    let state = |number: u64, round: u64| {
        content(number * 1000 + round, 1000 + (round * 7919 + number * 104_729) as usize % 18_000)
    };
    let last = |number: u64| state(number, 59);
    std::thread::scope(|scope| {
        for writer in 0..8u64 {
            let volume = &volume;
            scope.spawn(move || {
                for round in 0..60 {
                    for number in (0..8).map(|number| writer * 100 + number) {
                        let class = if round % 4 == 0 { Class::Cache } else { Class::Durable };
                        put(volume, number, state(number, round), class);
                    }
                }
            });
        }
    });
    assert!(volume.stats().checkpoints > 3, "the log was filled: {:?}", volume.stats());
    // As if the power went.
    let after = Arc::new(MemoryDevice::of(device.image()));
    for volume in [volume, open(&after, options)] {
        for number in (0..8u64).flat_map(|writer| (0..8).map(move |number| writer * 100 + number)) {
            assert_eq!(get(&volume, number), Some(last(number)));
        }
        assert!(volume.check().unwrap().is_sound());
    }
}

#[test]
fn every_key_is_told_with_its_attributes() {
    let (_device, volume) = new_volume(options());
    (0..100).for_each(|number| put(&volume, number, content(number, 3000), Class::Cache));
    volume.remove(&key(4), Class::Cache).unwrap();
    volume.checkpoint().unwrap();
    let mut told = Vec::new();
    volume
        .for_each(&mut |key, attributes| {
            told.push((key.to_vec(), u64::from_le_bytes(attributes.try_into().unwrap())));
        })
        .unwrap();
    told.sort_by_key(|(_, number)| *number);
    let expected: Vec<_> = (0..100).filter(|number| *number != 4).map(|number| (key(number), number)).collect();
    assert_eq!(told, expected);
}
