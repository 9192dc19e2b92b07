//! What reads cost, in requests and by the clock of a disk that turns: no time of this machine is looked at.

use std::sync::Arc;

use weft_segment::device::{Device, MemoryDevice, Rotating};
use weft_segment::{Affinity, Class, Options, Shape, Volume};

use crate::sample::{content, get, key, open, options, put};

const PAGES: u64 = 60;
const OBJECTS: u64 = 14;

fn length(number: u64) -> usize {
    2000 + (number * 7919 % 14_000) as usize
}

/// Pages whose objects came in turns, told of or not.
fn filled(told: bool) -> Vec<u8> {
    let device = Arc::new(MemoryDevice::new(32 << 20));
    Volume::format(&*device, &Shape::default()).unwrap();
    let volume = open(&device, Options { group_bytes: 8 << 20, ..options() });
    for page in (0..PAGES).filter(|_| told) {
        let keys: Vec<Vec<u8>> = (0..OBJECTS).map(|object| key(page * 100 + object)).collect();
        volume.hint(Affinity::Told, &keys.iter().map(Vec::as_slice).collect::<Vec<_>>());
    }
    for object in 0..OBJECTS {
        for page in 0..PAGES {
            let number = page * 100 + object;
            put(&volume, number, content(number, length(number)), Class::Cache);
        }
    }
    drop(volume);
    device.image()
}

/// Reads all pages, in an order that is no order; time on the disk in seconds, and requests.
fn read_pages(image: Vec<u8>, buffer_bytes: usize) -> (f64, u64) {
    let disk = Arc::new(Rotating::new(MemoryDevice::of(image), 250 << 30));
    let volume = open(&disk, Options { buffer_bytes, ..options() });
    let (before, requests) = (disk.clock(), disk.requests());
    for page in (0..PAGES).map(|page| page * 37 % PAGES) {
        for number in (0..OBJECTS).map(|object| page * 100 + object) {
            assert_eq!(get(&volume, number), Some(content(number, length(number))));
        }
    }
    ((disk.clock() - before).as_secs_f64(), disk.requests() - requests)
}

#[test]
fn pages_that_were_told_of_take_few_requests_and_little_time_on_a_disk_that_turns() {
    let objects = (PAGES * OBJECTS) as f64;
    let (alone, requests_alone) = read_pages(filled(false), 0);
    let (together, requests) = read_pages(filled(true), 8 << 20);
    assert!(requests as f64 / objects <= 0.3, "{requests} requests for {objects} objects");
    assert!(requests_alone as f64 / objects <= 1.05, "{requests_alone} requests for {objects} objects");
    assert!(alone / together > 3.0, "{alone} s alone, {together} s together");
}

/// Objects without any locality, read once each: whole segments are a loss there, and are given up soon.
#[test]
fn without_locality_each_object_takes_one_read() {
    let image = filled(false);
    let device = Arc::new(MemoryDevice::of(image));
    let volume = open(&device, Options { buffer_bytes: 400_000, ..options() });
    let all = PAGES * OBJECTS;
    for step in 0..all {
        let at = step * 541 % all;
        let number = at / OBJECTS * 100 + at % OBJECTS;
        assert_eq!(get(&volume, number), Some(content(number, length(number))));
    }
    let stats = volume.stats();
    let requests = stats.object_reads + stats.segment_reads;
    assert!(requests as f64 <= 1.05 * all as f64, "{stats:?}");
}
